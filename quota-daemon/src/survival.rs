//! What outlives the daemon: a file for each tenant beside the socket, and the pages, which the tenant's processes
//! keep open. A daemon that starts takes both back, and goes on where the last one ended.

use crate::peer::{LEDGER_NAME, start_ticks};
use crate::places::make_private;
use crate::registry::{ProcessRecord, TenantRecord};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Name of the pages' anonymous file, as `/proc/<pid>/fd` shows it.
pub const PAGE_NAME: &str = "gpuquota-page";
/// Longest record that is read back: a thousand members with all they say.
const RECORD_BYTES_MAX: u64 = 16 << 20;

/// The folder with the tenants' files.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The store of the daemon that listens on `socket`.
    ///
    /// # Errors
    /// When its folder can't be made, or is somebody else's.
    pub fn open(socket: &Path) -> io::Result<Self> {
        let mut name = socket.as_os_str().to_owned();
        name.push(".state");
        let folder = PathBuf::from(name);
        make_private(&folder)?;
        Ok(Self { folder })
    }

    /// Keeps a record, whole or not at all.
    ///
    /// # Errors
    /// What the kernel says; then the record before it is still there.
    pub fn save(&self, record: &TenantRecord) -> io::Result<()> {
        let path = self.path(&record.name);
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, serde_json::to_vec(record).map_err(io::Error::other)?)?;
        std::fs::rename(&fresh, &path)
    }

    /// The tenant is gone.
    pub fn remove(&self, name: &str) {
        let _ = std::fs::remove_file(self.path(name));
    }

    /// All records, each with what is wrong with it where it can't be read.
    ///
    /// # Errors
    /// When the folder can't be read.
    pub fn load(&self) -> io::Result<Vec<Result<TenantRecord, String>>> {
        let mut records = Vec::new();
        for file in std::fs::read_dir(&self.folder)? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                records.push(read(&path).map_err(|error| format!("{}: {error}", path.display())));
            }
        }
        Ok(records)
    }

    /// Of the signs that a tenant's name may have, only `/` means something in a path.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("tenant-{}.json", name.replace('/', "%")))
    }
}

fn read(path: &Path) -> io::Result<TenantRecord> {
    let file = File::open(path)?;
    if file.metadata()?.len() > RECORD_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long to be a record"));
    }
    serde_json::from_reader(io::BufReader::new(file)).map_err(io::Error::from)
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
