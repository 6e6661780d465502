//! Requests beside busy jobs, classes, policies, makespan; and that each rule is there for a reason.

use quota_core::Priority;
use quota_core::compute::scheduler::{Policy, Quantum, Rules};
use simulate::scenarios::{Base, MS, SECOND, US};
use simulate::{Arrivals, Options, Outcome, Plan, Scenario, TenantPlan, Workload, simulate};

const BASE: Base = Base { seed: 1, seconds: 120 };
const OFTEN: Arrivals = Arrivals::Poisson(20.0);

fn ours(change: impl Fn(&mut Options)) -> Plan {
    let mut options = Options::default();
    change(&mut options);
    Plan::Ours(options)
}

fn with(rules: Rules) -> Plan {
    Plan::Ours(Options { rules, ..Options::default() })
}

fn beside_short(arrivals: Arrivals) -> (Outcome, Scenario) {
    let alone = simulate(&BASE.service_alone(arrivals), Plan::Native);
    (alone, BASE.service(arrivals, Workload::train_short(300 * US, 50 * US)))
}

#[test]
fn a_service_of_the_high_class_answers_as_if_it_were_alone() {
    for arrivals in [OFTEN, Arrivals::Poisson(100.0)] {
        let (alone, scenario) = beside_short(arrivals);
        let outcome = simulate(&scenario, Plan::ours());
        let ratio = outcome.latency_ms(0, 99.0) / alone.latency_ms(0, 99.0);
        assert!(ratio <= 1.10, "{arrivals:?}: p99 {ratio} of alone");
    }
}

#[test]
fn the_batch_job_beside_it_gets_what_is_left() {
    let (alone, scenario) = beside_short(OFTEN);
    let outcome = simulate(&scenario, Plan::ours());
    let left = 100.0 - alone.use_of(0);
    assert!(outcome.use_of(1) >= 0.97 * left, "{} of {left}", outcome.use_of(1));
    assert!(outcome.utilisation() >= 97.0, "{}", outcome.utilisation());
}

#[test]
fn what_others_do_to_a_service_is_told_apart() {
    let (alone, scenario) = beside_short(OFTEN);
    let p99 = |plan| simulate(&scenario, plan).latency_ms(0, 99.0) / alone.latency_ms(0, 99.0);
    assert!(p99(Plan::Native) >= 2.5);
    assert!(p99(Plan::ExclusiveWindow) >= 20.0);
    assert!(p99(Plan::Highest(16)) >= 1.5);
}

#[test]
fn a_service_does_not_wait_for_long_kernels() {
    let alone = simulate(&BASE.service_alone(OFTEN), Plan::Native).latency_ms(0, 99.0);
    let beside =
        |length, plan| simulate(&BASE.service(OFTEN, Workload::long(length)), plan).latency_ms(0, 99.0) / alone;
    assert!(beside(7 * MS, Plan::ours()) <= 1.85, "{}", beside(7 * MS, Plan::ours()));
    assert!(beside(20 * MS, Plan::ours()) <= 2.6, "{}", beside(20 * MS, Plan::ours()));
    assert!(beside(20 * MS, Plan::Native) >= 2.8, "{}", beside(20 * MS, Plan::Native));
    let waits = ours(|options| options.rules.preemption = false);
    assert!(beside(20 * MS, waits) > 1.1 * beside(20 * MS, Plan::ours()), "{}", beside(20 * MS, waits));
}

#[test]
fn batch_jobs_in_phase_are_done_as_fast_as_can_be() {
    let of_ideal = |class, plan| simulate(&BASE.in_phase(40, class), plan).makespan_s().map(|seconds| seconds / 32.0);
    let batch = of_ideal(Priority::Batch, Plan::ours()).expect("they end");
    assert!(batch <= 1.05, "{batch}");
    let normal = of_ideal(Priority::Normal, Plan::ours()).expect("they end");
    assert!(normal >= 1.2, "short turns keep them in phase: {normal}");
    let native = of_ideal(Priority::Normal, Plan::Native).expect("they end");
    assert!((1.5..1.7).contains(&native), "{native}");
    let exclusive = of_ideal(Priority::Normal, Plan::ExclusiveLong).expect("they end");
    assert!((1.9..2.0).contains(&exclusive), "{exclusive}");
}

fn classes(first: Priority, second: Priority) -> Scenario {
    let busy = Workload::train(200 * US, 3 * MS);
    let tenants = [("a", first, 300), ("b", second, 100)];
    let base = Base { seconds: 20, ..BASE };
    base.scenario(tenants.map(|(name, class, weight)| TenantPlan::new(name, busy).class(class).weight(weight)).to_vec())
}

#[test]
fn first_come_first_served_takes_turns_of_a_round_whatever_the_weights() {
    let rules = Rules { policy: Policy::Fifo, ..Rules::default() };
    let outcome = simulate(&classes(Priority::Normal, Priority::High), with(rules));
    assert!((outcome.share_of(0) - 50.0).abs() < 2.0, "{}", outcome.share_of(0));
    // A round is a tenth of a second.
    assert!(outcome.switches_per_s() < 15.0, "{}", outcome.switches_per_s());
}

