//! Which devices there are, and who they are.
#![allow(non_snake_case)]

use crate::args::{array, get_text, get_versioned, put, put_text, text_of};
use crate::entry::{self, machine};
use crate::types::{
    Answer, Code, nvmlDevice_t, nvmlPciInfo_t, nvmlPciInfo_v1_t, nvmlPciInfo_v2_t, nvmlPciInfoExt_v1_t, nvmlUUID_v1_t,
};
use core::ffi::{c_char, c_int, c_uint};
use fake_machine::{DeviceSpec, Ecc};
use std::ptr::without_provenance_mut;

/// A device that a handle stands for.
pub(crate) struct Device {
    /// Its number.
    pub(crate) index: usize,
    /// What the machine says about it.
    pub(crate) spec: &'static DeviceSpec,
}

/// Handles are numbers that no program makes up by accident, and no addresses.
const HANDLE_BASE: usize = 0x4e56_0000;

impl Device {
    /// The device, or MIG instance, of a number.
    pub(crate) fn at(index: usize) -> Option<Self> {
        machine().units().get(index).map(|spec| Self { index, spec })
    }

    fn all() -> impl Iterator<Item = Self> {
        (0..).zip(machine().units()).map(|(index, spec)| Self { index, spec })
    }

    /// Who has it holds the device until the last `nvmlShutdown`; of an instance, the device that it is a part of.
    pub(crate) fn handle(&self) -> nvmlDevice_t {
        entry::hold(self.spec.instance.as_ref().map_or(self.index, |instance| instance.parent));
        without_provenance_mut(HANDLE_BASE + self.index)
    }

    /// The serial number, which boards for data centres have.
    fn serial(&self) -> Option<String> {
        let number = self.spec.uuid.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(257).wrapping_add((*byte).into()));
        (!is_consumer(self.spec)).then(|| format!("16{:011}", number % 100_000_000_000))
    }
}

/// The device, or MIG instance, behind a handle.
pub(crate) fn device(handle: nvmlDevice_t) -> Answer<Device> {
    handle.addr().checked_sub(HANDLE_BASE).and_then(Device::at).ok_or(Code::INVALID_ARGUMENT)
}

/// The same for what is asked of whole devices only.
pub(crate) fn board(handle: nvmlDevice_t) -> Answer<Device> {
    device(handle)
        .and_then(|device| if device.spec.instance.is_some() { Err(Code::INVALID_ARGUMENT) } else { Ok(device) })
}

/// True for boards with fans and without serial numbers.
pub(crate) fn is_consumer(spec: &DeviceSpec) -> bool {
    spec.name.contains("GeForce")
}

fn count(deviceCount: *mut c_uint) -> Answer {
    put(deviceCount, c_uint::try_from(machine().devices().len()).expect("a machine has few devices"))
}

pub(crate) fn nvmlDeviceGetCount(deviceCount: *mut c_uint) -> Answer {
    count(deviceCount)
}

pub(crate) fn nvmlDeviceGetCount_v2(deviceCount: *mut c_uint) -> Answer {
    count(deviceCount)
}

fn by_index(index: c_uint, out: *mut nvmlDevice_t) -> Answer {
    let is_device = machine().devices().len() > index as usize;
    put(out, Device::at(index as usize).filter(|_| is_device).ok_or(Code::INVALID_ARGUMENT)?.handle())
}

pub(crate) fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut nvmlDevice_t) -> Answer {
    by_index(index, device)
}

pub(crate) fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) -> Answer {
    by_index(index, device)
}

fn found(out: *mut nvmlDevice_t, is_it: impl Fn(&Device) -> bool) -> Answer {
    if out.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    put(out, Device::all().find(is_it).ok_or(Code::NOT_FOUND)?.handle())
}

pub(crate) fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) -> Answer {
    let wanted = get_text(uuid)?;
    found(device, |device| device.spec.uuid_text().eq_ignore_ascii_case(&wanted))
}

