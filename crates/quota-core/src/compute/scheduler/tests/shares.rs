//! What comes out over time: weights, guarantees, caps, no starvation, the same from the same seed.

use super::device::{AHEAD_NS, Device, Dice, Job, busy};
use super::*;
use crate::compute::scheduler::{Policy, Pool};

/// The deviation of shares from weights over the time that `device` has run, in ten-thousandths.
fn worst(device: &Device, weights: &[u32]) -> u64 {
    let used: Vec<u64> = device.jobs.iter().map(|state| state.used_ns).collect();
    let (all, weight): (u64, u32) = (used.iter().sum(), weights.iter().sum());
    let target = |index: usize| 10_000 * u64::from(weights[index]) / u64::from(weight);
    (0..weights.len()).map(|index| (used[index] * 10_000 / all).abs_diff(target(index))).max().unwrap_or(0)
}

#[test]
fn shares_are_weights_and_lag_is_bounded_whatever_the_kernels() {
    let tables: [&[u32]; 4] = [&[3, 1], &[8, 4, 2, 1, 1], &[1; 8], &[10_000, 5_000]];
    for (seed, weights) in tables.into_iter().enumerate() {
        let kernels = [(200 * US, 200 * US), (50 * US, 150 * US), (10 * US, 2 * MS), (100 * US, MS)];
        let jobs: Vec<Job> =
            weights.iter().enumerate().map(|(at, weight)| busy(normal(*weight), kernels[at % 4])).collect();
        let mut device = Device::new(rules(), seed as u64, &jobs);
        device.run(1);
        device.check_lag = true;
        device.run(5000 * MS);
        assert!(worst(&device, weights) <= 10, "{weights:?}: {} off", worst(&device, weights));
        let used: u64 = device.parts_since(0).iter().sum();
        assert!(used >= 9900, "{weights:?}: {used} of 10,000 used");
    }
}

fn in_pool(id: u64, weight: u32, share: Share) -> Share {
    Share { pool: Some(Pool { id, weight }), ..share }
}

/// Three jobs of one pool have together what the pool has, by their own weights, and the one of the other as much alone.
#[test]
fn pools_share_by_their_weights_however_many_jobs_they_have() {
    let jobs = |pools: [u32; 2]| {
        let [one, other] = pools;
        let of_one = [2, 1, 1].map(|weight| busy(in_pool(1, one, normal(weight)), (200 * US, 200 * US)));
        let rest = [in_pool(2, other, normal(1)), normal(100)].map(|share| busy(share, (50 * US, MS)));
        [&of_one[..], &rest[..]].concat()
    };
    for (pools, weights) in [([100, 100], [2, 1, 1, 4, 4]), ([200, 100], [4, 2, 2, 4, 4])] {
        let mut device = Device::new(rules(), 1, &jobs(pools));
        device.run(1);
        device.run(5000 * MS);
        assert!(worst(&device, &weights) <= 10, "{pools:?}: {} off", worst(&device, &weights));
        let used: u64 = device.parts_since(0).iter().sum();
        assert!(used >= 9900, "{used} of 10,000 used");
    }
}

/// What one of a pool leaves is the others' of the pool, before it is anybody else's.
#[test]
fn what_a_job_leaves_stays_in_its_pool() {
    let little =
        Job { burst: Some(((MS, MS), (9 * MS, 9 * MS))), ..busy(in_pool(1, 100, normal(1)), (200 * US, 200 * US)) };
    let much = busy(in_pool(1, 100, normal(1)), (200 * US, 200 * US));
    let mut device = Device::new(rules(), 1, &[little, much, busy(normal(100), (200 * US, 200 * US))]);
    device.run(5000 * MS);
    let parts = device.parts_since(0);
    assert!((4850..=5050).contains(&parts[2]), "half for who is in no pool: {parts:?}");
    assert!(parts[1] >= 3800, "{parts:?}");
}

