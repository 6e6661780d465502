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
#include <cuda_runtime_api.h>

/* In a header of its own, which the runtime's wheel lacks. */
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

#define EXPORT __attribute__((visibility("default")))

/* The driver's functions in use, by their base names, as cuGetProcAddress wants them. */
#define DRIVER_FUNCTIONS(F) \
    F(cuInit) F(cuDriverGetVersion) \
    F(cuDeviceGetCount) F(cuDeviceGetName) F(cuDeviceTotalMem) F(cuDeviceGetUuid) F(cuDeviceGetLuid) \
    F(cuDeviceGetAttribute) F(cuDeviceGetPCIBusId) F(cuDeviceCanAccessPeer) F(cuDeviceGetDefaultMemPool) \
    F(cuDeviceGetGraphMemAttribute) F(cuDeviceSetGraphMemAttribute) \
    F(cuDevicePrimaryCtxRetain) F(cuDevicePrimaryCtxReset) \
    F(cuCtxGetCurrent) F(cuCtxSetCurrent) F(cuCtxGetDevice) F(cuCtxSynchronize) F(cuCtxEnablePeerAccess) \
    F(cuCtxGetStreamPriorityRange) \
    F(cuMemAlloc) F(cuMemAllocPitch) F(cuMemAllocManaged) F(cuMemAllocAsync) F(cuMemFree) F(cuMemFreeAsync) \
    F(cuMemHostAlloc) F(cuMemFreeHost) F(cuMemHostRegister) F(cuMemHostUnregister) F(cuMemGetInfo) \
    F(cuMemPoolGetAttribute) F(cuMemPoolSetAttribute) F(cuMemPoolTrimTo) F(cuMemPoolSetAccess) \
    F(cuArrayCreate) F(cuArrayDestroy) \
    F(cuMemcpy) F(cuMemcpyHtoD) F(cuMemcpyDtoH) F(cuMemcpyAsync) F(cuMemcpyHtoDAsync) F(cuMemcpyDtoHAsync) \
    F(cuMemcpyDtoDAsync) F(cuMemcpyPeerAsync) F(cuMemcpy2DAsync) F(cuMemsetD8) F(cuMemsetD8Async) \
    F(cuPointerGetAttributes) \
    F(cuIpcGetMemHandle) F(cuIpcOpenMemHandle) F(cuIpcCloseMemHandle) F(cuIpcGetEventHandle) F(cuIpcOpenEventHandle) \
    F(cuStreamCreate) F(cuStreamCreateWithPriority) F(cuStreamDestroy) F(cuStreamQuery) F(cuStreamSynchronize) \
    F(cuStreamWaitEvent) F(cuStreamGetPriority) F(cuStreamAddCallback) F(cuLaunchHostFunc) \
    F(cuStreamBeginCapture) F(cuStreamBeginCaptureToGraph) F(cuStreamEndCapture) F(cuStreamIsCapturing) \
    F(cuStreamGetCaptureInfo) F(cuStreamUpdateCaptureDependencies) F(cuThreadExchangeStreamCaptureMode) \
    F(cuEventCreate) F(cuEventDestroy) F(cuEventRecord) F(cuEventRecordWithFlags) F(cuEventQuery) \
    F(cuEventSynchronize) F(cuEventElapsedTime) \
    F(cuGraphInstantiateWithFlags) F(cuGraphLaunch) F(cuGraphDestroy) F(cuGraphExecDestroy) F(cuGraphGetNodes) \
    F(cuGraphNodeGetDependencies) F(cuUserObjectCreate) F(cuUserObjectRelease) F(cuGraphRetainUserObject) \
    F(cuLibraryLoadData) F(cuLibraryLoadFromFile) F(cuLibraryUnload) F(cuLibraryGetKernel) F(cuLibraryGetKernelCount) \
    F(cuLibraryGetGlobal) F(cuLibraryGetManaged) F(cuLibraryGetUnifiedFunction) \
    F(cuKernelGetFunction) F(cuKernelSetAttribute) \
    F(cuFuncGetAttribute) F(cuFuncSetAttribute) F(cuLaunchKernel) F(cuLaunchKernelEx) F(cuLaunchCooperativeKernel) \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
    F(cuProfilerStart) F(cuProfilerStop)

#define FIELD(name) __typeof__(&name) name;
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
