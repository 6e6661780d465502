//! The driver's state in this process: the devices it sees, its contexts, each thread's stack of contexts.
//!
//! A handle is an address that the program can't do anything with; every handle is looked up before it is
//! used, so that a stale or invented one gets the driver's error instead of a crash.

mod visible;

use crate::args::Answer;
pub(crate) use crate::context::Context;
use crate::context::Primary;
use crate::entry;
use crate::pool::DevicePools;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use driver_api::{CUcontext, CUdevice, CUresult};
use fake_machine::{DeviceSpec, Machine};
use parking_lot::{Mutex, RwLock};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// What `cuInit` sets up and nothing takes down.
pub(crate) struct Driver {
    /// The machine that all its processes share.
    pub(crate) machine: Machine,
    devices: Vec<Device>,
    contexts: RwLock<HashMap<usize, Arc<Context>>>,
}

/// A device, or MIG instance, that this process sees.
pub(crate) struct Device {
    /// Its number in this process.
    pub(crate) ordinal: CUdevice,
    /// Its number in the machine.
    pub(crate) physical: usize,
    /// Its primary context.
    pub(crate) primary: Mutex<Primary>,
    /// Its memory pools.
    pub(crate) pools: DevicePools,
    /// Live contexts of this process on it.
    contexts: AtomicU32,
    /// Bytes of this process's managed memory that was made for it.
    managed: AtomicU64,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// The state; bodies are only entered when there is one (stateless functions excepted, which need none).
pub(crate) fn driver() -> &'static Driver {
    DRIVER.get().expect("a body that needs the state runs after cuInit")
}

/// The state, if `cuInit` has set it up.
#[inline]
pub(crate) fn started() -> Option<&'static Driver> {
    DRIVER.get()
}

/// Sets the state up; the second and later calls find it done.
pub(crate) fn initialise() -> Answer {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock();
    if entry::is_forked() {
        return Err(CUresult::NOT_INITIALIZED);
    }
    if DRIVER.get().is_some() {
        return Ok(());
    }
    let machine = Machine::from_environment().map_err(|error| {
        eprintln!("simulated CUDA driver: {error}");
        CUresult::UNKNOWN
    })?;
    let order = visible::from_environment(&machine);
    if order.is_empty() {
        return Err(CUresult::NO_DEVICE);
    }
    let devices = (0..).zip(order).map(|(ordinal, physical)| Device {
        ordinal,
        physical,
        primary: Mutex::default(),
        pools: DevicePools::default(),
        contexts: AtomicU32::new(0),
        managed: AtomicU64::new(0),
    });
    let driver = Driver { machine, devices: devices.collect(), contexts: RwLock::default() };
    driver.machine.use_cuda();
    assert!(DRIVER.set(driver).is_ok(), "only set here, under the lock");
    on_fork();
    entry::initialised();
    Ok(())
}

impl Driver {
    /// Every device that this process sees.
    pub(crate) fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The context behind a handle that is not null.
    pub(crate) fn find_context(&self, handle: usize) -> Option<Arc<Context>> {
        self.contexts.read().get(&handle).cloned()
    }

    /// All live contexts.
    pub(crate) fn contexts(&self) -> Vec<Arc<Context>> {
        self.contexts.read().values().cloned().collect()
    }

    /// Makes a context known by its handle. Under the lock, so that the machine hears of it in the order
    /// in which it happens.
    pub(crate) fn add_context(&self, context: &Arc<Context>) {
        let mut contexts = self.contexts.write();
        contexts.insert(context.handle(), Arc::clone(context));
        if context.device.contexts.fetch_add(1, Ordering::Relaxed) == 0 {
            self.machine.set_context(context.device.physical, true);
        }
    }

    /// Forgets a context; its handle may be that of a new primary context already, which stays.
    pub(crate) fn remove_context(&self, context: &Context) {
        let mut contexts = self.contexts.write();
        if contexts.get(&context.handle()).is_some_and(|known| known.id == context.id) {
            contexts.remove(&context.handle());
        }
        if context.device.contexts.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.machine.set_context(context.device.physical, false);
        }
    }
}

