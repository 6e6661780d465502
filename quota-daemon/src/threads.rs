//! The daemon's threads live and die together: one that is missing a part must not go on as if it were whole.
//!
//! Jobs go on under their last quota while there is no daemon, and the next one takes them back; of one that is half alive,
//! nobody would start a next.

use std::sync::OnceLock;

/// Ends the process when any of its threads panics, after the panic's own message.
pub fn die_together() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        std::process::abort();
    }));
}

/// A thread can't go on: ends the process, for the same reason.
pub fn end_all(reason: &str) -> ! {
    crate::log::line(quota_core::settings::LogLevel::Error, format_args!("{reason}: the daemon ends"));
    std::process::abort();
}

/// For a test of the above: panics in the thread that `GPUQUOTA_TEST_THREAD_DIES` names. In builds for use, nothing.
pub fn test_fault(thread: &str) {
    static NAMED: OnceLock<Option<String>> = OnceLock::new();
    if cfg!(debug_assertions) {
        let named = NAMED.get_or_init(|| std::env::var("GPUQUOTA_TEST_THREAD_DIES").ok());
        assert!(named.as_deref() != Some(thread), "the thread {thread} dies, as a test wants it");
    }
}
