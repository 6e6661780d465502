//! The launch path under a gate that a test holds in its hands: who waits, who goes on, and what is said of it in the usage page.

#[path = "pacing/warden.rs"]
mod warden;

use harness::{Busy, Job, Machine, alone, eventually, program};
use quota_core::Percent;
use quota_wire::page::{Gate, Quota};
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};
use warden::Warden;

const SOON: Duration = Duration::from_secs(5);
const MS: u64 = 1_000_000;

/// The program `busy` as a process of the warden's tenant.
fn busy(machine: &Machine, warden: &Warden, words: &str) -> Job {
    machine.capped(words).env("GPUQUOTA_SOCKET", warden.socket())
}

/// Threads of a process that are ours.
fn keepers(pid: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.trim_end() == "gpuquota").count()
}

fn is_drained(warden: &Warden) -> bool {
    let usage = warden.usage();
    usage.submitted.load(Acquire) == usage.completed.load(Acquire)
}

#[test]
fn a_fresh_gate_is_asked_and_what_passes_it_is_counted() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let warden = Warden::start(machine.folder());
    let mut job = Busy::start(busy(&machine, &warden, "mode=sync kernel=spin_1ms count=50"));
    assert!(warden.is_attached() && warden.pokes() > 0, "told when the context was made");
    job.go();
    let usage = warden.usage();
    eventually(SOON, "it waits", || usage.waiting.load(Acquire) == 1 && warden.pokes() > 0);
    assert_eq!(usage.submitted.load(Acquire), 0, "nothing passes");
    let opened = warden::now_ns();
    warden.set(Gate::Open);
    job.report();
    assert_eq!((usage.submitted.load(Acquire), usage.completed.load(Acquire)), (50, 50));
    assert_eq!(usage.waiting.load(Acquire), 0);
    assert!(usage.passed_at_ns.load(Acquire) >= opened && usage.waited_ns.load(Acquire) > 0);
    let busy_ns = usage.busy_ns.load(Acquire);
    assert!((49 * MS..150 * MS).contains(&busy_ns), "{busy_ns} of 50 ms");
}

#[test]
fn a_free_gate_costs_no_thread_and_counts_nothing_until_it_is_not_free() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let warden = Warden::start(machine.folder());
    warden.set(Gate::Free);
    let mut job = Busy::start(busy(&machine, &warden, "kernel=spin_200us iter=10ms"));
    job.go();
    std::thread::sleep(Duration::from_millis(300));
    let usage = warden.usage();
    assert_eq!((usage.submitted.load(Acquire), keepers(job.pid())), (0, 0));
    warden.set(Gate::Open);
    eventually(SOON, "it is counted", || usage.submitted.load(Acquire) > 20 && keepers(job.pid()) == 1);
    warden.set(Gate::Free);
    eventually(SOON, "it is left alone again, and the thread is gone", || keepers(job.pid()) == 0);
    let submitted = usage.submitted.load(Acquire);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(usage.submitted.load(Acquire), submitted);
    let truth = machine.truth();
    job.kill(&truth);
}

#[test]
fn a_closed_gate_drains_within_what_may_be_ahead() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let warden = Warden::start(machine.folder());
    warden.set(Gate::Open);
    let truth = machine.truth();
    let mut job = Busy::start(busy(&machine, &warden, "kernel=spin_200us"));
    job.go();
    let usage = warden.usage();
    eventually(SOON, "it runs", || usage.completed.load(Acquire) > 100);
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(20));
        let _ = warden.pokes();
        let before = truth.served(job.pid(), 0);
        warden.set(Gate::Closed);
        eventually(SOON, "drained and waiting, and said so", || {
            is_drained(&warden) && usage.waiting.load(Acquire) == 1 && warden.pokes() > 0
        });
        let after = truth.served(job.pid(), 0);
        // What may be ahead is a millisecond; what ran before the gate was closed is not known to a few hundred microseconds.
        assert!(after - before <= 3 * MS, "{} us after the gate was closed", (after - before) / 1000);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(truth.served(job.pid(), 0), after, "and nothing more");
        warden.set(Gate::Open);
    }
    let (busy_ns, served_ns) = (usage.busy_ns.load(Acquire), truth.served(job.pid(), 0));
    assert!(busy_ns.abs_diff(served_ns) < served_ns / 6, "{busy_ns} measured, {served_ns} served");
    job.kill(&truth);
}

