//! Machines as data: every model, several devices, what a process sees of them and in which order.

use harness::{Done, Job, MIB, Machine, program};
use std::collections::HashSet;

/// Every model, with what NVIDIA says of it.
const MODELS: [(&str, &str, u64, u32); 9] = [
    ("a100-80gb", "A100", 80, 108),
    ("a100-40gb", "A100", 40, 108),
    ("h100-80gb", "H100", 80, 132),
    ("h200-141gb", "H200", 141, 132),
    ("l4-24gb", "L4", 24, 58),
    ("t4-16gb", "T4", 16, 40),
    ("v100-32gb", "V100", 32, 80),
    ("rtx3090-24gb", "3090", 24, 82),
    ("rtx4090-24gb", "4090", 24, 128),
];

/// A device as a process sees it.
#[derive(Clone, PartialEq, Debug)]
struct Device {
    bus: String,
    name: String,
    uuid: String,
    total_bytes: u64,
    processors: u32,
}

fn read(done: Done) -> Vec<Device> {
    let done = done.quiet();
    let devices = done.out.lines().enumerate().map(|(at, line)| {
        let mut fields = line.strip_prefix("device ").expect("a device").split('|');
        let mut field = || fields.next().expect("six fields").to_owned();
        assert_eq!(field(), at.to_string(), "{line}");
        let (bus, name, uuid) = (field(), field(), field());
        Device {
            bus,
            name,
            uuid,
            total_bytes: field().parse().expect("bytes"),
            processors: field().parse().expect("a number"),
        }
    });
    devices.collect()
}

/// With variables set, what CUDA shows.
fn seen(machine: &Machine, variables: &[(&str, &str)]) -> Vec<Device> {
    let job = machine.bare(program("driver/devices"));
    read(variables.iter().fold(job, |job, (name, value)| job.env(name, value)).run())
}

fn visible(machine: &Machine, list: &str) -> Vec<Device> {
    seen(machine, &[("CUDA_VISIBLE_DEVICES", list)])
}

fn sees_nothing(machine: &Machine, list: &str) {
    let done = machine.bare(program("driver/devices")).env("CUDA_VISIBLE_DEVICES", list).run().quiet();
    assert_eq!(done.out, "init 100\n", "CUDA_VISIBLE_DEVICES={list:?}");
}

#[test]
fn every_model_starts_and_is_itself() {
    let mut uuids = HashSet::new();
    for (model, name, gigabytes, processors) in MODELS {
        let devices = seen(&Machine::new(model), &[]);
        assert_eq!(devices.len(), 1, "{model}");
        let device = &devices[0];
        assert!(device.name.contains(name), "{model}: {}", device.name);
        assert_eq!(device.processors, processors, "{model}");
        let gigabytes_seen = device.total_bytes as f64 / f64::from(1 << 30);
        assert!(
            gigabytes_seen > 0.9 * gigabytes as f64 && gigabytes_seen <= gigabytes as f64,
            "{model}: {gigabytes_seen}"
        );
        assert!(uuids.insert(device.uuid.clone()), "{model}");
    }
}

/// The same machine is the same in every run, its devices differ, and another machine's differ from them.
#[test]
fn devices_are_distinct_and_lasting() {
    let devices = seen(&Machine::new("2xa100-80gb,2xt4-16gb"), &[]);
    assert_eq!(devices.len(), 4);
    assert_eq!(devices, seen(&Machine::new("2xa100-80gb,2xt4-16gb"), &[]));
    let distinct = |field: fn(&Device) -> &String| devices.iter().map(field).collect::<HashSet<_>>().len();
    assert_eq!(
        (distinct(|device| &device.uuid), distinct(|device| &device.bus), distinct(|device| &device.name)),
        (4, 4, 2)
    );
    assert!(
        seen(&Machine::new("t4-16gb"), &[]).iter().all(|other| devices.iter().all(|device| device.uuid != other.uuid))
    );
}

