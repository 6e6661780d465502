//! The books of live memory: what each pointer and array was charged, and where.
//!
//! A free is credited to the device that was charged, once, by whoever takes the entry out. Small blocks of
//! a context share pages, so they are charged together: the pages that their sum fills.

use crate::account::{Account, of_member_device};
use crate::hooks::Refusal;
use crate::overhead;
use core::hash::{BuildHasherDefault, Hasher};
use driver_api::CUdevice;
use driver_api::layout::{BLOCK_UNIT, DEVICE_PAGE, SMALL_BLOCK_MAX, block_bytes, round_up};
use quota_core::Bytes;
use quota_core::ledger::Units;
use std::collections::HashMap;

type ByAddress<T> = HashMap<usize, T, BuildHasherDefault<AddressHasher>>;

/// All books of the process.
#[derive(Default)]
pub(crate) struct Live {
    blocks: ByAddress<Block>,
    small: HashMap<SmallKey, u64, BuildHasherDefault<AddressHasher>>,
    /// Primary contexts by device, as the program got them.
    primaries: HashMap<CUdevice, usize>,
}

/// One live block or array.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    context: usize,
    device: usize,
    size: Size,
    /// Somebody may keep its memory alive after it is freed.
    is_shared: bool,
}

impl Block {
    /// Whether somebody may keep its memory alive after it is freed.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether it is managed memory.
    fn is_soft(&self) -> bool {
        matches!(self.size, Size::Soft(_))
    }

    /// Whether it is, and may be so only because its quota is dynamic.
    pub(crate) fn is_movable(&self) -> bool {
        self.is_soft() && of_member_device(self.device).is_some_and(|account| account.is_dynamic())
    }
}

#[derive(Clone, Copy)]
enum Size {
    /// Rounded bytes of a block that shares pages with others.
    Small(u64),
    /// What was charged for it alone.
    Whole(Units),
    /// The same, of memory that need not be on the device.
    Soft(Units),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SmallKey {
    context: usize,
    device: usize,
}

/// A block that is charged and not yet allocated; given back when dropped, entered by [`Pending::enter`].
#[must_use]
pub(crate) struct Pending {
    account: Account,
    block: Block,
}

fn pages(small_bytes: u64) -> Units {
    let bytes = round_up(small_bytes, DEVICE_PAGE).unwrap_or(u64::MAX);
    Units::holding(Bytes(bytes)).unwrap_or(Units::ZERO)
}

fn live<T>(f: impl FnOnce(&mut Live) -> T) -> T {
    f(&mut crate::process::process().live.lock())
}

/// Charges a block of linear memory.
pub(crate) fn reserve_block(account: Account, context: usize, bytes: u64) -> Result<Pending, Refusal> {
    if bytes > SMALL_BLOCK_MAX {
        return reserve_whole(account, context, block_bytes(bytes).unwrap_or(u64::MAX));
    }
    if let Some(pending) = reserve_small(account, context, bytes, false)? {
        return Ok(pending);
    }
    account.relieve(bytes);
    reserve_small(account, context, bytes, true)?.ok_or(Refusal::Quota)
}

/// Charges a block that shares pages with others; `None` when it doesn't fit, which `at_last` makes a refusal.
pub(crate) fn reserve_small(
    account: Account,
    context: usize,
    bytes: u64,
    at_last: bool,
) -> Result<Option<Pending>, Refusal> {
    let rounded = round_up(bytes, BLOCK_UNIT).unwrap_or(bytes);
    let key = SmallKey { context, device: account.device() };
    // The sum and the charge change together, or two threads could both count on the same page. Pools are trimmed
    // with the books closed, since that is a call of the driver.
    live(|live| {
        let sum = live.small.entry(key).or_insert(0);
        let more = pages(*sum + rounded).less(pages(*sum));
        if more != Units::ZERO && !account.charge(more, at_last)? {
            return Ok(None);
        }
        *sum += rounded;
        let block = Block { context, device: key.device, size: Size::Small(rounded), is_shared: false };
        Ok(Some(Pending { account, block }))
    })
}

/// Charges something that takes pages of its own.
pub(crate) fn reserve_whole(account: Account, context: usize, bytes: u64) -> Result<Pending, Refusal> {
    let charge = account.reserve(bytes)?.commit();
    let block = Block { context, device: charge.device, size: Size::Whole(charge.units), is_shared: false };
    Ok(Pending { account, block })
}

/// Charges memory that may be on the host as well.
pub(crate) fn reserve_soft(account: Account, context: usize, bytes: u64) -> Result<Pending, Refusal> {
    let charge = account.movable().reserve(bytes)?.commit();
    account.add_soft(charge.units);
    // How much of it the device holds shows at the next measurement.
    overhead::mark_stale();
    let block = Block { context, device: charge.device, size: Size::Soft(charge.units), is_shared: false };
    Ok(Pending { account, block })
}

impl Pending {
    /// The driver has made it: it lives at `address`.
    pub(crate) fn enter(self, address: usize) {
        let (account, block) = (self.account, self.block);
        core::mem::forget(self);
        if let Size::Soft(units) = block.size {
            account.may_be_slack(units);
            overhead::slack_changes();
        }
        let stale = live(|live| live.blocks.insert(address, block));
        // The driver gave out an address that we still had: its memory went with something we didn't see.
        if let Some(stale) = stale {
            credit(stale);
        }
    }

