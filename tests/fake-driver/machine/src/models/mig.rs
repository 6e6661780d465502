//! How devices are divided into MIG instances: the profiles of each model, layouts, and who an instance is.
//!
//! Placements, numbers of multiprocessors and sizes are those that published listings of `nvidia-smi mig` show; what an
//! instance keeps for itself is right in magnitude only. A layout is given with the machine and stays as it is: who wants
//! another one takes another machine, as after a restart of a node.

use super::{Model, hashed};

/// What stands for a device whose MIG mode is on and which has no instance.
pub(super) const NO_INSTANCES: &str = "mig";

/// Slices of a device's multiprocessors.
const COMPUTE_SLICES: u8 = 7;

const MIB: u64 = 1 << 20;
/// What the driver keeps of an instance, for each of its slices of memory.
const RESERVED_PER_SLICE: u64 = 13 * MIB;

/// A kind of instance.
#[derive(PartialEq, Eq, Debug)]
pub struct Profile {
    /// As in `nvidia-smi mig -lgip`, such as `3g.20gb`.
    pub name: &'static str,
    /// Its memory.
    pub total_bytes: u64,
    /// Its multiprocessors.
    pub sm_count: u32,
    shape: &'static Shape,
}

/// What profiles of all models have in common.
#[derive(PartialEq, Eq, Debug)]
struct Shape {
    compute_slices: u8,
    memory_slices: u8,
    /// Slices of memory at which such an instance may begin.
    starts: &'static [u8],
    /// The number of the instance that begins at the first of them, and how many slices are between two numbers.
    ids: (u8, u8),
}

static SEVENTH: Shape = Shape { compute_slices: 1, memory_slices: 1, starts: &[0, 1, 2, 3, 4, 5, 6], ids: (7, 1) };
static DOUBLE: Shape = Shape { compute_slices: 1, memory_slices: 2, starts: &[0, 2, 4, 6], ids: (7, 1) };
static QUARTER: Shape = Shape { compute_slices: 2, memory_slices: 2, starts: &[0, 2, 4], ids: (3, 2) };
static HALF: Shape = Shape { compute_slices: 3, memory_slices: 4, starts: &[0, 4], ids: (1, 4) };
static LARGE: Shape = Shape { compute_slices: 4, memory_slices: 4, starts: &[0], ids: (1, 4) };
static WHOLE: Shape = Shape { compute_slices: 7, memory_slices: 8, starts: &[0], ids: (0, 8) };

const fn profile(shape: &'static Shape, name: &'static str, mib: u64, sm_count: u32) -> Profile {
    Profile { name, total_bytes: mib * MIB, sm_count, shape }
}

static A100_40GB: [Profile; 6] = [
    profile(&SEVENTH, "1g.5gb", 4864, 14),
    profile(&DOUBLE, "1g.10gb", 9984, 14),
    profile(&QUARTER, "2g.10gb", 9984, 28),
    profile(&HALF, "3g.20gb", 20096, 42),
    profile(&LARGE, "4g.20gb", 20096, 56),
    profile(&WHOLE, "7g.40gb", 40448, 98),
];
static A100_80GB: [Profile; 6] = [
    profile(&SEVENTH, "1g.10gb", 9728, 14),
    profile(&DOUBLE, "1g.20gb", 19968, 14),
    profile(&QUARTER, "2g.20gb", 19968, 28),
    profile(&HALF, "3g.40gb", 40192, 42),
    profile(&LARGE, "4g.40gb", 40192, 56),
    profile(&WHOLE, "7g.80gb", 80640, 98),
];
static H100_80GB: [Profile; 6] = [
    profile(&SEVENTH, "1g.10gb", 9984, 16),
    profile(&DOUBLE, "1g.20gb", 20096, 26),
    profile(&QUARTER, "2g.20gb", 20096, 32),
    profile(&HALF, "3g.40gb", 40448, 60),
    profile(&LARGE, "4g.40gb", 40448, 64),
    profile(&WHOLE, "7g.80gb", 80896, 132),
];
static H200: [Profile; 6] = [
    profile(&SEVENTH, "1g.18gb", 16384, 16),
    profile(&DOUBLE, "1g.35gb", 33024, 26),
    profile(&QUARTER, "2g.35gb", 33024, 32),
    profile(&HALF, "3g.71gb", 71168, 60),
    profile(&LARGE, "4g.71gb", 71168, 64),
    profile(&WHOLE, "7g.141gb", 142_848, 132),
];

