//! The devices that can be simulated, with NVIDIA's public figures, and machines made of them.
//!
//! How far to trust the figures: the memory totals of both A100s, H100, L4 and T4 were compared with public listings
//! of `nvidia-smi`; the other totals, reserved sizes, clocks, caches, PCI ids and power are general knowledge and
//! were compared with nothing yet.

mod mig;

pub use mig::{Instance, Profile};

use crate::MachineError;
use std::fmt::Write as _;

/// Devices that one machine may have; the largest servers have as many.
pub const DEVICES_MAX: usize = 16;
/// Devices and MIG instances that one machine may have together: eight devices with seven each.
pub const UNITS_MAX: usize = 64;
/// Characters of a machine's canonical description, which names its file where nobody does.
const SPEC_BYTES_MAX: usize = 200;

const MIB: u64 = 1 << 20;

/// `CUdevice_attribute` values that differ between models of one compute capability.
mod attribute {
    pub(super) const CLOCK_RATE: i32 = 13;
    pub(super) const ECC_ENABLED: i32 = 32;
    pub(super) const MEMORY_CLOCK_RATE: i32 = 36;
    pub(super) const GLOBAL_MEMORY_BUS_WIDTH: i32 = 37;
    pub(super) const L2_CACHE_SIZE: i32 = 38;
    pub(super) const ASYNC_ENGINE_COUNT: i32 = 40;
}

/// How the product line treats error correction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ecc {
    /// The memory has none.
    Absent,
    /// It can be switched on, and is off.
    Off,
    /// It is on.
    On,
}

/// One kind of device.
#[derive(Debug)]
pub struct Model {
    /// The name used in `FAKE_CUDA_MACHINE`.
    pub model: &'static str,
    /// The name that NVIDIA's driver reports.
    pub name: &'static str,
    /// Device memory as `nvidia-smi` shows it.
    pub total_bytes: u64,
    /// The part of it that the driver keeps for itself: nobody can allocate it.
    pub reserved_bytes: u64,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// FP32 lanes of all multiprocessors.
    pub core_count: u32,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    /// `CUdevice_attribute` values of this model, for those that its capability doesn't decide.
    pub attributes: &'static [(i32, i32)],
    /// True where the device can be split into MIG instances.
    pub mig_capable: bool,
    /// Error correction.
    pub ecc: Ecc,
    /// Highest clock of the multiprocessors.
    pub sm_clock_mhz: u32,
    /// Clock of the memory.
    pub memory_clock_mhz: u32,
    /// Width of the memory bus.
    pub bus_width_bits: u32,
    /// Power limit as delivered.
    pub power_limit_mw: u32,
    /// PCI Express generation; all have 16 lanes.
    pub pcie_generation: u32,
    /// PCI device and vendor, as NVML shows them: the device in the upper half.
    pub pci_device_id: u32,
    /// Size of the BAR1 window.
    pub bar1_bytes: u64,
}

macro_rules! model {
    ($model:literal, $name:literal, memory: $total_mib:literal / $reserved_mib:literal, sms: $sms:literal x $lanes:literal,
     capability: $capability:expr, l2: $l2:expr, bus: $bus:literal, clocks: $sm_mhz:literal / $memory_mhz:literal,
     engines: $engines:literal, mig: $mig:literal, ecc: $ecc:ident, watts: $watts:literal, pcie: $pcie:literal,
     id: $id:literal, bar1_mib: $bar1:literal) => {
        Model {
            model: $model,
            name: $name,
            total_bytes: $total_mib * MIB,
            reserved_bytes: $reserved_mib * MIB,
            sm_count: $sms,
            core_count: $sms * $lanes,
            compute_capability: $capability,
            attributes: &[
                (attribute::CLOCK_RATE, $sm_mhz * 1000),
                (attribute::ECC_ENABLED, matches!(Ecc::$ecc, Ecc::On) as i32),
                (attribute::MEMORY_CLOCK_RATE, $memory_mhz * 1000),
                (attribute::GLOBAL_MEMORY_BUS_WIDTH, $bus),
                (attribute::L2_CACHE_SIZE, $l2),
                (attribute::ASYNC_ENGINE_COUNT, $engines),
            ],
            mig_capable: $mig,
            ecc: Ecc::$ecc,
            sm_clock_mhz: $sm_mhz,
            memory_clock_mhz: $memory_mhz,
            bus_width_bits: $bus,
            power_limit_mw: $watts * 1000,
            pcie_generation: $pcie,
            pci_device_id: $id << 16 | 0x10de,
            bar1_bytes: $bar1 * MIB,
        }
    };
}

