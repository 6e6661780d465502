//! Turns: their length and end, linger, draining, waking up, debt and credit.

use super::*;

fn two() -> Desk {
    Desk::new(rules(), &[(A, normal(100)), (B, normal(100))])
}

#[test]
fn one_alone_keeps_its_gate_open_and_nothing_is_ever_due() {
    let mut desk = two();
    assert_eq!(desk.due(), None);
    assert_eq!(desk.wants(A), [open(A)]);
    assert_eq!(desk.due(), None);
    assert_eq!(desk.uses(A, 5000 * MS), []);
    assert_eq!(desk.wants(A), [], "it says so once more");
    assert_eq!(desk.idles(A), []);
    assert_eq!((desk.due(), desk.scheduler.holder()), (None, Some(A)), "idle, and nobody else wants");
    assert_eq!(desk.pass(5000 * MS), []);
    assert_eq!(desk.wants(A), []);
    assert!(!desk.scheduler.is_contended(A) && desk.scheduler.is_contended(B));
}

#[test]
fn equals_take_turns_of_a_quantum() {
    let mut desk = two();
    assert_eq!(desk.wants(A), [open(A)]);
    assert_eq!(desk.wants(B), []);
    assert_eq!(desk.due(), Some(MS), "the one that woke up is looked at after 1 ms");
    desk.until_turn_of(A);
    desk.until_turn_of(B);
    let turns = desk.turns(10, 250 * US);
    for (turn, (tenant, ns)) in turns.iter().enumerate() {
        assert_eq!((*tenant, *ns), (if turn % 2 == 0 { B } else { A }, 3 * MS), "turn {turn}");
    }
    assert_eq!(desk.due(), Some(3 * MS));
}

#[test]
fn a_weight_says_how_often() {
    for weights in [(3, 1), (10_000, 2_500), (1, 4)] {
        let mut desk = Desk::new(rules(), &[(A, normal(weights.0)), (B, normal(weights.1))]);
        desk.wants(A);
        desk.wants(B);
        desk.turns(3, MS);
        let turns = desk.turns(400, MS);
        let (a, b) = (sum(&turns, A), sum(&turns, B));
        let error = (a * u64::from(weights.1)).abs_diff(b * u64::from(weights.0)) / u64::from(weights.0.max(weights.1));
        assert!(error <= 7 * MS, "{weights:?}: {a} {b}");
    }
}

#[test]
fn what_is_not_measured_yet_counts_at_the_end_of_a_turn() {
    let mut desk = two();
    desk.wants(A);
    desk.wants(B);
    desk.turns(1, MS);
    assert_eq!((desk.scheduler.holder(), desk.due()), (Some(B), Some(3 * MS)));
    assert_eq!(desk.pass(3 * MS - 1), []);
    assert_eq!(desk.pass(1), [close(B)], "a long kernel is under way, and nothing was told");
    desk.now += 7 * MS;
    assert_eq!(desk.step(Event::Used(B, 10 * MS)), []);
    assert_eq!(desk.step(Event::Drained(B)), [open(A)]);
}

#[test]
fn an_idle_holder_lingers() {
    let mut desk = two();
    desk.wants(A);
    desk.wants(B);
    desk.uses(A, 500 * US);
    assert_eq!(desk.idles(A), []);
    assert_eq!(desk.due(), Some(100 * US));
    assert_eq!(desk.pass(99 * US), []);
    assert_eq!(desk.wants(A), [], "back in time");
    desk.uses(A, 100 * US);
    desk.idles(A);
    assert_eq!(desk.pass(100 * US), [close(A), open(B)], "nothing is under way, so nothing is waited for");
    assert_eq!(desk.idles(B), []);
    desk.pass(10 * MS);
    assert_eq!(desk.wants(A), [close(B), open(A)], "it has been idle for long");
}

#[test]
fn who_rests_is_not_lingered_for() {
    let mut desk = two();
    desk.wants(A);
    desk.wants(B);
    let holder = desk.scheduler.holder().expect("somebody");
    let other = if holder == A { B } else { A };
    assert_eq!(desk.step(Event::Rests(holder)), [close(holder), open(other)]);
    // Nor if it was only known later that it rests.
    desk.wants(holder);
    assert_eq!(desk.idles(other), []);
    assert_eq!(desk.step(Event::Rests(other)), [close(other), open(holder)]);
}

#[test]
fn without_linger_an_idle_holder_yields_at_once() {
    let mut desk = Desk::new(Rules { linger_ns: 0, ..rules() }, &[(A, normal(1)), (B, normal(1))]);
    desk.wants(A);
    desk.wants(B);
    desk.uses(A, 100 * US);
    assert_eq!(desk.idles(A), [close(A), open(B)]);
}

