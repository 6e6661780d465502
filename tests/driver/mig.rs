//! Divided devices as CUDA and NVML show them: what a process sees, whose the memory is, and who runs beside whom.

use fake_machine::DeviceSpec;
use harness::{Busy, Done, MIB, Machine, alone, program};
use std::time::Duration;

const LAYOUT: &str = "a100-40gb:3g.20gb+2g.10gb+1g.5gb";
/// A device that is not divided beside it.
const MIXED: &str = "a100-40gb:3g.20gb+2g.10gb+1g.5gb,l4-24gb";

/// The instances of the test's machine, as the machine has them.
fn instances(spec: &str) -> Vec<DeviceSpec> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let machine = fake_machine::Machine::open(spec, &folder.path().join("state")).expect("a machine");
    machine.units()[machine.devices().len()..].to_vec()
}

fn mig(machine: &Machine, variables: &[(&str, &str)]) -> Done {
    let job = machine.bare(program("mig"));
    variables.iter().fold(job, |job, (name, value)| job.env(name, value)).run()
}

/// Lines of a kind, by their words.
fn lines(out: &str, kind: &str) -> Vec<Vec<String>> {
    let lines = out.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// What CUDA shows: the UUID of each device and the name behind it.
fn seen(done: &Done) -> Vec<(String, String)> {
    assert_eq!(done.status, 0, "{done:?}");
    lines(&done.out, "seen").into_iter().map(|words| (format!("MIG-{}", words[1]), words[4..].join(" "))).collect()
}

fn digits(uuid: &str) -> &str {
    &uuid[4..]
}

#[test]
fn a_process_sees_one_instance_and_nothing_beside_it() {
    let machine = Machine::new(MIXED);
    let all = instances(MIXED);
    let uuid = |at: usize| all[at].uuid_text();
    let first = [(uuid(0), "NVIDIA A100-SXM4-40GB MIG 3g.20gb".to_owned())];
    assert_eq!(seen(&mig(&machine, &[])), first, "without a word, the first");
    let by = |list: &str| seen(&mig(&machine, &[("CUDA_VISIBLE_DEVICES", list)]));
    assert_eq!(by(&uuid(2))[0], (uuid(2), all[2].name.clone()));
    assert_eq!(by(&uuid(2).to_uppercase())[0].0, uuid(2));
    assert_eq!(by(&format!("{},{}", uuid(1), uuid(2))).len(), 1, "of several, one");
    assert_eq!(by(&format!("{},{}", uuid(1), uuid(2)))[0].0, uuid(1), "the first of them");
    let parent = lines(&mig(&machine, &[]).out, "device")[0][1].clone();
    let legacy = format!("MIG-{parent}/5/0");
    assert_eq!(by(&legacy)[0].0, uuid(1), "by its device and its numbers");
    assert_eq!(by(&parent), first, "a divided device is its first instance");
    let l4 = lines(&mig(&machine, &[]).out, "device")[1][1].clone();
    assert_eq!(by(&l4)[0].1, "NVIDIA L4", "where no instance may be seen, the device that may");
    assert_eq!(by("0"), first);
    for nothing in
        ["1", "MIG-", &uuid(0)[..20], "MIG-00000000-0000-0000-0000-000000000000", &format!("{0},{0}", uuid(0))]
    {
        let done = mig(&machine, &[("CUDA_VISIBLE_DEVICES", nothing)]);
        assert!(done.out.starts_with("cuda 100 0\n"), "{nothing}: {done:?}");
    }
    // The device's own UUID by the first form, the instance's by the second.
    let shown = lines(&mig(&machine, &[]).out, "seen");
    assert_eq!((shown[0][0].as_str(), shown[0][1].as_str()), (digits(&parent), digits(&uuid(0))));
    assert_eq!(shown[0][3], "42", "its own multiprocessors");
}

/// The program itself checks that handles, parents and UUIDs lead to each other.
#[test]
fn nvml_lists_the_instances_of_a_divided_device() {
    let machine = Machine::new(MIXED);
    let done = mig(&machine, &[]).quiet();
    let devices = lines(&done.out, "device");
    let mode = |at: usize| (devices[at][2].as_str(), devices[at][3].as_str());
    assert_eq!((devices.len(), mode(0), mode(1)), (2, ("1", "7"), ("0", "0")));
    let shown = lines(&done.out, "instance");
    let all = instances(MIXED);
    assert_eq!(shown.len(), all.len());
    for (shown, spec) in shown.iter().zip(&all) {
        let instance = spec.instance.as_ref().expect("an instance");
        assert_eq!((&shown[0], &shown[1]), (&instance.index.to_string(), &spec.uuid_text()));
        assert_eq!((shown[2].as_str(), &shown[3]), ("0", &spec.total_bytes.to_string()));
        assert_eq!((&shown[7], &shown[8]), (&instance.gpu_instance.to_string(), &"0".to_owned()));
        assert_eq!(shown[9], devices[0][1]);
    }
    let empty = mig(&Machine::new("a100-40gb:mig"), &[]).quiet();
    assert_eq!((empty.lines()[0], lines(&empty.out, "instance").len()), ("cuda 100 0", 0), "{empty:?}");
}

/// What one takes of its instance is missing there alone; the device shows all of it, by instance.
#[test]
fn memory_is_the_instances_own() {
    let machine = Machine::new(LAYOUT);
    let all = instances(LAYOUT);
    let job = |at: usize, mib: u64| {
        let job = machine.bare(program("mig")).env("CUDA_VISIBLE_DEVICES", all[at].uuid_text());
        job.env("FAKE_CUDA_CONTEXT", "0").arg(mib.to_string())
    };
    let mut one = job(1, 9000).start();
    let lines_of_one = one.until("ready");
    assert!(lines_of_one.contains(&"alloc 0".to_owned()), "{lines_of_one:?}");
    let mut other = job(2, 4000).start();
    assert!(other.until("ready").contains(&"alloc 0".to_owned()));
    let mut third = job(1, 2000).start();
    assert!(third.until("ready").contains(&"alloc 2".to_owned()), "its instance is full, whatever others have");
    let done = mig(&machine, &[]).quiet();
    let used = |at: usize| lines(&done.out, "instance")[at][5].parse::<u64>().expect("bytes");
    let reserved = |at: usize| all[at].reserved_bytes;
    assert_eq!([0, 1, 2].map(|at| used(at) - reserved(at)), [0, 9000 * MIB, 4000 * MIB]);
    let processes = lines(&done.out, "process");
    let row = |at: &str, pid: u32, mib: u64, gpu: &str| {
        vec![at.to_owned(), pid.to_string(), (mib * MIB).to_string(), gpu.to_owned(), "0".to_owned()]
    };
    let (a, b) = (one.pid(), other.pid());
    for wanted in [row("-", a, 9000, "5"), row("-", b, 4000, "13"), row("4", a, 9000, "5"), row("6", b, 4000, "13")] {
        assert!(processes.contains(&wanted), "{wanted:?} in {processes:?}");
    }
    let whole = lines(&done.out, "device")[0][7].parse::<u64>().expect("bytes");
    assert!(whole > 13_000 * MIB && whole < 14_000 * MIB, "{whole}");
    one.kill();
    let after = mig(&machine, &[]).quiet();
    assert_eq!(lines(&after.out, "instance")[1][5], (third_use(&after, third.pid()) + reserved(1)).to_string());
    drop((other.finish(), third.finish()));
}

/// What a process holds by the list of instances; nothing where it only has a context.
fn third_use(done: &Done, pid: u32) -> u64 {
    let rows = lines(&done.out, "process");
    let own = rows.iter().find(|row| row[0] != "-" && row[1] == pid.to_string());
    own.map_or(0, |row| row[2].parse().expect("bytes"))
}

/// Whoever may look at an instance only is refused by its device, and not told that there is nothing.
#[test]
fn a_device_may_refuse_who_has_one_of_its_instances() {
    let done = mig(&Machine::new(LAYOUT), &[("FAKE_CUDA_LACKS", "parent-access")]).quiet();
    assert_eq!(lines(&done.out, "device")[0][4], "4", "{done:?}");
    assert!(lines(&done.out, "instance").iter().all(|row| row[2] == "0" && row[3] != "0"), "{done:?}");
}

/// Two on two instances each have all the time of their own; on one they share it.
#[test]
fn instances_run_beside_each_other() {
    let _alone = alone();
    const WINDOW: Duration = Duration::from_millis(500);
    let machine = Machine::new("a100-40gb:2x3g.20gb");
    let all = instances("a100-40gb:2x3g.20gb");
    // Long ones, which keep the device busy whatever else the processors do.
    let job = |at: usize| machine.free("kernel=spin_5ms").env("CUDA_VISIBLE_DEVICES", all[at].uuid_text());
    let truth = machine.truth();
    let apart = Busy::start_all([job(0), job(1)]);
    for (unit, own, other) in [(1, 0, 1), (2, 1, 0)] {
        let shares = truth.shares(unit, &apart, WINDOW).of_time();
        assert!(shares[own] > 80.0 && shares[other] == 0.0, "unit {unit}: {shares:?}");
    }
    let both = Busy::start_all([job(0)]);
    let shares = truth.shares(1, &[apart, both].into_iter().flatten().collect::<Vec<_>>(), WINDOW);
    let had = shares.of_time();
    assert!((had[0] - had[2]).abs() < 20.0 && had[0] < 60.0 && had[1] == 0.0, "{shares}");
}
