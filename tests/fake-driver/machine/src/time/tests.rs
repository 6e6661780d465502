//! The device-time model, on invented clocks.
#![allow(unsafe_code)] // A device is too large for the stack.

mod meetings;

use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A device as it is in a new file: all zero.
fn device() -> Box<DeviceTime> {
    let layout = std::alloc::Layout::new::<DeviceTime>();
    // SAFETY: the layout is not empty; zero is a valid value of every field; the box frees with that layout.
    unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast()) }
}

fn hardware() -> Hardware {
    Hardware::default()
}

fn served(time: &DeviceTime, name: QueueName) -> u64 {
    time.served_ns(name).unwrap()
}

#[test]
fn a_lone_context_is_served_at_full_speed() {
    let (mut time, hardware) = (device(), hardware());
    let name = time.open(3).unwrap();
    let first = time.submit(&hardware, name, 10 * MS, 1_000 * MS).unwrap();
    let second = time.submit(&hardware, name, 5 * MS, 1_001 * MS).unwrap();
    assert_eq!(time.look_again_at(&hardware, name, first), 1_010 * MS);
    assert_eq!(time.look_again_at(&hardware, name, second), 1_015 * MS);
    time.advance(&hardware, 1_012 * MS);
    assert_eq!((served(&time, name), time.busy_ns), (12 * MS, 12 * MS));
    time.advance(&hardware, 2_000 * MS);
    assert_eq!((served(&time, name), time.busy_ns, time.contenders()), (15 * MS, 15 * MS, 0));
    assert_eq!((time.done_at(name, first), time.done_at(name, second)), (Some(1_010 * MS), Some(1_015 * MS)));
}

#[test]
fn two_busy_contexts_get_equal_time_less_the_switches() {
    let (mut time, hardware) = (device(), hardware());
    let (a, b) = (time.open(1).unwrap(), time.open(2).unwrap());
    time.submit(&hardware, a, 100_000 * MS, 0);
    time.submit(&hardware, b, 100_000 * MS, 0);
    time.advance(&hardware, 10_000 * MS);
    let (of_a, of_b) = (served(&time, a), served(&time, b));
    assert!(of_a.abs_diff(of_b) <= hardware.slice_ns, "{of_a} {of_b}");
    // A slice of 2 ms and a switch of 0.17 ms: 92 per cent of the time is served.
    let permille = (of_a + of_b) / (10_000 * MS / 1000);
    assert!((920..=923).contains(&permille), "{permille}");
    assert_eq!(time.busy_ns, of_a + of_b);
}

#[test]
fn every_busy_context_has_its_turn() {
    let (mut time, hardware) = (device(), hardware());
    let names: Vec<_> = (0..17).map(|owner| time.open(owner).unwrap()).collect();
    for name in &names {
        time.submit(&hardware, *name, 100_000 * MS, 0);
    }
    time.advance(&hardware, 5_000 * MS);
    let all: Vec<u64> = names.iter().map(|name| served(&time, *name)).collect();
    let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
    assert!(most - least <= hardware.slice_ns, "{all:?}");
}

#[test]
fn the_steps_in_which_time_is_looked_at_change_nothing() {
    let hardware = hardware();
    let script =
        [(0, 0, 7 * MS), (100 * US, 1, 30 * MS), (3 * MS, 2, 50 * US), (9 * MS, 0, 4 * MS), (60 * MS, 1, 10 * US)];
    let run = |step: u64| {
        let mut time = device();
        let names: Vec<_> = (0..3).map(|owner| time.open(owner).unwrap()).collect();
        let mut totals = Vec::new();
        let mut now = 0;
        for (at, which, duration) in script {
            while now + step < at {
                now += step;
                time.advance(&hardware, now);
            }
            totals.push((names[which], time.submit(&hardware, names[which], duration, at).unwrap()));
            now = at;
        }
        while now < 200 * MS {
            now += step;
            time.advance(&hardware, now);
        }
        let done: Vec<_> = totals.iter().map(|(name, total)| time.done_at(*name, *total)).collect();
        (done, time.busy_ns)
    };
    let whole = run(1_000 * MS);
    assert!(whole.0.iter().all(Option::is_some));
    for step in [7 * US, 333 * US, 2 * MS, 19 * MS] {
        assert_eq!(run(step), whole, "{step}");
    }
}

