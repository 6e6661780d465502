//! Memory shared with other processes by `cuIpc*MemHandle`, and events ([`event`]).
//!
//! The first handle to a block turns its memory into a file; another process opens that file by way of
//! `/proc` and maps it. So both have to see each other's process ids, as within one container. A program
//! that writes to the block while its first handle is being made may lose what it writes.

pub(crate) mod event;

use crate::args::{Answer, put};
use crate::capture;
use crate::context::Context;
use crate::entry::Call;
use crate::memory::{self, Kind};
use crate::pages;
use crate::state::{self, driver};
use driver_api::{CUdeviceptr, CUipcMemHandle, CUresult};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

const MAGIC: u64 = u64::from_le_bytes(*b"fakeipc1");
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, which has to be given.
const LAZY_PEER_ACCESS: u32 = 1;

/// Memory that has become a file: where it begins, and its size.
static SHARED: Mutex<BTreeMap<u64, (u64, File)>> = Mutex::new(BTreeMap::new());

/// Memory of other processes that is mapped here, by its address.
static IMPORTED: Mutex<BTreeMap<u64, Import>> = Mutex::new(BTreeMap::new());

struct Import {
    handle: Handle,
    context: u64,
    opened: u64,
    mapped: u64,
    mapped_bytes: u64,
}

/// What the 64 bytes of a handle say.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Handle {
    process: u64,
    descriptor: u64,
    inode: u64,
    offset: u64,
    size: u64,
    physical: u64,
    /// The block's id, so that a new block in an old place has a new handle.
    block: u64,
}

impl Handle {
    fn pack(&self) -> CUipcMemHandle {
        let words =
            [MAGIC, self.process, self.descriptor, self.inode, self.offset, self.size, self.physical, self.block];
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        handle.reserved.copy_from_slice(&words.map(u64::to_le_bytes).concat());
        handle
    }

    fn unpack(handle: &CUipcMemHandle) -> Answer<Self> {
        let word = |at: usize| handle.reserved[at * 8..][..8].try_into().map_or(0, u64::from_le_bytes);
        if word(0) != MAGIC {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(Self {
            process: word(1),
            descriptor: word(2),
            inode: word(3),
            offset: word(4),
            size: word(5),
            physical: word(6),
            block: word(7),
        })
    }

    fn open(&self) -> Option<File> {
        open_of(self.process, self.descriptor, self.inode)
    }
}

/// A file of another process, if it is still the one that a handle was made of.
fn open_of(process: u64, descriptor: u64, inode: u64) -> Option<File> {
    let file = File::options().read(true).write(true).open(format!("/proc/{process}/fd/{descriptor}")).ok()?;
    (file.metadata().ok()?.ino() == inode).then_some(file)
}

/// Turns memory into a file with the same contents.
fn make_file(start: u64, bytes: u64) -> std::io::Result<File> {
    let file = pages::memory_file(bytes)?;
    pages::for_touched(start, bytes, |page, contents| file.write_all_at(contents, page - start))?;
    if pages::map_file(start, bytes, &file, 0, true) { Ok(file) } else { Err(std::io::Error::last_os_error()) }
}

/// Makes private memory of what was shared, when its block is freed.
pub(crate) fn unshare(start: u64) {
    if let Some((bytes, _)) = SHARED.lock().remove(&start) {
        pages::map_private(start, bytes, true);
    }
}

pub(crate) fn cuIpcGetMemHandle(_: &Call, out: *mut CUipcMemHandle, address: CUdeviceptr) -> Answer {
    state::current()?;
    let (start, block) = memory::find(address).ok_or(CUresult::INVALID_VALUE)?;
    if !matches!(block.kind, Kind::Linear) || out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let (base, bytes) = memory::sharing_unit(start, &block).ok_or(CUresult::INVALID_VALUE)?;
    let mut shared = SHARED.lock();
    let (_, file) = match shared.entry(base) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => {
            if let Some(context) = &block.context {
                context.streams.wait();
            }
            entry.insert((bytes, make_file(base, bytes).map_err(|_| CUresult::OUT_OF_MEMORY)?))
        }
    };
    let handle = Handle {
        process: std::process::id().into(),
        descriptor: u64::try_from(file.as_raw_fd()).unwrap_or(u64::MAX),
        inode: file.metadata().map_err(|_| CUresult::UNKNOWN)?.ino(),
        offset: start - base,
        size: block.size,
        physical: block.device.physical as u64,
        block: block.id,
    };
    put(out, handle.pack())
}

fn open(out: *mut CUdeviceptr, handle: &CUipcMemHandle, flags: u32) -> Answer {
    let context = state::current()?;
    let handle = Handle::unpack(handle)?;
    if out.is_null() || flags != LAZY_PEER_ACCESS {
        return Err(CUresult::INVALID_VALUE);
    }
    if handle.process == u64::from(std::process::id()) {
        // The driver doesn't open a process's own handles.
        return Err(CUresult::INVALID_CONTEXT);
    }
    capture::forbid_unsafe_call()?;
    let mut imported = IMPORTED.lock();
    if let Some((&address, import)) = imported.iter_mut().find(|(_, import)| import.handle == handle) {
        import.opened += 1;
        return put(out, address);
    }
    let device = driver().devices().iter().find(|device| device.physical as u64 == handle.physical);
    let device = device.ok_or(CUresult::INVALID_DEVICE)?;
    let file = handle.open().ok_or(CUresult::MAP_FAILED)?;
    let skipped = handle.offset % pages::HOST_PAGE;
    let mapped_bytes = (skipped + handle.size).next_multiple_of(pages::HOST_PAGE);
    let mapped = pages::reserve(mapped_bytes, pages::HOST_PAGE, false).ok_or(CUresult::OUT_OF_MEMORY)?;
    if !pages::map_file(mapped, mapped_bytes, &file, handle.offset - skipped, true) {
        pages::unreserve(mapped, mapped_bytes);
        return Err(CUresult::MAP_FAILED);
    }
    let address = mapped + skipped;
    memory::adopt(address, handle.size, Kind::Imported, Some(&context), device);
    imported.insert(address, Import { handle, context: context.id, opened: 1, mapped, mapped_bytes });
    put(out, address)
}

pub(crate) fn cuIpcOpenMemHandle(_: &Call, out: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) -> Answer {
    open(out, &handle, flags)
}

pub(crate) fn cuIpcOpenMemHandle_v2(_: &Call, out: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) -> Answer {
    open(out, &handle, flags)
}

pub(crate) fn cuIpcCloseMemHandle(_: &Call, address: CUdeviceptr) -> Answer {
    state::current()?.streams.wait();
    let mut imported = IMPORTED.lock();
    let import = imported.get_mut(&address).ok_or(CUresult::INVALID_VALUE)?;
    import.opened -= 1;
    if import.opened == 0 {
        end(address, imported.remove(&address));
    }
    Ok(())
}

fn end(address: u64, import: Option<Import>) {
    drop(memory::remove(address, |block| matches!(block.kind, Kind::Imported)));
    if let Some(import) = import {
        pages::unreserve(import.mapped, import.mapped_bytes);
    }
}

/// Unmaps what a context leaves open.
pub(crate) fn context_closes(context: &Context) {
    let mut imported = IMPORTED.lock();
    let left: Vec<u64> =
        imported.iter().filter(|(_, import)| import.context == context.id).map(|(&address, _)| address).collect();
    for address in left {
        end(address, imported.remove(&address));
    }
}
