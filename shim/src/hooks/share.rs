//! Memory that others may keep alive: exported, bound to an object, or behind a tile. What it was charged stays
//! charged for as long as the driver holds it, whoever gives up which handle.
#![allow(non_snake_case, clippy::too_many_arguments)]

use super::Answer;
use crate::args::Raw;
use crate::entry::Next;
use crate::{live, log, overhead, vmm};
use core::ffi::c_void;
use driver_api::{
    CUarrayMapInfo, CUdevice, CUdeviceptr, CUipcMemHandle, CUlogicalEndpointId, CUmemGenericAllocationHandle, CUstream,
};
use quota_core::settings::LogLevel;

/// Managed memory has no handle for others: the driver says so, and we why it is managed.
pub(crate) fn cuIpcGetMemHandle(next: Next<'_>, _pHandle: Raw<CUipcMemHandle>, dptr: CUdeviceptr) -> Answer {
    next.call().inspect_err(|_| {
        static SAID: log::Once = log::Once::new();
        if live::is_movable(dptr as usize) && SAID.first() {
            log::line(
                LogLevel::Warn,
                format_args!("cuIpcGetMemHandle: memory of an oversubscribed job may be moved to the host, and can't be shared with other processes; run it without --oversubscribe"),
            );
        }
    })
}

pub(crate) fn cuMemExportToShareableHandle(
    next: Next<'_>,
    _shareableHandle: Raw<c_void>,
    handle: CUmemGenericAllocationHandle,
    _handleType: i32,
    _flags: u64,
) -> Answer {
    next.call()?;
    vmm::shared(handle);
    Ok(())
}

pub(crate) fn cuMemGetHandleForAddressRange(
    next: Next<'_>,
    _handle: Raw<c_void>,
    dptr: CUdeviceptr,
    _size: usize,
    _handleType: i32,
    _flags: u64,
) -> Answer {
    next.call()?;
    shared_at(dptr);
    Ok(())
}

fn shared_at(address: CUdeviceptr) {
    live::shared(address as usize);
    vmm::shared_at(address);
}

pub(crate) fn cuMulticastBindMem(
    next: Next<'_>,
    _mcHandle: CUmemGenericAllocationHandle,
    _mcOffset: usize,
    memHandle: CUmemGenericAllocationHandle,
    _memOffset: usize,
    _size: usize,
    _flags: u64,
) -> Answer {
    next.call()?;
    vmm::shared(memHandle);
    Ok(())
}

pub(crate) fn cuMulticastBindMem_v2(
    next: Next<'_>,
    _mcHandle: CUmemGenericAllocationHandle,
    _dev: CUdevice,
    _mcOffset: usize,
    memHandle: CUmemGenericAllocationHandle,
    _memOffset: usize,
    _size: usize,
    _flags: u64,
) -> Answer {
    next.call()?;
    vmm::shared(memHandle);
    Ok(())
}

pub(crate) fn cuMulticastBindAddr(
    next: Next<'_>,
    _mcHandle: CUmemGenericAllocationHandle,
    _mcOffset: usize,
    memptr: CUdeviceptr,
    _size: usize,
    _flags: u64,
) -> Answer {
    next.call()?;
    shared_at(memptr);
    Ok(())
}

pub(crate) fn cuMulticastBindAddr_v2(
    next: Next<'_>,
    _mcHandle: CUmemGenericAllocationHandle,
    _dev: CUdevice,
    _mcOffset: usize,
    memptr: CUdeviceptr,
    _size: usize,
    _flags: u64,
) -> Answer {
    next.call()?;
    shared_at(memptr);
    Ok(())
}

/// Tiles of a sparse array keep the memory behind them.
pub(crate) fn cuMemMapArrayAsync(
    next: Next<'_>,
    mapInfoList: Raw<CUarrayMapInfo>,
    count: u32,
    _hStream: CUstream,
) -> Answer {
    let handles: Vec<_> = match mapInfoList.out() {
        Some(list) => (0..count as usize).map(|at| list.get_nth(at).memHandle).collect(),
        None => Vec::new(),
    };
    next.call()?;
    handles.into_iter().filter(|handle| *handle != 0).for_each(vmm::shared);
    // What was behind a tile until now may be gone once the stream gets there.
    overhead::mark_stale();
    Ok(())
}

pub(crate) fn cuMulticastUnbind(
    next: Next<'_>,
    _mcHandle: CUmemGenericAllocationHandle,
    _dev: CUdevice,
    _mcOffset: usize,
    _size: usize,
) -> Answer {
    let_go(next)
}

pub(crate) fn cuLogicalEndpointBindMem(
    next: Next<'_>,
    _leId: CUlogicalEndpointId,
    _dev: CUdevice,
    _offset: u64,
    memHandle: CUmemGenericAllocationHandle,
    _memOffset: u64,
    _size: u64,
    _flags: u64,
) -> Answer {
    next.call()?;
    vmm::shared(memHandle);
    Ok(())
}

pub(crate) fn cuLogicalEndpointBindAddr(
    next: Next<'_>,
    _leId: CUlogicalEndpointId,
    _dev: CUdevice,
    _offset: u64,
    ptr: *mut c_void,
    _size: u64,
    _flags: u64,
) -> Answer {
    next.call()?;
    shared_at(ptr as u64);
    Ok(())
}

pub(crate) fn cuLogicalEndpointUnbind(
    next: Next<'_>,
    _leId: CUlogicalEndpointId,
    _dev: CUdevice,
    _offset: u64,
    _size: u64,
) -> Answer {
    let_go(next)
}

pub(crate) fn cuLogicalEndpointDestroy(next: Next<'_>, _leId: CUlogicalEndpointId) -> Answer {
    let_go(next)
}

pub(crate) fn cuLogicalEndpointIdRelease(next: Next<'_>, _baseLeId: CUlogicalEndpointId, _count: u32) -> Answer {
    let_go(next)
}

/// What was held by an object may be gone now.
fn let_go(next: Next<'_>) -> Answer {
    overhead::around_free(|| next.call())
}
