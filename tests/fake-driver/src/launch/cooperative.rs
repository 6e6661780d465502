//! Cooperative launches, whose blocks must all be on the device at the same time.

use super::{Shape, launch, multiprocessors};
use crate::args::{Answer, slice};
use crate::entry::Call;
use crate::module::function::{self, Function};
use crate::occupancy::blocks_per_multiprocessor;
use core::ffi::{c_uint, c_void};
use driver_api::{CUDA_LAUNCH_PARAMS, CUfunction, CUresult, CUstream};

/// `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`
const TOO_LARGE: CUresult = CUresult(720);

/// Fails with 720 for more blocks than the device can hold at once.
pub(crate) fn check_fits(function: &Function, shape: &Shape) -> Answer {
    let blocks: u64 = shape.grid.iter().map(|side| u64::from(*side)).product();
    let each = blocks_per_multiprocessor(function, shape.threads(), u64::from(shape.shared_bytes))?;
    if blocks > each * multiprocessors(function)? { Err(TOO_LARGE) } else { Ok(()) }
}

#[allow(clippy::too_many_arguments)] // The API has that many.
pub(crate) fn cuLaunchCooperativeKernel(
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
) -> Answer {
    let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes };
    check_fits(&*function::find(function)?, &shape)?;
    launch(call, function, shape, stream, parameters, core::ptr::null_mut())
}

/// One launch on each of several devices; all are checked before the first is made.
pub(crate) fn cuLaunchCooperativeKernelMultiDevice(
    call: &Call,
    list: *mut CUDA_LAUNCH_PARAMS,
    count: c_uint,
    flags: c_uint,
) -> Answer {
    let launches = slice(list.cast_const(), count as usize)?;
    if launches.is_empty() || flags > 3 {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut devices = Vec::new();
    for one in launches {
        let function = function::find(one.function)?;
        check_fits(&function, &shape(one))?;
        let device = function.context()?.device.ordinal;
        let is_default = one.hStream.addr() <= 2;
        if devices.contains(&device) || is_default || shape(one).grid != shape(&launches[0]).grid {
            return Err(CUresult::INVALID_VALUE);
        }
        devices.push(device);
    }
    for one in launches {
        launch(call, one.function, shape(one), one.hStream, one.kernelParams, core::ptr::null_mut())?;
    }
    Ok(())
}

fn shape(one: &CUDA_LAUNCH_PARAMS) -> Shape {
    Shape {
        grid: [one.gridDimX, one.gridDimY, one.gridDimZ],
        block: [one.blockDimX, one.blockDimY, one.blockDimZ],
        shared_bytes: one.sharedMemBytes,
    }
}
