//! Physical memory across processes: exported as a descriptor, imported elsewhere, charged once.
//!
//! Each file of memory ends in a header that says what it is, and two bytes whose locks the kernel keeps
//! (they belong to open files, not to processes, and vanish with the last holder, however it ends):
//! - `OWNER` is locked for writing by the process that the memory is charged to;
//! - `HELD` is locked for reading through every exported descriptor, copies in other processes included.
//!
//! An owner that has let go of memory which somebody else holds keeps the charge until [`reap`] finds it
//! free; a holder whose owner has died takes the charge over there.

use super::{FILE_DESCRIPTOR, Physical, Properties, Team, find, give_out};
use crate::args::{Answer, put};
use crate::entry::Call;
use crate::pages;
use crate::state::{Device, driver};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use driver_api::{CUmemAllocationHandleType, CUmemGenericAllocationHandle, CUmemLocation, CUresult};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Weak};

/// A page behind the memory itself.
pub(super) const HEADER_BYTES: u64 = pages::HOST_PAGE;
const MAGIC: u64 = u64::from_le_bytes(*b"fakecuda");
/// Offsets from the start of the header that are only ever locked.
const OWNER: u64 = 1024;
const HELD: u64 = 1025;

/// Who is charged for a piece of memory.
pub(super) struct Sharing {
    /// The device it is charged to by this process.
    charged: Option<&'static Device>,
    /// The device it is on, for a process that may have to take the charge over.
    device: Option<&'static Device>,
    exported: bool,
    /// Where an importer locks: its own open file, beside the imported one whose lock says that it holds.
    lock: Option<File>,
}

/// What the header says.
#[derive(Clone, Copy)]
struct Header {
    size: u64,
    physical: u64,
    handle_types: c_int,
    location: CUmemLocation,
}

impl Header {
    fn write(&self, file: &File) -> io::Result<()> {
        let words = [
            MAGIC,
            self.size,
            self.physical,
            u64::from(self.handle_types.cast_unsigned()),
            u64::from(self.location.kind.cast_unsigned()),
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all_at(&bytes, self.size)
    }

    fn read(file: &File) -> Option<Self> {
        let size = file.metadata().ok()?.len().checked_sub(HEADER_BYTES)?;
        let mut bytes = [0; 5 * 8];
        file.read_exact_at(&mut bytes, size).ok()?;
        let word = |at: usize| bytes[at * 8..][..8].try_into().map_or(0, u64::from_le_bytes);
        if word(0) != MAGIC || word(1) != size {
            return None;
        }
        let kind = c_int::try_from(word(4)).ok()?;
        let physical = word(2);
        let local = driver().devices().iter().find(|device| device.physical as u64 == physical);
        let id = local.map_or(0, |device| device.ordinal);
        let handle_types = c_int::try_from(word(3)).ok()?;
        Some(Self { size, physical, handle_types, location: CUmemLocation { kind, id } })
    }
}

impl Sharing {
    /// True when other processes may have the memory, too.
    pub(super) fn is_shared(&self) -> bool {
        self.exported || self.lock.is_some()
    }

