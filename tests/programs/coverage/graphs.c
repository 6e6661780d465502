/* Graphs: a node takes nothing; an upload or a launch takes what its allocations need, and the device keeps it until trimmed. */
#include "coverage.h"

enum { AUTO_FREE = 1, UPLOAD = 2, ALLOCATION = 10 };

static CUDA_MEM_ALLOC_NODE_PARAMS allocation_of(size_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.poolProps.allocType = 1, wanted.poolProps.location.type = 1, wanted.bytesize = bytes;
    return wanted;
}

/* A graph that allocates and leaves it to the program to free. */
static CUgraph allocating(size_t bytes, CUdeviceptr *address) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = allocation_of(bytes);
    CUgraphNode node;
    CUgraph graph;
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wanted));
    if (address) *address = wanted.dptr;
    return graph;
}

static CUgraphExec instance_of(CUgraph graph) {
    CUgraphExec instance;
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    return instance;
}

static void launched(CUgraphExec instance) {
    NEED(cuGraphLaunch(instance, NULL));
    NEED(cuCtxSynchronize());
}

static void free_and_trim(CUdeviceptr address) {
    NEED(cuMemFree_v2(address));
    NEED(cuDeviceGraphMemTrim(0));
}

/* A node by one of the calls that make them, and the address it tells. */
typedef CUresult (*addition)(CUgraphNode *out, CUgraph graph, size_t bytes, CUdeviceptr *address);

static CUresult by_kind(CUgraphNode *out, CUgraph graph, size_t bytes, CUdeviceptr *address) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = allocation_of(bytes);
    CUresult code = CALL((CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUDA_MEM_ALLOC_NODE_PARAMS *), out, graph, NULL, 0, &wanted);
    *address = wanted.dptr;
    return code;
}

static CUgraphNodeParams any_kind(size_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = allocation_of(bytes);
    CUgraphNodeParams any;
    memset(&any, 0, sizeof any);
    any.type = ALLOCATION;
    memcpy(any.reserved1, &wanted, sizeof wanted);
    return any;
}

static CUdeviceptr address_in(const CUgraphNodeParams *any) {
    CUDA_MEM_ALLOC_NODE_PARAMS made;
    memcpy(&made, any->reserved1, sizeof made);
    return made.dptr;
}

static CUresult generic(CUgraphNode *out, CUgraph graph, size_t bytes, CUdeviceptr *address) {
    CUgraphNodeParams any = any_kind(bytes);
    CUresult code = CALL((CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraphNodeParams *), out, graph, NULL, 0, &any);
    *address = address_in(&any);
    return code;
}

typedef CUresult (*with_edges)(CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t, CUgraphNodeParams *);

static CUresult generic_with_edges(CUgraphNode *out, CUgraph graph, size_t bytes, CUdeviceptr *address) {
    CUgraphNodeParams any = any_kind(bytes);
    CUresult code = ((with_edges)tested)(out, graph, NULL, NULL, 0, &any);
    *address = address_in(&any);
    return code;
}

static void added(addition add) {
    CUgraphNode node, none = (CUgraphNode)(uintptr_t)POISON;
    CUdeviceptr first, second, unused;
    CUgraph graph;
    begin();
    NEED(cuGraphCreate(&graph, 0));
    is("an allocation", add(&node, graph, 5 * MIB, &first), SUCCESS);
    HOLDS("has an address", first != 0);
    is("another", add(&node, graph, 3 * MIB, &second), SUCCESS);
    tell("nothing", add(&none, graph, 0, &unused));
    tell("to no graph", add(&none, nobody(), MIB, &unused));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", add(NULL, graph, MIB, &unused));
    CUgraphExec instance = instance_of(graph);
    at("nothing is taken", 0, CTX);
    launched(instance);
    at("until it is launched", 10 * MIB, CTX);
    NEED(cuMemFree_v2(first));
    free_and_trim(second);
    at("all is back", 0, CTX);
}

WHOLE(cuGraphAddMemAllocNode) { added(by_kind); }
WHOLE(cuGraphAddNode) { added(generic); }
WHOLE(cuGraphAddNode_v2) { added(generic_with_edges); }
WHOLE(cuGraphAddNode_v3) { added(generic_with_edges); }

/* A node that nobody launches may be larger than any quota. */
static void added_beyond(addition add) {
    CUgraphNode node;
    CUdeviceptr address;
    CUgraph graph;
    begin();
    NEED(cuGraphCreate(&graph, 0));
    fill(0);
    is("a node beside a full quota", add(&node, graph, 2 * GIB, &address), SUCCESS);
    HOLDS("has an address", address != 0);
    at("is not charged", QUOTA - CTX, CTX);
}

