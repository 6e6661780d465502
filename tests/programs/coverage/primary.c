/* Primary and green contexts: counted by the driver, charged once. */
#include "coverage.h"

static void fill_with_one_of_each(CUdeviceptr *pooled) {
    CUDA_ARRAY_DESCRIPTOR wanted = {1024, 1024, 0x20, 1};
    CUarray array;
    block(5 * MIB), block(4096), physical(2 * MIB, 0);
    NEED(cuArrayCreate_v2(&array, &wanted));
    NEED(cuMemAllocAsync(pooled, 1000, NULL));
    load_grower();
    at("one of each", 6 * MIB + 2 * MIB + 2 * MIB + 4 * MIB + 32 * MIB, CTX + CODE);
}

WHOLE(cuDevicePrimaryCtxRetain) {
    CUcontext one = NULL, same = NULL, there = NULL, none = (CUcontext)(uintptr_t)POISON;
    NEED(cuInit(0));
    is("the first to retain it", CALL((CUcontext *, CUdevice), &one, 0), SUCCESS);
    at("makes it", 0, CTX);
    is("the second", CALL((CUcontext *, CUdevice), &same, 0), SUCCESS);
    HOLDS("gets the same", same == one);
    at("at no cost", 0, CTX);
    is("another device", CALL((CUcontext *, CUdevice), &there, 1), SUCCESS);
    at_both("has one of its own", 0, CTX, 0, CTX);
    tell("no such device", CALL((CUcontext *, CUdevice), &none, 7));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", CALL((CUcontext *, CUdevice), NULL, 0));
    NEED(cuDevicePrimaryCtxRelease_v2(0));
    at_both("it is there as long as somebody retains it", 0, CTX, 0, CTX);
    NEED(cuDevicePrimaryCtxRelease_v2(0));
    NEED(cuDevicePrimaryCtxRelease_v2(1));
    at("all is back", 0, 0);
    is("it is made again", CALL((CUcontext *, CUdevice), &one, 0), SUCCESS);
    NEED(cuCtxSetCurrent(one));
    block(5 * MIB);
    at("at the same cost", 6 * MIB, CTX);
}

PART(cuDevicePrimaryCtxRetain) {
    CUcontext contexts[3], none = (CUcontext)(uintptr_t)POISON;
    unsigned flags = 0;
    int active = -1;
    NEED(cuInit(0));
    for (int i = 0; i < 3; i++) NEED(cuCtxCreate_v2(&contexts[i], 0, 0));
    at("three contexts", 0, 3 * CTX);
    is("one more", CALL((CUcontext *, CUdevice), &none, 0), OUT_OF_MEMORY);
    is_untouched("a refusal leaves the output alone", &none, sizeof none);
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
    is("it is not active", active, 0);
    at("nothing has changed", 0, 3 * CTX);
    NEED(cuCtxDestroy_v2(contexts[0]));
    is("the same call again", CALL((CUcontext *, CUdevice), &none, 0), SUCCESS);
    at("is granted", 0, 3 * CTX);
    NEED(cuCtxSetCurrent(none));
    fill(0);
    is("retained again at a full quota", CALL((CUcontext *, CUdevice), &none, 0), SUCCESS);
    at("it costs nothing", QUOTA - 3 * CTX, 3 * CTX);
    none = (CUcontext)(uintptr_t)POISON;
    leave_little();
    is("one whose cost shows when it is there", CALL((CUcontext *, CUdevice), &none, 1), OUT_OF_MEMORY);
    is_untouched("leaves the output alone", &none, sizeof none);
    NEED(cuDevicePrimaryCtxGetState(1, &flags, &active));
    is("it is unmade", active, 0);
    at_both("and costs nothing", QUOTA - 3 * CTX, 3 * CTX, QUOTA - LITTLE, 0);
}

static void released(void) {
    CUdeviceptr pooled;
    CUcontext same;
    NEED(cuInit(0));
    tell("not retained", CALL((CUdevice), 0));
    begin();
    NEED(cuDevicePrimaryCtxRetain(&same, 0));
    fill_with_one_of_each(&pooled);
    tell("no such device", CALL((CUdevice), 7));
    is("the first reference", CALL((CUdevice), 0), SUCCESS);
    at("changes nothing", 46 * MIB, CTX + CODE);
    is("the last", CALL((CUdevice), 0), SUCCESS);
    at("but for physical memory nothing is left", 2 * MIB, 0);
    tell("once too often", CALL((CUdevice), 0));
    at("nothing more", 2 * MIB, 0);
}

