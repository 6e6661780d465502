//! What came out of a run, and how far it is from what should have.

use crate::device::Device;
use crate::record::{BIN_NS, Record};
use crate::scenario::Scenario;
use crate::world::Job;
use quota_core::compute::Share;

/// The result of a run; tenants by their place in the scenario.
#[derive(Debug)]
pub struct Outcome {
    record: Record,
    tenants: Vec<Tenant>,
    first_bin: usize,
    bins: usize,
    switches: u64,
    switching_ns: u64,
    length_ns: u64,
}

#[derive(Debug, Default)]
struct Tenant {
    processes: Vec<usize>,
    answers_ns: Vec<u64>,
    kernels: u64,
    ended_ns: Option<u64>,
}

/// How far something was off, in percent points.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Off {
    /// On average.
    pub mean: f64,
    /// In all but one of a hundred cases.
    pub p99: f64,
    /// At worst.
    pub max: f64,
}

impl Outcome {
    pub(crate) fn new(scenario: &Scenario, record: Record, jobs: &[Job], device: &Device, shares: &[Share]) -> Self {
        let mut tenants: Vec<Tenant> = shares.iter().map(|_| Tenant::default()).collect();
        for (process, job) in jobs.iter().enumerate() {
            let tenant = &mut tenants[job.tenant];
            tenant.processes.push(process);
            tenant.kernels += job.kernels;
            tenant.ended_ns = tenant.ended_ns.max(job.exited_ns);
            let warm = job.answers.iter().filter(|(at_ns, _)| *at_ns >= scenario.warm_ns);
            tenant.answers_ns.extend(warm.map(|(_, took_ns)| took_ns));
        }
        for tenant in &mut tenants {
            tenant.answers_ns.sort_unstable();
        }
        let bin = |at_ns: u64| usize::try_from(at_ns / BIN_NS).unwrap_or(usize::MAX);
        let (first_bin, bins) = (bin(scenario.warm_ns), bin(scenario.until_ns));
        let (switches, switching_ns) = (device.switches(), device.switching_ns());
        Self { record, tenants, first_bin, bins, switches, switching_ns, length_ns: scenario.until_ns }
    }

    /// Device time of `tenant` between two times, as a fraction of the time; cut to whole bins.
    pub fn used(&self, tenant: usize, from_ns: u64, to_ns: u64) -> f64 {
        let bin = |at_ns: u64| usize::try_from(at_ns / BIN_NS).unwrap_or(usize::MAX);
        self.used_ns(tenant, bin(from_ns)..bin(to_ns)) as f64 / (to_ns - from_ns) as f64
    }

    /// Device time of `tenant` while it was measured, in percent of the time.
    pub fn use_of(&self, tenant: usize) -> f64 {
        percent(self.used_ns(tenant, self.first_bin..self.bins), self.measured_ns())
    }

    /// Device time of all, in percent of the time.
    pub fn utilisation(&self) -> f64 {
        (0..self.tenants.len()).map(|tenant| self.use_of(tenant)).sum()
    }

    /// What part of the time that was used was `tenant`'s, in percent.
    pub fn share_of(&self, tenant: usize) -> f64 {
        100.0 * self.use_of(tenant) / self.utilisation()
    }

    /// How far shares were from those of the fluid ideal, over windows of `window_ns`.
    pub fn share_error(&self, window_ns: u64) -> Off {
        let all = 0..self.tenants.len();
        Off::of(self.windows(window_ns).flat_map(|bins| {
            let used = all.clone().map(|tenant| self.used_ns(tenant, bins.clone()) as f64).collect::<Vec<_>>();
            let ideal = all.clone().map(|tenant| self.ideal_ns(tenant, bins.clone())).collect::<Vec<_>>();
            let (sum, ideal_sum): (f64, f64) = (used.iter().sum(), ideal.iter().sum());
            let parts = used.into_iter().zip(ideal).filter(move |_| sum > 0.0 && ideal_sum > 0.0);
            parts.map(move |(used, ideal)| 100.0 * (used / sum - ideal / ideal_sum).abs())
        }))
    }