PART(cuGraphAddMemAllocNode) { added_beyond(by_kind); }
PART(cuGraphAddNode) { added_beyond(generic); }
PART(cuGraphAddNode_v2) { added_beyond(generic_with_edges); }
PART(cuGraphAddNode_v3) { added_beyond(generic_with_edges); }

static CUresult freeing(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, CUdeviceptr address) {
    return CALL((CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr), out, graph, after, 1, address);
}

/* An allocation that its own graph frees is taken for the launch, and kept for the next. */
WHOLE(cuGraphAddMemFreeNode) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = allocation_of(5 * MIB);
    CUgraphNode first, second, none = (CUgraphNode)(uintptr_t)POISON;
    CUgraph graph;
    begin();
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphAddMemAllocNode(&first, graph, NULL, 0, &wanted));
    is("a node that frees", freeing(&second, graph, &first, wanted.dptr), SUCCESS);
    tell("twice", freeing(&none, graph, &first, wanted.dptr));
    tell("what is not a graph's", freeing(&none, graph, &first, block(2 * MIB)));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    CUgraphExec instance = instance_of(graph);
    at("nothing is taken", 2 * MIB, CTX);
    for (int i = 0; i < 3; i++) launched(instance);
    at("three launches use the same memory", 2 * MIB + 6 * MIB, CTX);
    NEED(cuDeviceGraphMemTrim(0));
    at("and leave none in use", 2 * MIB, CTX);
}

static CUresult added_child(CUgraphNode *out, CUgraph graph, CUgraph child) {
    return CALL((CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph), out, graph, NULL, 0, child);
}

WHOLE(cuGraphAddChildGraphNode) {
    CUgraphNode node, none = (CUgraphNode)(uintptr_t)POISON;
    CUgraph graph, child;
    begin();
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphCreate(&child, 0));
    NEED(cuGraphAddEmptyNode(&node, child, NULL, 0));
    is("a child", added_child(&node, graph, child), SUCCESS);
    tell("with memory", added_child(&none, graph, allocating(5 * MIB, NULL)));
    tell("none", added_child(&none, graph, nobody()));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    CUgraphExec instance = instance_of(graph);
    launched(instance);
    at("nothing is taken", 0, CTX);
}

/* An update can't change the memory of an instance. */
static CUresult updated(CUgraphExec instance, CUgraph graph, int *result) {
    return CALL((CUgraphExec, CUgraph, CUgraphNode *, int *), instance, graph, NULL, result);
}
static CUresult updated_v2(CUgraphExec instance, CUgraph graph, int *result) {
    CUgraphExecUpdateResultInfo info = {*result, NULL, NULL};
    CUresult code = CALL((CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *), instance, graph, &info);
    *result = info.result;
    return code;
}

static void changed(CUresult (*update)(CUgraphExec, CUgraph, int *)) {
    int result = 77;
    CUdeviceptr address;
    CUgraphNode node;
    CUgraph empty, same;
    begin();
    NEED(cuGraphCreate(&empty, 0));
    NEED(cuGraphCreate(&same, 0));
    NEED(cuGraphAddEmptyNode(&node, empty, NULL, 0));
    NEED(cuGraphAddEmptyNode(&node, same, NULL, 0));
    CUgraphExec instance = instance_of(empty), with_memory = instance_of(allocating(5 * MIB, &address));
    is("the same shape", update(instance, same, &result), SUCCESS);
    is("changes something", result, 0);
    tell("memory where there was none", update(instance, allocating(9 * MIB, NULL), &result));
    tell("the reason", result);
    tell("more memory", update(with_memory, allocating(64 * MIB, NULL), &result));
    tell("the reason for that", result);
    tell("nothing", update(nobody(), same, &result));
    launched(instance);
    launched(with_memory);
    at("a launch takes what it did", 6 * MIB, CTX);
    free_and_trim(address);
    at("all is back", 0, CTX);
}

WHOLE(cuGraphExecUpdate) { changed(updated); }
WHOLE(cuGraphExecUpdate_v2) { changed(updated_v2); }

typedef CUresult (*instantiation)(CUgraphExec *out, CUgraph graph, unsigned long long flags);

