//! What users of other systems have reported, on the virtual clock, and what adversaries try. The numbers are those of
//! the collection of reports.

use quota_core::compute::scheduler::{Quantum, Rules};
use simulate::scenarios::{Adversary, Base, MS, SECOND, US};
use simulate::{Change, Options, Outcome, Plan, TenantPlan, Wait, Workload, simulate};

const BASE: Base = Base { seed: 1, seconds: 30 };

fn steady(kernel_ns: u64, count: u32, waits: Wait) -> Workload {
    Workload::Steady { kernel_ns, jitter: 0, count, gap_ns: 20 * US, waits }
}

fn turns_of(ms: u64) -> Plan {
    let rules = Rules { quantum: Quantum::Fixed(ms * MS), ..Rules::default() };
    Plan::Ours(Options { rules, ..Options::default() })
}

/// The most of a time in which `tenant` got nothing, in milliseconds.
fn longest_gap_ms(outcome: &Outcome, tenant: usize, from_ns: u64, to_ns: u64) -> u64 {
    let (mut longest, mut gap) = (0, 0);
    for begin_ns in (from_ns..to_ns).step_by(10_000_000) {
        let used = outcome.used(tenant, begin_ns, begin_ns + 10 * MS);
        gap = if used > 0.0 { 0 } else { gap + 10 };
        longest = longest.max(gap);
    }
    longest
}

/// 15.08: cost is time, not the number of blocks or kernels.
#[test]
fn kernels_of_one_and_ten_milliseconds_get_equal_time() {
    let jobs = [steady(MS, 100, Wait::Round), steady(10 * MS, 10, Wait::Round)];
    let outcome = simulate(&BASE.shares(&[1, 1], &jobs), Plan::ours());
    let ratio = outcome.use_of(0) / outcome.use_of(1);
    assert!((0.9..=1.1).contains(&ratio), "{ratio}");
}

/// 15.13: kernels too short for anything that samples.
#[test]
fn small_kernels_under_caps_of_20_and_80_are_completed_one_to_four() {
    let outcome = simulate(&BASE.caps(&[20, 80], steady(50 * US, 1_000, Wait::Round)), Plan::ours());
    let ratio = outcome.kernels(1) as f64 / outcome.kernels(0) as f64;
    assert!((4.0 * 0.85..=4.0 * 1.15).contains(&ratio), "{ratio}");
}

/// 15.14: what a turn was overrun by is charged.
#[test]
fn a_cap_of_a_half_holds_with_kernels_as_long_as_a_turn() {
    for caps_in_scheduler in [false, true] {
        let Plan::Ours(options) = turns_of(100) else { unreachable!("it is ours") };
        let plan = Plan::Ours(Options { caps_in_scheduler, ..options });
        let outcome = simulate(&BASE.caps(&[50], steady(80 * MS, 10, Wait::Round)), plan);
        let off = outcome.use_error(0, 50.0, SECOND);
        assert!(off.max <= 5.0, "{off:?}");
        // Two such meet again and again, and each kernel is then measured with the other's slices in it: never too much.
        let both = simulate(&BASE.caps(&[50, 50], steady(80 * MS, 10, Wait::Round)), plan);
        assert!(both.over_use(0, 50.0, SECOND).max <= 5.0 && both.use_of(0) >= 30.0, "{}", both.use_of(0));
    }
}

/// 17.02: the holder runs one very long kernel.
#[test]
fn a_kernel_of_ten_seconds_holds_nobody_up_for_longer_than_the_grace() {
    let busy = Workload::train(200 * US, 50 * US);
    let giant = Workload::Once { after_ns: 3 * SECOND, kernel_ns: 10 * SECOND };
    let outcome = simulate(&BASE.shares(&[1, 1], &[busy, giant]), turns_of(100));
    // A turn, the wait of 25 ms, the hardware's slices, and the width of what is counted.
    let gap_ms = longest_gap_ms(&outcome, 0, 3 * SECOND, 20 * SECOND);
    assert!(gap_ms <= 100 + 25 + 20, "{gap_ms} ms");
    // Each has its turns, and in the other's the giant goes on beside it.
    let meanwhile = outcome.used(0, 4 * SECOND, 10 * SECOND);
    assert!(meanwhile >= 0.18, "{meanwhile}");
    assert!(outcome.used(0, 28 * SECOND, 30 * SECOND) >= 0.95);
}

/// 17.02: the holder is stopped, and goes on later.
#[test]
fn who_is_stopped_loses_the_token_and_has_to_ask_again() {
    let busy = Workload::train(200 * US, 50 * US);
    let mut scenario = BASE.shares(&[1, 1], &[busy, busy]);
    scenario.changes = vec![(5 * SECOND + 3 * MS, Change::Stop(1)), (10 * SECOND, Change::Continue(1))];
    let outcome = simulate(&scenario, turns_of(100));
    assert!(longest_gap_ms(&outcome, 0, 5 * SECOND, 10 * SECOND) <= 100 + 25 + 10);
    // It still says that it waits, and is offered a turn from time to time.
    let meanwhile = outcome.used(0, 5 * SECOND + 300 * MS, 10 * SECOND);
    assert!(meanwhile >= 0.95, "{meanwhile}");
    let after = outcome.used(1, 11 * SECOND, 31 * SECOND);
    assert!((0.45..0.53).contains(&after), "{after}");
}

