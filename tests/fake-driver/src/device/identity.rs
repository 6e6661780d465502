//! Name, UUID and place on the bus.

use crate::args::{Answer, put, put_at, put_text, text};
use crate::entry::Call;
use crate::state::{self, driver};
use core::ffi::{c_char, c_int};
use driver_api::{CUdevice, CUresult, CUuuid};

pub(crate) fn cuDeviceGetName(_: &Call, out: *mut c_char, length: c_int, device: CUdevice) -> Answer {
    put_text(out, usize::try_from(length).unwrap_or(0), &state::device(device)?.spec().name)
}

/// Of the whole device, also where the program sees one of its MIG instances.
pub(crate) fn cuDeviceGetUuid(_: &Call, out: *mut CUuuid, device: CUdevice) -> Answer {
    let spec = state::device(device)?.spec();
    let whole = spec.instance.as_ref().map_or(spec, |instance| &driver().machine.devices()[instance.parent]);
    put(out, CUuuid { bytes: whole.uuid })
}

pub(crate) fn cuDeviceGetUuid_v2(_: &Call, out: *mut CUuuid, device: CUdevice) -> Answer {
    put(out, CUuuid { bytes: state::device(device)?.spec().uuid })
}

/// As on Linux: a LUID of zeros and one node.
pub(crate) fn cuDeviceGetLuid(_: &Call, luid: *mut c_char, nodes: *mut u32, device: CUdevice) -> Answer {
    const LUID_BYTES: usize = 8;
    state::device(device)?;
    for at in 0..LUID_BYTES {
        put_at(luid, at, 0)?;
    }
    put(nodes, 1)
}

pub(crate) fn cuDeviceGetPCIBusId(_: &Call, out: *mut c_char, length: c_int, device: CUdevice) -> Answer {
    const LENGTH_MIN: c_int = 13;
    let spec = state::device(device)?.spec();
    if length < LENGTH_MIN {
        return Err(CUresult::INVALID_VALUE);
    }
    let name = format!("{:04X}:{:02X}:{:02X}.0", spec.pci_domain, spec.pci_bus, spec.pci_device);
    put_text(out, usize::try_from(length).unwrap_or(0), &name)
}

/// `domain:bus:device.function`, of which domain and function may be left out.
pub(crate) fn cuDeviceGetByPCIBusId(_: &Call, out: *mut CUdevice, name: *const c_char) -> Answer {
    let name = text(name)?.to_str().map_err(|_| CUresult::INVALID_VALUE)?;
    let (domain, bus, device) = bus_numbers(name).ok_or(CUresult::INVALID_VALUE)?;
    let found = driver().devices().iter().find(|candidate| {
        let spec = candidate.spec();
        (spec.pci_domain, spec.pci_bus, spec.pci_device) == (domain, bus, device)
    });
    put(out, found.ok_or(CUresult::INVALID_DEVICE)?.ordinal)
}

fn bus_numbers(name: &str) -> Option<(u32, u32, u32)> {
    let name = name.split_once('.').map_or(name, |(place, _)| place);
    let mut parts = name.split(':').rev().map(|part| u32::from_str_radix(part, 16));
    let (device, bus) = (parts.next()?.ok()?, parts.next()?.ok()?);
    let domain = parts.next().unwrap_or(Ok(0)).ok()?;
    parts.next().is_none().then_some((domain, bus, device))
}
