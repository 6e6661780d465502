//! Coming and going, pausing, changes while running, and what makes no sense.

use super::*;
use crate::compute::scheduler::{Policy, TENANTS_MAX};

fn two() -> Desk {
    Desk::new(rules(), &[(A, normal(100)), (B, normal(100))])
}

fn detach(desk: &mut Desk, tenant: Tenant) -> Vec<Action> {
    desk.ask(|scheduler, now, actions| scheduler.detach(tenant, now, actions))
}

fn change(desk: &mut Desk, tenant: Tenant, share: Share) -> Vec<Action> {
    desk.ask(|scheduler, now, actions| scheduler.change(tenant, share, now, actions))
}

fn pause(desk: &mut Desk, tenant: Tenant) -> Vec<Action> {
    desk.ask(|scheduler, now, actions| scheduler.pause(tenant, now, actions))
}

fn resume(desk: &mut Desk, tenant: Tenant) -> Vec<Action> {
    desk.ask(|scheduler, now, actions| scheduler.resume(tenant, now, actions))
}

#[test]
fn a_holder_that_is_gone_is_replaced_at_once() {
    let mut desk = two();
    desk.wants(A);
    desk.wants(B);
    assert_eq!(detach(&mut desk, A), [open(B)]);
    assert_eq!(desk.due(), None);
    assert_eq!(desk.wants(A), []);
    assert_eq!(desk.step(Event::Used(A, MS)), []);
    assert_eq!(detach(&mut desk, B), []);
    assert_eq!((desk.scheduler.holder(), desk.due()), (None, None));
}

#[test]
fn one_that_is_gone_is_not_waited_for() {
    let mut desk = two();
    desk.wants(A);
    desk.wants(B);
    desk.turns(1, MS);
    assert_eq!(desk.uses(B, 3 * MS), [close(B)]);
    assert_eq!(detach(&mut desk, B), [open(A)]);
    assert_eq!(desk.scheduler.overlapping(), []);
    desk.ask(|scheduler, now, actions| assert!(scheduler.attach(B, normal(1), now, actions)));
    assert_eq!(desk.scheduler.lag_ns(B), Some(0), "one that comes has neither credit nor debt");
}

#[test]
fn a_paused_holder_is_closed_at_once_and_gets_nothing_until_it_is_resumed() {
    let mut desk = two();
    desk.wants(A);
    assert_eq!(pause(&mut desk, A), [close(A)]);
    assert_eq!(desk.wants(B), []);
    assert!(!desk.scheduler.is_contended(B) || desk.scheduler.draining() == Some(A));
    assert_eq!(desk.step(Event::Drained(A)), [open(B)]);
    assert!(!desk.scheduler.is_contended(B));
    assert_eq!(desk.wants(A), []);
    assert_eq!(desk.pass(5000 * MS), []);
    desk.idles(B);
    desk.pass(MS);
    assert_eq!(resume(&mut desk, A), [close(B), open(A)]);
    assert_eq!(pause(&mut desk, A), [close(A)]);
    assert_eq!(resume(&mut desk, A), [open(A)], "while it drains, it may have its gate back");
}

#[test]
fn a_paused_idle_tenant_stays_closed_when_it_wants() {
    let mut desk = two();
    assert_eq!(pause(&mut desk, A), []);
    assert_eq!(desk.wants(A), []);
    assert_eq!(desk.due(), None);
    assert_eq!(resume(&mut desk, A), [open(A)]);
}

#[test]
fn a_weight_changes_at_once_and_debt_stays() {
    let mut desk = two();
    desk.wants(A);
    desk.wants(B);
    desk.turns(2, MS);
    desk.uses(B, 100 * MS);
    let lag = desk.scheduler.lag_ns(B).expect("attached");
    change(&mut desk, B, normal(300));
    assert!((lag - desk.scheduler.lag_ns(B).expect("attached")).abs() <= 1, "{lag}");
    desk.step(Event::Drained(B));
    desk.turns(100, MS);
    let turns = desk.turns(400, MS);
    assert!((3 * sum(&turns, A)).abs_diff(sum(&turns, B)) <= 12 * MS, "{} {}", sum(&turns, A), sum(&turns, B));
}

