//! What the tests share: simulated machines, programs run on them with and without the shim, daemons.
//!
//! A test sets a machine up in one line, runs a program in one, and compares the lines it printed.

mod books;
mod chaos;
mod compute;
mod journal;
mod limits;

pub use books::{Books, Usage, ledger_of, page_of, tenant_memory_of};
pub use chaos::{Chaos, Crowd};
pub use compute::{Alone, Busy, Report, Shares, Truth, alone};
pub use journal::{Asked, asked};
pub use limits::{cpu_time, hears_signals, limit_descriptors, starts_slowly};

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// No program of the tests runs longer.
pub const RUN_SECONDS_MAX: u64 = 60;
/// One mebibyte.
pub const MIB: u64 = 1 << 20;
/// One gibibyte.
pub const GIB: u64 = 1 << 30;

/// An installation for this test process: libraries and commands of this build, laid out as they are installed.
///
/// Cargo leaves the libraries that tests depend on in its own folder, always fresh there, while what lies beside
/// the commands may be of an older build; so the tests run what they link here.
pub fn install() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows its own file");
        let fresh = test.parent().expect("tests lie in target/PROFILE/deps");
        let built = fresh.parent().expect("as above");
        let all = built.join("test-installs");
        remove_stale(&all);
        let folder = all.join(std::process::id().to_string());
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("fake-driver")).expect("the target folder is writable");
        for (from, to) in [
            ("libgpuquota.so", "libgpuquota.so"),
            ("libfake_cuda.so", "fake-driver/libcuda.so.1"),
            ("libfake_cuda.so", "fake-driver/libcuda.so"),
            ("libfake_nvml.so", "fake-driver/libnvidia-ml.so.1"),
        ] {
            link(&existing(fresh.join(from)), &folder.join(to));
        }
        for command in ["gpuquota", "gpuquotad"] {
            // Absent when one package is tested alone.
            if built.join(command).exists() {
                link(&built.join(command), &folder.join(command));
            }
        }
        folder
    })
}

fn link(from: &Path, to: &Path) {
    std::fs::hard_link(from, to).unwrap_or_else(|_| copy_program(from, to));
}

