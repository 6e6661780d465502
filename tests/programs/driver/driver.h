/* What the tests of the simulated driver share: checks, and the structures of the driver API they use beyond those of
 * cuda_api.h. All declared by us: names, layouts and values are facts of the interface.
 *
 * A program checks one family of calls and prints a line for each claim, `ok CLAIM` or `FAIL CLAIM got expected`, nothing that
 * differs from run to run. Its status is 0 if every claim holds. Times are only lower bounds: a slow machine is no failure. */
#ifndef DRIVER_H
#define DRIVER_H
#include "../cuda_api.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED,
    NO_DEVICE = 100, INVALID_DEVICE, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400, ILLEGAL_STATE, NOT_FOUND = 500, NOT_READY = 600, INVALID_RESOURCES = 701,
    PEER_ENABLED = 704, PEER_NOT_ENABLED, CONTEXT_DESTROYED = 709, HOST_REGISTERED = 712, HOST_NOT_REGISTERED,
    COOPERATIVE_TOO_LARGE = 720, NOT_PERMITTED = 800, NOT_SUPPORTED,
    CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED, CAPTURE_MERGE, CAPTURE_UNMATCHED, CAPTURE_UNJOINED, CAPTURE_ISOLATION,
    CAPTURE_IMPLICIT, CAPTURED_EVENT, CAPTURE_WRONG_THREAD, UPDATE_FAILURE = 910
};
enum { FROM_HOST = 1, ON_DEVICE, ON_ARRAY };

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static int failures;

/* A claim: what was got is what was expected. */
static inline void is(const char *claim, long long got, long long expected) {
    if (got == expected) printf("ok %s\n", claim);
    else printf("FAIL %s %lld %lld\n", claim, got, expected);
    failures += got != expected;
}
#define HOLDS(claim, condition) is(claim, (condition) ? 1 : 0, 1)

