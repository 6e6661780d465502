//! The audit file: appended to, begun anew each day and before it grows too large, old ones removed.
//!
//! Of `audit.jsonl`, the files of before are `audit-20261130T073824.123Z.jsonl` beside it, named after the moment at
//! which the next one was begun, so that names sort by time. Nobody else's file is touched.

use crate::document::AuditRule;
use rustix::fs::{RenameFlags, renameat_with};
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file is begun anew before it is larger.
pub const BYTES_MAX: u64 = 64 << 20;
/// All files together are never larger, however long they are to be kept.
pub const TOTAL_BYTES_MAX: u64 = 1 << 30;
/// The longest line that can be told from junk at the end of a file.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// How every line begins.
const LINE_BEGIN: &[u8] = b"{\"time\":\"";
/// Read back at most, when the newest events are looked for.
const TAIL_BYTES_MAX: u64 = 4 << 20;
/// Names that are tried for one file of before.
const NAMES_MAX: u64 = 1000;
const DAY_MS: u64 = 86_400_000;

/// The file and those of before.
#[derive(Debug)]
pub struct AuditFile {
    path: PathBuf,
    keep: Duration,
    bytes_max: u64,
    total_bytes_max: u64,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Whole lines in it.
    bytes: u64,
    /// The day of its newest line, since 1970.
    day: u64,
    /// Tells it from another file under the name.
    identity: (u64, u64),
}

impl AuditFile {
    /// The files that a rule is about; nothing is opened yet.
    pub fn new(rule: &AuditRule) -> Self {
        Self::with_bounds(rule, BYTES_MAX, TOTAL_BYTES_MAX)
    }

    fn with_bounds(rule: &AuditRule, bytes_max: u64, total_bytes_max: u64) -> Self {
        Self { path: rule.path.clone(), keep: rule.keep, bytes_max, total_bytes_max, open: None }
    }

    /// Appends a line, whole or not at all. Says how many files had to go to make room.
    ///
    /// # Errors
    /// What the kernel says; the line can be tried again.
    pub fn append(&mut self, line: &str, now_ms: u64) -> io::Result<usize> {
        // Moved away or removed by hand: what is written there would be lost.
        if self.open.as_ref().is_some_and(|open| !is_at(&self.path, open.identity)) {
            self.open = None;
        }
        let mut removed = 0;
        let mut open = self.take_open(now_ms)?;
        if open.bytes > 0 && (open.day != now_ms / DAY_MS || open.bytes + line.len() as u64 >= self.bytes_max) {
            open.file.sync_data()?;
            self.set_aside(now_ms)?;
            removed = self.prune(now_ms)?;
            open = self.take_open(now_ms)?;
        }
        let mut text = Vec::with_capacity(line.len() + 1);
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
        if let Err(error) = open.file.write_all(&text) {
            // A part of the line may be there. If it can't be taken back either, it is when the file is opened again.
            let _ = open.file.set_len(open.bytes);
            return Err(error);
        }
        open.bytes += text.len() as u64;
        open.day = now_ms / DAY_MS;
        self.open = Some(open);
        Ok(removed)
    }

    /// Has what was written survive a loss of power.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn sync(&self) -> io::Result<()> {
        self.open.as_ref().map_or(Ok(()), |open| open.file.sync_data())
    }

    /// Removes files of before that are older than they are to be kept, and the oldest while all are too large. Says how
    /// many of the latter.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn prune(&self, now_ms: u64) -> io::Result<usize> {
        let oldest_ms = now_ms.saturating_sub(u64::try_from(self.keep.as_millis()).unwrap_or(u64::MAX));
        let mut kept = Vec::new();
        for (at_ms, path, bytes) in self.of_before()? {
            if at_ms < oldest_ms {
                std::fs::remove_file(&path)?;
            } else {
                kept.push((at_ms, path, bytes));
            }
        }
        kept.sort();
        let mut total: u64 = kept.iter().map(|(_, _, bytes)| bytes).sum::<u64>() + self.bytes_max;
        let mut removed = 0;
        for (_, path, bytes) in kept {
            if total <= self.total_bytes_max {
                break;
            }
            std::fs::remove_file(&path)?;
            total -= bytes;
            removed += 1;
        }
        Ok(removed)
    }

    /// All files that may hold events since a time, the oldest first.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn all(&self, since_ms: u64) -> io::Result<Vec<PathBuf>> {
        let mut before = self.of_before()?;
        before.retain(|(at_ms, ..)| *at_ms >= since_ms);
        before.sort();
        let before = before.into_iter().map(|(_, path, _)| path);
        Ok(before.chain([self.path.clone()]).filter(|path| path.exists()).collect())
    }

    fn take_open(&mut self, now_ms: u64) -> io::Result<Open> {
        match self.open.take() {
            Some(open) => Ok(open),
            None => open(&self.path, now_ms),
        }
    }

    /// Gives the file the name of one of before. Another one's name is never taken, whichever way the clock went.
    fn set_aside(&self, now_ms: u64) -> io::Result<()> {
        let mut refusal = io::Error::from(io::ErrorKind::AlreadyExists);
        for at_ms in now_ms..now_ms + NAMES_MAX {
            match rename_new(&self.path, &self.path.with_file_name(self.name_at(at_ms))) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => refusal = error,
                Err(error) => return Err(error),
            }
        }
        Err(refusal)
    }

    fn name_at(&self, at_ms: u64) -> String {
        let (before, after) = self.name_parts();
        format!("{before}{}{after}", in_rfc3339(at_ms).replace(['-', ':'], ""))
    }

    /// What is before the time in the name of a file of before, and what is after.
    fn name_parts(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let after = self.path.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
        (format!("{}-", text(self.path.file_stem())), after)
    }

    /// The files of before: when they were set aside, where they are, how large.
    fn of_before(&self) -> io::Result<Vec<(u64, PathBuf, u64)>> {
        let (before, after) = self.name_parts();
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.path.parent().unwrap_or(Path::new("/")))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let at_ms = name.strip_prefix(&before).and_then(|rest| rest.strip_suffix(&after)).and_then(time_of_name);
            if let Some(at_ms) = at_ms {
                files.push((at_ms, entry.path(), entry.metadata().map_or(0, |data| data.len())));
            }
        }
        Ok(files)
    }
}

