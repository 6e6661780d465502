//! Asks NVML on a thread of its own: a call that hangs in a broken driver must not stop the daemon.
//!
//! The thread sleeps until it is asked. What it has found lies in one place, and an eventfd says so. One that doesn't come
//! back is left behind and another one asks; [`watchdog`](super::watchdog) says when. It ends when it does come back, and then
//! lets go of NVML as every other does, so that each initialisation has its end. Of devices that are drained nothing is asked:
//! NVML, which lets go of all devices or of none, is then begun anew without them.

use super::watchdog::{PATIENCE, Verdict, Watchdog};
use super::{Device, DeviceSample, Inventory, Nvml, Utilisation};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For how long it is told again what processes used.
const UTILISATION_KEPT: Duration = Duration::from_millis(500);

/// A driver that can be asked; it is let go of when this is dropped.
pub trait Driver: Send {
    /// What a device says now.
    fn sample(&self, device: usize) -> DeviceSample;

    /// What processes used lately of a device.
    fn utilisation(&self, device: usize) -> Utilisation;
}

/// Begins with the driver anew; called on the thread that then asks it. What is wrong, in words, where it can't.
pub type Open = Arc<dyn Fn() -> Result<Box<dyn Driver>, String> + Send + Sync>;

/// NVML with the devices that were there when the daemon started.
struct Known {
    nvml: Nvml,
    devices: Arc<[Device]>,
}

impl Driver for Known {
    fn sample(&self, device: usize) -> DeviceSample {
        self.nvml.sample_one(&self.devices, device)
    }

    fn utilisation(&self, device: usize) -> Utilisation {
        self.nvml.utilisation_one(&self.devices, device)
    }
}

/// The thread, as its owner sees it.
pub struct Sampler {
    open: Open,
    ask: SyncSender<u64>,
    /// The number of the newest question.
    asked: u64,
    /// Since when there is a question that nobody has answered.
    silent_since: Option<Instant>,
    watchdog: Watchdog,
    /// Threads that have taken over since the last answer.
    replaced: u32,
    shared: Arc<Shared>,
}

impl core::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sampler").field("asked", &self.asked).field("silent_since", &self.silent_since).finish()
    }
}

/// What all threads share.
#[derive(Debug)]
struct Shared {
    /// The next sample is to say what processes used.
    utilisation: AtomicBool,
    ready: OwnedFd,
    latest: Mutex<Latest>,
    drained: Mutex<Vec<bool>>,
    /// Threads that have been replaced and are still in a call of the driver's.
    left_behind: AtomicUsize,
}

#[derive(Debug)]
struct Latest {
    /// The thread that is listened to.
    thread: u64,
    sample: Sample,
}

/// What the driver said, and the number of the question that it answers.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// By device, in NVML's order.
    pub devices: Vec<DeviceSample>,
    /// Every question up to this one was asked before the driver was.
    pub answers: u64,
}

/// What was done about a driver that doesn't answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// Another thread asks; so many are left behind.
    Replaced(usize),
    /// None was started, since so many are left behind already.
    Full(usize),
    /// The kernel gives no thread.
    NoThread,
}

impl Sampler {
    /// Starts the thread over NVML, as it was used for the inventory.
    ///
    /// # Errors
    /// When the kernel gives no descriptor or no thread.
    pub fn start(nvml: Nvml, inventory: &Inventory) -> io::Result<Self> {
        let devices: Arc<[Device]> = inventory.devices.as_slice().into();
        let first = Known { nvml, devices: Arc::clone(&devices) };
        let open: Open = Arc::new(move || {
            let nvml = Nvml::open().map_err(|error| error.to_string())?;
            Ok(Box::new(Known { nvml, devices: Arc::clone(&devices) }) as Box<dyn Driver>)
        });
        let patience = crate::threads::test_duration("GPUQUOTA_TEST_DRIVER_PATIENCE").unwrap_or(PATIENCE);
        Self::over(Box::new(first), open, inventory.devices.len(), patience)
    }

    /// The same over any driver with `count` devices, whose answers are waited for so long.
    ///
    /// # Errors
    /// As above.
    pub fn over(driver: Box<dyn Driver>, open: Open, count: usize, patience: Duration) -> io::Result<Self> {
        let sample = Sample { devices: vec![DeviceSample::default(); count], answers: 0 };
        let shared = Arc::new(Shared {
            utilisation: AtomicBool::new(false),
            ready: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            latest: Mutex::new(Latest { thread: 0, sample }),
            drained: Mutex::new(vec![false; count]),
            left_behind: AtomicUsize::new(0),
        });
        let ask = start(0, Some(driver), &open, &shared)?;
        let watchdog = Watchdog::new(patience);
        Ok(Self { open, ask, asked: 0, silent_since: None, watchdog, replaced: 0, shared })
    }

    /// Asks for a sample; [`Sampler::ready`] becomes readable when there is one. Returns the number of the question:
    /// that of the last one, where it still waits to be answered.
    pub fn ask(&mut self, now: Instant) -> u64 {
        match self.ask.try_send(self.asked + 1) {
            // A question that the thread hasn't taken yet will be answered by what the driver says after now.
            Err(TrySendError::Full(_)) => {}
            _ => self.asked += 1,
        }
        self.silent_since.get_or_insert(now);
        self.asked
    }

    /// The same, for a sample that also says what processes used.
    pub fn ask_utilisation(&mut self, now: Instant) -> u64 {
        // Before the question, so that whichever sample answers it has been told.
        self.shared.utilisation.store(true, Ordering::Release);
        self.ask(now)
    }

    /// Lets go of these devices, and only of these, at the next question.
    pub fn set_drained(&self, drained: Vec<bool>) {
        *lock(&self.shared.drained) = drained;
    }

