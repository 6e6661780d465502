/* Contexts of the program's own: what they cost, and what goes with them. */
#include "coverage.h"

typedef CUresult (*creation)(CUcontext *, unsigned flags, CUdevice);

static CUresult create(CUcontext *out, unsigned flags, CUdevice device) {
    return CALL((CUcontext *, unsigned, CUdevice), out, flags, device);
}
static CUresult create_v3(CUcontext *out, unsigned flags, CUdevice device) {
    return CALL((CUcontext *, void *, int, unsigned, CUdevice), out, NULL, 0, flags, device);
}
static CUresult create_v4(CUcontext *out, unsigned flags, CUdevice device) {
    return CALL((CUcontext *, void *, unsigned, CUdevice), out, NULL, flags, device);
}

static void created(creation make) {
    CUcontext one, two, three, top = NULL, none = (CUcontext)(uintptr_t)POISON;
    NEED(cuInit(0));
    is("a context", make(&one, 0, 0), SUCCESS);
    at("costs memory", 0, CTX);
    is("another", make(&two, 4, 0), SUCCESS);
    at("costs as much", 0, 2 * CTX);
    NEED(cuCtxGetCurrent(&top));
    HOLDS("the newest is current", top == two);
    is("one on another device", make(&three, 0, 1), SUCCESS);
    at_both("costs memory there", 0, 2 * CTX, 0, CTX);
    tell("unknown flags", make(&none, 0x1000, 0));
    tell("no such device", make(&none, 0, 7));
    tell("a device before the first", make(&none, 0, -1));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", make(NULL, 0, 0));
    at_both("and cost nothing", 0, 2 * CTX, 0, CTX);
    NEED(cuCtxDestroy_v2(three));
    NEED(cuCtxDestroy_v2(one));
    NEED(cuCtxDestroy_v2(two));
    at("all is back", 0, 0);
}

WHOLE(cuCtxCreate) { created(create); }
WHOLE(cuCtxCreate_v2) { created(create); }
WHOLE(cuCtxCreate_v3) { created(create_v3); }
WHOLE(cuCtxCreate_v4) { created(create_v4); }

/* Three contexts fit, and leave 124 MiB. */
static void counted(creation make) {
    CUcontext contexts[3], top = NULL, none = (CUcontext)(uintptr_t)POISON;
    NEED(cuInit(0));
    for (int i = 0; i < 3; i++) is("a context fits", make(&contexts[i], 0, 0), SUCCESS);
    at("three contexts", 0, 3 * CTX);
    is("a fourth", make(&none, 0, 0), OUT_OF_MEMORY);
    is_untouched("a refusal leaves the output alone", &none, sizeof none);
    NEED(cuCtxGetCurrent(&top));
    HOLDS("and the current context", top == contexts[2]);
    at("nothing has changed", 0, 3 * CTX);
    NEED(cuCtxDestroy_v2(contexts[0]));
    at("one goes", 0, 2 * CTX);
    is("the same call again", make(&none, 0, 0), SUCCESS);
    at("is granted", 0, 3 * CTX);
    contexts[2] = none, none = (CUcontext)(uintptr_t)POISON;
    leave_little();
    is("one whose cost shows when it is there", make(&none, 0, 1), OUT_OF_MEMORY);
    is_untouched("leaves the output alone", &none, sizeof none);
    NEED(cuCtxGetCurrent(&top));
    HOLDS("and the current context as well", top == contexts[2]);
    at_both("it is unmade", 0, 3 * CTX, QUOTA - LITTLE, 0);
}

PART(cuCtxCreate) { counted(create); }
PART(cuCtxCreate_v2) { counted(create); }
PART(cuCtxCreate_v3) { counted(create_v3); }
PART(cuCtxCreate_v4) { counted(create_v4); }

/* Pointers and arrays go with their context; pools and physical memory stay. */
static void destroyed(void) {
    CUDA_ARRAY_DESCRIPTOR wanted = {1024, 1024, 0x20, 1};
    CUcontext one, two;
    CUarray array;
    CUdeviceptr shared, pooled;
    NEED(cuInit(0));
    NEED(cuCtxCreate_v2(&one, 0, 0));
    NEED(cuCtxCreate_v2(&two, 0, 0));
    block(5 * MIB), block(4096), physical(2 * MIB, 0);
    NEED(cuArrayCreate_v2(&array, &wanted));
    NEED(cuMemAllocManaged(&shared, 2 * MIB, 1));
    NEED(cuMemAllocAsync(&pooled, 1000, NULL));
    load_grower();
    at("one of each", 6 * MIB + 2 * MIB + 2 * MIB + 4 * MIB + 2 * MIB + 32 * MIB, 2 * CTX + CODE);
    tell("null", CALL((CUcontext), NULL));
    tell("no context", CALL((CUcontext), nobody()));
    at("what is not destroyed stays charged", 48 * MIB, 2 * CTX + CODE);
    is("it goes", CALL((CUcontext), two), SUCCESS);
    at("with what was in it", 34 * MIB, CTX);
    tell("twice", CALL((CUcontext), two));
    at("nothing more", 34 * MIB, CTX);
    NEED(cuCtxSetCurrent(one));
    NEED(cuMemFreeAsync(pooled, NULL));
    NEED(cuCtxSynchronize());
    at("the pool's memory goes by itself", 2 * MIB, CTX);
    NEED(cuCtxCreate_v2(&two, 0, 1));
    block(3 * MIB);
    NEED(cuCtxSetCurrent(one));
    at_both("one on another device", 2 * MIB, CTX, 4 * MIB, CTX);
    is("which is not current", CALL((CUcontext), two), SUCCESS);
    at_both("gives back there", 2 * MIB, CTX, 0, 0);
    is("the last", CALL((CUcontext), one), SUCCESS);
    at("but for physical memory nothing is left", 2 * MIB, 0);
}