/// What a guarantee gives a job beyond its pool's weight is its due: the pool owes nobody for it when the job pauses.
#[test]
fn a_guarantee_in_a_pool_is_served_and_leaves_no_debt() {
    let guaranteed = in_pool(1, 100, Share { guarantee: percent(60), ..normal(1) });
    let kernels = (200 * US, 200 * US);
    let first = Job { burst: Some(((1200 * MS, 1200 * MS), (2000 * MS, 2000 * MS))), ..busy(guaranteed, kernels) };
    let others = [in_pool(1, 100, normal(9)), normal(100), normal(100)].map(|share| busy(share, kernels));
    let mut device = Device::new(rules(), 1, &[&[first], &others[..]].concat());
    device.run(1800 * MS);
    let parts = device.parts_since(0);
    assert!((5880..=6150).contains(&parts[0]), "{parts:?}");
    assert!(parts[2].abs_diff(parts[3]) <= 100, "{parts:?}");
    device.run(400 * MS);
    let from = device.now;
    device.run(1000 * MS);
    let parts = device.parts_since(from);
    assert!(parts[0] == 0 && parts[1] >= 3100, "a third, now that it pauses: {parts:?}");
}

#[test]
fn kernels_that_are_longer_than_a_turn_get_no_more_than_short_ones() {
    let jobs = [busy(normal(1), (30 * US, 30 * US)), busy(normal(1), (13 * MS, 17 * MS))];
    let mut device = Device::new(rules(), 1, &jobs);
    device.run(1);
    device.check_lag = true;
    device.run(10_000 * MS);
    assert!(worst(&device, &[1, 1]) <= 30, "{} off", worst(&device, &[1, 1]));
}

#[test]
fn shares_hold_while_programs_pause_again_and_again() {
    // One of them waits for the device after each tenth of a second, as training does.
    let pauses = Job { burst: Some(((100 * MS, 100 * MS), (50 * US, 50 * US))), ..busy(normal(300), (MS / 5, MS / 5)) };
    for quantum in [3, 50] {
        let rules = Rules { quantum: Quantum::Fixed(quantum * MS), ..rules() };
        let mut device = Device::new(rules, 1, &[pauses, busy(normal(100), (MS / 5, MS / 5))]);
        device.run(8000 * MS);
        assert!(worst(&device, &[3, 1]) <= 30, "turns of {quantum} ms: {} off", worst(&device, &[3, 1]));
    }
    // With a pause that linger does not bridge, it is the one that wakes up which makes up for it.
    let pauses = Job { burst: Some(((100 * MS, 100 * MS), (3 * MS, 3 * MS))), ..pauses };
    let rules = Rules { quantum: Quantum::Fixed(50 * MS), ..rules() };
    let mut device = Device::new(rules, 1, &[pauses, busy(normal(100), (MS / 5, MS / 5))]);
    device.run(8000 * MS);
    let parts = device.parts_since(0);
    assert!((7250..=7450).contains(&parts[0]), "{parts:?}, and 7340 is ideal");
}

#[test]
fn a_guarantee_is_served_against_any_neighbours() {
    let guaranteed = Share { guarantee: percent(40), ..normal(100) };
    let kernels = [(200 * US, 200 * US), (50 * US, 150 * US), (10 * US, 2 * MS), (MS, 3 * MS)];
    for own in kernels {
        let mut jobs = vec![busy(guaranteed, own)];
        jobs.extend((0..7).map(|at| busy(normal(100), kernels[at % 4])));
        let mut device = Device::new(rules(), 7, &jobs);
        device.run(100 * MS);
        for second in 0..3 {
            let from = device.now;
            device.run(1000 * MS);
            let parts = device.parts_since(from);
            assert!(parts[0] >= 3920, "second {second}: {parts:?}");
            assert!(parts[0] <= 4150, "second {second}: {parts:?}");
        }
    }
}

#[test]
fn a_guarantee_is_met_from_the_moment_the_neighbours_come() {
    let guaranteed = Share { guarantee: percent(60), ..normal(100) };
    let late = Job { burst: Some(((2000 * MS, 2000 * MS), (2000 * MS, 2000 * MS))), ..busy(normal(900), (MS, MS)) };
    let mut device =
        Device::new(rules(), 7, &[busy(guaranteed, (MS, MS)), late, busy(of_class(Priority::High), (MS, MS))]);
    for second in 0..20 {
        let from = device.now;
        device.run(1000 * MS);
        let parts = device.parts_since(from);
        assert!(parts[0] >= 5880, "second {second}: {parts:?}");
    }
}

