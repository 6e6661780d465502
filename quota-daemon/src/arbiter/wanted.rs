//! What the daemon's main thread wants the arbiter to know: a state, not a queue, so that it has a bound and a change that
//! is overtaken by the next one costs nothing.

use super::claims::Process;
use super::device::Terms;
use crate::registry::TenantId;
use quota_core::compute::scheduler::Rules;
use quota_core::ledger::DeviceId;
use quota_wire::TenantMemory;
use quota_wire::memory::Mapping;
use quota_wire::page::QuotaPage;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What both threads have of a tenant.
#[derive(Debug)]
pub struct Common {
    /// What the tenant's processes read.
    pub page: Mapping<QuotaPage>,
    /// What they write.
    pub memory: Mapping<TenantMemory>,
    /// The place of each device of the daemon in both. Remembered, since the processes can write the ledger.
    pub places: Vec<DeviceId>,
    /// They write to it to say: look.
    pub poke: OwnedFd,
}

/// A tenant, as the arbiter is to have it.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) common: Arc<Common>,
    /// By device of the daemon; none where it may not use the device.
    pub(super) terms: Vec<Option<Terms>>,
    pub(super) processes: BTreeSet<Process>,
}

#[derive(Debug, Default)]
struct State {
    tenants: BTreeMap<TenantId, Wanted>,
    changed: BTreeSet<TenantId>,
    rules: Option<Rules>,
    generations: u64,
    ends: bool,
    /// How often the arbiter was asked whether it lives, and which of the questions it has answered.
    asked: u64,
    answered: u64,
}

/// The state, as both threads reach it.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<State>);

/// What has changed.
#[derive(Debug, Default)]
pub(super) struct News {
    /// None for a tenant that is gone.
    pub(super) tenants: Vec<(TenantId, Option<Wanted>)>,
    pub(super) rules: Option<Rules>,
    pub(super) ends: bool,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between two of its lines can panic and leave it half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the tenant known, or changes what holds for it.
    pub(super) fn set(&self, tenant: TenantId, common: &Arc<Common>, terms: Vec<Option<Terms>>) {
        let mut state = self.lock();
        let processes = state.tenants.remove(&tenant).map(|known| known.processes).unwrap_or_default();
        state.tenants.insert(tenant, Wanted { common: Arc::clone(common), terms, processes });
        state.changed.insert(tenant);
    }

    /// A process has a slot.
    pub(super) fn occupy(&self, tenant: TenantId, slot: u32, pid: u32) {
        let mut state = self.lock();
        state.generations += 1;
        let process = Process { slot, generation: state.generations, pid };
        let Some(known) = state.tenants.get_mut(&tenant) else { return };
        known.processes.retain(|other| other.slot != slot);
        known.processes.insert(process);
        state.changed.insert(tenant);
    }

    /// It has it no more.
    pub(super) fn vacate(&self, tenant: TenantId, slot: u32) {
        let mut state = self.lock();
        let Some(known) = state.tenants.get_mut(&tenant) else { return };
        known.processes.retain(|other| other.slot != slot);
        state.changed.insert(tenant);
    }

    /// The tenant is gone.
    pub(super) fn remove(&self, tenant: TenantId) {
        let mut state = self.lock();
        if state.tenants.remove(&tenant).is_some() {
            state.changed.insert(tenant);
        }
    }

    pub(super) fn set_rules(&self, rules: Rules) {
        self.lock().rules = Some(rules);
    }

    pub(super) fn end(&self) {
        self.lock().ends = true;
    }

    /// Asks whether the other thread lives; true when it has answered the last such question.
    pub(super) fn ask_alive(&self) -> bool {
        let mut state = self.lock();
        let has_answered = state.answered == state.asked;
        state.asked += u64::from(has_answered);
        has_answered
    }

    /// What has changed since the last call.
    pub(super) fn news(&self) -> News {
        let mut state = self.lock();
        state.answered = state.asked;
        let changed = std::mem::take(&mut state.changed);
        let tenants = changed.into_iter().map(|id| (id, state.tenants.get(&id).cloned())).collect();
        News { tenants, rules: state.rules.take(), ends: state.ends }
    }
}
