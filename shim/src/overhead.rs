//! Memory that no call asks for by size: contexts, code, heaps, what driver objects take. It is measured.
//!
//! What the driver says the process holds beyond what the calls were charged is its *overhead*, charged like
//! everything else and shown apart. A call that is known to take such memory is measured right after; what
//! comes unseen (code loaded at the first launch, local memory that grows) is booked at the next measurement,
//! or by the daemon. A measurement beside other threads may miss what they are about to take, never add to it.

use crate::account::{self, Account, Held};
use crate::calls;
use crate::flight;
use crate::hooks::{Answer, Refusal, Undone};
use crate::log;
use crate::meter::{self, Before, Patience};
use crate::pools;
use crate::process::process;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use parking_lot::Mutex;
use quota_core::Bytes;
use quota_core::ledger::{Correction, Units};
use quota_core::settings::LogLevel;
use std::time::Duration;

/// Pause between two measurements that no call demands.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause between two measurements that a refusal demands: a program at its quota may be refused very often.
const PAUSE_UNDER_PRESSURE: Duration = Duration::from_millis(100);
/// How often a measurement is tried while other threads allocate; from the second time on they are asked to pause.
const ATTEMPTS: u32 = 4;
/// Longest wait for another thread's measurement.
const TURN_WAIT_MAX: Duration = Duration::from_secs(2);

/// What this process knows about its own overhead.
#[derive(Default)]
pub(crate) struct Overhead {
    /// One measurement at a time, so that no two book the same memory.
    turn: Mutex<()>,
    /// Something happened that may have changed it.
    is_stale: AtomicBool,
    /// When it was last measured without need, in milliseconds of the monotonic clock.
    measured_at_ms: AtomicU64,
    /// Calls under way that free what was measured.
    freeing: AtomicU32,
    /// Pointers that the books don't know may hold memory.
    watches_frees: AtomicBool,
    /// Memory of others was let in, which may become ours when they die.
    has_imports: AtomicBool,
    /// Managed memory came or went since it was last known how much of it the devices hold.
    has_new_slack: AtomicBool,
    /// Something has lingered: any memory that is freed may be what is left of it.
    has_lingered: AtomicBool,
    /// Bytes that are held only because others may still hold them: they can go at any moment.
    lingering: AtomicU64,
}

/// A call whose memory the driver alone knows.
pub(crate) struct Measured {
    account: Account,
    expected: Held,
    before: Option<Before>,
    grows_from: Option<Witnessed>,
    kind: Kind,
}

/// What was charged and what was held before a call, where what is held alone says nothing: of a dynamic quota, any part may
/// be on the host. What the call takes is then by how much more that is after it; what is moved meanwhile is mistaken for it.
#[derive(Clone, Copy)]
struct Witnessed {
    used: Units,
    held: Bytes,
}

impl Witnessed {
    fn of(account: &Account) -> Option<Self> {
        if !account.is_dynamic() || account.soft() == Units::ZERO {
            return None;
        }
        // As every question of what is held: two threads that ask at one time would get each other's answers.
        let _turn = process().overhead.turn.try_lock_for(TURN_WAIT_MAX)?;
        // While nothing is under way: what is charged and not yet allocated would be taken for the call's.
        let read = || Some(Self { used: account.own_used(), held: meter::held(account, None, Patience::Long)? });
        measure(read).ok()
    }

    /// What is held more now, and not charged since.
    fn growth(self, used: Units, held: Bytes) -> Units {
        let more = Units::holding(Bytes(held.0.saturating_sub(self.held.0))).unwrap_or(Units::ZERO);
        more.less(used.less(self.used))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Context,
    Other,
}

/// Before a context is made. What contexts cost here is reserved, once that is known.
///
/// A tenant that holds nothing on the device yet may have one context however small its quota: without one a
/// program can't even ask how much it may use.
pub(crate) fn before_context(account: Account) -> Result<Measured, Refusal> {
    account.sees_context();
    let cost = account.context_cost();
    let (before, grows_from) = (meter::before(&account), Witnessed::of(&account));
    let expected = if account.is_unused() { account.force(cost) } else { account.reserve(cost.bytes().0)? };
    Ok(Measured { account, expected, before, grows_from, kind: Kind::Context })
}

/// Before another call that takes memory; `bytes` is what it is expected to take. More than the device has is the
/// driver's to refuse.
pub(crate) fn before_call(account: Account, bytes: u64) -> Result<Measured, Refusal> {
    let bytes = if bytes > account.total().0 { 0 } else { bytes };
    let (before, grows_from) = (meter::before(&account), Witnessed::of(&account));
    Ok(Measured { account, expected: account.reserve(bytes)?, before, grows_from, kind: Kind::Other })
}

impl Measured {
    /// After the driver has done it: charges what it took. Where that doesn't fit, `undo` takes the call back.
    ///
    /// What the driver won't take back is the program's, which can end it: memory that nobody has a name for would be
    /// held, and charged, until the process ends.
    ///
    /// # Errors
    /// When it doesn't fit, and was undone.
    pub(crate) fn settle_or(self, undo: impl FnOnce() -> Undone) -> Answer {
        let account = self.account;
        let Err(refusal) = self.settle() else { return Ok(()) };
        let undone = undo();
        settle(account);
        if undone.is_ok() { Err(refusal) } else { Ok(()) }
    }

