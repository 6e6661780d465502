//! How fast the token changes hands: from the opening of a gate until the thread that waited there has gone through, and
//! what of the device's time is lost. `cargo build --release && cargo bench --bench handover`.
//!
//! The gates are watched from outside, by a loop that does nothing else; on a machine with few processors that takes one of
//! them from the jobs.

use harness::{Busy, Machine, Truth, page_of, tenant_memory_of};
use quota_core::ledger::{DeviceId, SlotId};
use quota_wire::page::Gate;
use quota_wire::usage::TenantMemory;
use quota_wire::{Mapping, QuotaPage};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const WATCHED: Duration = Duration::from_secs(5);
/// What the device itself loses at each change, as the simulated one is set by default.
const SWITCH_NS: u64 = 30_000;

fn main() {
    for jobs in [2, 8] {
        let machine = Machine::new("a100-80gb");
        let daemon = machine.daemon("");
        let truth = machine.truth();
        let words = "kernel=spin_200us iter=100ms";
        let busy = Busy::start_all((0..jobs).map(|_| machine.hired(&daemon, "--weight 100", words)));
        std::thread::sleep(Duration::from_secs(1));
        measure(jobs, &busy, &truth);
        busy.into_iter().for_each(|job| job.kill(&truth));
    }
}

/// One job, and what was last seen at its gate.
struct Watched {
    page: Mapping<QuotaPage>,
    memory: Mapping<TenantMemory>,
    slot: SlotId,
    opened_at_ns: Option<u64>,
    was_open: bool,
}

impl Watched {
    fn new(pid: u32) -> Self {
        let memory = tenant_memory_of(pid);
        let slot = memory.slots().find(|slot| memory.pid(*slot) != 0).expect("its process has a slot");
        Self { page: page_of(pid), memory, slot, opened_at_ns: None, was_open: true }
    }

    /// A latency, when one has just become known.
    fn look(&mut self, place: DeviceId) -> Option<u64> {
        let usage = self.memory.usage.process(self.slot, place);
        let is_open = self.page.gate(place) == Gate::Open;
        if is_open && !self.was_open && usage.waiting.load(Ordering::Acquire) > 0 {
            self.opened_at_ns = Some(fake_machine::now_ns());
        }
        self.was_open = is_open;
        let opened_at_ns = self.opened_at_ns?;
        let passed_at_ns = usage.passed_at_ns.load(Ordering::Acquire);
        let latency_ns = passed_at_ns.checked_sub(opened_at_ns)?;
        self.opened_at_ns = None;
        Some(latency_ns)
    }
}

fn measure(jobs: usize, busy: &[Busy], truth: &Truth) {
    let place = DeviceId::new(0).expect("the first");
    let mut watched: Vec<Watched> = busy.iter().map(|job| Watched::new(job.pid())).collect();
    let before = truth.account(0);
    let begun = Instant::now();
    let mut latencies = Vec::new();
    while begun.elapsed() < WATCHED {
        latencies.extend(watched.iter_mut().filter_map(|job| job.look(place)));
    }
    let account = truth.account(0).since(&before);
    latencies.sort_unstable();
    let at = |part: usize| latencies.get(latencies.len() * part / 100).copied().unwrap_or(0) / 1000;
    let changes = (account.switch_ns / SWITCH_NS).max(1);
    let idle_ns = account.at_ns.saturating_sub(account.busy_ns + account.switch_ns);
    println!(
        "{jobs} jobs: gate to launch p50 {} us, p99 {} us ({} seen); {} changes a second, {} us idle at each; device busy {:.2} %",
        at(50),
        at(99),
        latencies.len(),
        changes * 1_000_000_000 / account.at_ns.max(1),
        idle_ns / changes / 1000,
        account.busy_ns as f64 * 100.0 / account.at_ns as f64,
    );
}
