/* Holds 800 MiB, then is as a process that the kernel is taking down: its files are closed, with them its locks are gone, and its
 * first thread has ended, but not its second. Prints "ready" before the last of that. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef unsigned long long CUdeviceptr;
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemAlloc_v2(CUdeviceptr *, size_t);

/* Ours lie below, however many a process may have. */
enum { FILES_MAX = 65536, SECONDS_MAX = 60 };

static void *stay(void *argument) {
    for (;;) pause();
    return argument;
}

int main(void) {
    void *context;
    CUdeviceptr block;
    pthread_t thread;
    alarm(SECONDS_MAX);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&block, 800u << 20)) return 70;
    if (pthread_create(&thread, NULL, stay, NULL)) return 71;
    for (int file = 3; file < FILES_MAX; file++) close(file);
    puts("ready");
    fflush(stdout);
    syscall(SYS_exit, 0);
    return 72;
}