WHOLE(cuCtxDestroy) { destroyed(); }
WHOLE(cuCtxDestroy_v2) { destroyed(); }

WHOLE(cuCtxAttach) {
    CUcontext context = begin(), same = NULL, none = (CUcontext)(uintptr_t)POISON;
    is("the current context", CALL((CUcontext *, unsigned), &same, 0), SUCCESS);
    HOLDS("it is", same == context);
    tell("flags", CALL((CUcontext *, unsigned), &none, 1));
    NEED(cuCtxSetCurrent(NULL));
    tell("no context", CALL((CUcontext *, unsigned), &none, 0));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    at("nothing is charged", 0, CTX);
}

WHOLE(cuCtxDetach) {
    CUcontext context = begin(), other;
    block(5 * MIB);
    NEED(cuCtxCreate_v2(&other, 0, 0));
    tell("not current", CALL((CUcontext), context));
    tell("null", CALL((CUcontext), NULL));
    tell("no context", CALL((CUcontext), nobody()));
    NEED(cuCtxSetCurrent(context));
    tell("the current context", CALL((CUcontext), context));
    at("what the driver keeps stays charged", 6 * MIB, 2 * CTX);
}

WHOLE(cuCtxGetCurrent) {
    CUcontext found = (CUcontext)(uintptr_t)POISON, context;
    tell("before the driver is initialised", CALL((CUcontext *), &found));
    is_untouched("there is no answer", &found, sizeof found);
    NEED(cuInit(0));
    is("without a context", CALL((CUcontext *), &found), SUCCESS);
    HOLDS("null", found == NULL);
    context = begin();
    is("with one", CALL((CUcontext *), &found), SUCCESS);
    HOLDS("it", found == context);
    tell("no output", CALL((CUcontext *), NULL));
    block(5 * MIB);
    is("after an allocation", CALL((CUcontext *), &found), SUCCESS);
    HOLDS("the same", found == context);
    at("nothing is charged for it", 6 * MIB, CTX);
}

/* What is allocated next is charged to the device of the context that is current then. */
WHOLE(cuCtxSetCurrent) {
    CUcontext first = begin(), second, top = NULL;
    NEED(cuDevicePrimaryCtxRetain(&second, 1));
    is("another device", CALL((CUcontext), second), SUCCESS);
    block(5 * MIB);
    at_both("is charged", 0, CTX, 6 * MIB, CTX);
    is("and back", CALL((CUcontext), first), SUCCESS);
    block(3 * MIB);
    at_both("to the first", 4 * MIB, CTX, 6 * MIB, CTX);
    tell("no context", CALL((CUcontext), nobody()));
    is("none", CALL((CUcontext), NULL), SUCCESS);
    NEED(cuCtxGetCurrent(&top));
    HOLDS("is current", top == NULL);
    at_both("nothing has changed", 4 * MIB, CTX, 6 * MIB, CTX);
}

static void pushed(void) {
    CUcontext second, top = NULL;
    begin();
    NEED(cuDevicePrimaryCtxRetain(&second, 1));
    is("another device", CALL((CUcontext), second), SUCCESS);
    block(5 * MIB);
    at_both("is charged", 0, CTX, 6 * MIB, CTX);
    tell("null", CALL((CUcontext), NULL));
    tell("no context", CALL((CUcontext), nobody()));
    NEED(cuCtxPopCurrent_v2(&top));
    HOLDS("it was on top", top == second);
    block(3 * MIB);
    at_both("then the first is charged", 4 * MIB, CTX, 6 * MIB, CTX);
}

WHOLE(cuCtxPushCurrent) { pushed(); }
WHOLE(cuCtxPushCurrent_v2) { pushed(); }

