//! What is a debt and what isn't, and whom it is owed to.

use super::*;
use crate::compute::scheduler::tree::Tree;

/// What a tenant gets of the next second, in thousandths, if all that compete use all that they get.
fn permille(desk: &mut Desk, tenant: Tenant) -> u64 {
    let (mut got, from) = (0, desk.now);
    while desk.now < from + 1000 * MS {
        if let Some(draining) = desk.scheduler.draining() {
            desk.step(Event::Drained(draining));
        }
        let holder = desk.scheduler.holder().expect("somebody has the token");
        got += u64::from(holder == tenant) * MS / 2;
        desk.uses(holder, MS / 2);
    }
    got * 1000 / (desk.now - from)
}

fn leaves(desk: &mut Desk, tenant: Tenant) {
    desk.ask(|scheduler, now, actions| scheduler.detach(tenant, now, actions));
}

fn becomes(desk: &mut Desk, tenant: Tenant, share: Share) {
    desk.ask(|scheduler, now, actions| scheduler.change(tenant, share, now, actions));
}

#[test]
fn what_was_guaranteed_is_no_debt() {
    let guaranteed = Share { guarantee: percent(80), ..normal(100) };
    let mut desk = Desk::new(rules(), &[(A, guaranteed), (B, normal(100)), (C, normal(100))]);
    [A, B, C].into_iter().for_each(|tenant| drop(desk.wants(tenant)));
    for _ in 0..5 {
        permille(&mut desk, A);
    }
    leaves(&mut desk, C);
    becomes(&mut desk, A, normal(100));
    let got = permille(&mut desk, A);
    // It is half, but for one period's due.
    assert!((415..=510).contains(&got), "{got}");
}

#[test]
fn what_the_high_class_had_from_its_budget_is_no_debt() {
    let mut desk = Desk::new(rules(), &[(A, of_class(Priority::High)), (B, normal(1000)), (C, normal(1000))]);
    [A, B, C].into_iter().for_each(|tenant| drop(desk.wants(tenant)));
    for _ in 0..5 {
        permille(&mut desk, A);
    }
    leaves(&mut desk, C);
    becomes(&mut desk, B, normal(10));
    let got = permille(&mut desk, A);
    assert!(got >= 800, "{got}, and by weight it is 909");
}

#[test]
fn a_turn_that_nobody_else_wanted_does_not_use_up_a_guarantee() {
    let guaranteed = Share { guarantee: percent(40), ..normal(1) };
    let mut desk = Desk::new(rules(), &[(A, guaranteed), (B, normal(1000))]);
    desk.wants(A);
    desk.wants(B);
    desk.until_turn_of(A);
    desk.idles(B);
    desk.uses(A, 2000 * MS);
    desk.wants(B);
    let got = permille(&mut desk, A);
    assert!(got >= 390, "{got}");
}

#[test]
fn long_turns_are_cut_while_somebody_waits_for_a_guarantee() {
    let guaranteed = Share { guarantee: percent(40), ..normal(1) };
    let rules = Rules { quantum: Quantum::Fixed(500 * MS), wake_grain_ns: None, ..rules() };
    let mut desk = Desk::new(rules, &[(A, guaranteed), (B, normal(1000))]);
    desk.wants(B);
    desk.wants(A);
    assert_eq!(desk.due(), Some(20 * MS));
    let got = permille(&mut desk, A);
    assert!(got >= 390, "{got}");
}

#[test]
fn who_comes_does_not_wait_until_others_have_paid_each_other() {
    let mut desk = Desk::new(rules(), &[(A, normal(1)), (B, normal(1)), (C, normal(1))]);
    desk.wants(A);
    desk.wants(B);
    desk.until_turn_of(B);
    desk.uses(B, 2000 * MS);
    assert_eq!(desk.step(Event::Drained(B)), [open(A)]);
    let from = desk.now;
    desk.wants(C);
    desk.until_turn_of(C);
    assert!(desk.now - from <= 7 * MS, "{}", desk.now - from);
}

#[test]
fn a_great_weight_does_not_run_ahead() {
    let small = (10..20).map(|tenant| (Tenant(tenant), normal(1)));
    let tenants: Vec<(Tenant, Share)> = small.chain([(A, normal(10))]).collect();
    let mut desk = Desk::new(rules(), &tenants);
    tenants.iter().for_each(|(tenant, _)| drop(desk.wants(*tenant)));
    desk.turns(22, MS);
    for (tenant, ns) in desk.turns(60, MS / 2) {
        assert!(ns <= 2 * 3 * MS, "{tenant:?} had {ns} in a row");
    }
}

#[test]
fn no_fraction_is_lost() {
    let mut lags = [1, 1_000_000].map(|pieces| {
        let mut tree = Tree::default();
        let root = tree.add(None, 1);
        let nodes = [tree.add(Some(root), 9_999), tree.add(Some(root), 7)];
        nodes.into_iter().for_each(|node| tree.set_competes(node, true, 0, MS));
        (0..pieces).for_each(|_| tree.charge(nodes[0], 1_000_000 / pieces, None, MS));
        tree.lag_ns(nodes[0])
    });
    lags.sort_unstable();
    assert!(lags[1] - lags[0] <= 1, "{lags:?}");
}

/// A level of groups between the class and its tenants, as the tree has room for.
#[test]
fn groups_share_by_their_weights_and_their_tenants_within() {
    let mut tree = Tree::default();
    let root = tree.add(None, 1);
    let groups = [tree.add(Some(root), 300), tree.add(Some(root), 100)];
    let leaves = [(0, 10), (0, 30), (1, 5)].map(|(group, weight)| tree.add(Some(groups[group]), weight));
    leaves.into_iter().for_each(|leaf| tree.set_competes(leaf, true, 0, 3 * MS));
    let mut used = [0u64; 3];
    for _ in 0..8000 {
        let leaf = tree.pick(root, 0).expect("all compete");
        tree.charge(leaf, 3 * MS, None, 3 * MS);
        used[leaves.iter().position(|other| *other == leaf).expect("a leaf")] += 1;
    }
    for (used, ideal) in used.into_iter().zip([1500, 4500, 2000]) {
        assert!(used.abs_diff(ideal) <= 2, "{used} {ideal}");
    }
    tree.set_competes(leaves[2], false, 0, 3 * MS);
    let next = tree.pick(root, 0);
    assert!(next == Some(leaves[0]) || next == Some(leaves[1]));
    tree.check();
}
