//! The node's devices: what NVML says of them, and how people name them.

pub mod nvml;
pub mod sampler;
pub mod watchdog;

use quota_core::Bytes;

pub use nvml::{Nvml, NvmlError};

/// One device or MIG instance, as it was when the daemon started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Device {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// As NVML writes it, `GPU-...` or `MIG-...`.
    pub uuid_text: String,
    /// The product.
    pub name: String,
    /// The memory that programs can have, as CUDA tells them; what the driver keeps for itself is not in it.
    pub total: Bytes,
    /// `disabled`, `enabled`, or `-` where the device can't be divided; of an instance, its profile.
    pub mig: String,
    /// Its MIG mode is on: nothing runs on it but on its instances.
    pub is_divided: bool,
    /// Of an instance, the number of the device that it is a part of.
    pub parent: Option<usize>,
}

/// All devices, in NVML's order, each before its MIG instances.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inventory {
    /// The driver's version.
    pub driver: String,
    /// The devices; the position is the number that people use.
    pub devices: Vec<Device>,
}

/// Percent of a device's time that processes used lately, by pid; none where the driver says nothing, or wasn't asked.
pub type Utilisation = Option<Vec<(u32, u32)>>;

/// What the driver says of one device at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceSample {
    /// Memory in use by whomever, the driver included.
    pub used: Option<Bytes>,
    /// Processes that have a context or memory, with what they hold when the driver knows it.
    pub processes: Vec<(u32, Option<Bytes>)>,
    /// What processes used lately.
    pub utilisation: Utilisation,
    /// What went wrong, when something did.
    pub error: Option<String>,
    /// It is drained, and nothing of this process holds it.
    pub let_go: bool,
}

/// Why a selection names no devices.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectError {
    /// Nothing was given.
    #[error("{0:?} names no device; expected all, an index, a UUID or its beginning, or a list of them with commas")]
    Empty(String),
    /// No such device.
    #[error("there is no device {0:?}; the devices are {1}")]
    Unknown(String, String),
    /// A beginning that several UUIDs have.
    #[error("{0:?} is the beginning of several UUIDs; the devices are {1}")]
    Ambiguous(String, String),
}

/// The devices that `selection` names, in ascending order: `all`, or a list with commas of indices, UUIDs,
/// beginnings of UUIDs and products, of which each word must be in the device's name.
///
/// # Errors
/// When a part of it names no device, or is the beginning of several UUIDs.
pub fn select(devices: &[(&str, &str)], selection: &str) -> Result<Vec<usize>, SelectError> {
    if selection.trim() == "all" {
        return Ok((0..devices.len()).collect());
    }
    let mut chosen = Vec::new();
    for part in selection.split(',').map(str::trim) {
        chosen.extend(select_part(devices, part, selection)?);
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

fn select_part(devices: &[(&str, &str)], part: &str, selection: &str) -> Result<Vec<usize>, SelectError> {
    if part.is_empty() {
        return Err(SelectError::Empty(selection.to_owned()));
    }
    let unknown = || SelectError::Unknown(part.to_owned(), listing(devices));
    if part.bytes().all(|byte| byte.is_ascii_digit()) {
        return part.parse().ok().filter(|index| *index < devices.len()).map(|index| vec![index]).ok_or_else(unknown);
    }
    let wanted = part.to_ascii_lowercase();
    let with = |is_meant: &dyn Fn(&(&str, &str)) -> bool| -> Vec<usize> {
        (0..devices.len()).filter(|index| is_meant(&devices[*index])).collect()
    };
    // A beginning must say something: `GPU-` is in all of them.
    let matching = with(&|(uuid, _)| wanted.len() >= 5 && uuid.to_ascii_lowercase().starts_with(&wanted));
    match matching.len() {
        0 => {}
        1 => return Ok(matching),
        _ => return Err(SelectError::Ambiguous(part.to_owned(), listing(devices))),
    }
    let words: Vec<&str> = wanted.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() >= 2).collect();
    // Each digit and letter of a UUID would be in some name too.
    let is_uuid = ["gpu", "mig"].contains(&words.first().copied().unwrap_or_default());
    let named = with(&|(_, name)| {
        let name = name.to_ascii_lowercase();
        words.iter().all(|word| name.contains(word))
    });
    if named.is_empty() || words.is_empty() || is_uuid { Err(unknown()) } else { Ok(named) }
}

/// Devices for a message, on one line.
fn listing(devices: &[(&str, &str)]) -> String {
    const SHOWN_MAX: usize = 16;
    let mut parts: Vec<String> = devices
        .iter()
        .take(SHOWN_MAX)
        .enumerate()
        .map(|(index, (uuid, name))| format!("{index} ({uuid}, {name})"))
        .collect();
    if devices.len() > SHOWN_MAX {
        parts.push(format!("{} more", devices.len() - SHOWN_MAX));
    }
    parts.join(", ")
}

/// Reads `GPU-...` or `MIG-...` into its bytes.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: [(&str, &str); 3] = [
        ("GPU-aaaa0000-0000-0000-0000-000000000001", "A"),
        ("GPU-aaab0000-0000-0000-0000-000000000002", "B"),
        ("GPU-cccc0000-0000-0000-0000-000000000003", "C"),
    ];

    #[test]
    fn devices_are_named_by_index_uuid_or_its_beginning() {
        assert_eq!(select(&DEVICES, "all"), Ok(vec![0, 1, 2]));
        assert_eq!(select(&DEVICES, "2, 0,2"), Ok(vec![0, 2]));
        assert_eq!(select(&DEVICES, DEVICES[1].0), Ok(vec![1]));
        assert_eq!(select(&DEVICES, "gpu-CC,GPU-aaab"), Ok(vec![1, 2]));
    }

    #[test]
    fn devices_are_named_by_product() {
        const PRODUCTS: [(&str, &str); 3] = [
            ("GPU-aaaa0000-0000-0000-0000-000000000001", "NVIDIA A100-SXM4-80GB"),
            ("GPU-aaab0000-0000-0000-0000-000000000002", "NVIDIA A100-PCIE-40GB"),
            ("GPU-cccc0000-0000-0000-0000-000000000003", "Tesla T4"),
        ];
        assert_eq!(select(&PRODUCTS, "a100"), Ok(vec![0, 1]));
        assert_eq!(select(&PRODUCTS, "a100-80gb"), Ok(vec![0]));
        assert_eq!(select(&PRODUCTS, "T4,a100-40gb"), Ok(vec![1, 2]));
        for unknown in ["h100", "a100-20gb", "-", "GPU-dddd", "GPU-a100"] {
            assert!(select(&PRODUCTS, unknown).expect_err(unknown).to_string().contains("no device"), "{unknown}");
        }
    }

    #[test]
    fn what_names_none_or_several_is_refused_with_the_list() {
        for (selection, word) in
            [("3", "no device"), ("GPU-aaa", "several"), ("GPU-", "no device"), ("0,", "names no"), ("", "names no")]
        {
            let error = select(&DEVICES, selection).expect_err(selection).to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(select(&DEVICES, "nine").expect_err("unknown").to_string().contains("2 (GPU-cccc"));
    }

    #[test]
    fn a_uuid_is_read_as_it_is_written() {
        let uuid = parse_uuid("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f").expect("legal");
        assert_eq!(uuid, core::array::from_fn(|index| index as u8));
        for bad in
            ["", "GPU-", "0001", "GPU-000102030405060708090a0b0c0d0e0", "GPU-zz010203-0405-0607-0809-0a0b0c0d0e0f"]
        {
            assert_eq!(parse_uuid(bad), None, "{bad}");
        }
    }
}
