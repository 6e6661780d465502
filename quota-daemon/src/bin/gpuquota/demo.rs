//! `demo`: jobs share a device, its memory and its time, and what each of them claims to see is checked.

mod busy;

use crate::cuda::OUT_OF_MEMORY;
use crate::daemons::{ANSWER_WAIT_MAX, own_folder, place};
use crate::demo_job::{Freed, Seen};
use crate::options::{DemoOptions, Output};
use crate::show::{device_rows, process_rows, process_table};
use crate::simulated::Simulated;
use crate::{Failure, table};
use quota_core::Bytes;
use quota_daemon::devices::Nvml;
use quota_wire::message::ProcessRow;
use quota_wire::socket::Connection;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The machine where there is no real device.
const MACHINE_DEFAULT: &str = "a100-80gb";
/// How long one step of a job may take.
const STEP_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long memory may take to come back once its holder is dead.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(2);
const GIB: u64 = 1 << 30;

/// A job of the demo, running.
struct Job {
    name: &'static str,
    quota: Bytes,
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// Runs the demo; fails when anything is not as it says.
pub(crate) fn demo(options: &DemoOptions) -> Result<(), Failure> {
    let machine = machine(options)?;
    let (large, small) = match &machine {
        // Sizes that fit every simulated machine's first device, and look different on it.
        Some(_) => (Bytes(8 * GIB), Bytes(4 * GIB)),
        None => (Bytes(2 * GIB), Bytes(GIB)),
    };
    let id = std::process::id();
    let names = [format!("demo-a-{id}"), format!("demo-b-{id}")];
    say(&match &machine {
        Some(machine) => format!("Two jobs share a simulated {machine}. Neither knows of the other, or of quotas."),
        None => "Two jobs share the first GPU. Neither knows of the other, or of quotas.".to_owned(),
    });
    let mut jobs = Vec::new();
    for (name, tenant, quota) in [("job a", &names[0], large), ("job b", &names[1], small)] {
        say(&format!("\n$ gpuquota run --memory {quota}{} -- {name}", simulate_words(machine.as_deref())));
        let mut job = Job::start(name, tenant, quota, machine.as_deref())?;
        let seen: Seen = job.next()?;
        tell(&job, &seen);
        check_seen(&job, &seen)?;
        jobs.push(job);
    }
    let simulated = machine.as_deref().map(|machine| Simulated::new(machine, &own_folder())).transpose()?;
    let socket = place(simulated.as_ref())?.socket;
    let daemon = Connection::connect(&socket, Instant::now() + ANSWER_WAIT_MAX).map_err(Failure::new)?;
    let rows = own_rows(&daemon, &names)?;
    say(&format!("\n$ gpuquota ps\n{}", process_table(&rows, Output::Table).render().trim_end()));
    check_rows(&rows, &jobs)?;
    say("\nJob a frees its memory and tries again; job b is killed while it holds its own.");
    let freed: Freed = jobs[0].proceed()?;
    say(&format!(
        "  job a: {} free again; the allocation that was refused now answers {}",
        human(freed.free_bytes),
        freed.again
    ));
    check(freed.again == 0, "what job a was refused fits once it has freed")?;
    jobs[1].kill(&rows, &names[1])?;
    wait_for_release(&daemon, &names)?;
    for job in &mut jobs {
        let _ = job.child.wait();
    }
    say("  both are gone, and the daemon has everything back: 0 bytes charged, 0 granted to them");
    // Of a real device, others may be using the time.
    if let Some(machine) = &machine {
        busy::share(machine)?;
    }
    say("\nAll of this was checked.");
    Ok(())
}

/// The machine to simulate; none where there is a real device and nobody asked for another.
fn machine(options: &DemoOptions) -> Result<Option<String>, Failure> {
    if let Some(machine) = &options.simulate {
        return Ok(Some(machine.clone()));
    }
    match Nvml::open().and_then(|nvml| nvml.inventory()) {
        Ok(_) => Ok(None),
        Err(_) => Ok(Some(MACHINE_DEFAULT.to_owned())),
    }
}

fn simulate_words(machine: Option<&str>) -> String {
    machine.map_or_else(String::new, |machine| format!(" --simulate {machine}"))
}

fn tell(job: &Job, seen: &Seen) {
    let name = job.name;
    say(&format!("  {name}: the device has {}, says the driver", human(seen.total_bytes)));
    say(&format!(
        "  {name}: {} allocated, data copied there and back, {} kernels in {} ms",
        human(seen.held_bytes),
        seen.kernels,
        seen.kernels_ms
    ));
    let refusal = if seen.beyond == OUT_OF_MEMORY { " (CUDA_ERROR_OUT_OF_MEMORY)" } else { "" };
    say(&format!("  {name}: beyond its quota, cuMemAlloc answers {}{refusal}", seen.beyond));
}

fn check_seen(job: &Job, seen: &Seen) -> Result<(), Failure> {
    let quota = job.quota.0;
    check(seen.total_bytes == quota && seen.info_total_bytes == quota, "the job's quota is the size of its device")?;
    check(seen.copied, "copied data comes back unchanged")?;
    check(seen.free_bytes <= quota - seen.held_bytes, "what is free is what the quota leaves")?;
    check(seen.beyond == OUT_OF_MEMORY, "an allocation beyond the quota answers 2")
}

fn check_rows(rows: &[ProcessRow], jobs: &[Job]) -> Result<(), Failure> {
    check(rows.len() == jobs.len(), "ps shows one process of each job")?;
    for (row, job) in rows.iter().zip(jobs) {
        check(row.memory_quota_bytes == Some(job.quota.0), "ps shows the quota")?;
        check(
            row.memory_used_bytes >= job.quota.0 / 2 && row.memory_used_bytes <= job.quota.0,
            "ps shows what is used",
        )?;
    }
    Ok(())
}

/// The rows of the demo's own jobs, in their order.
fn own_rows(daemon: &Connection, names: &[String]) -> Result<Vec<ProcessRow>, Failure> {
    let all = process_rows(daemon)?;
    Ok(names.iter().flat_map(|name| all.iter().filter(move |row| row.tenant == *name)).cloned().collect())
}

fn wait_for_release(daemon: &Connection, names: &[String]) -> Result<(), Failure> {
    let deadline = Instant::now() + RELEASE_WAIT_MAX;
    loop {
        let left = own_rows(daemon, names)?;
        let devices = device_rows(daemon)?;
        // Other jobs may be running; what they are charged is theirs.
        let alone = process_rows(daemon)?.iter().all(|row| row.tenant == "-");
        let clean =
            !alone || devices.iter().all(|device| device.memory_charged_bytes == 0 && device.memory_granted_bytes == 0);
        if left.is_empty() && clean {
            return Ok(());
        }
        check(Instant::now() < deadline, "memory is back once its holder is gone")?;
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Job {
    fn start(name: &'static str, tenant: &str, quota: Bytes, machine: Option<&str>) -> Result<Self, Failure> {
        let mut job = Self::launch(name, &["--memory", &quota.to_string(), "--tenant", tenant], machine, &[])?;
        job.quota = quota;
        Ok(job)
    }

    /// Starts a job with these options of `run`, and these words of its own.
    fn launch(name: &'static str, options: &[&str], machine: Option<&str>, words: &[&str]) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::new)?;
        let mut command = Command::new(&program);
        command.arg("run").args(options).args(["--device", "0"]);
        if let Some(machine) = machine {
            command.args(["--simulate", machine]);
        }
        // The job is what is being shown; a quota of our own surroundings would be another one.
        for (inherited, _) in std::env::vars_os() {
            let text = inherited.to_string_lossy();
            let is_quota = (text.starts_with("GPUQUOTA_") && text != "GPUQUOTA_SOCKET") || text.starts_with("CUDA_");
            if is_quota {
                command.env_remove(&inherited);
            }
        }
        // The refusal is announced below; the shim's own line about it would come in between.
        command.env("GPUQUOTA_LOG", "error").arg("--").arg(&program).arg("demo-job").args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(Failure::new)?;
        let orders = child.stdin.take();
        let out = child.stdout.take().ok_or_else(|| Failure::new("the job has no output"))?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { name, quota: Bytes(0), child, orders, lines })
    }

    /// What the job says next.
    fn next<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        match self.lines.recv_timeout(STEP_WAIT_MAX) {
            Ok(line) => serde_json::from_str(&line).map_err(|_| Failure::new(format!("{} says {line:?}", self.name))),
            Err(RecvTimeoutError::Timeout) => Err(Failure::new(format!("{} says nothing", self.name))),
            // It has said why on the stderr that it shares with us.
            Err(RecvTimeoutError::Disconnected) => Err(Failure::new(format!("{} has failed", self.name))),
        }
    }

    /// Lets the job go on to its end.
    fn proceed<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        self.order()?;
        self.next()
    }

    /// The same, without waiting for what it says then.
    fn order(&mut self) -> Result<(), Failure> {
        match self.orders.take() {
            Some(mut orders) => orders.write_all(b"go on\n").map_err(Failure::new),
            None => Ok(()),
        }
    }

    /// Kills the job's process without a word: not `gpuquota run`, the process that holds the memory.
    fn kill(&mut self, rows: &[ProcessRow], tenant: &str) -> Result<(), Failure> {
        let pid = rows.iter().find(|row| row.tenant == tenant).map(|row| row.pid);
        let pid = pid.and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
        let pid = pid.ok_or_else(|| Failure::new(format!("{} has no process", self.name)))?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).map_err(Failure::new)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // A job that waits for an order ends when there can be none.
        self.orders = None;
    }
}

fn check(holds: bool, claim: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::new(format!("demo: this did not hold: {claim}"))) }
}

fn say(line: &str) {
    table::print(&format!("{line}\n"));
}

fn human(bytes: u64) -> String {
    Bytes(bytes).human()
}
