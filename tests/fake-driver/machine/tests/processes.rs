//! Several processes on one machine: what they see of each other, and what is left when they die.
//!
//! The processes are this test program again, run as the one test [`role`], which obeys its standard input.

#![allow(clippy::unwrap_used)]

mod processes {
    mod checkpoint;
    mod managed;
    pub(crate) mod process;
}

use fake_machine::{Hardware, Machine, MachineError};
use processes::process::{Process, Scratch, kill, obey};
use std::collections::BTreeSet;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;
const MS: u64 = 1_000_000;

/// Not a test of its own: what the other processes run.
#[test]
fn role() {
    if let Some(state) = std::env::var_os("FAKE_MACHINE_ROLE") {
        obey(state.as_ref());
    }
}

fn free(machine: &Machine) -> u64 {
    machine.devices()[0].total_bytes - machine.used(0)
}

#[test]
fn memory_is_shared_and_comes_back() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let whole = free(&machine);
    assert_eq!(whole, machine.devices()[0].total_bytes - machine.devices()[0].reserved_bytes);
    machine.take(0, 30 * GIB).unwrap();
    let mut other = Process::start(&scratch);
    assert_eq!(other.tell("take 0 40"), "ok");
    assert_eq!((machine.used_by_self(0), whole - free(&machine)), (30 * GIB, 70 * GIB));
    let refusal = machine.take(0, 20 * GIB).unwrap_err();
    assert_eq!((refusal.requested_bytes, refusal.free_bytes), (20 * GIB, whole - 70 * GIB));
    assert_eq!(other.tell("take 0 20"), format!("out of memory, {} left", whole - 70 * GIB));
    machine.give(0, 30 * GIB);
    assert_eq!(other.tell("take 0 20"), "ok");
    assert_eq!(other.tell("give 0 60"), "ok");
    assert_eq!(free(&machine), whole);
}

#[test]
fn a_killed_process_leaves_nothing() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let whole = free(&machine);
    for _ in 0..5 {
        let mut other = Process::start(&scratch);
        assert_eq!(other.tell("take 0 79"), "ok");
        assert_eq!(other.tell("context 0"), "ok");
        assert_eq!(other.tell("submit 3600000"), "ok");
        let seen = machine.processes(0);
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].host_pid, seen[0].bytes, seen[0].has_context), (other.pid(), 79 * GIB, true));
        other.kill();
        assert_eq!((machine.processes(0), free(&machine)), (vec![], whole));
        // The device is free too: an hour of work is gone with its context.
        let slot = machine.context_opened(0);
        let begin = Instant::now();
        machine.wait(&slot, machine.submit(&slot, MS));
        assert!(begin.elapsed() < Duration::from_secs(5));
        machine.context_closed(&slot);
    }
}

#[test]
fn memory_of_the_dead_is_found_when_it_is_needed() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let mut other = Process::start(&scratch);
    assert_eq!(other.tell("take 0 79"), "ok");
    assert!(machine.take(0, 10 * GIB).is_err());
    other.kill();
    machine.take(0, 79 * GIB).unwrap();
}

#[test]
fn a_child_does_not_keep_its_dead_parents_memory() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let whole = free(&machine);
    let mut parent = Process::start(&scratch);
    assert_eq!(parent.tell("take 0 40"), "ok");
    let child: u32 = parent.tell("fork").parse().unwrap();
    assert_eq!(whole - free(&machine), 40 * GIB);
    parent.kill();
    assert_eq!((free(&machine), machine.processes(0)), (whole, vec![]));
    kill(child);
}

#[test]
fn a_child_that_uses_the_machine_is_a_process_of_its_own() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let whole = free(&machine);
    let mut parent = Process::start(&scratch);
    assert_eq!(parent.tell("take 0 40"), "ok");
    let child: u32 = parent.tell("fork take").parse().unwrap(); // It takes one GiB.
    let pids =
        |machine: &Machine| machine.processes(0).iter().map(|one| (one.host_pid, one.bytes)).collect::<BTreeSet<_>>();
    assert_eq!(pids(&machine), [(parent.pid(), 40 * GIB), (child, GIB)].into());
    assert_eq!(parent.tell("give 0 40"), "ok");
    parent.kill();
    assert_eq!(pids(&machine), [(child, GIB)].into());
    kill(child);
    let deadline = Instant::now() + Duration::from_secs(10);
    while free(&machine) != whole {
        assert!(Instant::now() < deadline, "the child is dead, its memory is not back");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn processes_that_die_anywhere_leave_a_machine_that_works() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let whole = free(&machine);
    for round in 0..40_u64 {
        let mut busy: Vec<Process> = (0..4).map(|_| Process::start(&scratch)).collect();
        for process in &mut busy {
            process.tell_only("storm");
        }
        std::thread::sleep(Duration::from_micros(3000 + round * 371 % 4000));
        for process in &mut busy {
            process.kill();
        }
        assert_eq!(free(&machine), whole, "{round}");
        assert_eq!(machine.processes(0), vec![]);
    }
    let slot = machine.context_opened(0);
    machine.wait(&slot, machine.submit(&slot, MS));
}

