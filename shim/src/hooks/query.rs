//! One view: total is the quota (never above the device), free what both quota and device leave. Where memory of others is
//! moved away for whoever needs the room, that is what the quota leaves.
#![allow(non_snake_case)]

use super::Answer;
use crate::account::{self, Account};
use crate::args::{Out, Raw};
use crate::entry::Next;
use crate::{overhead, pools};
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
    pools::resample_if_freed();
    overhead::settle_for_view();
    let total = account.cap()?.min(account.total());
    let used = account.used();
    let free = total.0.saturating_sub(used.0).min(if account.is_crowded() { u64::MAX } else { device_free });
    Some(View { total: total.0, free })
}

pub(crate) fn cuMemGetInfo_v2(next: Next<'_>, free: Raw<usize>, total: Raw<usize>) -> Answer {
    next.call()?;
    show(free.out(), total.out(), |bytes: usize| bytes as u64, |bytes| bytes as usize);
    Ok(())
}

pub(crate) fn cuMemGetInfo(next: Next<'_>, free: Raw<u32>, total: Raw<u32>) -> Answer {
    next.call()?;
    show(free.out(), total.out(), u64::from, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
    Ok(())
}

/// Replaces the driver's numbers. Null outputs are legal (OptiX passes them), and each is shown by itself.
fn show<T: Copy>(free: Option<Out<T>>, total: Option<Out<T>>, wide: impl Fn(T) -> u64, narrow: impl Fn(u64) -> T) {
    let device_free = free.map_or(0, |free| wide(free.get()));
    match account::of_current_device() {
        Ok(account) => {
            let Some(view) = view(account, device_free) else { return };
            put(free, narrow(view.free));
            put(total, narrow(view.total));
        }
        // Where a quota should be and can't be had, nothing may be taken, so nothing is free.
        Err(_) => put(free, narrow(0)),
    }
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