    /// Readable when a sample has come in.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.shared.ready.as_fd()
    }

    /// The newest sample; takes note that it was seen.
    pub fn take(&mut self, now: Instant) -> Sample {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.ready, &mut count);
        let sample = lock(&self.shared.latest).sample.clone();
        self.silent_since = (sample.answers < self.asked).then_some(now);
        self.watchdog.answered();
        self.replaced = 0;
        sample
    }

    /// Since when the driver hasn't answered, and how many threads have taken over since.
    pub fn silence(&self) -> Option<(Instant, u32)> {
        Some((self.silent_since?, self.replaced))
    }

    /// When [`Sampler::watch`] has something to do.
    pub fn due(&self) -> Option<Instant> {
        self.silent_since.map(|since| self.watchdog.due(since))
    }

    /// Has another thread ask where one hasn't come back for too long; says what was done.
    pub fn watch(&mut self, now: Instant) -> Option<Remedy> {
        let left_behind = self.shared.left_behind.load(Ordering::Acquire);
        match self.watchdog.look(now, self.silent_since?, left_behind) {
            Verdict::Wait => None,
            Verdict::Full => Some(Remedy::Full(left_behind)),
            Verdict::Replace => Some(self.replace()),
        }
    }

    fn replace(&mut self) -> Remedy {
        let thread = lock(&self.shared.latest).thread + 1;
        let Ok(ask) = start(thread, None, &self.open, &self.shared) else { return Remedy::NoThread };
        let left_behind = {
            // Together: the old one counts itself out when it sees that it is no longer listened to.
            let mut latest = lock(&self.shared.latest);
            latest.thread = thread;
            self.shared.left_behind.fetch_add(1, Ordering::AcqRel) + 1
        };
        self.ask = ask;
        let _ = self.ask.try_send(self.asked);
        self.replaced += 1;
        Remedy::Replaced(left_behind)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread; what it is asked through.
fn start(
    number: u64,
    driver: Option<Box<dyn Driver>>,
    open: &Open,
    shared: &Arc<Shared>,
) -> io::Result<SyncSender<u64>> {
    // One question may wait while one is answered; more would be answered by the same sample.
    let (ask, asked) = sync_channel(1);
    let without = vec![false; lock(&shared.drained).len()];
    let mut work = Work { number, driver, open: Arc::clone(open), without, shared: Arc::clone(shared), told: None };
    std::thread::Builder::new().name("sampler".to_owned()).spawn(move || work.run(&asked))?;
    Ok(ask)
}

/// What a thread has.
struct Work {
    number: u64,
    driver: Option<Box<dyn Driver>>,
    open: Open,
    /// The devices of which this driver has never been asked for anything.
    without: Vec<bool>,
    shared: Arc<Shared>,
    /// What processes used was asked for, and was told in the sample before the one that answers the question.
    told: Option<(Instant, Vec<Utilisation>)>,
}

impl Work {
    fn run(&mut self, asked: &Receiver<u64>) {
        while let Ok(answers) = asked.recv() {
            crate::threads::test_fault("sampler");
            let devices = self.look();
            if !self.publish(Sample { devices, answers }) {
                break;
            }
        }
        // First the driver, then the count: who counts none may rely on none of ours holding it.
        self.driver = None;
        if lock(&self.shared.latest).thread != self.number {
            self.shared.left_behind.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// False for a thread that is no longer listened to.
    fn publish(&self, sample: Sample) -> bool {
        let mut latest = lock(&self.shared.latest);
        if latest.thread != self.number {
            return false;
        }
        latest.sample = sample;
        let _ = rustix::io::write(&self.shared.ready, &1u64.to_ne_bytes());
        true
    }

    fn look(&mut self) -> Vec<DeviceSample> {
        let drained = lock(&self.shared.drained).clone();
        let opened = self.attune(&drained);
        let wants_utilisation = self.shared.utilisation.swap(false, Ordering::Acquire);
        let Some(driver) = &self.driver else {
            let error = opened.err();
            let silent = |drained: &bool| if *drained { self.let_go() } else { failing(error.clone()) };
            return drained.iter().map(silent).collect();
        };
        if wants_utilisation {
            let used = |(device, drained): (usize, &bool)| if *drained { None } else { driver.utilisation(device) };
            self.told = Some((Instant::now(), drained.iter().enumerate().map(used).collect()));
        }
        self.told = self.told.take().filter(|(at, _)| at.elapsed() < UTILISATION_KEPT);
        let say = |(device, drained): (usize, &bool)| if *drained { self.let_go() } else { driver.sample(device) };
        let mut devices: Vec<DeviceSample> = drained.iter().enumerate().map(say).collect();
        for (device, used) in devices.iter_mut().zip(self.told.iter().flat_map(|(_, used)| used)) {
            device.utilisation.clone_from(used);
        }
        devices
    }

    /// Has a driver that holds no drained device; none where all are.
    fn attune(&mut self, drained: &[bool]) -> Result<(), String> {
        if drained.iter().zip(&self.without).any(|(drained, without)| *drained && !without) {
            self.driver = None;
        }
        if drained.iter().all(|drained| *drained) {
            self.driver = None;
        } else if self.driver.is_none() {
            self.driver = Some((self.open)()?);
        }
        // What is asked for now is held until the driver is let go of.
        self.without = drained.to_vec();
        Ok(())
    }

    /// A device that isn't asked. While a thread hangs in the driver, NVML holds what it has.
    fn let_go(&self) -> DeviceSample {
        DeviceSample { let_go: self.shared.left_behind.load(Ordering::Acquire) == 0, ..DeviceSample::default() }
    }
}

fn failing(error: Option<String>) -> DeviceSample {
    DeviceSample { error, ..DeviceSample::default() }
}

#[cfg(test)]
mod tests;
