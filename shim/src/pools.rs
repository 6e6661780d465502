//! Memory pools, and the one that each device has for graphs: a tenant is charged what they hold, allocated or not.
//!
//! A pool's size is the driver's secret until asked, and it shrinks behind our back (at a synchronisation, when
//! its release threshold says so). So a pool is *sampled*: before an allocation to know the growth, after it
//! to charge the truth, and at trims and synchronisations to credit what went back.

use crate::account::{self, Account, of_member_device};
use crate::hooks::Refusal;
use crate::{calls, overhead};
use core::sync::atomic::{AtomicBool, Ordering};
use driver_api::layout::{BLOCK_UNIT, DEVICE_PAGE, POOL_GROWTH, round_up};
use driver_api::{CUdevice, CUresult};
use parking_lot::Mutex;
use quota_core::Bytes;
use quota_core::ledger::Units;
use std::collections::HashMap;

/// The pools this process has allocated from.
#[derive(Default)]
pub(crate) struct Pools {
    known: Mutex<HashMap<Source, Pool>>,
    /// Something was freed since the last sample, so a synchronisation may have let memory go.
    stale: AtomicBool,
    /// Something was freed since the pools were last empty. When its stream gets there, nobody knows.
    freed: AtomicBool,
}

/// Where pooled memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Source {
    /// A pool, by its handle.
    Pool(usize),
    /// What a device keeps for graphs.
    Graphs(CUdevice),
}

impl Source {
    /// Bytes that it holds, and bytes of it that are allocated.
    fn sample(self) -> Result<(u64, u64), CUresult> {
        match self {
            Self::Pool(pool) => calls::pool_bytes(pool),
            Self::Graphs(device) => calls::graph_bytes(device),
        }
    }

    fn trim(self) -> Result<(), CUresult> {
        match self {
            Self::Pool(pool) => calls::trim_pool(pool),
            Self::Graphs(device) => calls::trim_graphs(device),
        }
    }

    /// What it grows by, where there is room, until we know better.
    fn step(self) -> u64 {
        match self {
            Self::Pool(_) => POOL_GROWTH,
            Self::Graphs(_) => DEVICE_PAGE,
        }
    }
}

#[derive(Clone, Copy)]
struct Pool {
    /// The device that is charged; `None` for host memory and for pools of others.
    device: Option<usize>,
    charged: Units,
    /// What the driver grows it by, where there is room, as far as we have seen.
    step: u64,
    /// What it held before the last allocation that had to grow it.
    before: u64,
}

fn pools() -> &'static Pools {
    &crate::process::process().pools
}

/// Remembers a pool that the program made: on `device`, or where nothing is charged.
pub(crate) fn remember(pool: Source, device: Option<usize>) {
    pools().known.lock().entry(pool).or_insert(Pool { device, charged: Units::ZERO, step: pool.step(), before: 0 });
}

/// The device that allocations from `pool` are charged to.
pub(crate) fn device_of(pool: usize) -> Option<usize> {
    pools().known.lock().get(&Source::Pool(pool)).and_then(|known| known.device)
}

/// The device of a pool that nobody made: a default pool, which is asked for by device. Any other is unknown.
pub(crate) fn find_default(pool: usize) -> Option<usize> {
    let device = (0..calls::device_count().ok()?)
        .filter_map(|ordinal| calls::device_at(ordinal).ok())
        .find(|device| calls::current_pool(*device) == Ok(pool) || calls::default_pool(*device) == Ok(pool))?;
    account::of_device(device).ok().flatten().map(|account| account.device())
}

/// Charges the growth that an allocation of `bytes` may cause.
///
/// # Errors
/// When it doesn't fit, even with all pools trimmed.
pub(crate) fn reserve(account: Account, pool: Source, bytes: u64) -> Result<account::Held, Refusal> {
    // The driver grows a pool by whole steps, if the device has room for one, and then takes more than is needed.
    let whole = |growth| {
        let step = pools().known.lock().get(&pool).map_or(DEVICE_PAGE, |entry| entry.step);
        round_up(growth, step).unwrap_or(u64::MAX)
    };
    let first = growth(account, pool, bytes, 0).map_or(0, whole);
    if let Some(held) = account.try_reserve(first) {
        return Ok(held);
    }
    account.relieve(bytes);
    // This pool may have been trimmed as well, and has to grow by more now.
    let Some(growth) = growth(account, pool, bytes, 0) else { return account.reserve(0) };
    let whole = whole(growth);
    let is_current = account::of_current_device()?.is_some_and(|current| current.device() == account.device());
    let has_room = !is_current || calls::free_bytes().is_ok_and(|free| free >= whole);
    account.reserve_at_last(if has_room { whole } else { round_up(growth, DEVICE_PAGE).unwrap_or(u64::MAX) })
}

/// The same where `left` bytes that are in use will be free by then, without steps.
pub(crate) fn reserve_beside(account: Account, pool: Source, bytes: u64, left: u64) -> Result<account::Held, Refusal> {
    if let Some(held) = try_reserve(account, pool, bytes, left) {
        return Ok(held);
    }
    account.relieve(bytes);
    account.reserve_at_last(growth(account, pool, bytes, left).unwrap_or(0))
}

/// The same, without trimming anything and without a word when it doesn't fit.
pub(crate) fn try_reserve(account: Account, pool: Source, bytes: u64, left: u64) -> Option<account::Held> {
    account.try_reserve(growth(account, pool, bytes, left).unwrap_or(0))
}

