//! Dynamic quotas: their memory may be moved to the host, all but a firm part.
//!
//! What can't be moved (contexts, code, arrays, physical handles, pools) must not take the room of those whose memory
//! stays on the device; so of a dynamic quota only [`firm_part`] may be such memory. It is what is charged and not soft.

use super::Account;
use crate::hooks::Refusal;
use crate::join::Caps;
use crate::process::process;
use quota_core::ledger::Units;
use quota_core::{Bytes, Mode};
use quota_wire::page::firm_part;
use std::time::Duration;

/// Looks at what can't be moved before a refusal, and the pause between two: what another thread has charged and not yet
/// called soft looks like it for a moment.
const LOOKS_MAX: u32 = 4;
const LOOK_PAUSE: Duration = Duration::from_millis(1);

impl Account {
    /// True when the tenant's memory may be moved to the host.
    pub(crate) fn is_dynamic(&self) -> bool {
        matches!(&self.member.caps, Caps::Page(page) if page.is_dynamic(self.place))
    }

    /// True when somebody's on the device may: the driver moves it for whoever needs the room.
    pub(crate) fn is_crowded(&self) -> bool {
        matches!(&self.member.caps, Caps::Page(page) if page.is_crowded(self.place))
    }

    /// The same account, for what may be moved.
    pub(crate) fn movable(self) -> Self {
        Self { moves: true, ..self }
    }

    /// What has just been charged stays charged, unless it makes the firm part too large.
    pub(super) fn keep_if_firm(&self, units: Units, at_last: bool) -> Result<bool, Refusal> {
        if self.moves || !self.is_dynamic() || process().settings.mode != Mode::Enforce {
            return Ok(true);
        }
        let firm_max = firm_part(self.cap().unwrap_or(self.total()));
        let fits = || self.firm_used() <= firm_max;
        if fits() || at_last && (1..LOOKS_MAX).any(|_| looks_again(&fits)) {
            return Ok(true);
        }
        self.give_back(units);
        if at_last { Err(self.deny_firm(units.bytes(), firm_max)) } else { Ok(false) }
    }

    /// What all processes of the tenant have that can't be moved.
    pub(super) fn firm_used(&self) -> Bytes {
        let ledger = &self.member.ledger;
        let of = |slot| ledger.used_by(slot, self.place).0.saturating_sub(ledger.soft(slot, self.place).bytes().0);
        Bytes(ledger.slots().map(of).sum())
    }
}

fn looks_again(fits: &impl Fn() -> bool) -> bool {
    std::thread::sleep(LOOK_PAUSE);
    fits()
}
