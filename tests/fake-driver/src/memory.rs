//! Device memory: every block there is, what it is charged, and where it lies.
//!
//! Charging follows `driver_api::layout`: small blocks of a context share pages, everything else takes
//! whole pages. Addresses come from [`ranges`]; memory behind them exists when it is touched, so that a
//! large device fits a small host. A block that is freed leaves its addresses mapped, so that a copy which
//! comes too late (an error of the program's) harms nobody else.

pub(crate) mod info;
pub(crate) mod legacy;
pub(crate) mod linear;
pub(crate) mod ranges;

use crate::args::Answer;
use crate::context::Context;
use crate::external::Buffer;
use crate::managed::Managed;
use crate::pages;
use crate::pool::Pool;
use crate::state::Device;
use crate::vmm::Mapping;
use core::sync::atomic::{AtomicU64, Ordering};
use driver_api::{CUresult, layout};
use parking_lot::Mutex;
use ranges::{Ranges, Source};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a block is.
#[derive(Clone)]
pub(crate) enum Kind {
    /// `cuMemAlloc` and its like.
    Linear,
    /// A module's variable, which only goes with the module.
    Global,
    /// `cuMemAllocManaged`, with its hints.
    Managed(Managed),
    /// Pinned host memory of ours, with its flags.
    Host(u32),
    /// Host memory of the program's, with its flags.
    Registered(u32),
    /// From a memory pool, which is charged for it.
    Pool(Arc<Pool>),
    /// Memory that another process owns; its mapping is `ipc`'s.
    Imported,
    /// An address range with a memory handle behind it.
    Mapped(Arc<Mapping>),
    /// A buffer in memory of another API.
    External(Arc<Buffer>),
    /// Memory of a graph, charged as graph memory.
    Graph,
}

/// A block of addresses that mean memory.
#[derive(Clone)]
pub(crate) struct Block {
    /// Bytes that may be used.
    pub(crate) size: u64,
    /// Addresses taken, at least as many.
    room: u64,
    /// What it is.
    pub(crate) kind: Kind,
    /// The context in which it was made; `None` for memory that belongs to none.
    pub(crate) context: Option<Arc<Context>>,
    /// The device it is on, or for which it was made.
    pub(crate) device: &'static Device,
    /// Never used twice.
    pub(crate) id: u64,
    /// Bytes charged to the device for it alone (small blocks are charged together).
    charged: u64,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub(crate) synchronous: bool,
}

impl Block {
    /// True for memory of the host.
    pub(crate) fn is_host(&self) -> bool {
        matches!(self.kind, Kind::Host(_) | Kind::Registered(_))
    }

    /// True when it may be read, and written too if that is asked: mappings allow only what was set.
    pub(crate) fn allows(&self, write: bool) -> bool {
        match &self.kind {
            Kind::Mapped(mapping) => mapping.allows(write),
            _ => true,
        }
    }

    /// True for memory that `cuMemFree` and its like may free.
    pub(crate) fn is_freeable(&self) -> bool {
        match self.kind {
            Kind::Linear | Kind::External(_) => true,
            Kind::Managed(managed) => !managed.is_variable,
            _ => false,
        }
    }

    /// True for memory that is freed as one of many in shared pages.
    fn is_small(&self) -> bool {
        matches!(self.kind, Kind::Linear | Kind::Global) && self.size <= layout::SMALL_BLOCK_MAX
    }
}

/// What a context's small blocks take together, or its small variables: they have pages of their own.
#[derive(Default)]
pub(crate) struct SmallBlocks {
    bytes: u64,
    charged: u64,
}

impl SmallBlocks {
    fn grow(&mut self, device: &Device, bytes: u64) -> Answer {
        let pages = layout::round_up(self.bytes + bytes, layout::DEVICE_PAGE).ok_or(CUresult::OUT_OF_MEMORY)?;
        if pages > self.charged {
            device.take(pages - self.charged)?;
            self.charged = pages;
        }
        self.bytes += bytes;
        Ok(())
    }

    fn shrink(&mut self, device: &Device, bytes: u64) {
        self.bytes -= bytes;
        let pages = layout::round_up(self.bytes, layout::DEVICE_PAGE).unwrap_or(self.charged);
        if pages < self.charged {
            device.give(self.charged - pages);
            self.charged = pages;
        }
    }
}

