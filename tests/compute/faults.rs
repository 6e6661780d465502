//! Whoever is killed or stopped, or stops answering: no one else stalls beyond what is stated.

use super::SETTLE;
use harness::{Busy, Daemon, Machine, Truth, alone, cpu_time, limit_descriptors};
use std::time::{Duration, Instant};

const WORDS: &str = "kernel=spin_200us iter=50ms";

/// Two jobs that share a device, busy.
fn pair(machine: &Machine, daemon: &Daemon, truth: &Truth) -> Vec<Busy> {
    let busy = Busy::start_all((0..2).map(|_| machine.hired(daemon, "--weight 100", WORDS)));
    std::thread::sleep(SETTLE);
    truth.shares(0, &busy, Duration::from_millis(500)).assert_divided(&[1, 1], 8.0);
    busy
}

/// How long it takes from now until `pid` is served: the bound that a fault has to keep for everybody else.
fn until_served(truth: &Truth, pid: u32) -> Duration {
    let (begun, before) = (Instant::now(), truth.served(pid, 0));
    while truth.served(pid, 0) == before && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_micros(200));
    }
    begun.elapsed()
}

/// The job that has the device now, and the other one.
fn holder_first(truth: &Truth, pids: [u32; 2]) -> [u32; 2] {
    let before = pids.map(|pid| truth.served(pid, 0));
    loop {
        std::thread::sleep(Duration::from_micros(300));
        let grown = [0, 1].map(|at| truth.served(pids[at], 0) > before[at]);
        match grown {
            [true, false] => return pids,
            [false, true] => return [pids[1], pids[0]],
            [true, true] => return holder_first(truth, pids),
            [false, false] => {}
        }
    }
}

/// Within a slice of the holder's and the drain bound, at moments that are spread over slices.
const STALL_MAX: Duration = Duration::from_millis(60);

#[test]
fn a_stopped_holder_or_waiter_holds_nobody_up() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let truth = machine.truth();
    let busy = pair(&machine, &daemon, &truth);
    for round in 0..20 {
        let [holder, waiter] = holder_first(&truth, [busy[0].pid(), busy[1].pid()]);
        let (stopped, other) = if round % 2 == 0 { (holder, waiter) } else { (waiter, holder) };
        truth.stop(stopped);
        std::thread::sleep(Duration::from_millis(30));
        let stall = until_served(&truth, other);
        assert!(stall < STALL_MAX, "round {round}: {stall:?}");
        // What it had submitted is done by now, so the other has the device alone.
        let window = truth.window(0, Duration::from_millis(100));
        assert!(window.of(other) > 85_000_000, "round {round}: {window:?}");
        truth.go_on(stopped);
        let stall = until_served(&truth, stopped);
        assert!(stall < Duration::from_millis(200), "round {round}, gone on: {stall:?}");
    }
    busy.into_iter().for_each(|job| job.kill(&truth));
}

#[test]
fn a_killed_holder_or_waiter_is_replaced_at_once() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let truth = machine.truth();
    let mut stalls = Vec::new();
    for round in 0..6 {
        let busy = pair(&machine, &daemon, &truth);
        let [holder, waiter] = holder_first(&truth, [busy[0].pid(), busy[1].pid()]);
        let (killed, other) = if round % 2 == 0 { (holder, waiter) } else { (waiter, holder) };
        truth.kill(killed);
        stalls.push(until_served(&truth, other));
        std::thread::sleep(Duration::from_millis(50));
        let window = truth.window(0, Duration::from_millis(200));
        assert!(window.of(other) > 190_000_000, "round {round}: {window:?}");
        busy.into_iter().for_each(|job| job.kill(&truth));
    }
    println!("{stalls:?}");
    assert!(stalls.iter().all(|stall| *stall < Duration::from_millis(25)), "{stalls:?}");
}

/// At moments that are spread over its start, its joining, its first wait and several of its turns: a newcomer is killed,
/// or stopped and then killed, and nobody else waits longer than for one that is well.
#[test]
fn whenever_a_job_is_killed_or_stopped_the_others_go_on() {
    const ROUNDS: u64 = 60;
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let truth = machine.truth();
    let busy = pair(&machine, &daemon, &truth);
    for round in 0..ROUNDS {
        let newcomer = machine.joined(&daemon, &format!("newcomer-{round}"), WORDS).memory("1GiB").start();
        // An odd step through 40 ms, so that every round meets another state.
        let moment = Duration::from_micros(round * 15_731 % 40_000);
        std::thread::sleep(moment);
        if round % 2 == 0 {
            truth.stop(newcomer.pid());
        } else {
            truth.kill(newcomer.pid());
        }
        let stalls = [0, 1].map(|at| until_served(&truth, busy[at].pid()));
        assert!(stalls.iter().all(|stall| *stall < STALL_MAX), "round {round}, after {moment:?}: {stalls:?}");
        newcomer.kill();
    }
    truth.shares(0, &busy, Duration::from_secs(1)).assert_divided(&[1, 1], 5.0);
    let shown = machine.gpuquota(&daemon, "ps").run();
    assert!(shown.status == 0 && !shown.out.contains("newcomer"), "nothing is left of them: {shown:?}");
    busy.into_iter().for_each(|job| job.kill(&truth));
}

