//! Memory pools: a tenant is charged what its pools hold, allocated or not.
//!
//! A pool's size is the driver's secret until asked, and it shrinks behind our back (at a synchronisation, when
//! its release threshold says so). So a pool is *sampled*: before an allocation to know the growth, after it
//! to charge the truth, and at trims and synchronisations to credit what went back.

use crate::account::{self, Account, of_member_device};
use crate::calls;
use crate::hooks::Refusal;
use core::sync::atomic::{AtomicBool, Ordering};
use driver_api::layout::{BLOCK_UNIT, DEVICE_PAGE, POOL_GROWTH, round_up};
use parking_lot::Mutex;
use quota_core::Bytes;
use quota_core::ledger::Units;
use std::collections::HashMap;

/// The pools this process has allocated from.
#[derive(Default)]
pub(crate) struct Pools {
    known: Mutex<HashMap<usize, Pool>>,
    /// Something was freed since the last sample, so a synchronisation may have let memory go.
    stale: AtomicBool,
}

#[derive(Clone, Copy)]
struct Pool {
    /// The device that is charged; `None` for host memory and for pools of others.
    device: Option<usize>,
    charged: Units,
}

fn pools() -> &'static Pools {
    &crate::process::process().pools
}

/// Remembers a pool that the program made: on `device`, or where nothing is charged.
pub(crate) fn remember(pool: usize, device: Option<usize>) {
    pools().known.lock().entry(pool).or_insert(Pool { device, charged: Units::ZERO });
}

/// The device that allocations from `pool` are charged to.
pub(crate) fn device_of(pool: usize) -> Option<usize> {
    pools().known.lock().get(&pool).and_then(|known| known.device)
}

/// The device of a pool that nobody made: a default pool, which is asked for by device. Any other is unknown.
pub(crate) fn find_default(pool: usize) -> Option<usize> {
    let device = (0..calls::device_count().ok()?)
        .filter_map(|ordinal| calls::device_at(ordinal).ok())
        .find(|device| calls::current_pool(*device) == Ok(pool) || calls::default_pool(*device) == Ok(pool))?;
    account::of_device(device).ok().flatten().map(|account| account.device())
}

/// Charges the growth that an allocation of `bytes` may cause.
pub(crate) fn reserve(account: Account, pool: usize, bytes: u64) -> Result<account::Held, Refusal> {
    remember(pool, Some(account.device()));
    let Ok((reserved, used)) = calls::pool_bytes(pool) else { return account.reserve(0) };
    let wanted = round_up(bytes, BLOCK_UNIT).and_then(|bytes| bytes.checked_add(used)).unwrap_or(u64::MAX);
    let growth = wanted.saturating_sub(reserved);
    if growth == 0 {
        return account.reserve(0);
    }
    // The driver grows a pool by whole steps; where a step doesn't fit, what is needed may.
    let step = round_up(growth, POOL_GROWTH).unwrap_or(u64::MAX);
    let least = round_up(growth, DEVICE_PAGE).unwrap_or(u64::MAX);
    match account.try_reserve(step) {
        Some(held) => Ok(held),
        None => account.reserve(least),
    }
}

/// After an allocation: charges what the pool really holds now, from `held` and beyond.
///
/// # Errors
/// When the pool grew by more than fits; the caller undoes the allocation.
pub(crate) fn settle(pool: usize, held: account::Held) -> Result<(), Refusal> {
    let mut known = pools().known.lock();
    let (Some(entry), Ok((reserved, _))) = (known.get_mut(&pool), calls::pool_bytes(pool)) else { return Ok(()) };
    let holds = Units::holding(Bytes(reserved)).unwrap_or(Units::ZERO);
    let growth = holds.less(entry.charged);
    let shrunk = entry.charged.less(holds);
    let (account, reserved) = held.into_parts();
    account.give_back(reserved.less(growth));
    if let Err(refusal) = account.reserve_beyond(growth.less(reserved)) {
        account.give_back(reserved);
        return Err(refusal);
    }
    account.give_back(shrunk);
    entry.charged = holds;
    Ok(())
}

/// A free is queued: the pool may shrink at a later synchronisation.
pub(crate) fn mark_stale() {
    pools().stale.store(true, Ordering::Relaxed);
}

/// At a synchronisation, if anything was freed: credits what the pools let go.
pub(crate) fn resample_if_stale() {
    if pools().stale.load(Ordering::Relaxed) && pools().stale.swap(false, Ordering::Relaxed) {
        resample_all();
    }
}

/// Credits what the pools let go.
pub(crate) fn resample_all() {
    let mut known = pools().known.lock();
    for (pool, entry) in known.iter_mut() {
        resample(*pool, entry);
    }
}

fn resample(pool: usize, entry: &mut Pool) {
    let (Some(device), Ok((reserved, used))) = (entry.device, calls::pool_bytes(pool)) else { return };
    let holds = Units::holding(Bytes(reserved)).unwrap_or(Units::ZERO);
    let Some(account) = of_member_device(device) else { return };
    account.give_back(entry.charged.less(holds));
    // It can't have grown without an allocation of ours, which settles; growth seen here is another thread's, which will.
    if holds < entry.charged {
        entry.charged = holds;
    }
    if used < reserved {
        pools().stale.store(true, Ordering::Relaxed);
    }
}

/// Gives back what the pools on `device` hold and nobody uses; true when something was. Never waits for a stream.
pub(crate) fn trim_all(device: usize) -> bool {
    let charged = |pool: &Pool| pool.device == Some(device) && pool.charged != Units::ZERO;
    let held: Vec<(usize, Units)> = {
        let known = pools().known.lock();
        known.iter().filter(|(_, entry)| charged(entry)).map(|(pool, entry)| (*pool, entry.charged)).collect()
    };
    let mut found = false;
    for (pool, before) in held {
        if calls::trim_pool(pool).is_ok()
            && let Some(entry) = pools().known.lock().get_mut(&pool)
        {
            resample(pool, entry);
            found |= entry.charged < before;
        }
    }
    found
}

/// The pool is destroyed: what it held goes back once its last pointer does, which the driver sees to.
pub(crate) fn forget(pool: usize) {
    let gone = pools().known.lock().remove(&pool);
    if let Some(Pool { device: Some(device), charged }) = gone
        && let Some(account) = of_member_device(device)
    {
        account.give_back(charged);
    }
}
