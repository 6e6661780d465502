//! Device time: which context the device serves at which moment, as arithmetic.
//!
//! Each context has a queue; the device serves the queues that have work in turn, for a slice each, and
//! pays for every switch from one context to another. Nothing runs in the background: whoever looks moves
//! the model from the last moment somebody looked to now. A queue is two growing totals, work enqueued and
//! work served; a piece of work is the total at its end, and done once that much has been served. A context that
//! waits for others in a meeting ([`meeting`]) has its turns and comes no further.
//!
//! The structures lie in memory that all processes share, so they are plain integers, zero is their
//! beginning, and an index read from them is checked before it is used.

mod history;
pub(crate) mod meeting;

use history::{History, Windows};
pub(crate) use history::{WINDOW_NS, window_of};
use meeting::Stops;

/// Contexts that one device can have at a time.
pub(crate) const QUEUES_MAX: usize = 1024;
/// Windows kept of a device, as many as NVML's buffer of samples holds.
pub(crate) const DEVICE_WINDOWS: usize = 128;
/// Windows kept of one context.
pub(crate) const QUEUE_WINDOWS: usize = 8;

/// How the hardware shares itself out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Hardware {
    /// Longest turn of a context while others have work.
    pub slice_ns: u64,
    /// Cost of leaving a context that still has work.
    pub hot_switch_ns: u64,
    /// Cost of leaving a context that has none.
    pub drained_switch_ns: u64,
}

impl Default for Hardware {
    fn default() -> Self {
        Self { slice_ns: 2_000_000, hot_switch_ns: 170_000, drained_switch_ns: 30_000 }
    }
}

/// One context's work.
#[repr(C)]
pub(crate) struct Queue {
    /// Grows whenever the place is taken, so that a stale name is told from a new one.
    pub(crate) generation: u32,
    /// One more than the number of the process that owns it; 0 when the place is free.
    pub(crate) owner: u32,
    pub(crate) enqueued_ns: u64,
    pub(crate) served_ns: u64,
    /// Time that it had the device and came no further, for those that it was to meet had not come.
    pub(crate) spun_ns: u64,
    pub(crate) windows: Windows<QUEUE_WINDOWS>,
    history: History,
    stops: Stops,
}

impl Queue {
    /// Work not yet served.
    pub(crate) fn pending_ns(&self) -> u64 {
        self.enqueued_ns.saturating_sub(self.served_ns)
    }

    /// Time that it had the device.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.served_ns.saturating_add(self.spun_ns)
    }

    /// Work that can be served before it has to wait for others; 0 when it waits now.
    fn open_ns(&self) -> u64 {
        let stop = self.stops.first().map_or(u64::MAX, |stop| stop.at_ns.saturating_sub(self.served_ns));
        self.pending_ns().min(stop)
    }
}

/// A queue of a device, named by its place and by when the place was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueueName {
    pub(crate) place: u16,
    pub(crate) generation: u32,
}

/// The time of one device.
#[repr(C)]
pub(crate) struct DeviceTime {
    /// How far the model has come.
    last_ns: u64,
    /// Time so far in which a context had the device.
    pub(crate) busy_ns: u64,
    /// Time so far that went into switches.
    pub(crate) switch_ns: u64,
    /// When it was last seen to whose work there is that is dead.
    pub(crate) buried_ns: u64,
    /// What is left of the turn.
    slice_left_ns: u64,
    /// What is left of the switch to the context whose turn it is.
    switch_left_ns: u64,
    /// Whose turn it is: an index of `active`.
    position: u32,
    active_length: u32,
    /// One more than the place of the context that the device holds; 0 for none.
    resident: u32,
    /// No place from here on was ever taken.
    queues_used: u32,
    pub(crate) windows: Windows<DEVICE_WINDOWS>,
    /// Places of the queues that have work, in the order of their turns.
    active: [u16; QUEUES_MAX],
    queues: [Queue; QUEUES_MAX],
}

impl DeviceTime {
    /// Takes a place for a context; `None` when all are taken.
    pub(crate) fn open(&mut self, owner: u32) -> Option<QueueName> {
        let used = self.queues_used();
        let at = (0..used).find(|at| self.queues[*at].owner == 0).or((used < QUEUES_MAX).then_some(used))?;
        let queue = &mut self.queues[at];
        queue.generation = queue.generation.wrapping_add(1).max(1);
        queue.enqueued_ns = 0;
        queue.served_ns = 0;
        queue.spun_ns = 0;
        queue.stops.clear();
        queue.history.clear();
        queue.windows.clear();
        queue.owner = owner + 1;
        self.queues_used = self.queues_used.max(at as u32 + 1);
        Some(QueueName { place: at as u16, generation: queue.generation })
    }

