//! Memory that is bound to places of an object without memory: a multicast object or a logical endpoint.
//!
//! What is bound lives until it is unbound or its object is gone.

use super::{Physical, find};
use crate::args::Answer;
use crate::memory::{self, Kind};
use crate::pool::Pool;
use crate::state::{self, Device};
use driver_api::layout::DEVICE_PAGE;
use driver_api::{CUdevice, CUdeviceptr, CUmemGenericAllocationHandle, CUresult};
use parking_lot::Mutex;
use std::sync::Arc;

/// Sizes and offsets are multiples of it, and more is not recommended.
pub(super) const GRANULARITY: u64 = DEVICE_PAGE;

/// Where in an object something is bound.
#[derive(Clone, Copy)]
pub(super) struct Place {
    offset: u64,
    size: u64,
}

impl Place {
    /// Fails for a place that an object of `whole` bytes has not.
    pub(super) fn new(offset: u64, size: u64, whole: u64) -> Answer<Self> {
        let is_aligned = size > 0 && size.is_multiple_of(GRANULARITY) && offset.is_multiple_of(GRANULARITY);
        let is_inside = offset.checked_add(size).is_some_and(|end| end <= whole);
        if is_aligned && is_inside { Ok(Self { offset, size }) } else { Err(CUresult::INVALID_VALUE) }
    }

    fn end(self) -> u64 {
        self.offset + self.size
    }

    fn overlaps(self, other: Self) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }

    fn contains(self, other: Self) -> bool {
        self.offset <= other.offset && other.end() <= self.end()
    }
}

/// Memory to be bound, which lives as long as this value.
pub(super) enum Memory {
    /// Behind a handle.
    Physical(Arc<Physical>),
    /// In a pool, on a device.
    Pool(#[allow(dead_code)] Arc<Pool>, &'static Device), // Held, and never looked at.
}

impl Memory {
    /// Memory from `offset` on behind a handle.
    pub(super) fn of_handle(handle: CUmemGenericAllocationHandle, offset: u64, size: u64, flags: u64) -> Answer<Self> {
        let memory = find(handle)?;
        let is_inside = offset.checked_add(size).is_some_and(|end| end <= memory.size);
        if flags != 0 || memory.team.is_some() || !is_inside || !offset.is_multiple_of(GRANULARITY) {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(Self::Physical(memory))
    }

    /// Memory at an address, where a handle is mapped or a pool's block lies.
    pub(super) fn at(address: CUdeviceptr, size: u64, flags: u64) -> Answer<Self> {
        let (start, block) = memory::find(address).ok_or(CUresult::INVALID_VALUE)?;
        let is_inside = size <= block.size - (address - start);
        if flags != 0 || !address.is_multiple_of(GRANULARITY) || !is_inside {
            return Err(CUresult::INVALID_VALUE);
        }
        match block.kind {
            Kind::Mapped(mapping) if mapping.physical.team.is_none() => {
                Ok(Self::Physical(Arc::clone(&mapping.physical)))
            }
            Kind::Pool(pool) => Ok(Self::Pool(pool, block.device)),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    /// True when other processes may have it, too.
    pub(super) fn is_shareable(&self) -> bool {
        match self {
            Self::Physical(memory) => memory.properties.handle_types != 0,
            Self::Pool(pool, _) => pool.handle_types() != 0,
        }
    }

    /// The device for which it is bound: its own, which may be named, or for the host's memory the one that is named.
    pub(super) fn device_for(&self, named: Option<CUdevice>) -> Answer<&'static Device> {
        let named = named.map(state::device).transpose()?;
        let own = match self {
            Self::Physical(memory) => memory.device(),
            Self::Pool(_, device) => Some(*device),
        };
        match (own, named) {
            (Some(own), Some(named)) if own.physical != named.physical => Err(CUresult::INVALID_VALUE),
            (own, named) => own.or(named).ok_or(CUresult::INVALID_VALUE),
        }
    }
}

/// One binding.
struct Binding {
    device: usize,
    place: Place,
    _memory: Memory,
}

/// All that one process has bound to an object.
#[derive(Default)]
pub(super) struct Bindings(Mutex<Vec<Binding>>);

impl Bindings {
    /// Fails where the device has something bound already.
    pub(super) fn bind(&self, device: &Device, place: Place, memory: Memory) -> Answer {
        let mut bindings = self.0.lock();
        if bindings.iter().any(|other| other.device == device.physical && other.place.overlaps(place)) {
            return Err(CUresult::INVALID_VALUE);
        }
        bindings.push(Binding { device: device.physical, place, _memory: memory });
        Ok(())
    }

    /// Ends the bindings in a place: there has to be one, and none may lie there in part.
    pub(super) fn unbind(&self, device: &Device, place: Place) -> Answer {
        let mut bindings = self.0.lock();
        let touches = |binding: &Binding| binding.device == device.physical && binding.place.overlaps(place);
        let mut touched = bindings.iter().filter(|binding| touches(binding)).peekable();
        if touched.peek().is_none() || !touched.all(|binding| place.contains(binding.place)) {
            return Err(CUresult::INVALID_VALUE);
        }
        let ended: Vec<Binding> = bindings.extract_if(.., |binding| touches(binding)).collect();
        // Memory that ends here is given back, which is not for the lock.
        drop(bindings);
        drop(ended);
        Ok(())
    }
}
