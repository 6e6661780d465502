//! Another process, and the folder that its machine lies in.
#![allow(unsafe_code)]

use fake_machine::{CheckpointError, ContextSlot, Machine};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const GIB: u64 = 1 << 30;

/// Answers begin with it: the test program prints other lines too.
const ANSWER: &str = "answer: ";

/// A folder that goes away with the test.
pub(crate) struct Scratch {
    folder: PathBuf,
    state: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fake-machine-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Self { state: folder.join("state"), folder }
    }

    pub(crate) fn open(&self) -> Machine {
        Machine::open("a100-80gb", &self.state).unwrap()
    }

    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A process on the same machine.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(scratch: &Scratch) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "role", "--nocapture", "--test-threads=1"])
            .env("FAKE_MACHINE_ROLE", scratch.state())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut process = Self { child, input, output };
        assert_eq!(process.answer(), "open");
        process
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tell(&mut self, order: &str) -> String {
        self.tell_only(order);
        self.answer()
    }

    pub(crate) fn tell_only(&mut self, order: &str) {
        writeln!(self.input, "{order}").unwrap();
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the process ended");
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return answer.trim_end().to_owned();
            }
        }
    }

    /// Kills it and waits until it is dead.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a process that is not this one's child.
pub(crate) fn kill(pid: u32) {
    // SAFETY: sends a signal to a process that a test made.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) }, 0);
}

/// What the process does: one order a line, one answer each.
pub(crate) fn obey(state: &Path) {
    let machine: &'static Machine = Box::leak(Box::new(Machine::open("a100-80gb", state).unwrap()));
    let mut slot = None;
    println!("{ANSWER}open");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        println!("{ANSWER}{}", act(machine, &mut slot, &line.split(' ').collect::<Vec<_>>()));
    }
}

fn act(machine: &'static Machine, slot: &mut Option<ContextSlot>, order: &[&str]) -> String {
    let number = |text: &str| text.parse::<u64>().unwrap();
    match *order {
        ["take", device, gib] => match machine.take(number(device) as usize, number(gib) * GIB) {
            Ok(()) => "ok".to_owned(),
            Err(refusal) => format!("out of memory, {} left", refusal.free_bytes),
        },
        ["give", device, gib] => {
            machine.give(number(device) as usize, number(gib) * GIB);
            "ok".to_owned()
        }
        ["managed", gib] => {
            machine.take_managed(0, number(gib) * GIB);
            shown(machine.managed(0))
        }
        ["unmanaged", gib] => {
            machine.give_managed(0, number(gib) * GIB);
            shown(machine.managed(0))
        }
        ["use"] => {
            machine.use_managed(0);
            shown(machine.managed(0))
        }
        ["look"] => shown(machine.managed(0)),
        ["context", device] => {
            let device = number(device) as usize;
            machine.set_context(device, true);
            *slot = Some(machine.context_opened(device));
            "ok".to_owned()
        }
        ["submit", ms] => {
            machine.submit(slot.as_ref().unwrap(), number(ms) * 1_000_000);
            "ok".to_owned()
        }
        ["cuda"] => {
            machine.use_cuda();
            "ok".to_owned()
        }
        ["waits"] => {
            machine.stream_waits(true);
            "ok".to_owned()
        }
        ["lock", pid] => {
            let pid = u32::try_from(number(pid)).unwrap();
            // Somebody else may be trying at this very moment.
            let lock = || machine.lock_process(pid, Duration::from_secs(60));
            while lock() == Err(CheckpointError::WrongState) {
                std::thread::sleep(Duration::from_micros(300));
            }
            "ok".to_owned()
        }
        ["fork"] => fork(|| {}).to_string(),
        ["fork", "take"] => fork(|| machine.take(0, GIB).unwrap()).to_string(),
        ["fill"] => (0..).take_while(|_| machine.take(0, GIB).is_ok()).count().to_string(),
        ["storm"] => storm(machine),
        _ => panic!("{order:?}"),
    }
}

/// Managed memory in GiB: all, and what is on the device.
fn shown((all, here): (u64, u64)) -> String {
    format!("{} {}", all / GIB, here / GIB)
}

/// Changes the state without end; the process is killed in the middle of it.
fn storm(machine: &Machine) -> String {
    loop {
        let slot = machine.context_opened(0);
        let work = [1_000, 70_000, 0].map(|duration| machine.submit(&slot, duration));
        if machine.take(0, GIB).is_ok() {
            machine.set_context(0, true);
            let _ = machine.is_done(&slot, work[0]);
            machine.give(0, GIB);
        }
        machine.context_closed(&slot);
    }
}

/// The number of a child that does something and then nothing for a minute.
fn fork(act: impl FnOnce()) -> libc::pid_t {
    let (mut reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the child runs on with its copy of this thread; no other thread holds a lock that it needs.
    match unsafe { libc::fork() } {
        0 => {
            act();
            drop(writer);
            std::thread::sleep(Duration::from_secs(60));
            // SAFETY: ends the child without running what its parent left to run.
            unsafe { libc::_exit(0) }
        }
        child => {
            drop(writer);
            let mut rest = Vec::new();
            std::io::Read::read_to_end(&mut reader, &mut rest).unwrap();
            child
        }
    }
}
