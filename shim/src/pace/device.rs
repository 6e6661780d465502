//! What this process has under way on one device, and what the tenant has used of it.

use super::clock;
use crate::join::{Caps, Member};
use crate::link::Link;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use parking_lot::Mutex;
use quota_core::Percent;
use quota_core::compute::Limit;
use quota_core::compute::spans::{Span, Spans};
use quota_core::ledger::DeviceId;
use quota_wire::page::Gate;
use quota_wire::usage::{ProcessUsage, TenantUsage};

/// Predicted work that may be under way where nobody says how much: a millisecond, as the model has it.
const AHEAD_NS: u64 = 1_000_000;
/// The slice by which a cap's bucket is made.
const QUANTUM_NS: u64 = 3_000_000;
/// How far ahead of now `covered_until_ns` can be by the clocks of devices; what is further was not written by us.
const COVERED_AHEAD_MAX_NS: u64 = 1_000_000_000;
/// By how much the end of work that is overdue is put off at each look.
const OVERDUE_NS: u64 = 50_000;

/// One device that the process uses.
pub(super) struct Device {
    pub(super) member: &'static Member,
    pub(super) index: usize,
    pub(super) place: DeviceId,
    /// Predicted time of what was launched and not seen to end.
    under_way_ns: AtomicU64,
    /// Since when the oldest of that runs, as far as is known.
    since_ns: AtomicU64,
    /// Launches under way whose end is not announced.
    vague: AtomicU32,
    /// Those of which nobody knows how long they take.
    unsure: AtomicU32,
    /// Grows whenever something is seen to end.
    progress: AtomicU64,
    /// At which progress a launch was last let in before there was room for it.
    early_after: AtomicU64,
    /// Streams that have something under way, and how often one began to while others had.
    busy_streams: AtomicU32,
    mixed: AtomicU64,
    /// How often a thread has waited at the gate and gone through, and what that was when a segment was last begun.
    turns: AtomicU32,
    turns_seen: AtomicU32,
    /// The bucket's word at which there was credit: there still is, until it changes.
    credit_seen: AtomicU64,
    /// How much may be under way with that credit.
    credit_covers_ns: AtomicU64,
    charged: Mutex<Charged>,
}

#[derive(Default)]
struct Charged {
    spans: Spans,
    /// What was last written to the tenant's `covered_until_ns`: while it stands there, no other process was charged.
    covered_until_ns: u64,
}

/// A launch, or several, as they are counted.
#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) launches: u32,
    /// Those whose prediction rests on too little.
    pub(super) unsure: u32,
    /// Those whose end is not announced to the daemon: these, and long ones. Who is let in just before the predicted end of
    /// a long kernel comes into the middle of it half of the time, and waits for a turn of the hardware.
    pub(super) vague: u32,
    pub(super) predicted_ns: u64,
}

impl Device {
    pub(super) fn new(member: &'static Member, index: usize, place: DeviceId) -> Self {
        Self {
            member,
            index,
            place,
            under_way_ns: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            vague: AtomicU32::new(0),
            unsure: AtomicU32::new(0),
            progress: AtomicU64::new(0),
            early_after: AtomicU64::new(0),
            busy_streams: AtomicU32::new(0),
            mixed: AtomicU64::new(0),
            turns: AtomicU32::new(0),
            turns_seen: AtomicU32::new(0),
            credit_seen: AtomicU64::new(0),
            credit_covers_ns: AtomicU64::new(0),
            charged: Mutex::default(),
        }
    }

