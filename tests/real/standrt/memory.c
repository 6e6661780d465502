/* Memory: allocation, pools, copies, what a pointer is, sharing with other processes. */
#include "standrt.h"
#include <string.h>

EXPORT cudaError_t cudaMemGetInfo(size_t *available, size_t *total) { IN_CONTEXT(cuMemGetInfo, available, total); }

EXPORT cudaError_t cudaMalloc(void **address, size_t bytes)
{
    NEED_CONTEXT();
    if (bytes == 0) {
        *address = NULL;
        return cudaSuccess;
    }
    return answer(DRIVER(cuMemAlloc, (CUdeviceptr *)address, bytes));
}

EXPORT cudaError_t cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height)
{
    enum { WIDEST_ELEMENT_BYTES = 16 };
    IN_CONTEXT(cuMemAllocPitch, (CUdeviceptr *)address, pitch, width, height, WIDEST_ELEMENT_BYTES);
}

EXPORT cudaError_t cudaMallocManaged(void **address, size_t bytes, unsigned flags)
{
    IN_CONTEXT(cuMemAllocManaged, (CUdeviceptr *)address, bytes, flags);
}

EXPORT cudaError_t cudaMallocAsync(void **address, size_t bytes, cudaStream_t stream)
{
    IN_CONTEXT(cuMemAllocAsync, (CUdeviceptr *)address, bytes, stream);
}

EXPORT cudaError_t cudaFree(void *address)
{
    NEED_CONTEXT();
    return address ? answer(DRIVER(cuMemFree, (CUdeviceptr)address)) : cudaSuccess;
}

EXPORT cudaError_t cudaFreeAsync(void *address, cudaStream_t stream)
{
    IN_CONTEXT(cuMemFreeAsync, (CUdeviceptr)address, stream);
}

EXPORT cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags)
{
    IN_CONTEXT(cuMemHostAlloc, address, bytes, flags);
}

EXPORT cudaError_t cudaMallocHost(void **address, size_t bytes) { return cudaHostAlloc(address, bytes, 0); }

EXPORT cudaError_t cudaFreeHost(void *address)
{
    NEED_CONTEXT();
    return address ? answer(DRIVER(cuMemFreeHost, address)) : cudaSuccess;
}

EXPORT cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned flags)
{
    IN_CONTEXT(cuMemHostRegister, address, bytes, flags);
}

EXPORT cudaError_t cudaHostUnregister(void *address) { IN_CONTEXT(cuMemHostUnregister, address); }

/* The driver's format for a channel of so many bits. */
static int array_format(const struct cudaChannelFormatDesc *channel, CUarray_format *format)
{
    int step = channel->x == 8 ? 0 : channel->x == 16 ? 1 : channel->x == 32 ? 2 : -1;
    if (step < 0)
        return 0;
    switch (channel->f) {
    case cudaChannelFormatKindUnsigned: *format = (CUarray_format)(CU_AD_FORMAT_UNSIGNED_INT8 + step); return 1;
    case cudaChannelFormatKindSigned: *format = (CUarray_format)(CU_AD_FORMAT_SIGNED_INT8 + step); return 1;
    case cudaChannelFormatKindFloat: *format = step == 1 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT; return step > 0;
    default: return 0;
    }
}

EXPORT cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *channel, size_t width,
                                   size_t height, unsigned flags)
{
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = width, .Height = height};
    shape.NumChannels = (unsigned)(1 + (channel->y > 0) + (channel->z > 0) + (channel->w > 0));
    NEED_CONTEXT();
    if (flags != cudaArrayDefault || !array_format(channel, &shape.Format))
        return answer(CUDA_ERROR_NOT_SUPPORTED);
    return answer(DRIVER(cuArrayCreate, (CUarray *)array, &shape));
}

EXPORT cudaError_t cudaFreeArray(cudaArray_t array)
{
    NEED_CONTEXT();
    return array ? answer(DRIVER(cuArrayDestroy, (CUarray)array)) : cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    NEED_DRIVER();
    return answer(DRIVER(cuDeviceGetDefaultMemPool, pool, device));
}

EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr which, void *value)
{
    IN_CONTEXT(cuMemPoolGetAttribute, pool, (CUmemPool_attribute)which, value);
}

EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr which, void *value)
{
    IN_CONTEXT(cuMemPoolSetAttribute, pool, (CUmemPool_attribute)which, value);
}

EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) { IN_CONTEXT(cuMemPoolTrimTo, pool, keep); }

_Static_assert(sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc), "one layout under two names");

EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *access, size_t count)
{
    IN_CONTEXT(cuMemPoolSetAccess, pool, (const CUmemAccessDesc *)access, count);
}

