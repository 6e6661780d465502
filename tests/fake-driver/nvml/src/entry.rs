//! What happens around every call: initialisation, injected failures, latency, journal.

use crate::types::{Answer, Code};
use core::ffi::{c_char, c_int};
use fake_machine::{Failures, Handle, Journal, Latencies, Machine};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// An exported symbol, as the generated function knows it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The exported name.
    pub(crate) name: &'static str,
    /// True when it works without `nvmlInit`.
    pub(crate) stateless: bool,
}

/// An argument as one word for the journal.
pub(crate) trait Word {
    /// The argument, or the address that stands for it.
    fn word(&self) -> u64;
}

macro_rules! words { ($($ty:ty),*) => { $(impl Word for $ty {
    #[allow(clippy::cast_sign_loss, trivial_numeric_casts)]
    fn word(&self) -> u64 { *self as u64 }
})* } }
words!(u32, u64, c_int);

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

/// The knobs of the environment, read at the first call.
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

fn knobs() -> &'static Result<Knobs, String> {
    static KNOBS: OnceLock<Result<Knobs, String>> = OnceLock::new();
    KNOBS.get_or_init(Knobs::from_environment)
}

/// The machine, once there was an `nvmlInit` that found one. It stays: the next one uses it again.
static MACHINE: OnceLock<Machine> = OnceLock::new();
/// `nvmlInit` less `nvmlShutdown`. Written under [`CHANGING`]; a call that reads it above zero (acquire)
/// sees the machine that was there before it was raised (release).
static USERS: AtomicU32 = AtomicU32::new(0);
static CHANGING: Mutex<()> = Mutex::new(());
/// The devices of which a handle was given out since the first `nvmlInit`.
static HELD: Mutex<BTreeMap<usize, Handle>> = Mutex::new(BTreeMap::new());

/// The machine; bodies that need it run after `nvmlInit`.
pub(crate) fn machine() -> &'static Machine {
    MACHINE.get().expect("a body that needs the machine runs after nvmlInit")
}

/// Counts a user, and finds the machine for the first one.
pub(crate) fn begin() -> Answer {
    let _changing = CHANGING.lock();
    let explain = |message: &str| {
        eprintln!("simulated NVML: {message}");
        Code::UNKNOWN
    };
    knobs().as_ref().map_err(|message| explain(message))?;
    if MACHINE.get().is_none() {
        let machine = Machine::from_environment().map_err(|error| explain(&error.to_string()))?;
        // NVML holds nothing, and is no process of the device's.
        machine.leave();
        assert!(MACHINE.set(machine).is_ok(), "only set here, under the lock");
    }
    let users = USERS.load(Ordering::Relaxed).checked_add(1).ok_or(Code::UNKNOWN)?;
    USERS.store(users, Ordering::Release);
    Ok(())
}

/// Counts a user less. One too many is no error: the real library of driver 535 says so, its header not.
pub(crate) fn end() {
    let _changing = CHANGING.lock();
    let users = USERS.load(Ordering::Relaxed).saturating_sub(1);
    USERS.store(users, Ordering::Release);
    if users == 0 {
        HELD.lock().clear();
    }
}

/// Opens a device's node, unless it is open.
pub(crate) fn hold(device: usize) {
    let mut held = HELD.lock();
    if let Place::Vacant(free) = held.entry(device)
        // A program without descriptors has a handle all the same: nobody sees that it has.
        && let Ok(handle) = machine().hold(device)
    {
        free.insert(handle);
    }
}

/// Runs the body of a call that has one.
pub(crate) fn enter(entry: &Entry, arguments: &[(&str, u64)], body: impl FnOnce() -> Answer) -> c_int {
    let begin = Instant::now();
    let knobs = knobs().as_ref().ok();
    let injected = knobs.and_then(|knobs| knobs.failures.next(entry.name)).map(Code);
    let answer = match injected {
        Some(code) => Err(code),
        None if !entry.stateless && USERS.load(Ordering::Acquire) == 0 => Err(Code::UNINITIALIZED),
        None => catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::UNKNOWN)),
    };
    let result = answer.err().map_or(0, |code| code.0);
    if let Some(knobs) = knobs {
        if let Some(least) = knobs.latencies.of(entry.name) {
            std::thread::sleep(least.saturating_sub(begin.elapsed()));
        }
        if knobs.journal.is_on() {
            knobs.journal.write(entry.name, arguments, result);
        }
    }
    result
}

/// The same for a symbol that has no body.
pub(crate) fn unmodelled(entry: &Entry) -> c_int {
    enter(entry, &[("unmodelled", 1)], || Err(Code::NOT_SUPPORTED))
}

/// `nvmlErrorString`, in the words of the real library of driver 535. It doesn't know the last two codes, for
/// which no real words were at hand.
pub(crate) fn describe(code: c_int) -> *const c_char {
    let text = match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"GPU access blocked by the operating system",
        18 => c"Driver/library version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"vGPU ECC not supported",
        23 => c"Insufficient Resources",
        24 => c"Invalid Frequency",
        25 => c"Argument version mismatch",
        26 => c"Requested functionality has been deprecated",
        27 => c"System is not in ready state",
        28 => c"No GPUs found",
        29 => c"Invalid State",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}
