//! Streams that write to or wait for a word of memory.
#![allow(unsafe_code)]

use super::{Stream, resolve};
use crate::args::{Answer, slice};
use crate::capture;
use crate::entry::Call;
use crate::graph::Payload;
use core::ffi::c_uint;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use driver_api::{CUdeviceptr, CUresult, CUstream, CUstreamBatchMemOpParams};
use std::sync::Arc;
use std::time::Duration;

/// How often a waiting stream looks, growing from the first to the last.
const POLLS: (Duration, Duration) = (Duration::from_micros(5), Duration::from_micros(200));

const WAIT_32: i32 = 1;
const WRITE_32: i32 = 2;
const FLUSH: i32 = 3;
const WAIT_64: i32 = 4;
const WRITE_64: i32 = 5;
const BARRIER: i32 = 6;

/// One operation on a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WordOperation {
    /// Writes it.
    Write { address: u64, value: u64, wide: bool },
    /// Goes on when the word is at least, equal to, has a bit of, or lacks a bit of the value.
    Wait { address: u64, value: u64, wide: bool, test: u32 },
}

impl WordOperation {
    fn parse(kind: i32, address: u64, value: u64, flags: u32) -> Answer<Option<Self>> {
        let wide = matches!(kind, WAIT_64 | WRITE_64);
        let value = if wide { value } else { value & 0xffff_ffff };
        match kind {
            FLUSH | BARRIER => return Ok(None),
            _ if address == 0 || !address.is_multiple_of(if wide { 8 } else { 4 }) => {
                return Err(CUresult::INVALID_VALUE);
            }
            _ => crate::memory::check_range(address, if wide { 8 } else { 4 })?,
        }
        match kind {
            WRITE_32 | WRITE_64 if flags & !1 == 0 => Ok(Some(Self::Write { address, value, wide })),
            WAIT_32 | WAIT_64 if flags & !(1 << 30) <= 3 => {
                Ok(Some(Self::Wait { address, value, wide, test: flags & 3 }))
            }
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    /// As it stands in the API's structure.
    pub(crate) fn parameters(self) -> CUstreamBatchMemOpParams {
        let (operation, address, value, flags) = match self {
            Self::Write { address, value, wide } => (if wide { WRITE_64 } else { WRITE_32 }, address, value, 0),
            Self::Wait { address, value, wide, test } => (if wide { WAIT_64 } else { WAIT_32 }, address, value, test),
        };
        CUstreamBatchMemOpParams { operation, address, value, flags, alias: 0, pad: 0 }
    }

    /// True for a wait, which may take for ever.
    pub(crate) fn may_block(self) -> bool {
        matches!(self, Self::Wait { .. })
    }

    /// Does it; a wait returns when its condition holds.
    pub(crate) fn carry_out(self) {
        match self {
            Self::Write { address, value, wide } => store(address, value, wide),
            Self::Wait { address, value, wide, test } => {
                let mut pause = POLLS.0;
                while !holds(load(address, wide), value, wide, test) {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(POLLS.1);
                }
            }
        }
    }
}

fn holds(word: u64, value: u64, wide: bool, test: u32) -> bool {
    let mask = if wide { u64::MAX } else { 0xffff_ffff };
    match test {
        // Counters may wrap, so the difference is compared, as a signed number.
        0 if wide => word.wrapping_sub(value).cast_signed() >= 0,
        #[allow(clippy::cast_possible_truncation)] // The upper halves are zero.
        0 => (word as u32).wrapping_sub(value as u32).cast_signed() >= 0,
        1 => word == value,
        2 => word & value != 0,
        _ => !(word | value) & mask != 0,
    }
}

fn load(address: u64, wide: bool) -> u64 {
    let place = core::ptr::with_exposed_provenance_mut::<u64>(address as usize);
    // SAFETY: `parse` found the word in the program's memory and aligned; as on a device, the program must
    // not free memory that work in a stream uses.
    unsafe {
        if wide {
            AtomicU64::from_ptr(place).load(Ordering::Acquire)
        } else {
            u64::from(AtomicU32::from_ptr(place.cast()).load(Ordering::Acquire))
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // A narrow value has no upper half.
fn store(address: u64, value: u64, wide: bool) {
    let place = core::ptr::with_exposed_provenance_mut::<u64>(address as usize);
    // SAFETY: as in `load`.
    unsafe {
        if wide {
            AtomicU64::from_ptr(place).store(value, Ordering::Release);
        } else {
            AtomicU32::from_ptr(place.cast()).store(value as u32, Ordering::Release);
        }
    }
}

fn enqueue(stream: &Arc<Stream>, operations: Vec<WordOperation>) -> Answer {
    if let Some(capture) = capture::enter(stream)? {
        return capture.record(Payload::Words(operations)).map(drop);
    }
    // Even a write must come after the kernels before it, or it would tell that they are done.
    let at_once = stream.is_idle() && !operations.iter().any(|operation| operation.may_block());
    let work = move || operations.into_iter().for_each(WordOperation::carry_out);
    if at_once {
        work();
    } else {
        stream.host(work);
    }
    Ok(())
}

fn single(call: &Call, stream: CUstream, kind: i32, address: CUdeviceptr, value: u64, flags: c_uint) -> Answer {
    let stream = resolve(call, stream)?;
    let operation = WordOperation::parse(kind, address, value, flags)?;
    enqueue(&stream, operation.into_iter().collect())
}

/// The operations of a batch.
pub(crate) fn parse_all(parameters: &[CUstreamBatchMemOpParams]) -> Answer<Vec<WordOperation>> {
    let parsed = parameters.iter().map(|one| WordOperation::parse(one.operation, one.address, one.value, one.flags));
    parsed.filter_map(Result::transpose).collect()
}

pub(crate) fn cuStreamBatchMemOp_v2(
    call: &Call,
    stream: CUstream,
    count: c_uint,
    parameters: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> Answer {
    let stream = resolve(call, stream)?;
    if flags != 0 || count > 256 {
        return Err(CUresult::INVALID_VALUE);
    }
    enqueue(&stream, parse_all(slice(parameters, count as usize)?)?)
}

pub(crate) fn cuStreamBatchMemOp(
    call: &Call,
    stream: CUstream,
    count: c_uint,
    parameters: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> Answer {
    cuStreamBatchMemOp_v2(call, stream, count, parameters, flags)
}

pub(crate) fn cuStreamWaitValue32(
    call: &Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
    flags: c_uint,
) -> Answer {
    single(call, stream, WAIT_32, address, value.into(), flags)
}

pub(crate) fn cuStreamWaitValue32_v2(
    call: &Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
    flags: c_uint,
) -> Answer {
    single(call, stream, WAIT_32, address, value.into(), flags)
}

pub(crate) fn cuStreamWaitValue64(
    call: &Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
) -> Answer {
    single(call, stream, WAIT_64, address, value, flags)
}

pub(crate) fn cuStreamWaitValue64_v2(
    call: &Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
) -> Answer {
    single(call, stream, WAIT_64, address, value, flags)
}

pub(crate) fn cuStreamWriteValue32(
    call: &Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
    flags: c_uint,
) -> Answer {
    single(call, stream, WRITE_32, address, value.into(), flags)
}

pub(crate) fn cuStreamWriteValue32_v2(
    call: &Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
    flags: c_uint,
) -> Answer {
    single(call, stream, WRITE_32, address, value.into(), flags)
}

pub(crate) fn cuStreamWriteValue64(
    call: &Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
) -> Answer {
    single(call, stream, WRITE_64, address, value, flags)
}

pub(crate) fn cuStreamWriteValue64_v2(
    call: &Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
) -> Answer {
    single(call, stream, WRITE_64, address, value, flags)
}