#[test]
fn an_equal_waits_until_the_other_is_drained() {
    let mut desk = two();
    desk.wants(A);
    desk.wants(B);
    desk.turns(1, MS);
    assert_eq!(desk.uses(B, 3 * MS), [close(B)]);
    assert_eq!((desk.scheduler.holder(), desk.scheduler.draining()), (None, Some(B)));
    assert_eq!(desk.due(), Some(25 * MS));
    assert_eq!(desk.pass(24 * MS), []);
    assert_eq!(desk.pass(MS), [open(A)], "not for ever");
    assert_eq!(desk.scheduler.overlapping(), [B]);
    assert!(desk.scheduler.is_contended(A));
    assert_eq!(desk.step(Event::Drained(B)), []);
    assert_eq!(desk.scheduler.overlapping(), []);
}

#[test]
fn what_outlasts_the_wait_has_its_turn_beside_the_others() {
    let mut desk = Desk::new(rules(), &[(A, normal(100)), (B, normal(100)), (C, normal(100))]);
    desk.wants(A);
    desk.wants(B);
    desk.until_turn_of(B);
    desk.uses(B, 3 * MS);
    assert_eq!(desk.pass(25 * MS), [open(A)]);
    assert_eq!(desk.pass(500 * MS), [], "to wait for it once more would be to stand still");
    desk.step(Event::Used(A, 250 * MS));
    assert_eq!(desk.wants(C), [close(A)]);
    assert_eq!(desk.step(Event::Drained(A)), [open(C)]);
    assert_eq!(desk.turns(4, MS).iter().filter(|(tenant, _)| *tenant == B).count(), 0);
    desk.step(Event::Used(B, 300 * MS));
    assert_eq!(desk.step(Event::Drained(B)), [], "it owes them half of that");
    desk.idles(A);
    desk.idles(C);
    desk.pass(MS);
    assert_eq!(desk.scheduler.holder(), Some(B), "and now nobody else wants it");
}

#[test]
fn what_outlasts_the_wait_keeps_its_gate_if_nobody_else_wants_it() {
    let mut desk = two();
    desk.wants(A);
    desk.wants(B);
    desk.until_turn_of(B);
    desk.uses(B, 3 * MS);
    assert_eq!(desk.pass(25 * MS), [open(A)]);
    desk.idles(A);
    desk.ask(|scheduler, now, actions| scheduler.detach(A, now, actions));
    assert_eq!(desk.scheduler.holder(), Some(B));
}

#[test]
fn a_claim_when_it_will_be_drained_opens_the_next_a_little_earlier() {
    let mut desk = two();
    desk.wants(A);
    desk.wants(B);
    desk.turns(1, MS);
    (0..100).for_each(|_| drop(desk.step(Event::Opened(B, 40 * US))));
    assert_eq!(desk.uses(B, 3 * MS), [close(B)]);
    assert_eq!(desk.step(Event::DrainsAt(B, desk.now + 500 * US)), []);
    assert_eq!(desk.due(), Some(440 * US));
    assert_eq!(desk.step(Event::DrainsAt(A, desk.now + 100 * US)), [], "it is not A's work that is waited for");
    assert_eq!(desk.due(), Some(440 * US));
    assert_eq!(desk.pass(440 * US), [open(A)]);
    assert_eq!(desk.step(Event::Drained(B)), []);
    desk.step(Event::Used(B, 500 * US));
    assert_eq!(desk.uses(A, 3 * MS), [close(A)]);
    assert_eq!(desk.step(Event::DrainsAt(A, u64::MAX)), []);
    assert_eq!(desk.due(), Some(25 * MS), "a claim is a claim");
    assert_eq!(desk.step(Event::DrainsAt(A, 0)), [open(B)]);
}

#[test]
fn an_overrun_is_a_debt_in_full() {
    let mut desk = two();
    desk.wants(A);
    desk.wants(B);
    desk.until_turn_of(B);
    let lag = desk.scheduler.lag_ns(B).expect("attached");
    assert_eq!(desk.uses(B, 300 * MS), [close(B)]);
    assert_eq!(desk.step(Event::Drained(B)), [open(A)]);
    assert_eq!(desk.scheduler.lag_ns(B), Some(lag - 150 * MS as i64), "half of it was due to the other");
    let mut alone = 0;
    while desk.scheduler.holder() == Some(A) {
        alone += MS;
        if desk.uses(A, MS) == [close(A)] {
            desk.step(Event::Drained(A));
        }
    }
    assert!((296 * MS..=304 * MS).contains(&alone), "{alone}");
}

