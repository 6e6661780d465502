/* Stops a process of the machine and lets it go on: `freeze PID ORDER...`, each of `state`, `lock`, `lock=MS`, `checkpoint`,
 * `restore`, `unlock`; prints a line `ORDER CODE` an order, and the state's number after `state`. */
#include "driver.h"

static void obey(int pid, const char *order) {
    CUcheckpointLockArgs args = {0, 0, {0}};
    int state = -1, code;
    if (!strncmp(order, "lock=", 5)) args.timeoutMs = (unsigned)atoi(order + 5);
    if (!strcmp(order, "state")) code = cuCheckpointProcessGetState(pid, &state);
    else if (!strcmp(order, "checkpoint")) code = cuCheckpointProcessCheckpoint(pid, NULL);
    else if (!strcmp(order, "restore")) code = cuCheckpointProcessRestore(pid, NULL);
    else if (!strcmp(order, "unlock")) code = cuCheckpointProcessUnlock(pid, NULL);
    else code = cuCheckpointProcessLock(pid, &args);
    if (!strcmp(order, "state")) printf("%s %d %d\n", order, code, state);
    else printf("%s %d\n", order, code);
}

int main(int argc, char **argv) {
    if (argc < 3) return 64;
    NEED(cuInit(0));
    for (int at = 2; at < argc; at++) obey(atoi(argv[1]), argv[at]);
    return 0;
}
