//! What outlives the daemon: a file for each tenant beside the socket, and the pages, which the tenant's processes
//! keep open. A daemon that starts takes both back, and goes on where the last one ended.

mod disk;
mod store;

use crate::peer::{LEDGER_NAME, start_ticks};
use crate::registry::{ConnectionId, ProcessRecord, Registry};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub use disk::{Disk, Folder};
pub use store::{AppliedDocument, Store};

/// Name of the pages' anonymous file, as `/proc/<pid>/fd` shows it.
pub const PAGE_NAME: &str = "gpuquota-page";

/// Keeps what has changed, in the order in which it did: a daemon that is killed in between must not leave room that was
/// given away beside the one who still has it.
///
/// `process_of` says who is at the other end of a job's connection.
pub fn keep_changes<D: Disk>(
    store: &mut Store<D>,
    registry: &mut Registry,
    process_of: &dyn Fn(ConnectionId) -> Option<ProcessRecord>,
) {
    for (id, gone) in registry.take_changed() {
        match registry.record(id, process_of) {
            Some(record) => store.save(&record),
            None => {
                if let Some(name) = gone.as_deref().or(registry.name_of(id)) {
                    store.remove(name);
                }
            }
        }
    }
}

/// A process by its pid, while it lives.
pub fn process(pid: u32) -> Option<ProcessRecord> {
    Some(ProcessRecord { pid, start_ticks: start_ticks(pid)? })
}

/// True when the process is still that one.
pub fn lives(process: &ProcessRecord) -> bool {
    start_ticks(process.pid) == Some(process.start_ticks)
}

/// Page and ledger of the tenant that process `pid` is a member of, opened through its own descriptors.
///
/// # Errors
/// When the kernel doesn't let us, or the process has none.
pub fn pages_of(pid: u32) -> io::Result<(OwnedFd, OwnedFd)> {
    let (mut page, mut ledger) = (None, None);
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        let Ok(target) = std::fs::read_link(&path) else { continue };
        let target = target.to_string_lossy();
        let is = |name: &str| target.strip_prefix("/memfd:").is_some_and(|rest| rest.starts_with(name));
        if is(PAGE_NAME) {
            page = Some(path);
        } else if is(LEDGER_NAME) {
            ledger = Some(path);
        }
    }
    let missing = || io::Error::new(io::ErrorKind::NotFound, "it has no pages open");
    let (page, ledger) = page.zip(ledger).ok_or_else(missing)?;
    Ok((reopen_page(&page)?, File::options().read(true).write(true).open(ledger)?.into()))
}

/// The page is for its readers' eyes only; it was ours, so that we may change that for a moment.
fn reopen_page(path: &Path) -> io::Result<OwnedFd> {
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let file = File::options().read(true).write(true).open(path);
    std::fs::set_permissions(path, Permissions::from_mode(0o400))?;
    Ok(file?.into())
}

#[cfg(test)]
mod tests;