#[test]
fn a_drained_context_costs_less_to_leave() {
    let (mut time, hardware) = (device(), hardware());
    let (a, b) = (time.open(1).unwrap(), time.open(2).unwrap());
    let first = time.submit(&hardware, a, 500 * US, 0).unwrap();
    let second = time.submit(&hardware, b, 500 * US, 0).unwrap();
    assert_eq!(time.look_again_at(&hardware, b, second), 1_030 * US);
    time.advance(&hardware, 10 * MS);
    assert_eq!((time.done_at(a, first), time.done_at(b, second)), (Some(500 * US), Some(1_030 * US)));
    // The device holds b now: its next work begins at once, a's after a switch.
    let third = time.submit(&hardware, b, 100 * US, 20 * MS).unwrap();
    let fourth = time.submit(&hardware, a, 100 * US, 30 * MS).unwrap();
    time.advance(&hardware, 40 * MS);
    assert_eq!(time.done_at(b, third), Some(20 * MS + 100 * US));
    assert_eq!(time.done_at(a, fourth), Some(30 * MS + 130 * US));
}

#[test]
fn a_short_kernel_waits_for_the_turn_of_a_long_one() {
    let (mut time, hardware) = (device(), hardware());
    let (long, short) = (time.open(1).unwrap(), time.open(2).unwrap());
    time.submit(&hardware, long, 1_000 * MS, 0);
    // 0.5 ms into one of the slices that a context has which is alone.
    let total = time.submit(&hardware, short, 100 * US, 100 * MS + 500 * US).unwrap();
    let expected = 102 * MS + 170 * US + 100 * US;
    assert_eq!(time.look_again_at(&hardware, short, total), expected);
    time.advance(&hardware, 200 * MS);
    assert_eq!(time.done_at(short, total), Some(expected));
}

#[test]
fn looking_again_when_told_ends() {
    let (mut time, hardware) = (device(), hardware());
    let names: Vec<_> = (0..5).map(|owner| time.open(owner).unwrap()).collect();
    let totals: Vec<_> =
        (1..).zip(&names).map(|(n, name)| time.submit(&hardware, *name, n * 7 * MS, 0).unwrap()).collect();
    for (name, total) in names.iter().zip(totals) {
        let mut looks = 0;
        while served(&time, *name) < total {
            let at = time.look_again_at(&hardware, *name, total);
            time.advance(&hardware, at);
            looks += 1;
            assert!(looks < 50, "a look a turn is enough");
        }
        assert!(time.done_at(*name, total).is_some());
    }
}

#[test]
fn a_context_that_goes_away_leaves_the_round() {
    let (mut time, hardware) = (device(), hardware());
    let (a, b, c) = (time.open(1).unwrap(), time.open(2).unwrap(), time.open(3).unwrap());
    for name in [a, b, c] {
        time.submit(&hardware, name, 100 * MS, 0);
    }
    time.advance(&hardware, 3 * MS); // In the turn of b.
    assert_eq!(time.busy_owners().collect::<Vec<_>>(), [2, 3, 1]);
    let of_b = served(&time, b);
    assert_eq!(time.close(&hardware, b), Some(of_b));
    assert_eq!((time.close(&hardware, b), time.served_ns(b), time.done_at(b, 0)), (None, None, None));
    assert_eq!(time.submit(&hardware, b, MS, 3 * MS), None);
    time.close(&hardware, a);
    time.advance(&hardware, 103 * MS);
    assert_eq!(served(&time, c), 100 * MS);
    let again = time.open(7).unwrap();
    assert!(again.place == a.place && again != a, "the place is used again under another name");
    assert_eq!(served(&time, again), 0);
}

#[test]
fn work_of_no_duration_is_done_with_what_was_before_it() {
    let (mut time, hardware) = (device(), hardware());
    let name = time.open(1).unwrap();
    let nothing = time.submit(&hardware, name, 0, 5 * MS).unwrap();
    assert_eq!((served(&time, name), nothing, time.contenders()), (0, 0, 0));
    time.submit(&hardware, name, MS, 5 * MS);
    let after = time.submit(&hardware, name, 0, 5 * MS).unwrap();
    time.advance(&hardware, 5 * MS + 999 * US);
    assert!(served(&time, name) < after);
    time.advance(&hardware, 6 * MS);
    assert_eq!((served(&time, name) >= after, time.done_at(name, after)), (true, Some(6 * MS)));
}

