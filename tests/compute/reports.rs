//! What users of such products reported of compute, each by its kind: what must not happen here.

use super::{SECOND, SETTLE, a_cap_holds_on, shares_of};
use harness::{Busy, Machine, alone};
use std::time::Duration;

/// A cap depends on nothing that NVML tells, and on no feature that a driver may lack: no process listed, no sample, an
/// empty list of them, garbage in it, no stream priorities.
#[test]
fn a_cap_needs_nothing_of_nvml_and_no_priorities() {
    for lacks in ["processes", "samples", "sample-count", "sane-samples", "stream-priorities"] {
        println!("{lacks}");
        a_cap_holds_on("kernel=spin_200us", lacks);
    }
}

/// What counts is time, not launches or blocks: kernels ten times as long get no more.
#[test]
fn equal_grids_of_unequal_length_get_equal_time() {
    let _alone = alone();
    let jobs = [("--weight 100", "kernel=spin_1ms iter=50ms"), ("--weight 100", "kernel=spin_10ms iter=50ms")];
    shares_of(&jobs, 5 * SECOND).assert_divided(&[1, 1], 5.0);
}

/// Kernels far shorter than any sampler sees: 20 and 80 per cent are one to four.
#[test]
fn short_kernels_are_capped_as_others_are() {
    let _alone = alone();
    let jobs = [("--compute 20", "kernel=spin_50us"), ("--compute 80", "kernel=spin_50us")];
    let shares = shares_of(&jobs, 5 * SECOND);
    let ratio = shares.served_ns[1] as f64 / shares.served_ns[0] as f64;
    assert!((3.4..4.6).contains(&ratio), "{ratio:.2}: {shares}");
    assert!(shares.of_time()[0] <= 21.0, "{shares}");
}

/// A kernel that overruns is paid for afterwards.
#[test]
fn what_long_kernels_overrun_is_paid_back() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let truth = machine.truth();
    let job = machine.capped("kernel=spin_80ms").env("GPUQUOTA_COMPUTE", "50");
    let busy = Busy::start_all([job]);
    std::thread::sleep(SETTLE);
    let shares = truth.shares(0, &busy, 4 * SECOND);
    busy.into_iter().for_each(|job| job.kill(&truth));
    println!("{shares}");
    shares.assert_has(0, 50.0, 5.0);
}

/// A fifth and three fifths of the time are just that. A quarter and three quarters are so of each other: together they are all of
/// the time, of which changing hands takes some (the golden tests say how much).
#[test]
fn caps_are_parts_of_time() {
    let _alone = alone();
    let capped = |caps: [u32; 2]| caps.map(|cap| (format!("--compute {cap}"), "kernel=spin_300us"));
    let shares_of = |caps: [u32; 2]| {
        let jobs = capped(caps);
        shares_of(&jobs.each_ref().map(|(options, words)| (options.as_str(), *words)), 5 * SECOND)
    };
    let shares = shares_of([20, 60]);
    shares.assert_has(0, 20.0, 1.5);
    shares.assert_has(1, 60.0, 1.5);
    let shares = shares_of([25, 75]);
    shares.assert_has(0, 25.0, 1.5);
    assert!(shares.of_time()[1] <= 76.0, "{shares}");
    shares.assert_divided(&[1, 3], 2.0);
}

/// Who has the device and runs one kernel without end, or does nothing with it, keeps nobody else from it.
#[test]
fn a_long_kernel_or_an_idle_holder_starves_nobody() {
    let _alone = alone();
    for words in ["mode=long kernel=spin_10000ms", "mode=batch cpu=5s gpu=2ms kernel=spin_1ms count=1"] {
        let machine = Machine::new("a100-80gb");
        let daemon = machine.daemon("");
        let truth = machine.truth();
        let holder = Busy::start_all([machine.hired(&daemon, "--weight 100", words)]);
        std::thread::sleep(Duration::from_millis(100));
        let other = Busy::start_all([machine.hired(&daemon, "--weight 100", "kernel=spin_200us iter=50ms")]);
        std::thread::sleep(Duration::from_millis(300));
        let shares = truth.shares(0, &other, 2 * SECOND);
        println!("{words}: {shares}");
        // Beside a kernel that can't be stopped the hardware's own turns are what there is.
        let least = if words.contains("long") { 30.0 } else { 97.0 };
        assert!(shares.of_time()[0] >= least, "{words}: {shares}");
        other.into_iter().chain(holder).for_each(|job| job.kill(&truth));
    }
}
