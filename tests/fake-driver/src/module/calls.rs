//! Loading and unloading modules, and what can be asked of them.

use super::function::Function;
use super::image::{Image, parse};
use super::{MODULES, Module, listed, raw};
use crate::args::{Answer, optional, put, put_at, slice, text};
use crate::capture;
use crate::entry::Call;
use crate::state;
use core::ffi::{c_char, c_uint, c_void};
use driver_api::{CUdeviceptr, CUdeviceptr_v1, CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode, CUresult};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Answers the options that ask for something: no log was written, no time was spent.
pub(crate) fn answer_options(count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) -> Answer {
    const WALL_TIME: CUjit_option = 2;
    const INFO_LOG_BYTES: CUjit_option = 4;
    const ERROR_LOG_BYTES: CUjit_option = 6;
    for (at, option) in slice(options, count as usize)?.iter().enumerate() {
        if matches!(*option, WALL_TIME | INFO_LOG_BYTES | ERROR_LOG_BYTES) {
            put_at(values, at, core::ptr::null_mut())?;
        }
    }
    Ok(())
}

/// The image in a file: 301 without one.
pub(crate) fn read_file(path: *const c_char) -> Answer<Vec<u8>> {
    let path = text(path)?;
    std::fs::read(OsStr::from_bytes(path.to_bytes())).map_err(|_| CUresult::FILE_NOT_FOUND)
}

pub(crate) fn image_of_file(path: *const c_char) -> Answer<Arc<Image>> {
    let bytes = read_file(path)?;
    parse(&bytes).map(Arc::new).ok_or(CUresult::INVALID_IMAGE)
}

fn load(out: *mut CUmodule, image: impl FnOnce() -> Answer<Arc<Image>>) -> Answer {
    let context = state::current()?;
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    capture::forbid_unsafe_call()?;
    put(out, Module::load(&context, image()?, 0)?.handle())
}

pub(crate) fn cuModuleLoad(_: &Call, module: *mut CUmodule, path: *const c_char) -> Answer {
    load(module, || image_of_file(path))
}

pub(crate) fn cuModuleLoadData(_: &Call, module: *mut CUmodule, image: *const c_void) -> Answer {
    load(module, || raw::read(image))
}

pub(crate) fn cuModuleLoadDataEx(
    _: &Call,
    module: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Answer {
    load(module, || raw::read(image))?;
    answer_options(count, options, values)
}

pub(crate) fn cuModuleLoadFatBinary(_: &Call, module: *mut CUmodule, image: *const c_void) -> Answer {
    load(module, || raw::read(image))
}

pub(crate) fn cuModuleUnload(_: &Call, module: CUmodule) -> Answer {
    let module = MODULES.get(module)?;
    if module.library != 0 {
        return Err(CUresult::NOT_PERMITTED);
    }
    capture::forbid_unsafe_call()?;
    module.unload();
    Ok(())
}

/// Lazy since CUDA 12.2 unless the environment says otherwise. It is told, not done: images load at once.
pub(crate) fn cuModuleGetLoadingMode(_: &Call, mode: *mut CUmoduleLoadingMode) -> Answer {
    const EAGER: CUmoduleLoadingMode = 1;
    const LAZY: CUmoduleLoadingMode = 2;
    let eager = std::env::var_os("CUDA_MODULE_LOADING").is_some_and(|value| value == "EAGER");
    put(mode, if eager { EAGER } else { LAZY })
}

pub(crate) fn cuModuleGetFunction(
    _: &Call,
    function: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> Answer {
    let module = MODULES.get(module)?;
    let name = text(name)?;
    if function.is_null() || name.is_empty() {
        return Err(CUresult::INVALID_VALUE);
    }
    let found: Arc<Function> = module.function(name)?;
    put(function, found.handle())
}

pub(crate) fn cuModuleGetFunctionCount(_: &Call, count: *mut c_uint, module: CUmodule) -> Answer {
    let module = MODULES.get(module)?;
    put(count, c_uint::try_from(module.image().kernels.len()).unwrap_or(c_uint::MAX))
}

pub(crate) fn cuModuleEnumerateFunctions(
    _: &Call,
    functions: *mut CUfunction,
    count: c_uint,
    module: CUmodule,
) -> Answer {
    let module = MODULES.get(module)?;
    for (at, handle) in listed(&module)?.into_iter().take(count as usize).enumerate() {
        put_at(functions, at, handle)?;
    }
    Ok(())
}

pub(crate) fn cuModuleGetGlobal_v2(
    _: &Call,
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    module: CUmodule,
    name: *const c_char,
) -> Answer {
    let module = MODULES.get(module)?;
    if address.is_null() && bytes.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let (at, size) = module.global(text(name)?)?;
    optional(address, at);
    optional(bytes, usize::try_from(size).unwrap_or(usize::MAX));
    Ok(())
}

/// The oldest form has 32-bit addresses, where a variable of these contexts never lies.
pub(crate) fn cuModuleGetGlobal(
    _: &Call,
    address: *mut CUdeviceptr_v1,
    bytes: *mut c_uint,
    module: CUmodule,
    name: *const c_char,
) -> Answer {
    let (at, size) = MODULES.get(module)?.global(text(name)?)?;
    let at = CUdeviceptr_v1::try_from(at).map_err(|_| CUresult::INVALID_VALUE)?;
    optional(address, at);
    optional(bytes, c_uint::try_from(size).unwrap_or(c_uint::MAX));
    Ok(())
}
