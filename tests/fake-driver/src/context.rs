//! Contexts: creation and destruction, and each thread's stack of them.

pub(crate) mod limits;
pub(crate) mod peers;
pub(crate) mod primary;
pub(crate) mod properties;

pub(crate) use primary::Primary;

use crate::args::{Answer, get_optional, put};
use crate::entry::{Call, version};
use crate::memory::{Kind, SmallBlocks};
use crate::state::{self, Device, driver, handle, with_stack};
use crate::stream::ContextStreams;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use driver_api::{CUcontext, CUctxCreateParams, CUdevice, CUexecAffinityParam, CUresult};
use limits::Limits;
use parking_lot::Mutex;
use peers::Peers;
use std::sync::Arc;

/// `CU_CTX_FLAGS_MASK`
const FLAGS_MASK: u32 = 0xff;
/// `CU_CTX_SCHED_MASK`
const SCHEDULE_MASK: u32 = 0x07;
/// `CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY`
const UNSUPPORTED_EXEC_AFFINITY: CUresult = CUresult(224);

/// A context, from its creation (or the activation of a device's primary one) to its end.
pub(crate) struct Context {
    /// Unique for the life of the process.
    pub(crate) id: u64,
    /// The device it is on.
    pub(crate) device: &'static Device,
    /// True for the device's primary context.
    pub(crate) is_primary: bool,
    /// The version that `cuCtxGetApiVersion` answers.
    api_version: u32,
    flags: AtomicU32,
    limits: Mutex<Limits>,
    /// Local memory of a thread that there is room for.
    local_room: AtomicU64,
    settings: Mutex<properties::Settings>,
    peers: Mutex<Peers>,
    small_blocks: Mutex<SmallBlocks>,
    small_variables: Mutex<SmallBlocks>,
    /// Its streams, and its queue on the device.
    pub(crate) streams: ContextStreams,
    destroyed: AtomicBool,
}

impl Context {
    /// Opens a context on `device`, which costs device memory.
    fn open(device: &'static Device, is_primary: bool, flags: u32, api_version: u32) -> Answer<Arc<Self>> {
        device.take(fake_machine::context_bytes())?;
        let context = Self::new(device, is_primary, flags, api_version);
        driver().add_context(&context);
        Ok(context)
    }

    /// Stands for a primary context that isn't active: a thread may have it current, and finds it there
    /// once somebody retains it.
    fn inactive(device: &'static Device) -> Arc<Self> {
        let context = Self::new(device, true, 0, 3020);
        context.destroyed.store(true, Ordering::Release);
        context.streams.close();
        context
    }

    fn new(device: &'static Device, is_primary: bool, flags: u32, api_version: u32) -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            device,
            is_primary,
            api_version,
            flags: AtomicU32::new(flags),
            limits: Mutex::new(Limits::new()),
            local_room: AtomicU64::new(limits::LOCAL_BYTES_DEFAULT),
            settings: Mutex::default(),
            peers: Mutex::default(),
            small_blocks: Mutex::default(),
            small_variables: Mutex::default(),
            streams: ContextStreams::open(&driver().machine, device.physical),
            destroyed: AtomicBool::new(false),
        })
    }

    /// Ends a context: its streams, then its memory. What other threads have current is destroyed for them.
    fn close(self: &Arc<Self>) {
        crate::export_table::context_closes(self);
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return;
        }
        driver().remove_context(self);
        self.streams.close();
        crate::module::context_closes(self);
        crate::ipc::context_closes(self);
        crate::memory::context_closes(self);
        crate::external::context_closes(self);
        if self.is_primary {
            crate::pool::primary_closes(self);
        }
        crate::array::context_closes(self);
        self.device.give(self.limits.lock().charged() + fake_machine::context_bytes());
    }

    /// What its small blocks of a kind take together.
    pub(crate) fn small_blocks(&self, kind: &Kind) -> &Mutex<SmallBlocks> {
        if matches!(kind, Kind::Global) { &self.small_variables } else { &self.small_blocks }
    }

    /// The number that programs hold for it.
    pub(crate) fn handle(&self) -> usize {
        if self.is_primary { self.device.primary_handle() } else { core::ptr::from_ref(self).addr() }
    }

    /// The handle in the API's type.
    pub(crate) fn pointer(&self) -> CUcontext {
        handle(self.handle())
    }

    /// True once it has been destroyed or reset.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }
}

