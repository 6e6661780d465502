//! Memory of a dynamic quota: what programs ask for as linear memory is made as managed memory, which the driver moves to
//! the host when somebody needs the room.
//!
//! Always, not only when the device is full: what is free now belongs to those whose memory stays, and what has once been
//! made to stay can't be moved when they come for it. Small blocks stay, as long as the firm part has room for them: managed,
//! each would take a page of its own.

use crate::account::Account;
use crate::args::Out;
use crate::entry::{Lane, Next};
use crate::flight::Flight;
use crate::hooks::Answer;
use crate::hooks::Refusal;
use crate::{calls, live, log};
use driver_api::layout::{DEVICE_PAGE, SMALL_BLOCK_MAX, round_up};
use driver_api::{CUdeviceptr, CUresult, CUstream};
use quota_core::settings::LogLevel;

/// Whether linear memory of the account is to be made so that it may be moved. One load where it isn't.
pub(crate) fn is_wanted_by(account: &Account) -> bool {
    account.is_dynamic() && can_move()
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

/// Makes linear memory that may be moved, in the current context; `next` is the call that would make it as the program asked.
pub(crate) fn allocate(next: Next<'_>, account: Account, context: usize, bytes: u64, out: Out<CUdeviceptr>) -> Answer {
    if bytes <= SMALL_BLOCK_MAX
        && let Some(pending) = live::reserve_small(account, context, bytes, false)?
    {
        next.call_for(&account, bytes)?;
        pending.enter(out.get() as usize);
        return Ok(());
    }
    managed(account, context, bytes, out, calls::allocate_managed)
}

/// The same for a stream-ordered call, which is legal whatever else is being captured.
pub(crate) fn allocate_in_order(account: Account, context: usize, bytes: u64, out: Out<CUdeviceptr>) -> Answer {
    let _flight = Flight::enter();
    managed(account, context, bytes, out, |bytes| calls::outside_captures(|| calls::allocate_managed(bytes)))
}

fn managed(
    account: Account,
    context: usize,
    bytes: u64,
    out: Out<CUdeviceptr>,
    make: impl FnOnce(u64) -> Result<CUdeviceptr, CUresult>,
) -> Answer {
    // Nothing is measured around it, as it is around a program's own managed memory: how much of it is on the device changes
    // at any time here.
    let pages = round_up(bytes, DEVICE_PAGE).unwrap_or(u64::MAX);
    let pending = live::reserve_soft(account, context, pages)?;
    let pointer = make(bytes)?;
    if let Some(device) = calls::current_device() {
        // A hint: where it isn't taken, pages come all the same.
        let _ = calls::outside_captures(|| calls::prefer_device(pointer, bytes, device));
    }
    out.set(pointer);
    pending.enter(pointer as usize);
    Ok(())
}

/// Frees in the order of a stream what a program may have from a stream-ordered call. A driver that doesn't free managed
/// memory so frees it as it is.
pub(crate) fn free_in_order(next: &Next<'_>, pointer: CUdeviceptr, stream: CUstream) -> Answer {
    const UNFIT: Refusal = Refusal::Driver(CUresult::INVALID_VALUE);
    let answer = calls::outside_captures(|| next.call());
    if answer != Err(UNFIT) || calls::is_capturing(stream, next.lane == Lane::PerThread) {
        return answer;
    }
    calls::outside_captures(|| calls::free(pointer)).map_err(Refusal::Driver)
}
