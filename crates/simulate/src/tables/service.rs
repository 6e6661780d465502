//! Requests beside work that wants the whole device.

use super::{Cell, Row, Run, Table, columns, fine, tenth};
use crate::outcome::Outcome;
use crate::policy::Plan;
use crate::policy::ours::Options;
use crate::scenarios::{MS, SECOND, US};
use crate::workload::{Arrivals, Workload};
use quota_core::compute::scheduler::Rules;

const HEADS: [&str; 8] =
    ["", "p50 ms", "p95 ms", "p99 ms", "p99 / alone", "batch %", "of what is left %", "utilisation"];

fn cells(outcome: &Outcome, alone: &Outcome) -> Vec<Cell> {
    let at = |part| outcome.latency_ms(0, part);
    let left = 100.0 - alone.use_of(0);
    vec![
        fine(at(50.0)),
        fine(at(95.0)),
        fine(at(99.0)),
        fine(at(99.0) / alone.latency_ms(0, 99.0)),
        tenth(outcome.use_of(1)),
        tenth(100.0 * outcome.use_of(1) / left),
        tenth(outcome.utilisation()),
    ]
}

fn ours(change: impl Fn(&mut Options)) -> Plan {
    let mut options = Options::default();
    change(&mut options);
    Plan::Ours(options)
}

fn alone(run: &Run<'_>, label: &str, arrivals: Arrivals, seconds: u64) -> (Outcome, Row) {
    let outcome = run.simulate(label, &run.base(seconds).service_alone(arrivals), Plan::Native);
    let at = |part| fine(outcome.latency_ms(0, part));
    let mut cells = vec![at(50.0), at(95.0), at(99.0), fine(1.0)];
    cells.extend([Cell::Nothing, Cell::Nothing, tenth(outcome.utilisation())]);
    let row = Row { label: label.into(), cells };
    (outcome, row)
}

pub(super) fn latency(run: &Run<'_>) -> Table {
    let mut rows = Vec::new();
    let plans = [
        ("native".to_owned(), Plan::Native),
        ("exclusive, 300 ms".into(), Plan::ExclusiveWindow),
        ("highest first, 16".into(), Plan::Highest(16)),
        ("highest first, 2".into(), Plan::Highest(2)),
        ("ours".into(), Plan::ours()),
    ];
    let aheads = [250, 500, 1_000, 2_000, 4_000];
    let aheads =
        aheads.map(|us| (format!("ours, {us} us ahead"), ours(|options| options.ahead_beside_high_ns = us * US)));
    let plans: Vec<_> = plans.into_iter().chain(aheads).collect();
    let beside = Workload::train_short(300 * US, 50 * US);
    let arrivals = [
        ("20/s", Arrivals::Poisson(20.0)),
        ("100/s", Arrivals::Poisson(100.0)),
        ("50/s periodic", Arrivals::Periodic(50.0)),
        ("50/s bursty", Arrivals::Bursty(50.0)),
    ];
    for (rate, arrivals) in arrivals {
        let (alone, row) = alone(run, &format!("{rate}: alone"), arrivals, 120);
        rows.push(row);
        let scenario = run.base(120).service(arrivals, beside);
        for (name, plan) in &plans {
            rows.push(run.row(&format!("{rate}: {name}"), &scenario, *plan, |outcome| cells(outcome, &alone)));
        }
    }
    Table {
        name: "latency",
        title: "Requests of 4 ms (40 kernels) of the high class beside a busy batch job with kernels of at most 1 ms"
            .into(),
        columns: columns(&HEADS),
        rows,
        note: "What is left: the time that the service alone doesn't use.",
    }
}

pub(super) fn long(run: &Run<'_>) -> Table {
    let drain = |ms| ours(|options| options.rules = Rules { drain_max_ns: ms * MS / 10, ..options.rules });
    let mut rows = Vec::new();
    let (alone, row) = alone(run, "20/s: alone", Arrivals::Poisson(20.0), 120);
    rows.push(row);
    let plans = [
        ("native", Plan::Native),
        ("highest first, 16", Plan::Highest(16)),
        ("highest first, 2", Plan::Highest(2)),
        ("ours", Plan::ours()),
        ("ours, never at once", ours(|options| options.rules.preemption = false)),
    ];
    for length in [7, 20] {
        let scenario = run.base(120).service(Arrivals::Poisson(20.0), Workload::long(length * MS));
        for (name, plan) in plans {
            let label = format!("20/s beside kernels of {length} ms: {name}");
            rows.push(run.row(&label, &scenario, plan, |outcome| cells(outcome, &alone)));
        }
    }
    let scenario = run.base(60).shares(&[1, 1], &[Workload::train(30 * US, 50 * US), Workload::long(15 * MS)]);
    let plans = [
        ("turns, 16", Plan::Turns(16)),
        ("turns, 2", Plan::Turns(2)),
        ("ours, drained for 0.8 ms at most", drain(8)),
        ("ours", Plan::ours()),
    ];
    for (name, plan) in plans {
        rows.push(run.row(&format!("30 us against 15 ms: {name}"), &scenario, plan, |outcome| {
            let mut cells = vec![Cell::Nothing; 3];
            let off = [100 * MS, SECOND].map(|window_ns| format!("{:.1}", outcome.share_error(window_ns).mean));
            cells.push(Cell::Words(format!("off by {}", off.join("/"))));
            cells.extend([tenth(outcome.share_of(1)), Cell::Nothing, tenth(outcome.utilisation())]);
            cells
        }));
    }
    Table {
        name: "long",
        title: "Long kernels, which nobody can interrupt".into(),
        columns: columns(&HEADS),
        rows,
        note: "Of the last rows the share of the job with long kernels, and the mean distance from a half @100 ms/1 s.",
    }
}
