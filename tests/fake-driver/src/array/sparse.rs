//! Sparse arrays, which own no memory: tiles of memory from `cuMemCreate` are mapped into them.
//!
//! Tiles have 64 KiB. Only who holds which memory is kept here: elements of such an array can't be read or
//! written. An array with deferred mapping is mapped as a whole.

use super::mipmap::{MIPMAPS, Mipmap, level_shape};
use super::{ARRAYS, Array};
use crate::args::{Answer, put, slice};
use crate::capture;
use crate::context::Context;
use crate::entry::Call;
use crate::state::{Device, driver};
use crate::stream::resolve;
use crate::vmm::{self, Physical};
use driver_api::layout::{ARRAY_DEFERRED_MAPPING, ARRAY_LAYERED, ARRAY_SPARSE, ArrayShape, round_up};
use driver_api::{
    ARRAY_FORMATS, CUDA_ARRAY_SPARSE_PROPERTIES, CUarray, CUarrayMapInfo, CUmipmappedArray, CUresult, CUstream,
    ElementSize,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

const TILE_BYTES: u64 = 64 << 10;
/// Tiles of elements with 1, 2, 4, 8 and 16 bytes, in two dimensions and in three.
const FLAT: [[u64; 3]; 5] = [[256, 256, 1], [256, 128, 1], [128, 128, 1], [128, 64, 1], [64, 64, 1]];
const DEEP: [[u64; 3]; 5] = [[64, 32, 32], [32, 32, 32], [32, 32, 16], [32, 16, 16], [16, 16, 16]];

/// A part of an array that memory can be mapped to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// All of it, for deferred mapping.
    Whole,
    /// A tile of a level, counted in tiles.
    Tile { level: u32, layer: u32, place: [u64; 3] },
    /// A tile's worth of the levels that are smaller than a tile.
    Tail { layer: u32, at: u64 },
}

/// What of an array has memory, and which.
#[derive(Default)]
pub(crate) struct Tiles(Mutex<BTreeMap<Part, Arc<Physical>>>);

/// An array or a mipmapped array that has no memory of its own.
enum Resource {
    Array(Arc<Array>),
    Mipmap(Arc<Mipmap>),
}

impl Resource {
    /// The one that an operation names.
    fn of(info: &CUarrayMapInfo) -> Answer<Self> {
        const ARRAY: i32 = 0;
        const MIPMAPPED_ARRAY: i32 = 1;
        let resource = match info.resourceType {
            ARRAY => Self::Array(ARRAYS.get(info.resource)?),
            MIPMAPPED_ARRAY => Self::Mipmap(MIPMAPS.get(info.resource)?),
            _ => return Err(CUresult::INVALID_VALUE),
        };
        let is_level = matches!(&resource, Self::Array(array) if array.is_level);
        let is_mapped_later = resource.shape().flags & (ARRAY_SPARSE | ARRAY_DEFERRED_MAPPING) != 0;
        if is_level || !is_mapped_later { Err(CUresult::INVALID_VALUE) } else { Ok(resource) }
    }

    fn shape(&self) -> &ArrayShape {
        match self {
            Self::Array(array) => &array.shape,
            Self::Mipmap(mipmap) => &mipmap.shape,
        }
    }

    fn context(&self) -> &Context {
        match self {
            Self::Array(array) => &array.context,
            Self::Mipmap(mipmap) => &mipmap.context,
        }
    }

    fn tiles(&self) -> &Tiles {
        match self {
            Self::Array(array) => &array.tiles,
            Self::Mipmap(mipmap) => &mipmap.tiles,
        }
    }

    fn levels(&self) -> u32 {
        match self {
            Self::Array(_) => 1,
            Self::Mipmap(mipmap) => mipmap.level_count(),
        }
    }

    fn layout(&self) -> Answer<Layout> {
        Layout::new(self.shape(), matches!(self, Self::Mipmap(_)).then(|| self.levels()))
    }
}

fn is_layered(shape: &ArrayShape) -> bool {
    shape.flags & ARRAY_LAYERED != 0
}

/// How an array is made of tiles.
struct Layout {
    tile: [u64; 3],
    /// The first level of the tail, and the tail's bytes a layer.
    tail_level: u32,
    tail_bytes: u64,
}

