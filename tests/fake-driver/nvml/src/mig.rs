//! MIG: which devices are divided, their instances, and what those have.
//!
//! A layout comes with the machine and can't be changed: what would change it has no body.
#![allow(non_snake_case)]

use crate::args::put;
use crate::devices::{Device, board, device};
use crate::entry::machine;
use crate::types::{Answer, Code, nvmlDevice_t, nvmlDeviceAttributes_t};
use core::ffi::c_uint;
use fake_machine::{Instance, Lack, lacks};

/// Slices of memory, by which instances are numbered; the last of eight begins none.
const INSTANCES_MAX: c_uint = 7;

/// What a device says to whoever may look at one of its instances only.
pub(crate) fn may_ask(device: &Device) -> Answer {
    if device.spec.is_divided && lacks(Lack::ParentAccess) { Err(Code::NO_PERMISSION) } else { Ok(()) }
}

fn instance(handle: nvmlDevice_t) -> Answer<&'static Instance> {
    device(handle)?.spec.instance.as_ref().ok_or(Code::INVALID_ARGUMENT)
}

pub(crate) fn nvmlDeviceGetMigMode(handle: nvmlDevice_t, currentMode: *mut c_uint, pendingMode: *mut c_uint) -> Answer {
    let device = board(handle)?;
    if !device.spec.mig_capable {
        return Err(Code::NOT_SUPPORTED);
    }
    let mode = c_uint::from(device.spec.is_divided);
    put(currentMode, mode)?;
    put(pendingMode, mode)
}

/// Zero also where a device could be divided and is not.
pub(crate) fn nvmlDeviceGetMaxMigDeviceCount(handle: nvmlDevice_t, count: *mut c_uint) -> Answer {
    put(count, if board(handle)?.spec.is_divided { INSTANCES_MAX } else { 0 })
}

/// Between the numbers of two instances there may be some that are nobody's.
pub(crate) fn nvmlDeviceGetMigDeviceHandleByIndex(
    handle: nvmlDevice_t,
    index: c_uint,
    migDevice: *mut nvmlDevice_t,
) -> Answer {
    let device = board(handle)?;
    if migDevice.is_null() || (device.spec.is_divided && index >= INSTANCES_MAX) {
        return Err(Code::INVALID_ARGUMENT);
    }
    let instances = machine().instances(device.index).filter_map(Device::at);
    let mut named = instances.filter(|it| it.spec.instance.as_ref().is_some_and(|it| it.index == index));
    put(migDevice, named.next().ok_or(Code::NOT_FOUND)?.handle())
}

pub(crate) fn nvmlDeviceIsMigDeviceHandle(handle: nvmlDevice_t, isMigDevice: *mut c_uint) -> Answer {
    put(isMigDevice, c_uint::from(device(handle)?.spec.instance.is_some()))
}

pub(crate) fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    migDevice: nvmlDevice_t,
    device: *mut nvmlDevice_t,
) -> Answer {
    let parent = Device::at(instance(migDevice)?.parent).ok_or(Code::UNKNOWN)?;
    put(device, parent.handle())
}

pub(crate) fn nvmlDeviceGetGpuInstanceId(handle: nvmlDevice_t, id: *mut c_uint) -> Answer {
    put(id, instance(handle)?.gpu_instance)
}

pub(crate) fn nvmlDeviceGetComputeInstanceId(handle: nvmlDevice_t, id: *mut c_uint) -> Answer {
    put(id, instance(handle)?.compute_instance)
}

fn attributes(handle: nvmlDevice_t, out: *mut nvmlDeviceAttributes_t) -> Answer {
    let device = device(handle)?;
    let instance = device.spec.instance.as_ref().ok_or(Code::NOT_SUPPORTED)?;
    let (compute_slices, memory_slices) = instance.slices();
    put(
        out,
        nvmlDeviceAttributes_t {
            multiprocessorCount: device.spec.sm_count,
            sharedCopyEngineCount: memory_slices.min(compute_slices),
            sharedDecoderCount: memory_slices / 2,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
            gpuInstanceSliceCount: compute_slices,
            computeInstanceSliceCount: compute_slices,
            memorySizeMB: device.spec.total_bytes >> 20,
        },
    )
}

pub(crate) fn nvmlDeviceGetAttributes(handle: nvmlDevice_t, attributes: *mut nvmlDeviceAttributes_t) -> Answer {
    self::attributes(handle, attributes)
}

pub(crate) fn nvmlDeviceGetAttributes_v2(handle: nvmlDevice_t, attributes: *mut nvmlDeviceAttributes_t) -> Answer {
    self::attributes(handle, attributes)
}