#[test]
fn the_fastest_device_is_first_unless_the_bus_is_asked_for() {
    let machine = Machine::new("t4-16gb,a100-80gb,t4-16gb");
    let fastest_first = seen(&machine, &[]);
    assert!(fastest_first[0].name.contains("A100"));
    assert!(fastest_first[1].bus < fastest_first[2].bus, "equals are in the order of the bus");
    assert_eq!(seen(&machine, &[("CUDA_DEVICE_ORDER", "FASTEST_FIRST")]), fastest_first);
    let by_bus = seen(&machine, &[("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]);
    assert!(by_bus.windows(2).all(|pair| pair[0].bus < pair[1].bus));
    assert_eq!(by_bus[1], fastest_first[0]);
    let second = seen(&machine, &[("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", "1")]);
    assert_eq!(second, [fastest_first[0].clone()], "numbers are those of the order asked for");
}

#[test]
fn devices_are_chosen_by_number() {
    let machine = Machine::new("3xt4-16gb");
    let all = seen(&machine, &[]);
    let pick = |order: &[usize]| order.iter().map(|&at| all[at].clone()).collect::<Vec<_>>();
    assert_eq!(visible(&machine, "0"), pick(&[0]));
    assert_eq!(visible(&machine, "2,0"), pick(&[2, 0]), "the list gives the order");
    assert_eq!(visible(&machine, " 1, 2"), pick(&[1, 2]));
    assert_eq!(visible(&machine, "0,"), pick(&[0]));
    assert_eq!(visible(&machine, "0,-1,1"), pick(&[0]), "what names no device ends the list");
    assert_eq!(visible(&machine, "1,7,0"), pick(&[1]));
    assert_eq!(visible(&machine, "1gpu,2x"), pick(&[1, 2]), "digits in front decide");
    for nothing in ["", " ", "-1", "-1,0", "x", "NoDevFiles", "7", "0,0", "1,0,1"] {
        sees_nothing(&machine, nothing);
    }
}

#[test]
fn devices_are_chosen_by_uuid() {
    let machine = Machine::new("3xt4-16gb");
    let all = seen(&machine, &[]);
    let (first, second) = (&all[0].uuid, &all[1].uuid);
    assert_eq!(visible(&machine, first), [all[0].clone()]);
    assert_eq!(visible(&machine, &format!("{second},{first}")), [all[1].clone(), all[0].clone()]);
    assert_eq!(visible(&machine, &second[..12]), [all[1].clone()], "the beginning is enough while it is unambiguous");
    assert_eq!(visible(&machine, &format!("GPU-{}", second[4..].to_uppercase())), [all[1].clone()]);
    assert_eq!(visible(&machine, &format!("{first},0")), [all[0].clone()], "numbers and UUIDs don't mix");
    sees_nothing(&machine, "GPU-");
    sees_nothing(&machine, &format!("{first},{first}"));
    sees_nothing(&machine, &first.to_lowercase().replace("gpu-", "gpu_"));
    sees_nothing(&machine, "MIG-00000000-0000-0000-0000-000000000000");
}

/// NVML shows all devices in the order of the bus, whatever CUDA is told.
#[test]
fn the_order_of_nvml_is_its_own() {
    let machine = Machine::new("t4-16gb,a100-80gb");
    let by_nvml = |job: Job| {
        let done = job.arg("nvml").run().quiet();
        let lines = done.out.lines().map(|line| line.split('|').map(str::to_owned).collect::<Vec<_>>());
        lines
            .map(|fields| (fields[2].clone(), fields[3].clone(), fields[4].parse::<u64>().expect("bytes")))
            .collect::<Vec<_>>()
    };
    let plain = by_nvml(machine.bare(program("driver/devices")));
    let told = machine
        .bare(program("driver/devices"))
        .env("CUDA_VISIBLE_DEVICES", "0")
        .env("CUDA_DEVICE_ORDER", "FASTEST_FIRST");
    assert_eq!(by_nvml(told), plain);
    let by_bus = seen(&machine, &[("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]);
    assert_eq!(plain.len(), by_bus.len());
    for ((name, uuid, total_bytes), device) in plain.iter().zip(&by_bus) {
        assert_eq!((name, uuid), (&device.name, &device.uuid), "CUDA and NVML mean the same device");
        assert!(
            *total_bytes >= device.total_bytes && *total_bytes < device.total_bytes + 4096 * MIB,
            "NVML counts what is reserved"
        );
    }
}
