//! A cap that several jobs have together: each has a part by weight, and what one doesn't use of its part the others may, for
//! as long as it doesn't.
//!
//! Nobody's own part becomes smaller by that. So a job that comes back has its part at once, and until the others' loans end,
//! a look later, all of them together may have as much too much as was lent of it. Over more than a few looks they don't: what
//! is kept for a job falls more slowly than its use ([`Demand::after`]).

/// Least of the device's time that is kept for a job that uses less: a hundredth, in hundredths of a percent.
const KEPT_MIN: u32 = 100;

/// What one of them has; in hundredths of a percent of the device's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Weight among them.
    pub weight: u32,
    /// Its own part.
    pub own: u32,
    /// Most that it may have, with what it borrows.
    pub most: u32,
    /// The cap of all together. What is nobody's part of it is unused, too.
    pub all: u32,
}

/// How much of its part a job needs, as far as has been seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Demand {
    /// All, and more if there is more. Also before anything was seen.
    #[default]
    More,
    /// No more than so much is kept for it.
    Kept(u32),
}

impl Demand {
    /// After a while in which it used `used` hundredths of a percent; none where it was at work and nothing has been measured
    /// yet. `waits` says that it waited for credit.
    #[must_use]
    pub fn after(self, part: &Part, used: Option<u32>, waits: bool) -> Self {
        let Some(used) = used else { return if waits { Self::More } else { self } };
        if waits || u64::from(used) * 10 >= u64::from(part.own) * 9 {
            return Self::More;
        }
        let before = match self {
            Self::More => part.own,
            Self::Kept(kept) => kept.min(part.own),
        };
        let kept = (used / 4 + used).max(before / 4 * 3).max(KEPT_MIN.max(part.own / 10));
        Self::Kept(kept.min(part.own))
    }
}

/// What each may use for now, at least its own part.
pub fn lend(jobs: &[(Part, Demand)]) -> Vec<u32> {
    let own = |(part, _): &(Part, Demand)| part.own;
    let all = jobs.iter().map(|(part, _)| part.all).min().unwrap_or(0);
    let kept = |(part, demand): &(Part, Demand)| match demand {
        Demand::More => part.own,
        Demand::Kept(kept) => part.own.min(*kept),
    };
    let unused = all.saturating_sub(jobs.iter().map(kept).sum());
    let claims: Vec<(u32, Option<u32>)> = jobs
        .iter()
        .map(|(part, demand)| match demand {
            Demand::More => (part.weight, Some(part.most.saturating_sub(part.own))),
            Demand::Kept(_) => (0, None),
        })
        .collect();
    jobs.iter().map(own).zip(shares(unused, &claims)).map(|(own, more)| own + more).collect()
}

