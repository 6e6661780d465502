/* Stream-ordered memory: what is charged is what the pools hold, in steps of 32 MiB. */
#include "coverage.h"

enum { THRESHOLD = 4, HELD = 5, USED = 7 };
#define STEP (32 * MIB)

static CUmemoryPool pool_on(int device, int handle_types) {
    CUmemPoolProps properties;
    CUmemoryPool pool;
    memset(&properties, 0, sizeof properties);
    properties.allocType = 1, properties.handleTypes = handle_types;
    properties.location.type = 1, properties.location.id = device;
    NEED(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static CUmemoryPool pool;
static CUresult from_current(uint64_t *out, size_t bytes, CUstream stream) {
    return CALL((CUdeviceptr *, size_t, CUstream), out, bytes, stream);
}
static CUresult from_pool(uint64_t *out, size_t bytes, CUstream stream) {
    return CALL((CUdeviceptr *, size_t, CUmemoryPool, CUstream), out, bytes, pool, stream);
}

static void taken_in_order(CUresult (*allocate)(uint64_t *, size_t, CUstream)) {
    uint64_t one, two, three, none = POISON;
    CUstream stream = stream_of_its_own();
    is("a few bytes", allocate(&one, 12, stream), SUCCESS);
    at("take a step", STEP, CTX);
    is("30 MiB", allocate(&two, 30 * MIB, NULL), SUCCESS);
    at("fit into it", STEP, CTX);
    is("40 MiB", allocate(&three, 40 * MIB, stream), SUCCESS);
    at("take two more", 3 * STEP, CTX);
    tell("nothing", allocate(&none, 0, stream));
    tell("more than the device", allocate(&none, 1024 * GIB, stream));
    tell("in no stream", allocate(&none, 1000, nobody()));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", allocate(NULL, 1000, stream));
    at("and cost nothing", 3 * STEP, CTX);
    NEED(cuMemFreeAsync(three, stream));
    at("freed in order it is still held", 3 * STEP, CTX);
    NEED(cuStreamSynchronize(stream));
    at("until the stream is there", STEP, CTX);
    NEED(cuMemFreeAsync(one, stream));
    NEED(cuMemFreeAsync(two, stream));
    NEED(cuCtxSynchronize());
    at("all is back", 0, CTX);
}

static void captured(CUresult (*allocate)(uint64_t *, size_t, CUstream)) {
    uint64_t address;
    CUstream stream = stream_of_its_own();
    CUgraph graph;
    CUgraphExec instance;
    NEED(cuStreamBeginCapture_v2(stream, 2));
    is("in a capture", allocate(&address, 6 * MIB, stream), SUCCESS);
    at("it takes nothing", 0, CTX);
    NEED(cuMemFreeAsync(address, stream));
    NEED(cuStreamEndCapture(stream, &graph));
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    NEED(cuGraphLaunch(instance, stream));
    NEED(cuStreamSynchronize(stream));
    at("until the graph is launched", 6 * MIB, CTX);
    NEED(cuDeviceGraphMemTrim(0));
    at("and trimmed", 0, CTX);
}

WHOLE(cuMemAllocAsync) {
    begin();
    taken_in_order(from_current);
    captured(from_current);
    NEED(cuDeviceSetMemPool(0, pool_on(0, 0)));
    uint64_t address;
    is("from a pool that was made the device's", from_current(&address, 1000, NULL), SUCCESS);
    at("is charged as well", STEP, CTX);
}

WHOLE(cuMemAllocFromPoolAsync) {
    uint64_t address;
    begin();
    pool = pool_on(0, 0);
    taken_in_order(from_pool);
    captured(from_pool);
    pool = pool_on(1, 0);
    is("from a pool on another device", from_pool(&address, 1000, NULL), SUCCESS);
    at_both("that device is charged", 0, CTX, STEP, 0);
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    is("from the default pool", from_pool(&address, 1000, NULL), SUCCESS);
    at_both("the first device is charged", STEP, CTX, STEP, 0);
    pool = nobody();
    tell("from none", from_pool(&address, 1000, NULL));
    at_both("costs nothing", STEP, CTX, STEP, 0);
}

/* A pool grows by whole steps as long as the device has room for them: what fits only without is refused, too. */
static void bounded(CUresult (*allocate)(uint64_t *, size_t, CUstream)) {
    uint64_t one, two = POISON;
    CUdeviceptr filler = fill(20 * MIB), more;
    at("almost full", QUOTA - CTX - 20 * MIB, CTX);
    is("more than is left", allocate(&two, 21 * MIB, NULL), OUT_OF_MEMORY);
    is_untouched("a refusal leaves the output alone", &two, sizeof two);
    at("nothing has changed", QUOTA - CTX - 20 * MIB, CTX);
    is("what fits, but for the step that it comes in", allocate(&two, 19 * MIB, NULL), OUT_OF_MEMORY);
    is_untouched("leaves the output alone, too", &two, sizeof two);
    at("nothing has changed again", QUOTA - CTX - 20 * MIB, CTX);
    NEED(cuMemFree_v2(filler));
    more = fill(40 * MIB);
    is("a step that fits", allocate(&one, 19 * MIB, NULL), SUCCESS);
    at("is granted", QUOTA - CTX - 40 * MIB + STEP, CTX);
    is("one that does not", allocate(&two, 21 * MIB, NULL), OUT_OF_MEMORY);
    is_untouched("leaves the output alone as well", &two, sizeof two);
    NEED(cuMemFree_v2(more));
    is("the same call again", allocate(&two, 21 * MIB, NULL), SUCCESS);
    at("is granted, too", 2 * STEP, CTX);
    NEED(cuMemFreeAsync(one, NULL));
    NEED(cuMemFreeAsync(two, NULL));
    NEED(cuCtxSynchronize());
    at("all is back", 0, CTX);
}

/* A capture is never refused; its graph is, when it can't be launched. */
static void captured_within(CUresult (*allocate)(uint64_t *, size_t, CUstream)) {
    uint64_t address;
    CUstream stream = stream_of_its_own();
    CUgraph graph;
    CUgraphExec instance;
    fill(0);
    NEED(cuStreamBeginCapture_v2(stream, 2));
    is("in a capture at a full quota", allocate(&address, 2 * GIB, stream), SUCCESS);
    NEED(cuStreamEndCapture(stream, &graph));
    at("nothing is taken", QUOTA - CTX, CTX);
    is("its graph is refused", cuGraphInstantiateWithFlags(&instance, graph, 0), OUT_OF_MEMORY);
    at("and nothing is taken", QUOTA - CTX, CTX);
}

PART(cuMemAllocAsync) {
    begin();
    bounded(from_current);
    captured_within(from_current);
}

PART(cuMemAllocFromPoolAsync) {
    begin();
    pool = pool_on(0, 0);
    bounded(from_pool);
    captured_within(from_pool);
}

WHOLE(cuMemPoolCreate) {
    CUmemPoolProps properties;
    CUmemoryPool one = NULL, none = (CUmemoryPool)(uintptr_t)POISON;
    CUdeviceptr address;
    memset(&properties, 0, sizeof properties);
    properties.allocType = 1, properties.location.type = 1;
    begin();
    is("a pool", CALL((CUmemoryPool *, const CUmemPoolProps *), &one, &properties), SUCCESS);
    at("is empty", 0, CTX);
    NEED(cuMemAllocFromPoolAsync(&address, 1000, one, NULL));
    at("what is taken from it is charged", STEP, CTX);
    properties.location.id = 1;
    is("one on another device", CALL((CUmemoryPool *, const CUmemPoolProps *), &one, &properties), SUCCESS);
    NEED(cuMemAllocFromPoolAsync(&address, 1000, one, NULL));
    at_both("is charged there", STEP, CTX, STEP, 0);
    properties.location.id = 7;
    tell("on no device", CALL((CUmemoryPool *, const CUmemPoolProps *), &none, &properties));
    properties.location.type = 2;
    tell("on the host", CALL((CUmemoryPool *, const CUmemPoolProps *), &none, &properties));
    properties.allocType = 0;
    tell("of no kind", CALL((CUmemoryPool *, const CUmemPoolProps *), &none, &properties));
    tell("of nothing", CALL((CUmemoryPool *, const CUmemPoolProps *), &none, NULL));
    tell("no output", CALL((CUmemoryPool *, const CUmemPoolProps *), NULL, &properties));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    at_both("and cost nothing", STEP, CTX, STEP, 0);
}

WHOLE(cuMemPoolDestroy) {
    CUdeviceptr address;
    CUmemoryPool standard;
    begin();
    CUmemoryPool one = pool_on(0, 0), empty = pool_on(0, 0);
    NEED(cuDeviceGetDefaultMemPool(&standard, 0));
    NEED(cuMemAllocFromPoolAsync(&address, 1000, one, NULL));
    at("a pool in use", STEP, CTX);
    tell("the default pool", CALL((CUmemoryPool), standard));
    tell("none", CALL((CUmemoryPool), nobody()));
    is("an empty pool", CALL((CUmemoryPool), empty), SUCCESS);
    at("gives nothing back", STEP, CTX);
    is("the one in use", CALL((CUmemoryPool), one), SUCCESS);
    at("lives as long as what was taken from it", 0, CTX + STEP);
    tell("twice", CALL((CUmemoryPool), one));
    NEED(cuMemFree_v2(address));
    at("then it is gone", 0, CTX);
}

WHOLE(cuMemPoolTrimTo) {
    uint64_t keep = ~0ull;
    CUdeviceptr one, two;
    CUmemoryPool standard;
    begin();
    NEED(cuDeviceGetDefaultMemPool(&standard, 0));
    NEED(cuMemPoolSetAttribute(standard, THRESHOLD, &keep));
    NEED(cuMemAllocAsync(&one, 90 * MIB, NULL));
    NEED(cuMemAllocAsync(&two, 1000, NULL));
    NEED(cuMemFreeAsync(one, NULL));
    NEED(cuCtxSynchronize());
    at("the pool keeps what was freed", 3 * STEP, CTX);
    is("down to two steps", CALL((CUmemoryPool, size_t), standard, 64 * MIB), SUCCESS);
    at("two are kept", 2 * STEP, CTX);
    is("as far as possible", CALL((CUmemoryPool, size_t), standard, 0), SUCCESS);
    at("one is in use", STEP, CTX);
    tell("no pool", CALL((CUmemoryPool, size_t), nobody(), 0));
    at("nothing more", STEP, CTX);
    NEED(cuMemFree_v2(two));
    is("all of it", CALL((CUmemoryPool, size_t), standard, 0), SUCCESS);
    at("all is back", 0, CTX);
}

WHOLE(cuMemPoolSetAttribute) {
    uint64_t keep = ~0ull, none = 0;
    CUdeviceptr address;
    CUmemoryPool standard;
    begin();
    NEED(cuDeviceGetDefaultMemPool(&standard, 0));
    is("a threshold", CALL((CUmemoryPool, int, void *), standard, THRESHOLD, &keep), SUCCESS);
    NEED(cuMemAllocAsync(&address, 40 * MIB, NULL));
    NEED(cuMemFreeAsync(address, NULL));
    NEED(cuCtxSynchronize());
    at("below it memory stays", 2 * STEP, CTX);
    tell("what is held is not set", CALL((CUmemoryPool, int, void *), standard, HELD, &none));
    tell("no such attribute", CALL((CUmemoryPool, int, void *), standard, 77, &none));
    tell("no value", CALL((CUmemoryPool, int, void *), standard, THRESHOLD, NULL));
    tell("no pool", CALL((CUmemoryPool, int, void *), nobody(), THRESHOLD, &none));
    is("no threshold", CALL((CUmemoryPool, int, void *), standard, THRESHOLD, &none), SUCCESS);
    at("it acts", 2 * STEP, CTX);
    NEED(cuCtxSynchronize());
    at("at the next synchronisation", 0, CTX);
}

WHOLE(cuMemPoolGetAttribute) {
    uint64_t value = POISON;
    CUdeviceptr address;
    CUmemoryPool standard;
    begin();
    NEED(cuDeviceGetDefaultMemPool(&standard, 0));
    tell("no such attribute", CALL((CUmemoryPool, int, void *), standard, 77, &value));
    tell("no pool", CALL((CUmemoryPool, int, void *), nobody(), HELD, &value));
    is_untouched("failed calls leave the output alone", &value, sizeof value);
    tell("no output", CALL((CUmemoryPool, int, void *), standard, HELD, NULL));
    NEED(cuMemAllocAsync(&address, 1000, NULL));
    for (int which = 1; which <= 14; which++) {
        value = 0;
        tell("an attribute", CALL((CUmemoryPool, int, void *), standard, which, &value));
        tell("is", (long long)value);
    }
    is("what it holds", CALL((CUmemoryPool, int, void *), standard, HELD, &value), SUCCESS);
    is("is the pool's own truth", (long long)value, STEP);
    at("and what is charged", STEP, CTX);
}

PART(cuMemPoolGetAttribute) {
    uint64_t value = 0;
    CUdeviceptr address;
    CUmemoryPool standard;
    begin();
    fill(STEP);
    NEED(cuDeviceGetDefaultMemPool(&standard, 0));
    NEED(cuMemAllocAsync(&address, 1000, NULL));
    is("what it holds", CALL((CUmemoryPool, int, void *), standard, HELD, &value), SUCCESS);
    is("a step", (long long)value, STEP);
    is("what is used", CALL((CUmemoryPool, int, void *), standard, USED, &value), SUCCESS);
    is("two units", (long long)value, 1024);
    at("full", QUOTA - CTX, CTX);
}

/* Allocations without a pool come from the one that was chosen. */
static void chosen(CUmemoryPool other, const char *claim, size_t held_by_other) {
    CUdeviceptr address;
    uint64_t held = POISON;
    NEED(cuMemAllocAsync(&address, 1000, NULL));
    NEED(cuMemPoolGetAttribute(other, HELD, &held));
    is(claim, (long long)held, (long long)held_by_other);
}

WHOLE(cuDeviceSetMemPool) {
    begin();
    CUmemoryPool other = pool_on(0, 0), there = pool_on(1, 0);
    is("another pool", CALL((CUdevice, CUmemoryPool), 0, other), SUCCESS);
    chosen(other, "is allocated from", STEP);
    at("and charged", STEP, CTX);
    tell("a pool of another device", CALL((CUdevice, CUmemoryPool), 0, there));
    tell("of no device", CALL((CUdevice, CUmemoryPool), 7, other));
    tell("no pool", CALL((CUdevice, CUmemoryPool), 0, nobody()));
    at("that changes nothing", STEP, CTX);
}

WHOLE(cuMemSetMemPool) {
    CUmemLocation here = {1, 0}, nowhere = {1, 7}, host = {2, 0};
    begin();
    CUmemoryPool other = pool_on(0, 0);
    is("another pool", CALL((CUmemLocation *, int, CUmemoryPool), &here, 1, other), SUCCESS);
    chosen(other, "is allocated from", STEP);
    at("and charged", STEP, CTX);
    tell("of no device", CALL((CUmemLocation *, int, CUmemoryPool), &nowhere, 1, other));
    tell("of the host", CALL((CUmemLocation *, int, CUmemoryPool), &host, 1, other));
    tell("of another kind", CALL((CUmemLocation *, int, CUmemoryPool), &here, 2, other));
    tell("no pool", CALL((CUmemLocation *, int, CUmemoryPool), &here, 1, nobody()));
    at("that changes nothing", STEP, CTX);
}

static CUresult by_device(CUmemoryPool *out, int device) { return CALL((CUmemoryPool *, CUdevice), out, device); }
static CUresult by_location(CUmemoryPool *out, int device) {
    CUmemLocation where = {1, device};
    return CALL((CUmemoryPool *, CUmemLocation *, int), out, &where, 1);
}

static void asked_for(CUresult (*ask)(CUmemoryPool *, int), int is_default) {
    CUmemoryPool first = NULL, second = NULL, none = (CUmemoryPool)(uintptr_t)POISON;
    CUdeviceptr address;
    NEED(cuInit(0));
    is("a device's pool", ask(&first, 0), SUCCESS);
    at("to ask for it costs nothing", 0, 0);
    begin();
    NEED(cuMemAllocFromPoolAsync(&address, 1000, first, NULL));
    at("what is taken from it is charged", STEP, CTX);
    CUmemoryPool other = pool_on(0, 0);
    NEED(cuDeviceSetMemPool(0, other));
    is("after another was chosen", ask(&second, 0), SUCCESS);
    is("it is", second == other, !is_default);
    tell("of no device", ask(&none, 7));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", ask(NULL, 0));
    at("nothing has changed", STEP, CTX);
}

WHOLE(cuDeviceGetMemPool) { asked_for(by_device, 0); }
WHOLE(cuDeviceGetDefaultMemPool) { asked_for(by_device, 1); }
WHOLE(cuMemGetMemPool) { asked_for(by_location, 0); }
WHOLE(cuMemGetDefaultMemPool) { asked_for(by_location, 1); }
