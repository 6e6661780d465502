/* Capture: what is allocated in one takes nothing until the graph is launched. */
#include "coverage.h"

enum { GLOBAL, THREAD_LOCAL, RELAXED };
#define PER_THREAD ((CUstream)(uintptr_t)2)

static int status_of(CUstream stream) {
    int status = -1;
    NEED(cuStreamIsCapturing(stream, &status));
    return status;
}

/* Ends the capture with an allocation in it, and launches what was captured. */
static void launch_captured(CUstream stream) {
    CUdeviceptr address;
    CUgraph graph;
    CUgraphExec instance;
    is("it captures", status_of(stream), 1);
    NEED(cuMemAllocAsync(&address, 5 * MIB, stream));
    NEED(cuMemFreeAsync(address, stream));
    at("nothing is taken", 0, CTX);
    NEED(cuStreamEndCapture(stream, &graph));
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    NEED(cuGraphLaunch(instance, stream));
    NEED(cuStreamSynchronize(stream));
    at("until it is launched", 6 * MIB, CTX);
    NEED(cuDeviceGraphMemTrim(0));
    at("and trimmed", 0, CTX);
}

static CUresult in_old_mode(CUstream stream) { return CALL((CUstream), stream); }
static CUresult relaxed(CUstream stream) { return CALL((CUstream, int), stream, RELAXED); }
static CUresult into_a_graph(CUstream stream) {
    CUgraph graph;
    NEED(cuGraphCreate(&graph, 0));
    return CALL((CUstream, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t, int), stream, graph, NULL, NULL, 0, RELAXED);
}

static void begun(CUresult (*begin_capture)(CUstream)) {
    begin();
    CUstream stream = stream_of_its_own();
    is("a capture", begin_capture(stream), SUCCESS);
    tell("twice", begin_capture(stream));
    tell("of no stream", begin_capture(nobody()));
    launch_captured(stream);
    CUresult code = begin_capture(NULL);
    tell("of the default stream", code);
    if (!code && per_thread) launch_captured(PER_THREAD);
}

WHOLE(cuStreamBeginCapture) { begun(in_old_mode); }
WHOLE(cuStreamBeginCapture_v2) { begun(relaxed); }
WHOLE(cuStreamBeginCaptureToGraph) { begun(into_a_graph); }

WHOLE(cuStreamEndCapture) {
    CUdeviceptr address;
    CUgraph graph = NULL, none = (CUgraph)(uintptr_t)POISON;
    CUgraphExec instance;
    begin();
    CUstream stream = stream_of_its_own();
    tell("what was not begun", CALL((CUstream, CUgraph *), stream, &none));
    tell("leaves no graph", none == NULL);
    tell("of no stream", CALL((CUstream, CUgraph *), nobody(), &none));
    NEED(cuStreamBeginCapture_v2(stream, RELAXED));
    NEED(cuMemAllocAsync(&address, 5 * MIB, stream));
    is("ended", CALL((CUstream, CUgraph *), stream, &graph), SUCCESS);
    HOLDS("it is a graph", graph != NULL);
    is("and over", status_of(stream), 0);
    at("nothing is taken", 0, CTX);
    NEED(cuMemAllocAsync(&address, 1000, stream));
    at("what is allocated after it is", 32 * MIB, CTX);
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    NEED(cuGraphLaunch(instance, stream));
    NEED(cuStreamSynchronize(stream));
    at("and what was in it, when it is launched", 38 * MIB, CTX);
}

WHOLE(cuThreadExchangeStreamCaptureMode) {
    int mode = RELAXED, wrong = 77;
    CUgraph graph;
    begin();
    CUstream stream = stream_of_its_own();
    NEED(cuStreamBeginCapture_v2(stream, GLOBAL));
    is("relaxed", CALL((int *), &mode), SUCCESS);
    is("was global", mode, GLOBAL);
    block(5 * MIB);
    at("an allocation beside a capture is charged", 6 * MIB, CTX);
    is("back", CALL((int *), &mode), SUCCESS);
    is("was relaxed", mode, RELAXED);
    tell("no such mode", CALL((int *), &wrong));
    is("is not taken over", wrong, 77);
    tell("no mode", CALL((int *), NULL));
    NEED(cuStreamEndCapture(stream, &graph));
    at("as before", 6 * MIB, CTX);
}
