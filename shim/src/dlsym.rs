//! The third door: `dlsym` and `dlvsym`.
//!
//! A name of the list is answered with our entry point when libc's answer is the driver's function or our
//! own, and with NULL when the driver lacks it. Everything else is a tail jump to the next `dlsym`, so that
//! the caller stays the caller: `RTLD_NEXT` and `RTLD_DEFAULT` mean what they meant. Names are compared
//! whole: "cublas..." and "curl..." are nobody's business here.
#![allow(unsafe_code)]

use crate::entry::{address_of, id};
use crate::names::Id;
use crate::process::{self, Inside};
use crate::{driver, elf, real};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use driver_api::Library;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Versions under which libc exports `dlsym`: x86-64, aarch64, and everything since it moved into libc.
const LIBC_VERSIONS: [&CStr; 3] = [c"GLIBC_2.2.5", c"GLIBC_2.17", c"GLIBC_2.34"];

static NEXT_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static NEXT_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// What the entry stubs do: jump to `jump`, or return `answer` when that is null. Returned in two registers.
#[repr(C)]
struct Verdict {
    jump: *const c_void,
    answer: *const c_void,
}

/// `dlsym` as if we had not replaced it; the next interposer's, else libc's.
pub(crate) fn next_dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let next = next_of(&NEXT_DLSYM, c"dlsym");
    if next.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: found under the name `dlsym`, whose signature is libc's.
    let next = unsafe { core::mem::transmute::<*mut c_void, Dlsym>(next) };
    // SAFETY: a handle that the caller vouches for, and a C string.
    unsafe { next(handle, name.as_ptr()) }
}

/// The function of that name behind us: of another interposer if there is one, else of libc.
fn next_of(cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = cache.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let found = behind_us(name);
    cache.store(found, Ordering::Relaxed);
    found
}

fn behind_us(name: &CStr) -> *mut c_void {
    let Some(libc_dlvsym) = in_libc(c"dlvsym") else {
        return in_libc(name).unwrap_or(core::ptr::null()).cast_mut();
    };
    // SAFETY: libc's own `dlvsym`.
    let libc_dlvsym = unsafe { core::mem::transmute::<*const c_void, Dlvsym>(libc_dlvsym) };
    for version in LIBC_VERSIONS {
        // SAFETY: C strings. We are the caller, so this is the next one behind us.
        let found = unsafe { libc_dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            return found;
        }
    }
    in_libc(name).unwrap_or(core::ptr::null()).cast_mut()
}

/// libc's own function. It lies in the loader, in libc, or up to glibc 2.33 in libdl or libpthread; musl is one library.
fn in_libc(name: &CStr) -> Option<*const c_void> {
    const PARTS: [&[u8]; 6] = [b"libc.so", b"libc.musl", b"libdl.so", b"libpthread.so", b"ld-linux", b"ld-musl"];
    let is_libc = |object: &elf::Object| {
        let file = object.path().to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let name = object.soname().map_or(file, CStr::to_bytes);
        PARTS.iter().any(|part| name.starts_with(part) || file.starts_with(part))
    };
    elf::objects().iter().filter(|object| is_libc(object)).find_map(|object| object.lookup(name))
}

/// For `compat/glibc.c`, under a name that the linker keeps to this library.
#[unsafe(export_name = "gpuquota_in_libc")]
unsafe extern "C" fn in_libc_for_c(name: *const c_char) -> *const c_void {
    // SAFETY: our own C code passes literals.
    in_libc(unsafe { CStr::from_ptr(name) }).unwrap_or(core::ptr::null())
}

/// Called by the stubs; `caller` is the address the stub returns to.
extern "C" fn judge(handle: *mut c_void, name: *const c_char, caller: *const c_void) -> Verdict {
    let go_on = Verdict { jump: next_of(&NEXT_DLSYM, c"dlsym"), answer: core::ptr::null() };
    judge_name(handle, name, caller).map_or(go_on, |answer| Verdict { jump: core::ptr::null(), answer })
}

/// As [`judge`], for `dlvsym`; the driver's symbols have no versions, so the version says nothing more.
extern "C" fn judge_versioned(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const c_void,
) -> Verdict {
    let next = next_of(&NEXT_DLVSYM, c"dlvsym");
    let go_on = Verdict { jump: next, answer: core::ptr::null() };
    if version.is_null() || next.is_null() || !is_listed(name) {
        return go_on;
    }
    // SAFETY: found under the name `dlvsym`, whose signature is libc's.
    let next = unsafe { core::mem::transmute::<*mut c_void, Dlvsym>(next) };
    // SAFETY: the caller's own arguments.
    if unsafe { next(handle, name, version) }.is_null() {
        return go_on;
    }
    judge_name(handle, name, caller).map_or(go_on, |answer| Verdict { jump: core::ptr::null(), answer })
}

fn is_listed(name: *const c_char) -> bool {
    listed(name).is_some()
}