/// `all` divided by weight among claims, none of which gets more than its cap; what one can't take the others get.
pub fn shares(all: u32, claims: &[(u32, Option<u32>)]) -> Vec<u32> {
    let mut shares = vec![0; claims.len()];
    let mut open: Vec<usize> = (0..claims.len()).filter(|at| claims[*at].0 > 0).collect();
    let mut left = all;
    // Each round but the last settles one who is at its cap.
    while !open.is_empty() {
        let weights: u64 = open.iter().map(|at| u64::from(claims[*at].0)).sum();
        let part = |at: usize| (u64::from(left) * u64::from(claims[at].0) / weights) as u32;
        let capped = open.iter().copied().find(|at| claims[*at].1.is_some_and(|cap| cap < part(*at)));
        let Some(at) = capped else {
            open.iter().for_each(|at| shares[*at] = part(*at));
            break;
        };
        shares[at] = claims[at].1.unwrap_or_default();
        left -= shares[at];
        open.retain(|other| *other != at);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(weight: u32, own: u32) -> Part {
        Part { weight, own, most: 6000, all: 6000 }
    }

    #[test]
    fn what_one_cannot_take_the_others_get() {
        assert_eq!(shares(6000, &[(100, None), (200, None)]), [2000, 4000]);
        assert_eq!(shares(6000, &[(100, None), (100, Some(1000)), (100, None)]), [2500, 1000, 2500]);
        assert_eq!(shares(6000, &[(100, Some(500)), (100, Some(1000))]), [500, 1000], "nobody takes the rest");
        assert_eq!(shares(6000, &[(0, None), (1, None)]), [0, 6000]);
        assert_eq!(shares(0, &[(5, None)]), [0]);
        assert_eq!(shares(100, &[]), [0; 0]);
    }

    #[test]
    fn what_isnt_used_is_lent_by_weight_and_no_further_than_allowed() {
        let idle = Demand::Kept(300);
        assert_eq!(lend(&[(part(1, 3000), Demand::More), (part(1, 3000), idle)]), [5700, 3000]);
        assert_eq!(
            lend(&[(part(1, 2000), Demand::More), (part(3, 2000), Demand::More), (part(1, 2000), idle)]),
            [2425, 3275, 2000]
        );
        let narrow = Part { most: 3500, ..part(1, 3000) };
        assert_eq!(lend(&[(narrow, Demand::More), (part(1, 3000), idle)]), [3500, 3000]);
        assert_eq!(lend(&[(part(1, 3000), Demand::More), (part(1, 3000), Demand::More)]), [3000, 3000], "all is used");
        assert_eq!(lend(&[(part(1, 3000), idle), (part(1, 3000), idle)]), [3000, 3000], "nobody wants it");
        assert_eq!(lend(&[(part(1, 3000), Demand::More)]), [6000], "the other has not come yet");
        assert_eq!(lend(&[]), [0; 0]);
    }

    #[test]
    fn a_job_that_uses_its_part_or_waits_wants_more() {
        let part = part(1, 3000);
        assert_eq!(Demand::Kept(300).after(&part, Some(2700), false), Demand::More);
        assert_eq!(Demand::Kept(300).after(&part, Some(0), true), Demand::More);
        assert_eq!(Demand::Kept(300).after(&part, None, true), Demand::More);
        assert_eq!(Demand::Kept(2000).after(&part, None, false), Demand::Kept(2000), "its kernel has not ended yet");
        assert_eq!(Demand::Kept(300).after(&part, Some(2000), false), Demand::Kept(2500));
        assert_eq!(Demand::More.after(&part, Some(0), false), Demand::Kept(2250), "it falls slowly");
        let idle = (0..20).fold(Demand::More, |demand, _| demand.after(&part, Some(0), false));
        assert_eq!(idle, Demand::Kept(300));
        let tiny = Part { own: 50, ..part };
        let idle = (0..20).fold(Demand::More, |demand, _| demand.after(&tiny, Some(0), false));
        assert_eq!(idle, Demand::Kept(50));
    }

    /// However one job comes and goes, with another that takes all it may: together they keep to the cap.
    #[test]
    fn together_they_keep_to_the_cap_over_more_than_a_few_looks() {
        for (busy, pause) in [(1, 0), (1, 1), (1, 5), (1, 12), (3, 30), (20, 20), (1, 100)] {
            let part = part(1, 3000);
            let (mut one, mut both, mut lent) = (Demand::More, 0u64, 0);
            let looks = 10 * (busy + pause);
            for look in 0..looks {
                let used = if look % (busy + pause) < busy { part.own } else { 0 };
                let now = lend(&[(part, one), (part, Demand::More)]);
                assert!(now.iter().all(|may| *may >= part.own));
                lent = lent.max(now[1] - part.own);
                both += u64::from(used + now[1]);
                one = one.after(&part, Some(used), false);
            }
            assert!(both <= 6000 * looks, "{busy} of {}: {} of 6000", busy + pause, both / looks);
            assert_eq!(lent > 0, pause > 0, "{busy} of {}", busy + pause);
        }
    }
}