WHOLE(cuDevicePrimaryCtxRelease) { released(); }
WHOLE(cuDevicePrimaryCtxRelease_v2) { released(); }

static void reset(void) {
    CUdeviceptr pooled;
    CUcontext context = begin(), same;
    NEED(cuDevicePrimaryCtxRetain(&same, 0));
    fill_with_one_of_each(&pooled);
    tell("no such device", CALL((CUdevice), 7));
    is("whoever retains it", CALL((CUdevice), 0), SUCCESS);
    at("but for physical memory nothing is left", 2 * MIB, 0);
    is("again", CALL((CUdevice), 0), SUCCESS);
    at("nothing more", 2 * MIB, 0);
    NEED(cuDevicePrimaryCtxRetain(&same, 0));
    HOLDS("its handle stays", same == context);
    NEED(cuCtxSetCurrent(same));
    block(3 * MIB);
    at("it begins anew", 6 * MIB, CTX);
}

WHOLE(cuDevicePrimaryCtxReset) { reset(); }
WHOLE(cuDevicePrimaryCtxReset_v2) { reset(); }

WHOLE(cuDevicePrimaryCtxGetState) {
    unsigned flags = 77;
    int active = 77;
    NEED(cuInit(0));
    is("nobody retains it", CALL((CUdevice, unsigned *, int *), 0, &flags, &active), SUCCESS);
    HOLDS("it is not active", active == 0 && flags == 0);
    at("to ask makes nothing", 0, 0);
    begin();
    is("somebody does", CALL((CUdevice, unsigned *, int *), 0, &flags, &active), SUCCESS);
    is("it is active", active, 1);
    flags = (unsigned)POISON, active = (int)POISON;
    tell("no such device", CALL((CUdevice, unsigned *, int *), 7, &flags, &active));
    tell("no output", CALL((CUdevice, unsigned *, int *), 0, NULL, &active));
    tell("no other", CALL((CUdevice, unsigned *, int *), 0, &flags, NULL));
    is_untouched("failed calls leave the flags alone", &flags, sizeof flags);
    is_untouched("and the state", &active, sizeof active);
    at("one context", 0, CTX);
}

static void flagged(void) {
    unsigned flags = 77;
    int active = 77;
    NEED(cuInit(0));
    is("flags", CALL((CUdevice, unsigned), 0, 4), SUCCESS);
    at("make nothing", 0, 0);
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
    HOLDS("they are kept", flags == 4 && active == 0);
    tell("unknown flags", CALL((CUdevice, unsigned), 0, 0x10000));
    tell("no such device", CALL((CUdevice, unsigned), 7, 4));
    begin();
    tell("while it is active", CALL((CUdevice, unsigned), 0, 2));
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
    tell("the flags then", flags);
    at("one context", 0, CTX);
}

WHOLE(cuDevicePrimaryCtxSetFlags) { flagged(); }
WHOLE(cuDevicePrimaryCtxSetFlags_v2) { flagged(); }

static CUdevResourceDesc share(int device) {
    CUdevResource whole, part[1], rest;
    CUdevResourceDesc description;
    unsigned count = 1;
    NEED(cuDeviceGetDevResource(device, &whole, 1));
    NEED(cuDevSmResourceSplitByCount(part, &count, &whole, &rest, 0, 16));
    NEED(cuDevResourceGenerateDesc(&description, part, 1));
    return description;
}

static CUresult green(CUgreenCtx *out, CUdevResourceDesc description, CUdevice device, unsigned flags) {
    return CALL((CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned), out, description, device, flags);
}

WHOLE(cuGreenCtxCreate) {
    CUgreenCtx one, two, none = (CUgreenCtx)(uintptr_t)POISON;
    NEED(cuInit(0));
    CUdevResourceDesc description = share(0);
    is("the first", green(&one, description, 0, 1), SUCCESS);
    at("makes the primary context", 0, CTX);
    is("the second", green(&two, description, 0, 1), SUCCESS);
    at("uses it, too", 0, CTX);
    tell("without a default stream", green(&none, description, 0, 0));
    tell("of nothing", green(&none, NULL, 0, 1));
    tell("on no device", green(&none, description, 7, 1));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", green(NULL, description, 0, 1));
    at("and cost nothing", 0, CTX);
    NEED(cuGreenCtxDestroy(one));
    NEED(cuGreenCtxDestroy(two));
    at("all is back", 0, 0);
    is("on another device", green(&two, share(1), 1, 1), SUCCESS);
    at_both("it is charged there", 0, 0, 0, CTX);
}

