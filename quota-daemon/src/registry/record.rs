//! What must survive the daemon: each tenant as a record, and the way back.

use super::{ConnectionId, Grant, Member, Origin, Registry, Tenant, TenantId};
use crate::peer::Peer;
use quota_core::settings::parse_priority;
use quota_core::{Bytes, Percent};
use quota_wire::page::Quota;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A tenant with all that hangs on it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TenantRecord {
    /// Its name.
    pub name: String,
    /// The user it belongs to.
    pub owner: u32,
    /// Where it came from.
    pub origin: OriginRecord,
    /// What it was granted.
    pub grants: Vec<GrantRecord>,
    /// Its processes.
    pub members: Vec<MemberRecord>,
    /// The processes of `gpuquota run`.
    pub jobs: Vec<ProcessRecord>,
    /// The tenant that it is a part of.
    #[serde(default)]
    pub pool: Option<String>,
    /// Whether its compute is withheld.
    #[serde(default)]
    pub paused: bool,
    /// How it is with making room for others.
    #[serde(default)]
    pub interrupt: super::InterruptionRecord,
    /// How it is kept apart from others.
    #[serde(default)]
    pub apart: super::ApartRecord,
    /// What it had on devices that are there no more.
    #[serde(default)]
    pub lost: Vec<GrantRecord>,
}

/// Where a tenant came from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginRecord {
    /// The document.
    Document,
    /// `gpuquota run`.
    Job,
    /// A hello, with cgroup and whether there was a quota, for one without a name.
    Hello(Option<(String, bool)>),
}

/// A grant on one device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GrantRecord {
    /// The device.
    pub uuid: String,
    /// As it stands.
    pub quota: QuotaRecord,
    /// As it was admitted.
    pub admitted: QuotaRecord,
    /// What of its memory others than its pool have lent.
    #[serde(default)]
    pub borrowed_bytes: u64,
}

/// A quota.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QuotaRecord {
    memory_cap_bytes: Option<u64>,
    compute_cap: Option<u32>,
    guarantee: Option<u32>,
    weight: u32,
    priority: String,
    #[serde(default)]
    dynamic: bool,
}

/// A process that was a member.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemberRecord {
    /// Its slot in the ledger.
    pub slot: u32,
    /// Its pid. That it is still the same process is shown by the mark that it keeps in the ledger.
    pub pid: u32,
    uid: u32,
    cgroup: String,
    started: String,
    command: String,
    sees: Vec<String>,
    asks: Vec<(String, Option<u64>, Option<u32>)>,
    #[serde(default)]
    listens: bool,
}

/// A process, so that another one with its pid isn't taken for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// Its pid.
    pub pid: u32,
    /// When it started, in the kernel's ticks since the machine did.
    pub start_ticks: u64,
}

impl From<&Quota> for QuotaRecord {
    fn from(quota: &Quota) -> Self {
        Self {
            memory_cap_bytes: quota.memory_cap.map(|cap| cap.0),
            compute_cap: quota.compute_cap.map(Percent::hundredths),
            guarantee: quota.guarantee.map(Percent::hundredths),
            weight: quota.weight,
            priority: quota.priority.to_string(),
            dynamic: quota.dynamic,
        }
    }
}

impl QuotaRecord {
    pub(super) fn memory_cap_bytes(&self) -> Option<u64> {
        self.memory_cap_bytes
    }

    fn quota(&self) -> Quota {
        Quota {
            memory_cap: self.memory_cap_bytes.map(Bytes),
            compute_cap: self.compute_cap.and_then(Percent::from_hundredths),
            guarantee: self.guarantee.and_then(Percent::from_hundredths),
            weight: self.weight,
            priority: parse_priority(&self.priority).unwrap_or_default(),
            dynamic: self.dynamic,
            crowded: false,
        }
    }
}

impl MemberRecord {
    /// True for one that sees the device.
    pub(super) fn sees(&self, uuid: &String) -> bool {
        self.sees.contains(uuid)
    }
}

impl TenantRecord {
    /// True for what is to hold when all processes are gone: what was changed by hand of a tenant of the document.
    pub fn outlives_processes(&self) -> bool {
        self.origin == OriginRecord::Document
            && (self.paused || self.grants.iter().any(|grant| grant.quota != grant.admitted))
    }
}

/// Tenants of which something has changed, in that order; with their names, those that are gone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Changed(Vec<(TenantId, Option<String>)>);