/// Every model. The reserved part stands for the difference between the totals that NVML and CUDA report; it
/// varies with the driver's version, so its size is right in magnitude only.
#[rustfmt::skip]
pub static MODELS: &[Model] = &[
    model!("a100-80gb", "NVIDIA A100-SXM4-80GB", memory: 81920 / 869, sms: 108 x 64, capability: (8, 0),
        l2: 40 << 20, bus: 5120, clocks: 1410 / 1593, engines: 3, mig: true, ecc: On, watts: 400, pcie: 4,
        id: 0x20b2, bar1_mib: 131_072),
    model!("a100-40gb", "NVIDIA A100-SXM4-40GB", memory: 40960 / 447, sms: 108 x 64, capability: (8, 0),
        l2: 40 << 20, bus: 5120, clocks: 1410 / 1215, engines: 3, mig: true, ecc: On, watts: 400, pcie: 4,
        id: 0x20b0, bar1_mib: 65536),
    model!("h100-80gb", "NVIDIA H100 80GB HBM3", memory: 81559 / 551, sms: 132 x 128, capability: (9, 0),
        l2: 50 << 20, bus: 5120, clocks: 1980 / 2619, engines: 3, mig: true, ecc: On, watts: 700, pcie: 5,
        id: 0x2330, bar1_mib: 131_072),
    model!("h200-141gb", "NVIDIA H200", memory: 143_771 / 606, sms: 132 x 128, capability: (9, 0),
        l2: 60 << 20, bus: 6144, clocks: 1980 / 3201, engines: 3, mig: true, ecc: On, watts: 700, pcie: 5,
        id: 0x2335, bar1_mib: 262_144),
    model!("l4-24gb", "NVIDIA L4", memory: 23034 / 495, sms: 58 x 128, capability: (8, 9),
        l2: 48 << 20, bus: 192, clocks: 2040 / 6251, engines: 2, mig: false, ecc: On, watts: 72, pcie: 4,
        id: 0x27b8, bar1_mib: 32768),
    model!("t4-16gb", "Tesla T4", memory: 15360 / 258, sms: 40 x 64, capability: (7, 5),
        l2: 4 << 20, bus: 256, clocks: 1590 / 5001, engines: 3, mig: false, ecc: On, watts: 70, pcie: 3,
        id: 0x1eb8, bar1_mib: 256),
    model!("v100-32gb", "Tesla V100-SXM2-32GB", memory: 32768 / 258, sms: 80 x 64, capability: (7, 0),
        l2: 6 << 20, bus: 4096, clocks: 1530 / 877, engines: 5, mig: false, ecc: On, watts: 300, pcie: 3,
        id: 0x1db5, bar1_mib: 32768),
    model!("rtx3090-24gb", "NVIDIA GeForce RTX 3090", memory: 24576 / 317, sms: 82 x 128, capability: (8, 6),
        l2: 6 << 20, bus: 384, clocks: 1695 / 9751, engines: 2, mig: false, ecc: Absent, watts: 350, pcie: 4,
        id: 0x2204, bar1_mib: 256),
    model!("rtx4090-24gb", "NVIDIA GeForce RTX 4090", memory: 24564 / 354, sms: 128 x 128, capability: (8, 9),
        l2: 72 << 20, bus: 384, clocks: 2520 / 10501, engines: 2, mig: false, ecc: Off, watts: 450, pcie: 4,
        id: 0x2684, bar1_mib: 256),
];

/// One device of a machine, or one MIG instance.
#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// The name used in `FAKE_CUDA_MACHINE`.
    pub model: &'static str,
    /// The name that NVIDIA's driver reports.
    pub name: String,
    /// What identifies it, the same in every process of the same machine.
    pub uuid: [u8; 16],
    /// Its place on the PCI bus.
    pub pci_domain: u32,
    /// Its place on the PCI bus.
    pub pci_bus: u32,
    /// Its place on the PCI bus.
    pub pci_device: u32,
    /// Device memory as `nvidia-smi` shows it.
    pub total_bytes: u64,
    /// The part of it that the driver keeps for itself; counted by [`crate::Machine::used`].
    pub reserved_bytes: u64,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    /// `CUdevice_attribute` values of this model, for those that its capability doesn't decide.
    pub attributes: &'static [(i32, i32)],
    /// True where the device can be split into MIG instances.
    pub mig_capable: bool,
    /// True for a device whose MIG mode is on: programs run on its instances only.
    pub is_divided: bool,
    /// For a MIG instance, what it is a part of.
    pub instance: Option<Instance>,
    /// All the rest.
    pub details: &'static Model,
}