/// 17.02: the holder is idle.
#[test]
fn an_idle_holder_does_not_keep_the_token() {
    let busy = Workload::train(200 * US, 50 * US);
    let rare = Workload::Steady { kernel_ns: MS, jitter: 0, count: 1, gap_ns: SECOND, waits: Wait::Round };
    let outcome = simulate(&BASE.shares(&[1, 1], &[busy, rare]), turns_of(100));
    assert!(outcome.use_of(0) >= 99.0, "{}", outcome.use_of(0));
}

/// 17.03: 25 and 75 mean time.
#[test]
fn quotas_of_25_and_75_give_25_and_75() {
    let jobs = [Workload::train(50 * US, 50 * US), Workload::train(MS, 50 * US)];
    let by_weight = simulate(&BASE.shares(&[1, 3], &jobs), Plan::ours());
    assert!((by_weight.share_of(0) - 25.0).abs() <= 0.5, "{}", by_weight.share_of(0));
    let mut scenario = BASE.shares(&[1, 1], &jobs);
    scenario.tenants =
        vec![TenantPlan::new("quarter", jobs[0]).cap(25), TenantPlan::new("rest", jobs[1]).cap(75).guarantee(70)];
    let by_cap = simulate(&scenario, Plan::ours());
    assert!((by_cap.use_of(0) - 25.0).abs() <= 1.0, "{}", by_cap.use_of(0));
    assert!((by_cap.use_of(1) - 75.0).abs() <= 4.0, "{}", by_cap.use_of(1));
}

#[test]
fn a_killed_holder_is_replaced_within_ten_milliseconds() {
    let busy = Workload::train(200 * US, 50 * US);
    for at_us in (0..30_000).step_by(1_700) {
        let killed_ns = 5 * SECOND + at_us * US;
        let mut scenario = Base { seconds: 4, ..BASE }.shares(&[1, 1], &[busy, busy]);
        scenario.changes = vec![(killed_ns, Change::Kill(1))];
        let outcome = simulate(&scenario, Plan::ours());
        let from_ns = (killed_ns + 10 * MS).next_multiple_of(10 * MS);
        let used = outcome.used(0, from_ns, from_ns + 10 * MS);
        assert!(used >= 0.95, "killed at {killed_ns}: {used}");
        assert!(outcome.used(1, from_ns, 6 * SECOND) == 0.0);
    }
}

#[test]
fn a_paused_tenant_gets_nothing_until_it_is_resumed() {
    let busy = Workload::train(200 * US, 50 * US);
    let mut scenario = BASE.shares(&[1, 1], &[busy, busy]);
    scenario.changes = vec![(5 * SECOND, Change::Pause(0)), (8 * SECOND, Change::Resume(0))];
    let outcome = simulate(&scenario, Plan::ours());
    // One quantum and what is under way.
    assert!(outcome.used(0, 5 * SECOND + 20 * MS, 8 * SECOND) == 0.0);
    assert!(outcome.used(1, 5 * SECOND + 20 * MS, 8 * SECOND) >= 0.98);
    let after = outcome.used(0, 8 * SECOND + 100 * MS, 20 * SECOND);
    assert!((0.48..0.51).contains(&after), "{after}");
}

#[test]
fn nobody_gets_more_than_half_by_a_trick() {
    for adversary in Adversary::ALL {
        let outcome = simulate(&BASE.adversary(adversary), Plan::ours());
        let honest = outcome.use_of(0);
        // Beside kernels of 200 ms there is nothing but the hardware's slices; sixteen contexts take turns in hardware.
        let least = match adversary {
            Adversary::Giant => 38.0,
            Adversary::ManyProcesses => 47.0,
            Adversary::EachAwaited => 47.0,
            _ => 47.5,
        };
        assert!(honest >= least, "{adversary:?}: {honest}");
        if adversary.is_saturating() {
            assert!(outcome.use_of(1) >= 48.0, "{adversary:?}: {}", outcome.use_of(1));
        }
    }
    // Contexts buy time where only hardware shares the device.
    let native = simulate(&BASE.adversary(Adversary::ManyProcesses), Plan::Native);
    assert!(native.use_of(0) <= 7.0, "{}", native.use_of(0));
}

#[test]
fn streams_buy_no_time() {
    for count in [2, 4, 8] {
        let outcome = simulate(&BASE.streams(count), Plan::ours());
        assert!((outcome.share_of(0) - 50.0).abs() <= 0.5, "{count}: {}", outcome.share_of(0));
        assert!(outcome.utilisation() >= 97.5, "{count}: {}", outcome.utilisation());
    }
}
