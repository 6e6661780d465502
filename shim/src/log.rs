//! One line for each cause, on stderr or in the file that the settings name. Allocates nothing.
#![allow(unsafe_code)]

use core::fmt::{self, Write as _};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use quota_core::settings::LogLevel;
use std::os::fd::IntoRawFd;

/// The longest line; the rest is cut.
const LINE_BYTES_MAX: usize = 1024;

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Warn as u8);
static FILE: AtomicI32 = AtomicI32::new(libc::STDERR_FILENO);

/// A cause that has been reported or not.
pub(crate) struct Once(AtomicBool);

impl Once {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// True the first time.
    pub(crate) fn first(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// Takes level and file from the settings. A file that can't be opened is no reason to lose the lines: they go to stderr.
pub(crate) fn configure(level: LogLevel, file: Option<&str>) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    let Some(path) = file.filter(|_| level != LogLevel::Off) else { return };
    match std::fs::OpenOptions::new().append(true).create(true).open(path) {
        Ok(file) => FILE.store(file.into_raw_fd(), Ordering::Relaxed),
        Err(error) => line(LogLevel::Warn, format_args!("GPUQUOTA_LOG_FILE={path:?}: {error}; writing to stderr")),
    }
}

/// Writes one line when `level` is on.
pub(crate) fn line(level: LogLevel, message: fmt::Arguments<'_>) {
    if level as u8 > LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let mut text = Line { bytes: [0; LINE_BYTES_MAX], length: 0 };
    // A line that is too long is cut, which is all that can go wrong.
    let _ = write!(text, "gpuquota: {message}");
    let length = text.length.min(LINE_BYTES_MAX - 1);
    text.bytes[length] = b'\n';
    // SAFETY: the buffer holds `length + 1` bytes.
    unsafe { libc::write(FILE.load(Ordering::Relaxed), text.bytes.as_ptr().cast(), length + 1) };
}

struct Line {
    bytes: [u8; LINE_BYTES_MAX],
    length: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for byte in part.bytes() {
            if self.length + 1 >= LINE_BYTES_MAX {
                return Err(fmt::Error);
            }
            // One line stays one line, whatever a path or a name holds.
            self.bytes[self.length] = if byte == b'\n' { b' ' } else { byte };
            self.length += 1;
        }
        Ok(())
    }
}
