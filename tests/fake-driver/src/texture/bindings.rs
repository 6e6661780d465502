//! What texture and surface references are bound to.

use super::reference::find;
use crate::args::{Answer, get, optional, put};
use crate::array::ARRAYS;
use crate::array::mipmap::is_mipmap;
use crate::entry::Call;
use crate::memory;
use crate::registry::pointer;
use core::ffi::c_uint;
use driver_api::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUarray, CUdeviceptr, CUdeviceptr_v1, CUmipmappedArray, CUresult,
    CUsurfref, CUtexref,
};

/// `CU_TRSA_OVERRIDE_FORMAT`
const OVERRIDE_FORMAT: c_uint = 1;

/// Binds memory; the offset that the caller must add is 0, since any address will do.
fn bind(reference: CUtexref, address: CUdeviceptr, bytes: u64) -> Answer {
    let reference = find(reference)?;
    if address != 0 && !memory::covers(address, bytes.max(1), |_| true) {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut state = reference.state.lock();
    (state.address, state.array, state.mipmapped_array) = (address, 0, 0);
    Ok(())
}

pub(crate) fn cuTexRefSetAddress_v2(
    _: &Call,
    offset: *mut usize,
    reference: CUtexref,
    address: CUdeviceptr,
    bytes: usize,
) -> Answer {
    bind(reference, address, bytes as u64)?;
    optional(offset, 0);
    Ok(())
}

pub(crate) fn cuTexRefSetAddress(
    _: &Call,
    offset: *mut c_uint,
    reference: CUtexref,
    address: CUdeviceptr_v1,
    bytes: c_uint,
) -> Answer {
    bind(reference, address.into(), bytes.into())?;
    optional(offset, 0);
    Ok(())
}

pub(crate) fn cuTexRefSetAddress2D_v3(
    _: &Call,
    reference: CUtexref,
    description: *const CUDA_ARRAY_DESCRIPTOR,
    address: CUdeviceptr,
    pitch: usize,
) -> Answer {
    let rows = get(description)?.Height.max(1);
    bind(reference, address, pitch.saturating_mul(rows) as u64)
}

pub(crate) fn cuTexRefSetAddress2D_v2(
    call: &Call,
    reference: CUtexref,
    description: *const CUDA_ARRAY_DESCRIPTOR,
    address: CUdeviceptr,
    pitch: usize,
) -> Answer {
    cuTexRefSetAddress2D_v3(call, reference, description, address, pitch)
}

pub(crate) fn cuTexRefSetAddress2D(
    _: &Call,
    reference: CUtexref,
    description: *const CUDA_ARRAY_DESCRIPTOR_v1,
    address: CUdeviceptr_v1,
    pitch: c_uint,
) -> Answer {
    let rows = u64::from(get(description)?.Height.max(1));
    bind(reference, address.into(), rows * u64::from(pitch))
}

pub(crate) fn cuTexRefGetAddress_v2(_: &Call, address: *mut CUdeviceptr, reference: CUtexref) -> Answer {
    let bound = find(reference)?.state.lock().address;
    if bound == 0 { Err(CUresult::INVALID_VALUE) } else { put(address, bound) }
}

pub(crate) fn cuTexRefGetAddress(_: &Call, address: *mut CUdeviceptr_v1, reference: CUtexref) -> Answer {
    let bound = find(reference)?.state.lock().address;
    let short = CUdeviceptr_v1::try_from(bound).ok().filter(|short| *short != 0);
    put(address, short.ok_or(CUresult::INVALID_VALUE)?)
}

pub(crate) fn cuTexRefSetArray(_: &Call, reference: CUtexref, array: CUarray, flags: c_uint) -> Answer {
    let reference = find(reference)?;
    ARRAYS.get(array)?;
    if flags != OVERRIDE_FORMAT {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut state = reference.state.lock();
    (state.address, state.array, state.mipmapped_array) = (0, array.addr(), 0);
    Ok(())
}

pub(crate) fn cuTexRefGetArray(_: &Call, array: *mut CUarray, reference: CUtexref) -> Answer {
    let bound = find(reference)?.state.lock().array;
    if bound == 0 { Err(CUresult::INVALID_VALUE) } else { put(array, pointer(bound)) }
}

pub(crate) fn cuTexRefSetMipmappedArray(
    _: &Call,
    reference: CUtexref,
    array: CUmipmappedArray,
    flags: c_uint,
) -> Answer {
    let reference = find(reference)?;
    if !is_mipmap(array) || flags != OVERRIDE_FORMAT {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut state = reference.state.lock();
    (state.address, state.array, state.mipmapped_array) = (0, 0, array.addr());
    Ok(())
}

pub(crate) fn cuTexRefGetMipmappedArray(_: &Call, array: *mut CUmipmappedArray, reference: CUtexref) -> Answer {
    let bound = find(reference)?.state.lock().mipmapped_array;
    if bound == 0 { Err(CUresult::INVALID_VALUE) } else { put(array, pointer(bound)) }
}

pub(crate) fn cuSurfRefSetArray(_: &Call, reference: CUsurfref, array: CUarray, flags: c_uint) -> Answer {
    let reference = find(reference)?;
    ARRAYS.get(array)?;
    if flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    reference.state.lock().array = array.addr();
    Ok(())
}

pub(crate) fn cuSurfRefGetArray(call: &Call, array: *mut CUarray, reference: CUsurfref) -> Answer {
    cuTexRefGetArray(call, array, reference)
}
