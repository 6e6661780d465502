//! What people see: processes and devices as rows.

use super::{ConnectionId, Member, Origin, Registry, Tenant, TenantId};
use crate::devices::DeviceSample;
use quota_core::Bytes;
use quota_core::Percent;
use quota_wire::message::{DeviceRow, ProcessRow};

/// What the ledgers say. The tenants' processes write them, so every number is a claim.
pub trait Usage {
    /// What the process in `slot` has charged on a device.
    fn charged(&self, tenant: TenantId, slot: u32, device: usize) -> Bytes;

    /// What of that was measured, not asked for.
    fn overhead(&self, tenant: TenantId, slot: u32, device: usize) -> Bytes;
}

/// Which process is a member, by all its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberName {
    /// Where it said hello.
    pub connection: ConnectionId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its slot in the ledger.
    pub slot: u32,
    /// Its pid.
    pub pid: u32,
}

/// The state of a process that nobody manages.
const FOREIGN: &str = "foreign";

impl Registry {
    /// All processes: the members, then what the driver sees besides.
    ///
    /// `describe` says what the system knows of a pid: user, command, start.
    pub fn process_rows(
        &self,
        usage: &dyn Usage,
        sample: &[DeviceSample],
        describe: &dyn Fn(u32) -> Option<(u32, String, String)>,
    ) -> Vec<ProcessRow> {
        let mut rows = Vec::new();
        for (id, tenant) in &self.tenants {
            for member in tenant.members.values() {
                self.member_rows(*id, tenant, member, usage, sample, &mut rows);
            }
        }
        let known: Vec<u32> =
            self.tenants.values().flat_map(|tenant| tenant.members.values()).map(|it| it.peer.pid).collect();
        for (index, device) in sample.iter().enumerate().take(self.devices.len()) {
            for (pid, bytes) in device.processes.iter().filter(|(pid, _)| !known.contains(pid)) {
                rows.extend(describe(*pid).map(|facts| self.foreign_row(index, *pid, *bytes, facts)));
            }
        }
        rows
    }

    /// All devices.
    pub fn device_rows(&self, usage: &dyn Usage, sample: &[DeviceSample]) -> Vec<DeviceRow> {
        let row = |(index, device): (usize, &super::SharedDevice)| {
            let seen = sample.get(index);
            let charged = self.tenants.keys().map(|id| self.charged(*id, index, usage).0).sum();
            let error = seen.and_then(|seen| seen.error.clone());
            DeviceRow {
                device: index as u32,
                uuid: device.uuid_text.clone(),
                name: device.name.clone(),
                memory_total_bytes: device.total.0,
                memory_capacity_bytes: device.capacity().0,
                memory_granted_bytes: self.granted(index, None).0,
                memory_charged_bytes: charged,
                memory_used_bytes: seen.and_then(|seen| seen.used).unwrap_or_default().0,
                jobs: self.jobs_on(index, None) as u32,
                driver: self.driver.clone(),
                mig: device.mig.clone(),
                health: error.unwrap_or_else(|| {
                    if seen.is_some_and(|seen| seen.used.is_some()) { "ok" } else { "unknown" }.to_owned()
                }),
            }
        };
        self.devices.iter().enumerate().map(row).collect()
    }

    /// What all processes of a tenant have charged on a device: no more than the device has.
    pub(super) fn charged(&self, id: TenantId, device: usize, usage: &dyn Usage) -> Bytes {
        let slots = self.tenants[&id].members.values().map(|member| member.slot);
        let sum = slots.map(|slot| usage.charged(id, slot, device).0).fold(0u64, u64::saturating_add);
        Bytes(sum.min(self.devices[device].total.0))
    }