#[test]
fn priority_serves_the_higher_class_and_equals_in_their_order() {
    let rules = Rules { policy: Policy::Priority, ..Rules::default() };
    let outcome = simulate(&classes(Priority::Normal, Priority::High), with(rules));
    assert!(outcome.use_of(1) >= 95.0, "{}", outcome.use_of(1));
    // The other gets the pauses.
    assert!((0.5..4.0).contains(&outcome.use_of(0)), "{}", outcome.use_of(0));
    let equals = simulate(&classes(Priority::High, Priority::High), with(rules));
    assert!((equals.share_of(0) - 50.0).abs() < 2.0 && equals.switches_per_s() < 15.0, "{}", equals.share_of(0));
}

#[test]
fn fair_goes_by_weight_whatever_the_class() {
    let rules = Rules { policy: Policy::Fair, ..Rules::default() };
    let outcome = simulate(&classes(Priority::Batch, Priority::High), with(rules));
    // What a pause of 3 ms costs is made up for afterwards.
    assert!((73.0..75.5).contains(&outcome.share_of(0)), "{}", outcome.share_of(0));
}

#[test]
fn priority_fair_goes_by_class_and_then_by_weight_and_starves_nobody() {
    let outcome = simulate(&classes(Priority::Batch, Priority::Normal), Plan::ours());
    // The least of one percent, and the pauses.
    assert!((1.0..8.0).contains(&outcome.use_of(0)), "{}", outcome.use_of(0));
    assert!(outcome.use_of(1) >= 90.0, "{}", outcome.use_of(1));
    let equals = simulate(&classes(Priority::Normal, Priority::Normal), Plan::ours());
    assert!((73.0..75.5).contains(&equals.share_of(0)), "{}", equals.share_of(0));
    // A busy one of the high class has its budget of a half, and beyond it its weight among the normal ones.
    let high = simulate(&classes(Priority::Normal, Priority::High), Plan::ours());
    assert!(high.use_of(1) >= 48.0 && high.use_of(0) >= 20.0, "{} {}", high.use_of(0), high.use_of(1));
}

#[test]
fn without_linger_a_service_loses_the_device_between_its_kernels() {
    // Each kernel is waited for, so that the service is idle for a moment after each.
    let mut scenario = BASE.service(OFTEN, Workload::train_short(300 * US, 50 * US));
    scenario.tenants[0].processes = vec![Workload::Steady {
        kernel_ns: 100 * US,
        jitter: 100,
        count: 1,
        gap_ns: 50 * US,
        waits: simulate::Wait::Round,
    }];
    scenario.until_ns = 10 * SECOND;
    scenario.tenants[0].share.guarantee = quota_core::Percent::from_hundredths(9_000);
    let run = |linger_ns| {
        let outcome = simulate(&scenario, ours(|options| options.rules.linger_ns = linger_ns));
        (outcome.kernels(0) as f64, outcome.switches_per_s())
    };
    let (with, without) = (run(100 * US), run(0));
    assert!(with.0 >= 1.2 * without.0 && without.1 >= 2.0 * with.1, "{with:?} against {without:?}");
}

#[test]
fn without_a_long_wait_for_equals_the_device_is_switched_in_the_middle_of_kernels() {
    let jobs = [Workload::train(30 * US, 50 * US), Workload::long(15 * MS)];
    let scenario = Base { seconds: 30, ..BASE }.shares(&[1, 1], &jobs);
    let short = simulate(&scenario, ours(|options| options.rules.drain_max_ns = 800 * US));
    let long = simulate(&scenario, Plan::ours());
    assert!(long.utilisation() >= short.utilisation() + 3.0, "{} {}", long.utilisation(), short.utilisation());
}

#[test]
fn without_turns_for_who_wakes_up_a_job_with_pauses_falls_behind() {
    let scenario = Base { seconds: 30, ..BASE }.weights(&[3, 1], 200 * US, 3 * MS);
    let share = |wake_grain_ns| {
        let rules = Rules { wake_grain_ns, quantum: Quantum::Fixed(50 * MS), ..Rules::default() };
        simulate(&scenario, with(rules)).share_of(0)
    };
    let (with, without) = (share(Some(MS)), share(None));
    assert!(with >= without + 3.0 && with >= 71.0, "{with} against {without}");
}

#[test]
fn announced_ends_save_time_at_each_change_and_those_of_long_kernels_cost_fairness() {
    let base = Base { seconds: 60, ..BASE };
    let run = |announced_up_to_ns, scenario: &Scenario| {
        let rules = Rules { quantum: Quantum::Fixed(3 * MS), ..Rules::default() };
        simulate(scenario, Plan::Ours(Options { announced_up_to_ns, rules, ..Options::default() }))
    };
    let eight = base.weights(&[1; 8], 30 * US, 50 * US);
    let (some, none) = (run(200 * US, &eight).utilisation(), run(0, &eight).utilisation());
    assert!(some >= none + 0.2, "{some} {none}");
    let two = base.weights(&[3, 1], 200 * US, 50 * US);
    let (some, all) = (run(200 * US, &two), run(u64::MAX, &two));
    let off = |outcome: &Outcome| outcome.share_error(10 * SECOND).mean;
    assert!(off(&all) >= off(&some) + 0.05, "{} {}", off(&all), off(&some));
}
