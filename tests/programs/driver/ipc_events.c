/* Events between processes: recorded in one, asked and waited for in the other, in both directions. */
#include "driver.h"
#include <sys/socket.h>
#include <sys/wait.h>

enum { TIMED = 0, SHARED = 6, MAP_FAILED_CODE = 205 };
static int line;

static void give(const void *bytes, size_t size) { if (write(line, bytes, size) != (ssize_t)size) exit(71); }
static void get(void *bytes, size_t size) { if (read(line, bytes, size) != (ssize_t)size) exit(72); }
static void say(void) { give("x", 1); }
static void hear(void) { char x; get(&x, 1); }

/* Exits at the first step that is not as it should be; the parent prints. */
static int child(void) {
    CUipcEventHandle handle;
    CUevent event;
    CUstream waits, records;
    begin();
    NEED(cuStreamCreate(&waits, 1));
    NEED(cuStreamCreate(&records, 1));
    get(&handle, sizeof handle);
    NEED(cuIpcOpenEventHandle(&event, handle));
    NEED(cuEventQuery(event));
    say();
    hear();
    NEED(cuEventQuery(event) != NOT_READY);
    NEED(cuStreamWaitEvent(waits, event, 0));
    NEED(cuStreamQuery(waits) != NOT_READY);
    say();
    NEED(cuEventSynchronize(event));
    NEED(cuStreamSynchronize(waits));
    NEED(cuEventQuery(event));
    hold(records);
    NEED(cuEventRecord(event, records));
    say();
    hear();
    let_go();
    NEED(cuStreamSynchronize(records));
    NEED(cuEventDestroy_v2(event));
    hear();
    NEED(cuIpcOpenEventHandle(&event, handle) != MAP_FAILED_CODE);
    return 0;
}

static void refused(CUevent event) {
    CUipcEventHandle handle, nonsense;
    CUevent other, none = &none;
    memset(&nonsense, 7, sizeof nonsense);
    NEED(cuEventCreate(&other, TIMED));
    is("an event not made for it", cuIpcGetEventHandle(&handle, other), INVALID_VALUE);
    is("no event", cuIpcGetEventHandle(&handle, (CUevent)(uintptr_t)0x1234), INVALID_HANDLE);
    is("no output", cuIpcGetEventHandle(NULL, event), INVALID_VALUE);
    NEED(cuIpcGetEventHandle(&handle, event));
    is("a handle is not for its own process", cuIpcOpenEventHandle(&none, handle), INVALID_CONTEXT);
    is("no handle", cuIpcOpenEventHandle(&none, nonsense), INVALID_VALUE);
    is("no output for an event", cuIpcOpenEventHandle(NULL, handle), INVALID_VALUE);
    HOLDS("failed calls leave the output alone", none == (void *)&none);
    NEED(cuEventDestroy_v2(other));
}

int main(void) {
    CUipcEventHandle handle;
    CUevent event;
    CUstream stream, waits;
    int ends[2], status = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 70;
    pid_t pid = fork();
    line = ends[pid != 0];
    close(ends[pid == 0]);
    if (!pid) return child();
    begin();
    NEED(cuStreamCreate(&stream, 1));
    NEED(cuStreamCreate(&waits, 1));
    NEED(cuEventCreate(&event, SHARED));
    refused(event);
    NEED(cuIpcGetEventHandle(&handle, event));
    give(&handle, sizeof handle);
    hear();
    hold(stream);
    NEED(cuEventRecord(event, stream));
    is("recorded here", cuEventQuery(event), NOT_READY);
    say();
    hear();
    let_go();
    NEED(cuStreamSynchronize(stream));
    hear();
    is("recorded there", cuEventQuery(event), NOT_READY);
    NEED(cuStreamWaitEvent(waits, event, 0));
    is("a stream waits for it", cuStreamQuery(waits), NOT_READY);
    say();
    NEED(cuEventSynchronize(event));
    NEED(cuStreamSynchronize(waits));
    is("and goes on", cuEventQuery(event), SUCCESS);
    NEED(cuEventDestroy_v2(event));
    say();
    waitpid(pid, &status, 0);
    is("the other process found all as it should be", status, 0);
    return verdict();
}
