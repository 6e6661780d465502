//! What is due to somebody whatever the weights say: a guarantee, the budget of the high class, the least of batch.
//!
//! Each is a rate of the device's time, kept in ten-thousandths of a nanosecond so that nothing is lost.

/// The rate that is all of the device's time.
const WHOLE: i128 = 10_000;
/// The period over which a guarantee is meant; what is not asked for within it is gone.
pub(super) const GUARANTEE_PERIOD_NS: u64 = 100_000_000;
/// The period of the high class's budget.
pub(super) const BUDGET_PERIOD_NS: u64 = 20_000_000;
/// The budget of the high class where none of its tenants has a guarantee, in hundredths of a percent.
pub(super) const BUDGET_RATE: u32 = 5_000;
/// What guarantees and the budget may come to together; the rest is for hand-overs.
pub(super) const PROMISED_MAX: u32 = 9_500;
/// What batch gets at the least, in hundredths of a percent.
pub(super) const FLOOR_RATE: u32 = 100;
/// The period of batch's least.
pub(super) const FLOOR_PERIOD_NS: u64 = 1_000_000_000;

/// A guarantee falls due by a fiftieth faster: the device's own switching, which is measured with what its tenant used, is
/// not what it was promised.
const SWITCHING_PART: i128 = 50;

/// A guarantee: how far its tenant is behind it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guarantee {
    rate: u32,
    due: i128,
    at: u64,
}

impl Guarantee {
    /// Changes the rate, 0 for none.
    pub(super) fn set_rate(&mut self, rate: u32) {
        self.rate = rate;
        self.due = self.due.min(self.due_max());
    }

    /// The rate in hundredths of a percent.
    pub(super) fn rate(&self) -> u32 {
        self.rate
    }

    /// Lets time pass. It falls due only while there is work; what was served beforehand is worked off in any case.
    pub(super) fn pass(&mut self, now: u64, has_work: bool) {
        let rate = i128::from(self.rate);
        let passed = i128::from(now.saturating_sub(self.at));
        let grown = self.due + passed * (rate + rate / SWITCHING_PART);
        self.at = self.at.max(now);
        self.due = grown.min(if has_work { self.due_max() } else { 0 });
    }

    /// Its tenant has used the device. What it used by its weight counts only so far that `slack_ns` is owed by it:
    /// else who had the device to itself would wait for its guarantee when the others come.
    pub(super) fn serve(&mut self, used_ns: u64, by_guarantee: bool, slack_ns: u64) {
        let left = self.due - i128::from(used_ns) * WHOLE;
        let least = if by_guarantee { left } else { self.due.min(-i128::from(slack_ns) * WHOLE) };
        self.due = left.max(least);
    }

    /// Since when it has been due, as time that has passed since; none if it isn't.
    pub(super) fn overdue_ns(&self) -> Option<u64> {
        (self.rate > 0 && self.due > 0).then(|| u64::try_from(self.due / i128::from(self.rate)).unwrap_or(u64::MAX))
    }

    /// How far ahead of its weight its tenant may get by it without owing the others: one period's due.
    pub(super) fn ahead_ns(&self) -> u64 {
        u64::try_from(self.due_max() / WHOLE).unwrap_or(u64::MAX)
    }

    fn due_max(&self) -> i128 {
        i128::from(GUARANTEE_PERIOD_NS) * i128::from(self.rate)
    }
}

/// A budget that fills with time up to a period's worth and is spent, into debt if need be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    rate: u32,
    period_ns: u64,
    credit: i128,
    at: u64,
    has_credit: bool,
}

impl Budget {
    /// A budget of `rate` hundredths of a percent, with a period's worth in it if it is to begin `full`.
    pub(super) fn new(rate: u32, period_ns: u64, full: bool) -> Self {
        let mut budget = Self { rate, period_ns, credit: 0, at: 0, has_credit: full };
        if full {
            budget.credit = budget.credit_max();
        }
        budget
    }

    /// Lets time pass at a rate that holds from now on. One that was empty is available again when there is `resume_ns`
    /// in it, or all that goes in.
    pub(super) fn pass(&mut self, now: u64, rate: u32, resume_ns: u64) {
        self.credit += i128::from(now.saturating_sub(self.at)) * i128::from(self.rate);
        self.at = self.at.max(now);
        self.rate = rate;
        self.credit = self.credit.min(self.credit_max());
        self.has_credit |= self.credit >= self.resume(resume_ns);
    }