    /// Gives a place back; work not yet served never will be. How long it had the device, for the owner's account.
    pub(crate) fn close(&mut self, hardware: &Hardware, name: QueueName) -> Option<u64> {
        let busy_ns = self.queue(name)?.busy_ns();
        let place = name.place;
        self.queues[usize::from(place)].owner = 0;
        if self.resident == u32::from(place) + 1 {
            self.resident = 0;
        }
        if let Some(at) = self.active().iter().position(|active| *active == place) {
            self.retire(hardware, at);
        }
        Some(busy_ns)
    }

    /// Adds work to a queue; the total that will have been served when it is done.
    pub(crate) fn submit(&mut self, hardware: &Hardware, name: QueueName, duration_ns: u64, now: u64) -> Option<u64> {
        self.advance(hardware, now);
        self.queue(name)?;
        let queue = &mut self.queues[usize::from(name.place)];
        let idle = queue.pending_ns() == 0;
        queue.enqueued_ns = queue.enqueued_ns.saturating_add(duration_ns);
        let total = queue.enqueued_ns;
        if idle && duration_ns > 0 {
            self.enlist(hardware, name.place);
        }
        Some(total)
    }

    /// Moves the model to `now`; no meeting takes place on the way.
    pub(crate) fn advance(&mut self, hardware: &Hardware, now: u64) {
        while self.last_ns < now {
            let Some(current) = self.current() else {
                self.last_ns = now;
                return;
            };
            let left = now - self.last_ns;
            if self.switch_left_ns > 0 {
                let part = left.min(self.switch_left_ns);
                self.switch_left_ns -= part;
                self.switch_ns += part;
                self.pass(part);
                continue;
            }
            let alone = self.active_length == 1;
            let queue = &self.queues[current];
            let (open, drains) = (queue.open_ns(), queue.open_ns() == queue.pending_ns());
            let slice = if alone { u64::MAX } else { self.slice_left_ns };
            let part = if open > 0 { left.min(open).min(slice) } else { left.min(slice) };
            if open > 0 {
                self.serve(current, part)
            } else {
                self.spin(current, part)
            }
            self.slice_left_ns = slice_after(hardware, self.slice_left_ns, part, alone);
            if drains && part == open {
                self.retire(hardware, self.position as usize);
            } else if !alone && self.slice_left_ns == 0 {
                self.position = (self.position + 1) % self.active_length;
                self.begin_turn(hardware, hardware.hot_switch_ns);
            }
        }
    }

    /// What the queue was served so far; `None` when its context is gone.
    pub(crate) fn served_ns(&self, name: QueueName) -> Option<u64> {
        self.queue(name).map(|queue| queue.served_ns)
    }

    /// When the piece of work is done, or, if its context needs another turn for it, when this one ends.
    ///
    /// Work that arrives meanwhile makes it later, contexts that go away make it earlier.
    pub(crate) fn look_again_at(&self, hardware: &Hardware, name: QueueName, total: u64) -> u64 {
        let Some(queue) = self.queue(name).filter(|queue| queue.served_ns < total) else {
            return self.last_ns;
        };
        let remaining = total - queue.served_ns;
        if queue.waits_before(total) {
            return self.last_ns + meeting::LOOK_NS;
        }
        let active = self.active();
        let mut at = self.last_ns.saturating_add(self.switch_left_ns);
        let mut slice = if active.len() > 1 { self.slice_left_ns } else { u64::MAX };
        for place in active.iter().cycle().skip(self.position as usize).take(active.len()) {
            if *place == name.place {
                return at.saturating_add(remaining.min(slice));
            }
            let other = &self.queues[usize::from(*place) % QUEUES_MAX];
            let pending = if other.stops.first().is_some() { u64::MAX } else { other.pending_ns() };
            let cost = if pending <= slice { hardware.drained_switch_ns } else { hardware.hot_switch_ns };
            at = at.saturating_add(pending.min(slice)).saturating_add(cost);
            slice = hardware.slice_ns;
        }
        self.last_ns
    }

    /// When a piece of work was done. For one so old that it has left the history, the latest it can be.
    pub(crate) fn done_at(&self, name: QueueName, total: u64) -> Option<u64> {
        let queue = self.queue(name).filter(|queue| queue.served_ns >= total)?;
        queue.history.reached(total)
    }

    /// How many contexts have work.
    pub(crate) fn contenders(&self) -> usize {
        self.active().len()
    }

    /// The processes that have work, from the one whose turn it is on.
    pub(crate) fn busy_owners(&self) -> impl Iterator<Item = usize> {
        let active = self.active();
        let turns = active.iter().cycle().skip(self.position as usize).take(active.len());
        turns
            .filter_map(|place| self.queues[usize::from(*place) % QUEUES_MAX].owner.checked_sub(1))
            .map(|at| at as usize)
    }

