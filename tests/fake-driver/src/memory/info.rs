//! How much device memory there is and how much is free.

use crate::args::{Answer, optional, put};
use crate::entry::Call;
use crate::state::{self, driver};
use driver_api::CUdevice;

/// Free and total bytes of the current context's device; what all processes use counts.
fn free_and_total() -> Answer<(u64, u64)> {
    let device = state::with_current(|context| Ok(context.device))?;
    crate::vmm::reap();
    let free = device.spec().total_bytes.saturating_sub(driver().machine.used(device.physical));
    Ok((free, device.total_bytes()))
}

/// Either output may be null, as some programs have it.
pub(crate) fn cuMemGetInfo_v2(_: &Call, free: *mut usize, total: *mut usize) -> Answer {
    let (free_bytes, total_bytes) = free_and_total()?;
    optional(free, usize::try_from(free_bytes).unwrap_or(usize::MAX));
    optional(total, usize::try_from(total_bytes).unwrap_or(usize::MAX));
    Ok(())
}

/// The first API's numbers end at 4 GiB.
pub(crate) fn cuMemGetInfo(_: &Call, free: *mut u32, total: *mut u32) -> Answer {
    let (free_bytes, total_bytes) = free_and_total()?;
    optional(free, u32::try_from(free_bytes).unwrap_or(u32::MAX));
    optional(total, u32::try_from(total_bytes).unwrap_or(u32::MAX));
    Ok(())
}

pub(crate) fn cuDeviceTotalMem_v2(_: &Call, out: *mut usize, device: CUdevice) -> Answer {
    put(out, usize::try_from(state::device(device)?.total_bytes()).unwrap_or(usize::MAX))
}

pub(crate) fn cuDeviceTotalMem(_: &Call, out: *mut u32, device: CUdevice) -> Answer {
    put(out, u32::try_from(state::device(device)?.total_bytes()).unwrap_or(u32::MAX))
}
