/* Memory nodes: a graph's addresses are known early, its memory is taken at launch and kept until trimmed. */
#include "driver.h"

enum { USED, USED_HIGH, RESERVED };
static size_t start;
static CUstream stream;
static long long taken(void) { return (long long)(start - free_bytes()); }

static long long attribute(int which) {
    uint64_t value = 0;
    NEED(cuDeviceGetGraphMemAttribute(0, which, &value));
    return (long long)value;
}

static CUdeviceptr allocating(CUgraph *graph, size_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted;
    CUDA_MEMSET_NODE_PARAMS filled = {0, 0, 0x77, 4, 1000, 1};
    CUgraphNode first, second;
    CUcontext context;
    NEED(cuCtxGetCurrent(&context));
    memset(&wanted, 0, sizeof wanted);
    wanted.poolProps.allocType = 1, wanted.poolProps.location.type = 1, wanted.bytesize = bytes;
    NEED(cuGraphCreate(graph, 0));
    NEED(cuGraphAddMemAllocNode(&first, *graph, NULL, 0, &wanted));
    filled.dst = wanted.dptr;
    NEED(cuGraphAddMemsetNode(&second, *graph, &first, 1, &filled, context));
    return wanted.dptr;
}

static void launched(void) {
    CUgraph graph, copy;
    CUgraphExec instance, other;
    unsigned word = 0;
    CUdeviceptr block = allocating(&graph, 64 * MIB);
    HOLDS("the address is known", block != 0);
    is("a node takes nothing", taken(), 0);
    is("a graph with memory is not cloned", cuGraphClone(&copy, graph), NOT_SUPPORTED);
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    is("nor does an instance", taken(), 0);
    is("there is but one", cuGraphInstantiateWithFlags(&other, graph, 0), INVALID_VALUE);
    NEED(cuGraphLaunch(instance, stream));
    NEED(cuStreamSynchronize(stream));
    is("a launch does", taken(), 64 * MIB);
    is("it is in use", attribute(USED), 64 * MIB);
    NEED(cuMemcpyDtoH_v2(&word, block + 3996, 4));
    is("and real", word, 0x77);
    is("while it is, there is no second launch", cuGraphLaunch(instance, stream), INVALID_VALUE);
    NEED(cuMemFreeAsync(block, stream));
    NEED(cuStreamSynchronize(stream));
    is("freed it is not in use", attribute(USED), 0);
    is("but kept", attribute(RESERVED), 64 * MIB);
    is("also on the device", taken(), 64 * MIB);
    NEED(cuGraphLaunch(instance, stream));
    is("the next launch takes no more", taken(), 64 * MIB);
    NEED(cuMemFree_v2(block));
    NEED(cuDeviceGraphMemTrim(0));
    is("trimmed it is given back", taken(), 0);
    NEED(cuGraphExecDestroy(instance));
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 1));
    NEED(cuGraphLaunch(instance, stream));
    is("an instance may free what its last launch left", cuGraphLaunch(instance, stream), SUCCESS);
    NEED(cuMemFree_v2(block));
    NEED(cuGraphExecDestroy(instance));
    NEED(cuGraphDestroy(graph));
    NEED(cuDeviceGraphMemTrim(0));
    is("all is back", taken(), 0);
}

static void too_much(void) {
    CUgraph graph;
    CUgraphExec instance;
    CUDA_GRAPH_INSTANTIATE_PARAMS upload = {2, NULL, NULL, 0};
    CUdeviceptr block = allocating(&graph, 1024 * GIB);
    HOLDS("any size has an address", block != 0);
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    is("at launch there is no memory for it", cuGraphLaunch(instance, stream), OUT_OF_MEMORY);
    is("and none is taken", taken(), 0);
    NEED(cuGraphExecDestroy(instance));
    upload.hUploadStream = stream;
    is("nor for an upload", cuGraphInstantiateWithParams(&instance, graph, &upload), OUT_OF_MEMORY);
    NEED(cuGraphDestroy(graph));
}

static void captured(void) {
    CUgraph graph;
    CUgraphExec instance;
    CUdeviceptr block, result;
    unsigned word = 0;
    NEED(cuMemAlloc_v2(&result, 512));
    NEED(cuStreamBeginCapture_v2(stream, 2));
    NEED(cuMemAllocAsync(&block, 3 * MIB, stream));
    NEED(cuMemsetD32Async(block, 0x99, 100, stream));
    NEED(cuMemcpyDtoDAsync_v2(result, block + 40, 4, stream));
    NEED(cuMemFreeAsync(block, stream));
    NEED(cuStreamEndCapture(stream, &graph));
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    for (int i = 0; i < 3; i++) NEED(cuGraphLaunch(instance, stream));
    NEED(cuStreamSynchronize(stream));
    NEED(cuMemcpyDtoH_v2(&word, result, 4));
    is("memory within a graph carries data", word, 0x99);
    is("three launches leave none in use", attribute(USED), 0);
    NEED(cuGraphExecDestroy(instance));
    NEED(cuGraphDestroy(graph));
    NEED(cuMemFree_v2(result));
    NEED(cuDeviceGraphMemTrim(0));
    is("in the end all is back", taken(), 0);
}

int main(void) {
    begin();
    NEED(cuStreamCreate(&stream, 1));
    start = free_bytes();
    launched();
    too_much();
    captured();
    return verdict();
}
