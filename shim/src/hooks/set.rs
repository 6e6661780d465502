//! Memsets: small kernels or a copy engine's work, as the driver likes. None waits for its end on memory of a device.
#![allow(non_snake_case, clippy::too_many_arguments)]

use super::Answer;
use super::copy::DEFAULT;
use crate::entry::Next;
use crate::pace::{self, Work};
use driver_api::{CUdeviceptr, CUdeviceptr_v1, CUstream};

/// Fills elements of so many bytes, so many a row, so many rows.
fn fill(next: Next<'_>, stream: CUstream, [element, width, height]: [u64; 3]) -> Answer {
    let bytes = element.saturating_mul(width).saturating_mul(height);
    pace::paced(next, stream, Work::Set { bytes })
}

pub(crate) fn cuMemsetD16(next: Next<'_>, _dstDevice: CUdeviceptr_v1, _us: u16, N: u32) -> Answer {
    fill(next, DEFAULT, [2, u64::from(N), 1])
}

pub(crate) fn cuMemsetD16_v2(next: Next<'_>, _dstDevice: CUdeviceptr, _us: u16, N: usize) -> Answer {
    fill(next, DEFAULT, [2, N as u64, 1])
}

pub(crate) fn cuMemsetD16Async(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _us: u16,
    N: usize,
    hStream: CUstream,
) -> Answer {
    fill(next, hStream, [2, N as u64, 1])
}

pub(crate) fn cuMemsetD2D16(
    next: Next<'_>,
    _dstDevice: CUdeviceptr_v1,
    _dstPitch: u32,
    _us: u16,
    Width: u32,
    Height: u32,
) -> Answer {
    fill(next, DEFAULT, [2, u64::from(Width), u64::from(Height)])
}

pub(crate) fn cuMemsetD2D16_v2(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _dstPitch: usize,
    _us: u16,
    Width: usize,
    Height: usize,
) -> Answer {
    fill(next, DEFAULT, [2, Width as u64, Height as u64])
}

pub(crate) fn cuMemsetD2D16Async(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _dstPitch: usize,
    _us: u16,
    Width: usize,
    Height: usize,
    hStream: CUstream,
) -> Answer {
    fill(next, hStream, [2, Width as u64, Height as u64])
}

pub(crate) fn cuMemsetD2D32(
    next: Next<'_>,
    _dstDevice: CUdeviceptr_v1,
    _dstPitch: u32,
    _ui: u32,
    Width: u32,
    Height: u32,
) -> Answer {
    fill(next, DEFAULT, [4, u64::from(Width), u64::from(Height)])
}

pub(crate) fn cuMemsetD2D32_v2(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _dstPitch: usize,
    _ui: u32,
    Width: usize,
    Height: usize,
) -> Answer {
    fill(next, DEFAULT, [4, Width as u64, Height as u64])
}

pub(crate) fn cuMemsetD2D32Async(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _dstPitch: usize,
    _ui: u32,
    Width: usize,
    Height: usize,
    hStream: CUstream,
) -> Answer {
    fill(next, hStream, [4, Width as u64, Height as u64])
}

pub(crate) fn cuMemsetD2D8(
    next: Next<'_>,
    _dstDevice: CUdeviceptr_v1,
    _dstPitch: u32,
    _uc: u8,
    Width: u32,
    Height: u32,
) -> Answer {
    fill(next, DEFAULT, [1, u64::from(Width), u64::from(Height)])
}

pub(crate) fn cuMemsetD2D8_v2(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _dstPitch: usize,
    _uc: u8,
    Width: usize,
    Height: usize,
) -> Answer {
    fill(next, DEFAULT, [1, Width as u64, Height as u64])
}

pub(crate) fn cuMemsetD2D8Async(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _dstPitch: usize,
    _uc: u8,
    Width: usize,
    Height: usize,
    hStream: CUstream,
) -> Answer {
    fill(next, hStream, [1, Width as u64, Height as u64])
}

pub(crate) fn cuMemsetD32(next: Next<'_>, _dstDevice: CUdeviceptr_v1, _ui: u32, N: u32) -> Answer {
    fill(next, DEFAULT, [4, u64::from(N), 1])
}

pub(crate) fn cuMemsetD32_v2(next: Next<'_>, _dstDevice: CUdeviceptr, _ui: u32, N: usize) -> Answer {
    fill(next, DEFAULT, [4, N as u64, 1])
}

pub(crate) fn cuMemsetD32Async(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _ui: u32,
    N: usize,
    hStream: CUstream,
) -> Answer {
    fill(next, hStream, [4, N as u64, 1])
}

pub(crate) fn cuMemsetD8(next: Next<'_>, _dstDevice: CUdeviceptr_v1, _uc: u8, N: u32) -> Answer {
    fill(next, DEFAULT, [1, u64::from(N), 1])
}

pub(crate) fn cuMemsetD8_v2(next: Next<'_>, _dstDevice: CUdeviceptr, _uc: u8, N: usize) -> Answer {
    fill(next, DEFAULT, [1, N as u64, 1])
}

pub(crate) fn cuMemsetD8Async(next: Next<'_>, _dstDevice: CUdeviceptr, _uc: u8, N: usize, hStream: CUstream) -> Answer {
    fill(next, hStream, [1, N as u64, 1])
}