impl Device {
    /// What the machine says about it.
    pub(crate) fn spec(&self) -> &'static DeviceSpec {
        &driver().machine.units()[self.physical]
    }

    /// Its memory as CUDA sees it: NVML also counts what is reserved for firmware and the like.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.spec().total_bytes - self.spec().reserved_bytes
    }

    /// The handle of its primary context, the same for the life of the process.
    pub(crate) fn primary_handle(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Charges bytes to the device, or says that they don't fit.
    pub(crate) fn take(&self, bytes: u64) -> Answer {
        if bytes == 0 {
            return Ok(());
        }
        driver().machine.take(self.physical, bytes).map_err(|_| CUresult::OUT_OF_MEMORY)
    }

    /// Adds managed memory, which need not fit.
    pub(crate) fn take_managed(&self, bytes: u64) {
        HAS_MANAGED.store(true, Ordering::Relaxed);
        self.managed.fetch_add(bytes, Ordering::Relaxed);
        driver().machine.take_managed(self.physical, bytes);
    }

    /// Gives managed memory back.
    pub(crate) fn give_managed(&self, bytes: u64) {
        self.managed.fetch_sub(bytes, Ordering::Relaxed);
        driver().machine.give_managed(self.physical, bytes);
    }

    /// Something is about to use it here: managed memory comes to the device. How long that takes it.
    pub(crate) fn use_managed(&self) -> u64 {
        if self.managed.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        crate::copy::duration_ns(driver().machine.use_managed(self.physical), true)
    }

    /// Gives bytes back.
    pub(crate) fn give(&self, bytes: u64) {
        if bytes > 0 {
            driver().machine.give(self.physical, bytes);
        }
    }
}

static HAS_MANAGED: AtomicBool = AtomicBool::new(false);

/// True once this process has had managed memory: who never had any pays a load at a launch.
#[inline]
pub(crate) fn has_managed() -> bool {
    HAS_MANAGED.load(Ordering::Relaxed)
}

/// The device of an ordinal.
pub(crate) fn device(ordinal: CUdevice) -> Answer<&'static Device> {
    usize::try_from(ordinal).ok().and_then(|at| driver().devices.get(at)).ok_or(CUresult::INVALID_DEVICE)
}

/// The context behind a handle; null means the thread's current one.
pub(crate) fn context(handle: CUcontext) -> Answer<Arc<Context>> {
    if handle.is_null() {
        return current();
    }
    driver().find_context(handle.addr()).ok_or(CUresult::INVALID_CONTEXT)
}

thread_local! {
    /// The thread's stack of contexts, top last.
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

/// The thread's current context.
pub(crate) fn current() -> Answer<Arc<Context>> {
    with_current(|context| Ok(Arc::clone(context)))
}

/// Does something short with the thread's current context, without counting a reference.
///
/// `act` must not call back into the program, which could change the stack.
pub(crate) fn with_current<T>(act: impl FnOnce(&Arc<Context>) -> Answer<T>) -> Answer<T> {
    let outcome = STACK.try_with(|stack| {
        {
            let stack = stack.borrow();
            let top = stack.last().ok_or(CUresult::INVALID_CONTEXT)?;
            if !top.is_destroyed() {
                return act(top);
            }
        }
        let mut stack = stack.borrow_mut();
        let top = stack.last_mut().ok_or(CUresult::INVALID_CONTEXT)?;
        // A primary context that was reset and retained anew is current again wherever it was.
        *top = driver().find_context(top.handle()).ok_or(CUresult::CONTEXT_IS_DESTROYED)?;
        act(top)
    });
    outcome.unwrap_or(Err(CUresult::INVALID_CONTEXT))
}

/// Works on the thread's stack; `act` must not call back into the driver.
pub(crate) fn with_stack<T>(act: impl FnOnce(&mut Vec<Arc<Context>>) -> Answer<T>) -> Answer<T> {
    STACK.try_with(|stack| act(&mut stack.borrow_mut())).unwrap_or(Err(CUresult::INVALID_CONTEXT))
}

/// A handle as the program gets it.
pub(crate) fn handle(address: usize) -> *mut c_void {
    core::ptr::without_provenance_mut(address)
}

/// Lets the child of a fork know that the device isn't its own.
fn on_fork() {
    extern "C" fn in_child() {
        entry::forked();
    }
    crate::pages::at_fork(in_child);
}
