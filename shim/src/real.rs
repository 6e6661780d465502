//! Addresses behind our entry points: the driver's, or those of another preloaded library that stands
//! between us and the driver.
//!
//! Every slot starts empty, which leads to [`lazy`]: it loads both libraries at the first call of any driver
//! function and then goes on to the function asked for. Loading may run in several threads at once: all store the same.
#![allow(unsafe_code)]

use crate::names::{COUNT, Id};
use crate::process::Inside;
use crate::{dlsym, driver, elf};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use driver_api::{CUresult, Library};

/// Where a call goes; read by the trampolines.
pub(crate) static NEXT: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(core::ptr::null_mut()) }; COUNT];
/// The driver's own addresses; null for what it lacks.
static DRIVER: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(core::ptr::null_mut()) }; COUNT];
static LOADED: AtomicBool = AtomicBool::new(false);

/// Where the call of entry point `id` goes next; the libraries are loaded if need be.
pub(crate) fn address(id: usize) -> *const c_void {
    load();
    NEXT[id].load(Ordering::Relaxed)
}

/// The same without a look whether the libraries are loaded; null before they are.
#[inline]
pub(crate) fn loaded_address(id: usize) -> *const c_void {
    NEXT[id].load(Ordering::Relaxed)
}

/// The driver's own function, when the driver has it.
pub(crate) fn driver_address(id: Id) -> Option<*const c_void> {
    load();
    let address = DRIVER[id.0].load(Ordering::Relaxed);
    (!address.is_null()).then_some(address.cast_const())
}

/// The entry point whose driver function lies at `address`, which the driver gave for `base`.
pub(crate) fn entry_of(address: *const c_void, base: &CStr) -> Option<Id> {
    let is_there = |id: &Id| DRIVER[id.0].load(Ordering::Relaxed).cast_const() == address;
    // Two symbols may share one address in a driver, so the name that was asked for comes first.
    Id::with_base(base.to_bytes()).find(is_there).or_else(|| Id::all(Library::Cuda).find(is_there))
}

/// True when the addresses are known.
pub(crate) fn is_loaded() -> bool {
    LOADED.load(Ordering::Acquire)
}

/// Loads the libraries once.
pub(crate) fn load() {
    if is_loaded() {
        return;
    }
    let _inside = Inside::enter();
    let objects = elf::objects();
    let between = preloaded_after_us(&objects);
    for library in [Library::Cuda, Library::Nvml] {
        let handle = driver::open(library);
        for id in Id::all(library) {
            let own = if handle.is_null() { core::ptr::null_mut() } else { dlsym::next_dlsym(handle, id.name()) };
            DRIVER[id.0].store(own, Ordering::Relaxed);
            let interposed = between.iter().find_map(|object| object.lookup(id.name()));
            let next = match (interposed, own.is_null()) {
                (Some(address), _) => address.cast_mut(),
                (None, false) => own,
                (None, true) => stand_in(library, id.name(), handle.is_null()),
            };
            NEXT[id.0].store(next, Ordering::Relaxed);
        }
    }
    // Pairs with the Acquire above: who sees the flag sees the addresses.
    LOADED.store(true, Ordering::Release);
}

/// Preloaded libraries that come right behind us: a tracer there expects to be called by us.
fn preloaded_after_us(objects: &[elf::Object]) -> Vec<elf::Object> {
    let preload = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let preload = preload.as_encoded_bytes();
    let named = |object: &elf::Object| {
        let path = object.path().to_bytes();
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let mut entries = preload.split(|byte| matches!(byte, b':' | b' '));
        !path.is_empty()
            && entries.any(|entry| entry == path || entry == file || entry.ends_with(&[b"/", file].concat()))
    };
    let behind = objects.iter().skip_while(|object| !driver::is_self(object)).skip(1);
    behind.take_while(|object| named(object)).copied().collect()
}

