//! The scenarios of the tables and of the tests.

use crate::policy::Plan;
use crate::scenario::{Scenario, TenantPlan};
use crate::workload::{Arrivals, Wait, Workload};
use quota_core::{Percent, Priority};

/// A microsecond in nanoseconds.
pub const US: u64 = 1_000;
/// A millisecond in nanoseconds.
pub const MS: u64 = 1_000_000;
/// A second in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;

/// Names of tenants that have none of their own.
const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/// Where a run begins: its seed, and how many seconds are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// All chance comes from it.
    pub seed: u64,
    /// Seconds after the warm-up.
    pub seconds: u64,
}

impl Base {
    /// A scenario with these tenants.
    pub fn scenario(&self, tenants: Vec<TenantPlan>) -> Scenario {
        Scenario::new(self.seed, self.seconds + 2, tenants)
    }

    /// Trainers with these weights; their kernels' median, and their CPU time each tenth of a second.
    pub fn weights(&self, weights: &[u32], median_ns: u64, gap_ns: u64) -> Scenario {
        self.shares(weights, &vec![Workload::train(median_ns, gap_ns); weights.len()])
    }

    /// Jobs with these weights.
    pub fn shares(&self, weights: &[u32], workloads: &[Workload]) -> Scenario {
        let tenants = weights.iter().zip(workloads).zip(NAMES);
        self.scenario(tenants.map(|((weight, job), name)| TenantPlan::new(name, *job).weight(weight * 100)).collect())
    }

    /// Trainers with these caps in percent.
    pub fn caps(&self, caps: &[u32], workload: Workload) -> Scenario {
        let tenants = caps.iter().zip(NAMES);
        self.scenario(tenants.map(|(cap, name)| TenantPlan::new(name, workload).cap(*cap).weight(*cap)).collect())
    }

    /// A service of the high class, 4 ms a request, alone.
    pub fn service_alone(&self, arrivals: Arrivals) -> Scenario {
        self.scenario(vec![TenantPlan::new("service", Workload::serve(arrivals)).class(Priority::High).weight(900)])
    }

    /// The same beside a batch job.
    pub fn service(&self, arrivals: Arrivals, beside: Workload) -> Scenario {
        let mut scenario = self.service_alone(arrivals);
        scenario.tenants.push(TenantPlan::new("batch", beside).class(Priority::Batch));
        scenario
    }

    /// Two batch jobs that compute on the CPU and on the device in turn, in phase.
    pub fn in_phase(&self, rounds: u64, class: Priority) -> Scenario {
        let job = Workload::Alternate { rounds, cpu_ns: 400 * MS, device_ns: 400 * MS, median_ns: 300 * US };
        let tenants = ["a", "b"].map(|name| TenantPlan::new(name, job).class(class));
        Scenario { until_ns: rounds * 5 * SECOND, warm_ns: 0, ..self.scenario(tenants.to_vec()) }
    }

    /// One with a guarantee of 40 % against seven with ten times its weight.
    pub fn guarantee(&self) -> Scenario {
        let busy = Workload::train(200 * US, 50 * US);
        let mut tenants = vec![TenantPlan::new("guaranteed", busy).guarantee(40)];
        tenants.extend(NAMES.iter().take(7).map(|name| TenantPlan::new(name, busy).weight(1000)));
        self.scenario(tenants)
    }

    /// An honest trainer beside somebody who tries to get more than half.
    pub fn adversary(&self, adversary: Adversary) -> Scenario {
        let honest = TenantPlan::new("honest", Workload::train(200 * US, 50 * US));
        let (workload, processes) = adversary.workload();
        let mut scenario = self.scenario(vec![honest, TenantPlan::new("adversary", workload).processes(processes)]);
        if adversary == Adversary::Mispredicted {
            // Lengths vary tenfold behind one name, so that predictions say next to nothing.
            scenario.misprediction = 900;
        }
        scenario
    }

    /// A trainer on several streams beside one on a single stream.
    pub fn streams(&self, streams: usize) -> Scenario {
        let many = Workload::Streams { streams, median_ns: 200 * US, count: 100 };
        self.shares(&[1, 1], &[Workload::train(200 * US, 50 * US), many])
    }
}

/// Somebody who tries to get more than it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Adversary {
    /// Never waits for the device, and launches as far ahead as it is let.
    NeverWaits,
    /// Has sixteen processes, each with a context of its own.
    ManyProcesses,
    /// Comes back as soon as a turn is over, after it has used it up.
    Edges,
    /// One giant kernel, a pause, and again.
    Giant,
    /// Waits for every kernel.
    EachAwaited,
    /// Kernels whose length cannot be foreseen.
    Mispredicted,
    /// Kernels so short that launching takes as long.
    Tiny,
}

impl Adversary {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NeverWaits,
        Self::ManyProcesses,
        Self::Edges,
        Self::Giant,
        Self::EachAwaited,
        Self::Mispredicted,
        Self::Tiny,
    ];

    /// What it does, for a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::NeverWaits => "never waits, launches ahead without end",
            Self::ManyProcesses => "16 processes",
            Self::Edges => "sleeps briefly at the edge of each turn",
            Self::Giant => "one kernel of 200 ms, 50 ms of nothing",
            Self::EachAwaited => "waits for every kernel of 200 us",
            Self::Mispredicted => "predictions wrong by up to 90 %",
            Self::Tiny => "kernels of 8 us",
        }
    }

    /// Whether it wants the device all the time, so that half of it is its due.
    pub fn is_saturating(self) -> bool {
        matches!(self, Self::NeverWaits | Self::ManyProcesses | Self::Mispredicted)
    }

    fn workload(self) -> (Workload, usize) {
        let steady =
            |kernel_ns, count, gap_ns, waits| Workload::Steady { kernel_ns, jitter: 100, count, gap_ns, waits };
        match self {
            Self::NeverWaits => (steady(200 * US, 1_000, 0, Wait::Never), 1),
            Self::ManyProcesses => (Workload::train(200 * US, 50 * US), 16),
            Self::Edges => (steady(200 * US, 15, 150 * US, Wait::Round), 1),
            Self::Giant => (steady(200 * MS, 1, 50 * MS, Wait::Round), 1),
            Self::EachAwaited => (steady(200 * US, 1_000, 0, Wait::Each), 1),
            Self::Mispredicted => (Workload::train(200 * US, 50 * US), 1),
            Self::Tiny => (steady(8 * US, 1_000, 50 * US, Wait::Round), 1),
        }
    }
}

/// The scenario as `plan` can be set up for it: who only knows caps is given shares as caps.
pub fn suited(mut scenario: Scenario, plan: Plan) -> Scenario {
    let sum: u32 = scenario.tenants.iter().map(|tenant| tenant.share.weight).sum();
    for tenant in scenario.tenants.iter_mut().filter(|_| plan.needs_caps()) {
        let share = Percent::from_hundredths(10_000 * tenant.share.weight / sum);
        tenant.share.cap = tenant.share.cap.or(share);
    }
    scenario
}