/// Kernels of which some take twenty times as long as most: while one runs past what was predicted, one more is let in, and
/// not one each time that the next should have ended.
#[test]
fn what_takes_longer_than_predicted_lets_in_no_more() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let warden = Warden::start(machine.folder());
    warden.set(Gate::Open);
    let truth = machine.truth();
    let words = busy(&machine, &warden, "kernel=spin_200us").env("FAKE_CUDA_KERNELS", "spin_200us=lognormal(1ms,1.5)");
    let mut job = Busy::start(words);
    job.go();
    let usage = warden.usage();
    eventually(SOON, "it runs", || usage.completed.load(Acquire) > 50);
    let (begun, mut most) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(3) {
        let completed = usage.completed.load(Acquire);
        most = most.max(usage.submitted.load(Acquire).saturating_sub(completed));
        std::thread::sleep(Duration::from_micros(200));
    }
    println!("at most {most} under way");
    assert!(most <= 12, "{most} under way at one time");
    job.kill(&truth);
}

/// A tenant that is paused waits for as long as it takes, and nothing of it runs.
#[test]
fn a_paused_tenant_waits_while_the_daemon_lives() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let warden = Warden::start(machine.folder());
    warden.set(Gate::Closed);
    let mut job = Busy::start(busy(&machine, &warden, "kernel=spin_200us count=10"));
    job.go();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!((warden.usage().submitted.load(Acquire), warden.usage().waiting.load(Acquire)), (0, 1));
    warden.set(Gate::Open);
    job.report();
}

#[test]
fn a_hung_daemon_keeps_nobody_and_is_obeyed_again_when_it_moves() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let warden = Warden::start(machine.folder());
    warden.set(Gate::Closed);
    warden.hang();
    let truth = machine.truth();
    let mut job = Busy::start(busy(&machine, &warden, "kernel=spin_200us"));
    let begun = Instant::now();
    job.go();
    eventually(SOON, "it goes on", || truth.served(job.pid(), 0) > 20 * MS);
    assert!(begun.elapsed() >= Duration::from_millis(450), "not at once: {:?}", begun.elapsed());
    warden.recover();
    eventually(SOON, "it waits again", || warden.usage().waiting.load(Acquire) == 1 && is_drained(&warden));
    job.kill(&truth);
}

#[test]
fn a_lost_daemon_lets_launches_go_on_or_refuses_them() {
    let _alone = alone();
    for (on_loss, code) in [("keep", 0), ("refuse", 304)] {
        let machine = Machine::new("a100-80gb");
        let mut warden = Warden::start(machine.folder());
        warden.set(Gate::Closed);
        let job = busy(&machine, &warden, "kernel=spin_200us count=100").env("GPUQUOTA_ON_DAEMON_LOSS", on_loss);
        let mut job = Busy::start(job);
        job.go();
        eventually(SOON, "it waits", || warden.usage().waiting.load(Acquire) == 1);
        warden.die();
        assert_eq!(job.end().get("code"), code, "{on_loss}");
    }
}

#[test]
fn who_only_observes_waits_for_nothing_and_counts() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let warden = Warden::start(machine.folder());
    warden.set(Gate::Closed);
    let job = busy(&machine, &warden, "mode=sync kernel=spin_200us count=100").env("GPUQUOTA_MODE", "observe");
    let mut job = Busy::start(job);
    job.go();
    job.report();
    assert_eq!((warden.usage().submitted.load(Acquire), warden.usage().waited_ns.load(Acquire)), (100, 0));
}

/// A program that neither waits nor launches again: the thread of ours sees that it is idle, and says so.
#[test]
fn idleness_is_said_for_a_program_that_does_not_look() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let warden = Warden::start(machine.folder());
    warden.set(Gate::Open);
    let words = "init ctx launch=spin_3ms launch=spin_20us say=launched wait";
    let job = machine.probe("linked").env("GPUQUOTA_SOCKET", warden.socket()).words(words);
    let mut running = job.start();
    running.until("launched");
    let at = warden::now_ns();
    let usage = warden.usage();
    eventually(SOON, "it is idle", || usage.submitted.load(Acquire) == 2 && is_drained(&warden));
    let took = (warden::now_ns() - at) / MS;
    eventually(SOON, "and said so", || warden.pokes() > 0);
    assert!(took < 60, "seen after {took} ms");
    eventually(SOON, "the thread ends by itself", || keepers(running.pid()) == 0);
    running.kill();
}

