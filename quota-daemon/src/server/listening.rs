//! The two sockets, and the lock that keeps other daemons away from them. Sockets that somebody removes are made again.

use super::ServeError;
use crate::places::{admin_socket, lock_file, make_private};
use quota_wire::socket::{Connection, credentials, listen};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{FlockOperation, flock};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Two listening sockets; their files go when this is dropped.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) everybody: OwnedFd,
    pub(super) admin: OwnedFd,
    paths: [PathBuf; 2],
    /// Tells our sockets' files from others under their names.
    identities: [Option<(u64, u64)>; 2],
    /// The same of their folder.
    folder: Option<(u64, u64)>,
    user: bool,
    /// Tells when something in the folder goes; none where the kernel gives none.
    watch: Option<OwnedFd>,
    /// Held for as long as we listen. The file stays: removing it would let two daemons hold "the" lock.
    lock: std::fs::File,
}

/// What was found of one of the sockets.
#[derive(Debug)]
pub(super) enum Found {
    /// It was gone, and is there again.
    MadeAgain(PathBuf),
    /// Another daemon answers in its place: the pid of that.
    Rival(PathBuf, u32),
    /// It is gone and can't be made.
    Lost(PathBuf, String),
}

impl Listening {
    /// Listens at `socket` and beside it. Sockets that a dead daemon has left are replaced. That for everybody comes last:
    /// whoever can connect to it can to both.
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
            nobody_listens(path)?;
        }
        let admin = listen(&admin_path, mode(1, user)).map_err(failed(&admin_path))?;
        let everybody = listen(socket, mode(0, user)).map_err(failed(socket))?;
        let paths = [socket.to_owned(), admin_path];
        let identities = paths.each_ref().map(|path| identity(path));
        let folder = identity(folder_of(socket));
        Ok(Self { everybody, admin, identities, folder, user, watch: watch(socket), paths, lock })
    }

    /// Readable when it is time for [`Listening::mend`]; none where that has to be tried from time to time.
    pub(super) fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Looks whether our sockets are still there, and makes them again where not. Nobody else's is touched.
    pub(super) fn mend(&mut self) -> Vec<Found> {
        let socket = self.paths[0].clone();
        let folder = folder_of(&socket);
        if identity(folder).is_none() || identity(folder) != self.folder {
            let is_there = folder.exists() || make_folder(folder, self.user).is_ok();
            // Another daemon may be as quick; then its sockets are found below.
            let lock = if is_there { take_lock(&lock_file(&socket)).ok().flatten() } else { None };
            if let Some(lock) = lock {
                self.lock = lock;
            }
            self.folder = identity(folder);
            self.watch = watch(&socket);
        }
        (0..2).filter_map(|which| self.mend_one(which)).collect()
    }

    fn mend_one(&mut self, which: usize) -> Option<Found> {
        let path = self.paths[which].clone();
        let now = identity(&path);
        if now.is_some() && now == self.identities[which] {
            return None;
        }
        if let Ok(other) = Connection::connect(&path, Instant::now()) {
            let pid = credentials(other.as_fd()).map_or(0, |peer| peer.pid);
            return Some(Found::Rival(path, pid));
        }
        let made = nobody_listens(&path).map_err(|error| error.to_string()).and_then(|()| {
            let socket = listen(&path, mode(which, self.user)).map_err(|error| error.to_string())?;
            *if which == 0 { &mut self.everybody } else { &mut self.admin } = socket;
            Ok(())
        });
        self.identities[which] = identity(&path);
        Some(match made {
            Ok(()) => Found::MadeAgain(path),
            Err(reason) => Found::Lost(path, reason),
        })
    }

    /// Reads what the kernel tells; what exactly has happened doesn't matter.
    pub(super) fn drain(&self) {
        let Some(watch) = &self.watch else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(watch, &mut buffer);
        while events.next().is_ok() {}
    }
}

/// A descriptor that tells when something in the socket's folder goes, or the folder itself.
fn watch(socket: &Path) -> Option<OwnedFd> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    let gone = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
    let all_gone = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
    inotify::add_watch(&watch, socket.parent()?, gone | all_gone).ok()?;
    Some(watch)
}

fn folder_of(socket: &Path) -> &Path {
    socket.parent().unwrap_or(Path::new("/"))
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|data| (data.dev(), data.ino()))
}

/// Of the socket for everybody (0) or for administrators (1).
fn mode(which: usize, user: bool) -> u32 {
    if which == 0 && !user { 0o666 } else { 0o600 }
}

impl Drop for Listening {
    fn drop(&mut self) {
        for (path, ours) in self.paths.iter().zip(self.identities) {
            if ours.is_some() && identity(path) == ours {
                let _ = std::fs::remove_file(path);
            }
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

/// Says whether ours can take the place of what is there. Anything but a socket is left alone.
fn nobody_listens(path: &Path) -> Result<(), ServeError> {
    let Ok(data) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !std::os::unix::fs::FileTypeExt::is_socket(&data.file_type()) {
        let error = io::Error::new(io::ErrorKind::AlreadyExists, "there is something that is no socket");
        return Err(ServeError::Socket(path.to_owned(), error));
    }
    if Connection::connect(path, Instant::now()).is_ok() {
        return Err(ServeError::AnotherAnswers(path.to_owned()));
    }
    Ok(())
}
