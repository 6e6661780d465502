//! How long a turn lasts and how early it may be handed over, from what changing hands was measured to cost.

use super::Quantum;

/// Shortest turn.
const QUANTUM_MIN_NS: u64 = 1_000_000;
/// Shortest turn that is chosen here. What changing hands costs is seen less of the better it goes: the next is let in early,
/// and the end of the last one's work is seen later than it was. Eight busy jobs lost 3.7 % with turns as short as that said.
const ADAPTIVE_MIN_NS: u64 = 3_000_000;
/// Longest turn that is chosen here.
const ADAPTIVE_MAX_NS: u64 = 20_000_000;
/// Longest turn that can be asked for.
const FIXED_MAX_NS: u64 = 1_000_000_000;
/// A turn lasts so many times what changing hands costs, which then is a fiftieth of the time.
const COSTS_PER_TURN: u64 = 50;
/// The cost that is assumed until one was measured: that of turns of 3 ms.
const COST_START_NS: u64 = 60_000;
/// What the device itself needs for taking up another context when nothing of the one before is left. It comes after the
/// launch, where it isn't seen from here; the model's figure.
const DEVICE_SWITCH_NS: u64 = 30_000;
/// The most that one measurement counts for: beyond it, something else was in the way than changing hands.
const SAMPLE_MAX_NS: u64 = 2_000_000;
/// What a thread that has gone through its gate still does before its launch is with the device.
const LAUNCH_NS: u64 = 20_000;
/// The most by which the next is let in early. Its launches would else meet the end of the other's work.
const LEAD_MAX_NS: u64 = 300_000;
/// Each measurement moves the mean by an eighth of the difference.
const MEAN_SHIFT: u32 = 3;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// From the end of the one's work until the other's runs, in eighths of a nanosecond.
    cost: u64,
    /// From the opening of a gate to the first launch, in eighths of a nanosecond.
    latency: Option<u64>,
}

impl Pace {
    /// Nothing measured yet.
    pub(super) fn new() -> Self {
        Self { cost: COST_START_NS << MEAN_SHIFT, latency: None }
    }

    /// From the end of the one's work to the other's first launch went so many nanoseconds.
    pub(super) fn cost_was(&mut self, cost_ns: u64) {
        self.cost = mean(self.cost, cost_ns.saturating_add(DEVICE_SWITCH_NS));
    }

    /// From the opening of a gate to the first launch went so many nanoseconds.
    pub(super) fn latency_was(&mut self, latency_ns: u64) {
        let first = latency_ns.min(SAMPLE_MAX_NS) << MEAN_SHIFT;
        self.latency = Some(self.latency.map_or(first, |latency| mean(latency, latency_ns)));
    }

    /// Length of a turn.
    pub(super) fn quantum_ns(&self, quantum: Quantum) -> u64 {
        match quantum {
            Quantum::Adaptive => ((self.cost >> MEAN_SHIFT) * COSTS_PER_TURN).clamp(ADAPTIVE_MIN_NS, ADAPTIVE_MAX_NS),
            Quantum::Fixed(ns) => ns.clamp(QUANTUM_MIN_NS, FIXED_MAX_NS),
        }
    }

    /// How long before the end of the one's work the other's gate may be opened.
    pub(super) fn lead_ns(&self) -> u64 {
        self.latency.map_or(0, |latency| (latency >> MEAN_SHIFT) + LAUNCH_NS).min(LEAD_MAX_NS)
    }
}

fn mean(mean: u64, sample_ns: u64) -> u64 {
    mean - (mean >> MEAN_SHIFT) + sample_ns.min(SAMPLE_MAX_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_fifty_times_what_changing_hands_costs() {
        let mut pace = Pace::new();
        assert_eq!(pace.quantum_ns(Quantum::Adaptive), 3_000_000);
        for (cost, quantum) in [(0, 3_000_000), (70_000, 5_000_000), (u64::MAX, 20_000_000), (30_000, 3_000_000)] {
            (0..200).for_each(|_| pace.cost_was(cost));
            let got = pace.quantum_ns(Quantum::Adaptive);
            assert!(got.abs_diff(quantum) <= 1000, "{cost}: {got}");
        }
        assert_eq!(pace.quantum_ns(Quantum::Fixed(7_000_000)), 7_000_000);
        assert_eq!(pace.quantum_ns(Quantum::Fixed(0)), 1_000_000);
        assert_eq!(pace.quantum_ns(Quantum::Fixed(u64::MAX)), 1_000_000_000);
    }

    #[test]
    fn the_lead_is_the_mean_latency_with_the_launch_and_bounded() {
        let mut pace = Pace::new();
        assert_eq!(pace.lead_ns(), 0, "nothing is opened early before something was measured");
        pace.latency_was(40_000);
        assert_eq!(pace.lead_ns(), 60_000);
        (0..200).for_each(|_| pace.latency_was(90_000));
        assert!(pace.lead_ns().abs_diff(110_000) < 100);
        (0..200).for_each(|_| pace.latency_was(u64::MAX));
        assert_eq!(pace.lead_ns(), 300_000);
    }
}
