//! Mipmapped arrays: a chain of arrays, each half the size of the one before.

use super::{ARRAYS, Array, requirements, shape_of};
use crate::args::{Answer, get, put};
use crate::capture;
use crate::context::Context;
use crate::entry::Call;
use crate::registry::{Registry, pointer};
use crate::state;
use driver_api::layout::{ARRAY_LAYERED, ArrayShape};
use driver_api::{
    CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUdevice, CUmipmappedArray, CUresult,
};
use std::sync::Arc;

static MIPMAPS: Registry<Mipmap> = Registry::new();

struct Mipmap {
    shape: ArrayShape,
    context: Arc<Context>,
    /// Handles of the levels.
    levels: Vec<usize>,
    charged: u64,
}

impl Drop for Mipmap {
    fn drop(&mut self) {
        for &level in &self.levels {
            drop(ARRAYS.remove(pointer(level)));
        }
        self.context.device.give(self.charged);
    }
}

fn level_shape(shape: &ArrayShape, level: u32) -> ArrayShape {
    let shrink = |size: u64| if size == 0 { 0 } else { (size >> level).max(1) };
    let depth = if shape.flags & ARRAY_LAYERED != 0 { shape.depth } else { shrink(shape.depth) };
    ArrayShape { width: shrink(shape.width), height: shrink(shape.height), depth, ..*shape }
}

pub(crate) fn cuMipmappedArrayCreate(
    _: &Call,
    out: *mut CUmipmappedArray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: u32,
) -> Answer {
    let context = state::current()?;
    if out.is_null() || levels == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let shape = shape_of(&get(descriptor)?, context.device)?;
    let depth = if shape.flags & ARRAY_LAYERED != 0 { 0 } else { shape.depth };
    let levels = levels.min(shape.width.max(shape.height).max(depth).ilog2() + 1);
    capture::forbid_unsafe_call()?;
    let charged = shape.mipmap_bytes(levels).ok_or(CUresult::OUT_OF_MEMORY)?;
    context.device.take(charged)?;
    let mut mipmap = Mipmap { shape, context: Arc::clone(&context), levels: Vec::new(), charged };
    for level in 0..levels {
        let array = Array::new(&context, level_shape(&shape, level), true)?;
        mipmap.levels.push(ARRAYS.insert(Arc::new(array)).addr());
    }
    put(out, MIPMAPS.insert(Arc::new(mipmap)))
}

pub(crate) fn cuMipmappedArrayGetLevel(_: &Call, out: *mut CUarray, mipmap: CUmipmappedArray, level: u32) -> Answer {
    let mipmap = MIPMAPS.get(mipmap)?;
    let level = mipmap.levels.get(level as usize).ok_or(CUresult::INVALID_VALUE)?;
    put(out, pointer(*level))
}

pub(crate) fn cuMipmappedArrayDestroy(_: &Call, handle: CUmipmappedArray) -> Answer {
    let mipmap = MIPMAPS.get(handle)?;
    capture::forbid_unsafe_call()?;
    mipmap.context.streams.wait();
    MIPMAPS.remove(handle).map(drop)
}

pub(crate) fn cuMipmappedArrayGetMemoryRequirements(
    _: &Call,
    out: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    mipmap: CUmipmappedArray,
    device: CUdevice,
) -> Answer {
    state::device(device)?;
    let mipmap = MIPMAPS.get(mipmap)?;
    requirements(out, &mipmap.shape, u32::try_from(mipmap.levels.len()).unwrap_or(1))
}

/// True when the handle is a mipmapped array's.
pub(crate) fn is_mipmap(handle: CUmipmappedArray) -> bool {
    MIPMAPS.get(handle).is_ok()
}

pub(super) fn context_closes(context: &Arc<Context>) {
    drop(MIPMAPS.remove_all(|mipmap| mipmap.context.id == context.id));
}
