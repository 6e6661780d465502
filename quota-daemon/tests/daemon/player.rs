//! A process as the daemon's arbiter sees it: speaks the protocol and writes the usage page. Here, or outside, where it
//! can be killed and stopped.

use crate::node::{Node, PATIENCE, eventually};
use quota_core::ledger::{DeviceId, SlotId};
use quota_wire::TenantMemory;
use quota_wire::lock::mark_alive;
use quota_wire::memory::{Access, Mapping};
use quota_wire::message::{DeviceAsk, Hello, PROTOCOL_VERSION, Reply, Request};
use quota_wire::page::{Gate, QuotaPage};
use quota_wire::socket::Connection;
use quota_wire::usage::ProcessUsage;
use rustix::thread::futex;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub(crate) use quota_daemon::arbiter::now_ns;

/// Names the socket to a player that runs outside.
const SOCKET: &str = "GPUQUOTA_TEST_PLAYER_SOCKET";
/// Names its tenant.
const TENANT: &str = "GPUQUOTA_TEST_PLAYER_TENANT";

/// A member.
pub(crate) struct Player {
    socket: PathBuf,
    connection: Connection,
    pub(crate) page: Mapping<QuotaPage>,
    pub(crate) memory: Mapping<TenantMemory>,
    poke: OwnedFd,
    pub(crate) slot: SlotId,
    pub(crate) place: DeviceId,
    /// Closing them would take the mark away that shows that we live.
    _kept: Vec<OwnedFd>,
}

impl Player {
    /// Joins as a process of `tenant`, with what it asks for.
    pub(crate) fn join(node: &Node, tenant: &str, asks: Hello) -> Self {
        Self::join_at(&node.socket(), &node.devices()[0].uuid, node.devices()[0].memory_total_bytes, tenant, asks)
    }

    fn join_at(socket: &Path, uuid: &str, total_bytes: u64, tenant: &str, asks: Hello) -> Self {
        let connection = Connection::connect(socket, Instant::now() + PATIENCE).expect("it listens");
        let compute = asks.devices.first().and_then(|device| device.compute);
        let hello = Request::Hello(Hello {
            version: PROTOCOL_VERSION,
            tenant: Some(tenant.to_owned()),
            pid: std::process::id(),
            devices: vec![DeviceAsk { uuid: uuid.to_owned(), total_bytes, memory_bytes: None, compute }],
            ..asks
        });
        let (reply, mut descriptors) = connection.ask(&hello, Instant::now() + PATIENCE).expect("an answer");
        let Reply::Welcome(welcome) = reply else { panic!("{reply:?}") };
        assert_eq!(descriptors.len(), 3, "quota page, ledger, eventfd");
        let poke = descriptors.pop().expect("counted");
        let slot = SlotId::new(welcome.slot).expect("in range");
        assert!(mark_alive(descriptors[1].as_fd(), slot).expect("the kernel has locks"));
        Self {
            socket: socket.to_owned(),
            connection,
            page: Mapping::new(descriptors[0].as_fd(), Access::ReadOnly).expect("a page"),
            memory: Mapping::new(descriptors[1].as_fd(), Access::ReadWrite).expect("a ledger"),
            poke,
            slot,
            place: DeviceId::new(welcome.devices[0].expect("known")).expect("in range"),
            _kept: descriptors,
        }
    }

    /// What this process says of itself.
    pub(crate) fn usage(&self) -> &ProcessUsage {
        self.memory.usage.process(self.slot, self.place)
    }

    pub(crate) fn gate(&self) -> Gate {
        self.page.gate(self.place)
    }

    pub(crate) fn poke(&self) {
        rustix::io::write(&self.poke, &1u64.to_ne_bytes()).expect("it has room");
    }

    /// The descriptor itself, for those who mean harm.
    pub(crate) fn poke_descriptor(&self) -> &OwnedFd {
        &self.poke
    }

    /// Makes a context.
    pub(crate) fn attach(&self) {
        self.memory.usage.attach(self.slot, self.place);
        self.poke();
    }

    /// Comes to a gate that isn't open.
    pub(crate) fn want(&self) {
        self.usage().waiting.store(1, Ordering::Release);
        self.poke();
    }

    /// Goes through and launches something that is predicted to end at `until_ns`.
    pub(crate) fn begin(&self, until_ns: u64, sure: bool) {
        let usage = self.usage();
        usage.until_ns.store(until_ns, Ordering::Relaxed);
        usage.sure.store(sure.into(), Ordering::Relaxed);
        usage.submitted.fetch_add(1, Ordering::AcqRel);
        if usage.waiting.swap(0, Ordering::AcqRel) > 0 {
            usage.passed_at_ns.store(now_ns(), Ordering::Release);
        }
    }

