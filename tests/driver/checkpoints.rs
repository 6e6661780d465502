//! Memory of processes that are checkpointed: free for others meanwhile, and theirs again afterwards or gone with them.

use harness::{Done, GIB, MIB, Machine, Running, eventually, program};
use std::time::Duration;

fn holding(machine: &Machine, words: &str) -> Running {
    let mut job =
        machine.bare(program("probe-linked")).words("linked init ctx").words(words).words("say=ready wait").start();
    job.until("ready");
    job
}

fn tell(machine: &Machine, process: &Running, orders: &str) -> Done {
    machine.bare(program("driver/freeze")).arg(process.pid().to_string()).words(orders).run().quiet()
}

fn free_bytes(machine: &Machine) -> u64 {
    machine.bare(program("probe-linked")).words("linked init ctx info").run().numbers("info")[0]
}

/// What NVML shows of a process's memory.
fn shown(machine: &Machine, process: &Running) -> Option<u64> {
    let done = machine.bare(program("driver/devices")).arg("nvml").run().quiet();
    let fields = done.out.lines().filter_map(|line| line.strip_prefix("process ")).find_map(|line| {
        let mut fields = line.split('|').skip(1);
        (fields.next()? == process.pid().to_string()).then(|| fields.next()?.parse().ok())
    });
    fields.flatten()
}

#[test]
fn a_checkpointed_process_makes_room_for_another() {
    let machine = Machine::new("t4-16gb");
    let alone = free_bytes(&machine);
    let mut first = holding(&machine, "linear:a=8G async:b=1G vmm:c=2G array:d=1G");
    let beside = free_bytes(&machine);
    assert_eq!(shown(&machine, &first), Some(12 * GIB + 300 * MIB));
    let done = tell(&machine, &first, "lock checkpoint state");
    assert_eq!(done.out, "lock 0\ncheckpoint 0\nstate 0 2\n");
    assert_eq!(free_bytes(&machine), alone);
    assert_eq!(shown(&machine, &first), Some(0));
    let second = holding(&machine, "linear:a=10G");
    assert_eq!(tell(&machine, &first, "restore state").out, "restore 2\nstate 0 2\n");
    assert_eq!(shown(&machine, &first), Some(0), "all or nothing");
    second.finish();
    assert_eq!(tell(&machine, &first, "restore state unlock").out, "restore 0\nstate 0 1\nunlock 0\n");
    assert_eq!(free_bytes(&machine), beside);
    first.go_on();
    first.finish();
    assert_eq!(free_bytes(&machine), alone);
}

#[test]
fn death_gives_everything_back_in_every_state() {
    let machine = Machine::new("t4-16gb");
    let alone = free_bytes(&machine);
    for orders in ["lock", "lock checkpoint", "lock checkpoint restore"] {
        let process = holding(&machine, "linear:a=4G");
        assert!(tell(&machine, &process, orders).out.lines().all(|line| line.ends_with(" 0")), "{orders}");
        process.kill();
        eventually(Duration::from_secs(5), "the memory is back", || free_bytes(&machine) == alone);
    }
}

#[test]
fn what_runs_holds_up_a_lock() {
    let machine = Machine::new("t4-16gb");
    let mut job = machine.bare(program("driver/spin")).words("k_20000ms 1").start();
    job.until("ready");
    job.go_on();
    eventually(Duration::from_secs(5), "the kernel runs", || {
        tell(&machine, &job, "lock=1 unlock").code("lock=1") == 600
    });
    assert_eq!(tell(&machine, &job, "lock=20 state").out, "lock=20 600\nstate 0 0\n");
    job.kill();
}