#[test]
fn sleep_does_not_erase_a_debt() {
    for sleep_ns in [MS, 30 * MS, 900 * MS] {
        let mut desk = two();
        desk.wants(A);
        desk.wants(B);
        desk.until_turn_of(B);
        desk.uses(B, 2000 * MS);
        assert_eq!(desk.idles(B), [open(A)]);
        // The other has the device for some of the time, and then leaves a gap as each program does.
        desk.uses(A, sleep_ns);
        desk.idles(A);
        desk.pass(MS);
        assert_eq!(desk.wants(B), [close(A), open(B)], "nobody else wants it now");
        desk.uses(B, 2 * MS);
        assert_eq!(desk.wants(A), [close(B)], "it is owed what the other overran");
        assert_eq!(desk.step(Event::Drained(B)), [open(A)]);
        assert_eq!(desk.uses(A, 900 * MS), [], "{sleep_ns}");
    }
}

#[test]
fn credit_is_kept_for_a_second_and_sleep_adds_nothing_to_it() {
    for (sleep_ns, kept) in [(0, true), (100 * MS, true), (999 * MS, true), (1000 * MS, false)] {
        let mut desk = two();
        desk.wants(A);
        desk.wants(B);
        desk.until_turn_of(A);
        let credit = desk.scheduler.lag_ns(A).expect("attached");
        assert!((MS as i64..=3 * MS as i64).contains(&credit), "{credit}");
        desk.idles(A);
        assert_eq!(desk.pass(100 * US), [close(A), open(B)]);
        desk.uses(B, sleep_ns);
        desk.wants(A);
        let after = desk.scheduler.lag_ns(A).expect("attached");
        assert!((after - if kept { credit } else { 0 }).abs() <= 1, "{sleep_ns}: {credit} {after}");
    }
}

#[test]
fn one_that_wakes_up_takes_over_after_a_millisecond() {
    let mut desk = Desk::new(Rules { quantum: Quantum::Fixed(20 * MS), ..rules() }, &[(A, normal(1)), (B, normal(1))]);
    desk.wants(A);
    desk.uses(A, 100 * US);
    assert_eq!(desk.wants(B), []);
    assert_eq!(desk.due(), Some(900 * US));
    assert_eq!(desk.pass(899 * US), []);
    assert_eq!(desk.pass(US), [close(A)]);
    desk.step(Event::Used(A, 900 * US));
    assert_eq!(desk.step(Event::Drained(A)), [open(B)]);
    desk.uses(B, MS);
    desk.idles(B);
    assert_eq!(desk.pass(100 * US), [close(B), open(A)]);
    desk.uses(A, 5 * MS);
    assert_eq!(desk.wants(B), [close(A)], "it has had more than the least");
}

#[test]
fn who_wakes_up_in_debt_waits() {
    let mut desk = Desk::new(Rules { quantum: Quantum::Fixed(20 * MS), ..rules() }, &[(A, normal(1)), (B, normal(1))]);
    desk.wants(A);
    desk.wants(B);
    desk.turns(1, MS);
    assert_eq!(desk.scheduler.holder(), Some(B));
    desk.uses(B, 60 * MS);
    assert_eq!(desk.idles(B), [open(A)]);
    desk.uses(A, 2 * MS);
    assert_eq!(desk.wants(B), []);
    assert_eq!(desk.uses(A, 15 * MS), []);
}

#[test]
fn without_wake_up_preemption_the_slice_is_served() {
    let rules = Rules { wake_grain_ns: None, quantum: Quantum::Fixed(20 * MS), ..rules() };
    let mut desk = Desk::new(rules, &[(A, normal(1)), (B, normal(1))]);
    desk.wants(A);
    desk.uses(A, MS);
    assert_eq!(desk.wants(B), []);
    assert_eq!(desk.due(), Some(20 * MS), "it begins when somebody else wants");
    assert_eq!(desk.uses(A, 19 * MS), []);
    assert_eq!(desk.uses(A, MS), [close(A)]);
}

#[test]
fn the_adaptive_quantum_follows_what_changing_hands_costs() {
    let mut desk = Desk::new(Rules::default(), &[(A, normal(1)), (B, normal(1))]);
    assert_eq!(desk.scheduler.quantum_ns(), 3 * MS);
    desk.wants(A);
    desk.wants(B);
    for (latency, quantum) in [(170 * US, 10 * MS), (10 * US, 3 * MS)] {
        for _ in 0..100 {
            desk.turns(1, 250 * US);
            let holder = desk.scheduler.holder().expect("somebody");
            desk.step(Event::Opened(holder, latency));
        }
        assert!(desk.scheduler.quantum_ns().abs_diff(quantum) < MS / 10, "{}", desk.scheduler.quantum_ns());
    }
}
