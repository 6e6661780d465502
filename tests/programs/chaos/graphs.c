/* Graphs with memory: built and captured, instantiated, launched, ended. */
#include "chaos.h"

static int has_room(struct actor *a, enum kind kind) {
    if (is_full(a, kind)) kind == GRAPH ? end_graph(a) : end_exec(a);
    return !is_full(a, kind);
}

/* Small enough that some launches fit. */
static size_t some_bytes(struct actor *a) {
    size_t bytes = some_size(a);
    return one_in(a, 10) || bytes < 8 * MIB ? bytes : bytes % (8 * MIB) + 1;
}

static void keep_graph(struct actor *a, CUgraph graph, const uint64_t *blocks) {
    memcpy(keep(a, GRAPH, (uint64_t)graph, 0)->blocks, blocks, BLOCKS_MAX * sizeof *blocks);
}

/* Allocations in a row, of which some are freed by the graph itself. */
void build_graph(struct actor *a) {
    CUgraph graph = (CUgraph)UNTOUCHED;
    CUgraphNode last = NULL, node;
    uint64_t blocks[BLOCKS_MAX] = {0};
    int count = below(a, BLOCKS_MAX + 1);
    if (!has_room(a, GRAPH)) return;
    if (CALL(a, cuGraphCreate, place(a, &graph), (unsigned)one_in(a, 60)) || graph == (CUgraph)UNTOUCHED) return;
    put_made(a, (uint64_t)graph);
    for (int at = 0; at < count; at++) {
        CUDA_MEM_ALLOC_NODE_PARAMS wanted;
        memset(&wanted, 0, sizeof wanted);
        wanted.poolProps.allocType = 1, wanted.poolProps.location = (CUmemLocation){1, some_device(a)};
        wanted.bytesize = some_bytes(a), wanted.dptr = UNTOUCHED;
        CUresult code = CALL(a, cuGraphAddMemAllocNode, place(a, &node), graph, &last, last != NULL, &wanted);
        put_made(a, wanted.dptr);
        if (code) continue;
        last = node;
        if (!one_in(a, 2)) blocks[at] = wanted.dptr;
        else if (!CALL(a, cuGraphAddMemFreeNode, &node, graph, &last, 1, wanted.dptr)) last = node;
        else blocks[at] = wanted.dptr;
    }
    if (one_in(a, 4)) CALL(a, cuGraphAddEmptyNode, place(a, &node), graph, &last, last != NULL);
    keep_graph(a, graph, blocks);
}

static void record(struct actor *a) {
    CUstream stream = a->capturing;
    memset(a->recorded, 0, sizeof a->recorded);
    for (int at = 0; at < BLOCKS_MAX; at++) {
        CUdeviceptr block = UNTOUCHED;
        switch (below(a, 5)) {
        case 0: step_inside_capture(a); break;
        case 1: CALL(a, cuMemsetD8Async, a->recorded[0], 1, 8, stream); break;
        default:
            if (a->recorded[at] || CALL(a, cuMemAllocAsync, place(a, &block), some_bytes(a), stream) || block == UNTOUCHED) break;
            put_made(a, block);
            if (!one_in(a, 2) || CALL(a, cuMemFreeAsync, block, stream)) a->recorded[at] = block;
        }
    }
}

void capture(struct actor *a) {
    struct thing *stream = some(a, STREAM);
    CUgraph graph = (CUgraph)UNTOUCHED;
    int mode = options.threads > 1 ? 1 + below(a, 2) : below(a, 4);
    if (!stream || !has_room(a, GRAPH)) return;
    CUstream handle = (CUstream)stream->handle;
    if (!CALL(a, cuStreamBeginCapture_v2, handle, mode)) {
        a->capturing = handle;
        record(a);
        CUresult code = CALL(a, cuStreamEndCapture, handle, &graph);
        if (code == 999) code = CALL(a, cuStreamEndCapture, handle, &graph);
        a->capturing = NULL;
        put_made(a, (uint64_t)graph);
        if (!code && graph && graph != (CUgraph)UNTOUCHED) keep_graph(a, graph, a->recorded);
    }
}

