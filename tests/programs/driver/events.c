/* Events: done when the work before them is, times from the device's clock. */
#include "driver.h"

static void plain(CUstream stream) {
    CUevent event, untimed, never;
    float elapsed_ms = -1;
    NEED(cuEventCreate(&event, 0));
    NEED(cuEventCreate(&untimed, 2));
    NEED(cuEventCreate(&never, 0));
    is("an event that was not recorded is done", cuEventQuery(never), SUCCESS);
    is("and waited for at once", cuEventSynchronize(never), SUCCESS);
    is("it has no time", cuEventElapsedTime(&elapsed_ms, never, never), INVALID_HANDLE);
    hold(stream);
    NEED(cuEventRecord(event, stream));
    is("an event waits for the work before it", cuEventQuery(event), NOT_READY);
    is("there is no time yet", cuEventElapsedTime(&elapsed_ms, event, event), NOT_READY);
    let_go();
    NEED(cuEventSynchronize(event));
    is("then it is done", cuEventQuery(event), SUCCESS);
    is("and so is the stream", cuStreamQuery(stream), SUCCESS);
    NEED(cuEventRecord(untimed, stream));
    NEED(cuEventSynchronize(untimed));
    is("an event without timing has no time", cuEventElapsedTime(&elapsed_ms, event, untimed), INVALID_HANDLE);
    is("unknown flags", cuEventCreate(&never, 64), INVALID_VALUE);
    is("no output", cuEventCreate(NULL, 0), INVALID_VALUE);
    NEED(cuEventDestroy_v2(event));
    is("destroyed", cuEventQuery(event), INVALID_HANDLE);
    is("destroyed twice", cuEventDestroy_v2(event), INVALID_HANDLE);
    is("an invented event", cuEventRecord((CUevent)(uintptr_t)0x1234, stream), INVALID_HANDLE);
}

static void times(CUstream stream) {
    CUevent begun, ended;
    float elapsed_ms = -1, second_ms = -1;
    NEED(cuEventCreate(&begun, 0));
    NEED(cuEventCreate(&ended, 0));
    NEED(cuEventRecord(begun, stream));
    NEED(launch(kernel("spin_10ms"), stream));
    NEED(cuEventRecord(ended, stream));
    NEED(cuEventSynchronize(ended));
    NEED(cuEventElapsedTime(&elapsed_ms, begun, ended));
    HOLDS("a kernel takes what it takes", elapsed_ms > 9.99f && elapsed_ms < 5000);
    NEED(cuEventElapsedTime_v2(&second_ms, begun, ended));
    HOLDS("both forms agree", elapsed_ms == second_ms);
    NEED(cuEventElapsedTime(&elapsed_ms, ended, begun));
    HOLDS("backwards it is negative", elapsed_ms == -second_ms);
    NEED(cuEventRecord(begun, stream));
    for (int i = 0; i < 20; i++) NEED(launch(kernel("k_500us"), stream));
    NEED(cuEventRecord(ended, stream));
    NEED(cuStreamSynchronize(stream));
    NEED(cuEventElapsedTime(&elapsed_ms, begun, ended));
    HOLDS("kernels of a stream follow one another", elapsed_ms > 9.99f && elapsed_ms < 5000);
}

static void across(CUstream one, CUstream two) {
    CUevent event;
    NEED(cuEventCreate(&event, 2));
    is("flags of a wait", cuStreamWaitEvent(two, event, 77), INVALID_VALUE);
    hold(one);
    NEED(cuEventRecord(event, one));
    NEED(cuStreamWaitEvent(two, event, 0));
    NEED(launch(kernel("spin_0us"), two));
    is("a stream waits for an event of another", cuStreamQuery(two), NOT_READY);
    NEED(cuEventRecord(event, two));
    let_go();
    NEED(cuStreamSynchronize(one));
    NEED(cuStreamSynchronize(two));
    is("and goes on", cuEventQuery(event), SUCCESS);
    hold(one);
    NEED(cuStreamWaitEvent(two, event, 0));
    NEED(cuEventRecord(event, one));
    is("a wait is for the record before it", cuStreamSynchronize(two), SUCCESS);
    is("not for the one after it", cuEventQuery(event), NOT_READY);
    NEED(cuStreamWaitEvent(two, event, 0));
    NEED(cuEventDestroy_v2(event));
    is("destroying an event does not end the wait", cuStreamQuery(two), NOT_READY);
    let_go();
    NEED(cuStreamSynchronize(two));
}

int main(void) {
    CUstream one, two;
    begin();
    NEED(cuStreamCreate(&one, 1));
    NEED(cuStreamCreate(&two, 1));
    plain(one);
    times(one);
    across(one, two);
    return verdict();
}
