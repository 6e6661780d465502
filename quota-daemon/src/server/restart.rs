//! What the daemon keeps for the one after it, and takes back from the one before.

use super::Server;
use crate::log;
use crate::pages::TenantPages;
use crate::peer::death_of;
use crate::registry::{ConnectionId, MemberRecord, TenantId, TenantRecord};
use crate::survival::{self, lives};
use quota_core::settings::LogLevel;
use quota_wire::audit::{AuditEvent, AuditKind};
use std::os::fd::OwnedFd;

impl Server {
    /// Writes down what has changed.
    pub(super) fn keep_changes(&mut self) {
        let process_of = |job: ConnectionId| match self.clients.get(&job) {
            Some(client) => survival::process(client.credentials.pid),
            None => self.adopted_jobs.get(&job).cloned(),
        };
        survival::keep_changes(&mut self.store, &mut self.registry, &process_of);
    }

    /// Takes back the tenants of the daemon before this one, with those of their processes that live.
    pub(super) fn take_back(&mut self) {
        let records = match self.store.load() {
            Ok(records) => records,
            Err(error) => return log::line(LogLevel::Error, format_args!("the records can't be read: {error}")),
        };
        let mut taken = Vec::new();
        for record in records {
            match record {
                Ok(record) => taken.extend(self.take_back_tenant(&record)),
                Err(error) => log::line(LogLevel::Error, format_args!("a record is lost: {error}")),
            }
        }
        self.registry.all_adopted();
        // Only now: what one has may depend on any of the others.
        for (tenant, pages) in taken {
            self.arbiter.set(tenant, pages.common(), &self.registry);
            self.pages.insert(tenant, pages, &self.registry);
            for (slot, pid) in self.registry.slots_of(tenant) {
                self.arbiter.occupy(tenant, slot, pid);
            }
        }
        self.keep_changes();
        if let Err(reason) = self.registry.check_isolation() {
            log::line(
                LogLevel::Warn,
                format_args!("the document's isolation doesn't hold until somebody ends: {reason}"),
            );
        }
        if let Err(reason) = self.registry.check_granted() {
            log::line(LogLevel::Warn, format_args!("more is granted than there is, until somebody ends: {reason}"));
        }
    }

    /// Takes one back; its pages, where some process of it lets us have them.
    fn take_back_tenant(&mut self, record: &TenantRecord) -> Option<(TenantId, TenantPages)> {
        let pages = self.pages_of(record);
        let living =
            |member: &&MemberRecord| pages.as_ref().is_some_and(|pages| pages.owner(member.slot) == Some(member.pid));
        let mut members = Vec::new();
        for member in record.members.iter().filter(living) {
            if let Some(connection) = self.watch_process(member.pid) {
                members.push((connection, member));
            }
        }
        let mut jobs = Vec::new();
        for job in &record.jobs {
            // Looked at again once it is watched, since only then its pid can't become another's unseen.
            if let Some(connection) = self.watch_process(job.pid).filter(|_| lives(job)) {
                self.adopted_jobs.insert(connection, job.clone());
                jobs.push(connection);
            }
        }
        if members.is_empty() && jobs.is_empty() && !self.registry.stays(record) {
            let (tenant, reason) = (record.name.clone(), "its processes ended while no daemon was there".to_owned());
            self.record(AuditEvent { reason: Some(reason), ..about(AuditKind::Released, record) });
            self.store.remove(&tenant);
            return None;
        }
        if let Some(lost) = self.registry.about_lost(record) {
            self.record(lost);
        }
        let tenant = self.registry.adopt(record, &members, &jobs);
        let (members, jobs) = (members.len(), jobs.len());
        let reason = Some(format!("taken back with {members} processes and {jobs} jobs"));
        let event = AuditEvent { reason, ..about(AuditKind::Adopted, record) };
        let mut actions = Vec::new();
        self.registry.note_grants_of(tenant, event, &mut actions);
        self.perform(actions);
        let pages = pages?;
        pages.bury();
        Some((tenant, pages))
    }

    /// The tenant's pages, through whichever of its processes lets us.
    fn pages_of(&self, record: &TenantRecord) -> Option<TenantPages> {
        let devices = self.registry.devices();
        let mut reason = None;
        for member in &record.members {
            let pages = survival::pages_of(member.pid)
                .and_then(|(page, ledger)| TenantPages::take_back(&page, ledger, devices));
            match pages {
                Ok(pages) => return Some(pages),
                Err(error) => reason = Some((member.pid, error)),
            }
        }
        if let Some((pid, error)) = reason {
            let text = format!("tenant {}: the pages of process {pid} can't be taken back: {error}", record.name);
            log::line(LogLevel::Error, format_args!("{text}; it goes on under its last quota, unseen"));
        }
        None
    }

    /// Has the end of a process told as that of a connection, which has no socket.
    pub(super) fn watch_process(&mut self, pid: u32) -> Option<ConnectionId> {
        let notice: OwnedFd = death_of(pid).ok()?;
        self.connections_made += 1;
        let id = ConnectionId(self.connections_made);
        self.watch(&notice, id.0 * 2 + 1).ok()?;
        self.notices.insert(id, notice);
        Some(id)
    }
}

fn about(event: AuditKind, record: &TenantRecord) -> AuditEvent {
    AuditEvent { event, tenant: Some(record.name.clone()), uid: Some(record.owner), ..AuditEvent::default() }
}
