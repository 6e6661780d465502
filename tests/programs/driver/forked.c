/* The child of a process that has used CUDA is refused by the driver; the parent goes on as before. */
#include "driver.h"
#include <sys/wait.h>

static int refused(CUcontext context, CUstream stream, CUdeviceptr block) {
    int number = 0;
    size_t free, total;
    CUdeviceptr other;
    const char *name = NULL;
    int wrong = 0;
    wrong |= (cuInit(0) != NOT_INITIALIZED) << 0;
    wrong |= (cuDeviceGetCount(&number) != NOT_INITIALIZED) << 1;
    wrong |= (cuMemAlloc_v2(&other, 512) != NOT_INITIALIZED) << 2;
    wrong |= (cuMemGetInfo_v2(&free, &total) != NOT_INITIALIZED) << 3;
    wrong |= (cuCtxSetCurrent(context) != NOT_INITIALIZED) << 4;
    wrong |= (cuStreamSynchronize(stream) != NOT_INITIALIZED) << 5;
    wrong |= (cuMemFree_v2(block) != NOT_INITIALIZED) << 6;
    wrong |= (cuDriverGetVersion(&number) != SUCCESS) << 7;
    wrong |= (cuGetErrorName(3, &name) != SUCCESS) << 8;
    return wrong;
}

int main(void) {
    CUcontext context = begin();
    CUstream stream;
    CUdeviceptr block;
    int ends[2], status = 0, wrong = -1;
    NEED(cuStreamCreate(&stream, 0));
    NEED(cuMemAlloc_v2(&block, 64 * MIB));
    size_t before = free_bytes();
    if (pipe(ends)) return 70;
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        wrong = refused(context, stream, block);
        _exit(write(ends[1], &wrong, sizeof wrong) == sizeof wrong ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &wrong, sizeof wrong) != sizeof wrong) return 71;
    waitpid(pid, &status, 0);
    is("everything but what needs no device answers that it is not initialised", wrong, 0);
    is("the child ends as it will", status, 0);
    is("the parent's memory is as it was", (long long)free_bytes(), (long long)before);
    is("and is freed", cuMemFree_v2(block), SUCCESS);
    is("its device works", launch(kernel("spin_0us"), stream), SUCCESS);
    is("to the end", cuStreamSynchronize(stream), SUCCESS);
    return verdict();
}
