//! Arrays and mipmaps, charged by their format.
#![allow(non_snake_case)]

use super::Answer;
use crate::args::{In, Out};
use crate::entry::Next;
use crate::flight::Flight;
use crate::{account, calls, live, overhead};
use core::ffi::c_void;
use driver_api::layout::ArrayShape;
use driver_api::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray,
    CUmipmappedArray,
};

pub(crate) fn cuArrayCreate_v2(
    next: Next<'_>,
    pHandle: Out<CUarray>,
    pAllocateArray: In<CUDA_ARRAY_DESCRIPTOR>,
) -> Answer {
    let d = pAllocateArray.get();
    create(next, pHandle, flat(d.Width as u64, d.Height as u64, d.Format, d.NumChannels).bytes())
}

pub(crate) fn cuArrayCreate(
    next: Next<'_>,
    pHandle: Out<CUarray>,
    pAllocateArray: In<CUDA_ARRAY_DESCRIPTOR_v1>,
) -> Answer {
    let d = pAllocateArray.get();
    create(next, pHandle, flat(u64::from(d.Width), u64::from(d.Height), d.Format, d.NumChannels).bytes())
}

pub(crate) fn cuArray3DCreate_v2(
    next: Next<'_>,
    pHandle: Out<CUarray>,
    pAllocateArray: In<CUDA_ARRAY3D_DESCRIPTOR>,
) -> Answer {
    create(next, pHandle, shape(&pAllocateArray.get()).bytes())
}

pub(crate) fn cuArray3DCreate(
    next: Next<'_>,
    pHandle: Out<CUarray>,
    pAllocateArray: In<CUDA_ARRAY3D_DESCRIPTOR_v1>,
) -> Answer {
    let d = pAllocateArray.get();
    let flat = flat(u64::from(d.Width), u64::from(d.Height), d.Format, d.NumChannels);
    create(next, pHandle, ArrayShape { depth: u64::from(d.Depth), flags: d.Flags, ..flat }.bytes())
}

pub(crate) fn cuMipmappedArrayCreate(
    next: Next<'_>,
    pHandle: Out<CUmipmappedArray>,
    pMipmappedArrayDesc: In<CUDA_ARRAY3D_DESCRIPTOR>,
    numMipmapLevels: u32,
) -> Answer {
    create(next, pHandle, shape(&pMipmappedArrayDesc.get()).mipmap_bytes(numMipmapLevels))
}

pub(crate) fn cuArrayDestroy(next: Next<'_>, hArray: CUarray) -> Answer {
    destroy(next, hArray)
}

pub(crate) fn cuMipmappedArrayDestroy(next: Next<'_>, hMipmappedArray: CUmipmappedArray) -> Answer {
    destroy(next, hMipmappedArray)
}

fn flat(width: u64, height: u64, format: i32, channels: u32) -> ArrayShape {
    ArrayShape { width, height, depth: 0, format, channels, flags: 0 }
}

fn shape(d: &CUDA_ARRAY3D_DESCRIPTOR) -> ArrayShape {
    ArrayShape {
        depth: d.Depth as u64,
        flags: d.Flags,
        ..flat(d.Width as u64, d.Height as u64, d.Format, d.NumChannels)
    }
}

/// Handles of arrays are addresses of the driver's, so they share the books with pointers.
fn create(next: Next<'_>, handle: Out<*mut c_void>, bytes: Option<u64>) -> Answer {
    let _flight = Flight::enter();
    // An unknown format or an empty shape is the driver's to refuse; a sparse array owns nothing.
    let (Some(bytes @ 1..), Some(context)) = (bytes, calls::current_context()) else { return next.call() };
    let Some(account) = account::of_current_device()? else { return next.call() };
    let pending = live::reserve_whole(account, context, bytes)?;
    next.call_for(&account, bytes)?;
    pending.enter(handle.get() as usize);
    Ok(())
}

fn destroy(next: Next<'_>, handle: *mut c_void) -> Answer {
    let _flight = Flight::enter();
    let block = live::take(handle as usize);
    match (next.call(), block) {
        (Ok(()), Some(block)) => live::credit(block),
        (Err(refusal), Some(block)) => {
            live::put_back(handle as usize, block);
            return Err(refusal);
        }
        (answer, None) => {
            answer?;
            overhead::unknown_freed();
        }
    }
    Ok(())
}