#[test]
fn ends_of_old_work_are_remembered_for_a_while() {
    const KEPT: u64 = history::SERVICES as u64;
    let (mut time, hardware) = (device(), hardware());
    let name = time.open(1).unwrap();
    let totals: Vec<u64> = (0..KEPT + 100).map(|n| time.submit(&hardware, name, 100 * US, n * MS).unwrap()).collect();
    time.advance(&hardware, 10_000 * MS);
    let end = |n: u64| n * MS + 100 * US;
    for (n, total) in (0..).zip(&totals).skip(100) {
        assert_eq!(time.done_at(name, *total), Some(end(n)), "{n}");
    }
    // Older ones ended at the latest when the oldest remembered one did.
    assert_eq!(time.done_at(name, totals[0]), Some(end(100)));
    assert_eq!(time.done_at(name, totals[99]), Some(end(100)));
}

#[test]
fn windows_say_how_busy_the_device_was() {
    let (mut time, hardware) = (device(), hardware());
    let name = time.open(1).unwrap();
    let begin = 10 * WINDOW_NS;
    time.submit(&hardware, name, WINDOW_NS / 4, begin);
    time.submit(&hardware, name, 2 * WINDOW_NS, begin + WINDOW_NS);
    time.advance(&hardware, begin + 500 * WINDOW_NS);
    let busy: Vec<u64> = (9..14).map(|window| time.windows.busy_ns(window)).collect();
    assert_eq!(busy, [0, WINDOW_NS / 4, WINDOW_NS, WINDOW_NS, 0]);
    // Windows that an idle device left out don't come back.
    time.submit(&hardware, name, WINDOW_NS / 2, begin + 500 * WINDOW_NS);
    time.advance(&hardware, begin + 501 * WINDOW_NS);
    assert_eq!(time.windows.busy_ns(11), 0);
    assert_eq!(time.windows.busy_ns(510), WINDOW_NS / 2);
}

#[test]
fn a_long_busy_time_is_counted_in_the_windows_that_are_kept() {
    let (mut time, hardware) = (device(), hardware());
    let name = time.open(1).unwrap();
    time.submit(&hardware, name, 10_000 * WINDOW_NS, 0);
    time.advance(&hardware, 10_000 * WINDOW_NS);
    assert!((9_900..10_000).all(|window| time.windows.busy_ns(window) == WINDOW_NS));
    assert_eq!(time.windows.busy_ns(1), 0);
}

#[test]
fn places_run_out_and_come_back() {
    let (mut time, hardware) = (device(), hardware());
    let names: Vec<_> = (0..QUEUES_MAX as u32).map(|owner| time.open(owner).unwrap()).collect();
    assert_eq!(time.open(9), None);
    for name in &names {
        time.submit(&hardware, *name, MS, 0);
    }
    assert_eq!(time.contenders(), QUEUES_MAX);
    time.close(&hardware, names[500]);
    assert!(time.open(9).is_some());
    time.advance(&hardware, 100_000 * MS);
    assert_eq!((time.contenders(), time.busy_ns), (0, (QUEUES_MAX as u64 - 1) * MS));
}

#[test]
fn repair_makes_any_state_one_that_goes_on() {
    let hardware = hardware();
    let (mut time, mut random) = (device(), 0x2545_f491_4f6c_dd1d_u64);
    let names: Vec<_> = (0..8).map(|owner| time.open(owner).unwrap()).collect();
    for round in 0..200 {
        let now = round * 10 * MS;
        for name in &names {
            time.submit(&hardware, *name, 3 * MS, now);
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // What a change that was cut short may leave: any of the derived words, a total ahead of another.
        time.position = random as u32;
        time.active_length = (random >> 32) as u32;
        time.resident = (random >> 16) as u32;
        time.slice_left_ns = random % 2 * random;
        time.active[(random % 7) as usize] = random as u16;
        time.queues[(random % 8) as usize].served_ns += MS;
        time.repair(&hardware);
        time.advance(&hardware, now + 9 * MS);
        assert!(time.contenders() <= names.len());
    }
    time.advance(&hardware, 100_000 * MS);
    assert_eq!(time.contenders(), 0);
    assert!(names.iter().all(|name| served(&time, *name) == 200 * 3 * MS));
}
