//! Pinned host memory: ours, and the program's own that it registers.

use crate::args::{Answer, put};
use crate::capture;
use crate::entry::Call;
use crate::memory::{self, Block, Kind, Placement, legacy::short};
use crate::state;
use core::ffi::c_void;
use driver_api::{CUdeviceptr, CUdeviceptr_v1, CUresult};

/// `CU_MEMHOSTALLOC_*` and `CU_MEMHOSTREGISTER_*`: portable, device-mapped, and the third of each.
const ALLOC_FLAGS_MASK: u32 = 0x7;
const REGISTER_FLAGS_MASK: u32 = 0xf;
/// What `cuMemAllocHost` stands for.
const DEVICE_MAPPED: u32 = 0x2;
/// `CU_MEMHOSTREGISTER_IOMEMORY`: there is no such memory here.
const IO_MEMORY: u32 = 0x4;

fn allocate(out: *mut *mut c_void, size: u64, flags: u32) -> Answer {
    let context = state::current()?;
    if out.is_null() || size == 0 || flags & !ALLOC_FLAGS_MASK != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    capture::forbid_unsafe_call()?;
    let address = memory::allocate(&context, size, Kind::Host(flags), Placement::Any)?;
    put(out, state::handle(usize::try_from(address).map_err(|_| CUresult::OUT_OF_MEMORY)?))
}

pub(crate) fn cuMemHostAlloc(_: &Call, out: *mut *mut c_void, size: usize, flags: u32) -> Answer {
    allocate(out, size as u64, flags)
}

pub(crate) fn cuMemAllocHost_v2(_: &Call, out: *mut *mut c_void, size: usize) -> Answer {
    allocate(out, size as u64, DEVICE_MAPPED)
}

pub(crate) fn cuMemAllocHost(_: &Call, out: *mut *mut c_void, size: u32) -> Answer {
    allocate(out, size.into(), DEVICE_MAPPED)
}

pub(crate) fn cuMemFreeHost(_: &Call, pointer: *mut c_void) -> Answer {
    if pointer.is_null() {
        return Ok(());
    }
    let address = pointer.addr() as u64;
    let is_ours = |block: &Block| matches!(block.kind, Kind::Host(_));
    let found = memory::find(address).filter(|(start, block)| *start == address && is_ours(block));
    let (_, block) = found.ok_or(CUresult::INVALID_VALUE)?;
    capture::forbid_unsafe_call()?;
    if let Some(context) = &block.context {
        context.streams.wait();
    }
    memory::remove(address, is_ours).map(drop).ok_or(CUresult::INVALID_VALUE)
}

fn register(pointer: *mut c_void, size: u64, flags: u32) -> Answer {
    let context = state::current()?;
    if pointer.is_null() || size == 0 || flags & !REGISTER_FLAGS_MASK != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    if flags & IO_MEMORY != 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    capture::forbid_unsafe_call()?;
    let address = pointer.addr() as u64;
    if memory::overlaps(address, size) {
        return Err(CUresult::HOST_MEMORY_ALREADY_REGISTERED);
    }
    memory::adopt(address, size, Kind::Registered(flags), Some(&context), context.device);
    Ok(())
}

pub(crate) fn cuMemHostRegister(_: &Call, pointer: *mut c_void, size: usize, flags: u32) -> Answer {
    register(pointer, size as u64, flags)
}

pub(crate) fn cuMemHostRegister_v2(_: &Call, pointer: *mut c_void, size: usize, flags: u32) -> Answer {
    register(pointer, size as u64, flags)
}

pub(crate) fn cuMemHostUnregister(_: &Call, pointer: *mut c_void) -> Answer {
    state::current()?;
    if pointer.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    capture::forbid_unsafe_call()?;
    let removed = memory::remove(pointer.addr() as u64, |block| matches!(block.kind, Kind::Registered(_)));
    removed.map(drop).ok_or(CUresult::HOST_MEMORY_NOT_REGISTERED)
}

/// With unified addressing, the device knows host memory by its own address.
fn device_pointer(pointer: *mut c_void, flags: u32) -> Answer<u64> {
    state::current()?;
    let address = pointer.addr() as u64;
    let found = memory::find(address).filter(|(_, block)| block.is_host() || matches!(block.kind, Kind::Managed(_)));
    if flags != 0 || found.is_none() {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(address)
}

pub(crate) fn cuMemHostGetDevicePointer_v2(
    _: &Call,
    out: *mut CUdeviceptr,
    pointer: *mut c_void,
    flags: u32,
) -> Answer {
    put(out, device_pointer(pointer, flags)?)
}

pub(crate) fn cuMemHostGetDevicePointer(
    _: &Call,
    out: *mut CUdeviceptr_v1,
    pointer: *mut c_void,
    flags: u32,
) -> Answer {
    put(out, short(device_pointer(pointer, flags)?)?)
}

pub(crate) fn cuMemHostGetFlags(_: &Call, out: *mut u32, pointer: *mut c_void) -> Answer {
    state::current()?;
    match memory::find(pointer.addr() as u64) {
        Some((_, Block { kind: Kind::Host(flags) | Kind::Registered(flags), .. })) => put(out, flags | DEVICE_MAPPED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}