static CUresult plain(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    (void)flags;
    return CALL((CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t), out, graph, NULL, NULL, 0);
}
static CUresult with_flags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    return CALL((CUgraphExec *, CUgraph, unsigned long long), out, graph, flags);
}
static CUresult with_parameters(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    CUDA_GRAPH_INSTANTIATE_PARAMS wanted = {flags, NULL, NULL, 0};
    return CALL((CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *), out, graph, &wanted);
}

static void instantiated(instantiation instantiate, int has_flags) {
    CUdeviceptr address;
    CUgraphExec instance, none = (CUgraphExec)(uintptr_t)POISON;
    begin();
    CUgraph graph = allocating(5 * MIB, &address);
    is("an instance", instantiate(&instance, graph, 0), SUCCESS);
    at("takes nothing", 0, CTX);
    tell("a second of a graph with memory", instantiate(&none, graph, 0));
    tell("of nothing", instantiate(&none, nobody(), 0));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", instantiate(NULL, graph, 0));
    launched(instance);
    at("a launch does", 6 * MIB, CTX);
    NEED(cuMemFree_v2(address));
    at("and keeps it", 6 * MIB, CTX);
    NEED(cuGraphExecDestroy(instance));
    NEED(cuDeviceGraphMemTrim(0));
    at("until it is trimmed", 0, CTX);
    if (!has_flags) return;
    is("one that frees what its last launch left", instantiate(&instance, graph, AUTO_FREE), SUCCESS);
    for (int i = 0; i < 3; i++) launched(instance);
    at("takes it once", 6 * MIB, CTX);
}

WHOLE(cuGraphInstantiate) { instantiated(plain, 0); }
WHOLE(cuGraphInstantiate_v2) { instantiated(plain, 0); }
WHOLE(cuGraphInstantiateWithFlags) { instantiated(with_flags, 1); }
WHOLE(cuGraphInstantiateWithParams) {
    CUgraphExec instance;
    instantiated(with_parameters, 1);
    tell("without parameters", CALL((CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *), &instance, allocating(MIB, NULL), NULL));
    is("one that is uploaded", with_parameters(&instance, allocating(9 * MIB, NULL), UPLOAD), SUCCESS);
    at("takes it at once", 6 * MIB + 10 * MIB, CTX);
}

/* What can't ever be launched isn't instantiated; what can't be launched now is refused then. */
static void instantiated_within(instantiation instantiate) {
    CUgraphExec none = (CUgraphExec)(uintptr_t)POISON, instance;
    CUdeviceptr address;
    begin();
    is("larger than the quota", instantiate(&none, allocating(2 * GIB, NULL), 0), OUT_OF_MEMORY);
    is_untouched("a refusal leaves the output alone", &none, sizeof none);
    CUdeviceptr filler = fill(4 * MIB);
    CUgraph graph = allocating(8 * MIB, &address);
    is("larger than what is left", instantiate(&instance, graph, 0), SUCCESS);
    is("is not launched", cuGraphLaunch(instance, NULL), OUT_OF_MEMORY);
    at("nothing has changed", QUOTA - CTX - 4 * MIB, CTX);
    NEED(cuMemFree_v2(filler));
    launched(instance);
    at("until something is freed", 8 * MIB, CTX);
}

PART(cuGraphInstantiate) { instantiated_within(plain); }
PART(cuGraphInstantiate_v2) { instantiated_within(plain); }
PART(cuGraphInstantiateWithFlags) { instantiated_within(with_flags); }
PART(cuGraphInstantiateWithParams) {
    CUgraphExec none = (CUgraphExec)(uintptr_t)POISON;
    instantiated_within(with_parameters);
    fill(4 * MIB);
    is("an upload that does not fit", with_parameters(&none, allocating(16 * MIB, NULL), UPLOAD), OUT_OF_MEMORY);
    is_untouched("leaves the output alone", &none, sizeof none);
    at("almost full", QUOTA - CTX - 4 * MIB, CTX);
}

static CUresult uploaded(CUgraphExec instance) { return CALL((CUgraphExec, CUstream), instance, NULL); }

WHOLE(cuGraphUpload) {
    CUdeviceptr address;
    begin();
    CUgraphExec instance = instance_of(allocating(5 * MIB, &address));
    is("an upload", uploaded(instance), SUCCESS);
    NEED(cuCtxSynchronize());
    at("takes what a launch will need", 6 * MIB, CTX);
    is("again", uploaded(instance), SUCCESS);
    at("nothing more", 6 * MIB, CTX);
    tell("of nothing", uploaded(nobody()));
    tell("in no stream", CALL((CUgraphExec, CUstream), instance, nobody()));
    launched(instance);
    at("the launch uses it", 6 * MIB, CTX);
    free_and_trim(address);
    at("all is back", 0, CTX);
}

