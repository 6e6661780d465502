//! Limits of a context that turn into device memory: stacks, the heap, what `printf` writes to.
#![allow(non_snake_case)]

use super::Answer;
use crate::entry::Next;
use crate::{account, calls, overhead};
use driver_api::{CUdevice, CUlimit};

const STACK_SIZE: CUlimit = 0;
const PRINTF_FIFO_SIZE: CUlimit = 1;
const MALLOC_HEAP_SIZE: CUlimit = 2;
const DEV_RUNTIME_SYNC_DEPTH: CUlimit = 3;
const DEV_RUNTIME_PENDING_LAUNCH_COUNT: CUlimit = 4;
const ATTRIBUTE_MULTIPROCESSOR_COUNT: i32 = 16;
const ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: i32 = 39;

pub(crate) fn cuCtxSetLimit(next: Next<'_>, limit: CUlimit, value: usize) -> Answer {
    if !(STACK_SIZE..=DEV_RUNTIME_PENDING_LAUNCH_COUNT).contains(&limit) {
        return next.call();
    }
    let (Some(device), Ok(before)) = (calls::current_device(), calls::limit(limit)) else { return next.call() };
    let Some(account) = account::of_device(device)? else { return next.call() };
    // What the formula says is asked for first, so that a heap that can't fit never exists.
    let more = bytes(limit, value, device).saturating_sub(bytes(limit, before, device));
    if value < before {
        return overhead::around_free(|| next.call());
    }
    let measured = overhead::before_call(account, more)?;
    next.call()?;
    measured.settle_or(|| calls::set_limit(limit, before))
}

/// Device memory that a limit stands for, as far as it is known: one stack for each thread that can be resident.
fn bytes(limit: CUlimit, value: usize, device: CUdevice) -> u64 {
    let value = value as u64;
    let attribute = |attribute| calls::device_attribute(attribute, device).unwrap_or(0);
    match limit {
        STACK_SIZE => {
            let resident =
                attribute(ATTRIBUTE_MULTIPROCESSOR_COUNT) * attribute(ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
            value.saturating_mul(resident)
        }
        PRINTF_FIFO_SIZE | MALLOC_HEAP_SIZE => value,
        DEV_RUNTIME_SYNC_DEPTH.. => 0,
        _ => 0,
    }
}