/// How much a pool has to grow by for `bytes` more than what is used now; `None` for not at all.
fn growth(account: Account, pool: Source, bytes: u64, left: u64) -> Option<u64> {
    remember(pool, Some(account.device()));
    let (reserved, used) = pool.sample().ok()?;
    let used = used.saturating_sub(left);
    let wanted = round_up(bytes, BLOCK_UNIT).and_then(|bytes| bytes.checked_add(used)).unwrap_or(u64::MAX);
    let growth = wanted.saturating_sub(reserved);
    if growth == 0 {
        return None;
    }
    if let Some(entry) = pools().known.lock().get_mut(&pool) {
        entry.before = reserved;
    }
    Some(growth)
}

/// After an allocation: charges what the pool really holds now, from `held` and beyond.
///
/// # Errors
/// When the pool grew by more than fits; the caller undoes the allocation.
pub(crate) fn settle(pool: Source, held: account::Held) -> Result<(), Refusal> {
    let mut known = pools().known.lock();
    let (Some(entry), Ok((reserved, _))) = (known.get_mut(&pool), pool.sample()) else { return Ok(()) };
    let holds = Units::holding(Bytes(reserved)).unwrap_or(Units::ZERO);
    let growth = holds.less(entry.charged);
    let shrunk = entry.charged.less(holds);
    let (account, reserved) = held.into_parts();
    let grown = holds.bytes().0.saturating_sub(entry.before);
    let is_odd = !grown.is_multiple_of(entry.step) && reserved != Units::ZERO;
    if is_odd && calls::free_bytes().is_ok_and(|free| free >= entry.step) {
        // There is room for a whole step, and it took less.
        entry.step = DEVICE_PAGE;
    }
    account.give_back(reserved.less(growth));
    if let Err(refusal) = account.reserve_beyond(growth.less(reserved)) {
        account.give_back(reserved);
        return Err(refusal);
    }
    account.give_back(shrunk);
    entry.charged = holds;
    Ok(())
}

/// The same after what can't be undone: what is held is charged, fit or not.
pub(crate) fn settle_forced(pool: Source, held: account::Held) {
    let mut known = pools().known.lock();
    let (Some(entry), Ok((reserved, _))) = (known.get_mut(&pool), pool.sample()) else { return };
    let holds = Units::holding(Bytes(reserved)).unwrap_or(Units::ZERO);
    let (account, reserved) = held.into_parts();
    let growth = holds.less(entry.charged);
    account.give_back(reserved.less(growth));
    let _charge = account.force(growth.less(reserved)).commit();
    account.give_back(entry.charged.less(holds));
    entry.charged = holds;
}

/// A free is queued: the pool may shrink at a later synchronisation.
pub(crate) fn mark_stale() {
    pools().stale.store(true, Ordering::Relaxed);
    pools().freed.store(true, Ordering::Relaxed);
}

/// After a synchronisation, which may have been of another stream than that of the free: credits what the pools let go.
pub(crate) fn resample_if_freed() {
    if pools().freed.load(Ordering::Relaxed) {
        resample_all();
    }
}

/// At a synchronisation, if anything was freed: credits what the pools let go.
pub(crate) fn resample_if_stale() {
    if pools().stale.load(Ordering::Relaxed) && pools().stale.swap(false, Ordering::Relaxed) {
        resample_all();
    }
}

/// Credits what the pools let go; whether they have.
pub(crate) fn resample_all() -> bool {
    let mut known = pools().known.lock();
    let mut has_let_go = false;
    for (pool, entry) in known.iter_mut() {
        has_let_go |= resample(*pool, entry);
    }
    if known.values().all(|entry| entry.charged == Units::ZERO) {
        pools().freed.store(false, Ordering::Relaxed);
    }
    has_let_go
}

fn resample(pool: Source, entry: &mut Pool) -> bool {
    let (Some(device), Ok((reserved, used))) = (entry.device, pool.sample()) else { return false };
    let holds = Units::holding(Bytes(reserved)).unwrap_or(Units::ZERO);
    let Some(account) = of_member_device(device) else { return false };
    let has_let_go = holds < entry.charged;
    account.give_back(entry.charged.less(holds));
    // It can't have grown without an allocation of ours, which settles; growth seen here is another thread's, which will.
    if has_let_go {
        entry.charged = holds;
    }
    if used < reserved {
        pools().stale.store(true, Ordering::Relaxed);
    }
    has_let_go
}

/// Gives back what the pools on `device` hold and nobody uses. Never waits for a stream.
pub(crate) fn trim_all(device: usize) {
    let charged = |pool: &Pool| pool.device == Some(device) && pool.charged != Units::ZERO;
    let held: Vec<Source> = {
        let known = pools().known.lock();
        known.iter().filter(|(_, entry)| charged(entry)).map(|(pool, _)| *pool).collect()
    };
    for pool in held {
        if pool.trim().is_ok()
            && let Some(entry) = pools().known.lock().get_mut(&pool)
        {
            resample(pool, entry);
        }
    }
}

/// A pool that is about to be destroyed: out of the books, still charged.
#[must_use]
pub(crate) struct Ending {
    source: Source,
    entry: Option<Pool>,
}

/// Takes a pool out of the books.
pub(crate) fn ending(pool: usize) -> Ending {
    let source = Source::Pool(pool);
    Ending { source, entry: pools().known.lock().remove(&source) }
}

impl Ending {
    /// The driver has destroyed it. What is still allocated from it lives until it is freed.
    pub(crate) fn gone(self) {
        if let Some(Pool { device: Some(device), charged, .. }) = self.entry
            && charged != Units::ZERO
            && let Some(account) = of_member_device(device)
        {
            overhead::linger(account, charged);
            overhead::mark_stale();
        }
    }

    /// The driver has not.
    pub(crate) fn undo(self) {
        if let Some(entry) = self.entry {
            pools().known.lock().insert(self.source, entry);
        }
    }
}
