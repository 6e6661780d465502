/* What a child sees: of a parent that has used CUDA, and of one that has not. */
#include "doors.h"
#include <sys/wait.h>
#include <unistd.h>

static int child(void) {
    size_t free, total;
    void *context;
    CUdeviceptr at;
    printf("child-init %d\n", p_cuInit(0));
    printf("child-ctx %d\n", p_cuCtxCreate_v2(&context, 0, 0));
    int code = p_cuMemGetInfo_v2(&free, &total);
    printf("child-info %d %zu\n", code, code ? 0 : total);
    printf("child-alloc %d\n", p_cuMemAlloc_v2(&at, 600l << 20));
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    CUdeviceptr at;
    void *context;
    open_door("dlopen:libcuda.so.1");
    int used = argc > 1 && !strcmp(argv[1], "used");
    if (used) {
        printf("init %d\n", p_cuInit(0));
        printf("ctx %d\n", p_cuCtxCreate_v2(&context, 0, 0));
        printf("alloc %d\n", p_cuMemAlloc_v2(&at, 600l << 20));
        fflush(stdout);
    }
    pid_t pid = fork();
    if (!pid) _exit(child());
    int status;
    waitpid(pid, &status, 0);
    printf("child-status %d\n", status);
    if (used) {
        size_t free, total;
        printf("after-alloc %d\n", p_cuMemAlloc_v2(&at, 600l << 20));
        printf("after-info %d %zu\n", p_cuMemGetInfo_v2(&free, &total), free);
    }
    return 0;
}
