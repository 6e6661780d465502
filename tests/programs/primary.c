/* What keeps a primary context although the program has nothing of it: `primary retain` and `primary green` fill a quota of 1 GiB
 * with physical memory, but for 40 MiB, while they retain a primary context that was reset; then they ask for it again.
 * `primary reset` allocates through a green context, and resets the primary one. Each line is a result; "look" waits for a line. */
#include "driver/driver.h"
#include <stdio.h>
#include <string.h>

static CUcontext context;

static void look(void) {
    char line[16];
    puts("look");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) puts("nobody looks");
}

static CUresult make_green(CUgreenCtx *green) {
    CUdevResource whole, part[1], rest;
    CUdevResourceDesc description;
    unsigned count = 1;
    if (cuDeviceGetDevResource(0, &whole, 1) || cuDevSmResourceSplitByCount(part, &count, &whole, &rest, 0, 16)) return -1;
    return cuDevResourceGenerateDesc(&description, part, 1) ? (CUresult)-1 : cuGreenCtxCreate(green, description, 0, 1);
}

static CUresult make(const char *how) {
    CUgreenCtx green;
    return strcmp(how, "green") ? cuDevicePrimaryCtxRetain(&context, 0) : make_green(&green);
}

static void say_state(void) {
    unsigned flags;
    int active = -1;
    CUresult code = cuDevicePrimaryCtxGetState(0, &flags, &active);
    printf("state %d %d\n", (int)code, active);
}

/* Whoever retains it once, and is refused once, has to release it once. */
static void make_again(const char *how) {
    CUmemAllocationProp prop = {1, 0, {1, 0}, NULL, {0, 0, 0, {0}}};
    CUmemGenericAllocationHandle room;
    printf("retain %d\n", (int)cuDevicePrimaryCtxRetain(&context, 0));
    printf("reset %d\n", (int)cuDevicePrimaryCtxReset_v2(0));
    printf("fill %d\n", (int)cuMemCreate(&room, 984ull << 20, &prop, 0));
    printf("full %d\n", (int)make(how));
    say_state();
    look();
    printf("empty %d\n", (int)cuMemRelease(room));
    printf("retain %d\n", (int)cuDevicePrimaryCtxRetain(&context, 0));
    printf("release %d\n", (int)cuDevicePrimaryCtxRelease_v2(0));
    say_state();
    printf("release %d\n", (int)cuDevicePrimaryCtxRelease_v2(0));
    say_state();
    printf("release %d\n", (int)cuDevicePrimaryCtxRelease_v2(0));
}

static void reset_under_green(void) {
    CUgreenCtx green;
    CUdeviceptr block;
    printf("green %d\n", (int)make_green(&green));
    printf("context %d\n", (int)(cuCtxFromGreenCtx(&context, green) || cuCtxSetCurrent(context)));
    printf("allocate %d\n", (int)(cuMemAlloc_v2(&block, 3 << 20) || cuMemAlloc_v2(&block, 5000)));
    look();
    printf("reset %d\n", (int)cuDevicePrimaryCtxReset_v2(0));
}

int main(int argc, char **argv) {
    if (argc != 2 || cuInit(0)) return 70;
    if (strcmp(argv[1], "reset")) make_again(argv[1]);
    else reset_under_green();
    look();
    return 0;
}
