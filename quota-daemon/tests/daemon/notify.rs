//! What the daemon tells a service manager, and the unit that systemd starts it by.
#![allow(unsafe_code)]

use crate::node::{GIB, Node, PATIENCE, ask, signal};
use quota_wire::message::{Reply, Request};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The watchdog's interval. Signs of life come four times as often.
const INTERVAL: Duration = Duration::from_millis(800);

/// A daemon, and the manager that started it.
fn managed(document: bool) -> (Node, UnixDatagram) {
    let mut node = Node::bare();
    let path = node.folder.join("notify");
    let manager = UnixDatagram::bind(&path).expect("free");
    manager.set_read_timeout(Some(PATIENCE)).expect("ours");
    let text = node.folder.join("gpuquota.yaml");
    std::fs::write(&text, "tenants: [{name: kept, memory: 1GiB}]\n").expect("writable");
    let text = text.display().to_string();
    let arguments: &[&str] = if document { &["--config", &text] } else { &[] };
    let mut command = node.command("l4-24gb", arguments);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", INTERVAL.as_micros().to_string());
    node.daemon = Some(command.stderr(Stdio::null()).spawn().expect("it starts"));
    (node, manager)
}

fn said(manager: &UnixDatagram) -> Option<String> {
    let mut bytes = [0; 512];
    let length = manager.recv(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// The next thing said that is no sign of life.
pub(crate) fn news(manager: &UnixDatagram) -> String {
    loop {
        let text = said(manager).expect("something is said");
        if text != "WATCHDOG=1" {
            return text;
        }
    }
}

/// Signs of life in so long a time.
fn beats(manager: &UnixDatagram, time: Duration) -> usize {
    let end = Instant::now() + time;
    let mut count = 0;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        manager.set_read_timeout(Some(left)).expect("ours");
        count += usize::from(said(manager).as_deref() == Some("WATCHDOG=1"));
    }
    manager.set_read_timeout(Some(PATIENCE)).expect("ours");
    count
}

#[test]
fn a_manager_hears_of_begin_reload_and_end() {
    let (mut node, manager) = managed(true);
    let ready = news(&manager);
    assert!(ready.starts_with("READY=1\nSTATUS=listens on ") && ready.lines().count() == 2, "{ready}");
    assert!(matches!(ask(&node.connect(), &Request::About), Reply::About(_)), "it is ready when it says so");
    let now_us = || -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
    };
    // A good document and a bad one: it is ready again after both, and the old one holds after the bad one.
    for (text, granted) in
        [("tenants: [{name: kept, memory: 2GiB}]\n", 2), ("tenants: [{name: kept, memory: 2Q}]\n", 2)]
    {
        std::fs::write(node.folder.join("gpuquota.yaml"), text).expect("writable");
        let before = now_us();
        signal(node.daemon_pid(), Signal::HUP);
        let reloading = news(&manager);
        let at: u64 =
            reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("the form").parse().expect("a number");
        assert!((before..=now_us()).contains(&at), "{before} {at}");
        assert!(news(&manager).starts_with("READY=1\n"));
        assert_eq!(node.devices()[0].memory_granted_bytes, granted * GIB);
    }
    signal(node.daemon_pid(), Signal::TERM);
    assert_eq!(news(&manager), "STOPPING=1");
    assert!(node.daemon.take().expect("started").wait().expect("it ends").success());
}

/// Without a document there is nothing to reload: that is no reason to end.
#[test]
fn a_reload_without_a_document_changes_nothing() {
    let (node, manager) = managed(false);
    assert!(news(&manager).starts_with("READY=1"));
    signal(node.daemon_pid(), Signal::HUP);
    assert!(matches!(ask(&node.connect(), &Request::About), Reply::About(_)));
    assert!(beats(&manager, INTERVAL) >= 2);
}

/// A sign of life comes while both threads live, and not while one of them doesn't.
#[test]
fn a_manager_hears_signs_of_life_of_the_living() {
    let (node, manager) = managed(false);
    assert!(news(&manager).starts_with("READY=1"));
    let _member = node.hello(Some("t"), Some(GIB));
    assert!(beats(&manager, INTERVAL) >= 2, "idle, with a thread for compute");
    signal(node.daemon_pid(), Signal::STOP);
    // What was said just before it stopped.
    beats(&manager, Duration::from_millis(50));
    assert_eq!(beats(&manager, INTERVAL), 0, "stopped");
    signal(node.daemon_pid(), Signal::CONT);
    assert!(beats(&manager, INTERVAL) >= 2, "it goes on");
    let Some(stopped) = Stopped::thread(node.daemon_pid(), "arbiter") else { return };
    // A question that it has answered may be under way.
    beats(&manager, INTERVAL / 2);
    assert_eq!(beats(&manager, INTERVAL), 0, "the thread that shares out compute is stuck");
    assert!(matches!(ask(&node.connect(), &Request::About), Reply::About(_)), "and the other isn't");
    drop(stopped);
    assert!(beats(&manager, INTERVAL) >= 2, "it goes on");
}

/// One thread of a process, stopped while this lives.
struct Stopped(libc::pid_t);

impl Stopped {
    /// None where the kernel doesn't allow it.
    fn thread(pid: u32, name: &str) -> Option<Self> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
        let is_it = |task: &std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|text| text.trim() == name)
        };
        let names: Vec<_> = tasks.filter(is_it).collect();
        let thread = names.first().unwrap_or_else(|| panic!("no thread {name}")).file_name();
        let thread: libc::pid_t = thread.to_str().and_then(|text| text.parse().ok()).expect("a number");
        // SAFETY: plain system call, which takes no memory of ours.
        if unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, 0, 0) } != 0 {
            return None;
        }
        // SAFETY: as above; the thread is ours to trace.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0) }, 0);
        // SAFETY: no status is wanted.
        assert_eq!(unsafe { libc::waitpid(thread, core::ptr::null_mut(), libc::__WALL) }, thread);
        Some(Self(thread))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: plain system call; the thread that has seized it is this one.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

/// systemd itself finds nothing wrong with the unit, where it is there to be asked.
#[test]
fn the_unit_is_one() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/systemd/gpuquotad.service");
    let text = std::fs::read_to_string(unit).expect("it is there");
    for line in ["Type=notify", "NoNewPrivileges=yes", "ProtectSystem=strict", "RuntimeDirectoryPreserve=yes"] {
        assert!(text.lines().any(|it| it == line), "{line}");
    }
    let node = Node::bare();
    let copy = node.folder.join("gpuquotad.service");
    let daemon = harness::command("gpuquotad").display().to_string();
    std::fs::write(&copy, text.replace("/usr/bin/gpuquotad", &daemon)).expect("writable");
    let Ok(output) = Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&copy).output() else { return };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let of_ours: Vec<&str> = said.lines().filter(|line| line.contains("gpuquotad.service")).collect();
    assert!(of_ours.is_empty(), "{said}");
}
