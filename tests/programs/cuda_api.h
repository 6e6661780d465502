/* The part of the driver API that the test programs use, declared by us: names, layouts and values are facts of the
 * interface. Functions are listed once; a program gets them linked or looked up (doors.h). */
#ifndef CUDA_API_H
#define CUDA_API_H
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct { int type, id; } CUmemLocation;
typedef struct {
    int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct { unsigned char compressionType, gpuDirectRDMACapable; unsigned short usage; unsigned char reserved[4]; } allocFlags;
} CUmemAllocationProp;
typedef struct { int allocType, handleTypes; CUmemLocation location; void *win32SecurityAttributes; size_t maxSize; unsigned short usage; unsigned char reserved[54]; } CUmemPoolProps;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
typedef struct { size_t Width, Height; int Format; unsigned NumChannels; } CUDA_ARRAY_DESCRIPTOR;
typedef struct { size_t Width, Height, Depth; int Format; unsigned NumChannels, Flags; } CUDA_ARRAY3D_DESCRIPTOR;

/* F(symbol, name for cuGetProcAddress, version there, parameters) */
#define FUNCTIONS(F) \
    F(cuInit, "cuInit", 2000, (unsigned)) \
    F(cuDriverGetVersion, "cuDriverGetVersion", 2020, (int *)) \
    F(cuDeviceGetCount, "cuDeviceGetCount", 2000, (int *)) \
    F(cuDeviceGet, "cuDeviceGet", 2000, (CUdevice *, int)) \
    F(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, (size_t *, CUdevice)) \
    F(cuDeviceGetUuid_v2, "cuDeviceGetUuid", 11040, (unsigned char *, CUdevice)) \
    F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, (void **, CUdevice)) \
    F(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, (CUdevice)) \
    F(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, (CUdevice)) \
    F(cuCtxCreate_v2, "cuCtxCreate", 3020, (void **, unsigned, CUdevice)) \
    F(cuCtxDestroy_v2, "cuCtxDestroy", 4000, (void *)) \
    F(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, (void *)) \
    F(cuCtxSynchronize, "cuCtxSynchronize", 2000, (void)) \
    F(cuMemGetInfo_v2, "cuMemGetInfo", 3020, (size_t *, size_t *)) \
    F(cuMemAlloc_v2, "cuMemAlloc", 3020, (CUdeviceptr *, size_t)) \
    F(cuMemFree_v2, "cuMemFree", 3020, (CUdeviceptr)) \
    F(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
    F(cuMemAllocManaged, "cuMemAllocManaged", 6000, (CUdeviceptr *, size_t, unsigned)) \
    F(cuMemAllocAsync, "cuMemAllocAsync", 11020, (CUdeviceptr *, size_t, void *)) \
    F(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, (CUdeviceptr *, size_t, void *, void *)) \
    F(cuMemFreeAsync, "cuMemFreeAsync", 11020, (CUdeviceptr, void *)) \
    F(cuMemPoolCreate, "cuMemPoolCreate", 11020, (void **, const CUmemPoolProps *)) \
    F(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, (void *)) \
    F(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, (void *, size_t)) \
    F(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", 11020, (void *, int, void *)) \
    F(cuDeviceGetMemPool, "cuDeviceGetMemPool", 11020, (void **, CUdevice)) \
    F(cuMemCreate, "cuMemCreate", 10020, (uint64_t *, size_t, const CUmemAllocationProp *, unsigned long long)) \
    F(cuMemRelease, "cuMemRelease", 10020, (uint64_t)) \
    F(cuMemAddressReserve, "cuMemAddressReserve", 10020, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
    F(cuMemAddressFree, "cuMemAddressFree", 10020, (CUdeviceptr, size_t)) \
    F(cuMemMap, "cuMemMap", 10020, (CUdeviceptr, size_t, size_t, uint64_t, unsigned long long)) \
    F(cuMemUnmap, "cuMemUnmap", 10020, (CUdeviceptr, size_t)) \
    F(cuMemSetAccess, "cuMemSetAccess", 10020, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)) \
    F(cuArrayCreate_v2, "cuArrayCreate", 3020, (void **, const CUDA_ARRAY_DESCRIPTOR *)) \
    F(cuArray3DCreate_v2, "cuArray3DCreate", 3020, (void **, const CUDA_ARRAY3D_DESCRIPTOR *)) \
    F(cuArrayDestroy, "cuArrayDestroy", 2000, (void *)) \
    F(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, (void **, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned)) \
    F(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, (void *)) \
    F(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, (CUdeviceptr, const void *, size_t)) \
    F(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, (void *, CUdeviceptr, size_t)) \
    F(cuModuleLoadData, "cuModuleLoadData", 2000, (void **, const void *)) \
    F(cuModuleGetFunction, "cuModuleGetFunction", 2000, (void **, void *, const char *)) \
    F(cuLaunchKernel, "cuLaunchKernel", 4000, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)) \
    F(cuStreamCreate, "cuStreamCreate", 2000, (void **, unsigned)) \
    F(cuStreamSynchronize, "cuStreamSynchronize", 2000, (void *))

#endif
