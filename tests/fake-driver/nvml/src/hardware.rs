//! Clocks, links and modes.
#![allow(non_snake_case)]

use crate::args::{put, put_list, put_text};
use crate::devices::{Device, device, is_consumer};
use crate::entry::machine;
use crate::lifecycle::driver_version;
use crate::types::{Answer, Code, nvmlDevice_t};
use core::ffi::{c_char, c_uint, c_ulong, c_ulonglong};

const GRAPHICS: c_uint = 0;
const SM: c_uint = 1;
const MEMORY: c_uint = 2;
const VIDEO: c_uint = 3;

/// What an idle device of any model falls back to.
const IDLE_MHZ: u32 = 210;
/// Distance of the multiprocessors' clocks that can be chosen.
const STEP_MHZ: u32 = 15;

/// Highest clock of a kind.
fn highest_mhz(device: &Device, kind: c_uint) -> Answer<c_uint> {
    let details = device.spec.details;
    match kind {
        GRAPHICS | SM => Ok(details.sm_clock_mhz),
        MEMORY => Ok(details.memory_clock_mhz),
        // The video engines run somewhat slower than the multiprocessors.
        VIDEO => Ok(details.sm_clock_mhz / 10 * 9),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

/// A device clocks up while it is busy, as far as its samples show.
fn current_mhz(device: &Device, kind: c_uint) -> Answer<c_uint> {
    let highest = highest_mhz(device, kind)?;
    let is_idle = kind != MEMORY && machine().utilisation(device.index) == 0;
    Ok(if is_idle { IDLE_MHZ } else { highest })
}

pub(crate) fn nvmlDeviceGetClockInfo(handle: nvmlDevice_t, type_: c_uint, clock: *mut c_uint) -> Answer {
    put(clock, current_mhz(&device(handle)?, type_)?)
}

pub(crate) fn nvmlDeviceGetMaxClockInfo(handle: nvmlDevice_t, type_: c_uint, clock: *mut c_uint) -> Answer {
    put(clock, highest_mhz(&device(handle)?, type_)?)
}

pub(crate) fn nvmlDeviceGetClock(
    handle: nvmlDevice_t,
    clockType: c_uint,
    clockId: c_uint,
    clockMHz: *mut c_uint,
) -> Answer {
    const CURRENT: c_uint = 0;
    const CUSTOMER_BOOST_MAX: c_uint = 3;
    let device = device(handle)?;
    put(
        clockMHz,
        match clockId {
            CURRENT => current_mhz(&device, clockType)?,
            1..=CUSTOMER_BOOST_MAX => highest_mhz(&device, clockType)?,
            _ => return Err(Code::INVALID_ARGUMENT),
        },
    )
}

pub(crate) fn nvmlDeviceGetMaxCustomerBoostClock(
    handle: nvmlDevice_t,
    clockType: c_uint,
    clockMHz: *mut c_uint,
) -> Answer {
    put(clockMHz, highest_mhz(&device(handle)?, clockType)?)
}

/// Clocks of applications can be chosen on boards for data centres only.
fn application_mhz(handle: nvmlDevice_t, kind: c_uint, out: *mut c_uint) -> Answer {
    let device = device(handle)?;
    let clock = highest_mhz(&device, kind)?;
    if is_consumer(device.spec) { Err(Code::NOT_SUPPORTED) } else { put(out, clock) }
}

pub(crate) fn nvmlDeviceGetApplicationsClock(handle: nvmlDevice_t, clockType: c_uint, clockMHz: *mut c_uint) -> Answer {
    application_mhz(handle, clockType, clockMHz)
}

pub(crate) fn nvmlDeviceGetDefaultApplicationsClock(
    handle: nvmlDevice_t,
    clockType: c_uint,
    clockMHz: *mut c_uint,
) -> Answer {
    application_mhz(handle, clockType, clockMHz)
}

pub(crate) fn nvmlDeviceGetSupportedMemoryClocks(
    handle: nvmlDevice_t,
    count: *mut c_uint,
    clocksMHz: *mut c_uint,
) -> Answer {
    put_list(count, clocksMHz, &[device(handle)?.spec.details.memory_clock_mhz])
}

pub(crate) fn nvmlDeviceGetSupportedGraphicsClocks(
    handle: nvmlDevice_t,
    memoryClockMHz: c_uint,
    count: *mut c_uint,
    clocksMHz: *mut c_uint,
) -> Answer {
    let details = device(handle)?.spec.details;
    if memoryClockMHz != details.memory_clock_mhz {
        return Err(Code::NOT_FOUND);
    }
    let clocks = (IDLE_MHZ..=details.sm_clock_mhz).rev().step_by(STEP_MHZ as usize);
    put_list(count, clocksMHz, &clocks.collect::<Vec<_>>())
}

/// Idle, or nothing that holds the clocks back.
fn event_reasons(handle: nvmlDevice_t, out: *mut c_ulonglong) -> Answer {
    let idle = machine().utilisation(device(handle)?.index) == 0;
    put(out, idle.into())
}

pub(crate) fn nvmlDeviceGetCurrentClocksThrottleReasons(
    handle: nvmlDevice_t,
    clocksThrottleReasons: *mut c_ulonglong,
) -> Answer {
    event_reasons(handle, clocksThrottleReasons)
}

pub(crate) fn nvmlDeviceGetCurrentClocksEventReasons(
    handle: nvmlDevice_t,
    clocksEventReasons: *mut c_ulonglong,
) -> Answer {
    event_reasons(handle, clocksEventReasons)
}

/// Boards for data centres stay in the highest state; others fall back when idle.
fn performance_state(handle: nvmlDevice_t, out: *mut c_uint) -> Answer {
    let device = device(handle)?;
    let is_resting = is_consumer(device.spec) && machine().utilisation(device.index) == 0;
    put(out, if is_resting { 8 } else { 0 })
}

pub(crate) fn nvmlDeviceGetPerformanceState(handle: nvmlDevice_t, pState: *mut c_uint) -> Answer {
    performance_state(handle, pState)
}

pub(crate) fn nvmlDeviceGetPowerState(handle: nvmlDevice_t, pState: *mut c_uint) -> Answer {
    performance_state(handle, pState)
}

/// `NVML_COMPUTEMODE_DEFAULT`: any number of processes; another can't be set.
pub(crate) fn nvmlDeviceGetComputeMode(handle: nvmlDevice_t, mode: *mut c_uint) -> Answer {
    device(handle)?;
    put(mode, 0)
}

/// The simulated driver is always loaded.
pub(crate) fn nvmlDeviceGetPersistenceMode(handle: nvmlDevice_t, mode: *mut c_uint) -> Answer {
    device(handle)?;
    put(mode, 1)
}

pub(crate) fn nvmlDeviceGetDisplayMode(handle: nvmlDevice_t, display: *mut c_uint) -> Answer {
    device(handle)?;
    put(display, 0)
}

pub(crate) fn nvmlDeviceGetDisplayActive(handle: nvmlDevice_t, isActive: *mut c_uint) -> Answer {
    device(handle)?;
    put(isActive, 0)
}

pub(crate) fn nvmlDeviceGetVirtualizationMode(handle: nvmlDevice_t, pVirtualMode: *mut c_uint) -> Answer {
    device(handle)?;
    put(pVirtualMode, 0)
}

pub(crate) fn nvmlDeviceGetBusType(handle: nvmlDevice_t, type_: *mut c_uint) -> Answer {
    const PCIE: c_uint = 2;
    device(handle)?;
    put(type_, PCIE)
}

fn link_generation(handle: nvmlDevice_t, out: *mut c_uint) -> Answer {
    put(out, device(handle)?.spec.details.pcie_generation)
}

pub(crate) fn nvmlDeviceGetMaxPcieLinkGeneration(handle: nvmlDevice_t, maxLinkGen: *mut c_uint) -> Answer {
    link_generation(handle, maxLinkGen)
}

pub(crate) fn nvmlDeviceGetGpuMaxPcieLinkGeneration(handle: nvmlDevice_t, maxLinkGenDevice: *mut c_uint) -> Answer {
    link_generation(handle, maxLinkGenDevice)
}

pub(crate) fn nvmlDeviceGetCurrPcieLinkGeneration(handle: nvmlDevice_t, currLinkGen: *mut c_uint) -> Answer {
    link_generation(handle, currLinkGen)
}

/// `NVML_PCIE_LINK_MAX_SPEED_…` counts like the generations.
pub(crate) fn nvmlDeviceGetPcieLinkMaxSpeed(handle: nvmlDevice_t, maxSpeed: *mut c_uint) -> Answer {
    link_generation(handle, maxSpeed)
}

/// In megabits a second and lane: 8 gigabits in the third generation, twice as many in each that follows.
pub(crate) fn nvmlDeviceGetPcieSpeed(handle: nvmlDevice_t, pcieSpeed: *mut c_uint) -> Answer {
    put(pcieSpeed, 8000 << (device(handle)?.spec.details.pcie_generation - 3))
}

fn link_width(handle: nvmlDevice_t, out: *mut c_uint) -> Answer {
    device(handle)?;
    put(out, 16)
}

pub(crate) fn nvmlDeviceGetMaxPcieLinkWidth(handle: nvmlDevice_t, maxLinkWidth: *mut c_uint) -> Answer {
    link_width(handle, maxLinkWidth)
}

pub(crate) fn nvmlDeviceGetCurrPcieLinkWidth(handle: nvmlDevice_t, currLinkWidth: *mut c_uint) -> Answer {
    link_width(handle, currLinkWidth)
}

pub(crate) fn nvmlDeviceGetGspFirmwareVersion(handle: nvmlDevice_t, version: *mut c_char) -> Answer {
    /// `NVML_GSP_FIRMWARE_VERSION_BUF_SIZE`, which the function takes for granted.
    const ROOM: c_uint = 0x40;
    device(handle)?;
    put_text(version, ROOM, &driver_version())
}

pub(crate) fn nvmlDeviceGetGspFirmwareMode(
    handle: nvmlDevice_t,
    isEnabled: *mut c_uint,
    defaultMode: *mut c_uint,
) -> Answer {
    // From Turing on.
    let has_it = c_uint::from(device(handle)?.spec.compute_capability >= (7, 5));
    put(isEnabled, has_it)?;
    put(defaultMode, has_it)
}

/// All processors are near every device.
pub(crate) fn nvmlDeviceGetCpuAffinity(handle: nvmlDevice_t, cpuSetSize: c_uint, cpuSet: *mut c_ulong) -> Answer {
    device(handle)?;
    if cpuSetSize == 0 {
        return Err(Code::INVALID_ARGUMENT);
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let bits = c_ulong::BITS as usize;
    for word in 0..cpuSetSize as usize {
        let here = processors.saturating_sub(word * bits).min(bits);
        put(cpuSet.wrapping_add(word), if here == bits { c_ulong::MAX } else { (1 << here) - 1 })?;
    }
    Ok(())
}

/// No such units, as in every machine without an S-class system.
pub(crate) fn nvmlUnitGetCount(unitCount: *mut c_uint) -> Answer {
    put(unitCount, 0)
}

pub(crate) fn nvmlGetExcludedDeviceCount(deviceCount: *mut c_uint) -> Answer {
    put(deviceCount, 0)
}
