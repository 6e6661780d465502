//! Meetings: kernels that go on only once those of the same name on all ranks have begun, as those of collectives do.
//!
//! A rank is a context, of any process and on any device. The n-th such kernel of a rank meets the n-th of the others.
//! Until all are there, a rank has its turns on its device and does nothing in them. One that goes away never comes: the
//! others wait until they go away too, and then the name begins anew.
//!
//! While there is a meeting, all devices move together, from one change on any of them to the next: what happens on one
//! lets another go on at that very moment.

use super::{DeviceTime, Hardware, Queue, QueueName};
use std::ops::ControlFlow;

/// How long whoever waits for such a kernel sleeps between two looks.
pub(crate) const LOOK_NS: u64 = 100_000;
/// Groups of ranks on one machine at a time.
pub(crate) const GROUPS_MAX: usize = 64;
/// Ranks of one group.
pub const RANKS_MAX: usize = 64;
/// Such kernels that one context may have waiting; a launch beyond them waits for room.
const STOPS_MAX: usize = 256;

/// Where a context's work waits for others.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Stop {
    /// Work of the context before it.
    pub(super) at_ns: u64,
    /// The how manyeth kernel of the name, from 1 on.
    round: u64,
    group: u32,
    rank: u32,
}

/// The places, not yet passed, where a context's work waits: a ring.
#[repr(C)]
pub(super) struct Stops {
    first: u32,
    length: u32,
    ring: [Stop; STOPS_MAX],
}

impl Stops {
    pub(super) fn clear(&mut self) {
        (self.first, self.length) = (0, 0);
    }

    /// Makes any state one that goes on.
    pub(super) fn repair(&mut self) {
        self.first %= STOPS_MAX as u32;
        self.length = self.length.min(STOPS_MAX as u32);
    }

    pub(super) fn first(&self) -> Option<&Stop> {
        (self.length > 0).then(|| &self.ring[self.first as usize % STOPS_MAX])
    }

    fn push(&mut self, stop: Stop) {
        self.ring[(self.first + self.length) as usize % STOPS_MAX] = stop;
        self.length += 1;
    }

    fn pop(&mut self) {
        self.first = (self.first + 1) % STOPS_MAX as u32;
        self.length -= 1;
    }
}

/// A context in a group.
#[derive(Clone, Copy)]
#[repr(C)]
struct Rank {
    device: u32,
    place: u16,
    unused: u16,
    generation: u32,
    unused2: u32,
    /// Kernels of the name that it was given, and that have begun.
    launched: u64,
    begun: u64,
}

/// Contexts that meet under one name.
#[repr(C)]
struct Group {
    /// Of the kernel's name.
    key: u64,
    /// How many meet; 0 when the place is free.
    size: u32,
    present: u32,
    ranks: [Rank; RANKS_MAX],
}

/// All groups of a machine.
#[repr(C)]
pub(crate) struct Meetings {
    /// No group from here on was ever made.
    used: u32,
    unused: u32,
    groups: [Group; GROUPS_MAX],
}

impl Group {
    fn ranks(&self) -> &[Rank] {
        &self.ranks[..(self.present as usize).min(RANKS_MAX)]
    }

    /// True when all have begun their kernel of that round.
    fn is_complete(&self, round: u64) -> bool {
        self.ranks().iter().filter(|rank| rank.begun >= round).count() >= self.size as usize
    }
}

impl Rank {
    fn name(&self) -> QueueName {
        QueueName { place: self.place, generation: self.generation }
    }

    fn lives(&self, devices: &[DeviceTime]) -> bool {
        devices.get(self.device as usize).is_some_and(|device| device.queue(self.name()).is_some())
    }
}

impl Meetings {
    /// True while there is any group: then the devices move together.
    pub(crate) fn is_any(&self) -> bool {
        self.used > 0
    }

    fn groups(&mut self) -> &mut [Group] {
        &mut self.groups[..(self.used as usize).min(GROUPS_MAX)]
    }

    /// Forgets the groups whose contexts are all gone.
    pub(crate) fn collect(&mut self, devices: &[DeviceTime]) {
        for group in self.groups() {
            if !group.ranks().iter().any(|rank| rank.lives(devices)) {
                (group.size, group.present) = (0, 0);
            }
        }
        while self.groups().last().is_some_and(|group| group.size == 0) {
            self.used -= 1;
        }
    }