static void popped(void) {
    CUcontext first = begin(), second, top = NULL;
    NEED(cuDevicePrimaryCtxRetain(&second, 1));
    NEED(cuCtxPushCurrent_v2(second));
    is("the second", CALL((CUcontext *), &top), SUCCESS);
    HOLDS("was on top", top == second);
    block(3 * MIB);
    at_both("the first is charged", 4 * MIB, CTX, 0, CTX);
    is("the first", CALL((CUcontext *), &top), SUCCESS);
    HOLDS("was below it", top == first);
    top = (CUcontext)(uintptr_t)POISON;
    tell("nothing left", CALL((CUcontext *), &top));
    is_untouched("failed calls leave the output alone", &top, sizeof top);
    NEED(cuCtxPushCurrent_v2(first));
    tell("without an output", CALL((CUcontext *), NULL));
    at_both("nothing has changed", 4 * MIB, CTX, 0, CTX);
}

WHOLE(cuCtxPopCurrent) { popped(); }
WHOLE(cuCtxPopCurrent_v2) { popped(); }

WHOLE(cuCtxSetFlags) {
    unsigned flags = 0;
    begin();
    is("flags", CALL((unsigned), 4), SUCCESS);
    NEED(cuCtxGetFlags(&flags));
    is("are kept", flags, 4);
    tell("unknown flags", CALL((unsigned), 0x10000));
    NEED(cuCtxSetCurrent(NULL));
    tell("no context", CALL((unsigned), 4));
    at("nothing is charged", 0, CTX);
}

WHOLE(cuInit) {
    size_t free, total;
    int count = -1;
    tell("unknown flags", CALL((unsigned), 1));
    tell("nothing works before", cuDeviceGetCount(&count));
    is("first", CALL((unsigned), 0), SUCCESS);
    is("again", CALL((unsigned), 0), SUCCESS);
    NEED(cuDeviceGetCount(&count));
    is("both devices are there", count, 2);
    tell("but no context", cuMemGetInfo_v2(&free, &total));
    at("nothing is charged", 0, 0);
    on(0);
    block(5 * MIB);
    at("until something is taken", 6 * MIB, CTX);
}

/* Limits that are memory. Each byte of a stack is needed for every thread that can be resident. */
enum { STACK, PRINTF, HEAP, DEPTH, LAUNCHES, L2_GRANULARITY, L2_PERSISTING };
static CUresult limited(int limit, size_t value) { return CALL((int, size_t), limit, value); }

WHOLE(cuCtxSetLimit) {
    const size_t threads = 132 * 2048;
    begin();
    is("a larger heap", limited(HEAP, 24 * MIB), SUCCESS);
    at("takes the difference", 0, CTX + 16 * MIB);
    is("more to print to", limited(PRINTF, 3 * MIB), SUCCESS);
    at("as well", 0, CTX + 18 * MIB);
    is("a deeper stack", limited(STACK, 2048), SUCCESS);
    at("for every thread", 0, CTX + 18 * MIB + 1024 * threads);
    tell("synchronisation depth", limited(DEPTH, 3));
    is("pending launches", limited(LAUNCHES, 4096), SUCCESS);
    is("granularity", limited(L2_GRANULARITY, 128), SUCCESS);
    is("a persisting cache", limited(L2_PERSISTING, MIB), SUCCESS);
    tell("no such limit", limited(99, 1));
    tell("a stack that is too deep", limited(STACK, MIB));
    tell("a heap larger than the device", limited(HEAP, 1024 * GIB));
    at("that changes nothing", 0, CTX + 18 * MIB + 1024 * threads);
    is("the old stack", limited(STACK, 1024), SUCCESS);
    is("the old heap", limited(HEAP, 8 * MIB), SUCCESS);
    is("the old buffer", limited(PRINTF, MIB), SUCCESS);
    at("all is back", 0, CTX);
}

PART(cuCtxSetLimit) {
    size_t value = 0;
    begin();
    CUdeviceptr filler = fill(20 * MIB);
    at("almost full", QUOTA - CTX - 20 * MIB, CTX);
    is("a heap that does not fit", limited(HEAP, 40 * MIB), OUT_OF_MEMORY);
    NEED(cuCtxGetLimit(&value, HEAP));
    is("leaves the limit alone", (long long)value, 8 * MIB);
    is("a stack that does not fit", limited(STACK, 2048), OUT_OF_MEMORY);
    NEED(cuCtxGetLimit(&value, STACK));
    is("leaves it alone, too", (long long)value, 1024);
    at("nothing has changed", QUOTA - CTX - 20 * MIB, CTX);
    is("a heap that fits", limited(HEAP, 28 * MIB), SUCCESS);
    at("full", QUOTA - CTX - 20 * MIB, CTX + 20 * MIB);
    NEED(cuMemFree_v2(filler));
    is("the stack again", limited(STACK, 2048), SUCCESS);
    at("is granted", 0, CTX + 20 * MIB + 264 * MIB);
}