#[test]
fn takes_of_many_processes_never_exceed_the_device() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let mut processes: Vec<Process> = (0..4).map(|_| Process::start(&scratch)).collect();
    for process in &mut processes {
        process.tell_only("fill");
    }
    let taken: u64 = processes.iter_mut().map(|process| process.answer().parse::<u64>().unwrap()).sum();
    let gib = (machine.devices()[0].total_bytes - machine.devices()[0].reserved_bytes) / GIB;
    assert_eq!(taken, gib, "each whole GiB went to one of them");
}

#[test]
fn busy_processes_share_the_devices_time() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let mut pair: Vec<Process> = (0..2).map(|_| Process::start(&scratch)).collect();
    for process in &mut pair {
        assert_eq!(process.tell("context 0"), "ok");
        assert_eq!(process.tell("submit 60000"), "ok");
    }
    std::thread::sleep(Duration::from_millis(700));
    let of = |process: &Process| machine.busy_ns_of(0, process.pid());
    let (first, second) = (of(&pair[0]), of(&pair[1]));
    // The arithmetic is tested on an invented clock; here only that both are served, and alike.
    assert!(first > 100 * MS && second > 100 * MS && first.abs_diff(second) < first / 2, "{first} {second}");
    assert!(machine.busy_ns(0) >= first + second);
    let samples = machine.process_samples(0);
    assert!(pair.iter().all(|process| samples.iter().any(|sample| sample.host_pid == process.pid())), "{samples:?}");
    assert!(machine.utilisation(0) > 90, "{}", machine.utilisation(0));
    pair.remove(0).kill();
    assert_eq!(machine.processes(0).len(), 1);
}

#[test]
fn utilisation_is_late_and_goes_away() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let slot = machine.context_opened(0);
    let ticket = machine.submit(&slot, 400 * MS);
    let begin = Instant::now();
    machine.wait(&slot, ticket);
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(395), "{took:?}");
    assert!(machine.done_at_ns(&slot, ticket).is_some_and(|at| at <= fake_machine::now_ns()));
    assert_eq!(machine.samples(0).iter().map(|sample| sample.percent).max(), Some(100));
    std::thread::sleep(Duration::from_millis(340));
    assert_eq!(machine.utilisation(0), 0);
    assert_eq!(machine.busy_ns(0), 400 * MS);
    machine.context_closed(&slot);
    // The account outlives the context, and is the process's own.
    assert_eq!((machine.busy_ns_of(0, std::process::id()), machine.busy_ns_of(0, 0)), (400 * MS, 0));
}

#[test]
fn a_machine_begins_afresh_when_nobody_uses_it() {
    let scratch = Scratch::new();
    {
        let machine = scratch.open();
        machine.take(0, GIB).unwrap();
        let slot = machine.context_opened(0);
        machine.wait(&slot, machine.submit(&slot, MS));
        assert_eq!(machine.busy_ns(0), MS);
    }
    let machine = scratch.open();
    assert_eq!((machine.busy_ns(0), machine.used_by_self(0)), (0, 0));
}

#[test]
fn two_openings_in_one_process_do_not_take_each_other_for_dead() {
    let scratch = Scratch::new();
    let (first, second) = (scratch.open(), scratch.open());
    first.take(0, GIB).unwrap();
    second.take(0, 2 * GIB).unwrap();
    let held: Vec<u64> = first.processes(0).iter().map(|process| process.bytes).collect();
    assert_eq!(held, [GIB, 2 * GIB]);
    drop(first);
    assert_eq!(second.processes(0).len(), 1);
    let mut other = Process::start(&scratch);
    assert_eq!(other.tell("take 0 79"), format!("out of memory, {} left", free(&second)));
}