PART(cuGreenCtxCreate) {
    CUcontext contexts[3];
    CUgreenCtx none = (CUgreenCtx)(uintptr_t)POISON;
    unsigned flags = 0;
    int active = -1;
    NEED(cuInit(0));
    CUdevResourceDesc description = share(0);
    for (int i = 0; i < 3; i++) NEED(cuCtxCreate_v2(&contexts[i], 0, 0));
    is("a primary context does not fit", green(&none, description, 0, 1), OUT_OF_MEMORY);
    is_untouched("a refusal leaves the output alone", &none, sizeof none);
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
    is("it is not active", active, 0);
    at("nothing has changed", 0, 3 * CTX);
    NEED(cuCtxDestroy_v2(contexts[0]));
    is("the same call again", green(&none, description, 0, 1), SUCCESS);
    at("is granted", 0, 3 * CTX);
    fill(0);
    is("on a primary context that is there", green(&none, description, 0, 1), SUCCESS);
    at("it costs nothing", QUOTA - 3 * CTX, 3 * CTX);
    none = (CUgreenCtx)(uintptr_t)POISON;
    leave_little();
    is("one whose cost shows when it is there", green(&none, share(1), 1, 1), OUT_OF_MEMORY);
    is_untouched("leaves the output alone", &none, sizeof none);
    NEED(cuDevicePrimaryCtxGetState(1, &flags, &active));
    is("it is unmade", active, 0);
    at_both("and costs nothing", QUOTA - 3 * CTX, 3 * CTX, QUOTA - LITTLE, 0);
}

WHOLE(cuGreenCtxDestroy) {
    CUgreenCtx one, two;
    CUcontext context;
    NEED(cuInit(0));
    CUdevResourceDesc description = share(0);
    NEED(cuGreenCtxCreate(&one, description, 0, 1));
    NEED(cuGreenCtxCreate(&two, description, 0, 1));
    NEED(cuCtxFromGreenCtx(&context, one));
    NEED(cuCtxSetCurrent(context));
    block(5 * MIB);
    at("two on one primary context", 6 * MIB, CTX);
    tell("null", CALL((CUgreenCtx), NULL));
    tell("none", CALL((CUgreenCtx), nobody()));
    is("one", CALL((CUgreenCtx), two), SUCCESS);
    at("leaves it", 6 * MIB, CTX);
    is("the last", CALL((CUgreenCtx), one), SUCCESS);
    at("takes it with all that was in it", 0, 0);
    tell("twice", CALL((CUgreenCtx), one));
    at("nothing more", 0, 0);
}

WHOLE(cuCtxFromGreenCtx) {
    CUgreenCtx one;
    CUcontext context = NULL, none = (CUcontext)(uintptr_t)POISON;
    NEED(cuInit(0));
    NEED(cuGreenCtxCreate(&one, share(0), 0, 1));
    is("a context to use it by", CALL((CUcontext *, CUgreenCtx), &context, one), SUCCESS);
    NEED(cuCtxSetCurrent(context));
    block(5 * MIB);
    at("what is allocated in it is charged", 6 * MIB, CTX);
    tell("of nothing", CALL((CUcontext *, CUgreenCtx), &none, nobody()));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", CALL((CUcontext *, CUgreenCtx), NULL, one));
    at("and cost nothing", 6 * MIB, CTX);
}

WHOLE(cuGreenCtxStreamCreate) {
    CUgreenCtx one;
    CUstream stream, none = (CUstream)(uintptr_t)POISON;
    CUdeviceptr pooled;
    NEED(cuInit(0));
    NEED(cuGreenCtxCreate(&one, share(0), 0, 1));
    is("a stream", CALL((CUstream *, CUgreenCtx, unsigned, int), &stream, one, 1, 0), SUCCESS);
    at("costs nothing", 0, CTX);
    CUcontext context;
    NEED(cuCtxFromGreenCtx(&context, one));
    NEED(cuCtxSetCurrent(context));
    NEED(cuMemAllocAsync(&pooled, 1000, stream));
    at("allocations in it are charged", 32 * MIB, CTX);
    tell("a blocking one", CALL((CUstream *, CUgreenCtx, unsigned, int), &none, one, 0, 0));
    tell("of nothing", CALL((CUstream *, CUgreenCtx, unsigned, int), &none, nobody(), 1, 0));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    NEED(cuMemFreeAsync(pooled, stream));
    NEED(cuStreamSynchronize(stream));
    at("and given back", 0, CTX);
}
