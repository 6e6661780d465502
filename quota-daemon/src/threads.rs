//! The daemon's threads live and die together: one that is missing a part must not go on as if it were whole.
//!
//! Jobs go on under their last quota while there is no daemon, and the next one takes them back; of one that is half alive,
//! nobody would start a next.

use crate::notify;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// Ends the process when any of its threads panics, after the panic's own message. A service manager hears first that it no
/// longer serves.
pub fn die_together() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        let thread = std::thread::current();
        notify::dying(&format!("the thread {} has died", thread.name().unwrap_or("without a name")));
        std::process::abort();
    }));
}

/// A thread can't go on: ends the process, for the same reason.
pub fn end_all(reason: &str) -> ! {
    crate::log::line(quota_core::settings::LogLevel::Error, format_args!("{reason}: the daemon ends"));
    notify::dying(reason);
    std::process::abort();
}

/// For a test of the above: panics in the thread that `GPUQUOTA_TEST_THREAD_DIES` names, with `@` and a file behind the name
/// once that file is there. In builds for use, nothing.
pub fn test_fault(thread: &str) {
    static NAMED: OnceLock<Option<(String, Option<PathBuf>)>> = OnceLock::new();
    if !cfg!(debug_assertions) {
        return;
    }
    let named = NAMED.get_or_init(|| {
        let text = std::env::var("GPUQUOTA_TEST_THREAD_DIES").ok()?;
        Some(match text.split_once('@') {
            Some((thread, file)) => (thread.to_owned(), Some(PathBuf::from(file))),
            None => (text, None),
        })
    });
    let dies =
        named.as_ref().is_some_and(|(name, file)| name == thread && file.as_ref().is_none_or(|file| file.exists()));
    assert!(!dies, "the thread {thread} dies, as a test wants it");
}

/// A time that a test shortens. In builds for use, none.
pub fn test_duration(variable: &str) -> Option<Duration> {
    if !cfg!(debug_assertions) {
        return None;
    }
    humantime::parse_duration(&std::env::var(variable).ok()?).ok()
}
