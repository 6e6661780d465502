/* Blocks of memory by pointer: linear, pitched, managed, and how they are freed. */
#include "coverage.h"

typedef CUresult (*take)(uint64_t *out, size_t bytes);

static CUresult linear(uint64_t *out, size_t bytes) { return CALL((CUdeviceptr *, size_t), out, bytes); }

/* The first form has 32 bits: the upper half stays as it is. */
static CUresult linear_short(uint64_t *out, size_t bytes) { return CALL((unsigned *, unsigned), (unsigned *)out, (unsigned)bytes); }

static CUresult managed(uint64_t *out, size_t bytes) { return CALL((CUdeviceptr *, size_t, unsigned), out, bytes, 1); }

static CUresult rows(uint64_t *out, size_t *pitch, size_t width, size_t height, unsigned element) {
    return CALL((CUdeviceptr *, size_t *, size_t, size_t, unsigned), out, pitch, width, height, element);
}

static CUresult rows_short(unsigned *out, unsigned *pitch, unsigned width, unsigned height) {
    return CALL((unsigned *, unsigned *, unsigned, unsigned, unsigned), out, pitch, width, height, 4);
}

static CUresult pitched(uint64_t *out, size_t bytes) {
    size_t pitch = POISON;
    CUresult code = rows(out, &pitch, 2000, bytes / 2048, 4);
    if (code) is_untouched("nor is there a pitch", &pitch, sizeof pitch);
    else is("the pitch is the driver's", (long long)pitch, 2048);
    return code;
}

static CUresult pitched_short(uint64_t *out, size_t bytes) {
    unsigned pitch = (unsigned)POISON;
    CUresult code = rows_short((unsigned *)out, &pitch, 2000, (unsigned)(bytes / 2048));
    if (code) is_untouched("nor is there a pitch", &pitch, sizeof pitch);
    else is("the pitch is the driver's", pitch, 2048);
    return code;
}

/* Memory is there, where it can be seen that it is. */
static void holds_data(CUdeviceptr address) {
    unsigned word = 0;
    NEED(cuMemsetD32_v2(address, 0x1234, 16));
    NEED(cuMemcpyDtoH_v2(&word, address + 60, 4));
    is("it is memory", word, 0x1234);
}

static void blocks(take allocate, CUresult (*give_back)(uint64_t)) {
    uint64_t large = 0, small[3] = {0}, none = POISON;
    begin();
    at("nothing", 0, CTX);
    is("5 MiB", allocate(&large, 5 * MIB), SUCCESS);
    at("three pages", 6 * MIB, CTX);
    holds_data(large);
    for (int i = 0; i < 3; i++) is("a small block", allocate(&small[i], 900 * KIB), SUCCESS);
    at("small blocks share pages", 10 * MIB, CTX);
    tell("nothing", allocate(&none, 0));
    tell("more than the device", allocate(&none, (size_t)3 << 30 << 7));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", allocate(NULL, 512));
    at("failed calls cost nothing", 10 * MIB, CTX);
    for (int i = 0; i < 3; i++) is("it is freed", give_back(small[i]), SUCCESS);
    is("and the large one", give_back(large), SUCCESS);
    at("all is back", 0, CTX);
    NEED(cuCtxSetCurrent(NULL));
    tell("without a context", allocate(&none, 512));
    is_untouched("there is none", &none, sizeof none);
}

static CUresult free_short(uint64_t address) { return cuMemFree((unsigned)address); }

WHOLE(cuMemAlloc_v2) {
    blocks(linear, cuMemFree_v2);
    on(1);
    CUdeviceptr there = 0;
    is("on another device", linear(&there, 3 * MIB), SUCCESS);
    at_both("it is that device's", 0, CTX, 4 * MIB, CTX);
    char room[24];
    is("an output that is not aligned", linear((uint64_t *)(void *)(room + 1), 1000), SUCCESS);
    at_both("is one", 0, CTX, 6 * MIB, CTX);
}
WHOLE(cuMemAlloc) {
    uint64_t none = POISON;
    unsigned two[2] = {7, 7};
    begin();
    is("a block below 4 GiB", linear_short((uint64_t *)two, 5 * MIB), SUCCESS);
    HOLDS("its address has 32 bits", two[0] > 7 && two[1] == 7);
    at("three pages", 6 * MIB, CTX);
    holds_data(two[0]);
    tell("nothing", linear_short(&none, 0));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    at("and cost nothing", 6 * MIB, CTX);
    is("it is freed", free_short(two[0]), SUCCESS);
    at("all is back", 0, CTX);
}
PART(cuMemAlloc_v2) { refused_then_granted(linear, 8 * MIB); }
PART(cuMemAlloc) { refused_then_granted(linear_short, 8 * MIB); }