/// The entry point with this name. The first letters decide for nearly every name.
fn listed(name: *const c_char) -> Option<(Id, &'static CStr)> {
    if name.is_null() {
        return None;
    }
    // SAFETY: `dlsym`'s contract makes it a C string; it is only used during the call.
    let name = unsafe { CStr::from_ptr(name) };
    let bytes = name.to_bytes();
    if !bytes.starts_with(b"cu") && !bytes.starts_with(b"nvml") {
        return None;
    }
    Id::exported(bytes).map(|id| (id, name))
}

/// The answer for a name of the list; `None` means that libc's own answer is right.
fn judge_name(handle: *mut c_void, name: *const c_char, caller: *const c_void) -> Option<*const c_void> {
    if !process::is_bound() {
        return None;
    }
    let Some((id, name)) = listed(name) else { return unknown(handle, name) };
    // An interposer behind us looks for its next one while we are calling it.
    if handle == libc::RTLD_NEXT && real::is_loaded() {
        return judge_next(id, name, caller);
    }
    if Inside::is_entered() || !process::doors_open() {
        return None;
    }
    let _inside = Inside::enter();
    if handle == libc::RTLD_NEXT {
        return judge_next(id, name, caller);
    }
    let found = next_dlsym(handle, name).cast_const();
    if found.is_null() {
        return None;
    }
    let ours = address_of(id);
    if found != ours && !leads_to_driver(found, id) {
        return None;
    }
    Some(present(id, name))
}

/// A driver function that is newer than the list: asked of us under the driver's name, it is looked up in the driver.
fn unknown(handle: *mut c_void, name: *const c_char) -> Option<*const c_void> {
    if name.is_null() || handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT || Inside::is_entered() {
        return None;
    }
    // SAFETY: `dlsym`'s contract makes it a C string.
    let name = unsafe { CStr::from_ptr(name) };
    // The driver's names go on with a capital; "cuda...", "cublas..." and "curl..." don't.
    let looks_like_one = matches!(name.to_bytes(), [b'c', b'u', third, ..] if third.is_ascii_uppercase());
    if !looks_like_one || !next_dlsym(handle, name).is_null() {
        return None;
    }
    let _inside = Inside::enter();
    let own = address_of(Id(id::cuInit));
    let driver =
        if next_dlsym(handle, c"cuInit").cast_const() == own { driver::open(Library::Cuda) } else { return None };
    (!driver.is_null()).then(|| next_dlsym(driver, name).cast_const())
}

/// Our entry point when the driver has the function, else NULL with the loader's error set, as without us.
fn present(id: Id, name: &CStr) -> *const c_void {
    if real::driver_address(id).is_some() {
        return address_of(id);
    }
    // A failing look-up sets the error that programs ask `dlerror` for: in the driver, or in any library that lacks the name.
    let driver = driver::open(id.library());
    let lacking = if driver.is_null() { driver::open_path(c"libc.so.6") } else { driver };
    next_dlsym(lacking, name).cast_const()
}

fn leads_to_driver(found: *const c_void, id: Id) -> bool {
    real::driver_address(id) == Some(found)
        || elf::objects().iter().any(|object| object.contains(found) && driver::is_driver(object, id.library()))
}

/// `RTLD_NEXT`: the first object behind the caller that has the name.
///
/// The loader can't answer for us, since it would take us for the caller. Nor is the driver in its scope,
/// because our own name keeps it from being loaded there; an interposer behind us, which wraps the same
/// function and looks for the one it wraps, must find it all the same.
fn judge_next(id: Id, name: &CStr, caller: *const c_void) -> Option<*const c_void> {
    let objects = elf::objects();
    let at = objects.iter().position(|object| object.contains(caller))?;
    let wraps = objects[at].lookup(name).is_some();
    let behind_us = objects[..at].iter().any(driver::is_self);
    match objects[at + 1..].iter().find(|object| object.lookup(name).is_some()) {
        Some(object) if driver::is_self(object) => Some(present(id, name)),
        Some(object) if !driver::is_driver(object, id.library()) => None,
        _ if wraps && behind_us => real::driver_address(id),
        Some(_) => Some(present(id, name)),
        None => None,
    }
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "mov rdx, [rsp]",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {judge}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov rax, rdx",
        "ret",
        judge = sym judge,
    )
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "mov rcx, [rsp]",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {judge}",
        "mov rcx, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov rax, rcx",
        "ret",
        judge = sym judge_versioned,
    )
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, -32]!",
        "stp x0, x1, [sp, 16]",
        "mov x2, x30",
        "bl {judge}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, 16]",
        "ldp x29, x30, [sp], 32",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, x17",
        "ret",
        judge = sym judge,
    )
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, -48]!",
        "stp x0, x1, [sp, 16]",
        "str x2, [sp, 32]",
        "mov x3, x30",
        "bl {judge}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, 16]",
        "ldr x2, [sp, 32]",
        "ldp x29, x30, [sp], 48",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, x17",
        "ret",
        judge = sym judge_versioned,
    )
}