/// All blocks of the process, by address, and the addresses that are free.
struct Table {
    blocks: BTreeMap<u64, Block>,
    small: Ranges,
    large: Ranges,
    low: Ranges,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    blocks: BTreeMap::new(),
    small: Ranges::new(Source::Any, 64 << 20, layout::BLOCK_UNIT),
    large: Ranges::new(Source::Any, 1 << 30, layout::DEVICE_PAGE),
    low: Ranges::new(Source::Low, 16 << 20, layout::BLOCK_UNIT),
});

/// A number for a block, never used twice.
fn next_id() -> u64 {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Which addresses a block gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Anywhere.
    Any,
    /// Where a 32-bit pointer can name it.
    Low,
}

impl Table {
    fn place(&mut self, room: u64, placement: Placement) -> Answer<u64> {
        let ranges = self.ranges(room, placement);
        ranges.take(room).ok_or(CUresult::OUT_OF_MEMORY)
    }

    fn ranges(&mut self, room: u64, placement: Placement) -> &mut Ranges {
        match placement {
            Placement::Low => &mut self.low,
            Placement::Any if room > layout::SMALL_BLOCK_MAX => &mut self.large,
            Placement::Any => &mut self.small,
        }
    }

    /// Gives a block's addresses back, or takes its memory file out of them.
    fn displace(&mut self, start: u64, block: &Block) {
        match &block.kind {
            Kind::Registered(_) | Kind::Mapped(_) | Kind::Imported => {}
            Kind::External(buffer) => buffer.unmap(),
            Kind::Pool(pool) if pool.is_shared() => {}
            _ => {
                if block.room > layout::SMALL_BLOCK_MAX {
                    crate::ipc::unshare(start);
                    pages::discard(start, block.room);
                }
                let placement = if start + block.room <= 1 << 32 { Placement::Low } else { Placement::Any };
                self.ranges(block.room, placement).give(start, block.room);
            }
        }
    }
}

/// What a block is charged alone; small linear blocks are charged together, the rest elsewhere.
fn own_charge(kind: &Kind, bytes: u64) -> Option<u64> {
    match kind {
        Kind::Linear | Kind::Global if bytes <= layout::SMALL_BLOCK_MAX => Some(0),
        Kind::Linear | Kind::Global | Kind::Managed(_) => layout::round_up(bytes, layout::DEVICE_PAGE),
        _ => Some(0),
    }
}

/// Takes memory and addresses for a block of `size` bytes.
pub(crate) fn allocate(context: &Arc<Context>, size: u64, kind: Kind, placement: Placement) -> Answer<u64> {
    allocate_on(context.device, Some(context), size, kind, placement)
}

/// The same for memory that is on another device than its context's, or belongs to no context.
pub(crate) fn allocate_on(
    device: &'static Device,
    context: Option<&Arc<Context>>,
    size: u64,
    kind: Kind,
    placement: Placement,
) -> Answer<u64> {
    if size == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let room = layout::block_bytes(size).ok_or(CUresult::OUT_OF_MEMORY)?;
    if room > 1 << 46 {
        return Err(CUresult::OUT_OF_MEMORY);
    }
    let managed = matches!(kind, Kind::Managed(_));
    let charged = own_charge(&kind, size).ok_or(CUresult::OUT_OF_MEMORY)?;
    let mut block =
        Block { size, room, kind, context: context.cloned(), device, id: next_id(), charged: 0, synchronous: false };
    if block.is_small() {
        let context = context.ok_or(CUresult::INVALID_CONTEXT)?;
        context.small_blocks(&block.kind).lock().grow(device, room)?;
    } else if managed {
        device.take_managed(charged);
    } else {
        device.take(charged)?;
    }
    block.charged = charged;
    let mut table = TABLE.lock();
    match table.place(room, placement) {
        Ok(start) => {
            table.blocks.insert(start, block);
            Ok(start)
        }
        Err(error) => {
            drop(table);
            uncharge(&block);
            Err(error)
        }
    }
}

/// Gives a block's device memory back.
fn uncharge(block: &Block) {
    if block.is_small() {
        if let Some(context) = &block.context {
            context.small_blocks(&block.kind).lock().shrink(block.device, block.room);
        }
    } else if matches!(block.kind, Kind::Managed(_)) {
        block.device.give_managed(block.charged);
    } else {
        block.device.give(block.charged);
    }
}

/// Makes memory known that lies where its owner put it: registered, mapped, imported.
pub(crate) fn adopt(start: u64, size: u64, kind: Kind, context: Option<&Arc<Context>>, device: &'static Device) -> u64 {
    let id = next_id();
    let block = Block { size, room: size, kind, context: context.cloned(), device, id, charged: 0, synchronous: false };
    TABLE.lock().blocks.insert(start, block);
    id
}

