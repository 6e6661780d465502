//! The registry's decisions, as they are written down.

use super::job::{Job, Wish};
use super::{Action, Ask, Member, Registry, Tenant, TenantId};
use quota_core::{MemorySize, Percent};
use quota_wire::audit::{AuditEvent, AuditKind, AuditTerms, DeviceTerms};
use quota_wire::message::Change;
use quota_wire::page::Quota;

/// Adds an event to what has to be done.
pub(super) fn note(event: AuditEvent, actions: &mut Vec<Action>) {
    actions.push(Action::Audit(Box::new(event)));
}

impl Registry {
    /// Adds an event with what is granted on its devices.
    pub(super) fn note_granted(
        &self,
        event: AuditEvent,
        grants: impl IntoIterator<Item = (usize, Quota)>,
        actions: &mut Vec<Action>,
    ) {
        let terms = grants.into_iter().map(|(device, quota)| (device, granted_terms(&quota)));
        let (devices, granted, granted_by_device) = self.by_device(terms);
        let devices = if devices.is_empty() { event.devices } else { devices };
        note(AuditEvent { devices, granted, granted_by_device, ..event }, actions);
    }

    /// Devices, and what holds on all of them alike, or on each.
    fn by_device(
        &self,
        terms: impl IntoIterator<Item = (usize, AuditTerms)>,
    ) -> (Vec<String>, Option<AuditTerms>, Vec<DeviceTerms>) {
        let named = |(device, terms): (usize, AuditTerms)| DeviceTerms {
            device: self.devices[device].uuid_text.clone(),
            terms,
        };
        let all: Vec<DeviceTerms> = terms.into_iter().map(named).collect();
        let devices = all.iter().map(|it| it.device.clone()).collect();
        match all.first() {
            Some(first) if all.iter().all(|it| it.terms == first.terms) => {
                (devices, Some(first.terms.clone()), Vec::new())
            }
            _ => (devices, None, all),
        }
    }

    /// An event with what a process asks for, if it asks for anything.
    pub(super) fn with_asks(&self, event: AuditEvent, asks: &[(usize, Ask)]) -> AuditEvent {
        if asks.iter().all(|(_, ask)| *ask == Ask::default()) {
            return event;
        }
        let (_, asked, asked_by_device) = self.by_device(asks.iter().map(|(device, ask)| (*device, asked_terms(ask))));
        AuditEvent { asked, asked_by_device, ..event }
    }

    /// Adds an event with all that the tenant is granted.
    pub fn note_grants_of(&self, id: TenantId, event: AuditEvent, actions: &mut Vec<Action>) {
        let granted = self.tenants.get(&id).into_iter().flat_map(Tenant::granted);
        self.note_granted(event, granted, actions);
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

fn asked_terms(ask: &Ask) -> AuditTerms {
    AuditTerms {
        memory_bytes: ask.memory.map(|size| size.0),
        memory_percent: None,
        compute_percent: ask.compute.map(in_percent),
        guarantee_percent: ask.guarantee.map(in_percent),
        weight: ask.weight,
        priority: ask.priority.map(|class| class.to_string()),
    }
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
