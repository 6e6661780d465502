//! Tenants that want devices to themselves: nobody else is placed where one of them is, nor it where somebody else is, but
//! those that the document names, and those jobs that an administrator allows.
//!
//! A tenant of the document and its parts are one *party*, and share freely. A party is on a device while a process of it
//! sees the device, or a job of it has its place there.

use super::admission::NoRoom;
use super::events::note;
use super::job::Job;
use super::pools::Whose;
use super::queue::refuse;
use super::{Action, ConnectionId, Registry, Tenant, TenantId};
use crate::document::{Isolation, Level, TenantRule};
use quota_wire::audit::{AuditEvent, AuditKind};
use quota_wire::message::PendingRow;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What follows where a tenant is to have instances that are not there.
pub(super) const NO_INSTANCE: &str = "gpuquota can't divide a device into them";

/// Parties beside which one was allowed, each with the device.
pub(super) type Allowed = BTreeSet<(usize, String)>;

/// How a tenant is kept apart from others.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Apart {
    /// What the document says.
    pub(super) rule: Isolation,
    /// What an administrator has allowed its jobs, while it is on those devices.
    pub(super) allowed: Allowed,
    /// The devices of each of its jobs.
    places: BTreeMap<ConnectionId, Vec<usize>>,
}

/// What of that survives the daemon.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ApartRecord {
    rule: Isolation,
    /// UUIDs, and the names of those beside whom it was allowed.
    allowed: Vec<(String, String)>,
    /// UUIDs of the devices of its jobs.
    devices: Vec<String>,
}

impl ApartRecord {
    /// True while a job has its place on the device.
    pub(super) fn is_on(&self, uuid: &String) -> bool {
        self.devices.contains(uuid)
    }
}

impl Apart {
    /// A job is told of on another connection from now on.
    pub(super) fn moved(&mut self, from: ConnectionId, to: ConnectionId) {
        if let Some(devices) = self.places.remove(&from) {
            self.places.insert(to, devices);
        }
    }

    /// True while one of its jobs has a place on the device.
    pub(super) fn has_place_on(&self, device: usize) -> bool {
        self.places.values().any(|devices| devices.contains(&device))
    }
}

impl Tenant {
    /// True while one of its processes or jobs has a place on the device.
    pub(super) fn is_on(&self, device: usize) -> bool {
        let sees = self.grants[device].is_some() && self.members.values().any(|member| member.sees.contains(&device));
        sees || self.apart.has_place_on(device)
    }
}

impl Registry {
    fn party_of_tenant(&self, id: TenantId) -> TenantId {
        self.tenants[&id].pool.unwrap_or(id)
    }

    /// True for two parties that may not be on one device.
    fn bars(&self, one: Option<TenantId>, other: Option<TenantId>) -> bool {
        self.owns_against(one, other) || self.owns_against(other, one)
    }

    /// True for a party that is to have its devices for itself, and not to share them with that other one.
    fn owns_against(&self, owner: Option<TenantId>, other: Option<TenantId>) -> bool {
        let Some(owner) = owner.filter(|_| owner != other).map(|id| &self.tenants[&id]) else { return false };
        let name = other.map(|id| &self.tenants[&id].name);
        owner.apart.rule.level != Level::Shared && name.is_none_or(|name| !owner.apart.rule.share_with.contains(name))
    }

    /// The parties on a device beside which one of `party` may not be there.
    fn barred_by(&self, device: usize, party: Option<TenantId>, allowed: &Allowed) -> BTreeSet<TenantId> {
        self.in_its_way(device, party, allowed).into_values().collect()
    }

    /// The tenants of those parties, each with its party.
    fn in_its_way(&self, device: usize, party: Option<TenantId>, allowed: &Allowed) -> BTreeMap<TenantId, TenantId> {
        let name = party.map(|id| &self.tenants[&id].name);
        let bars = |(id, tenant): (&TenantId, &Tenant)| {
            let its = self.party_of_tenant(*id);
            let may = allowed.contains(&(device, self.tenants[&its].name.clone()))
                || name.is_some_and(|name| tenant.apart.allowed.contains(&(device, name.clone())));
            (tenant.is_on(device) && !may && self.bars(party, Some(its))).then_some((*id, its))
        };
        self.tenants.iter().filter_map(bars).collect()
    }

