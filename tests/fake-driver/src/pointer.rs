//! What a pointer is.

use crate::args::{Answer, get, put, slice};
use crate::entry::Call;
use crate::memory::{self, Block, Kind};
use crate::registry::{handle_of, pointer};
use crate::state;
use crate::vmm::map::reservation;
use core::ffi::c_void;
use driver_api::{CUdeviceptr, CUpointer_attribute, CUresult};

/// `CU_MEMORYTYPE_*`
const HOST: u32 = 1;
const DEVICE: u32 = 2;
/// `CU_DEVICE_INVALID`, the ordinal of memory that is no device's.
const NO_DEVICE: i32 = -2;

const SYNC_MEMOPS: CUpointer_attribute = 6;
const IS_MANAGED: CUpointer_attribute = 8;
const DEVICE_ORDINAL: CUpointer_attribute = 9;
/// `CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE` of CUDA 13, the last one.
const LAST: CUpointer_attribute = 21;

/// An attribute's value, as wide as the API documents it.
enum Value {
    Word(u32),
    Long(u64),
    Pointer(*mut c_void),
    /// There is none for this memory.
    Absent,
}

fn value(kind: CUpointer_attribute, address: u64, start: u64, block: &Block) -> Answer<Value> {
    let host = block.is_host();
    let managed = matches!(block.kind, Kind::Managed(_));
    let number = |address: u64| pointer(usize::try_from(address).unwrap_or(0));
    let (range, range_size) = match block.kind {
        Kind::Mapped(_) => reservation(start).unwrap_or((start, block.size)),
        _ => (start, block.size),
    };
    Ok(match kind {
        1 => Value::Pointer(block.context.as_ref().map_or(number(0), |context| context.pointer())),
        2 => Value::Word(if host { HOST } else { DEVICE }),
        3 => Value::Long(address),
        4 if host || managed => Value::Pointer(number(address)),
        4 => Value::Absent,
        SYNC_MEMOPS => Value::Word(block.synchronous.into()),
        7 | 20 => Value::Long(block.id),
        IS_MANAGED => Value::Word(managed.into()),
        DEVICE_ORDINAL => Value::Word(block.device.ordinal.cast_unsigned()),
        10 => Value::Word(matches!(block.kind, Kind::Linear).into()),
        11 => Value::Long(range),
        12 => Value::Long(range_size),
        13 => Value::Word(1),
        14 => Value::Long(match &block.kind {
            Kind::Mapped(mapping) => u64::from(mapping.handle_types().cast_unsigned()),
            Kind::Pool(pool) => u64::from(pool.handle_types().cast_unsigned()),
            _ => 0,
        }),
        15 | LAST => Value::Word(0),
        16 => Value::Word(match (block.allows(false), block.allows(true)) {
            (_, true) => 3,
            (true, false) => 1,
            _ => 0,
        }),
        17 => Value::Pointer(match &block.kind {
            Kind::Pool(pool) => pointer(handle_of(pool)),
            _ => number(0),
        }),
        18 => Value::Long(block.size),
        19 => Value::Long(start),
        _ => return Err(CUresult::INVALID_VALUE),
    })
}

/// The same for a pointer that the driver doesn't know; reserved addresses at least have a range.
fn value_of_unknown(kind: CUpointer_attribute, address: u64) -> Value {
    match (kind, reservation(address)) {
        (11, Some((start, _))) => Value::Long(start),
        (12, Some((_, size))) => Value::Long(size),
        (13, Some(_)) => Value::Word(0),
        _ => Value::Absent,
    }
}

fn write(out: *mut c_void, value: &Value) -> Answer {
    match *value {
        Value::Word(word) => put(out.cast::<u32>(), word),
        Value::Long(long) => put(out.cast::<u64>(), long),
        Value::Pointer(pointer) => put(out.cast::<*mut c_void>(), pointer),
        Value::Absent => Err(CUresult::INVALID_VALUE),
    }
}

/// Where there is no value, `cuPointerGetAttributes` writes nothing but zeros. Widths are what callers
/// are known to provide.
fn write_absent(out: *mut c_void, kind: CUpointer_attribute) -> Answer {
    match kind {
        DEVICE_ORDINAL => put(out.cast::<i32>(), NO_DEVICE),
        IS_MANAGED => put(out.cast::<u8>(), 0),
        2 | SYNC_MEMOPS | 10 | 13 | 15 | 16 | LAST => put(out.cast::<u32>(), 0),
        _ => put(out.cast::<u64>(), 0),
    }
}

pub(crate) fn cuPointerGetAttribute(
    _: &Call,
    out: *mut c_void,
    kind: CUpointer_attribute,
    address: CUdeviceptr,
) -> Answer {
    match memory::find(address) {
        Some((start, block)) => write(out, &value(kind, address, start, &block)?),
        None => write(out, &value_of_unknown(kind, address)),
    }
}

/// Unknown pointers are no error here: clients tell pageable memory that way.
pub(crate) fn cuPointerGetAttributes(
    _: &Call,
    count: u32,
    kinds: *mut CUpointer_attribute,
    outs: *mut *mut c_void,
    address: CUdeviceptr,
) -> Answer {
    let (kinds, outs) = (slice(kinds, count as usize)?, slice(outs, count as usize)?);
    if kinds.is_empty() || kinds.iter().any(|kind| !(1..=LAST).contains(kind) || *kind == 5) {
        return Err(CUresult::INVALID_VALUE);
    }
    let found = memory::find(address);
    for (&kind, &out) in kinds.iter().zip(outs) {
        let value = match &found {
            Some((start, block)) => value(kind, address, *start, block)?,
            None => value_of_unknown(kind, address),
        };
        match value {
            Value::Absent => write_absent(out, kind)?,
            value => write(out, &value)?,
        }
    }
    Ok(())
}

pub(crate) fn cuPointerSetAttribute(
    _: &Call,
    value: *const c_void,
    kind: CUpointer_attribute,
    address: CUdeviceptr,
) -> Answer {
    state::current()?;
    if kind != SYNC_MEMOPS {
        return Err(CUresult::INVALID_VALUE);
    }
    let synchronous = get(value.cast::<u32>())? != 0;
    memory::change(address, |block| block.synchronous = synchronous)
}
