//! Memory of a dynamic quota: what programs ask for as linear memory is made as managed memory, which the driver moves to
//! the host when somebody needs the room.
//!
//! Always, not only when the device is full: what is free now belongs to those whose memory stays, and what has once been
//! made to stay can't be moved when they come for it. Small blocks stay, as long as the firm part has room for them: managed,
//! each would take a page of its own.

use crate::account::{self, Account};
use crate::args::Out;
use crate::entry::Next;
use crate::flight::Flight;
use crate::hooks::Answer;
use crate::hooks::Refusal;
use crate::{calls, live, log};
use driver_api::layout::{DEVICE_PAGE, SMALL_BLOCK_MAX, round_up};
use driver_api::{CUdeviceptr, CUresult};
use quota_core::settings::LogLevel;

/// The account on the current device, when `bytes` of linear memory are to be made so that they may be moved.
pub(crate) fn wanted_by(bytes: u64) -> Result<Option<Account>, Refusal> {
    if bytes == 0 {
        return Ok(None);
    }
    let Some(account) = account::of_current_device()?.filter(Account::is_dynamic) else { return Ok(None) };
    Ok(can_move().then_some(account))
}

/// Whether the current device brings pages in when they are used: else the driver never moves any.
fn can_move() -> bool {
    let can = calls::current_device().is_some_and(calls::has_concurrent_managed_access);
    static SAID: log::Once = log::Once::new();
    if !can && SAID.first() {
        log::line(
            LogLevel::Warn,
            format_args!(
                "this device can't move memory to the host (no concurrent managed access): an oversubscribed job has here what can't be moved, and no more"
            ),
        );
    }
    can
}

/// Makes linear memory that may be moved; `next` is the call that would make it as the program asked.
pub(crate) fn allocate(next: Next<'_>, account: Account, bytes: u64, out: Out<CUdeviceptr>) -> Answer {
    let _flight = Flight::enter();
    let Some(context) = calls::current_context() else { return next.call() };
    if bytes <= SMALL_BLOCK_MAX
        && let Some(pending) = live::reserve_small(account, context, bytes, false)?
    {
        next.call_for(&account, bytes)?;
        pending.enter(out.get() as usize);
        return Ok(());
    }
    // Nothing is measured around it, as it is around a program's own managed memory: how much of it is on the device changes
    // at any time here.
    let pages = round_up(bytes, DEVICE_PAGE).unwrap_or(u64::MAX);
    let pending = live::reserve_soft(account, context, pages)?;
    let pointer = calls::allocate_managed(bytes)?;
    if let Some(device) = calls::current_device() {
        // A hint: where it isn't taken, pages come all the same.
        let _ = calls::prefer_device(pointer, bytes, device);
    }
    out.set(pointer);
    pending.enter(pointer as usize);
    Ok(())
}

/// The driver's code for a call that it can't do with managed memory, and would do with linear memory.
pub(crate) const UNFIT: Refusal = Refusal::Driver(CUresult::INVALID_VALUE);
