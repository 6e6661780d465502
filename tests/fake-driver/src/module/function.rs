//! Functions: kernels of a module, and what can be asked and set of them.

use super::Module;
use super::image::KernelFacts;
use crate::args::{Answer, put};
use crate::context::Context;
use crate::device::attributes::value as device_attribute;
use crate::entry::Call;
use crate::launch::timing::Timing;
use crate::library::kernel::{KERNELS, Kernel};
use crate::registry::{Cache, Registry, handle_of, pointer};
use crate::state;
use crate::stream::DeviceQueue;
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use driver_api::{
    CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState, CUmodule, CUresult, CUsharedconfig,
};
use parking_lot::Mutex;
use std::ffi::CString;
use std::sync::{Arc, Weak};

pub(crate) static FUNCTIONS: Registry<Function> = Registry::new();

thread_local! {
    pub(crate) static FUNCTION_CACHE: Cache<Function> = const { Cache::new() };
}

/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK`
const SHARED_PER_BLOCK: c_int = 8;
/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`
const SHARED_PER_BLOCK_OPT_IN: c_int = 97;

/// A kernel in a context.
pub(crate) struct Function {
    pub(crate) name: CString,
    pub(crate) facts: KernelFacts,
    pub(crate) module: Weak<Module>,
    pub(crate) context: Weak<Context>,
    pub(crate) queue: Arc<DeviceQueue>,
    pub(crate) timing: Timing,
    pub(crate) settings: Settings,
    /// Shape and parameters of the launches of before CUDA 4.
    pub(crate) classic: Mutex<crate::launch::classic::State>,
}

/// What a program can set of a function or kernel.
pub(crate) struct Settings {
    /// Dynamic shared memory that a launch may ask for.
    pub(crate) dynamic_shared_max: AtomicU32,
    carveout: AtomicI32,
    cluster: [AtomicI32; 3],
    cluster_policy: AtomicI32,
    cluster_non_portable: AtomicI32,
}

impl Settings {
    pub(crate) fn new(facts: &KernelFacts, shared_per_block: u32) -> Self {
        Self {
            dynamic_shared_max: AtomicU32::new(shared_per_block.saturating_sub(facts.shared_bytes)),
            carveout: AtomicI32::new(-1),
            cluster: [const { AtomicI32::new(0) }; 3],
            cluster_policy: AtomicI32::new(0),
            cluster_non_portable: AtomicI32::new(0),
        }
    }

