//! Kernels that meet, on invented clocks.

use super::*;
use crate::time::meeting::{self, Meetings, advance_all};
use std::ops::ControlFlow;

/// Devices that move together.
struct World {
    devices: Vec<DeviceTime>,
    meetings: Box<Meetings>,
}

/// As in a new file: all zero.
fn zeroed<T>() -> Box<T> {
    let layout = std::alloc::Layout::new::<T>();
    // SAFETY: the layout is not empty; zero is a valid value of all that is asked for here; the box frees with it.
    unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast()) }
}

impl World {
    fn new(devices: usize) -> Self {
        let mut all: Vec<DeviceTime> = Vec::with_capacity(devices);
        for at in 0..devices {
            // SAFETY: there is room for as many, and zero is a valid value of every field.
            unsafe { all.as_mut_ptr().add(at).write_bytes(0, 1) };
        }
        // SAFETY: each was written above.
        unsafe { all.set_len(devices) };
        Self { devices: all, meetings: zeroed() }
    }

    fn open(&mut self, device: usize, owner: u32) -> (usize, QueueName) {
        (device, self.devices[device].open(owner).unwrap())
    }

    fn meet(&mut self, who: (usize, QueueName), key: u64, ranks: u32, duration: u64, now: u64) -> u64 {
        advance_all(&mut self.devices, &mut self.meetings, &hardware(), now);
        let what = (key, ranks, duration);
        match meeting::submit(&mut self.devices, &mut self.meetings, &hardware(), who, what, now) {
            ControlFlow::Continue(total) => total.unwrap(),
            ControlFlow::Break(()) => panic!("there is room"),
        }
    }

    fn work(&mut self, (device, name): (usize, QueueName), duration: u64, now: u64) -> u64 {
        self.advance(now);
        self.devices[device].submit(&hardware(), name, duration, now).unwrap()
    }

    fn advance(&mut self, now: u64) {
        advance_all(&mut self.devices, &mut self.meetings, &hardware(), now);
    }

    fn done(&self, (device, name): (usize, QueueName), total: u64) -> Option<u64> {
        self.devices[device].done_at(name, total)
    }

    fn busy(&self, (device, name): (usize, QueueName)) -> u64 {
        self.devices[device].queue(name).unwrap().busy_ns()
    }
}

#[test]
fn ranks_on_two_devices_go_on_when_the_last_has_begun() {
    let mut world = World::new(2);
    let (a, b) = (world.open(0, 1), world.open(1, 2));
    let of_a = world.meet(a, 7, 2, 50 * US, 10 * MS);
    world.work(b, 3 * MS, 11 * MS);
    world.advance(12 * MS);
    assert_eq!((world.done(a, of_a), world.busy(a)), (None, 2 * MS), "it has the device and does nothing");
    let of_b = world.meet(b, 7, 2, 50 * US, 12 * MS); // Begins when the work before it is done, at 14 ms.
    world.advance(30 * MS);
    let end = 14 * MS + 50 * US;
    assert_eq!((world.done(a, of_a), world.done(b, of_b)), (Some(end), Some(end)));
    assert_eq!((world.busy(a), world.busy(b)), (4 * MS + 50 * US, 3 * MS + 50 * US));
    assert_eq!((world.devices[0].busy_ns, world.devices[1].busy_ns), (4 * MS + 50 * US, 3 * MS + 50 * US));
}

#[test]
fn ranks_on_one_device_meet_by_taking_turns() {
    let mut world = World::new(1);
    let ranks: Vec<_> = (0..4).map(|owner| world.open(0, owner)).collect();
    let totals: Vec<_> = ranks.iter().map(|rank| world.meet(*rank, 7, 4, 50 * US, 0)).collect();
    world.advance(100 * MS);
    // Three whole turns of spinning, each with a hot switch behind it; then the last goes on at once, and the others after
    // another switch each.
    let last = 3 * (2 * MS + 170 * US) + 50 * US;
    assert_eq!(world.done(ranks[3], totals[3]), Some(last));
    let others: Vec<_> = (0..3).map(|at| world.done(ranks[at], totals[at]).unwrap()).collect();
    assert_eq!(others, [1, 2, 3].map(|n| last + n * (30 + 50) * US));
    assert_eq!(world.busy(ranks[0]), 2 * MS + 50 * US);
}

#[test]
fn the_nth_meets_the_nth() {
    let mut world = World::new(2);
    let (a, b) = (world.open(0, 1), world.open(1, 2));
    let of_a: Vec<_> = (0..10).map(|_| world.meet(a, 7, 2, 100 * US, 0)).collect();
    world.advance(MS);
    assert_eq!(world.done(a, of_a[0]), None);
    for (round, total) in of_a.iter().enumerate() {
        let at = (2 + round as u64) * MS;
        let of_b = world.meet(b, 7, 2, 100 * US, at);
        world.advance(at + MS);
        assert_eq!((world.done(a, *total), world.done(b, of_b)), (Some(at + 100 * US), Some(at + 100 * US)), "{round}");
        assert_eq!(of_a.get(round + 1).and_then(|next| world.done(a, *next)), None, "{round}");
    }
}

