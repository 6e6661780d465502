//! Which devices the program sees, in the words of CUDA or of NVML. Never initialises either.

use crate::calls;

/// A device the program can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) uuid: [u8; 16],
    /// A MIG instance, which has a name of its own for NVML.
    pub(crate) is_instance: bool,
    pub(crate) total_bytes: u64,
}

/// Whose word on the devices is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Library {
    Cuda,
    Nvml,
}

/// The devices in the library's order; empty when the program has not initialised it. Of a divided device, its instances:
/// nothing runs on the whole, and whoever has an instance may not even be told how large it is.
pub(crate) fn seen(library: Library) -> Vec<Seen> {
    match library {
        Library::Cuda => (0..calls::device_count().unwrap_or(0)).filter_map(from_cuda).collect(),
        Library::Nvml => (0..calls::nvml_device_count().unwrap_or(0)).flat_map(from_nvml).collect(),
    }
}

fn from_cuda(ordinal: usize) -> Option<Seen> {
    let device = calls::device_at(ordinal).ok()?;
    let uuid = calls::device_uuid(device).ok()?;
    let is_instance = calls::whole_device_uuid(device).is_ok_and(|whole| whole != uuid);
    Some(Seen { uuid, is_instance, total_bytes: calls::device_total_bytes(device).ok()? })
}

fn from_nvml(index: u32) -> Vec<Seen> {
    let Ok(device) = calls::nvml_device_at(index) else { return Vec::new() };
    let (devices, is_instance) = calls::nvml_instances(device).map_or((vec![device], false), |all| (all, true));
    let seen = |device: usize| {
        let total_bytes = calls::nvml_total_bytes(device).ok()?;
        Some(Seen { uuid: calls::nvml_uuid(device)?, is_instance, total_bytes })
    };
    devices.into_iter().filter_map(seen).collect()
}

impl Seen {
    /// As NVML writes its UUID.
    pub(crate) fn uuid_text(&self) -> String {
        uuid_text(if self.is_instance { "MIG" } else { "GPU" }, &self.uuid)
    }
}

/// What it is, and five groups of hexadecimal digits.
pub(crate) fn uuid_text(what: &str, uuid: &[u8; 16]) -> String {
    let mut text = String::from(what);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
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
