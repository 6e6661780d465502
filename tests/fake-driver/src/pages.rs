//! The memory of the host that stands in for device memory: mappings, files of memory, raw copies.
//!
//! Addresses are numbers here, as in the API. The only place besides `args` that works on raw memory.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

/// Page of the host.
pub(crate) const HOST_PAGE: u64 = 4096;

fn pointer(address: u64) -> *mut c_void {
    with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn map(at: u64, bytes: u64, protection: i32, flags: i32, file: i32, offset: u64) -> Option<u64> {
    let offset = i64::try_from(offset).ok()?;
    // SAFETY: either the kernel chooses a free place (`at` is 0), or `at` lies in a mapping of ours that the
    // callers below replace as a whole.
    let mapped = unsafe { libc::mmap(pointer(at), length(bytes), protection, flags, file, offset) };
    (mapped != libc::MAP_FAILED).then(|| mapped.expose_provenance() as u64)
}

fn unmap(at: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: callers name a mapping of ours that nobody uses any more.
        unsafe { libc::munmap(pointer(at), length(bytes)) };
    }
}

const LAZY: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Addresses with memory behind them that costs nothing until it is touched; 0 bytes never happen.
pub(crate) fn reserve(bytes: u64, alignment: u64, accessible: bool) -> Option<u64> {
    let protection = if accessible { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    let room = bytes.checked_add(alignment)?;
    let start = map(0, room, protection, LAZY, -1, 0)?;
    let aligned = start.next_multiple_of(alignment);
    unmap(start, aligned - start);
    unmap(aligned + bytes, start + room - (aligned + bytes));
    Some(aligned)
}

/// The same below 4 GiB, where the 32-bit pointers of the first API can name it.
pub(crate) fn reserve_low(bytes: u64) -> Option<u64> {
    map(0, bytes, libc::PROT_READ | libc::PROT_WRITE, LAZY | libc::MAP_32BIT, -1, 0)
}

/// Gives addresses from [`reserve`] back.
pub(crate) fn unreserve(at: u64, bytes: u64) {
    unmap(at, bytes);
}

/// Forgets what was written to these pages; they stay usable.
pub(crate) fn discard(at: u64, bytes: u64) {
    // SAFETY: callers name pages of theirs whose contents nobody needs.
    unsafe { libc::madvise(pointer(at), length(bytes), libc::MADV_DONTNEED) };
}

/// Forgets what was written to whole pages of a shared file, for everybody.
pub(crate) fn empty(at: u64, bytes: u64) {
    let first = at.next_multiple_of(HOST_PAGE);
    let end = (at + bytes) / HOST_PAGE * HOST_PAGE;
    if first < end {
        // SAFETY: callers name a part of their own mapping whose contents nobody needs.
        unsafe { libc::madvise(pointer(first), length(end - first), libc::MADV_REMOVE) };
    }
}

/// Makes private, empty memory of a part of a reservation again.
pub(crate) fn map_private(at: u64, bytes: u64, accessible: bool) -> bool {
    let protection = if accessible { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    map(at, bytes, protection, LAZY | libc::MAP_FIXED, -1, 0).is_some()
}

/// Lets a part of a reservation show a file.
pub(crate) fn map_file(at: u64, bytes: u64, file: &File, offset: u64, accessible: bool) -> bool {
    let protection = if accessible { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    map(at, bytes, protection, libc::MAP_SHARED | libc::MAP_FIXED, file.as_raw_fd(), offset).is_some()
}

/// Allows or forbids reading and writing.
pub(crate) fn protect(at: u64, bytes: u64, read: bool, write: bool) -> bool {
    let protection = if read { libc::PROT_READ } else { 0 } | if write { libc::PROT_WRITE } else { 0 };
    // SAFETY: callers name mappings of their own.
    unsafe { libc::mprotect(pointer(at), length(bytes), protection) == 0 }
}

/// A file that lives in memory, as long as somebody holds or maps it.
pub(crate) fn memory_file(bytes: u64) -> io::Result<File> {
    // SAFETY: the name is a terminated string.
    let file = unsafe { libc::memfd_create(c"fake-cuda".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let file = unsafe { File::from_raw_fd(file) };
    file.set_len(bytes)?;
    Ok(file)
}

/// Copies bytes between ranges, which may overlap. Both are readable or writable as needed: callers look device
/// memory up before, and a program vouches for the host memory that it passes.
pub(crate) fn copy(to: u64, from: u64, bytes: u64) {
    let (from, to) = (with_exposed_provenance::<u8>(length(from)), with_exposed_provenance_mut::<u8>(length(to)));
    // SAFETY: the ranges are as said above; bytes need no alignment, and any value of them is valid.
    unsafe { core::ptr::copy(from, to, length(bytes)) };
}

/// Fills device memory with `count` elements of `width` bytes. Callers look it up before, and check that
/// elements of two and four bytes are aligned.
pub(crate) fn fill(at: u64, value: u32, width: u64, count: u64) {
    let (target, count) = (length(at), length(count));
    let bytes = value.to_le_bytes();
    match width {
        1 => {
            // SAFETY: `count` bytes there are writable, as said above.
            unsafe { with_exposed_provenance_mut::<u8>(target).write_bytes(bytes[0], count) };
        }
        2 => {
            let start = with_exposed_provenance_mut::<u16>(target);
            // SAFETY: `count` aligned elements there are writable, as said above, and nothing here refers to
            // them; what a program does to them meanwhile is undefined on the device too.
            unsafe { core::slice::from_raw_parts_mut(start, count) }.fill(u16::from_le_bytes([bytes[0], bytes[1]]));
        }
        _ => {
            let start = with_exposed_provenance_mut::<u32>(target);
            // SAFETY: as for two bytes.
            unsafe { core::slice::from_raw_parts_mut(start, count) }.fill(value);
        }
    }
}

/// Has `in_child` called in the child of every fork.
pub(crate) fn at_fork(in_child: extern "C" fn()) {
    // SAFETY: the function stays loaded, since the library is marked so, and only stores to atomics.
    unsafe { libc::pthread_atfork(None, None, Some(as_unsafe(in_child))) };
}

fn as_unsafe(function: extern "C" fn()) -> unsafe extern "C" fn() {
    function
}

/// Takes over a copy of a descriptor that the program named.
pub(crate) fn duplicate(descriptor: i32) -> io::Result<File> {
    // SAFETY: the kernel checks the number; the copy is new and ours.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { File::from_raw_fd(copy) })
}

/// Closes a descriptor that the program has handed over.
pub(crate) fn close(descriptor: i32) {
    // SAFETY: the API says that the descriptor is the driver's from now on.
    unsafe { libc::close(descriptor) };
}

/// The same file, opened anew: locks on it are its own.
pub(crate) fn reopen(file: &File) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn byte_lock(at: u64, kind: i32) -> libc::flock {
    // SAFETY: a structure of numbers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = i16::try_from(kind).unwrap_or(0);
    lock.l_whence = i16::try_from(libc::SEEK_SET).unwrap_or(0);
    lock.l_start = i64::try_from(at).unwrap_or(i64::MAX);
    lock.l_len = 1;
    lock
}

/// Locks a byte for this open file and its duplicates; false when another one's lock forbids it.
pub(crate) fn lock(file: &File, at: u64, exclusive: bool) -> bool {
    let lock = byte_lock(at, if exclusive { libc::F_WRLCK } else { libc::F_RDLCK });
    // SAFETY: the kernel reads the structure and the descriptor is open.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

/// Gives a lock back.
pub(crate) fn unlock(file: &File, at: u64) {
    let lock = byte_lock(at, libc::F_UNLCK);
    // SAFETY: as above.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
}

/// True when another open file has a lock on the byte.
pub(crate) fn is_locked(file: &File, at: u64) -> bool {
    let mut lock = byte_lock(at, libc::F_WRLCK);
    // SAFETY: the kernel reads and writes the structure, and the descriptor is open.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } == 0;
    asked && i32::from(lock.l_type) != libc::F_UNLCK
}

/// Reserves addresses exactly there, if nothing is in the way.
pub(crate) fn reserve_at(at: u64, bytes: u64) -> Option<u64> {
    map(at, bytes, libc::PROT_NONE, LAZY | libc::MAP_FIXED_NOREPLACE, -1, 0)
}

/// Calls `act` with each page of private memory that has been written to, and its contents.
pub(crate) fn for_touched(at: u64, bytes: u64, mut act: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
    const PRESENT_OR_SWAPPED: u64 = 3 << 62;
    const ENTRY_BYTES: u64 = 8;
    const PAGES_AT_ONCE: u64 = 4096;
    let map = File::open("/proc/self/pagemap")?;
    let mut entries = vec![0; length(PAGES_AT_ONCE * ENTRY_BYTES)];
    let (mut page, end) = (at / HOST_PAGE, (at + bytes) / HOST_PAGE);
    while page < end {
        let count = PAGES_AT_ONCE.min(end - page);
        let entries = &mut entries[..length(count * ENTRY_BYTES)];
        map.read_exact_at(entries, page * ENTRY_BYTES)?;
        for (number, entry) in (page..).zip(entries.chunks_exact(length(ENTRY_BYTES))) {
            if entry.try_into().map_or(0, u64::from_le_bytes) & PRESENT_OR_SWAPPED != 0 {
                let contents = with_exposed_provenance::<u8>(length(number * HOST_PAGE));
                // SAFETY: a page of the caller's mapping, which stays mapped and readable during the call.
                act(number * HOST_PAGE, unsafe { core::slice::from_raw_parts(contents, length(HOST_PAGE)) })?;
            }
        }
        page += count;
    }
    Ok(())
}
