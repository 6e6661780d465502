//! A process's queues on the device.

use std::collections::VecDeque;

/// A kernel as it is given to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// Number of its stream in its process.
    pub stream: usize,
    /// How long it takes when nothing else runs.
    pub duration_ns: u64,
    /// How long it was predicted to take.
    pub predicted_ns: u64,
    /// What has to have ended before it may begin, besides what is before it in its stream.
    pub after: Option<After>,
}

/// An event that another stream reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct After {
    /// The stream that is waited for.
    pub stream: usize,
    /// How many of its kernels must have ended.
    pub ended: u64,
}

/// A kernel that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// What was submitted.
    pub kernel: Kernel,
    /// When its first part began.
    pub began_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
}

/// The queues.
#[derive(Debug, Default)]
pub(super) struct Context {
    streams: Vec<Stream>,
    /// The stream whose kernel is under way or next.
    current: Option<usize>,
    /// Kernels submitted, which gives each its place among those of other streams.
    submitted: u64,
}

#[derive(Debug, Default)]
struct Stream {
    waiting: VecDeque<Entry>,
    ended: u64,
}

#[derive(Debug)]
struct Entry {
    kernel: Kernel,
    order: u64,
    remaining_ns: u64,
    began_ns: Option<u64>,
}

impl Context {
    pub(super) fn is_ready(&self) -> bool {
        self.current.is_some()
    }

    pub(super) fn push(&mut self, kernel: Kernel) {
        if self.streams.len() <= kernel.stream {
            self.streams.resize_with(kernel.stream + 1, Stream::default);
        }
        self.submitted += 1;
        let entry = Entry { kernel, order: self.submitted, remaining_ns: kernel.duration_ns, began_ns: None };
        self.streams[kernel.stream].waiting.push_back(entry);
        if self.current.is_none() {
            self.choose();
        }
    }

    /// What is left of the kernel that is under way.
    pub(super) fn remaining_ns(&self) -> u64 {
        self.head().map_or(0, |entry| entry.remaining_ns)
    }

    /// The kernel that is under way got so much of the device from `from_ns` on.
    pub(super) fn advance(&mut self, from_ns: u64, length_ns: u64) {
        let Some(current) = self.current else { return };
        if let Some(entry) = self.streams[current].waiting.front_mut() {
            entry.began_ns.get_or_insert(from_ns);
            entry.remaining_ns -= length_ns;
        }
    }

    /// Takes the kernel that is under way, if it has ended.
    pub(super) fn take_done(&mut self, now_ns: u64) -> Option<Done> {
        let current = self.current.filter(|_| self.remaining_ns() == 0)?;
        let entry = self.streams[current].waiting.pop_front()?;
        self.streams[current].ended += 1;
        self.choose();
        Some(Done { kernel: entry.kernel, began_ns: entry.began_ns.unwrap_or(now_ns), ended_ns: now_ns })
    }

    fn head(&self) -> Option<&Entry> {
        self.streams[self.current?].waiting.front()
    }

    /// The oldest of the kernels that may begin.
    fn choose(&mut self) {
        let may_begin = |stream: &Stream| {
            let entry = stream.waiting.front()?;
            let ended = |after: After| self.streams.get(after.stream).is_some_and(|other| other.ended >= after.ended);
            entry.kernel.after.is_none_or(ended).then_some(entry.order)
        };
        let heads = self.streams.iter().enumerate().filter_map(|(at, stream)| Some((may_begin(stream)?, at)));
        self.current = heads.min().map(|(_, at)| at);
    }
}
