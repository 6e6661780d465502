//! Classes and their bounds, policies, guarantees and caps.

use super::*;
use crate::compute::scheduler::Policy;

fn high_and_normal(rules: Rules) -> Desk {
    Desk::new(rules, &[(A, of_class(Priority::High)), (B, normal(100))])
}

#[test]
fn the_high_class_takes_the_token_at_once_and_gives_it_back() {
    let mut desk = high_and_normal(rules());
    desk.wants(B);
    desk.uses(B, 100 * US);
    assert_eq!(desk.wants(A), [close(B), open(A)], "what runs is not waited for");
    assert_eq!(desk.scheduler.overlapping(), [B]);
    desk.uses(A, MS);
    assert_eq!(desk.step(Event::Used(B, MS)), []);
    desk.uses(A, 3 * MS);
    assert_eq!(desk.uses(A, MS), [], "no turns against a lower class");
    assert_eq!(desk.idles(A), []);
    assert_eq!(desk.due(), Some(100 * US), "and it lingers");
    assert_eq!(desk.pass(100 * US), [close(A), open(B)]);
}

#[test]
fn the_high_class_does_not_wait_for_a_hand_over_between_others() {
    let mut desk = Desk::new(rules(), &[(A, of_class(Priority::High)), (B, normal(100)), (C, normal(100))]);
    desk.wants(B);
    desk.wants(C);
    desk.turns(1, MS);
    assert_eq!(desk.uses(C, 3 * MS), [close(C)]);
    assert_eq!(desk.wants(A), [open(A)]);
    assert_eq!(desk.scheduler.overlapping(), [C]);
}

#[test]
fn without_preemption_it_waits_for_the_end_of_the_turn() {
    let mut desk = high_and_normal(Rules { preemption: false, wake_grain_ns: None, ..rules() });
    desk.wants(B);
    desk.uses(B, 100 * US);
    assert_eq!(desk.wants(A), []);
    assert_eq!(desk.uses(B, 3 * MS), [close(B)]);
    assert_eq!(desk.step(Event::Drained(B)), [open(A)]);
}

#[test]
fn beyond_its_budget_the_high_class_shares_by_weight() {
    let mut desk = high_and_normal(rules());
    desk.wants(A);
    assert_eq!(desk.wants(B), []);
    let mut first = 0;
    while desk.scheduler.holder() == Some(A) {
        first += 250 * US;
        assert!(first < 100 * MS, "without a bound");
        if desk.uses(A, 250 * US) == [close(A)] {
            desk.step(Event::Drained(A));
        }
    }
    // 10 ms that flow in at a half while they are spent, and a turn's end.
    assert!((20 * MS..=24 * MS).contains(&first), "{first}");
    let (mut got, from) = ([0, 0], desk.now);
    while desk.now < from + 1000 * MS {
        let holder = desk.scheduler.holder().expect("somebody has the token");
        got[usize::from(holder == B)] += 250 * US;
        if desk.uses(holder, 250 * US) == [close(holder)] {
            desk.step(Event::Drained(holder));
        }
    }
    assert!((480 * MS..=530 * MS).contains(&got[0]), "{got:?}");
}

#[test]
fn batch_runs_when_nobody_else_wants_and_in_long_turns() {
    let batch = of_class(Priority::Batch);
    let mut desk = Desk::new(rules(), &[(A, batch), (B, batch), (C, normal(100))]);
    desk.wants(A);
    desk.uses(A, 5 * MS);
    desk.wants(B);
    assert_eq!(desk.due(), Some(500 * MS));
    assert_eq!(desk.uses(A, 499 * MS), []);
    assert_eq!(desk.uses(A, MS), [close(A)]);
    assert_eq!(desk.step(Event::Drained(A)), [open(B)]);
    desk.uses(B, 100 * MS);
    assert_eq!(desk.wants(C), [close(B), open(C)]);
    desk.uses(C, 5 * MS);
    desk.idles(C);
    assert_eq!(desk.pass(100 * US), [close(C), open(B)]);
}

#[test]
fn a_long_turn_becomes_an_ordinary_one_when_another_class_waits() {
    let rules = Rules { preemption: false, wake_grain_ns: None, ..rules() };
    let batch = of_class(Priority::Batch);
    let mut desk = Desk::new(rules, &[(A, batch), (B, batch), (C, normal(100))]);
    desk.wants(A);
    desk.wants(B);
    assert_eq!(desk.uses(A, 100 * MS), []);
    assert_eq!(desk.wants(C), [close(A)]);
    assert_eq!(desk.step(Event::Drained(A)), [open(C)]);
}

#[test]
fn batch_gets_a_hundredth_whatever_the_others_do() {
    let mut desk = Desk::new(rules(), &[(A, normal(100)), (B, of_class(Priority::Batch)), (C, normal(100))]);
    desk.wants(A);
    desk.wants(C);
    desk.wants(B);
    let (mut got, mut longest, mut last) = (0, 0, desk.now);
    let from = desk.now;
    while desk.now < from + 10_000 * MS {
        let holder = desk.scheduler.holder().expect("somebody has the token");
        let actions = desk.uses(holder, 250 * US);
        if holder == B {
            got += 250 * US;
            longest = longest.max(desk.now - last);
            last = desk.now;
        }
        if actions == [close(holder)] {
            desk.step(Event::Drained(holder));
        }
    }
    assert!((90 * MS..=115 * MS).contains(&got), "{got}");
    assert!(longest <= 1010 * MS, "{longest}");
}

