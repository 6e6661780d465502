//! A daemon in the hands of a test: it takes processes in, and opens and closes their gate when it is told to.
#![allow(unsafe_code)]

use quota_core::ledger::{DEVICES_MAX, DeviceId, Locked, SlotId};
use quota_wire::memory::{Access, anonymous_file};
use quota_wire::message::{PROTOCOL_VERSION, Reply, Request, Welcome};
use quota_wire::page::{Gate, Quota};
use quota_wire::socket::{self, Connection};
use quota_wire::usage::ProcessUsage;
use quota_wire::{Mapping, QuotaPage, TenantMemory};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two heartbeats; a real daemon has at most 100 ms.
const BEAT: Duration = Duration::from_millis(40);

/// The daemon of one tenant.
pub(crate) struct Warden {
    shared: Arc<Shared>,
    socket: PathBuf,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    page: Mapping<QuotaPage>,
    memory: Mapping<TenantMemory>,
    files: [OwnedFd; 3],
    connections: Mutex<Vec<Connection>>,
    beats: AtomicBool,
    ends: AtomicBool,
}

impl Warden {
    /// One that listens in `folder`, with a fresh page.
    pub(crate) fn start(folder: &Path) -> Self {
        let page_file = anonymous_file(c"page", size_of::<QuotaPage>() as u64).expect("a memfd");
        let memory_file = anonymous_file(c"memory", size_of::<TenantMemory>() as u64).expect("a memfd");
        let page = Mapping::<QuotaPage>::new(page_file.as_fd(), Access::ReadWrite).expect("mapped");
        let memory = Mapping::<TenantMemory>::new(memory_file.as_fd(), Access::ReadWrite).expect("mapped");
        page.initialise();
        memory.initialise(&Locked::assume()).expect("fresh");
        // SAFETY: plain call; the descriptor is ours.
        let poke = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)) };
        let socket = folder.join("warden.sock");
        let listener = socket::listen(&socket, 0o600).expect("a socket");
        let shared = Arc::new(Shared {
            page,
            memory,
            files: [page_file, memory_file, poke],
            connections: Mutex::default(),
            beats: AtomicBool::new(true),
            ends: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        let thread = std::thread::spawn(move || serving.serve(&listener));
        Self { shared, socket, thread: Some(thread) }
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sets the gate of the first device, and wakes who waits there.
    pub(crate) fn set(&self, gate: Gate) {
        self.shared.page.set_gate(first(), gate);
        let word = self.shared.page.gate_word(first()).as_ptr();
        // SAFETY: the word is mapped; nothing is written.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Publishes a quota for the first device.
    pub(crate) fn publish(&self, quota: &Quota) {
        self.shared.page.publish(first(), quota);
    }

    /// What the first process says about the first device.
    pub(crate) fn usage(&self) -> &ProcessUsage {
        self.shared.memory.usage.process(slot(), first())
    }

    /// True once the first process uses the first device.
    pub(crate) fn is_attached(&self) -> bool {
        self.shared.memory.usage.is_attached(slot(), first())
    }

    /// How often it was poked since the last question.
    pub(crate) fn pokes(&self) -> u64 {
        let mut count = 0u64;
        // SAFETY: eight bytes of our own; the descriptor doesn't wait.
        let read = unsafe { libc::read(self.shared.files[2].as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        if read < 0 { 0 } else { count }
    }

    /// From now on its heart stands still, though it is there.
    pub(crate) fn hang(&self) {
        self.shared.beats.store(false, Ordering::Relaxed);
    }

    /// It lives again.
    pub(crate) fn recover(&self) {
        self.shared.beats.store(true, Ordering::Relaxed);
    }

    /// It dies: connections and socket go, the pages stay with the processes.
    pub(crate) fn die(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it serves to its end");
        }
        self.shared.connections.lock().expect("no panic").clear();
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        self.die();
    }
}

impl Shared {
    fn serve(&self, listener: &OwnedFd) {
        let mut beaten = Instant::now();
        while !self.ends.load(Ordering::Relaxed) {
            if self.beats.load(Ordering::Relaxed) && beaten.elapsed() >= BEAT {
                beaten = Instant::now();
                self.page.beat(now_ns());
            }
            let mut connections = self.connections.lock().expect("no panic");
            if let Ok(connection) = socket::accept(listener.as_fd()) {
                connections.push(connection);
            }
            for connection in connections.iter() {
                if let Ok((request, _)) = connection.receive::<Request>() {
                    self.answer(connection, &request);
                }
            }
            drop(connections);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn answer(&self, connection: &Connection, request: &Request) {
        let files = self.files.each_ref().map(OwnedFd::as_fd);
        let sent = match request {
            Request::Hello(hello) => {
                let place = |uuid: &str| self.memory.device(uuid_of(uuid), &Locked::assume()).ok().map(DeviceId::index);
                let devices = hello.devices.iter().map(|device| place(&device.uuid)).collect();
                let welcome =
                    Welcome { version: PROTOCOL_VERSION, tenant: "t".to_owned(), slot: slot().index(), devices };
                connection.send(&Reply::Welcome(welcome), &files)
            }
            Request::Rejoin { .. } => connection.send(&Reply::Done { message: String::new() }, &files[2..]),
            Request::Measure { sequence } => {
                let held_bytes = vec![None; DEVICES_MAX];
                connection.send(&Reply::Measured { sequence: *sequence, held_bytes }, &[])
            }
            _ => connection.send(&Reply::Refused { reason: "a test".to_owned() }, &[]),
        };
        // A process that has ended hears nothing.
        let _ = sent;
    }
}

fn first() -> DeviceId {
    DeviceId::new(0).expect("in range")
}

fn slot() -> SlotId {
    SlotId::new(0).expect("in range")
}

fn uuid_of(text: &str) -> [u8; 16] {
    let digits: String = text.trim_start_matches("GPU-").chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).expect("a UUID");
    number.to_be_bytes()
}

/// The clock that processes and daemon share.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
