//! Asks NVML on a thread of its own: a call that hangs in a broken driver must not stop the daemon.
//!
//! The thread sleeps until it is asked. What it has found lies in one place, and an eventfd says so.

use super::{Device, DeviceSample, Nvml, Utilisation};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long it is told again what processes used.
const UTILISATION_KEPT: Duration = Duration::from_millis(500);

/// The thread, as its owner sees it.
#[derive(Debug)]
pub struct Sampler {
    ask: SyncSender<u64>,
    /// The number of the newest question.
    asked: u64,
    /// The next sample is to say what processes used.
    utilisation: Arc<AtomicBool>,
    ready: Arc<OwnedFd>,
    latest: Arc<Mutex<Sample>>,
}

/// What the driver said, and the number of the question that it answers.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// By device, in NVML's order.
    pub devices: Vec<DeviceSample>,
    /// Every question up to this one was asked before the driver was.
    pub answers: u64,
}

impl Sampler {
    /// Starts the thread over these devices.
    ///
    /// # Errors
    /// When the kernel gives no descriptor or no thread.
    pub fn start(nvml: Nvml, known: Vec<Device>) -> io::Result<Self> {
        // One question may wait while one is answered; more would be answered by the same sample.
        let (ask, asked) = sync_channel(1);
        let ready = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let latest = Arc::new(Mutex::new(Sample { devices: vec![DeviceSample::default(); known.len()], answers: 0 }));
        let utilisation = Arc::new(AtomicBool::new(false));
        let sampler = Self {
            ask,
            asked: 0,
            utilisation: Arc::clone(&utilisation),
            ready: Arc::clone(&ready),
            latest: Arc::clone(&latest),
        };
        std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || work(&nvml, &known, &asked, &utilisation, &latest, &ready))?;
        Ok(sampler)
    }

    /// Asks for a sample; [`Sampler::ready`] becomes readable when there is one. Returns the number of the question:
    /// that of the last one, where it still waits to be answered.
    pub fn ask(&mut self) -> u64 {
        match self.ask.try_send(self.asked + 1) {
            // A question that the thread hasn't taken yet will be answered by what the driver says after now.
            Err(TrySendError::Full(_)) => {}
            _ => self.asked += 1,
        }
        self.asked
    }

    /// The same, for a sample that also says what processes used.
    pub fn ask_utilisation(&mut self) -> u64 {
        // Before the question, so that whichever sample answers it has been told.
        self.utilisation.store(true, Ordering::Release);
        self.ask()
    }

    /// Readable when a sample has come in.
    pub fn ready(&self) -> BorrowedFd<'_> {
        (*self.ready).as_fd()
    }

    /// The newest sample; takes note that it was seen.
    pub fn take(&self) -> Sample {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.ready, &mut count);
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn work(
    nvml: &Nvml,
    known: &[Device],
    asked: &Receiver<u64>,
    utilisation: &AtomicBool,
    latest: &Mutex<Sample>,
    ready: &OwnedFd,
) {
    // What processes used was asked for, and was told in the sample before the one that answers the question.
    let mut told: Option<(Instant, Vec<Utilisation>)> = None;
    while let Ok(answers) = asked.recv() {
        crate::threads::test_fault("sampler");
        if utilisation.swap(false, Ordering::Acquire) {
            told = Some((Instant::now(), nvml.utilisation(known)));
        }
        told = told.filter(|(at, _)| at.elapsed() < UTILISATION_KEPT);
        let mut devices = nvml.sample(known);
        for (device, used) in devices.iter_mut().zip(told.iter().flat_map(|(_, used)| used)) {
            device.utilisation.clone_from(used);
        }
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = Sample { devices, answers };
        let _ = rustix::io::write(ready, &1u64.to_ne_bytes());
    }
}
