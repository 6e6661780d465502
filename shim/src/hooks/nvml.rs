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
const NO_INSTANCE: (u32, u32) = (u32::MAX, u32::MAX);

/// The account on NVML's device; `None` where nothing is counted.
fn account_on(device: nvmlDevice_t) -> Option<Account> {
    account::of_uuid(calls::nvml_uuid(device as usize)?)
}

/// The accounts whose processes NVML lists there: of a divided device, those on its instances, each with the numbers of its own.
fn accounts_on(device: nvmlDevice_t) -> Vec<(Account, (u32, u32))> {
    let on = |device: usize| {
        let account = account::of_uuid(calls::nvml_uuid(device)?)?;
        Some((account, calls::nvml_instance_numbers(device).unwrap_or(NO_INSTANCE)))
    };
    match on(device as usize) {
        Some(own) => vec![own],
        None => calls::nvml_instances(device as usize).into_iter().flatten().filter_map(on).collect(),
    }
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
    own_processes(next, device, infoCount, infos, |pid, usedGpuMemory, _| nvmlProcessInfo_v1_t { pid, usedGpuMemory })
}

pub(crate) fn nvmlDeviceGetComputeRunningProcesses_v2(
    next: Next<'_>,
    device: nvmlDevice_t,
    infoCount: Out<u32>,
    infos: Raw<nvmlProcessInfo_v2_t>,
) -> Answer {
    own_processes(next, device, infoCount, infos, |pid, usedGpuMemory, instance| nvmlProcessInfo_v2_t {
        pid,
        usedGpuMemory,
        gpuInstanceId: instance.0,
        computeInstanceId: instance.1,
    })
}

pub(crate) fn nvmlDeviceGetComputeRunningProcesses_v3(
    next: Next<'_>,
    device: nvmlDevice_t,
    infoCount: Out<u32>,
    infos: Raw<nvmlProcessInfo_t>,
) -> Answer {
    own_processes(next, device, infoCount, infos, |pid, usedGpuMemory, instance| nvmlProcessInfo_t {
        pid,
        usedGpuMemory,
        gpuInstanceId: instance.0,
        computeInstanceId: instance.1,
    })
}

/// The list by the books, with pids as the tenant sees them: NVML's own names the host's, of everybody.
fn own_processes<T: Copy>(
    next: Next<'_>,
    device: nvmlDevice_t,
    count: Out<u32>,
    infos: Raw<T>,
    row: impl Fn(u32, u64, (u32, u32)) -> T,
) -> Answer {
    let accounts = accounts_on(device);
    if accounts.is_empty() {
        return next.call();
    }
    let room = count.get() as usize;
    match next.call() {
        Ok(()) | Err(Refusal::Driver(INSUFFICIENT_SIZE)) => {}
        refusal => return refusal,
    }
    let of = |(account, instance): &(Account, _)| {
        account.holders().into_iter().map(|(pid, used)| (pid, used, *instance)).collect::<Vec<_>>()
    };
    let holders: Vec<_> = accounts.iter().flat_map(of).collect();
    count.set(u32::try_from(holders.len()).unwrap_or(u32::MAX));
    if holders.is_empty() {
        return Ok(());
    }
    let Some(infos) = infos.out().filter(|_| room >= holders.len()) else {
        return Err(Refusal::Driver(INSUFFICIENT_SIZE));
    };
    for (index, (pid, used, instance)) in holders.into_iter().enumerate() {
        infos.set_nth(index, row(pid, used.0, instance));
    }
    Ok(())
}

/// Graphics and MPS processes are nobody's here: the tenant's own are in the compute list.
fn nobody(next: Next<'_>, device: nvmlDevice_t, count: Out<u32>) -> Answer {
    if accounts_on(device).is_empty() {
        return next.call();
    }
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