impl Changed {
    pub(super) fn insert(&mut self, id: TenantId) {
        if !self.0.iter().any(|(known, _)| *known == id) {
            self.0.push((id, None));
        }
    }

    /// The tenant that had this name is gone.
    pub(super) fn gone(&mut self, id: TenantId, name: &str) {
        self.insert(id);
        for (_, gone) in self.0.iter_mut().filter(|(known, _)| *known == id) {
            *gone = Some(name.to_owned());
        }
    }
}

impl Registry {
    /// The tenants that have changed since the last call, in that order, with the names of those that are gone.
    pub fn take_changed(&mut self) -> Vec<(TenantId, Option<String>)> {
        std::mem::take(&mut self.changed).0
    }

    /// Has everything kept again.
    pub fn all_changed(&mut self) {
        let ids: Vec<TenantId> = self.tenants.keys().copied().collect();
        ids.into_iter().for_each(|id| self.changed.insert(id));
    }

    /// A tenant's name, while there is one.
    pub fn name_of(&self, id: TenantId) -> Option<&str> {
        self.tenants.get(&id).map(|tenant| tenant.name.as_str())
    }

    /// What is to be kept of a tenant; `None` when that is nothing: it is gone, or stands in the document alone.
    ///
    /// `process_of` says who is at the other end of a job's connection.
    pub fn record(
        &self,
        id: TenantId,
        process_of: &dyn Fn(ConnectionId) -> Option<ProcessRecord>,
    ) -> Option<TenantRecord> {
        let tenant = self
            .tenants
            .get(&id)
            .filter(|tenant| tenant.is_active() || (tenant.is_standing() && tenant.is_altered()))?;
        let uuid = |device: usize| self.devices[device].uuid_text.clone();
        let grant = |(device, grant): (usize, &Option<Grant>)| {
            grant.as_ref().map(|grant| GrantRecord {
                uuid: uuid(device),
                quota: (&grant.quota).into(),
                admitted: (&grant.admitted).into(),
                borrowed_bytes: grant.borrowed.0,
            })
        };
        let member = |member: &Member| MemberRecord {
            slot: member.slot,
            pid: member.peer.pid,
            uid: member.peer.uid,
            cgroup: member.peer.cgroup.clone(),
            started: member.peer.started.clone(),
            command: member.command.clone(),
            sees: member.sees.iter().map(|device| uuid(*device)).collect(),
            asks: member
                .asks
                .iter()
                .map(|(device, memory, compute)| {
                    (uuid(*device), memory.map(|cap| cap.0), compute.map(Percent::hundredths))
                })
                .collect(),
            listens: member.listens,
        };
        Some(TenantRecord {
            name: tenant.name.clone(),
            owner: tenant.owner,
            origin: match &tenant.origin {
                Origin::Document(_) => OriginRecord::Document,
                Origin::Job => OriginRecord::Job,
                Origin::Hello { unnamed } => OriginRecord::Hello(unnamed.clone()),
            },
            grants: tenant.grants.iter().enumerate().filter_map(grant).collect(),
            members: tenant.members.values().map(member).collect(),
            jobs: tenant.jobs.iter().filter_map(|job| process_of(*job)).collect(),
            pool: tenant.pool.and_then(|pool| Some(self.tenants.get(&pool)?.name.clone())),
            paused: tenant.paused,
            interrupt: self.interruption_record(id),
            apart: self.apart_record(tenant),
            lost: tenant.lost.clone(),
        })
    }

    /// True when something of the record holds without a process, and there is a tenant of the document to take it.
    pub fn stays(&self, record: &TenantRecord) -> bool {
        let standing = |id| self.tenants.get(&id).is_some_and(Tenant::is_standing);
        record.outlives_processes() && self.tenant_named(&record.name).is_some_and(standing)
    }