#[test]
fn every_device_has_its_own_memory_and_time() {
    let scratch = Scratch::new();
    let machine = Machine::open("a100-80gb,2xl4-24gb", scratch.state()).unwrap();
    machine.take(1, GIB).unwrap();
    let reserved = |device: usize| machine.devices()[device].reserved_bytes;
    assert_eq!([0, 1, 2].map(|device| machine.used(device) - reserved(device)), [0, GIB, 0]);
    let slot = machine.context_opened(2);
    machine.wait(&slot, machine.submit(&slot, MS));
    assert_eq!([0, 1, 2].map(|device| machine.busy_ns(device)), [0, 0, MS]);
    assert!(machine.take(1, 23 * GIB).is_err());
}

#[test]
fn hardware_that_is_asked_for_holds_for_all() {
    let scratch = Scratch::new();
    let hardware = Hardware { slice_ns: 50 * MS, hot_switch_ns: 0, drained_switch_ns: 0 };
    let machine = Machine::open_with("a100-80gb", Some(scratch.state()), Some(hardware)).unwrap();
    let mut other = Process::start(&scratch); // It asks for none.
    assert_eq!(other.tell("context 0"), "ok");
    assert_eq!(other.tell("submit 60000"), "ok");
    let slot = machine.context_opened(0);
    let mut ends = Vec::new();
    for _ in 0..2 {
        let ticket = machine.submit(&slot, MS);
        machine.wait(&slot, ticket);
        ends.push(machine.done_at_ns(&slot, ticket).unwrap());
    }
    // The other's whole slice lies between them.
    assert!(ends[1] - ends[0] >= 50 * MS, "{ends:?}");
}

#[test]
fn the_state_is_private_and_made_once() {
    let scratch = Scratch::new();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| scratch.open())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(opened.len(), 8);
    let names: Vec<_> = std::fs::read_dir(scratch.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["state"]);
    assert_eq!(std::fs::metadata(scratch.state()).unwrap().permissions().mode() & 0o777, 0o600);
}

fn refused(scratch: &Scratch) -> MachineError {
    let error = Machine::open("a100-80gb", scratch.state()).err().expect("the state can't be used");
    let message = error.to_string();
    assert!(message.contains(scratch.state().to_str().unwrap()) && message.contains("FAKE_CUDA_STATE"), "{message}");
    error
}

#[test]
fn a_state_that_is_none_is_refused() {
    let scratch = Scratch::new();
    for content in [vec![], vec![b'x'; 100], vec![0; 100_000], (0..200_000_u32).map(|at| (at * 7) as u8).collect()] {
        std::fs::write(scratch.state(), &content).unwrap();
        assert!(matches!(refused(&scratch), MachineError::Damaged { .. }));
        assert_eq!(std::fs::read(scratch.state()).unwrap(), content, "it is left as it was");
        std::fs::remove_file(scratch.state()).unwrap();
    }
    std::fs::create_dir(scratch.state()).unwrap();
    assert!(matches!(refused(&scratch), MachineError::Io { .. }));
}

#[test]
fn a_state_of_another_kind_is_refused() {
    let scratch = Scratch::new();
    drop(Machine::open("2xl4-24gb", scratch.state()).unwrap());
    let MachineError::OtherMachine { holds, wanted, .. } = refused(&scratch) else {
        panic!("it holds another machine")
    };
    assert_eq!((holds.as_str(), wanted.as_str()), ("2xl4-24gb", "a100-80gb"));
    let file = std::fs::OpenOptions::new().write(true).open(scratch.state()).unwrap();
    file.write_all_at(&77_u32.to_le_bytes(), 8).unwrap();
    assert!(matches!(refused(&scratch), MachineError::OtherVersion { found: 77, .. }));
}

#[test]
fn a_damaged_header_or_length_is_refused() {
    let scratch = Scratch::new();
    drop(scratch.open());
    let file = std::fs::OpenOptions::new().write(true).open(scratch.state()).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - 1).unwrap();
    assert!(matches!(refused(&scratch), MachineError::Damaged { .. }));
    file.set_len(length).unwrap();
    file.write_all_at(b"?", 200).unwrap();
    assert!(matches!(refused(&scratch), MachineError::Damaged { .. }));
}

#[test]
fn damage_behind_the_header_is_gone_with_the_next_beginning() {
    let scratch = Scratch::new();
    drop(scratch.open());
    let file = std::fs::OpenOptions::new().write(true).open(scratch.state()).unwrap();
    file.write_all_at(&[0xff; 2_000_000], 512).unwrap();
    let machine = scratch.open();
    machine.take(0, GIB).unwrap();
    let slot = machine.context_opened(0);
    machine.wait(&slot, machine.submit(&slot, MS));
    assert_eq!(machine.processes(0).len(), 1);
}
