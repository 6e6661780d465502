//! What the tenant may still take on one device: reserve, call the driver, commit.

mod firm;
mod parts;
mod words;

use crate::hooks::{Answer, Refusal};
use crate::join::{Caps, Member, Standing};
use crate::link::Link;
use crate::process::process;
use crate::{calls, log, overhead, pools};
use core::sync::atomic::Ordering;
use driver_api::CUdevice;
use quota_core::ledger::{DeviceId, Locked, SlotId, Units};
use quota_core::settings::LogLevel;
use quota_core::{Bytes, Mode, OnDaemonLoss};
use quota_wire::lock::{self, ENDING_PAUSE, ENDING_WAIT_MAX, LOCK_WAIT_MAX, LedgerLock, Swept};
use quota_wire::socket::Connection;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long what a dead process held may still be shown, where no daemon watches.
const SWEEP_PAUSE: Duration = Duration::from_millis(100);

/// The tenant's account on one device.
#[derive(Clone, Copy)]
pub(crate) struct Account {
    member: &'static Member,
    device: usize,
    place: DeviceId,
    /// What it charges may be moved to the host.
    moves: bool,
}

/// What was charged; plain data for the books of live memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Charge {
    pub(crate) device: usize,
    pub(crate) units: Units,
}

/// A reservation: given back when dropped, kept by [`Held::commit`].
#[must_use]
pub(crate) struct Held {
    account: Account,
    units: Units,
}

impl Held {
    /// The driver did it: the reservation becomes usage.
    pub(crate) fn commit(self) -> Charge {
        let charge = Charge { device: self.account.device, units: self.units };
        core::mem::forget(self);
        charge
    }

    /// How much it is.
    pub(crate) fn units(&self) -> Units {
        self.units
    }

    /// The account and what is reserved on it, now the caller's to settle.
    pub(crate) fn into_parts(self) -> (Account, Units) {
        let parts = (self.account, self.units);
        core::mem::forget(self);
        parts
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account.give_back(self.units);
    }
}

/// The account on CUDA's `device`; `None` where nothing is counted.
///
/// # Errors
/// When there should be a quota and it can't be had.
pub(crate) fn of_device(device: CUdevice) -> Result<Option<Account>, Refusal> {
    match process().membership.standing() {
        Standing::NotReady | Standing::Unmanaged => Ok(None),
        Standing::Refused => refused(),
        Standing::Member(member) => match member.device_of(device) {
            Ok(Some(index)) => of_index(member, index).map(Some),
            // A device that came after we joined.
            Ok(None) => refused(),
            // No device at all: the driver's error is the answer.
            Err(_) => Ok(None),
        },
    }
}

/// The account on the device of the thread's context; `None` where nothing is counted or there is no context.
pub(crate) fn of_current_device() -> Result<Option<Account>, Refusal> {
    match calls::current_device() {
        Some(device) => of_device(device),
        None => Ok(None),
    }
}

/// The account on the device with this UUID, as NVML names it; `None` where nothing is counted.
pub(crate) fn of_uuid(uuid: [u8; 16]) -> Option<Account> {
    match process().membership.standing_for_nvml() {
        Standing::Member(member) => of_index(member, member.device_with(uuid)?).ok(),
        _ => None,
    }
}

/// The account on a device by the member's own number.
pub(crate) fn of_member_device(device: usize) -> Option<Account> {
    of_charge(Charge { device, units: Units::ZERO })
}

/// The account to which an earlier charge belongs.
pub(crate) fn of_charge(charge: Charge) -> Option<Account> {
    match process().membership.standing() {
        Standing::Member(member) => of_index(member, charge.device).ok(),
        _ => None,
    }
}

/// True while a daemon compares our books with what we hold.
pub(crate) fn is_watched() -> bool {
    match process().membership.standing() {
        Standing::Member(member) => member.daemon.as_ref().is_some_and(|daemon| !daemon.is_lost()),
        _ => false,
    }
}

/// The accounts on all devices.
pub(crate) fn all() -> Vec<Account> {
    let Standing::Member(member) = process().membership.standing() else { return Vec::new() };
    (0..member.devices.len()).filter_map(|device| of_index(member, device).ok()).collect()
}