#[test]
fn jobs_go_on_without_the_daemon_and_obey_the_next() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let mut daemon = machine.daemon("");
    let truth = machine.truth();
    let jobs = [("--tenant a --weight 3 --compute 90", WORDS), ("--tenant b --weight 1 --compute 20", WORDS)];
    let busy = Busy::start_all(jobs.map(|(options, words)| machine.hired(&daemon, options, words)));
    std::thread::sleep(SETTLE);
    daemon.kill();
    let stalls = [0, 1].map(|at| until_served(&truth, busy[at].pid()));
    assert!(stalls.iter().all(|stall| *stall < Duration::from_secs(1)), "{stalls:?}");
    std::thread::sleep(Duration::from_secs(1));
    let shares = truth.shares(0, &busy, Duration::from_secs(2));
    println!("without: {shares}");
    assert!(shares.of_time()[1] <= 21.0, "the cap holds without a daemon: {shares}");
    shares.assert_busy(85.0);
    let daemon = machine.daemon("");
    std::thread::sleep(Duration::from_secs(2));
    let shares = truth.shares(0, &busy, Duration::from_secs(3));
    println!("with the next: {shares}");
    assert!(shares.of_time()[1] <= 21.0, "{shares}");
    assert_eq!(machine.gpuquota(&daemon, "set a --compute 40").run().status, 0);
    std::thread::sleep(Duration::from_millis(300));
    truth.shares(0, &busy, Duration::from_secs(1)).assert_has(0, 40.0, 1.5);
    busy.into_iter().for_each(|job| job.kill(&truth));
}

#[test]
fn jobs_go_on_beside_a_daemon_that_hangs() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let truth = machine.truth();
    let busy = pair(&machine, &daemon, &truth);
    truth.stop(daemon.pid());
    let stalls = [0, 1].map(|at| until_served(&truth, busy[at].pid()));
    println!("{stalls:?}");
    assert!(stalls.iter().all(|stall| *stall < Duration::from_millis(900)), "{stalls:?}");
    std::thread::sleep(Duration::from_millis(700));
    truth.shares(0, &busy, Duration::from_secs(1)).assert_busy(85.0);
    truth.go_on(daemon.pid());
    // What either used meanwhile is no debt: turns are even at once.
    std::thread::sleep(Duration::from_millis(200));
    truth.shares(0, &busy, Duration::from_secs(2)).assert_divided(&[1, 1], 4.0);
    busy.into_iter().for_each(|job| job.kill(&truth));
}

/// A daemon that gets no descriptor any more takes nobody in, and goes on sharing the device among those it has.
#[test]
fn a_daemon_without_descriptors_goes_on_sharing() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let truth = machine.truth();
    let busy = pair(&machine, &daemon, &truth);
    // Fewer than it has open: every new one fails.
    limit_descriptors(daemon.pid(), 3).expect("the daemon is ours");
    let refused = machine.hired(&daemon, "--weight 100", "kernel=spin_200us count=10").start();
    let before = cpu_time(daemon.pid());
    truth.shares(0, &busy, Duration::from_secs(2)).assert_divided(&[1, 1], 4.0);
    let used = cpu_time(daemon.pid()).saturating_sub(before);
    assert!(used < Duration::from_secs(1), "it doesn't try all the time: {used:?} of 2 s");
    limit_descriptors(daemon.pid(), 4096).expect("as above");
    let [first, second] = <[Busy; 2]>::try_from(busy).unwrap_or_else(|_| panic!("two of them"));
    first.kill(&truth);
    let ran = machine.hired(&daemon, "--weight 100", "kernel=spin_200us count=10").run();
    assert_eq!(ran.status, 0, "{ran:?}");
    refused.kill();
    second.kill(&truth);
}

/// A process that can have no descriptor of the daemon's is refused in one line, and runs nothing without its quota.
#[test]
fn a_process_without_descriptors_is_refused() {
    let _alone = alone();
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let truth = machine.truth();
    let busy = pair(&machine, &daemon, &truth);
    let words = format!("ulimit -n 7; exec {} kernel=spin_200us count=10", harness::program("busy").display());
    let job = machine.job("/bin/sh").arg("-c").arg(words).env("GPUQUOTA_SOCKET", daemon.socket());
    let ran = job.run();
    assert!(ran.status > 0 && ran.status < 128, "{ran:?}");
    assert!(ran.err.contains("refused"), "{ran:?}");
    truth.shares(0, &busy, Duration::from_secs(1)).assert_divided(&[1, 1], 4.0);
    busy.into_iter().for_each(|job| job.kill(&truth));
}
