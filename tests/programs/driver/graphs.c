/* Graphs: nodes and edges, instances and their updates, launches that do what the nodes say. */
#include "driver.h"

enum { NODE_KERNEL, NODE_MEMCPY, NODE_MEMSET, NODE_HOST, NODE_GRAPH, NODE_EMPTY };
static CUcontext context;
static CUfunction quick, slow;
static CUstream stream;
static volatile int ran, destroyed;

static void note(void *value) { ran = (int)(intptr_t)value; }
static void destroy(void *value) { destroyed = (int)(intptr_t)value; }

static CUDA_KERNEL_NODE_PARAMS one_thread(CUfunction function) {
    CUDA_KERNEL_NODE_PARAMS parameters;
    memset(&parameters, 0, sizeof parameters);
    parameters.func = function;
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
    return parameters;
}

static long long nodes_of(CUgraph graph) {
    size_t count = 0;
    NEED(cuGraphGetNodes(graph, NULL, &count));
    return (long long)count;
}

static double launch_ms(CUgraphExec instance) {
    double begun = now_ms();
    NEED(cuGraphLaunch(instance, stream));
    NEED(cuStreamSynchronize(stream));
    return now_ms() - begun;
}

static void built(void) {
    CUgraph graph;
    CUgraphNode set, run, copy, call, roots[4];
    CUgraphExec instance;
    CUdeviceptr block;
    unsigned target[16] = {0};
    size_t count = 4;
    CUDA_KERNEL_NODE_PARAMS kernel_parameters = one_thread(quick);
    CUDA_MEMCPY3D copied;
    CUDA_HOST_NODE_PARAMS called = {note, (void *)(intptr_t)5};
    NEED(cuMemAlloc_v2(&block, 4096));
    CUDA_MEMSET_NODE_PARAMS filled = {block, 0, 0xabcd, 4, 16, 1};
    memset(&copied, 0, sizeof copied);
    copied.srcMemoryType = ON_DEVICE, copied.srcDevice = block;
    copied.dstMemoryType = FROM_HOST, copied.dstHost = target;
    copied.WidthInBytes = sizeof target, copied.Height = copied.Depth = 1;
    NEED(cuGraphCreate(&graph, 0));
    is("flags", cuGraphCreate(&graph, 1), INVALID_VALUE);
    NEED(cuGraphAddMemsetNode(&set, graph, NULL, 0, &filled, context));
    NEED(cuGraphAddKernelNode_v2(&run, graph, &set, 1, &kernel_parameters));
    NEED(cuGraphAddMemcpyNode(&copy, graph, &run, 1, &copied, context));
    NEED(cuGraphAddHostNode(&call, graph, &copy, 1, &called));
    NEED(cuGraphGetRootNodes(graph, roots, &count));
    HOLDS("one root", count == 1 && roots[0] == set);
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    is("an instance does nothing", (long long)target[0], 0);
    NEED(cuGraphUpload(instance, stream));
    launch_ms(instance);
    HOLDS("launched it fills, copies and calls", target[0] == 0xabcd && target[15] == 0xabcd && ran == 5);
    ran = 0;
    launch_ms(instance);
    is("at each launch", ran, 5);
    filled.value = 0x1234;
    NEED(cuGraphMemsetNodeSetParams(set, &filled));
    launch_ms(instance);
    is("a changed graph leaves its instance alone", target[0], 0xabcd);
    NEED(cuGraphExecMemsetNodeSetParams(instance, set, &filled, context));
    launch_ms(instance);
    is("a changed instance does what it says now", target[0], 0x1234);
    filled.elementSize = 3;
    is("elements of three bytes", cuGraphMemsetNodeSetParams(set, &filled), INVALID_VALUE);
    NEED(cuGraphExecDestroy(instance));
    is("a destroyed instance", cuGraphLaunch(instance, stream), INVALID_VALUE);
    NEED(cuGraphDestroy(graph));
    is("destroyed twice", cuGraphDestroy(graph), INVALID_VALUE);
}

static void kernels(void) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec instance;
    CUgraphNodeParams generic;
    CUDA_KERNEL_NODE_PARAMS parameters = one_thread(quick), told;
    CUlaunchAttributeValue attribute;
    unsigned enabled = 7;
    memset(&generic, 0, sizeof generic);
    generic.type = NODE_KERNEL, generic.kernel = parameters;
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &generic));
    NEED(cuGraphKernelNodeGetParams_v2(node, &told));
    HOLDS("a node tells its parameters", told.func == quick && told.blockDimX == 1);
    parameters.blockDimX = 64;
    NEED(cuGraphKernelNodeSetParams_v2(node, &parameters));
    NEED(cuGraphKernelNodeGetParams_v2(node, &told));
    is("and new ones", told.blockDimX, 64);
    parameters.blockDimX = 0;
    is("but none that cannot be", cuGraphKernelNodeSetParams_v2(node, &parameters), INVALID_VALUE);
    memset(&attribute, 0, sizeof attribute);
    attribute.priority = -2;
    NEED(cuGraphKernelNodeSetAttribute(node, 8, &attribute));
    attribute.priority = 0;
    NEED(cuGraphKernelNodeGetAttribute(node, 8, &attribute));
    is("an attribute is kept", attribute.priority, -2);
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    parameters = one_thread(slow);
    NEED(cuGraphExecKernelNodeSetParams_v2(instance, node, &parameters));
    HOLDS("another kernel takes its time", launch_ms(instance) >= 19.9);
    NEED(cuGraphNodeSetEnabled(instance, node, 0));
    NEED(cuGraphNodeGetEnabled(instance, node, &enabled));
    is("a node may be disabled", enabled, 0);
    launch_ms(instance);
    NEED(cuGraphExecDestroy(instance));
    NEED(cuGraphDestroy(graph));
}