    /// Who would have to leave a device before one that is to have it for itself; none where it has to wait whoever leaves, or
    /// keeps out of others' own.
    pub(super) fn to_leave(&self, device: usize, whose: Whose, allowed: &Allowed) -> Option<BTreeSet<TenantId>> {
        let party = whose.pool.or(whose.tenant);
        self.has_instances(device, party).ok()?;
        let others = self.in_its_way(device, party, allowed);
        let is_only_ours = |its: &TenantId| !self.owns_against(Some(*its), party);
        others.values().all(is_only_ours).then(|| others.into_keys().collect())
    }

    /// True for a party that has the device for itself already, and that a job waits to leave: however many more of the party
    /// come, that is what it waits for.
    pub(super) fn waits_for_owner(&self, device: usize, party: Option<TenantId>, job: &Job) -> bool {
        let Whose { tenant, pool } = self.whose(job.tenant.as_deref(), job.wish.memory.is_some());
        let is_there = |owner: TenantId| {
            let mut its = self.tenants.iter().filter(|(id, _)| self.party_of_tenant(**id) == owner);
            its.any(|(_, tenant)| tenant.is_on(device))
        };
        self.owns_against(party, pool.or(tenant)) && party.is_some_and(is_there)
    }

    /// Whether one may be on those devices beside the parties that are there.
    pub(super) fn is_apart(&self, devices: &[usize], whose: Whose, allowed: &Allowed) -> Result<(), NoRoom> {
        let party = whose.pool.or(whose.tenant);
        for device in devices {
            self.has_instances(*device, party).map_err(NoRoom::Never)?;
        }
        for device in devices {
            if let Some(other) = self.barred_by(*device, party, allowed).first() {
                let name = |id: &TenantId| self.tenants[id].name.as_str();
                return Err(NoRoom::Apart(match party.filter(|party| self.owns_against(Some(*party), Some(*other))) {
                    Some(party) if !self.owns_against(Some(*other), Some(party)) => {
                        format!(
                            "tenant {} is to have device {device} for itself, and {} runs there",
                            name(&party),
                            name(other)
                        )
                    }
                    _ => format!("device {device} is tenant {}'s own while it runs", name(other)),
                }));
            }
        }
        Ok(())
    }

    /// The same for a process that says hello: of the devices that it may use, those on which its tenant is not yet.
    pub(super) fn is_apart_for_hello(&self, id: TenantId, may_use: &[usize]) -> Result<(), String> {
        let tenant = &self.tenants[&id];
        let whose = Whose { tenant: Some(id), pool: tenant.pool };
        let fresh: Vec<usize> = may_use.iter().copied().filter(|device| !tenant.is_on(*device)).collect();
        self.is_apart(&fresh, whose, &tenant.apart.allowed).map_err(|no_room| no_room.unqueued())?;
        let party = whose.pool.or(whose.tenant);
        let waits = |device: &usize| {
            let before: Vec<&Job> =
                self.waiting.iter().map(|waiting| &waiting.job).filter(|job| job.devices.contains(device)).collect();
            self.keeps_waiting(*device, party, &tenant.apart.allowed, &before)
        };
        match fresh.iter().any(waits) {
            true => Err(format!("{} jobs wait for room before it", self.waiting.len())),
            false => Ok(()),
        }
    }

    /// True where somebody `before` a party would wait for it to leave the device again.
    pub(super) fn keeps_waiting(
        &self,
        device: usize,
        party: Option<TenantId>,
        allowed: &Allowed,
        before: &[&Job],
    ) -> bool {
        let name = |party: Option<TenantId>| party.map(|id| (device, self.tenants[&id].name.clone()));
        let waits = |job: &&Job| {
            let Whose { tenant, pool } = self.whose(job.tenant.as_deref(), job.wish.memory.is_some());
            let its = pool.or(tenant);
            let may = name(its).is_some_and(|its| allowed.contains(&its))
                || name(party).is_some_and(|name| job.allowed.contains(&name));
            !may && self.bars(party, its) && !self.waits_for_owner(device, party, job)
        };
        before.iter().any(waits)
    }

