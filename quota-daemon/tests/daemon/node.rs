//! A node for one test: a simulated machine, its daemon, and questions to it.

use quota_wire::message::{
    Admit, DeviceAsk, DeviceRow, Hello, PROTOCOL_VERSION, ProcessRow, QueueLimit, Reply, Request, Welcome,
};
use quota_wire::socket::Connection;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) const GIB: u64 = 1 << 30;
/// What a context costs on a simulated machine.
pub(crate) const CONTEXT: u64 = 300 << 20;
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A folder with a machine of its own, and what runs over it.
pub(crate) struct Node {
    pub(crate) folder: PathBuf,
    driver: PathBuf,
    pub(crate) daemon: Option<Child>,
}

impl Node {
    pub(crate) fn bare() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("gq-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("writable");
        Self { folder, driver: harness::fake_driver(), daemon: None }
    }

    /// The same node for another thread, which starts and ends nothing of it; not to be dropped.
    pub(crate) fn beside(&self) -> Self {
        Self { folder: self.folder.clone(), driver: self.driver.clone(), daemon: None }
    }

    pub(crate) fn start(machine: &str, arguments: &[&str]) -> Self {
        let mut node = Self::bare();
        node.start_with(machine, arguments);
        node
    }

    pub(crate) fn start_with(&mut self, machine: &str, arguments: &[&str]) {
        self.daemon = Some(self.command(machine, arguments).stderr(Stdio::null()).spawn().expect("it starts"));
        eventually("the daemon listens", || Connection::connect(&self.socket(), Instant::now()).is_ok());
    }

    pub(crate) fn command(&self, machine: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(harness::command("gpuquotad"));
        command.arg("--user").arg("--socket").arg(self.socket()).args(arguments);
        command.env("FAKE_CUDA_MACHINE", machine).env("FAKE_CUDA_STATE", self.folder.join("state"));
        command.env("LD_LIBRARY_PATH", &self.driver);
        command
    }

    pub(crate) fn gpuquota(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(harness::command("gpuquota"));
        command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").env("XDG_RUNTIME_DIR", &self.folder);
        if self.daemon.is_some() {
            command.env("GPUQUOTA_SOCKET", self.socket()).env("FAKE_CUDA_STATE", self.folder.join("state"));
        }
        command
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("gpuquota.sock")
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::connect(&self.socket(), Instant::now() + PATIENCE).expect("it listens")
    }

    pub(crate) fn administer(&self) -> Connection {
        let path = self.folder.join("gpuquota-admin.sock");
        Connection::connect(&path, Instant::now() + PATIENCE).expect("it listens")
    }

    pub(crate) fn devices(&self) -> Vec<DeviceRow> {
        match ask(&self.connect(), &Request::Devices) {
            Reply::Devices { rows, last: true } => rows,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn processes(&self) -> Vec<ProcessRow> {
        match ask(&self.connect(), &Request::Processes) {
            Reply::Processes { rows, last: true } => rows,
            other => panic!("{other:?}"),
        }
    }

    /// Says hello from this process.
    pub(crate) fn hello(&self, tenant: Option<&str>, memory_bytes: Option<u64>) -> (Connection, Welcome, Vec<OwnedFd>) {
        self.hello_as(&self.hello_request(tenant, memory_bytes))
    }

    pub(crate) fn hello_as(&self, hello: &Request) -> (Connection, Welcome, Vec<OwnedFd>) {
        let connection = self.connect();
        match connection.ask(hello, Instant::now() + PATIENCE).expect("an answer") {
            (Reply::Welcome(welcome), descriptors) => (connection, welcome, descriptors),
            (other, _) => panic!("{other:?}"),
        }
    }

    pub(crate) fn hello_request(&self, tenant: Option<&str>, memory_bytes: Option<u64>) -> Request {
        let device = |row: DeviceRow| DeviceAsk {
            uuid: row.uuid,
            total_bytes: row.memory_total_bytes,
            memory_bytes,
            compute: None,
        };
        Request::Hello(Hello {
            version: PROTOCOL_VERSION,
            tenant: tenant.map(str::to_owned),
            pid: std::process::id(),
            command: "a test".to_owned(),
            devices: self.devices().into_iter().map(device).collect(),
            ..Hello::default()
        })
    }

    /// Kills the daemon, and starts another one in its place.
    pub(crate) fn restart(&mut self, machine: &str) {
        self.restart_with(machine, &[]);
    }

    pub(crate) fn restart_with(&mut self, machine: &str, arguments: &[&str]) {
        let mut daemon = self.daemon.take().expect("started");
        daemon.kill().expect("it lives");
        daemon.wait().expect("it lived");
        self.daemon = Some(self.command(machine, arguments).stderr(Stdio::null()).spawn().expect("it starts"));
        eventually("the new one listens", || Connection::connect(&self.socket(), Instant::now()).is_ok());
    }

    /// How often a thread of the daemon has gone to sleep by itself.
    pub(crate) fn switches(&self, thread: &str) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.daemon_pid())).expect("it lives");
        let of = tasks
            .flatten()
            .find(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == thread));
        let status = std::fs::read_to_string(of.expect("there is one").path().join("status")).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).expect("shown");
        line.trim().parse().expect("a number")
    }

    /// Processor time that the daemon has used, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.daemon_pid())).expect("it lives");
        let fields = stat.rsplit(')').next().expect("there is always one").split_whitespace();
        let ticks = fields.skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number"));
        ticks.sum::<f64>() / 100.0
    }

    /// Memory that the daemon has, in the kernel's words.
    pub(crate) fn resident(&self) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon_pid())).expect("it lives");
        status.lines().find(|line| line.starts_with("VmRSS:")).expect("shown").to_owned()
    }

    pub(crate) fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().expect("started").id()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn ask(connection: &Connection, request: &Request) -> Reply {
    connection.ask(request, Instant::now() + PATIENCE).expect("an answer").0
}

pub(crate) fn next(connection: &Connection) -> Reply {
    connection.receive_until(Instant::now() + PATIENCE).expect("an answer").0
}

pub(crate) fn admit(tenant: &str, memory: &str, queue: Option<QueueLimit>) -> Request {
    Request::Admit(Admit {
        version: PROTOCOL_VERSION,
        tenant: Some(tenant.to_owned()),
        memory: Some(memory.to_owned()),
        queue,
        ..Admit::default()
    })
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("it lives");
}
