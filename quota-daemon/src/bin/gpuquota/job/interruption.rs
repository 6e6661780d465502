//! What `run` does while its job runs: hears from the daemon that the job has to make room, and does to it what only somebody
//! beside it can do. The job's own processes hear of it by their quota page.

use crate::mover;
use quota_daemon::movers::{MOVE_WAIT, outcome};
use quota_daemon::signals::Signals;
use quota_wire::message::{PROTOCOL_VERSION, Reply, Request};
use quota_wire::notice::{Event, JobNotice};
use quota_wire::socket::{Connection, WireError};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Pause between two attempts to find a daemon again.
const RETURN_PAUSE: Duration = Duration::from_secs(1);
/// How long a daemon that is there may take to answer.
const RETURN_WAIT: Duration = Duration::from_millis(500);
/// How long a notice's command may go on after the grace.
const COMMAND_BEYOND: Duration = Duration::from_secs(10);
/// How often a child of ours is looked at that has a deadline; its end wakes us anyhow.
const LOOK: Duration = Duration::from_millis(500);
/// Packets that are read at a time.
const PACKETS_MAX: usize = 64;

/// How the job is told, as it asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) signal: Option<i32>,
    pub(crate) command: Option<OsString>,
}

/// A child of ours, and until when.
struct Helper {
    child: Child,
    until: Instant,
}

/// The job, as far as interruptions go.
pub(crate) struct Interruption {
    connection: Option<Connection>,
    socket: PathBuf,
    tenant: String,
    told: Told,
    /// For what moves the job's memory: it is a process of the job.
    environment: Vec<(String, String)>,
    next_return: Instant,
    /// The last notice, so that one that comes again from another daemon is known.
    last: Option<(u32, Event)>,
    command: Option<Helper>,
    mover: Option<(u32, Helper)>,
    /// What became of the last move, until the daemon has heard it.
    moved: Option<(u32, Option<String>)>,
    kill_at: Option<Instant>,
    ended: Option<String>,
}

impl Interruption {
    pub(crate) fn new(
        connection: Connection,
        socket: PathBuf,
        tenant: String,
        told: Told,
        environment: Vec<(String, String)>,
    ) -> Self {
        Self {
            connection: Some(connection),
            socket,
            tenant,
            told,
            environment,
            next_return: Instant::now(),
            last: None,
            command: None,
            mover: None,
            moved: None,
            kill_at: None,
            ended: None,
        }
    }

