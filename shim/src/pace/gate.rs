//! Waiting at the gate, and what happens when nobody is there to open it.

use super::Pace;
use super::clock;
use super::device::Device;
use crate::hooks::{Answer, Refusal};
use crate::join::Caps;
use crate::link::Link;
use crate::log;
use crate::process::process;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use driver_api::CUresult;
use quota_core::OnDaemonLoss;
use quota_core::settings::LogLevel;
use quota_wire::QuotaPage;
use quota_wire::page::Gate;

/// Longest piece of a wait, after which the daemon is looked for. The wait itself may be long: a paused tenant is one.
const PIECE_NS: u64 = 100_000_000;
/// Pieces while something of ours is still under way, whose end the daemon waits for.
const DRAIN_PIECE_MIN_NS: u64 = 50_000;
const DRAIN_PIECE_MAX_NS: u64 = 1_000_000;
/// A daemon whose heartbeat stands still for so long while somebody waits is hung: it moves every 100 ms then.
const HEARTBEAT_MAX_NS: u64 = 500_000_000;
/// Where a launch is to be refused without a daemon: how long the first one waits for another.
const REFUSE_AFTER_NS: u64 = 5_000_000_000;
/// Piece of that wait: a daemon that is back is found by asking.
const LOST_PIECE_NS: u64 = 50_000_000;
/// CUDA_ERROR_OPERATING_SYSTEM
const OPERATING_SYSTEM: CUresult = CUresult(304);

/// Whether there is a daemon that opens gates.
#[derive(Default)]
pub(super) struct Governed {
    /// Its connection was found closed.
    lost: AtomicBool,
    /// One more than the heartbeat at which it was found to hang; 0 while it doesn't.
    hung_at: AtomicU64,
    /// Launches have been refused since it was lost.
    refuses: AtomicBool,
}

impl Governed {
    /// True while there is one, as far as known. Looks for one that came back, once a second.
    fn is_governed(&self, page: &QuotaPage, daemon: &Link) -> bool {
        let hung_at = self.hung_at.load(Ordering::Relaxed);
        if hung_at != 0 {
            if hung_at == page.heartbeat_ns().wrapping_add(1) {
                return false;
            }
            self.hung_at.store(0, Ordering::Relaxed);
        }
        if self.lost.load(Ordering::Relaxed) {
            if daemon.connection().is_none() {
                return false;
            }
            self.lost.store(false, Ordering::Relaxed);
        }
        self.refuses.store(false, Ordering::Relaxed);
        true
    }

    /// Looks whether it is still there; `beat` is the heartbeat and when a waiter saw it first.
    fn look(&self, page: &QuotaPage, daemon: &Link, beat: &mut (u64, u64), now: u64) {
        if daemon.is_lost() {
            self.lost.store(true, Ordering::Relaxed);
            self.say("is gone");
        }
        let seen = page.heartbeat_ns();
        if seen != beat.0 {
            *beat = (seen, now);
        } else if now.saturating_sub(beat.1) >= HEARTBEAT_MAX_NS {
            self.hung_at.store(seen.wrapping_add(1), Ordering::Relaxed);
            self.say("does not answer");
        }
    }

    fn say(&self, what: &str) {
        static SAID: log::Once = log::Once::new();
        if SAID.first() {
            let (level, outcome) = match process().settings.on_daemon_loss {
                OnDaemonLoss::Keep => (LogLevel::Warn, "launches go on, within the compute cap"),
                OnDaemonLoss::Refuse => (LogLevel::Error, "launches are refused (GPUQUOTA_ON_DAEMON_LOSS=refuse)"),
            };
            log::line(level, format_args!("the daemon {what}; {outcome}"));
        }
    }
}

/// How a wait ended.
enum Waited {
    /// The launch may go on.
    Through,
    /// There is a daemon again, whose gate counts.
    Again,
}

/// Lets the thread through once the gate is open.
///
/// # Errors
/// Where launches are to be refused without a daemon, and there is none.
pub(super) fn pass(pace: &Pace, device: &Device) -> Answer {
    while !matches!(device.gate(), Gate::Free | Gate::Open) {
        if let Waited::Through = wait(pace, device)? {
            break;
        }
    }
    Ok(())
}

/// A thread that is counted as waiting.
struct Waiting<'a> {
    device: &'a Device,
    since_ns: u64,
}

impl<'a> Waiting<'a> {
    fn begin(device: &'a Device) -> Self {
        device.usage().waiting.fetch_add(1, Ordering::AcqRel);
        // The daemon sees the count when it looks.
        device.poke();
        Self { device, since_ns: clock::now_ns() }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let (usage, now) = (self.device.usage(), clock::now_ns());
        self.device.turn_begins();
        usage.passed_at_ns.store(now, Ordering::Release);
        usage.waited_ns.fetch_add(now.saturating_sub(self.since_ns), Ordering::AcqRel);
        usage.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cold]
fn wait(pace: &Pace, device: &Device) -> Result<Waited, Refusal> {
    let (Caps::Page(page), Some(daemon)) = (&device.member.caps, device.daemon()) else { return Ok(Waited::Through) };
    device.attach();
    if daemon.is_lost() {
        pace.governed.lost.store(true, Ordering::Relaxed);
    }
    if !pace.governed.is_governed(page, daemon) {
        return without_daemon(pace, page, daemon);
    }
    pace.close_open(device);
    let waiting = Waiting::begin(device);
    let word = page.gate_word(device.place);
    let mut now = waiting.since_ns;
    let (mut beat, mut looked_ns) = ((page.heartbeat_ns(), now), now);
    loop {
        let seen = word.load(Ordering::Acquire);
        if matches!(Gate::from_word(seen), Gate::Free | Gate::Open) {
            return Ok(Waited::Through);
        }
        let piece = if device.under_way_ns() == 0 {
            PIECE_NS
        } else {
            pace.reap(device);
            device.until_ns().saturating_sub(now).clamp(DRAIN_PIECE_MIN_NS, DRAIN_PIECE_MAX_NS)
        };
        clock::wait_on(word, seen, piece, true);
        now = clock::now_ns();
        if now.saturating_sub(looked_ns) >= PIECE_NS {
            looked_ns = now;
            pace.governed.look(page, daemon, &mut beat, now);
            if !pace.governed.is_governed(page, daemon) {
                break;
            }
            // It may be another daemon by now, which has heard nothing yet.
            device.poke();
        }
    }
    drop(waiting);
    without_daemon(pace, page, daemon)
}

/// Nobody opens the gate: the launch goes on, or is refused after a while, as the settings say.
fn without_daemon(pace: &Pace, page: &QuotaPage, daemon: &Link) -> Result<Waited, Refusal> {
    if process().settings.on_daemon_loss == OnDaemonLoss::Keep {
        return Ok(Waited::Through);
    }
    let deadline = clock::now_ns() + REFUSE_AFTER_NS;
    while !pace.governed.is_governed(page, daemon) {
        // Only the first stands still: a program that goes on launching must not do so each time.
        if pace.governed.refuses.load(Ordering::Relaxed) || clock::now_ns() >= deadline {
            pace.governed.refuses.store(true, Ordering::Relaxed);
            return Err(Refusal::Driver(OPERATING_SYSTEM));
        }
        clock::sleep_ns(LOST_PIECE_NS);
    }
    Ok(Waited::Again)
}
