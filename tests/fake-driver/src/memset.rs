//! Memsets, in one and two dimensions.

use crate::args::Answer;
use crate::capture;
use crate::copy;
use crate::entry::Call;
use crate::memory::{self, covers};
use crate::pages;
use crate::stream;
use core::ptr::null_mut;
use driver_api::{CUDA_MEMSET_NODE_PARAMS_v2, CUdeviceptr, CUdeviceptr_v1, CUresult, CUstream};

/// A memset that has been checked.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    start: u64,
    pitch: u64,
    value: u32,
    /// Bytes of an element: 1, 2 or 4.
    element: u64,
    width: u64,
    height: u64,
}

impl Area {
    /// Checks a memset; `None` when there is nothing to set.
    pub(crate) fn new(fill: &CUDA_MEMSET_NODE_PARAMS_v2) -> Answer<Option<Self>> {
        let area = Self {
            start: fill.dst,
            pitch: fill.pitch as u64,
            value: fill.value,
            element: fill.elementSize.into(),
            width: fill.width as u64,
            height: fill.height as u64,
        };
        if area.width == 0 || area.height == 0 {
            return Ok(None);
        }
        let row = area.width.checked_mul(area.element).ok_or(CUresult::INVALID_VALUE)?;
        let bytes = area.pitch.checked_mul(area.height - 1).and_then(|rows| rows.checked_add(row));
        let aligned =
            area.start.is_multiple_of(area.element) && (area.height == 1 || area.pitch.is_multiple_of(area.element));
        let wide = area.height == 1 || area.pitch >= row;
        let known = bytes.is_some_and(|bytes| covers(area.start, bytes, |block| block.allows(true)));
        if matches!(area.element, 1 | 2 | 4) && aligned && wide && known {
            Ok(Some(area))
        } else {
            Err(CUresult::INVALID_VALUE)
        }
    }

    /// What it takes the device.
    fn duration_ns(&self) -> u64 {
        copy::duration_ns(self.width * self.height * self.element, false)
    }

    /// Sets the bytes.
    pub(crate) fn run(&self) {
        for row in 0..self.height {
            pages::fill(self.start + row * self.pitch, self.value, self.element, self.width);
        }
    }
}

fn parameters(
    start: u64,
    pitch: usize,
    (value, element): (u32, u32),
    width: usize,
    height: usize,
) -> CUDA_MEMSET_NODE_PARAMS_v2 {
    CUDA_MEMSET_NODE_PARAMS_v2 { dst: start, pitch, value, elementSize: element, width, height, ctx: null_mut() }
}

/// Sets memory in the default stream; host memory is set when the call returns.
fn now(call: &Call, fill: &CUDA_MEMSET_NODE_PARAMS_v2) -> Answer {
    let stream = stream::resolve(call, null_mut())?;
    capture::forbid_on(&stream)?;
    capture::forbid_unsafe_call()?;
    let Some(area) = Area::new(fill)? else { return Ok(()) };
    if memory::find(area.start).is_some_and(|(_, block)| block.is_host()) {
        stream.wait();
        area.run();
        Ok(())
    } else {
        stream.run_for(area.duration_ns(), move || area.run())
    }
}

/// Sets memory in the order of a stream, or records it when the stream is being captured.
fn enqueue(call: &Call, stream: CUstream, fill: &CUDA_MEMSET_NODE_PARAMS_v2) -> Answer {
    let stream = stream::resolve(call, stream)?;
    let area = Area::new(fill)?;
    if capture::record_fill(&stream, fill)? {
        return Ok(());
    }
    match area {
        Some(area) => stream.run_for(area.duration_ns(), move || area.run()),
        None => Ok(()),
    }
}

pub(crate) fn cuMemsetD8(call: &Call, start: CUdeviceptr_v1, value: u8, count: u32) -> Answer {
    now(call, &parameters(start.into(), 0, (value.into(), 1), count as usize, 1))
}

pub(crate) fn cuMemsetD2D8(
    call: &Call,
    start: CUdeviceptr_v1,
    pitch: u32,
    value: u8,
    width: u32,
    height: u32,
) -> Answer {
    now(call, &parameters(start.into(), pitch as usize, (value.into(), 1), width as usize, height as usize))
}

pub(crate) fn cuMemsetD8_v2(call: &Call, start: CUdeviceptr, value: u8, count: usize) -> Answer {
    now(call, &parameters(start, 0, (value.into(), 1), count, 1))
}

pub(crate) fn cuMemsetD2D8_v2(
    call: &Call,
    start: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
) -> Answer {
    now(call, &parameters(start, pitch, (value.into(), 1), width, height))
}

pub(crate) fn cuMemsetD8Async(call: &Call, start: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> Answer {
    enqueue(call, stream, &parameters(start, 0, (value.into(), 1), count, 1))
}

pub(crate) fn cuMemsetD2D8Async(
    call: &Call,
    start: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &parameters(start, pitch, (value.into(), 1), width, height))
}

pub(crate) fn cuMemsetD16(call: &Call, start: CUdeviceptr_v1, value: u16, count: u32) -> Answer {
    now(call, &parameters(start.into(), 0, (value.into(), 2), count as usize, 1))
}

pub(crate) fn cuMemsetD2D16(
    call: &Call,
    start: CUdeviceptr_v1,
    pitch: u32,
    value: u16,
    width: u32,
    height: u32,
) -> Answer {
    now(call, &parameters(start.into(), pitch as usize, (value.into(), 2), width as usize, height as usize))
}

pub(crate) fn cuMemsetD16_v2(call: &Call, start: CUdeviceptr, value: u16, count: usize) -> Answer {
    now(call, &parameters(start, 0, (value.into(), 2), count, 1))
}

pub(crate) fn cuMemsetD2D16_v2(
    call: &Call,
    start: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
) -> Answer {
    now(call, &parameters(start, pitch, (value.into(), 2), width, height))
}

pub(crate) fn cuMemsetD16Async(call: &Call, start: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> Answer {
    enqueue(call, stream, &parameters(start, 0, (value.into(), 2), count, 1))
}

pub(crate) fn cuMemsetD2D16Async(
    call: &Call,
    start: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &parameters(start, pitch, (value.into(), 2), width, height))
}

pub(crate) fn cuMemsetD32(call: &Call, start: CUdeviceptr_v1, value: u32, count: u32) -> Answer {
    now(call, &parameters(start.into(), 0, (value, 4), count as usize, 1))
}

pub(crate) fn cuMemsetD2D32(
    call: &Call,
    start: CUdeviceptr_v1,
    pitch: u32,
    value: u32,
    width: u32,
    height: u32,
) -> Answer {
    now(call, &parameters(start.into(), pitch as usize, (value, 4), width as usize, height as usize))
}

pub(crate) fn cuMemsetD32_v2(call: &Call, start: CUdeviceptr, value: u32, count: usize) -> Answer {
    now(call, &parameters(start, 0, (value, 4), count, 1))
}

pub(crate) fn cuMemsetD2D32_v2(
    call: &Call,
    start: CUdeviceptr,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
) -> Answer {
    now(call, &parameters(start, pitch, (value, 4), width, height))
}

pub(crate) fn cuMemsetD32Async(call: &Call, start: CUdeviceptr, value: u32, count: usize, stream: CUstream) -> Answer {
    enqueue(call, stream, &parameters(start, 0, (value, 4), count, 1))
}

pub(crate) fn cuMemsetD2D32Async(
    call: &Call,
    start: CUdeviceptr,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &parameters(start, pitch, (value, 4), width, height))
}
