//! Loading libraries and looking into them.

use super::{LIBRARIES, Library};
use crate::args::{Answer, optional, put, put_at, text};
use crate::entry::Call;
use crate::module::calls::{answer_options, image_of_file};
use crate::module::raw;
use crate::state;
use core::ffi::{c_char, c_uint, c_void};
use driver_api::{CUdeviceptr, CUjit_option, CUkernel, CUlibrary, CUlibraryOption, CUmodule, CUresult};
use std::ffi::CString;

#[allow(clippy::too_many_arguments)] // The API has that many.
pub(crate) fn cuLibraryLoadData(
    _: &Call,
    library: *mut CUlibrary,
    code: *const c_void,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    _library_options: *mut CUlibraryOption,
    _library_values: *mut *mut c_void,
    _library_count: c_uint,
) -> Answer {
    if library.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    put(library, Library::load(raw::read(code)?))?;
    answer_options(count, options, values)
}

#[allow(clippy::too_many_arguments)] // The API has that many.
pub(crate) fn cuLibraryLoadFromFile(
    _: &Call,
    library: *mut CUlibrary,
    path: *const c_char,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    _library_options: *mut CUlibraryOption,
    _library_values: *mut *mut c_void,
    _library_count: c_uint,
) -> Answer {
    if library.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    put(library, Library::load(image_of_file(path)?))?;
    answer_options(count, options, values)
}

pub(crate) fn cuLibraryUnload(_: &Call, library: CUlibrary) -> Answer {
    LIBRARIES.get(library)?.unload()
}

pub(crate) fn cuLibraryGetKernel(_: &Call, kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) -> Answer {
    put(kernel, LIBRARIES.get(library)?.kernel(text(name)?)?.handle())
}

pub(crate) fn cuLibraryGetKernelCount(_: &Call, count: *mut c_uint, library: CUlibrary) -> Answer {
    let listed = LIBRARIES.get(library)?.image().kernels.len();
    put(count, c_uint::try_from(listed).unwrap_or(c_uint::MAX))
}

pub(crate) fn cuLibraryEnumerateKernels(_: &Call, kernels: *mut CUkernel, count: c_uint, library: CUlibrary) -> Answer {
    let library = LIBRARIES.get(library)?;
    for (at, name) in library.image().kernels.keys().take(count as usize).enumerate() {
        let name = CString::new(name.as_str()).map_err(|_| CUresult::NOT_FOUND)?;
        put_at(kernels, at, library.kernel(&name)?.handle())?;
    }
    Ok(())
}

pub(crate) fn cuLibraryGetModule(_: &Call, module: *mut CUmodule, library: CUlibrary) -> Answer {
    put(module, LIBRARIES.get(library)?.module(&state::current()?)?.handle())
}

pub(crate) fn cuLibraryGetGlobal(
    _: &Call,
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> Answer {
    let (at, size) = LIBRARIES.get(library)?.module(&state::current()?)?.global(text(name)?)?;
    optional(address, at);
    optional(bytes, usize::try_from(size).unwrap_or(usize::MAX));
    Ok(())
}

/// Only images whose names can't be read may have one, and then its handle stands for its address.
pub(crate) fn cuLibraryGetUnifiedFunction(
    _: &Call,
    function: *mut *mut c_void,
    library: CUlibrary,
    name: *const c_char,
) -> Answer {
    let library = LIBRARIES.get(library)?;
    let name = text(name)?;
    if function.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    if !library.image().open {
        return Err(CUresult::NOT_FOUND);
    }
    put(function, library.kernel(name)?.handle())
}

/// Managed variables, of which only PTX texts tell that they are.
pub(crate) fn cuLibraryGetManaged(
    call: &Call,
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> Answer {
    let found = LIBRARIES.get(library)?;
    let name_text = text(name)?.to_str().map_err(|_| CUresult::NOT_FOUND)?;
    if !found.image().open && !found.image().globals.get(name_text).is_some_and(|global| global.managed) {
        return Err(CUresult::NOT_FOUND);
    }
    cuLibraryGetGlobal(call, address, bytes, library, name)
}