#[test]
fn a_class_changes_while_running() {
    let mut desk = two();
    desk.wants(A);
    desk.wants(B);
    assert_eq!(change(&mut desk, B, of_class(Priority::High)), [close(A), open(B)]);
    assert_eq!(change(&mut desk, B, of_class(Priority::Batch)), [close(B), open(A)]);
    assert_eq!(change(&mut desk, A, of_class(Priority::Batch)), []);
    assert_eq!(desk.scheduler.holder(), Some(A));
}

#[test]
fn a_cap_changes_while_running_and_debt_is_paid_at_the_new_rate() {
    let mut desk = two();
    let capped = |cap| Share { cap: percent(cap), ..normal(100) };
    desk.wants(A);
    desk.uses(A, 50 * MS);
    assert_eq!(change(&mut desk, A, capped(10)), [], "what was used before there was a cap is free");
    assert_eq!(desk.uses(A, 10 * MS), [close(A)]);
    desk.step(Event::Drained(A));
    let slow = desk.due().expect("it is to go on");
    assert_eq!(change(&mut desk, A, capped(100)), []);
    let quick = desk.due().expect("it is to go on");
    assert!(quick < 12 * MS && slow > 90 * MS, "{slow} {quick}");
    assert_eq!(change(&mut desk, A, normal(100)), [open(A)]);
}

#[test]
fn rules_change_while_running() {
    let mut desk = Desk::new(rules(), &[(A, of_class(Priority::Batch)), (B, normal(1))]);
    desk.wants(A);
    assert_eq!(desk.wants(B), [close(A), open(B)]);
    desk.scheduler.set_rules(Rules { policy: Policy::Fair, quantum: Quantum::Fixed(5 * MS), ..rules() });
    assert_eq!((desk.scheduler.quantum_ns(), desk.pass(0)), (5 * MS, vec![]));
    desk.turns(1, MS);
    assert_eq!(desk.scheduler.holder(), Some(A), "all are alike");
    desk.scheduler.set_rules(rules());
    assert_eq!(desk.pass(0), [close(A), open(B)]);
}

#[test]
fn strangers_and_clocks_that_go_backwards_are_ignored() {
    let mut desk = two();
    for event in [
        Event::Wants(C),
        Event::Idles(C),
        Event::Used(C, MS),
        Event::Drained(C),
        Event::DrainsAt(C, 1),
        Event::Opened(C, u64::MAX),
        Event::Drained(A),
        Event::DrainsAt(A, 0),
        Event::Opened(A, 0),
        Event::Idles(B),
        Event::Tick,
    ] {
        assert_eq!(desk.step(event), []);
    }
    assert_eq!((detach(&mut desk, C), pause(&mut desk, C), change(&mut desk, C, normal(1))), (vec![], vec![], vec![]));
    desk.wants(A);
    desk.wants(B);
    desk.turns(1, MS);
    let due = desk.scheduler.next_deadline();
    desk.now = 0;
    assert_eq!(desk.pass(0), []);
    assert_eq!(desk.scheduler.next_deadline(), due);
    assert_eq!(desk.idles(B), []);
    assert_eq!(desk.scheduler.next_deadline(), Some(1001 * MS + 100 * US), "time stood still meanwhile");
    desk.now = u64::MAX / 2;
    desk.pass(0);
    desk.step(Event::Used(B, u64::MAX));
    desk.step(Event::DrainsAt(B, u64::MAX));
}

#[test]
fn no_more_tenants_than_there_is_room_for() {
    let mut scheduler = Scheduler::new(rules());
    let mut actions = Vec::new();
    for tenant in 0..TENANTS_MAX as u64 {
        assert!(scheduler.attach(Tenant(tenant), normal(1), 0, &mut actions));
    }
    assert!(!scheduler.attach(Tenant(u64::MAX), normal(1), 0, &mut actions));
    assert!(scheduler.attach(Tenant(0), normal(2), 0, &mut actions), "one that is there is changed");
    scheduler.detach(Tenant(7), 0, &mut actions);
    assert!(scheduler.attach(Tenant(u64::MAX), normal(1), 0, &mut actions));
    assert_eq!(actions, []);
}
