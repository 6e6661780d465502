//! What can be asked of a context, and the preferences that change nothing in a simulation.

use super::{UNSUPPORTED_EXEC_AFFINITY, check_flags};
use crate::args::{Answer, optional, put};
use crate::entry::Call;
use crate::state;
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use driver_api::{
    CUcontext, CUdevice, CUexecAffinityParam, CUexecAffinityType, CUfunc_cache, CUresult, CUsharedconfig,
};
use fake_machine::{Lack, lacks};

/// The highest priority of a stream; numbers fall with importance.
const GREATEST_PRIORITY: c_int = -5;

/// The highest that a stream of this driver can have.
pub(crate) fn greatest_priority() -> c_int {
    if lacks(Lack::StreamPriorities) { 0 } else { GREATEST_PRIORITY }
}

/// Preferences that are kept and given back.
#[derive(Default)]
pub(crate) struct Settings {
    cache: CUfunc_cache,
    shared_memory: CUsharedconfig,
}

pub(crate) fn cuCtxGetDevice(_: &Call, out: *mut CUdevice) -> Answer {
    put(out, state::with_current(|context| Ok(context.device.ordinal))?)
}

pub(crate) fn cuCtxGetDevice_v2(_: &Call, out: *mut CUdevice, context: CUcontext) -> Answer {
    put(out, state::context(context)?.device.ordinal)
}

pub(crate) fn cuCtxGetFlags(_: &Call, out: *mut u32) -> Answer {
    put(out, state::current()?.flags.load(Ordering::Acquire))
}

pub(crate) fn cuCtxSetFlags(_: &Call, flags: u32) -> Answer {
    let context = state::current()?;
    check_flags(flags)?;
    context.flags.store(flags, Ordering::Release);
    Ok(())
}

pub(crate) fn cuCtxGetId(_: &Call, context: CUcontext, out: *mut u64) -> Answer {
    put(out, state::context(context)?.id)
}

pub(crate) fn cuCtxGetCacheConfig(_: &Call, out: *mut CUfunc_cache) -> Answer {
    put(out, state::current()?.settings.lock().cache)
}

pub(crate) fn cuCtxSetCacheConfig(_: &Call, config: CUfunc_cache) -> Answer {
    let context = state::current()?;
    if !(0..=3).contains(&config) {
        return Err(CUresult::INVALID_VALUE);
    }
    context.settings.lock().cache = config;
    Ok(())
}

/// Banks are four bytes wide on every device there is here.
pub(crate) fn cuCtxGetSharedMemConfig(_: &Call, out: *mut CUsharedconfig) -> Answer {
    const FOUR_BYTE_BANKS: CUsharedconfig = 1;
    let kept = state::current()?.settings.lock().shared_memory;
    put(out, if kept == 0 { FOUR_BYTE_BANKS } else { kept })
}

pub(crate) fn cuCtxSetSharedMemConfig(_: &Call, config: CUsharedconfig) -> Answer {
    let context = state::current()?;
    if !(0..=2).contains(&config) {
        return Err(CUresult::INVALID_VALUE);
    }
    context.settings.lock().shared_memory = config;
    Ok(())
}

pub(crate) fn cuCtxGetStreamPriorityRange(_: &Call, least: *mut c_int, greatest: *mut c_int) -> Answer {
    state::current()?;
    optional(least, 0);
    optional(greatest, greatest_priority());
    Ok(())
}

/// There is no cache to reset.
pub(crate) fn cuCtxResetPersistingL2Cache(_: &Call) -> Answer {
    state::current().map(drop)
}

/// Execution affinity is for clients of MPS.
pub(crate) fn cuCtxGetExecAffinity(_: &Call, _: *mut CUexecAffinityParam, kind: CUexecAffinityType) -> Answer {
    state::current()?;
    Err(if kind == 0 { UNSUPPORTED_EXEC_AFFINITY } else { CUresult::INVALID_VALUE })
}
