//! The shell around the registry: sockets, death notices, pages, one thread that sleeps when nothing happens.

mod audit;
mod clients;
mod driver;
mod interrupts;
mod listening;
mod movers;
mod rates;
mod requests;
mod restart;
mod upkeep;

use crate::arbiter::{Arbiter, now_ns};
use crate::audit::Audit;
use crate::audit::history::Readers;
use crate::devices::sampler::Sampler;
use crate::devices::{DeviceSample, Inventory, Nvml};
use crate::document::{Document, Minute};
use crate::log;
use crate::notify::Notifier;
use crate::pages::Pages;
use crate::reconcile::Reconciler;
use crate::registry::{Action, ConnectionId, Overrides, ProcessRecord, Registry, TenantId};
use crate::shares::Shares;
use crate::signals::Signals;
use crate::survival::Store;
use crate::threads;
use clients::Client;
use listening::Listening;
use quota_core::settings::LogLevel;
use rustix::event::{Timespec, epoll};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Connections at one time: a thousand processes, and those who ask about them.
const CLIENTS_MAX: usize = 4096;
/// How long a list waits for the driver before it is answered with what was known before.
const SAMPLE_WAIT_MAX: Duration = Duration::from_millis(500);
/// How often a document's schedule is looked at.
const SCHEDULE_LOOK: Duration = Duration::from_secs(10);
/// Events taken from the kernel at a time.
const EVENTS_PER_ROUND: usize = 256;

const TOKEN_EVERYBODY: u64 = 0;
const TOKEN_ADMIN: u64 = 1;
const TOKEN_SIGNALS: u64 = 2;
const TOKEN_SAMPLE: u64 = 3;
const TOKEN_FOLDER: u64 = 4;
/// Connections are numbered from here, so that twice a number is never one of the tokens above.
const CONNECTION_FIRST: u64 = 8;

/// How the daemon is to run.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Where to listen.
    pub socket: PathBuf,
    /// For one user: nobody else may connect.
    pub user: bool,
    /// Ends by itself when nobody has had a place for so long.
    pub idle_exit: Option<Duration>,
    /// What the command line says of the devices.
    pub overrides: Overrides,
    /// The document, and where it was read.
    pub document: Document,
    /// Read again on SIGHUP.
    pub document_path: Option<PathBuf>,
    /// The machine, when it is a simulated one.
    pub simulated: Option<String>,
}

/// Why the daemon can't run. Each is one line for whoever started it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket is taken.
    #[error("another gpuquotad answers on {0}")]
    AnotherAnswers(PathBuf),
    /// The socket can't be made.
    #[error("{0}: {1}")]
    Socket(PathBuf, io::Error),
    /// The document doesn't go with the devices.
    #[error("{0}")]
    Document(String),
    /// The kernel refuses something the daemon can't do without.
    #[error("the kernel refuses {0}: {1}")]
    Kernel(&'static str, io::Error),
}

/// The daemon, listening.
#[derive(Debug)]
pub struct Server {
    configuration: Configuration,
    listening: Listening,
    epoll: OwnedFd,
    signals: Signals,
    registry: Registry,
    pages: Pages,
    sampler: Sampler,
    sample: Vec<DeviceSample>,
    reconciler: Reconciler,
    shares: Shares,
    arbiter: Arbiter,
    notifier: Notifier,
    /// The driver has let a question go unanswered.
    driver_hangs: bool,
    /// It was told that no more threads are started for it.
    driver_given_up: bool,
    /// Those who wait for a list.
    lists: Vec<requests::List>,
    /// Members that wait to hear what they hold: their question, the sample's that answers it, and until when.
    measures: Vec<requests::Measure>,
    clients: HashMap<ConnectionId, Client>,
    askers: rates::Askers,
    /// Those that have asked too much, and until when they aren't read; in this order.
    paused: VecDeque<(Instant, ConnectionId)>,
    /// Death notices of members, by the connection on which they became members.
    notices: HashMap<ConnectionId, OwnedFd>,
    connections_made: u64,
    accepting: bool,
    /// Since a connection could not be accepted: not before then again.
    accept_again_at: Option<Instant>,
    idle_since: Option<Instant>,
    stopping: bool,
    store: Store,
    upkeep: upkeep::Upkeep,
    /// Children of ours that move memory.
    movers: HashMap<ConnectionId, movers::Mover>,
    /// Jobs of an earlier daemon, of which only the process is left.
    adopted_jobs: HashMap<ConnectionId, ProcessRecord>,
    audit: Audit,
    readers: HashMap<ConnectionId, audit::Reader>,
    history: Readers,
    bypasses: audit::Bypasses,
}

