//! How long a piece of work will take, from how long it took before.
//!
//! An estimate is one word, so that a table of them needs no lock. It follows what is measured of the work alone at a fifth
//! a time, and at half a time where it is off by more than twofold: what was wrong by ten is right to a half within six measurements,
//! and a single odd one does little and is soon forgotten. Where several launches were measured together, each is corrected in proportion.

/// What a launch is taken for that nobody has seen yet, in nanoseconds.
pub const UNKNOWN_NS: u64 = 100_000;
/// Sightings that are measured one by one, before an estimate is trusted.
pub const SIGHTINGS_ALONE: u64 = 4;

/// Bits of the word that are nanoseconds: an hour and more.
const NS_BITS: u32 = 42;
const NS_MAX: u64 = (1 << NS_BITS) - 1;
const SEEN_MAX: u64 = (1 << (64 - NS_BITS)) - 1;
/// Shortest estimate: what a launch takes that does nothing.
const NS_MIN: u64 = 500;
/// By how much more than known one measurement is believed to be: a kernel that had to wait for another context's turn says
/// nothing of the next.
const RISE_MAX: u64 = 4;
/// By how much less, where several launches were measured together.
const FALL_MAX: u64 = 16;
/// The largest ratio of measured and predicted that is looked at, in 65,536ths.
const RATIO_MAX: u64 = 64 << 16;

/// What is known of one piece of work. The word 0 is one that nobody has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Estimate(u64);

/// What was predicted when several launches were made that are measured together, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Predicted {
    /// Of one of them.
    pub own_ns: u64,
    /// Of all.
    pub all_ns: u64,
}

impl Estimate {
    /// From [`Estimate::word`]; any word is one.
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// As a word.
    pub fn word(self) -> u64 {
        self.0
    }

    /// How long it will take, in nanoseconds.
    pub fn ns(self) -> u64 {
        if self.0 == 0 { UNKNOWN_NS } else { self.0 & NS_MAX }
    }

    /// How often it was measured.
    pub fn seen(self) -> u64 {
        self.0 >> NS_BITS
    }

    /// True once it has been measured often enough to be relied upon.
    pub fn is_known(self) -> bool {
        self.seen() >= SIGHTINGS_ALONE
    }

    /// After it was measured, with nothing beside it.
    #[must_use]
    pub fn measured(self, ns: u64) -> Self {
        let ns = ns.clamp(NS_MIN, NS_MAX);
        let seen = self.seen();
        let before = self.ns();
        let next = if seen < SIGHTINGS_ALONE {
            // The mean of the first few, unless one of them was far longer than the shortest: that is the one which
            // waited for something, as the first launch does for its code.
            if seen == 0 || ns < before / 2 { ns } else { towards(before, ns.min(before * 2), 1, seen + 1) }
        } else {
            let ns = ns.min(before.saturating_mul(RISE_MAX));
            towards(before, ns, if is_far(before, ns) { 5 } else { 2 }, 10)
        };
        Self::new(next, seen + 1)
    }

    /// After it was measured while something else ran as well: that is more than it took, so it only ever lowers what is
    /// known.
    #[must_use]
    pub fn at_most(self, ns: u64) -> Self {
        let ns = ns.clamp(NS_MIN, NS_MAX);
        let next = if self.0 == 0 || ns < self.ns() / 2 { ns } else { towards(self.ns(), ns.min(self.ns()), 5, 10) };
        Self::new(next, self.seen() + 1)
    }

    /// After several launches, this one among them, took `ns` together.
    ///
    /// What was predicted of them was so when they were launched. Others that were launched then may have been measured since:
    /// where all of them were wrong in the same way, each corrects what is known by the same target, not by the same factor.
    #[must_use]
    pub fn measured_among(self, predicted: Predicted, ns: u64) -> Self {
        let before = self.ns();
        // In 65,536ths; a segment has many launches, so this divides but once, and in 64 bits.
        let ratio = (ns.min(NS_MAX) << 16) / predicted.all_ns.max(1);
        let own = predicted.own_ns.min(NS_MAX).saturating_mul(ratio.min(RATIO_MAX)) >> 16;
        let own = own.clamp(before / FALL_MAX, before.saturating_mul(RISE_MAX));
        Self::new(towards(before, own, if is_far(before, own) { 5 } else { 2 }, 10), self.seen())
    }

