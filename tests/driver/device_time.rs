//! Time on the device: kernels that meet, copies that take time, what goes on without its process, and what NVML tells.

use harness::{Busy, Machine, alone, eventually, program};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const MS: u64 = 1_000_000;

fn ranks(machine: &Machine, words: &[&str]) -> Vec<Busy> {
    let job = |words: &&str| machine.free("mode=rank kernel=ring_meet4_50us").words(words);
    Busy::start_all(words.iter().map(job))
}

#[test]
fn four_processes_meet_on_one_device() {
    let machine = Machine::new("a100-80gb");
    let all = ranks(&machine, &["rounds=20 computes=1"; 4]);
    let reports: Vec<_> = all.into_iter().map(Busy::report).collect();
    assert!(reports.iter().all(|report| report.get("rounds") == 20), "{reports:?}");
    // Each round takes three turns in which the others are waited for.
    assert!(reports[0].get("wall_ns") > 20 * 3 * 2_000_000, "{reports:?}");
}

#[test]
fn four_processes_meet_on_two_devices_and_two_with_two_each() {
    let machine = Machine::new("2xa100-80gb");
    let words = ["rounds=20 device=0", "rounds=20 device=1", "rounds=20 device=0", "rounds=20 device=1"];
    assert!(ranks(&machine, &words).into_iter().all(|rank| rank.report().get("rounds") == 20));
    let machine = Machine::new("2xa100-80gb");
    let words = ["rounds=20 devices=0,1"; 2];
    assert!(ranks(&machine, &words).into_iter().all(|rank| rank.report().get("rounds") == 20));
}

/// As real ones would: a rank that is gone is waited for until the others are gone too.
#[test]
fn a_dead_rank_is_waited_for() {
    let machine = Machine::new("a100-80gb");
    let truth = machine.truth();
    let mut all = ranks(&machine, &["rounds=1000000"; 4]);
    std::thread::sleep(Duration::from_millis(100));
    let (dead, first) = (all.remove(0), all[0].pid());
    let pid = dead.pid();
    dead.kill(&truth);
    let window = truth.window(0, Duration::from_millis(300));
    assert_eq!(window.of(pid), 0, "it has nothing there any more");
    assert!(window.of(first) > window.at_ns / 5 && window.busy_ns > window.at_ns * 5 / 6, "they spin on: {window:?}");
    all.into_iter().for_each(|job| job.kill(&truth));
    let window = truth.window(0, Duration::from_millis(100));
    assert_eq!(window.busy_ns, 0, "{window:?}");
    assert!(ranks(&machine, &["rounds=5"; 4]).into_iter().all(|rank| rank.report().get("rounds") == 5));
}

/// Work that a process submitted is done though the process is stopped, and is gone when it is killed.
#[test]
fn work_of_the_stopped_goes_on_and_that_of_the_dead_does_not() {
    let machine = Machine::new("a100-80gb");
    let truth = machine.truth();
    let job = Busy::start_all([machine.free("kernel=spin_1ms count=1000")]).remove(0);
    eventually(Duration::from_secs(5), "it works", || truth.served(job.pid(), 0) > 20 * MS);
    truth.stop(job.pid());
    let window = truth.window(0, Duration::from_millis(100));
    assert!(window.of(job.pid()).abs_diff(window.at_ns) < window.at_ns / 20, "{window:?}");
    truth.go_on(job.pid());
    let pid = job.pid();
    job.kill(&truth);
    let served = truth.served(pid, 0);
    assert!(served > 120 * MS && truth.window(0, Duration::from_millis(50)).busy_ns == 0, "gone within a look");
    assert_eq!(truth.served(pid, 0), served, "and its account is kept");
    // Killed while another, who only asks, uses the device.
    let victim = Busy::start_all([machine.free("kernel=spin_10000ms count=1")]).remove(0);
    let mut other = Busy::start(machine.free("kernel=spin_1ms count=100"));
    other.go();
    std::thread::sleep(Duration::from_millis(50));
    victim.kill(&truth);
    let begun = Instant::now();
    other.report();
    assert!(begun.elapsed() < Duration::from_secs(2));
}

/// Many are stopped and let go: nobody else is held up, as nobody would be by a real driver.
#[test]
fn stopped_processes_hold_nobody_up() {
    let machine = Machine::new("a100-80gb");
    let truth = machine.truth();
    let jobs = Busy::start_all((0..3).map(|_| machine.free("mode=sync kernel=spin_20us")));
    for round in 0..60 {
        let pid = jobs[round % 2].pid();
        truth.stop(pid);
        let before = truth.served(jobs[2].pid(), 0);
        // Far below what a lock that is never passed on costs, and far above what a busy machine does.
        eventually(Duration::from_secs(3), &format!("round {round}"), || truth.served(jobs[2].pid(), 0) > before);
        truth.go_on(pid);
    }
    jobs.into_iter().for_each(|job| job.kill(&truth));
}