    /// How far the use of `tenant` was from `percent` of the time, over windows of `window_ns`, either way.
    pub fn use_error(&self, tenant: usize, percent_wanted: f64, window_ns: u64) -> Off {
        Off::of(self.uses(tenant, window_ns).map(|used| (used - percent_wanted).abs()))
    }

    /// How far it was above.
    pub fn over_use(&self, tenant: usize, percent_wanted: f64, window_ns: u64) -> Off {
        Off::of(self.uses(tenant, window_ns).map(|used| used - percent_wanted))
    }

    /// The least that `tenant` got in a window of `window_ns`, in percent.
    pub fn least(&self, tenant: usize, window_ns: u64) -> f64 {
        self.uses(tenant, window_ns).fold(f64::INFINITY, f64::min)
    }

    /// How long answers took, in milliseconds: the `part`-th of a hundred.
    pub fn latency_ms(&self, tenant: usize, part: f64) -> f64 {
        let answers_ns = &self.tenants[tenant].answers_ns;
        let at = (answers_ns.len() as f64 * part / 100.0) as usize;
        answers_ns.get(at.min(answers_ns.len().saturating_sub(1))).map_or(f64::NAN, |took_ns| *took_ns as f64 / 1e6)
    }

    /// Kernels of `tenant` that have ended.
    pub fn kernels(&self, tenant: usize) -> u64 {
        self.tenants[tenant].kernels
    }

    /// Seconds until the last of `tenant`'s processes exited.
    pub fn ended_s(&self, tenant: usize) -> Option<f64> {
        self.tenants[tenant].ended_ns.map(|at_ns| at_ns as f64 / 1e9)
    }

    /// Seconds until everybody had exited.
    pub fn makespan_s(&self) -> Option<f64> {
        (0..self.tenants.len())
            .map(|tenant| self.ended_s(tenant))
            .try_fold(0.0, |most, ended| Some(f64::max(most, ended?)))
    }

    /// Times a second at which another context was loaded.
    pub fn switches_per_s(&self) -> f64 {
        self.switches as f64 * 1e9 / self.length_ns as f64
    }

    /// Time that went by in loading contexts, in percent.
    pub fn switching(&self) -> f64 {
        percent(self.switching_ns, self.length_ns)
    }

    /// Length of what was run.
    pub fn length_s(&self) -> f64 {
        self.length_ns as f64 / 1e9
    }

    fn uses(&self, tenant: usize, window_ns: u64) -> impl Iterator<Item = f64> {
        self.windows(window_ns).map(move |bins| percent(self.used_ns(tenant, bins), window_ns))
    }

    fn windows(&self, window_ns: u64) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let length = usize::try_from(window_ns / BIN_NS).unwrap_or(1).max(1);
        (self.first_bin..=self.bins.saturating_sub(length)).step_by(length).map(move |first| first..first + length)
    }

    fn used_ns(&self, tenant: usize, bins: std::ops::Range<usize>) -> u64 {
        let of = |process: &usize| bins.clone().map(|bin| self.record.used_ns(*process, bin)).sum::<u64>();
        self.tenants[tenant].processes.iter().map(of).sum()
    }

    fn ideal_ns(&self, tenant: usize, bins: std::ops::Range<usize>) -> f64 {
        bins.map(|bin| self.record.ideal_ns(tenant, bin)).sum()
    }

    fn measured_ns(&self) -> u64 {
        (self.bins - self.first_bin) as u64 * BIN_NS
    }
}

impl Off {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let Some(max) = values.last().copied() else { return Self::default() };
        let at = (values.len() as f64 * 0.99) as usize;
        Self { mean: values.iter().sum::<f64>() / values.len() as f64, p99: values[at.min(values.len() - 1)], max }
    }
}

fn percent(part_ns: u64, whole_ns: u64) -> f64 {
    part_ns as f64 / whole_ns as f64 * 100.0
}