impl Server {
    /// Starts to listen.
    ///
    /// # Errors
    /// When the socket is taken, or something it needs can't be had.
    pub fn start(configuration: Configuration, nvml: Nvml, inventory: &Inventory) -> Result<Self, ServeError> {
        let registry =
            Registry::new(inventory, &configuration.document, configuration.overrides).map_err(ServeError::Document)?;
        let kernel = |what: &'static str| move |error: io::Error| ServeError::Kernel(what, error);
        raise_descriptor_limit();
        // Before any thread is made, so that all of them have the signals blocked.
        let signals = Signals::new(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]).map_err(kernel("a signalfd"))?;
        let listening = Listening::open(&configuration.socket, configuration.user)?;
        let store = Store::open(&configuration.socket)
            .map_err(|error| ServeError::Socket(configuration.socket.with_extension("sock.state"), error))?;
        let sampler = Sampler::start(nvml, inventory).map_err(kernel("a thread"))?;
        let arbiter = Arbiter::new(inventory.devices.len(), registry.rules()).map_err(kernel("an eventfd"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| kernel("an epoll")(error.into()))?;
        let mut server = Self {
            configuration,
            listening,
            epoll,
            signals,
            registry,
            pages: Pages::default(),
            sampler,
            sample: vec![DeviceSample::default(); inventory.devices.len()],
            reconciler: Reconciler::default(),
            shares: Shares::default(),
            arbiter,
            notifier: Notifier::from_environment(),
            driver_hangs: false,
            driver_given_up: false,
            lists: Vec::new(),
            measures: Vec::new(),
            clients: HashMap::new(),
            askers: rates::Askers::default(),
            paused: VecDeque::new(),
            notices: HashMap::new(),
            connections_made: CONNECTION_FIRST,
            accepting: false,
            accept_again_at: None,
            idle_since: None,
            stopping: false,
            store,
            upkeep: upkeep::Upkeep::default(),
            movers: HashMap::new(),
            adopted_jobs: HashMap::new(),
            audit: Audit::new(crate::audit::file::now_ms(), std::process::id()),
            readers: HashMap::new(),
            history: Readers::default(),
            bypasses: audit::Bypasses::new(),
        };
        server.watch(&server.signals, TOKEN_SIGNALS).map_err(kernel("an epoll entry"))?;
        server.watch(&server.sampler.ready(), TOKEN_SAMPLE).map_err(kernel("an epoll entry"))?;
        server.watch_folder();
        server.take_document(inventory);
        server.start_audit();
        server.take_drained();
        // Before anybody is let in: what is granted already must be known.
        server.take_back();
        Ok(server)
    }