    /// For memory that this process has just made and charged.
    pub(super) fn own(file: &File, size: u64, properties: &Properties) -> io::Result<Self> {
        let device = properties.device().ok().flatten();
        if properties.handle_types != 0 {
            let physical = device.map_or(u64::MAX, |device| device.physical as u64);
            let handle_types = properties.handle_types;
            Header { size, physical, handle_types, location: properties.location }.write(file)?;
            pages::lock(file, size + OWNER, true);
        }
        Ok(Self { charged: device, device, exported: false, lock: None })
    }
}

/// Memory that is charged here although only others hold it.
struct Lingering {
    file: File,
    size: u64,
    device: &'static Device,
}

static LINGERING: Mutex<Vec<Lingering>> = Mutex::new(Vec::new());
/// Shared memory that this process holds, to find what it imports again, and what it may have to pay for.
static KNOWN: Mutex<Vec<Weak<Physical>>> = Mutex::new(Vec::new());
/// How much there is to look after: while there is nothing, [`reap`] costs nothing.
static TO_WATCH: AtomicUsize = AtomicUsize::new(0);

impl Drop for Physical {
    fn drop(&mut self) {
        let sharing = self.sharing.get_mut();
        if sharing.lock.is_some() {
            TO_WATCH.fetch_sub(1, Ordering::Relaxed);
        }
        let Some(device) = sharing.charged else { return };
        let shared = sharing.is_shared();
        let file = sharing.lock.take().or_else(|| self.file.try_clone().ok());
        match file {
            Some(file) if shared && pages::is_locked(&file, self.size + HELD) => {
                TO_WATCH.fetch_add(1, Ordering::Relaxed);
                LINGERING.lock().push(Lingering { file, size: self.size, device });
            }
            _ => device.give(self.size),
        }
    }
}

/// Remembers memory that can be shared.
pub(super) fn remember(physical: &Arc<Physical>) {
    if physical.properties.handle_types != 0 {
        let mut known = KNOWN.lock();
        known.retain(|weak| weak.strong_count() > 0);
        known.push(Arc::downgrade(physical));
    }
}

/// Gives back what nobody holds any more, and takes over what its owner left behind.
pub(crate) fn reap() {
    if TO_WATCH.load(Ordering::Relaxed) > 0 {
        reap_now();
    }
}

#[cold]
fn reap_now() {
    LINGERING.lock().retain(|memory| {
        let held = pages::is_locked(&memory.file, memory.size + HELD);
        if !held {
            memory.device.give(memory.size);
            TO_WATCH.fetch_sub(1, Ordering::Relaxed);
        }
        held
    });
    let known: Vec<Arc<Physical>> = KNOWN.lock().iter().filter_map(Weak::upgrade).collect();
    for physical in known {
        let mut sharing = physical.sharing.lock();
        let (Some(device), Some(lock)) = (sharing.device, &sharing.lock) else { continue };
        if sharing.charged.is_none() && pages::lock(lock, physical.size + OWNER, true) {
            if device.take(physical.size).is_ok() {
                sharing.charged = Some(device);
            } else {
                pages::unlock(lock, physical.size + OWNER);
            }
        }
    }
}

pub(crate) fn cuMemExportToShareableHandle(
    _: &Call,
    out: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> Answer {
    let physical = find(handle)?;
    if out.is_null() || flags != 0 || physical.properties.handle_types & kind == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let exported = pages::reopen(&physical.file).map_err(|_| CUresult::OUT_OF_MEMORY)?;
    pages::lock(&exported, physical.size + HELD, false);
    physical.sharing.lock().exported = true;
    put(out.cast::<c_int>(), exported.into_raw_fd())
}

pub(crate) fn cuMemImportFromShareableHandle(
    _: &Call,
    out: *mut CUmemGenericAllocationHandle,
    descriptor: *mut c_void,
    kind: CUmemAllocationHandleType,
) -> Answer {
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    if kind != FILE_DESCRIPTOR {
        return Err(CUresult::NOT_SUPPORTED);
    }
    let descriptor = c_int::try_from(descriptor.addr()).map_err(|_| CUresult::INVALID_VALUE)?;
    put(out, give_out(&import(descriptor)?))
}

fn import(descriptor: c_int) -> Answer<Arc<Physical>> {
    let file = pages::duplicate(descriptor).map_err(|_| CUresult::INVALID_VALUE)?;
    let header = Header::read(&file).ok_or(CUresult::INVALID_VALUE)?;
    let same = |other: &File| match (file.metadata(), other.metadata()) {
        (Ok(one), Ok(two)) => (one.dev(), one.ino()) == (two.dev(), two.ino()),
        _ => false,
    };
    let known = KNOWN.lock().iter().filter_map(Weak::upgrade).find(|physical| same(&physical.file));
    if let Some(physical) = known {
        return Ok(physical);
    }
    let device = driver().devices().iter().find(|device| device.physical as u64 == header.physical);
    if header.location.kind == super::LOCATION_DEVICE && device.is_none() {
        return Err(CUresult::INVALID_DEVICE);
    }
    let lock = pages::reopen(&file).map_err(|_| CUresult::OUT_OF_MEMORY)?;
    TO_WATCH.fetch_add(1, Ordering::Relaxed);
    let sharing = Sharing { charged: None, device, exported: false, lock: Some(lock) };
    let properties =
        Properties { handle_types: header.handle_types, location: header.location, compression: 0, usage: 0 };
    let team = if header.location.kind == super::multicast::LOCATION_NONE {
        Some(Team::of_file(&file, header.size).ok_or(CUresult::INVALID_VALUE)?)
    } else {
        None
    };
    let physical = Arc::new(Physical { file, size: header.size, properties, sharing: Mutex::new(sharing), team });
    remember(&physical);
    Ok(physical)
}
