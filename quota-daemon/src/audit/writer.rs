//! The thread that writes the audit file, so that a slow or broken disk never makes the daemon wait.
//!
//! Lines wait for it in a bounded queue. One that can't be written is tried again, and those behind it wait. What the queue has
//! no room for shows as a gap in the numbers, in whose place the thread writes how many are missing.

use super::file::{AuditFile, in_rfc3339, now_ms};
use crate::document::AuditRule;
use crate::log;
use quota_core::settings::LogLevel;
use quota_wire::audit::{AuditEvent, AuditKind, AuditRow};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines that wait to be written: a few megabytes at the most, and what a thousand clients cause in some seconds.
const QUEUE_MAX: usize = 4096;
/// Between two attempts to write a line.
const RETRY: Duration = Duration::from_secs(1);
/// What was written is safe from a loss of power so much later at the latest.
const SYNC: Duration = Duration::from_secs(1);
/// How often it is looked for files to be removed, when nothing else happens.
const IDLE: Duration = Duration::from_secs(3600);

/// The thread, as the main thread has it.
#[derive(Debug)]
pub(super) struct Writer {
    /// None once it is to end.
    lines: Option<SyncSender<(u64, Arc<str>)>>,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    /// Hung up by the thread when it ends.
    end: Receiver<()>,
}

#[derive(Debug)]
struct Shared {
    rule: Mutex<AuditRule>,
    /// The newest event for which there was no room. Stored after what came before it was sent, and read before the queue
    /// is found empty, so that nothing before it can still be on its way then.
    dropped: AtomicU64,
    /// Every event up to this one is in the file, by itself or counted.
    written: AtomicU64,
    /// To give up what can't be written.
    ending: AtomicBool,
}

impl Writer {
    /// Starts the thread. Events up to number `seq` of `run` are not its business.
    pub(super) fn start(rule: &AuditRule, run: &str, seq: u64) -> io::Result<Self> {
        Self::with_queue(rule, run, seq, QUEUE_MAX)
    }

    fn with_queue(rule: &AuditRule, run: &str, seq: u64, queue_max: usize) -> io::Result<Self> {
        let (lines, queue) = sync_channel(queue_max);
        let (ended, end) = sync_channel(0);
        let shared = Arc::new(Shared {
            rule: Mutex::new(rule.clone()),
            dropped: AtomicU64::new(seq),
            written: AtomicU64::new(seq),
            ending: AtomicBool::new(false),
        });
        let work = Work::new(rule, run, seq, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(move || {
            work.run(&queue);
            drop(ended);
        })?;
        Ok(Self { lines: Some(lines), shared, thread, end })
    }

    /// Writes elsewhere, or keeps for another time, from now on.
    pub(super) fn set_rule(&self, rule: &AuditRule) {
        *self.shared.rule.lock().unwrap_or_else(PoisonError::into_inner) = rule.clone();
        self.thread.thread().unpark();
    }

    /// Has a line written, some time.
    pub(super) fn write(&self, seq: u64, line: Arc<str>) {
        let Some(lines) = &self.lines else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = lines.try_send((seq, line)) {
            self.shared.dropped.store(seq, Ordering::Release);
        }
    }

    /// Waits until everything up to number `seq` is written, for at most `patience`; says how much is not.
    pub(super) fn finish(mut self, seq: u64, patience: Duration) -> u64 {
        self.lines = None;
        self.shared.ending.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // A thread that hangs in the kernel is left behind.
        let _ = self.end.recv_timeout(patience);
        seq.saturating_sub(self.shared.written.load(Ordering::Acquire))
    }
}

/// What the thread has.
struct Work {
    shared: Arc<Shared>,
    rule: AuditRule,
    file: AuditFile,
    run: String,
    /// As `Shared::written`.
    written: u64,
    /// The last attempt failed, with this.
    failing: Option<String>,
    /// Why events may be missing: the last failure since the queue was empty.
    cause: Option<String>,
    /// Since something was written that a loss of power would take.
    unsynced: Option<Instant>,
}

impl Work {
    fn new(rule: &AuditRule, run: &str, written: u64, shared: Arc<Shared>) -> Self {
        let file = AuditFile::new(rule);
        let (rule, run) = (rule.clone(), run.to_owned());
        Self { shared, rule, file, run, written, failing: None, cause: None, unsynced: None }
    }

