//! Which track belongs to a stream, found without a lock for the stream that the thread used last.

use super::Pace;
use super::context::Context;
use super::track::Track;
use crate::calls::{self, LEGACY_STREAM, PER_THREAD_STREAM};
use crate::entry::Lane;
use crate::join::Member;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use driver_api::CUstream;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Streams that are known at a time; beyond, those that are idle are forgotten. Threads' default streams end unseen.
const STREAMS_MAX: usize = 1024;

/// Grows whenever a stream or a context goes, and in a forked child: what threads remember is void then.
static VERSION: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static LAST: Cell<Option<Last>> = const { Cell::new(None) };
    /// Its address names the thread.
    static THREAD: Cell<u8> = const { Cell::new(0) };
}

/// The stream that a thread used last, taken out while it uses it.
pub(super) struct Last {
    version: u64,
    key: Key,
    track: Arc<Track>,
}

impl core::ops::Deref for Last {
    type Target = Track;

    fn deref(&self) -> &Track {
        &self.track
    }
}

/// What a handle means to a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    stream: usize,
    /// The current context, for the default streams.
    context: usize,
    /// The thread, for its own default stream.
    thread: usize,
}

/// All streams of the process that were launched into.
#[derive(Default)]
pub(super) struct Streams {
    tracks: Mutex<HashMap<Key, Arc<Track>>>,
    contexts: Mutex<Arc<Vec<Arc<Context>>>>,
}

fn key_of(stream: CUstream, lane: Lane) -> Option<Key> {
    let stream = match (stream as usize, lane) {
        (0, Lane::Legacy) => LEGACY_STREAM,
        (0, Lane::PerThread) => PER_THREAD_STREAM,
        (stream, _) => stream,
    };
    let context = if stream > PER_THREAD_STREAM { 0 } else { calls::current_context()? };
    let thread =
        if stream == PER_THREAD_STREAM { THREAD.with(|thread| core::ptr::from_ref(thread) as usize) } else { 0 };
    Some(Key { stream, context, thread })
}

impl Streams {
    /// The track of `stream`; [`Streams::put_back`] it afterwards. None without a context or a quota.
    pub(super) fn find(&self, pace: &Pace, member: &'static Member, stream: CUstream, lane: Lane) -> Option<Last> {
        let key = key_of(stream, lane)?;
        let version = VERSION.load(Ordering::Acquire);
        // A thread that is ending has nothing to remember by.
        let last = LAST.try_with(Cell::take).ok().flatten();
        if let Some(last) = last.filter(|last| last.key == key && last.version == version) {
            return Some(last);
        }
        let track = self.track(pace, member, key)?;
        Some(Last { version, key, track })
    }

    pub(super) fn put_back(&self, last: Last) {
        let _ = LAST.try_with(|place| place.set(Some(last)));
    }

    /// The same without remembering it.
    pub(super) fn find_apart(
        &self,
        pace: &Pace,
        member: &'static Member,
        stream: CUstream,
        lane: Lane,
    ) -> Option<Arc<Track>> {
        self.track(pace, member, key_of(stream, lane)?)
    }

    /// Does something with the stream that the thread used last.
    pub(super) fn with_last(&self, with: impl FnOnce(&Track)) {
        let Some(last) = LAST.try_with(Cell::take).ok().flatten() else { return };
        if last.version == VERSION.load(Ordering::Acquire) {
            with(&last);
        }
        self.put_back(last);
    }

    fn track(&self, pace: &Pace, member: &'static Member, key: Key) -> Option<Arc<Track>> {
        if let Some(known) = self.tracks.lock().get(&key) {
            return Some(Arc::clone(known));
        }
        let handle = if key.context == 0 { calls::context_of_stream(key.stream as CUstream)? } else { key.context };
        let context = self.context(pace, member, handle)?;
        let mut tracks = self.tracks.lock();
        if tracks.len() >= STREAMS_MAX {
            tracks.clear();
            VERSION.fetch_add(1, Ordering::AcqRel);
            self.contexts().iter().for_each(|context| context.forget_idle());
        }
        let fresh = Arc::new(Track::new(Arc::clone(&context), key.stream));
        let track = Arc::clone(tracks.entry(key).or_insert_with(|| Arc::clone(&fresh)));
        if Arc::ptr_eq(&track, &fresh) {
            context.add(fresh);
        }
        Some(track)
    }

    fn context(&self, pace: &Pace, member: &'static Member, handle: usize) -> Option<Arc<Context>> {
        if let Some(known) = self.contexts().iter().find(|known| known.handle == handle) {
            return Some(Arc::clone(known));
        }
        let device = pace.device(member, calls::device_of_context(handle)?)?;
        let fresh = Arc::new(Context::new(handle, device));
        let mut contexts = self.contexts.lock();
        if let Some(known) = contexts.iter().find(|known| known.handle == handle) {
            return Some(Arc::clone(known));
        }
        Arc::make_mut(&mut contexts).push(Arc::clone(&fresh));
        Some(fresh)
    }

    /// The contexts that were launched into.
    pub(super) fn contexts(&self) -> Arc<Vec<Arc<Context>>> {
        Arc::clone(&self.contexts.lock())
    }

    /// Forgets contexts that are about to go.
    pub(super) fn context_going(&self, is_going: impl Fn(&Context) -> bool) {
        if !self.contexts().iter().any(|context| is_going(context)) {
            return;
        }
        self.tracks.lock().retain(|_, track| !is_going(&track.context));
        let mut gone = Vec::new();
        {
            let mut contexts = self.contexts.lock();
            let contexts = Arc::make_mut(&mut contexts);
            contexts.retain(|context| {
                let goes = is_going(context);
                gone.extend(goes.then(|| Arc::clone(context)));
                !goes
            });
        }
        VERSION.fetch_add(1, Ordering::AcqRel);
        gone.iter().for_each(|context| context.forget_tracks(true));
    }

    /// Forgets a stream that is about to go.
    pub(super) fn stream_going(&self, stream: usize) {
        if stream <= PER_THREAD_STREAM {
            return;
        }
        let track = self.tracks.lock().remove(&Key { stream, context: 0, thread: 0 });
        if let Some(track) = track {
            VERSION.fetch_add(1, Ordering::AcqRel);
            track.context.forget_stream(stream);
        }
    }
}

/// In a forked child.
pub(super) fn forget_in_child() {
    VERSION.fetch_add(1, Ordering::AcqRel);
}
