//! Ours without one of its rules at a time: why each is there.

use super::{Cell, Row, Run, Table, columns, fine, tenth};
use crate::policy::Plan;
use crate::policy::ours::Options;
use crate::scenarios::{MS, SECOND, US};
use crate::workload::{Arrivals, Workload};
use quota_core::compute::scheduler::Quantum;

type Change = fn(&mut Options);

const CHANGES: [(&str, Change); 14] = [
    ("as it is", |_| {}),
    ("no linger", |options| options.rules.linger_ns = 0),
    ("linger 1 ms", |options| options.rules.linger_ns = MS),
    ("drained for 0.8 ms at most", |options| options.rules.drain_max_ns = 800 * US),
    ("who wakes up takes no turn from another", |options| options.rules.wake_grain_ns = None),
    ("turns of 50 ms", |options| options.rules.quantum = Quantum::Fixed(50 * MS)),
    ("and who wakes up takes none from another", |options| {
        (options.rules.quantum, options.rules.wake_grain_ns) = (Quantum::Fixed(50 * MS), None);
    }),
    ("higher classes wait, too", |options| options.rules.preemption = false),
    ("ends are not announced", |options| options.announced_up_to_ns = 0),
    ("all ends are announced", |options| options.announced_up_to_ns = u64::MAX),
    ("room for the whole of the next kernel", |options| options.strict_room = true),
    ("no credit needed for what is under way", |options| options.reserves = false),
    ("1 ms ahead beside a service", |options| options.ahead_beside_high_ns = MS),
    ("5 ms ahead beside an idle service", |options| options.ahead_beside_high_ns = 5 * MS),
];

const HEADS: [&str; 13] = [
    "",
    "3:1 @100 ms",
    "@1 s",
    "util.",
    "8: util.",
    "pauses: share",
    "mixed @100 ms",
    "@1 s",
    "util.",
    "cap @100 ms",
    "20/s p50",
    "p99",
    "batch %",
];

pub(super) fn reasons(run: &Run<'_>) -> Table {
    let base = run.base(60);
    let busy = Workload::train(200 * US, 50 * US);
    let scenarios = [
        base.weights(&[3, 1], 200 * US, 50 * US),
        base.weights(&[1; 8], 200 * US, 50 * US),
        base.weights(&[3, 1], 200 * US, 3 * MS),
        base.shares(&[1, 1], &[Workload::train(30 * US, 50 * US), Workload::long(15 * MS)]),
        base.caps(&[30], busy),
        base.service(Arrivals::Poisson(20.0), Workload::train_short(300 * US, 50 * US)),
    ];
    let rows = CHANGES.map(|(label, change)| {
        let mut options = Options::default();
        change(&mut options);
        let plan = Plan::Ours(options);
        let [weights, eight, pauses, mixed, cap, service] =
            scenarios.each_ref().map(|scenario| run.simulate(label, scenario, plan));
        let cells: Vec<Cell> = vec![
            fine(weights.share_error(100 * MS).mean),
            fine(weights.share_error(SECOND).mean),
            tenth(weights.utilisation()),
            tenth(eight.utilisation()),
            tenth(pauses.share_of(0)),
            fine(mixed.share_error(100 * MS).mean),
            fine(mixed.share_error(SECOND).mean),
            tenth(mixed.utilisation()),
            fine(cap.use_error(0, 30.0, 100 * MS).mean),
            fine(service.latency_ms(0, 50.0)),
            fine(service.latency_ms(0, 99.0)),
            tenth(service.use_of(1)),
        ];
        Row { label: label.into(), cells }
    });
    Table {
        name: "reasons",
        title: "Ours without one of its rules at a time: mean of how far shares are off, utilisation, latency in ms"
            .into(),
        columns: columns(&HEADS),
        rows: rows.to_vec(),
        note: "Pauses: 3:1 with 3 ms of CPU each tenth of a second. Mixed: kernels of 30 us against 15 ms. Cap: 30 alone.",
    }
}