    pub(super) fn usage(&self) -> &'static ProcessUsage {
        self.member.ledger.usage.process(self.member.slot, self.place)
    }

    fn tenant(&self) -> &'static TenantUsage {
        self.member.ledger.usage.tenant(self.place)
    }

    /// The process uses the device from now on; the daemon is told the first time.
    pub(super) fn attach(&self) {
        if self.member.ledger.usage.attach(self.member.slot, self.place) {
            self.poke();
        }
    }

    pub(super) fn daemon(&self) -> Option<&'static Link> {
        self.member.daemon.as_ref()
    }

    /// Tells the daemon to look.
    pub(super) fn poke(&self) {
        if let Some(daemon) = self.daemon() {
            daemon.poke();
        }
    }

    /// The gate; always free where there is nobody to close it.
    pub(super) fn gate(&self) -> Gate {
        match &self.member.caps {
            Caps::Page(page) => page.gate(self.place),
            Caps::Fixed(_) => Gate::Free,
        }
    }

    pub(super) fn cap(&self) -> Option<Percent> {
        self.member.compute_cap(self.index, self.place)
    }

    /// True while launches need not be counted.
    pub(super) fn is_free(&self) -> bool {
        self.gate() == Gate::Free && self.cap().is_none()
    }

    /// Most predicted work that may be under way.
    pub(super) fn ahead_ns(&self) -> u64 {
        match &self.member.caps {
            Caps::Page(page) => match page.ahead_us(self.place) {
                0 => AHEAD_NS,
                ahead_us => u64::from(ahead_us) * 1000,
            },
            Caps::Fixed(_) => AHEAD_NS,
        }
    }

    /// True when something may be added: at most one launch goes beyond what may be under way. Were it none, the device would
    /// run dry before each launch that is about as long as that.
    pub(super) fn has_room(&self) -> bool {
        let under_way = self.under_way_ns();
        under_way == 0 || under_way < self.ahead_ns()
    }

    /// True when so much of what is under way has passed by now, as predicted, that something may be added; once only until
    /// something is seen to have ended, since a prediction that is wrong would else let in ever more.
    pub(super) fn will_have_room(&self, now: u64) -> bool {
        let until_ns = self.until_ns();
        let is_due = until_ns > now && until_ns - now < self.ahead_ns() && self.unsure.load(Ordering::Relaxed) == 0;
        let progress = self.progress();
        is_due && self.early_after.swap(progress, Ordering::AcqRel) != progress
    }

    pub(super) fn under_way_ns(&self) -> u64 {
        self.under_way_ns.load(Ordering::Acquire)
    }

    /// When all that is under way will have ended, as predicted.
    pub(super) fn until_ns(&self) -> u64 {
        self.since_ns.load(Ordering::Relaxed).saturating_add(self.under_way_ns())
    }

    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Acquire)
    }

    /// A thread has waited at the gate and goes through.
    pub(super) fn turn_begins(&self) {
        self.turns.fetch_add(1, Ordering::AcqRel);
    }

    /// True for the first who asks since then.
    pub(super) fn begins_turn(&self) -> bool {
        let turns = self.turns.load(Ordering::Acquire);
        self.turns_seen.swap(turns, Ordering::AcqRel) != turns
    }

    /// A stream has something under way that had nothing; true when no other has.
    pub(super) fn stream_begins(&self) -> bool {
        let is_first = self.busy_streams.fetch_add(1, Ordering::AcqRel) == 0;
        if !is_first {
            self.mixed.fetch_add(1, Ordering::AcqRel);
        }
        is_first
    }

    /// It has nothing under way any more.
    pub(super) fn stream_ends(&self) {
        self.busy_streams.fetch_sub(1, Ordering::AcqRel);
    }

    /// A number that changes when several streams have something under way; none while they have.
    pub(super) fn alone(&self) -> Option<u64> {
        let mixed = self.mixed.load(Ordering::Acquire);
        (self.busy_streams.load(Ordering::Acquire) <= 1).then_some(mixed)
    }

    /// A launch is about to go to the driver. No system call, and no look at the clock but where nothing was under way.
    pub(super) fn submit(&self, count: Count) {
        let usage = self.usage();
        let before = self.under_way_ns.fetch_add(count.predicted_ns, Ordering::AcqRel);
        if before == 0 {
            self.since_ns.store(clock::now_ns(), Ordering::Relaxed);
        }
        usage.submitted.fetch_add(u64::from(count.launches), Ordering::Release);
        if count.vague > 0 {
            self.vague.fetch_add(count.vague, Ordering::Relaxed);
            self.unsure.fetch_add(count.unsure, Ordering::Relaxed);
            usage.sure.store(0, Ordering::Relaxed);
        } else if before == 0 {
            usage.sure.store(u32::from(self.vague.load(Ordering::Relaxed) == 0), Ordering::Relaxed);
        }
        usage.until_ns.store(self.until_ns(), Ordering::Release);
    }

    /// Launches have ended, or never came to be; the device time is `span`, none where it is unknown or there was none.
    pub(super) fn ended(&self, count: Count, span: Option<Span>, now: u64) {
        let usage = self.usage();
        if let Some(span) = span {
            self.charge(span, now);
            self.since_ns.fetch_max(span.end.min(now), Ordering::Relaxed);
        }
        let before = self.under_way_ns.fetch_sub(count.predicted_ns, Ordering::AcqRel);
        self.unsure.fetch_sub(count.unsure, Ordering::Relaxed);
        let vague = self.vague.fetch_sub(count.vague, Ordering::Relaxed) - count.vague;
        self.progress.fetch_add(1, Ordering::AcqRel);
        usage.sure.store(u32::from(vague == 0), Ordering::Relaxed);
        usage.until_ns.store(self.until_ns(), Ordering::Release);
        let completed = usage.completed.fetch_add(u64::from(count.launches), Ordering::AcqRel);
        let is_idle = before == count.predicted_ns
            && usage.submitted.load(Ordering::Acquire) == completed.wrapping_add(u64::from(count.launches));
        // Its token may go to somebody, or who waits for it to drain may go on.
        if is_idle && self.gate() != Gate::Free {
            self.poke();
        }
    }

    /// What is under way takes longer than predicted: says that it isn't over, and that nobody knows when it will be.
    pub(super) fn look_at_overdue(&self, now: u64) {
        if self.under_way_ns() > 0 && self.until_ns() <= now {
            let usage = self.usage();
            usage.sure.store(0, Ordering::Relaxed);
            usage.until_ns.store(now + OVERDUE_NS, Ordering::Release);
        }
    }

    /// Adds device time to the process's, and charges the tenant what no process of it was charged before.
    pub(super) fn charge(&self, span: Span, now: u64) {
        let mut charged = self.charged.lock();
        let fresh = charged.spans.add(span);
        if fresh == 0 {
            return;
        }
        let word = &self.tenant().covered_until_ns;
        let mut covered = word.load(Ordering::Acquire);
        let own = loop {
            let known = if covered > now.saturating_add(COVERED_AHEAD_MAX_NS) { 0 } else { covered };
            let own = if known == charged.covered_until_ns || known <= span.start {
                fresh
            } else {
                fresh.min(span.end.saturating_sub(known))
            };
            let next = known.max(span.end);
            match word.compare_exchange_weak(covered, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    charged.covered_until_ns = next;
                    break own;
                }
                Err(seen) => covered = seen,
            }
        };
        drop(charged);
        if own == 0 {
            return;
        }
        self.usage().busy_ns.fetch_add(own, Ordering::AcqRel);
        if let Some(limit) = self.limit(now) {
            // As of its beginning: what flows in while it runs is not saved up but used.
            let charge = |empty_at| Some(limit.charge(empty_at, own, span.start.min(now)));
            let _ = self.tenant().credit.fetch_update(Ordering::AcqRel, Ordering::Acquire, charge);
        }
    }

    fn limit(&self, now: u64) -> Option<Limit> {
        let cap = self.member.compute_cap_at(self.index, self.place, now);
        cap.map(|cap| Limit::new(cap, QUANTUM_NS))
    }

    /// True when the tenant has credit under its cap, as far as can be told without a look at the clock.
    pub(super) fn has_credit_still(&self) -> bool {
        let is_as_seen = || {
            self.tenant().credit.load(Ordering::Acquire) == self.credit_seen.load(Ordering::Relaxed)
                && self.under_way_ns() <= self.credit_covers_ns.load(Ordering::Relaxed)
        };
        self.cap().is_none() || is_as_seen()
    }

    /// When the tenant may go on under its cap; none when it may now.
    pub(super) fn resumes_at(&self, now: u64, was_throttled: bool) -> Option<u64> {
        let limit = self.limit(now)?;
        let empty_at = self.tenant().credit.load(Ordering::Acquire);
        // What is under way will be charged when it has ended; there has to be credit for it now.
        let under_way_ns = self.under_way_ns();
        let word = if under_way_ns > 0 { limit.charge(empty_at, under_way_ns, now) } else { empty_at };
        let resumes_at = limit.resumes_at(word);
        let may_go = if was_throttled { now >= resumes_at } else { limit.has_credit(word, now) };
        if may_go {
            self.credit_seen.store(empty_at, Ordering::Relaxed);
            let credit_ns = u64::try_from(limit.credit_ns(empty_at, now)).unwrap_or(0);
            self.credit_covers_ns.store(credit_ns, Ordering::Relaxed);
            None
        } else {
            Some(resumes_at)
        }
    }
}