    fn settle(self) -> Answer {
        let Self { account, expected, before, grows_from, kind } = self;
        let Some(_turn) = process().overhead.turn.try_lock_for(TURN_WAIT_MAX) else { return keep(account, expected) };
        let reserved = expected.units();
        let read = || {
            let (last, held) = (account.last_slack(), meter::held(&account, before, Patience::Long)?);
            let used = account.own_used().less(reserved);
            let (correction, slack) = compare(&account, used, held, Cause::Unknown);
            let growth = grows_from.map_or(Units::ZERO, |before| before.growth(used, held));
            let hides = growth > Units::ZERO && !matches!(correction, Correction::Raise(_));
            let correction = if hides { Correction::Raise(growth) } else { correction };
            Some((correction, (last, slack)))
        };
        let Ok((correction, slack)) = measure(read) else { return keep(account, expected) };
        let (account, reserved) = expected.into_parts();
        let Correction::Raise(more) = correction else {
            account.give_back(reserved);
            corrected(account, correction, slack, Cause::Freed);
            return Ok(());
        };
        if kind == Kind::Context {
            account.learn_context_cost(more);
        }
        account.give_back(reserved.less(more));
        let missing = more.less(reserved);
        let first = kind == Kind::Context && account.is_unused_but(reserved);
        if first {
            let _charge = account.force(missing).commit();
        } else if let Err(refusal) = account.reserve_beyond(missing) {
            account.give_back(reserved.less(reserved.less(more)));
            return Err(refusal);
        }
        account.add_overhead(more);
        account.saw_slack(slack.0, Units::ZERO);
        Ok(())
    }
}

/// Where nobody measures, what was expected stands.
fn keep(account: Account, expected: Held) -> Answer {
    account.add_overhead(expected.commit().units);
    Ok(())
}

/// What may have made less of the overhead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Nothing that we know of, but that what lingers may go at any moment.
    Unknown,
    /// A call that frees what was measured.
    Freed,
}

/// Books what is held now, fit or not: it is held already. Where nobody says, or others don't stop, nothing changes.
pub(crate) fn settle(account: Account) {
    let _later_if_not_now = settle_with(account, Patience::Long, Cause::Unknown);
}

fn settle_with(account: Account, patience: Patience, cause: Cause) -> Result<(), Unmeasured> {
    let overhead = &process().overhead;
    let Some(_turn) = overhead.turn.try_lock_for(TURN_WAIT_MAX) else { return Err(Unmeasured::Busy) };
    let waits = &account.member().devices[account.device()].freed;
    let is_freeing = || waits.load(Ordering::Relaxed) || overhead.freeing.load(Ordering::Relaxed) > 0;
    let read = || {
        let (before, held) = (account.last_slack(), meter::held(&account, None, patience)?);
        // Asked after what is held: who has freed something of it counts until it has measured, which is our turn.
        let cause = if is_freeing() { Cause::Freed } else { cause };
        Some((compare(&account, account.own_used(), held, cause), before, cause))
    };
    let answer = measure(read).inspect_err(|why| {
        let has_freed = cause == Cause::Freed || is_freeing();
        waits.store(has_freed && *why == Unmeasured::Busy, Ordering::Relaxed);
    })?;
    let ((correction, slack), before, cause) = answer;
    waits.store(false, Ordering::Relaxed);
    log::line(
        LogLevel::Debug,
        format_args!(
            "device {}: {} charged, {} of it overhead, {} more than held: {correction:?}",
            account.device(),
            account.own_used().bytes().human(),
            account.overhead().bytes().human(),
            slack.bytes().human()
        ),
    );
    corrected(account, correction, (before, slack), cause);
    Ok(())
}

/// Applies a correction and remembers what is left of the slack, which was another one before.
fn corrected(account: Account, correction: Correction, (before, slack): (Option<Units>, Units), cause: Cause) {
    apply(account, correction, cause);
    account.saw_slack(before, if let Correction::Lower(less) = correction { slack.less(less) } else { slack });
}

/// Why nothing was measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unmeasured {
    /// Nobody says what is held.
    Unknown,
    /// Other threads were in the middle of something, all the time; it is looked at again later.
    Busy,
}

