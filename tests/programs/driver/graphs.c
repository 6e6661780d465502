/* Capture and graphs: what is recorded, what a capture forbids, and that a launch does what was recorded. */
#include "driver.h"

enum { GLOBAL, THREAD_LOCAL, RELAXED, NOT_CAPTURING = 0, CAPTURING = 1 };
static int called;

static void host(void *data) { __atomic_fetch_add(&called, *(int *)data, __ATOMIC_SEQ_CST); }

static size_t nodes_of(CUgraph graph) {
    size_t count = 0;
    NEED(cuGraphGetNodes(graph, NULL, &count));
    return count;
}

static void recorded(CUstream stream, CUdeviceptr memory) {
    CUgraph graph, none;
    CUgraphExec exec;
    unsigned value = 7;
    int status = -1;
    CUfunction function = kernel("spin_1us"); /* Loading is one of the calls that a capture forbids. */
    NEED(cuMemsetD32_v2(memory, 1, 4));
    is("capture begins", cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
    is("a second begin is refused", cuStreamBeginCapture_v2(stream, GLOBAL), ILLEGAL_STATE);
    is("the stream tells", cuStreamIsCapturing(stream, &status), SUCCESS);
    is("that it captures", status, CAPTURING);
    is("a launch is recorded", launch(function, stream), SUCCESS);
    is("a memset is recorded", cuMemsetD32Async(memory, 5, 4, stream), SUCCESS);
    is("capture ends", cuStreamEndCapture(stream, &graph), SUCCESS);
    is("it ends once", cuStreamEndCapture(stream, &none), ILLEGAL_STATE);
    is("two nodes", (long long)nodes_of(graph), 2);
    NEED(cuMemcpyDtoH_v2(&value, memory, 4));
    is("nothing ran while it was recorded", value, 1);
    is("instantiated", cuGraphInstantiateWithFlags(&exec, graph, 0), SUCCESS);
    is("launched", cuGraphLaunch(exec, stream), SUCCESS);
    NEED(cuStreamSynchronize(stream));
    NEED(cuMemcpyDtoH_v2(&value, memory, 4));
    is("the memset ran", value, 5);
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
}

static void forbidden(CUstream stream) {
    CUgraph graph = NULL;
    CUdeviceptr memory;
    int mode = RELAXED, status = -1;
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    is("an allocation is unsafe", cuMemAlloc_v2(&memory, 4096), CAPTURE_UNSUPPORTED);
    is("and spoils the capture", cuStreamEndCapture(stream, &graph), CAPTURE_INVALIDATED);
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    is("waiting for the stream is refused", cuStreamSynchronize(stream), CAPTURE_UNSUPPORTED);
    (void)cuStreamEndCapture(stream, &graph);
    NEED(cuStreamBeginCapture_v2(stream, RELAXED));
    is("a relaxed capture allows an allocation", cuMemAlloc_v2(&memory, 4096), SUCCESS);
    is("and ends well", cuStreamEndCapture(stream, &graph), SUCCESS);
    NEED(cuMemFree_v2(memory));
    NEED(cuGraphDestroy(graph));
    is("modes are exchanged", cuThreadExchangeStreamCaptureMode(&mode), SUCCESS);
    is("the first was global", mode, GLOBAL);
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    is("a relaxed thread may allocate", cuMemAlloc_v2(&memory, 4096), SUCCESS);
    is("and the capture stands", cuStreamEndCapture(stream, &graph), SUCCESS);
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    NEED(cuMemFree_v2(memory));
    NEED(cuGraphDestroy(graph));
    is("the stream tells", cuStreamIsCapturing(stream, &status), SUCCESS);
    is("that it is over", status, NOT_CAPTURING);
}

static void allocated(CUstream stream) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr memory = 0;
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    is("a stream-ordered allocation is recorded", cuMemAllocAsync(&memory, 4 * MIB, stream), SUCCESS);
    HOLDS("with its address", memory != 0);
    is("and used", cuMemsetD8Async(memory, 3, 4 * MIB, stream), SUCCESS);
    is("and freed", cuMemFreeAsync(memory, stream), SUCCESS);
    NEED(cuStreamEndCapture(stream, &graph));
    is("three nodes", (long long)nodes_of(graph), 3);
    NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
    is("launched", cuGraphLaunch(exec, stream), SUCCESS);
    is("and again", cuGraphLaunch(exec, stream), SUCCESS);
    NEED(cuStreamSynchronize(stream));
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
}

static void built(CUstream stream, CUcontext context, CUdeviceptr memory) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode first, second, third;
    int step = 21;
    unsigned value = 0;
    CUDA_HOST_NODE_PARAMS call = {host, &step};
    CUDA_MEMSET_NODE_PARAMS set = {memory, 0, 9, 4, 4, 1};
    NEED(cuGraphCreate(&graph, 0));
    is("a host node", cuGraphAddHostNode(&first, graph, NULL, 0, &call), SUCCESS);
    is("a memset behind it", cuGraphAddMemsetNode(&second, graph, &first, 1, &set, context), SUCCESS);
    is("an empty one behind both", cuGraphAddEmptyNode(&third, graph, &second, 1), SUCCESS);
    is("a node of no graph is refused", cuGraphAddEmptyNode(&third, NULL, NULL, 0), INVALID_VALUE);
    NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 2; i++) NEED(cuGraphLaunch(exec, stream));
    NEED(cuStreamSynchronize(stream));
    is("the function was called at each launch", called, 42);
    NEED(cuMemcpyDtoH_v2(&value, memory, 4));
    is("the memset ran", value, 9);
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
}

int main(void) {
    CUcontext context = begin();
    CUstream stream;
    CUdeviceptr memory;
    NEED(cuStreamCreate(&stream, 0));
    NEED(cuMemAlloc_v2(&memory, 4096));
    recorded(stream, memory);
    forbidden(stream);
    allocated(stream);
    built(stream, context, memory);
    return verdict();
}
