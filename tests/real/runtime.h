/* The CUDA runtime API as far as `runtime.c` uses it, the same in every version since 10.2, taken from a library at run
 * time. Declared here afresh, so that no NVIDIA header is needed to build the tests. */
#ifndef REAL_RUNTIME_H
#define REAL_RUNTIME_H

#include <stddef.h>

enum {
    MEMORY_ALLOCATION = 2,
    HOST_TO_DEVICE = 1,
    DEVICE_TO_HOST = 2,
    ATTACH_GLOBAL = 1,
    CAPTURE_GLOBAL = 0,
    /* Where cudaDeviceProp has totalGlobalMem, and more than the whole of it takes. */
    TOTAL_GLOBAL_MEM_OFFSET = 288,
    PROPERTIES_BYTES_MAX = 4096,
};

struct dimensions {
    unsigned x, y, z;
};

/* What a compiler leaves in a program for each translation unit with kernels. */
struct fat_wrapper {
    unsigned magic, version;
    const void *fatbinary;
    void *unused;
};

typedef void *handle;
typedef int status;

/* One line for each function: result, name, parameters. */
#define RUNTIME_FUNCTIONS(F) \
    F(status, cudaRuntimeGetVersion, (int *)) \
    F(status, cudaGetDeviceCount, (int *)) \
    F(status, cudaGetDeviceProperties, (void *, int)) \
    F(status, cudaSetDevice, (int)) \
    F(status, cudaDeviceSynchronize, (void)) \
    F(status, cudaDeviceReset, (void)) \
    F(status, cudaGetLastError, (void)) \
    F(const char *, cudaGetErrorName, (status)) \
    F(const char *, cudaGetErrorString, (status)) \
    F(status, cudaMemGetInfo, (size_t *, size_t *)) \
    F(status, cudaMalloc, (void **, size_t)) \
    F(status, cudaMallocManaged, (void **, size_t, unsigned)) \
    F(status, cudaMallocPitch, (void **, size_t *, size_t, size_t)) \
    F(status, cudaMallocArray, (handle *, const int *, size_t, size_t, unsigned)) \
    F(status, cudaFree, (void *)) \
    F(status, cudaFreeArray, (handle)) \
    F(status, cudaHostAlloc, (void **, size_t, unsigned)) \
    F(status, cudaFreeHost, (void *)) \
    F(status, cudaMemcpy, (void *, const void *, size_t, int)) \
    F(status, cudaMemset, (void *, int, size_t)) \
    F(status, cudaMemsetAsync, (void *, int, size_t, handle)) \
    F(status, cudaStreamCreate, (handle *)) \
    F(status, cudaStreamSynchronize, (handle)) \
    F(status, cudaStreamDestroy, (handle)) \
    F(status, cudaStreamBeginCapture, (handle, int)) \
    F(status, cudaStreamEndCapture, (handle, handle *)) \
    F(status, cudaEventCreate, (handle *)) \
    F(status, cudaEventRecord, (handle, handle)) \
    F(status, cudaEventElapsedTime, (float *, handle, handle)) \
    F(status, cudaEventDestroy, (handle)) \
    F(status, cudaGraphInstantiate, (handle *, handle, size_t, size_t, size_t)) \
    F(status, cudaGraphLaunch, (handle, handle)) \
    F(status, cudaGraphExecDestroy, (handle)) \
    F(status, cudaGraphDestroy, (handle)) \
    F(status, cudaLaunchKernel, (const void *, struct dimensions, struct dimensions, void **, size_t, handle)) \
    F(void **, __cudaRegisterFatBinary, (struct fat_wrapper *)) \
    F(void, __cudaRegisterFatBinaryEnd, (void **)) \
    F(void, __cudaRegisterFunction, \
      (void **, const void *, const char *, const char *, int, void *, void *, void *, void *, int *))

#define DECLARE(result, name, parameters) static result(*name) parameters;
RUNTIME_FUNCTIONS(DECLARE)
#undef DECLARE

#endif