/// Copies a file that is to be run.
///
/// By a process of its own: were it written here, a child that another thread forks meanwhile would have it open for
/// writing until it is another program, and to run it would fail (`ETXTBSY`).
pub fn copy_program(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("--").args([from, to]).output().expect("cp runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Removes what test processes that have ended left.
fn remove_stale(all: &Path) {
    for entry in std::fs::read_dir(all).into_iter().flatten().flatten() {
        let lives = entry.file_name().to_str().is_some_and(|pid| Path::new("/proc").join(pid).exists());
        if !lives {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The built shim.
pub fn shim() -> PathBuf {
    install().join("libgpuquota.so")
}

/// The folder of the simulated driver.
pub fn fake_driver() -> PathBuf {
    install().join("fake-driver")
}

/// A test program by name.
pub fn program(name: &str) -> PathBuf {
    existing(Path::new(env!("PROGRAMS")).join(name))
}

/// A command of the workspace, such as `gpuquota`.
pub fn command(name: &str) -> PathBuf {
    existing(install().join(name))
}

fn existing(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "{} is not built; run `cargo test --workspace` at the root", path.display());
    path
}

/// A simulated machine of its own, gone with its test.
pub struct Machine {
    folder: tempfile::TempDir,
    spec: String,
    /// How often it was restarted as another one.
    restarts: u32,
}

impl Machine {
    /// A machine such as `a100-80gb` or `2xt4-16gb`.
    pub fn new(spec: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, spec: spec.to_owned(), restarts: 0 }
    }

    /// From now on it is as after a restart of the node that made `spec` of it. What runs has the devices of before.
    pub fn restart_as(&mut self, spec: &str) {
        (self.spec, self.restarts) = (spec.to_owned(), self.restarts + 1);
    }

    /// The file of the simulated machine.
    fn state(&self) -> PathBuf {
        self.folder().join(if self.restarts == 0 { "state".to_owned() } else { format!("state-{}", self.restarts) })
    }

    /// What its processes are charged and what they hold, by the ledger that [`Machine::job`] names.
    pub fn books(&self) -> Books {
        Books::new(&self.spec, &self.state(), vec![self.folder().join("ledger.gpuquota")])
    }

    /// The same by the ledgers of a daemon's tenants, whichever there are when something is asked.
    pub fn books_of(&self, ledgers: Vec<PathBuf>) -> Books {
        Books::new(&self.spec, &self.state(), ledgers)
    }

    /// A folder that the test may use.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The journal of driver calls, one JSON object a line, of the jobs that asked for one.
    pub fn journal(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.folder().join("journal")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("the journal is JSON lines")).collect()
    }

    /// Memory of the first device, as the driver tells a program without us.
    pub fn total_bytes(&self) -> u64 {
        self.bare(program("probe-linked")).arg("linked").words("init total").run().numbers("total")[0]
    }

    /// A program with neither shim nor quota.
    pub fn bare(&self, program: impl AsRef<OsStr>) -> Job {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| matches!(name.to_str(), Some("PATH" | "HOME" | "LANG"))))
            .env("LD_LIBRARY_PATH", fake_driver())
            .env("FAKE_CUDA_MACHINE", &self.spec)
            .env("FAKE_CUDA_STATE", self.state())
            // A node's real daemon must not take part in a test.
            .env("GPUQUOTA_LOG", "info");
        Job { command, journal: self.folder().join("journal") }
    }

    /// A program under the shim. Its ledger, where it has one, lies in the machine's folder, so that tests don't share.
    pub fn job(&self, program: impl AsRef<OsStr>) -> Job {
        let beside = self.folder().join("ledger");
        // Round numbers: what contexts cost is for the tests that are about it.
        let job = self.bare(program).env("FAKE_CUDA_CONTEXT", "0");
        job.env("LD_PRELOAD", shim()).env("CUDA_DEVICE_MEMORY_SHARED_CACHE", beside)
    }

    /// The probe behind a door, under the shim.
    pub fn probe(&self, door: &str) -> Job {
        let name = if door.starts_with("linked") { "probe-linked" } else { "probe" };
        self.job(program(name)).arg(door)
    }
}

/// Where the ledger of a tenant lies that has no daemon; removed with the value.
pub struct Ledger(PathBuf);

impl Ledger {
    /// The ledger of the tenant with this name.
    pub fn of(tenant: &str) -> Self {
        // FNV-1a, as the shim names its file.
        let key = format!("tenant {tenant}");
        let hash = key
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Self(PathBuf::from(format!("/dev/shm/gpuquota-{hash:016x}")))
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A program about to run.
pub struct Job {
    command: Command,
    journal: PathBuf,
}

/// What a program did.
#[derive(Debug)]
pub struct Done {
    /// Exit status, or 128 + signal.
    pub status: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Job {
    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds the words of a text as arguments.
    pub fn words(mut self, words: &str) -> Self {
        self.command.args(words.split_whitespace());
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Makes it a process of this tenant, with the ledger where such ledgers lie.
    pub fn tenant(mut self, name: &str) -> Self {
        self.command.env_remove("CUDA_DEVICE_MEMORY_SHARED_CACHE").env("GPUQUOTA_TENANT", name);
        self
    }

    /// Has contexts cost what they do on a machine that nobody changes.
    pub fn with_context_cost(self) -> Self {
        self.env("FAKE_CUDA_CONTEXT", "300MiB")
    }

    /// Sets the memory quota.
    pub fn memory(self, size: &str) -> Self {
        self.env("GPUQUOTA_MEMORY", size)
    }

    /// Has every driver call written down.
    pub fn journalled(self) -> Self {
        let journal = self.journal.clone();
        self.env("FAKE_CUDA_JOURNAL", journal)
    }

    /// The command, for what this has no method for.
    pub fn into_command(self) -> Command {
        self.command
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Done {
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.command));
        let (out, err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let read = |mut from: Box<dyn std::io::Read + Send>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = from.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        let (out, err) = (read(Box::new(out)), read(Box::new(err)));
        let status = wait_for(&mut child, Duration::from_secs(RUN_SECONDS_MAX));
        Done { status, out: out.join().expect("a reader"), err: err.join().expect("a reader") }
    }

    /// Starts it, to be talked to.
    pub fn start(mut self) -> Running {
        self.command.stderr(Stdio::inherit());
        Running::of(self.command)
    }
}

/// A program that runs and waits for lines.
pub struct Running {
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a command whose stderr goes wherever it says.
    pub fn of(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, stdin, lines: BufReader::new(stdout) }
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("readable");
        line.trim_end().to_owned()
    }

    /// Reads lines until this one.
    pub fn until(&mut self, wanted: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "it ended before {wanted:?}, after {seen:?}");
            if line == wanted {
                return seen;
            }
            seen.push(line);
        }
    }

    /// Lets it go on from a `wait`.
    pub fn go_on(&mut self) {
        writeln!(self.stdin).expect("it reads");
    }

    /// Kills it, so that nothing of its own runs any more.
    pub fn kill(mut self) {
        self.child.kill().expect("alive");
        self.child.wait().expect("a child");
    }

    /// Waits for its end; what it still printed and its status.
    pub fn finish(mut self) -> (String, i32) {
        drop(self.stdin);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.lines, &mut rest).expect("readable");
        (rest, wait_for(&mut self.child, Duration::from_secs(RUN_SECONDS_MAX)))
    }
}