#[test]
fn copies_and_memsets_take_what_the_setting_says() {
    let machine = Machine::new("a100-80gb");
    let truth = machine.truth();
    let served_ns = |mode: &str, bandwidth: &str| {
        let job = machine.free(&format!("mode={mode} bytes=10M count=20")).env("FAKE_CUDA_BANDWIDTH", bandwidth);
        let job = Busy::start_all([job]).remove(0);
        let pid = job.pid();
        job.report();
        truth.served(pid, 0)
    };
    for mode in ["copies", "memsets"] {
        assert_eq!(served_ns(mode, "1GB,2GB"), 20 * 5_242_880, "{mode}");
        assert_eq!(served_ns(mode, ""), 0, "{mode}: no time by default");
    }
}

/// What a sample of NVML is about.
const STRETCH_NS: u64 = 166_666_667;

/// NVML's samples are whole stretches of a sixth of a second, and late; what they say is what was.
#[test]
fn nvml_tells_each_process_its_share() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let truth = machine.truth();
    let words = ["kernel=spin_1ms iter=20ms gap=20ms", "kernel=spin_500us iter=50ms"];
    let jobs = Busy::start_all(words.map(|words| machine.free(words)));
    std::thread::sleep(Duration::from_millis(400));
    let mut told = [0.0; 2];
    let mut accounts = vec![truth.account(0)];
    let (mut seen, mut ends) = (BTreeSet::new(), BTreeSet::new());
    while ends.len() < 12 {
        for sample in truth.process_samples(0) {
            let job = jobs.iter().position(|job| job.pid() == sample.host_pid).expect("one of them");
            if sample.at_ns > accounts[0].at_ns + STRETCH_NS && seen.insert((job, sample.at_ns)) {
                told[job] += f64::from(sample.percent);
                ends.insert(sample.at_ns);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
        accounts.push(truth.account(0));
    }
    // From the beginning of the first stretch to the end of the last, on a machine that may do something else in between. Of
    // a stretch in which a job had nothing there is no sample of it.
    let at = |at_ns: u64| accounts.iter().min_by_key(|account| account.at_ns.abs_diff(at_ns)).expect("some");
    let (begin_ns, end_ns) =
        ends.first().zip(ends.last()).map(|(first, last)| (first - STRETCH_NS, *last)).expect("some");
    let (account, stretches) = (at(end_ns).since(at(begin_ns)), (end_ns - begin_ns) as f64 / STRETCH_NS as f64);
    for (job, sum) in jobs.iter().zip(&told) {
        let (told, was) = (sum / stretches, account.of(job.pid()) as f64 * 100.0 / account.at_ns as f64);
        assert!((told - was).abs() < 2.0, "{told} told, {was} was");
    }
    jobs.into_iter().for_each(|job| job.kill(&truth));
}

/// Drivers that lack what one would build on.
#[test]
fn a_driver_may_lack_things() {
    let machine = Machine::new("a100-80gb");
    let truth = machine.truth();
    let job = Busy::start_all([machine.free("kernel=spin_1ms")]).remove(0);
    std::thread::sleep(Duration::from_millis(500));
    let told = |lacks: &str| {
        let done = machine.bare(program("driver/lacks")).env("FAKE_CUDA_LACKS", lacks).run();
        assert_eq!(done.status, 0, "{done:?}");
        done.out.trim().to_owned()
    };
    let whole = "priorities 0 -5, supported 1; processes 1; samples 0 1, sane 1";
    assert_eq!(told(""), whole);
    assert_eq!(told("stream-priorities"), "priorities 0 0, supported 0; processes 1; samples 0 1, sane 1");
    assert_eq!(told("processes"), "priorities 0 -5, supported 1; processes 0; samples 0 1, sane 1");
    assert_eq!(told("samples"), "priorities 0 -5, supported 1; processes 1; samples 6 0, sane 1");
    assert_eq!(told("sample-count"), "priorities 0 -5, supported 1; processes 1; samples 0 0, sane 1");
    assert_eq!(told("sane-samples"), "priorities 0 -5, supported 1; processes 1; samples 0 1, sane 0");
    job.kill(&truth);
    let done = machine.bare(program("driver/lacks")).env("FAKE_CUDA_LACKS", "everything").run();
    assert!(done.status != 0 && done.err.contains("stream-priorities"), "{done:?}");
}