WHOLE(cuMemAllocManaged) {
    uint64_t first = 0, second = 0, none = POISON;
    begin();
    is("3 MiB", managed(&first, 3 * MIB), SUCCESS);
    is("a page even for a word", managed(&second, 4), SUCCESS);
    at("managed memory counts in full", 6 * MIB, CTX);
    memset((void *)(uintptr_t)first, 1, 3 * MIB);
    tell("nothing", managed(&none, 0));
    tell("attached to nobody", CALL((CUdeviceptr *, size_t, unsigned), &none, MIB, 7));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    at("and cost nothing", 6 * MIB, CTX);
    NEED(cuMemFree_v2(first));
    NEED(cuMemFree_v2(second));
    at("all is back", 0, CTX);
}
PART(cuMemAllocManaged) { refused_then_granted(managed, 8 * MIB); }

/* 2000 bytes to a row, which begins at multiples of 512. */
WHOLE(cuMemAllocPitch_v2) {
    uint64_t address = 0, none = POISON;
    size_t pitch = POISON;
    begin();
    is("4096 rows", pitched(&address, 8 * MIB), SUCCESS);
    at("pitch times height", 8 * MIB, CTX);
    is("an element of five bytes", rows(&none, &pitch, 2000, 10, 5), INVALID_VALUE);
    tell("no rows", rows(&none, &pitch, 2000, 0, 4));
    tell("no width", rows(&none, &pitch, 0, 10, 4));
    tell("no pitch", rows(&none, NULL, 2000, 10, 4));
    is_untouched("failed calls leave the address alone", &none, sizeof none);
    is_untouched("and the pitch", &pitch, sizeof pitch);
    at("and cost nothing", 8 * MIB, CTX);
    is("a small one", rows(&none, &pitch, 100, 10, 8), SUCCESS);
    at("shares a page", 10 * MIB, CTX);
    NEED(cuMemFree_v2(none));
    NEED(cuMemFree_v2(address));
    at("all is back", 0, CTX);
}
WHOLE(cuMemAllocPitch) {
    unsigned address[2] = {7, 7}, none = (unsigned)POISON, pitch = (unsigned)POISON;
    begin();
    is("4096 rows", pitched_short((uint64_t *)address, 8 * MIB), SUCCESS);
    HOLDS("its address has 32 bits", address[0] > 7 && address[1] == 7);
    at("pitch times height", 8 * MIB, CTX);
    tell("no rows", rows_short(&none, &pitch, 2000, 0));
    is_untouched("failed calls leave the address alone", &none, sizeof none);
    is_untouched("and the pitch", &pitch, sizeof pitch);
    at("and cost nothing", 8 * MIB, CTX);
    NEED(cuMemFree(address[0]));
    at("all is back", 0, CTX);
}
PART(cuMemAllocPitch_v2) { refused_then_granted(pitched, 8 * MIB); }
PART(cuMemAllocPitch) { refused_then_granted(pitched_short, 8 * MIB); }

/* What is not there to be freed: the code is the driver's, and nothing changes. */
static void refuses_to_free(CUresult (*release)(uint64_t), CUdeviceptr inside, CUdeviceptr gone) {
    tell("null", release(0));
    tell("an unknown address", release(0x777000));
    tell("the middle of a block", release(inside));
    tell("freed twice", release(gone));
}

static CUresult freed(uint64_t address) { return CALL((CUdeviceptr), address); }
static CUresult freed_short(uint64_t address) { return CALL((unsigned), (unsigned)address); }

