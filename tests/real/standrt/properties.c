/* cudaDeviceProp, from the driver's attributes, and the texts of errors. */
#include "standrt.h"
#include <stddef.h>
#include <string.h>

/* Fields of cudaDeviceProp that are one attribute each. */
#define PROPERTIES(F) \
    F(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK) F(regsPerBlock, MAX_REGISTERS_PER_BLOCK) F(warpSize, WARP_SIZE) \
    F(memPitch, MAX_PITCH) F(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK) F(maxThreadsDim[0], MAX_BLOCK_DIM_X) \
    F(maxThreadsDim[1], MAX_BLOCK_DIM_Y) F(maxThreadsDim[2], MAX_BLOCK_DIM_Z) F(maxGridSize[0], MAX_GRID_DIM_X) \
    F(maxGridSize[1], MAX_GRID_DIM_Y) F(maxGridSize[2], MAX_GRID_DIM_Z) F(totalConstMem, TOTAL_CONSTANT_MEMORY) \
    F(major, COMPUTE_CAPABILITY_MAJOR) F(minor, COMPUTE_CAPABILITY_MINOR) F(textureAlignment, TEXTURE_ALIGNMENT) \
    F(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT) F(multiProcessorCount, MULTIPROCESSOR_COUNT) \
    F(integrated, INTEGRATED) F(canMapHostMemory, CAN_MAP_HOST_MEMORY) F(surfaceAlignment, SURFACE_ALIGNMENT) \
    F(concurrentKernels, CONCURRENT_KERNELS) F(ECCEnabled, ECC_ENABLED) F(pciBusID, PCI_BUS_ID) \
    F(pciDeviceID, PCI_DEVICE_ID) F(pciDomainID, PCI_DOMAIN_ID) F(tccDriver, TCC_DRIVER) \
    F(asyncEngineCount, ASYNC_ENGINE_COUNT) F(unifiedAddressing, UNIFIED_ADDRESSING) \
    F(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH) F(l2CacheSize, L2_CACHE_SIZE) \
    F(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE) \
    F(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR) \
    F(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED) F(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED) \
    F(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED) \
    F(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) \
    F(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR) F(managedMemory, MANAGED_MEMORY) \
    F(isMultiGpuBoard, MULTI_GPU_BOARD) F(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID) \
    F(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED) F(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS) \
    F(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS) \
    F(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED) \
    F(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) \
    F(cooperativeLaunch, COOPERATIVE_LAUNCH) F(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) \
    F(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) \
    F(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST) \
    F(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR) \
    F(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE) \
    F(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK) \
    F(hostRegisterSupported, HOST_REGISTER_SUPPORTED) F(sparseCudaArraySupported, SPARSE_CUDA_ARRAY_SUPPORTED) \
    F(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED) \
    F(timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED) \
    F(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED) F(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED) \
    F(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES) \
    F(deferredMappingCudaArraySupported, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED) \
    F(ipcEventSupported, IPC_EVENT_SUPPORTED) F(clusterLaunch, CLUSTER_LAUNCH) \
    F(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS) F(deviceNumaConfig, NUMA_CONFIG) F(deviceNumaId, NUMA_ID) \
    F(mpsEnabled, MPS_ENABLED) F(hostNumaId, HOST_NUMA_ID)

EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    NEED_DRIVER();
    memset(properties, 0, sizeof *properties);
    CUresult result = DRIVER(cuDeviceGetName, properties->name, sizeof properties->name, device);
    if (!result)
        result = DRIVER(cuDeviceTotalMem, &properties->totalGlobalMem, device);
    if (!result)
        result = DRIVER(cuDeviceGetUuid, (CUuuid *)&properties->uuid, device);
    if (result)
        return answer(result);
    (void)DRIVER(cuDeviceGetLuid, properties->luid, &properties->luidDeviceNodeMask, device);
#define FILL(field, name) properties->field = attribute(CU_DEVICE_ATTRIBUTE_##name, device);
    PROPERTIES(FILL)
#undef FILL
    return cudaSuccess;
}

/* Errors that programs get to see, with NVIDIA's texts, which PyTorch's messages repeat. */
#define ERRORS(F) \
    F(cudaSuccess, "no error") F(cudaErrorInvalidValue, "invalid argument") \
    F(cudaErrorMemoryAllocation, "out of memory") F(cudaErrorInitializationError, "initialization error") \
    F(cudaErrorInvalidSymbol, "invalid device symbol") F(cudaErrorInvalidConfiguration, "invalid configuration argument") \
    F(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version") \
    F(cudaErrorInvalidDeviceFunction, "invalid device function") \
    F(cudaErrorNoDevice, "no CUDA-capable device is detected") F(cudaErrorInvalidDevice, "invalid device ordinal") \
    F(cudaErrorInvalidKernelImage, "device kernel image is invalid") F(cudaErrorDeviceUninitialized, "invalid device context") \
    F(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device") \
    F(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled") \
    F(cudaErrorInvalidResourceHandle, "invalid resource handle") F(cudaErrorSymbolNotFound, "named symbol not found") \
    F(cudaErrorNotReady, "device not ready") F(cudaErrorIllegalAddress, "an illegal memory access was encountered") \
    F(cudaErrorLaunchFailure, "unspecified launch failure") F(cudaErrorNotPermitted, "operation not permitted") \
    F(cudaErrorNotSupported, "operation not supported") \
    F(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing") \
    F(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture") \
    F(cudaErrorUnknown, "unknown error")

EXPORT const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define NAME(name, text) case name: return #name;
        ERRORS(NAME)
#undef NAME
    default: return "unrecognized error code";
    }
}

EXPORT const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
#define TEXT(name, text) case name: return text;
        ERRORS(TEXT)
#undef TEXT
    default: return "unrecognized error code";
    }
}
