/* Fills the device until it is told to stop: under a quota, that is at the quota.
 *
 *   cc -o quota examples/quota.c -lcuda
 *   gpuquota run --memory 2GiB -- ./quota
 */
#include <stdint.h>
#include <stdio.h>

/* The public driver API; with NVIDIA's headers installed, include <cuda.h> instead. */
extern int cuInit(unsigned flags);
extern int cuDevicePrimaryCtxRetain(void **context, int device);
extern int cuCtxSetCurrent(void *context);
extern int cuMemGetInfo_v2(size_t *free, size_t *total);
extern int cuMemAlloc_v2(uint64_t *pointer, size_t bytes);

enum { OUT_OF_MEMORY = 2 };

int main(void) {
    void *context;
    size_t free, total, taken = 0, block = 256 << 20;
    uint64_t pointer;
    int code = cuInit(0);
    if (!code) code = cuDevicePrimaryCtxRetain(&context, 0);
    if (!code) code = cuCtxSetCurrent(context);
    if (!code) code = cuMemGetInfo_v2(&free, &total);
    if (code) {
        fprintf(stderr, "CUDA error %d\n", code);
        return 1;
    }
    printf("the device has %zu MiB, %zu MiB free\n", total >> 20, free >> 20);
    while (!(code = cuMemAlloc_v2(&pointer, block))) taken += block;
    printf("took %zu MiB, then CUDA error %d%s\n", taken >> 20, code, code == OUT_OF_MEMORY ? " (out of memory)" : "");
    return code == OUT_OF_MEMORY ? 0 : 1;
}