impl Done {
    /// Its lines.
    pub fn lines(&self) -> Vec<&str> {
        self.out.lines().collect()
    }

    /// The line that begins with `word`, without it; the last such.
    pub fn answer(&self, word: &str) -> &str {
        let found = self.out.lines().rev().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no answer to {word} in {self:?}"))
    }

    /// The code that the call of `word` returned.
    pub fn code(&self, word: &str) -> i32 {
        self.answer(word).split(' ').next().and_then(|code| code.parse().ok()).expect("a code")
    }

    /// The numbers behind the code.
    pub fn numbers(&self, word: &str) -> Vec<u64> {
        self.answer(word).split(' ').skip(1).map(|number| number.parse().expect("a number")).collect()
    }

    /// Asserts that it ended well and said nothing on stderr.
    pub fn quiet(self) -> Self {
        assert_eq!((self.status, self.err.as_str()), (0, ""), "{}", self.out);
        self
    }
}

fn wait_for(child: &mut Child, limit: Duration) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            panic!("a program did not end within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Asks `condition` until it holds, at most `limit`.
pub fn eventually(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A daemon of a machine, ended with the test.
pub struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Machine {
    /// Starts `gpuquotad` over this machine and waits until it listens.
    pub fn daemon(&self, arguments: &str) -> Daemon {
        let socket = self.folder().join("gpuquota.sock");
        let job = self.bare(command("gpuquotad")).arg("--socket").arg(&socket).words(arguments);
        let mut command = job.into_command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let child = command.spawn().expect("gpuquotad starts");
        let daemon = Daemon { child, socket };
        // One that was killed leaves its socket.
        eventually(Duration::from_secs(10), "the daemon listens", || {
            quota_wire::socket::Connection::connect(&daemon.socket, Instant::now()).is_ok()
        });
        daemon
    }

    /// The same under a document.
    pub fn daemon_under(&self, document: &str) -> Daemon {
        let path = self.folder().join("gpuquota.yaml");
        std::fs::write(&path, document).expect("writable");
        self.daemon(&format!("--config {}", path.display()))
    }

    /// The command `gpuquota` for this machine, talking to the daemon at `socket`.
    pub fn gpuquota(&self, daemon: &Daemon, arguments: &str) -> Job {
        self.bare(command("gpuquota")).env("GPUQUOTA_SOCKET", daemon.socket()).words(arguments)
    }
}

impl Daemon {
    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it without a chance to clean up.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}