    /// One row for each device on which the process holds something; for its first device when there is none.
    fn member_rows(
        &self,
        id: TenantId,
        tenant: &Tenant,
        member: &Member,
        usage: &dyn Usage,
        sample: &[DeviceSample],
        rows: &mut Vec<ProcessRow>,
    ) {
        let seen_by_driver = |index: usize| {
            let processes = sample.get(index).map(|device| device.processes.as_slice()).unwrap_or_default();
            processes.iter().find(|(pid, _)| *pid == member.peer.pid).map(|(_, bytes)| bytes.unwrap_or_default())
        };
        let before = rows.len();
        let mut push = |index: usize, charged: Bytes, driver: Option<Bytes>| {
            // What the driver holds beyond the charges is overhead that is about to be booked.
            let beyond = driver.unwrap_or_default().0.saturating_sub(charged.0);
            let overhead = Bytes(usage.overhead(id, member.slot, index).0.min(charged.0) + beyond);
            rows.push(self.member_row(tenant, member, index, charged, overhead));
        };
        for index in 0..self.devices.len() {
            let charged = Bytes(usage.charged(id, member.slot, index).0.min(self.devices[index].total.0));
            let driver = seen_by_driver(index);
            if charged.0 > 0 || driver.is_some() {
                push(index, charged, driver);
            }
        }
        if rows.len() == before
            && let Some(first) = member.sees.first()
        {
            rows.push(self.member_row(tenant, member, *first, Bytes(0), Bytes(0)));
        }
    }

    fn member_row(
        &self,
        tenant: &Tenant,
        member: &Member,
        index: usize,
        charged: Bytes,
        overhead: Bytes,
    ) -> ProcessRow {
        let quota = tenant.effective(index).unwrap_or_default();
        let by_hello = matches!(tenant.origin, Origin::Hello { .. });
        let unmanaged = by_hello && quota.memory_cap.is_none() && quota.compute_cap.is_none();
        let percent = |percent: Option<Percent>| percent.map(|it| f64::from(it.hundredths()) / 100.0);
        ProcessRow {
            tenant: tenant.name.clone(),
            pid: member.peer.pid,
            uid: member.peer.uid,
            command: member.command.clone(),
            device: index as u32,
            uuid: self.devices[index].uuid_text.clone(),
            memory_used_bytes: charged.0,
            memory_quota_bytes: quota.memory_cap.map(|cap| cap.0),
            memory_overhead_bytes: overhead.0,
            compute_used_percent: None,
            compute_cap_percent: percent(quota.compute_cap),
            compute_guarantee_percent: percent(quota.guarantee),
            weight: quota.weight,
            priority: quota.priority.to_string(),
            state: if unmanaged { "unmanaged" } else { "running" }.to_owned(),
            started: member.peer.started.clone(),
        }
    }

    fn foreign_row(&self, index: usize, pid: u32, bytes: Option<Bytes>, facts: (u32, String, String)) -> ProcessRow {
        let (uid, command, started) = facts;
        ProcessRow {
            tenant: "-".to_owned(),
            pid,
            uid,
            command,
            device: index as u32,
            uuid: self.devices[index].uuid_text.clone(),
            memory_used_bytes: bytes.unwrap_or_default().0,
            priority: "-".to_owned(),
            state: FOREIGN.to_owned(),
            started,
            ..ProcessRow::default()
        }
    }

    /// All members.
    pub fn members(&self) -> impl Iterator<Item = MemberName> + '_ {
        self.tenants.iter().flat_map(|(tenant, it)| {
            it.members.iter().map(|(connection, member)| MemberName {
                connection: *connection,
                tenant: *tenant,
                slot: member.slot,
                pid: member.peer.pid,
            })
        })
    }

    /// What the driver says a member holds on a device; none where it doesn't say.
    ///
    /// The driver counts by process. Of one that is a member several times, this one's part is what the other
    /// memberships are not charged.
    pub fn held_on(
        &self,
        member: &MemberName,
        device: usize,
        usage: &dyn Usage,
        sample: &[DeviceSample],
    ) -> Option<Bytes> {
        let seen = sample.get(device).filter(|seen| seen.used.is_some())?;
        let held = match seen.processes.iter().find(|(pid, _)| *pid == member.pid) {
            Some((_, bytes)) => (*bytes)?,
            None => Bytes(0),
        };
        let others = self.memberships(member.pid).into_iter().filter(|other| other.0 != member.connection);
        let elsewhere = others.map(|(_, tenant, slot)| usage.charged(tenant, slot, device).0).sum::<u64>();
        Some(Bytes(held.0.saturating_sub(elsewhere)))
    }

    /// The pid of the member that was made on a connection.
    pub fn pid_of(&self, connection: ConnectionId) -> Option<u32> {
        self.tenants.values().find_map(|tenant| tenant.members.get(&connection)).map(|member| member.peer.pid)
    }
}
