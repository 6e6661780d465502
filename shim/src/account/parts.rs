//! What the process's charges consist of, in the ledger and as last seen.

use super::Account;
use crate::join::SLACK_UNKNOWN;
use core::sync::atomic::Ordering;
use quota_core::Bytes;
use quota_core::ledger::Units;

impl Account {
    /// What of the process's charges was measured.
    pub(crate) fn overhead(&self) -> Units {
        self.member.ledger.overhead(self.member.slot, self.place)
    }

    pub(crate) fn add_overhead(&self, units: Units) {
        self.member.ledger.add_overhead(self.member.slot, self.place, units);
    }

    /// Takes so much out of the overhead, still charged.
    pub(crate) fn take_overhead(&self, units: Units) -> Units {
        self.member.ledger.take_overhead(self.member.slot, self.place, units)
    }

    /// What of the process's charges need not be on the device.
    pub(crate) fn soft(&self) -> Units {
        self.member.ledger.soft(self.member.slot, self.place)
    }

    pub(crate) fn add_soft(&self, units: Units) {
        self.member.ledger.add_soft(self.member.slot, self.place, units);
    }

    /// So much was allocated that need not be held.
    pub(crate) fn may_be_slack(&self, units: Units) {
        self.change_slack(|slack| Some(slack?.plus(units)));
    }

    /// By how much the charges exceeded what was held when that was looked at last; with what has been charged since
    /// that need not be held.
    pub(crate) fn last_slack(&self) -> Option<Units> {
        as_slack(self.member.devices[self.device].slack.load(Ordering::Relaxed))
    }

    /// It was seen to be `slack`, when it was taken for `before`: what was added to that since counts on.
    pub(crate) fn saw_slack(&self, before: Option<Units>, slack: Units) {
        self.change_slack(|now| {
            let added = before.and_then(|before| Some(now?.less(before))).unwrap_or(Units::ZERO);
            Some(slack.plus(added))
        });
    }

    fn change_slack(&self, change: impl Fn(Option<Units>) -> Option<Units>) {
        let changed = |bytes| Some(change(as_slack(bytes)).map_or(SLACK_UNKNOWN, |units| units.bytes().0));
        let _ = self.member.devices[self.device].slack.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }

    pub(crate) fn take_soft(&self, units: Units) {
        self.member.ledger.take_soft(self.member.slot, self.place, units);
    }

    /// A context is being made before our eyes.
    pub(crate) fn sees_context(&self) {
        self.member.devices[self.device].is_new.store(false, Ordering::Relaxed);
    }

    /// What a context costs here, as far as the tenant has seen.
    pub(crate) fn context_cost(&self) -> Units {
        self.member.ledger.context_cost(self.place)
    }

    /// A context was seen to cost so much. The least is remembered: more would refuse what fits.
    pub(crate) fn learn_context_cost(&self, cost: Units) {
        let known = self.context_cost();
        if known == Units::ZERO || cost < known {
            self.member.ledger.set_context_cost(self.place, cost);
        }
    }
}

fn as_slack(bytes: u64) -> Option<Units> {
    if bytes == SLACK_UNKNOWN { None } else { Units::holding(Bytes(bytes)) }
}
