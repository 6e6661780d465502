//! `demo`: two jobs share a GPU, and what is promised is seen and checked.

use crate::cuda::OUT_OF_MEMORY;
use crate::options::{DemoOptions, Output};
use crate::{Failure, daemons, show};
use quota_core::Bytes;
use quota_daemon::devices::Nvml;
use quota_wire::message::ProcessRow;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The machine where there is no GPU.
const MACHINE: &str = "a100-80gb";
/// Quotas on a simulated device, and on a real one, which others may be using.
const QUOTAS: [[Bytes; 2]; 2] = [[Bytes(20 << 30), Bytes(40 << 30)], [Bytes(1 << 30), Bytes(2 << 30)]];
/// Quotas on a simulated device that is smaller than an A100.
const SMALL_QUOTAS: [Bytes; 2] = [Bytes(2 << 30), Bytes(4 << 30)];
/// How long the daemon may take to notice that the jobs are gone.
const NOTICE_WAIT_MAX: Duration = Duration::from_secs(5);

/// A job of the demo and what it has said.
struct Job {
    name: &'static str,
    quota: Bytes,
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
    said: BTreeMap<String, u64>,
}

/// Runs the demo; an error when something is not as promised.
pub(crate) fn demo(options: &DemoOptions) -> Result<(), Failure> {
    let machine = match &options.simulate {
        Some(machine) => Some(machine.clone()),
        None if has_gpu() => None,
        None => Some(MACHINE.to_owned()),
    };
    let quotas = match machine.as_deref() {
        Some(machine) if machine.contains("-80gb") || machine.contains("-141gb") => QUOTAS[0],
        Some(_) => SMALL_QUOTAS,
        None => QUOTAS[1],
    };
    let device = machine.as_deref().map_or_else(|| "the GPU".to_owned(), |machine| format!("a simulated {machine}"));
    println!("Two jobs share {device}. Neither knows of gpuquota: each is an ordinary CUDA program.\n");
    let names = ["demo-a", "demo-b"];
    let mut jobs = Vec::new();
    for (name, quota) in names.into_iter().zip(quotas) {
        println!("$ gpuquota run --memory {quota} --tenant {name}{} -- JOB", simulate(machine.as_deref()));
        jobs.push(Job::start(name, quota, machine.as_deref())?);
    }
    println!();
    for job in &mut jobs {
        job.until("ready")?;
        job.tell();
    }
    println!("\n$ gpuquota ps");
    let rows = rows_of(&names)?;
    print!("{}", show::process_table(&rows, Output::Table).render());
    println!();
    for job in &mut jobs {
        job.check(&rows)?;
        job.go_on()?;
        job.until("after")?;
        let (after, free) = (job.number("after")?, job.number("free")?);
        println!("{} frees its memory: {} of {} free again", job.name, Bytes(after).human(), job.quota.human());
        expect(after == free, format!("{}: {after} bytes free after freeing, {free} before", job.name))?;
    }
    for job in jobs {
        job.finish()?;
    }
    gone(&names)?;
    println!("\nBoth have ended, and the daemon knows of no memory of theirs. Everything was as promised.");
    Ok(())
}

fn simulate(machine: Option<&str>) -> String {
    machine.map_or_else(String::new, |machine| format!(" --simulate {machine}"))
}

/// True when NVML lists a device.
fn has_gpu() -> bool {
    Nvml::open().and_then(|nvml| nvml.inventory()).is_ok_and(|inventory| !inventory.devices.is_empty())
}

fn expect(holds: bool, otherwise: String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::new(format!("the demo is not as promised: {otherwise}"))) }
}

/// Rows of the demo's tenants, from whatever daemon has them.
fn rows_of(tenants: &[&str]) -> Result<Vec<ProcessRow>, Failure> {
    let mut rows = Vec::new();
    for connection in daemons::all()? {
        rows.extend(show::process_rows(&connection)?);
    }
    rows.retain(|row| tenants.contains(&row.tenant.as_str()));
    rows.sort_by(|a, b| a.tenant.cmp(&b.tenant));
    Ok(rows)
}

