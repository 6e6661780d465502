//! The registry's decisions, as they are written down.

use super::job::{Job, Wish};
use super::{Action, Ask, Member, Registry, Tenant, TenantId};
use quota_core::{MemorySize, Percent};
use quota_wire::audit::{AuditEvent, AuditKind, AuditTerms};
use quota_wire::message::Change;
use quota_wire::page::Quota;

/// Adds an event to what has to be done.
pub(super) fn note(event: AuditEvent, actions: &mut Vec<Action>) {
    actions.push(Action::Audit(Box::new(event)));
}

impl Registry {
    /// Adds an event for the tenant, once for each set of devices on which the same is granted.
    pub(super) fn note_granted(
        &self,
        event: &AuditEvent,
        grants: impl IntoIterator<Item = (usize, Quota)>,
        actions: &mut Vec<Action>,
    ) {
        let mut groups: Vec<(AuditTerms, Vec<usize>)> = Vec::new();
        for (device, quota) in grants {
            let terms = granted_terms(&quota);
            match groups.iter_mut().find(|(known, _)| *known == terms) {
                Some((_, devices)) => devices.push(device),
                None => groups.push((terms, vec![device])),
            }
        }
        if groups.is_empty() {
            return note(event.clone(), actions);
        }
        for (terms, devices) in groups {
            note(AuditEvent { devices: self.uuids(devices), granted: Some(terms), ..event.clone() }, actions);
        }
    }

    /// Adds an event with all that the tenant is granted.
    pub fn note_grants_of(&self, id: TenantId, event: AuditEvent, actions: &mut Vec<Action>) {
        let granted = self.tenants.get(&id).into_iter().flat_map(Tenant::granted);
        self.note_granted(&event, granted, actions);
    }

    /// An event about a tenant, with nothing but whose it is.
    pub(super) fn about_tenant(&self, event: AuditKind, id: TenantId) -> AuditEvent {
        let tenant = &self.tenants[&id];
        AuditEvent { event, tenant: Some(tenant.name.clone()), uid: Some(tenant.owner), ..AuditEvent::default() }
    }

    /// An event about a job, with what it asks for.
    pub(super) fn about_job(&self, event: AuditKind, job: &Job) -> AuditEvent {
        AuditEvent {
            event,
            tenant: job.tenant.clone(),
            uid: Some(job.uid),
            pid: Some(job.pid),
            command: Some(job.command.clone()),
            devices: self.uuids(job.devices.iter().copied()),
            asked: Some(self.wished_terms(&job.wish, &job.devices)),
            ..AuditEvent::default()
        }
    }

    /// An event about a process of a tenant.
    pub(super) fn about_member(&self, event: AuditKind, tenant: &Tenant, member: &Member) -> AuditEvent {
        AuditEvent {
            event,
            tenant: Some(tenant.name.clone()),
            uid: Some(member.peer.uid),
            pid: Some(member.peer.pid),
            command: Some(member.command.clone()),
            devices: self.uuids(member.sees.iter().copied()),
            ..AuditEvent::default()
        }
    }

    /// What a change asks for, where that can be understood.
    pub fn asked_by(&self, change: &Change) -> Option<AuditTerms> {
        let (memory, priority) = (change.memory.as_deref(), change.priority.as_deref());
        let wish = Wish::read(memory, change.compute, change.guarantee, change.weight, priority).ok()?;
        let devices: Vec<usize> = (0..self.devices.len()).collect();
        Some(self.wished_terms(&wish, &devices))
    }

    /// What a wish comes to: in bytes where it does so on all the devices alike.
    pub(super) fn wished_terms(&self, wish: &Wish, devices: &[usize]) -> AuditTerms {
        let size = |size: MemorySize| {
            let mut sizes = devices.iter().map(|device| size.on(self.devices[*device].total));
            let first = sizes.next()?;
            sizes.all(|other| other == first).then_some(first.0)
        };
        AuditTerms {
            memory_bytes: wish.memory.and_then(size),
            memory_percent: match wish.memory {
                Some(MemorySize::Share(share)) => Some(in_percent(share)),
                _ => None,
            },
            compute_percent: wish.compute.map(in_percent),
            guarantee_percent: wish.guarantee.map(in_percent),
            weight: wish.weight,
            priority: wish.priority.map(|class| class.to_string()),
        }
    }

    pub(super) fn uuids(&self, devices: impl IntoIterator<Item = usize>) -> Vec<String> {
        devices.into_iter().map(|device| self.devices[device].uuid_text.clone()).collect()
    }
}

impl Tenant {
    /// All that it has, by device.
    pub(super) fn granted(&self) -> impl Iterator<Item = (usize, Quota)> + '_ {
        self.grants.iter().enumerate().filter_map(|(device, grant)| Some((device, (*grant)?.quota)))
    }
}

/// What a process asks for, where it is the same on all its devices; nothing, where it asks for nothing.
pub(super) fn hello_terms(asks: &[(usize, Ask)]) -> Option<AuditTerms> {
    let (_, first) = asks.first()?;
    if *first == Ask::default() || asks.iter().any(|(_, ask)| ask != first) {
        return None;
    }
    Some(AuditTerms {
        memory_bytes: first.memory.map(|size| size.0),
        memory_percent: None,
        compute_percent: first.compute.map(in_percent),
        guarantee_percent: first.guarantee.map(in_percent),
        weight: first.weight,
        priority: first.priority.map(|class| class.to_string()),
    })
}

fn granted_terms(quota: &Quota) -> AuditTerms {
    AuditTerms {
        memory_bytes: quota.memory_cap.map(|cap| cap.0),
        memory_percent: None,
        compute_percent: quota.compute_cap.map(in_percent),
        guarantee_percent: quota.guarantee.map(in_percent),
        weight: Some(quota.weight),
        priority: Some(quota.priority.to_string()),
    }
}

fn in_percent(percent: Percent) -> f64 {
    f64::from(percent.hundredths()) / 100.0
}
