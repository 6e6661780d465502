//! What surrounds the ledger: the kernel, the quota page, the driver, and the way in which processes and the
//! daemon use the ledger (`account.rs`, `overhead.rs` and `ledger_file.rs` of the shim, the daemon's `pages.rs`).

use super::basis::SLOTS_MAX;
use super::books::{self, Books};
use super::checker::{self, LOADS_ARE_LATEST, Mutex, MutexGuard};
use super::ledger::{Correction, DeviceId, Ledger, Locked, SlotId, UNIT, Units};
use super::life;
use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering::AcqRel;
use quota_core::Bytes;
use std::sync::Arc;

/// A tenant's shared memory, and who decides about it.
#[derive(Debug)]
pub struct Node {
    /// The ledger, watched.
    pub books: Arc<Books>,
    /// The ledger's lock; the kernel's, so that it ends with its holder.
    lock: Mutex<()>,
    /// The kernel's marks: whose slot's process lives.
    alive: [checker::AtomicBool; SLOTS_MAX],
    /// The quota page. The cap is in units.
    cap: checker::AtomicU64,
    epoch: checker::AtomicU64,
    /// The cap of each epoch, to know what a process may charge.
    caps: std::sync::Mutex<Vec<u64>>,
    /// What the driver holds for the process of each slot, in units.
    held: [checker::AtomicU32; SLOTS_MAX],
}

/// A process of the tenant, or the daemon: that is one which never joins.
#[derive(Debug)]
pub struct Process<'a> {
    node: &'a Node,
    slot: Cell<Option<SlotId>>,
    lock: RefCell<Option<MutexGuard<'a, ()>>>,
    /// The epoch of its stock.
    epoch: Cell<Option<u64>>,
    /// What it has asked for and not freed.
    asked: Cell<u32>,
    /// What the driver took for it beyond that.
    unasked: Cell<u32>,
}

/// So many units.
pub fn units(count: u32) -> Units {
    Units::holding(bytes(count.into())).expect("a small number")
}

fn bytes(units: u64) -> Bytes {
    Bytes(units * UNIT)
}

/// The only device.
pub fn device() -> DeviceId {
    DeviceId::new(0).expect("there is one")
}

/// The slot of this number.
pub fn slot(index: u32) -> SlotId {
    SlotId::new(index).expect("a small number")
}

impl Node {
    /// An empty ledger under a cap, in units.
    pub fn new(cap: u64) -> Arc<Self> {
        Arc::new(Self {
            books: Books::new(),
            lock: Mutex::new(()),
            alive: core::array::from_fn(|_| checker::AtomicBool::new(false)),
            cap: checker::AtomicU64::new(cap),
            epoch: checker::AtomicU64::new(0),
            caps: std::sync::Mutex::new(vec![cap]),
            held: core::array::from_fn(|_| checker::AtomicU32::new(0)),
        })
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.books.ledger
    }

