//! Launches: checked as the driver checks them, then so much time on the device.
//!
//! The way of an ordinary launch takes no lock: function and stream come from the thread's caches, a kernel
//! that takes no time on a stream with nothing before it is done at once, and any other goes to the device.

pub(crate) mod classic;
pub(crate) mod cooperative;
pub(crate) mod extended;
pub(crate) mod timing;

use crate::args::{Answer, get, slice};
use crate::capture;
use crate::device::attributes::value as device_attribute;
use crate::entry::Call;
use crate::graph::Payload;
use crate::module::function::{self, FUNCTION_CACHE, FUNCTIONS, Function};
use crate::state;
use crate::stream::{self, Stream, belongs};
use core::ffi::{c_uint, c_void};
use core::sync::atomic::Ordering;
use driver_api::{CUfunction, CUresult, CUstream};
use fake_machine::Work;
use std::sync::Arc;

/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`
pub(crate) const OUT_OF_RESOURCES: CUresult = CUresult(701);
/// Most threads of a block, in all and along each axis; the same on every device that is simulated.
const THREADS_MAX: u64 = 1024;
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];
/// Most blocks of a grid along each axis.
const GRID_MAX: [u32; 3] = [i32::MAX.cast_unsigned(), 65535, 65535];

/// How many blocks, of how many threads, with how much dynamic shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
}

impl Shape {
    /// Threads of a block.
    pub(crate) fn threads(&self) -> u64 {
        self.block.iter().map(|side| u64::from(*side)).product()
    }

    /// Fails as a launch of `function` in this shape would.
    fn check(&self, function: &Function) -> Answer {
        let outside =
            |sides: &[u32; 3], most: &[u32; 3]| sides.iter().zip(most).any(|(side, most)| *side == 0 || side > most);
        if outside(&self.grid, &GRID_MAX) || outside(&self.block, &BLOCK_MAX) || self.threads() > THREADS_MAX {
            return Err(CUresult::INVALID_VALUE);
        }
        if self.threads() > u64::from(function.facts.max_threads) {
            return Err(OUT_OF_RESOURCES);
        }
        if self.shared_bytes > function.settings.dynamic_shared_max.load(Ordering::Relaxed) {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(())
    }
}

/// Copies of a kernel's parameters, for a graph.
pub(crate) struct Arguments {
    values: Vec<Box<[u64]>>,
    /// Addresses of the values.
    table: Vec<usize>,
}

impl Arguments {
    /// Copies what `parameters` or `extra` point to; `None` when the image doesn't tell the sizes.
    fn copy(function: &Function, parameters: *mut *mut c_void, extra: *mut *mut c_void) -> Answer<Option<Arc<Self>>> {
        let Some(layout) = &function.facts.parameters else { return Ok(None) };
        let buffer = if parameters.is_null() && !layout.is_empty() { Some(extra_buffer(extra)?) } else { None };
        let mut values = Vec::with_capacity(layout.len());
        for (at, (offset, bytes)) in layout.iter().enumerate() {
            let source: *const u8 = match buffer {
                Some(buffer) => buffer.wrapping_add(*offset),
                None => get(parameters.wrapping_add(at))?.cast_const().cast(),
            };
            let mut words = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
            for (index, byte) in slice(source, *bytes)?.iter().enumerate() {
                words[index / 8] |= u64::from(*byte) << (index % 8 * 8);
            }
            values.push(words);
        }
        let table = values.iter().map(|words| words.as_ptr().expose_provenance()).collect();
        Ok(Some(Arc::new(Self { values, table })))
    }

    /// The parameters as a launch has them.
    pub(crate) fn pointers(&self) -> *mut *mut c_void {
        debug_assert_eq!(self.values.len(), self.table.len(), "one address a value");
        self.table.as_ptr().cast_mut().cast()
    }
}

/// The buffer that `extra` names: pairs of a tag and a value, until the tag that ends them.
fn extra_buffer(extra: *mut *mut c_void) -> Answer<*const u8> {
    const END: usize = 0;
    const BUFFER_POINTER: usize = 1;
    const PAIRS_MAX: usize = 8;
    for pair in 0..PAIRS_MAX {
        match get(extra.wrapping_add(pair * 2))?.addr() {
            END => break,
            BUFFER_POINTER => return Ok(get(extra.wrapping_add(pair * 2 + 1))?.cast_const().cast()),
            _ => {}
        }
    }
    Err(CUresult::INVALID_VALUE)
}

/// A kernel with its shape and parameters, as a graph keeps it.
#[derive(Clone)]
pub(crate) struct KernelCall {
    pub(crate) function: Arc<Function>,
    /// The kernel's handle when the function was named by one.
    pub(crate) kernel: usize,
    pub(crate) shape: Shape,
    pub(crate) arguments: Option<Arc<Arguments>>,
}

impl KernelCall {
    pub(crate) fn new(
        handle: CUfunction,
        shape: Shape,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Answer<Self> {
        let function = function::find(handle)?;
        shape.check(&function)?;
        let kernel = if FUNCTIONS.get(handle).is_ok() { 0 } else { handle.addr() };
        let arguments = Arguments::copy(&function, parameters, extra)?;
        Ok(Self { function, kernel, shape, arguments })
    }
}

/// Fails for parameters that can't be right: given twice, or not at all though the kernel has some.
fn check_parameters(function: &Function, parameters: *mut *mut c_void, extra: *mut *mut c_void) -> Answer {
    let needed = function.facts.parameters.as_ref().is_some_and(|list| !list.is_empty());
    let valid = if parameters.is_null() { !(needed && extra.is_null()) } else { extra.is_null() };
    if valid { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

/// One launch, however it was asked for.
pub(crate) fn launch(
    call: &Call,
    handle: CUfunction,
    shape: Shape,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let quick = FUNCTION_CACHE.with(|cache| {
        cache.with(&FUNCTIONS, handle, |function| {
            shape.check(function)?;
            check_parameters(function, parameters, extra)?;
            state::with_current(|_| Ok(()))?;
            stream::with(call, stream, |stream| launch_directly(function, stream))?
        })
    });
    match quick {
        Ok(Ok(true)) => Ok(()),
        Ok(Err(error)) => Err(error),
        // Capture, backlog or a kernel's handle: the long way.
        Ok(Ok(false)) | Err(_) => launch_carefully(call, handle, shape, stream, parameters, extra),
    }
}

/// To the device, if nothing stands between; whether it did.
fn launch_directly(function: &Arc<Function>, stream: &Arc<Stream>) -> Answer<bool> {
    belongs(stream, &function.queue)?;
    if !stream.is_direct() {
        return Ok(false);
    }
    let moving_ns = function.fit()?;
    stream.begin();
    if moving_ns > 0 {
        stream.submit(Work::Time(moving_ns))?;
    }
    stream.submit(function.timing.next())?;
    Ok(true)
}

/// With what has to come to the device before.
fn launch_fit(function: &Function, stream: &Arc<Stream>) -> Answer {
    let moving_ns = function.fit()?;
    if moving_ns > 0 {
        stream.launch(moving_ns)?;
    }
    stream.launch(function.timing.next())
}

/// A launch whose parameters are set elsewhere.
fn launch_classic(call: &Call, handle: CUfunction, shape: Shape, stream: CUstream) -> Answer {
    let function = function::find(handle)?;
    shape.check(&function)?;
    state::current()?;
    let stream = stream::resolve(call, stream)?;
    belongs(&stream, &function.queue)?;
    match capture::enter(&stream)? {
        // Graphs are younger than these calls, and their nodes have no place for such parameters.
        Some(recorder) => Err(recorder.invalidate(CUresult::STREAM_CAPTURE_UNSUPPORTED)),
        None => launch_fit(&function, &stream),
    }
}

#[cold]
fn launch_carefully(
    call: &Call,
    handle: CUfunction,
    shape: Shape,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let function = function::find(handle)?;
    shape.check(&function)?;
    check_parameters(&function, parameters, extra)?;
    state::current()?;
    let stream = stream::resolve(call, stream)?;
    belongs(&stream, &function.queue)?;
    match capture::enter(&stream)? {
        Some(recorder) => {
            recorder.record(Payload::Kernel(KernelCall::new(handle, shape, parameters, extra)?)).map(drop)
        }
        None => launch_fit(&function, &stream),
    }
}

#[allow(clippy::too_many_arguments)] // The API has that many.
pub(crate) fn cuLaunchKernel(
    call: &Call,
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes };
    launch(call, function, shape, stream, parameters, extra)
}

/// Streaming multiprocessors of the function's device.
pub(crate) fn multiprocessors(function: &Function) -> Answer<u64> {
    const MULTIPROCESSOR_COUNT: i32 = 16;
    let count = device_attribute(function.context()?.device, MULTIPROCESSOR_COUNT)?;
    Ok(u64::try_from(count).unwrap_or(1))
}
