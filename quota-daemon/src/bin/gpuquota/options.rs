//! The command line, and the values on it.

use crate::Failure;
use crate::job::interruption::{Told, signal_number};
use clap::{Args, Parser, Subcommand, ValueEnum};
use quota_core::settings::{
    PRIORITY_FORM, SettingError, TENANT_FORM, WEIGHT_FORM, parse_priority, parse_tenant, parse_weight,
};
use quota_core::{MemorySize, Percent, Priority, units};
use quota_daemon::document::parse_grace;
use quota_wire::notice::{ACTION_FORM, Action};
use std::ffi::OsString;
use std::path::PathBuf;

/// Shares GPUs between jobs: memory and compute quotas, with no change to the jobs or the driver.
#[derive(Parser, Debug)]
#[command(name = "gpuquota", version, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a command under a quota; starts a daemon for this user where none answers
    Run(RunOptions),
    /// Show who holds what: tenant, pid, device, memory used and quota, share, cap, state
    ///
    /// SHARE, CAP and GUARANTEE are percent of the device's time, SHARE over the last second. THROTTLED is the time for which the
    /// process was held back by its cap, WAITED that in which it waited for its turn, WAITING the threads that do so now.
    /// STATE is running, waiting (for its turn), throttled (by its cap), paused, idle, unmanaged (no quota) or foreign
    /// (no member); of a job that makes room for another one, notified, interrupted, checkpointed or ending, and on a device
    /// that is drained lost, with the reason in
    /// the last column of -o wide. In JSON, names end in their unit.
    Ps(ShowOptions),
    /// Show the devices: capacity, granted, used, compute, driver, MIG, health
    ///
    /// COMPUTE is percent of the device's time used in the last second, GUARANTEED percent of it promised to jobs, CONTENDED the
    /// jobs that want it at one time, HOLDER the tenant whose turn it is.
    Devices(ShowOptions),
    /// Change a tenant's quota while it runs
    Set(SetOptions),
    /// Withhold a tenant's compute; its memory stays
    Pause(TenantOptions),
    /// Have a tenant make room: a notice, a grace, then it is paused, checkpointed or ended
    ///
    /// It goes on with gpuquota resume.
    Interrupt(InterruptOptions),
    /// Have the daemon let go of a device, to divide, reset or take it out; nobody new gets a place there
    ///
    /// Jobs that are on it go on for as long as the driver lets them, and are shown as lost. It is the daemon of
    /// GPUQUOTA_SOCKET, else the node's. The device is in use again with gpuquota resume, and not before: not under a restarted
    /// daemon either.
    Drain(DrainOptions),
    /// Give a tenant back what a pause or an interruption took, as soon as there is room; or use a drained device again
    ///
    /// A name that is a tenant's is the tenant, whatever devices are called; the UUID of a device is always the device.
    Resume(ResumeOptions),
    /// Replace the daemon's document; refused whole on one mistake
    ///
    /// It holds under a restarted daemon, too, until the file that the daemon was started with is changed, or read again
    /// (SIGHUP): then that file holds.
    Apply(ApplyOptions),
    /// Show the jobs that wait since they would share a device with a tenant that is to have it for itself, or allow one of them
    ///
    /// They are jobs of `gpuquota run --queue`. One that is allowed shares the devices for as long as it runs. What was allowed
    /// and denied, and by whom, is in the audit.
    Approve(ApproveOptions),
    /// Show who asked, got, was refused and changed what; an ordinary user sees what is about their own processes
    ///
    /// The daemon keeps the last 1024 events, which are shown; --since and -n look into its files, too. Where its document says `audit: {path: FILE, keep: 30d}` it writes all of them
    /// to that file, one JSON object a line. Numbers (`seq`) go on without a gap within one `run` of the daemon; an event
    /// `lost` says how many are missing.
    Audit(AuditOptions),
    /// Print `export NAME=value` lines: what `run` would set, for scripts and images
    Env(JobOptions),
    /// Check this machine, say what is wrong and how to mend it
    Doctor(DoctorOptions),
    /// Jobs share a (simulated) GPU, its memory and its time; shows what each got
    Demo(DemoOptions),
    /// Takes the memory of processes to the host, or back; started by `run`, or by the daemon for one that is gone
    #[command(hide = true)]
    Move(MoveOptions),
    /// One of the jobs of `demo`
    #[command(hide = true)]
    DemoJob(DemoJobOptions),
    /// Print completions for a shell
    Completions(CompletionsOptions),
}

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct QuotaOptions {
    /// Most device memory, on each device: 20GiB, 4096MiB, 50%
    #[arg(long, value_name = "SIZE|PCT%", allow_negative_numbers = true)]
    pub(crate) memory: Option<String>,
    /// Most compute, in percent of each device's time, measured over a tenth of a second
    #[arg(long, value_name = "PCT", allow_negative_numbers = true)]
    pub(crate) compute: Option<String>,
    /// Least compute while it has work, in percent of each device's time; at most 95 for all jobs together
    #[arg(long, value_name = "PCT", allow_negative_numbers = true)]
    pub(crate) guarantee: Option<String>,
    /// Weight among those who want compute at the same time, 1 to 10000, 100 by default: 300 beside 100 gets 75 %
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) weight: Option<String>,
    /// batch, normal or high: high is served before normal, normal before batch
    #[arg(long, value_name = "CLASS")]
    pub(crate) priority: Option<String>,
}

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct JobOptions {
    #[command(flatten)]
    pub(crate) quota: QuotaOptions,
    /// The devices to use: index, UUID (GPU-... or MIG-...), its beginning, product (a100, 3g.20gb), or a list of them with
    /// commas; of MIG instances, one of those named
    #[arg(long, value_name = "SEL")]
    pub(crate) device: Option<String>,
    /// Name under which processes are counted together
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Use a simulated machine, such as a100-80gb, 2xl4-24gb, a100-80gb,t4-16gb or a100-40gb:3g.20gb+2x1g.5gb
    #[arg(long, value_name = "MACHINE")]
    pub(crate) simulate: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) job: JobOptions,
    /// So many of these devices, chosen by the daemon (`placement` in its document); all of them by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) count: Option<u32>,
    /// Wait for room, at most so long when a time is given (90s, 10m, 2h)
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "")]
    pub(crate) queue: Option<String>,
    /// Let its memory be moved to the host when the device is full; then its quota may lie beyond what the device has
    ///
    /// Where the daemon's document oversubscribes the device. A quarter of the quota may be memory that can't be moved.
    #[arg(long)]
    pub(crate) oversubscribe: bool,
    /// What follows when the job has to make room for one of a higher class: pause, checkpoint or terminate
    #[arg(long, value_name = "ACTION")]
    pub(crate) on_interrupt: Option<String>,
    /// Send COMMAND this signal when it has to make room, such as USR1
    #[arg(long, value_name = "SIGNAL")]
    pub(crate) notice_signal: Option<String>,
    /// Run this shell command when the job has to make room; GPUQUOTA_NOTICE_TENANT, _PID, _REASON, _CAUSE, _ACTION and _GRACE
    /// (seconds) say what it is about
    #[arg(long, value_name = "CMD")]
    pub(crate) notice_command: Option<OsString>,
    /// The command to run
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct SetOptions {
    /// Whose quota
    pub(crate) tenant: String,
    #[command(flatten)]
    pub(crate) quota: QuotaOptions,
}