/// Fails for flags that no context can have.
fn check_flags(flags: u32) -> Answer {
    let valid = flags & !FLAGS_MASK == 0 && matches!(flags & SCHEDULE_MASK, 0 | 1 | 2 | 4);
    if valid { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

fn create(out: *mut CUcontext, flags: u32, ordinal: CUdevice, api_version: u32) -> Answer {
    let device = state::device(ordinal)?;
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    check_flags(flags)?;
    crate::capture::forbid_unsafe_call()?;
    let context = Context::open(device, false, flags, api_version)?;
    put(out, context.pointer())?;
    with_stack(|stack| {
        stack.push(context);
        Ok(())
    })
}

pub(crate) fn cuCtxCreate(_: &Call, out: *mut CUcontext, flags: u32, device: CUdevice) -> Answer {
    create(out, flags, device, 3010)
}

pub(crate) fn cuCtxCreate_v2(_: &Call, out: *mut CUcontext, flags: u32, device: CUdevice) -> Answer {
    create(out, flags, device, 3020)
}

pub(crate) fn cuCtxCreate_v3(
    _: &Call,
    out: *mut CUcontext,
    affinities: *mut CUexecAffinityParam,
    count: c_int,
    flags: u32,
    device: CUdevice,
) -> Answer {
    no_affinity(affinities.cast(), count)?;
    create(out, flags, device, 3020)
}

pub(crate) fn cuCtxCreate_v4(
    _: &Call,
    out: *mut CUcontext,
    params: *mut CUctxCreateParams,
    flags: u32,
    device: CUdevice,
) -> Answer {
    if let Some(params) = get_optional(params) {
        no_affinity(params.execAffinityParams, params.numExecAffinityParams)?;
        if !params.cigParams.is_null() {
            return Err(CUresult::NOT_SUPPORTED);
        }
    }
    create(out, flags, device, 3020)
}

/// Execution affinity is for clients of MPS, and there is no MPS here.
fn no_affinity(affinities: *mut c_void, count: c_int) -> Answer {
    match (affinities.is_null(), count) {
        (true, 0) => Ok(()),
        (false, 1..) => Err(UNSUPPORTED_EXEC_AFFINITY),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// Primary contexts end by release or reset only.
fn destroy(handle: CUcontext) -> Answer {
    if handle.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let context = state::context(handle)?;
    if context.is_primary {
        return Err(CUresult::INVALID_CONTEXT);
    }
    with_stack(|stack| {
        stack.pop_if(|top| Arc::ptr_eq(top, &context));
        Ok(())
    })?;
    context.close();
    Ok(())
}

pub(crate) fn cuCtxDestroy(_: &Call, context: CUcontext) -> Answer {
    destroy(context)
}

pub(crate) fn cuCtxDestroy_v2(_: &Call, context: CUcontext) -> Answer {
    destroy(context)
}

/// Usage counts went away long ago: attaching only names the current context.
pub(crate) fn cuCtxAttach(_: &Call, out: *mut CUcontext, flags: u32) -> Answer {
    if flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, state::current()?.pointer())
}

/// Undoes `cuCtxAttach`, whose count is not kept.
pub(crate) fn cuCtxDetach(_: &Call, handle: CUcontext) -> Answer {
    if handle.is_null() {
        return Err(CUresult::INVALID_CONTEXT);
    }
    let current = state::current()?;
    if state::context(handle)?.id == current.id { Ok(()) } else { Err(CUresult::INVALID_CONTEXT) }
}

pub(crate) fn cuCtxGetCurrent(_: &Call, out: *mut CUcontext) -> Answer {
    put(out, with_stack(|stack| Ok(stack.last().map_or(handle(0), |top| top.pointer())))?)
}

pub(crate) fn cuCtxSetCurrent(_: &Call, handle: CUcontext) -> Answer {
    if handle.is_null() {
        let popped = with_stack(|stack| Ok(stack.pop()))?;
        drop(popped);
        return Ok(());
    }
    let context = state::context(handle).or_else(|error| primary::inactive(handle).ok_or(error))?;
    let replaced = with_stack(|stack| {
        let replaced = stack.pop();
        stack.push(context);
        Ok(replaced)
    })?;
    drop(replaced);
    Ok(())
}

fn push(handle: CUcontext) -> Answer {
    if handle.is_null() {
        return Err(CUresult::INVALID_CONTEXT);
    }
    let context = state::context(handle)?;
    with_stack(|stack| {
        stack.push(context);
        Ok(())
    })
}

fn pop(out: *mut CUcontext) -> Answer {
    let top = with_stack(|stack| stack.pop().ok_or(CUresult::INVALID_CONTEXT))?;
    crate::args::optional(out, top.pointer());
    Ok(())
}

pub(crate) fn cuCtxPushCurrent(_: &Call, context: CUcontext) -> Answer {
    push(context)
}

pub(crate) fn cuCtxPushCurrent_v2(_: &Call, context: CUcontext) -> Answer {
    push(context)
}

pub(crate) fn cuCtxPopCurrent(_: &Call, out: *mut CUcontext) -> Answer {
    pop(out)
}

pub(crate) fn cuCtxPopCurrent_v2(_: &Call, out: *mut CUcontext) -> Answer {
    pop(out)
}

/// Contexts of a driver that has `cuCtxCreate_v2` say 3020, as they have done ever since.
pub(crate) fn cuCtxGetApiVersion(_: &Call, handle: CUcontext, out: *mut u32) -> Answer {
    let context = state::context(handle)?;
    put(out, context.api_version.min(version().cast_unsigned()))
}
