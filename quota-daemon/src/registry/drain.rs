//! Devices of which the daemon lets go, to be divided anew, reset or taken out: nobody gets a place there until an
//! administrator gives them back. Who has one keeps it, and is shown as lost.

use super::admission::NoRoom;
use super::events::note;
use super::job::Job;
use super::{Action, Registry};
use crate::devices::select;
use quota_wire::audit::{AuditEvent, AuditKind};
use std::collections::BTreeSet;

/// Tenants that a message names.
const NAMED_MAX: usize = 4;

impl Registry {
    /// Lets go of the devices that `selection` names, or uses them again.
    ///
    /// # Errors
    /// One line with those that there are, when it names none.
    pub fn drain(&mut self, selection: &str, drained: bool, actions: &mut Vec<Action>) -> Result<String, String> {
        let chosen = select(&self.names(), selection).map_err(|error| error.to_string())?;
        if let Some((part, whole)) =
            chosen.iter().find_map(|index| self.is_drained_with(*index).map(|whole| (*index, whole)))
            && !drained
            && !chosen.contains(&whole)
        {
            return Err(format!("device {part} is a part of device {whole}, which is drained: resume that"));
        }
        let changed: Vec<usize> = chosen.iter().copied().filter(|index| self.is_drained(*index) != drained).collect();
        if changed.is_empty() {
            let already = if drained { "drained already" } else { "not drained" };
            return Ok(format!("{}: {already}", in_words(&chosen)));
        }
        for index in &changed {
            let uuid = self.devices[*index].uuid_text.clone();
            if drained {
                self.drained.insert(uuid);
            } else {
                self.drained.remove(&uuid);
            }
        }
        let done = if drained { self.left_in_words(&changed) } else { "in use again".to_owned() };
        let (change, devices) = (if drained { "drain" } else { "resume" }, self.uuids(changed.iter().copied()));
        let message = format!("{}: {done}", in_words(&changed));
        let (change, reason) = (Some(change.to_owned()), Some(message.clone()));
        note(AuditEvent { event: AuditKind::Changed, devices, change, reason, ..AuditEvent::default() }, actions);
        self.pump(actions);
        Ok(message)
    }

    fn left_in_words(&self, devices: &[usize]) -> String {
        let parts =
            (0..self.devices.len()).filter(|at| self.devices[*at].parent.is_some_and(|whole| devices.contains(&whole)));
        let all: Vec<usize> = devices.iter().copied().chain(parts).collect();
        let is_there = |tenant: &&super::Tenant| all.iter().any(|device| tenant.is_on(*device));
        let names: Vec<&str> = self.tenants.values().filter(is_there).map(|tenant| tenant.name.as_str()).collect();
        let again = format!("nobody new gets a place there until `gpuquota resume`{}", by_number(devices));
        match names.len() {
            0 => format!("drained, and nobody is there; {again}"),
            count => {
                let (some, more) = (names[..count.min(NAMED_MAX)].join(", "), count.saturating_sub(NAMED_MAX));
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let plural = if count == 1 { "tenant is" } else { "tenants are" };
                format!("drained; {count} {plural} still there ({some}{more}); {again}")
            }
        }
    }

    /// The devices of a daemon before this one that are drained; those that aren't here now included.
    pub fn set_drained(&mut self, uuids: BTreeSet<String>) {
        self.drained = uuids;
    }

    /// UUIDs of those that are drained.
    pub fn drained_uuids(&self) -> &BTreeSet<String> {
        &self.drained
    }

    /// By device, whether it is drained.
    pub fn drained(&self) -> Vec<bool> {
        (0..self.devices.len()).map(|index| self.is_drained(index)).collect()
    }

    /// Those that are, and are here.
    pub fn drained_in_words(&self) -> String {
        let here: Vec<usize> = (0..self.devices.len()).filter(|index| self.is_drained(*index)).collect();
        if here.is_empty() { "devices that are not here".to_owned() } else { in_words(&here) }
    }

    /// A MIG instance is, too, when the device is that it is a part of.
    pub(super) fn is_drained(&self, device: usize) -> bool {
        self.drained.contains(&self.devices[device].uuid_text) || self.is_drained_with(device).is_some()
    }

    /// Of an instance, the device that it is a part of, when that is drained.
    fn is_drained_with(&self, device: usize) -> Option<usize> {
        self.devices[device].parent.filter(|whole| self.drained.contains(&self.devices[*whole].uuid_text))
    }

    /// Whether somebody may have a place on those devices, be there room or not.
    pub(super) fn takes_anybody(&self, devices: &[usize]) -> Result<(), NoRoom> {
        match devices.iter().find(|index| self.is_drained(**index)) {
            Some(index) => Err(NoRoom::NotNow(drained_in_words(*index))),
            None => Ok(()),
        }
    }
}

impl Registry {
    /// True for a job that could have its place if there were room: one that waits for an administrator to give a device back
    /// is nobody for whom others would wait or make room.
    pub(super) fn waits_for_room(&self, job: &Job) -> bool {
        let open = job.devices.iter().filter(|index| !self.is_drained(**index)).count();
        open >= job.count.unwrap_or(job.devices.len())
    }
}

/// Why nobody gets a place on a device.
pub(super) fn drained_in_words(device: usize) -> String {
    format!("device {device} is drained: an administrator has it until `gpuquota resume {device}`")
}

fn by_number(devices: &[usize]) -> String {
    let numbers: Vec<String> = devices.iter().map(usize::to_string).collect();
    format!(" {}", numbers.join(","))
}

fn in_words(devices: &[usize]) -> String {
    format!("device{}{}", if devices.len() == 1 { "" } else { "s" }, by_number(devices))
}
