//! What is known of the length of each piece of work: a table of fixed size, without locks.

use super::Work;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use quota_core::compute::predict::Estimate;

/// Pieces of work that are told apart. Programs have hundreds of kernels in a few shapes each.
const PLACES: usize = 4096;
/// Places that are looked at for one piece of work; when all are taken, the first goes to the newcomer.
const PROBES_MAX: usize = 8;

/// The table.
pub(super) struct Predictor {
    entries: Box<[Entry]>,
}

#[derive(Default)]
struct Entry {
    /// 0 while it is free.
    key: AtomicU64,
    /// The function, for when it goes.
    function: AtomicUsize,
    /// An [`Estimate`].
    word: AtomicU64,
}

/// Where a piece of work is in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Place(u16);

impl Place {
    pub(super) const FIRST: Self = Self(0);
}

impl Default for Predictor {
    fn default() -> Self {
        Self { entries: (0..PLACES).map(|_| Entry::default()).collect() }
    }
}

impl Predictor {
    /// The place of `work` and what is known of it.
    pub(super) fn look_up(&self, work: Work) -> (Place, Estimate) {
        let (key, function) = key_of(work);
        let first = key as usize % PLACES;
        for at in (first..first + PROBES_MAX).map(|at| at % PLACES) {
            let entry = &self.entries[at];
            let known = entry.key.load(Ordering::Relaxed);
            if known == key {
                return (Place(at as u16), Estimate::from_word(entry.word.load(Ordering::Relaxed)));
            }
            if known == 0 && entry.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                entry.function.store(function, Ordering::Relaxed);
                return (Place(at as u16), Estimate::default());
            }
        }
        // What is learned of it by others at the same moment goes to the newcomer, and is soon corrected.
        let entry = &self.entries[first];
        entry.key.store(key, Ordering::Relaxed);
        entry.function.store(function, Ordering::Relaxed);
        entry.word.store(0, Ordering::Relaxed);
        (Place(first as u16), Estimate::default())
    }

    /// Replaces what is known at a place. Of two that learn at once, one is lost.
    pub(super) fn learn(&self, place: Place, next: impl FnOnce(Estimate) -> Estimate) {
        let word = &self.entries[usize::from(place.0) % PLACES].word;
        word.store(next(Estimate::from_word(word.load(Ordering::Relaxed))).word(), Ordering::Relaxed);
    }

    /// Nothing is known of `work` any more.
    pub(super) fn forget(&self, work: Work) {
        let (key, _) = key_of(work);
        let first = key as usize % PLACES;
        let places = (first..first + PROBES_MAX).map(|at| &self.entries[at % PLACES]);
        for entry in places.filter(|entry| entry.key.load(Ordering::Relaxed) == key) {
            entry.word.store(0, Ordering::Relaxed);
        }
    }

    /// Nothing is known of `function` any more, in whatever shape.
    pub(super) fn forget_function(&self, function: usize) {
        for entry in self.entries.iter().filter(|entry| entry.function.load(Ordering::Relaxed) == function) {
            entry.word.store(0, Ordering::Relaxed);
        }
    }
}

fn key_of(work: Work) -> (u64, usize) {
    let (key, function) = match work {
        Work::Kernel { function, grid, block } => {
            let pair = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
            let sides = [pair(grid[0], block[0]), pair(grid[1], block[1]), pair(grid[2], block[2])];
            (sides.into_iter().fold(mixed(1, function as u64), mixed), function)
        }
        Work::Graph { exec } => (mixed(2, exec as u64), 0),
        Work::Copy { bytes } => (mixed(3, size_class(bytes)), 0),
        Work::Set { bytes } => (mixed(4, size_class(bytes)), 0),
        Work::Other => (mixed(5, 0), 0),
    };
    (key.max(1), function)
}

/// Sizes that differ by less than a quarter are one.
fn size_class(bytes: u64) -> u64 {
    let log = bytes.max(8).ilog2();
    u64::from(log) << 2 | (bytes >> (log - 2)) & 3
}

/// One multiplication a word spreads handles and small numbers well enough.
fn mixed(key: u64, value: u64) -> u64 {
    let mixed = (key.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}
