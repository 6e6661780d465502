//! What has happened on the node: numbered, kept for those who ask, and written to a file by a thread of its own.
//!
//! The newest events are always kept in memory; a file is written where the document names one ([`file`], [`writer`]). No
//! event is lost unseen: numbers go on without a gap, and what couldn't be written is counted in the file itself.

pub mod file;
pub mod history;
mod words;
mod writer;

use crate::document::AuditRule;
use quota_wire::audit::{AuditEvent, AuditKind, AuditRow};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use writer::Writer;

pub use words::in_words;

/// Events that are kept in memory: about a megabyte.
pub const KEPT_MAX: usize = 1024;

/// The longest event, with all its devices.
const LINE_BYTES_MAX: usize = 48 << 10;

/// An event, as it is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The event.
    pub row: AuditRow,
    /// When it was, in milliseconds since 1970.
    pub at_ms: u64,
    /// Its JSON.
    pub line: Arc<str>,
}

/// The events, as the main thread has them.
#[derive(Debug)]
pub struct Audit {
    run: String,
    seq: u64,
    kept: VecDeque<Kept>,
    /// Events that were kept and aren't any more.
    dropped: u64,
    writer: Option<Writer>,
}

impl Audit {
    /// Nothing has happened yet. `now_ms` since 1970 and `pid` name the run.
    pub fn new(now_ms: u64, pid: u32) -> Self {
        Self { run: format!("{now_ms:x}-{pid:x}"), seq: 0, kept: VecDeque::new(), dropped: 0, writer: None }
    }

    /// Writes to a file from now on, or to none.
    ///
    /// # Errors
    /// When the kernel gives no thread. That the file can't be written is no error here: it is tried again.
    pub fn write_to(&mut self, rule: Option<&AuditRule>) -> io::Result<()> {
        match (rule, &self.writer) {
            (None, _) => self.writer = None,
            (Some(rule), Some(writer)) => writer.set_rule(rule),
            (Some(rule), None) => self.writer = Some(Writer::start(rule, &self.run, self.seq)?),
        }
        Ok(())
    }

    /// Takes over what a daemon before this one has written, to show it.
    pub fn remember(&mut self, rule: &AuditRule) {
        for line in file::last_lines(&rule.path, KEPT_MAX) {
            // None of ours: no packet could hold it.
            if line.len() > LINE_BYTES_MAX {
                continue;
            }
            let Ok(row) = serde_json::from_str::<AuditRow>(&line) else { continue };
            let at_ms = humantime::parse_rfc3339(&row.time).map_or(0, file::since_1970_ms);
            self.keep(Kept { row, at_ms, line: line.into() });
        }
    }

    /// Gives an event its number and time.
    pub fn record(&mut self, event: AuditEvent, now_ms: u64) {
        self.seq += 1;
        let row = AuditRow { time: file::in_rfc3339(now_ms), run: self.run.clone(), seq: self.seq, event };
        let line: Arc<str> = serde_json::to_string(&row).unwrap_or_default().into();
        if let Some(writer) = &self.writer {
            writer.write(self.seq, Arc::clone(&line));
        }
        self.keep(Kept { row, at_ms: now_ms, line });
    }

    fn keep(&mut self, kept: Kept) {
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back(kept);
    }

    /// The place behind the newest event; places count up for as long as the daemon runs.
    pub fn end(&self) -> u64 {
        self.dropped + self.kept.len() as u64
    }

    /// The place of the oldest event that is kept.
    pub fn begin(&self) -> u64 {
        self.dropped
    }

    /// The event at a place, while it is kept.
    pub fn at(&self, place: u64) -> Option<&Kept> {
        self.kept.get(usize::try_from(place.checked_sub(self.dropped)?).ok()?)
    }

    /// Stands for events that a reader was too slow for.
    pub fn missed(&self, count: u64, now_ms: u64) -> AuditRow {
        let reason = Some("they came faster than they were read".to_owned());
        let event = AuditEvent { event: AuditKind::Lost, lost: Some(count), reason, ..AuditEvent::default() };
        let before = self.kept.front().map_or(0, |kept| kept.row.seq.saturating_sub(1));
        AuditRow { time: file::in_rfc3339(now_ms), run: self.run.clone(), seq: before, event }
    }

    /// Writes what is left, for at most `patience`; says how many events are in no file.
    pub fn finish(&mut self, patience: Duration) -> u64 {
        self.writer.take().map_or(0, |writer| writer.finish(self.seq, patience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(tenant: &str) -> AuditEvent {
        AuditEvent { event: AuditKind::Asked, tenant: Some(tenant.to_owned()), ..AuditEvent::default() }
    }

    #[test]
    fn the_newest_are_kept_and_places_go_on() {
        let mut audit = Audit::new(0x1234, 7);
        for number in 0..KEPT_MAX as u64 + 10 {
            audit.record(event("t"), number);
        }
        assert_eq!((audit.begin(), audit.end()), (10, KEPT_MAX as u64 + 10));
        assert!(audit.at(9).is_none() && audit.at(audit.end()).is_none());
        let first = audit.at(10).expect("kept");
        assert_eq!((first.row.seq, first.at_ms, first.row.run.as_str()), (11, 10, "1234-7"));
        assert_eq!(audit.missed(4, 0).seq, 10, "the last of those that are missing");
    }

    #[test]
    fn a_new_run_shows_what_the_one_before_wrote() {
        let folder = std::env::temp_dir().join(format!("gpuquota-audit-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let rule = AuditRule { path: folder.join("audit.jsonl"), keep: Duration::from_secs(3600) };
        let mut first = Audit::new(1, 1);
        first.write_to(Some(&rule)).expect("a thread");
        first.record(event("old"), file::now_ms());
        assert_eq!(first.finish(Duration::from_secs(5)), 0);
        let mut second = Audit::new(2, 1);
        second.remember(&rule);
        second.write_to(Some(&rule)).expect("a thread");
        second.record(event("new"), file::now_ms());
        let rows: Vec<(&str, u64)> = (0..second.end())
            .map(|at| &second.at(at).expect("kept").row)
            .map(|row| (row.run.as_str(), row.seq))
            .collect();
        assert_eq!(rows, [("1-1", 1), ("2-1", 1)]);
        assert_eq!(second.finish(Duration::from_secs(5)), 0);
        assert_eq!(file::last_lines(&rule.path, 10).len(), 2);
        std::fs::remove_dir_all(folder).expect("ours");
    }
}
