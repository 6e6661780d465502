//! Shared memory: anonymous files that can be handed over, and typed mappings of files.
#![allow(unsafe_code)]

use crate::page::QuotaPage;
use crate::usage::TenantMemory;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Types whose every bit pattern is valid and that are made of atomics, so that they can be shared with
/// processes that we don't trust.
///
/// # Safety
/// The type is `repr(C)`, consists of atomics and plain reserved words, and is valid for any bytes.
pub unsafe trait Shared: Sync {}

// SAFETY: `repr(C)`, atomics and reserved words only.
unsafe impl Shared for TenantMemory {}
// SAFETY: `repr(C)`, atomics and reserved words only.
unsafe impl Shared for QuotaPage {}

/// A file's pages seen as a `T`; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping<T: Shared> {
    at: NonNull<T>,
    _owns: PhantomData<T>,
}

// SAFETY: a mapping may be used and dropped from any thread; `T: Shared` is `Sync`.
unsafe impl<T: Shared> Send for Mapping<T> {}
// SAFETY: as above; it only gives out `&T`.
unsafe impl<T: Shared> Sync for Mapping<T> {}

/// Who may write through a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Loads and stores.
    ReadWrite,
    /// Loads only; a store would fault, so the type must not be written by its reader.
    ReadOnly,
}

impl<T: Shared> Mapping<T> {
    /// Maps the first `size_of::<T>()` bytes of `file`.
    ///
    /// # Errors
    /// When the file is shorter, or the kernel refuses.
    pub fn new(file: BorrowedFd<'_>, access: Access) -> io::Result<Self> {
        if file_bytes(file)? < size_of::<T>() as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too short"));
        }
        let protection = match access {
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
            Access::ReadOnly => libc::PROT_READ,
        };
        // SAFETY: a fresh mapping chosen by the kernel touches no memory of ours.
        let at = unsafe {
            libc::mmap(core::ptr::null_mut(), size_of::<T>(), protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).expect("the kernel never maps page 0 unasked");
        Ok(Self { at, _owns: PhantomData })
    }
}

impl<T: Shared> core::ops::Deref for Mapping<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: mapped for size_of::<T>() bytes, page-aligned, valid for any bytes, for as long as `self`;
        // the file can't shrink under us where its maker sealed it, and is private to the user where not.
        unsafe { self.at.as_ref() }
    }
}

impl<T: Shared> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), size_of::<T>()) };
    }
}

/// Size of an open file.
pub fn file_bytes(file: BorrowedFd<'_>) -> io::Result<u64> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills the buffer.
    if unsafe { libc::fstat(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed before and filled by a successful call.
    let stat = unsafe { stat.assume_init() };
    u64::try_from(stat.st_size).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// An anonymous file of `bytes`, close-on-exec, that nobody can shrink or grow any more.
pub fn anonymous_file(name: &CStr, bytes: u64) -> io::Result<OwnedFd> {
    // SAFETY: plain system call with a C string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let length = libc::off_t::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: plain system call on our own descriptor.
    if unsafe { libc::ftruncate(fd, length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    seal(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
    Ok(file)
}

fn seal(file: &OwnedFd, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: plain system call on our own descriptor.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
