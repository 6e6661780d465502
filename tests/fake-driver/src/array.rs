//! Arrays and mipmapped arrays: opaque memory with a shape, which copies reach by coordinates.
//!
//! What an array takes of the device is `driver_api::layout`'s; here its elements lie in plain rows.

pub(crate) mod legacy;
pub(crate) mod mipmap;
pub(crate) mod sparse;

use crate::args::{Answer, get, put};
use crate::capture;
use crate::context::Context;
use crate::device::attributes;
use crate::entry::Call;
use crate::pages;
use crate::registry::Registry;
use crate::state::{self, Device};
use driver_api::layout::{ARRAY_DEFERRED_MAPPING, ARRAY_LAYERED, ARRAY_SPARSE, ArrayShape};
use driver_api::{
    ARRAY_FORMATS, CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUdevice,
    CUresult, ElementSize,
};
use std::sync::Arc;

/// Every `CUDA_ARRAY3D_*` flag.
const FLAGS_MASK: u32 = 0x1ff;
/// `CUDA_ARRAY3D_CUBEMAP`
const CUBEMAP: u32 = 0x04;

pub(crate) static ARRAYS: Registry<Array> = Registry::new();

/// One array, or one level of a mipmapped one.
pub(crate) struct Array {
    pub(crate) shape: ArrayShape,
    context: Arc<Context>,
    /// Where its elements are; 0 when it owns no memory.
    start: u64,
    room: u64,
    /// Bytes of a row, and rows of a slice: of blocks, for the compressed formats.
    pub(crate) row_bytes: u64,
    pub(crate) rows: u64,
    slices: u64,
    /// Bytes charged for it alone; the levels of a mipmapped array are charged together.
    charged: u64,
    /// True for a level, which ends with its array.
    is_level: bool,
    /// Memory that was mapped to it, for one that owns none.
    tiles: sparse::Tiles,
}

impl Drop for Array {
    fn drop(&mut self) {
        if self.room > 0 {
            pages::unreserve(self.start, self.room);
        }
        self.device().give(self.charged);
    }
}

impl Array {
    /// Takes memory for an array; a level of a mipmapped array is charged with the whole.
    fn new(context: &Arc<Context>, shape: ArrayShape, is_level: bool) -> Answer<Self> {
        let (row_bytes, rows) = rows_of(&shape).ok_or(CUresult::INVALID_VALUE)?;
        let slices = shape.depth.max(1);
        let charged = if is_level { 0 } else { shape.bytes().ok_or(CUresult::OUT_OF_MEMORY)? };
        context.device.take(charged)?;
        let mut array = Self {
            shape,
            context: Arc::clone(context),
            start: 0,
            room: 0,
            row_bytes,
            rows,
            slices,
            charged,
            is_level,
            tiles: sparse::Tiles::default(),
        };
        if shape.flags & (ARRAY_SPARSE | ARRAY_DEFERRED_MAPPING) == 0 {
            let bytes = row_bytes.checked_mul(rows).and_then(|slice| slice.checked_mul(slices));
            let room = bytes.and_then(|bytes| bytes.checked_next_multiple_of(pages::HOST_PAGE));
            let room = room.ok_or(CUresult::OUT_OF_MEMORY)?;
            array.start = pages::reserve(room, pages::HOST_PAGE, true).ok_or(CUresult::OUT_OF_MEMORY)?;
            array.room = room;
        }
        Ok(array)
    }

    fn device(&self) -> &'static Device {
        self.context.device
    }

    /// Where a box of bytes, rows and slices begins, if it is inside and there is memory.
    pub(crate) fn locate(&self, [x, y, z]: [u64; 3], [width, height, depth]: [u64; 3]) -> Answer<u64> {
        let inside = |start: u64, size: u64, most: u64| start.checked_add(size).is_some_and(|end| end <= most);
        let fits = inside(x, width, self.row_bytes) && inside(y, height, self.rows) && inside(z, depth, self.slices);
        if !fits || self.room == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(self.start + (z * self.rows + y) * self.row_bytes + x)
    }

    fn descriptor(&self) -> Answer<CUDA_ARRAY3D_DESCRIPTOR> {
        let size = |value: u64| usize::try_from(value).map_err(|_| CUresult::INVALID_VALUE);
        Ok(CUDA_ARRAY3D_DESCRIPTOR {
            Width: size(self.shape.width)?,
            Height: size(self.shape.height)?,
            Depth: size(self.shape.depth)?,
            Format: self.shape.format,
            NumChannels: self.shape.channels,
            Flags: self.shape.flags,
        })
    }
}

/// Bytes of a row and rows of a slice.
fn rows_of(shape: &ArrayShape) -> Option<(u64, u64)> {
    let format = ARRAY_FORMATS.iter().find(|format| format.value == shape.format)?;
    let height = shape.height.max(1);
    Some(match format.size {
        ElementSize::BytesPerChannel(bytes) => {
            (shape.width.checked_mul(u64::from(bytes) * u64::from(shape.channels))?, height)
        }
        ElementSize::BitsPerPixel(bits) => (shape.width.checked_mul(bits.into())?.div_ceil(8), height),
        ElementSize::BytesPerBlock(bytes) => (shape.width.div_ceil(4).checked_mul(bytes.into())?, height.div_ceil(4)),
    })
}

