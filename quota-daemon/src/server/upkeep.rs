//! The document while the daemon runs, and what is mended from time to time: sockets that are gone, records that could not be written.

use super::listening::Found;
use super::{Server, TOKEN_FOLDER, audit};
use crate::audit::file::{in_rfc3339, now_ms};
use crate::devices::Inventory;
use crate::document::Document;
use crate::log;
use crate::registry::{Action, Registry};
use crate::signals::Received;
use crate::survival::{AppliedDocument, Store};
use quota_core::settings::LogLevel;
use quota_wire::audit::{AuditEvent, AuditKind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two attempts to write what could not be written.
const RETRY: Duration = Duration::from_secs(1);
/// How long it is waited for somebody to be done with the sockets' folder.
const SETTLE: Duration = Duration::from_millis(200);
/// How often it is looked for the sockets where the kernel doesn't tell, and whether a rival is gone.
const LOOK: Duration = Duration::from_secs(5);

/// What is to be done some time.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    retry_at: Option<Instant>,
    look_at: Option<Instant>,
    /// What is wrong with the sockets, as last told.
    told: Vec<String>,
    /// The document that holds instead of the file.
    applied: Option<AppliedDocument>,
    /// The signal that has ended the daemon.
    pub(super) ended_by: Option<Received>,
}

impl Upkeep {
    /// When there is something to do; never, most of the time.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.retry_at, self.look_at].into_iter().flatten().min()
    }

    /// The document that holds, in a few words.
    pub(super) fn document(&self, path: Option<&Path>) -> String {
        match (&self.applied, path) {
            (Some(applied), _) => format!("the document applied at {}", applied.applied),
            (None, Some(path)) => format!("document {}", path.display()),
            (None, None) => "no document".to_owned(),
        }
    }
}

impl Server {
    /// Has the kernel tell when something happens to the sockets.
    pub(super) fn watch_folder(&mut self) {
        let is_watched = self.listening.watched().is_some_and(|folder| match self.watch(&folder, TOKEN_FOLDER) {
            Err(error) => error.kind() == std::io::ErrorKind::AlreadyExists,
            Ok(()) => true,
        });
        self.upkeep.look_at = (!is_watched).then(|| Instant::now() + LOOK);
    }

    /// What is due.
    pub(super) fn keep_up(&mut self, now: Instant) {
        if self.upkeep.look_at.is_some_and(|at| at <= now) {
            self.mend();
        }
        if self.upkeep.retry_at.is_some_and(|at| at <= now) {
            self.store.retry();
            self.upkeep.retry_at = None;
        }
        if self.store.is_behind() && self.upkeep.retry_at.is_none() {
            self.upkeep.retry_at = Some(now + RETRY);
        }
    }

    /// Something in the sockets' folder is gone. Whoever removes the folder itself isn't disturbed.
    pub(super) fn folder_has_changed(&mut self) {
        self.listening.drain();
        let soon = Instant::now() + SETTLE;
        self.upkeep.look_at = Some(self.upkeep.look_at.map_or(soon, |at| at.min(soon)));
    }

    /// Makes the sockets again that somebody has removed, and the records.
    fn mend(&mut self) {
        self.pause_accepting(true);
        let found = self.listening.mend();
        self.watch_folder();
        let (mut wrong, mut again) = (Vec::new(), None);
        for found in found {
            match found {
                Found::MadeAgain(path) => {
                    let path = path.display();
                    log::line(LogLevel::Warn, format_args!("{path} was removed by somebody; it is made again"));
                }
                Found::Rival(path, pid) => {
                    let text = format!("{}: another daemon answers there, process {pid}", path.display());
                    wrong.push(format!("{text}; jobs that start now are not ours"));
                    again = again.or(Some(LOOK));
                }
                Found::Lost(path, reason) => {
                    wrong.push(format!("{} was removed and can't be made again: {reason}", path.display()));
                    again = Some(RETRY);
                }
            }
        }
        for text in wrong.iter().filter(|text| !self.upkeep.told.contains(text)) {
            log::line(LogLevel::Error, format_args!("{text}"));
        }
        if let Some(again) = again {
            self.upkeep.look_at = Some(Instant::now() + again);
        }
        // Of a folder that is just being removed, nothing is to be made.
        let is_whole = wrong.is_empty();
        self.upkeep.told = wrong;
        if is_whole && !Store::place(&self.configuration.socket).exists() {
            self.make_records_again();
        }
    }