    /// The driver took other than what was asked: charges the difference.
    ///
    /// # Errors
    /// When it doesn't fit; the caller undoes the allocation.
    pub(crate) fn settle(self, account: Account, bytes: u64) -> Result<Self, Refusal> {
        let context = self.block.context;
        drop(self);
        reserve_block(account, context, bytes)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        credit_to(self.account, self.block);
    }
}

/// Takes the entry of `address` out of the books, still charged.
pub(crate) fn take(address: usize) -> Option<Block> {
    live(|live| live.blocks.remove(&address))
}

/// Puts back what [`take`] took: the driver did not free it.
pub(crate) fn put_back(address: usize, block: Block) {
    live(|live| live.blocks.insert(address, block));
}

/// Whether there is managed memory of a dynamic quota at `address`.
pub(crate) fn is_movable(address: usize) -> bool {
    live(|live| live.blocks.get(&address).copied()).is_some_and(|block| block.is_movable())
}

/// Others were given a hold on the memory of the block at `address`.
pub(crate) fn shared(address: usize) {
    live(|live| {
        if let Some(block) = live.blocks.get_mut(&address) {
            block.is_shared = true;
        }
    });
}

/// Gives back what a block was charged.
pub(crate) fn credit(block: Block) {
    if let Some(account) = of_member_device(block.device) {
        credit_to(account, block);
    }
}

fn credit_to(account: Account, block: Block) {
    match block.size {
        Size::Whole(units) => overhead::Going::default().add(account, units, block.is_shared),
        Size::Soft(units) => {
            account.take_soft(units);
            account.give_back(units);
            overhead::slack_changes();
            if account.soft() == Units::ZERO {
                // Without it, what is held says again what the overhead is.
                overhead::mark_stale();
            }
        }
        Size::Small(bytes) => live(|live| {
            let key = SmallKey { context: block.context, device: block.device };
            let Some(sum) = live.small.get_mut(&key) else { return };
            let after = sum.saturating_sub(bytes);
            account.give_back(pages(*sum).less(pages(after)));
            *sum = after;
        }),
    }
}

/// The primary context of `device` is `context`.
pub(crate) fn primary_is(device: CUdevice, context: usize) {
    live(|live| live.primaries.insert(device, context));
}

/// The primary context of `device` is gone, and with it all its blocks and arrays.
pub(crate) fn primary_is_gone(device: CUdevice) {
    if let Some(context) = live(|live| live.primaries.remove(&device)) {
        context_is_gone(context);
    }
}

/// Looks which primary contexts are still active.
pub(crate) fn primaries_are(active: impl Fn(CUdevice) -> bool) {
    let known: Vec<CUdevice> = live(|live| live.primaries.keys().copied().collect());
    for device in known.into_iter().filter(|device| !active(*device)) {
        primary_is_gone(device);
    }
}

/// Looks which contexts the driver no longer has, where it isn't said which one is gone.
pub(crate) fn contexts_are(gone: impl Fn(usize) -> bool) {
    let mut contexts: Vec<usize> = live(|live| live.blocks.values().map(|block| block.context).collect());
    contexts.sort_unstable();
    contexts.dedup();
    for context in contexts.into_iter().filter(|context| gone(*context)) {
        context_is_gone(context);
    }
}

/// A context is gone, and with it all its blocks and arrays.
pub(crate) fn context_is_gone(context: usize) {
    context_ends(context).gone();
}

/// What is in a context that is about to end. It leaves the books first: once the driver has ended it, another thread
/// may get the same handle for another one.
#[must_use]
pub(crate) struct Ending {
    blocks: Vec<(usize, Block)>,
    small: Vec<(SmallKey, u64)>,
}

/// Takes what is in `context` out of the books, still charged.
pub(crate) fn context_ends(context: usize) -> Ending {
    live(|live| Ending {
        blocks: live.blocks.extract_if(|_, block| block.context == context).collect(),
        small: live.small.extract_if(|key, _| key.context == context).collect(),
    })
}

impl Ending {
    /// The driver has ended it: everything is given back.
    pub(crate) fn gone(self) {
        for (key, bytes) in self.small {
            if let Some(account) = of_member_device(key.device) {
                account.give_back(pages(bytes));
            }
        }
        let mut going = overhead::Going::default();
        for (_, block) in self.blocks {
            let Some(account) = of_member_device(block.device) else { continue };
            match block.size {
                // They share pages, which have been given back together.
                Size::Small(_) => {}
                Size::Whole(units) => going.add(account, units, block.is_shared),
                Size::Soft(_) => credit_to(account, block),
            }
        }
    }

    /// The driver has not.
    pub(crate) fn undo(self) {
        live(|live| {
            live.blocks.extend(self.blocks);
            for (key, bytes) in self.small {
                *live.small.entry(key).or_insert(0) += bytes;
            }
        });
    }
}

/// A hasher for keys that are addresses: one multiplication spreads them well enough.
#[derive(Default, Clone, Copy)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}
