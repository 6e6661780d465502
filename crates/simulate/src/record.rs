//! What is written down while a scenario runs: who used the device when, and what each would have got from a device
//! that can be divided into arbitrarily small parts among those that have work (the fluid ideal).

/// Length of the pieces of time in which everything is counted: ten milliseconds, in nanoseconds.
pub const BIN_NS: u64 = 10_000_000;

/// The books of a run.
#[derive(Debug, Default)]
pub struct Record {
    used_ns: Vec<Vec<u64>>,
    total_ns: Vec<u64>,
    ideal_ns: Vec<Vec<f64>>,
    backlog: Vec<u32>,
    weights: Vec<u32>,
    counted_until_ns: u64,
}

impl Record {
    /// Books for so many processes, and for tenants of these weights.
    pub fn new(processes: usize, weights: Vec<u32>) -> Self {
        Self {
            used_ns: vec![Vec::new(); processes],
            total_ns: vec![0; processes],
            ideal_ns: vec![Vec::new(); weights.len()],
            backlog: vec![0; weights.len()],
            weights,
            counted_until_ns: 0,
        }
    }

    /// `process` had the device from `from_ns` to `to_ns`.
    pub fn used(&mut self, process: usize, from_ns: u64, to_ns: u64) {
        self.total_ns[process] += to_ns - from_ns;
        pieces(from_ns, to_ns, |bin, length_ns| *at(&mut self.used_ns[process], bin) += length_ns);
    }

    /// Device time that `process` has had.
    pub fn total_ns(&self, process: usize) -> u64 {
        self.total_ns[process]
    }

    /// Device time that `process` had in one piece of time.
    pub fn used_ns(&self, process: usize, bin: usize) -> u64 {
        self.used_ns[process].get(bin).copied().unwrap_or(0)
    }

    /// What `tenant` would ideally have had in one piece of time.
    pub fn ideal_ns(&self, tenant: usize, bin: usize) -> f64 {
        self.ideal_ns[tenant].get(bin).copied().unwrap_or(0.0)
    }

    /// One more process of `tenant` has work.
    pub fn begins(&mut self, tenant: usize, now_ns: u64) {
        self.count(now_ns);
        self.backlog[tenant] += 1;
    }

    /// One less has.
    pub fn ends(&mut self, tenant: usize, now_ns: u64) {
        self.count(now_ns);
        self.backlog[tenant] -= 1;
    }

    /// The weight of `tenant` is another from now on.
    pub fn weigh(&mut self, tenant: usize, weight: u32, now_ns: u64) {
        self.count(now_ns);
        self.weights[tenant] = weight;
    }

    /// Brings the ideal up to `now_ns`.
    pub fn count(&mut self, now_ns: u64) {
        let from_ns = std::mem::replace(&mut self.counted_until_ns, now_ns);
        let has_work = |tenant: usize| self.backlog[tenant] > 0;
        let sum: u32 = (0..self.weights.len()).filter(|tenant| has_work(*tenant)).map(|t| self.weights[t]).sum();
        for tenant in (0..self.weights.len()).filter(|tenant| has_work(*tenant)) {
            let share = f64::from(self.weights[tenant]) / f64::from(sum);
            let ideal_ns = &mut self.ideal_ns[tenant];
            pieces(from_ns, now_ns, |bin, length_ns| *at(ideal_ns, bin) += share * length_ns as f64);
        }
    }
}

/// Cuts a stretch of time at the borders of the bins.
fn pieces(from_ns: u64, to_ns: u64, mut each: impl FnMut(usize, u64)) {
    let mut from_ns = from_ns;
    while from_ns < to_ns {
        let bin = from_ns / BIN_NS;
        let end_ns = to_ns.min((bin + 1) * BIN_NS);
        each(usize::try_from(bin).unwrap_or(usize::MAX), end_ns - from_ns);
        from_ns = end_ns;
    }
}

fn at<T: Default + Clone>(bins: &mut Vec<T>, bin: usize) -> &mut T {
    if bins.len() <= bin {
        bins.resize(bin + 1, T::default());
    }
    &mut bins[bin]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_cut_at_the_borders() {
        let mut record = Record::new(1, vec![1]);
        record.used(0, BIN_NS - 3, 2 * BIN_NS + 5);
        let bins: Vec<_> = (0..4).map(|bin| record.used_ns(0, bin)).collect();
        assert_eq!(bins, [3, BIN_NS, 5, 0]);
        assert_eq!(record.total_ns(0), BIN_NS + 8);
    }

    #[test]
    fn the_ideal_is_divided_among_those_that_have_work() {
        let mut record = Record::new(2, vec![3, 1]);
        record.begins(0, 0);
        record.begins(1, BIN_NS);
        record.ends(0, 2 * BIN_NS);
        record.count(3 * BIN_NS);
        let of = |tenant| [0, 1, 2].map(|bin| record.ideal_ns(tenant, bin) / BIN_NS as f64);
        assert_eq!(of(0), [1.0, 0.75, 0.0]);
        assert_eq!(of(1), [0.0, 0.25, 1.0]);
    }
}