    /// The group and the rank of a context; `None` when there is no room for another group.
    fn join(
        &mut self,
        devices: &[DeviceTime],
        device: u32,
        name: QueueName,
        key: u64,
        size: u32,
    ) -> Option<(u32, u32)> {
        let is_it = |rank: &Rank| rank.device == device && rank.name() == name;
        let same = |group: &Group| group.key == key && group.size == size;
        for (at, group) in (0..).zip(self.groups().iter()).filter(|(_, group)| same(group)) {
            if let Some(rank) = group.ranks().iter().position(is_it) {
                return Some((at, rank as u32));
            }
        }
        self.collect(devices);
        let groups = self.groups();
        let has_room = |group: &Group| group.present < size && group.ranks().iter().all(|rank| rank.lives(devices));
        let at = groups.iter().position(|group| same(group) && has_room(group));
        let at = at.or_else(|| groups.iter().position(|group| group.size == 0)).unwrap_or(groups.len());
        let group = self.groups.get_mut(at)?;
        if at >= self.used as usize || group.size == 0 {
            (group.key, group.size, group.present) = (key, size, 0);
            self.used = self.used.max(at as u32 + 1);
        }
        let rank = group.present;
        let (place, generation) = (name.place, name.generation);
        group.ranks[rank as usize] = Rank { device, place, unused: 0, generation, unused2: 0, launched: 0, begun: 0 };
        group.present += 1;
        Some((at as u32, rank))
    }

    /// Notes that a rank has come to a stop; true when all have, and it can go on.
    fn arrive(&mut self, stop: &Stop) -> bool {
        let Some(group) = self.groups.get_mut(stop.group as usize) else { return true };
        if let Some(rank) = group.ranks.get_mut(stop.rank as usize) {
            rank.begun = rank.begun.max(stop.round);
        }
        group.is_complete(stop.round)
    }
}

impl Queue {
    /// True when work up to `total` has to wait for others first.
    pub(super) fn waits_before(&self, total: u64) -> bool {
        self.stops.first().is_some_and(|stop| stop.at_ns < total)
    }
}

impl DeviceTime {
    /// Lets the context whose turn it is come to the stop at which it is; whether it can go on from there.
    fn reach(&mut self, meetings: &mut Meetings) -> bool {
        let Some(current) = self.current().filter(|_| self.switch_left_ns == 0) else { return false };
        let queue = &mut self.queues[current];
        let goes_on = match queue.stops.first() {
            Some(stop) if stop.at_ns <= queue.served_ns => meetings.arrive(stop),
            _ => false,
        };
        if goes_on {
            queue.stops.pop();
        }
        goes_on
    }

    /// When something changes on the device that others may wait for, at the earliest.
    fn next_change(&self) -> Option<u64> {
        let queue = &self.queues[self.current()?];
        if self.switch_left_ns > 0 {
            return Some(self.last_ns + self.switch_left_ns);
        }
        let open = queue.open_ns();
        let slice = if self.active_length > 1 { self.slice_left_ns } else { u64::MAX };
        let part = if open > 0 { open.min(slice) } else { slice };
        self.last_ns.checked_add(part)
    }
}

/// Moves all devices to `now` together.
pub(crate) fn advance_all(devices: &mut [DeviceTime], meetings: &mut Meetings, hardware: &Hardware, now: u64) {
    loop {
        while devices.iter_mut().any(|device| device.last_ns <= now && device.reach(meetings)) {}
        let next = devices.iter().filter_map(DeviceTime::next_change).min().unwrap_or(now);
        let until = next.min(now);
        for device in &mut *devices {
            device.advance(hardware, until);
        }
        if until == now {
            while devices.iter_mut().any(|device| device.reach(meetings)) {}
            return;
        }
    }
}

/// Adds a kernel that meets others; the total that will have been served when it is done. It breaks when there is no room.
pub(crate) fn submit(
    devices: &mut [DeviceTime],
    meetings: &mut Meetings,
    hardware: &Hardware,
    (device, name): (usize, QueueName),
    (key, size, duration_ns): (u64, u32, u64),
    now: u64,
) -> ControlFlow<(), Option<u64>> {
    let Some(queue) = devices[device].queue(name) else { return ControlFlow::Continue(None) };
    let at_ns = queue.enqueued_ns;
    if queue.stops.length as usize >= STOPS_MAX {
        return ControlFlow::Break(());
    }
    let size = size.clamp(1, RANKS_MAX as u32);
    let Some((group, rank)) = meetings.join(devices, device as u32, name, key, size) else {
        return ControlFlow::Break(());
    };
    let ours = &mut meetings.groups[group as usize].ranks[rank as usize];
    ours.launched += 1;
    let stop = Stop { at_ns, round: ours.launched, group, rank };
    devices[device].queues[usize::from(name.place)].stops.push(stop);
    // Of some length, so that the context has work and a turn in which to come to it.
    let total = devices[device].submit(hardware, name, duration_ns.max(1), now);
    advance_all(devices, meetings, hardware, now);
    ControlFlow::Continue(total)
}
