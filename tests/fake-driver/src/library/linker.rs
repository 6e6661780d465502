//! The linker: takes images and answers one. Nothing is compiled: the result is the last image added, so
//! that loading it finds the names of that one. That is right for one input and an approximation for more.

use crate::args::{Answer, optional, put, slice};
use crate::entry::Call;
use crate::module::calls::{answer_options, read_file};
use crate::module::image::parse;
use crate::registry::Registry;
use core::ffi::{c_char, c_uint, c_void};
use driver_api::{CUjit_option, CUjitInputType, CUlinkState, CUresult};
use parking_lot::Mutex;
use std::sync::Arc;

static LINKERS: Registry<Linker> = Registry::new();

/// A link in progress.
struct Linker {
    /// The image so far, with a zero behind it, as loading a text needs.
    image: Mutex<Vec<u8>>,
    /// Options of the beginning, which are answered at the end.
    options: Vec<(usize, CUjit_option)>,
    values: usize,
}

fn is_known(kind: CUjitInputType) -> bool {
    (0..=6).contains(&kind)
}

pub(crate) fn cuLinkCreate_v2(
    _: &Call,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    out: *mut CUlinkState,
) -> Answer {
    crate::state::current()?;
    let options = slice(options, count as usize)?.iter().copied().enumerate().collect();
    put(out, LINKERS.insert(Arc::new(Linker { image: Mutex::default(), options, values: values.expose_provenance() })))
}

pub(crate) fn cuLinkCreate(
    call: &Call,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    out: *mut CUlinkState,
) -> Answer {
    cuLinkCreate_v2(call, count, options, values, out)
}

fn add(linker: CUlinkState, kind: CUjitInputType, input: &[u8]) -> Answer {
    let linker = LINKERS.get(linker)?;
    if !is_known(kind) {
        return Err(CUresult::INVALID_VALUE);
    }
    // Archives, objects and intermediate code hold images that nobody looks into.
    let is_direct = matches!(kind, 0..=2);
    let length = input.len() - usize::from(input.last() == Some(&0) && kind == 1);
    if is_direct && parse(&input[..length]).is_none() {
        return Err(CUresult::INVALID_IMAGE);
    }
    let mut image = linker.image.lock();
    *image = if is_direct { input.to_vec() } else { b"fake".to_vec() };
    image.push(0);
    Ok(())
}

#[allow(clippy::too_many_arguments)] // The API has that many.
pub(crate) fn cuLinkAddData_v2(
    _: &Call,
    state: CUlinkState,
    kind: CUjitInputType,
    data: *mut c_void,
    size: usize,
    _name: *const c_char,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Answer {
    if data.is_null() || size == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    add(state, kind, slice(data.cast::<u8>(), size)?)?;
    answer_options(count, options, values)
}

#[allow(clippy::too_many_arguments)] // The API has that many.
pub(crate) fn cuLinkAddData(
    call: &Call,
    state: CUlinkState,
    kind: CUjitInputType,
    data: *mut c_void,
    size: usize,
    name: *const c_char,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Answer {
    cuLinkAddData_v2(call, state, kind, data, size, name, count, options, values)
}

pub(crate) fn cuLinkAddFile_v2(
    _: &Call,
    state: CUlinkState,
    kind: CUjitInputType,
    path: *const c_char,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Answer {
    add(state, kind, &read_file(path)?)?;
    answer_options(count, options, values)
}

pub(crate) fn cuLinkAddFile(
    call: &Call,
    state: CUlinkState,
    kind: CUjitInputType,
    path: *const c_char,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Answer {
    cuLinkAddFile_v2(call, state, kind, path, count, options, values)
}

/// The result lives until the linker is destroyed.
pub(crate) fn cuLinkComplete(_: &Call, state: CUlinkState, cubin: *mut *mut c_void, size: *mut usize) -> Answer {
    let linker = LINKERS.get(state)?;
    let mut image = linker.image.lock();
    if image.is_empty() {
        return Err(CUresult::INVALID_VALUE);
    }
    let values = core::ptr::with_exposed_provenance_mut::<*mut c_void>(linker.values);
    for (at, option) in &linker.options {
        let mut asked = *option;
        answer_options(1, &raw mut asked, values.wrapping_add(*at))?;
    }
    optional(size, image.len() - 1);
    put(cubin, image.as_mut_ptr().cast())
}

pub(crate) fn cuLinkDestroy(_: &Call, state: CUlinkState) -> Answer {
    LINKERS.remove(state).map(drop)
}
