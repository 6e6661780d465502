//! A checkpoint takes all device memory of a process, perhaps another one's, to the host; a restore brings it back.
//! The books of the tenant's processes follow; of other processes the daemon's are the only books.
#![allow(non_snake_case)]

use super::{Answer, Refusal};
use crate::account::{self, Account};
use crate::args::Raw;
use crate::calls;
use crate::entry::Next;
use driver_api::{CUcheckpointCheckpointArgs, CUcheckpointRestoreArgs, CUresult};
use quota_core::ledger::{SlotId, Units};

pub(crate) fn cuCheckpointProcessCheckpoint(
    next: Next<'_>,
    pid: i32,
    _args: Raw<CUcheckpointCheckpointArgs>,
) -> Answer {
    let answer = next.call();
    let is_parked = |account: &Account, slot| account.member().ledger.parked(slot, account.place()) != Units::ZERO;
    // Who did it before us may have been killed between the driver's work and the books.
    let (is_done, was_done) = (answer.is_ok(), is_refused_for_state(answer) && calls::is_checkpointed(pid) == Ok(true));
    for (account, slot) in places_of(pid).into_iter().filter(|_| is_done || was_done) {
        // What is set aside already may be coming back just now.
        if is_done || !is_parked(&account, slot) {
            account.park_slot(slot);
        }
    }
    answer
}

pub(crate) fn cuCheckpointProcessRestore(next: Next<'_>, pid: i32, _args: Raw<CUcheckpointRestoreArgs>) -> Answer {
    let mut back = Returning(Vec::new());
    for (account, slot) in places_of(pid) {
        // Who restored it before us may have died between the charge and the rest.
        let (ledger, place) = (&account.member().ledger, account.place());
        let charged = Units::holding(ledger.used_by(slot, place)).unwrap_or(Units::ZERO);
        let parked = ledger.parked(slot, place);
        let units = parked.less(charged);
        if units != Units::ZERO {
            account.charge_slot(slot, units)?;
        }
        if parked != Units::ZERO {
            back.0.push((account, slot, units));
        }
    }
    let answer = next.call();
    match answer {
        Ok(()) => back.keep(),
        // Or between the driver's work and the books: it isn't at the host.
        Err(_) if is_refused_for_state(answer) => back.was_here(),
        Err(_) => {}
    }
    answer
}

/// True where the driver refuses since the process is in another state than the one from which it could be done.
fn is_refused_for_state(answer: Answer) -> bool {
    answer == Err(Refusal::Driver(CUresult::ILLEGAL_STATE))
}

/// Charges for another process; given back when dropped.
struct Returning(Vec<(Account, SlotId, Units)>);

impl Returning {
    fn keep(mut self) {
        for (account, slot, _) in self.0.drain(..) {
            account.member().ledger.unpark(slot, account.place());
        }
    }

    /// Nothing of it was set aside any more, but in the books.
    fn was_here(mut self) {
        for (account, slot, units) in self.0.drain(..) {
            account.member().ledger.give_back(slot, account.place(), units);
            account.member().ledger.unpark(slot, account.place());
        }
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        for (account, slot, units) in &self.0 {
            account.member().ledger.give_back(*slot, account.place(), *units);
        }
    }
}

/// The slots of process `pid` of the tenant, on every device.
fn places_of(pid: i32) -> Vec<(Account, SlotId)> {
    let Ok(pid) = u32::try_from(pid) else { return Vec::new() };
    let of = |account: Account| {
        let ledger = &account.member().ledger;
        ledger.slots().filter(move |slot| ledger.pid(*slot) == pid).map(move |slot| (account, slot))
    };
    account::all().into_iter().filter(|_| pid != 0).flat_map(of).collect()
}

impl Account {
    /// Charges for the process of another slot, which can't run meanwhile.
    fn charge_slot(&self, slot: SlotId, units: Units) -> Result<(), Refusal> {
        if self.grow_in(slot, units)? { Ok(()) } else { Err(self.deny(units.bytes())) }
    }
}
