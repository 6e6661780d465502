//! `cuGetExportTable`: the tables of function pointers through which NVIDIA's runtime reaches the driver.
//!
//! Given are the tables that the runtime of CUDA 10.2 needs, and those without which newer ones crash
//! before they have finished their look-ups. The table by which runtimes since 11.2 make sure that the
//! driver is NVIDIA's is refused: this driver isn't, and doesn't say it is.
#![allow(unsafe_code)]

mod storage;

use crate::args::{Answer, get, put};
use crate::context::Context;
use crate::entry::{self, Call, Entry};
use crate::module::{Module, raw};
use crate::state;
use core::ffi::{c_uint, c_void};
use driver_api::{CUcontext, CUdevice, CUmodule, CUresult, CUuuid};
use std::sync::Arc;

/// A word of a table: its size, a function, or nothing.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Word(*const c_void);

// SAFETY: the words are sizes and addresses of functions, which never change.
unsafe impl Sync for Word {}

impl Word {
    const NONE: Self = Self(core::ptr::null());
    /// For slots whose meaning isn't known.
    const UNKNOWN: Self = Self(unknown_slot as *const c_void);

    const fn bytes(words: usize) -> Self {
        Self(core::ptr::without_provenance(words * size_of::<Self>()))
    }
}

static CUDART_INTERFACE: [Word; 13] = [
    Word::bytes(13),
    Word(load_wrapper as *const c_void),
    Word(primary_context as *const c_void),
    Word::UNKNOWN,
    Word::UNKNOWN,
    Word::UNKNOWN,
    Word(load_wrapper_with_options as *const c_void),
    Word(nothing as *const c_void),
    Word(load_fatbinary as *const c_void),
    Word::UNKNOWN,
    Word::UNKNOWN,
    Word::UNKNOWN,
    Word(nothing as *const c_void),
];

static CALLBACK_HOOKS: [Word; 7] = [
    Word::bytes(7),
    Word::UNKNOWN,
    Word(callback_flags as *const c_void),
    Word::UNKNOWN,
    Word::UNKNOWN,
    Word::UNKNOWN,
    Word(domain_flags as *const c_void),
];

static TOOLS_STORAGE: [Word; 3] = [Word::bytes(3), Word::UNKNOWN, Word::UNKNOWN];

/// The one table without its size in front.
static CONTEXT_STORAGE: [Word; 4] = [
    Word(storage::put_value as *const c_void),
    Word(storage::delete_value as *const c_void),
    Word(storage::get_value as *const c_void),
    Word::NONE,
];

static CONTEXT_CHECKS: [Word; 4] =
    [Word::bytes(4), Word::UNKNOWN, Word(check_context as *const c_void), Word(nothing as *const c_void)];

/// Asked for by the runtime of CUDA 13, which stops without it and has not been seen to call into it.
static UNCALLED: [Word; 8] = [
    Word::bytes(8),
    Word::UNKNOWN,
    Word::UNKNOWN,
    Word::UNKNOWN,
    Word::UNKNOWN,
    Word::UNKNOWN,
    Word::UNKNOWN,
    Word::UNKNOWN,
];

fn table(id: u128) -> Option<&'static [Word]> {
    match id {
        0x6bd5_fb6c_5bf4_e74a_8987_d939_12fd_9df9 => Some(&CUDART_INTERFACE),
        0xa094_798c_2e74_2e74_93f2_0800_200c_0a66 => Some(&CALLBACK_HOOKS),
        0x42d8_5a81_23f6_cb47_8298_f6e7_8a3a_ecdc => Some(&TOOLS_STORAGE),
        0xc693_336e_1121_df11_a8c3_68f3_55d8_9593 => Some(&CONTEXT_STORAGE),
        0x263e_8860_7cd2_6143_92f6_bbd5_006d_fa7e => Some(&CONTEXT_CHECKS),
        0x2131_8c60_9714_3248_8ca6_41ff_7324_c8f2 => Some(&UNCALLED),
        _ => None,
    }
}

pub(crate) fn cuGetExportTable(_: &Call, out: *mut *const c_void, id: *const CUuuid) -> Answer {
    let id = u128::from_be_bytes(get(id)?.bytes);
    let table = table(id).ok_or(CUresult::INVALID_VALUE)?;
    put(out, table.as_ptr().cast())
}

/// Calls what a context's storage has to have destroyed.
pub(crate) fn context_closes(context: &Arc<Context>) {
    storage::context_closes(context.handle());
}

const fn entry(name: &'static str) -> Entry {
    Entry { name, since: 1, stateless: false, unheld: false, per_thread: false }
}

fn load(out: *mut CUmodule, image: *const c_void) -> Answer {
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let context = state::current()?;
    put(out, Module::load(&context, raw::read(image)?, 0)?.handle())
}

static LOAD: Entry = entry("export table: load module");

extern "C" fn load_wrapper(out: *mut CUmodule, wrapper: *const c_void) -> CUresult {
    entry::enter(&LOAD, || [("image", wrapper.addr() as u64)], |_| load(out, wrapper))
}

extern "C" fn load_wrapper_with_options(
    out: *mut CUmodule,
    wrapper: *const c_void,
    _options: *mut c_void,
    _values: *mut c_void,
    _count: c_uint,
) -> CUresult {
    load_wrapper(out, wrapper)
}

extern "C" fn load_fatbinary(
    image: *const c_void,
    out: *mut CUmodule,
    _options: *mut c_void,
    _values: *mut c_void,
    _count: c_uint,
) -> CUresult {
    load_wrapper(out, image)
}

/// The handle of a primary context, which need not be active, and of which no reference is taken.
extern "C" fn primary_context(out: *mut CUcontext, device: CUdevice) -> CUresult {
    static ENTRY: Entry = entry("export table: primary context");
    let body = |_: &Call| put(out, state::handle(state::device(device)?.primary_handle()));
    entry::enter(&ENTRY, || [("device", u64::from(device.cast_unsigned()))], body)
}

/// For notices that need no answer.
extern "C" fn nothing() -> CUresult {
    CUresult::SUCCESS
}

extern "C" fn unknown_slot() -> CUresult {
    static ENTRY: Entry = entry("export table: unknown slot");
    entry::unmodelled(&ENTRY)
}

/// Flags by which tools ask to be called; all are zero for ever.
static FLAGS: [c_uint; 1024] = [0; 1024];
const DOMAINS: usize = 14;

extern "C" fn callback_flags(out: *mut *const c_uint, count: *mut usize) {
    crate::args::optional(out, FLAGS.as_ptr());
    crate::args::optional(count, FLAGS.len());
}

extern "C" fn domain_flags(out: *mut *const c_uint, count: *mut usize) {
    crate::args::optional(out, FLAGS.as_ptr());
    crate::args::optional(count, DOMAINS);
}

extern "C" fn check_context(_context: CUcontext, answer: *mut c_uint, _other: *mut *const c_void) -> CUresult {
    crate::args::optional(answer, 0);
    CUresult::SUCCESS
}
