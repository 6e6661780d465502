//! The work of one context on its device, in the order of its submission.
//!
//! The machine serves a context's work as one queue, so that "done" is one growing number: the piece with
//! number N is done when the number of completed pieces has reached N. Streams remember numbers only, and
//! an idle stream is told from a busy one without a lock.

use crate::args::Answer;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use driver_api::CUresult;
use fake_machine::{ContextSlot, Machine, Ticket, Work};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};

use super::Stream;

/// Pieces of work that may wait on the device; a launch beyond them blocks until there is room.
pub(crate) const OUTSTANDING_MAX: usize = 1024;

/// Nanoseconds of `CLOCK_MONOTONIC`, the machine's clock.
pub(crate) use fake_machine::now_ns;

struct Piece {
    number: u64,
    ticket: Ticket,
    /// For those who want to know when it ended.
    end_ns: Option<Arc<OnceLock<u64>>>,
}

/// Where the piece `number` is in the list: pieces are numbered without a gap.
fn place(outstanding: &VecDeque<Piece>, number: u64) -> Option<usize> {
    usize::try_from(number.checked_sub(outstanding.front()?.number)?).ok()
}

/// The streams of a context. Ended ones are swept when the list has doubled, so that sweeping costs little.
#[derive(Default)]
struct Listed {
    streams: BTreeMap<u64, Weak<Stream>>,
    sweep_at: usize,
}

const SWEEP_MIN: usize = 64;

/// A context's queue on its device.
pub(crate) struct DeviceQueue {
    machine: &'static Machine,
    slot: ContextSlot,
    /// The machine's number of the device.
    pub(crate) device: usize,
    /// Handle of the context, known from the first stream that was created in it.
    pub(crate) context: AtomicUsize,
    submitted: AtomicU64,
    completed: AtomicU64,
    outstanding: Mutex<VecDeque<Piece>>,
    /// The last work of the legacy stream, for which blocking streams wait, and the reverse.
    pub(crate) legacy_last: AtomicU64,
    pub(crate) blocking_last: AtomicU64,
    /// How many of the context's streams have work that is not yet on the device.
    pub(crate) backlogs: AtomicUsize,
    /// How many streams that the legacy stream synchronises with are being captured.
    pub(crate) blocking_captures: AtomicUsize,
    streams: Mutex<Listed>,
    closed: AtomicBool,
}

impl DeviceQueue {
    pub(super) fn open(machine: &'static Machine, device: usize) -> Arc<Self> {
        Arc::new(Self {
            machine,
            slot: machine.context_opened(device),
            device,
            context: AtomicUsize::new(0),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            outstanding: Mutex::new(VecDeque::new()),
            legacy_last: AtomicU64::new(0),
            blocking_last: AtomicU64::new(0),
            backlogs: AtomicUsize::new(0),
            blocking_captures: AtomicUsize::new(0),
            streams: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// Gives the device's queue back; work submitted later is an error.
    pub(super) fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.machine.context_closed(&self.slot);
        }
    }

    /// True once the context is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Puts work on the device, waiting for room where there is none; its number.
    pub(crate) fn submit(&self, work: Work) -> Answer<u64> {
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(CUresult::CONTEXT_IS_DESTROYED);
            }
            let mut outstanding = self.outstanding.lock();
            if outstanding.len() >= OUTSTANDING_MAX {
                self.settle(&mut outstanding);
            }
            if outstanding.len() < OUTSTANDING_MAX {
                let ticket = self.machine.submit(&self.slot, work);
                let number = self.submitted.load(Ordering::Relaxed) + 1;
                outstanding.push_back(Piece { number, ticket, end_ns: None });
                self.submitted.store(number, Ordering::Release);
                self.settle_seen(&mut outstanding);
                return Ok(number);
            }
            let first = outstanding.front().map(|piece| piece.ticket);
            drop(outstanding);
            if let Some(first) = first {
                self.machine.wait(&self.slot, first);
            }
        }
    }

    /// Lets the machine know that a stream has work which is not yet here, or has it no longer.
    pub(super) fn stream_waits(&self, waits: bool) {
        self.machine.stream_waits(waits);
    }

    /// The number of the last piece submitted.
    pub(crate) fn last(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// True once the piece `number` and all before it are done.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        number <= self.completed.load(Ordering::Acquire) || {
            let mut outstanding = self.outstanding.lock();
            self.settle(&mut outstanding);
            number <= self.completed.load(Ordering::Relaxed)
        }
    }

    /// Sleeps until the piece `number` is done.
    pub(crate) fn wait(&self, number: u64) {
        while !self.is_done(number) && !self.closed.load(Ordering::Acquire) {
            let ticket = {
                let outstanding = self.outstanding.lock();
                place(&outstanding, number).and_then(|at| outstanding.get(at)).map(|piece| piece.ticket)
            };
            if let Some(ticket) = ticket {
                self.machine.wait(&self.slot, ticket);
            }
        }
    }

    /// Where the time will stand at which the piece `number` ends; `None` when it has ended.
    pub(crate) fn watch(&self, number: u64) -> Option<Arc<OnceLock<u64>>> {
        if number <= self.completed.load(Ordering::Acquire) {
            return None;
        }
        let mut outstanding = self.outstanding.lock();
        self.settle(&mut outstanding);
        let piece = place(&outstanding, number).and_then(|at| outstanding.get_mut(at))?;
        Some(Arc::clone(piece.end_ns.get_or_insert_default()))
    }

    /// Takes what the device has finished off the list.
    fn settle(&self, outstanding: &mut VecDeque<Piece>) {
        self.settle_while(outstanding, |ticket| self.machine.is_done(&self.slot, ticket));
    }

    /// Takes off what the device is known to have finished, so that the ends of work are noted before they are
    /// forgotten, by a program that only ever launches, too.
    fn settle_seen(&self, outstanding: &mut VecDeque<Piece>) {
        self.settle_while(outstanding, |ticket| self.machine.was_done(&self.slot, ticket));
    }

    fn settle_while(&self, outstanding: &mut VecDeque<Piece>, is_done: impl Fn(Ticket) -> bool) {
        while let Some(first) = outstanding.front() {
            if !is_done(first.ticket) {
                return;
            }
            self.completed.store(first.number, Ordering::Release);
            let Some(piece) = outstanding.pop_front() else { return };
            if let Some(end_ns) = piece.end_ns {
                end_ns.get_or_init(|| self.machine.done_at_ns(&self.slot, piece.ticket).unwrap_or_else(now_ns));
            }
        }
    }

    /// Makes a stream one that the whole context can wait for.
    pub(super) fn enlist(&self, stream: &Arc<Stream>) {
        let mut listed = self.streams.lock();
        if listed.streams.len() >= listed.sweep_at {
            listed.streams.retain(|_, known| known.strong_count() > 0);
            listed.sweep_at = (listed.streams.len() * 2).max(SWEEP_MIN);
        }
        listed.streams.insert(stream.id, Arc::downgrade(stream));
    }

    /// The streams of the context that still have a handle or work.
    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        self.streams.lock().streams.values().filter_map(Weak::upgrade).collect()
    }
}