#[derive(Args, Debug)]
pub(crate) struct TenantOptions {
    /// Whose compute
    pub(crate) tenant: String,
}

#[derive(Args, Debug)]
pub(crate) struct ResumeOptions {
    /// The tenant, or the device
    #[arg(value_name = "TENANT|DEVICE")]
    pub(crate) name: String,
}

#[derive(Args, Debug)]
pub(crate) struct DrainOptions {
    /// Index, UUID, beginning of a UUID, product, a list of them with commas, or all
    pub(crate) device: String,
    /// How to show what was done: in words, or the devices as gpuquota devices does
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct InterruptOptions {
    /// Who has to make room
    pub(crate) tenant: String,
    /// Time between notice and action, 0s to 10m; what the daemon's document says (30s) when absent
    #[arg(long, value_name = "DURATION")]
    pub(crate) grace: Option<String>,
    /// pause, checkpoint or terminate; what the job or the daemon's document says when absent
    #[arg(long, value_name = "ACTION")]
    pub(crate) action: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct MoveOptions {
    /// Which way
    #[arg(value_enum)]
    pub(crate) what: Move,
    /// Who has it done: it ends with that process
    #[arg(long)]
    pub(crate) parent: u32,
    /// Whose memory
    pub(crate) pids: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Move {
    Checkpoint,
    Restore,
}

#[derive(Args, Debug)]
pub(crate) struct ApplyOptions {
    /// Say what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The document, YAML
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ApproveOptions {
    /// The request, by its number; all are shown when absent
    pub(crate) number: Option<u64>,
    /// Refuse it
    #[arg(long, requires = "number")]
    pub(crate) deny: bool,
    /// Why it is refused; its user is told
    #[arg(long, value_name = "TEXT", requires = "deny")]
    pub(crate) reason: Option<String>,
    /// How to show them
    #[arg(short, long, value_enum, default_value_t = AuditOutput::Table, conflicts_with = "number")]
    pub(crate) output: AuditOutput,
}

#[derive(Args, Debug)]
pub(crate) struct ShowOptions {
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct AuditOptions {
    /// Go on with what happens from now on
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// How to show it; JSON is one object a line
    #[arg(short, long, value_enum, default_value_t = AuditOutput::Table)]
    pub(crate) output: AuditOutput,
    /// Of this tenant only
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Of these kinds only: asked, granted, queued, refused, cancelled, expired, joined, left, died, released, adopted,
    /// changed, interrupted, resumed, bypass, vanished, lost, started, stopped
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    pub(crate) event: Vec<String>,
    /// Not before: 10m, 2d, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// Only so many, the newest
    #[arg(short = 'n', long = "newest", value_name = "N")]
    pub(crate) newest: Option<u32>,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorOptions {
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct DemoOptions {
    /// The simulated machine; a100-80gb by default, where there is no real GPU
    #[arg(long, value_name = "MACHINE")]
    pub(crate) simulate: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct DemoJobOptions {
    /// Milliseconds for which it keeps the device busy, instead of using memory
    #[arg(long, value_name = "MS")]
    pub(crate) busy: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsOptions {
    /// bash, zsh or fish
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Output {
    Table,
    Wide,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum AuditOutput {
    Table,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// What is asked for, checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Quota {
    pub(crate) memory: Option<MemorySize>,
    pub(crate) compute: Option<Percent>,
    pub(crate) guarantee: Option<Percent>,
    pub(crate) weight: Option<u32>,
    pub(crate) priority: Option<Priority>,
}

impl QuotaOptions {
    /// Checks every value before anything is started.
    pub(crate) fn read(&self) -> Result<Quota, Failure> {
        self.read_with(|_| None)
    }

    /// The same; `get` answers what the environment says where the command line says nothing.
    pub(crate) fn read_with(&self, get: impl Fn(&str) -> Option<String>) -> Result<Quota, Failure> {
        let either = |text: &Option<String>, option, variable| Given::new(text, option, variable, &get);
        let quota = Quota {
            memory: either(&self.memory, "--memory", "GPUQUOTA_MEMORY").read(units::SIZE_FORM, str::parse)?,
            compute: either(&self.compute, "--compute", "GPUQUOTA_COMPUTE").read(units::PERCENT_FORM, str::parse)?,
            guarantee: either(&self.guarantee, "--guarantee", "GPUQUOTA_GUARANTEE")
                .read(units::PERCENT_FORM, str::parse)?,
            weight: either(&self.weight, "--weight", "GPUQUOTA_WEIGHT").read(WEIGHT_FORM, parse_weight)?,
            priority: either(&self.priority, "--priority", "GPUQUOTA_PRIORITY").read(PRIORITY_FORM, parse_priority)?,
        };
        match (quota.guarantee, quota.compute) {
            (Some(guarantee), Some(cap)) if guarantee > cap => {
                Err(Failure::usage(format!("--guarantee {guarantee}: it is above --compute {cap}")))
            }
            _ => Ok(quota),
        }
    }
}

impl InterruptOptions {
    pub(crate) fn grace_ms(&self) -> Result<Option<u64>, Failure> {
        let read = |text: &String| {
            let expected = quota_wire::notice::GRACE_FORM;
            parse_grace(text).map_err(|reason| Failure::usage(format!("--grace {text}: {reason}; expected {expected}")))
        };
        self.grace.as_ref().map(read).transpose()
    }
}

/// What is to follow a notice, checked.
pub(crate) fn action(option: &str, text: Option<&str>) -> Result<Option<Action>, Failure> {
    let read = |text: &str| {
        text.parse().map_err(|reason| Failure::usage(format!("{option} {text}: {reason}; expected {ACTION_FORM}")))
    };
    text.map(read).transpose()
}

impl RunOptions {
    /// How the job is to be told of a notice.
    pub(crate) fn told(&self) -> Result<Told, Failure> {
        let number = |text: &String| {
            let expected = "a signal such as USR1, HUP or TERM";
            signal_number(text)
                .ok_or_else(|| Failure::usage(format!("--notice-signal {text}: it is unknown; expected {expected}")))
        };
        let signal = self.notice_signal.as_ref().map(number).transpose()?;
        Ok(Told { signal, command: self.notice_command.clone() })
    }
}

impl JobOptions {
    /// The tenant's name, checked; `get` as above.
    pub(crate) fn tenant(&self, get: impl Fn(&str) -> Option<String>) -> Result<Option<String>, Failure> {
        Given::new(&self.tenant, "--tenant", "GPUQUOTA_TENANT", &get).read(TENANT_FORM, parse_tenant)
    }
}

/// A value, and where it comes from.
struct Given {
    text: Option<String>,
    /// How a message names it: `--memory ` or `GPUQUOTA_MEMORY=`.
    source: String,
}

impl Given {
    fn new(text: &Option<String>, option: &str, variable: &str, get: &impl Fn(&str) -> Option<String>) -> Self {
        match text {
            Some(text) => Self { text: Some(text.clone()), source: format!("{option} ") },
            None => Self { text: get(variable), source: format!("{variable}=") },
        }
    }

    /// The value; a failure names where it comes from, what it says and what would be right.
    fn read<T, E: core::fmt::Display>(
        self,
        expected: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Failure> {
        let Some(text) = self.text else { return Ok(None) };
        parse(&text).map(Some).map_err(|error| {
            let SettingError { value, reason, .. } = SettingError::new("", &text, error, expected);
            Failure::usage(format!("{}{value}: {reason}; expected {expected}", self.source))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn the_queue_may_have_a_time() {
        let queue = |line: &str| match Options::try_parse_from(line.split(' ')).expect("legal").command {
            Command::Run(options) => (options.queue, options.command),
            other => panic!("{other:?}"),
        };
        assert_eq!(queue("gpuquota run --queue -- a -b"), (Some(String::new()), vec!["a".into(), "-b".into()]));
        assert_eq!(queue("gpuquota run --queue 5m -- a"), (Some("5m".to_owned()), vec!["a".into()]));
        assert_eq!(queue("gpuquota run -- a --queue"), (None, vec!["a".into(), "--queue".into()]));
        assert_eq!(queue("gpuquota run --memory 4G a --memory"), (None, vec!["a".into(), "--memory".into()]));
    }

    #[test]
    fn a_bad_value_is_one_line_that_says_what_would_be_right() {
        let options = QuotaOptions { memory: Some("12Q".to_owned()), ..QuotaOptions::default() };
        let text = options.read().expect_err("no size").text;
        assert!(text.starts_with("--memory 12Q: the unit is unknown; expected a size such as 4GiB"), "{text}");
        let text = QuotaOptions::default().read_with(|_| Some("x".to_owned())).expect_err("no size").text;
        assert!(text.starts_with("GPUQUOTA_MEMORY=x: it is not a number"), "{text}");
        let both = |compute: &str, guarantee: &str| QuotaOptions {
            compute: Some(compute.to_owned()),
            guarantee: Some(guarantee.to_owned()),
            ..QuotaOptions::default()
        };
        assert!(both("30", "40").read().expect_err("too much").text.contains("above --compute 30%"));
        assert!(both("40", "40").read().is_ok());
    }
}
