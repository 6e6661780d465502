/* Streams, events and what else takes no memory of its own. */
#include "coverage.h"

static void stream_is_charged(CUstream stream) {
    CUdeviceptr address;
    at("a stream costs nothing", 0, CTX);
    NEED(cuMemAllocAsync(&address, 1000, stream));
    at("allocations in it are charged", 32 * MIB, CTX);
    NEED(cuMemFreeAsync(address, stream));
    NEED(cuStreamSynchronize(stream));
    at("and given back", 0, CTX);
}

WHOLE(cuStreamCreate) {
    CUstream stream = NULL, none = (CUstream)(uintptr_t)POISON;
    begin();
    is("a stream", CALL((CUstream *, unsigned), &stream, 1), SUCCESS);
    tell("unknown flags", CALL((CUstream *, unsigned), &none, 0x100));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", CALL((CUstream *, unsigned), NULL, 0));
    stream_is_charged(stream);
}

WHOLE(cuStreamCreateWithPriority) {
    CUstream stream = NULL, none = (CUstream)(uintptr_t)POISON;
    int priority = 7;
    begin();
    is("a stream", CALL((CUstream *, unsigned, int), &stream, 1, -3), SUCCESS);
    NEED(cuStreamGetPriority(stream, &priority));
    is("keeps its priority", priority, -3);
    tell("unknown flags", CALL((CUstream *, unsigned, int), &none, 0x100, 0));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    stream_is_charged(stream);
}

static void stream_destroyed(void) {
    CUdeviceptr address;
    begin();
    CUstream stream = stream_of_its_own();
    NEED(cuMemAllocAsync(&address, 1000, stream));
    is("a stream", CALL((CUstream), stream), SUCCESS);
    at("leaves its memory", 32 * MIB, CTX);
    tell("none", CALL((CUstream), nobody()));
    tell("null", CALL((CUstream), NULL));
    NEED(cuMemFreeAsync(address, NULL));
    NEED(cuCtxSynchronize());
    at("which is freed elsewhere", 0, CTX);
}

WHOLE(cuStreamDestroy) { stream_destroyed(); }
WHOLE(cuStreamDestroy_v2) { stream_destroyed(); }

WHOLE(cuEventCreate) {
    CUevent event = NULL, none = (CUevent)(uintptr_t)POISON;
    begin();
    is("an event", CALL((CUevent *, unsigned), &event, 2), SUCCESS);
    NEED(cuEventRecord(event, NULL));
    NEED(cuEventSynchronize(event));
    tell("unknown flags", CALL((CUevent *, unsigned), &none, 0x100));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", CALL((CUevent *, unsigned), NULL, 0));
    at("costs nothing", 0, CTX);
}

static void event_destroyed(void) {
    CUevent event;
    begin();
    NEED(cuEventCreate(&event, 0));
    is("an event", CALL((CUevent), event), SUCCESS);
    tell("twice", CALL((CUevent), event));
    tell("null", CALL((CUevent), NULL));
    at("was nothing", 0, CTX);
}

WHOLE(cuEventDestroy) { event_destroyed(); }
WHOLE(cuEventDestroy_v2) { event_destroyed(); }


/* Objects are made beside a full quota. */
PART(cuStreamCreate) {
    CUstream stream;
    begin();
    fill(0);
    is("a stream beside a full quota", CALL((CUstream *, unsigned), &stream, 1), SUCCESS);
    at("is not charged", QUOTA - CTX, CTX);
}

PART(cuStreamCreateWithPriority) {
    CUstream stream;
    begin();
    fill(0);
    is("a stream beside a full quota", CALL((CUstream *, unsigned, int), &stream, 1, 0), SUCCESS);
    at("is not charged", QUOTA - CTX, CTX);
}

PART(cuEventCreate) {
    CUevent event;
    begin();
    fill(0);
    is("an event beside a full quota", CALL((CUevent *, unsigned), &event, 0), SUCCESS);
    at("is not charged", QUOTA - CTX, CTX);
}

WHOLE(cuFuncSetBlockShape) {
    begin();
    CUfunction function = kernel("spin_0us");
    is("a shape", CALL((CUfunction, int, int, int), function, 32, 1, 1), SUCCESS);
    is("is launched", cuLaunch(function), SUCCESS);
    tell("of nothing", CALL((CUfunction, int, int, int), nobody(), 32, 1, 1));
    tell("too large", CALL((CUfunction, int, int, int), function, 4096, 1, 1));
    settle();
    at("costs nothing", 0, CTX + CODE);
}

static void peers(CUcontext *first, CUcontext *second) {
    *first = begin();
    NEED(cuDevicePrimaryCtxRetain(second, 1));
}

WHOLE(cuCtxEnablePeerAccess) {
    CUcontext first, second;
    peers(&first, &second);
    block(5 * MIB);
    is("access", CALL((CUcontext, unsigned), second, 0), SUCCESS);
    tell("twice", CALL((CUcontext, unsigned), second, 0));
    tell("flags", CALL((CUcontext, unsigned), second, 1));
    tell("to oneself", CALL((CUcontext, unsigned), first, 0));
    tell("to nobody", CALL((CUcontext, unsigned), nobody(), 0));
    NEED(cuCtxSetCurrent(second));
    block(3 * MIB);
    at_both("memory is charged where it is", 6 * MIB, CTX, 4 * MIB, CTX);
}

