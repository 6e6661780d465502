//! Images as programs pass them: a bare pointer, whose length only the image itself tells.
#![allow(unsafe_code)]

use super::image::{self, Format, Image};
use super::{elf, fatbin};
use core::ffi::{CStr, c_void};
use driver_api::CUresult;
use std::sync::Arc;

/// Reads the image at `pointer`, or the one that a fatbinary's wrapper there points to.
pub(crate) fn read(pointer: *const c_void) -> Result<Arc<Image>, CUresult> {
    let image = find(pointer)?;
    image::parse(image).map(Arc::new).ok_or(CUresult::INVALID_IMAGE)
}

fn find<'a>(pointer: *const c_void) -> Result<&'a [u8], CUresult> {
    if pointer.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    // SAFETY: the caller of the exported function vouches for an image, of which each kind has four bytes:
    // magic numbers, or at least three letters and the end of the text.
    let magic = unsafe { core::slice::from_raw_parts(pointer.cast::<u8>(), 4) };
    if magic == fatbin::WRAPPER_MAGIC.to_le_bytes() {
        // SAFETY: a wrapper is two words of 32 bits and a pointer.
        let inner = unsafe { pointer.cast::<*const c_void>().add(1).read_unaligned() };
        // SAFETY: as above, for the fatbinary inside; a wrapper inside a wrapper is refused.
        let is_fatbin = !inner.is_null() && unsafe { inner.cast::<u32>().read_unaligned() } == fatbin::MAGIC;
        return if is_fatbin { find(inner) } else { Err(CUresult::INVALID_IMAGE) };
    }
    let part = |length: u64| {
        let length =
            usize::try_from(length).ok().filter(|length| *length <= MAX_BYTES).ok_or(CUresult::INVALID_IMAGE)?;
        // SAFETY: the image says itself that it is that long.
        Ok(unsafe { core::slice::from_raw_parts(pointer.cast::<u8>(), length) })
    };
    match Format::of(magic).ok_or(CUresult::INVALID_IMAGE)? {
        Format::Elf => {
            let header = part(elf::HEADER_BYTES)?;
            let table = part(elf::table_end(header).ok_or(CUresult::INVALID_IMAGE)?)?;
            part(elf::length(table).ok_or(CUresult::INVALID_IMAGE)?)
        }
        Format::Fatbin => {
            let header = part(fatbin::HEADER_BYTES)?;
            part(fatbin::length(header).ok_or(CUresult::INVALID_IMAGE)?)
        }
        // SAFETY: a text ends with a zero, which the API demands.
        Format::Ptx | Format::Fake => Ok(unsafe { CStr::from_ptr(pointer.cast()) }.to_bytes()),
    }
}

/// No image is longer; a length beyond it means that the pointer points to something else.
const MAX_BYTES: usize = 16 << 30;