impl Layout {
    /// Of an array, or a mipmapped one of so many levels. Arrays of one dimension and of planes have no tiles.
    fn new(shape: &ArrayShape, levels: Option<u32>) -> Answer<Self> {
        let format = ARRAY_FORMATS.iter().find(|format| format.value == shape.format).ok_or(CUresult::INVALID_VALUE)?;
        let (bytes, pixels) = match format.size {
            ElementSize::BytesPerChannel(bytes) => (u64::from(bytes) * u64::from(shape.channels), 1),
            ElementSize::BytesPerBlock(bytes) => (bytes.into(), 4),
            ElementSize::BitsPerPixel(_) => return Err(CUresult::INVALID_VALUE),
        };
        let row = if is_layered(shape) || shape.depth == 0 { &FLAT } else { &DEEP };
        if shape.height == 0 || !bytes.is_power_of_two() || bytes > 16 {
            return Err(CUresult::INVALID_VALUE);
        }
        let [width, height, depth] = row[bytes.ilog2() as usize];
        let mut layout = Self { tile: [width * pixels, height * pixels, depth], tail_level: 0, tail_bytes: 0 };
        if let Some(levels) = levels {
            let is_small = |level: &u32| {
                let size = layout.size(shape, *level);
                size.iter().zip(layout.tile).any(|(size, tile)| *size < tile)
            };
            layout.tail_level = (0..levels).find(is_small).unwrap_or(levels);
            let one_layer = |level| {
                let level = level_shape(shape, level);
                if is_layered(shape) { ArrayShape { depth: 0, ..level } } else { level }
            };
            let tail = (layout.tail_level..levels).filter_map(|level| one_layer(level).raw_bytes()).sum();
            layout.tail_bytes = round_up(tail, TILE_BYTES).ok_or(CUresult::INVALID_VALUE)?;
        }
        Ok(layout)
    }

    /// Elements of a level along each axis.
    fn size(&self, shape: &ArrayShape, level: u32) -> [u64; 3] {
        let level = level_shape(shape, level);
        let depth = if is_layered(shape) { 1 } else { level.depth.max(1) };
        [level.width, level.height, depth]
    }

    fn properties(&self) -> CUDA_ARRAY_SPARSE_PROPERTIES {
        let [tile_width, tile_height, tile_depth] = self.tile.map(|side| u32::try_from(side).unwrap_or(u32::MAX));
        CUDA_ARRAY_SPARSE_PROPERTIES {
            tileWidth: tile_width,
            tileHeight: tile_height,
            tileDepth: tile_depth,
            miptailFirstLevel: self.tail_level,
            miptailSize: self.tail_bytes,
            flags: 0,
            reserved: [0; 4],
        }
    }
}

