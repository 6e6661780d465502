//! NVML and CUDA show one view; a tenant sees its own processes and no others.

use harness::{GIB, Ledger, MIB, Machine, program};

#[test]
fn nvml_shows_the_quota_as_the_devices_memory() {
    let machine = Machine::new("a100-80gb");
    let done = machine.job(program("nvml")).memory("1GiB").arg("600").run();
    assert_eq!(done.status, 0, "{done:?}");
    assert_eq!(done.numbers("memory"), [GIB, 424 * MIB, 600 * MIB]);
    let v2 = done.numbers("memory_v2");
    assert_eq!(v2, [GIB, 0, 424 * MIB, 600 * MIB], "total is reserved, free and used");
    let bare = machine.bare(program("nvml")).run();
    for word in ["null", "version", "init"] {
        assert_eq!(done.answer(word), bare.answer(word), "{word}: an error is the driver's");
    }
}

/// A program that asks NVML alone never initialises CUDA, and sees the quota all the same.
#[test]
fn nvml_alone_shows_the_quota() {
    let machine = Machine::new("2xt4-16gb");
    let done = machine.job(program("nvml")).memory("2GiB").journalled().run();
    assert_eq!(done.numbers("memory"), [2 * GIB, 2 * GIB, 0], "{done:?}");
    assert!(machine.journal().iter().all(|call| call["function"] != "cuInit"), "nobody initialised CUDA");
}

#[test]
fn process_lists_hold_the_tenants_own() {
    let machine = Machine::new("a100-80gb");
    let mut mine = machine.probe("linked").memory("2GiB").words("init ctx linear:a=100M say=ready wait").start();
    mine.until("ready");
    let other = format!("other-{}", std::process::id());
    let _ledger = Ledger::of(&other);
    let mut others =
        machine.probe("linked").memory("2GiB").tenant(&other).words("init ctx linear:a=300M say=ready wait").start();
    others.until("ready");
    let done = machine.job(program("nvml")).memory("2GiB").arg("200").run();
    for list in [
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    ] {
        let answer = done.answer(list);
        assert!(answer.starts_with("0 2 "), "{list}: {answer}");
        assert!(answer.contains(&format!("{}:{}", mine.pid(), 100 * MIB)), "{list}: {answer}");
        assert!(!answer.contains(&format!("{}:", others.pid())), "{list}: {answer}");
        assert_eq!(done.answer(&format!("{list}-count")), "7 2", "too small a buffer is told how many there are");
    }
    assert_eq!(done.answer("nvmlDeviceGetGraphicsRunningProcesses_v3"), "0 0");
    mine.finish();
    others.finish();
}

/// Without a quota nothing is changed.
#[test]
fn without_a_quota_nvml_is_the_drivers() {
    let machine = Machine::new("2xa100-80gb");
    let bare = machine.bare(program("nvml")).run().quiet();
    let ours = machine.job(program("nvml")).run().quiet();
    assert_eq!(ours.out, bare.out);
}

/// NVML first, CUDA later, on a part of the devices: the quota of the visible device holds on it.
#[test]
fn asking_nvml_before_cuda_changes_no_quota() {
    let machine = Machine::new("2xt4-16gb");
    let ask = |job: harness::Job| job.env("CUDA_VISIBLE_DEVICES", "1").env("GPUQUOTA_MEMORY_0", "1GiB");
    let done = ask(machine.job(program("nvml"))).arg("after").arg("600").run();
    assert_eq!(
        (done.code("cuda-alloc"), done.code("cuda-again"), done.numbers("cuda-total")),
        (0, 2, vec![GIB]),
        "{done:?}"
    );
    let done =
        machine.job(program("nvml")).env("CUDA_VISIBLE_DEVICES", "1").memory("1GiB").arg("after").arg("600").run();
    assert_eq!(
        (done.code("cuda-alloc"), done.code("cuda-again"), done.numbers("cuda-total")),
        (0, 2, vec![GIB]),
        "{done:?}"
    );
}
