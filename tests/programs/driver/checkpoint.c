/* Processes that are locked and checkpointed by others, and by themselves.
 *
 * The parent stops the child, which does as it is told through a socket. What that does to the memory that is free is told by
 * tests of several processes: a quota goes on counting it. */
#include "driver.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { RUNNING, LOCKED, CHECKPOINTED };
static int line;

static void say(char what) { if (write(line, &what, 1) != 1) exit(71); }

static char hear(void) {
    char what;
    if (read(line, &what, 1) != 1) exit(72);
    return what;
}

static int hears_something(int ms) {
    struct pollfd ready = {line, POLLIN, 0};
    return poll(&ready, 1, ms) > 0;
}

static int state_of(int pid) {
    int state = -1;
    NEED(cuCheckpointProcessGetState(pid, &state));
    return state;
}

/* `a` allocates and `k` launches a kernel of 500 ms; both answer `d`. */
static int child(void) {
    CUdeviceptr block;
    begin();
    CUfunction slow = kernel("spin_500ms");
    say('r');
    for (char order; (order = hear()) != 'q'; say('d')) {
        if (order == 'a') NEED(cuMemAlloc_v2(&block, 4 * MIB));
        else NEED(launch(slow, NULL));
    }
    NEED(cuMemFree_v2(block));
    return 0;
}

static void refused(int pid) {
    CUcheckpointLockArgs reserved = {0, 1, {0}};
    CUcheckpointRestoreArgs storage = {NULL, 0, 0, &storage, {0}};
    long long no[8] = {0, 1};
    int state = 77, nobody[] = {0, -1, 0x7ffffffe};
    for (size_t i = 0; i < sizeof nobody / sizeof *nobody; i++) {
        is("nobody is in no state", cuCheckpointProcessGetState(nobody[i], &state), INVALID_VALUE);
        is("nobody is not locked", cuCheckpointProcessLock(nobody[i], NULL), INVALID_VALUE);
        is("nobody is not checkpointed", cuCheckpointProcessCheckpoint(nobody[i], NULL), INVALID_VALUE);
        is("nobody is not restored", cuCheckpointProcessRestore(nobody[i], NULL), INVALID_VALUE);
        is("nobody is not unlocked", cuCheckpointProcessUnlock(nobody[i], NULL), INVALID_VALUE);
        is("nobody has no thread", cuCheckpointProcessGetRestoreThreadId(nobody[i], &state), INVALID_VALUE);
    }
    is("nor is a process without CUDA", cuCheckpointProcessLock(getppid(), NULL), INVALID_VALUE);
    is("failed calls leave the output alone", state, 77);
    is("a state needs an output", cuCheckpointProcessGetState(pid, NULL), INVALID_VALUE);
    is("a thread needs one, too", cuCheckpointProcessGetRestoreThreadId(pid, NULL), INVALID_VALUE);
    is("reserved for locking", cuCheckpointProcessLock(pid, &reserved), INVALID_VALUE);
    is("reserved for checkpoints", cuCheckpointProcessCheckpoint(pid, no), INVALID_VALUE);
    is("reserved for unlocking", cuCheckpointProcessUnlock(pid, no), INVALID_VALUE);
    HOLDS("no storage of one's own", cuCheckpointProcessRestore(pid, &storage) != SUCCESS);
    is("a running process is not checkpointed", cuCheckpointProcessCheckpoint(pid, NULL), ILLEGAL_STATE);
    is("a running process is not restored", cuCheckpointProcessRestore(pid, NULL), ILLEGAL_STATE);
    is("a running process is not unlocked", cuCheckpointProcessUnlock(pid, NULL), ILLEGAL_STATE);
    is("all that changed nothing", state_of(pid), RUNNING);
}

static void stopped(int pid) {
    int thread = 0;
    NEED(cuCheckpointProcessLock(pid, NULL));
    is("locked", state_of(pid), LOCKED);
    is("locked twice", cuCheckpointProcessLock(pid, NULL), ILLEGAL_STATE);
    is("not restored without a checkpoint", cuCheckpointProcessRestore(pid, NULL), ILLEGAL_STATE);
    say('a');
    is("its calls wait", hears_something(100), 0);
    NEED(cuCheckpointProcessUnlock(pid, NULL));
    is("and then go on", hear(), 'd');
    is("running", state_of(pid), RUNNING);
    NEED(cuCheckpointProcessGetRestoreThreadId(pid, &thread));
    HOLDS("a thread to restore it", thread > 0);
}

