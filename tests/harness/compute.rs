//! Jobs that keep devices busy, and what they got of them: by the simulated machine's own account, not by anything that
//! the shim or the daemon say.

use crate::{Daemon, Job, Machine, Running, install, program};
use fake_machine::{Account, signal_process};
use std::collections::BTreeMap;
use std::fs::File;
use std::time::Duration;

/// So often somebody looks at the machine while a window passes, so that what a dead process left is noticed.
const LOOK: Duration = Duration::from_millis(20);

/// Nobody else measures meanwhile; until it is dropped.
///
/// Tests that measure in real time disturb each other. `cargo test` runs the tests of a file at the same time, and other
/// runners those of several files, so they take turns by a lock on a file.
pub struct Alone(#[allow(dead_code)] File); // The lock goes with the file.

/// Waits for the turn of a test that measures in real time.
pub fn alone() -> Alone {
    let path = install().parent().expect("in a folder of all installations").join("alone.lock");
    let file =
        File::options().create(true).truncate(false).write(true).open(path).expect("the target folder is writable");
    file.lock().expect("the kernel has locks");
    Alone(file)
}

/// What the machine knows.
pub struct Truth(fake_machine::Machine);

/// The program `busy`, running; it ends with its test, however that ends, so that it disturbs no other.
pub struct Busy {
    /// There until it has ended.
    running: Option<Running>,
    pid: u32,
}

/// What a busy program said at its end.
#[derive(Clone, Debug)]
pub struct Report(BTreeMap<String, i64>);

/// What jobs got of a device in a stretch of time.
#[derive(Clone, Debug)]
pub struct Shares {
    /// What the device did.
    pub account: Account,
    /// What each job had of it, in the order in which they were named.
    pub served_ns: Vec<u64>,
    /// How much of the processors nobody used, in percent: where that is nothing, jobs wait for processors, not devices.
    pub processors_idle: f64,
}

impl Machine {
    /// The machine's own account. It reads `FAKE_CUDA_SLICE` and the like of this test's environment not.
    pub fn truth(&self) -> Truth {
        Truth(fake_machine::Machine::open(&self.spec, &self.state()).expect("the machine of the test"))
    }

    /// The program `busy` as a job of `gpuquota run` with these options, such as `--weight 3`.
    pub fn hired(&self, daemon: &Daemon, options: &str, words: &str) -> Job {
        let job = self.gpuquota(daemon, &format!("run {options} --")).env("FAKE_CUDA_CONTEXT", "0");
        job.arg(program("busy")).words(words)
    }

    /// The program `busy` as a further process of a tenant that a job of the daemon already is.
    pub fn joined(&self, daemon: &Daemon, tenant: &str, words: &str) -> Job {
        self.capped(words).tenant(tenant).env("GPUQUOTA_SOCKET", daemon.socket())
    }

    /// The program `busy` under the shim, without a daemon; what it may is set by `Job::env`.
    pub fn capped(&self, words: &str) -> Job {
        self.job(program("busy")).words(words)
    }

    /// The program `busy` without the shim.
    pub fn free(&self, words: &str) -> Job {
        self.bare(program("busy")).env("FAKE_CUDA_CONTEXT", "0").words(words)
    }
}

impl Busy {
    /// Starts a busy job and returns when it is ready; it begins with [`Busy::go`].
    pub fn start(job: Job) -> Self {
        let mut running = job.arg("wait").start();
        let lines = running.until("ready");
        let pid = lines.iter().find_map(|line| line.strip_prefix("pid ")?.parse().ok());
        Self { running: Some(running), pid: pid.expect("it says its pid") }
    }

    /// Starts several; they begin together.
    pub fn start_all(jobs: impl IntoIterator<Item = Job>) -> Vec<Self> {
        let mut all: Vec<Self> = jobs.into_iter().map(Self::start).collect();
        all.iter_mut().for_each(Self::go);
        all
    }

    /// Lets it begin.
    pub fn go(&mut self) {
        self.running.as_mut().expect("until it has ended").go_on();
    }

    /// The pid of the program itself, also where something else runs it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end; what it said, and that nothing failed in it.
    pub fn report(mut self) -> Report {
        let (said, status) = self.running.take().expect("until it has ended").finish();
        let report = Report::of(&said);
        assert_eq!((status, report.get("code")), (0, 0), "{said}");
        report
    }

    /// Waits for its end; what it said, also when a call failed in it.
    pub fn end(mut self) -> Report {
        Report::of(&self.running.take().expect("until it has ended").finish().0)
    }

    /// Kills it, and waits until it and what runs it are gone, and what it had on the first device too.
    pub fn kill(mut self, truth: &Truth) {
        self.stop();
        truth.account(0);
    }

    fn stop(&mut self) {
        let Some(running) = self.running.take() else { return };
        let _ = signal_process(self.pid, libc::SIGKILL); // It may have ended.
        if running.pid() == self.pid {
            running.kill();
        } else {
            running.finish();
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Report {
    fn of(said: &str) -> Self {
        let pairs = said.split_whitespace().filter_map(|word| word.split_once('='));
        Self(pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
    }

    /// A number that it said.
    pub fn get(&self, name: &str) -> i64 {
        *self.0.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}

impl Truth {
    /// What a device did so far.
    pub fn account(&self, device: usize) -> Account {
        self.0.account(device)
    }

    /// What a process had of a device so far, also one that has ended.
    pub fn served(&self, pid: u32, device: usize) -> u64 {
        self.0.served(pid, device)
    }

    /// What NVML would tell of processes' utilisation, on the machine's clock.
    pub fn process_samples(&self, device: usize) -> Vec<fake_machine::ProcessSample> {
        self.0.process_samples(device)
    }

    /// What happens on a device from now on for so long.
    pub fn window(&self, device: usize, length: Duration) -> Account {
        let before = self.account(device);
        let end_ns = before.at_ns + u64::try_from(length.as_nanos()).expect("a test's window is short");
        loop {
            let account = self.account(device);
            if account.at_ns >= end_ns {
                return account.since(&before);
            }
            std::thread::sleep(LOOK.min(Duration::from_nanos(end_ns - account.at_ns)));
        }
    }

    /// The same, as shares of jobs.
    pub fn shares(&self, device: usize, jobs: &[Busy], length: Duration) -> Shares {
        let pids: Vec<u32> = jobs.iter().map(Busy::pid).collect();
        let before = processor_ticks();
        let account = self.window(device, length);
        let after = processor_ticks();
        Shares {
            served_ns: pids.iter().map(|pid| account.of(*pid)).collect(),
            account,
            processors_idle: percent(after.0 - before.0, after.1 - before.1),
        }
    }

    /// The same in `count` windows, one after the other: what a cap has to hold over.
    pub fn series(&self, device: usize, jobs: &[Busy], length: Duration, count: usize) -> Vec<Shares> {
        (0..count).map(|_| self.shares(device, jobs, length)).collect()
    }

    /// Stops a process by `SIGSTOP`, but not in the middle of what the simulated driver does: a stopped process holds up
    /// no real driver either. What it has on the device goes on.
    pub fn stop(&self, pid: u32) {
        self.0.stop_process(pid).expect("it stops");
    }

    /// Lets a stopped process go on.
    pub fn go_on(&self, pid: u32) {
        signal_process(pid, libc::SIGCONT).expect("it is there");
    }

    /// Kills a process in the middle of whatever it does.
    pub fn kill(&self, pid: u32) {
        signal_process(pid, libc::SIGKILL).expect("it is there");
    }
}

impl Shares {
    /// What each had of what all of them had, in percent.
    pub fn of_each_other(&self) -> Vec<f64> {
        let all: u64 = self.served_ns.iter().sum();
        self.served_ns.iter().map(|served| percent(*served, all)).collect()
    }

    /// What each had of the time that went by, in percent.
    pub fn of_time(&self) -> Vec<f64> {
        self.served_ns.iter().map(|served| percent(*served, self.account.at_ns)).collect()
    }

    /// How much of the time the device had something to do, in percent.
    pub fn busy(&self) -> f64 {
        percent(self.account.busy_ns, self.account.at_ns)
    }

    /// Asserts that what they had is divided by these weights, each within so many points.
    pub fn assert_divided(&self, weights: &[u64], points: f64) {
        let all: u64 = weights.iter().sum();
        for (share, weight) in self.of_each_other().iter().zip(weights) {
            let wanted = percent(*weight, all);
            assert!((share - wanted).abs() <= points, "{wanted:.2} ± {points} wanted: {self}");
        }
    }

    /// Asserts that a job had so much of the time, within so many points.
    pub fn assert_has(&self, job: usize, wanted: f64, points: f64) {
        let had = self.of_time()[job];
        assert!((had - wanted).abs() <= points, "{wanted:.2} ± {points} wanted of {job}: {self}");
    }

    /// Asserts that the device was busy for at least so much of the time.
    pub fn assert_busy(&self, least: f64) {
        assert!(self.busy() >= least, "at least {least} wanted: {self}");
    }
}

impl std::fmt::Display for Shares {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let row = |shares: Vec<f64>| shares.iter().map(|share| format!("{share:.2}")).collect::<Vec<_>>().join(" ");
        write!(out, "{} of each other, {} of the time; ", row(self.of_each_other()), row(self.of_time()))?;
        let switches = percent(self.account.switch_ns, self.account.at_ns);
        write!(
            out,
            "busy {:.2}, switching {switches:.2}, idle {:.2}; processors idle {:.0}",
            self.busy(),
            percent(self.account.idle_ns(), self.account.at_ns),
            self.processors_idle
        )
    }
}

/// Ticks in which the processors had nothing to do, and all ticks.
fn processor_ticks() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/stat").expect("readable");
    let ticks = text.lines().next().expect("a line for all").split_whitespace().skip(1);
    let ticks: Vec<u64> = ticks.map(|ticks| ticks.parse().expect("a number")).collect();
    (ticks[3], ticks.iter().sum())
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