    /// What says that there is something to do.
    pub(crate) fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(Connection::as_fd)
    }

    /// How long nothing is to be done; for ever, most of the time.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let helpers = [self.command.as_ref(), self.mover.as_ref().map(|(_, helper)| helper)];
        let looks = helpers.iter().any(Option::is_some).then_some(LOOK);
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let returns = self.connection.is_none().then(|| left(self.next_return));
        [looks, returns, self.kill_at.map(left)].into_iter().flatten().min()
    }

    /// Why the job was ended, where it was. It has ended: nothing is done to it any more, but the daemon may have said why.
    pub(crate) fn ended(&mut self) -> Option<&str> {
        let packets = (0..PACKETS_MAX).map_while(|_| self.connection.as_ref()?.receive::<Reply>().ok());
        let ends = |(reply, _)| match reply {
            Reply::Notice(notice) if notice.event == Event::End => Some(notice),
            _ => None,
        };
        let last = packets.filter_map(ends).last();
        if let Some(notice) = last {
            self.ended = Some(self.ending(&notice));
        }
        self.ended.as_deref()
    }

    fn ending(&self, notice: &JobNotice) -> String {
        format!("tenant {} was ended ({}, for {})", self.tenant, notice.reason.word(), notice.cause)
    }

    /// Does what there is to do.
    pub(crate) fn turn(&mut self, job: &Child, signals: &Signals) {
        self.look_after_helpers();
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            self.kill_at = None;
            send(job, Signal::KILL);
        }
        if self.connection.is_none() && self.next_return <= Instant::now() {
            self.come_back();
        }
        self.say_what_moved();
        for _ in 0..PACKETS_MAX {
            let Some(connection) = &self.connection else { return };
            match connection.receive::<Reply>() {
                Ok((Reply::Notice(notice), _)) => self.hear(&notice, job, signals),
                Ok(_) | Err(WireError::Malformed(_)) => {}
                Err(WireError::WouldBlock) => return,
                Err(_) => {
                    // The daemon is gone; the next one takes the job back, and then us.
                    self.connection = None;
                    self.next_return = Instant::now() + RETURN_PAUSE;
                }
            }
        }
    }

    fn come_back(&mut self) {
        self.next_return = Instant::now() + RETURN_PAUSE;
        let deadline = Instant::now() + RETURN_WAIT;
        let Ok(connection) = Connection::connect(&self.socket, deadline) else { return };
        let request = Request::Return { version: PROTOCOL_VERSION, tenant: self.tenant.clone() };
        // One that doesn't know the job is left alone, and asked again: it may not have been the last one either.
        if let Ok((Reply::Done { .. }, _)) = connection.ask(&request, deadline) {
            self.connection = Some(connection);
        }
    }

    fn hear(&mut self, notice: &JobNotice, job: &Child, signals: &Signals) {
        if self.last == Some((notice.number, notice.event)) {
            return;
        }
        self.last = Some((notice.number, notice.event));
        let tenant = &self.tenant;
        let why = format!("{}, for {}", notice.reason.word(), notice.cause);
        let seconds = notice.grace_ms as f64 / 1000.0;
        match notice.event {
            Event::Notice => {
                say(format_args!("tenant {tenant} has to make room ({why}): {} in {seconds} s", notice.action));
                if let Some(signal) = self.told.signal.and_then(Signal::from_named_raw) {
                    send(job, signal);
                }
                self.run_command(notice, job, signals);
            }
            Event::Interrupted => say(format_args!("tenant {tenant} is interrupted ({why})")),
            Event::Resumed => say(format_args!("tenant {tenant} goes on")),
            Event::End => self.end(notice, job),
            Event::Checkpoint | Event::Restore => self.start_mover(notice, signals),
        }
    }

    /// Asks the job to end. What uses the device has been asked by the daemon: nobody is asked twice.
    fn end(&mut self, notice: &JobNotice, job: &Child) {
        self.ended = Some(self.ending(notice));
        if notice.grace_ms == 0 {
            return send(job, Signal::KILL);
        }
        if !notice.pids.contains(&job.id()) {
            send(job, Signal::TERM);
        }
        self.kill_at = Some(Instant::now() + Duration::from_millis(notice.grace_ms));
    }

    fn run_command(&mut self, notice: &JobNotice, job: &Child, signals: &Signals) {
        let Some(text) = &self.told.command else { return };
        if let Some(mut before) = self.command.take() {
            end(&mut before);
        }
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(text).stdin(Stdio::null()).stdout(std::io::stderr());
        command.env("GPUQUOTA_NOTICE_TENANT", &self.tenant);
        command.env("GPUQUOTA_NOTICE_PID", job.id().to_string());
        command.env("GPUQUOTA_NOTICE_REASON", notice.reason.word());
        command.env("GPUQUOTA_NOTICE_CAUSE", &notice.cause);
        command.env("GPUQUOTA_NOTICE_ACTION", notice.action.to_string());
        command.env("GPUQUOTA_NOTICE_GRACE", notice.grace_ms.div_ceil(1000).to_string());
        signals.unblock_in(&mut command);
        let until = Instant::now() + Duration::from_millis(notice.grace_ms) + COMMAND_BEYOND;
        match command.spawn() {
            Ok(child) => self.command = Some(Helper { child, until }),
            Err(error) => say(format_args!("--notice-command: {error}")),
        }
    }

    fn start_mover(&mut self, notice: &JobNotice, signals: &Signals) {
        if let Some((_, mut before)) = self.mover.take() {
            end(&mut before);
        }
        let started = mover::command(notice).and_then(|mut command| {
            command.envs(self.environment.iter().map(|(name, value)| (name, value)));
            // What it says is read at its end, and is to be one line.
            command.env("GPUQUOTA_LOG", "error");
            signals.unblock_in(&mut command);
            command.spawn().map_err(|error| error.to_string())
        });
        match started {
            Ok(child) => self.mover = Some((notice.number, Helper { child, until: Instant::now() + MOVE_WAIT })),
            Err(reason) => self.moved = Some((notice.number, Some(reason))),
        }
        self.say_what_moved();
    }

    fn look_after_helpers(&mut self) {
        if self.command.as_mut().is_some_and(is_over) {
            self.command = None;
        }
        let Some((number, helper)) = self.mover.as_mut() else { return };
        if !is_over(helper) {
            return;
        }
        let failed = outcome(&mut helper.child);
        if let Some(reason) = &failed {
            say(format_args!("tenant {}: {reason}", self.tenant));
        }
        self.moved = Some((*number, failed));
        self.mover = None;
    }

    fn say_what_moved(&mut self) {
        let (Some(connection), Some((notice, failed))) = (&self.connection, &self.moved) else { return };
        let request = Request::Moved { notice: *notice, failed: failed.clone() };
        if connection.send(&request, &[]).is_ok() {
            self.moved = None;
        }
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        for helper in [self.command.as_mut(), self.mover.as_mut().map(|(_, helper)| helper)].into_iter().flatten() {
            end(helper);
        }
    }
}

/// True once a helper has ended, by itself or because its time was over.
fn is_over(helper: &mut Helper) -> bool {
    if helper.until <= Instant::now() {
        end(helper);
    }
    !matches!(helper.child.try_wait(), Ok(None))
}

/// Kills a helper. One that hangs in the driver dies when that lets it go, which is not waited for.
fn end(helper: &mut Helper) {
    let _ = helper.child.kill();
    let _ = helper.child.try_wait();
}

fn say(text: core::fmt::Arguments<'_>) {
    eprintln!("gpuquota: {text}");
}

fn send(job: &Child, signal: Signal) {
    if let Some(pid) = Pid::from_raw(job.id().cast_signed()) {
        // It may have ended just now; then there is nobody to tell.
        let _ = kill_process(pid, signal);
    }
}

/// The number of a signal by its name, such as USR1 or SIGUSR1, or by its number.
pub(crate) fn signal_number(text: &str) -> Option<i32> {
    const NAMES: [(&str, i32); 12] = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("ALRM", libc::SIGALRM),
        ("TERM", libc::SIGTERM),
        ("CONT", libc::SIGCONT),
        ("URG", libc::SIGURG),
        ("WINCH", libc::SIGWINCH),
        ("IO", libc::SIGIO),
        ("PWR", libc::SIGPWR),
    ];
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    named.or_else(|| text.parse().ok().filter(|number| NAMES.iter().any(|(_, known)| known == number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        assert_eq!(signal_number("USR1"), Some(libc::SIGUSR1));
        assert_eq!(signal_number("sigusr2"), Some(libc::SIGUSR2));
        assert_eq!(signal_number("10"), Some(10));
        for none in ["KILL", "9", "SIG", "", "STOP", "0", "-1", "65"] {
            assert_eq!(signal_number(none), None, "{none}");
        }
    }
}
