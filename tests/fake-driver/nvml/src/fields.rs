//! `nvmlDeviceGetFieldValues`: numbers by number, each with its own answer.
#![allow(non_snake_case)]

use crate::args::{get, put};
use crate::devices::{Device, device, ecc_mode};
use crate::power::{degrees, energy_mj, limits_mw, power_mw};
use crate::processes::timestamp_us;
use crate::types::{Answer, Code, UNSIGNED_INT, UNSIGNED_LONG_LONG, nvmlDevice_t, nvmlFieldValue_t, nvmlValue_t};
use core::ffi::c_int;

/// Values that one call may ask for: there are fewer fields.
const FIELDS_MAX: c_int = 4096;

pub(crate) fn nvmlDeviceGetFieldValues(
    handle: nvmlDevice_t,
    valuesCount: c_int,
    values: *mut nvmlFieldValue_t,
) -> Answer {
    let device = device(handle)?;
    if values.is_null() || !(1..=FIELDS_MAX).contains(&valuesCount) {
        return Err(Code::INVALID_ARGUMENT);
    }
    let now = timestamp_us(fake_machine::now_ns()).cast_signed();
    for at in 0..valuesCount.unsigned_abs() as usize {
        let place = values.wrapping_add(at);
        let mut field = get(place)?;
        (field.timestamp, field.latencyUsec) = (now, 0);
        match value(&device, field.fieldId) {
            Ok((kind, value)) => {
                (field.valueType, field.value, field.nvmlReturn) = (kind, nvmlValue_t(value), 0);
            }
            Err(code) => field.nvmlReturn = code.0,
        }
        put(place, field)?;
    }
    Ok(())
}

/// The numbers are `NVML_FI_DEV_…`.
fn value(device: &Device, field: u32) -> Answer<(u32, u64)> {
    let narrow = |value: u32| Ok((UNSIGNED_INT, value.into()));
    let counts_errors =
        || ecc_mode(device.spec).and_then(|mode| if mode == 0 { Err(Code::NOT_SUPPORTED) } else { Ok(()) });
    match field {
        // Error correction, and its counters.
        1 | 2 => narrow(ecc_mode(device.spec)?),
        3..=28 => counts_errors().map(|()| (UNSIGNED_LONG_LONG, 0)),
        // The memory is as warm as the rest.
        82 => narrow(degrees(device)),
        83 => Ok((UNSIGNED_LONG_LONG, energy_mj(device))),
        // No links between devices are modelled; replays of PCI Express neither.
        91 | 94 | 95 => narrow(0),
        185 | 186 => narrow(power_mw(device)),
        187 => narrow(limits_mw(device).0),
        188..=190 | 192 => narrow(limits_mw(device).1),
        _ => Err(Code::NOT_SUPPORTED),
    }
}