    /// Serves until it is told to end.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn run(mut self) -> Result<(), ServeError> {
        let mut events = Vec::with_capacity(EVENTS_PER_ROUND);
        self.notifier.ready(&format!("listens on {}", self.configuration.socket.display()));
        while !self.stopping {
            self.resume_accepting();
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(ServeError::Kernel("to wait", error.into())),
            }
            for event in events.drain(..) {
                threads::test_fault("main");
                self.handle(event.data.u64(), event.flags);
            }
            self.pass_time();
        }
        self.notifier.stopping();
        self.finish_audit();
        Ok(())
    }

    fn handle(&mut self, token: u64, flags: epoll::EventFlags) {
        self.registry.pass_time(self.now_ms());
        match token {
            TOKEN_EVERYBODY | TOKEN_ADMIN => self.accept_all(token == TOKEN_ADMIN),
            TOKEN_SIGNALS => self.take_signals(),
            TOKEN_FOLDER => self.folder_has_changed(),
            TOKEN_SAMPLE => self.take_sample(Instant::now()),
            // A connection has twice its number as token, its death notice one more.
            token if token % 2 == 1 => self.buried(ConnectionId(token / 2)),
            token => self.serve(ConnectionId(token / 2), flags),
        }
    }

    fn take_signals(&mut self) {
        while let Some(received) = self.signals.next() {
            match &self.configuration.document_path {
                Some(path) if received.number == libc::SIGHUP => {
                    let path = path.clone();
                    self.notifier.reloading(now_ns() / 1000);
                    self.reload(&path, &received);
                    self.notifier.ready(&format!("listens on {}", self.configuration.socket.display()));
                }
                // Told to by a service manager, not by a terminal that is gone.
                None if received.number == libc::SIGHUP && self.notifier.has_manager() => {
                    log::line(LogLevel::Info, format_args!("there is no document to be read again"));
                }
                _ => (self.stopping, self.upkeep.ended_by) = (true, Some(received)),
            }
        }
    }

    /// What is due because time has passed.
    fn pass_time(&mut self) {
        let now = Instant::now();
        let now_ms = self.now_ms();
        if self.registry.has_schedule() {
            let mut actions = Vec::new();
            self.registry.set_minute(Minute::now(), &mut actions);
            self.perform(actions);
        }
        self.resume_asking(now);
        self.notifier.look(now, || self.arbiter.is_alive());
        if self.registry.next_deadline_ms().is_some_and(|deadline_ms| deadline_ms <= now_ms) {
            let mut actions = Vec::new();
            self.registry.tick(now_ms, &mut actions);
            self.registry.step_interruptions(now_ms, &self.pages, &mut actions);
            self.perform(actions);
        }
        if self.reconciler.is_due(now, &self.registry) {
            self.sampler.ask(now);
        }
        self.watch_driver(now);
        self.drop_late_measures(now);
        self.end_late_movers(now);
        self.keep_up(now);
        if self.lists.iter().any(|list| list.deadline <= now) {
            self.note_silence();
            self.answer_lists(0, now);
        }
        if !self.registry.is_idle() {
            self.idle_since = None;
        } else if let Some(idle_exit) = self.configuration.idle_exit {
            let since = *self.idle_since.get_or_insert(now);
            self.stopping |= now.duration_since(since) >= idle_exit;
        }
    }

    /// How long to sleep when nothing happens; for ever, most of the time.
    fn timeout(&self) -> Option<Timespec> {
        let now_ms = self.now_ms();
        let left = |deadline_ms: u64| Instant::now() + Duration::from_millis(deadline_ms.saturating_sub(now_ms));
        let queue = self.registry.next_deadline_ms().map(left);
        let lists = self.lists.iter().map(|list| list.deadline).min();
        let idle = self.idle_since.zip(self.configuration.idle_exit).map(|(since, idle_exit)| since + idle_exit);
        let measures = self.measures.iter().map(|measure| measure.deadline).min();
        let movers = self.movers.values().filter_map(|mover| mover.deadline).min();
        let reconcile = self.reconciler.due(&self.registry);
        let accept = self.accept_again_at.filter(|_| !self.accepting);
        // By the clock on the wall, which may be set: it is looked at, not waited for.
        let schedule = self.registry.has_schedule().then(|| Instant::now() + SCHEDULE_LOOK);
        let paused = self.paused.front().map(|(until, _)| *until);
        let (upkeep, notices) = (self.upkeep.due(), self.notifier.due());
        let driver = self.sampler.due();
        let all = [queue, lists, idle, measures, movers, reconcile, accept, schedule, paused, notices, upkeep, driver];
        let next = all.into_iter().flatten().min()?;
        let left = next.saturating_duration_since(Instant::now());
        // A millisecond more: to wake just before would be to wake for nothing.
        let left = left + Duration::from_millis(1);
        Some(Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() })
    }

    /// Of the machine's monotonic clock, so that a deadline means the same to the next daemon.
    fn now_ms(&self) -> u64 {
        now_ns() / 1_000_000
    }

    /// The process of a member is dead.
    fn buried(&mut self, connection: ConnectionId) {
        self.notices.remove(&connection);
        if self.has_ended_mover(connection) {
            return;
        }
        let job = self.adopted_jobs.remove(&connection);
        // A child may still hold the dead process's end.
        if let Some(client) = self.clients.remove(&connection) {
            self.left(&client);
        }
        let mut actions = Vec::new();
        self.registry.died(connection, &mut actions);
        // Of a job that was taken back, the process stands for the connection.
        self.registry.closed(connection, &mut actions);
        if let Some(job) = job {
            clients::name_process(job.pid, &mut actions);
        }
        self.perform(actions);
    }

    /// Carries out what the registry decided, in order.
    fn perform(&mut self, actions: Vec<Action>) {
        // Whoever is told that he has something must still have it under the next daemon.
        self.keep_changes();
        let mut left = VecDeque::from(actions);
        while let Some(action) = left.pop_front() {
            match action {
                Action::Reply(connection, reply) => self.send(connection, reply),
                Action::Welcome(welcome) => {
                    if let Err(error) = self.welcome(&welcome) {
                        let mut more = Vec::new();
                        self.registry.left(welcome.connection, &mut more);
                        self.keep_changes();
                        let reason = format!("the daemon can't make the tenant's pages: {error}");
                        more.push(Action::Reply(welcome.connection, quota_wire::message::Reply::Refused { reason }));
                        left.extend(more);
                    }
                }
                Action::Vacate(tenant, slot) => {
                    self.pages.vacate(tenant, slot);
                    self.arbiter.vacate(tenant, slot);
                }
                Action::Publish(tenant) => {
                    self.pages.publish(tenant, &self.registry);
                    self.tell_arbiter(tenant);
                }
                Action::Reschedule => self.arbiter.set_rules(self.registry.rules()),
                Action::Forget(tenant) => {
                    self.arbiter.remove(tenant);
                    self.pages.forget(tenant);
                }
                Action::Move(order) => {
                    left.extend(self.start_mover(&order));
                    self.keep_changes();
                }
                Action::Audit(event) => self.record(*event),
                Action::End { member, forced } => self.end_process(member, forced),
                Action::Note(text) => log::line(LogLevel::Info, format_args!("{text}")),
            }
        }
    }

    /// Has the arbiter know what holds for a tenant; it has no business with one that never had a process.
    fn tell_arbiter(&mut self, tenant: TenantId) {
        if let Some(pages) = self.pages.get(tenant) {
            self.arbiter.set(tenant, pages.common(), &self.registry);
        }
    }

    fn watch(&self, source: &impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }
}

/// Each member costs two descriptors, each tenant three.
fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit) {
        log::line(LogLevel::Warn, format_args!("the limit of open files can't be raised: {error}"));
    }
}
