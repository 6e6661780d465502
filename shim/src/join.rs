//! How the process becomes a member of its tenant: with the daemon, or through the ledger's file.
//!
//! It happens at the first call that has to know a quota. Where a daemon was named and doesn't answer, that
//! call waits [`DAEMON_WAIT_MAX`], then it and later ones are refused, and the daemon is tried again.

use crate::devices::{self, Library, Seen};
use crate::ledger_file::{self, Joined};
use crate::link::Link;
use crate::log;
use crate::process::process;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};
use driver_api::{CUdevice, CUresult};
use parking_lot::Mutex;
use quota_core::ledger::{DEVICES_MAX, DeviceId, SlotId};
use quota_core::settings::{DEFAULT_SOCKET, LogLevel, SECRET_FILE};
use quota_core::{Bytes, Mode, Percent, Settings};
use quota_wire::lock::LedgerLock;
use quota_wire::memory::{Access, Mapping};
use quota_wire::message::{DeviceAsk, Hello, PROTOCOL_VERSION, Reply, Request, Welcome, mismatch};
use quota_wire::secret::SECRET_FORM;
use quota_wire::socket::{Connection, WireError};
use quota_wire::{QuotaPage, Secret, TenantMemory, lock};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the first allocation waits for a daemon that was named.
pub(crate) const DAEMON_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause between two attempts to join, once one has failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of the command line that the daemon is told.
const COMMAND_BYTES_MAX: usize = 256;

/// Where the process stands.
pub(crate) enum Standing {
    /// Neither CUDA nor NVML is initialised: the driver has the word.
    NotReady,
    /// No quota anywhere: everything passes.
    Unmanaged,
    /// A quota that can't be had: everything is refused.
    Refused,
    /// Member of a tenant.
    Member(&'static Member),
}

/// Membership, once there is one.
///
/// A program may ask NVML long before it initialises CUDA, or never do that. NVML numbers devices its own way and
/// knows nothing of what is visible to CUDA, so what is joined on its word serves only what it is asked; CUDA's
/// first call joins on CUDA's.
#[derive(Default)]
pub(crate) struct Membership {
    cuda: Attempted,
    nvml: Attempted,
}

/// Joining on the word of one library.
#[derive(Default)]
struct Attempted {
    /// Set once; never freed, since other threads may be using it.
    member: AtomicPtr<Member>,
    attempts: Mutex<Attempts>,
}

#[derive(Default)]
struct Attempts {
    unmanaged: bool,
    failed_at: Option<Instant>,
}

/// What a member has.
pub(crate) struct Member {
    pub(crate) ledger: Mapping<TenantMemory>,
    pub(crate) file: OwnedFd,
    pub(crate) slot: SlotId,
    pub(crate) tenant: String,
    pub(crate) caps: Caps,
    /// Kept open: a daemon that comes after this one takes the page back through it.
    _page_file: Option<OwnedFd>,
    pub(crate) devices: Vec<MemberDevice>,
    /// The daemon, where there was one.
    pub(crate) daemon: Option<Link>,
    /// Threads of this process exclude each other here before the ledger's lock.
    pub(crate) growing: Mutex<()>,
    /// One more than the index in `devices`, by CUDA's number of the device; 0 while nobody has asked.
    pub(crate) by_ordinal: [AtomicU8; DEVICES_MAX],
    /// When the dead were last looked for, in milliseconds of the monotonic clock.
    pub(crate) swept_at_ms: AtomicU64,
}

/// Where the caps are read.
pub(crate) enum Caps {
    /// The daemon's page.
    Page(Mapping<QuotaPage>),
    /// The environment, by the member's device index.
    Fixed(Vec<FixedCaps>),
}

/// The caps of one device as the environment has them.
#[derive(Clone, Copy, Default)]
pub(crate) struct FixedCaps {
    pub(crate) memory: Option<Bytes>,
    pub(crate) compute: Option<Percent>,
}

/// A device as the member knows it.
pub(crate) struct MemberDevice {
    pub(crate) uuid: [u8; 16],
    pub(crate) total: Bytes,
    pub(crate) place: Option<DeviceId>,
    /// The page's epoch under which the present stock was granted.
    pub(crate) epoch: AtomicU64,
    /// Nothing was charged here yet.
    pub(crate) is_new: AtomicBool,
    /// Something measured was freed, and what is left has not been looked at yet.
    pub(crate) freed: AtomicBool,
    /// Bytes by which the charges exceeded what was held, when that was last looked at.
    pub(crate) slack: AtomicU64,
}

/// Nobody has looked yet.
pub(crate) const SLACK_UNKNOWN: u64 = u64::MAX;

impl Membership {
    /// Where the process stands with what it allocates; joins at the first call.
    pub(crate) fn standing(&self) -> Standing {
        self.cuda.standing(Library::Cuda)
    }

