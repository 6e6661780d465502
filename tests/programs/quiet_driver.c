/* A driver that makes no system call: what is counted above it is not its own. One device of 16 GiB. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint64_t next = 1ull << 32;
static int has_context;

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? 101 : 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 7, 16); return device ? 101 : 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 16ull << 30; return device ? 101 : 0; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    *context = &has_context;
    has_context = 1;
    return flags || device ? 1 : 0;
}
int cuCtxGetCurrent(void **context) { *context = has_context ? &has_context : NULL; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return has_context ? 0 : 201; }
int cuMemAlloc_v2(uint64_t *address, size_t bytes) { *address = next; next += bytes; return 0; }
int cuMemFree_v2(uint64_t address) { return address ? 0 : 1; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = *total = 16ull << 30; return 0; }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **parameters, void **extra) {
    return function && gx && gy && gz && bx && by && bz && !shared && !stream && !parameters && !extra ? 0 : 1;
}
