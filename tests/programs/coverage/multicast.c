/* Multicast: an object takes nothing, and keeps what is bound to it. */
#include "coverage.h"

static const CUmulticastObjectProp both = {2, 64 * MIB, 0, 0};

static CUmemGenericAllocationHandle team(void) {
    CUmemGenericAllocationHandle object;
    NEED(cuMulticastCreate(&object, &both));
    NEED(cuMulticastAddDevice(object, 0));
    NEED(cuMulticastAddDevice(object, 1));
    return object;
}

WHOLE(cuMulticastCreate) {
    CUmulticastObjectProp nobody_at_all = both, odd = both;
    uint64_t object = 0, none = POISON;
    begin();
    nobody_at_all.numDevices = 0, odd.size += 4096;
    is("an object", CALL((uint64_t *, const CUmulticastObjectProp *), &object, &both), SUCCESS);
    at("takes nothing", 0, CTX);
    tell("of no device", CALL((uint64_t *, const CUmulticastObjectProp *), &none, &nobody_at_all));
    tell("of half a page", CALL((uint64_t *, const CUmulticastObjectProp *), &none, &odd));
    tell("of nothing", CALL((uint64_t *, const CUmulticastObjectProp *), &none, NULL));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    NEED(cuMemRelease(object));
    at("as before", 0, CTX);
}

typedef CUresult (*binding)(uint64_t object, size_t offset, uint64_t memory, CUdeviceptr address);

static CUresult by_handle(uint64_t object, size_t offset, uint64_t memory, CUdeviceptr address) {
    (void)address;
    return CALL((uint64_t, size_t, uint64_t, size_t, size_t, unsigned long long), object, offset, memory, 0, 4 * MIB, 0);
}
static CUresult by_handle_and_device(uint64_t object, size_t offset, uint64_t memory, CUdeviceptr address) {
    (void)address;
    return CALL((uint64_t, CUdevice, size_t, uint64_t, size_t, size_t, unsigned long long), object, 0, offset, memory, 0, 4 * MIB, 0);
}
static CUresult by_address(uint64_t object, size_t offset, uint64_t memory, CUdeviceptr address) {
    (void)memory;
    return CALL((uint64_t, size_t, CUdeviceptr, size_t, unsigned long long), object, offset, address, 4 * MIB, 0);
}
static CUresult by_address_and_device(uint64_t object, size_t offset, uint64_t memory, CUdeviceptr address) {
    (void)memory;
    return CALL((uint64_t, CUdevice, size_t, CUdeviceptr, size_t, unsigned long long), object, 0, offset, address, 4 * MIB, 0);
}

static void bound(binding bind) {
    begin();
    CUmemGenericAllocationHandle object = team(), memory = physical(4 * MIB, 0);
    CUdeviceptr space = reserved(4 * MIB);
    NEED(cuMemMap(space, 4 * MIB, 0, memory, 0));
    at("memory to be bound", 4 * MIB, CTX);
    is("bound", bind(object, 0, memory, space), SUCCESS);
    at("it takes no more", 4 * MIB, CTX);
    tell("between two pages", bind(object, MIB, memory, space));
    tell("bound there already", bind(object, 0, memory, space));
    tell("to nothing", bind(0x1234, 0, memory, space));
    tell("nothing", bind(object, 8 * MIB, 0x1234, 0x1234));
    at("that changes nothing", 4 * MIB, CTX);
    NEED(cuMemUnmap(space, 4 * MIB));
    NEED(cuMemRelease(memory));
    at("the object keeps it", 0, CTX + 4 * MIB);
    NEED(cuMulticastUnbind(object, 0, 0, 4 * MIB));
    at("until it is unbound", 0, CTX);
    memory = physical(4 * MIB, 0);
    NEED(cuMemMap(space, 4 * MIB, 0, memory, 0));
    NEED(bind(object, 0, memory, space));
    NEED(cuMemUnmap(space, 4 * MIB));
    NEED(cuMemRelease(memory));
    at("or", 0, CTX + 4 * MIB);
    NEED(cuMemRelease(object));
    free_bytes();
    at("until the object goes", 0, CTX);
}

WHOLE(cuMulticastBindMem) { bound(by_handle); }
WHOLE(cuMulticastBindMem_v2) { bound(by_handle_and_device); }
WHOLE(cuMulticastBindAddr) { bound(by_address); }
WHOLE(cuMulticastBindAddr_v2) { bound(by_address_and_device); }

WHOLE(cuMulticastUnbind) {
    begin();
    CUmemGenericAllocationHandle object = team(), here = physical(4 * MIB, 0), there = physical(2 * MIB, 1);
    NEED(cuMulticastBindMem_v2(object, 0, 0, here, 0, 4 * MIB, 0));
    NEED(cuMulticastBindMem_v2(object, 1, 0, there, 0, 2 * MIB, 0));
    NEED(cuMemRelease(here));
    NEED(cuMemRelease(there));
    at_both("bound memory", 0, CTX + 4 * MIB, 0, 2 * MIB);
    tell("elsewhere", CALL((uint64_t, CUdevice, size_t, size_t), object, 0, 8 * MIB, 4 * MIB));
    tell("of no device", CALL((uint64_t, CUdevice, size_t, size_t), object, 7, 0, 4 * MIB));
    tell("of no object", CALL((uint64_t, CUdevice, size_t, size_t), 0x1234, 0, 0, 4 * MIB));
    at_both("that changes nothing", 0, CTX + 4 * MIB, 0, 2 * MIB);
    is("of the first device", CALL((uint64_t, CUdevice, size_t, size_t), object, 0, 0, 4 * MIB), SUCCESS);
    at_both("the second has its own", 0, CTX, 0, 2 * MIB);
    is("of the second", CALL((uint64_t, CUdevice, size_t, size_t), object, 1, 0, 2 * MIB), SUCCESS);
    at("all is back", 0, CTX);
}
