//! `cuLaunchKernelEx`: a launch with attributes.

use super::{Shape, cooperative, launch};
use crate::args::{Answer, get, slice};
use crate::entry::Call;
use crate::event::cuEventRecordWithFlags;
use crate::module::function;
use core::ffi::c_void;
use driver_api::{CUfunction, CUlaunchAttribute, CUlaunchAttributeValue, CUlaunchConfig, CUresult};

const COOPERATIVE: i32 = 2;
const CLUSTER_DIMENSION: i32 = 4;
const PROGRAMMATIC_EVENT: i32 = 7;
const LAUNCH_COMPLETION_EVENT: i32 = 12;
/// The highest attribute of the newest header.
const ATTRIBUTE_MAX: i32 = 20;
/// `CUDA_ERROR_INVALID_CLUSTER_SIZE`
const INVALID_CLUSTER_SIZE: CUresult = CUresult(912);
/// Blocks of a cluster without asking for more than every device has.
const CLUSTER_BLOCKS_MAX: u64 = 16;

/// The two halves of a word of the union.
fn halves(value: &CUlaunchAttributeValue, word: usize) -> [u32; 2] {
    #[allow(clippy::cast_possible_truncation)] // Halves are meant.
    [value.words[word] as u32, (value.words[word] >> 32) as u32]
}

/// Cluster dimensions of a launch's attributes; 1 along each axis where there are none.
pub(crate) fn cluster(attributes: &[CUlaunchAttribute]) -> [u32; 3] {
    attributes.iter().find(|attribute| attribute.id == CLUSTER_DIMENSION).map_or([1; 3], |attribute| {
        let [x, y] = halves(&attribute.value, 0);
        [x, y, halves(&attribute.value, 1)[0]]
    })
}

/// The attributes of a configuration.
pub(crate) fn attributes(config: &CUlaunchConfig) -> Answer<&[CUlaunchAttribute]> {
    slice(config.attrs.cast_const().cast::<CUlaunchAttribute>(), config.numAttrs as usize)
}

/// The shape of a configuration.
pub(crate) fn shape(config: &CUlaunchConfig) -> Shape {
    Shape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared_bytes: config.sharedMemBytes,
    }
}

/// Fails for clusters that don't divide the grid or are larger than any device allows.
pub(crate) fn check_cluster(shape: &Shape, cluster: [u32; 3]) -> Answer {
    if cluster.contains(&0) || shape.grid.iter().zip(cluster).any(|(grid, side)| grid % side != 0) {
        return Err(CUresult::INVALID_VALUE);
    }
    let blocks: u64 = cluster.iter().map(|side| u64::from(*side)).product();
    if blocks > CLUSTER_BLOCKS_MAX { Err(INVALID_CLUSTER_SIZE) } else { Ok(()) }
}

pub(crate) fn cuLaunchKernelEx(
    call: &Call,
    config: *const CUlaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let config = get(config)?;
    let shape = shape(&config);
    let attributes = attributes(&config)?;
    if attributes.iter().any(|attribute| !(0..=ATTRIBUTE_MAX).contains(&attribute.id)) {
        return Err(CUresult::INVALID_VALUE);
    }
    if !attributes.is_empty() {
        check_cluster(&shape, cluster(attributes))?;
        if attributes.iter().any(|attribute| attribute.id == COOPERATIVE && halves(&attribute.value, 0)[0] != 0) {
            cooperative::check_fits(&*function::find(function)?, &shape)?;
        }
    }
    launch(call, function, shape, config.hStream, parameters, extra)?;
    for attribute in attributes {
        if matches!(attribute.id, PROGRAMMATIC_EVENT | LAUNCH_COMPLETION_EVENT) {
            let event = usize::try_from(attribute.value.words[0]).unwrap_or(0);
            cuEventRecordWithFlags(call, crate::registry::pointer(event), config.hStream, 0)?;
        }
    }
    Ok(())
}