impl DeviceSpec {
    /// `GPU-` or `MIG-` and the UUID in its usual groups.
    pub fn uuid_text(&self) -> String {
        let mut text = String::from(if self.instance.is_some() { "MIG" } else { "GPU" });
        for (at, byte) in self.uuid.iter().enumerate() {
            let dash = if matches!(at, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(text, "{dash}{byte:02x}").expect("writing to a string");
        }
        text
    }
}

/// A device as a machine's description has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Board {
    /// The name of its model.
    pub model: &'static str,
    /// What it is divided into, where its MIG mode is on.
    pub layout: Option<Vec<&'static Profile>>,
}

impl Board {
    fn model(&self) -> &'static Model {
        MODELS.iter().find(|model| model.model == self.model).expect("it was read from the list")
    }

    fn canonical(&self) -> String {
        let layout = self.layout.as_ref().map(|layout| format!(":{}", mig::canonical(layout)));
        format!("{}{}", self.model, layout.unwrap_or_default())
    }
}

/// The devices of a machine such as `2xa100-80gb,l4-24gb`, or `a100-40gb:3g.20gb+2x1g.5gb` with MIG instances.
///
/// # Errors
/// [`MachineError::Spec`], which lists the known names.
pub fn parse_machine(spec: &str) -> Result<Vec<Board>, MachineError> {
    let wrong = |why: String| MachineError::Spec { spec: spec.to_owned(), why, known: known_names() };
    let mut machine = Vec::new();
    for part in spec.split(',').map(str::trim) {
        let (board, layout) = part.split_once(':').map_or((part, None), |(board, layout)| (board, Some(layout)));
        let (count, name) = counted(board);
        let count = count.map_err(|count| wrong(format!("{count:?} is no number of devices")))?;
        let Some(model) = MODELS.iter().find(|model| model.model == name) else {
            return Err(wrong(format!("{name:?} is not a device")));
        };
        if count == 0 || machine.len() + count > DEVICES_MAX {
            return Err(wrong(format!("a machine has 1 to {DEVICES_MAX} devices")));
        }
        let layout = layout.map(|layout| mig::parse(model, layout)).transpose().map_err(&wrong)?;
        machine.extend(std::iter::repeat_n(Board { model: model.model, layout }, count));
    }
    let instances: usize = machine.iter().flat_map(|board| &board.layout).map(Vec::len).sum();
    if machine.len() + instances > UNITS_MAX {
        return Err(wrong(format!("a machine has up to {UNITS_MAX} devices and MIG instances together")));
    }
    if canonical(&machine).len() > SPEC_BYTES_MAX {
        return Err(wrong("its devices are divided in too many ways".to_owned()));
    }
    Ok(machine)
}

/// `3xNAME` as 3 and the name; anything else is one of that name.
fn counted(part: &str) -> (Result<usize, &str>, &str) {
    match part.split_once('x') {
        Some((count, name)) if !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()) => {
            (count.parse().map_err(|_| count), name)
        }
        _ => (Ok(1), part),
    }
}

fn known_names() -> String {
    MODELS.iter().map(|model| model.model).collect::<Vec<_>>().join(" ")
}

/// The machine in a form that is the same for every way of writing it.
pub(crate) fn canonical(machine: &[Board]) -> String {
    collapsed(machine.iter().map(Board::canonical), ",")
}

/// Names in a list in which equal neighbours are counted.
fn collapsed(names: impl Iterator<Item = String>, between: &str) -> String {
    let mut parts: Vec<(usize, String)> = Vec::new();
    for name in names {
        match parts.last_mut() {
            Some((count, last)) if *last == name => *count += 1,
            _ => parts.push((1, name)),
        }
    }
    let one = |(count, name): &(usize, String)| if *count == 1 { name.clone() } else { format!("{count}x{name}") };
    parts.iter().map(one).collect::<Vec<_>>().join(between)
}