WHOLE(cuCtxDisablePeerAccess) {
    CUcontext first, second;
    peers(&first, &second);
    NEED(cuCtxEnablePeerAccess(second, 0));
    is("no access", CALL((CUcontext), second), SUCCESS);
    tell("twice", CALL((CUcontext), second));
    tell("to nobody", CALL((CUcontext), nobody()));
    at_both("nothing is charged", 0, CTX, 0, CTX);
}

/* Managed memory counts where it was made, whatever is said about it. */
static CUresult advised(CUdeviceptr address, size_t bytes, int advice, int device) {
    return CALL((CUdeviceptr, size_t, int, CUdevice), address, bytes, advice, device);
}
static CUresult advised_v2(CUdeviceptr address, size_t bytes, int advice, int device) {
    CUmemLocation where = {device < 0 ? 2 : 1, device < 0 ? 0 : device};
    return CALL((CUdeviceptr, size_t, int, CUmemLocation), address, bytes, advice, where);
}

static void advises(CUresult (*advise)(CUdeviceptr, size_t, int, int)) {
    enum { READ_MOSTLY = 1, PREFERRED = 3 };
    CUdeviceptr shared;
    int preferred = 77;
    begin();
    NEED(cuMemAllocManaged(&shared, 5 * MIB, 1));
    is("best on the host", advise(shared, 5 * MIB, PREFERRED, -1), SUCCESS);
    NEED(cuMemRangeGetAttribute(&preferred, sizeof preferred, 2, shared, 5 * MIB));
    is("is kept", preferred, -1);
    at("and counts as before", 6 * MIB, CTX);
    is("best on the other device", advise(shared, 5 * MIB, PREFERRED, 1), SUCCESS);
    is("mostly read", advise(shared, 5 * MIB, READ_MOSTLY, 0), SUCCESS);
    tell("no such advice", advise(shared, 5 * MIB, 99, 0));
    tell("on other memory", advise(block(2 * MIB), 2 * MIB, PREFERRED, 0));
    tell("on no device", advise(shared, 5 * MIB, PREFERRED, 7));
    at("it is the first device's", 8 * MIB, CTX);
}

WHOLE(cuMemAdvise) { advises(advised); }
WHOLE(cuMemAdvise_v2) { advises(advised_v2); }

WHOLE(cuStreamAttachMemAsync) {
    enum { OF_ALL = 1, OF_ONE = 4 };
    CUdeviceptr shared;
    begin();
    CUstream stream = stream_of_its_own();
    NEED(cuMemAllocManaged(&shared, 5 * MIB, 1));
    is("a stream's own", CALL((CUstream, CUdeviceptr, size_t, unsigned), stream, shared, 0, OF_ONE), SUCCESS);
    is("everybody's", CALL((CUstream, CUdeviceptr, size_t, unsigned), stream, shared, 0, OF_ALL), SUCCESS);
    tell("flags", CALL((CUstream, CUdeviceptr, size_t, unsigned), stream, shared, 0, 77));
    tell("other memory", CALL((CUstream, CUdeviceptr, size_t, unsigned), stream, block(2 * MIB), 0, OF_ALL));
    tell("no stream", CALL((CUstream, CUdeviceptr, size_t, unsigned), nobody(), shared, 0, OF_ALL));
    tell("the default stream", CALL((CUstream, CUdeviceptr, size_t, unsigned), NULL, shared, 0, OF_ONE));
    at("counts as before", 8 * MIB, CTX);
    NEED(cuMemFree_v2(shared));
    at("and is given back", 2 * MIB, CTX);
}

static void notified(void *info, void *argument, void *callback) { (void)info, (void)argument, (void)callback; }

WHOLE(cuDeviceRegisterAsyncNotification) {
    void *callback = NULL, *none = (void *)(uintptr_t)POISON;
    begin();
    is("somebody wants to be told", CALL((CUdevice, void *, void *, void **), 0, (void *)notified, NULL, &callback), SUCCESS);
    tell("of no device", CALL((CUdevice, void *, void *, void **), 7, (void *)notified, NULL, &none));
    tell("by no function", CALL((CUdevice, void *, void *, void **), 0, NULL, NULL, &none));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    NEED(cuDeviceUnregisterAsyncNotification(0, callback));
    at("costs nothing", 0, CTX);
}

WHOLE(cuDeviceUnregisterAsyncNotification) {
    void *callback;
    begin();
    NEED(cuDeviceRegisterAsyncNotification(0, notified, NULL, &callback));
    tell("of another device", CALL((CUdevice, void *), 1, callback));
    is("no longer", CALL((CUdevice, void *), 0, callback), SUCCESS);
    tell("twice", CALL((CUdevice, void *), 0, callback));
    at("costs nothing", 0, CTX);
}
