//! Launches of kernels, which are paced whatever the call they come by.
#![allow(non_snake_case, clippy::too_many_arguments)]

use super::Answer;
use super::copy::DEFAULT;
use crate::args::{In, Out, Raw};
use crate::entry::Next;
use crate::pace::{self, Work};
use core::ffi::c_void;
use driver_api::{CUDA_LAUNCH_PARAMS, CUfunction, CUlaunchConfig, CUstream};
use quota_core::ledger::DEVICES_MAX;

/// The block of the calls of before CUDA 4: it was set of the function beforehand, and the same mostly for all its life.
const BLOCK_SET_BEFORE: [u32; 3] = [0; 3];

fn kernel(next: Next<'_>, stream: CUstream, function: CUfunction, grid: [u32; 3], block: [u32; 3]) -> Answer {
    pace::paced(next, stream, Work::Kernel { function: function as usize, grid, block })
}

pub(crate) fn cuLaunchKernel(
    next: Next<'_>,
    f: CUfunction,
    gridDimX: u32,
    gridDimY: u32,
    gridDimZ: u32,
    blockDimX: u32,
    blockDimY: u32,
    blockDimZ: u32,
    _sharedMemBytes: u32,
    hStream: CUstream,
    _kernelParams: Raw<*mut c_void>,
    _extra: Raw<*mut c_void>,
) -> Answer {
    kernel(next, hStream, f, [gridDimX, gridDimY, gridDimZ], [blockDimX, blockDimY, blockDimZ])
}

pub(crate) fn cuLaunchKernelEx(
    next: Next<'_>,
    config: In<CUlaunchConfig>,
    f: CUfunction,
    _kernelParams: Raw<*mut c_void>,
    _extra: Raw<*mut c_void>,
) -> Answer {
    let c = config.get();
    kernel(next, c.hStream, f, [c.gridDimX, c.gridDimY, c.gridDimZ], [c.blockDimX, c.blockDimY, c.blockDimZ])
}

pub(crate) fn cuLaunchCooperativeKernel(
    next: Next<'_>,
    f: CUfunction,
    gridDimX: u32,
    gridDimY: u32,
    gridDimZ: u32,
    blockDimX: u32,
    blockDimY: u32,
    blockDimZ: u32,
    _sharedMemBytes: u32,
    hStream: CUstream,
    _kernelParams: Raw<*mut c_void>,
) -> Answer {
    kernel(next, hStream, f, [gridDimX, gridDimY, gridDimZ], [blockDimX, blockDimY, blockDimZ])
}

/// One kernel on each of several devices, none of which begins before all may.
pub(crate) fn cuLaunchCooperativeKernelMultiDevice(
    next: Next<'_>,
    launchParamsList: Out<CUDA_LAUNCH_PARAMS>,
    numDevices: u32,
    _flags: u32,
) -> Answer {
    let count = numDevices as usize;
    // There is a device for each launch; with more than a tenant can have, or none, the call is the driver's to refuse.
    if count == 0 || count > DEVICES_MAX {
        return next.call();
    }
    let launches: Vec<CUDA_LAUNCH_PARAMS> = (0..count).map(|at| launchParamsList.get_nth(at)).collect();
    let streams: Vec<CUstream> = launches.iter().map(|launch| launch.hStream).collect();
    // They are of one shape, and of the same kernel on every device.
    let first = &launches[0];
    let grid = [first.gridDimX, first.gridDimY, first.gridDimZ];
    let block = [first.blockDimX, first.blockDimY, first.blockDimZ];
    pace::paced_on_devices(next, &streams, Work::Kernel { function: first.function as usize, grid, block })
}

pub(crate) fn cuLaunch(next: Next<'_>, f: CUfunction) -> Answer {
    kernel(next, DEFAULT, f, [1; 3], BLOCK_SET_BEFORE)
}

pub(crate) fn cuLaunchGrid(next: Next<'_>, f: CUfunction, grid_width: i32, grid_height: i32) -> Answer {
    kernel(next, DEFAULT, f, flat(grid_width, grid_height), BLOCK_SET_BEFORE)
}

pub(crate) fn cuLaunchGridAsync(
    next: Next<'_>,
    f: CUfunction,
    grid_width: i32,
    grid_height: i32,
    hStream: CUstream,
) -> Answer {
    kernel(next, hStream, f, flat(grid_width, grid_height), BLOCK_SET_BEFORE)
}

/// A negative side is the driver's to refuse.
fn flat(width: i32, height: i32) -> [u32; 3] {
    [width, height, 1].map(|side| u32::try_from(side).unwrap_or(0))
}
