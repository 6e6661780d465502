//! What happens around every call: initialisation, forks, versions, injected failures, latency, journal.
//!
//! None of that costs anything while nothing of it is asked for: the benchmarks of the shim measure its
//! overhead against these functions. One word, [`READY`], tells a call that it may go straight to its body,
//! and a word of the machine's that nobody has locked the process.

use crate::args::Answer;
use crate::state;
use crate::stream::callbacks;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use driver_api::{CUmemLocation, CUresult};
use fake_machine::{Failures, Journal, Latencies};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// An exported symbol, as the generated function knows it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The exported name.
    pub(crate) name: &'static str,
    /// The lowest driver version that has it.
    pub(crate) since: u64,
    /// True when it works without `cuInit`.
    pub(crate) stateless: bool,
    /// True when it works in a process that is locked or checkpointed.
    pub(crate) unheld: bool,
    /// True for `_ptds` and `_ptsz`.
    pub(crate) per_thread: bool,
}

/// What a body is told about the call beside its arguments.
#[derive(Debug)]
pub(crate) struct Call {
    /// True when the default stream is the thread's own.
    pub(crate) per_thread: bool,
}

/// What a body may return.
pub(crate) trait Reply {
    /// The code for the program.
    fn code(self) -> CUresult;
}

impl Reply for CUresult {
    fn code(self) -> CUresult {
        self
    }
}

impl Reply for Answer {
    fn code(self) -> CUresult {
        self.err().unwrap_or(CUresult::SUCCESS)
    }
}

/// An argument as one word for the journal.
pub(crate) trait Word {
    /// The argument, or what identifies it.
    fn word(&self) -> u64;
}

macro_rules! words { ($($ty:ty),*) => { $(impl Word for $ty {
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation, trivial_numeric_casts)]
    fn word(&self) -> u64 { *self as u64 }
})* } }
words!(u8, u16, u32, u64, usize, c_int);

impl<T> Word for *const T {
    fn word(&self) -> u64 {
        self.addr() as u64
    }
}

impl<T> Word for *mut T {
    fn word(&self) -> u64 {
        self.addr() as u64
    }
}

impl Word for f32 {
    fn word(&self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Word for CUresult {
    fn word(&self) -> u64 {
        self.0.word()
    }
}

impl Word for CUmemLocation {
    fn word(&self) -> u64 {
        self.kind.word() << 32 | u64::from(self.id.cast_unsigned())
    }
}

impl Word for driver_api::CUhostFn {
    fn word(&self) -> u64 {
        self.map_or(0, |function| (function as *const c_void).word())
    }
}

impl Word for driver_api::CUipcMemHandle {
    fn word(&self) -> u64 {
        u64::from_le_bytes(self.reserved[..8].try_into().expect("eight of sixty-four bytes"))
    }
}

impl Word for driver_api::CUipcEventHandle {
    fn word(&self) -> u64 {
        u64::from_le_bytes(self.reserved[..8].try_into().expect("eight of sixty-four bytes"))
    }
}

impl Word for driver_api::CUeglFrame {
    fn word(&self) -> u64 {
        self.words[0]
    }
}

/// The driver's version once a call needs nothing but its body, else 0: the fast path is one comparison.
///
/// Set by `cuInit` after the state is published (release), read by every call (acquire): a call that sees
/// it set sees the state. Cleared in the child of a fork.
static READY: AtomicU64 = AtomicU64::new(0);
/// True once `cuInit` has succeeded.
static INITIALISED: AtomicBool = AtomicBool::new(false);
/// True in a child forked after that.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The knobs of the environment, read at the first call.
struct Settings {
    version: u64,
    /// `None` when nothing is asked for.
    knobs: Option<Knobs>,
    /// False when a setting says nothing that could be followed: every call then answers 999.
    valid: bool,
}

struct Knobs {
    failures: Failures,
    latencies: Latencies,
    journal: Journal,
}

impl Knobs {
    fn from_environment() -> Result<Self, String> {
        Ok(Self {
            failures: Failures::from_environment().map_err(|error| error.to_string())?,
            latencies: Latencies::from_environment().map_err(|error| error.to_string())?,
            journal: Journal::from_environment().map_err(|error| error.to_string())?,
        })
    }
}

fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let wanted = ["FAKE_CUDA_FAIL", "FAKE_CUDA_LATENCY", "FAKE_CUDA_JOURNAL"].into_iter().any(is_set);
        let version = u64::try_from(fake_machine::driver_version()).unwrap_or(0);
        match wanted.then(Knobs::from_environment).transpose() {
            Ok(knobs) => Settings { version, knobs, valid: true },
            Err(message) => {
                eprintln!("simulated CUDA driver: {message}");
                Settings { version, knobs: None, valid: false }
            }
        }
    })
}