/// The shape that a descriptor asks for, if a device can have it.
pub(crate) fn shape_of(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, device: &Device) -> Answer<ArrayShape> {
    let shape = ArrayShape {
        width: descriptor.Width as u64,
        height: descriptor.Height as u64,
        depth: descriptor.Depth as u64,
        format: descriptor.Format,
        channels: descriptor.NumChannels,
        flags: descriptor.Flags,
    };
    let format = ARRAY_FORMATS.iter().find(|format| format.value == shape.format).ok_or(CUresult::INVALID_VALUE)?;
    let channels = match format.size {
        ElementSize::BytesPerChannel(_) => matches!(shape.channels, 1 | 2 | 4),
        _ => (1..=4).contains(&shape.channels),
    };
    let most = |attribute| attributes::value(device, attribute).map_or(0, |value| u64::try_from(value).unwrap_or(0));
    let layered = shape.flags & (ARRAY_LAYERED | CUBEMAP) != 0;
    // The limits of textures of one, two and three dimensions, and of layered ones.
    let fits = if layered {
        shape.width <= most(25) && shape.height <= most(26) && shape.depth <= most(27)
    } else if shape.depth > 0 {
        shape.width <= most(24) && shape.height <= most(24) && shape.depth <= most(24) && shape.height > 0
    } else if shape.height > 0 {
        shape.width <= most(22) && shape.height <= most(23)
    } else {
        shape.width <= most(21)
    };
    let cube = shape.flags & CUBEMAP == 0
        || shape.width == shape.height
            && shape.depth > 0
            && shape.depth.is_multiple_of(6)
            && (shape.flags & ARRAY_LAYERED != 0 || shape.depth == 6);
    if shape.width > 0 && shape.flags & !FLAGS_MASK == 0 && channels && fits && cube {
        Ok(shape)
    } else {
        Err(CUresult::INVALID_VALUE)
    }
}

fn create(out: *mut CUarray, descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Answer {
    let context = state::current()?;
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let shape = shape_of(descriptor, context.device)?;
    capture::forbid_unsafe_call()?;
    crate::vmm::reap();
    let array = Array::new(&context, shape, false)?;
    put(out, ARRAYS.insert(Arc::new(array)))
}

/// The descriptor of two dimensions in the form of three.
fn deepened(descriptor: CUDA_ARRAY_DESCRIPTOR) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: descriptor.Width,
        Height: descriptor.Height,
        Depth: 0,
        Format: descriptor.Format,
        NumChannels: descriptor.NumChannels,
        Flags: 0,
    }
}

pub(crate) fn cuArrayCreate_v2(_: &Call, out: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) -> Answer {
    create(out, &deepened(get(descriptor)?))
}

pub(crate) fn cuArray3DCreate_v2(_: &Call, out: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) -> Answer {
    create(out, &get(descriptor)?)
}

pub(crate) fn cuArrayDestroy(_: &Call, handle: CUarray) -> Answer {
    let array = ARRAYS.get(handle)?;
    if array.is_level {
        return Err(CUresult::INVALID_HANDLE);
    }
    capture::forbid_unsafe_call()?;
    array.context.streams.wait();
    ARRAYS.remove(handle).map(drop)
}

pub(crate) fn cuArrayGetDescriptor_v2(_: &Call, out: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray) -> Answer {
    let full = ARRAYS.get(array)?.descriptor()?;
    put(
        out,
        CUDA_ARRAY_DESCRIPTOR {
            Width: full.Width,
            Height: full.Height,
            Format: full.Format,
            NumChannels: full.NumChannels,
        },
    )
}

pub(crate) fn cuArray3DGetDescriptor_v2(_: &Call, out: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray) -> Answer {
    put(out, ARRAYS.get(array)?.descriptor()?)
}

/// For arrays that are mapped later; others are refused.
pub(crate) fn cuArrayGetMemoryRequirements(
    _: &Call,
    out: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    array: CUarray,
    device: CUdevice,
) -> Answer {
    state::device(device)?;
    requirements(out, &ARRAYS.get(array)?.shape, 1)
}

fn requirements(out: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, shape: &ArrayShape, levels: u32) -> Answer {
    if shape.flags & ARRAY_DEFERRED_MAPPING == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let mapped = ArrayShape { flags: shape.flags & !ARRAY_DEFERRED_MAPPING, ..*shape };
    let bytes = mapped.mipmap_bytes(levels).and_then(|bytes| usize::try_from(bytes).ok());
    let size = bytes.ok_or(CUresult::INVALID_VALUE)?;
    put(out, CUDA_ARRAY_MEMORY_REQUIREMENTS { size, alignment: 64 << 10, reserved: [0; 4] })
}

/// Frees the arrays that a context leaves behind.
pub(crate) fn context_closes(context: &Arc<Context>) {
    drop(ARRAYS.remove_all(|array| array.context.id == context.id));
    mipmap::context_closes(context);
}