/* A step without which the rest means nothing. */
#define NEED(call) do { \
    CUresult needed = (call); \
    if (needed) { printf("FAIL %s:%d %s %d 0\n", __FILE__, __LINE__, #call, needed); exit(1); } \
} while (0)

static inline int verdict(void) { return failures != 0; }

static inline double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

typedef void *CUcontext, *CUstream, *CUevent, *CUmodule, *CUfunction, *CUlibrary, *CUkernel, *CUarray, *CUmipmappedArray, *CUgraph,
    *CUgraphNode, *CUgraphExec, *CUmemoryPool, *CUlinkState, *CUtexref, *CUuserObject, *CUgreenCtx, *CUdevResourceDesc;
typedef unsigned long long CUtexObject, CUmemGenericAllocationHandle;
typedef void (*CUhostFn)(void *);
typedef struct { char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle, CUipcEventHandle;
typedef struct { unsigned char reserved[64]; } CUmemPoolPtrExportData;

typedef struct {
    size_t srcXInBytes, srcY; int srcMemoryType; const void *srcHost; CUdeviceptr srcDevice; CUarray srcArray; size_t srcPitch;
    size_t dstXInBytes, dstY; int dstMemoryType; void *dstHost; CUdeviceptr dstDevice; CUarray dstArray; size_t dstPitch;
    size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;
typedef struct {
    size_t srcXInBytes, srcY, srcZ, srcLOD; int srcMemoryType; const void *srcHost; CUdeviceptr srcDevice; CUarray srcArray;
    void *reserved0; size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD; int dstMemoryType; void *dstHost; CUdeviceptr dstDevice; CUarray dstArray;
    void *reserved1; size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef struct {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra;
    CUkernel kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;
typedef struct { CUdeviceptr dst; size_t pitch; unsigned value, elementSize; size_t width, height; } CUDA_MEMSET_NODE_PARAMS;
typedef struct { CUhostFn fn; void *userData; } CUDA_HOST_NODE_PARAMS;
typedef struct {
    CUmemPoolProps poolProps;
    const CUmemAccessDesc *accessDescs;
    size_t accessDescCount, bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;
typedef struct { int result; CUgraphNode errorNode, errorFromNode; } CUgraphExecUpdateResultInfo;
typedef struct { unsigned char from_port, to_port, type, reserved[5]; } CUgraphEdgeData;
typedef struct {
    int type, reserved0[3];
    union { long long reserved1[29]; CUDA_KERNEL_NODE_PARAMS kernel; };
    long long reserved2;
} CUgraphNodeParams;
typedef struct { uint64_t flags; CUstream hUploadStream; CUgraphNode hErrNode_out; int result_out; } CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef union {
    char pad[64];
    int cooperative, syncPolicy, priority;
    struct { unsigned x, y, z; } clusterDim;
} CUlaunchAttributeValue;
typedef struct { int id; char pad[4]; CUlaunchAttributeValue value; } CUlaunchAttribute;
typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

typedef struct {
    int resType;
    union {
        struct { CUarray hArray; } array;
        struct { CUdeviceptr devPtr; int format; unsigned numChannels; size_t sizeInBytes; } linear;
        int reserved[32];
    } res;
    unsigned flags;
} CUDA_RESOURCE_DESC;
typedef struct {
    int addressMode[3], filterMode;
    unsigned flags, maxAnisotropy;
    int mipmapFilterMode;
    float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp, borderColor[4];
    int reserved[12];
} CUDA_TEXTURE_DESC;
typedef struct {
    int type;
    unsigned char padding[92];
    union { struct { unsigned smCount, minSmPartitionSize, smCoscheduledAlignment, flags; } sm; unsigned char oversize[40]; };
    void *nextResource;
} CUdevResource;
typedef struct {
    int type;
    union { int fd; struct { void *handle; const void *name; } win32; } handle;
    unsigned long long size;
    unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct { unsigned long long offset, size; unsigned flags, reserved[16]; } CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
typedef struct {
    unsigned long long offset;
    CUDA_ARRAY3D_DESCRIPTOR arrayDesc;
    unsigned numLevels, reserved[16];
} CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;
typedef struct { unsigned timeoutMs, reserved0; uint64_t reserved1[7]; } CUcheckpointLockArgs;
typedef struct { CUuuid oldUuid, newUuid; } CUcheckpointGpuPair;
typedef struct {
    CUcheckpointGpuPair *gpuPairs;
    unsigned gpuPairsCount, padding0;
    void *customStorageInfo_out;
    char reserved[40];
} CUcheckpointRestoreArgs;
typedef struct { int type, member; unsigned long long size; unsigned ipcHandleTypes, flags; } CUlogicalEndpointProp;
typedef struct { unsigned numDevices; size_t size; unsigned long long handleTypes, flags; } CUmulticastObjectProp;
typedef struct {
    unsigned tileWidth, tileHeight, tileDepth, miptailFirstLevel;
    unsigned long long miptailSize;
    unsigned flags, reserved[4];
} CUDA_ARRAY_SPARSE_PROPERTIES;
typedef struct {
    int resourceType;
    void *resource;
    int subresourceType;
    union {
        struct { unsigned level, layer, offsetX, offsetY, offsetZ, extentWidth, extentHeight, extentDepth; } sparseLevel;
        struct { unsigned layer; unsigned long long offset, size; } miptail;
    } subresource;
    int memOperationType, memHandleType;
    CUmemGenericAllocationHandle memHandle;
    unsigned long long offset;
    unsigned deviceBitMask, flags, reserved[2];
} CUarrayMapInfo;
typedef struct {
    unsigned smCount, coscheduledSmCount, preferredCoscheduledSmCount, flags, localityDomainId, reserved[11];
} CU_DEV_SM_RESOURCE_GROUP_PARAMS;

#include "functions.h"

/* The first device with its primary context current, as most programs begin. */
static inline CUcontext begin(void) {
    CUcontext context;
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuCtxSetCurrent(context));
    return context;
}

static inline size_t free_bytes(void) {
    size_t free, total;
    NEED(cuMemGetInfo_v2(&free, &total));
    return free;
}

/* Work that lasts until it is let go, so that no claim depends on how fast the machine is. */
static volatile int gate_is_open;

static void wait_at_the_gate(void *unused) {
    (void)unused;
    while (!gate_is_open) usleep(500);
}

static inline void hold(CUstream stream) {
    gate_is_open = 0;
    NEED(cuLaunchHostFunc(stream, wait_at_the_gate, NULL));
}

static inline void let_go(void) { gate_is_open = 1; }

/* A kernel of one thread, which takes no parameters. */
static inline CUresult launch(CUfunction function, CUstream stream) {
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

/* A function of the image that has every name; `spin_20ms` takes so long on the device. */
static inline CUfunction kernel(const char *name) {
    static CUmodule module;
    CUfunction function;
    if (!module) NEED(cuModuleLoadData(&module, "fake"));
    NEED(cuModuleGetFunction(&function, module, name));
    return function;
}

#endif
