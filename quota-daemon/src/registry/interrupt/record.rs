//! An interruption as it outlives the daemon.

use super::{Cause, Interruptible};
use crate::registry::{Registry, TenantId};
use quota_core::Bytes;
use serde::{Deserialize, Serialize};

/// What is known of a tenant for when it has to make room, with what hangs on its devices by their names.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct InterruptionRecord {
    state: Interruptible,
    /// An administrator wants it.
    by_administrator: bool,
    /// Somebody waits for it.
    is_waited_for: bool,
    /// What it keeps of its memory, by device.
    keeps: Vec<(String, u64)>,
}

impl Registry {
    pub(in crate::registry) fn interruption_record(&self, id: TenantId) -> InterruptionRecord {
        let state = self.tenants[&id].interrupt.clone();
        let by_administrator = state.now.as_ref().is_some_and(|now| now.cause == Cause::Administrator);
        let waits = |cause| match cause {
            Cause::Job(job) => self.waits(job),
            Cause::Earlier(_) => true,
            Cause::Administrator | Cause::Nobody => false,
        };
        let is_waited_for = state.now.as_ref().is_some_and(|now| waits(now.cause));
        let keeps = state.now.iter().flat_map(|now| now.keeps.iter().enumerate());
        let keeps = keeps.filter_map(|(device, kept)| Some((self.devices[device].uuid_text.clone(), (*kept)?.0)));
        InterruptionRecord { keeps: keeps.collect(), by_administrator, is_waited_for, state }
    }

    /// Who waited for it is not known any more: they may come back.
    pub(in crate::registry) fn adopt_interruption(&mut self, id: TenantId, record: &InterruptionRecord) {
        let mut state = record.state.clone();
        if let Some(now) = &mut state.now {
            now.cause = match (record.by_administrator, record.is_waited_for) {
                (true, _) => Cause::Administrator,
                (false, true) => Cause::Earlier(None),
                (false, false) => Cause::Nobody,
            };
            now.keeps = vec![None; self.devices.len()];
            for (uuid, bytes) in &record.keeps {
                if let Some(device) = self.device_with(uuid) {
                    now.keeps[device] = Some(Bytes(*bytes));
                }
            }
            self.stirred = true;
        }
        self.tenants.get_mut(&id).expect("the caller has made it").interrupt = state;
    }
}