    /// Runs a process for so many steps, or to its end; true when it came there. Then the kernel takes its locks.
    pub fn run(&self, steps: Option<u32>, script: impl FnOnce(&Process<'_>)) -> bool {
        let process = Process {
            node: self,
            slot: Cell::new(None),
            lock: RefCell::new(None),
            epoch: Cell::new(None),
            asked: Cell::new(0),
            unasked: Cell::new(0),
        };
        let ended = life::lasting(steps, || script(&process));
        drop(process.lock.take());
        if let Some(slot) = process.slot.get() {
            self.held[slot.index() as usize].swap(0, AcqRel);
            self.alive[slot.index() as usize].swap(false, AcqRel);
        }
        ended
    }

    /// When all have ended: the dead are swept, nothing is left of anybody, and one process can have it all.
    pub fn check_at_the_end(&self) {
        self.books.rest();
        let cap = self.cap();
        let ended = self.run(None, |process| {
            process.sweep();
            for index in 0..SLOTS_MAX as u32 {
                assert!(self.books.is_blank(slot(index)), "slot {index} is swept, and has something left");
            }
            process.slot.set(Some(slot(0)));
            assert!(process.reserve(cap as u32), "it fits: nobody else is there");
            assert_eq!(self.books.stock(), cap);
            process.free(cap as u32);
            assert_eq!(self.books.used(), 0);
        });
        assert!(ended);
    }

    /// The cap of the quota page.
    pub fn cap(&self) -> u64 {
        self.cap.fetch_add(0, AcqRel)
    }

    fn epoch(&self) -> u64 {
        self.epoch.fetch_add(0, AcqRel)
    }

    /// The most that may be charged from stock of this epoch: a cap comes just before its epoch.
    fn cap_since(&self, epoch: u64) -> u64 {
        let caps = self.caps.lock().expect("nobody panics");
        caps[epoch as usize..].iter().copied().max().expect("each epoch has one")
    }

    /// What the driver says that the process of a slot holds.
    pub fn held(&self, slot: SlotId) -> u32 {
        self.held[slot.index() as usize].fetch_add(0, AcqRel)
    }

    fn is_alive(&self, slot: SlotId) -> bool {
        self.alive[slot.index() as usize].fetch_or(false, AcqRel)
    }

    fn mark_alive(&self, slot: SlotId) -> bool {
        !self.alive[slot.index() as usize].swap(true, AcqRel)
    }
}

/// What a process does.
impl Process<'_> {
    /// Takes a free slot, as where there is no daemon; false when there is none.
    pub fn join(&self, pid: u32) -> bool {
        self.under_lock(|_| {
            self.sweep();
            let free = |slot: &SlotId| self.node.ledger().pid(*slot) == 0 && self.node.mark_alive(*slot);
            let Some(slot) = (0..SLOTS_MAX as u32).map(slot).find(free) else { return false };
            self.slot.set(Some(slot));
            self.node.ledger().occupy(slot, pid);
            true
        })
    }

    /// Takes the slot that the daemon has made its own.
    pub fn join_at(&self, slot: SlotId, pid: u32) {
        assert!(self.node.mark_alive(slot), "another process is there");
        self.slot.set(Some(slot));
        self.node.ledger().set_pid(slot, pid);
    }

    /// Is another thread of the process at a slot, and answers for so much of what it has asked for.
    pub fn join_as_thread(&self, slot: SlotId, asked: u32) {
        self.slot.set(Some(slot));
        self.asked.set(asked);
    }

    /// Its slot.
    pub fn slot(&self) -> SlotId {
        self.slot.get().expect("it has joined")
    }

    /// What it has asked for and not freed.
    pub fn asked(&self) -> u32 {
        self.asked.get()
    }

    /// It is charged what it has asked for: nobody else changes that.
    pub fn check_own(&self) {
        assert_eq!(self.node.books.used_by(self.slot()), self.asked(), "charged by somebody else");
    }

    /// The driver takes so much for it without having been asked, or lets it go.
    pub fn set_unasked(&self, amount: u32) {
        let held = &self.node.held[self.slot().index() as usize];
        held.fetch_add(amount.wrapping_sub(self.unasked.replace(amount)), AcqRel);
    }

    /// Asks for so many units, and gets them from the driver when they are admitted.
    pub fn reserve(&self, amount: u32) -> bool {
        self.charge(amount, true)
    }

    /// As [`Process::reserve`], where the daemon alone sweeps.
    pub fn reserve_with_daemon(&self, amount: u32) -> bool {
        self.charge(amount, false)
    }

    fn charge(&self, amount: u32, sweeps: bool) -> bool {
        let epoch = self.node.epoch();
        let at_once = || self.node.ledger().charge(self.slot(), device(), units(amount));
        let charged = (self.epoch.get() == Some(epoch) && books::under(self.node.cap_since(epoch), at_once))
            || self.grow(amount, sweeps);
        if charged {
            self.asked.set(self.asked.get() + amount);
            self.node.held[self.slot().index() as usize].fetch_add(amount, AcqRel);
        }
        charged
    }

    fn grow(&self, amount: u32, sweeps: bool) -> bool {
        self.under_lock(|lock| {
            let ledger = self.node.ledger();
            self.epoch.set(Some(self.node.epoch()));
            ledger.drop_slack(self.slot(), device());
            let cap = self.node.cap();
            books::under(cap, || {
                self.attempt(amount, cap, lock) || (sweeps && self.sweep() && self.attempt(amount, cap, lock))
            })
        })
    }