static void busy(int pid) {
    CUcheckpointLockArgs soon = {10, 0, {0}};
    double begun = now_ms();
    say('k');
    is("a kernel runs", hear(), 'd');
    is("a lock waits for it as long as it was told", cuCheckpointProcessLock(pid, &soon), NOT_READY);
    is("and leaves the process running", state_of(pid), RUNNING);
    NEED(cuCheckpointProcessLock(pid, NULL));
    HOLDS("or until it is done", now_ms() - begun >= 499);
    NEED(cuCheckpointProcessUnlock(pid, NULL));
}

static void checkpointed(int pid) {
    CUcheckpointGpuPair pair, unknown;
    CUcheckpointRestoreArgs same = {&pair, 1, 0, NULL, {0}}, other = {&unknown, 1, 0, NULL, {0}}, none = {NULL, 1, 0, NULL, {0}};
    NEED(cuDeviceGetUuid(&pair.oldUuid, 0));
    pair.newUuid = pair.oldUuid;
    memset(&unknown, 7, sizeof unknown);
    NEED(cuCheckpointProcessLock(pid, NULL));
    NEED(cuCheckpointProcessCheckpoint(pid, NULL));
    is("checkpointed", state_of(pid), CHECKPOINTED);
    is("checkpointed twice", cuCheckpointProcessCheckpoint(pid, NULL), ILLEGAL_STATE);
    is("not unlocked before it is restored", cuCheckpointProcessUnlock(pid, NULL), ILLEGAL_STATE);
    is("nor locked", cuCheckpointProcessLock(pid, NULL), ILLEGAL_STATE);
    say('a');
    is("its calls wait for the restore", hears_something(50), 0);
    is("unknown devices", cuCheckpointProcessRestore(pid, &other), INVALID_VALUE);
    is("no devices", cuCheckpointProcessRestore(pid, &none), INVALID_VALUE);
    NEED(cuCheckpointProcessRestore(pid, &same));
    is("restored it is locked", state_of(pid), LOCKED);
    is("and waits to be unlocked", hears_something(50), 0);
    NEED(cuCheckpointProcessUnlock(pid, NULL));
    is("then it goes on", hear(), 'd');
}

static void oneself(void) {
    CUcheckpointLockArgs soon = {10, 0, {0}};
    CUdeviceptr block;
    CUstream stream;
    char text[8] = "";
    NEED(cuMemAlloc_v2(&block, 4 * MIB));
    NEED(cuMemcpyHtoD_v2(block, "kept", 5));
    NEED(cuStreamCreate(&stream, 1));
    hold(stream);
    is("work that waits for the host is waited for", cuCheckpointProcessLock(getpid(), &soon), NOT_READY);
    let_go();
    NEED(cuCheckpointProcessLock(getpid(), NULL));
    is("a process locks itself", state_of(getpid()), LOCKED);
    NEED(cuCheckpointProcessCheckpoint(getpid(), NULL));
    NEED(cuCheckpointProcessRestore(getpid(), NULL));
    NEED(cuCheckpointProcessUnlock(getpid(), NULL));
    NEED(cuMemcpyDtoH_v2(text, block, 5));
    is("and finds its memory as it was", strcmp(text, "kept"), 0);
    NEED(cuMemFree_v2(block));
    NEED(cuStreamDestroy_v2(stream));
}

int main(void) {
    int ends[2], status = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 70;
    pid_t pid = fork();
    line = ends[pid != 0];
    close(ends[pid == 0]);
    if (!pid) return child();
    begin();
    hear();
    refused(pid);
    stopped(pid);
    busy(pid);
    checkpointed(pid);
    oneself();
    NEED(cuCheckpointProcessLock(pid, NULL));
    NEED(cuCheckpointProcessUnlock(pid, NULL));
    say('q');
    waitpid(pid, &status, 0);
    is("the other process ended well", status, 0);
    is("and is nobody now", cuCheckpointProcessLock(pid, NULL), INVALID_VALUE);
    return verdict();
}