    /// The open queues of a process.
    pub(crate) fn queues_of(&self, owner: u32) -> impl Iterator<Item = (QueueName, &Queue)> {
        let used = &self.queues[..self.queues_used()];
        (0..)
            .zip(used)
            .filter(move |(_, queue)| queue.owner == owner + 1)
            .map(|(place, queue)| (QueueName { place, generation: queue.generation }, queue))
    }

    /// Makes the whole agree with the queues' totals, after a process died in the middle of a change.
    pub(crate) fn repair(&mut self, hardware: &Hardware) {
        self.queues_used = self.queues_used.min(QUEUES_MAX as u32);
        self.active_length = 0;
        self.position = 0;
        for at in 0..self.queues_used() {
            let queue = &mut self.queues[at];
            queue.served_ns = queue.served_ns.min(queue.enqueued_ns);
            queue.stops.repair();
            if queue.owner != 0 && queue.pending_ns() > 0 {
                self.active[self.active_length as usize] = at as u16;
                self.active_length += 1;
            }
        }
        if self.active_length > 0 {
            self.begin_turn(hardware, hardware.drained_switch_ns);
        }
    }

    /// The queue of that name, unless the place has been given back since.
    fn queue(&self, name: QueueName) -> Option<&Queue> {
        let queue = self.queues.get(usize::from(name.place))?;
        (queue.owner != 0 && queue.generation == name.generation).then_some(queue)
    }

    fn queues_used(&self) -> usize {
        (self.queues_used as usize).min(QUEUES_MAX)
    }

    fn active(&self) -> &[u16] {
        &self.active[..(self.active_length as usize).min(QUEUES_MAX)]
    }

    fn current(&self) -> Option<usize> {
        self.active().get(self.position as usize).map(|place| usize::from(*place) % QUEUES_MAX)
    }

    /// Lets time go by in which the device was busy.
    fn pass(&mut self, part: u64) {
        self.windows.add(self.last_ns, part);
        self.last_ns += part;
    }

    fn serve(&mut self, at: usize, part: u64) {
        if part == 0 {
            return;
        }
        let queue = &mut self.queues[at];
        queue.history.serve(queue.served_ns, self.last_ns, part);
        queue.windows.add(self.last_ns, part);
        queue.served_ns += part;
        self.busy_ns += part;
        self.pass(part);
    }

    /// Lets a context have the device and come no further.
    fn spin(&mut self, at: usize, part: u64) {
        let queue = &mut self.queues[at];
        queue.windows.add(self.last_ns, part);
        queue.spun_ns += part;
        self.busy_ns += part;
        self.pass(part);
    }

    /// Puts a queue behind all that already wait.
    fn enlist(&mut self, hardware: &Hardware, place: u16) {
        let length = self.active().len();
        let at = (self.position as usize).min(length);
        if length == QUEUES_MAX {
            return; // Every place is there already.
        }
        self.active.copy_within(at..length, at + 1);
        self.active[at] = place;
        self.active_length += 1;
        if length == 0 {
            self.position = 0;
            self.begin_turn(hardware, hardware.drained_switch_ns);
        } else {
            self.position += 1;
        }
    }

    /// Takes a queue that has no more work, or is gone, out of the round.
    fn retire(&mut self, hardware: &Hardware, at: usize) {
        let length = self.active().len();
        self.active.copy_within(at + 1..length, at);
        self.active_length -= 1;
        let position = self.position as usize;
        if at < position {
            self.position -= 1;
        } else if at == position && self.active_length > 0 {
            self.position %= self.active_length;
            self.begin_turn(hardware, hardware.drained_switch_ns);
        }
    }

    fn begin_turn(&mut self, hardware: &Hardware, cost_ns: u64) {
        let Some(current) = self.current() else { return };
        let next = current as u32 + 1;
        let held = self.resident != 0 && self.resident != next;
        self.switch_left_ns = if held { cost_ns } else { 0 };
        self.slice_left_ns = hardware.slice_ns.max(1);
        self.resident = next;
    }
}

/// What is left of a slice: a context that is alone gets the next one as the last ends.
fn slice_after(hardware: &Hardware, slice_left_ns: u64, part: u64, alone: bool) -> u64 {
    if !alone {
        return slice_left_ns.saturating_sub(part);
    }
    let slice = hardware.slice_ns.max(1);
    let used = part % slice;
    if used < slice_left_ns { slice_left_ns - used } else { slice_left_ns + slice - used }
}

#[cfg(test)]
mod tests;
