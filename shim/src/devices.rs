//! Which devices the program sees, in the words of CUDA or of NVML. Never initialises either.

use crate::calls;

/// A device the program can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) uuid: [u8; 16],
    pub(crate) total_bytes: u64,
}

/// Whose word on the devices is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Library {
    Cuda,
    Nvml,
}

/// The devices in the library's order; empty when the program has not initialised it.
pub(crate) fn seen(library: Library) -> Vec<Seen> {
    match library {
        Library::Cuda => (0..calls::device_count().unwrap_or(0)).filter_map(from_cuda).collect(),
        Library::Nvml => (0..calls::nvml_device_count().unwrap_or(0)).filter_map(from_nvml).collect(),
    }
}

fn from_cuda(ordinal: usize) -> Option<Seen> {
    let device = calls::device_at(ordinal).ok()?;
    let uuid = calls::device_uuid(device).ok()?;
    Some(Seen { uuid, total_bytes: calls::device_total_bytes(device).ok()? })
}

fn from_nvml(index: u32) -> Option<Seen> {
    let device = calls::nvml_device_at(index).ok()?;
    Some(Seen { uuid: calls::nvml_uuid(device)?, total_bytes: calls::nvml_total_bytes(device).ok()? })
}

/// `GPU-` and five groups of hexadecimal digits, as NVML writes it.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("GPU-");
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Reads `GPU-...` or `MIG-...`.
pub(crate) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-"))?.replace('-', "");
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut uuid = [0; 16];
    for (index, byte) in uuid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(uuid)
}
