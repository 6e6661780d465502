//! Whom to interrupt so that a job has room: the fewest; of those the lowest; of those the latest. Nobody when that isn't enough.

use crate::registry::TenantId;
use quota_core::Priority;

/// Jobs that are interrupted for one, at most.
pub(in crate::registry) const VICTIMS_MAX: usize = 16;
/// Sets that are looked at, at most; beyond that all are taken, and those left out that aren't needed.
const SETS_MAX: u32 = 20_000;

/// What is missing on a device, or what somebody would yield there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::registry) struct Amount {
    /// Bytes of memory.
    pub(in crate::registry) memory: u64,
    /// Guaranteed compute, in hundredths of a percent.
    pub(in crate::registry) guarantee: u32,
    /// Places among the jobs.
    pub(in crate::registry) places: u32,
}

/// Somebody who may be interrupted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::registry) struct Candidate {
    pub(in crate::registry) tenant: TenantId,
    pub(in crate::registry) class: Priority,
    /// In the order of what is missing.
    pub(in crate::registry) yields: Vec<Amount>,
}

impl Amount {
    fn covers(&self, missing: &Self) -> bool {
        self.memory >= missing.memory && self.guarantee >= missing.guarantee && self.places >= missing.places
    }

    fn plus(self, other: &Self) -> Self {
        Self {
            memory: self.memory.saturating_add(other.memory),
            guarantee: self.guarantee.saturating_add(other.guarantee),
            places: self.places.saturating_add(other.places),
        }
    }

    /// What is still missing when somebody yields so much.
    pub(in crate::registry) fn less(self, yielded: &Self) -> Self {
        Self {
            memory: self.memory.saturating_sub(yielded.memory),
            guarantee: self.guarantee.saturating_sub(yielded.guarantee),
            places: self.places.saturating_sub(yielded.places),
        }
    }

    pub(in crate::registry) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// True for one that brings some of what is missing.
    fn helps(&self, missing: &Self) -> bool {
        let helps = |has: u64, wanted: u64| has > 0 && wanted > 0;
        helps(self.memory, missing.memory)
            || helps(self.guarantee.into(), missing.guarantee.into())
            || helps(self.places.into(), missing.places.into())
    }
}

/// Whom to interrupt, by device of what is missing. The same question has the same answer.
pub(in crate::registry) fn choose(missing: &[Amount], mut candidates: Vec<Candidate>) -> Option<Vec<TenantId>> {
    if missing.iter().all(Amount::is_nothing) {
        return None;
    }
    let helps = |candidate: &Candidate| candidate.yields.iter().zip(missing).any(|(has, wanted)| has.helps(wanted));
    candidates.retain(helps);
    candidates.sort_by_key(|candidate| (candidate.class, core::cmp::Reverse(candidate.tenant)));
    let all: Vec<usize> = (0..candidates.len()).collect();
    if !is_enough(missing, &candidates, &all) {
        return None;
    }
    let mut sets = SETS_MAX;
    for count in 1..=candidates.len().min(VICTIMS_MAX) {
        for class in [Priority::Batch, Priority::Normal] {
            let low = candidates.iter().filter(|candidate| candidate.class <= class).count();
            let mut search = Search { missing, candidates: &candidates[..low], sets: &mut sets };
            if let Some(found) = search.first(count, 0, &mut Vec::new()) {
                return Some(tenants(&candidates, &found));
            }
        }
    }
    // Too many to look at: all but for whom it goes without, the small ones first.
    let mut taken = all;
    let mut small_first: Vec<usize> = (0..candidates.len()).rev().collect();
    small_first.sort_by_key(|at| candidates[*at].yields.iter().map(|has| has.memory).fold(0, u64::saturating_add));
    for at in small_first {
        let without: Vec<usize> = taken.iter().copied().filter(|other| *other != at).collect();
        if is_enough(missing, &candidates, &without) {
            taken = without;
        }
    }
    (taken.len() <= VICTIMS_MAX).then(|| tenants(&candidates, &taken))
}

struct Search<'a> {
    missing: &'a [Amount],
    candidates: &'a [Candidate],
    sets: &'a mut u32,
}

