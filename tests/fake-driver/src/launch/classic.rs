//! Launches of before CUDA 4, whose shape and parameters are set of the function beforehand.

use super::{Shape, launch_classic};
use crate::args::{Answer, slice};
use crate::entry::Call;
use crate::module::function::{self, FUNCTIONS};
use core::ffi::{c_int, c_uint, c_void};
use driver_api::{CUfunction, CUresult, CUstream, CUtexref};

/// Parameters of a kernel of that time.
const PARAMETER_BYTES_MAX: u64 = 4096;

/// What has been set of a function.
#[derive(Default)]
pub(crate) struct State {
    block: Option<[u32; 3]>,
    shared_bytes: u32,
    parameter_bytes: u32,
}

pub(crate) fn cuFuncSetBlockShape(_: &Call, function: CUfunction, x: c_int, y: c_int, z: c_int) -> Answer {
    let block = [x, y, z].map(|side| u32::try_from(side).unwrap_or(0));
    if block.contains(&0) {
        return Err(CUresult::INVALID_VALUE);
    }
    FUNCTIONS.get(function)?.classic.lock().block = Some(block);
    Ok(())
}

pub(crate) fn cuFuncSetSharedSize(_: &Call, function: CUfunction, bytes: c_uint) -> Answer {
    FUNCTIONS.get(function)?.classic.lock().shared_bytes = bytes;
    Ok(())
}

pub(crate) fn cuParamSetSize(_: &Call, function: CUfunction, bytes: c_uint) -> Answer {
    if u64::from(bytes) > PARAMETER_BYTES_MAX {
        return Err(CUresult::INVALID_VALUE);
    }
    FUNCTIONS.get(function)?.classic.lock().parameter_bytes = bytes;
    Ok(())
}

/// A parameter that lies in the space for parameters. Its value is of no use to a kernel that takes time only.
fn set(function: CUfunction, offset: c_int, bytes: u64) -> Answer {
    FUNCTIONS.get(function)?;
    let offset = u64::try_from(offset).map_err(|_| CUresult::INVALID_VALUE)?;
    if offset + bytes > PARAMETER_BYTES_MAX { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuParamSeti(_: &Call, function: CUfunction, offset: c_int, _value: c_uint) -> Answer {
    set(function, offset, 4)
}

pub(crate) fn cuParamSetf(_: &Call, function: CUfunction, offset: c_int, _value: f32) -> Answer {
    set(function, offset, 4)
}

pub(crate) fn cuParamSetv(_: &Call, function: CUfunction, offset: c_int, value: *mut c_void, bytes: c_uint) -> Answer {
    slice(value.cast_const().cast::<u8>(), bytes as usize)?;
    set(function, offset, u64::from(bytes))
}

/// Texture references belong to modules since CUDA 3; this only checks them.
pub(crate) fn cuParamSetTexRef(_: &Call, function: CUfunction, unit: c_int, texture: CUtexref) -> Answer {
    FUNCTIONS.get(function)?;
    crate::texture::reference::find(texture)?;
    if unit == -1 { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

pub(crate) fn cuLaunch(call: &Call, function: CUfunction) -> Answer {
    cuLaunchGrid(call, function, 1, 1)
}

pub(crate) fn cuLaunchGrid(call: &Call, function: CUfunction, width: c_int, height: c_int) -> Answer {
    cuLaunchGridAsync(call, function, width, height, core::ptr::null_mut())
}

pub(crate) fn cuLaunchGridAsync(
    call: &Call,
    function: CUfunction,
    width: c_int,
    height: c_int,
    stream: CUstream,
) -> Answer {
    let grid = [width, height, 1].map(|side| u32::try_from(side).unwrap_or(0));
    let shape = {
        let found = function::find(function)?;
        let state = found.classic.lock();
        let block = state.block.ok_or(CUresult::INVALID_VALUE)?;
        Shape { grid, block, shared_bytes: state.shared_bytes }
    };
    launch_classic(call, function, shape, stream)
}