void instantiate(struct actor *a) {
    static const unsigned long long flags[] = {0, 0, 0, 1, 1, 2, 4, 99};
    struct thing *graph = some(a, GRAPH);
    CUgraphExec exec = (CUgraphExec)UNTOUCHED;
    uint64_t handle = spoilt(a, graph ? graph->handle : 0);
    unsigned long long flag = flags[below(a, 8)];
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {flag, some_stream(a), NULL, 77};
    CUresult code;
    if (!has_room(a, EXEC)) return;
    switch (below(a, 3)) {
    case 0:
        code = CALL(a, cuGraphInstantiateWithParams, place(a, &exec), (CUgraph)handle, &parameters);
        put_number(a, (unsigned)parameters.result_out);
        break;
    case 1: code = CALL(a, cuGraphInstantiate_v2, place(a, &exec), (CUgraph)handle, NULL, NULL, 0); break;
    default: code = CALL(a, cuGraphInstantiateWithFlags, place(a, &exec), (CUgraph)handle, flag); break;
    }
    put_made(a, (uint64_t)exec);
    put_subject(a, handle);
    if (code || exec == (CUgraphExec)UNTOUCHED) return;
    memcpy(keep(a, EXEC, (uint64_t)exec, 0)->blocks, graph->blocks, sizeof graph->blocks);
}

/* What a launch leaves behind is the program's to free. */
static void left_behind(struct actor *a, const uint64_t *blocks) {
    for (int at = 0; at < BLOCKS_MAX; at++) {
        int known = blocks[at] == 0;
        for (int other = 0; other < a->shelves[LEFT].count; other++) known |= a->shelves[LEFT].things[other].handle == blocks[at];
        if (!known) keep(a, LEFT, blocks[at], 0);
    }
}

void launch_graph(struct actor *a) {
    struct thing *exec = some(a, EXEC);
    uint64_t handle = spoilt(a, exec ? exec->handle : 0);
    CUstream stream = some_stream(a);
    /* Room for what it may leave. */
    while (a->shelves[LEFT].count > ROOM - BLOCKS_MAX)
        if (!free_pointer(a, LEFT, some(a, LEFT))) return;
    CUresult code = one_in(a, 3) ? CALL(a, cuGraphLaunch_ptsz, (CUgraphExec)handle, stream) : CALL(a, cuGraphLaunch, (CUgraphExec)handle, stream);
    put_subject(a, handle);
    /* A launch that failed late may have left something, too; what is not there can't be freed, and is forgotten then. */
    if (exec && (code == SUCCESS || code == CONTEXT_DESTROYED)) left_behind(a, exec->blocks);
}

void upload_graph(struct actor *a) {
    CUgraphExec exec = (CUgraphExec)spoilt(a, some_handle(a, EXEC));
    CUstream stream = some_stream(a);
    if (one_in(a, 3)) CALL(a, cuGraphUpload_ptsz, exec, stream);
    else CALL(a, cuGraphUpload, exec, stream);
}

static void end(struct actor *a, enum kind kind, CUresult (*destroy)(void *), const char *name) {
    struct thing *thing = some(a, kind);
    uint64_t handle = spoilt(a, thing ? thing->handle : 0);
    CUresult code = tell(a, name, destroy((void *)handle));
    put_subject(a, handle);
    if (thing && handle == thing->handle && (code == SUCCESS || code == INVALID_VALUE)) drop(a, kind, thing);
}

void end_exec(struct actor *a) { end(a, EXEC, cuGraphExecDestroy, "cuGraphExecDestroy"); }

void end_graph(struct actor *a) { end(a, GRAPH, cuGraphDestroy, "cuGraphDestroy"); }

void trim_graphs(struct actor *a) {
    CUdevice device = some_device(a);
    uint64_t value = 0;
    int attribute = below(a, 6);
    if (one_in(a, 2)) CALL(a, cuDeviceGraphMemTrim, device);
    else if (one_in(a, 4)) CALL(a, cuDeviceSetGraphMemAttribute, device, attribute, place(a, &value));
    else CALL(a, cuDeviceGetGraphMemAttribute, device, attribute, place(a, &value));
    put_number(a, value);
}
