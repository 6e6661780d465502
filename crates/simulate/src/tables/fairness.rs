//! Weighted shares, the length of turns, caps.

use super::{Cell, Row, Run, Table, columns, fine, tenth, whole};
use crate::outcome::Outcome;
use crate::policy::Plan;
use crate::policy::ours::Options;
use crate::scenarios::{MS, SECOND, US};
use crate::workload::{Wait, Workload};
use quota_core::compute::scheduler::{Quantum, Rules};

const ERRORS: [&str; 9] =
    ["", "100 ms mean", "p99", "1 s mean", "p99", "10 s mean", "utilisation", "switches/s", "shares"];

fn errors(outcome: &Outcome, tenants: usize) -> Vec<Cell> {
    let [short, second, long] = [100 * MS, SECOND, 10 * SECOND].map(|window_ns| outcome.share_error(window_ns));
    let shares: Vec<_> = (0..tenants).map(|tenant| format!("{:.1}", outcome.share_of(tenant))).collect();
    vec![
        fine(short.mean),
        fine(short.p99),
        fine(second.mean),
        fine(second.p99),
        fine(long.mean),
        tenth(outcome.utilisation()),
        whole(outcome.switches_per_s()),
        Cell::Words(shares.join(" ")),
    ]
}

pub(super) fn weights(run: &Run<'_>) -> Table {
    let scenario = run.base(60).weights(&[3, 1], 200 * US, 50 * US);
    let plans = [
        Plan::Native,
        Plan::FeedbackDelta,
        Plan::FeedbackAimd,
        Plan::ExclusiveLong,
        Plan::ExclusiveWindow,
        Plan::Turns(16),
        Plan::Turns(2),
        Plan::ours(),
    ];
    Table {
        name: "weights",
        title: "Weights 3:1, both busy, kernels of median 200 us: how far shares are off, in percent points".into(),
        columns: columns(&ERRORS),
        rows: plans.map(|plan| run.row(&plan.name(), &scenario, plan, |outcome| errors(outcome, 2))).to_vec(),
        note: "Feedback has no weights and is given the shares as caps. With 300 ms turns a window holds one owner.",
    }
}

pub(super) fn mixes(run: &Run<'_>) -> Table {
    let base = run.base(60);
    let short_and_long = [Workload::train(30 * US, 50 * US), Workload::long(15 * MS)];
    let tiny = Workload::Train { round_ns: 100 * MS, median_ns: 8 * US, sigma: 0.4, longest_ns: MS, gap_ns: 50 * US };
    let scenarios = [
        ("3:1, 30 us", 2, base.weights(&[3, 1], 30 * US, 50 * US)),
        ("3:1, 1 ms", 2, base.weights(&[3, 1], MS, 50 * US)),
        ("5:3:2, 200 us", 3, base.weights(&[5, 3, 2], 200 * US, 50 * US)),
        ("8:4:2:1:1, 200 us", 5, base.weights(&[8, 4, 2, 1, 1], 200 * US, 50 * US)),
        ("eight equal, 200 us", 8, base.weights(&[1; 8], 200 * US, 50 * US)),
        ("1:1, 30 us against 15 ms", 2, base.shares(&[1, 1], &short_and_long)),
        ("1:1, 8 us against 1.5 ms", 2, base.shares(&[1, 1], &[tiny, Workload::train(1_500 * US, 100 * US)])),
    ];
    let plans = [("native", Plan::Native), ("turns, 16", Plan::Turns(16)), ("turns, 2", Plan::Turns(2))];
    let plans = plans.into_iter().chain([("ours", Plan::ours())]);
    let mut rows = Vec::new();
    for (name, plan) in plans {
        for (what, tenants, scenario) in &scenarios {
            rows.push(run.row(&format!("{name}: {what}"), scenario, plan, |outcome| errors(outcome, *tenants)));
        }
    }
    Table {
        name: "mixes",
        title: "Other weights and other kernels: how far shares are off, in percent points".into(),
        columns: columns(&ERRORS),
        rows,
        note: "Native and turns are as in the table `weights`.",
    }
}

