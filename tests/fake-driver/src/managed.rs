//! Managed memory: hints about where it should be. They are kept and given back, and followed as far as a prefetch to a device
//! brings what is there of the process. How much lies where, the machine knows; which pages, nobody.

use crate::args::{Answer, put, put_at, slice};
use crate::capture;
use crate::entry::Call;
use crate::memory::{self, Kind};
use crate::state;
use crate::stream;
use core::ffi::{c_int, c_void};
use driver_api::{CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute, CUmemLocation, CUresult, CUstream};

/// `CU_DEVICE_CPU` and `CU_DEVICE_INVALID`
const CPU: CUdevice = -1;
const INVALID: CUdevice = -2;
const LOCATION_DEVICE: c_int = 1;
const LOCATION_HOST: c_int = 2;

/// What is known about a block of managed memory.
#[derive(Clone, Copy)]
pub(crate) struct Managed {
    /// A module's variable, which only goes with the module.
    pub(crate) is_variable: bool,
    read_mostly: bool,
    preferred: CUmemLocation,
    prefetched: CUmemLocation,
    /// A bit for each device; the highest is the CPU's.
    accessed_by: u64,
}

const NOWHERE: CUmemLocation = CUmemLocation { kind: 0, id: 0 };
const CPU_BIT: u64 = 1 << 63;

/// A new variable of a module.
pub(crate) const VARIABLE: Managed = Managed { is_variable: true, ..UNADVISED };

/// New memory, of which nothing has been said.
pub(crate) const UNADVISED: Managed =
    Managed { is_variable: false, read_mostly: false, preferred: NOWHERE, prefetched: NOWHERE, accessed_by: 0 };

/// The location that a device number means.
fn location(device: CUdevice) -> CUmemLocation {
    match device {
        CPU => CUmemLocation { kind: LOCATION_HOST, id: 0 },
        _ => CUmemLocation { kind: LOCATION_DEVICE, id: device },
    }
}

/// The device number of a location.
fn device_of(location: CUmemLocation) -> CUdevice {
    match location.kind {
        0 => INVALID,
        LOCATION_DEVICE => location.id,
        _ => CPU,
    }
}

