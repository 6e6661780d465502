//! Mipmapped arrays: a chain of arrays, each half the size of the one before.

use super::{ARRAYS, Array, requirements, shape_of, sparse};
use crate::args::{Answer, get, put};
use crate::capture;
use crate::context::Context;
use crate::entry::Call;
use crate::external::External;
use crate::registry::{Registry, pointer};
use crate::state;
use driver_api::layout::{ARRAY_DEFERRED_MAPPING, ARRAY_LAYERED, ARRAY_SPARSE, ArrayShape};
use driver_api::{
    CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DESCRIPTOR, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUarray,
    CUdevice, CUmipmappedArray, CUresult,
};
use std::sync::Arc;

pub(super) static MIPMAPS: Registry<Mipmap> = Registry::new();

/// One mipmapped array.
pub(super) struct Mipmap {
    pub(super) shape: ArrayShape,
    pub(super) context: Arc<Context>,
    /// Handles of the levels.
    levels: Vec<usize>,
    charged: u64,
    /// Memory that was mapped to it, for one that owns none.
    pub(super) tiles: sparse::Tiles,
    /// Memory of another API that it lies in.
    _external: Option<Arc<External>>,
}

impl Mipmap {
    /// Makes the levels; what they take is charged by the caller and given back with the array.
    fn new(
        context: &Arc<Context>,
        shape: ArrayShape,
        levels: u32,
        charged: u64,
        external: Option<Arc<External>>,
    ) -> Answer<Self> {
        let tiles = sparse::Tiles::default();
        let context = Arc::clone(context);
        let mut mipmap = Self { shape, context, levels: Vec::new(), charged, tiles, _external: external };
        for level in 0..levels {
            let array = Array::new(&mipmap.context, level_shape(&shape, level), true)?;
            mipmap.levels.push(ARRAYS.insert(Arc::new(array)).addr());
        }
        Ok(mipmap)
    }

    /// How many levels it has.
    pub(super) fn level_count(&self) -> u32 {
        u32::try_from(self.levels.len()).unwrap_or(1)
    }
}

impl Drop for Mipmap {
    fn drop(&mut self) {
        for &level in &self.levels {
            drop(ARRAYS.remove(pointer(level)));
        }
        self.context.device.give(self.charged);
    }
}

/// The shape of a level.
pub(super) fn level_shape(shape: &ArrayShape, level: u32) -> ArrayShape {
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
    let levels = levels.min(levels_max(&shape));
    capture::forbid_unsafe_call()?;
    let charged = shape.mipmap_bytes(levels).ok_or(CUresult::OUT_OF_MEMORY)?;
    context.device.take(charged)?;
    put(out, MIPMAPS.insert(Arc::new(Mipmap::new(&context, shape, levels, charged, None)?)))
}

/// Levels down to a single element.
fn levels_max(shape: &ArrayShape) -> u32 {
    let depth = if shape.flags & ARRAY_LAYERED != 0 { 0 } else { shape.depth };
    shape.width.max(shape.height).max(depth).ilog2() + 1
}

/// One that lies in memory of another API, which is charged for it. Its elements have a place of their own here:
/// how the other API lays them out is known to nobody.
pub(crate) fn map_external(
    external: &Arc<External>,
    description: &CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
) -> Answer<CUmipmappedArray> {
    let shape = shape_of(&description.arrayDesc, external.context.device)?;
    let levels = description.numLevels;
    if levels == 0 || levels > levels_max(&shape) || shape.flags & (ARRAY_SPARSE | ARRAY_DEFERRED_MAPPING) != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut sizes = (0..levels).map(|level| level_shape(&shape, level).raw_bytes());
    let bytes = sizes.try_fold(0u64, |sum, size| sum.checked_add(size?));
    let end = bytes.and_then(|bytes| description.offset.checked_add(bytes));
    if end.is_none_or(|end| end > external.size) {
        return Err(CUresult::INVALID_VALUE);
    }
    let mipmap = Mipmap::new(&external.context, shape, levels, 0, Some(Arc::clone(external)))?;
    Ok(MIPMAPS.insert(Arc::new(mipmap)))
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
    requirements(out, &mipmap.shape, mipmap.level_count())
}

/// True when the handle is a mipmapped array's.
pub(crate) fn is_mipmap(handle: CUmipmappedArray) -> bool {
    MIPMAPS.get(handle).is_ok()
}

pub(super) fn context_closes(context: &Arc<Context>) {
    drop(MIPMAPS.remove_all(|mipmap| mipmap.context.id == context.id));
}
