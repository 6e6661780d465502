//! What contexts have the device do, and when it is done.

use crate::Machine;
use crate::clock::{now_ns, sleep_until};
use crate::liveness;
use crate::state::{Locked, PROCESSES_MAX};
use crate::time::{QueueName, meeting};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

/// Between two looks for dead processes whose work is still there: a driver takes about as long to take it away.
const BURY_NS: u64 = 1_000_000;
/// So many are asked for at most; whose turn is far away can wait for the next look.
const BURY_MAX: usize = 16;

/// A context's queue on a device.
#[derive(Debug)]
pub struct ContextSlot {
    device: usize,
    name: QueueName,
    /// Work known to have been served: only grows, so that an old value is merely a slower answer.
    served_ns: AtomicU64,
}

/// A piece of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// What the context will have been served when it is done.
    total_ns: u64,
    submitted_ns: u64,
}

/// Something to do on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// It takes so long.
    Time(u64),
    /// It begins, waits until as many contexts have begun theirs of that key, and then takes so long.
    Meeting {
        /// Tells meetings apart; those of one key take place one after the other.
        key: u64,
        /// How many contexts meet.
        ranks: u32,
        /// What each has to do from then on, in nanoseconds.
        duration_ns: u64,
    },
}

impl From<u64> for Work {
    fn from(duration_ns: u64) -> Self {
        Self::Time(duration_ns)
    }
}

impl Machine {
    /// Gives a new context its queue on the device.
    ///
    /// # Panics
    /// When the device has as many contexts as it can have, a thousand.
    pub fn context_opened(&self, device: usize) -> ContextSlot {
        let open = || {
            let (locked, entry) = self.own();
            locked.devices[device].open(entry as u32)
        };
        let name = open().or_else(|| {
            self.sweep();
            open()
        });
        let name = name.expect("a device has room for a thousand contexts");
        ContextSlot { device, name, served_ns: AtomicU64::new(0) }
    }

    /// Takes a context's queue away; work not yet done never will be.
    pub fn context_closed(&self, slot: &ContextSlot) {
        let (mut locked, entry) = self.own();
        locked.time(slot.device, now_ns());
        let Locked { body, devices, .. } = &mut locked;
        if let Some(busy) = devices[slot.device].close(&body.hardware, slot.name) {
            body.processes[entry].uses[slot.device].closed_busy_ns += busy;
        }
        locked.collect_meetings();
    }

    /// Adds work to a context's queue. Work for a context that is gone is done at once.
    pub fn submit(&self, slot: &ContextSlot, work: impl Into<Work>) -> Ticket {
        let work = work.into();
        loop {
            let (mut locked, _) = self.own();
            let now = self.look(&mut locked, slot.device);
            let Locked { body, devices, .. } = &mut locked;
            let total = match work {
                Work::Time(duration_ns) => devices[slot.device].submit(&body.hardware, slot.name, duration_ns, now),
                Work::Meeting { key, ranks, duration_ns } => {
                    let who = (slot.device, slot.name);
                    let what = (key, ranks, duration_ns);
                    match meeting::submit(devices, &mut body.meetings, &body.hardware, who, what, now) {
                        ControlFlow::Continue(total) => total,
                        ControlFlow::Break(()) => {
                            drop(locked);
                            sleep_until(now_ns() + meeting::LOOK_NS);
                            continue;
                        }
                    }
                }
            };
            if let Some(served) = devices[slot.device].served_ns(slot.name) {
                slot.served_ns.fetch_max(served, Ordering::Relaxed);
            }
            return Ticket { total_ns: total.unwrap_or(0), submitted_ns: now };
        }
    }

    /// True if a piece of work is known to be done, without a look at the device: what other calls saw last.
    #[inline]
    pub fn was_done(&self, slot: &ContextSlot, ticket: Ticket) -> bool {
        ticket.total_ns <= slot.served_ns.load(Ordering::Relaxed)
    }

    /// True once a piece of work is done, or its context gone.
    pub fn is_done(&self, slot: &ContextSlot, ticket: Ticket) -> bool {
        if self.was_done(slot, ticket) {
            return true;
        }
        let mut locked = self.lock();
        self.look(&mut locked, slot.device);
        match locked.devices[slot.device].served_ns(slot.name) {
            Some(served) => {
                slot.served_ns.fetch_max(served, Ordering::Relaxed);
                ticket.total_ns <= served
            }
            None => true,
        }
    }

    /// Sleeps until a piece of work is done, or its context gone.
    pub fn wait(&self, slot: &ContextSlot, ticket: Ticket) {
        /// Contexts that go away make the end come earlier; so often it is looked for, per context.
        const LOOK_NS: u64 = 1_000_000;
        while !self.is_done(slot, ticket) {
            let until = {
                let mut locked = self.lock();
                let now = self.look(&mut locked, slot.device);
                let hardware = locked.body.hardware;
                let time = &locked.devices[slot.device];
                let until = time.look_again_at(&hardware, slot.name, ticket.total_ns);
                match time.contenders() as u64 {
                    0 | 1 => until,
                    contenders => until.min(now + contenders * LOOK_NS),
                }
            };
            sleep_until(until);
        }
    }

    /// When a piece of work was done, on the clock of [`now_ns`]; `None` while it isn't, or when its context
    /// is gone. For one followed by more than a thousand idle gaps or turns since, the latest that it can have been.
    pub fn done_at_ns(&self, slot: &ContextSlot, ticket: Ticket) -> Option<u64> {
        let mut locked = self.lock();
        let time = locked.time(slot.device, now_ns());
        time.served_ns(slot.name).filter(|served| *served >= ticket.total_ns)?;
        // Work of no duration is done as soon as what was before it, but not before it was there.
        let at = time.done_at(slot.name, ticket.total_ns).unwrap_or(0);
        Some(at.max(ticket.submitted_ns))
    }

    /// Moves a device to now; that is the answer. Work of processes that died is gone from the last look on.
    pub(crate) fn look(&self, locked: &mut Locked<'_>, device: usize) -> u64 {
        let now = now_ns();
        if locked.devices[device].contenders() > 0 && now.saturating_sub(locked.devices[device].buried_ns) >= BURY_NS {
            locked.devices[device].buried_ns = now;
            self.bury(locked, device);
        }
        locked.time(device, now);
        now
    }

    /// Takes away what dead processes have on a device, as of where its model stands.
    fn bury(&self, locked: &mut Locked<'_>, device: usize) {
        if !self.file.is_intact() {
            return;
        }
        let owners: Vec<usize> = locked.devices[device].busy_owners().take(BURY_MAX).collect();
        for entry in owners.into_iter().filter(|entry| *entry < PROCESSES_MAX) {
            // Under the lock, under which entries are taken: an entry without a mark has no living owner.
            if matches!(liveness::owner(self.file.descriptor(), entry), Ok(None)) {
                locked.release(entry);
            }
        }
    }
}
