/* Memory of the host takes none of the device. */
#include "coverage.h"

static CUresult allocated(void **out, size_t bytes) { return CALL((void **, size_t), out, bytes); }
static CUresult allocated_short(void **out, size_t bytes) { return CALL((void **, unsigned), out, (unsigned)bytes); }
static CUresult allocated_for_all(void **out, size_t bytes) { return CALL((void **, size_t, unsigned), out, bytes, 1); }

static void pinned(CUresult (*allocate)(void **, size_t)) {
    void *memory = NULL, *none = (void *)(uintptr_t)POISON;
    CUdeviceptr mapped = 0;
    begin();
    is("40 MiB", allocate(&memory, 40 * MIB), SUCCESS);
    memset(memory, 5, 40 * MIB);
    NEED(cuMemHostGetDevicePointer_v2(&mapped, memory, 0));
    at("none of the device", 0, CTX);
    tell("nothing", allocate(&none, 0));
    tell("no output", allocate(NULL, 4096));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    NEED(cuMemFreeHost(memory));
    at("as before", 0, CTX);
}

WHOLE(cuMemAllocHost_v2) { pinned(allocated); }
WHOLE(cuMemAllocHost) { pinned(allocated_short); }
WHOLE(cuMemHostAlloc) { pinned(allocated_for_all); }

/* A full quota has nothing to say about the host's memory. */
static void beside_a_full_quota(CUresult (*allocate)(void **, size_t)) {
    void *memory = NULL;
    begin();
    fill(0);
    is("host memory beside a full quota", allocate(&memory, 40 * MIB), SUCCESS);
    at("is not charged", QUOTA - CTX, CTX);
}

PART(cuMemAllocHost_v2) { beside_a_full_quota(allocated); }
PART(cuMemAllocHost) { beside_a_full_quota(allocated_short); }
PART(cuMemHostAlloc) { beside_a_full_quota(allocated_for_all); }

static void registered(void) {
    char *own = aligned_alloc(4096, MIB);
    CUdeviceptr mapped = 0;
    begin();
    is("memory of the program's own", CALL((void *, size_t, unsigned), own, MIB, 2), SUCCESS);
    NEED(cuMemHostGetDevicePointer_v2(&mapped, own, 0));
    at("takes none of the device", 0, CTX);
    tell("registered twice", CALL((void *, size_t, unsigned), own, MIB, 2));
    tell("nothing", CALL((void *, size_t, unsigned), own + 2 * MIB, 0, 2));
    tell("unknown flags", CALL((void *, size_t, unsigned), own + 2 * MIB, MIB, 0x100));
    NEED(cuMemHostUnregister(own));
    at("as before", 0, CTX);
}

WHOLE(cuMemHostRegister_v2) { registered(); }
WHOLE(cuMemHostRegister) { registered(); }

WHOLE(cuMemHostUnregister) {
    char *own = aligned_alloc(4096, MIB);
    begin();
    NEED(cuMemHostRegister_v2(own, MIB, 2));
    is("it is the program's again", CALL((void *), own), SUCCESS);
    tell("twice", CALL((void *), own));
    tell("null", CALL((void *), NULL));
    tell("an unknown address", CALL((void *), nobody()));
    at("the device is not concerned", 0, CTX);
}

WHOLE(cuMemFreeHost) {
    void *memory = NULL;
    CUdeviceptr large;
    begin();
    large = block(5 * MIB);
    NEED(cuMemHostAlloc(&memory, MIB, 0));
    is("it is freed", CALL((void *), memory), SUCCESS);
    tell("twice", CALL((void *), memory));
    tell("null", CALL((void *), NULL));
    tell("an unknown address", CALL((void *), nobody()));
    tell("memory of the device", CALL((void *), (void *)(uintptr_t)large));
    at("the device is not concerned", 6 * MIB, CTX);
}
