//! Processes that are stopped from outside, and their memory.

use super::process::{Process, Scratch};
use fake_machine::{CheckpointError, Machine, ProcessState};
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;
const LONG: Duration = Duration::from_secs(20);

fn with_cuda(scratch: &Scratch) -> Process {
    let mut process = Process::start(scratch);
    assert_eq!(process.tell("cuda"), "ok");
    process
}

fn used(machine: &Machine) -> u64 {
    machine.used(0) - machine.devices()[0].reserved_bytes
}

#[test]
fn parked_memory_is_free_for_others_until_it_is_restored() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let mut other = with_cuda(&scratch);
    let pid = other.pid();
    assert_eq!(other.tell("take 0 60"), "ok");
    assert_eq!(machine.process_state(pid), Ok(ProcessState::Running));
    assert_eq!(machine.checkpoint_process(pid), Err(CheckpointError::WrongState));
    assert_eq!(machine.restore_process(pid, None), Err(CheckpointError::WrongState));
    assert_eq!(machine.unlock_process(pid), Err(CheckpointError::WrongState));
    machine.lock_process(pid, LONG).unwrap();
    assert_eq!(machine.process_state(pid), Ok(ProcessState::Locked));
    assert_eq!(machine.lock_process(pid, LONG), Err(CheckpointError::WrongState));
    assert_eq!(used(&machine), 60 * GIB);
    machine.checkpoint_process(pid).unwrap();
    assert_eq!((machine.process_state(pid), used(&machine)), (Ok(ProcessState::Checkpointed), 0));
    assert_eq!(machine.unlock_process(pid), Err(CheckpointError::WrongState));
    machine.take(0, 40 * GIB).unwrap();
    assert_eq!(machine.restore_process(pid, None), Err(CheckpointError::OutOfMemory));
    assert_eq!((machine.process_state(pid), used(&machine)), (Ok(ProcessState::Checkpointed), 40 * GIB));
    machine.give(0, 40 * GIB);
    assert_eq!(machine.restore_process(pid, Some(&[])), Err(CheckpointError::DeviceNotListed));
    machine.restore_process(pid, Some(&[0])).unwrap();
    assert_eq!((machine.process_state(pid), used(&machine)), (Ok(ProcessState::Locked), 60 * GIB));
    machine.unlock_process(pid).unwrap();
    assert_eq!(other.tell("give 0 60"), "ok");
    assert_eq!(used(&machine), 0);
}

#[test]
fn a_stopped_process_changes_nothing_until_it_goes_on() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let mut other = with_cuda(&scratch);
    machine.lock_process(other.pid(), LONG).unwrap();
    other.tell_only("take 0 1");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(used(&machine), 0);
    machine.unlock_process(other.pid()).unwrap();
    assert_eq!(other.answer(), "ok");
    assert_eq!(used(&machine), GIB);
}

#[test]
fn a_lock_waits_for_the_work_that_was_submitted() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let mut other = with_cuda(&scratch);
    other.tell("context 0");
    other.tell("submit 100");
    let begun = Instant::now();
    assert_eq!(machine.lock_process(other.pid(), Duration::from_millis(5)), Err(CheckpointError::NotReady));
    assert_eq!(machine.process_state(other.pid()), Ok(ProcessState::Running));
    machine.lock_process(other.pid(), LONG).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(90), "{:?}", begun.elapsed());
    machine.unlock_process(other.pid()).unwrap();
    other.tell("waits");
    assert_eq!(machine.lock_process(other.pid(), Duration::from_millis(5)), Err(CheckpointError::NotReady));
}

#[test]
fn death_ends_every_state() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    for steps in 0..3 {
        let mut other = with_cuda(&scratch);
        let pid = other.pid();
        other.tell("take 0 70");
        if steps > 0 {
            machine.lock_process(pid, LONG).unwrap();
        }
        if steps > 1 {
            machine.checkpoint_process(pid).unwrap();
        }
        other.kill();
        assert_eq!(machine.process_state(pid), Err(CheckpointError::NoSuchProcess));
        assert_eq!(machine.restore_process(pid, None), Err(CheckpointError::NoSuchProcess));
        assert_eq!(used(&machine), 0);
        let mut next = with_cuda(&scratch);
        assert_eq!(next.tell("take 0 70"), "ok", "a new process in the old place is not stopped");
    }
}

#[test]
fn who_dies_locking_leaves_the_process_running() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let (mut busy, mut locker) = (with_cuda(&scratch), with_cuda(&scratch));
    busy.tell("context 0");
    busy.tell("submit 3600000");
    locker.tell_only(&format!("lock {}", busy.pid()));
    let begun = Instant::now();
    while machine.lock_process(busy.pid(), Duration::ZERO) != Err(CheckpointError::WrongState) {
        assert!(begun.elapsed() < LONG);
    }
    locker.kill();
    assert_eq!(machine.lock_process(busy.pid(), Duration::ZERO), Err(CheckpointError::NotReady));
    assert_eq!(busy.tell("take 0 1"), "ok");
}

#[test]
fn only_processes_that_use_cuda_are_stopped() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let other = Process::start(&scratch);
    for pid in [other.pid(), std::process::id(), u32::MAX] {
        assert_eq!(machine.process_state(pid), Err(CheckpointError::NoSuchProcess));
        assert_eq!(machine.lock_process(pid, LONG), Err(CheckpointError::NoSuchProcess));
    }
    machine.use_cuda();
    let own = std::process::id();
    machine.lock_process(own, LONG).unwrap();
    assert!(machine.is_held());
    machine.checkpoint_process(own).unwrap();
    machine.restore_process(own, None).unwrap();
    machine.unlock_process(own).unwrap();
    assert!(!machine.is_held());
}
