//! Compares what members are charged with what the driver says they hold, and books the difference.
//!
//! Memory that no call asks for (code that is loaded at the first launch, local memory that grows, the driver's
//! own pools) shows nowhere else. A difference counts only when both numbers have stood still for a while: a
//! process that is allocating is charged before it holds, and holds after it is credited.

use crate::devices::DeviceSample;
use crate::pages::Pages;
use crate::registry::{ConnectionId, MemberName, Registry, Usage};
use quota_core::Bytes;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often the driver is asked while there are members.
const PERIOD: Duration = Duration::from_secs(1);
/// How long both numbers must have stood still.
const STILL_MIN: Duration = Duration::from_millis(100);

/// What was seen of a member on one device, and since when.
#[derive(Clone, Copy, Debug)]
struct Seen {
    charged: Bytes,
    held: Bytes,
    since: Instant,
}

/// What was seen last.
#[derive(Debug, Default)]
pub struct Reconciler {
    seen: HashMap<(ConnectionId, usize), Seen>,
    asked_at: Option<Instant>,
}

impl Reconciler {
    /// When the driver is to be asked next; never while there are no members.
    pub fn due(&self, registry: &Registry) -> Option<Instant> {
        registry.members().next()?;
        Some(self.asked_at.map_or_else(Instant::now, |at| at + PERIOD))
    }

    /// True once a period when the driver is to be asked.
    pub fn is_due(&mut self, now: Instant, registry: &Registry) -> bool {
        let is_due = registry.members().next().is_some() && self.asked_at.is_none_or(|at| at + PERIOD <= now);
        if is_due {
            self.asked_at = Some(now);
        }
        is_due
    }

    /// Corrects the books of those whose numbers stood still.
    pub fn reconcile(&mut self, registry: &Registry, pages: &Pages, sample: &[DeviceSample]) {
        let now = Instant::now();
        let mut seen = HashMap::new();
        // Once for all: to look for each among all would take the daemon a noticeable time with a thousand of them.
        let mut by_pid: HashMap<u32, Vec<MemberName>> = HashMap::new();
        for member in registry.members() {
            by_pid.entry(member.pid).or_default().push(member);
        }
        for member in by_pid.values().flatten() {
            for device in 0..registry.devices().len() {
                let Some(held) = registry.held_on(member, &by_pid[&member.pid], device, pages, sample) else {
                    continue;
                };
                let charged = pages.charged(member.tenant, member.slot, device);
                let key = (member.connection, device);
                let before = self.seen.get(&key).filter(|seen| seen.charged == charged && seen.held == held);
                let since = before.map_or(now, |seen| seen.since);
                if charged != held && now.duration_since(since) >= STILL_MIN {
                    pages.correct(member.tenant, member.slot, device, held);
                }
                seen.insert(key, Seen { charged, held, since });
            }
        }
        self.seen = seen;
    }
}