pub(crate) fn nvmlDeviceGetHandleByUUIDV(uuid: *const nvmlUUID_v1_t, device: *mut nvmlDevice_t) -> Answer {
    const ASCII: c_uint = 1;
    const BINARY: c_uint = 2;
    let wanted = get_versioned(uuid, 1)?;
    match wanted.kind {
        ASCII => {
            let wanted = text_of(&wanted.value);
            found(device, |device| device.spec.uuid_text().eq_ignore_ascii_case(&wanted))
        }
        BINARY => {
            let same =
                |device: &Device| device.spec.uuid.iter().zip(&wanted.value).all(|(a, b)| *a == b.cast_unsigned());
            found(device, same)
        }
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

pub(crate) fn nvmlDeviceGetHandleBySerial(serial: *const c_char, device: *mut nvmlDevice_t) -> Answer {
    let wanted = get_text(serial)?;
    found(device, |device| device.spec.instance.is_none() && device.serial().is_some_and(|serial| serial == wanted))
}

fn by_bus(bus: *const c_char, out: *mut nvmlDevice_t) -> Answer {
    let (domain, bus, slot) = parse_bus(&get_text(bus)?).ok_or(Code::INVALID_ARGUMENT)?;
    found(out, |device| {
        let place = (device.spec.pci_domain, device.spec.pci_bus, device.spec.pci_device);
        device.spec.instance.is_none() && place == (domain, bus, slot)
    })
}

pub(crate) fn nvmlDeviceGetHandleByPciBusId(pciBusId: *const c_char, device: *mut nvmlDevice_t) -> Answer {
    by_bus(pciBusId, device)
}

pub(crate) fn nvmlDeviceGetHandleByPciBusId_v2(pciBusId: *const c_char, device: *mut nvmlDevice_t) -> Answer {
    by_bus(pciBusId, device)
}

/// `domain:bus:device.function`, `domain:bus:device` or `bus:device.function`, all in hexadecimal.
fn parse_bus(text: &str) -> Option<(u32, u32, u32)> {
    let (place, function) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    if number(function)? != 0 {
        return Some((u32::MAX, 0, 0)); // A device has one function here.
    }
    match *place.split(':').collect::<Vec<_>>() {
        [domain, bus, device] => Some((number(domain)?, number(bus)?, number(device)?)),
        [bus, device] => Some((0, number(bus)?, number(device)?)),
        _ => None,
    }
}

pub(crate) fn nvmlDeviceGetName(handle: nvmlDevice_t, name: *mut c_char, length: c_uint) -> Answer {
    put_text(name, length, &device(handle)?.spec.name)
}

pub(crate) fn nvmlDeviceGetUUID(handle: nvmlDevice_t, uuid: *mut c_char, length: c_uint) -> Answer {
    put_text(uuid, length, &device(handle)?.spec.uuid_text())
}

pub(crate) fn nvmlDeviceGetSerial(handle: nvmlDevice_t, serial: *mut c_char, length: c_uint) -> Answer {
    put_text(serial, length, &device(handle)?.serial().ok_or(Code::NOT_SUPPORTED)?)
}

fn index(handle: nvmlDevice_t, out: *mut c_uint) -> Answer {
    put(out, c_uint::try_from(board(handle)?.index).expect("a machine has few devices"))
}

pub(crate) fn nvmlDeviceGetIndex(handle: nvmlDevice_t, index: *mut c_uint) -> Answer {
    self::index(handle, index)
}

/// The number in `/dev/nvidiaN`.
pub(crate) fn nvmlDeviceGetMinorNumber(handle: nvmlDevice_t, minorNumber: *mut c_uint) -> Answer {
    index(handle, minorNumber)
}

pub(crate) fn nvmlDeviceGetBrand(handle: nvmlDevice_t, brand: *mut c_uint) -> Answer {
    const TESLA: c_uint = 2;
    const GEFORCE: c_uint = 5;
    const NVIDIA: c_uint = 14;
    let spec = device(handle)?.spec;
    let kind = if is_consumer(spec) {
        GEFORCE
    } else if spec.name.starts_with("Tesla") {
        TESLA
    } else {
        NVIDIA
    };
    put(brand, kind)
}

pub(crate) fn nvmlDeviceGetArchitecture(handle: nvmlDevice_t, arch: *mut c_uint) -> Answer {
    put(
        arch,
        match device(handle)?.spec.compute_capability {
            (7, 0) => 5, // Volta
            (7, _) => 6, // Turing
            (8, 9) => 8, // Ada
            (8, _) => 7, // Ampere
            _ => 9,      // Hopper, the newest here
        },
    )
}

pub(crate) fn nvmlDeviceGetCudaComputeCapability(handle: nvmlDevice_t, major: *mut c_int, minor: *mut c_int) -> Answer {
    let (first, second) = device(handle)?.spec.compute_capability;
    put(major, first.cast_signed())?;
    put(minor, second.cast_signed())
}

pub(crate) fn nvmlDeviceGetNumGpuCores(handle: nvmlDevice_t, numCores: *mut c_uint) -> Answer {
    put(numCores, device(handle)?.spec.details.core_count)
}

pub(crate) fn nvmlDeviceGetMultiGpuBoard(handle: nvmlDevice_t, multiGpuBool: *mut c_uint) -> Answer {
    device(handle)?;
    put(multiGpuBool, 0)
}

pub(crate) fn nvmlDeviceGetBoardId(handle: nvmlDevice_t, boardId: *mut c_uint) -> Answer {
    put(boardId, device(handle)?.spec.pci_bus << 8)
}

pub(crate) fn nvmlDeviceOnSameBoard(device1: nvmlDevice_t, device2: nvmlDevice_t, onSameBoard: *mut c_int) -> Answer {
    put(onSameBoard, c_int::from(device(device1)?.index == device(device2)?.index))
}

/// Two devices share no more than the system: the machine has no model of what is between them.
pub(crate) fn nvmlDeviceGetTopologyCommonAncestor(
    device1: nvmlDevice_t,
    device2: nvmlDevice_t,
    pathInfo: *mut c_uint,
) -> Answer {
    const INTERNAL: c_uint = 0;
    const SYSTEM: c_uint = 50;
    put(pathInfo, if device(device1)?.index == device(device2)?.index { INTERNAL } else { SYSTEM })
}

/// The function's place with an eight-digit domain, as NVML writes it, or with the older four digits.
fn bus_id(spec: &DeviceSpec, digits: usize) -> String {
    format!("{:0digits$X}:{:02X}:{:02X}.0", spec.pci_domain, spec.pci_bus, spec.pci_device)
}

/// The vendor's; the boards' own numbers are not modelled.
const SUBSYSTEM_ID: c_uint = 0x10de;

pub(crate) fn nvmlDeviceGetPciInfo(handle: nvmlDevice_t, pci: *mut nvmlPciInfo_v1_t) -> Answer {
    let spec = device(handle)?.spec;
    put(
        pci,
        nvmlPciInfo_v1_t {
            busId: array(&bus_id(spec, 4)),
            domain: spec.pci_domain,
            bus: spec.pci_bus,
            device: spec.pci_device,
            pciDeviceId: spec.details.pci_device_id,
        },
    )
}

pub(crate) fn nvmlDeviceGetPciInfo_v2(handle: nvmlDevice_t, pci: *mut nvmlPciInfo_v2_t) -> Answer {
    let spec = device(handle)?.spec;
    put(
        pci,
        nvmlPciInfo_v2_t {
            busId: array(&bus_id(spec, 4)),
            domain: spec.pci_domain,
            bus: spec.pci_bus,
            device: spec.pci_device,
            pciDeviceId: spec.details.pci_device_id,
            pciSubSystemId: SUBSYSTEM_ID,
            reserved: [0; 4],
        },
    )
}

pub(crate) fn nvmlDeviceGetPciInfo_v3(handle: nvmlDevice_t, pci: *mut nvmlPciInfo_t) -> Answer {
    let spec = device(handle)?.spec;
    put(
        pci,
        nvmlPciInfo_t {
            busIdLegacy: array(&bus_id(spec, 4)),
            domain: spec.pci_domain,
            bus: spec.pci_bus,
            device: spec.pci_device,
            pciDeviceId: spec.details.pci_device_id,
            pciSubSystemId: SUBSYSTEM_ID,
            busId: array(&bus_id(spec, 8)),
        },
    )
}

pub(crate) fn nvmlDeviceGetPciInfoExt(handle: nvmlDevice_t, pci: *mut nvmlPciInfoExt_v1_t) -> Answer {
    /// A display controller, for computing or with outputs.
    const CLASS: c_uint = 3;
    const SUBCLASS: [c_uint; 2] = [2, 0];
    let spec = device(handle)?.spec;
    let asked = get_versioned(pci, 1)?;
    put(
        pci,
        nvmlPciInfoExt_v1_t {
            version: asked.version,
            domain: spec.pci_domain,
            bus: spec.pci_bus,
            device: spec.pci_device,
            pciDeviceId: spec.details.pci_device_id,
            pciSubSystemId: SUBSYSTEM_ID,
            baseClass: CLASS,
            subClass: SUBCLASS[usize::from(is_consumer(spec))],
            busId: array(&bus_id(spec, 8)),
        },
    )
}

pub(crate) fn nvmlDeviceGetEccMode(handle: nvmlDevice_t, current: *mut c_uint, pending: *mut c_uint) -> Answer {
    let mode = ecc_mode(device(handle)?.spec)?;
    put(current, mode)?;
    put(pending, mode)
}

pub(crate) fn nvmlDeviceGetDefaultEccMode(handle: nvmlDevice_t, defaultMode: *mut c_uint) -> Answer {
    put(defaultMode, ecc_mode(device(handle)?.spec)?)
}

/// Whether error correction is on.
pub(crate) fn ecc_mode(spec: &DeviceSpec) -> Answer<c_uint> {
    match spec.details.ecc {
        Ecc::Absent => Err(Code::NOT_SUPPORTED),
        Ecc::Off => Ok(0),
        Ecc::On => Ok(1),
    }
}
