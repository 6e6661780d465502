/* Stream capture: work becomes a graph instead of being done, and calls that could spoil it are refused. */
#include "driver.h"

enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { NODE_KERNEL, NODE_MEMCPY, NODE_MEMSET, NODE_HOST, NODE_GRAPH, NODE_ALLOC = 10, NODE_FREE };
static CUfunction quick;
static CUcontext context;
static CUstream stream, second, apart;
static volatile int ran;

static void note(void *value) { ran = *(int *)value; }

static int status_of(CUstream which) {
    int status = -1;
    NEED(cuStreamIsCapturing(which, &status));
    return status;
}

static long long nodes_of(CUgraph graph) {
    size_t count = 0;
    NEED(cuGraphGetNodes(graph, NULL, &count));
    return (long long)count;
}

static long long edges_of(CUgraph graph) {
    size_t count = 0;
    NEED(cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &count));
    return (long long)count;
}

static int type_of(CUgraph graph, size_t at) {
    CUgraphNode nodes[16];
    size_t count = 16;
    int type = -1;
    NEED(cuGraphGetNodes(graph, nodes, &count));
    NEED(cuGraphNodeGetType(nodes[at], &type));
    return type;
}

/* The capture was spoilt: it ends with this code and leaves no graph. */
static void spoilt(const char *claim, CUresult expected) {
    CUgraph graph = &graph;
    CUresult code = cuStreamEndCapture(stream, &graph);
    is(claim, graph == NULL ? code : -1, expected);
}

static void *call(void *act) { return (void *)(intptr_t)(*(CUresult(**)(void))act)(); }

static CUresult in_a_thread(CUresult (*act)(void)) {
    pthread_t thread;
    void *result = NULL;
    if (pthread_create(&thread, NULL, call, &act)) exit(70);
    pthread_join(thread, &result);
    return (CUresult)(intptr_t)result;
}

static CUresult allocate(void) {
    CUdeviceptr block;
    NEED(cuCtxSetCurrent(context));
    return cuMemAlloc_v2(&block, 4096);
}

static CUresult allocate_relaxed(void) {
    int mode = RELAXED;
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    return allocate();
}

static CUresult end_elsewhere(void) {
    CUgraph graph;
    return cuStreamEndCapture(stream, &graph);
}

static void simple(CUdeviceptr block, unsigned *pinned) {
    CUgraph graph;
    int value = 5;
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    is("it captures", status_of(stream), 1);
    is("it captures already", cuStreamBeginCapture_v2(stream, GLOBAL), ILLEGAL_STATE);
    NEED(cuMemsetD32Async(block, 0xabcd, 16, stream));
    NEED(launch(quick, stream));
    NEED(cuMemcpyDtoHAsync_v2(pinned, block, 64, stream));
    NEED(cuLaunchHostFunc(stream, note, &value));
    is("another stream is not concerned", cuStreamQuery(apart), SUCCESS);
    NEED(cuStreamEndCapture(stream, &graph));
    HOLDS("nothing was done", pinned[0] == 0 && ran == 0);
    is("four nodes", nodes_of(graph), 4);
    is("one after another", edges_of(graph), 3);
    HOLDS("of their kinds", type_of(graph, 0) == NODE_MEMSET && type_of(graph, 1) == NODE_KERNEL && type_of(graph, 2) == NODE_MEMCPY && type_of(graph, 3) == NODE_HOST);
    is("it is over", cuStreamEndCapture(stream, &graph), ILLEGAL_STATE);
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    NEED(cuMemAllocAsync(&block, MIB, stream));
    NEED(cuMemFreeAsync(block, stream));
    NEED(cuStreamEndCapture(stream, &graph));
    HOLDS("memory in stream order becomes nodes", type_of(graph, 0) == NODE_ALLOC && type_of(graph, 1) == NODE_FREE);
}

