//! The records on disk: each whole or as it was before, and none forgotten because the disk was full.
//!
//! A file is written under another name and then put in its place, so that a daemon that is killed at any moment leaves
//! the old record or the new one; what a process has written stays when it is killed. A loss of power is another matter: it takes what wasn't
//! synced, and every process. So what is only about processes (nearly all) is not synced, which would have each of
//! them wait for the disk; a record that is found torn then is of a tenant that is gone. What is to hold when the node comes
//! up again (a document that was applied, a pause or a change of a tenant of the document) is synced, file and name.

use super::disk::{Disk, Folder};
use crate::log;
use crate::registry::TenantRecord;
use quota_core::settings::LogLevel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// A document that an administrator has applied, and what it was applied in place of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppliedDocument {
    /// The document, YAML.
    pub document: String,
    /// The file that the daemon had been started with.
    pub file: Option<PathBuf>,
    /// What that said when the document was applied: once it says something else, it holds again.
    pub file_text: Option<String>,
    /// When it was applied: RFC 3339, UTC.
    pub applied: String,
}

/// What is to be done with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Task {
    /// Filled with this; `lasting`, where it is to survive a loss of power.
    Write {
        bytes: Vec<u8>,
        lasting: bool,
    },
    Remove,
}

/// The folder with the tenants' files.
#[derive(Debug)]
pub struct Store<D = Folder> {
    disk: D,
    /// What couldn't be done yet, by file, in the order of the changes: at most one for each tenant.
    behind: Vec<(String, Task)>,
}

const DOCUMENT: &str = "document.json";
const DRAINED: &str = "drained.json";
/// Ending of a file that is being written.
const FRESH: &str = ".new";

impl Store {
    /// The store of the daemon that listens on `socket`.
    ///
    /// # Errors
    /// When its folder can't be made, or is somebody else's.
    pub fn open(socket: &Path) -> io::Result<Self> {
        Ok(Self::on(Folder::open(Self::place(socket))?))
    }

    /// Where the daemon that listens on `socket` keeps its records.
    pub fn place(socket: &Path) -> PathBuf {
        let mut name = socket.as_os_str().to_owned();
        name.push(".state");
        PathBuf::from(name)
    }
}

impl<D: Disk> Store<D> {
    /// The store on a disk; what was being written when a daemon before was killed is removed.
    pub fn on(disk: D) -> Self {
        for name in disk.names().unwrap_or_default().iter().filter(|name| name.ends_with(FRESH)) {
            let _ = disk.remove(name);
        }
        Self { disk, behind: Vec::new() }
    }

    /// Keeps a record, whole or not at all: then the one before is still there, and it is tried again by [`Store::retry`].
    pub fn save(&mut self, record: &TenantRecord) {
        match serde_json::to_vec(record) {
            Ok(bytes) => self.put(file_of(&record.name), Task::Write { bytes, lasting: record.outlives_processes() }),
            Err(error) => log::line(LogLevel::Error, format_args!("tenant {}: no record: {error}", record.name)),
        }
    }

    /// The tenant is gone.
    pub fn remove(&mut self, name: &str) {
        self.put(file_of(name), Task::Remove);
    }

    /// Keeps a document, before anything that it makes room for; or says why it can't, and tries again later.
    pub fn keep_document(&mut self, document: &AppliedDocument) -> io::Result<()> {
        let bytes = serde_json::to_vec(document).map_err(io::Error::other)?;
        self.try_now(DOCUMENT.to_owned(), Task::Write { bytes, lasting: true })
    }

    /// The file holds again.
    pub fn forget_document(&mut self) {
        // Without one, which is the rule, the disk isn't touched.
        if self.disk.names().is_ok_and(|names| names.iter().any(|name| name == DOCUMENT)) {
            self.put(DOCUMENT.to_owned(), Task::Remove);
        }
        self.behind.retain(|(name, task)| name != DOCUMENT || *task == Task::Remove);
    }

    /// The document that was applied last, if there is one.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn document(&self) -> io::Result<Option<AppliedDocument>> {
        match self.disk.read(DOCUMENT) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps which devices are drained, by their UUIDs; or says why it can't, and tries again later.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn keep_drained(&mut self, uuids: &BTreeSet<String>) -> io::Result<()> {
        let task = match uuids.is_empty() {
            true => Task::Remove,
            false => Task::Write { bytes: serde_json::to_vec(uuids).map_err(io::Error::other)?, lasting: true },
        };
        self.try_now(DRAINED.to_owned(), task)
    }

    /// Which devices are drained; none, most of the time.
    ///
    /// # Errors
    /// When that can't be read.
    pub fn drained(&self) -> io::Result<BTreeSet<String>> {
        match self.disk.read(DRAINED) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(error),
        }
    }

    /// All records, each with what is wrong with it where it can't be read.
    ///
    /// # Errors
    /// When the folder can't be read.
    pub fn load(&self) -> io::Result<Vec<Result<TenantRecord, String>>> {
        let mut names = self.disk.names()?;
        names.retain(|name| name.starts_with("tenant-") && name.ends_with(".json"));
        names.sort();
        let read = |name: &str| Ok(serde_json::from_slice(&self.disk.read(name)?)?);
        Ok(names.iter().map(|name| read(name).map_err(|error: io::Error| format!("{name}: {error}"))).collect())
    }

    /// True while something that has changed is not on disk.
    pub fn is_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Tries again what couldn't be done. What makes room comes first.
    pub fn retry(&mut self) {
        let (removals, writes): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.behind).into_iter().partition(|(_, task)| *task == Task::Remove);
        for (name, task) in removals.into_iter().chain(writes) {
            if self.perform(&name, &task).is_err() {
                self.behind.push((name, task));
            }
        }
        if self.behind.is_empty() {
            log::line(LogLevel::Info, format_args!("all records are on disk again"));
        }
    }

    fn put(&mut self, name: String, task: Task) {
        // What went wrong is told, and tried again.
        let _ = self.try_now(name, task);
    }

    fn try_now(&mut self, name: String, task: Task) -> io::Result<()> {
        self.behind.retain(|(other, _)| *other != name);
        let done = self.perform(&name, &task);
        if let Err(error) = &done {
            if self.behind.is_empty() {
                // The daemon can do its work without; the next one would not know of the change.
                log::line(LogLevel::Error, format_args!("{name} can't be written: {error}; goes on trying"));
            }
            self.behind.push((name, task));
        }
        done
    }

    fn perform(&self, name: &str, task: &Task) -> io::Result<()> {
        let Task::Write { bytes, lasting } = task else { return self.disk.remove(name) };
        let fresh = format!("{name}{FRESH}");
        let written =
            self.disk.write(&fresh, bytes).and_then(|()| if *lasting { self.disk.sync(&fresh) } else { Ok(()) });
        if let Err(error) = written {
            // On a full disk, what is there of it takes room.
            let _ = self.disk.remove(&fresh);
            return Err(error);
        }
        self.disk.rename(&fresh, name)?;
        if *lasting { self.disk.sync_names() } else { Ok(()) }
    }
}

/// Of the signs that a tenant's name may have, only `/` means something in a path.
fn file_of(tenant: &str) -> String {
    format!("tenant-{}.json", tenant.replace('/', "%"))
}
