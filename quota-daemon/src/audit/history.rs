//! Events that are no longer kept in memory: read from the files and sent by a thread of its own, since a disk may be slow and a
//! reader slower.

use super::file::{AuditFile, since_1970_ms};
use crate::document::AuditRule;
use crate::log;
use quota_core::settings::LogLevel;
use quota_wire::audit::{AuditRow, ROWS_PER_PACKET};
use quota_wire::message::Reply;
use quota_wire::socket::{Connection, WireError};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads at one time.
const THREADS_MAX: usize = 2;
/// The newest of those in the files that can be asked for by their number.
const NEWEST_MAX: usize = 10_000;
/// A reader that takes nothing for so long, in seconds, is gone.
const PATIENCE_S: i64 = 10;
/// Bytes of rows in one packet.
const PACKET_ROWS_BYTES_MAX: usize = 60 << 10;

/// How many threads there are.
#[derive(Clone, Debug, Default)]
pub struct Readers(Arc<AtomicUsize>);

/// What is wanted.
pub struct Wanted {
    /// Which events.
    pub wants: Box<dyn Fn(&AuditRow) -> bool + Send>,
    /// Not before this time, in milliseconds since 1970.
    pub since_ms: u64,
    /// Before this one: run and number.
    pub before: (String, u64),
    /// Only so many, the newest.
    pub newest: Option<usize>,
}

impl Readers {
    /// Sends what is wanted from a rule's files.
    ///
    /// # Errors
    /// One line: there are too many at it, or there is no thread.
    pub fn send(&self, connection: Connection, rule: &AuditRule, wanted: Wanted) -> Result<(), String> {
        if self.0.fetch_add(1, Ordering::AcqRel) >= THREADS_MAX {
            self.0.fetch_sub(1, Ordering::AcqRel);
            return Err(format!("{THREADS_MAX} read old events already; try again later"));
        }
        let (count, rule) = (Arc::clone(&self.0), rule.clone());
        let work = move || {
            crate::threads::test_fault("audit-history");
            let mut sender = Sender { connection, rows: Vec::new(), bytes: 0 };
            if let Err(error) = read(&rule, &wanted, &mut sender).and_then(|()| sender.send(true)) {
                let reason = format!("old audit events could not all be told: {error}");
                log::line(LogLevel::Warn, format_args!("{reason}"));
                // Whoever is still there learns of it.
                let _ = sender.connection.send(&Reply::Refused { reason }, &[]);
            }
            count.fetch_sub(1, Ordering::AcqRel);
        };
        let started = std::thread::Builder::new().name("audit-history".to_owned()).spawn(work);
        started.map(drop).map_err(|error| {
            self.0.fetch_sub(1, Ordering::AcqRel);
            format!("there is no thread: {error}")
        })
    }
}

fn read(rule: &AuditRule, wanted: &Wanted, sender: &mut Sender) -> io::Result<()> {
    let mut newest = VecDeque::new();
    let newest_max = wanted.newest.map(|newest| newest.min(NEWEST_MAX));
    'files: for path in AuditFile::new(rule).all(wanted.since_ms)? {
        for line in BufReader::new(File::open(path)?).split(b'\n') {
            let line = line?;
            // A line that is cut off, or not ours.
            let Ok(row) = serde_json::from_slice::<AuditRow>(&line) else { continue };
            if row.run == wanted.before.0 && row.seq >= wanted.before.1 {
                break 'files;
            }
            let at_ms = humantime::parse_rfc3339(&row.time).map_or(0, since_1970_ms);
            if at_ms < wanted.since_ms || line.len() > PACKET_ROWS_BYTES_MAX || !(wanted.wants)(&row) {
                continue;
            }
            match newest_max {
                None => sender.push(row, line.len())?,
                Some(most) => {
                    newest.push_back((row, line.len()));
                    if newest.len() > most {
                        newest.pop_front();
                    }
                }
            }
        }
    }
    newest.into_iter().try_for_each(|(row, bytes)| sender.push(row, bytes))
}

struct Sender {
    connection: Connection,
    rows: Vec<AuditRow>,
    bytes: usize,
}

impl Sender {
    fn push(&mut self, row: AuditRow, bytes: usize) -> io::Result<()> {
        if self.rows.len() == ROWS_PER_PACKET || self.bytes + bytes > PACKET_ROWS_BYTES_MAX {
            self.send(false)?;
        }
        self.bytes += bytes + 1;
        self.rows.push(row);
        Ok(())
    }

    fn send(&mut self, last: bool) -> io::Result<()> {
        let reply = Reply::Audit { rows: std::mem::take(&mut self.rows), last, older: None };
        self.bytes = 0;
        loop {
            match self.connection.send(&reply, &[]) {
                Ok(()) => return Ok(()),
                Err(WireError::WouldBlock) => {}
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
            let patience = rustix::event::Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
            if poll(&mut [PollFd::new(&self.connection, PollFlags::OUT)], Some(&patience))? == 0 {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the reader doesn't read"));
            }
        }
    }
}