pub(super) fn quantum(run: &Run<'_>) -> Table {
    let quanta = [1, 2, 3, 5, 10, 20, 50, 100].map(|ms| (format!("{ms} ms"), Quantum::Fixed(ms * MS)));
    let two = run.base(30).weights(&[3, 1], 200 * US, 50 * US);
    let eight = run.base(30).weights(&[1; 8], 200 * US, 50 * US);
    let rows = quanta.into_iter().chain([("adaptive".into(), Quantum::Adaptive)]).map(|(label, quantum)| {
        let rules = Rules { quantum, ..Rules::default() };
        let plan = Plan::Ours(Options { rules, ..Options::default() });
        let (two, eight) = (run.simulate(&label, &two, plan), run.simulate(&label, &eight, plan));
        let off = |outcome: &Outcome, window_ns| fine(outcome.share_error(window_ns).p99);
        let two = [tenth(two.utilisation()), off(&two, 100 * MS), off(&two, SECOND)];
        let eight = [tenth(eight.utilisation()), off(&eight, 100 * MS), off(&eight, SECOND)];
        Row { label, cells: two.into_iter().chain(eight).collect() }
    });
    Table {
        name: "quantum",
        title: "Length of turns, ours: utilisation and p99 of how far shares are off".into(),
        columns: columns(&["turn", "3:1 util.", "100 ms", "1 s", "8 equal util.", "100 ms", "1 s"]),
        rows: rows.collect(),
        note: "",
    }
}

pub(super) fn caps(run: &Run<'_>) -> Table {
    let busy = Workload::train(200 * US, 50 * US);
    let steady = |kernel_ns, count, waits| Workload::Steady { kernel_ns, jitter: 100, count, gap_ns: 0, waits };
    let cases: [(&str, &[u32], Workload); 8] = [
        ("30 alone", &[30], busy),
        ("10 alone", &[10], busy),
        ("30 and 70", &[30, 70], busy),
        ("10 and 90", &[10, 90], busy),
        ("50 and 50", &[50, 50], busy),
        ("30 alone, each kernel awaited", &[30], steady(200 * US, 1_000, Wait::Each)),
        ("30 alone, kernels of 8 us, never awaited", &[30], steady(8 * US, 1_000, Wait::Never)),
        ("30 alone, kernels of 20 ms", &[30], steady(20 * MS, 10, Wait::Round)),
    ];
    let in_scheduler = Plan::Ours(Options { caps_in_scheduler: true, ..Options::default() });
    let plans = [
        ("delta", Plan::FeedbackDelta),
        ("AIMD", Plan::FeedbackAimd),
        ("ours", Plan::ours()),
        ("ours, by the scheduler", in_scheduler),
    ];
    let mut rows = Vec::new();
    for (name, plan) in plans {
        for (what, caps, workload) in &cases {
            let scenario = run.base(30).caps(caps, *workload);
            rows.push(run.row(&format!("{name}: {what}"), &scenario, plan, |outcome| cap_cells(outcome, caps)));
        }
    }
    Table {
        name: "caps",
        title: "Hard caps: use in percent of the time, and how far it is from the cap, of the first tenant".into(),
        columns: columns(&["", "used", "100 ms mean", "p99 above", "1 s mean", "p99 above"]),
        rows,
        note: "Kernels of median 200 us where nothing else is said.",
    }
}

fn cap_cells(outcome: &Outcome, caps: &[u32]) -> Vec<Cell> {
    let cap = f64::from(caps[0]);
    let used: Vec<_> = (0..caps.len()).map(|tenant| format!("{:.1}", outcome.use_of(tenant))).collect();
    vec![
        Cell::Words(used.join(" ")),
        fine(outcome.use_error(0, cap, 100 * MS).mean),
        fine(outcome.over_use(0, cap, 100 * MS).p99),
        fine(outcome.use_error(0, cap, SECOND).mean),
        fine(outcome.over_use(0, cap, SECOND).p99),
    ]
}