/// Opens the file to append to it, makes it and its folder where they aren't there, and cuts off a line that was begun
/// by a daemon that was killed.
fn open(path: &Path, now_ms: u64) -> io::Result<Open> {
    if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
        DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
    }
    let mut options = OpenOptions::new();
    // Whatever lies there must not make the thread wait, nor become its terminal.
    options.read(true).append(true).create(true).mode(0o640).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let mut file = options.open(path)?;
    let data = file.metadata()?;
    let mut bytes = 0;
    if data.is_file() {
        bytes = whole_lines(&mut file, data.len())?;
        if bytes < data.len() {
            file.set_len(bytes)?;
        }
    }
    let changed_ms = data.modified().map_or(now_ms, since_1970_ms);
    let day = if bytes > 0 { changed_ms / DAY_MS } else { now_ms / DAY_MS };
    Ok(Open { file, bytes, day, identity: identity(&data) })
}

/// Says whether the file that a rule names could be written.
///
/// # Errors
/// What the kernel says.
pub fn check(rule: &AuditRule) -> io::Result<()> {
    open(&rule.path, now_ms()).map(|_| ())
}

fn identity(data: &Metadata) -> (u64, u64) {
    (data.dev(), data.ino())
}

fn is_at(path: &Path, wanted: (u64, u64)) -> bool {
    std::fs::metadata(path).is_ok_and(|data| identity(&data) == wanted)
}

/// How many bytes of a file are whole lines.
fn whole_lines(file: &mut File, bytes: u64) -> io::Result<u64> {
    let start = bytes.saturating_sub(LINE_BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut end = Vec::new();
    file.take(LINE_BYTES_MAX).read_to_end(&mut end)?;
    let at = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (begun, common) = (&end[at..], LINE_BEGIN.len().min(end.len() - at));
    if begun[..common] != LINE_BEGIN[..common] || (at == 0 && start > 0) {
        // Somebody else's file: it stays as it is.
        return Err(io::Error::new(io::ErrorKind::InvalidData, "what is there is no audit"));
    }
    Ok(start + at as u64)
}

/// The last whole lines of a file, at most `count`; none where there is no file.
pub fn last_lines(path: &Path, count: usize) -> Vec<String> {
    let mut text = Vec::new();
    let read = || -> io::Result<Vec<u8>> {
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES_MAX)))?;
        file.take(TAIL_BYTES_MAX).read_to_end(&mut text)?;
        Ok(text)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    // The last one may be cut off, or just be written.
    let whole = text.rfind('\n').map_or("", |at| &text[..at]);
    let mut lines: Vec<String> = whole.lines().rev().take(count).map(str::to_owned).collect();
    lines.reverse();
    lines
}

/// Renames, unless there is something under the new name.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, RenameFlags::NOREPLACE) {
        // Some network file systems can't say "unless"; nobody else makes such names.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !to.exists() => std::fs::rename(from, to),
        done => Ok(done?),
    }
}

/// `20261130T073824.123Z`, in milliseconds since 1970.
fn time_of_name(text: &str) -> Option<u64> {
    let is_time = text.len() == 20 && text.is_ascii();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let full = is_time.then(|| {
        let (day, time) = (format!("{}-{}-{}", part(0, 4), part(4, 6), part(6, 8)), part(8, 11));
        format!("{day}{time}:{}:{}", part(11, 13), part(13, 20))
    })?;
    humantime::parse_rfc3339(&full).ok().map(since_1970_ms)
}

/// Milliseconds since 1970; 0 for what was before.
pub fn since_1970_ms(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The wall clock, in milliseconds since 1970.
#[allow(clippy::disallowed_methods)] // It is shown to people.
pub fn now_ms() -> u64 {
    since_1970_ms(SystemTime::now())
}

/// Milliseconds since 1970 as RFC 3339, UTC.
pub fn in_rfc3339(at_ms: u64) -> String {
    /// The last moment of the year 9999, after which there is no such text.
    const LAST_MS: u64 = 253_402_300_799_999;
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms.min(LAST_MS))).to_string()
}

#[cfg(test)]
mod tests;