    /// For a job that only isolation keeps waiting: the devices that it would have, and what must be allowed for that.
    fn kept_out(&self, job: &Job) -> Option<(Vec<usize>, Allowed)> {
        let Whose { tenant, pool } = self.whose(job.tenant.as_deref(), job.wish.memory.is_some());
        let barred = |devices: &[usize]| -> Allowed {
            let on = |device: &usize| {
                let device = *device;
                let others = self.barred_by(device, pool.or(tenant), &job.allowed);
                others.into_iter().map(move |id| (device, self.tenants[&id].name.clone())).collect::<Vec<_>>()
            };
            devices.iter().flat_map(on).collect()
        };
        if barred(&job.devices).is_empty() || self.plan(job, core::iter::empty()).is_ok() {
            return None;
        }
        // Of those that it may choose, no more than it needs.
        let mut free = job.clone();
        let planned = job.devices.iter().find_map(|device| {
            free.allowed.extend(barred(&[*device]));
            let is_all = Some(device) == job.devices.last();
            (is_all || job.count.is_some()).then(|| self.plan(&free, core::iter::empty()).ok())?
        });
        let devices = planned?.devices;
        let missing = barred(&devices);
        Some((devices, missing)).filter(|(_, missing)| !missing.is_empty())
    }

    /// The jobs that only isolation keeps waiting, in the order of the queue.
    pub fn pending(&self) -> Vec<PendingRow> {
        let row = |waiting: &super::queue::Waiting| {
            let (devices, missing) = self.kept_out(&waiting.job)?;
            Some(PendingRow {
                number: waiting.arrival,
                tenant: waiting.job.tenant.clone(),
                uid: waiting.job.uid,
                pid: waiting.job.pid,
                command: waiting.job.command.clone(),
                devices: devices.iter().map(|device| *device as u32).collect(),
                uuids: self.uuids(devices),
                beside: names(&missing).into_iter().take(ROW_NAMED_MAX).map(str::to_owned).collect(),
                waits_seconds: self.now_ms.saturating_sub(waiting.since_ms) / 1000,
                risk: risk(&missing),
            })
        };
        self.waiting.iter().filter_map(row).collect()
    }

    /// Lets a job that only isolation keeps waiting share devices for as long as it runs, or refuses it.
    ///
    /// # Errors
    /// One line, when there is no such job.
    pub fn approve(&mut self, number: u64, denied: Option<&str>, actions: &mut Vec<Action>) -> Result<String, String> {
        let at = self.waiting.iter().position(|waiting| waiting.arrival == number);
        let found = at.and_then(|at| Some((at, self.kept_out(&self.waiting[at].job)?)));
        let Some((at, (_, missing))) = found else {
            return Err(format!("no request {number} waits for an approval; gpuquota approve lists those that do"));
        };
        let job = self.waiting[at].job.clone();
        let connection = self.waiting[at].connection;
        let event = |change: &str, reason: String| AuditEvent {
            change: Some(change.to_owned()),
            reason: Some(reason),
            devices: self.uuids(missing.iter().map(|(device, _)| *device).collect::<BTreeSet<_>>()),
            ..self.about_job(AuditKind::Changed, &job)
        };
        if let Some(reason) = denied {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            note(event("deny", format!("request {number} is denied{reason}")), actions);
            self.waiting.remove(at);
            let refused = self.about_job(AuditKind::Refused, &job);
            refuse(connection, refused, format!("an administrator doesn't allow it{reason}"), actions);
            self.pump(actions);
            return Ok(format!("request {number} is denied"));
        }
        note(event("approve", risk(&missing)), actions);
        let told = together(&missing);
        self.waiting[at].job.allowed.extend(missing);
        self.pump(actions);
        let then = if self.waits(connection) { "it starts when there is room" } else { "it has its place" };
        Ok(format!("request {number} may share {told} for as long as it runs; {then}"))
    }