    /// Takes a tenant back with those of its processes that still live, each under a connection that it may
    /// replace by saying hello again.
    pub fn adopt(
        &mut self,
        record: &TenantRecord,
        members: &[(ConnectionId, &MemberRecord)],
        jobs: &[ConnectionId],
    ) -> TenantId {
        let found = self.tenant_named(&record.name);
        let id = found.unwrap_or_else(|| {
            // A tenant of a document that no longer has it goes on until it ends.
            let origin = match &record.origin {
                OriginRecord::Hello(unnamed) => Origin::Hello { unnamed: unnamed.clone() },
                OriginRecord::Document | OriginRecord::Job => Origin::Job,
            };
            let pool = record.pool.as_deref().and_then(|pool| self.tenant_named(pool));
            self.make_tenant(record.name.clone(), record.owner, origin, pool)
        });
        let grants: Vec<(usize, Grant)> = record
            .grants
            .iter()
            .filter_map(|grant| {
                let device = self.device_with(&grant.uuid)?;
                Some((
                    device,
                    Grant {
                        quota: grant.quota.quota(),
                        admitted: grant.admitted.quota(),
                        borrowed: Bytes(grant.borrowed_bytes),
                    },
                ))
            })
            .collect();
        let members: BTreeMap<ConnectionId, Member> =
            members.iter().map(|(connection, member)| (*connection, self.member(member))).collect();
        let tenant = self.tenants.get_mut(&id).expect("found or made");
        for (device, grant) in grants {
            // What the document says now wins over what was changed by hand under an older one. Where it says nothing of memory,
            // the tenant's first job has.
            let as_before = |now: Grant| {
                let memory_cap = now.admitted.memory_cap.or(grant.admitted.memory_cap);
                Quota { memory_cap, ..now.admitted } == grant.admitted
            };
            let renewed = found.is_some() && tenant.grants[device].is_some_and(|now| !as_before(now));
            if !renewed {
                tenant.grants[device] = Some(grant);
            }
            // The processes have their memory: where it may lie is as it was.
            if let Some(now) = &mut tenant.grants[device]
                && !members.is_empty()
            {
                (now.quota.dynamic, now.admitted.dynamic) = (grant.quota.dynamic, grant.admitted.dynamic);
            }
        }
        tenant.members.extend(members);
        tenant.jobs.extend(jobs);
        tenant.paused = record.paused;
        self.adopt_interruption(id, &record.interrupt);
        self.mark_lost(id, record);
        self.adopt_apart(id, &record.apart, jobs);
        self.changed.insert(id);
        id
    }

    /// Says where what is granted is more than there is: a document was made smaller while no daemon was there.
    ///
    /// # Errors
    /// One line with the numbers.
    pub fn check_granted(&self) -> Result<(), String> {
        self.check_capacity()
    }

    fn member(&self, record: &MemberRecord) -> Member {
        let ask = |(uuid, memory, compute): &(String, Option<u64>, Option<u32>)| {
            Some((self.device_with(uuid)?, memory.map(Bytes), compute.and_then(Percent::from_hundredths)))
        };
        Member {
            peer: Peer {
                pid: record.pid,
                uid: record.uid,
                cgroup: record.cgroup.clone(),
                started: record.started.clone(),
            },
            command: record.command.clone(),
            slot: record.slot,
            sees: record.sees.iter().filter_map(|uuid| self.device_with(uuid)).collect(),
            asks: record.asks.iter().filter_map(ask).collect(),
            listens: record.listens,
            ready: 0,
        }
    }

    /// The slots of a tenant's processes, with their pids.
    pub fn slots_of(&self, id: TenantId) -> Vec<(u32, u32)> {
        let members = self.tenants.get(&id).into_iter().flat_map(|tenant| tenant.members.values());
        members.map(|member| (member.slot, member.peer.pid)).collect()
    }

    /// A process that was taken back says hello on a connection of its own: that under which it was a member
    /// until now, and its tenant.
    ///
    /// # Errors
    /// When it is no such process; one line.
    pub fn rejoin(
        &mut self,
        connection: ConnectionId,
        pid: u32,
        slot: u32,
    ) -> Result<(ConnectionId, TenantId), String> {
        let of = |tenant: &Tenant| {
            let member = tenant.members.iter().find(|(_, member)| member.peer.pid == pid && member.slot == slot);
            member.map(|(connection, _)| *connection)
        };
        let found = self.tenants.iter().find_map(|(id, tenant)| Some((*id, of(tenant)?)));
        let (id, before) = found.ok_or_else(|| format!("process {pid} has no slot {slot} here"))?;
        let tenant = self.tenants.get_mut(&id).expect("just found");
        let member = tenant.members.remove(&before).expect("just found");
        tenant.members.insert(connection, member);
        Ok((before, id))
    }
}

impl Tenant {
    /// True when an administrator has changed something by hand.
    fn is_altered(&self) -> bool {
        self.paused || self.grants.iter().flatten().any(|grant| grant.quota != grant.admitted)
    }
}