#[test]
fn caps_are_kept_and_used() {
    for (cap, kernel) in [
        (30, (MS / 5, MS / 5)),
        (10, (50 * US, 150 * US)),
        (90, (100 * US, MS)),
        (30, (MS, 4 * MS)),
        (50, (80 * MS, 80 * MS)),
    ] {
        let capped = Share { cap: percent(cap), ..normal(100) };
        let mut device = Device::new(rules(), 1, &[busy(capped, kernel)]);
        device.run(200 * MS);
        let from = device.now;
        device.run(4000 * MS);
        let part = device.parts_since(from)[0];
        // What began before and ended within, or the other way round.
        let edge = kernel.1 * 10_000 / (4000 * MS);
        assert!(part.abs_diff(u64::from(cap) * 100) <= 25 + edge, "{cap} %: {part}");
        let beside = [busy(capped, kernel), busy(normal(1000), kernel)];
        let mut device = Device::new(rules(), 1, &beside);
        device.run(4000 * MS);
        let parts = device.parts_since(0);
        assert!(parts[0] <= u64::from(cap) * 100 + 25 + edge, "{cap} %: {parts:?}");
        assert!(parts[0] + parts[1] >= 9700, "{cap} %: {parts:?}");
    }
}

#[test]
fn a_high_tenant_answers_fast_and_batch_gets_what_is_left() {
    let service = Job {
        burst: Some(((4 * MS, 4 * MS), (20 * MS, 60 * MS))),
        ..busy(of_class(Priority::High), (100 * US, 100 * US))
    };
    let jobs = [service, busy(of_class(Priority::Batch), (100 * US, MS)), busy(normal(100), (100 * US, MS))];
    let mut device = Device::new(rules(), 3, &jobs);
    device.run(10_000 * MS);
    let starved = device.jobs[0].starved_ns;
    assert!(starved <= 2 * (AHEAD_NS + MS) + 100 * US, "{starved}: what was under way, and no more");
    let parts = device.parts_since(0);
    assert!((90..=115).contains(&parts[1]), "{parts:?}");
    assert!(parts.iter().sum::<u64>() >= 9700, "{parts:?}");
}

/// Tenants of all kinds that come, go, pause and are changed.
fn storm(rules: Rules, seed: u64, rounds: usize) -> Device {
    let mut dice = Dice::new(seed);
    let mut device = Device::new(rules, seed, &[]);
    for _ in 0..rounds {
        let share = any_share(&mut dice);
        let pick = |dice: &mut Dice, count: usize| dice.within((0, count as u64 - 1)) as usize;
        let count = device.jobs.len();
        match dice.within((0, 9)) {
            0..4 if device.jobs.iter().filter(|state| state.attached).count() < 12 => {
                device.add(any_job(&mut dice, share))
            }
            4 if count > 0 => {
                let index = pick(&mut dice, count);
                if device.jobs[index].attached {
                    device.kill(index);
                }
            }
            5..7 if count > 0 => {
                let tenant = Tenant(pick(&mut dice, count) as u64);
                device.ask(|scheduler, now, actions| scheduler.change(tenant, share, now, actions));
            }
            7 if count > 0 => {
                let tenant = Tenant(pick(&mut dice, count) as u64);
                device.ask(|scheduler, now, actions| scheduler.pause(tenant, now, actions));
                device.run(dice.within((0, 20 * MS)));
                device.ask(|scheduler, now, actions| scheduler.resume(tenant, now, actions));
            }
            8 => device.step(any_event(&mut dice)),
            _ => {}
        }
        device.run(dice.within((0, 30 * MS)));
    }
    device
}