PART(cuGraphUpload) {
    begin();
    CUgraphExec instance = instance_of(allocating(8 * MIB, NULL));
    CUdeviceptr filler = fill(4 * MIB);
    is("more than is left", uploaded(instance), OUT_OF_MEMORY);
    at("nothing has changed", QUOTA - CTX - 4 * MIB, CTX);
    NEED(cuMemFree_v2(filler));
    is("the same call again", uploaded(instance), SUCCESS);
    at("is granted", 8 * MIB, CTX);
}

WHOLE(cuGraphExecDestroy) {
    CUdeviceptr address;
    begin();
    CUmodule module = load_grower();
    CUgraphExec instance = instance_of(allocating(5 * MIB, &address));
    launched(instance);
    grow_unseen(module);
    is("an instance goes", CALL((CUgraphExec), instance), SUCCESS);
    tell("twice", CALL((CUgraphExec), instance));
    tell("null", CALL((CUgraphExec), NULL));
    settle();
    at("its memory stays, and what came unseen is booked", 6 * MIB, CTX + CODE + UNSEEN);
    free_and_trim(address);
    at("until it is freed", 0, CTX + CODE + UNSEEN);
}

WHOLE(cuGraphDestroy) {
    CUdeviceptr address;
    begin();
    CUgraph graph = allocating(5 * MIB, &address);
    CUgraphExec instance = instance_of(graph);
    launched(instance);
    is("a graph goes", CALL((CUgraph), graph), SUCCESS);
    tell("twice", CALL((CUgraph), graph));
    tell("null", CALL((CUgraph), NULL));
    settle();
    at("its instance's memory stays", 6 * MIB, CTX);
    free_and_trim(address);
    at("until it is freed", 0, CTX);
}

WHOLE(cuDeviceGraphMemTrim) {
    CUdeviceptr first, second;
    begin();
    launched(instance_of(allocating(5 * MIB, &first)));
    launched(instance_of(allocating(3 * MIB, &second)));
    NEED(cuMemFree_v2(first));
    at("freed memory is kept for graphs", 10 * MIB, CTX);
    tell("of no device", CALL((CUdevice), 7));
    is("trimmed", CALL((CUdevice), 0), SUCCESS);
    at("it goes", 4 * MIB, CTX);
    is("of a device without graphs", CALL((CUdevice), 1), SUCCESS);
    at("nothing more", 4 * MIB, CTX);
    NEED(cuMemFree_v2(second));
    is("again", CALL((CUdevice), 0), SUCCESS);
    at("all is back", 0, CTX);
}

WHOLE(cuDeviceGetGraphMemAttribute) {
    uint64_t value = POISON;
    CUdeviceptr address;
    begin();
    launched(instance_of(allocating(5 * MIB, &address)));
    NEED(cuMemFree_v2(address));
    for (int which = 0; which < 4; which++) {
        is("an attribute", CALL((CUdevice, int, void *), 0, which, &value), SUCCESS);
        tell("is", (long long)value);
    }
    value = POISON;
    tell("no such attribute", CALL((CUdevice, int, void *), 0, 9, &value));
    tell("of no device", CALL((CUdevice, int, void *), 7, 0, &value));
    is_untouched("failed calls leave the output alone", &value, sizeof value);
    tell("no output", CALL((CUdevice, int, void *), 0, 0, NULL));
    at("what is kept is charged", 6 * MIB, CTX);
}

WHOLE(cuDeviceSetGraphMemAttribute) {
    enum { USED_HIGH = 1, HELD = 2 };
    uint64_t zero = 0, one = 1, value = 7;
    CUdeviceptr address;
    begin();
    launched(instance_of(allocating(5 * MIB, &address)));
    NEED(cuMemFree_v2(address));
    is("a high mark is reset", CALL((CUdevice, int, void *), 0, USED_HIGH, &zero), SUCCESS);
    NEED(cuDeviceGetGraphMemAttribute(0, USED_HIGH, &value));
    is("to what is in use", (long long)value, 0);
    tell("to something", CALL((CUdevice, int, void *), 0, USED_HIGH, &one));
    tell("what is held is not set", CALL((CUdevice, int, void *), 0, HELD, &zero));
    tell("of no device", CALL((CUdevice, int, void *), 7, USED_HIGH, &zero));
    at("what is kept stays charged", 6 * MIB, CTX);
}
