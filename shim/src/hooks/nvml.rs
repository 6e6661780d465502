//! NVML shows the same view as CUDA: the quota as the device's memory, the tenant's own processes, no others.
#![allow(non_snake_case)]

use super::query::{View, view};
use super::{Answer, Refusal};
use crate::account::{self, Account};
use crate::args::{Out, Raw};
use crate::calls;
use crate::entry::Next;
use driver_api::{
    CUresult, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t,
    nvmlProcessInfo_v2_t,
};

/// NVML_ERROR_INSUFFICIENT_SIZE
const INSUFFICIENT_SIZE: CUresult = CUresult(7);
/// "No instance", in a process's instance ids.
const NO_INSTANCE: u32 = u32::MAX;

/// The account on NVML's device; `None` where nothing is counted.
fn account_on(device: nvmlDevice_t) -> Option<Account> {
    account::of_uuid(calls::nvml_uuid(device as usize)?)
}

fn view_on(device: nvmlDevice_t, free: u64) -> Option<View> {
    view(account_on(device), free)
}

pub(crate) fn nvmlDeviceGetMemoryInfo(next: Next<'_>, device: nvmlDevice_t, memory: Out<nvmlMemory_t>) -> Answer {
    next.call()?;
    if let Some(view) = view_on(device, memory.get().free) {
        memory.set(nvmlMemory_t { total: view.total, free: view.free, used: view.total - view.free });
    }
    Ok(())
}

/// As the first form; what the driver reserves for itself is not the tenant's.
pub(crate) fn nvmlDeviceGetMemoryInfo_v2(next: Next<'_>, device: nvmlDevice_t, memory: Out<nvmlMemory_v2_t>) -> Answer {
    next.call()?;
    let real = memory.get();
    if let Some(view) = view_on(device, real.free) {
        let used = view.total - view.free;
        memory.set(nvmlMemory_v2_t { version: real.version, total: view.total, reserved: 0, free: view.free, used });
    }
    Ok(())
}

pub(crate) fn nvmlDeviceGetComputeRunningProcesses(
    next: Next<'_>,
    device: nvmlDevice_t,
    infoCount: Out<u32>,
    infos: Raw<nvmlProcessInfo_v1_t>,
) -> Answer {
    own_processes(next, device, infoCount, infos, |pid, usedGpuMemory| nvmlProcessInfo_v1_t { pid, usedGpuMemory })
}

pub(crate) fn nvmlDeviceGetComputeRunningProcesses_v2(
    next: Next<'_>,
    device: nvmlDevice_t,
    infoCount: Out<u32>,
    infos: Raw<nvmlProcessInfo_v2_t>,
) -> Answer {
    own_processes(next, device, infoCount, infos, |pid, usedGpuMemory| nvmlProcessInfo_v2_t {
        pid,
        usedGpuMemory,
        gpuInstanceId: NO_INSTANCE,
        computeInstanceId: NO_INSTANCE,
    })
}

pub(crate) fn nvmlDeviceGetComputeRunningProcesses_v3(
    next: Next<'_>,
    device: nvmlDevice_t,
    infoCount: Out<u32>,
    infos: Raw<nvmlProcessInfo_t>,
) -> Answer {
    own_processes(next, device, infoCount, infos, |pid, usedGpuMemory| nvmlProcessInfo_t {
        pid,
        usedGpuMemory,
        gpuInstanceId: NO_INSTANCE,
        computeInstanceId: NO_INSTANCE,
    })
}

/// The list by the books, with pids as the tenant sees them: NVML's own names the host's, of everybody.
fn own_processes<T: Copy>(
    next: Next<'_>,
    device: nvmlDevice_t,
    count: Out<u32>,
    infos: Raw<T>,
    row: impl Fn(u32, u64) -> T,
) -> Answer {
    let Some(account) = account_on(device) else { return next.call() };
    let room = count.get() as usize;
    match next.call() {
        Ok(()) | Err(Refusal::Driver(INSUFFICIENT_SIZE)) => {}
        refusal => return refusal,
    }
    let holders = account.holders();
    count.set(u32::try_from(holders.len()).unwrap_or(u32::MAX));
    if holders.is_empty() {
        return Ok(());
    }
    let Some(infos) = infos.out().filter(|_| room >= holders.len()) else {
        return Err(Refusal::Driver(INSUFFICIENT_SIZE));
    };
    for (index, (pid, used)) in holders.into_iter().enumerate() {
        infos.set_nth(index, row(pid, used.0));
    }
    Ok(())
}

/// Graphics and MPS processes are nobody's here: the tenant's own are in the compute list.
fn nobody(next: Next<'_>, device: nvmlDevice_t, count: Out<u32>) -> Answer {
    let Some(_account) = account_on(device) else { return next.call() };
    match next.call() {
        Ok(()) | Err(Refusal::Driver(INSUFFICIENT_SIZE)) => count.set(0),
        refusal => return refusal,
    }
    Ok(())
}

pub(crate) fn nvmlDeviceGetGraphicsRunningProcesses(
    next: Next<'_>,
    device: nvmlDevice_t,
    infoCount: Out<u32>,
    _infos: Raw<nvmlProcessInfo_v1_t>,
) -> Answer {
    nobody(next, device, infoCount)
}

pub(crate) fn nvmlDeviceGetGraphicsRunningProcesses_v2(
    next: Next<'_>,
    device: nvmlDevice_t,
    infoCount: Out<u32>,
    _infos: Raw<nvmlProcessInfo_v2_t>,
) -> Answer {
    nobody(next, device, infoCount)
}

pub(crate) fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    next: Next<'_>,
    device: nvmlDevice_t,
    infoCount: Out<u32>,
    _infos: Raw<nvmlProcessInfo_t>,
) -> Answer {
    nobody(next, device, infoCount)
}

pub(crate) fn nvmlDeviceGetMPSComputeRunningProcesses(
    next: Next<'_>,
    device: nvmlDevice_t,
    infoCount: Out<u32>,
    _infos: Raw<nvmlProcessInfo_v1_t>,
) -> Answer {
    nobody(next, device, infoCount)
}

pub(crate) fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
    next: Next<'_>,
    device: nvmlDevice_t,
    infoCount: Out<u32>,
    _infos: Raw<nvmlProcessInfo_v2_t>,
) -> Answer {
    nobody(next, device, infoCount)
}

pub(crate) fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    next: Next<'_>,
    device: nvmlDevice_t,
    infoCount: Out<u32>,
    _infos: Raw<nvmlProcessInfo_t>,
) -> Answer {
    nobody(next, device, infoCount)
}
