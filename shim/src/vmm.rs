//! Physical memory of the virtual-memory calls: alive while a handle, a reference or a mapping is.
//!
//! The driver may give a handle's number out again while memory made under it is still mapped, so the books
//! number the memory themselves.

use crate::account::{Charge, of_charge};
use crate::overhead;
use std::collections::{BTreeMap, HashMap};

/// The books.
#[derive(Default)]
pub(crate) struct Vmm {
    memory: HashMap<u64, Physical>,
    handles: HashMap<u64, u64>,
    mappings: BTreeMap<u64, Mapped>,
    last: u64,
}

struct Physical {
    charge: Option<Charge>,
    references: u32,
    mappings: u32,
    /// Others were given a hold on it, which we can't follow.
    is_shared: bool,
}

struct Mapped {
    bytes: u64,
    memory: u64,
}

fn vmm<T>(f: impl FnOnce(&mut Vmm) -> T) -> T {
    f(&mut crate::process::process().vmm.lock())
}

/// `handle` is new physical memory; `charge` is `None` for imports, host memory, and where nothing is counted.
pub(crate) fn created(handle: u64, charge: Option<Charge>) {
    vmm(|vmm| {
        vmm.last += 1;
        let memory = vmm.last;
        vmm.memory.insert(memory, Physical { charge, references: 1, mappings: 0, is_shared: false });
        vmm.handles.insert(handle, memory);
    });
}

/// An import gave `handle`: of memory that we know, if the driver says so by the number, else of others'.
pub(crate) fn imported(handle: u64) {
    let known = vmm(|vmm| vmm.add_reference(handle));
    if !known {
        created(handle, None);
    }
}

/// A reference that is about to go. It leaves the books first: once the driver has let the handle go, another thread may
/// get the same number for other memory.
#[must_use]
pub(crate) struct Releasing {
    handle: u64,
    memory: u64,
}

/// One reference to `handle` is about to go.
pub(crate) fn releasing(handle: u64) -> Option<Releasing> {
    vmm(|vmm| {
        let memory = *vmm.handles.get(&handle)?;
        let physical = vmm.memory.get_mut(&memory)?;
        physical.references = physical.references.saturating_sub(1);
        if physical.references == 0 {
            vmm.handles.remove(&handle);
        }
        Some(Releasing { handle, memory })
    })
}

impl Releasing {
    /// The driver has done it.
    pub(crate) fn done(self) {
        credit(vmm(|vmm| vmm.drop_if_unused(self.memory)));
    }

    /// The driver has not.
    pub(crate) fn undo(self) {
        vmm(|vmm| {
            if let Some(physical) = vmm.memory.get_mut(&self.memory) {
                physical.references += 1;
                vmm.handles.insert(self.handle, self.memory);
            }
        });
    }
}

/// `bytes` of the memory of `handle` are mapped at `address`.
pub(crate) fn mapped(address: u64, bytes: u64, handle: u64) {
    vmm(|vmm| {
        let Some(memory) = vmm.handles.get(&handle).copied() else { return };
        let Some(physical) = vmm.memory.get_mut(&memory) else { return };
        physical.mappings += 1;
        vmm.mappings.insert(address, Mapped { bytes, memory });
    });
}

/// Nothing is mapped from `address` on for `bytes` any more.
pub(crate) fn unmapped(address: u64, bytes: u64) {
    let end = address.saturating_add(bytes);
    let gone: Vec<Gone> = vmm(|vmm| {
        let inside = |(at, mapped): (&u64, &Mapped)| (at.saturating_add(mapped.bytes) <= end).then_some(*at);
        let places: Vec<u64> = vmm.mappings.range(address..end).filter_map(inside).collect();
        places.into_iter().filter_map(|at| vmm.unmap(at)).collect()
    });
    credit(gone);
}

/// `handle` is one more reference to whatever is mapped at `address`.
pub(crate) fn retained(handle: u64, address: u64) {
    vmm(|vmm| {
        let Some(memory) = vmm.at(address) else { return };
        if let Some(physical) = vmm.memory.get_mut(&memory) {
            physical.references += 1;
            vmm.handles.insert(handle, memory);
        }
    });
}

/// Others were given a hold on the memory of `handle`.
pub(crate) fn shared(handle: u64) {
    vmm(|vmm| {
        let memory = vmm.handles.get(&handle).copied();
        vmm.share(memory);
    });
}

/// Others were given a hold on what is mapped at `address`.
pub(crate) fn shared_at(address: u64) {
    vmm(|vmm| {
        let memory = vmm.at(address);
        vmm.share(memory);
    });
}

impl Vmm {
    fn share(&mut self, memory: Option<u64>) {
        if let Some(physical) = memory.and_then(|memory| self.memory.get_mut(&memory)) {
            physical.is_shared = true;
        }
    }

    fn add_reference(&mut self, handle: u64) -> bool {
        let physical = self.handles.get(&handle).and_then(|memory| self.memory.get_mut(memory));
        physical.map(|physical| physical.references += 1).is_some()
    }

    fn unmap(&mut self, address: u64) -> Option<Gone> {
        let memory = self.mappings.remove(&address)?.memory;
        let physical = self.memory.get_mut(&memory)?;
        physical.mappings = physical.mappings.saturating_sub(1);
        self.drop_if_unused(memory)
    }

    fn at(&self, address: u64) -> Option<u64> {
        let (at, mapped) = self.mappings.range(..=address).next_back()?;
        (address - at < mapped.bytes).then_some(mapped.memory)
    }

    /// Takes the memory out of the books when nothing refers to it; its charge, if it had one.
    fn drop_if_unused(&mut self, memory: u64) -> Option<Gone> {
        let physical = self.memory.get(&memory)?;
        if physical.references > 0 || physical.mappings > 0 {
            return None;
        }
        let Physical { charge, is_shared, .. } = self.memory.remove(&memory)?;
        charge.map(|charge| Gone { charge, is_shared })
    }
}

/// Memory of which this process has nothing any more.
struct Gone {
    charge: Charge,
    is_shared: bool,
}

fn credit(gone: impl IntoIterator<Item = Gone>) {
    let mut going = overhead::Going::default();
    for Gone { charge, is_shared } in gone {
        if let Some(account) = of_charge(charge) {
            going.add(account, charge.units, is_shared);
        }
    }
}
