//! Finds and opens the real libraries: by absolute path, as the loader would have found them, never ourselves,
//! and only when a driver function is called for the first time.
#![allow(unsafe_code)]

use crate::{elf, ld_cache, process};
use core::ffi::{CStr, c_void};
use driver_api::Library;
use std::ffi::CString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where drivers lie when the loader's cache doesn't say.
const USUAL_FOLDERS: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
    "/usr/lib/wsl/lib",
];

/// Opens the real library; null when there is none. Idempotent: the loader counts, nobody closes.
pub(crate) fn open(library: Library) -> *mut c_void {
    if let Some(path) = mapped(library) {
        return open_path(path);
    }
    for path in candidates(library.soname()) {
        let Ok(path) = CString::new(path.into_os_string().into_vec()) else { continue };
        let handle = open_path(&path);
        if !handle.is_null() {
            return handle;
        }
    }
    core::ptr::null_mut()
}

/// A real library that the program has already mapped, by whatever name it opened it.
fn mapped(library: Library) -> Option<&'static CStr> {
    elf::objects().into_iter().find(|object| is_driver(object, library)).map(|object| object.path())
}

/// True for an object that calls itself the driver's library and is not the shim.
pub(crate) fn is_driver(object: &elf::Object, library: Library) -> bool {
    object.soname().is_some_and(|name| name.to_bytes() == library.soname().as_bytes()) && !is_self(object)
}

/// True for the shim.
pub(crate) fn is_self(object: &elf::Object) -> bool {
    object.contains(is_self as *const c_void)
}

/// Opens a library by the name or path given.
pub(crate) fn open_path(path: &CStr) -> *mut c_void {
    // SAFETY: plain call with a C string; a driver's constructors are the program's own choice to run.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
}

/// Files of that name in the loader's order.
fn candidates(soname: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // A privileged program's loader ignores this variable, and so do we.
    if !process::is_privileged()
        && let Some(folders) = std::env::var_os("LD_LIBRARY_PATH")
    {
        for folder in folders.as_bytes().split(|byte| matches!(byte, b':' | b';')).filter(|folder| !folder.is_empty()) {
            found.push(Path::new(std::ffi::OsStr::from_bytes(folder)).join(soname));
        }
    }
    if let Ok(cache) = std::fs::read(ld_cache::CACHE) {
        found.extend(ld_cache::find(&cache, soname));
    }
    found.extend(USUAL_FOLDERS.iter().map(|folder| Path::new(folder).join(soname)));
    let own = own_file();
    found.retain(|path| file_of(path).is_some_and(|file| Some(file) != own));
    for path in &mut found {
        // A relative entry of LD_LIBRARY_PATH must not be taken for a bare name.
        if let Ok(absolute) = std::path::absolute(&*path) {
            *path = absolute;
        }
    }
    found
}

/// The file the shim was loaded from: somebody may have put it into the loader's path under the driver's name.
fn own_file() -> Option<(u64, u64)> {
    let own = elf::objects().into_iter().find(is_self)?;
    file_of(Path::new(std::ffi::OsStr::from_bytes(own.path().to_bytes())))
}

fn file_of(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|data| (data.dev(), data.ino()))
}
