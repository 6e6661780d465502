//! Which devices a process sees, and in which order: `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`.
//!
//! As the driver does it: numbers are read as `strtoul` reads them, `GPU-` entries may be cut short while
//! they stay unambiguous, the first entry that names no device ends the list, and a device named twice
//! leaves none at all.
//!
//! A process sees one MIG instance at most, and no other device beside it: the first of those that it may see. A divided
//! device that is named means its first instance; without instances, nothing.

use fake_machine::{DeviceSpec, Machine};
use std::cmp::Reverse;

/// `CU_DEVICE_ATTRIBUTE_CLOCK_RATE`.
const CLOCK_RATE: i32 = 13;

/// Units of the machine in the order of this process's ordinals.
pub(super) fn from_environment(machine: &Machine) -> Vec<usize> {
    let pci_order = std::env::var("CUDA_DEVICE_ORDER").is_ok_and(|order| order == "PCI_BUS_ID");
    let order = with_instances(machine, enumeration(machine.devices(), pci_order));
    match std::env::var_os("CUDA_VISIBLE_DEVICES") {
        None => order,
        Some(list) => with_instances(machine, select(&list.to_string_lossy(), &order, machine)),
    }
}

/// What a process sees of these units.
fn with_instances(machine: &Machine, units: Vec<usize>) -> Vec<usize> {
    let seen = |unit: usize| {
        if machine.units()[unit].is_divided { machine.instances(unit).next() } else { Some(unit) }
    };
    let seen: Vec<usize> = units.into_iter().filter_map(seen).collect();
    match seen.iter().find(|unit| machine.units()[**unit].instance.is_some()) {
        Some(instance) => vec![*instance],
        None => seen,
    }
}

/// All devices in PCI order, or the fastest first (equals in PCI order).
fn enumeration(devices: &[DeviceSpec], pci_order: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..devices.len()).collect();
    if !pci_order {
        order.sort_by_key(|&at| Reverse(speed(&devices[at])));
    }
    order
}

fn speed(device: &DeviceSpec) -> u64 {
    let clock = device.attributes.iter().find(|row| row.0 == CLOCK_RATE).map_or(1, |row| row.1);
    u64::from(device.sm_count) * u64::try_from(clock).unwrap_or(1)
}

fn select(list: &str, order: &[usize], machine: &Machine) -> Vec<usize> {
    let by_uuid = list.starts_with("GPU-") || list.starts_with("MIG-");
    let mut chosen = Vec::new();
    for entry in list.split(',') {
        let found = match entry {
            _ if !by_uuid => by_number(entry, order),
            _ if entry.trim_end().to_ascii_lowercase().starts_with("mig-") => by_instance(entry, machine),
            _ => by_prefix(entry, machine.devices()),
        };
        let Some(unit) = found else { break };
        if chosen.contains(&unit) {
            return Vec::new();
        }
        chosen.push(unit);
    }
    chosen
}

/// An instance's whole UUID, or its device's with the numbers of GPU instance and compute instance.
fn by_instance(entry: &str, machine: &Machine) -> Option<usize> {
    let wanted = entry.trim_end().to_ascii_lowercase();
    let is_named = |unit: &usize| {
        let spec = &machine.units()[*unit];
        let Some(instance) = &spec.instance else { return false };
        let parent = machine.devices()[instance.parent].uuid_text();
        let by_parent = format!("mig-{parent}/{}/{}", instance.gpu_instance, instance.compute_instance);
        spec.uuid_text().to_ascii_lowercase() == wanted || by_parent.to_ascii_lowercase() == wanted
    };
    (0..machine.units().len()).find(is_named)
}

/// Leading digits decide: `1gpu` is 1, `gpu1` and `-1` name nothing.
fn by_number(entry: &str, order: &[usize]) -> Option<usize> {
    let entry = entry.trim_start();
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    order.get(digits[..end].parse::<usize>().ok()?).copied()
}

fn by_prefix(entry: &str, devices: &[DeviceSpec]) -> Option<usize> {
    let wanted = entry.trim_end().to_ascii_lowercase();
    if !wanted.starts_with("gpu-") {
        return None;
    }
    let mut matches =
        (0..devices.len()).filter(|at| devices[*at].uuid_text().to_ascii_lowercase().starts_with(&wanted));
    let first = matches.next()?;
    matches.next().is_none().then_some(first)
}