/// The profiles of a model; none where it can't be divided.
pub(super) fn profiles(model: &Model) -> &'static [Profile] {
    match model.model {
        "a100-40gb" => &A100_40GB,
        "a100-80gb" => &A100_80GB,
        "h100-80gb" => &H100_80GB,
        "h200-141gb" => &H200,
        _ => &[],
    }
}

/// An instance, and where it lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    /// The number of the device of which it is a part.
    pub parent: usize,
    /// Its kind.
    pub profile: &'static Profile,
    /// The number of its GPU instance.
    pub gpu_instance: u32,
    /// The number of its compute instance, which has all of the other.
    pub compute_instance: u32,
    /// Its number for NVML, among those of its device. Numbers between two may be nobody's.
    pub index: u32,
}

impl Instance {
    /// What the driver keeps of it for itself.
    pub(super) fn reserved_bytes(&self) -> u64 {
        RESERVED_PER_SLICE * u64::from(self.profile.shape.memory_slices)
    }

    /// Slices that it has: of multiprocessors, and of memory.
    pub fn slices(&self) -> (u32, u32) {
        (self.profile.shape.compute_slices.into(), self.profile.shape.memory_slices.into())
    }
}

/// Reads `3g.20gb+2x1g.5gb`, or `mig` where there is no instance.
pub(super) fn parse(model: &Model, text: &str) -> Result<Vec<&'static Profile>, String> {
    let known = profiles(model);
    if known.is_empty() {
        return Err(format!("{} can't be divided", model.model));
    }
    if text == NO_INSTANCES {
        return Ok(Vec::new());
    }
    let mut layout = Vec::new();
    for part in text.split('+') {
        let (count, name) = super::counted(part);
        let found = known.iter().find(|profile| profile.name == name);
        let (Ok(count @ 1..=7), Some(profile)) = (count, found) else {
            let names: Vec<&str> = known.iter().map(|profile| profile.name).collect();
            return Err(format!(
                "{part:?} is no instance of {}; it has {}, or {NO_INSTANCES} for none",
                model.model,
                names.join(" ")
            ));
        };
        layout.extend(std::iter::repeat_n(profile, count));
    }
    if place(&layout).is_none() {
        return Err(format!("{text} has no room on {} in this order", model.model));
    }
    Ok(layout)
}

/// The layout in a form that is the same for every way of writing it.
pub(super) fn canonical(layout: &[&Profile]) -> String {
    if layout.is_empty() {
        return NO_INSTANCES.to_owned();
    }
    super::collapsed(layout.iter().map(|profile| profile.name.to_owned()), "+")
}

