//! How much device memory there is, and is used.
#![allow(non_snake_case)]

use crate::args::{get_versioned, put};
use crate::devices::{Device, device};
use crate::entry::machine;
use crate::mig::may_ask;
use crate::types::{Answer, nvmlBAR1Memory_t, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t};
use core::ffi::c_uint;

/// Memory in use, with what the driver keeps for itself; of a divided device, that of its instances.
fn used(device: &Device) -> Answer<u64> {
    may_ask(device)?;
    let of_instances: u64 = machine().instances(device.index).map(|unit| machine().used(unit)).sum();
    Ok(machine().used(device.index) + of_instances)
}

/// The first version counts what the driver keeps for itself as used.
pub(crate) fn nvmlDeviceGetMemoryInfo(handle: nvmlDevice_t, memory: *mut nvmlMemory_t) -> Answer {
    let device = device(handle)?;
    let (total, used) = (device.spec.total_bytes, used(&device)?);
    put(memory, nvmlMemory_t { total, free: total.saturating_sub(used), used })
}

pub(crate) fn nvmlDeviceGetMemoryInfo_v2(handle: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) -> Answer {
    let device = device(handle)?;
    let version = get_versioned(memory, 2)?.version;
    let (total, reserved, used) = (device.spec.total_bytes, device.spec.reserved_bytes, used(&device)?);
    put(
        memory,
        nvmlMemory_v2_t {
            version,
            total,
            reserved,
            free: total.saturating_sub(used),
            used: used.saturating_sub(reserved),
        },
    )
}

/// Nothing maps the window here.
pub(crate) fn nvmlDeviceGetBAR1MemoryInfo(handle: nvmlDevice_t, bar1Memory: *mut nvmlBAR1Memory_t) -> Answer {
    let bar1Total = device(handle)?.spec.details.bar1_bytes;
    put(bar1Memory, nvmlBAR1Memory_t { bar1Total, bar1Free: bar1Total, bar1Used: 0 })
}

pub(crate) fn nvmlDeviceGetMemoryBusWidth(handle: nvmlDevice_t, busWidth: *mut c_uint) -> Answer {
    put(busWidth, device(handle)?.spec.details.bus_width_bits)
}
