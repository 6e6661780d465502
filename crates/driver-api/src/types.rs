//! Layouts of the driver's own types, as the public headers of CUDA 13 declare them.
//!
//! Only what somebody here reads or writes has a layout; every other structure is opaque and generated.
//! Enumerations are `c_int`: their values are facts of the list or constants beside their user.
//! The C names are kept, so that a reader can look them up.
#![allow(non_camel_case_types, non_snake_case, missing_docs)]

use core::ffi::{c_int, c_uint, c_void};

/// What every entry point of the driver returns.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CUresult(pub c_int);

impl CUresult {
    pub const SUCCESS: Self = Self(0);
    pub const INVALID_VALUE: Self = Self(1);
    pub const OUT_OF_MEMORY: Self = Self(2);
    pub const NOT_INITIALIZED: Self = Self(3);
    pub const DEINITIALIZED: Self = Self(4);
    pub const NO_DEVICE: Self = Self(100);
    pub const INVALID_DEVICE: Self = Self(101);
    pub const INVALID_IMAGE: Self = Self(200);
    pub const INVALID_CONTEXT: Self = Self(201);
    pub const MAP_FAILED: Self = Self(205);
    pub const ALREADY_MAPPED: Self = Self(208);
    pub const UNSUPPORTED_LIMIT: Self = Self(215);
    pub const PEER_ACCESS_UNSUPPORTED: Self = Self(217);
    pub const FILE_NOT_FOUND: Self = Self(301);
    pub const INVALID_HANDLE: Self = Self(400);
    pub const ILLEGAL_STATE: Self = Self(401);
    pub const NOT_FOUND: Self = Self(500);
    pub const NOT_READY: Self = Self(600);
    pub const ILLEGAL_ADDRESS: Self = Self(700);
    pub const PEER_ACCESS_ALREADY_ENABLED: Self = Self(704);
    pub const PEER_ACCESS_NOT_ENABLED: Self = Self(705);
    pub const PRIMARY_CONTEXT_ACTIVE: Self = Self(708);
    pub const CONTEXT_IS_DESTROYED: Self = Self(709);
    pub const HOST_MEMORY_ALREADY_REGISTERED: Self = Self(712);
    pub const HOST_MEMORY_NOT_REGISTERED: Self = Self(713);
    pub const LAUNCH_FAILED: Self = Self(719);
    pub const NOT_PERMITTED: Self = Self(800);
    pub const NOT_SUPPORTED: Self = Self(801);
    pub const STREAM_CAPTURE_UNSUPPORTED: Self = Self(900);
    pub const STREAM_CAPTURE_INVALIDATED: Self = Self(901);
    pub const STREAM_CAPTURE_UNMATCHED: Self = Self(903);
    pub const STREAM_CAPTURE_UNJOINED: Self = Self(904);
    pub const STREAM_CAPTURE_ISOLATION: Self = Self(905);
    pub const STREAM_CAPTURE_IMPLICIT: Self = Self(906);
    pub const CAPTURED_EVENT: Self = Self(907);
    pub const STREAM_CAPTURE_WRONG_THREAD: Self = Self(908);
    pub const UNKNOWN: Self = Self(999);

    /// True when the call did what it was asked to.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }
}

pub type CUdevice = c_int;
pub type CUdeviceptr = u64;
pub type CUdeviceptr_v1 = c_uint;
pub type CUmemGenericAllocationHandle = u64;
pub type CUtexObject = u64;
pub type CUsurfObject = u64;
pub type CUlogicalEndpointId = c_uint;
pub type CUgraphConditionalHandle = u64;
pub type CUlogIterator = c_uint;

