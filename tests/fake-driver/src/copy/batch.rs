//! Many copies in one call, and single copies with attributes.
#![allow(clippy::too_many_arguments)] // The API has them.

use super::{UNIFIED, enqueue_in, flat};
use crate::args::{Answer, get, put, slice};
use crate::capture;
use crate::entry::Call;
use crate::stream;
use driver_api::{CUdeviceptr, CUmemcpyAttributes, CUresult, CUstream};

/// `CU_MEMCPY_SRC_ACCESS_ORDER_ANY`, the last of the orders; 1 is the first.
const ORDER_MAX: i32 = 3;

struct Batch<'a> {
    to: &'a [CUdeviceptr],
    from: &'a [CUdeviceptr],
    sizes: &'a [usize],
}

/// Attributes are hints, but have to be well formed: in rising order, beginning with the first copy.
fn check_attributes(count: usize, attributes: &[CUmemcpyAttributes], indices: &[usize]) -> Answer {
    let ordered = indices.first() == Some(&0) && indices.is_sorted() && indices.iter().all(|&at| at < count);
    let valid = attributes.iter().all(|row| (1..=ORDER_MAX).contains(&row.srcAccessOrder));
    if ordered && valid { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

/// Does the copies one after the other; on an error, says which one it was.
fn run(call: &Call, batch: &Batch<'_>, stream: CUstream) -> Result<(), (Option<usize>, CUresult)> {
    // The legacy default stream isn't allowed for batches.
    if stream.addr() <= 1 && !(call.per_thread && stream.is_null()) {
        return Err((None, CUresult::INVALID_HANDLE));
    }
    let stream = stream::resolve(call, stream).map_err(|error| (None, error))?;
    capture::forbid_on(&stream).map_err(|error| (None, error))?;
    for (at, ((&to, &from), &bytes)) in batch.to.iter().zip(batch.from).zip(batch.sizes).enumerate() {
        if bytes == 0 {
            return Err((Some(at), CUresult::INVALID_VALUE));
        }
        enqueue_in(&stream, &flat((UNIFIED, to), (UNIFIED, from), bytes)).map_err(|error| (Some(at), error))?;
    }
    Ok(())
}

fn batch<'a>(
    to: *const CUdeviceptr,
    from: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
    attributes: (*const CUmemcpyAttributes, *const usize, usize),
) -> Answer<Batch<'a>> {
    if count == 0 || attributes.2 == 0 || attributes.2 > count {
        return Err(CUresult::INVALID_VALUE);
    }
    check_attributes(count, slice(attributes.0, attributes.2)?, slice(attributes.1, attributes.2)?)?;
    Ok(Batch { to: slice(to, count)?, from: slice(from, count)?, sizes: slice(sizes, count)? })
}

pub(crate) fn cuMemcpyBatchAsync(
    call: &Call,
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    attribute_indices: *mut usize,
    attribute_count: usize,
    failed: *mut usize,
    stream: CUstream,
) -> Answer {
    put(failed, usize::MAX)?;
    let batch = batch(to, from, sizes, count, (attributes, attribute_indices, attribute_count))?;
    run(call, &batch, stream).map_err(|(at, error)| {
        crate::args::optional(failed, at.unwrap_or(usize::MAX));
        error
    })
}

pub(crate) fn cuMemcpyBatchAsync_v2(
    call: &Call,
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    attribute_indices: *mut usize,
    attribute_count: usize,
    stream: CUstream,
) -> Answer {
    let batch = batch(to, from, sizes, count, (attributes, attribute_indices, attribute_count))?;
    run(call, &batch, stream).map_err(|(_, error)| error)
}

pub(crate) fn cuMemcpyWithAttributesAsync(
    call: &Call,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    attributes: *mut CUmemcpyAttributes,
    stream: CUstream,
) -> Answer {
    check_attributes(1, &[get(attributes)?], &[0])?;
    enqueue_in(&stream::resolve(call, stream)?, &flat((UNIFIED, to), (UNIFIED, from), bytes))
}
