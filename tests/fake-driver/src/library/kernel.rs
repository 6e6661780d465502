//! Kernels of libraries, which become functions in a context.

use super::Library;
use crate::args::{Answer, optional, put};
use crate::context::Context;
use crate::entry::Call;
use crate::module::function::{Function, Settings, parameter};
use crate::module::image::KernelFacts;
use crate::registry::{Registry, handle_of, pointer};
use crate::state;
use core::ffi::{c_char, c_int};
use driver_api::{CUdevice, CUfunc_cache, CUfunction, CUfunction_attribute, CUkernel, CUlibrary, CUresult};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Weak};

pub(crate) static KERNELS: Registry<Kernel> = Registry::new();

/// Shared memory of a block before somebody asks for more.
const SHARED_PER_BLOCK: u32 = 48 << 10;

/// A kernel, in no context.
pub(crate) struct Kernel {
    pub(crate) name: CString,
    facts: KernelFacts,
    library: Weak<Library>,
    settings: Settings,
    functions: Mutex<BTreeMap<u64, Arc<Function>>>,
}

impl Kernel {
    pub(crate) fn new(name: &CStr, facts: KernelFacts, library: &Arc<Library>) -> Self {
        let settings = Settings::new(&facts, SHARED_PER_BLOCK);
        Self { name: name.to_owned(), facts, library: Arc::downgrade(library), settings, functions: Mutex::default() }
    }

    pub(crate) fn handle(self: &Arc<Self>) -> CUkernel {
        pointer(handle_of(self))
    }

    fn library(&self) -> Answer<Arc<Library>> {
        self.library.upgrade().ok_or(CUresult::INVALID_HANDLE)
    }

    /// The kernel in a context.
    pub(crate) fn function(&self, context: &Arc<Context>) -> Answer<Arc<Function>> {
        if let Some(function) = self.functions.lock().get(&context.id) {
            return Ok(Arc::clone(function));
        }
        let function = self.library()?.module(context)?.function(&self.name)?;
        function.settings.copy_from(&self.settings);
        self.functions.lock().insert(context.id, Arc::clone(&function));
        Ok(function)
    }

    /// Forgets the function of a context that is destroyed.
    pub(crate) fn forget(&self, context: u64) {
        self.functions.lock().remove(&context);
    }
}

pub(crate) fn cuKernelGetFunction(_: &Call, function: *mut CUfunction, kernel: CUkernel) -> Answer {
    let kernel = KERNELS.get(kernel)?;
    put(function, kernel.function(&state::current()?)?.handle())
}

pub(crate) fn cuKernelGetLibrary(_: &Call, library: *mut CUlibrary, kernel: CUkernel) -> Answer {
    let found = KERNELS.get(kernel)?.library()?;
    put(library, pointer(handle_of(&found)))
}

pub(crate) fn cuKernelGetName(_: &Call, name: *mut *const c_char, kernel: CUkernel) -> Answer {
    put(name, KERNELS.get(kernel)?.name.as_ptr())
}

pub(crate) fn cuKernelGetAttribute(
    _: &Call,
    value: *mut c_int,
    attribute: CUfunction_attribute,
    kernel: CUkernel,
    device: CUdevice,
) -> Answer {
    let kernel = KERNELS.get(kernel)?;
    put(value, kernel.settings.get(attribute, &kernel.facts, state::device(device)?)?)
}

/// Holds for the kernel's functions in all contexts, also those that exist.
pub(crate) fn cuKernelSetAttribute(
    _: &Call,
    attribute: CUfunction_attribute,
    value: c_int,
    kernel: CUkernel,
    device: CUdevice,
) -> Answer {
    let kernel = KERNELS.get(kernel)?;
    let device = state::device(device)?;
    kernel.settings.set(attribute, value, &kernel.facts, device)?;
    for function in kernel.functions.lock().values() {
        function.settings.set(attribute, value, &function.facts, device)?;
    }
    Ok(())
}

/// A preference, which the driver may ignore.
pub(crate) fn cuKernelSetCacheConfig(_: &Call, kernel: CUkernel, config: CUfunc_cache, device: CUdevice) -> Answer {
    KERNELS.get(kernel)?;
    state::device(device)?;
    if (0..=3).contains(&config) { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

pub(crate) fn cuKernelGetParamInfo(
    _: &Call,
    kernel: CUkernel,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Answer {
    let (at, bytes) = parameter(&KERNELS.get(kernel)?.facts, index)?;
    optional(size, bytes);
    put(offset, at)
}

pub(crate) fn cuKernelGetParamCount(_: &Call, kernel: CUkernel, count: *mut usize) -> Answer {
    let kernel = KERNELS.get(kernel)?;
    put(count, kernel.facts.parameters.as_ref().ok_or(CUresult::NOT_SUPPORTED)?.len())
}