    /// Takes over what was set of the kernel that a function comes from.
    pub(crate) fn copy_from(&self, other: &Self) {
        self.dynamic_shared_max.store(other.dynamic_shared_max.load(Ordering::Relaxed), Ordering::Relaxed);
        self.carveout.store(other.carveout.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(crate) fn get(&self, attribute: c_int, facts: &KernelFacts, device: &state::Device) -> Answer<c_int> {
        let (major, minor) = device.spec().compute_capability;
        let version = major * 10 + minor;
        let number = match attribute {
            0 => facts.max_threads,
            1 => facts.shared_bytes,
            2 | 7 | 10 => 0,
            3 => facts.local_bytes,
            4 => facts.registers,
            5 | 6 => version,
            8 => self.dynamic_shared_max.load(Ordering::Relaxed),
            9 => return Ok(self.carveout.load(Ordering::Relaxed)),
            11..=13 => return Ok(self.cluster[usize::try_from(attribute - 11).unwrap_or(0)].load(Ordering::Relaxed)),
            14 => return Ok(self.cluster_non_portable.load(Ordering::Relaxed)),
            15 => return Ok(self.cluster_policy.load(Ordering::Relaxed)),
            _ => return Err(CUresult::INVALID_VALUE),
        };
        c_int::try_from(number).map_err(|_| CUresult::INVALID_VALUE)
    }

    pub(crate) fn set(&self, attribute: c_int, value: c_int, facts: &KernelFacts, device: &state::Device) -> Answer {
        let at_least_zero = u32::try_from(value).map_err(|_| CUresult::INVALID_VALUE);
        match attribute {
            8 => {
                let most = device_attribute(device, SHARED_PER_BLOCK_OPT_IN)?;
                let most = u32::try_from(most).unwrap_or(0).saturating_sub(facts.shared_bytes);
                let wanted = at_least_zero.ok().filter(|bytes| *bytes <= most).ok_or(CUresult::INVALID_VALUE)?;
                self.dynamic_shared_max.store(wanted, Ordering::Relaxed);
            }
            9 if (-1..=100).contains(&value) => self.carveout.store(value, Ordering::Relaxed),
            11..=13 => {
                at_least_zero?;
                self.cluster[usize::try_from(attribute - 11).unwrap_or(0)].store(value, Ordering::Relaxed);
            }
            14 if (0..=1).contains(&value) => self.cluster_non_portable.store(value, Ordering::Relaxed),
            15 if (0..=2).contains(&value) => self.cluster_policy.store(value, Ordering::Relaxed),
            _ => return Err(CUresult::INVALID_VALUE),
        }
        Ok(())
    }
}

impl Function {
    pub(crate) fn new(name: &str, facts: KernelFacts, module: &Arc<Module>) -> Self {
        let shared = device_attribute(module.context.device, SHARED_PER_BLOCK).unwrap_or(48 << 10);
        let settings = Settings::new(&facts, u32::try_from(shared).unwrap_or(0));
        Self {
            name: CString::new(name).unwrap_or_default(),
            facts,
            module: Arc::downgrade(module),
            context: Arc::downgrade(&module.context),
            queue: Arc::clone(&module.context.streams.queue),
            timing: Timing::of(name),
            settings,
            classic: Mutex::default(),
        }
    }

    /// What the program holds.
    pub(crate) fn handle(self: &Arc<Self>) -> CUfunction {
        pointer(handle_of(self))
    }

    /// Makes room in the context for the local memory of the threads, before a launch, and has managed memory come.
    #[inline]
    ///
    /// How long the latter takes the device, before the kernel.
    pub(crate) fn fit(&self) -> Answer<u64> {
        if self.facts.local_bytes == 0 && !state::has_managed() {
            return Ok(0);
        }
        let context = self.context()?;
        if self.facts.local_bytes > 0 {
            context.fit_local(self.facts.local_bytes)?;
        }
        Ok(context.device.use_managed())
    }

    pub(crate) fn context(&self) -> Answer<Arc<Context>> {
        self.context.upgrade().ok_or(CUresult::CONTEXT_IS_DESTROYED)
    }
}

/// The function behind a handle; a kernel's handle means the kernel in the current context.
pub(crate) fn find(handle: CUfunction) -> Answer<Arc<Function>> {
    FUNCTIONS.get(handle).or_else(|error| match KERNELS.get(handle) {
        Ok(kernel) => kernel.function(&state::current()?),
        Err(_) => Err(error),
    })
}

fn kernel_of(function: &Function) -> Option<Arc<Kernel>> {
    let module = function.module.upgrade()?;
    crate::library::find(pointer(module.library)).ok()?.kernel(&function.name).ok()
}

pub(crate) fn cuFuncGetAttribute(
    _: &Call,
    value: *mut c_int,
    attribute: CUfunction_attribute,
    function: CUfunction,
) -> Answer {
    let function = find(function)?;
    put(value, function.settings.get(attribute, &function.facts, function.context()?.device)?)
}

pub(crate) fn cuFuncSetAttribute(
    _: &Call,
    function: CUfunction,
    attribute: CUfunction_attribute,
    value: c_int,
) -> Answer {
    let function = find(function)?;
    function.settings.set(attribute, value, &function.facts, function.context()?.device)
}

/// A preference, which the driver may ignore.
pub(crate) fn cuFuncSetCacheConfig(_: &Call, function: CUfunction, config: CUfunc_cache) -> Answer {
    find(function)?;
    if (0..=3).contains(&config) { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

pub(crate) fn cuFuncSetSharedMemConfig(_: &Call, function: CUfunction, config: CUsharedconfig) -> Answer {
    find(function)?;
    if (0..=2).contains(&config) { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

pub(crate) fn cuFuncGetModule(_: &Call, module: *mut CUmodule, function: CUfunction) -> Answer {
    let found = find(function)?.module.upgrade().ok_or(CUresult::INVALID_HANDLE)?;
    put(module, found.handle())
}

pub(crate) fn cuFuncGetName(_: &Call, name: *mut *const c_char, function: CUfunction) -> Answer {
    if name.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    // The name must live as long as the kernel, which outlives its function in this context.
    let function = find(function)?;
    match kernel_of(&function) {
        Some(kernel) => put(name, kernel.name.as_ptr()),
        None => put(name, function.name.as_ptr()),
    }
}

pub(crate) fn cuFuncIsLoaded(_: &Call, state: *mut CUfunctionLoadingState, function: CUfunction) -> Answer {
    const LOADED: CUfunctionLoadingState = 1;
    find(function)?;
    put(state, LOADED)
}

pub(crate) fn cuFuncLoad(_: &Call, function: CUfunction) -> Answer {
    find(function).map(drop)
}

/// Offset and size of a parameter; 1 beyond the last, 801 where the image doesn't tell.
pub(crate) fn parameter(facts: &KernelFacts, index: usize) -> Answer<(usize, usize)> {
    let parameters = facts.parameters.as_ref().ok_or(CUresult::NOT_SUPPORTED)?;
    parameters.get(index).copied().ok_or(CUresult::INVALID_VALUE)
}

pub(crate) fn cuFuncGetParamInfo(
    _: &Call,
    function: CUfunction,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Answer {
    let (at, bytes) = parameter(&find(function)?.facts, index)?;
    crate::args::optional(size, bytes);
    put(offset, at)
}

pub(crate) fn cuFuncGetParamCount(_: &Call, function: CUfunction, count: *mut usize) -> Answer {
    let function = find(function)?;
    put(count, function.facts.parameters.as_ref().ok_or(CUresult::NOT_SUPPORTED)?.len())
}