/// The block that begins at `start`, if `wanted` accepts it, is no more.
pub(crate) fn remove(start: u64, wanted: impl FnOnce(&Block) -> bool) -> Option<Block> {
    let mut table = TABLE.lock();
    if !wanted(table.blocks.get(&start)?) {
        return None;
    }
    let block = table.blocks.remove(&start)?;
    table.displace(start, &block);
    drop(table);
    uncharge(&block);
    Some(block)
}

/// The block that `address` lies in, and where it begins.
pub(crate) fn find(address: u64) -> Option<(u64, Block)> {
    let table = TABLE.lock();
    let (&start, block) = table.blocks.range(..=address).next_back()?;
    (address - start < block.size).then(|| (start, block.clone()))
}

/// Changes the block that `address` lies in.
pub(crate) fn change(address: u64, change: impl FnOnce(&mut Block)) -> Answer {
    let mut table = TABLE.lock();
    let (&start, block) = table.blocks.range_mut(..=address).next_back().ok_or(CUresult::INVALID_VALUE)?;
    if address - start >= block.size {
        return Err(CUresult::INVALID_VALUE);
    }
    change(block);
    Ok(())
}

/// True when every byte of the range is in some block that `usable` accepts; neighbouring mappings join.
pub(crate) fn covers(address: u64, bytes: u64, usable: impl Fn(&Block) -> bool) -> bool {
    let Some(end) = address.checked_add(bytes) else { return false };
    let table = TABLE.lock();
    let Some((&first, _)) = table.blocks.range(..=address).next_back() else { return false };
    let mut reached = address;
    for (&start, block) in table.blocks.range(first..) {
        if start > reached || reached - start >= block.size || !usable(block) {
            return false;
        }
        reached = start + block.size;
        if reached >= end {
            return true;
        }
    }
    false
}

/// True when some block overlaps the range.
pub(crate) fn overlaps(address: u64, bytes: u64) -> bool {
    let table = TABLE.lock();
    table
        .blocks
        .range(..address.saturating_add(bytes))
        .next_back()
        .is_some_and(|(&start, block)| start + block.size > address)
}

/// The blocks that begin in the range, with their addresses.
pub(crate) fn within(address: u64, bytes: u64) -> Vec<(u64, Block)> {
    let table = TABLE.lock();
    let end = address.saturating_add(bytes);
    table.blocks.range(address..end).map(|(&start, block)| (start, block.clone())).collect()
}

/// What becomes a file when a block of linear memory is shared: the block itself, or for a small one all that
/// shares its pages. Start and size.
pub(crate) fn sharing_unit(start: u64, block: &Block) -> Option<(u64, u64)> {
    if block.room > layout::SMALL_BLOCK_MAX {
        return Some((start, block.room));
    }
    let table = TABLE.lock();
    table.small.span_of(start).or_else(|| table.low.span_of(start))
}

/// Where the blocks are that `wanted` accepts.
pub(crate) fn addresses(wanted: impl Fn(&Block) -> bool) -> Vec<u64> {
    TABLE.lock().blocks.iter().filter(|(_, block)| wanted(block)).map(|(&start, _)| start).collect()
}

/// Frees what a context leaves behind: pointer memory, not pools' nor handles'.
pub(crate) fn context_closes(context: &Arc<Context>) {
    let mut table = TABLE.lock();
    let belongs = |block: &Block| {
        let owned = match block.kind {
            Kind::Linear
            | Kind::Global
            | Kind::Managed(_)
            | Kind::Host(_)
            | Kind::Registered(_)
            | Kind::External(_) => true,
            Kind::Pool(_) | Kind::Imported | Kind::Mapped(_) | Kind::Graph => false,
        };
        owned && block.context.as_ref().is_some_and(|owner| owner.id == context.id)
    };
    let left: Vec<u64> = table.blocks.iter().filter(|(_, block)| belongs(block)).map(|(&start, _)| start).collect();
    let mut blocks = Vec::new();
    for start in left {
        if let Some(block) = table.blocks.remove(&start) {
            table.displace(start, &block);
            blocks.push(block);
        }
    }
    drop(table);
    blocks.iter().for_each(uncharge);
}

/// Fails with 1 unless every byte of the range is memory that the device may write.
pub(crate) fn check_range(address: u64, bytes: u64) -> Answer {
    if covers(address, bytes, |block| block.allows(true)) { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}
