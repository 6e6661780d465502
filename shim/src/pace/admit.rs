//! What a launch waits for: credit under the tenant's cap, the gate, and room for so much predicted work.

use super::clock;
use super::device::Device;
use super::gate;
use super::{Pace, track::Track};
use crate::hooks::Answer;
use crate::log;
use crate::process::process;
use core::sync::atomic::Ordering;
use quota_core::Mode;
use quota_core::settings::LogLevel;
use quota_wire::page::Gate;

/// Pieces of a wait for room: the thread looks itself what has ended. A piece is what the predictions say, no shorter than a
/// wake-up takes.
const ROOM_PIECE_MIN_NS: u64 = 20_000;
const ROOM_PIECE_MAX_NS: u64 = 200_000;
/// Longest wait for room in which nothing at all ends. What is under way may itself wait for something that this very thread
/// has yet to launch (a host function, a value in memory, another stream): then only letting it through helps.
const ROOM_WAIT_MAX_NS: u64 = 100_000_000;
/// Pieces of a wait for credit, after which the cap is read again; shorter while something is under way that will be charged.
const CREDIT_PIECE_NS: u64 = 20_000_000;
const CREDIT_PIECE_BUSY_NS: u64 = 500_000;
const CREDIT_PIECE_MIN_NS: u64 = 20_000;

/// Waits until something may be launched on the device. Nothing is held meanwhile.
///
/// # Errors
/// As [`gate::pass`].
pub(super) fn admit(pace: &Pace, device: &Device, track: Option<&Track>) -> Answer {
    // Out of the way of all but the ordinary case: three loads of shared memory, and no system call.
    loop {
        if !device.has_credit_still() {
            wait_for_credit(pace, device, track);
        }
        gate::pass(pace, device)?;
        if device.has_room() {
            return Ok(());
        }
        wait_for_room(pace, device, track);
        if device.has_credit_still() && matches!(device.gate(), Gate::Open | Gate::Free) {
            return Ok(());
        }
    }
}

/// True where nobody is ever made to wait.
pub(super) fn only_observes() -> bool {
    process().settings.mode == Mode::Observe
}

#[cold]
fn wait_for_room(pace: &Pace, device: &Device, track: Option<&Track>) {
    // What is open ends with no event, so nobody would see its end.
    if let Some(track) = track {
        track.close();
    }
    let mut progress = device.progress();
    let mut now = clock::now_ns();
    let mut deadline = now + ROOM_WAIT_MAX_NS;
    let mut pieces = 0u32;
    loop {
        pace.reap(device);
        if device.has_room() || device.will_have_room(now) {
            return;
        }
        if device.progress() != progress {
            progress = device.progress();
            deadline = now + ROOM_WAIT_MAX_NS;
        } else if now >= deadline {
            static SAID: log::Once = log::Once::new();
            if SAID.first() {
                let text = "nothing ended for 100 ms, so a launch goes on before there is room for it";
                log::line(LogLevel::Info, format_args!("{text}; this is said once"));
            }
            return;
        }
        if pieces > 0 {
            // Other threads' streams may hold all the room without a launch that would close them.
            pace.close_open(device);
        }
        pieces += 1;
        let has_room_at = device.until_ns().saturating_sub(device.ahead_ns());
        clock::sleep_ns(has_room_at.saturating_sub(now).clamp(ROOM_PIECE_MIN_NS, ROOM_PIECE_MAX_NS));
        now = clock::now_ns();
    }
}

/// A thread that is counted as throttled.
struct Throttled<'a> {
    device: &'a Device,
    since_ns: u64,
}

impl Drop for Throttled<'_> {
    fn drop(&mut self) {
        let usage = self.device.usage();
        usage.throttled_ns.fetch_add(clock::now_ns().saturating_sub(self.since_ns), Ordering::AcqRel);
        usage.throttled.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits until the tenant has credit again. It is not one that waits for the token meanwhile: it wants nothing.
#[cold]
fn wait_for_credit(pace: &Pace, device: &Device, track: Option<&Track>) {
    pace.reap(device);
    let mut now = clock::now_ns();
    if device.resumes_at(now, false).is_none() {
        return;
    }
    if let Some(track) = track {
        track.close();
    }
    device.usage().throttled.fetch_add(1, Ordering::AcqRel);
    if device.under_way_ns() == 0 && device.gate() == Gate::Open {
        // Whoever has the token and nothing under way would be lingered for.
        device.poke();
    }
    let _throttled = Throttled { device, since_ns: now };
    // The cap may be changed meanwhile, and what is still under way is charged as it ends.
    while let Some(resumes_at) = device.resumes_at(now, true) {
        let longest = if device.under_way_ns() > 0 { CREDIT_PIECE_BUSY_NS } else { CREDIT_PIECE_NS };
        clock::sleep_ns(resumes_at.saturating_sub(now).clamp(CREDIT_PIECE_MIN_NS, longest));
        pace.reap(device);
        now = clock::now_ns();
    }
}
