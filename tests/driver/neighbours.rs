//! Several processes on one machine: memory that is finite, device time that is shared, and NVML, which shows both.

use harness::{GIB, MIB, Machine, Running, eventually, program};
use std::time::Duration;

fn free_bytes(machine: &Machine) -> u64 {
    machine.bare(program("probe-linked")).words("linked init ctx info").run().numbers("info")[0]
}

fn holding(machine: &Machine, words: &str) -> Running {
    let mut job =
        machine.bare(program("probe-linked")).words("linked init ctx").words(words).words("say=ready wait").start();
    let printed = job.until("ready");
    assert!(printed.iter().all(|line| line.split(' ').nth(1) == Some("0")), "{printed:?}");
    job
}

#[test]
fn memory_is_finite_across_processes() {
    let machine = Machine::new("t4-16gb");
    let alone = free_bytes(&machine);
    let holder = holding(&machine, "linear:a=8G");
    let context_bytes = machine.total_bytes() - alone;
    assert_eq!(alone - free_bytes(&machine), 8 * GIB + context_bytes, "the other's context is counted too");
    let words = "init ctx linear:a=8G async:b=8G vmm:c=8G array3d:d=8G linear:f=4G";
    let second = machine.bare(program("probe-linked")).arg("linked").words(words).run();
    let refused = ["linear:a=8G", "async:b=8G", "vmm:c=8G", "array3d:d=8G"].map(|word| second.code(word));
    assert_eq!(refused, [2; 4], "{second:?}");
    assert_eq!(second.code("linear:f=4G"), 0, "what is left may be had");
    assert!(!second.out.contains("touched"), "failed calls leave outputs alone: {second:?}");
    holder.finish();
    assert_eq!(free_bytes(&machine), alone);
}

#[test]
fn a_killed_process_gives_its_memory_back() {
    let machine = Machine::new("t4-16gb");
    let alone = free_bytes(&machine);
    let victim = holding(&machine, "linear:a=4G vmm:b=2G async:c=1G array:d=1G");
    assert!(free_bytes(&machine) < alone - 8 * GIB);
    victim.kill();
    eventually(Duration::from_secs(5), "the memory is back", || free_bytes(&machine) == alone);
}

#[test]
fn a_context_costs_what_the_setting_says() {
    let machine = Machine::new("t4-16gb");
    for (setting, bytes) in [("300MiB", 300 * MIB), ("1GiB", GIB), ("0", 0), ("1048576", MIB)] {
        let job = machine.bare(program("probe-linked")).env("FAKE_CUDA_CONTEXT", setting);
        let done = job.words("linked init ctx total info").run();
        assert_eq!(done.numbers("total")[0] - done.numbers("info")[0], bytes, "FAKE_CUDA_CONTEXT={setting}");
    }
    let job = machine.bare(program("probe-linked")).env("FAKE_CUDA_CONTEXT", "20GiB");
    assert_eq!(job.words("linked init ctx").run().code("ctx"), 2, "a context that does not fit is refused");
}

/// Two processes with work at once: the device serves one at a time, so that both are done no sooner than all the work.
#[test]
fn device_time_is_shared() {
    const WORK_MS: i64 = 150;
    let machine = Machine::new("t4-16gb");
    let mut jobs = [(); 2].map(|()| {
        let mut job = machine.bare(program("driver/spin")).words("k_1ms").arg(WORK_MS.to_string()).start();
        job.until("ready");
        job
    });
    jobs.iter_mut().for_each(Running::go_on);
    let times = jobs.map(|mut job| {
        let line = job.line();
        job.finish();
        let mut numbers = line
            .strip_prefix("times 0 ")
            .expect("the times")
            .split(' ')
            .map(|number| number.parse::<i64>().expect("ns"));
        (numbers.next().expect("begun"), numbers.next().expect("ended"))
    });
    let span = |from: i64, to: i64| (to - from) / 1_000_000;
    let begun = times[0].0.min(times[1].0);
    let ended = times[0].1.max(times[1].1);
    assert!(span(begun, ended) >= 2 * WORK_MS - 1, "all of the work: {times:?}");
    for (from, to) in times {
        assert!(span(from, to) >= WORK_MS - 1, "each its own: {times:?}");
    }
}

#[test]
fn kernels_take_the_time_that_the_setting_says() {
    let machine = Machine::new("t4-16gb");
    let span = |setting: &str| {
        let job = machine.bare(program("driver/spin")).env("FAKE_CUDA_KERNELS", setting);
        let mut job = job.words("named 10").start();
        job.until("ready");
        job.go_on();
        let line = job.line();
        job.finish();
        let numbers: Vec<i64> = line.split(' ').skip(2).map(|number| number.parse().expect("ns")).collect();
        (numbers[1] - numbers[0]) / 1_000_000
    };
    assert!(span("named=20ms") >= 199);
    assert!(span("other=20ms") < 199, "another's setting is not this one's");
}

/// What a line of NVML says of processes: `(pid, bytes)`.
fn listed(machine: &Machine) -> Vec<(u32, u64)> {
    let done = machine.bare(program("driver/devices")).arg("nvml").run().quiet();
    let lines = done.out.lines().filter_map(|line| line.strip_prefix("process "));
    let fields = lines
        .map(|line| line.split('|').skip(1).map(|field| field.parse::<u64>().expect("a number")).collect::<Vec<_>>());
    fields.map(|fields| (u32::try_from(fields[0]).expect("a pid"), fields[1])).collect()
}

#[test]
fn nvml_lists_processes_with_their_memory() {
    let machine = Machine::new("t4-16gb");
    assert_eq!(listed(&machine), []);
    let first = holding(&machine, "linear:a=1G");
    let second = holding(&machine, "linear:a=2G");
    let context_bytes = 300 * MIB;
    let mut expected = [(first.pid(), GIB + context_bytes), (second.pid(), 2 * GIB + context_bytes)];
    expected.sort_unstable();
    let mut found = listed(&machine);
    found.sort_unstable();
    assert_eq!(found, expected);
    first.kill();
    eventually(Duration::from_secs(5), "the dead are not listed", || listed(&machine).len() == 1);
    second.finish();
    assert_eq!(listed(&machine), []);
}

#[test]
fn nvml_shows_how_busy_a_device_is() {
    let machine = Machine::new("t4-16gb");
    let busy = || {
        let done = machine.bare(program("driver/devices")).arg("nvml").run().quiet();
        let line = done.out.lines().next().expect("a device").to_owned();
        line.split('|').nth(6).expect("how busy").parse::<u64>().expect("percent")
    };
    assert_eq!(busy(), 0);
    let mut job = machine.bare(program("driver/spin")).words("k_20000ms 1").start();
    job.until("ready");
    assert_eq!(busy(), 0, "a context alone is no work");
    job.go_on();
    eventually(Duration::from_secs(5), "the device is busy", || busy() > 90);
    job.kill();
    eventually(Duration::from_secs(5), "and idle again", || busy() == 0);
}
