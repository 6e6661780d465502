//! What a program may ask the library itself: the functions of `include/gpuquota.h`, exported by their names and no others.
//!
//! None of them fails in a way that a program has to handle: where there is no quota or no daemon they say so.
#![allow(unsafe_code)]

use crate::account::{self, Account};
use crate::join::{Caps, Standing};
use crate::notices::Callback;
use crate::pace::clock::now_ns;
use crate::process::{Inside, hooks_active, process};
use core::ffi::{c_int, c_uint, c_void};
use quota_core::{Percent, Priority};
use quota_wire::notice::Event;
use quota_wire::page::Quota;

/// `GPUQUOTA_API_VERSION` of the header.
const API_VERSION: c_int = 1;
/// The header's answers.
const OK: c_int = 0;
const UNMANAGED: c_int = 1;
const NOT_READY: c_int = 2;
const INVALID: c_int = 3;
const LATER: c_int = 4;
/// `GPUQUOTA_NO_CAP` of the header.
const NO_CAP: usize = usize::MAX;

/// `struct gpuquota_quota` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
struct CQuota {
    size: usize,
    memory_quota: usize,
    memory_used: usize,
    compute_cap: c_uint,
    compute_guarantee: c_uint,
    weight: c_uint,
    priority: c_int,
    state: c_int,
    grace_ms: c_uint,
}

/// The version of these functions.
#[unsafe(no_mangle)]
extern "C" fn gpuquota_version() -> c_int {
    API_VERSION
}

/// What the tenant may use of a device, and uses.
///
/// # Safety
/// `quota` is null, or to a structure whose first member says how large it is.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuquota_quota(device: c_int, quota: *mut c_void) -> c_int {
    if quota.is_null() || !quota.cast::<usize>().is_aligned() {
        return INVALID;
    }
    // SAFETY: not null and aligned; the caller's contract is that there is a number.
    let size = unsafe { quota.cast::<usize>().read() };
    if size < size_of::<usize>() {
        return INVALID;
    }
    answer(|| {
        let mut filled = match quota_of(device) {
            Ok(filled) => filled,
            Err(code) => return code,
        };
        filled.size = size;
        let known = size.min(size_of::<CQuota>());
        // SAFETY: `size` bytes are the caller's, by its own word, and no more than there are of ours are written.
        unsafe { core::ptr::copy_nonoverlapping((&raw const filled).cast::<u8>(), quota.cast::<u8>(), known) };
        OK
    })
}

/// Has `callback` hear of notices from now on; null for nobody.
#[unsafe(no_mangle)]
extern "C" fn gpuquota_on_notice(callback: Option<Callback>, data: *mut c_void) -> c_int {
    answer(|| {
        process().notices.register(callback, data);
        match process().membership.member().map(|member| &member.caps) {
            Some(Caps::Fixed(_)) => UNMANAGED,
            _ => OK,
        }
    })
}

/// The program has done what it wanted to before it is interrupted.
#[unsafe(no_mangle)]
extern "C" fn gpuquota_ready() -> c_int {
    answer(|| match process().notices.ready() {
        Ok(()) => OK,
        Err(true) => LATER,
        Err(false) => NOT_READY,
    })
}

/// What `ask` answers, if the library is at work; nothing of ours reaches the program as a panic.
fn answer(ask: impl FnOnce() -> c_int) -> c_int {
    if !Inside::is_entered() && !hooks_active() {
        return UNMANAGED;
    }
    let _inside = Inside::enter();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).unwrap_or(INVALID)
}

fn quota_of(device: c_int) -> Result<CQuota, c_int> {
    let account = match process().membership.standing() {
        Standing::NotReady => return Err(NOT_READY),
        Standing::Unmanaged => return Err(UNMANAGED),
        Standing::Refused => return Err(NOT_READY),
        Standing::Member(_) => account::of_device(device).ok().flatten().ok_or(INVALID)?,
    };
    let quota = terms(&account);
    let (state, grace_ms) = state(&account);
    let hundredths = |percent: Option<Percent>, none: Percent| percent.unwrap_or(none).hundredths();
    Ok(CQuota {
        size: 0,
        memory_quota: account.cap().map_or(NO_CAP, |cap| cap.0 as usize),
        memory_used: account.used().0 as usize,
        compute_cap: hundredths(quota.compute_cap, Percent::ALL),
        compute_guarantee: quota.guarantee.map_or(0, Percent::hundredths),
        weight: quota.weight,
        priority: match quota.priority {
            Priority::Batch => 0,
            Priority::Normal => 1,
            Priority::High => 2,
        },
        state,
        grace_ms,
    })
}

fn terms(account: &Account) -> Quota {
    match &account.member().caps {
        Caps::Page(page) => page.quota(account.place()),
        Caps::Fixed(_) => Quota {
            compute_cap: account.member().compute_cap(account.device(), account.place()),
            weight: 100,
            ..Quota::default()
        },
    }
}

/// The state of the tenant, and how much of a grace is left.
fn state(account: &Account) -> (c_int, c_uint) {
    let Caps::Page(page) = &account.member().caps else { return (0, 0) };
    match page.notice() {
        Some((notice, until_ns)) if notice.event == Event::Notice => {
            let left_ms = until_ns.saturating_sub(now_ns()) / 1_000_000;
            (Event::Notice as c_int, left_ms.min(notice.grace_ms.into()) as c_uint)
        }
        Some((notice, _)) if notice.event == Event::Interrupted => (Event::Interrupted as c_int, 0),
        _ => (0, 0),
    }
}
