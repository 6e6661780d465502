//! The audit over the socket: what has happened, to whoever may know it, as fast as it is read.

use super::Server;
use crate::audit::file::{self, now_ms};
use crate::audit::history::Wanted;
use crate::audit::{KEPT_MAX, in_words};
use crate::document::AuditRule;
use crate::log;
use crate::peer::{clean_to, command, is_zombie, start_ticks, user};
use crate::registry::{Action, ConnectionId};
use quota_core::settings::LogLevel;
use quota_wire::audit::{AuditEvent, AuditKind, AuditOlder, AuditPlace, AuditQuery, AuditRow, ROWS_PER_PACKET};
use quota_wire::message::{PACKET_BYTES_MAX, Reply};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Readers at one time, administrators apart.
const READERS_MAX: usize = 64;
/// Packets that wait for a reader before it gets no more for now.
const PACKETS_AHEAD: usize = 8;
/// Bytes of rows in one packet; the rest is for what is around them.
const ROW_BYTES_MAX: usize = PACKET_BYTES_MAX - 1024;
/// Characters of a reason that are kept.
const REASON_BYTES_MAX: usize = 1024;
/// Characters of a name; a longer one is none.
const NAME_BYTES_MAX: usize = 128;
/// How long a process must have been seen on a device: one that has just died is still listed.
const BYPASS_SEEN_MIN: Duration = Duration::from_millis(500);
/// Processes beside ours that are remembered.
const BYPASSES_MAX: usize = 4096;
/// How long the end waits for the disk.
const FINISH_WAIT_MAX: Duration = Duration::from_secs(2);

/// Somebody who reads the audit.
#[derive(Debug)]
pub(super) struct Reader {
    query: AuditQuery,
    /// Sees what is about this user; all, when there is none.
    uid: Option<u32>,
    /// Where it goes on.
    next: u64,
    /// Where it ends, when nothing that comes later is wanted.
    end: Option<u64>,
    /// What isn't kept, as it is told with the last packet.
    older: Option<AuditOlder>,
}

/// Processes that are no members, by pid, start and device: since when, and whether it was told.
pub(super) type Bypasses = HashMap<(u32, u64, usize), (Instant, bool)>;

impl Server {
    /// Begins to write down what happens, after what the daemon before has written.
    pub(super) fn start_audit(&mut self) {
        let rule = self.configuration.document.audit.clone();
        if let Some(rule) = &rule {
            self.audit.remember(rule);
        }
        self.write_audit_to(rule.as_ref());
        let devices = self.registry.devices();
        let document = self.upkeep.document(self.configuration.document_path.as_deref());
        let reason = format!(
            "version {} on {}, {} devices, {document}",
            env!("CARGO_PKG_VERSION"),
            self.configuration.socket.display(),
            devices.len()
        );
        self.record(AuditEvent {
            event: AuditKind::Started,
            pid: Some(std::process::id()),
            uid: Some(rustix::process::getuid().as_raw()),
            devices: devices.iter().map(|device| device.uuid_text.clone()).collect(),
            reason: Some(reason),
            ..AuditEvent::default()
        });
    }

    /// Writes to the file that the document names.
    pub(super) fn write_audit_to(&mut self, rule: Option<&AuditRule>) {
        if let Err(error) = self.audit.write_to(rule) {
            log::line(LogLevel::Error, format_args!("the audit can't be written, there is no thread for it: {error}"));
        }
    }

    /// The last event, and the end of the file.
    pub(super) fn finish_audit(&mut self) {
        let tenants = self.registry.active_tenants();
        let signal = self.upkeep.ended_by;
        let why = signal.map_or_else(|| "nobody has a place".to_owned(), |it| format!("signal {}", it.number));
        self.record(AuditEvent {
            event: AuditKind::Stopped,
            pid: Some(std::process::id()),
            uid: Some(rustix::process::getuid().as_raw()),
            reason: Some(format!("ends ({why}); {tenants} tenants were active")),
            by_uid: signal.and_then(|it| it.uid),
            by_pid: signal.and_then(|it| it.pid),
            ..AuditEvent::default()
        });
        let lost = self.audit.finish(FINISH_WAIT_MAX);
        if lost > 0 {
            log::line(LogLevel::Error, format_args!("the last {lost} audit events are in no file"));
        }
    }

    /// Writes an event down, and tells it in the log.
    pub(super) fn record(&mut self, event: AuditEvent) {
        let level = match event.event {
            AuditKind::Started | AuditKind::Asked => LogLevel::Debug,
            AuditKind::Bypass | AuditKind::Vanished | AuditKind::Driver => LogLevel::Warn,
            _ => LogLevel::Info,
        };
        let event = cleaned(event);
        log::line(level, format_args!("{}", in_words(&event)));
        self.audit.record(event, now_ms());
        let readers: Vec<ConnectionId> = self.readers.keys().copied().collect();
        for reader in readers {
            self.feed(reader);
        }
    }

