//! Events that several processes record, ask and wait for.
//!
//! Such an event is a small file with two numbers: how often it was recorded, and up to which record all is done.
//! Who has recorded it says when that is passed, from a thread of the stream. As with memory, both sides have to
//! see each other's process ids.

use super::open_of;
use crate::args::{Answer, put};
use crate::entry::Call;
use crate::event::{EVENTS, Event};
use crate::pages;
use crate::state;
use driver_api::{CUevent, CUipcEventHandle, CUresult};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

const MAGIC: u64 = u64::from_le_bytes(*b"fakeipce");
/// How often a waiting thread looks.
const LOOK: Duration = Duration::from_micros(200);

/// Where the file has which number.
const RECORDED: u64 = 0;
const DONE: u64 = 8;
const RECORDER: u64 = 16;
const FILE_BYTES: u64 = 24;

/// What processes share of an event.
pub(crate) struct SharedEvent(File);

impl SharedEvent {
    /// One that was never recorded.
    pub(crate) fn new() -> Answer<Self> {
        pages::memory_file(FILE_BYTES).map(Self).map_err(|_| CUresult::OUT_OF_MEMORY)
    }

    fn read(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        // The file is always that long, and in memory.
        self.0.read_exact_at(&mut bytes, at).map_or(0, |()| u64::from_le_bytes(bytes))
    }

    fn write(&self, at: u64, value: u64) {
        let _ = self.0.write_all_at(&value.to_le_bytes(), at); // As for reading.
    }

    /// Records the event in this process; the record's number. Two at the same time are one.
    pub(crate) fn record(&self) -> u64 {
        let number = self.recorded() + 1;
        self.write(RECORDER, std::process::id().into());
        self.write(RECORDED, number);
        number
    }

    /// Says that all before a record is done.
    pub(crate) fn complete(&self, number: u64) {
        if self.read(DONE) < number {
            self.write(DONE, number);
        }
    }

    /// The number of the last record; 0 for none.
    pub(crate) fn recorded(&self) -> u64 {
        self.read(RECORDED)
    }

    /// True when a record is passed, or never will be as its process has died.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.read(DONE) >= number || !Path::new(&format!("/proc/{}", self.read(RECORDER))).exists()
    }

    /// Sleeps until a record is passed.
    pub(crate) fn wait(&self, number: u64) {
        while !self.is_done(number) {
            std::thread::sleep(LOOK);
        }
    }
}

pub(crate) fn cuIpcGetEventHandle(_: &Call, out: *mut CUipcEventHandle, event: CUevent) -> Answer {
    let event = EVENTS.get(event)?;
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let shared = event.share()?;
    let inode = shared.0.metadata().map_err(|_| CUresult::MAP_FAILED)?.ino();
    let descriptor = u64::try_from(shared.0.as_raw_fd()).unwrap_or(u64::MAX);
    let words = [MAGIC, std::process::id().into(), descriptor, inode];
    let mut handle = CUipcEventHandle { reserved: [0; 64] };
    handle.reserved[..32].copy_from_slice(&words.map(u64::to_le_bytes).concat());
    put(out, handle)
}

pub(crate) fn cuIpcOpenEventHandle(_: &Call, out: *mut CUevent, handle: CUipcEventHandle) -> Answer {
    let context = state::current()?;
    let word = |at: usize| handle.reserved[at * 8..][..8].try_into().map_or(0, u64::from_le_bytes);
    if out.is_null() || word(0) != MAGIC {
        return Err(CUresult::INVALID_VALUE);
    }
    if word(1) == u64::from(std::process::id()) {
        // As for memory: the driver doesn't open a process's own handles.
        return Err(CUresult::INVALID_CONTEXT);
    }
    let file = open_of(word(1), word(2), word(3)).ok_or(CUresult::MAP_FAILED)?;
    put(out, Event::open(&context.streams.queue, SharedEvent(file)))
}