    /// Takes from it.
    pub(super) fn spend(&mut self, used_ns: u64) {
        self.credit -= i128::from(used_ns) * WHOLE;
        self.has_credit &= self.credit > 0;
    }

    /// Takes from it what is in it.
    pub(super) fn use_up(&mut self, used_ns: u64) {
        self.credit = (self.credit - i128::from(used_ns) * WHOLE).max(0);
        self.has_credit &= self.credit > 0;
    }

    /// Empties it without a debt: its owner has nothing to do.
    pub(super) fn stop(&mut self, now: u64) {
        (self.credit, self.at, self.has_credit) = (self.credit.min(0), now.max(self.at), false);
    }

    /// True while it may be spent.
    pub(super) fn has_credit(&self) -> bool {
        self.has_credit
    }

    /// What is in it, in nanoseconds.
    pub(super) fn credit_ns(&self) -> u64 {
        u64::try_from(self.credit / WHOLE).unwrap_or(0)
    }

    /// When it will be available again; none if it is.
    pub(super) fn available_at(&self, resume_ns: u64) -> Option<u64> {
        let missing = (self.resume(resume_ns) - self.credit).max(0);
        let wait = (missing + i128::from(self.rate.max(1)) - 1) / i128::from(self.rate.max(1));
        (!self.has_credit).then(|| self.at.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    fn credit_max(&self) -> i128 {
        i128::from(self.period_ns) * i128::from(self.rate)
    }

    fn resume(&self, resume_ns: u64) -> i128 {
        (i128::from(resume_ns) * WHOLE).min(self.credit_max()).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_guarantee_falls_due_at_its_rate_and_no_more_than_a_period_of_it() {
        let mut guarantee = Guarantee::default();
        guarantee.set_rate(4000);
        assert_eq!(guarantee.overdue_ns(), None);
        guarantee.pass(10 * MS, true);
        assert_eq!(guarantee.overdue_ns(), Some(10 * MS + MS / 5), "a fiftieth more, for switching");
        guarantee.serve(5 * MS, true, 0);
        assert_eq!(guarantee.overdue_ns(), None, "4.08 ms were due, 5 were served");
        guarantee.pass(12 * MS + MS / 4, true);
        assert_eq!(guarantee.overdue_ns(), None);
        guarantee.pass(12 * MS + MS / 4 + 10_000, true);
        assert_eq!(guarantee.overdue_ns(), Some(5_200));
        guarantee.pass(10_000 * MS, true);
        assert_eq!(guarantee.overdue_ns(), Some(100 * MS));
    }

    #[test]
    fn a_guarantee_is_not_used_up_by_what_was_free_nor_saved_up_by_idling() {
        let mut guarantee = Guarantee::default();
        guarantee.set_rate(1000);
        guarantee.serve(10_000 * MS, false, 6 * MS);
        guarantee.pass(58 * MS, true);
        assert_eq!(guarantee.overdue_ns(), None, "6 ms ahead at a tenth and a fiftieth of it are 58.8 ms");
        guarantee.pass(59 * MS, true);
        assert_eq!(guarantee.overdue_ns(), Some(180_000));
        guarantee.pass(100 * MS, true);
        guarantee.pass(200 * MS, false);
        assert_eq!(guarantee.overdue_ns(), None, "who has no work is owed nothing");
        guarantee.serve(10 * MS, true, 0);
        guarantee.pass(250 * MS, false);
        guarantee.pass(297 * MS, true);
        assert_eq!(guarantee.overdue_ns(), None, "what was served beforehand is worked off, idle or not");
        guarantee.pass(301 * MS, true);
        assert!(guarantee.overdue_ns().is_some());
    }

    #[test]
    fn a_budget_is_spent_into_debt_and_comes_back_with_something_in_it() {
        let mut budget = Budget::new(5000, 20 * MS, true);
        assert_eq!(budget.credit_ns(), 10 * MS);
        budget.spend(12 * MS);
        assert!(!budget.has_credit());
        assert_eq!(budget.available_at(3 * MS), Some(10 * MS), "5 ms at a half");
        budget.pass(10 * MS - 1, 5000, 3 * MS);
        assert!(!budget.has_credit());
        budget.pass(10 * MS, 5000, 3 * MS);
        assert!(budget.has_credit() && budget.available_at(3 * MS).is_none());
        budget.stop(11 * MS);
        assert!(!budget.has_credit() && budget.credit_ns() == 0);
    }
}