/* What a launched graph has allocated, and left to the program. */
static CUdeviceptr of_a_graph(size_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted;
    CUgraphNode node;
    CUgraph graph;
    CUgraphExec instance;
    memset(&wanted, 0, sizeof wanted);
    wanted.poolProps.allocType = 1, wanted.poolProps.location.type = 1, wanted.bytesize = bytes;
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wanted));
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    NEED(cuGraphLaunch(instance, NULL));
    NEED(cuCtxSynchronize());
    return wanted.dptr;
}

WHOLE(cuMemFree_v2) {
    CUdeviceptr large, small[2], shared, rows, pooled;
    size_t pitch;
    begin();
    large = block(5 * MIB), small[0] = block(MIB), small[1] = block(MIB);
    NEED(cuMemAllocManaged(&shared, 3 * MIB, 1));
    NEED(cuMemAllocPitch_v2(&rows, &pitch, 4096, 1024, 4));
    NEED(cuMemAllocAsync(&pooled, 3 * MIB, NULL));
    at("one of each", 6 * MIB + 2 * MIB + 4 * MIB + 4 * MIB + 32 * MIB, CTX);
    is("a large block", freed(large), SUCCESS);
    at("credits its pages", 42 * MIB, CTX);
    refuses_to_free(freed, small[1] + 4, large);
    at("what is not freed stays charged", 42 * MIB, CTX);
    is("one small block", freed(small[0]), SUCCESS);
    at("leaves the other's page", 42 * MIB, CTX);
    is("the other", freed(small[1]), SUCCESS);
    at("gives the page back", 40 * MIB, CTX);
    is("managed memory", freed(shared), SUCCESS);
    is("pitched memory", freed(rows), SUCCESS);
    at("and they", 32 * MIB, CTX);
    is("a pool's block", freed(pooled), SUCCESS);
    NEED(cuCtxSynchronize());
    at("shrinks the pool", 0, CTX);
    is("a graph's", freed(of_a_graph(5 * MIB)), SUCCESS);
    at("stays with the graphs", 6 * MIB, CTX);
    NEED(cuDeviceGraphMemTrim(0));
    at("until they are trimmed", 0, CTX);
}

WHOLE(cuMemFree) {
    unsigned large, small;
    begin();
    NEED(cuMemAlloc(&large, 5 * MIB));
    NEED(cuMemAlloc(&small, 1000));
    at("two blocks below 4 GiB", 8 * MIB, CTX);
    is("the large one", freed_short(large), SUCCESS);
    at("credits its pages", 2 * MIB, CTX);
    refuses_to_free(freed_short, small + 4, large);
    at("what is not freed stays charged", 2 * MIB, CTX);
    is("the small one", freed_short(small), SUCCESS);
    at("all is back", 0, CTX);
}

static CUresult freed_in_order(uint64_t address) { return CALL((CUdeviceptr, CUstream), address, NULL); }

WHOLE(cuMemFreeAsync) {
    CUdeviceptr one, two, large;
    begin();
    large = block(5 * MIB);
    NEED(cuMemAllocAsync(&one, 3 * MIB, NULL));
    NEED(cuMemAllocAsync(&two, 3 * MIB, NULL));
    at("a pool and a block", 38 * MIB, CTX);
    is("one", freed_in_order(one), SUCCESS);
    NEED(cuCtxSynchronize());
    at("what is left needs the pool", 38 * MIB, CTX);
    tell("freed twice", freed_in_order(one));
    tell("in no stream", CALL((CUdeviceptr, CUstream), two, nobody()));
    refuses_to_free(freed_in_order, large + 4096, one);
    is("the other", freed_in_order(two), SUCCESS);
    at("a free that is queued gives nothing back", 38 * MIB, CTX);
    NEED(cuCtxSynchronize());
    at("a synchronisation does", 6 * MIB, CTX);
    is("an ordinary block", freed_in_order(large), SUCCESS);
    NEED(cuCtxSynchronize());
    at("all is back", 0, CTX);
    is("a graph's", freed_in_order(of_a_graph(5 * MIB)), SUCCESS);
    NEED(cuCtxSynchronize());
    at("stays with the graphs", 6 * MIB, CTX);
    NEED(cuDeviceGraphMemTrim(0));
    at("until they are trimmed", 0, CTX);
}
