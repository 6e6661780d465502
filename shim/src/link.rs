//! The connection to the daemon: found to be lost when it is needed, and made anew when there is a daemon again.

use crate::account;
use crate::log;
use core::sync::atomic::{AtomicU64, Ordering};
use parking_lot::Mutex;
use quota_core::ledger::SlotId;
use quota_core::settings::LogLevel;
use quota_wire::message::{PROTOCOL_VERSION, Reply, Request};
use quota_wire::socket::Connection;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two attempts to find a daemon again.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for a daemon that is there: the program is in the middle of an allocation.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// The way to the daemon.
pub(crate) struct Link {
    path: PathBuf,
    slot: SlotId,
    /// Kept open, since its end tells the daemon of ours.
    connection: Mutex<Arc<Connection>>,
    /// What wakes the daemon's arbiter: an eventfd, under the same number whichever daemon made it.
    poke: OwnedFd,
    /// When a lost daemon was last looked for, in milliseconds of the monotonic clock.
    tried_at_ms: AtomicU64,
}

impl Link {
    pub(crate) fn new(path: PathBuf, slot: SlotId, connection: Connection, poke: OwnedFd) -> Self {
        Self { path, slot, connection: Mutex::new(Arc::new(connection)), poke, tried_at_ms: AtomicU64::new(0) }
    }

    /// Tells the daemon that there is something to see in the usage page.
    #[allow(unsafe_code)]
    pub(crate) fn poke(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of our own. A daemon that is gone doesn't read them, which is all that can go wrong.
        unsafe { libc::write(self.poke.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    /// Takes over what wakes the next daemon. Under the old number: other threads may be writing to it.
    #[allow(unsafe_code)]
    fn poke_by(&self, next: &OwnedFd) {
        // SAFETY: two descriptors of our own; the old one is replaced in one step, or stays.
        unsafe { libc::dup3(next.as_raw_fd(), self.poke.as_raw_fd(), libc::O_CLOEXEC) };
    }

    /// The connection, made anew if need be and possible; `None` while there is no daemon.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        let connection = Arc::clone(&*self.connection.lock());
        if !is_lost(&connection) {
            return Some(connection);
        }
        let (now_ms, then_ms) = (account::coarse_ms(), self.tried_at_ms.load(Ordering::Relaxed));
        let is_time = then_ms == 0 || now_ms.saturating_sub(then_ms) >= PAUSE.as_millis() as u64;
        // Noted only when it is time: who asks again and again would else put it off for ever.
        let ours =
            is_time && self.tried_at_ms.compare_exchange(then_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if ours { self.rejoin() } else { None }
    }

    /// Another daemon has the tenant as it was, if it is ours: it has taken the pages from the processes themselves.
    fn rejoin(&self) -> Option<Arc<Connection>> {
        let deadline = Instant::now() + WAIT_MAX;
        let connection = Connection::connect(&self.path, deadline).ok()?;
        let request = Request::Rejoin { version: PROTOCOL_VERSION, slot: self.slot.index() };
        match connection.ask(&request, deadline) {
            Ok((Reply::Done { .. }, descriptors)) => {
                // One that sends none is of an older version, and wants no waking.
                if let Some(poke) = descriptors.last() {
                    self.poke_by(poke);
                }
            }
            Ok((reply, _)) => {
                static SAID: log::Once = log::Once::new();
                if SAID.first() {
                    let text = if let Reply::Refused { reason } = reply { reason } else { format!("{reply:?}") };
                    log::line(
                        LogLevel::Warn,
                        format_args!("the daemon doesn't take us back: {text}; the last quota goes on"),
                    );
                }
                return None;
            }
            Err(_) => return None,
        }
        let connection = Arc::new(connection);
        *self.connection.lock() = Arc::clone(&connection);
        log::line(LogLevel::Info, format_args!("the daemon is back"));
        Some(connection)
    }

    /// True while there is no daemon to talk to; looks for nothing.
    pub(crate) fn is_lost(&self) -> bool {
        is_lost(&self.connection.lock())
    }
}

#[allow(unsafe_code)]
fn is_lost(connection: &Connection) -> bool {
    let mut poll = libc::pollfd { fd: connection.as_fd().as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one valid entry; does not wait.
    unsafe { libc::poll(&mut poll, 1, 0) != 0 && poll.revents != 0 }
}
