//! How much device memory the driver takes for what it is asked: facts, no policy.
//!
//! Sources: the list's `granularity` and `charge` entries (public reports and documentation; not yet
//! measured on a device by this project).

use crate::{ARRAY_FORMATS, ElementSize};
use core::ffi::c_int;

/// Size of a page of device memory on Pascal and later.
pub const DEVICE_PAGE: u64 = 2 << 20;
/// Blocks up to this size share pages; larger ones take whole pages.
pub const SMALL_BLOCK_MAX: u64 = 1 << 20;
/// Blocks are multiples of this.
pub const BLOCK_UNIT: u64 = 512;
/// A memory pool grows by multiples of this.
pub const POOL_GROWTH: u64 = 32 << 20;
/// `CUDA_ARRAY3D_SPARSE`: the array owns no memory.
pub const ARRAY_SPARSE: u32 = 0x40;
/// `CUDA_ARRAY3D_DEFERRED_MAPPING`: the array owns no memory.
pub const ARRAY_DEFERRED_MAPPING: u32 = 0x80;
/// `CUDA_ARRAY3D_LAYERED`: the depth counts layers, which mipmapping does not halve.
pub const ARRAY_LAYERED: u32 = 0x01;

/// The next multiple of `unit`, or `None` beyond 2^64.
pub fn round_up(bytes: u64, unit: u64) -> Option<u64> {
    bytes.div_ceil(unit).checked_mul(unit)
}

/// What a block of linear memory takes: its size in units for a small block, whole pages for a large one.
pub fn block_bytes(bytes: u64) -> Option<u64> {
    round_up(bytes, if bytes <= SMALL_BLOCK_MAX { BLOCK_UNIT } else { DEVICE_PAGE })
}

/// What a block taken alone (array, managed memory) adds to the device.
pub fn lone_block_bytes(bytes: u64) -> Option<u64> {
    block_bytes(bytes)
}

/// Dimensions, format and flags of an array, whichever descriptor they came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayShape {
    /// Width in elements.
    pub width: u64,
    /// Height in elements; 0 for one dimension.
    pub height: u64,
    /// Depth in elements or layers; 0 for up to two dimensions.
    pub depth: u64,
    /// `CUarray_format`.
    pub format: c_int,
    /// Channels of an element.
    pub channels: u32,
    /// `CUDA_ARRAY3D_*`.
    pub flags: u32,
}

impl ArrayShape {
    /// Device memory of the array; `None` for an unknown format or a size beyond 2^64.
    pub fn bytes(&self) -> Option<u64> {
        if self.flags & (ARRAY_SPARSE | ARRAY_DEFERRED_MAPPING) != 0 {
            return Some(0);
        }
        block_bytes(self.raw_bytes()?)
    }

    /// Bytes of the elements, before the driver rounds.
    pub fn raw_bytes(&self) -> Option<u64> {
        let format = ARRAY_FORMATS.iter().find(|format| format.value == self.format)?;
        let (height, depth) = (self.height.max(1), self.depth.max(1));
        let plane = match format.size {
            ElementSize::BytesPerChannel(bytes) => {
                self.width.checked_mul(height)?.checked_mul(u64::from(bytes))?.checked_mul(u64::from(self.channels))?
            }
            ElementSize::BitsPerPixel(bits) => {
                self.width.checked_mul(height)?.checked_mul(u64::from(bits))?.div_ceil(8)
            }
            ElementSize::BytesPerBlock(bytes) => {
                self.width.div_ceil(4).checked_mul(height.div_ceil(4))?.checked_mul(u64::from(bytes))?
            }
        };
        plane.checked_mul(depth)
    }

    /// Levels that a mipmap of this shape has when `levels` are asked for: the last one is a single element.
    pub fn levels(&self, levels: u32) -> u32 {
        let depth = if self.flags & ARRAY_LAYERED != 0 { 1 } else { self.depth };
        let largest = self.width.max(self.height).max(depth).max(1);
        levels.min(u64::BITS - largest.leading_zeros())
    }

    /// Device memory of `levels` mipmap levels of the array.
    pub fn mipmap_bytes(&self, levels: u32) -> Option<u64> {
        if self.flags & (ARRAY_SPARSE | ARRAY_DEFERRED_MAPPING) != 0 {
            return Some(0);
        }
        let mut total = 0u64;
        for level in 0..self.levels(levels) {
            let shrink = |dim: u64| if dim == 0 { 0 } else { (dim >> level).max(1) };
            let depth = if self.flags & ARRAY_LAYERED != 0 { self.depth } else { shrink(self.depth) };
            let shape = Self { width: shrink(self.width), height: shrink(self.height), depth, ..*self };
            total = total.checked_add(shape.raw_bytes()?)?;
        }
        block_bytes(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUARE: ArrayShape = ArrayShape { width: 1000, height: 1000, depth: 0, format: 32, channels: 4, flags: 0 };

    #[test]
    fn a_mipmap_ends_at_one_element() {
        let small = ArrayShape { width: 22, height: 19, depth: 9, ..SQUARE };
        assert_eq!((small.levels(8), small.levels(3), small.levels(0)), (5, 3, 0));
        assert_eq!(small.mipmap_bytes(8), small.mipmap_bytes(5));
        let layered = ArrayShape { depth: 4096, flags: ARRAY_LAYERED, ..small };
        assert_eq!(layered.levels(32), 5, "layers don't shrink");
        assert_eq!(ArrayShape { depth: 4096, ..small }.levels(32), 13);
    }

    #[test]
    fn an_array_takes_whole_pages() {
        assert_eq!(SQUARE.raw_bytes(), Some(16_000_000));
        assert_eq!(SQUARE.bytes(), Some(8 * DEVICE_PAGE));
    }

    #[test]
    fn compressed_formats_count_blocks() {
        let bc1 = ArrayShape { width: 5, height: 5, format: 145, ..SQUARE };
        assert_eq!(bc1.raw_bytes(), Some(4 * 8));
    }

    #[test]
    fn sparse_and_deferred_arrays_own_nothing() {
        assert_eq!(ArrayShape { flags: ARRAY_SPARSE, ..SQUARE }.bytes(), Some(0));
        assert_eq!(ArrayShape { flags: ARRAY_DEFERRED_MAPPING, ..SQUARE }.mipmap_bytes(4), Some(0));
    }

    #[test]
    fn mipmaps_add_up_and_layers_are_not_halved() {
        let one = ArrayShape { width: 4, height: 4, depth: 2, format: 32, channels: 1, flags: ARRAY_LAYERED };
        // (16 + 4 + 1) elements of 4 bytes, twice.
        assert_eq!(one.mipmap_bytes(3), Some(512));
        assert_eq!(ArrayShape { width: u64::MAX, ..SQUARE }.bytes(), None);
    }
}
