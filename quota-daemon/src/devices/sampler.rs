//! Asks NVML on a thread of its own: a call that hangs in a broken driver must not stop the daemon.
//!
//! The thread sleeps until it is asked. What it has found lies in one place, and an eventfd says so.

use super::{DeviceSample, Nvml};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The thread, as its owner sees it.
#[derive(Debug)]
pub struct Sampler {
    ask: SyncSender<u64>,
    /// The number of the newest question.
    asked: u64,
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
    /// Starts the thread over `count` devices.
    ///
    /// # Errors
    /// When the kernel gives no descriptor or no thread.
    pub fn start(nvml: Nvml, count: usize) -> io::Result<Self> {
        // One question may wait while one is answered; more would be answered by the same sample.
        let (ask, asked) = sync_channel(1);
        let ready = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let latest = Arc::new(Mutex::new(Sample { devices: vec![DeviceSample::default(); count], answers: 0 }));
        let sampler = Self { ask, asked: 0, ready: Arc::clone(&ready), latest: Arc::clone(&latest) };
        std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || work(&nvml, count, &asked, &latest, &ready))?;
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

fn work(nvml: &Nvml, count: usize, asked: &Receiver<u64>, latest: &Mutex<Sample>, ready: &OwnedFd) {
    while let Ok(answers) = asked.recv() {
        let sample = Sample { devices: nvml.sample(count), answers };
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = sample;
        let _ = rustix::io::write(ready, &1u64.to_ne_bytes());
    }
}