    fn run(mut self, queue: &Receiver<(u64, Arc<str>)>) {
        self.tidy();
        loop {
            let dropped = self.shared.dropped.load(Ordering::Acquire);
            let next = match queue.try_recv() {
                Ok(next) => Some(next),
                Err(_) if dropped > self.written => None,
                Err(_) => match self.wait(queue) {
                    Ok(next) => Some(next),
                    Err(RecvTimeoutError::Timeout) => {
                        if self.unsynced.is_none() {
                            self.tidy();
                        }
                        self.sync();
                        continue;
                    }
                    // What was dropped last may have been dropped just now.
                    Err(RecvTimeoutError::Disconnected) => {
                        if self.shared.dropped.load(Ordering::Acquire) > self.written {
                            continue;
                        }
                        return self.sync();
                    }
                },
            };
            crate::threads::test_fault("audit");
            let (seq, line) = next.map_or((dropped, None), |(seq, line)| (seq, Some(line)));
            while !self.try_write(seq, line.as_deref()) {
                if self.shared.ending.load(Ordering::Acquire) {
                    return;
                }
                std::thread::park_timeout(RETRY);
            }
        }
    }

    /// Sleeps until there is something to write, or something else to do.
    fn wait(&mut self, queue: &Receiver<(u64, Arc<str>)>) -> Result<(u64, Arc<str>), RecvTimeoutError> {
        self.cause = None;
        queue.recv_timeout(if self.unsynced.is_some() { SYNC } else { IDLE })
    }

    /// Writes what is missing before event `seq`, then the event itself, or that it is missing too.
    fn try_write(&mut self, seq: u64, line: Option<&str>) -> bool {
        self.follow_rule();
        let missing_to = if line.is_some() { seq - 1 } else { seq };
        if missing_to > self.written {
            let text = self.loss(missing_to);
            if !self.append(&text, missing_to) {
                return false;
            }
        }
        line.is_none_or(|line| self.append(line, seq))
    }

    fn append(&mut self, line: &str, seq: u64) -> bool {
        match self.file.append(line, now_ms()) {
            Ok(removed) => {
                self.succeeded(removed);
                self.written = seq;
                self.shared.written.store(seq, Ordering::Release);
                if self.unsynced.get_or_insert_with(Instant::now).elapsed() >= SYNC {
                    self.sync();
                }
                true
            }
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    /// The line that stands for the events from the first that is missing to number `to`.
    fn loss(&self, to: u64) -> String {
        let count = to - self.written;
        let reason = self.cause.clone().unwrap_or_else(|| "they came faster than they could be written".to_owned());
        log::line(LogLevel::Error, format_args!("{count} audit events are not in the file: {reason}"));
        let event =
            AuditEvent { event: AuditKind::Lost, lost: Some(count), reason: Some(reason), ..AuditEvent::default() };
        let row = AuditRow { time: in_rfc3339(now_ms()), run: self.run.clone(), seq: to, event };
        serde_json::to_string(&row).unwrap_or_default()
    }

    fn failed(&mut self, error: &io::Error) {
        let text = format!("{}: {error}", self.rule.path.display());
        if self.failing.as_ref() != Some(&text) {
            log::line(LogLevel::Error, format_args!("the audit can't be written: {text}; goes on trying"));
            self.failing = Some(text.clone());
        }
        self.cause = Some(text);
    }

    fn succeeded(&mut self, removed: usize) {
        if self.failing.take().is_some() {
            log::line(LogLevel::Info, format_args!("the audit is written again"));
        }
        if removed > 0 {
            let text = format!("{removed} audit files were removed before their time: all together were too large");
            log::line(LogLevel::Warn, format_args!("{text}"));
        }
    }

    fn follow_rule(&mut self) {
        let rule = self.shared.rule.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if rule != self.rule {
            self.sync();
            self.file = AuditFile::new(&rule);
            self.rule = rule;
            self.tidy();
        }
    }

    /// Removes what is too old. That it can't is said when the next line can't be written, or not at all.
    fn tidy(&mut self) {
        if let Ok(removed) = self.file.prune(now_ms())
            && removed > 0
        {
            self.succeeded(removed);
        }
    }

    fn sync(&mut self) {
        self.unsynced = None;
        if let Err(error) = self.file.sync() {
            log::line(LogLevel::Error, format_args!("{}: {error}", self.rule.path.display()));
        }
    }
}

#[cfg(test)]
mod tests;
