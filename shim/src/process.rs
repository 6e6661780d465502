//! The state that all hooks of this process share, and the questions every entry asks first.
//!
//! There is one [`Process`] behind one pointer. A forked child starts with none: the parent's locks may be
//! held by threads that the child doesn't have, and what the parent holds isn't the child's.
#![allow(unsafe_code)]

use crate::functions::Functions;
use crate::graphs::Graphs;
use crate::join::Membership;
use crate::live::Live;
use crate::log;
use crate::meter::Meter;
use crate::notices::Notices;
use crate::overhead::Overhead;
use crate::pace::{self, Pace};
use crate::pools::Pools;
use crate::vmm::Vmm;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use parking_lot::Mutex;
use quota_core::ledger::DEVICES_MAX;
use quota_core::settings::{LogLevel, SettingError};
use quota_core::{Mode, Settings};

/// Everything about this process.
pub(crate) struct Process {
    pub(crate) settings: Settings,
    /// A setting that can't be understood: everything is refused.
    pub(crate) mistake: Option<SettingError>,
    pub(crate) membership: Membership,
    pub(crate) live: Mutex<Live>,
    /// By CUDA's device: one thread at a time makes its primary context, or makes it go again.
    pub(crate) making_primary: [Mutex<()>; DEVICES_MAX],
    pub(crate) vmm: Mutex<Vmm>,
    pub(crate) pools: Pools,
    pub(crate) meter: Meter,
    pub(crate) overhead: Overhead,
    pub(crate) graphs: Mutex<Graphs>,
    pub(crate) functions: Mutex<Functions>,
    pub(crate) pace: Pace,
    pub(crate) notices: Notices,
}

const UNKNOWN: u8 = 0;
const ACTIVE: u8 = 1;
const OFF: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());

unsafe extern "C" {
    /// In `compat/glibc.c`.
    fn gpuquota_after_fork_in_child(child: extern "C" fn());
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this thread's calls of driver functions go straight to the driver.
pub(crate) struct Inside(bool);

impl Inside {
    pub(crate) fn enter() -> Self {
        Self(INSIDE.replace(true))
    }

    pub(crate) fn is_entered() -> bool {
        INSIDE.get()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// True when a call that comes in now is to be judged by its hook.
pub(crate) fn hooks_active() -> bool {
    match STATE.load(Ordering::Acquire) {
        ACTIVE => !Inside::is_entered(),
        OFF => false,
        _ => !Inside::is_entered() && start() == ACTIVE,
    }
}

/// True once the process is bound: its libraries are, there is memory for each thread, and libc has the environment.
///
/// Look-ups may come before: an `ifunc` of the program is resolved while the program is being bound. Thread-local memory can't be
/// touched then, and no setting be read. What is looked up then is libc's business; the exports that it finds are ours anyway.
pub(crate) fn is_bound() -> bool {
    unsafe extern "C" {
        static environ: *const *const core::ffi::c_char;
    }
    static BOUND: AtomicBool = AtomicBool::new(false);
    // What it guards has happened before by the loader's own order.
    if BOUND.load(Ordering::Relaxed) {
        return true;
    }
    // SAFETY: libc's variable; while there is one thread at most, or none changes it without the program's own care.
    let has_environment = !unsafe { environ }.is_null();
    // A program may have thrown its environment away since. Then Rust's own initialiser knows the arguments.
    let is_bound = has_environment || std::env::args_os().next().is_some();
    if is_bound {
        BOUND.store(true, Ordering::Relaxed);
    }
    is_bound
}

/// True when look-ups are to be answered with our entry points.
pub(crate) fn doors_open() -> bool {
    match STATE.load(Ordering::Acquire) {
        UNKNOWN => start() == ACTIVE,
        state => state == ACTIVE,
    }
}

/// The shared state; hooks run only when there is one.
pub(crate) fn process() -> &'static Process {
    let process = PROCESS.load(Ordering::Acquire);
    assert!(!process.is_null(), "hooks run after start");
    // SAFETY: set once by `start` from a leaked box, and never freed: other threads may be using it.
    unsafe { &*process }
}

/// Reads the settings, once a process.
fn start() -> u8 {
    let _inside = Inside::enter();
    let (settings, mistake) = match Settings::read(setting) {
        Ok(settings) => (settings, None),
        Err(mistake) => (Settings::default(), Some(mistake)),
    };
    log::configure(settings.log, settings.log_file.as_deref());
    let state = if settings.mode == Mode::Off { OFF } else { ACTIVE };
    if state == OFF {
        pace::free_for_good();
    }
    let fresh = Box::into_raw(Box::new(Process {
        settings,
        mistake,
        membership: Membership::default(),
        live: Mutex::default(),
        making_primary: [const { Mutex::new(()) }; DEVICES_MAX],
        vmm: Mutex::default(),
        pools: Pools::default(),
        meter: Meter::default(),
        overhead: Overhead::default(),
        graphs: Mutex::default(),
        functions: Mutex::default(),
        pace: Pace::default(),
        notices: Notices::default(),
    }));
    let null = core::ptr::null_mut();
    match PROCESS.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: registers a function that only stores to atomics, which is safe in a forked child.
            unsafe { gpuquota_after_fork_in_child(forget_in_child) };
            // SAFETY: just published, and never freed.
            if let Some(mistake) = unsafe { &(*fresh).mistake } {
                log::line(LogLevel::Error, format_args!("{mistake}; every allocation is refused"));
            }
        }
        // Another thread was faster.
        // SAFETY: our own box, which nobody has seen.
        Err(_) => drop(unsafe { Box::from_raw(fresh) }),
    }
    STATE.store(state, Ordering::Release);
    state
}

/// In a forked child, between `fork` and anything else.
extern "C" fn forget_in_child() {
    PROCESS.store(core::ptr::null_mut(), Ordering::Relaxed);
    STATE.store(UNKNOWN, Ordering::Release);
    INSIDE.set(false);
    crate::flight::forget_in_child();
    pace::forget_in_child();
}

/// What the environment says, as far as a privileged program may listen to it.
fn setting(name: &str) -> Option<String> {
    let names_a_file = ["_SOCKET", "_FILE", "_SHARED_CACHE"].iter().any(|end| name.ends_with(end));
    if names_a_file && is_privileged() {
        return None;
    }
    // What is not Unicode is no legal value of any setting, and is refused as such.
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// True in a setuid or otherwise privileged program.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: plain call.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