/// Compares books and driver while no other thread is in the middle of an allocation or a free.
fn measure<T>(read: impl Fn() -> Option<T>) -> Result<T, Unmeasured> {
    for attempt in 0..ATTEMPTS {
        let _pause = (attempt > 0).then(flight::Pause::begin);
        let ((answer, let_go), still) = flight::while_still(|| {
            pools::resample_all();
            (read(), pools::resample_all())
        });
        match answer {
            None => return Err(Unmeasured::Unknown),
            // What pools let go meanwhile, at a synchronisation, may be missing in what is held and not yet in the books.
            Some(answer) if still && !let_go => return Ok(answer),
            Some(_) => {}
        }
    }
    mark_stale();
    Err(Unmeasured::Busy)
}

/// What has to be corrected, and by how much the charges, `used`, exceed what is held.
///
/// Managed memory may be charged and not held, so that less is held than charged says nothing about overhead, except
/// by how much more less it is than the last time, when there is a cause.
fn compare(account: &Account, used: Units, held: Bytes, cause: Cause) -> (Correction, Units) {
    let correction = quota_core::ledger::correction(used, account.overhead(), account.soft(), held);
    let slack = used.less(Units::holding(held).unwrap_or(used));
    let most = match cause {
        Cause::Freed => account.overhead(),
        Cause::Unknown => lingering().min(account.overhead()),
    };
    let by_cause = account.last_slack().map_or(Units::ZERO, |last| slack.less(last)).min(most);
    let correction = match correction {
        Correction::Lower(less) => Correction::Lower(less.max(by_cause)),
        Correction::None if by_cause > Units::ZERO => Correction::Lower(by_cause),
        other => other,
    };
    (correction, slack)
}

fn lingering() -> Units {
    let bytes = process().overhead.lingering.load(Ordering::Relaxed);
    Units::holding(Bytes(bytes)).unwrap_or(Units::ZERO)
}

/// While it lives, a call is under way that frees what was measured.
struct Freeing;