/// The accounts on which this process has charged something.
pub(crate) fn all_with_memory() -> Vec<Account> {
    all().into_iter().filter(|account| account.own_used() > Units::ZERO).collect()
}

fn of_index(member: &'static Member, device: usize) -> Result<Account, Refusal> {
    match member.devices.get(device).and_then(|known| known.place) {
        Some(place) => Ok(Account { member, device, place, moves: false }),
        None => Err(Refusal::Quota),
    }
}

/// Observing never refuses.
fn refused<T>() -> Result<Option<T>, Refusal> {
    if process().settings.mode == Mode::Observe { Ok(None) } else { Err(Refusal::Quota) }
}

impl Account {
    /// Its number among the member's devices.
    pub(crate) fn device(&self) -> usize {
        self.device
    }

    /// The cap, when there is one.
    pub(crate) fn cap(&self) -> Option<Bytes> {
        match &self.member.caps {
            Caps::Page(page) => page.memory_cap(self.place),
            Caps::Fixed(caps) => caps.get(self.device)?.memory,
        }
    }

    /// What all processes of the tenant have charged.
    pub(crate) fn used(&self) -> Bytes {
        self.sweep_now_and_then();
        self.member.ledger.used(self.place)
    }

    /// The device's own size.
    pub(crate) fn total(&self) -> Bytes {
        self.member.devices[self.device].total
    }

    /// Pids and charges of the tenant's processes that hold memory here.
    pub(crate) fn holders(&self) -> Vec<(u32, Bytes)> {
        self.sweep_now_and_then();
        let ledger = &self.member.ledger;
        let row = |slot| (ledger.pid(slot), ledger.used_by(slot, self.place));
        ledger.slots().map(row).filter(|(pid, used)| *pid != 0 && used.0 > 0).collect()
    }