impl Search<'_> {
    /// The first set of `count` from `from` on, besides `taken`, that is enough; as deep as `count`, which is bounded.
    fn first(&mut self, count: usize, from: usize, taken: &mut Vec<usize>) -> Option<Vec<usize>> {
        if count == 0 {
            *self.sets = self.sets.checked_sub(1)?;
            return is_enough(self.missing, self.candidates, taken).then(|| taken.clone());
        }
        for at in from..(self.candidates.len() + 1).saturating_sub(count) {
            if *self.sets == 0 {
                return None;
            }
            taken.push(at);
            let found = self.first(count - 1, at + 1, taken);
            taken.pop();
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

fn is_enough(missing: &[Amount], candidates: &[Candidate], taken: &[usize]) -> bool {
    missing.iter().enumerate().all(|(device, wanted)| {
        let sum = taken.iter().fold(Amount::default(), |sum, at| sum.plus(&candidates[*at].yields[device]));
        sum.covers(wanted)
    })
}

fn tenants(candidates: &[Candidate], taken: &[usize]) -> Vec<TenantId> {
    taken.iter().map(|at| candidates[*at].tenant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Priority::{Batch, Normal};

    fn memory(memory: u64) -> Amount {
        Amount { memory, ..Amount::default() }
    }

    /// Who is chosen of those with a class and memory, numbered from 1 in order of arrival.
    fn chosen(missing: u64, jobs: &[(Priority, u64)]) -> Option<Vec<u64>> {
        let candidate = |(number, (class, bytes)): (u64, &(Priority, u64))| Candidate {
            tenant: TenantId(number),
            class: *class,
            yields: vec![memory(*bytes)],
        };
        let found = choose(&[memory(missing)], (1..).zip(jobs).map(candidate).collect());
        found.map(|found| found.into_iter().map(TenantId::number).collect())
    }

    #[test]
    fn the_fewest_then_the_lowest_then_the_latest() {
        assert_eq!(chosen(40, &[(Batch, 20), (Batch, 20), (Batch, 40)]), Some(vec![3]), "one instead of two");
        assert_eq!(chosen(40, &[(Normal, 40), (Batch, 40), (Normal, 50)]), Some(vec![2]), "the lowest");
        assert_eq!(chosen(40, &[(Batch, 40), (Batch, 90), (Batch, 10)]), Some(vec![2]), "the latest that is enough");
        assert_eq!(chosen(40, &[(Batch, 20), (Normal, 20), (Batch, 20)]), Some(vec![3, 1]), "no normal one for two");
        assert_eq!(chosen(50, &[(Batch, 20), (Normal, 30), (Batch, 20)]), Some(vec![3, 2]), "two, not three");
        assert_eq!(chosen(60, &[(Batch, 20), (Batch, 20), (Batch, 20)]), Some(vec![3, 2, 1]));
    }

    #[test]
    fn nobody_when_it_is_not_enough_or_nothing_is_missing() {
        assert_eq!(chosen(61, &[(Batch, 20), (Batch, 40)]), None);
        assert_eq!(chosen(0, &[(Batch, 20)]), None);
        assert_eq!(chosen(1, &[]), None);
        assert_eq!(chosen(1, &[(Batch, 0)]), None);
        let too_many = [(Batch, 1); VICTIMS_MAX + 1];
        assert_eq!(chosen(VICTIMS_MAX as u64 + 1, &too_many), None);
        assert_eq!(chosen(VICTIMS_MAX as u64, &too_many).map(|found| found.len()), Some(VICTIMS_MAX));
    }

    #[test]
    fn all_that_is_missing_on_all_devices_is_covered_and_nobody_taken_who_has_none_of_it() {
        let job = |number, yields| Candidate { tenant: TenantId(number), class: Batch, yields };
        let place = Amount { places: 1, ..Amount::default() };
        let missing = [memory(10), Amount { guarantee: 500, places: 1, ..Amount::default() }];
        let share = Amount { guarantee: 600, ..Amount::default() };
        let jobs = vec![
            job(1, vec![memory(10), place]),
            job(2, vec![Amount::default(), share]),
            job(3, vec![place, memory(99)]),
            job(4, vec![memory(9), place]),
        ];
        let found = choose(&missing, jobs.clone()).expect("there is one");
        assert_eq!(found, [TenantId(2), TenantId(1)]);
        assert_eq!(choose(&missing, jobs[1..].to_vec()), None);
    }

    /// Every small case against trying all sets.
    #[test]
    fn nobody_is_interrupted_who_needs_not_be() {
        for seed in 0..2_000u64 {
            let draw = |at: u64| (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left((at * 7) as u32) >> 40;
            let jobs: Vec<(Priority, u64)> =
                (0..6).map(|at| (if draw(at) % 2 == 0 { Batch } else { Normal }, draw(at + 10) % 50)).collect();
            let missing = draw(20) % 150 + 1;
            let sum = |set: u32| (0..6).filter(|at| set >> at & 1 == 1).map(|at| jobs[at as usize].1).sum::<u64>();
            let least = (0..64u32).filter(|set| sum(*set) >= missing).map(u32::count_ones).min();
            let found = chosen(missing, &jobs);
            assert_eq!(found.as_ref().map(|found| found.len() as u32), least, "{missing} of {jobs:?}");
            let bytes = |found: &[u64]| found.iter().map(|number| jobs[*number as usize - 1].1).sum::<u64>();
            assert!(found.is_none_or(|found| bytes(&found) >= missing));
        }
    }

    #[test]
    fn too_many_to_look_at_are_still_answered() {
        let mut jobs = vec![(Batch, 1); 60];
        jobs.push((Normal, 15));
        let found = chosen(30, &jobs).expect("they are enough");
        assert!(found.len() <= VICTIMS_MAX, "{found:?}");
    }
}