/// The devices of a machine, in the order of their places on the bus, then all MIG instances in that order.
pub(crate) fn devices(machine: &[Board]) -> Vec<DeviceSpec> {
    /// Apart from each other as on a real board, and below 0x100 for the last of [`DEVICES_MAX`].
    const BUS_FIRST: u32 = 0x04;
    const BUS_STEP: u32 = 0x0f;
    // A device is the same whatever it is divided into.
    let undivided: Vec<Board> = machine.iter().map(|board| Board { layout: None, ..board.clone() }).collect();
    let spec = canonical(&undivided);
    let device = |(position, board): (u32, &Board)| {
        let model = board.model();
        DeviceSpec {
            model: model.model,
            name: model.name.to_owned(),
            uuid: uuid(&spec, position),
            pci_domain: 0,
            pci_bus: BUS_FIRST + BUS_STEP * position,
            pci_device: 0,
            total_bytes: model.total_bytes,
            reserved_bytes: model.reserved_bytes,
            sm_count: model.sm_count,
            compute_capability: model.compute_capability,
            attributes: model.attributes,
            mig_capable: model.mig_capable,
            is_divided: board.layout.is_some(),
            instance: None,
            details: model,
        }
    };
    let mut devices: Vec<DeviceSpec> = (0..).zip(machine).map(device).collect();
    for (parent, board) in machine.iter().enumerate() {
        for instance in mig::instances(parent, board.layout.as_deref().unwrap_or_default()) {
            devices.push(devices[parent].part(instance));
        }
    }
    devices
}

impl DeviceSpec {
    /// One of its instances.
    fn part(&self, instance: Instance) -> Self {
        Self {
            name: format!("{} MIG {}", self.name, instance.profile.name),
            uuid: mig::uuid(&self.uuid, &instance),
            total_bytes: instance.profile.total_bytes,
            reserved_bytes: instance.reserved_bytes(),
            sm_count: instance.profile.sm_count,
            mig_capable: false,
            is_divided: false,
            instance: Some(instance),
            ..self.clone()
        }
    }
}

fn uuid(spec: &str, position: u32) -> [u8; 16] {
    hashed(spec.bytes().chain([b'#']).chain(position.to_le_bytes()))
}

/// 128 bits of FNV-1a, stirred so that neighbours differ everywhere.
fn hashed(bytes: impl Iterator<Item = u8>) -> [u8; 16] {
    const PRIME: u128 = (1 << 88) + 0x13b;
    let hash = bytes.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    });
    let stirred = (hash ^ (hash >> 61)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    (stirred ^ (stirred >> 67)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn names(spec: &str) -> Vec<&'static str> {
        parse_machine(spec).unwrap().iter().map(|model| model.model).collect()
    }

    #[test]
    fn counts_and_mixes_are_read() {
        assert_eq!(names("a100-80gb"), ["a100-80gb"]);
        assert_eq!(names("2xa100-80gb, l4-24gb"), ["a100-80gb", "a100-80gb", "l4-24gb"]);
        assert_eq!(names("16xt4-16gb").len(), DEVICES_MAX);
    }

    #[test]
    fn mistakes_are_told_with_the_known_names() {
        for wrong in [
            "",
            "a100",
            "0xl4-24gb",
            "17xl4-24gb",
            "-1xl4-24gb",
            "9xl4-24gb,8xt4-16gb",
            "l4-24gb,",
            "2x",
            "99999999999999999999xl4-24gb",
            "l4-24gb:1g.5gb",
            "a100-40gb:",
            "a100-40gb:1g.5gb+",
            "16xa100-40gb:7x1g.5gb",
        ] {
            let message = parse_machine(wrong).unwrap_err().to_string();
            assert!(message.contains("FAKE_CUDA_MACHINE") && message.contains("rtx4090-24gb"), "{message}");
        }
    }

    #[test]
    fn one_machine_has_one_canonical_form() {
        let machine = parse_machine("l4-24gb,l4-24gb,1xt4-16gb,l4-24gb").unwrap();
        assert_eq!(canonical(&machine), "2xl4-24gb,t4-16gb,l4-24gb");
    }

    #[test]
    fn no_two_devices_share_a_uuid_or_a_place() {
        let mut seen = HashSet::new();
        let mut count = 0;
        for model in MODELS {
            for other in MODELS.iter().filter(|other| other.model != model.model) {
                for number in 1..=DEVICES_MAX - 1 {
                    let spec = format!("{number}x{},{}", model.model, other.model);
                    let devices = devices(&parse_machine(&spec).unwrap());
                    let places: HashSet<u32> = devices.iter().map(|device| device.pci_bus).collect();
                    assert!(places.len() == devices.len() && places.iter().all(|bus| *bus < 0x100));
                    count += devices.len();
                    seen.extend(devices.iter().map(|device| device.uuid));
                }
            }
        }
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn uuids_are_written_as_the_driver_writes_them() {
        let device = &devices(&parse_machine("a100-80gb").unwrap())[0];
        let text = device.uuid_text();
        let groups: Vec<usize> = text.split('-').map(str::len).collect();
        assert_eq!(groups, [3, 8, 4, 4, 4, 12], "{text}");
        assert_eq!(device.uuid, devices(&parse_machine("1xa100-80gb").unwrap())[0].uuid);
    }
}