static void unsafe(void) {
    CUdeviceptr block;
    CUgraph graph;
    int mode = RELAXED;
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    is("waiting for a capturing stream", cuStreamSynchronize(stream), CAPTURE_UNSUPPORTED);
    is("spoils the capture", status_of(stream), 2);
    is("which takes no more work", launch(quick, stream), CAPTURE_INVALIDATED);
    spoilt("and ends so", CAPTURE_INVALIDATED);
    is("after that it is as before", status_of(stream), 0);
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    is("an allocation", cuMemAlloc_v2(&block, 4096), CAPTURE_UNSUPPORTED);
    spoilt("spoils it too", CAPTURE_INVALIDATED);
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    is("one in another thread", in_a_thread(allocate), CAPTURE_UNSUPPORTED);
    spoilt("as well", CAPTURE_INVALIDATED);
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    is("a thread that is relaxed may", in_a_thread(allocate_relaxed), SUCCESS);
    is("the capture goes on", cuStreamEndCapture(stream, &graph), SUCCESS);
    NEED(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    is("the capture of a thread concerns no other", in_a_thread(allocate), SUCCESS);
    is("and is not ended there", in_a_thread(end_elsewhere), CAPTURE_WRONG_THREAD);
    is("its own thread may not allocate", cuMemAlloc_v2(&block, 4096), CAPTURE_UNSUPPORTED);
    spoilt("it is spoilt", CAPTURE_INVALIDATED);
    NEED(cuStreamBeginCapture_v2(stream, RELAXED));
    is("a relaxed capture allows it", cuMemAlloc_v2(&block, 4096), SUCCESS);
    is("and ends anywhere", in_a_thread(end_elsewhere), SUCCESS);
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    is("modes are exchanged", mode, GLOBAL);
    is("a relaxed thread allocates", cuMemAlloc_v2(&block, 4096), SUCCESS);
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    is("and exchanged back", mode, RELAXED);
    is("waiting for the context", cuCtxSynchronize(), CAPTURE_UNSUPPORTED);
    spoilt("spoils it in every mode", CAPTURE_INVALIDATED);
}

static void default_streams(void) {
    CUgraph graph;
    is("the legacy stream is not captured", cuStreamBeginCapture_v2(NULL, GLOBAL), CAPTURE_UNSUPPORTED);
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    is("nor used while a blocking one is", launch(quick, NULL), CAPTURE_IMPLICIT);
    spoilt("that spoils it", CAPTURE_INVALIDATED);
    NEED(cuStreamBeginCapture_v2(apart, GLOBAL));
    is("with another kind it may be", launch(quick, NULL), SUCCESS);
    NEED(cuStreamEndCapture(apart, &graph));
}

static void forks(void) {
    CUevent forked, joined;
    CUgraph graph;
    NEED(cuEventCreate(&forked, 2));
    NEED(cuEventCreate(&joined, 2));
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    NEED(launch(quick, stream));
    NEED(cuEventRecord(forked, stream));
    is("an event of a capture is not asked", cuEventQuery(forked), CAPTURED_EVENT);
    NEED(cuStreamWaitEvent(second, forked, 0));
    is("a stream that waits for it captures too", status_of(second), 1);
    NEED(launch(quick, second));
    NEED(launch(quick, stream));
    NEED(cuEventRecord(joined, second));
    NEED(cuStreamWaitEvent(stream, joined, 0));
    NEED(launch(quick, stream));
    NEED(cuStreamEndCapture(stream, &graph));
    HOLDS("a fork and a join", nodes_of(graph) == 4 && edges_of(graph) == 4);
    is("both have ended", status_of(second), 0);
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    NEED(cuEventRecord(forked, stream));
    NEED(cuStreamWaitEvent(second, forked, 0));
    NEED(launch(quick, second));
    spoilt("a fork that was not joined", CAPTURE_UNJOINED);
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    NEED(cuEventRecord(forked, stream));
    NEED(cuStreamWaitEvent(second, forked, 0));
    is("a capture ends where it began", cuStreamEndCapture(second, &graph), CAPTURE_UNMATCHED);
    spoilt("there it is spoilt", CAPTURE_INVALIDATED);
    NEED(cuEventRecord(joined, apart));
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    is("an event from outside", cuStreamWaitEvent(stream, joined, 0), CAPTURE_ISOLATION);
    spoilt("spoils the capture in its turn", CAPTURE_INVALIDATED);
}

static void told(void) {
    uint64_t id = 0;
    const CUgraphNode *after = NULL;
    const CUgraphEdgeData *edges = NULL;
    CUgraph graph = NULL, same = NULL;
    CUgraphNode empty;
    size_t count = 0;
    int status = 0;
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    NEED(launch(quick, stream));
    NEED(cuStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, NULL, NULL, NULL));
    NEED(cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph, &after, &edges, &count));
    HOLDS("a capture tells of itself", status == 1 && id != 0 && graph && count == 1 && after[0]);
    NEED(cuGraphAddEmptyNode(&empty, graph, after, 1));
    NEED(cuStreamUpdateCaptureDependencies(stream, &empty, 1, 1));
    NEED(launch(quick, stream));
    NEED(cuStreamEndCapture(stream, &same));
    HOLDS("the graph is the one it told of", same == graph && nodes_of(graph) == 3 && edges_of(graph) == 2);
    NEED(cuStreamBeginCaptureToGraph(stream, graph, &empty, NULL, 1, GLOBAL));
    NEED(launch(quick, stream));
    NEED(cuStreamEndCapture(stream, &same));
    HOLDS("a capture into a graph", same == graph && nodes_of(graph) == 4 && edges_of(graph) == 3);
}

int main(void) {
    CUdeviceptr block;
    unsigned *pinned = NULL;
    context = begin();
    quick = kernel("spin_0us");
    NEED(cuStreamCreate(&stream, 0));
    NEED(cuStreamCreate(&second, 0));
    NEED(cuStreamCreate(&apart, 1));
    NEED(cuMemAlloc_v2(&block, 4096));
    NEED(cuMemHostAlloc((void **)&pinned, 4096, 0));
    memset(pinned, 0, 4096);
    simple(block, pinned);
    unsafe();
    default_streams();
    forks();
    told();
    return verdict();
}