    /// The member, if the process has become one by what it allocates or launches; joins nothing.
    pub(crate) fn member(&self) -> Option<&'static Member> {
        let member = self.cuda.member.load(Ordering::Acquire);
        (!member.is_null()).then(|| leaked(member))
    }

    /// Where it stands with what it asks NVML.
    pub(crate) fn standing_for_nvml(&self) -> Standing {
        match self.standing() {
            // Settings by index count CUDA's devices, which NVML can't tell.
            Standing::NotReady if !process().settings.memory.is_indexed() => self.nvml.standing(Library::Nvml),
            standing => standing,
        }
    }
}

impl Attempted {
    fn standing(&self, library: Library) -> Standing {
        let member = self.member.load(Ordering::Acquire);
        if member.is_null() { self.join(library) } else { Standing::Member(leaked(member)) }
    }

    fn join(&self, library: Library) -> Standing {
        let Some(mut attempts) = self.attempts.try_lock_for(DAEMON_WAIT_MAX + RETRY_PAUSE) else {
            return Standing::Refused;
        };
        let member = self.member.load(Ordering::Acquire);
        if !member.is_null() {
            return Standing::Member(leaked(member));
        }
        let shared = process();
        if shared.mistake.is_some() {
            return Standing::Refused;
        }
        if attempts.unmanaged {
            return Standing::Unmanaged;
        }
        if attempts.failed_at.is_some_and(|at| at.elapsed() < RETRY_PAUSE) {
            return Standing::Refused;
        }
        let seen = devices::seen(library);
        if seen.is_empty() {
            return Standing::NotReady;
        }
        // Only the first attempt waits: a program that goes on allocating must not stand still each time.
        let patience = if attempts.failed_at.is_none() { DAEMON_WAIT_MAX } else { Duration::ZERO };
        match join(&shared.settings, &seen, patience) {
            Ok(Some(member)) => {
                let member = Box::into_raw(Box::new(member));
                self.member.store(member, Ordering::Release);
                shared.notices.member_made();
                Standing::Member(leaked(member))
            }
            Ok(None) => {
                attempts.unmanaged = true;
                Standing::Unmanaged
            }
            Err(reason) => {
                if attempts.failed_at.is_none() {
                    log::line(LogLevel::Error, format_args!("{reason}; every allocation is refused"));
                }
                attempts.failed_at = Some(Instant::now());
                Standing::Refused
            }
        }
    }
}

#[allow(unsafe_code)]
fn leaked(member: *mut Member) -> &'static Member {
    // SAFETY: a leaked box, set once and never freed.
    unsafe { &*member }
}

/// Joins the daemon that was named or is there, else the ledger's file; `None` when there is no quota at all.
fn join(settings: &Settings, seen: &[Seen], patience: Duration) -> Result<Option<Member>, String> {
    let named = settings.socket.as_deref();
    let path = named.unwrap_or(DEFAULT_SOCKET);
    match welcomed(Path::new(path), named.is_some(), &hello(settings, seen)?, patience) {
        Ok(Some(welcomed)) => return with_daemon(welcomed, seen, path).map(Some),
        Ok(None) => {}
        Err(error) => {
            let setting = if named.is_some() { "GPUQUOTA_SOCKET" } else { "the default socket" };
            return Err(format!("{setting}={path:?}: {error}; start gpuquotad there or correct the setting"));
        }
    }
    static SAID: log::Once = log::Once::new();
    let wants_more = settings.guarantee.is_some() || settings.weight.is_some() || settings.priority.is_some();
    if wants_more && SAID.first() {
        log::line(
            LogLevel::Warn,
            format_args!("guarantee, weight and priority do nothing without a daemon; start gpuquotad or unset them"),
        );
    }
    if !settings.asks_for_something() && settings.mode == Mode::Enforce {
        return Ok(None);
    }
    with_file(settings, seen).map(Some)
}

