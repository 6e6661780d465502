//! The books as a whole, at one moment: what no process can see, since it reads one word after the other.

use super::basis::{AtomicU32, AtomicU64};
use super::checker;
use super::ledger::{DeviceName, Ledger, Slot, SlotId};
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A ledger of which every change of a word is checked.
#[derive(Debug)]
pub struct Books {
    pub(crate) ledger: Ledger,
    /// Makes changes of different words depend on each other, so that the checker tries both orders.
    turn: checker::AtomicU32,
    /// Nobody else is there any more, so that no order need be tried.
    at_rest: AtomicBool,
    seen: Mutex<Seen>,
}

/// Sums over all slots, in units.
#[derive(Debug, Default)]
struct Seen {
    stock: u64,
    used: u64,
    /// The most that was used since somebody began to ask for stock.
    used_max: u64,
}

std::thread_local! {
    /// A checker runs all processes of one execution on one thread.
    static WATCHED: RefCell<Weak<Books>> = const { RefCell::new(Weak::new()) };
}

checker::thread_local! {
    /// The cap under which the process is charging now, in units; 0 while it isn't.
    static CAP: Cell<u64> = Cell::new(0);
}

impl Books {
    pub(crate) fn new() -> Arc<Self> {
        let books = Arc::new(Self {
            ledger: empty(),
            turn: checker::AtomicU32::new(0),
            at_rest: AtomicBool::new(false),
            seen: Mutex::default(),
        });
        WATCHED.with(|watched| *watched.borrow_mut() = Arc::downgrade(&books));
        books
    }

    /// What the process of `slot` has charged at this moment.
    pub fn used_by(&self, slot: SlotId) -> u32 {
        split(&self.ledger.slots[slot.index() as usize]).1
    }

    /// What of it is called overhead, be it charged or not.
    pub fn overhead(&self, slot: SlotId) -> u32 {
        self.ledger.slots[slot.index() as usize].overhead[0].now()
    }

    /// What all have charged at this moment.
    pub fn used(&self) -> u64 {
        self.sums().1
    }

    /// What all may charge at this moment without asking.
    pub fn stock(&self) -> u64 {
        self.sums().0
    }

    /// True when nothing is left of whoever was in `slot`.
    pub fn is_blank(&self, slot: SlotId) -> bool {
        let slot = &self.ledger.slots[slot.index() as usize];
        let parts = slot.overhead.iter().chain(&slot.soft).chain(&slot.parked);
        slot.pid.now() == 0 && slot.words[0].now() == 0 && parts.map(AtomicU32::now).sum::<u32>() == 0
    }

    /// The most that was used since [`Books::begin`].
    pub(crate) fn used_max(&self) -> u64 {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).used_max
    }

    /// From here on there is one process.
    pub(crate) fn rest(&self) {
        self.at_rest.store(true, Ordering::Relaxed);
    }

    /// A process holds the lock and begins to ask for stock.
    pub(crate) fn begin(&self) {
        let used = self.used();
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).used_max = used;
    }

    fn sums(&self) -> (u64, u64) {
        let words = self.ledger.slots.iter().map(split);
        words.fold((0, 0), |sums, (stock, used)| (sums.0 + u64::from(stock), sums.1 + u64::from(used)))
    }

    /// The ledger's invariants, as they hold between any two steps.
    fn check(&self) {
        for (index, slot) in self.ledger.slots.iter().enumerate() {
            let (stock, used) = split(slot);
            assert!(used <= stock, "slot {index} uses {used}, more than its stock of {stock}");
        }
        let (stock, used) = self.sums();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if used > seen.used || stock > seen.stock {
            let cap = CAP.with(Cell::get);
            assert!(used <= seen.used.max(cap), "charged beyond the cap: {} to {used} under {cap}", seen.used);
            assert!(stock <= seen.stock.max(cap), "granted beyond the cap: {} to {stock} under {cap}", seen.stock);
        }
        *seen = Seen { stock, used, used_max: seen.used_max.max(used) };
    }
}

/// What the present process charges in `charging`, it charges under `cap` units.
pub(crate) fn under<T>(cap: u64, charging: impl FnOnce() -> T) -> T {
    CAP.with(|held| held.set(cap));
    let done = charging();
    CAP.with(|held| held.set(0));
    done
}

/// Before a step that may change something.
pub(crate) fn turn() {
    if let Some(books) = watched().filter(|books| !books.at_rest.load(Ordering::Relaxed)) {
        books.turn.fetch_add(1, Ordering::Relaxed);
    }
}

/// After a step that may have changed something, before any other.
pub(crate) fn look() {
    if let Some(books) = watched() {
        books.check();
    }
}

fn watched() -> Option<Arc<Books>> {
    WATCHED.with(|watched| watched.borrow().upgrade())
}

fn split(slot: &Slot) -> (u32, u32) {
    let word = slot.words[0].now();
    ((word >> 32) as u32, word as u32)
}

/// All zero, as shared memory comes.
fn empty() -> Ledger {
    let none = || core::array::from_fn(|_| AtomicU32::new(0));
    Ledger {
        magic: AtomicU64::new(0),
        version: AtomicU32::new(0),
        high: AtomicU32::new(0),
        _reserved: [0; 6],
        devices: core::array::from_fn(|_| DeviceName {
            halves: [AtomicU64::new(0), AtomicU64::new(0)],
            context: AtomicU32::new(0),
            _reserved: AtomicU32::new(0),
        }),
        slots: core::array::from_fn(|_| Slot {
            pid: AtomicU32::new(0),
            _reserved: AtomicU32::new(0),
            words: core::array::from_fn(|_| AtomicU64::new(0)),
            overhead: none(),
            soft: none(),
            parked: none(),
        }),
    }
}
