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
    ask: SyncSender<()>,
    ready: Arc<OwnedFd>,
    latest: Arc<Mutex<Vec<DeviceSample>>>,
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
        let latest = Arc::new(Mutex::new(vec![DeviceSample::default(); count]));
        let sampler = Self { ask, ready: Arc::clone(&ready), latest: Arc::clone(&latest) };
        std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || work(&nvml, count, &asked, &latest, &ready))?;
        Ok(sampler)
    }

    /// Asks for a sample; [`Sampler::ready`] becomes readable when there is one. False when the last
    /// question hasn't been answered yet.
    pub fn ask(&self) -> bool {
        !matches!(self.ask.try_send(()), Err(TrySendError::Full(())))
    }

    /// Readable when a sample has come in.
    pub fn ready(&self) -> BorrowedFd<'_> {
        (*self.ready).as_fd()
    }

    /// The newest sample; takes note that it was seen.
    pub fn take(&self) -> Vec<DeviceSample> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.ready, &mut count);
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn work(nvml: &Nvml, count: usize, asked: &Receiver<()>, latest: &Mutex<Vec<DeviceSample>>, ready: &OwnedFd) {
    while asked.recv().is_ok() {
        let sample = nvml.sample(count);
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = sample;
        let _ = rustix::io::write(ready, &1u64.to_ne_bytes());
    }
}
