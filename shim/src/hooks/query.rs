//! One view: total is the quota (never above the device), free what both quota and device leave.
#![allow(non_snake_case)]

use super::{Answer, Refusal};
use crate::account::{self, Account};
use crate::args::{Out, Raw};
use crate::calls;
use crate::entry::Next;
use driver_api::CUdevice;
use quota_core::Bytes;

/// What a program is shown of a device.
pub(crate) struct View {
    pub(crate) total: u64,
    pub(crate) free: u64,
}

/// The view on the account, of a device with so much free; `None` where there is no cap.
pub(crate) fn view(account: Option<Account>, device_free: u64) -> Option<View> {
    let account = account?;
    let total = account.cap()?.min(account.total());
    let used = account.used();
    let free = total.0.saturating_sub(used.0).min(device_free);
    Some(View { total: total.0, free })
}

/// Where a quota should be and can't be had, nothing may be taken, so nothing is free.
fn account_or_nothing(found: Result<Option<Account>, Refusal>) -> Result<Option<Account>, ()> {
    found.map_err(|_| ())
}

pub(crate) fn cuMemGetInfo_v2(next: Next<'_>, free: Raw<usize>, total: Raw<usize>) -> Answer {
    memory_info(next, |device_free, device_total, view| {
        let (shown_free, shown_total) = view.map_or((device_free, device_total), |view| (view.free, view.total));
        put(free.out(), shown_free as usize);
        put(total.out(), shown_total as usize);
    })
}

pub(crate) fn cuMemGetInfo(next: Next<'_>, free: Raw<u32>, total: Raw<u32>) -> Answer {
    let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    memory_info(next, |device_free, device_total, view| {
        let (shown_free, shown_total) = view.map_or((device_free, device_total), |view| (view.free, view.total));
        put(free.out(), narrow(shown_free));
        put(total.out(), narrow(shown_total));
    })
}

/// Null outputs are legal (OptiX passes them), so the driver's own call decides on success and ours on the numbers.
fn memory_info(next: Next<'_>, show: impl Fn(u64, u64, Option<View>)) -> Answer {
    next.call()?;
    let account = account_or_nothing(account::of_current_device());
    if let Ok(None) = account {
        return Ok(());
    }
    let (device_free, device_total) = calls::memory_free_bytes()?;
    match account {
        Ok(account) => show(device_free, device_total, view(account, device_free)),
        Err(()) => show(device_free, device_total, Some(View { total: device_total, free: 0 })),
    }
    Ok(())
}

pub(crate) fn cuDeviceTotalMem_v2(next: Next<'_>, bytes: Out<usize>, dev: CUdevice) -> Answer {
    next.call()?;
    if let Some(cap) = cap_of(dev) {
        bytes.set(bytes.get().min(cap.0 as usize));
    }
    Ok(())
}

pub(crate) fn cuDeviceTotalMem(next: Next<'_>, bytes: Out<u32>, dev: CUdevice) -> Answer {
    next.call()?;
    if let Some(cap) = cap_of(dev) {
        bytes.set(bytes.get().min(u32::try_from(cap.0).unwrap_or(u32::MAX)));
    }
    Ok(())
}

fn cap_of(device: CUdevice) -> Option<Bytes> {
    account::of_device(device).ok().flatten().and_then(|account| account.cap())
}

fn put<T: Copy>(out: Option<Out<T>>, value: T) {
    if let Some(out) = out {
        out.set(value);
    }
}