EXPORT cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType which, void *value)
{
    IN_CONTEXT(cuDeviceGetGraphMemAttribute, device, (CUgraphMem_attribute)which, value);
}

EXPORT cudaError_t cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType which, void *value)
{
    IN_CONTEXT(cuDeviceSetGraphMemAttribute, device, (CUgraphMem_attribute)which, value);
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    NEED_CONTEXT();
    switch (kind) {
    case cudaMemcpyHostToHost: memcpy(to, from, bytes); return cudaSuccess;
    case cudaMemcpyHostToDevice: return answer(DRIVER(cuMemcpyHtoD, (CUdeviceptr)to, from, bytes));
    case cudaMemcpyDeviceToHost: return answer(DRIVER(cuMemcpyDtoH, to, (CUdeviceptr)from, bytes));
    default: return answer(DRIVER(cuMemcpy, (CUdeviceptr)to, (CUdeviceptr)from, bytes));
    }
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CUdeviceptr target = (CUdeviceptr)to, source = (CUdeviceptr)from;
    NEED_CONTEXT();
    switch (kind) {
    case cudaMemcpyHostToDevice: return answer(DRIVER(cuMemcpyHtoDAsync, target, from, bytes, stream));
    case cudaMemcpyDeviceToHost: return answer(DRIVER(cuMemcpyDtoHAsync, to, source, bytes, stream));
    case cudaMemcpyDeviceToDevice: return answer(DRIVER(cuMemcpyDtoDAsync, target, source, bytes, stream));
    default: return answer(DRIVER(cuMemcpyAsync, target, source, bytes, stream));
    }
}

/* Addresses are unique over all devices, so that the driver finds both contexts by them. */
EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                       cudaStream_t stream)
{
    (void)to_device;
    (void)from_device;
    IN_CONTEXT(cuMemcpyAsync, (CUdeviceptr)to, (CUdeviceptr)from, bytes, stream);
}

EXPORT cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                     size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .dstMemoryType = CU_MEMORYTYPE_UNIFIED};
    if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost)
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost)
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from;
    copy.srcDevice = (CUdeviceptr)from;
    copy.srcPitch = from_pitch;
    copy.dstHost = to;
    copy.dstDevice = (CUdeviceptr)to;
    copy.dstPitch = to_pitch;
    copy.WidthInBytes = width;
    copy.Height = height;
    IN_CONTEXT(cuMemcpy2DAsync, &copy, stream);
}

EXPORT cudaError_t cudaMemset(void *address, int value, size_t bytes)
{
    IN_CONTEXT(cuMemsetD8, (CUdeviceptr)address, (unsigned char)value, bytes);
}

EXPORT cudaError_t cudaMemsetAsync(void *address, int value, size_t bytes, cudaStream_t stream)
{
    IN_CONTEXT(cuMemsetD8Async, (CUdeviceptr)address, (unsigned char)value, bytes, stream);
}

EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                    CU_POINTER_ATTRIBUTE_HOST_POINTER};
    unsigned type = 0, managed = 0;
    int device = cudaInvalidDeviceId;
    CUdeviceptr on_device = 0;
    void *on_host = NULL;
    void *values[] = {&type, &managed, &device, &on_device, &on_host};
    NEED_CONTEXT();
    CUresult result = DRIVER(cuPointerGetAttributes, 5, wanted, values, (CUdeviceptr)pointer);
    if (result)
        return answer(result);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = type == 0                   ? cudaMemoryTypeUnregistered
                       : managed                   ? cudaMemoryTypeManaged
                       : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                                   : cudaMemoryTypeDevice;
    attributes->device = device;
    attributes->devicePointer = (void *)on_device;
    attributes->hostPointer = type == 0 ? (void *)pointer : on_host;
    return cudaSuccess;
}

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle), "one layout under two names");
_Static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle), "one layout under two names");

EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *address)
{
    IN_CONTEXT(cuIpcGetMemHandle, (CUipcMemHandle *)handle, (CUdeviceptr)address);
}

EXPORT cudaError_t cudaIpcOpenMemHandle(void **address, cudaIpcMemHandle_t handle, unsigned flags)
{
    CUipcMemHandle same;
    memcpy(&same, &handle, sizeof same);
    IN_CONTEXT(cuIpcOpenMemHandle, (CUdeviceptr *)address, same, flags);
}

EXPORT cudaError_t cudaIpcCloseMemHandle(void *address) { IN_CONTEXT(cuIpcCloseMemHandle, (CUdeviceptr)address); }

EXPORT cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    IN_CONTEXT(cuIpcGetEventHandle, (CUipcEventHandle *)handle, event);
}

EXPORT cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    CUipcEventHandle same;
    memcpy(&same, &handle, sizeof same);
    IN_CONTEXT(cuIpcOpenEventHandle, event, same);
}
