//! `cuDeviceGetAttribute`: what the machine says, else what follows from the capability, else a constant.

use crate::args::{Answer, put};
use crate::entry::Call;
use crate::state::{self, Device};
use core::ffi::c_int;
use driver_api::{CUdevice, CUdevice_attribute, CUresult};
use fake_machine::{DeviceSpec, Lack, lacks};

/// `CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR`
pub(crate) const MAX_THREADS_PER_MULTIPROCESSOR: CUdevice_attribute = 39;
/// `CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE`
pub(crate) const MAX_PERSISTING_L2_CACHE_SIZE: CUdevice_attribute = 108;
/// `CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED`
pub(crate) const MULTICAST_SUPPORTED: CUdevice_attribute = 132;
/// `CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_UNICAST_SUPPORTED`
pub(crate) const ENDPOINT_UNICAST_SUPPORTED: CUdevice_attribute = 153;
/// `CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_MULTICAST_SUPPORTED`
pub(crate) const ENDPOINT_MULTICAST_SUPPORTED: CUdevice_attribute = 154;
/// `CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED`
const STREAM_PRIORITIES_SUPPORTED: CUdevice_attribute = 78;
const L2_CACHE_SIZE: CUdevice_attribute = 38;
/// Runtimes ask for attributes newer than themselves and take an error for a broken driver.
const ANSWERED_BELOW: CUdevice_attribute = 170;

pub(crate) fn cuDeviceGetAttribute(
    _: &Call,
    out: *mut c_int,
    attribute: CUdevice_attribute,
    device: CUdevice,
) -> Answer {
    let device = state::device(device)?;
    put(out, value(device, attribute)?)
}

/// The value of an attribute.
pub(crate) fn value(device: &Device, attribute: CUdevice_attribute) -> Answer<c_int> {
    let spec = device.spec();
    if let Some(row) = spec.attributes.iter().find(|row| row.0 == attribute) {
        return Ok(row.1);
    }
    if let Some(value) = of_device(spec, attribute).or_else(|| of_capability(spec, attribute)) {
        return Ok(value);
    }
    match CONSTANTS.binary_search_by_key(&attribute, |row| row.0) {
        Ok(at) => Ok(CONSTANTS[at].1),
        Err(_) if (1..ANSWERED_BELOW).contains(&attribute) => Ok(0),
        Err(_) => Err(CUresult::INVALID_VALUE),
    }
}

fn of_device(spec: &DeviceSpec, attribute: CUdevice_attribute) -> Option<c_int> {
    let number = |value: u32| Some(value.cast_signed());
    match attribute {
        16 => number(spec.sm_count),
        33 => number(spec.pci_bus),
        34 => number(spec.pci_device),
        50 => number(spec.pci_domain),
        75 => number(spec.compute_capability.0),
        76 => number(spec.compute_capability.1),
        STREAM_PRIORITIES_SUPPORTED if lacks(Lack::StreamPriorities) => Some(0),
        MAX_PERSISTING_L2_CACHE_SIZE | 109 if spec.compute_capability.0 >= 8 => {
            let cache = spec.attributes.iter().find(|row| row.0 == L2_CACHE_SIZE).map_or(0, |row| row.1);
            Some(if attribute == 109 { 128 << 20 } else { cache / 4 * 3 })
        }
        _ => None,
    }
}

/// What NVIDIA's table of technical specifications per compute capability says.
fn of_capability(spec: &DeviceSpec, attribute: CUdevice_attribute) -> Option<c_int> {
    const KIB: c_int = 1024;
    let (major, minor) = spec.compute_capability;
    Some(match attribute {
        MAX_THREADS_PER_MULTIPROCESSOR => match (major, minor) {
            (7, 5) => 1024,
            (8, 6 | 9) | (12, _) => 1536,
            _ => 2048,
        },
        // Shared memory of a multiprocessor, and the most of it that a block can ask for.
        81 => match (major, minor) {
            (7, 0) => 96 * KIB,
            (7, _) => 64 * KIB,
            (8, 0) => 164 * KIB,
            (8, _) | (12, _) => 100 * KIB,
            _ => 228 * KIB,
        },
        97 => match (major, minor) {
            (7, 0) => 96 * KIB,
            (7, _) => 64 * KIB,
            (8, 0) => 163 * KIB,
            (8, _) | (12, _) => 99 * KIB,
            _ => 227 * KIB,
        },
        106 => match (major, minor) {
            (7, 5) | (8, 6) => 16,
            (8, 9) | (12, _) => 24,
            _ => 32,
        },
        111 => {
            if major >= 8 {
                KIB
            } else {
                0
            }
        }
        // Clusters, unified function pointers and tensor maps came with Hopper.
        120 | 127 => c_int::from(major >= 9),
        // Switches that multicast are built for these only.
        MULTICAST_SUPPORTED | ENDPOINT_UNICAST_SUPPORTED | ENDPOINT_MULTICAST_SUPPORTED => c_int::from(major == 9),
        126 => {
            if major >= 9 {
                4
            } else {
                1
            }
        }
        87 => {
            if matches!((major, minor), (7, 0) | (8, 0) | (9, _)) {
                2
            } else {
                32
            }
        }
        _ => return None,
    })
}

/// The same for every device here; sorted by attribute, and 0 where there is no row.
const CONSTANTS: &[(CUdevice_attribute, c_int)] = &[
    (1, 1024),
    (2, 1024),
    (3, 1024),
    (4, 64),
    (5, 2_147_483_647),
    (6, 65535),
    (7, 65535),
    (8, 49152),
    (9, 65536),
    (10, 32),
    (11, 2_147_483_647),
    (12, 65536),
    (13, 1_410_000),
    (14, 512),
    (15, 1),
    (19, 1),
    (21, 131_072),
    (22, 131_072),
    (23, 65536),
    (24, 16384),
    (25, 16384),
    (26, 16384),
    (27, 32768),
    (28, 32768),
    (29, 2048),
    (30, 512),
    (31, 1),
    (36, 1_215_000),
    (37, 256),
    (38, 4 << 20),
    (40, 3),
    (41, 1),
    (42, 32768),
    (43, 2048),
    (44, 1),
    (45, 32768),
    (46, 32768),
    (47, 8192),
    (48, 8192),
    (49, 32768),
    (51, 32),
    (52, 32768),
    (53, 32768),
    (54, 2046),
    (55, 32768),
    (56, 131_072),
    (57, 65536),
    (58, 16384),
    (59, 16384),
    (60, 16384),
    (61, 32768),
    (62, 2048),
    (63, 32768),
    (64, 32768),
    (65, 2048),
    (66, 32768),
    (67, 32768),
    (68, 2046),
    (69, 268_435_456),
    (70, 131_072),
    (71, 65000),
    (72, 2_097_120),
    (73, 32768),
    (74, 32768),
    (77, 32768),
    (78, 1),
    (79, 1),
    (80, 1),
    (82, 65536),
    (83, 1),
    (89, 1),
    (90, 1),
    (91, 1),
    (95, 1),
    (96, 1),
    (99, 1),
    (102, 1),
    (103, 1),
    (112, 1),
    (113, 1),
    (115, 1),
    (119, 1),
    (121, 1),
    (122, 1),
    (123, 1),
    (124, 1),
    (129, 1),
    (131, -1),
    (134, -1),
];
