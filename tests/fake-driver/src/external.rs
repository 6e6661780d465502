//! Memory of another API (Vulkan, say), imported by a descriptor and mapped as buffers and arrays.
//!
//! There is no such API here: any file that can be mapped stands for its memory, such as one from
//! `memfd_create`. It counts as device memory from its import to the end of its last buffer.

use crate::args::{Answer, get, put};
use crate::array::mipmap;
use crate::capture;
use crate::context::Context;
use crate::entry::Call;
use crate::memory::{self, Kind};
use crate::pages;
use crate::registry::Registry;
use crate::state;
use driver_api::layout::{DEVICE_PAGE, round_up};
use driver_api::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    CUdeviceptr, CUexternalMemory, CUmipmappedArray, CUresult,
};
use std::fs::File;
use std::sync::Arc;

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_*`: a descriptor, the first; the last that there is.
const OPAQUE_DESCRIPTOR: i32 = 1;
const TYPE_MAX: i32 = 9;
/// `CUDA_EXTERNAL_MEMORY_DEDICATED`
const DEDICATED: u32 = 1;

static IMPORTED: Registry<External> = Registry::new();

/// Imported memory.
pub(crate) struct External {
    file: File,
    pub(crate) size: u64,
    pub(crate) context: Arc<Context>,
    charged: u64,
}

impl Drop for External {
    fn drop(&mut self) {
        self.context.device.give(self.charged);
    }
}

/// A part of it that is mapped.
pub(crate) struct Buffer {
    mapped: u64,
    bytes: u64,
    /// Keeps the memory.
    _external: Arc<External>,
}

impl Buffer {
    /// Ends the mapping, with the block.
    pub(crate) fn unmap(&self) {
        pages::unreserve(self.mapped, self.bytes);
    }
}

/// On success the descriptor is the driver's.
pub(crate) fn cuImportExternalMemory(
    _: &Call,
    out: *mut CUexternalMemory,
    description: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
) -> Answer {
    let context = state::current()?;
    let description = get(description)?;
    if out.is_null() || description.size == 0 || description.flags & !DEDICATED != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    match description.r#type {
        OPAQUE_DESCRIPTOR => {}
        2..=TYPE_MAX => return Err(CUresult::NOT_SUPPORTED),
        _ => return Err(CUresult::INVALID_VALUE),
    }
    capture::forbid_unsafe_call()?;
    let descriptor = i32::try_from(description.handle[0] & u64::from(u32::MAX)).map_err(|_| CUresult::INVALID_VALUE)?;
    let file = pages::duplicate(descriptor).map_err(|_| CUresult::INVALID_VALUE)?;
    let length = file.metadata().map_err(|_| CUresult::INVALID_VALUE)?.len();
    if length < description.size {
        return Err(CUresult::INVALID_VALUE);
    }
    let charged = round_up(description.size, DEVICE_PAGE).ok_or(CUresult::OUT_OF_MEMORY)?;
    crate::vmm::reap();
    context.device.take(charged)?;
    let external = External { file, size: description.size, context, charged };
    pages::close(descriptor);
    put(out, IMPORTED.insert(Arc::new(external)))
}

/// A buffer, which `cuMemFree` ends.
pub(crate) fn cuExternalMemoryGetMappedBuffer(
    _: &Call,
    out: *mut CUdeviceptr,
    external: CUexternalMemory,
    description: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
) -> Answer {
    let external = IMPORTED.get(external)?;
    let CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset, size, flags, .. } = get(description)?;
    let inside = offset.checked_add(size).is_some_and(|end| end <= external.size);
    if out.is_null() || size == 0 || !inside || flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let skipped = offset % pages::HOST_PAGE;
    let bytes = (skipped + size).next_multiple_of(pages::HOST_PAGE);
    let mapped = pages::reserve(bytes, pages::HOST_PAGE, false).ok_or(CUresult::OUT_OF_MEMORY)?;
    let context = Arc::clone(&external.context);
    let is_mapped = pages::map_file(mapped, bytes, &external.file, offset - skipped, true);
    let buffer = Buffer { mapped, bytes, _external: external };
    if !is_mapped {
        buffer.unmap();
        return Err(CUresult::MAP_FAILED);
    }
    memory::adopt(mapped + skipped, size, Kind::External(Arc::new(buffer)), Some(&context), context.device);
    put(out, mapped + skipped)
}

/// A mipmapped array, which `cuMipmappedArrayDestroy` ends.
pub(crate) fn cuExternalMemoryGetMappedMipmappedArray(
    _: &Call,
    out: *mut CUmipmappedArray,
    external: CUexternalMemory,
    description: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
) -> Answer {
    let external = IMPORTED.get(external)?;
    let description = get(description)?;
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, mipmap::map_external(&external, &description)?)
}

/// Buffers and arrays that are still mapped keep the memory.
pub(crate) fn cuDestroyExternalMemory(_: &Call, external: CUexternalMemory) -> Answer {
    IMPORTED.remove(external).map(drop)
}

/// Ends what a context leaves behind.
pub(crate) fn context_closes(context: &Context) {
    drop(IMPORTED.remove_all(|external| external.context.id == context.id));
}
