//! Power, energy, temperature and fans: what follows from a device's limit and how busy it is.
//!
//! A simple straight line from rest to full work. It is there for programs that show or sum these numbers;
//! nobody should conclude anything from them.
#![allow(non_snake_case)]

use crate::args::{get_versioned, put};
use crate::devices::{Device, device};
use crate::entry::machine;
use crate::types::{Answer, Code, nvmlDevice_t, nvmlTemperature_v1_t};
use core::ffi::{c_int, c_uint, c_ulonglong};

/// At rest, of the limit.
const REST_PERCENT: u64 = 13;
/// Fully busy, of the limit.
const BUSY_PERCENT: u64 = 80;
const REST_DEGREES: u32 = 32;
const BUSY_DEGREES: u32 = 68;

fn limit_mw(device: &Device) -> u64 {
    device.spec.details.power_limit_mw.into()
}

/// What the device draws.
pub(crate) fn power_mw(device: &Device) -> c_uint {
    let busy = u64::from(machine().utilisation(device.index));
    let hundredths = REST_PERCENT * 100 + (BUSY_PERCENT - REST_PERCENT) * busy;
    c_uint::try_from(limit_mw(device) * hundredths / 10_000).expect("less than the limit")
}

/// What the device drew since its host started, as if it had been at rest but for the busy time known.
pub(crate) fn energy_mj(device: &Device) -> u64 {
    let seconds = |ns: u64, percent: u64| u128::from(limit_mw(device) * percent) * u128::from(ns) / 100_000_000_000;
    let rest = seconds(fake_machine::now_ns(), REST_PERCENT);
    let busy = seconds(machine().busy_ns(device.index), BUSY_PERCENT - REST_PERCENT);
    u64::try_from(rest + busy).unwrap_or(u64::MAX)
}

/// How warm the device is.
pub(crate) fn degrees(device: &Device) -> u32 {
    REST_DEGREES + (BUSY_DEGREES - REST_DEGREES) * machine().utilisation(device.index) / 100
}

/// The least and the most that the limit could be set to, were it possible.
pub(crate) fn limits_mw(device: &Device) -> (c_uint, c_uint) {
    let limit = device.spec.details.power_limit_mw;
    (limit / 4, limit)
}

pub(crate) fn nvmlDeviceGetPowerUsage(handle: nvmlDevice_t, power: *mut c_uint) -> Answer {
    put(power, power_mw(&device(handle)?))
}

pub(crate) fn nvmlDeviceGetTotalEnergyConsumption(handle: nvmlDevice_t, energy: *mut c_ulonglong) -> Answer {
    put(energy, energy_mj(&device(handle)?))
}

fn limit(handle: nvmlDevice_t, out: *mut c_uint) -> Answer {
    put(out, device(handle)?.spec.details.power_limit_mw)
}

pub(crate) fn nvmlDeviceGetPowerManagementLimit(handle: nvmlDevice_t, limit: *mut c_uint) -> Answer {
    self::limit(handle, limit)
}

pub(crate) fn nvmlDeviceGetPowerManagementDefaultLimit(handle: nvmlDevice_t, defaultLimit: *mut c_uint) -> Answer {
    limit(handle, defaultLimit)
}

pub(crate) fn nvmlDeviceGetEnforcedPowerLimit(handle: nvmlDevice_t, limit: *mut c_uint) -> Answer {
    self::limit(handle, limit)
}

pub(crate) fn nvmlDeviceGetPowerManagementLimitConstraints(
    handle: nvmlDevice_t,
    minLimit: *mut c_uint,
    maxLimit: *mut c_uint,
) -> Answer {
    let (least, most) = limits_mw(&device(handle)?);
    put(minLimit, least)?;
    put(maxLimit, most)
}

pub(crate) fn nvmlDeviceGetPowerManagementMode(handle: nvmlDevice_t, mode: *mut c_uint) -> Answer {
    device(handle)?;
    put(mode, 1)
}

pub(crate) fn nvmlDeviceGetTemperature(handle: nvmlDevice_t, sensorType: c_uint, temp: *mut c_uint) -> Answer {
    let device = device(handle)?;
    if sensorType != 0 {
        return Err(Code::INVALID_ARGUMENT);
    }
    put(temp, degrees(&device))
}

pub(crate) fn nvmlDeviceGetTemperatureV(handle: nvmlDevice_t, temperature: *mut nvmlTemperature_v1_t) -> Answer {
    let device = device(handle)?;
    let mut asked = get_versioned(temperature, 1)?;
    if asked.sensorType != 0 {
        return Err(Code::INVALID_ARGUMENT);
    }
    asked.temperature = c_int::try_from(degrees(&device)).expect("a device doesn't melt");
    put(temperature, asked)
}

pub(crate) fn nvmlDeviceGetTemperatureThreshold(
    handle: nvmlDevice_t,
    thresholdType: c_uint,
    temp: *mut c_uint,
) -> Answer {
    device(handle)?;
    put(
        temp,
        match thresholdType {
            0 => 92, // Shutdown
            1 => 89, // Slowdown
            2 => 95, // Memory
            3 => 85, // Below base clock
            4..=7 => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_ARGUMENT),
        },
    )
}