    /// Says who has changed something, where that isn't known yet.
    pub(super) fn sign(&self, id: ConnectionId, actions: &mut [Action]) {
        let Some(client) = self.clients.get(&id) else { return };
        for action in actions {
            if let Action::Audit(event) = action
                && event.change.is_some()
            {
                (event.by_uid, event.by_pid) = (Some(client.credentials.uid), Some(client.credentials.pid));
            }
        }
    }

    /// Answers who wants to know what has happened.
    pub(super) fn show_audit(&mut self, id: ConnectionId, mut query: AuditQuery) {
        if let Some(before) = query.before.take() {
            return self.show_history(id, query, before);
        }
        let Some(client) = self.clients.get(&id) else { return };
        // Users can't keep the administrator from reading.
        if self.readers.len() >= READERS_MAX && !client.admin {
            let reason = format!("{READERS_MAX} read the audit already");
            return self.send(id, Reply::Refused { reason });
        }
        let mut reader = Reader {
            uid: self.sees(id),
            next: self.audit.begin(),
            end: (!query.follow).then_some(self.audit.end()),
            older: self.older(&query),
            query,
        };
        let since_ms = reader.query.since_ms.unwrap_or_default();
        let wanted: Vec<u64> = (self.audit.begin()..self.audit.end())
            .filter(|place| self.audit.at(*place).is_some_and(|kept| kept.at_ms >= since_ms && reader.wants(&kept.row)))
            .collect();
        let newest = reader.query.newest.map_or(usize::MAX, |newest| newest as usize);
        if newest <= wanted.len() {
            reader.older = None;
        }
        let skipped = wanted.len().saturating_sub(newest);
        reader.next = wanted.get(skipped).copied().unwrap_or(self.audit.end());
        self.readers.insert(id, reader);
        self.feed(id);
    }

    /// What is asked for and isn't kept.
    fn older(&self, query: &AuditQuery) -> Option<AuditOlder> {
        let oldest = self.audit.at(self.audit.begin())?;
        let files = self.audit_rule().is_some();
        // Whatever is in memory, files may hold more of earlier runs.
        let is_all = self.audit.begin() == 0 && !files;
        if is_all || query.since_ms.is_some_and(|since_ms| since_ms > oldest.at_ms) {
            return None;
        }
        let hint = if files {
            "--since and -n look into its files, too"
        } else {
            "older ones are gone (`audit` in its document keeps them)"
        };
        let before = AuditPlace { run: oldest.row.run.clone(), seq: oldest.row.seq };
        Some(AuditOlder { before, files, hint: format!("the daemon keeps {KEPT_MAX} events; {hint}") })
    }

    /// Answers from the files, which takes as long as it takes.
    fn show_history(&mut self, id: ConnectionId, query: AuditQuery, before: AuditPlace) {
        let Some(client) = self.clients.get(&id) else { return };
        let uid = self.sees(id);
        let wanted = Wanted {
            since_ms: query.since_ms.unwrap_or_default(),
            before: (before.run, before.seq),
            newest: query.newest.map(|newest| newest as usize),
            wants: Box::new(move |row| wants(&query, uid, row)),
        };
        let sent = match (self.audit_rule(), client.connection.as_fd().try_clone_to_owned()) {
            (Some(rule), Ok(connection)) => self.history.send(connection.into(), rule, wanted),
            (None, _) => Err("the daemon writes no audit file".to_owned()),
            (_, Err(error)) => Err(error.to_string()),
        };
        if let Err(reason) = sent {
            self.send(id, Reply::Refused { reason });
        }
    }

    /// The user whose events a client may see; all, when there is none.
    fn sees(&self, id: ConnectionId) -> Option<u32> {
        let client = self.clients.get(&id)?;
        (!client.admin && client.credentials.uid != 0).then_some(client.credentials.uid)
    }

    fn audit_rule(&self) -> Option<&AuditRule> {
        self.configuration.document.audit.as_ref()
    }

