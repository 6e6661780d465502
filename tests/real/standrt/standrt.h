/* A stand-in for NVIDIA's libcudart.so.13: the public runtime API on top of the public driver API.
 *
 * NVIDIA's own works with NVIDIA's own driver only. This one lets an otherwise unmodified PyTorch 2 run on the simulated
 * driver, and reaches it as NVIDIA's does: dlopen of libcuda.so.1, dlsym of cuGetProcAddress_v2, and then that. It has
 * what PyTorch links to. What it does not do answers cudaErrorNotSupported.
 *
 * Built against NVIDIA's headers, which the tests take from the wheel beside PyTorch. */
#ifndef STANDRT_H
#define STANDRT_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

/* In a header of its own, which the runtime's wheel lacks. */
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
typedef CUresult (*PFN_cuProfilerStart_v4000)(void);
typedef CUresult (*PFN_cuProfilerStop_v4000)(void);

#define EXPORT __attribute__((visibility("default")))

/* The driver's functions in use: name and version by which cuGetProcAddress gives the form that cuda.h declares. */
#define DRIVER_FUNCTIONS(F) \
    F(cuInit, 2000) F(cuDriverGetVersion, 2020) F(cuDeviceGetCount, 2000) F(cuDeviceGetName, 2000) \
    F(cuDeviceTotalMem, 3020) F(cuDeviceGetUuid, 11040) F(cuDeviceGetLuid, 10000) F(cuDeviceGetAttribute, 2000) \
    F(cuDeviceGetPCIBusId, 4010) F(cuDeviceCanAccessPeer, 4000) F(cuDeviceGetDefaultMemPool, 11020) \
    F(cuDeviceGetGraphMemAttribute, 11040) F(cuDeviceSetGraphMemAttribute, 11040) F(cuDevicePrimaryCtxRetain, 7000) \
    F(cuDevicePrimaryCtxReset, 11000) F(cuDevicePrimaryCtxRelease, 11000) F(cuCtxGetCurrent, 4000) \
    F(cuCtxSetCurrent, 4000) F(cuCtxGetDevice, 2000) F(cuCtxSynchronize, 2000) F(cuCtxEnablePeerAccess, 4000) \
    F(cuCtxGetStreamPriorityRange, 5050) F(cuMemAlloc, 3020) F(cuMemAllocPitch, 3020) F(cuMemAllocManaged, 6000) \
    F(cuMemAllocAsync, 11020) F(cuMemFree, 3020) F(cuMemFreeAsync, 11020) F(cuMemHostAlloc, 2020) \
    F(cuMemFreeHost, 2000) F(cuMemHostRegister, 6050) F(cuMemHostUnregister, 4000) F(cuMemGetInfo, 3020) \
    F(cuMemPoolGetAttribute, 11020) F(cuMemPoolSetAttribute, 11020) F(cuMemPoolTrimTo, 11020) \
    F(cuMemPoolSetAccess, 11020) F(cuArrayCreate, 3020) F(cuArrayDestroy, 2000) F(cuMemcpy, 4000) \
    F(cuMemcpyHtoD, 3020) F(cuMemcpyDtoH, 3020) F(cuMemcpyAsync, 4000) F(cuMemcpyHtoDAsync, 3020) \
    F(cuMemcpyDtoHAsync, 3020) F(cuMemcpyDtoDAsync, 3020) F(cuMemcpy2DAsync, 3020) \
    F(cuMemsetD8, 3020) F(cuMemsetD8Async, 3020) F(cuPointerGetAttributes, 7000) F(cuIpcGetMemHandle, 4010) \
    F(cuIpcOpenMemHandle, 11000) F(cuIpcCloseMemHandle, 4010) F(cuIpcGetEventHandle, 4010) \
    F(cuIpcOpenEventHandle, 4010) F(cuStreamCreate, 2000) F(cuStreamCreateWithPriority, 5050) \
    F(cuStreamDestroy, 4000) F(cuStreamQuery, 2000) F(cuStreamSynchronize, 2000) F(cuStreamWaitEvent, 3020) \
    F(cuStreamGetPriority, 5050) F(cuStreamAddCallback, 5000) F(cuLaunchHostFunc, 10000) \
    F(cuStreamBeginCapture, 10010) F(cuStreamBeginCaptureToGraph, 12030) F(cuStreamEndCapture, 10000) \
    F(cuStreamIsCapturing, 10000) F(cuStreamGetCaptureInfo, 12030) F(cuStreamUpdateCaptureDependencies, 12030) \
    F(cuThreadExchangeStreamCaptureMode, 10010) F(cuEventCreate, 2000) F(cuEventDestroy, 4000) \
    F(cuEventRecord, 2000) F(cuEventRecordWithFlags, 11010) F(cuEventQuery, 2000) F(cuEventSynchronize, 2000) \
    F(cuEventElapsedTime, 12080) F(cuGraphInstantiateWithFlags, 11040) F(cuGraphLaunch, 10000) \
    F(cuGraphDestroy, 10000) F(cuGraphExecDestroy, 10000) F(cuGraphGetNodes, 10000) \
    F(cuGraphNodeGetDependencies, 12030) F(cuUserObjectCreate, 11030) F(cuUserObjectRelease, 11030) \
    F(cuGraphRetainUserObject, 11030) F(cuLibraryLoadData, 12000) F(cuLibraryLoadFromFile, 12000) \
    F(cuLibraryUnload, 12000) F(cuLibraryGetKernel, 12000) F(cuLibraryGetKernelCount, 12040) \
    F(cuLibraryGetGlobal, 12000) F(cuLibraryGetManaged, 12000) F(cuLibraryGetUnifiedFunction, 12000) \
    F(cuKernelGetFunction, 12000) F(cuKernelSetAttribute, 12000) F(cuFuncGetAttribute, 2020) \
    F(cuFuncSetAttribute, 9000) F(cuLaunchKernel, 4000) F(cuLaunchKernelEx, 11060) \
    F(cuLaunchCooperativeKernel, 9000) F(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000) \
    F(cuProfilerStart, 4000) F(cuProfilerStop, 4000)

#define FIELD(name, version) \
    __typeof__(&name) name; \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), PFN_##name##_v##version), #name " has changed");
struct driver {
    DRIVER_FUNCTIONS(FIELD)
};
#undef FIELD

/* Null for what the driver lacks. */
extern struct driver driver;

/* A driver call; "not supported" where the driver lacks it. */
#define DRIVER(name, ...) (driver.name ? driver.name(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED)

/* Starts the driver, once; the same answer every time. */
CUresult start(void);
/* The same, and makes the thread's device current, by its primary context. */
CUresult enter(void);
/* What the program gets for a driver's answer; errors become the thread's last one. */
cudaError_t answer(CUresult result);
/* One attribute of a device; 0 when it has none. */
int attribute(CUdevice_attribute which, int device);

/* The first line of functions that need the driver, and of those that need a context. */
#define NEED_DRIVER() \
    do { \
        CUresult start_ = start(); \
        if (start_) \
            return answer(start_); \
    } while (0)
#define NEED_CONTEXT() \
    do { \
        CUresult enter_ = enter(); \
        if (enter_) \
            return answer(enter_); \
    } while (0)

/* The whole body of most functions. */
#define IN_CONTEXT(name, ...) \
    do { \
        NEED_CONTEXT(); \
        return answer(DRIVER(name, __VA_ARGS__)); \
    } while (0)

#endif