impl Freeing {
    fn begin() -> Self {
        process().overhead.freeing.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        process().overhead.freeing.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs a call that frees what was measured, and what goes with it in the books.
pub(crate) fn around_free(call: impl FnOnce() -> Answer) -> Answer {
    for account in account::all_with_memory().into_iter().filter(|account| account.soft() > Units::ZERO) {
        let _as_good_as_it_gets = settle_with(account, Patience::Long, Cause::Freed);
    }
    let accounts = account::all_with_memory();
    // Whoever measures while it is under way sees what it frees, and must know why.
    let _freeing = Freeing::begin();
    {
        // Between what the driver has freed and what the books have credited nobody can compare the two.
        let _flight = flight::Flight::enter();
        call()?;
    }
    for account in accounts {
        let _later_if_not_now = settle_with(account, Patience::Long, Cause::Freed);
    }
    Ok(())
}

fn apply(account: Account, correction: Correction, cause: Cause) {
    match correction {
        Correction::None => {}
        Correction::Raise(more) => {
            let _charge = account.force(more).commit();
            account.add_overhead(more);
        }
        Correction::Lower(less) => {
            let gone = account.take_overhead(less);
            account.give_back(gone);
            if cause == Cause::Unknown {
                let lingering = &process().overhead.lingering;
                let less = |now: u64| Some(now.saturating_sub(gone.bytes().0));
                let _ = lingering.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            }
        }
    }
}

/// What was charged for itself may live on in others' hands: it is overhead now, as long as the driver holds it.
///
/// Whatever else goes at the same time must be credited before: what is measured here is what is left.
pub(crate) fn linger(account: Account, units: Units) {
    if units == Units::ZERO {
        return;
    }
    account.add_overhead(units);
    process().overhead.has_lingered.store(true, Ordering::Relaxed);
    process().overhead.lingering.fetch_add(units.bytes().0, Ordering::Relaxed);
    if settle_with(account, Patience::Long, Cause::Unknown) == Err(Unmeasured::Unknown) {
        apply(account, Correction::Lower(units), Cause::Unknown);
    }
}

/// Managed memory came or went.
pub(crate) fn slack_changes() {
    process().overhead.has_new_slack.store(true, Ordering::Relaxed);
}

/// Before something goes that may linger: how much of the managed memory is held, or the two couldn't be told apart
/// afterwards. Costs a load while none came or went.
pub(crate) fn know_slack() {
    let overhead = &process().overhead;
    if overhead.has_new_slack.load(Ordering::Relaxed) && overhead.has_new_slack.swap(false, Ordering::Relaxed) {
        for account in account::all_with_memory().into_iter().filter(|account| account.soft() > Units::ZERO) {
            if settle_with(account, Patience::Long, Cause::Unknown) == Err(Unmeasured::Busy) {
                slack_changes();
            }
        }
    }
}

/// Charges that go at the same time, some of which may linger.
#[derive(Default)]
pub(crate) struct Going(Vec<(Account, Units)>);

impl Going {
    /// What `account` was charged goes; what is shared may live on.
    pub(crate) fn add(&mut self, account: Account, units: Units, is_shared: bool) {
        if is_shared { self.0.push((account, units)) } else { account.give_back(units) }
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        while let Some((account, mut units)) = self.0.pop() {
            self.0.retain(|(other, more)| {
                let same = other.device() == account.device();
                units = if same { units.plus(*more) } else { units };
                !same
            });
            linger(account, units);
        }
    }
}

/// Pointers that the books don't know may hold memory that was measured.
pub(crate) fn watch_frees() {
    process().overhead.watches_frees.store(true, Ordering::Relaxed);
}

/// A pointer or an array was freed that the books don't know.
pub(crate) fn unknown_freed() {
    if process().overhead.has_lingered.load(Ordering::Relaxed) {
        // It goes when its stream gets there: looked at again at a synchronisation.
        mark_stale();
    }
    if process().overhead.watches_frees.load(Ordering::Relaxed) { settle_all() } else { settle_lingering() }
}

/// Runs a call that may or may not take memory of the device. What lingers is looked at before, and how the books then
/// stand after it: later the two couldn't be told apart.
pub(crate) fn around_soft(account: Account, call: impl FnOnce() -> Answer) -> Answer {
    if process().overhead.lingering.load(Ordering::Relaxed) == 0 {
        return call();
    }
    // The driver looks for what others have let go at some calls and not at others: not in the middle of this one.
    let _free = calls::free_bytes();
    settle(account);
    call()?;
    let Some(_turn) = process().overhead.turn.try_lock_for(TURN_WAIT_MAX) else { return Ok(()) };
    if let ((before, Some(held)), true) =
        flight::while_still(|| (account.last_slack(), meter::held(&account, None, Patience::Long)))
    {
        let used = account.own_used();
        account.saw_slack(before, used.less(Units::holding(held).unwrap_or(used)));
    }
    Ok(())
}

/// Where something was freed or is looked at: what lingered may be gone. Costs a load while nothing does.
pub(crate) fn settle_lingering() {
    if process().overhead.lingering.load(Ordering::Relaxed) > 0 {
        settle_all();
    }
}

/// The same on every device where this process has something charged.
pub(crate) fn settle_all() {
    for account in account::all_with_memory() {
        settle(account);
    }
}

/// Something happened that may have taken or freed memory which no call tells.
pub(crate) fn mark_stale() {
    process().overhead.is_stale.store(true, Ordering::Relaxed);
}

/// Memory of others was let in. The driver counts it as ours once they are gone; where a daemon watches, it sees that.
pub(crate) fn imported() {
    process().overhead.has_imports.store(true, Ordering::Relaxed);
}

/// At a synchronisation: measures if something happened since the last time, not too often.
pub(crate) fn settle_if_stale() {
    if is_stale() && is_time(PAUSE) {
        settle_stale();
    }
}

/// Before somebody is shown how much is free: the same, always.
pub(crate) fn settle_for_view() {
    if is_stale() {
        settle_stale();
    }
    settle_lingering();
}

fn is_stale() -> bool {
    let overhead = &process().overhead;
    let foreign = overhead.has_imports.load(Ordering::Relaxed) && !account::is_watched();
    foreign || overhead.is_stale.load(Ordering::Relaxed)
}

fn settle_stale() {
    let stale = &process().overhead.is_stale;
    stale.store(false, Ordering::Relaxed);
    for account in account::all_with_memory() {
        // Where nobody says what is held, nobody will say it the next time either.
        let answer = settle_with(account, Patience::Short, Cause::Unknown);
        stale.fetch_or(answer == Err(Unmeasured::Busy), Ordering::Relaxed);
    }
}

/// Before a refusal: what lingered, or what something was seen to change, may be gone.
pub(crate) fn settle_under_pressure(account: Account) {
    let overhead = &process().overhead;
    let may_be_gone = overhead.lingering.load(Ordering::Relaxed) > 0 || overhead.is_stale.load(Ordering::Relaxed);
    if may_be_gone && is_time(PAUSE_UNDER_PRESSURE) {
        let _later_if_not_now = settle_with(account, Patience::Short, Cause::Unknown);
    }
}

fn is_time(pause: Duration) -> bool {
    let (now_ms, last) = (account::coarse_ms(), &process().overhead.measured_at_ms);
    let then_ms = last.load(Ordering::Relaxed);
    let is_time = then_ms == 0 || now_ms.saturating_sub(then_ms) >= pause.as_millis() as u64;
    is_time && last.compare_exchange(then_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}