fn any_share(dice: &mut Dice) -> Share {
    let classes = [Priority::Normal, Priority::Normal, Priority::High, Priority::Batch];
    let one_in = |dice: &mut Dice, count, most| (dice.within((1, count)) == 1).then(|| dice.within((1, most)) as u32);
    Share {
        weight: dice.within((1, 1000)) as u32,
        guarantee: one_in(dice, 4, 15).and_then(percent),
        cap: one_in(dice, 6, 100).and_then(percent),
        class: classes[dice.within((0, 3)) as usize],
        pool: one_in(dice, 3, 2).map(|id| Pool { id: id.into(), weight: dice.within((1, 1000)) as u32 }),
    }
}

fn any_job(dice: &mut Dice, share: Share) -> Job {
    let kernel_ns = [(5 * US, 60 * US), (200 * US, 200 * US), (10 * US, 3 * MS), (5 * MS, 40 * MS)];
    let pauses = dice.within((0, 1)) == 1;
    let burst = ((MS, 50 * MS), (dice.within((0, 200 * US)), 20 * MS));
    Job {
        share,
        kernel_ns: kernel_ns[dice.within((0, 3)) as usize],
        burst: pauses.then_some(burst),
        tells: dice.within((0, 1)) == 1,
    }
}

/// Events that have no cause, as a hostile tenant's claims may bring about; its own gate is all that they move.
fn any_event(dice: &mut Dice) -> Event {
    let tenant = Tenant(dice.within((0, 20)));
    match dice.within((0, 3)) {
        0 => Event::Used(tenant, dice.within((0, 5 * MS))),
        1 => Event::DrainsAt(tenant, dice.next()),
        2 => Event::Opened(tenant, dice.next()),
        _ => Event::Wants(tenant),
    }
}

#[test]
fn nothing_breaks_in_a_storm_and_it_is_the_same_each_time() {
    let policies = [Policy::PriorityFair, Policy::PriorityFair, Policy::Fair, Policy::Priority, Policy::Fifo];
    let mut events = 0;
    for (seed, policy) in policies.into_iter().enumerate() {
        let seed = seed as u64;
        let quantum = if seed == 0 { Quantum::Adaptive } else { Quantum::Fixed(3 * MS) };
        let rules = Rules { policy, quantum, preemption: seed != 1, ..rules() };
        let device = storm(rules, seed, 120);
        events += device.events;
        assert_eq!(device.fingerprint, storm(rules, seed, 120).fingerprint, "{policy:?}");
    }
    assert!(events > 30_000, "{events}");
}

#[test]
#[ignore = "takes minutes; for changes to the scheduler"]
fn nothing_breaks_in_a_long_storm() {
    for seed in 10..60 {
        let policy = [Policy::PriorityFair, Policy::PriorityFair, Policy::Fair, Policy::Priority][seed as usize % 4];
        let quantum = if seed % 3 == 0 { Quantum::Adaptive } else { Quantum::Fixed((1 + seed) * MS) };
        let linger_ns = if seed % 5 == 0 { 0 } else { 100 * US };
        let drain_max_ns = if seed % 7 == 0 { 0 } else { 25 * MS };
        storm(Rules { policy, quantum, linger_ns, drain_max_ns, preemption: seed % 2 == 0, ..rules() }, seed, 1000);
    }
}

#[test]
fn nobody_starves() {
    let classes = [Priority::Normal, Priority::Normal, Priority::High, Priority::Batch];
    for seed in 0..2 {
        let mut dice = Dice::new(seed);
        let mut jobs: Vec<Job> = Vec::new();
        for class in classes {
            let share = Share { weight: dice.within((50, 200)) as u32, ..of_class(class) };
            jobs.push(busy(share, [(50 * US, 150 * US), (10 * US, 2 * MS)][dice.within((0, 1)) as usize]));
        }
        let mut device = Device::new(rules(), seed, &jobs);
        device.run(10_000 * MS);
        for (state, class) in device.jobs.iter().zip(classes) {
            let most = if class == Priority::Batch { 1020 * MS } else { 60 * MS };
            assert!(state.starved_ns <= most, "{class:?} waited for {}", state.starved_ns);
        }
        let parts = device.parts_since(0);
        assert!((4900..=6500).contains(&parts[2]), "half of it, and what its weight gives it: {parts:?}");
    }
}