macro_rules! handles { ($($name:ident),* $(,)?) => { $(pub type $name = *mut c_void;)* } }
// One `pub type` a line would say the same; build.rs reads the names from the list below.
handles!(
    CUcontext,
    CUstream,
    CUevent,
    CUfunction,
    CUmodule,
    CUarray,
    CUmipmappedArray,
    CUgraph,
    CUgraphNode,
    CUgraphExec,
    CUkernel,
    CUlibrary,
    CUlinkState,
    CUmemoryPool,
    CUtexref,
    CUsurfref,
    CUgraphicsResource,
    CUeglStreamConnection,
    CUexternalMemory,
    CUexternalSemaphore,
    CUgreenCtx,
    CUuserObject,
    CUdevResourceDesc,
    CUasyncCallbackHandle,
    CUlogsCallbackHandle,
    CUcoredumpCallbackHandle,
    CUcheckpointOperationHandle,
    EGLStreamKHR,
    EGLSyncKHR,
    EGLImageKHR,
    CUstreamCallback,
    CUoccupancyB2DSize,
    CUlogsCallback,
    CUasyncCallback,
    CUcoredumpStatusCallback,
    CUgraphRecaptureCallback,
    VdpGetProcAddress,
    nvmlDevice_t,
);
/// The value of a stream's attribute.
pub type CUstreamAttrValue = CUlaunchAttributeValue;
/// The value of a kernel node's attribute.
pub type CUkernelNodeAttrValue = CUlaunchAttributeValue;
/// A function that a stream or a graph calls on the host.
pub type CUhostFn = Option<unsafe extern "C" fn(*mut c_void)>;

