//! Green contexts: a share of a device's multiprocessors, on the device's primary context.
//!
//! The share is remembered and told, and changes nothing about time: the simulated device runs one context's
//! work at a time whatever its share. `cuCtxFromGreenCtx` answers the primary context itself.

use crate::args::{Answer, get, optional, put, put_at, slice};
use crate::context::{Context, primary};
use crate::entry::Call;
use crate::event::{self, EVENTS};
use crate::registry::{Registry, handle_of, pointer};
use crate::state::{self, Device};
use crate::stream::{NON_BLOCKING, Stream, calls, resolve};
use core::ffi::{c_int, c_uint};
use driver_api::{
    CU_DEV_SM_RESOURCE_GROUP_PARAMS, CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevSmResource,
    CUdevice, CUevent, CUgreenCtx, CUresult, CUstream,
};
use std::sync::Arc;

const SM: CUdevResourceType = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`, which every green context must have.
const DEFAULT_STREAM: c_uint = 1;
/// `CUDA_ERROR_INVALID_RESOURCE_TYPE`, `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION`
const INVALID_TYPE: CUresult = CUresult(914);
const INVALID_CONFIGURATION: CUresult = CUresult(915);

static GREENS: Registry<Green> = Registry::new();
static DESCRIPTIONS: Registry<u32> = Registry::new();

/// A green context.
struct Green {
    id: u64,
    device: &'static Device,
    context: Arc<Context>,
    multiprocessors: u32,
}

/// Fewest multiprocessors of a share, and what shares are multiples of.
fn partition(device: &Device) -> (u32, u32) {
    match device.spec().compute_capability.0 {
        ..=7 => (2, 2),
        8 => (4, 2),
        _ => (8, 8),
    }
}

fn resource(device: &Device, multiprocessors: u32) -> CUdevResource {
    let (least, alignment) = partition(device);
    CUdevResource {
        r#type: SM,
        _internal_padding: [0; 92],
        sm: CUdevSmResource {
            smCount: multiprocessors,
            minSmPartitionSize: least,
            smCoscheduledAlignment: alignment,
            flags: 0,
            localityDomainId: 0,
        },
        _oversize: [0; 20],
        nextResource: core::ptr::null_mut(),
    }
}

fn put_resource(out: *mut CUdevResource, kind: CUdevResourceType, device: &Device, multiprocessors: u32) -> Answer {
    if kind != SM {
        return Err(INVALID_TYPE);
    }
    put(out, resource(device, multiprocessors))
}

pub(crate) fn cuDeviceGetDevResource(
    _: &Call,
    device: CUdevice,
    out: *mut CUdevResource,
    kind: CUdevResourceType,
) -> Answer {
    let device = state::device(device)?;
    put_resource(out, kind, device, device.spec().sm_count)
}

pub(crate) fn cuCtxGetDevResource(
    _: &Call,
    context: CUcontext,
    out: *mut CUdevResource,
    kind: CUdevResourceType,
) -> Answer {
    let device = state::context(context)?.device;
    put_resource(out, kind, device, device.spec().sm_count)
}

pub(crate) fn cuGreenCtxGetDevResource(
    _: &Call,
    green: CUgreenCtx,
    out: *mut CUdevResource,
    kind: CUdevResourceType,
) -> Answer {
    let green = GREENS.get(green)?;
    put_resource(out, kind, green.device, green.multiprocessors)
}

pub(crate) fn cuStreamGetDevResource(
    call: &Call,
    stream: CUstream,
    out: *mut CUdevResource,
    kind: CUdevResourceType,
) -> Answer {
    let stream = resolve(call, stream)?;
    match GREENS.get(pointer(stream.green)) {
        Ok(green) => put_resource(out, kind, green.device, green.multiprocessors),
        Err(_) => cuCtxGetDevResource(call, core::ptr::null_mut(), out, kind),
    }
}

/// Groups of at least `least` multiprocessors each, as many as asked for or as fit, and the remainder.
pub(crate) fn cuDevSmResourceSplitByCount(
    _: &Call,
    out: *mut CUdevResource,
    groups: *mut c_uint,
    input: *const CUdevResource,
    remaining: *mut CUdevResource,
    flags: c_uint,
    least: c_uint,
) -> Answer {
    const IGNORE_COSCHEDULING: c_uint = 1;
    let whole = get(input)?;
    let wanted = get(groups.cast_const())?;
    if whole.r#type != SM {
        return Err(INVALID_TYPE);
    }
    if flags > 3 || wanted == 0 && !out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let unit = if flags & IGNORE_COSCHEDULING != 0 { 2 } else { whole.sm.smCoscheduledAlignment.max(1) };
    let least = if flags & IGNORE_COSCHEDULING != 0 { least.max(2) } else { least.max(whole.sm.minSmPartitionSize) };
    let each = least.checked_next_multiple_of(unit).ok_or(CUresult::INVALID_VALUE)?;
    let fits = whole.sm.smCount / each;
    if fits == 0 {
        return Err(INVALID_CONFIGURATION);
    }
    let count = if out.is_null() { fits } else { wanted.min(fits) };
    let share =
        |multiprocessors| CUdevResource { sm: CUdevSmResource { smCount: multiprocessors, ..whole.sm }, ..whole };
    if !out.is_null() {
        for at in 0..count as usize {
            put_at(out, at, share(each))?;
        }
        optional(remaining, share(whole.sm.smCount - each * count));
    }
    put(groups, count)
}

/// How many multiprocessors a group gets of those that are left, and in which units; 0 of them when nothing fits.
fn group_size(params: &CU_DEV_SM_RESOURCE_GROUP_PARAMS, whole: &CUdevSmResource, left: u32) -> Answer<(u32, u32)> {
    const BACKFILL: c_uint = 1;
    /// Units larger than two are for the devices whose default is.
    const UNIT_MAX: c_uint = 32;
    let usual = whole.smCoscheduledAlignment.max(2);
    let unit = if params.coscheduledSmCount == 0 { usual } else { params.coscheduledSmCount };
    let unit_max = if usual > 2 { UNIT_MAX } else { 2 };
    let is_backfilled = params.flags & BACKFILL != 0;
    let is_even = params.smCount.is_multiple_of(2) && unit.is_multiple_of(2);
    let in_units = is_backfilled || params.coscheduledSmCount == 0 || params.smCount.is_multiple_of(unit);
    let is_clean = params.flags & !BACKFILL == 0 && params.reserved == [0; 11];
    if unit > unit_max || !is_even || !in_units || !is_clean || params.smCount > whole.smCount {
        return Err(CUresult::INVALID_VALUE);
    }
    let most = if is_backfilled { left / 2 * 2 } else { left / unit * unit };
    match params.smCount {
        0 => Ok((most, unit)),
        wanted if wanted > left => Err(INVALID_CONFIGURATION),
        wanted => Ok((wanted, unit)),
    }
}

/// Groups as they are described, one after the other; those whose size is 0 get all that fits.
pub(crate) fn cuDevSmResourceSplit(
    _: &Call,
    out: *mut CUdevResource,
    count: c_uint,
    input: *const CUdevResource,
    remainder: *mut CUdevResource,
    flags: c_uint,
    params: *mut CU_DEV_SM_RESOURCE_GROUP_PARAMS,
) -> Answer {
    const NONE: CUdevResourceType = 0;
    let whole = get(input)?;
    let wanted = slice(params.cast_const(), count as usize)?;
    if whole.r#type != SM {
        return Err(INVALID_TYPE);
    }
    if wanted.is_empty() || flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut left = whole.sm.smCount;
    let mut groups = Vec::with_capacity(wanted.len());
    for params in wanted {
        let (size, unit) = group_size(params, &whole.sm, left)?;
        if !out.is_null() && (size == 0 || size < unit) {
            return Err(INVALID_CONFIGURATION);
        }
        left -= size;
        groups.push((size, unit, *params));
    }
    let share = |multiprocessors, unit| {
        let sm = CUdevSmResource { smCount: multiprocessors, smCoscheduledAlignment: unit, ..whole.sm };
        CUdevResource { sm, r#type: if multiprocessors == 0 { NONE } else { SM }, ..whole }
    };
    for (at, (size, unit, group)) in groups.into_iter().enumerate() {
        put_at(params, at, CU_DEV_SM_RESOURCE_GROUP_PARAMS { smCount: size, ..group })?;
        if !out.is_null() {
            put_at(out, at, share(size, unit))?;
        }
    }
    optional(remainder, share(left, whole.sm.smCoscheduledAlignment));
    Ok(())
}

pub(crate) fn cuDevResourceGenerateDesc(
    _: &Call,
    out: *mut CUdevResourceDesc,
    resources: *mut CUdevResource,
    count: c_uint,
) -> Answer {
    let resources = slice(resources.cast_const(), count as usize)?;
    if resources.iter().any(|resource| resource.r#type != SM) {
        return Err(INVALID_TYPE);
    }
    let multiprocessors: u32 = resources.iter().map(|resource| resource.sm.smCount).sum();
    if out.is_null() || multiprocessors == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, DESCRIPTIONS.insert(Arc::new(multiprocessors)))
}

pub(crate) fn cuGreenCtxCreate(
    _: &Call,
    out: *mut CUgreenCtx,
    description: CUdevResourceDesc,
    device: CUdevice,
    flags: c_uint,
) -> Answer {
    use core::sync::atomic::{AtomicU64, Ordering};
    static NEXT_ID: AtomicU64 = AtomicU64::new(1 << 32);
    let device = state::device(device)?;
    let multiprocessors = *DESCRIPTIONS.get(description)?;
    if out.is_null() || flags != DEFAULT_STREAM || multiprocessors > device.spec().sm_count {
        return Err(CUresult::INVALID_VALUE);
    }
    let context = primary::retain(device)?;
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    put(out, GREENS.insert(Arc::new(Green { id, device, context, multiprocessors })))
}

pub(crate) fn cuGreenCtxDestroy(_: &Call, green: CUgreenCtx) -> Answer {
    let green = GREENS.remove(green)?;
    primary::release(green.device)
}

pub(crate) fn cuCtxFromGreenCtx(_: &Call, context: *mut CUcontext, green: CUgreenCtx) -> Answer {
    put(context, GREENS.get(green)?.context.pointer())
}

pub(crate) fn cuGreenCtxGetId(_: &Call, green: CUgreenCtx, id: *mut u64) -> Answer {
    put(id, GREENS.get(green)?.id)
}

pub(crate) fn cuGreenCtxStreamCreate(
    _: &Call,
    stream: *mut CUstream,
    green: CUgreenCtx,
    flags: c_uint,
    priority: c_int,
) -> Answer {
    let green = GREENS.get(green)?;
    if stream.is_null() || flags != NON_BLOCKING {
        return Err(CUresult::INVALID_VALUE);
    }
    put(stream, calls::create_in(&green.context, flags, priority, handle_of(&green))?)
}

/// The streams of a green context.
fn streams(green: &Arc<Green>) -> Vec<Arc<Stream>> {
    let mut streams = green.context.streams.queue.streams();
    streams.retain(|stream| stream.green == handle_of(green));
    streams
}

pub(crate) fn cuGreenCtxRecordEvent(_: &Call, green: CUgreenCtx, event: CUevent) -> Answer {
    let green = GREENS.get(green)?;
    event::record_after(&green.context.streams, &streams(&green), &*EVENTS.get(event)?)
}

pub(crate) fn cuGreenCtxWaitEvent(_: &Call, green: CUgreenCtx, event: CUevent) -> Answer {
    let green = GREENS.get(green)?;
    let event = EVENTS.get(event)?;
    streams(&green).iter().try_for_each(|stream| event::wait_in(stream, &event, 0))
}
