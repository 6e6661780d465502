/* A job that makes room when it is asked to: it frees its device memory, says that it is ready, and takes the memory again when
 * it may go on. It runs without gpuquota as well; nobody asks it then.
 *
 *   cc -o notice -Iinclude examples/notice.c -lcuda
 *   gpuquota run --priority batch --memory 12GiB -- ./notice 10
 *   gpuquota interrupt TENANT --grace 10s; gpuquota resume TENANT
 */
#include "gpuquota.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The public driver API; with NVIDIA's headers installed, include <cuda.h> instead. */
extern int cuInit(unsigned flags);
extern int cuDevicePrimaryCtxRetain(void **context, int device);
extern int cuCtxSetCurrent(void *context);
extern int cuMemAlloc_v2(uint64_t *pointer, size_t bytes);
extern int cuMemFree_v2(uint64_t pointer);

static void *context;
static uint64_t memory;
static const size_t bytes = (size_t)1 << 30;

/* On a thread of the library. A real program would have its own threads stop at a good place, and save what the memory holds. */
static void hear(const struct gpuquota_notice *notice, void *data) {
    (void)data;
    if (cuCtxSetCurrent(context)) return;
    switch (notice->event) {
    case GPUQUOTA_NOTICE:
        printf("to make room within %u ms\n", notice->grace_ms);
        if (!cuMemFree_v2(memory)) gpuquota_ready();
        break;
    case GPUQUOTA_INTERRUPTED: printf("interrupted\n"); break;
    case GPUQUOTA_RESUMED: printf("goes on: %d\n", cuMemAlloc_v2(&memory, bytes)); break;
    }
    fflush(stdout);
}

int main(int count, char **words) {
    struct gpuquota_quota quota;
    int code = cuInit(0);
    if (!code) code = cuDevicePrimaryCtxRetain(&context, 0);
    if (!code) code = cuCtxSetCurrent(context);
    if (!code) code = cuMemAlloc_v2(&memory, bytes);
    if (code) {
        fprintf(stderr, "CUDA error %d\n", code);
        return 1;
    }
    quota.size = sizeof quota;
    if (gpuquota_quota && gpuquota_quota(0, &quota) == GPUQUOTA_OK)
        printf("%zu of %zu MiB in use\n", quota.memory_used >> 20, quota.memory_quota >> 20);
    if (!gpuquota_on_notice || gpuquota_on_notice(hear, NULL) != GPUQUOTA_OK) printf("nobody will ask for room\n");
    fflush(stdout);
    sleep(count > 1 ? (unsigned)atoi(words[1]) : 60);
    return 0;
}