    /// Makes what the document says of a tenant hold.
    pub(super) fn isolate(&mut self, id: TenantId, rule: &TenantRule) {
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.apart.rule = rule.isolation.clone();
        }
    }

    /// A job has its place, and what was allowed for that.
    pub(super) fn settle_in(&mut self, id: TenantId, connection: ConnectionId, job: &Job, devices: &[usize]) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        tenant.apart.places.insert(connection, devices.to_vec());
        tenant.apart.allowed.extend(job.allowed.iter().filter(|(device, _)| devices.contains(device)).cloned());
    }

    /// Somebody of the tenant has gone: what was allowed holds for as long as it is on the device.
    pub(super) fn move_out(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        let jobs = &tenant.jobs;
        tenant.apart.places.retain(|connection, _| jobs.contains(connection));
        let left = |(device, _): &(usize, String)| !tenant.is_on(*device);
        let over: Vec<(usize, String)> = tenant.apart.allowed.iter().filter(|it| left(it)).cloned().collect();
        over.iter().for_each(|it| _ = tenant.apart.allowed.remove(it));
    }

    /// Nobody of this name is there any more; the next one is somebody else.
    pub(super) fn disallow(&mut self, name: &str) {
        for (id, tenant) in &mut self.tenants {
            let before = tenant.apart.allowed.len();
            tenant.apart.allowed.retain(|(_, other)| other != name);
            if tenant.apart.allowed.len() != before {
                self.changed.insert(*id);
            }
        }
        self.waiting.iter_mut().for_each(|waiting| waiting.job.allowed.retain(|(_, other)| other != name));
    }

    /// Says who is where they may not be, when somebody is.
    ///
    /// # Errors
    /// One line with the tenants and the device.
    pub fn check_isolation(&self) -> Result<(), String> {
        for (id, tenant) in &self.tenants {
            let whose = Whose { tenant: Some(*id), pool: tenant.pool };
            let devices: Vec<usize> = (0..self.devices.len()).filter(|device| tenant.is_on(*device)).collect();
            self.is_apart(&devices, whose, &tenant.apart.allowed).map_err(|no_room| no_room.to_string())?;
        }
        Ok(())
    }

    pub(super) fn apart_record(&self, tenant: &Tenant) -> ApartRecord {
        let devices: BTreeSet<usize> = tenant.apart.places.values().flatten().copied().collect();
        let uuid = |(device, name): &(usize, String)| (self.devices[*device].uuid_text.clone(), name.clone());
        ApartRecord {
            rule: tenant.apart.rule.clone(),
            allowed: tenant.apart.allowed.iter().map(uuid).collect(),
            devices: self.uuids(devices),
        }
    }

    /// Takes back what was recorded of a tenant whose jobs are `jobs`. What the document says now wins.
    pub(super) fn adopt_apart(&mut self, id: TenantId, record: &ApartRecord, jobs: &[ConnectionId]) {
        let known = |uuid: &String| self.device_with(uuid);
        let allowed: Allowed =
            record.allowed.iter().filter_map(|(at, name)| Some((known(at)?, name.clone()))).collect();
        let mut devices: Vec<usize> = record.devices.iter().filter_map(known).collect();
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        if record.devices.is_empty() && tenant.lost.is_empty() {
            // Of a daemon that didn't record it.
            devices = (0..tenant.grants.len()).filter(|device| tenant.grants[*device].is_some()).collect();
        }
        if !tenant.is_standing() {
            tenant.apart.rule = record.rule.clone();
        }
        tenant.apart.allowed.extend(allowed);
        tenant.apart.places.extend(jobs.iter().map(|job| (*job, devices.clone())));
    }

    /// All tenants that live are taken back: beside others nobody was allowed anything.
    pub fn all_adopted(&mut self) {
        let all = self.tenants.values().flat_map(|tenant| &tenant.apart.allowed).map(|(_, name)| name.clone());
        let gone: BTreeSet<String> = all.filter(|name| self.tenant_named(name).is_none()).collect();
        gone.iter().for_each(|name| self.disallow(name));
    }
}

/// Parties, and devices, that a message names.
const NAMED_MAX: usize = 4;
const DEVICES_NAMED_MAX: usize = 8;
/// Parties that a row names, so that it fits a packet.
const ROW_NAMED_MAX: usize = 64;

fn names(missing: &Allowed) -> BTreeSet<&str> {
    missing.iter().map(|(_, name)| name.as_str()).collect()
}

/// `device 0 with tenant a, device 1 with tenants a, b`.
fn together(missing: &Allowed) -> String {
    let devices: BTreeSet<usize> = missing.iter().map(|(device, _)| *device).collect();
    let on = |device: &usize| {
        let named: Vec<&str> = missing.iter().filter(|(at, _)| at == device).map(|(_, name)| name.as_str()).collect();
        let plural = if named.len() == 1 { "" } else { "s" };
        let (shown, more) = (named.iter().take(NAMED_MAX).copied(), named.len().saturating_sub(NAMED_MAX));
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("device {device} with tenant{plural} {}{more}", shown.collect::<Vec<_>>().join(", "))
    };
    let told: Vec<String> = devices.iter().take(DEVICES_NAMED_MAX).map(on).collect();
    match devices.len().saturating_sub(DEVICES_NAMED_MAX) {
        0 => told.join(", "),
        more => format!("{} and {more} more devices", told.join(", ")),
    }
}

/// What an administrator should know before allowing it.
fn risk(missing: &Allowed) -> String {
    format!(
        "It would share {}, kept apart by the library's memory quotas and time slices alone. Those are no protection from faults of the device, from side channels, and from programs that go around the library.",
        together(missing)
    )
}
