//! Access of one device to the memory of another.

use crate::args::{Answer, put};
use crate::entry::Call;
use crate::state;
use core::ffi::c_int;
use driver_api::{CUcontext, CUdevice, CUdevice_P2PAttribute, CUresult};
use std::collections::BTreeSet;

/// The contexts, by handle, whose memory a context may use. Copies between devices need no leave.
#[derive(Default)]
pub(crate) struct Peers(BTreeSet<usize>);

/// All devices of a simulated machine are neighbours on one bus.
pub(crate) fn cuDeviceCanAccessPeer(_: &Call, out: *mut c_int, device: CUdevice, peer: CUdevice) -> Answer {
    let (device, peer) = (state::device(device)?, state::device(peer)?);
    put(out, c_int::from(device.physical != peer.physical))
}

pub(crate) fn cuDeviceGetP2PAttribute(
    _: &Call,
    out: *mut c_int,
    attribute: CUdevice_P2PAttribute,
    source: CUdevice,
    target: CUdevice,
) -> Answer {
    const PERFORMANCE_RANK: CUdevice_P2PAttribute = 1;
    const ACCESS_SUPPORTED: CUdevice_P2PAttribute = 2;
    const NATIVE_ATOMIC_SUPPORTED: CUdevice_P2PAttribute = 3;
    const ARRAY_ACCESS_SUPPORTED: CUdevice_P2PAttribute = 4;
    const ONLY_PARTIAL_ATOMICS: CUdevice_P2PAttribute = 5;
    if state::device(source)?.physical == state::device(target)?.physical {
        return Err(CUresult::INVALID_DEVICE);
    }
    put(
        out,
        match attribute {
            ACCESS_SUPPORTED | ARRAY_ACCESS_SUPPORTED => 1,
            PERFORMANCE_RANK | NATIVE_ATOMIC_SUPPORTED | ONLY_PARTIAL_ATOMICS => 0,
            _ => return Err(CUresult::INVALID_VALUE),
        },
    )
}

pub(crate) fn cuCtxEnablePeerAccess(_: &Call, peer: CUcontext, flags: u32) -> Answer {
    let context = state::current()?;
    if peer.is_null() {
        return Err(CUresult::INVALID_CONTEXT);
    }
    let peer = state::context(peer)?;
    if flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    if peer.device.physical == context.device.physical {
        return Err(if peer.id == context.id { CUresult::INVALID_CONTEXT } else { CUresult::PEER_ACCESS_UNSUPPORTED });
    }
    let is_new = context.peers.lock().0.insert(peer.handle());
    if is_new { Ok(()) } else { Err(CUresult::PEER_ACCESS_ALREADY_ENABLED) }
}

pub(crate) fn cuCtxDisablePeerAccess(_: &Call, peer: CUcontext) -> Answer {
    let context = state::current()?;
    if peer.is_null() {
        return Err(CUresult::INVALID_CONTEXT);
    }
    let peer = state::context(peer)?;
    let was_enabled = context.peers.lock().0.remove(&peer.handle());
    if was_enabled { Ok(()) } else { Err(CUresult::PEER_ACCESS_NOT_ENABLED) }
}