    fn attempt(&self, amount: u32, cap: u64, lock: &Locked<'_>) -> bool {
        let books = &self.node.books;
        books.begin();
        let grown = self.node.ledger().grow(self.slot(), device(), units(amount), bytes(cap), lock).is_ok();
        let most = books.used_max() + u64::from(amount);
        assert!(grown || most > cap || !LOADS_ARE_LATEST, "refused {amount} though never more than {most} of {cap}");
        grown
    }

    /// Frees so many units.
    pub fn free(&self, amount: u32) {
        self.asked.set(self.asked.get() - amount);
        self.node.held[self.slot().index() as usize].fetch_sub(amount, AcqRel);
        self.node.ledger().give_back(self.slot(), device(), units(amount));
    }

    /// Compares what it is charged with what the driver says, as the shim does.
    pub fn settle(&self) {
        let (ledger, slot) = (self.node.ledger(), self.slot());
        match ledger.correction(slot, device(), bytes(self.node.held(slot).into())) {
            Correction::None => {}
            Correction::Raise(more) => {
                self.under_lock(|lock| self.force(slot, more, lock));
                ledger.add_overhead(slot, device(), more);
            }
            Correction::Lower(less) => {
                let gone = ledger.take_overhead(slot, device(), less);
                ledger.give_back(slot, device(), gone);
            }
        }
    }

    fn force(&self, slot: SlotId, amount: Units, lock: &Locked<'_>) {
        books::under(u64::MAX, || self.node.ledger().force(slot, device(), amount, lock));
    }

    /// Clears the slots of the dead; true when there was one. Under the lock.
    pub fn sweep(&self) -> bool {
        let ledger = self.node.ledger();
        let mut found = false;
        for slot in ledger.slots().filter(|slot| Some(*slot) != self.slot.get() && ledger.pid(*slot) != 0) {
            if !self.node.is_alive(slot) {
                ledger.vacate(slot);
                found = true;
            }
        }
        found
    }

    /// Holds the ledger's lock; the kernel takes it from a process that is killed meanwhile.
    pub fn under_lock<T>(&self, work: impl FnOnce(&Locked<'_>) -> T) -> T {
        let guard = self.node.lock.lock().expect("nobody panics");
        self.lock.replace(Some(guard));
        let done = work(&Locked::assume());
        drop(self.lock.take());
        done
    }
}

/// What the daemon does.
impl Process<'_> {
    /// Publishes another cap, and takes back what was handed out under the old one and isn't used.
    pub fn publish(&self, cap: u64) {
        self.node.caps.lock().expect("nobody panics").push(cap);
        self.node.cap.swap(cap, AcqRel);
        self.node.epoch.fetch_add(1, AcqRel);
        for slot in self.node.ledger().slots() {
            self.node.ledger().drop_slack(slot, device());
        }
    }

    /// Books what the driver holds for the process of a slot and nobody asked for.
    pub fn correct(&self, slot: SlotId) {
        let held = bytes(self.node.held(slot).into());
        self.under_lock(|lock| {
            let ledger = self.node.ledger();
            match ledger.correction(slot, device(), held) {
                Correction::None => {}
                Correction::Raise(more) => {
                    self.force(slot, more, lock);
                    ledger.add_overhead(slot, device(), more);
                }
                Correction::Lower(less) => {
                    let gone = ledger.take_overhead(slot, device(), less);
                    ledger.give_back(slot, device(), gone);
                }
            }
        });
    }

    /// Makes the ledger's header and the entry of a device, which must come out right whoever died on the way.
    pub fn make(&self, uuid: [u8; 16]) {
        self.under_lock(|lock| {
            let ledger = self.node.ledger();
            ledger.initialise(lock).expect("a new ledger, or one half made");
            if let Ok(device) = ledger.device(uuid, lock) {
                assert!(ledger.devices().any(|known| known == (device, uuid)), "another device's entry");
            }
        });
    }

    /// Sets aside what a checkpointed process has charged.
    pub fn park(&self, slot: SlotId) {
        self.under_lock(|_| self.node.ledger().park(slot, device()));
    }

    /// A checkpointed process comes back: what was set aside is charged again, as it is held again.
    pub fn restore(&self, slot: SlotId) {
        self.under_lock(|lock| {
            let ledger = self.node.ledger();
            // Less what one has charged again who died before the end.
            let missing = ledger.parked(slot, device()).less(units(self.node.books.used_by(slot)));
            self.force(slot, missing, lock);
            ledger.unpark(slot, device());
        });
    }
}
