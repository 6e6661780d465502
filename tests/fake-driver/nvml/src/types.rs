//! NVML's types, as its header lays them out, as far as bodies need them.
#![allow(non_camel_case_types, non_snake_case)]

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// What a body returns: nothing, or the code of an error.
pub(crate) type Answer<T = ()> = Result<T, Code>;

/// A `nvmlReturn_t` that is an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code(pub(crate) c_int);

impl Code {
    pub(crate) const UNINITIALIZED: Self = Self(1);
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    pub(crate) const NOT_SUPPORTED: Self = Self(3);
    pub(crate) const NO_PERMISSION: Self = Self(4);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const TIMEOUT: Self = Self(10);
    pub(crate) const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    pub(crate) const UNKNOWN: Self = Self(999);
}

/// What stands for a number that there is none of.
pub(crate) const NOT_AVAILABLE: c_uint = c_uint::MAX;

/// The word with which the versions of a structure are told apart: its size and its number.
pub(crate) const fn version_of<T>(number: u32) -> c_uint {
    size_of::<T>() as u32 | number << 24
}

/// A device's handle.
pub(crate) type nvmlDevice_t = *mut c_void;
/// An event set's handle.
pub(crate) type nvmlEventSet_t = *mut c_void;

/// Structures with their sizes in bytes.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal { $($field:ident: $ty:ty,)* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $ty,)* }
        const _: () = assert!(size_of::<$name>() == $bytes);
    )* };
}

structures! {
    nvmlMemory_t: 24 { total: c_ulonglong, free: c_ulonglong, used: c_ulonglong, }
    nvmlMemory_v2_t: 40 { version: c_uint, total: c_ulonglong, reserved: c_ulonglong, free: c_ulonglong, used: c_ulonglong, }
    nvmlBAR1Memory_t: 24 { bar1Total: c_ulonglong, bar1Free: c_ulonglong, bar1Used: c_ulonglong, }
    nvmlProcessInfo_v1_t: 16 { pid: c_uint, usedGpuMemory: c_ulonglong, }
    /// Also the third version's.
    nvmlProcessInfo_v2_t: 24 { pid: c_uint, usedGpuMemory: c_ulonglong, gpuInstanceId: c_uint, computeInstanceId: c_uint, }
    nvmlProcessDetail_v1_t: 32 { pid: c_uint, usedGpuMemory: c_ulonglong, gpuInstanceId: c_uint, computeInstanceId: c_uint,
        usedGpuCcProtectedMemory: c_ulonglong, }
    nvmlProcessDetailList_v1_t: 24 { version: c_uint, mode: c_uint, numProcArrayEntries: c_uint,
        procArray: *mut nvmlProcessDetail_v1_t, }
    nvmlProcessUtilizationSample_t: 32 { pid: c_uint, timeStamp: c_ulonglong, smUtil: c_uint, memUtil: c_uint,
        encUtil: c_uint, decUtil: c_uint, }
    nvmlProcessUtilizationInfo_v1_t: 40 { timeStamp: c_ulonglong, pid: c_uint, smUtil: c_uint, memUtil: c_uint,
        encUtil: c_uint, decUtil: c_uint, jpgUtil: c_uint, ofaUtil: c_uint, }
    nvmlProcessesUtilizationInfo_v1_t: 24 { version: c_uint, processSamplesCount: c_uint, lastSeenTimeStamp: c_ulonglong,
        procUtilArray: *mut nvmlProcessUtilizationInfo_v1_t, }
    nvmlUtilization_t: 8 { gpu: c_uint, memory: c_uint, }
    nvmlSample_t: 16 { timeStamp: c_ulonglong, sampleValue: nvmlValue_t, }
    nvmlFieldValue_t: 40 { fieldId: c_uint, scopeId: c_uint, timestamp: i64, latencyUsec: i64, valueType: c_uint,
        nvmlReturn: c_int, value: nvmlValue_t, }
    /// As it was before the fields for the subsystem and the long bus id.
    nvmlPciInfo_v1_t: 32 { busId: [c_char; 16], domain: c_uint, bus: c_uint, device: c_uint, pciDeviceId: c_uint, }
    nvmlPciInfo_v2_t: 52 { busId: [c_char; 16], domain: c_uint, bus: c_uint, device: c_uint, pciDeviceId: c_uint,
        pciSubSystemId: c_uint, reserved: [c_uint; 4], }
    nvmlPciInfo_t: 68 { busIdLegacy: [c_char; 16], domain: c_uint, bus: c_uint, device: c_uint, pciDeviceId: c_uint,
        pciSubSystemId: c_uint, busId: [c_char; 32], }
    nvmlPciInfoExt_v1_t: 64 { version: c_uint, domain: c_uint, bus: c_uint, device: c_uint, pciDeviceId: c_uint,
        pciSubSystemId: c_uint, baseClass: c_uint, subClass: c_uint, busId: [c_char; 32], }
    nvmlUUID_v1_t: 52 { version: c_uint, kind: c_uint, value: [c_char; 44], }
    nvmlTemperature_v1_t: 12 { version: c_uint, sensorType: c_uint, temperature: c_int, }
    nvmlEccErrorCounts_t: 32 { l1Cache: c_ulonglong, l2Cache: c_ulonglong, deviceMemory: c_ulonglong, registerFile: c_ulonglong, }
    nvmlEventData_t: 32 { device: nvmlDevice_t, eventType: c_ulonglong, eventData: c_ulonglong, gpuInstanceId: c_uint,
        computeInstanceId: c_uint, }
    nvmlDeviceAttributes_t: 40 { multiprocessorCount: c_uint, sharedCopyEngineCount: c_uint, sharedDecoderCount: c_uint,
        sharedEncoderCount: c_uint, sharedJpegCount: c_uint, sharedOfaCount: c_uint, gpuInstanceSliceCount: c_uint,
        computeInstanceSliceCount: c_uint, memorySizeMB: c_ulonglong, }
    nvmlSystemDriverBranchInfo_v1_t: 84 { version: c_uint, branch: [c_char; 80], }
}

/// A value of a type that is told beside it; narrower ones take its first bytes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct nvmlValue_t(pub(crate) u64);

/// `nvmlValueType_t`: 32 bits without a sign.
pub(crate) const UNSIGNED_INT: c_uint = 1;
/// `nvmlValueType_t`: 64 bits without a sign.
pub(crate) const UNSIGNED_LONG_LONG: c_uint = 3;
