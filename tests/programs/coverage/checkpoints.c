/* Checkpoints: all device memory of a process goes to the host, and comes back if there is room for it. */
#include "coverage.h"

/* Holds 60 MiB and a context, waits, then ends. */
static void holder(void) {
    begin();
    block(50 * MIB), block(1000), physical(8 * MIB, 0);
    your_turn();
    wait_turn();
}

static pid_t with_holder(void) {
    pid_t pid = with_other(holder);
    begin();
    wait_turn();
    at("both hold something", 0, CTX);
    return pid;
}

static void ends(pid_t pid) {
    your_turn();
    other_ends(pid);
}

static CUresult of_process(int pid) { return CALL((int, void *), pid, NULL); }

/* What is wrong in every state: nobody, and what no arguments may say. */
static void wrong(int pid) {
    char reserved[64];
    memset(reserved, 1, sizeof reserved);
    tell("nobody", of_process(0x7ffffffe));
    tell("no number", of_process(-1));
    tell("reserved", CALL((int, void *), pid, reserved));
}

WHOLE(cuCheckpointProcessLock) {
    pid_t pid = with_holder();
    wrong(pid);
    is("a process is locked", of_process(pid), SUCCESS);
    tell("twice", of_process(pid));
    at("it keeps what it has", 0, CTX);
    NEED(cuCheckpointProcessUnlock(pid, NULL));
    ends(pid);
}

WHOLE(cuCheckpointProcessUnlock) {
    pid_t pid = with_holder();
    tell("what is not locked", of_process(pid));
    NEED(cuCheckpointProcessLock(pid, NULL));
    wrong(pid);
    is("it goes on", of_process(pid), SUCCESS);
    at("and has what it had", 0, CTX);
    ends(pid);
}

WHOLE(cuCheckpointProcessCheckpoint) {
    pid_t pid = with_holder();
    tell("what is not locked", of_process(pid));
    NEED(cuCheckpointProcessLock(pid, NULL));
    wrong(pid);
    at("until then it keeps all", 0, CTX);
    is("a checkpoint", of_process(pid), SUCCESS);
    at("leaves nothing on the device", 0, CTX);
    tell("twice", of_process(pid));
    at("nothing more", 0, CTX);
    NEED(cuCheckpointProcessRestore(pid, NULL));
    NEED(cuCheckpointProcessUnlock(pid, NULL));
    at("all is there again", 0, CTX);
    block(5 * MIB);
    NEED(cuCheckpointProcessLock(getpid(), NULL));
    is("of oneself", of_process(getpid()), SUCCESS);
    at("leaves nothing, too", 0, 0);
    NEED(cuCheckpointProcessRestore(getpid(), NULL));
    NEED(cuCheckpointProcessUnlock(getpid(), NULL));
    at("and comes back", 6 * MIB, CTX);
    ends(pid);
}

PART(cuCheckpointProcessCheckpoint) {
    pid_t pid = with_holder();
    is("two processes share the quota", (long long)free_bytes(), QUOTA - 2 * CTX - 60 * MIB);
    NEED(cuCheckpointProcessLock(pid, NULL));
    is("a checkpoint", of_process(pid), SUCCESS);
    is("makes room", (long long)free_bytes(), QUOTA - CTX);
    NEED(cuCheckpointProcessRestore(pid, NULL));
    is("until it is restored", (long long)free_bytes(), QUOTA - 2 * CTX - 60 * MIB);
    NEED(cuCheckpointProcessUnlock(pid, NULL));
    ends(pid);
}

WHOLE(cuCheckpointProcessRestore) {
    pid_t pid = with_holder();
    tell("what runs", of_process(pid));
    NEED(cuCheckpointProcessLock(pid, NULL));
    tell("what is only locked", of_process(pid));
    NEED(cuCheckpointProcessCheckpoint(pid, NULL));
    wrong(pid);
    at("checkpointed", 0, CTX);
    is("restored", of_process(pid), SUCCESS);
    at("all is there again", 0, CTX);
    tell("twice", of_process(pid));
    at("nothing more", 0, CTX);
    NEED(cuCheckpointProcessUnlock(pid, NULL));
    ends(pid);
}

PART(cuCheckpointProcessRestore) {
    pid_t pid = with_holder();
    NEED(cuCheckpointProcessLock(pid, NULL));
    NEED(cuCheckpointProcessCheckpoint(pid, NULL));
    CUdeviceptr filler = fill(300 * MIB);
    is("no room for what comes back", of_process(pid), OUT_OF_MEMORY);
    at("nothing has come", QUOTA - CTX - 300 * MIB, CTX);
    NEED(cuMemFree_v2(filler));
    is("the same call again", of_process(pid), SUCCESS);
    at("brings all", 0, CTX);
    is("and fills the quota", (long long)free_bytes(), QUOTA - 2 * CTX - 60 * MIB);
    NEED(cuCheckpointProcessUnlock(pid, NULL));
    ends(pid);
}

WHOLE(cuCheckpointOperationComplete) {
    begin();
    tell("no operation", CALL((void *), NULL));
    tell("none", CALL((void *), nobody()));
    at("nothing is charged", 0, CTX);
}
