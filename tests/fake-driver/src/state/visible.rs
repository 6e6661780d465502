//! Which devices a process sees, and in which order: `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`.
//!
//! As the driver does it: numbers are read as `strtoul` reads them, `GPU-` entries may be cut short while
//! they stay unambiguous, the first entry that names no device ends the list, and a device named twice
//! leaves none at all.

use fake_machine::DeviceSpec;
use std::cmp::Reverse;

/// `CU_DEVICE_ATTRIBUTE_CLOCK_RATE`.
const CLOCK_RATE: i32 = 13;

/// Physical devices in the order of this process's ordinals.
pub(super) fn from_environment(devices: &[DeviceSpec]) -> Vec<usize> {
    let pci_order = std::env::var("CUDA_DEVICE_ORDER").is_ok_and(|order| order == "PCI_BUS_ID");
    let order = enumeration(devices, pci_order);
    match std::env::var_os("CUDA_VISIBLE_DEVICES") {
        None => order,
        Some(list) => select(&list.to_string_lossy(), &order, devices),
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

fn select(list: &str, order: &[usize], devices: &[DeviceSpec]) -> Vec<usize> {
    let by_uuid = list.starts_with("GPU-");
    let mut chosen = Vec::new();
    for entry in list.split(',') {
        let found = if by_uuid { by_prefix(entry, order, devices) } else { by_number(entry, order) };
        let Some(physical) = found else { break };
        if chosen.contains(&physical) {
            return Vec::new();
        }
        chosen.push(physical);
    }
    chosen
}

/// Leading digits decide: `1gpu` is 1, `gpu1` and `-1` name nothing.
fn by_number(entry: &str, order: &[usize]) -> Option<usize> {
    let entry = entry.trim_start();
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    order.get(digits[..end].parse::<usize>().ok()?).copied()
}

fn by_prefix(entry: &str, order: &[usize], devices: &[DeviceSpec]) -> Option<usize> {
    let wanted = entry.trim_end().to_ascii_lowercase();
    if !wanted.starts_with("gpu-") {
        return None;
    }
    let mut matches = order.iter().copied().filter(|&at| uuid_text(&devices[at].uuid).starts_with(&wanted));
    let first = matches.next()?;
    matches.next().is_none().then_some(first)
}

/// `gpu-` and the UUID in its usual groups, in lower case.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("gpu-");
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
