/* Logical endpoints: they take nothing, and keep what is bound to them. */
#include "coverage.h"

enum { UNICAST = 1 };
static const CUlogicalEndpointProp own = {UNICAST, 0, 64 * MIB, 0, 0};

static uint32_t number(void) {
    uint32_t id;
    NEED(cuLogicalEndpointIdReserve(&id, 1));
    return id;
}

static uint32_t endpoint(void) {
    uint32_t id = number();
    int status = 0;
    NEED(cuLogicalEndpointCreate(id, &own));
    NEED(cuLogicalEndpointQuery(id, 1, &status));
    return id;
}

/* Bound memory of which the program has nothing else any more. */
static uint32_t with_memory(void) {
    uint32_t id = endpoint();
    CUmemGenericAllocationHandle memory = physical(4 * MIB, 0);
    NEED(cuLogicalEndpointBindMem(id, 0, 0, memory, 0, 4 * MIB, 0));
    NEED(cuMemRelease(memory));
    return id;
}

WHOLE(cuLogicalEndpointIdReserve) {
    uint32_t id = 0, none = (uint32_t)POISON;
    begin();
    is("numbers", CALL((uint32_t *, uint32_t), &id, 3), SUCCESS);
    NEED(cuLogicalEndpointCreate(id + 2, &own));
    tell("none", CALL((uint32_t *, uint32_t), &none, 0));
    tell("more than there are", CALL((uint32_t *, uint32_t), &none, 4000000000u));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", CALL((uint32_t *, uint32_t), NULL, 1));
    at("cost nothing", 0, CTX);
}

WHOLE(cuLogicalEndpointIdRelease) {
    begin();
    CUmodule module = load_grower();
    uint32_t id = number(), used = endpoint();
    tell("a number in use", CALL((uint32_t, uint32_t), used, 1));
    grow_unseen(module);
    is("one that is not", CALL((uint32_t, uint32_t), id, 1), SUCCESS);
    tell("twice", CALL((uint32_t, uint32_t), id, 1));
    at("what came unseen is booked", 0, CTX + CODE + UNSEEN);
}

WHOLE(cuLogicalEndpointCreate) {
    CUlogicalEndpointProp odd = own, nowhere = own;
    begin();
    uint32_t id = number();
    odd.size += 4096, nowhere.member = 7;
    tell("between two pages", CALL((uint32_t, const void *), id, &odd));
    tell("of no device", CALL((uint32_t, const void *), id, &nowhere));
    tell("of nothing", CALL((uint32_t, const void *), id, NULL));
    tell("of no number", CALL((uint32_t, const void *), id + 7, &own));
    is("an endpoint", CALL((uint32_t, const void *), id, &own), SUCCESS);
    tell("twice", CALL((uint32_t, const void *), id, &own));
    at("costs nothing", 0, CTX);
}

WHOLE(cuLogicalEndpointImport) {
    char handle[64] = "";
    begin();
    tell("no handle", CALL((uint32_t, const void *, int), number(), NULL, 1));
    tell("of no kind", CALL((uint32_t, const void *, int), number(), handle, 0));
    tell("there is no fabric", CALL((uint32_t, const void *, int), number(), handle, 1));
    at("nothing is charged", 0, CTX);
}

typedef CUresult (*binding)(uint32_t id, uint64_t offset, uint64_t memory, CUdeviceptr address);

static CUresult by_handle(uint32_t id, uint64_t offset, uint64_t memory, CUdeviceptr address) {
    (void)address;
    typedef CUresult (*function)(uint32_t, CUdevice, uint64_t, uint64_t, uint64_t, uint64_t, unsigned long long);
    return ((function)tested)(id, 0, offset, memory, 0, 4 * MIB, 0);
}
static CUresult by_address(uint32_t id, uint64_t offset, uint64_t memory, CUdeviceptr address) {
    (void)memory;
    void *pointer = (void *)(uintptr_t)address;
    return CALL((uint32_t, CUdevice, uint64_t, void *, uint64_t, unsigned long long), id, 0, offset, pointer, 4 * MIB, 0);
}

static void bound(binding bind) {
    begin();
    uint32_t id = endpoint();
    CUmemGenericAllocationHandle memory = physical(4 * MIB, 0);
    CUdeviceptr space = reserved(4 * MIB);
    NEED(cuMemMap(space, 4 * MIB, 0, memory, 0));
    at("memory to be bound", 4 * MIB, CTX);
    is("bound", bind(id, 0, memory, space), SUCCESS);
    at("it takes no more", 4 * MIB, CTX);
    tell("between two pages", bind(id, MIB, memory, space));
    tell("bound there already", bind(id, 0, memory, space));
    tell("to nothing", bind(id + 7, 0, memory, space));
    tell("nothing", bind(id, 8 * MIB, 0x1234, 0x1234));
    at("that changes nothing", 4 * MIB, CTX);
    NEED(cuMemUnmap(space, 4 * MIB));
    NEED(cuMemRelease(memory));
    at("the endpoint keeps it", 0, CTX + 4 * MIB);
    NEED(cuLogicalEndpointUnbind(id, 0, 0, 4 * MIB));
    at("until it is unbound", 0, CTX);
}

WHOLE(cuLogicalEndpointBindMem) { bound(by_handle); }
WHOLE(cuLogicalEndpointBindAddr) { bound(by_address); }

WHOLE(cuLogicalEndpointUnbind) {
    begin();
    uint32_t id = with_memory();
    at("bound memory", 0, CTX + 4 * MIB);
    tell("elsewhere", CALL((uint32_t, CUdevice, uint64_t, uint64_t), id, 0, 8 * MIB, 4 * MIB));
    tell("of no device", CALL((uint32_t, CUdevice, uint64_t, uint64_t), id, 7, 0, 4 * MIB));
    tell("of no endpoint", CALL((uint32_t, CUdevice, uint64_t, uint64_t), id + 7, 0, 0, 4 * MIB));
    at("that changes nothing", 0, CTX + 4 * MIB);
    is("unbound", CALL((uint32_t, CUdevice, uint64_t, uint64_t), id, 0, 0, 4 * MIB), SUCCESS);
    at("it goes", 0, CTX);
}

WHOLE(cuLogicalEndpointDestroy) {
    begin();
    uint32_t id = with_memory();
    at("bound memory", 0, CTX + 4 * MIB);
    tell("no endpoint", CALL((uint32_t), id + 7));
    at("that changes nothing", 0, CTX + 4 * MIB);
    is("it goes", CALL((uint32_t), id), SUCCESS);
    at("with what was bound to it", 0, CTX);
    tell("twice", CALL((uint32_t), id));
    at("nothing more", 0, CTX);
}