/// A connection; `None` when no daemon was named and none is there.
fn connect(path: &Path, named: bool, patience: Duration) -> Result<Option<Connection>, WireError> {
    let deadline = Instant::now() + patience;
    loop {
        let error = match Connection::connect(path, deadline.max(Instant::now() + Duration::from_millis(100))) {
            Ok(connection) => return Ok(Some(connection)),
            Err(error) => error,
        };
        let absent = matches!(&error, WireError::Io(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused));
        if absent && !named {
            return Ok(None);
        }
        if !absent || Instant::now() >= deadline {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a daemon that answered has given.
struct Welcomed {
    connection: Connection,
    reply: Reply,
    descriptors: Vec<OwnedFd>,
}

/// Says hello; `None` when no daemon was named and none is there. One that goes away in the middle of it is waited
/// for like one that isn't there yet.
fn welcomed(path: &Path, named: bool, hello: &Hello, patience: Duration) -> Result<Option<Welcomed>, WireError> {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Some(connection) = connect(path, named, left)? else { return Ok(None) };
        match connection.ask(&Request::Hello(hello.clone()), Instant::now() + DAEMON_WAIT_MAX) {
            Ok((reply, descriptors)) => return Ok(Some(Welcomed { connection, reply, descriptors })),
            Err(WireError::Closed | WireError::Io(_)) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error),
        }
    }
}

fn with_daemon(welcomed: Welcomed, seen: &[Seen], path: &str) -> Result<Member, String> {
    let Welcomed { connection, reply, mut descriptors } = welcomed;
    let welcome = match reply {
        Reply::Welcome(welcome) => welcome,
        Reply::Refused { reason } => return Err(format!("the daemon refused: {reason}")),
        other => return Err(format!("the daemon at {path:?} answered {other:?}")),
    };
    if let Some(reason) = mismatch("the daemon", welcome.version, "this library") {
        return Err(reason);
    }
    // The quota page, the ledger, and what wakes the daemon.
    let (Some(poke), Some(file), Some(page)) = (descriptors.pop(), descriptors.pop(), descriptors.pop()) else {
        return Err(format!("the daemon at {path:?} is of an older version: it sent too few descriptors; update it"));
    };
    let failed = |error: io::Error| format!("the daemon's pages: {error}");
    let [page_file, file, poke] = [page, file, poke].map(ledger_file::high_descriptor);
    let (page_file, file, poke) = (page_file.map_err(failed)?, file.map_err(failed)?, poke.map_err(failed)?);
    let page = Mapping::<QuotaPage>::new(page_file.as_fd(), Access::ReadOnly).map_err(failed)?;
    let ledger = Mapping::<TenantMemory>::new(file.as_fd(), Access::ReadWrite).map_err(failed)?;
    let slot =
        SlotId::new(welcome.slot).filter(|_| page.is_valid()).ok_or("the daemon's pages are of another version")?;
    {
        // Under the lock: nobody may take the slot for a dead process's between mark and first charge.
        let _guard = LedgerLock::take(file.as_fd()).map_err(failed)?;
        if !lock::mark_alive(file.as_fd(), slot).map_err(failed)? {
            return Err("another process has our slot in the ledger".to_owned());
        }
        ledger.occupy(slot, std::process::id());
    }
    Ok(Member {
        devices: member_devices(seen, &welcome),
        tenant: welcome.tenant,
        ledger,
        file,
        slot,
        caps: Caps::Page(page),
        _page_file: Some(page_file),
        daemon: Some(Link::new(PathBuf::from(path), slot, connection, poke)),
        growing: Mutex::new(()),
        by_ordinal: [const { AtomicU8::new(0) }; DEVICES_MAX],
        swept_at_ms: AtomicU64::new(0),
    })
}

fn member_devices(seen: &[Seen], welcome: &Welcome) -> Vec<MemberDevice> {
    let place = |index: usize| welcome.devices.get(index).copied().flatten().and_then(DeviceId::new);
    seen.iter().enumerate().map(|(index, device)| member_device(device, place(index))).collect()
}

fn member_device(seen: &Seen, place: Option<DeviceId>) -> MemberDevice {
    MemberDevice {
        uuid: seen.uuid,
        total: Bytes(seen.total_bytes),
        place,
        epoch: AtomicU64::new(0),
        is_new: AtomicBool::new(true),
        freed: AtomicBool::new(false),
        slack: AtomicU64::new(SLACK_UNKNOWN),
    }
}

fn hello(settings: &Settings, seen: &[Seen]) -> Result<Hello, String> {
    let read = |path: &String| {
        let failed = |why| format!("{SECRET_FILE}={path:?}: {why}; expected {SECRET_FORM}");
        Secret::read(Path::new(path)).map_err(failed)
    };
    Ok(Hello {
        version: PROTOCOL_VERSION,
        tenant: settings.tenant.clone(),
        pid: std::process::id(),
        command: command_line(),
        devices: seen
            .iter()
            .enumerate()
            .map(|(index, device)| DeviceAsk {
                uuid: device.uuid_text(),
                total_bytes: device.total_bytes,
                memory_bytes: settings.memory.on(index).map(|size| size.on(Bytes(device.total_bytes)).0),
                compute: settings.compute.on(index).map(quota_core::Percent::hundredths),
            })
            .collect(),
        weight: settings.weight,
        priority: settings.priority.map(|priority| priority.to_string()),
        guarantee: settings.guarantee.map(quota_core::Percent::hundredths),
        secret: settings.secret_file.as_ref().map(read).transpose()?,
    })
}

fn command_line() -> String {
    let mut bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    bytes.truncate(COMMAND_BYTES_MAX);
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}

fn with_file(settings: &Settings, seen: &[Seen]) -> Result<Member, String> {
    let Joined { file, ledger, slot } = ledger_file::join(settings)?;
    let mut members = Vec::new();
    {
        let guard = LedgerLock::take(file.as_fd()).map_err(|error| format!("the ledger: {error}"))?;
        for device in seen {
            let place = ledger.device(device.uuid, guard.token()).map_err(|error| format!("the ledger: {error}"))?;
            members.push(member_device(device, Some(place)));
        }
    }
    let caps = seen.iter().enumerate().map(|(index, device)| FixedCaps {
        memory: settings.memory.on(index).map(|size| size.on(Bytes(device.total_bytes))),
        compute: settings.compute.on(index).filter(Percent::binds),
    });
    Ok(Member {
        caps: Caps::Fixed(caps.collect()),
        _page_file: None,
        tenant: settings.tenant.clone().unwrap_or_else(|| "of this user and cgroup".to_owned()),
        devices: members,
        ledger,
        file,
        slot,
        daemon: None,
        growing: Mutex::new(()),
        by_ordinal: [const { AtomicU8::new(0) }; DEVICES_MAX],
        swept_at_ms: AtomicU64::new(0),
    })
}

impl Member {
    /// The most of the time of its device `index`; none where all of it may be used.
    pub(crate) fn compute_cap(&self, index: usize, place: DeviceId) -> Option<Percent> {
        match &self.caps {
            Caps::Page(page) => page.compute_cap(place).filter(Percent::binds),
            Caps::Fixed(caps) => caps.get(index)?.compute,
        }
    }

    /// The same at a time of the monotonic clock, with what is lent until then.
    pub(crate) fn compute_cap_at(&self, index: usize, place: DeviceId, now_ns: u64) -> Option<Percent> {
        match &self.caps {
            Caps::Page(page) => page.compute_cap_at(place, now_ns).filter(Percent::binds),
            Caps::Fixed(_) => self.compute_cap(index, place),
        }
    }

    /// The member's number for one of CUDA's devices; `None` for a device that nobody has given a quota on.
    ///
    /// # Errors
    /// The driver's, for what is no device.
    pub(crate) fn device_of(&self, device: CUdevice) -> Result<Option<usize>, CUresult> {
        // CUDA's numbers are small and never change; the UUID is what both sides know.
        let cached = usize::try_from(device).ok().and_then(|ordinal| self.by_ordinal.get(ordinal));
        let known = cached.map_or(0, |index| index.load(Ordering::Relaxed));
        if known != 0 {
            return Ok(Some(usize::from(known) - 1));
        }
        let found = self.device_with(crate::calls::device_uuid(device)?);
        if let (Some(cached), Some(Ok(known))) = (cached, found.map(|index| u8::try_from(index + 1))) {
            cached.store(known, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// The member's number for the device with this UUID.
    pub(crate) fn device_with(&self, uuid: [u8; 16]) -> Option<usize> {
        self.devices.iter().position(|device| device.uuid == uuid)
    }
}