    fn make_records_again(&mut self) {
        match Store::open(&self.configuration.socket) {
            Ok(store) => self.store = store,
            Err(error) => return log::line(LogLevel::Error, format_args!("the records can't be made again: {error}")),
        }
        if let Some(applied) = &self.upkeep.applied {
            let _ = self.store.keep_document(applied);
        }
        let _ = self.store.keep_drained(self.registry.drained_uuids());
        self.registry.all_changed();
        self.keep_changes();
        log::line(LogLevel::Warn, format_args!("the records were removed by somebody; they are made again"));
    }

    /// Has the document hold that was applied last, unless the file has changed since.
    pub(super) fn take_document(&mut self, inventory: &Inventory) {
        let kept = match self.store.document() {
            Ok(Some(kept)) => kept,
            Ok(None) => return,
            Err(error) => {
                let text = format!("the document that was applied can't be read: {error}; the file holds");
                return log::line(LogLevel::Error, format_args!("{text}"));
            }
        };
        let (path, since) = (self.configuration.document_path.clone(), kept.applied.clone());
        if kept.file != path || kept.file_text != self.file_text() {
            let file = path.map_or_else(|| "--config".to_owned(), |path| path.display().to_string());
            let text = format!("{file} has changed since a document was applied at {since}: the file holds");
            log::line(LogLevel::Warn, format_args!("{text}"));
            return self.store.forget_document();
        }
        let document =
            Document::parse(&kept.document).and_then(Document::with_secrets).map_err(|error| error.to_string());
        let registry = document
            .and_then(|document| Ok((Registry::new(inventory, &document, self.configuration.overrides)?, document)));
        match registry {
            Ok((registry, document)) => {
                self.arbiter.set_rules(registry.rules());
                (self.registry, self.configuration.document) = (registry, document);
                log::line(LogLevel::Info, format_args!("the document that was applied at {since} holds"));
                self.upkeep.applied = Some(kept);
            }
            Err(reason) => {
                let text = format!("the document that was applied at {since} can't be used: {reason}; the file holds");
                log::line(LogLevel::Error, format_args!("{text}"));
            }
        }
    }

    fn file_text(&self) -> Option<String> {
        std::fs::read_to_string(self.configuration.document_path.as_ref()?).ok()
    }

    /// Reads the file again; it then holds, whatever was applied.
    pub(super) fn reload(&mut self, path: &Path, signal: &Received) {
        let mut actions = Vec::new();
        let loaded = Document::load(path).map_err(|error| error.to_string());
        match loaded.and_then(|document| self.replace(document, &mut actions)) {
            Ok(_) => {
                self.upkeep.applied = None;
                self.store.forget_document();
            }
            Err(reason) => {
                let reason = format!("{}: {reason}; the old document still holds", path.display());
                log::line(LogLevel::Error, format_args!("{reason}"));
                let (change, reason) = (Some("reload".to_owned()), Some(reason));
                let event = AuditEvent { event: AuditKind::Refused, change, reason, ..AuditEvent::default() };
                actions.push(Action::Audit(Box::new(event)));
            }
        }
        for action in &mut actions {
            if let Action::Audit(event) = action
                && event.change.is_some()
            {
                event.change = Some("reload".to_owned());
                (event.by_uid, event.by_pid) = (signal.uid, signal.pid);
            }
        }
        self.perform(actions);
    }

    /// Puts a document in the place of the one that holds, and keeps it.
    pub(super) fn apply(&mut self, text: &str, actions: &mut Vec<Action>) -> Result<String, String> {
        let document = Document::parse(text).and_then(Document::with_secrets).map_err(|error| error.to_string())?;
        let message = self.replace(document, actions)?;
        let kept = AppliedDocument {
            document: text.to_owned(),
            file: self.configuration.document_path.clone(),
            file_text: self.file_text(),
            applied: in_rfc3339(now_ms()),
        };
        // Before anything else is kept: what it makes room for must not be found without it.
        let done = self.store.keep_document(&kept);
        self.upkeep.applied = Some(kept);
        Ok(done.map_or_else(|error| format!("{message}; it is not on disk yet: {error}"), |()| message.clone()))
    }

    fn replace(&mut self, document: Document, actions: &mut Vec<Action>) -> Result<String, String> {
        audit::check(document.audit.as_ref())?;
        let message = self.registry.apply(&document, actions)?;
        self.write_audit_to(document.audit.as_ref());
        self.configuration.document = document;
        Ok(message)
    }
}