    fn new(ns: u64, seen: u64) -> Self {
        Self(seen.min(SEEN_MAX) << NS_BITS | ns.clamp(NS_MIN, NS_MAX))
    }
}

/// Off by more than twofold.
fn is_far(before: u64, now: u64) -> bool {
    now > before.saturating_mul(2) || now < before / 2
}

/// `part` of `whole` of the way from one to the other.
fn towards(from: u64, to: u64, part: u64, whole: u64) -> u64 {
    let way = from.abs_diff(to) / whole * part + from.abs_diff(to) % whole * part / whole;
    if to > from { from.saturating_add(way) } else { from.saturating_sub(way) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(measurements: &[u64]) -> Estimate {
        measurements.iter().fold(Estimate::default(), |estimate, ns| estimate.measured(*ns))
    }

    #[test]
    fn what_nobody_has_seen_is_a_default_and_not_known() {
        let none = Estimate::default();
        assert_eq!((none.ns(), none.seen(), none.is_known()), (UNKNOWN_NS, 0, false));
    }

    #[test]
    fn four_sightings_make_it_known_and_the_slow_first_one_is_forgotten() {
        let estimate = after(&[9_000_000, 200_000, 210_000, 190_000]);
        assert!(estimate.is_known());
        assert!(estimate.ns().abs_diff(200_000) < 10_000, "{estimate:?}");
        let odd = after(&[200_000, 200_000, 200_000, 90_000_000]);
        assert!(odd.ns() <= 250_000, "{odd:?}");
        let later = after(&[200_000; 8]).measured(90_000_000);
        assert!(later.ns() <= 500_000, "{later:?}");
    }

    #[test]
    fn what_was_wrong_by_ten_heals_within_a_few_measurements() {
        for (wrong, right) in [(2_000_000, 200_000), (20_000, 200_000)] {
            let (mut alone, mut among) = (after(&[wrong; 4]), after(&[wrong; 4]));
            for _ in 0..6 {
                alone = alone.measured(right);
                let predicted = Predicted { own_ns: among.ns(), all_ns: 8 * among.ns() };
                among = among.measured_among(predicted, 8 * right);
            }
            for estimate in [alone, among] {
                assert!(estimate.ns().abs_diff(right) * 2 <= right, "{wrong} became {} ns", estimate.ns());
            }
        }
    }

    /// A program has launched far ahead while the prediction was wrong; then all of that is measured, one after the other.
    #[test]
    fn many_that_were_wrong_in_the_same_way_do_not_overshoot() {
        for (wrong, right) in [(8_000, 50_000), (800_000, 50_000)] {
            let mut estimate = after(&[wrong; 4]);
            for _ in 0..100 {
                estimate = estimate.measured_among(Predicted { own_ns: wrong, all_ns: 32 * wrong }, 32 * right);
            }
            assert!(estimate.ns().abs_diff(right) * 10 <= right, "{wrong} became {} ns", estimate.ns());
        }
    }

    #[test]
    fn what_ran_beside_others_only_lowers() {
        let known = after(&[200_000; 4]);
        assert_eq!(known.at_most(5_000_000).ns(), known.ns());
        assert!(known.at_most(20_000).ns() < 200_000);
        let first = Estimate::default().at_most(3_000_000);
        assert_eq!((first.ns(), first.seen()), (3_000_000, 1));
    }

    #[test]
    fn hostile_numbers_neither_panic_nor_wrap() {
        for word in [0, 1, u64::MAX / 3, u64::MAX] {
            for ns in [0, 1, u64::MAX] {
                let estimate = Estimate::from_word(word);
                let none = Predicted { own_ns: ns, all_ns: 0 };
                for next in [estimate.measured(ns), estimate.at_most(ns), estimate.measured_among(none, ns)] {
                    assert!(next.ns() >= NS_MIN.min(estimate.ns()) && next.ns() <= NS_MAX);
                }
                let _ = estimate.measured_among(Predicted { own_ns: 0, all_ns: u64::MAX }, ns);
            }
        }
    }
}