    /// The daemon, while there is one.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.member.daemon.as_ref()?.connection()
    }

    /// The device's UUID.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.member.devices[self.device].uuid
    }

    /// Its place in ledger and quota page.
    pub(crate) fn place_index(&self) -> usize {
        self.place.index() as usize
    }

    /// What this process has charged.
    pub(crate) fn own_used(&self) -> Units {
        Units::holding(self.member.ledger.used_by(self.member.slot, self.place)).unwrap_or(Units::ZERO)
    }

    /// True when no process of the tenant has charged anything here.
    pub(crate) fn is_unused(&self) -> bool {
        self.is_unused_but(Units::ZERO)
    }

    /// True when nothing is charged here but `reserved`.
    pub(crate) fn is_unused_but(&self, reserved: Units) -> bool {
        self.used() == reserved.bytes()
    }

    /// The ledger and its file, for what concerns other processes of the tenant.
    pub(crate) fn member(&self) -> &'static Member {
        self.member
    }

    /// The ledger's name of the device.
    pub(crate) fn place(&self) -> DeviceId {
        self.place
    }

    /// Charges what is held already, or must be let in, whatever the cap.
    pub(crate) fn force(self, units: Units) -> Held {
        if units != Units::ZERO {
            // A lock that can't be had must not lose the charge: the word itself is changed atomically anyhow.
            let _one_thread = self.member.growing.try_lock_for(LOCK_WAIT_MAX);
            let guard = LedgerLock::take(self.member.file.as_fd());
            let unlocked = Locked::assume();
            let token = guard.as_ref().map_or(&unlocked, LedgerLock::token);
            self.member.ledger.force(self.member.slot, self.place, units, token);
        }
        self.held(units)
    }

    /// Charges `bytes`, for a call that the driver is about to get.
    ///
    /// # Errors
    /// A refusal when they don't fit under the cap, even with our own pools trimmed.
    pub(crate) fn reserve(self, bytes: u64) -> Result<Held, Refusal> {
        match Units::holding(Bytes(bytes)) {
            Some(units) => self.reserve_units(units).map(|()| self.held(units)),
            None => self.endless(bytes),
        }
    }

    /// As [`Account::reserve`], where everything has been trimmed already.
    pub(crate) fn reserve_at_last(self, bytes: u64) -> Result<Held, Refusal> {
        match Units::holding(Bytes(bytes)) {
            Some(units) => self.charge(units, true).map(|_| self.held(units)),
            None => self.endless(bytes),
        }
    }

    /// No device is that large; where there is no cap, the driver says so itself.
    fn endless(self, bytes: u64) -> Result<Held, Refusal> {
        if self.is_enforced() { Err(self.deny(Bytes(bytes))) } else { Ok(self.held(Units::ZERO)) }
    }

    /// Charges nothing; refuses what could never be charged under the quota. What is more than the device has is
    /// the driver's to refuse.
    pub(crate) fn admit(self, bytes: u64) -> Answer {
        let fits = self.binding_cap().is_none_or(|cap| bytes <= cap.0);
        if fits || !self.is_enforced() { Ok(()) } else { Err(self.deny(Bytes(bytes))) }
    }

    /// As [`Account::reserve`], without trimming pools and without a word when it doesn't fit.
    pub(crate) fn try_reserve(self, bytes: u64) -> Option<Held> {
        let units = Units::holding(Bytes(bytes))?;
        self.charge(units, false).is_ok_and(|charged| charged).then(|| self.held(units))
    }

    /// Charges growth that the driver made without having been asked for it; never trims.
    pub(crate) fn reserve_beyond(&self, units: Units) -> Result<(), Refusal> {
        if units == Units::ZERO || self.try_reserve(units.bytes().0).map(Held::commit).is_some() {
            return Ok(());
        }
        Err(self.deny(units.bytes()))
    }

    fn held(self, units: Units) -> Held {
        Held { account: self, units }
    }

    /// A quota of the whole device binds nobody: the device itself does, with the driver's own codes.
    fn is_enforced(&self) -> bool {
        self.binding_cap().is_some() && process().settings.mode == Mode::Enforce
    }

    /// The cap, where it is less than the device has.
    fn binding_cap(&self) -> Option<Bytes> {
        self.cap().filter(|cap| *cap < self.total() || self.is_dynamic())
    }

    fn reserve_units(&self, units: Units) -> Result<(), Refusal> {
        if self.charge(units, false)? {
            return Ok(());
        }
        self.relieve(units.bytes().0);
        self.charge(units, true).map(|_| ())
    }

    /// Before a refusal: the program's own pools may hold memory that it has freed, and memory that it shared may
    /// be gone. What could never fit is not worth it.
    pub(crate) fn relieve(self, bytes: u64) {
        if !self.is_enforced() || self.cap().is_some_and(|cap| bytes > cap.0) {
            return;
        }
        pools::trim_all(self.device);
        overhead::settle_under_pressure(self);
    }

    /// Charges without a call of the driver; false when that passes the cap, which `at_last` makes a refusal.
    pub(crate) fn charge(&self, units: Units, at_last: bool) -> Result<bool, Refusal> {
        let member = self.member;
        if process().settings.on_daemon_loss == OnDaemonLoss::Refuse
            && member.daemon.as_ref().is_some_and(|daemon| daemon.connection().is_none())
        {
            static SAID: log::Once = log::Once::new();
            if SAID.first() {
                log::line(
                    LogLevel::Error,
                    format_args!("the daemon is gone; new memory is refused (GPUQUOTA_ON_DAEMON_LOSS=refuse)"),
                );
            }
            return Err(Refusal::Quota);
        }
        if self.epoch_is_current() && member.ledger.charge(member.slot, self.place, units) {
            return self.keep_if_firm(units, at_last);
        }
        if self.member.devices[self.device].is_new.swap(false, Ordering::Relaxed) {
            // There is a context, made where nobody saw it.
            overhead::mark_stale();
        }
        match self.grow(units)? {
            false if at_last => Err(self.deny(units.bytes())),
            false => Ok(false),
            true => self.keep_if_firm(units, at_last),
        }
    }

    /// True when the stock was granted under the quota that holds now.
    fn epoch_is_current(&self) -> bool {
        match &self.member.caps {
            Caps::Page(page) => self.member.devices[self.device].epoch.load(Ordering::Relaxed) == page.epoch(),
            Caps::Fixed(_) => true,
        }
    }

    /// Charges with a larger stock; false when that passes the cap.
    fn grow(&self, units: Units) -> Result<bool, Refusal> {
        self.grow_in(self.member.slot, units)
    }

    /// The same for the process of any slot.
    pub(crate) fn grow_in(&self, slot: SlotId, units: Units) -> Result<bool, Refusal> {
        let member = self.member;
        if let Some(daemon) = &member.daemon {
            let _looked_for_if_lost = daemon.connection();
        }
        let Some(_one_thread) = member.growing.try_lock_for(LOCK_WAIT_MAX) else {
            return Err(self.stuck("another thread"));
        };
        let guard = LedgerLock::take(member.file.as_fd()).map_err(|error| self.stuck(&error.to_string()))?;
        // Read before the cap: a change that comes in between is seen at the next charge. Stored after the slack of the
        // old one is gone, so that no other thread charges that under the new.
        let epoch = if let Caps::Page(page) = &member.caps { page.epoch() } else { 0 };
        member.ledger.drop_slack(slot, self.place);
        member.devices[self.device].epoch.store(epoch, Ordering::Relaxed);
        let Some(cap) = self.binding_cap() else {
            member.ledger.force(slot, self.place, units, guard.token());
            return Ok(true);
        };
        if process().settings.mode == Mode::Observe {
            member.ledger.force(slot, self.place, units, guard.token());
            return Ok(true);
        }
        if member.ledger.grow(slot, self.place, units, cap, guard.token()).is_ok() {
            return Ok(true);
        }
        if self.may_sweep() { self.grow_by_the_dead(slot, units, cap, guard) } else { Ok(false) }
    }

    /// The same with what the dead have left. Those that are just ending are waited for, but not for long.
    fn grow_by_the_dead<'a>(
        &'a self,
        slot: SlotId,
        units: Units,
        cap: Bytes,
        mut guard: LedgerLock<'a>,
    ) -> Result<bool, Refusal> {
        let deadline = Instant::now() + ENDING_WAIT_MAX;
        loop {
            let swept = self.sweep(&guard);
            if swept.found && self.member.ledger.grow(slot, self.place, units, cap, guard.token()).is_ok() {
                return Ok(true);
            }
            if !swept.ending || Instant::now() >= deadline {
                return Ok(false);
            }
            drop(guard);
            std::thread::sleep(ENDING_PAUSE);
            guard = LedgerLock::take(self.member.file.as_fd()).map_err(|error| self.stuck(&error.to_string()))?;
        }
    }

    /// Sets aside what the process of another slot has charged, with nobody correcting it meanwhile.
    pub(crate) fn park_slot(&self, slot: SlotId) {
        let _one_thread = self.member.growing.try_lock_for(LOCK_WAIT_MAX);
        let _guard = LedgerLock::take(self.member.file.as_fd());
        self.member.ledger.park(slot, self.place);
    }

    pub(crate) fn give_back(&self, units: Units) {
        self.member.ledger.give_back(self.member.slot, self.place, units);
    }

    /// Where a daemon watches, it buries the dead: it is told at once.
    fn may_sweep(&self) -> bool {
        self.member.daemon.as_ref().is_none_or(Link::is_lost)
    }

    fn sweep(&self, guard: &LedgerLock<'_>) -> Swept {
        lock::sweep(self.member.file.as_fd(), &self.member.ledger, Some(self.member.slot), guard).unwrap_or_default()
    }

    /// True when no other process of the tenant has a slot, dead or alive.
    fn is_alone(&self) -> bool {
        let ledger = &self.member.ledger;
        ledger.slots().all(|slot| slot == self.member.slot || ledger.pid(slot) == 0)
    }

    fn sweep_now_and_then(&self) {
        if self.is_alone() {
            return;
        }
        let now_ms = coarse_ms();
        let then_ms = self.member.swept_at_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(then_ms) < SWEEP_PAUSE.as_millis() as u64 {
            return;
        }
        self.member.swept_at_ms.store(now_ms, Ordering::Relaxed);
        if !self.may_sweep() {
            return;
        }
        let Some(_one_thread) = self.member.growing.try_lock_for(LOCK_WAIT_MAX) else { return };
        if let Ok(guard) = LedgerLock::take(self.member.file.as_fd()) {
            self.sweep(&guard);
        }
    }
}

#[allow(unsafe_code)]
pub(crate) fn coarse_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure; answered by the vDSO, without a system call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
