//! Device time as it is shown: what processes claim, and the share of the last second that follows from it.

use crate::registry::{ConnectionId, Registry, Usage};
use quota_core::Percent;
use std::collections::{HashMap, VecDeque};

/// The period of which a share is told.
const PERIOD_NS: u64 = 1_000_000_000;
/// Shortest time that says something about a share: some tens of turns.
const PERIOD_NS_MIN: u64 = 100_000_000;
/// Looks that are kept of a process on a device: enough to have one about a second old, however often people look.
const LOOKS_MAX: usize = 16;
/// Least time between two looks that are kept: with `LOOKS_MAX`, the oldest is more than a period old.
const APART_NS_MIN: u64 = 100_000_000;

/// What a process claims of its use of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ComputeClaim {
    /// Device time it used, while that was counted.
    pub busy_ns: u64,
    /// Time in which it waited for the token.
    pub waited_ns: u64,
    /// Time in which it waited for credit under its cap.
    pub throttled_ns: u64,
    /// Threads that wait for the token now.
    pub waiting: u32,
    /// Threads that wait for credit now.
    pub throttled: u32,
    /// Something is under way.
    pub under_way: bool,
    /// What it may use beyond its cap for now, of what its tenant's other jobs leave; the arbiter's word.
    pub borrowed: Option<Percent>,
    /// Its use is counted now; it is not while it has the device for itself.
    pub counted: bool,
}

/// What was seen of the use of devices, so that a share of a time can be told.
#[derive(Debug, Default)]
pub struct Shares {
    looks: HashMap<(ConnectionId, usize), VecDeque<(u64, u64)>>,
}

impl Shares {
    /// Keeps what all members claim now. What isn't counted is forgotten: a share over a time of which a part was not
    /// counted would be too small.
    pub fn note(&mut self, registry: &Registry, usage: &dyn Usage, now_ns: u64) {
        let mut looks = HashMap::new();
        for member in registry.members() {
            for device in 0..registry.devices().len() {
                let claim = usage.compute(member.tenant, member.slot, device).filter(|claim| claim.counted);
                let Some(claim) = claim else { continue };
                let key = (member.connection, device);
                let mut of_one = self.looks.remove(&key).unwrap_or_default();
                push(&mut of_one, claim.busy_ns, now_ns);
                looks.insert(key, of_one);
            }
        }
        self.looks = looks;
    }

    /// The share of a device's time that a member used in the last second, in percent; none where not enough was seen.
    pub fn percent(&self, connection: ConnectionId, device: usize, busy_ns: u64, now_ns: u64) -> Option<f64> {
        let looks = self.looks.get(&(connection, device))?;
        let usable = looks.iter().filter(|(at_ns, _)| now_ns.saturating_sub(*at_ns) >= PERIOD_NS_MIN);
        let (at_ns, before_ns) = usable.min_by_key(|(at_ns, _)| (now_ns - at_ns).abs_diff(PERIOD_NS))?;
        let used_ns = busy_ns.saturating_sub(*before_ns) as f64;
        Some(tenths((used_ns / (now_ns - at_ns) as f64 * 100.0).min(100.0)))
    }
}

fn push(looks: &mut VecDeque<(u64, u64)>, busy_ns: u64, now_ns: u64) {
    // A counter that goes backwards is a lie, or another process.
    if looks.back().is_some_and(|(_, before_ns)| *before_ns > busy_ns) {
        looks.clear();
    }
    if looks.back().is_some_and(|(at_ns, _)| now_ns.saturating_sub(*at_ns) < APART_NS_MIN) {
        return;
    }
    looks.push_back((now_ns, busy_ns));
    if looks.len() > LOOKS_MAX {
        looks.pop_front();
    }
}

/// A percentage with one decimal.
pub fn tenths(percent: f64) -> f64 {
    (percent * 10.0).round() / 10.0
}

/// Nanoseconds as seconds, to the millisecond; no more than the machine has run.
pub fn seconds(time_ns: u64, now_ns: u64) -> f64 {
    (time_ns.min(now_ns) / 1_000_000) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn shares(looks: &[(u64, u64)]) -> Shares {
        let mut kept = VecDeque::new();
        for (at_ms, busy_ms) in looks {
            push(&mut kept, busy_ms * MS, at_ms * MS);
        }
        Shares { looks: HashMap::from([((ConnectionId(1), 0), kept)]) }
    }

    #[test]
    fn a_share_is_of_the_last_second_or_of_what_was_seen_of_it() {
        let percent = |looks: &[(u64, u64)], busy_ms: u64, now_ms: u64| {
            shares(looks).percent(ConnectionId(1), 0, busy_ms * MS, now_ms * MS)
        };
        assert_eq!(percent(&[(0, 0), (1000, 900), (2000, 1000)], 1250, 3000), Some(25.0), "the burst is long over");
        assert_eq!(percent(&[(1000, 0)], 150, 1200), Some(75.0), "all that was seen");
        assert_eq!(percent(&[(1000, 0)], 50, 1050), None, "too little");
        assert_eq!(percent(&[], 50, 1050), None);
        assert_eq!(percent(&[(1000, 0)], u64::MAX / MS, 2000), Some(100.0), "a claim");
        assert_eq!(percent(&[(0, 500), (1000, 100)], 200, 2000), Some(10.0), "another process");
    }

    #[test]
    fn looks_are_bounded_however_often_somebody_looks() {
        let looks: Vec<(u64, u64)> = (0..10_000).map(|at| (at, at / 2)).collect();
        let shares = shares(&looks);
        assert!(shares.looks.values().all(|looks| looks.len() <= LOOKS_MAX));
        assert_eq!(shares.percent(ConnectionId(1), 0, 5000 * MS, 10_000 * MS), Some(50.0));
    }
}