/// The parts that an operation names.
fn parts(info: &CUarrayMapInfo, resource: &Resource) -> Answer<Vec<Part>> {
    const TILES: i32 = 0;
    const TAIL: i32 = 1;
    let shape = resource.shape();
    if shape.flags & ARRAY_DEFERRED_MAPPING != 0 {
        return Ok(vec![Part::Whole]);
    }
    let layout = resource.layout()?;
    let layers = if is_layered(shape) { shape.depth } else { 1 };
    match info.subresourceType {
        TILES => level_parts(info, resource, &layout, layers),
        TAIL => {
            let (layer, at, bytes) = (halves(info.subresource[0])[0], info.subresource[1], info.subresource[2]);
            let whole = at.is_multiple_of(TILE_BYTES) && bytes.is_multiple_of(TILE_BYTES) && bytes > 0;
            let inside = at.checked_add(bytes).is_some_and(|end| end <= layout.tail_bytes);
            if !whole || !inside || u64::from(layer) >= layers {
                return Err(CUresult::INVALID_VALUE);
            }
            Ok((at / TILE_BYTES..(at + bytes) / TILE_BYTES).map(|at| Part::Tail { layer, at }).collect())
        }
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// The two numbers of a word of the union.
fn halves(word: u64) -> [u32; 2] {
    #[allow(clippy::cast_possible_truncation)] // Halves are meant.
    [word as u32, (word >> 32) as u32]
}

/// Tiles of a level: whole ones, or what the edge of the level leaves of one.
fn level_parts(info: &CUarrayMapInfo, resource: &Resource, layout: &Layout, layers: u64) -> Answer<Vec<Part>> {
    let [[level, layer], [x, y], [z, width], [height, depth]] = info.subresource.map(halves);
    let tail = if matches!(resource, Resource::Mipmap(_)) { layout.tail_level } else { 1 };
    if level >= tail || u64::from(layer) >= layers {
        return Err(CUresult::INVALID_VALUE);
    }
    let size = layout.size(resource.shape(), level);
    let (start, extent) = ([x, y, z].map(u64::from), [width, height, depth].map(u64::from));
    let mut ranges = [0..0, 0..0, 0..0];
    for axis in 0..3 {
        let (tile, end) = (layout.tile[axis], start[axis] + extent[axis]);
        let is_whole = start[axis].is_multiple_of(tile) && (end.is_multiple_of(tile) || end == size[axis]);
        if extent[axis] == 0 || end > size[axis] || !is_whole {
            return Err(CUresult::INVALID_VALUE);
        }
        ranges[axis] = start[axis] / tile..end.div_ceil(tile);
    }
    let [columns, rows, slices] = ranges;
    let mut parts = Vec::new();
    for slice in slices {
        for row in rows.clone() {
            parts.extend(columns.clone().map(|column| Part::Tile { level, layer, place: [column, row, slice] }));
        }
    }
    Ok(parts)
}

/// What an operation is to change.
struct Change {
    resource: Resource,
    parts: Vec<Part>,
    memory: Option<Arc<Physical>>,
}

impl Change {
    fn new(info: &CUarrayMapInfo, device: &Device) -> Answer<Self> {
        const MAP: i32 = 1;
        const UNMAP: i32 = 2;
        let resource = Resource::of(info)?;
        let is_here = resource.context().device.physical == device.physical;
        let is_only_device = info.deviceBitMask == 1 << device.ordinal;
        if !is_here || !is_only_device || info.flags != 0 || info.reserved != [0; 2] {
            return Err(CUresult::INVALID_VALUE);
        }
        let parts = parts(info, &resource)?;
        let memory = match (info.memOperationType, info.memHandle) {
            (MAP, 0) | (UNMAP, 0) => None,
            (MAP, handle) if info.memHandleType == 0 => Some(vmm::find(handle)?),
            _ => return Err(CUresult::INVALID_VALUE),
        };
        if let Some(memory) = &memory {
            check_memory(memory, info.offset, &resource, &parts, device)?;
        }
        Ok(Self { resource, parts, memory })
    }

    fn carry_out(&self) {
        let mut dropped = Vec::new();
        let mut tiles = self.resource.tiles().0.lock();
        for part in &self.parts {
            dropped.extend(match &self.memory {
                Some(memory) => tiles.insert(*part, Arc::clone(memory)),
                None => tiles.remove(part),
            });
        }
        // Memory that ends here is given back, which is not for the lock.
        drop(tiles);
        drop(dropped);
    }
}

/// Fails for memory that is too small, elsewhere, or for sparse arrays not made for tiles.
fn check_memory(memory: &Physical, offset: u64, resource: &Resource, parts: &[Part], device: &Device) -> Answer {
    let shape = resource.shape();
    let is_deferred = shape.flags & ARRAY_DEFERRED_MAPPING != 0;
    let on = if is_deferred { memory.device() } else { memory.tile_pool() };
    let bytes = if is_deferred {
        let mapped = ArrayShape { flags: shape.flags & !ARRAY_DEFERRED_MAPPING, ..*shape };
        mapped.mipmap_bytes(resource.levels()).and_then(|bytes| round_up(bytes, TILE_BYTES))
    } else {
        (parts.len() as u64).checked_mul(TILE_BYTES)
    };
    let end = bytes.and_then(|bytes| offset.checked_add(bytes));
    let fits = offset.is_multiple_of(TILE_BYTES) && end.is_some_and(|end| end <= memory.size);
    let is_here = on.is_some_and(|on| on.physical == device.physical);
    if fits && is_here { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

/// All operations are checked before the first is carried out, in the stream's order.
pub(crate) fn cuMemMapArrayAsync(call: &Call, list: *mut CUarrayMapInfo, count: u32, stream: CUstream) -> Answer {
    let infos = slice(list.cast_const(), count as usize)?;
    let stream = resolve(call, stream)?;
    capture::forbid_on(&stream)?;
    let device = driver().devices().iter().find(|device| device.physical == stream.queue.device);
    let device = device.ok_or(CUresult::INVALID_DEVICE)?;
    let changes: Vec<Change> = infos.iter().map(|info| Change::new(info, device)).collect::<Answer<_>>()?;
    stream.run(move || changes.iter().for_each(Change::carry_out));
    Ok(())
}

/// Arrays by themselves have no tail.
pub(crate) fn cuArrayGetSparseProperties(_: &Call, out: *mut CUDA_ARRAY_SPARSE_PROPERTIES, array: CUarray) -> Answer {
    let array = ARRAYS.get(array)?;
    if array.is_level || array.shape.flags & ARRAY_SPARSE == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, Layout::new(&array.shape, None)?.properties())
}

pub(crate) fn cuMipmappedArrayGetSparseProperties(
    _: &Call,
    out: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
    mipmap: CUmipmappedArray,
) -> Answer {
    let mipmap = MIPMAPS.get(mipmap)?;
    if mipmap.shape.flags & ARRAY_SPARSE == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, Layout::new(&mipmap.shape, Some(mipmap.level_count()))?.properties())
}