/// The driver's CUDA version.
pub(crate) fn version() -> i32 {
    i32::try_from(settings().version).unwrap_or(i32::MAX)
}

/// Called by `cuInit` when the state is in place.
pub(crate) fn initialised() {
    let settings = settings();
    INITIALISED.store(true, Ordering::Release);
    if settings.knobs.is_none() && settings.valid {
        READY.store(settings.version, Ordering::Release);
    }
}

/// True once `cuInit` has succeeded.
pub(crate) fn is_initialised() -> bool {
    INITIALISED.load(Ordering::Acquire)
}

/// Called in the child of a process that had called `cuInit`: the device is lost to it, as on the driver.
pub(crate) fn forked() {
    FORKED.store(true, Ordering::Relaxed);
    READY.store(0, Ordering::Relaxed);
}

/// True in a child of a process that had called `cuInit`.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// True when somebody has locked this process: calls then wait.
#[inline]
fn is_held() -> bool {
    state::started().is_some_and(|driver| driver.machine.is_held())
}

/// Waits until the call may go on. What a stream calls is part of the work that the lock waits for.
fn wait_while_held(entry: &Entry) {
    let passes = entry.unheld || is_forked() || callbacks::forbid_inside().is_err();
    if let Some(driver) = state::started().filter(|_| !passes) {
        driver.machine.wait_until_let_go();
    }
}

/// Runs the body of a call that has one.
#[inline]
pub(crate) fn enter<const N: usize, R: Reply>(
    entry: &'static Entry,
    arguments: impl FnOnce() -> [(&'static str, u64); N],
    body: impl FnOnce(&Call) -> R,
) -> CUresult {
    let call = Call { per_thread: entry.per_thread };
    let guarded = || catch_unwind(AssertUnwindSafe(|| body(&call).code())).unwrap_or(CUresult::UNKNOWN);
    if entry.since <= READY.load(Ordering::Acquire) && !is_held() {
        return guarded();
    }
    let mut guarded = Some(guarded);
    around(entry, &arguments(), &mut || guarded.take().map_or(CUresult::UNKNOWN, |body| body()))
}

/// The same for a symbol that has no body.
#[cold]
pub(crate) fn unmodelled(entry: &'static Entry) -> CUresult {
    around(entry, &[("unmodelled", 1)], &mut || CUresult::NOT_SUPPORTED)
}

/// A call for which something is to be done beside its body.
#[cold]
fn around(entry: &Entry, arguments: &[(&str, u64)], body: &mut dyn FnMut() -> CUresult) -> CUresult {
    wait_while_held(entry);
    let settings = settings();
    let Some(knobs) = &settings.knobs else {
        return checked(entry, settings, body);
    };
    let begin = Instant::now();
    let result = match knobs.failures.next(entry.name) {
        Some(code) => CUresult(code),
        None => checked(entry, settings, body),
    };
    if let Some(least) = knobs.latencies.of(entry.name) {
        wait_until(begin + least);
    }
    if knobs.journal.is_on() {
        knobs.journal.write(entry.name, arguments, result.0);
    }
    result
}

/// The body, if the driver's state and version allow the call.
fn checked(entry: &Entry, settings: &Settings, body: &mut dyn FnMut() -> CUresult) -> CUresult {
    let forked = FORKED.load(Ordering::Relaxed);
    if !settings.valid {
        CUresult::UNKNOWN
    } else if entry.since > settings.version {
        CUresult::NOT_SUPPORTED
    } else if !entry.stateless && (forked || !(is_initialised() || entry.name == "cuInit")) {
        CUresult::NOT_INITIALIZED
    } else {
        body()
    }
}

/// Sleeps most of the way and spins the rest, since a sleep may end a scheduler's tick late.
fn wait_until(end: Instant) {
    const SLEEP_SLACK: Duration = Duration::from_micros(100);
    let left = end.saturating_duration_since(Instant::now());
    if left > SLEEP_SLACK {
        std::thread::sleep(left - SLEEP_SLACK);
    }
    while Instant::now() < end {
        core::hint::spin_loop();
    }
}