/// The cap on the page holds beside an open gate, and a tenant without credit doesn't wait for the token.
#[test]
fn who_is_out_of_credit_wants_nothing() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let warden = Warden::start(machine.folder());
    let cap = Percent::from_hundredths(1000);
    warden.publish(&Quota { compute_cap: cap, weight: 100, ..Quota::default() });
    warden.set(Gate::Open);
    let truth = machine.truth();
    let mut job = Busy::start(busy(&machine, &warden, "kernel=spin_2ms"));
    job.go();
    let usage = warden.usage();
    eventually(SOON, "it is throttled", || usage.throttled.load(Acquire) == 1);
    assert_eq!(usage.waiting.load(Acquire), 0);
    warden.publish(&Quota { weight: 100, ..Quota::default() });
    eventually(Duration::from_millis(200), "without a cap it goes on", || usage.throttled.load(Acquire) == 0);
    assert!(usage.throttled_ns.load(Acquire) > 0);
    job.kill(&truth);
}

/// Two processes of one tenant share its cap, without a daemon.
#[test]
fn a_cap_is_of_all_processes_together() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let truth = machine.truth();
    let job = || machine.capped("kernel=spin_200us").env("GPUQUOTA_COMPUTE", "30");
    let jobs = Busy::start_all([job(), job(), job()]);
    std::thread::sleep(Duration::from_millis(500));
    let shares = truth.shares(0, &jobs, Duration::from_secs(2));
    jobs.into_iter().for_each(|job| job.kill(&truth));
    // Switching between its own processes is the tenant's.
    let all = (shares.account.busy_ns + shares.account.switch_ns) as f64 * 100.0 / shares.account.at_ns as f64;
    assert!((28.0..=32.0).contains(&all), "{shares}");
}

/// What is launched into a capture runs nothing, and waits for nothing; the graph does.
#[test]
fn a_capture_passes_a_closed_gate_and_its_graph_does_not() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let warden = Warden::start(machine.folder());
    warden.set(Gate::Closed);
    // It captures its graph before it is ready.
    let mut job = Busy::start(busy(&machine, &warden, "mode=graph kernel=spin_100us nodes=10 count=20"));
    assert_eq!(warden.usage().submitted.load(Acquire), 0);
    job.go();
    eventually(SOON, "its first launch waits", || warden.usage().waiting.load(Acquire) == 1);
    warden.set(Gate::Open);
    job.report();
    assert_eq!(warden.usage().submitted.load(Acquire), 20, "a graph is one launch");
    let busy_ns = warden.usage().busy_ns.load(Acquire);
    // What is measured can't be less; on a machine that has no time for us, it is more.
    assert!((19 * MS..60 * MS).contains(&busy_ns), "{busy_ns} of 20 ms");
}

/// What a parent has under way is not its child's, and neither hangs.
#[test]
fn a_fork_in_the_middle() {
    let machine = Machine::new("a100-80gb");
    let words = "init ctx launch=spin_3ms launch=spin_3ms fork launch=spin_200us sync say=end";
    let done = machine.probe("linked").env("GPUQUOTA_COMPUTE", "50").words(words).run();
    assert_eq!((done.status, done.out.matches("end").count()), (0, 2), "{done:?}");
}

/// A launch is nothing but a jump while it is free: a system call would end the program.
#[test]
fn a_free_launch_makes_no_system_call() {
    let machine = Machine::new("a100-80gb");
    let quiet = program("quiet-driver/libcuda.so.1");
    let folder = quiet.parent().expect("a folder");
    let done =
        machine.job(program("no-syscalls")).memory("1GiB").env("LD_LIBRARY_PATH", folder).words("forbid launch").run();
    assert!(done.quiet().out.contains("launched 200000"));
}
