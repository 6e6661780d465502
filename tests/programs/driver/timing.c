/* What events tell of how long work took, to the microsecond; and what may be asked of them while a stream captures. Work
 * before and after is on the device at the same time, so that nothing depends on how fast this program runs. */
#include "driver.h"

CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
CUresult cuEventRecord_ptsz(CUevent, CUstream);

static CUevent event(void) {
    CUevent made;
    NEED(cuEventCreate(&made, 0));
    return made;
}

/* Whole microseconds between two events, to the nearest. */
static long between(CUevent from, CUevent to) {
    float ms = -1;
    NEED(cuEventElapsedTime(&ms, from, to));
    return (long)(ms * 1000 + 0.5f);
}

static void busy_stream(CUfunction before, CUfunction work) {
    CUstream stream, other;
    CUevent from = event(), middle = event(), to = event();
    NEED(cuStreamCreate(&stream, 1));
    NEED(cuStreamCreate(&other, 1));
    NEED(launch(before, stream));
    NEED(cuEventRecord(from, stream));
    NEED(launch(work, stream));
    NEED(cuEventRecord(middle, stream));
    NEED(launch(work, other));
    NEED(launch(work, stream));
    NEED(cuEventRecord(to, stream));
    is("work under way", cuEventQuery(to), NOT_READY);
    float ms;
    is("no time before the end", cuEventElapsedTime(&ms, from, to), NOT_READY);
    NEED(cuEventSynchronize(to));
    usleep(30000);
    is("as long as the kernel", between(from, middle), 3000);
    is("with what another stream had in between", between(middle, to), 6000);
}

/* Nobody asks while more is launched than the device keeps waiting. */
static void never_asked(CUfunction before, CUfunction little) {
    CUstream stream;
    CUevent from = event(), to = event(), last = event();
    NEED(cuStreamCreate(&stream, 1));
    NEED(launch(before, stream));
    NEED(cuEventRecord(from, stream));
    NEED(launch(little, stream));
    NEED(cuEventRecord(to, stream));
    for (int i = 0; i < 3000; i++) NEED(launch(little, stream));
    NEED(cuEventRecord(last, stream));
    NEED(cuStreamSynchronize(stream));
    is("the first of many", between(from, to), 20);
    HOLDS("all of many", between(to, last) >= 60000);
}

static void kinds(CUfunction before, CUfunction work) {
    CUstream stream;
    CUevent marks[6];
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr block;
    for (int i = 0; i < 6; i++) marks[i] = event();
    NEED(cuMemAlloc_v2(&block, MIB));
    NEED(cuStreamCreate(&stream, 1));
    NEED(cuStreamBeginCapture_v2(stream, 0));
    for (int i = 0; i < 4; i++) NEED(launch(work, stream));
    NEED(cuStreamEndCapture(stream, &graph));
    NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
    NEED(launch(before, stream));
    NEED(cuEventRecord(marks[0], stream));
    NEED(cuGraphLaunch(exec, stream));
    NEED(cuEventRecord(marks[1], stream));
    NEED(cuLaunchKernelEx(&config, work, NULL, NULL));
    NEED(cuEventRecord(marks[2], stream));
    NEED(cuLaunchCooperativeKernel(work, 1, 1, 1, 1, 1, 1, 0, stream, NULL));
    NEED(cuEventRecord(marks[3], stream));
    NEED(cuFuncSetBlockShape(work, 1, 1, 1));
    NEED(cuLaunchGridAsync(work, 1, 1, stream));
    NEED(cuEventRecord(marks[4], stream));
    NEED(cuMemsetD8Async(block, 1, MIB, stream));
    NEED(cuEventRecord(marks[5], stream));
    NEED(cuStreamSynchronize(stream));
    is("a graph takes what its kernels take", between(marks[0], marks[1]), 12000);
    is("an extended launch", between(marks[1], marks[2]), 3000);
    is("a cooperative launch", between(marks[2], marks[3]), 3000);
    is("a launch of old", between(marks[3], marks[4]), 3000);
    is("a memset takes nothing", between(marks[4], marks[5]), 0);
}

static void default_streams(CUfunction before, CUfunction work) {
    CUevent from = event(), to = event();
    NEED(cuLaunchKernel_ptsz(before, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    NEED(cuEventRecord_ptsz(from, NULL));
    NEED(cuLaunchKernel_ptsz(work, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    NEED(cuEventRecord_ptsz(to, NULL));
    NEED(cuEventSynchronize(to));
    is("in the thread's own default stream", between(from, to), 3000);
}

static void in_capture(void) {
    CUstream stream, blocking;
    CUevent plain = event(), captured = event();
    CUgraph graph;
    int mode = 2, status = 0;
    NEED(cuStreamCreate(&stream, 1));
    NEED(cuStreamCreate(&blocking, 0));
    NEED(cuEventRecord(plain, stream));
    NEED(cuStreamBeginCapture_v2(stream, 0));
    is("a capturing stream records an event", cuEventRecord(captured, stream), SUCCESS);
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    is("who takes it upon himself may ask an event", cuEventQuery(plain), SUCCESS);
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    is("the capture is as it was", cuStreamEndCapture(stream, &graph), SUCCESS);
    NEED(cuStreamBeginCapture_v2(stream, 0));
    is("others may not", cuEventQuery(plain), CAPTURE_UNSUPPORTED);
    is("and spoil it", cuStreamEndCapture(stream, &graph), CAPTURE_INVALIDATED);
    NEED(cuStreamBeginCapture_v2(stream, 0));
    is("an event of another stream is recorded", cuEventRecord(plain, blocking), SUCCESS);
    is("which spoils nothing", cuStreamEndCapture(stream, &graph), SUCCESS);
    NEED(cuStreamBeginCapture_v2(blocking, 0));
    is("is the legacy stream capturing", cuStreamIsCapturing(NULL, &status), CAPTURE_IMPLICIT);
    NEED(cuStreamEndCapture(blocking, &graph));
    is("not any more", cuStreamIsCapturing(NULL, &status), SUCCESS);
}

int main(void) {
    begin();
    CUfunction before = kernel("spin_300ms"), work = kernel("spin_3ms");
    busy_stream(before, work);
    never_asked(before, kernel("spin_20us"));
    kinds(before, work);
    default_streams(before, work);
    in_capture();
    return verdict();
}
