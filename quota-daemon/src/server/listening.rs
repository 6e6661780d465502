//! The two sockets, and the lock that keeps other daemons away from them.

use super::ServeError;
use crate::places::{admin_socket, lock_file, make_private};
use quota_wire::socket::{Connection, listen};
use rustix::fs::{FlockOperation, flock};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Two listening sockets; their files go when this is dropped.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) everybody: OwnedFd,
    pub(super) admin: OwnedFd,
    paths: [PathBuf; 2],
    /// Held for as long as we listen. The file stays: removing it would let two daemons hold "the" lock.
    _lock: std::fs::File,
}

impl Listening {
    /// Listens at `socket` and beside it. Sockets that a dead daemon has left are replaced.
    pub(super) fn open(socket: &Path, user: bool) -> Result<Self, ServeError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| ServeError::Socket(path, error)
        };
        if let Some(folder) = socket.parent().filter(|folder| !folder.exists()) {
            make_folder(folder, user).map_err(failed(folder))?;
        }
        let lock_path = lock_file(socket);
        let lock = take_lock(&lock_path).map_err(failed(&lock_path))?;
        let Some(lock) = lock else { return Err(ServeError::AnotherAnswers(socket.to_owned())) };
        let admin_path = admin_socket(socket);
        for path in [socket, &admin_path] {
            clear(path)?;
        }
        let everybody = listen(socket, if user { 0o600 } else { 0o666 }).map_err(failed(socket))?;
        let admin = listen(&admin_path, 0o600).map_err(failed(&admin_path))?;
        Ok(Self { everybody, admin, paths: [socket.to_owned(), admin_path], _lock: lock })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn make_folder(folder: &Path, user: bool) -> io::Result<()> {
    if user { make_private(folder) } else { std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder) }
}

/// The lock; `None` when another daemon has it.
fn take_lock(path: &Path) -> io::Result<Option<std::fs::File>> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes a socket that nobody listens on. Anything else at its path is left alone.
fn clear(path: &Path) -> Result<(), ServeError> {
    let failed = |error| ServeError::Socket(path.to_owned(), error);
    let Ok(data) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !std::os::unix::fs::FileTypeExt::is_socket(&data.file_type()) {
        return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, "there is something that is no socket")));
    }
    if Connection::connect(path, Instant::now()).is_ok() {
        return Err(ServeError::AnotherAnswers(path.to_owned()));
    }
    std::fs::remove_file(path).map_err(failed)
}