    /// Gives a reader as much as it takes now.
    pub(super) fn feed(&mut self, id: ConnectionId) {
        while self.clients.get(&id).is_some_and(|client| client.waiting() < PACKETS_AHEAD) {
            let Some(reader) = self.readers.get_mut(&id) else { return };
            let mut rows = Vec::new();
            if reader.next < self.audit.begin() {
                rows.push(self.audit.missed(self.audit.begin() - reader.next, now_ms()));
                reader.next = self.audit.begin();
            }
            let (end, mut bytes) = (reader.end.unwrap_or(self.audit.end()), 0);
            while reader.next < end && rows.len() < ROWS_PER_PACKET {
                let Some(kept) = self.audit.at(reader.next) else { break };
                if reader.wants(&kept.row) {
                    if bytes + kept.line.len() > ROW_BYTES_MAX {
                        break;
                    }
                    bytes += kept.line.len() + 1;
                    rows.push(kept.row.clone());
                }
                reader.next += 1;
            }
            let last = reader.end.is_some_and(|end| reader.next >= end);
            if rows.is_empty() && !last {
                return;
            }
            let older = if last { reader.older.take() } else { None };
            if last {
                self.readers.remove(&id);
            }
            self.send(id, Reply::Audit { rows, last, older });
        }
    }

    /// Writes down who uses a device and is no member: once for each process and device.
    pub(super) fn note_bypasses(&mut self, now: Instant) {
        let mut seen = Bypasses::new();
        let mut fresh = Vec::new();
        for (pid, device) in self.registry.strangers(&self.sample).into_iter().take(BYPASSES_MAX) {
            let Some(start) = start_ticks(pid).filter(|_| !is_zombie(pid)) else { continue };
            let (since, told) = self.bypasses.get(&(pid, start, device)).copied().unwrap_or((now, false));
            let is_due = !told && now.duration_since(since) >= BYPASS_SEEN_MIN;
            if is_due {
                fresh.push((pid, device));
            }
            seen.insert((pid, start, device), (since, told || is_due));
        }
        self.bypasses = seen;
        for (pid, device) in fresh {
            let held =
                self.sample[device].processes.iter().find(|(other, _)| *other == pid).and_then(|(_, held)| *held);
            let held = held.map_or_else(String::new, |bytes| format!(" and holds {}", bytes.human()));
            self.record(AuditEvent {
                event: AuditKind::Bypass,
                uid: user(pid),
                pid: Some(pid),
                command: Some(command(pid)),
                devices: vec![self.registry.devices()[device].uuid_text.clone()],
                reason: Some(format!("it uses device {device} without a quota{held}")),
                ..AuditEvent::default()
            });
        }
    }
}

impl Reader {
    fn wants(&self, row: &AuditRow) -> bool {
        wants(&self.query, self.uid, row)
    }
}

fn wants(query: &AuditQuery, uid: Option<u32>, row: &AuditRow) -> bool {
    let is_lost = row.event.event == AuditKind::Lost;
    query.wants(&row.event) && (is_lost || uid.is_none() || uid == row.event.uid)
}

/// What others wrote, fit to be kept and shown.
fn cleaned(event: AuditEvent) -> AuditEvent {
    AuditEvent {
        tenant: event.tenant.map(|name| clean_to(&name, NAME_BYTES_MAX)),
        command: event.command.map(|command| crate::peer::clean(&command)),
        reason: event.reason.map(|reason| clean_to(&reason, REASON_BYTES_MAX)),
        ..event
    }
}

/// Says whether the document's file can be written.
///
/// # Errors
/// One line that says why not.
pub(super) fn check(rule: Option<&AuditRule>) -> Result<(), String> {
    let Some(rule) = rule else { return Ok(()) };
    file::check(rule).map_err(|error| format!("audit.path: {}: {error}", rule.path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_sees_what_is_about_them_and_that_something_is_missing() {
        let reader = |uid| Reader { query: AuditQuery::default(), uid, next: 0, end: None, older: None };
        let row =
            |uid, event| AuditRow { event: AuditEvent { event, uid, ..AuditEvent::default() }, ..AuditRow::default() };
        for (uid, seen) in [(Some(7), true), (Some(8), false), (None, false)] {
            assert_eq!(reader(Some(7)).wants(&row(uid, AuditKind::Granted)), seen, "{uid:?}");
            assert!(reader(None).wants(&row(uid, AuditKind::Granted)), "an administrator sees all");
        }
        assert!(reader(Some(7)).wants(&row(None, AuditKind::Lost)));
    }

    #[test]
    fn what_others_wrote_is_kept_on_its_line_and_within_bounds() {
        let event = AuditEvent {
            tenant: Some("t".repeat(1000)),
            command: Some("a\nb\u{1b}[2J".to_owned()),
            reason: Some("r".repeat(5000)),
            ..AuditEvent::default()
        };
        let event = cleaned(event);
        assert_eq!(event.command.as_deref(), Some("a b [2J"));
        assert_eq!((event.tenant.map(|it| it.len()), event.reason.map(|it| it.len())), (Some(128), Some(1024)));
    }
}