#[test]
fn other_names_and_third_parties_are_not_met() {
    let mut world = World::new(2);
    let (a, b, c) = (world.open(0, 1), world.open(1, 2), world.open(1, 3));
    let of_a = world.meet(a, 7, 2, 100 * US, 0);
    world.meet(b, 8, 2, 100 * US, 0);
    let other = world.work(c, 5 * MS, 0);
    world.advance(50 * MS);
    assert_eq!(world.done(a, of_a), None);
    // Beside one that spins, others have their turns: 2 ms of each with hot switches between.
    assert_eq!(world.done(c, other), Some(3 * 2 * MS + 5 * MS + 5 * 170 * US));
}

#[test]
fn who_went_away_is_waited_for_until_all_have() {
    let mut world = World::new(2);
    let (a, b) = (world.open(0, 1), world.open(1, 2));
    world.meet(a, 7, 2, 100 * US, 0);
    world.meet(b, 7, 2, 100 * US, 0);
    let next = world.meet(a, 7, 2, 100 * US, MS);
    world.devices[1].close(&hardware(), b.1);
    // A newcomer doesn't take the place of one that is gone.
    let c = world.open(1, 3);
    let of_c = world.meet(c, 7, 2, 100 * US, 2 * MS);
    world.advance(100 * MS);
    assert_eq!((world.done(a, next), world.done(c, of_c)), (None, None));
    assert_eq!(world.busy(a), 99 * MS + 100 * US);
    let d = world.open(1, 4);
    let of_d = world.meet(d, 7, 2, 100 * US, 100 * MS);
    world.advance(200 * MS);
    assert!(world.done(c, of_c).is_some() && world.done(d, of_d).is_some());
    for (device, name) in [a, c, d] {
        world.devices[device].close(&hardware(), name);
    }
    let World { devices, meetings } = &mut world;
    meetings.collect(devices);
    assert!(!meetings.is_any());
}

#[test]
fn a_group_that_lost_one_takes_nobody_in() {
    let mut world = World::new(1);
    let (a, b) = (world.open(0, 1), world.open(0, 2));
    let of_a = world.meet(a, 7, 3, 100 * US, 0);
    world.meet(b, 7, 3, 100 * US, 0);
    world.devices[0].close(&hardware(), b.1);
    for owner in 3..6 {
        let new = world.open(0, owner);
        world.meet(new, 7, 3, 100 * US, MS);
    }
    world.advance(100 * MS);
    assert_eq!(world.done(a, of_a), None, "the three that came later met each other");
    assert_eq!(world.devices[0].contenders(), 1);
}

#[test]
fn one_that_started_and_died_was_there() {
    let mut world = World::new(2);
    let (a, b) = (world.open(0, 1), world.open(1, 2));
    world.work(b, 5 * MS, 0);
    world.meet(a, 7, 2, 100 * US, 0);
    let of_b = world.meet(b, 7, 2, 100 * US, 0);
    world.advance(MS);
    world.devices[0].close(&hardware(), a.1);
    world.advance(20 * MS);
    assert_eq!(world.done(b, of_b), Some(5 * MS + 100 * US));
}

#[test]
fn the_steps_in_which_meetings_are_looked_at_change_nothing() {
    let run = |step: u64| {
        let mut world = World::new(3);
        let ranks: Vec<_> = (0..4).map(|at| world.open(at % 3, at as u32)).collect();
        let rival = world.open(0, 9);
        let mut totals = Vec::new();
        let mut now = 0;
        for at in 0..40 * 4 {
            let due = (at / 4) * 3 * MS + (at % 4) * 211 * US;
            while now + step < due {
                now += step;
                world.advance(now);
            }
            now = due;
            let rank = ranks[(at % 4) as usize];
            world.work(rank, (at * 37 % 400) * US, now);
            totals.push((rank, world.meet(rank, 7, 4, 50 * US, now)));
            world.work(rival, 300 * US, now);
        }
        while now < 2_000 * MS {
            now += step;
            world.advance(now);
        }
        let done: Vec<_> = totals.iter().map(|(rank, total)| world.done(*rank, *total)).collect();
        (done, ranks.iter().map(|rank| world.busy(*rank)).collect::<Vec<_>>())
    };
    let whole = run(5_000 * MS);
    assert!(whole.0.iter().all(Option::is_some));
    for step in [33 * US, 770 * US, 9 * MS] {
        assert_eq!(run(step), whole, "{step}");
    }
}

#[test]
fn room_for_meetings_has_bounds() {
    let mut world = World::new(1);
    let a = world.open(0, 1);
    let mut submitted = 0;
    let hardware = hardware();
    while let ControlFlow::Continue(_) =
        meeting::submit(&mut world.devices, &mut world.meetings, &hardware, a, (7, 2, MS), 0)
    {
        submitted += 1;
    }
    assert_eq!(submitted, 256);
    let b = world.open(0, 2);
    let groups = (100..).take_while(|key| {
        meeting::submit(&mut world.devices, &mut world.meetings, &hardware, b, (*key, 2, MS), 0).is_continue()
    });
    assert_eq!(groups.count(), meeting::GROUPS_MAX - 1);
}