static void edges(void) {
    CUgraph graph, copy, child, inner;
    CUgraphNode first, second, found, nested;
    CUgraphExec instance;
    size_t count = 0;
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphAddEmptyNode(&first, graph, NULL, 0));
    NEED(cuGraphAddEmptyNode(&second, graph, &first, 1));
    is("an edge that is there", cuGraphAddDependencies_v2(graph, &first, &second, NULL, 1), INVALID_VALUE);
    NEED(cuGraphAddDependencies_v2(graph, &second, &first, NULL, 1));
    is("a circle is not instantiated", cuGraphInstantiateWithFlags(&instance, graph, 0), INVALID_VALUE);
    NEED(cuGraphRemoveDependencies_v2(graph, &second, &first, NULL, 1));
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    NEED(cuGraphClone(&copy, graph));
    NEED(cuGraphNodeFindInClone(&found, first, copy));
    HOLDS("a clone has nodes of its own", found != first);
    NEED(cuGraphCreate(&child, 0));
    NEED(cuGraphAddChildGraphNode(&nested, child, NULL, 0, copy));
    NEED(cuGraphChildGraphNodeGetGraph(nested, &inner));
    is("a child graph is a copy", nodes_of(inner), 2);
    is("which is its node's", cuGraphDestroy(inner), INVALID_VALUE);
    NEED(cuGraphDestroyNode(found));
    is("a destroyed node is gone", nodes_of(copy), 1);
    NEED(cuGraphNodeGetDependencies_v2(second, NULL, NULL, &count));
    is("dependencies are told", (long long)count, 1);
    NEED(cuGraphNodeGetDependentNodes_v2(first, NULL, NULL, &count));
    is("and dependents", (long long)count, 1);
    is("a node of no graph", cuGraphAddEmptyNode(&second, NULL, NULL, 0), INVALID_VALUE);
    is("an invented node", cuGraphDestroyNode((CUgraphNode)(uintptr_t)0x1234), INVALID_VALUE);
}

static CUgraph chain(int kernels) {
    CUgraph graph;
    CUgraphNode nodes[2];
    CUDA_KERNEL_NODE_PARAMS parameters = one_thread(quick);
    NEED(cuGraphCreate(&graph, 0));
    for (int i = 0; i < kernels; i++) NEED(cuGraphAddKernelNode_v2(&nodes[i & 1], graph, &nodes[~i & 1], i > 0, &parameters));
    return graph;
}

static void updates(void) {
    CUgraphExec instance;
    CUgraphExecUpdateResultInfo outcome;
    NEED(cuGraphInstantiateWithFlags(&instance, chain(3), 0));
    is("an update by a graph of the same shape", cuGraphExecUpdate_v2(instance, chain(3), &outcome), SUCCESS);
    is("is said to be well", outcome.result, 0);
    is("by one of another shape", cuGraphExecUpdate_v2(instance, chain(2), &outcome), UPDATE_FAILURE);
    HOLDS("is said not to be", outcome.result != 0);
    NEED(cuGraphLaunch(instance, stream));
    NEED(cuStreamSynchronize(stream));
    NEED(cuGraphExecDestroy(instance));
}

static void user_objects(void) {
    CUgraph graph = chain(1);
    CUuserObject object;
    CUgraphExec instance;
    NEED(cuUserObjectCreate(&object, (void *)(intptr_t)9, destroy, 1, 1));
    NEED(cuGraphRetainUserObject(graph, object, 1, 1));
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    NEED(cuGraphDestroy(graph));
    is("an instance holds its objects", destroyed, 0);
    NEED(cuGraphExecDestroy(instance));
    for (int i = 0; i < 5000 && !destroyed; i++) usleep(1000);
    is("the last one lets go", destroyed, 9);
    is("then it is unknown", cuUserObjectRelease(object, 1), INVALID_VALUE);
}

static void long_chain(void) {
    CUgraphExec instance;
    NEED(cuGraphInstantiateWithFlags(&instance, chain(5000), 0));
    NEED(cuGraphLaunch(instance, stream));
    is("five thousand nodes", cuStreamSynchronize(stream), SUCCESS);
}

int main(void) {
    context = begin();
    quick = kernel("spin_0us");
    slow = kernel("spin_20ms");
    NEED(cuStreamCreate(&stream, 1));
    built();
    kernels();
    edges();
    updates();
    user_objects();
    long_chain();
    return verdict();
}
