//! Makespan, guarantee, adversaries, streams.

use super::{Cell, Row, Run, Table, columns, fine, tenth};
use crate::outcome::Outcome;
use crate::policy::Plan;
use crate::policy::ours::Options;
use crate::scenarios::{Adversary, MS, SECOND};
use quota_core::Priority;
use quota_core::compute::scheduler::{Policy, Quantum, Rules};

pub(super) fn makespan(run: &Run<'_>) -> Table {
    let rounds = 40;
    let ours = |rules| Plan::Ours(Options { rules, ..Options::default() });
    let fixed = |ms| ours(Rules { quantum: Quantum::Fixed(ms * MS), ..Rules::default() });
    let cases = [
        ("native", Priority::Normal, Plan::Native),
        ("exclusive, 30 s", Priority::Normal, Plan::ExclusiveLong),
        ("exclusive, 300 ms", Priority::Normal, Plan::ExclusiveWindow),
        ("ours, normal class", Priority::Normal, Plan::ours()),
        ("ours, normal class, turns of 100 ms", Priority::Normal, fixed(100)),
        ("ours, normal class, turns of 500 ms", Priority::Normal, fixed(500)),
        (
            "ours, normal class, first come first served",
            Priority::Normal,
            ours(Rules { policy: Policy::Fifo, ..Rules::default() }),
        ),
        ("ours, batch class", Priority::Batch, Plan::ours()),
    ];
    let ideal_s = 0.8 * rounds as f64;
    let rows = cases.map(|(label, class, plan)| {
        run.row(label, &run.base(1).in_phase(rounds, class), plan, |outcome| match outcome.makespan_s() {
            Some(makespan_s) => vec![tenth(makespan_s), fine(makespan_s / ideal_s)],
            None => vec![Cell::Words("not done".into()), Cell::Nothing],
        })
    });
    Table {
        name: "makespan",
        title: format!("Two jobs in phase, 0.4 s CPU and 0.4 s device {rounds} times (ideal {ideal_s} s)"),
        columns: columns(&["", "seconds", "of ideal"]),
        rows: rows.to_vec(),
        note: "Its length is its own; --seconds does not matter here.",
    }
}

pub(super) fn guarantee(run: &Run<'_>) -> Table {
    let scenario = run.base(30).guarantee();
    let plans = [Plan::Native, Plan::Turns(2), Plan::ExclusiveWindow, Plan::ours()];
    let rows = plans.map(|plan| {
        run.row(&plan.name(), &scenario, plan, |outcome| {
            let least = [100 * MS, SECOND].map(|window_ns| tenth(outcome.least(0, window_ns)));
            vec![tenth(outcome.use_of(0)), least[0].clone(), least[1].clone(), tenth(outcome.utilisation())]
        })
    });
    Table {
        name: "guarantee",
        title: "One with a guarantee of 40 % against seven busy ones with ten times its weight".into(),
        columns: columns(&["", "used %", "least in 100 ms", "least in 1 s", "utilisation"]),
        rows: rows.to_vec(),
        note: "",
    }
}

fn halves(outcome: &Outcome) -> Vec<Cell> {
    let off = [100 * MS, SECOND].map(|window_ns| fine(outcome.share_error(window_ns).mean));
    let mut cells = vec![tenth(outcome.use_of(0)), tenth(outcome.use_of(1))];
    cells.extend(off);
    cells.push(tenth(outcome.utilisation()));
    cells
}

const HALVES: [&str; 6] = ["", "first %", "second %", "off @100 ms", "@1 s", "utilisation"];

pub(super) fn adversaries(run: &Run<'_>) -> Table {
    let mut rows: Vec<Row> = Vec::new();
    for (name, plan) in [("native", Plan::Native), ("turns, 2", Plan::Turns(2)), ("ours", Plan::ours())] {
        for adversary in Adversary::ALL {
            let label = format!("{name}: {}", adversary.name());
            rows.push(run.row(&label, &run.base(30).adversary(adversary), plan, halves));
        }
    }
    Table {
        name: "adversaries",
        title: "An honest trainer (first) and somebody who tries to get more than half (second), equal weights".into(),
        columns: columns(&HALVES),
        rows,
        note: "Who pauses or waits for each kernel cannot use half.",
    }
}

pub(super) fn streams(run: &Run<'_>) -> Table {
    let mut rows = Vec::new();
    for (name, plan) in [("native", Plan::Native), ("turns, 2", Plan::Turns(2)), ("ours", Plan::ours())] {
        for count in [2, 4, 8] {
            let label = format!("{name}: {count} streams");
            rows.push(run.row(&label, &run.base(30).streams(count), plan, halves));
        }
    }
    Table {
        name: "streams",
        title: "A trainer on one stream (first) and one on several with events between them (second), equal weights"
            .into(),
        columns: columns(&HALVES),
        rows,
        note: "Streams of one context share it: they buy no time.",
    }
}