/// Waits until no daemon shows the tenants any more.
fn gone(tenants: &[&str]) -> Result<(), Failure> {
    let deadline = Instant::now() + NOTICE_WAIT_MAX;
    loop {
        let rows = rows_of(tenants)?;
        if rows.is_empty() {
            return Ok(());
        }
        expect(Instant::now() < deadline, format!("still shown: {rows:?}"))?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Job {
    /// Starts it as anybody would: by `gpuquota run`.
    fn start(name: &'static str, quota: Bytes, machine: Option<&str>) -> Result<Self, Failure> {
        let program =
            std::env::current_exe().map_err(|error| Failure::new(format!("this program's own file: {error}")))?;
        let mut command = Command::new(&program);
        command.args(["run", "--memory", &quota.to_string(), "--tenant", name]);
        if let Some(machine) = machine {
            command.args(["--simulate", machine]);
        }
        // The library's own line on the refusal would stand in the middle of the story.
        command.arg("--").arg(&program).arg("demo-job").env("GPUQUOTA_LOG", "error");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Failure::new(format!("{}: {error}", program.display())))?;
        let stdin = child.stdin.take().expect("it is piped");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Self { name, quota, child, stdin, lines, said: BTreeMap::new() })
    }

    /// Reads what it says until this word.
    fn until(&mut self, word: &str) -> Result<(), Failure> {
        while !self.said.contains_key(word) {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).unwrap_or(0);
            // What it said on stderr stands above.
            expect(read > 0, format!("{} ended before it was {word}", self.name))?;
            if let Some((word, number)) =
                line.trim().split_once(' ').and_then(|(word, text)| Some((word, text.parse().ok()?)))
            {
                self.said.insert(word.to_owned(), number);
            }
        }
        Ok(())
    }

    fn number(&self, word: &str) -> Result<u64, Failure> {
        self.said.get(word).copied().ok_or_else(|| Failure::new(format!("{} said nothing of {word}", self.name)))
    }

    fn human(&self, word: &str) -> String {
        self.said.get(word).map_or_else(|| "?".to_owned(), |bytes| Bytes(*bytes).human())
    }

    fn tell(&self) {
        println!("{}: sees a device of {}, {} free", self.name, self.human("total"), self.human("free"));
        println!("{}: takes {}; copies data there and back, launches kernels", self.name, self.human("held"));
        let beyond = self.said.get("beyond").copied().unwrap_or(0);
        println!("{}: asks for more than is left: CUDA error {beyond} (out of memory)", self.name);
    }

    /// Checks its story against its quota and what the daemon shows.
    fn check(&self, rows: &[ProcessRow]) -> Result<(), Failure> {
        for word in ["total", "shown"] {
            let seen = self.number(word)?;
            expect(seen == self.quota.0, format!("{} sees {seen} bytes, its quota is {}", self.name, self.quota.0))?;
        }
        let beyond = self.number("beyond")?;
        expect(
            beyond == u64::from(OUT_OF_MEMORY.unsigned_abs()),
            format!("{} got {beyond} beyond its quota", self.name),
        )?;
        expect(self.number("copied")? == 1, format!("{}: the data came back changed", self.name))?;
        let held = self.number("held")?;
        let row = rows.iter().find(|row| row.tenant == self.name);
        let used = row.map(|row| row.memory_used_bytes);
        let slack = 2 << 20;
        let agrees = used.is_some_and(|used| used >= held && used - held < slack);
        expect(agrees, format!("{} holds {held} bytes, ps shows {used:?}", self.name))
    }

    fn go_on(&mut self) -> Result<(), Failure> {
        writeln!(self.stdin).map_err(|error| Failure::new(format!("{}: {error}", self.name)))
    }

    fn finish(mut self) -> Result<(), Failure> {
        drop(self.stdin);
        let status = self.child.wait().map_err(|error| Failure::new(format!("{}: {error}", self.name)))?;
        expect(status.success(), format!("{} ended with {status}", self.name))
    }
}
