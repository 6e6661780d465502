//! Reports about numbers: CUDA's devices are not NVML's of that number, and neither is any number of ours.

use harness::{Busy, Daemon, Machine, alone, program};
use serde_json::Value;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(2);
const WORDS: &str = "kernel=spin_200us";

fn devices(machine: &Machine, daemon: &Daemon) -> Vec<Value> {
    let done = machine.gpuquota(daemon, "devices -o json").run();
    serde_json::from_str(&done.out).expect("JSON")
}

/// CUDA's 0 and 1 are NVML's 2 and 3, and others keep 0 and 1 busy: a cap holds by what its own devices do.
#[test]
fn a_cap_is_held_by_what_its_own_devices_do() {
    let _alone = alone();
    let machine = Machine::new("4xt4-16gb");
    let daemon = machine.daemon_under("");
    let before = devices(&machine, &daemon);
    let uuid = |at: usize| before[at]["uuid"].as_str().expect("a text").to_owned();
    let visible = format!("{},{}", uuid(2), uuid(3));
    // Two processes, since one of these uses one device at a time.
    let capped = |ordinal: usize, percent: u64| {
        let job = machine.capped(&format!("{WORDS} devices={ordinal}")).tenant(&format!("capped-{ordinal}"));
        let job = job.env("GPUQUOTA_SOCKET", daemon.socket()).env("CUDA_VISIBLE_DEVICES", &visible);
        job.env("GPUQUOTA_COMPUTE", percent.to_string())
    };
    let others = [0, 1].map(|at| machine.free(WORDS).env("CUDA_VISIBLE_DEVICES", uuid(at)));
    let [first, second] = others;
    let busy = Busy::start_all([capped(0, 30), capped(1, 40), first, second]);
    let truth = machine.truth();
    std::thread::sleep(Duration::from_millis(500));
    for (device, job, wanted) in [(2, 0, 30.0), (3, 1, 40.0)] {
        truth.shares(device, &busy, WINDOW).assert_has(job, wanted, 6.0);
    }
    for (device, job) in [(0, 2), (1, 3)] {
        assert!(truth.shares(device, &busy, WINDOW / 4).of_time()[job] > 70.0, "the others have theirs");
    }
    // The daemon tells it of the same devices.
    let used: Vec<f64> = devices(&machine, &daemon)
        .iter()
        .map(|row| row["compute_used_percent"].as_f64().expect("it is known"))
        .collect();
    assert!(used[0] > 60.0 && used[1] > 60.0, "{used:?}");
    assert!((used[2] - 30.0).abs() < 12.0 && (used[3] - 40.0).abs() < 12.0, "{used:?}");
}

/// Two devices under one cap: each is held by itself, and one that is idle gives the other nothing.
#[test]
fn each_device_is_held_to_its_cap_by_itself() {
    let _alone = alone();
    let machine = Machine::new("2xt4-16gb");
    let job = |ordinal: usize, words: &str| {
        machine.capped(&format!("{words} devices={ordinal}")).env("GPUQUOTA_COMPUTE", "30")
    };
    let truth = machine.truth();
    let both = Busy::start_all([job(0, WORDS), job(1, WORDS)]);
    std::thread::sleep(Duration::from_millis(500));
    for device in [0, 1] {
        truth.shares(device, &both, WINDOW).assert_has(device, 30.0, 6.0);
    }
    drop(both);
    for device in [0, 1] {
        let one = Busy::start_all([job(device, WORDS)]);
        std::thread::sleep(Duration::from_millis(300));
        truth.shares(device, &one, WINDOW).assert_has(0, 30.0, 6.0);
        assert_eq!(truth.window(1 - device, WINDOW / 20).busy_ns, 0, "the other one is idle");
    }
}

/// A device is the same under the shim, for CUDA's both questions and for NVML: what one of them says names it for the others.
#[test]
fn a_uuid_is_never_altered() {
    for spec in ["2xt4-16gb", "a100-40gb:3g.20gb+1g.5gb"] {
        let machine = Machine::new(spec);
        let daemon = machine.daemon_under("");
        let said = |out: &str| -> Vec<Vec<String>> {
            let named =
                out.lines().filter(|line| ["seen ", "device ", "instance "].iter().any(|kind| line.starts_with(kind)));
            named
                .map(|line| line.split(' ').filter(|word| word.matches('-').count() >= 4).map(str::to_owned).collect())
                .collect()
        };
        let bare = machine.bare(program("mig")).run().quiet();
        let ours = machine.job(program("mig")).memory("1GiB").run().quiet();
        assert_eq!(said(&ours.out), said(&bare.out), "{spec}");
        for (at, row) in devices(&machine, &daemon).iter().enumerate().filter(|(_, row)| row["mig"] != "enabled") {
            let uuid = row["uuid"].as_str().expect("a text");
            assert!(bare.out.contains(uuid), "{spec}: NVML calls it so");
            // By the program's environment, and by our option.
            let job =
                machine.job(program("mig")).env("CUDA_VISIBLE_DEVICES", uuid).env("GPUQUOTA_SOCKET", daemon.socket());
            let job = job.tenant(&format!("by-{at}")).memory("1GiB").run();
            let option = machine.gpuquota(&daemon, &format!("run --memory 1GiB --device {uuid} --"));
            for done in [job, option.arg(program("mig")).run()] {
                let seen: Vec<&str> = done.out.lines().filter(|line| line.starts_with("seen ")).collect();
                assert_eq!(seen.len(), 1, "{done:?}");
                assert_eq!(seen[0].split(' ').nth(2), Some(&uuid[4..]), "{done:?}");
            }
        }
    }
}
