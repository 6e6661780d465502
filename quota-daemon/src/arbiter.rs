//! Who may launch now: the thread that opens and closes the gates of the tenants' quota pages.
//!
//! It sleeps until a process pokes it (an eventfd a tenant), the main thread has news, or a turn ends; then it reads what
//! the processes claim ([`claims`]), has the scheduler of each device concerned decide ([`device`]), and writes the gates
//! ([`work`]). While nobody shares a device it doesn't wake at all.
//!
//! A daemon that fails here must not take the jobs with it: without a heartbeat they go on by themselves.

mod claims;
mod device;
mod rank;
mod wanted;
mod work;

use crate::log;
use crate::registry::{Registry, TenantId};
use quota_core::Percent;
use quota_core::compute::Share;
use quota_core::compute::scheduler::Rules;
use quota_core::settings::LogLevel;
use quota_wire::page::Quota;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;

pub use wanted::Common;
pub use work::now_ns;

/// What the arbiter tells of a device, to be shown.
#[derive(Debug, Default)]
struct Shown {
    /// Who may launch, as a number of [`TenantId`]; 0 for nobody.
    holder: AtomicU64,
    /// Tenants that have work.
    contenders: AtomicU32,
}

/// The arbiter, as the main thread has it.
#[derive(Debug)]
pub struct Arbiter {
    board: Arc<wanted::Board>,
    shown: Arc<[Shown]>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    failed: bool,
    rules: Rules,
}

impl Arbiter {
    /// An arbiter over `devices` devices. Its thread is started with the first process.
    ///
    /// # Errors
    /// When the kernel gives no descriptor.
    pub fn new(devices: usize, rules: Rules) -> io::Result<Self> {
        Ok(Self {
            board: Arc::default(),
            shown: (0..devices).map(|_| Shown::default()).collect(),
            bell: Arc::new(work::bell()?),
            thread: None,
            failed: false,
            rules,
        })
    }

    /// What holds for the tenant, now and until the next call.
    pub fn set(&mut self, tenant: TenantId, common: &Arc<Common>, registry: &Registry) {
        let paused = registry.is_paused(tenant);
        let terms = (0..common.places.len()).map(|device| {
            let mut terms = terms(&registry.effective(tenant, device)?, paused);
            terms.soft = terms.capped && registry.borrows_time(tenant);
            terms.part = registry.part_of_cap(tenant, device);
            Some(registry.pool_of(tenant, device).map_or(terms, |(pool, weight)| terms.in_pool(pool, weight)))
        });
        self.board.set(tenant, common, terms.collect());
        self.ring();
    }

    /// A process of the tenant has a slot.
    pub fn occupy(&mut self, tenant: TenantId, slot: u32, pid: u32) {
        self.board.occupy(tenant, slot, pid);
        self.start();
        self.ring();
    }

    /// It has it no more; what it had said is cleared already.
    pub fn vacate(&self, tenant: TenantId, slot: u32) {
        self.board.vacate(tenant, slot);
        self.ring();
    }

    /// The tenant is gone.
    pub fn remove(&self, tenant: TenantId) {
        self.board.remove(tenant);
        self.ring();
    }

    /// How devices are shared out from now on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        self.board.set_rules(rules);
        self.ring();
    }

    /// Whether its thread has come round since this was asked last; asks it to do so again. One that hasn't been needed
    /// yet counts as alive, and so does one that the kernel didn't let start.
    pub fn is_alive(&self) -> bool {
        let Some(thread) = &self.thread else { return true };
        let has_answered = self.board.ask_alive();
        self.ring();
        has_answered && !thread.is_finished()
    }

    /// Who may launch on a device, by the number of [`TenantId::number`].
    pub fn holder(&self, device: usize) -> Option<u64> {
        Some(self.shown.get(device)?.holder.load(Ordering::Relaxed)).filter(|number| *number != 0)
    }

    /// Tenants that have work on a device now; one that is alone on it and not counted is one of them.
    pub fn contenders(&self, device: usize) -> u32 {
        self.shown.get(device).map_or(0, |shown| shown.contenders.load(Ordering::Relaxed))
    }

    fn start(&mut self) {
        if self.thread.is_some() || self.failed {
            return;
        }
        match work::start(&self.board, &self.shown, &self.bell, self.rules) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                self.failed = true;
                let text = "compute is not shared out: the kernel refuses what the arbiter needs";
                log::line(LogLevel::Error, format_args!("{text}: {error}"));
            }
        }
    }

    fn ring(&self) {
        if self.thread.is_some() {
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        self.board.end();
        self.ring();
        if let Some(thread) = self.thread.take() {
            // It never waits for anything but the kernel's timer and our bell.
            let _ = thread.join();
        }
    }
}

fn terms(quota: &Quota, paused: bool) -> device::Terms {
    // The cap is the shim's: who is out of credit doesn't come to the gate.
    let share =
        Share { weight: quota.weight, guarantee: quota.guarantee, cap: None, class: quota.priority, pool: None };
    device::Terms {
        share,
        capped: quota.compute_cap.as_ref().is_some_and(Percent::binds),
        soft: false,
        part: None,
        paused,
    }
}
