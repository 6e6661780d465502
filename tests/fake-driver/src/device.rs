//! Initialisation, version, and what a device is.

pub(crate) mod attributes;
pub(crate) mod identity;
pub(crate) mod notify;

use crate::args::{Answer, put};
use crate::entry::{self, Call};
use crate::state::{self, driver};
use core::ffi::c_int;
use driver_api::{CUarray_format, CUdevice, CUdevprop, CUexecAffinityType, CUresult, ElementSize};

pub(crate) fn cuInit(_: &Call, flags: u32) -> Answer {
    if flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    state::initialise()
}

pub(crate) fn cuDriverGetVersion(_: &Call, out: *mut c_int) -> Answer {
    put(out, entry::version())
}

pub(crate) fn cuDeviceGetCount(_: &Call, out: *mut c_int) -> Answer {
    put(out, c_int::try_from(driver().devices().len()).unwrap_or(c_int::MAX))
}

pub(crate) fn cuDeviceGet(_: &Call, out: *mut CUdevice, ordinal: c_int) -> Answer {
    put(out, state::device(ordinal)?.ordinal)
}

pub(crate) fn cuDeviceComputeCapability(_: &Call, major: *mut c_int, minor: *mut c_int, device: CUdevice) -> Answer {
    let (first, second) = state::device(device)?.spec().compute_capability;
    put(major, first.cast_signed())?;
    put(minor, second.cast_signed())
}

/// The properties of the first API.
pub(crate) fn cuDeviceGetProperties(_: &Call, out: *mut CUdevprop, device: CUdevice) -> Answer {
    use attributes::value;
    let device = state::device(device)?;
    let of = |attribute| value(device, attribute).unwrap_or(0);
    put(
        out,
        CUdevprop {
            maxThreadsPerBlock: of(1),
            maxThreadsDim: [of(2), of(3), of(4)],
            maxGridSize: [of(5), of(6), of(7)],
            sharedMemPerBlock: of(8),
            totalConstantMemory: of(9),
            SIMDWidth: of(10),
            memPitch: of(11),
            regsPerBlock: of(12),
            clockRate: of(13),
            textureAlign: of(14),
        },
    )
}

/// 2^28 bytes of linear texture memory, in elements of the format.
pub(crate) fn cuDeviceGetTexture1DLinearMaxWidth(
    _: &Call,
    out: *mut usize,
    format: CUarray_format,
    channels: u32,
    device: CUdevice,
) -> Answer {
    const ELEMENTS_MAX: usize = 1 << 28;
    state::device(device)?;
    let row = driver_api::ARRAY_FORMATS.iter().find(|row| row.value == format).ok_or(CUresult::INVALID_VALUE)?;
    match row.size {
        ElementSize::BytesPerChannel(_) if matches!(channels, 1 | 2 | 4) => put(out, ELEMENTS_MAX),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// Execution affinity is for clients of MPS.
pub(crate) fn cuDeviceGetExecAffinitySupport(
    _: &Call,
    out: *mut c_int,
    kind: CUexecAffinityType,
    device: CUdevice,
) -> Answer {
    state::device(device)?;
    if kind == 0 { put(out, 0) } else { Err(CUresult::INVALID_VALUE) }
}
