//! The descriptors of the first API.

use super::{ARRAYS, create};
use crate::args::{Answer, get, put};
use crate::entry::Call;
use driver_api::{CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray, CUresult};

/// A size as the first API has it.
fn short(size: usize) -> Answer<u32> {
    u32::try_from(size).map_err(|_| CUresult::INVALID_VALUE)
}

pub(crate) fn cuArrayCreate(_: &Call, out: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR_v1) -> Answer {
    let short = get(descriptor)?;
    create(
        out,
        &CUDA_ARRAY3D_DESCRIPTOR {
            Width: short.Width as usize,
            Height: short.Height as usize,
            Depth: 0,
            Format: short.Format,
            NumChannels: short.NumChannels,
            Flags: 0,
        },
    )
}

pub(crate) fn cuArray3DCreate(_: &Call, out: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR_v1) -> Answer {
    let short = get(descriptor)?;
    create(
        out,
        &CUDA_ARRAY3D_DESCRIPTOR {
            Width: short.Width as usize,
            Height: short.Height as usize,
            Depth: short.Depth as usize,
            Format: short.Format,
            NumChannels: short.NumChannels,
            Flags: short.Flags,
        },
    )
}

pub(crate) fn cuArrayGetDescriptor(_: &Call, out: *mut CUDA_ARRAY_DESCRIPTOR_v1, array: CUarray) -> Answer {
    let full = ARRAYS.get(array)?.descriptor()?;
    put(
        out,
        CUDA_ARRAY_DESCRIPTOR_v1 {
            Width: short(full.Width)?,
            Height: short(full.Height)?,
            Format: full.Format,
            NumChannels: full.NumChannels,
        },
    )
}

pub(crate) fn cuArray3DGetDescriptor(_: &Call, out: *mut CUDA_ARRAY3D_DESCRIPTOR_v1, array: CUarray) -> Answer {
    let full = ARRAYS.get(array)?.descriptor()?;
    put(
        out,
        CUDA_ARRAY3D_DESCRIPTOR_v1 {
            Width: short(full.Width)?,
            Height: short(full.Height)?,
            Depth: short(full.Depth)?,
            Format: full.Format,
            NumChannels: full.NumChannels,
            Flags: full.Flags,
        },
    )
}
