//! What the driver says this process holds on a device: the daemon's answer, which asks NVML for our pid on the
//! host; else NVML's own, in this process.
//!
//! NVML knows processes by the pids of the host. In a pid namespace of its own a process doesn't find itself in
//! the list; then only the change of the whole device's use across one call is left, in which neighbours take part.

use crate::account::Account;
use crate::calls;
use crate::process::process;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use quota_core::Bytes;
use quota_core::ledger::Units;
use quota_wire::message::{Reply, Request};
use quota_wire::socket::Connection;
use std::time::{Duration, Instant};

/// How long the daemon's answer is waited for. It takes milliseconds, unless the machine is busy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// After a call that takes long anyhow and is charged what the answer says.
    Long,
    /// In the middle of the program's work; the question can be asked again.
    Short,
}

impl Patience {
    fn longest(self) -> Duration {
        match self {
            Self::Long => Duration::from_secs(1),
            Self::Short => Duration::from_millis(50),
        }
    }
}

/// What this process has learnt about being measured.
#[derive(Default)]
pub(crate) struct Meter {
    /// NVML's list has had our pid in it.
    is_listed: AtomicBool,
    /// Number of the last question to the daemon.
    questions: AtomicU64,
}

/// A device as it was before a call, for where that is all there is to compare with.
#[derive(Clone, Copy)]
pub(crate) struct Before {
    device_used: u64,
    own: Units,
}

/// To be taken before a call that is measured; `None` where it won't be needed.
pub(crate) fn before(account: &Account) -> Option<Before> {
    if account.member().daemon.as_ref().is_some_and(|daemon| !daemon.is_lost())
        || process().meter.is_listed.load(Ordering::Relaxed)
    {
        return None;
    }
    let device_used = calls::with_nvml(|| {
        let device = calls::nvml_device_with(&account.uuid()).ok()?;
        calls::nvml_used_bytes(device).ok()
    })?;
    Some(Before { device_used, own: account.own_used() })
}

/// What this process holds now, as far as anybody says.
pub(crate) fn held(account: &Account, before: Option<Before>, patience: Patience) -> Option<Bytes> {
    if let Some(connection) = account.connection()
        && let Some(held) = ask(&connection, account.place_index(), patience)
    {
        return held;
    }
    calls::with_nvml(|| {
        let meter = &process().meter;
        let device = calls::nvml_device_with(&account.uuid()).ok()?;
        let processes = calls::nvml_processes(device).ok()?;
        match processes.iter().find(|(pid, _)| *pid == std::process::id()) {
            Some((_, held)) => {
                meter.is_listed.store(true, Ordering::Relaxed);
                held.map(Bytes)
            }
            // The list is of our namespace, and we are not in it.
            None if meter.is_listed.load(Ordering::Relaxed) => Some(Bytes(0)),
            None => {
                let before = before?;
                let grown = calls::nvml_used_bytes(device).ok()?.saturating_sub(before.device_used);
                Some(Bytes(before.own.bytes().0 + grown))
            }
        }
    })
}

/// Asks the daemon; the outer `None` when it doesn't answer, the inner one when the driver doesn't.
fn ask(connection: &Connection, place: usize, patience: Patience) -> Option<Option<Bytes>> {
    let sequence = process().meter.questions.fetch_add(1, Ordering::Relaxed) + 1;
    connection.send(&Request::Measure { sequence }, &[]).ok()?;
    let deadline = Instant::now() + patience.longest();
    loop {
        // Anything else is the late answer to an earlier question.
        if let (Reply::Measured { sequence: answered, held_bytes }, _) = connection.receive_until(deadline).ok()?
            && answered == sequence
        {
            return Some(held_bytes.get(place).copied().flatten().map(Bytes));
        }
    }
}
