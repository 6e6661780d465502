//! Devices that are there no more when a daemon takes back what the one before granted: a MIG layout is gone after a restart of the
//! node, or somebody has made another one. What was granted there is lost. Nothing else takes its place, since another UUID is
//! another device, and it stays lost for this tenant even where such an instance is made again: it may be somebody else's by then.

use super::record::{GrantRecord, OriginRecord, TenantRecord};
use super::{Member, Registry, SharedDevice, Tenant, TenantId};
use quota_wire::audit::{AuditEvent, AuditKind};
use quota_wire::message::ProcessRow;

/// The state of a process whose devices are there no more, or are drained.
pub(super) const LOST: &str = "lost";

impl Tenant {
    /// True for a device that was lost to it, and is there again.
    pub(super) fn has_lost(&self, device: &SharedDevice) -> bool {
        self.lost.iter().any(|grant| grant.uuid == device.uuid_text)
    }
}

impl Registry {
    /// What of a record was on devices that are there no more: of what the document sets aside, only where somebody was.
    fn newly_lost(&self, record: &TenantRecord) -> Vec<GrantRecord> {
        let was_on = |uuid: &String| {
            record.origin != OriginRecord::Document
                || record.apart.is_on(uuid)
                || record.members.iter().any(|member| member.sees(uuid))
        };
        let gone = |grant: &&GrantRecord| self.device_with(&grant.uuid).is_none() && was_on(&grant.uuid);
        record.grants.iter().filter(gone).cloned().collect()
    }

    /// Marks what a tenant that is taken back had on devices that are there no more.
    pub(super) fn mark_lost(&mut self, id: TenantId, record: &TenantRecord) {
        let lost = self.newly_lost(record);
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.lost = [record.lost.clone(), lost].concat();
        }
    }

    /// What is to be told of that: once, by the first daemon that misses the devices.
    pub fn about_lost(&self, record: &TenantRecord) -> Option<AuditEvent> {
        let devices: Vec<String> = self.newly_lost(record).into_iter().map(|grant| grant.uuid).collect();
        let plural = if devices.len() == 1 { "a device that is" } else { "devices that are" };
        let reason = format!(
            "it had its place on {plural} there no more: what it was granted there is lost, and nothing takes its place"
        );
        (!devices.is_empty()).then(|| AuditEvent {
            event: AuditKind::Vanished,
            tenant: Some(record.name.clone()),
            uid: Some(record.owner),
            devices,
            reason: Some(reason),
            ..AuditEvent::default()
        })
    }

    /// Rows for a process that has none of its devices any more.
    pub(super) fn lost_rows(tenant: &Tenant, member: &Member) -> Vec<ProcessRow> {
        let row = |grant: &GrantRecord| ProcessRow {
            tenant: tenant.name.clone(),
            pid: member.peer.pid,
            uid: member.peer.uid,
            command: member.command.clone(),
            device: None,
            uuid: grant.uuid.clone(),
            memory_quota_bytes: grant.quota.memory_cap_bytes(),
            priority: "-".to_owned(),
            state: LOST.to_owned(),
            state_reason: Some("its device is there no more".to_owned()),
            started: member.peer.started.clone(),
            ..ProcessRow::default()
        };
        tenant.lost.iter().map(row).collect()
    }
}
