//! Code and its variables take memory that only the driver knows: measured when an image is loaded, or noted, to be
//! measured at the next synchronisation, where a look-up may load it late.
#![allow(non_snake_case, clippy::too_many_arguments)]

use super::{Answer, Undone};
use crate::args::{Out, Raw};
use crate::entry::Next;
use crate::{account, calls, functions, overhead};
use core::ffi::{c_char, c_void};
use driver_api::{
    CUdeviceptr, CUdeviceptr_v1, CUfunction, CUjit_option, CUkernel, CUlibrary, CUlibraryOption, CUmodule,
};

pub(crate) fn cuModuleLoad(next: Next<'_>, module: Out<CUmodule>, _fname: Raw<c_char>) -> Answer {
    load(next, module)
}

pub(crate) fn cuModuleLoadData(next: Next<'_>, module: Out<CUmodule>, _image: Raw<c_void>) -> Answer {
    load(next, module)
}

pub(crate) fn cuModuleLoadDataEx(
    next: Next<'_>,
    module: Out<CUmodule>,
    _image: Raw<c_void>,
    _numOptions: u32,
    _options: Raw<CUjit_option>,
    _optionValues: Raw<*mut c_void>,
) -> Answer {
    load(next, module)
}

pub(crate) fn cuModuleLoadFatBinary(next: Next<'_>, module: Out<CUmodule>, _fatCubin: Raw<c_void>) -> Answer {
    load(next, module)
}

fn load(next: Next<'_>, module: Out<CUmodule>) -> Answer {
    loaded(next, module, |module| calls::unload_module(module as usize))
}

fn loaded(next: Next<'_>, out: Out<*mut c_void>, undo: impl FnOnce(*mut c_void) -> Undone) -> Answer {
    let Some(account) = account::of_current_device()? else { return next.call() };
    let measured = overhead::before_call(account, 0)?;
    let before = out.get();
    next.call()?;
    measured.settle_or(|| {
        undo(out.get())?;
        out.set(before);
        Ok(())
    })
}

pub(crate) fn cuModuleUnload(next: Next<'_>, hmod: CUmodule) -> Answer {
    functions::forget(hmod as usize);
    overhead::around_free(|| next.call())
}

pub(crate) fn cuLibraryLoadData(
    next: Next<'_>,
    library: Out<CUlibrary>,
    _code: Raw<c_void>,
    _jitOptions: Raw<CUjit_option>,
    _jitOptionsValues: Raw<*mut c_void>,
    _numJitOptions: u32,
    _libraryOptions: Raw<CUlibraryOption>,
    _libraryOptionValues: Raw<*mut c_void>,
    _numLibraryOptions: u32,
) -> Answer {
    load_library(next, library)
}

pub(crate) fn cuLibraryLoadFromFile(
    next: Next<'_>,
    library: Out<CUlibrary>,
    _fileName: Raw<c_char>,
    _jitOptions: Raw<CUjit_option>,
    _jitOptionsValues: Raw<*mut c_void>,
    _numJitOptions: u32,
    _libraryOptions: Raw<CUlibraryOption>,
    _libraryOptionValues: Raw<*mut c_void>,
    _numLibraryOptions: u32,
) -> Answer {
    load_library(next, library)
}

/// A library belongs to no context; one that is loaded eagerly goes into all there are.
fn load_library(next: Next<'_>, library: Out<CUlibrary>) -> Answer {
    let undo = |library: *mut c_void| calls::unload_library(library as usize);
    loaded(next, library, undo)?;
    overhead::mark_stale();
    Ok(())
}

pub(crate) fn cuLibraryUnload(next: Next<'_>, _library: CUlibrary) -> Answer {
    overhead::around_free(|| next.call())
}

/// A look-up that may load what was left for later, also when it then finds nothing.
fn looked_up(next: Next<'_>) -> Answer {
    let answer = next.call();
    overhead::mark_stale();
    answer
}

pub(crate) fn cuModuleGetFunction(
    next: Next<'_>,
    hfunc: Raw<CUfunction>,
    hmod: CUmodule,
    _name: Raw<c_char>,
) -> Answer {
    looked_up(next)?;
    if let Some(function) = hfunc.out() {
        functions::remember(hmod as usize, function.get() as usize);
    }
    Ok(())
}

pub(crate) fn cuModuleGetGlobal_v2(
    next: Next<'_>,
    _dptr: Raw<CUdeviceptr>,
    _bytes: Raw<usize>,
    _hmod: CUmodule,
    _name: Raw<c_char>,
) -> Answer {
    looked_up(next)
}

pub(crate) fn cuModuleGetGlobal(
    next: Next<'_>,
    _dptr: Raw<CUdeviceptr_v1>,
    _bytes: Raw<u32>,
    _hmod: CUmodule,
    _name: Raw<c_char>,
) -> Answer {
    looked_up(next)
}

pub(crate) fn cuFuncLoad(next: Next<'_>, _function: CUfunction) -> Answer {
    looked_up(next)
}

pub(crate) fn cuKernelGetFunction(next: Next<'_>, _pFunc: Raw<CUfunction>, _kernel: CUkernel) -> Answer {
    looked_up(next)
}

pub(crate) fn cuLibraryGetModule(next: Next<'_>, _pMod: Raw<CUmodule>, _library: CUlibrary) -> Answer {
    looked_up(next)
}

pub(crate) fn cuLibraryGetGlobal(
    next: Next<'_>,
    _dptr: Raw<CUdeviceptr>,
    _bytes: Raw<usize>,
    _library: CUlibrary,
    _name: Raw<c_char>,
) -> Answer {
    looked_up(next)
}

pub(crate) fn cuLibraryGetManaged(
    next: Next<'_>,
    _dptr: Raw<CUdeviceptr>,
    _bytes: Raw<usize>,
    _library: CUlibrary,
    _name: Raw<c_char>,
) -> Answer {
    looked_up(next)
}

pub(crate) fn cuLibraryGetUnifiedFunction(
    next: Next<'_>,
    _fptr: Raw<*mut c_void>,
    _library: CUlibrary,
    _symbol: Raw<c_char>,
) -> Answer {
    looked_up(next)
}
