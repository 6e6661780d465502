//! What a service manager is told that started the daemon: that it is ready, reads its document again, ends, and lives.
//!
//! One datagram each to the socket that `NOTIFY_SOCKET` names (systemd's `Type=notify`); nothing where there is none. No
//! answer is waited for, and a manager that doesn't read is not waited for either.

use crate::log;
use quota_core::settings::LogLevel;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// How often it is looked, in an interval of the watchdog, whether all threads live.
const LOOKS: u32 = 4;

/// The way to the service manager.
#[derive(Debug, Default)]
pub struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
    /// Pause between two looks; none where there is no watchdog.
    pause: Option<Duration>,
    looks_at: Option<Instant>,
}

impl Notifier {
    /// The one that the environment names.
    pub fn from_environment() -> Self {
        let get = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let Some(address) = get("NOTIFY_SOCKET") else { return Self::default() };
        let is_ours = get("WATCHDOG_PID").is_none_or(|pid| pid.to_str() == Some(&std::process::id().to_string()));
        let usec = get("WATCHDOG_USEC").filter(|_| is_ours);
        let interval = usec.and_then(|usec| usec.to_str()?.parse().ok()).map(Duration::from_micros);
        Self::new(&address, interval).unwrap_or_else(|error| {
            log::line(
                LogLevel::Warn,
                format_args!("NOTIFY_SOCKET={address:?}: {error}; the service manager is told nothing"),
            );
            Self::default()
        })
    }

    /// One to the socket `address`, `@` for one without a file; with a sign of life in each `interval`.
    ///
    /// # Errors
    /// When it is no address, or the kernel gives no socket.
    pub fn new(address: &OsStr, interval: Option<Duration>) -> io::Result<Self> {
        let address = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(address)?,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected an absolute path, or @ and a name")),
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let pause = interval.map(|interval| interval / LOOKS).filter(|pause| !pause.is_zero());
        Ok(Self { manager: Some((socket, address)), pause, looks_at: pause.map(|_| Instant::now()) })
    }

    /// True when a service manager listens.
    pub fn has_manager(&self) -> bool {
        self.manager.is_some()
    }

    /// The daemon serves; `status` is for people.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// It reads its document again since `now_us` on the monotonic clock, and says when it is ready.
    pub fn reloading(&self, now_us: u64) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
    }

    /// It ends.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// When it is to be looked whether all threads live.
    pub fn due(&self) -> Option<Instant> {
        self.looks_at
    }

    /// Looks, when it is time; says that the daemon lives if `is_alive` does.
    pub fn look(&mut self, now: Instant, is_alive: impl FnOnce() -> bool) {
        let (Some(pause), Some(at)) = (self.pause, self.looks_at) else { return };
        if now < at {
            return;
        }
        self.looks_at = Some(now + pause);
        if is_alive() {
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.manager {
            // Whoever doesn't listen doesn't want to know.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

/// The process ends at once: the service manager of the environment, where there is one, hears why, and that nothing is
/// served any more. For any thread, in any state.
pub fn dying(reason: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET").filter(|value| !value.is_empty()) else { return };
    if let Ok(notifier) = Notifier::new(&address, None) {
        notifier.tell(&format!("STOPPING=1\nSTATUS={reason}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(socket: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    #[test]
    fn a_sign_of_life_is_given_only_for_the_living() {
        let name = format!("gpuquota-notify-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).expect("short")).expect("free");
        manager.set_nonblocking(true).expect("ours");
        let address = format!("@{name}");
        let mut notifier = Notifier::new(OsStr::new(&address), Some(Duration::from_millis(400))).expect("legal");
        notifier.ready("listens");
        assert_eq!(said(&manager).as_deref(), Some("READY=1\nSTATUS=listens"));
        let begin = notifier.due().expect("there is a watchdog");
        notifier.look(begin, || true);
        assert_eq!(said(&manager).as_deref(), Some("WATCHDOG=1"));
        notifier.look(begin + Duration::from_millis(99), || panic!("not yet"));
        notifier.look(begin + Duration::from_millis(100), || false);
        assert_eq!(said(&manager), None);
        assert_eq!(notifier.due(), Some(begin + Duration::from_millis(200)), "it is looked again");
        drop(manager);
        notifier.stopping();
    }

    #[test]
    fn without_a_manager_nothing_is_due() {
        let mut notifier = Notifier::default();
        notifier.ready("");
        notifier.look(Instant::now(), || panic!("nobody asks"));
        assert_eq!(notifier.due(), None);
        for wrong in ["", "relative", "-"] {
            assert!(Notifier::new(OsStr::new(wrong), None).is_err(), "{wrong}");
        }
    }
}