macro_rules! enumerations { ($($name:ident),* $(,)?) => { $(pub type $name = c_int;)* } }
enumerations!(
    CUjit_option,
    CUjitInputType,
    CUfunction_attribute,
    CUdevice_attribute,
    CUdevice_P2PAttribute,
    CUlimit,
    CUfunc_cache,
    CUsharedconfig,
    CUexecAffinityType,
    CUarray_format,
    CUfilter_mode,
    CUaddress_mode,
    CUmem_advise,
    CUmemAllocationHandleType,
    CUmemAllocationType,
    CUmemAllocationGranularity_flags,
    CUmemAccess_flags,
    CUmemPool_attribute,
    CUmemRangeHandleType,
    CUmem_range_attribute,
    CUpointer_attribute,
    CUgraphMem_attribute,
    CUgraphNodeType,
    CUgraphExecUpdateResult,
    CUkernelNodeAttrID,
    CUstreamAttrID,
    CUstreamCaptureMode,
    CUstreamCaptureStatus,
    CUmoduleLoadingMode,
    CUfunctionLoadingState,
    CUlibraryOption,
    CUdriverProcAddressQueryResult,
    CUmulticastGranularity_flags,
    CUdevResourceType,
    CUoutput_mode,
    CUcoredumpSettings,
    CUflushGPUDirectRDMAWritesTarget,
    CUflushGPUDirectRDMAWritesScope,
    CUprocessState,
    CUlogicalEndpointIpcHandleType,
    CUtensorMapDataType,
    CUtensorMapInterleave,
    CUtensorMapSwizzle,
    CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill,
    CUtensorMapIm2ColWideMode,
    CUtensorMapAllocClass,
    CUatomicOperation,
    CUGLDeviceList,
);

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty),* $(,)? })*) => {
        $($(#[$doc])* #[repr(C)] #[derive(Clone, Copy, Debug)] pub struct $name { $(pub $field: $ty),* })*
    };
}
layouts! {
    CUuuid { bytes: [u8; 16] }
    CUmemLocation { kind: c_int, id: c_int }
    CUipcMemHandle { reserved: [u8; 64] }
    CUipcEventHandle { reserved: [u8; 64] }
    CUDA_ARRAY_DESCRIPTOR_v1 { Width: c_uint, Height: c_uint, Format: c_int, NumChannels: c_uint }
    CUDA_ARRAY_DESCRIPTOR { Width: usize, Height: usize, Format: c_int, NumChannels: c_uint }
    CUDA_ARRAY3D_DESCRIPTOR_v1 { Width: c_uint, Height: c_uint, Depth: c_uint, Format: c_int, NumChannels: c_uint, Flags: c_uint }
    CUDA_ARRAY3D_DESCRIPTOR { Width: usize, Height: usize, Depth: usize, Format: c_int, NumChannels: c_uint, Flags: c_uint }
    CUDA_MEMCPY2D_v1 {
        srcXInBytes: c_uint, srcY: c_uint, srcMemoryType: c_int, srcHost: *const c_void, srcDevice: CUdeviceptr_v1,
        srcArray: CUarray, srcPitch: c_uint, dstXInBytes: c_uint, dstY: c_uint, dstMemoryType: c_int,
        dstHost: *mut c_void, dstDevice: CUdeviceptr_v1, dstArray: CUarray, dstPitch: c_uint, WidthInBytes: c_uint, Height: c_uint,
    }
    CUDA_MEMCPY2D {
        srcXInBytes: usize, srcY: usize, srcMemoryType: c_int, srcHost: *const c_void, srcDevice: CUdeviceptr,
        srcArray: CUarray, srcPitch: usize, dstXInBytes: usize, dstY: usize, dstMemoryType: c_int,
        dstHost: *mut c_void, dstDevice: CUdeviceptr, dstArray: CUarray, dstPitch: usize, WidthInBytes: usize, Height: usize,
    }
    CUDA_MEMCPY3D {
        srcXInBytes: usize, srcY: usize, srcZ: usize, srcLOD: usize, srcMemoryType: c_int, srcHost: *const c_void,
        srcDevice: CUdeviceptr, srcArray: CUarray, reserved0: *mut c_void, srcPitch: usize, srcHeight: usize,
        dstXInBytes: usize, dstY: usize, dstZ: usize, dstLOD: usize, dstMemoryType: c_int, dstHost: *mut c_void,
        dstDevice: CUdeviceptr, dstArray: CUarray, reserved1: *mut c_void, dstPitch: usize, dstHeight: usize,
        WidthInBytes: usize, Height: usize, Depth: usize,
    }
    CUmemAllocationFlags { compressionType: u8, gpuDirectRDMACapable: u8, usage: u16, reserved: [u8; 4] }
    CUmemAllocationProp { kind: c_int, requestedHandleTypes: c_int, location: CUmemLocation, win32HandleMetaData: *mut c_void, allocFlags: CUmemAllocationFlags }
    CUmemAccessDesc { location: CUmemLocation, flags: c_int }
    CUmemPoolProps {
        allocType: c_int, handleTypes: c_int, location: CUmemLocation, win32SecurityAttributes: *mut c_void,
        maxSize: usize, usage: u16, reserved: [u8; 54],
    }
    CUmemPoolPtrExportData { reserved: [u8; 64] }
    CUlaunchConfig {
        gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint,
        sharedMemBytes: c_uint, hStream: CUstream, attrs: *mut c_void, numAttrs: c_uint,
    }
    nvmlMemory_t { total: u64, free: u64, used: u64 }
    nvmlMemory_v2_t { version: c_uint, total: u64, reserved: u64, free: u64, used: u64 }
    nvmlProcessInfo_v1_t { pid: c_uint, usedGpuMemory: u64 }
    nvmlProcessInfo_v2_t { pid: c_uint, usedGpuMemory: u64, gpuInstanceId: c_uint, computeInstanceId: c_uint }
    nvmlProcessInfo_t { pid: c_uint, usedGpuMemory: u64, gpuInstanceId: c_uint, computeInstanceId: c_uint }
    /// By value only in `cuEGLStreamProducerPresentFrame`, which nobody here models: the size is what matters.
    CUeglFrame { words: [u64; 12] }
    CUgraphEdgeData { from_port: u8, to_port: u8, r#type: u8, reserved: [u8; 5] }
    CUDA_KERNEL_NODE_PARAMS_v1 {
        func: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint,
        blockDimZ: c_uint, sharedMemBytes: c_uint, kernelParams: *mut *mut c_void, extra: *mut *mut c_void,
    }
    CUDA_KERNEL_NODE_PARAMS {
        func: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint,
        blockDimZ: c_uint, sharedMemBytes: c_uint, kernelParams: *mut *mut c_void, extra: *mut *mut c_void,
        kern: CUkernel, ctx: CUcontext,
    }
    CUDA_MEMCPY_NODE_PARAMS { flags: c_int, reserved: c_int, copyCtx: CUcontext, copyParams: CUDA_MEMCPY3D }
    CUDA_MEMSET_NODE_PARAMS { dst: CUdeviceptr, pitch: usize, value: c_uint, elementSize: c_uint, width: usize, height: usize }
    CUDA_MEMSET_NODE_PARAMS_v2 {
        dst: CUdeviceptr, pitch: usize, value: c_uint, elementSize: c_uint, width: usize, height: usize, ctx: CUcontext,
    }
    CUDA_HOST_NODE_PARAMS { r#fn: CUhostFn, userData: *mut c_void }
    CUDA_HOST_NODE_PARAMS_v2 { r#fn: CUhostFn, userData: *mut c_void, syncMode: c_uint, ctx: CUcontext }
    CUDA_CHILD_GRAPH_NODE_PARAMS { graph: CUgraph, ownership: c_int }
    CUDA_EVENT_RECORD_NODE_PARAMS { event: CUevent, ctx: CUcontext }
    CUDA_EVENT_WAIT_NODE_PARAMS { event: CUevent }
    CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: CUmemPoolProps, accessDescs: *const CUmemAccessDesc, accessDescCount: usize, bytesize: usize, dptr: CUdeviceptr,
    }
    CUDA_MEM_FREE_NODE_PARAMS { dptr: CUdeviceptr }
    CUDA_BATCH_MEM_OP_NODE_PARAMS { ctx: CUcontext, count: c_uint, paramArray: *mut CUstreamBatchMemOpParams, flags: c_uint }
    /// A union: which member of the header it holds is said by `type`.
    CUgraphNodeParams { r#type: c_int, reserved0: [c_int; 3], words: [u64; 29], reserved2: u64 }
    CUDA_GRAPH_INSTANTIATE_PARAMS { flags: u64, hUploadStream: CUstream, hErrNode_out: CUgraphNode, result_out: c_int }
    CUgraphExecUpdateResultInfo { result: c_int, errorNode: CUgraphNode, errorFromNode: CUgraphNode }
    /// A union: the operation, then address, value, flags and alias in most members.
    CUstreamBatchMemOpParams { operation: c_int, address: CUdeviceptr, value: u64, flags: c_uint, alias: CUdeviceptr, pad: u64 }
    /// A union of 64 bytes: the attribute's number says which member.
    CUlaunchAttributeValue { words: [u64; 8] }
    CUlaunchAttribute { id: c_int, pad: [u8; 4], value: CUlaunchAttributeValue }
    CUDA_LAUNCH_PARAMS {
        function: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint,
        blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut *mut c_void,
    }
    /// `res` is a union: handle or address, format and channels, then sizes.
    CUDA_RESOURCE_DESC { resType: c_int, res: [u64; 16], flags: c_uint }
    CUDA_TEXTURE_DESC {
        addressMode: [c_int; 3], filterMode: c_int, flags: c_uint, maxAnisotropy: c_uint, mipmapFilterMode: c_int,
        mipmapLevelBias: f32, minMipmapLevelClamp: f32, maxMipmapLevelClamp: f32, borderColor: [f32; 4], reserved: [c_int; 12],
    }
    CUDA_RESOURCE_VIEW_DESC {
        format: c_int, width: usize, height: usize, depth: usize, firstMipmapLevel: c_uint, lastMipmapLevel: c_uint,
        firstLayer: c_uint, lastLayer: c_uint, reserved: [c_uint; 16],
    }
    CUdevSmResource { smCount: c_uint, minSmPartitionSize: c_uint, smCoscheduledAlignment: c_uint, flags: c_uint, localityDomainId: c_uint }
    /// The union is `sm` here; its other members are never filled in.
    CUdevResource { r#type: c_int, _internal_padding: [u8; 92], sm: CUdevSmResource, _oversize: [u8; 20], nextResource: *mut c_void }
    CUctxCreateParams { execAffinityParams: *mut c_void, numExecAffinityParams: c_int, cigParams: *mut c_void }
    CUdevprop {
        maxThreadsPerBlock: c_int, maxThreadsDim: [c_int; 3], maxGridSize: [c_int; 3], sharedMemPerBlock: c_int,
        totalConstantMemory: c_int, SIMDWidth: c_int, memPitch: c_int, regsPerBlock: c_int, clockRate: c_int, textureAlign: c_int,
    }
    CUDA_MEMCPY3D_v1 {
        srcXInBytes: c_uint, srcY: c_uint, srcZ: c_uint, srcLOD: c_uint, srcMemoryType: c_int, srcHost: *const c_void,
        srcDevice: CUdeviceptr_v1, srcArray: CUarray, reserved0: *mut c_void, srcPitch: c_uint, srcHeight: c_uint,
        dstXInBytes: c_uint, dstY: c_uint, dstZ: c_uint, dstLOD: c_uint, dstMemoryType: c_int, dstHost: *mut c_void,
        dstDevice: CUdeviceptr_v1, dstArray: CUarray, reserved1: *mut c_void, dstPitch: c_uint, dstHeight: c_uint,
        WidthInBytes: c_uint, Height: c_uint, Depth: c_uint,
    }
    CUDA_MEMCPY3D_PEER {
        srcXInBytes: usize, srcY: usize, srcZ: usize, srcLOD: usize, srcMemoryType: c_int, srcHost: *const c_void,
        srcDevice: CUdeviceptr, srcArray: CUarray, srcContext: CUcontext, srcPitch: usize, srcHeight: usize,
        dstXInBytes: usize, dstY: usize, dstZ: usize, dstLOD: usize, dstMemoryType: c_int, dstHost: *mut c_void,
        dstDevice: CUdeviceptr, dstArray: CUarray, dstContext: CUcontext, dstPitch: usize, dstHeight: usize,
        WidthInBytes: usize, Height: usize, Depth: usize,
    }
    /// A union: of a pointer its rows, layers and a hint, of an array its handle and an offset.
    CUmemcpy3DOperand { r#type: c_int, words: [u64; 4] }
    /// The extent is width, height and depth: bytes a row, or elements where an end is an array.
    CUDA_MEMCPY3D_BATCH_OP {
        src: CUmemcpy3DOperand, dst: CUmemcpy3DOperand, extent: [usize; 3], srcAccessOrder: c_int, flags: c_uint,
    }
    /// A union: a pointer and a hint, or a logical endpoint and an offset.
    CUfabricCpyOperand { r#type: c_int, words: [u64; 2] }
    CUDA_FABRIC_COPY_BATCH_OP { src: CUfabricCpyOperand, dst: CUfabricCpyOperand, size: usize, flags: c_uint }
    CUmemDecompressParams {
        srcNumBytes: usize, dstNumBytes: usize, dstActBytes: *mut c_uint, src: *const c_void, dst: *mut c_void, algo: c_int,
        padding: [u8; 20],
    }
    CUDA_ARRAY_MEMORY_REQUIREMENTS { size: usize, alignment: usize, reserved: [c_uint; 4] }
    CUmemcpyAttributes { srcAccessOrder: c_int, srcLocHint: CUmemLocation, dstLocHint: CUmemLocation, flags: c_uint }
    /// The handle is a union; its first word is a descriptor for the kinds that are one.
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC { r#type: c_int, handle: [u64; 2], size: u64, flags: c_uint, reserved: [c_uint; 16] }
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: u64, size: u64, flags: c_uint, reserved: [c_uint; 16] }
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
        offset: u64, arrayDesc: CUDA_ARRAY3D_DESCRIPTOR, numLevels: c_uint, reserved: [c_uint; 16],
    }
    CUcheckpointLockArgs { timeoutMs: c_uint, reserved0: c_uint, reserved1: [u64; 7] }
    CUcheckpointCheckpointArgs { customStorageInfo_out: *mut c_void, reserved: [u8; 56] }
    CUcheckpointGpuPair { oldUuid: CUuuid, newUuid: CUuuid }
    CUcheckpointRestoreArgs {
        gpuPairs: *const CUcheckpointGpuPair, gpuPairsCount: c_uint, padding0: c_uint,
        customStorageInfo_out: *mut c_void, reserved: [u8; 40],
    }
    CUcheckpointUnlockArgs { reserved: [u64; 8] }
    /// `member` is a union: the owner of a unicast endpoint, or how many devices a multicast one has.
    CUlogicalEndpointProp { r#type: c_int, member: c_int, size: u64, ipcHandleTypes: c_uint, flags: c_uint }
    CUmulticastObjectProp { numDevices: c_uint, size: usize, handleTypes: u64, flags: u64 }
    CUDA_ARRAY_SPARSE_PROPERTIES {
        tileWidth: c_uint, tileHeight: c_uint, tileDepth: c_uint, miptailFirstLevel: c_uint, miptailSize: u64,
        flags: c_uint, reserved: [c_uint; 4],
    }
    /// `subresource` is a union: level, layer, offsets and extents as eight 32-bit numbers, or for a mip tail its
    /// layer, offset and size.
    CUarrayMapInfo {
        resourceType: c_int, resource: *mut c_void, subresourceType: c_int, subresource: [u64; 4],
        memOperationType: c_int, memHandleType: c_int, memHandle: CUmemGenericAllocationHandle, offset: u64,
        deviceBitMask: c_uint, flags: c_uint, reserved: [c_uint; 2],
    }
    CU_DEV_SM_RESOURCE_GROUP_PARAMS {
        smCount: c_uint, coscheduledSmCount: c_uint, preferredCoscheduledSmCount: c_uint, flags: c_uint,
        localityDomainId: c_uint, reserved: [c_uint; 11],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes as a C compiler tells them of the headers of CUDA 13.5.
    #[test]
    fn layouts_have_the_sizes_of_the_headers() {
        let sizes = [
            (size_of::<CUgraphEdgeData>(), 8),
            (size_of::<CUDA_KERNEL_NODE_PARAMS_v1>(), 56),
            (size_of::<CUDA_KERNEL_NODE_PARAMS>(), 72),
            (size_of::<CUDA_MEMCPY_NODE_PARAMS>(), 216),
            (size_of::<CUDA_MEMSET_NODE_PARAMS>(), 40),
            (size_of::<CUDA_MEMSET_NODE_PARAMS_v2>(), 48),
            (size_of::<CUDA_HOST_NODE_PARAMS>(), 16),
            (size_of::<CUDA_HOST_NODE_PARAMS_v2>(), 32),
            (size_of::<CUDA_CHILD_GRAPH_NODE_PARAMS>(), 16),
            (size_of::<CUDA_EVENT_RECORD_NODE_PARAMS>(), 16),
            (size_of::<CUDA_EVENT_WAIT_NODE_PARAMS>(), 8),
            (size_of::<CUDA_MEM_ALLOC_NODE_PARAMS>(), 120),
            (size_of::<CUDA_MEM_FREE_NODE_PARAMS>(), 8),
            (size_of::<CUDA_BATCH_MEM_OP_NODE_PARAMS>(), 32),
            (size_of::<CUgraphNodeParams>(), 256),
            (size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>(), 32),
            (size_of::<CUgraphExecUpdateResultInfo>(), 24),
            (size_of::<CUstreamBatchMemOpParams>(), 48),
            (size_of::<CUlaunchAttributeValue>(), 64),
            (size_of::<CUlaunchAttribute>(), 72),
            (size_of::<CUDA_LAUNCH_PARAMS>(), 56),
            (size_of::<CUDA_RESOURCE_DESC>(), 144),
            (size_of::<CUDA_TEXTURE_DESC>(), 104),
            (size_of::<CUDA_RESOURCE_VIEW_DESC>(), 112),
            (size_of::<CUdevSmResource>(), 20),
            (size_of::<CUdevResource>(), 144),
            (size_of::<CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC>(), 120),
            (size_of::<CUcheckpointLockArgs>(), 64),
            (size_of::<CUcheckpointCheckpointArgs>(), 64),
            (size_of::<CUcheckpointRestoreArgs>(), 64),
            (size_of::<CUcheckpointUnlockArgs>(), 64),
            (size_of::<CUlogicalEndpointProp>(), 24),
            (size_of::<CUmulticastObjectProp>(), 32),
            (size_of::<CUDA_ARRAY_SPARSE_PROPERTIES>(), 48),
            (size_of::<CUarrayMapInfo>(), 96),
            (size_of::<CU_DEV_SM_RESOURCE_GROUP_PARAMS>(), 64),
            (size_of::<CUDA_MEMCPY3D_BATCH_OP>(), 112),
            (size_of::<CUDA_FABRIC_COPY_BATCH_OP>(), 64),
            (size_of::<CUmemDecompressParams>(), 64),
            (size_of::<CUlaunchConfig>(), 56),
            (size_of::<CUDA_MEMCPY2D>(), 128),
            (size_of::<CUDA_MEMCPY3D>(), 200),
            (size_of::<CUDA_MEMCPY3D_PEER>(), 200),
        ];
        for (at, (ours, theirs)) in sizes.into_iter().enumerate() {
            assert_eq!(ours, theirs, "row {at}");
        }
        assert_eq!(core::mem::offset_of!(CUdevResource, sm), 96);
        assert_eq!(core::mem::offset_of!(CUgraphNodeParams, words), 16);
        assert_eq!(core::mem::offset_of!(CUDA_RESOURCE_DESC, flags), 136);
        assert_eq!(core::mem::offset_of!(CUDA_MEMCPY3D_BATCH_OP, extent), 80);
        assert_eq!(core::mem::offset_of!(CUDA_FABRIC_COPY_BATCH_OP, size), 48);
    }
}