#[test]
fn a_guarantee_is_met_against_greater_weights() {
    let guaranteed = Share { guarantee: percent(40), ..normal(1) };
    let mut desk = Desk::new(rules(), &[(A, guaranteed), (B, normal(1000)), (C, normal(1000))]);
    [B, C, A].into_iter().for_each(|tenant| drop(desk.wants(tenant)));
    desk.turns(3, MS);
    let turns = desk.turns(700, MS / 2);
    let all: u64 = turns.iter().map(|(_, ns)| ns).sum();
    let permille = sum(&turns, A) * 1000 / all;
    assert!((403..=412).contains(&permille), "a fiftieth more, for switching: {permille}");
    assert!(sum(&turns, B).abs_diff(sum(&turns, C)) <= 7 * MS);
}

#[test]
fn a_guarantee_below_the_weighted_share_adds_nothing() {
    let guaranteed = Share { guarantee: percent(20), ..normal(100) };
    let mut desk = Desk::new(rules(), &[(A, guaranteed), (B, normal(100))]);
    desk.wants(A);
    desk.wants(B);
    desk.turns(10, MS / 2);
    let turns = desk.turns(300, MS / 2);
    assert!(sum(&turns, A).abs_diff(sum(&turns, B)) <= 7 * MS, "{} {}", sum(&turns, A), sum(&turns, B));
}

#[test]
fn a_cap_closes_the_gate_though_nobody_else_wants_it() {
    let capped = Share { cap: percent(25), ..normal(100) };
    let mut desk = Desk::new(rules(), &[(A, capped), (B, normal(100))]);
    assert_eq!(desk.wants(A), [open(A)]);
    assert_eq!(desk.uses(A, 2 * MS), [close(A)]);
    assert_eq!(desk.step(Event::Drained(A)), []);
    assert!(!desk.scheduler.is_contended(A) && desk.scheduler.is_contended(B));
    // Of 2 ms, a quarter flowed in; and 750 us are to be there before it goes on.
    let wait = desk.due().expect("it is to go on");
    assert!(wait.abs_diff(9 * MS) <= 100, "{wait}");
    assert_eq!(desk.pass(wait - 100), []);
    assert_eq!(desk.pass(200), [open(A)]);
    assert!(desk.due().expect("it will run out").abs_diff(MS) < 10 * US, "750 us at a net of three quarters");
}

#[test]
fn who_idles_while_it_has_no_credit_goes_on_when_it_has() {
    let capped = Share { cap: percent(50), ..normal(100) };
    for sleep_ns in [MS, 500 * MS] {
        let mut desk = Desk::new(rules(), &[(A, capped)]);
        desk.wants(A);
        assert_eq!(desk.uses(A, 20 * MS), [close(A)]);
        assert_eq!(desk.idles(A), []);
        desk.pass(sleep_ns);
        let actions = desk.wants(A);
        if sleep_ns > 25 * MS {
            assert_eq!(actions, [open(A)]);
        } else {
            assert_eq!(actions, []);
            let wait = desk.due().expect("it is to go on");
            assert_eq!(desk.pass(wait), [open(A)]);
        }
    }
}

#[test]
fn fifo_serves_each_until_it_idles() {
    let rules = Rules { policy: Policy::Fifo, ..rules() };
    let mut desk = Desk::new(rules, &[(A, normal(1)), (B, of_class(Priority::High)), (C, normal(1000))]);
    [A, C, B].into_iter().for_each(|tenant| drop(desk.wants(tenant)));
    assert_eq!(desk.uses(A, 10_000 * MS), []);
    desk.idles(A);
    assert_eq!(desk.pass(100 * US), [close(A), open(C)]);
    desk.wants(A);
    desk.uses(C, MS);
    desk.idles(C);
    assert_eq!(desk.pass(100 * US), [close(C), open(B)]);
    desk.idles(B);
    assert_eq!(desk.pass(100 * US), [close(B), open(A)]);
}

#[test]
fn priority_serves_by_class_without_a_bound() {
    let rules = Rules { policy: Policy::Priority, ..rules() };
    let tenants = [(A, of_class(Priority::High)), (B, of_class(Priority::Batch)), (C, normal(1))];
    let mut desk = Desk::new(rules, &tenants);
    assert_eq!(desk.wants(B), [open(B)]);
    assert_eq!(desk.wants(C), [close(B), open(C)]);
    assert_eq!(desk.wants(A), [close(C), open(A)]);
    assert_eq!(desk.uses(A, 60_000 * MS), []);
    desk.idles(A);
    assert_eq!(desk.pass(100 * US), [close(A), open(C)]);
}

#[test]
fn fair_knows_no_classes() {
    let rules = Rules { policy: Policy::Fair, ..rules() };
    let tenants = [(A, of_class(Priority::High)), (B, Share { weight: 300, ..of_class(Priority::Batch) })];
    let mut desk = Desk::new(rules, &tenants);
    desk.wants(B);
    assert_eq!(desk.wants(A), []);
    desk.turns(2, MS);
    let turns = desk.turns(400, MS);
    assert!((3 * sum(&turns, A)).abs_diff(sum(&turns, B)) <= 12 * MS, "{} {}", sum(&turns, A), sum(&turns, B));
}
