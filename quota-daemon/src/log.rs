//! The daemon's log: lines on stderr, which whoever started it has pointed somewhere.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};
use quota_core::settings::LogLevel;
use std::io::Write;

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

/// Sets how much is logged.
pub fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Writes one line, when the level wants it.
#[allow(clippy::disallowed_methods)] // It is shown to people.
pub fn line(level: LogLevel, text: fmt::Arguments<'_>) {
    if level != LogLevel::Off && level as u8 <= LEVEL.load(Ordering::Relaxed) {
        let now = humantime::format_rfc3339_millis(std::time::SystemTime::now());
        // In one piece, so that lines of several daemons in one file stay lines. Where it can't be told, on a full disk
        // say, there is nobody to tell; `eprintln` would end the thread.
        let _ = std::io::stderr().lock().write_all(format!("{now} gpuquotad: {text}\n").as_bytes());
    }
}
