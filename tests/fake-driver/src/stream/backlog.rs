//! Work of a stream that is not on the device yet, since something before it waits for the host.
//!
//! A thread of the stream works it off in order and ends when it has had nothing to do for a while. The
//! count of work includes the piece being done, so that "empty" means that the stream is in step. Points
//! that somebody waits for don't count: they delay nothing, and other streams' calls put them here too.

use super::{DeviceQueue, Stream};
use core::sync::atomic::{AtomicUsize, Ordering};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How many pieces may wait, as the driver bounds what is enqueued; the caller blocks beyond that.
const WAITING_MAX: usize = 1024;
/// How long the thread stays for more work.
const LINGER: Duration = Duration::from_millis(200);

/// What waits in a backlog.
pub(super) enum Piece {
    /// Something to do, which may block.
    Work(Box<dyn FnOnce(&Arc<Stream>) + Send>),
    /// A point that somebody waits for.
    Point(Arc<Later>),
}

#[derive(Default)]
struct Waiting {
    pieces: VecDeque<Piece>,
    /// True while a thread works them off.
    served: bool,
}

#[derive(Default)]
pub(super) struct Backlog {
    /// Work waiting or being done.
    count: AtomicUsize,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Backlog {
    /// True when the stream is in step with its caller.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    pub(super) fn push(&self, stream: &Arc<Stream>, piece: Piece) {
        let mut waiting = self.waiting.lock();
        while waiting.pieces.len() >= WAITING_MAX {
            self.changed.wait(&mut waiting);
        }
        if matches!(piece, Piece::Work(_)) && self.count.fetch_add(1, Ordering::AcqRel) == 0 {
            stream.queue.backlogs.fetch_add(1, Ordering::AcqRel);
        }
        waiting.pieces.push_back(piece);
        if !waiting.served {
            waiting.served = true;
            let stream = Arc::clone(stream);
            let started = std::thread::Builder::new().name("cuda-stream".to_owned()).spawn(move || serve(&stream));
            started.expect("a process that can't start a thread can't go on");
        }
        drop(waiting);
        self.changed.notify_all();
    }
}

impl Backlog {
    /// One piece of work less.
    fn leave(&self, stream: &Stream) {
        // Under the lock, so that the two counts change together for `push`.
        let waiting = self.waiting.lock();
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            stream.queue.backlogs.fetch_sub(1, Ordering::AcqRel);
        }
        drop(waiting);
        self.changed.notify_all();
    }
}

fn serve(stream: &Arc<Stream>) {
    let backlog = &stream.backlog;
    loop {
        let mut waiting = backlog.waiting.lock();
        if waiting.pieces.is_empty() {
            backlog.changed.wait_for(&mut waiting, LINGER);
        }
        let Some(piece) = waiting.pieces.pop_front() else {
            waiting.served = false;
            return;
        };
        drop(waiting);
        match piece {
            Piece::Work(work) => {
                work(stream);
                backlog.leave(stream);
            }
            Piece::Point(later) => {
                later.set(stream.last.load(Ordering::Acquire));
                backlog.changed.notify_all();
            }
        }
    }
}

/// A point in a backlog: the number of the device's work before it, once the thread has come there.
pub(crate) struct Later {
    queue: Arc<DeviceQueue>,
    state: Mutex<LaterState>,
    changed: Condvar,
}

#[derive(Default)]
struct LaterState {
    number: Option<u64>,
    watchers: Vec<Arc<OnceLock<u64>>>,
}

impl Later {
    pub(super) fn new(queue: &Arc<DeviceQueue>) -> Self {
        Self { queue: Arc::clone(queue), state: Mutex::default(), changed: Condvar::new() }
    }

    fn set(&self, number: u64) {
        let watchers = {
            let mut state = self.state.lock();
            state.number = Some(number);
            std::mem::take(&mut state.watchers)
        };
        for watcher in &watchers {
            self.queue.watch(number, watcher);
        }
        self.changed.notify_all();
    }

    pub(super) fn get(&self) -> Option<(Arc<DeviceQueue>, u64)> {
        Some((Arc::clone(&self.queue), self.state.lock().number?))
    }

    pub(super) fn wait(&self) -> (Arc<DeviceQueue>, u64) {
        let mut state = self.state.lock();
        loop {
            if let Some(number) = state.number {
                return (Arc::clone(&self.queue), number);
            }
            self.changed.wait(&mut state);
        }
    }

    pub(super) fn watch(&self, end_ns: &Arc<OnceLock<u64>>) {
        let mut state = self.state.lock();
        match state.number {
            Some(number) => self.queue.watch(number, end_ns),
            None => state.watchers.push(Arc::clone(end_ns)),
        }
    }
}