fn check_location(location: CUmemLocation) -> Answer {
    match location.kind {
        LOCATION_DEVICE => state::device(location.id).map(drop),
        LOCATION_HOST..=4 => Ok(()),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// Fails unless the range is managed memory.
fn check_range(start: u64, bytes: u64) -> Answer {
    let managed = bytes > 0 && memory::covers(start, bytes, |block| matches!(block.kind, Kind::Managed(_)));
    if managed { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

/// Hints are kept for whole blocks.
fn change(start: u64, change: impl FnOnce(&mut Managed)) -> Answer {
    memory::change(start, |block| {
        if let Kind::Managed(managed) = &mut block.kind {
            change(managed);
        }
    })
}

fn advise(start: u64, bytes: u64, advice: CUmem_advise, location: CUmemLocation) -> Answer {
    state::current()?;
    check_range(start, bytes)?;
    let bit = match device_of(location) {
        CPU => CPU_BIT,
        device => 1u64.checked_shl(device.cast_unsigned()).unwrap_or(0),
    };
    if matches!(advice, 3 | 5 | 6) {
        check_location(location)?;
    }
    change(start, |managed| match advice {
        1 => managed.read_mostly = true,
        2 => managed.read_mostly = false,
        3 => managed.preferred = location,
        4 => managed.preferred = NOWHERE,
        5 => managed.accessed_by |= bit,
        _ => managed.accessed_by &= !bit,
    })
    .and(if (1..=6).contains(&advice) { Ok(()) } else { Err(CUresult::INVALID_VALUE) })
}

pub(crate) fn cuMemAdvise(
    _: &Call,
    start: CUdeviceptr,
    bytes: usize,
    advice: CUmem_advise,
    device: CUdevice,
) -> Answer {
    advise(start, bytes as u64, advice, location(device))
}

pub(crate) fn cuMemAdvise_v2(
    _: &Call,
    start: CUdeviceptr,
    bytes: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> Answer {
    advise(start, bytes as u64, advice, location)
}

fn prefetch(call: &Call, start: u64, bytes: u64, location: CUmemLocation, stream: CUstream) -> Answer {
    let stream = stream::resolve(call, stream)?;
    check_location(location)?;
    check_range(start, bytes)?;
    capture::forbid_on(&stream)?;
    if location.kind == LOCATION_DEVICE {
        state::device(location.id)?.use_managed();
    }
    change(start, |managed| managed.prefetched = location)
}

pub(crate) fn cuMemPrefetchAsync(
    call: &Call,
    start: CUdeviceptr,
    bytes: usize,
    device: CUdevice,
    stream: CUstream,
) -> Answer {
    prefetch(call, start, bytes as u64, location(device), stream)
}

pub(crate) fn cuMemPrefetchAsync_v2(
    call: &Call,
    start: CUdeviceptr,
    bytes: usize,
    location: CUmemLocation,
    flags: u32,
    stream: CUstream,
) -> Answer {
    if flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    prefetch(call, start, bytes as u64, location, stream)
}

/// The words of an attribute of a range.
fn attribute(start: u64, attribute: CUmem_range_attribute, room: usize) -> Answer<Vec<c_int>> {
    let Some(Kind::Managed(managed)) = memory::find(start).map(|(_, block)| block.kind) else {
        return Err(CUresult::INVALID_VALUE);
    };
    let words = room / size_of::<c_int>();
    let one = |value: c_int| if words == 1 { Ok(vec![value]) } else { Err(CUresult::INVALID_VALUE) };
    match attribute {
        1 => one(c_int::from(managed.read_mostly)),
        2 => one(device_of(managed.preferred)),
        3 if words > 0 => {
            let devices = (0..63).filter(|&device| managed.accessed_by & 1 << device != 0);
            let cpu = (managed.accessed_by & CPU_BIT != 0).then_some(CPU);
            Ok(cpu.into_iter().chain(devices).chain(core::iter::repeat(INVALID)).take(words).collect())
        }
        4 => one(device_of(managed.prefetched)),
        5 => one(managed.preferred.kind),
        6 => one(managed.preferred.id),
        7 => one(managed.prefetched.kind),
        8 => one(managed.prefetched.id),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn put_attribute(data: *mut c_void, room: usize, kind: CUmem_range_attribute, start: u64) -> Answer {
    for (at, word) in attribute(start, kind, room)?.into_iter().enumerate() {
        put_at(data.cast::<c_int>(), at, word)?;
    }
    Ok(())
}

pub(crate) fn cuMemRangeGetAttribute(
    _: &Call,
    data: *mut c_void,
    room: usize,
    kind: CUmem_range_attribute,
    start: CUdeviceptr,
    bytes: usize,
) -> Answer {
    check_range(start, bytes as u64)?;
    put_attribute(data, room, kind, start)
}

/// Where each part of a range was last moved to: the whole block is there, and nowhere before that.
pub(crate) fn cuMemGetLocationInfo(
    _: &Call,
    start: CUdeviceptr,
    bytes: usize,
    summary_bytes: usize,
    sample_bytes: usize,
    out: *mut CUmemLocation,
) -> Answer {
    check_range(start, bytes as u64)?;
    if summary_bytes == 0 || summary_bytes > bytes || sample_bytes > summary_bytes || out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    for (at, offset) in (0..bytes).step_by(summary_bytes).enumerate() {
        let Some(Kind::Managed(managed)) = memory::find(start + offset as u64).map(|(_, block)| block.kind) else {
            return Err(CUresult::INVALID_VALUE);
        };
        put_at(out, at, managed.prefetched)?;
    }
    Ok(())
}

pub(crate) fn cuMemRangeGetAttributes(
    _: &Call,
    data: *mut *mut c_void,
    rooms: *mut usize,
    kinds: *mut CUmem_range_attribute,
    count: usize,
    start: CUdeviceptr,
    bytes: usize,
) -> Answer {
    check_range(start, bytes as u64)?;
    if count == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let (data, rooms, kinds) = (slice(data, count)?, slice(rooms, count)?, slice(kinds, count)?);
    data.iter().zip(rooms).zip(kinds).try_for_each(|((&out, &room), &kind)| put_attribute(out, room, kind, start))
}

/// Managed memory is charged to the device that it was made for, wherever it is used.
pub(crate) fn cuMemAllocManaged(_: &Call, out: *mut CUdeviceptr, bytes: usize, flags: u32) -> Answer {
    const ATTACH_GLOBAL: u32 = 1;
    const ATTACH_HOST: u32 = 2;
    let context = state::current()?;
    if out.is_null() || !matches!(flags, ATTACH_GLOBAL | ATTACH_HOST) || bytes == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    capture::forbid_unsafe_call()?;
    crate::vmm::reap();
    let kind = Kind::Managed(UNADVISED);
    put(out, memory::allocate(&context, bytes as u64, kind, memory::Placement::Any)?)
}
