//! The few things that are done with the files of one folder, so that a test can end the daemon between any two.

use crate::places::make_private;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

/// The largest file that is read back: a thousand members with all they say.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A folder of files. Each operation is done or not when the process is killed; only [`Disk::write`] may be done in part.
/// A loss of power takes what wasn't synced.
pub trait Disk {
    /// The files' names.
    ///
    /// # Errors
    /// What the kernel says, as of all the others.
    fn names(&self) -> io::Result<Vec<String>>;

    /// All of a file.
    ///
    /// # Errors
    /// As above.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Makes a file, or empties it, and fills it.
    ///
    /// # Errors
    /// As above; a part may be there then.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Has what is in a file survive a loss of power.
    ///
    /// # Errors
    /// As above.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Puts a file in the place of another.
    ///
    /// # Errors
    /// As above.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; one that isn't there is no error.
    ///
    /// # Errors
    /// As above.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Has the names survive a loss of power.
    ///
    /// # Errors
    /// As above.
    fn sync_names(&self) -> io::Result<()>;
}

/// A folder on disk, for this user only.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder at `path`, made where there is none.
    ///
    /// # Errors
    /// When it can't be made, or is somebody else's.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        make_private(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Disk for Folder {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = File::open(self.0.join(name))?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long to be ours"));
        }
        Ok(bytes)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        File::create(self.0.join(name))?.write_all(bytes)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        File::open(self.0.join(name))?.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}