/// What answers where the driver has nothing.
fn stand_in(library: Library, name: &CStr, no_library: bool) -> *mut c_void {
    match (library, no_library) {
        (Library::Nvml, _) if name == c"nvmlErrorString" => nvml_text as *mut c_void,
        (Library::Cuda, true) => no_driver as *mut c_void,
        (Library::Cuda, false) => not_supported as *mut c_void,
        (Library::Nvml, true) => no_nvml as *mut c_void,
        (Library::Nvml, false) => not_in_nvml as *mut c_void,
    }
}

extern "C" fn no_driver() -> CUresult {
    CUresult::NO_DEVICE
}

extern "C" fn not_supported() -> CUresult {
    CUresult::NOT_SUPPORTED
}

/// NVML_ERROR_LIBRARY_NOT_FOUND
extern "C" fn no_nvml() -> c_int {
    12
}

/// NVML_ERROR_FUNCTION_NOT_FOUND
extern "C" fn not_in_nvml() -> c_int {
    13
}

/// `nvmlErrorString` returns text, so it can't answer with a code.
extern "C" fn nvml_text() -> *const c_char {
    c"NVML is not installed".as_ptr()
}

/// Called by [`lazy`] with the index that the trampoline left in a scratch register.
extern "C" fn load_and_find(index: usize) -> *const c_void {
    address(index)
}

/// Keeps the caller's arguments, loads the libraries, and goes on to the function.
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe extern "C" fn lazy() {
    core::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push rax",
        "push r11",
        "sub rsp, 128",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        "mov rdi, r11",
        "call {find}",
        "mov r11, rax",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "add rsp, 136",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "pop rbp",
        "jmp r11",
        find = sym load_and_find,
    )
}

/// Keeps the caller's arguments, loads the libraries, and goes on to the function.
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe extern "C" fn lazy() {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, -16]!",
        "stp x0, x1, [sp, -16]!",
        "stp x2, x3, [sp, -16]!",
        "stp x4, x5, [sp, -16]!",
        "stp x6, x7, [sp, -16]!",
        "str x8, [sp, -16]!",
        "stp q0, q1, [sp, -32]!",
        "stp q2, q3, [sp, -32]!",
        "stp q4, q5, [sp, -32]!",
        "stp q6, q7, [sp, -32]!",
        "mov x0, x17",
        "bl {find}",
        "mov x16, x0",
        "ldp q6, q7, [sp], 32",
        "ldp q4, q5, [sp], 32",
        "ldp q2, q3, [sp], 32",
        "ldp q0, q1, [sp], 32",
        "ldr x8, [sp], 16",
        "ldp x6, x7, [sp], 16",
        "ldp x4, x5, [sp], 16",
        "ldp x2, x3, [sp], 16",
        "ldp x0, x1, [sp], 16",
        "ldp x29, x30, [sp], 16",
        "br x16",
        find = sym load_and_find,
    )
}

/// The body of an entry point that is passed: one indirect jump through [`NEXT`].
#[cfg(target_arch = "x86_64")]
macro_rules! trampoline {
    ($index:expr) => {
        core::arch::naked_asm!(
            "mov r10, qword ptr [rip + {next} + {offset}]",
            "test r10, r10",
            "jz 2f",
            "jmp r10",
            "2:",
            "mov r11d, {index}",
            "jmp {lazy}",
            index = const $index,
            offset = const $index * 8,
            next = sym crate::real::NEXT,
            lazy = sym crate::real::lazy,
        )
    };
}

/// The body of an entry point that is passed: one indirect jump through [`NEXT`].
#[cfg(target_arch = "aarch64")]
macro_rules! trampoline {
    ($index:expr) => {
        core::arch::naked_asm!(
            "mov x17, {index}",
            "adrp x16, {next}",
            "add x16, x16, :lo12:{next}",
            "ldr x16, [x16, x17, lsl 3]",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "b {lazy}",
            index = const $index,
            next = sym crate::real::NEXT,
            lazy = sym crate::real::lazy,
        )
    };
}
pub(crate) use trampoline;