/// The instances of a layout on device `parent`.
pub(super) fn instances(parent: usize, layout: &[&'static Profile]) -> Vec<Instance> {
    let starts = place(layout).expect("it was checked when it was read");
    let instance = |(profile, start): (&&'static Profile, u8)| {
        let (first, step) = profile.shape.ids;
        Instance {
            parent,
            profile,
            gpu_instance: u32::from(first + start / step),
            compute_instance: 0,
            index: start.into(),
        }
    };
    layout.iter().zip(starts).map(instance).collect()
}

/// Where each begins: one after the other at the first place that is free, as when they are made in this order.
fn place(layout: &[&Profile]) -> Option<Vec<u8>> {
    let (mut taken, mut compute) = (0u8, 0);
    let begin = |profile: &&Profile| {
        let shape = profile.shape;
        compute += shape.compute_slices;
        let wants = |start: u8| ((1u16 << shape.memory_slices) - 1) << start;
        let start = *shape.starts.iter().find(|start| u16::from(taken) & wants(**start) == 0)?;
        taken |= wants(start) as u8; // No shape reaches beyond the eighth slice.
        (compute <= COMPUTE_SLICES).then_some(start)
    };
    layout.iter().map(begin).collect()
}

/// Who an instance is: all of its parent's UUID takes part, and where it lies, so that it is the same again in the same layout.
pub(super) fn uuid(parent: &[u8; 16], instance: &Instance) -> [u8; 16] {
    let place = [instance.gpu_instance, instance.compute_instance, instance.index];
    let place = place.into_iter().flat_map(u32::to_le_bytes);
    hashed(parent.iter().copied().chain(instance.profile.name.bytes()).chain(place))
}

#[cfg(test)]
mod tests {
    use super::super::{MODELS, devices, parse_machine};
    use super::*;
    use std::collections::HashSet;

    fn model(name: &str) -> &'static Model {
        MODELS.iter().find(|model| model.model == name).unwrap()
    }

    fn layout(name: &str, text: &str) -> Vec<&'static Profile> {
        parse(model(name), text).unwrap()
    }

    /// Instances of devices whose UUIDs differ in one byte only are told apart, whichever byte that is.
    #[test]
    fn instances_of_a_thousand_devices_have_distinct_uuids() {
        let instances = instances(0, &layout("a100-40gb", "7x1g.5gb"));
        let mut parents = vec![[0; 16]];
        parents.extend((0..16).map(|byte| core::array::from_fn(|at| u8::from(at == byte))));
        // A generator with a known seed, so that a failure comes again.
        let mut seed: u128 = 0x9e37_79b9_7f4a_7c15;
        while parents.len() < 1000 {
            seed = seed.wrapping_mul(0xda94_2042_e4dd_58b5).wrapping_add(1);
            parents.push((seed ^ (seed >> 64)).to_be_bytes());
        }
        let mut seen: HashSet<[u8; 16]> = parents.iter().copied().collect();
        assert_eq!((seen.len(), instances.len()), (1000, 7));
        for parent in &parents {
            for instance in &instances {
                assert!(seen.insert(uuid(parent, instance)), "{instance:?} of {parent:?}");
            }
        }
        assert_eq!(seen.len(), 8000, "nor is any of them a device's");
    }

    #[test]
    fn instances_lie_apart_and_fit_their_device() {
        for model in MODELS.iter().filter(|model| model.mig_capable) {
            for profile in profiles(model) {
                let most = profile.shape.starts.len().min(usize::from(COMPUTE_SLICES / profile.shape.compute_slices));
                let text = format!("{most}x{}", profile.name);
                let all = instances(0, &layout(model.model, &text));
                let numbers: HashSet<u32> = all.iter().map(|instance| instance.gpu_instance).collect();
                assert_eq!((all.len(), numbers.len()), (most, most), "{text}");
                let bytes: u64 = all.iter().map(|instance| instance.profile.total_bytes).sum();
                assert!(bytes <= model.total_bytes - model.reserved_bytes, "{text} of {}", model.model);
                assert!(all.iter().map(|it| it.profile.sm_count).sum::<u32>() <= model.sm_count, "{text}");
                assert!(parse(model, &format!("{text}+{}", profile.name)).is_err(), "{text} and one more");
            }
        }
    }

    /// As on the real device, the order decides what fits, and the numbers have gaps.
    #[test]
    fn a_layout_is_made_in_its_order() {
        let numbers = |text: &str| {
            let all = instances(0, &layout("a100-40gb", text));
            all.iter().map(|instance| (instance.gpu_instance, instance.index)).collect::<Vec<_>>()
        };
        assert_eq!(numbers("3g.20gb+2g.10gb+1g.5gb"), [(1, 0), (5, 4), (13, 6)]);
        assert_eq!(numbers("3x2g.10gb+1g.5gb"), [(3, 0), (4, 2), (5, 4), (13, 6)]);
        assert_eq!(numbers("mig"), []);
        for (name, wrong) in
            [("a100-40gb", "1g.5gb+1g.5gb+7g.40gb"), ("a100-40gb", "4g.20gb+4g.20gb"), ("a100-40gb", "1g.18gb")]
        {
            assert!(parse(model(name), wrong).is_err(), "{wrong}");
        }
        assert!(parse(model("t4-16gb"), "1g.5gb").unwrap_err().contains("can't be divided"));
        assert_eq!(canonical(&layout("a100-40gb", "1g.5gb+1g.5gb+3g.20gb")), "2x1g.5gb+3g.20gb");
    }

    /// A device is the same whatever it is divided into, and an instance is the same in the same place.
    #[test]
    fn uuids_last_as_long_as_the_layout() {
        let of = |spec: &str| devices(&parse_machine(spec).unwrap());
        let (whole, divided) = (of("a100-40gb"), of("a100-40gb:3g.20gb+1g.5gb"));
        assert_eq!((whole[0].uuid, divided.len()), (divided[0].uuid, 3));
        assert!(divided[1].uuid_text().starts_with("MIG-") && divided[0].uuid_text().starts_with("GPU-"));
        assert_eq!(of("a100-40gb:3g.20gb+1g.5gb")[2].uuid, divided[2].uuid);
        let other = of("a100-40gb:3g.20gb+2g.10gb");
        assert_eq!((other[1].uuid, other[2].uuid == divided[2].uuid), (divided[1].uuid, false));
    }
}