    /// What was launched has ended.
    pub(crate) fn end(&self, used_ns: u64) {
        self.usage().busy_ns.fetch_add(used_ns, Ordering::Relaxed);
        let submitted = self.usage().submitted.load(Ordering::Acquire);
        self.usage().completed.store(submitted, Ordering::Release);
    }

    /// Waits for a gate.
    pub(crate) fn until(&self, gate: Gate) {
        eventually(&format!("the gate becomes {gate:?}, and stays {:?}", self.gate()), || self.gate() == gate);
    }

    /// Sleeps at the gate as the library does, until it lets through.
    pub(crate) fn pass(&self, deadline: Instant) -> bool {
        if matches!(self.gate(), Gate::Open | Gate::Free) {
            return true;
        }
        self.want();
        let piece = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        while Instant::now() < deadline {
            let gate = self.gate();
            if matches!(gate, Gate::Open | Gate::Free) {
                return true;
            }
            let _ = futex::wait(self.page.gate_word(self.place), futex::Flags::empty(), gate as u32, Some(&piece));
        }
        false
    }

    /// Keeps the device busy with pieces of work until a time.
    pub(crate) fn work(&self, piece: Duration, deadline: Instant) {
        while Instant::now() < deadline && self.pass(deadline) {
            let begun = now_ns();
            self.begin(begun + piece.as_nanos() as u64, true);
            std::thread::sleep(piece);
            self.end(now_ns() - begun);
            if self.gate() == Gate::Closed {
                self.poke();
            }
        }
        self.usage().waiting.store(0, Ordering::Release);
        self.poke();
    }

    /// Becomes a member of the daemon that is there now.
    pub(crate) fn rejoin(&mut self) -> Result<(), String> {
        let connection =
            Connection::connect(&self.socket, Instant::now() + PATIENCE).map_err(|error| error.to_string())?;
        let request = Request::Rejoin { version: PROTOCOL_VERSION, slot: self.slot.index() };
        match connection.ask(&request, Instant::now() + PATIENCE).map_err(|error| error.to_string())? {
            (Reply::Done { .. }, mut descriptors) => {
                self.poke = descriptors.pop().ok_or("no eventfd")?;
                self.connection = connection;
                Ok(())
            }
            (reply, _) => Err(format!("{reply:?}")),
        }
    }
}

/// A player in a process of its own, which does what it is told.
pub(crate) struct Outside {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Outside {
    /// Joins as a process of a tenant, or of several with spaces between them.
    pub(crate) fn join(node: &Node, tenant: &str) -> Self {
        let device = &node.devices()[0];
        let mut child = Command::new(std::env::current_exe().expect("a test knows its own file"))
            .args(["--exact", "player::plays", "--nocapture"])
            .env(SOCKET, format!("{}\n{}\n{}", node.socket().display(), device.uuid, device.memory_total_bytes))
            .env(TENANT, tenant)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, answers }
    }

    /// Has it do something; its answer.
    pub(crate) fn tell(&mut self, order: &str) -> String {
        writeln!(self.child.stdin.as_mut().expect("piped"), "{order}").expect("it reads");
        let mut line = String::new();
        while !line.starts_with("> ") {
            line.clear();
            assert!(self.answers.read_line(&mut line).expect("readable") > 0, "it has died: {order}");
        }
        line.trim_start_matches("> ").trim().to_owned()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        crate::node::signal(self.child.id(), signal);
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what [`Outside`] runs.
#[test]
fn plays() {
    let (Ok(place), Ok(tenant)) = (std::env::var(SOCKET), std::env::var(TENANT)) else { return };
    let place: Vec<&str> = place.split('\n').collect();
    let total_bytes = place[2].parse().expect("a number");
    let join = |tenant: &str| Player::join_at(Path::new(place[0]), place[1], total_bytes, tenant, Hello::default());
    let (mut player, rest) = match tenant.split_once(' ') {
        Some((first, others)) => (join(first), others.split(' ').map(join).collect()),
        None => (join(&tenant), Vec::new()),
    };
    for order in std::io::stdin().lines() {
        let order = order.expect("readable");
        let words: Vec<&str> = order.split(' ').collect();
        match words[0] {
            "attach" => {
                player.attach();
                rest.iter().for_each(Player::attach);
            }
            "want" => player.want(),
            "begin" => player.begin(now_ns() + words[1].parse::<u64>().expect("a number"), false),
            "end" => player.end(0),
            "poke" => player.poke(),
            "open" => player.until(Gate::Open),
            "rejoin" => {
                if let Err(reason) = player.rejoin() {
                    println!("\n> {reason}");
                    continue;
                }
            }
            _ => panic!("{order}"),
        }
        println!("\n> {:?}", player.gate());
    }
    // The harness of tests must not say anything more to nobody.
    std::process::exit(0);
}
