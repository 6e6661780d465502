//! What people see: processes and devices as rows.

use super::drain::drained_in_words;
use super::lost::LOST;
use super::{ConnectionId, Member, Origin, Registry, Tenant, TenantId};
use crate::devices::DeviceSample;
use crate::shares::{ComputeClaim, Shares, seconds, tenths};
use quota_core::Bytes;
use quota_core::Percent;
use quota_wire::message::{DeviceRow, ProcessRow};
use std::collections::BTreeSet;

/// What the ledgers say. The tenants' processes write them, so every number is a claim.
pub trait Usage {
    /// What the process in `slot` has charged on a device.
    fn charged(&self, tenant: TenantId, slot: u32, device: usize) -> Bytes;

    /// What of that was measured, not asked for.
    fn overhead(&self, tenant: TenantId, slot: u32, device: usize) -> Bytes;

    /// What the process in `slot` says of its use of a device's time; none where it hasn't used the device.
    fn compute(&self, _tenant: TenantId, _slot: u32, _device: usize) -> Option<ComputeClaim> {
        None
    }
}

/// What is known besides the registry when rows are made.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// What the pages say.
    pub usage: &'a dyn Usage,
    /// What the driver says.
    pub sample: &'a [DeviceSample],
    /// What was seen of the use of devices.
    pub shares: &'a Shares,
    /// What is wrong with the driver, so that what it said is old.
    pub trouble: Option<&'a str>,
    /// The time, in nanoseconds of the monotonic clock.
    pub now_ns: u64,
}

/// Who has the token of a device, by the arbiter's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Token {
    /// Who may launch, as [`TenantId::number`].
    pub holder: Option<u64>,
    /// Tenants that have work.
    pub contenders: u32,
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
/// That of one which nothing holds back.
const RUNNING: &str = "running";
/// That of a member without any quota.
const UNMANAGED: &str = "unmanaged";
/// Threads of one process that are believed to wait.
const WAITING_MAX: u32 = 1 << 16;

impl Registry {
    /// All processes: the members, then what the driver sees besides.
    ///
    /// `describe` says what the system knows of a pid: user, command, start.
    pub fn process_rows(
        &self,
        view: &View<'_>,
        describe: &dyn Fn(u32) -> Option<(u32, String, String)>,
    ) -> Vec<ProcessRow> {
        let mut rows = Vec::new();
        for (id, tenant) in &self.tenants {
            for (connection, member) in &tenant.members {
                let name = MemberName { connection: *connection, tenant: *id, slot: member.slot, pid: member.peer.pid };
                self.member_rows(name, tenant, member, view, &mut rows);
            }
        }
        let known: Vec<u32> =
            self.tenants.values().flat_map(|tenant| tenant.members.values()).map(|it| it.peer.pid).collect();
        for (index, device) in view.sample.iter().enumerate().take(self.devices.len()) {
            for (pid, bytes) in device.processes.iter().filter(|(pid, _)| !known.contains(pid)) {
                let used = driver_percent(device, *pid);
                let row = describe(*pid).map(|facts| self.foreign_row(index, *pid, *bytes, facts));
                rows.extend(row.map(|row| ProcessRow { compute_used_percent: used, ..row }));
            }
        }
        rows
    }

    /// Processes that the driver sees on a device and that are no members: pid and device of each.
    pub fn strangers(&self, sample: &[DeviceSample]) -> Vec<(u32, usize)> {
        let known: BTreeSet<u32> = self.members().map(|member| member.pid).collect();
        let on = |(index, device): (usize, &DeviceSample)| {
            let pids = device.processes.iter().map(|(pid, _)| *pid).filter(|pid| !known.contains(pid));
            pids.map(|pid| (pid, index)).collect::<Vec<_>>()
        };
        sample.iter().enumerate().take(self.devices.len()).flat_map(on).collect()
    }

    /// All devices.
    pub fn device_rows(&self, view: &View<'_>, tokens: &[Token]) -> Vec<DeviceRow> {
        let row = |(index, device): (usize, &super::SharedDevice)| {
            let seen = view.sample.get(index);
            let charged = self.tenants.keys().map(|id| self.charged(*id, index, view.usage).0).sum();
            let token = tokens.get(index).copied().unwrap_or_default();
            let holder = self.tenants.iter().find(|(id, _)| Some(id.number()) == token.holder);
            DeviceRow {
                device: index as u32,
                uuid: device.uuid_text.clone(),
                parent_uuid: device.parent.map(|parent| self.devices[parent].uuid_text.clone()),
                name: device.name.clone(),
                memory_total_bytes: device.total.0,
                memory_capacity_bytes: device.capacity().0,
                memory_granted_bytes: self.granted(index, None).0 + self.lent_of_rest(index).0,
                memory_firm_bytes: self.firm(index, None).0,
                memory_oversubscribe: f64::from(device.oversubscribe) / 100.0,
                memory_charged_bytes: charged,
                memory_used_bytes: seen.and_then(|seen| seen.used).unwrap_or_default().0,
                compute_used_percent: self.used_percent(index, view),
                compute_guaranteed_percent: f64::from(self.guaranteed(index, None)) / 100.0,
                // One alone shares with nobody.
                compute_contended_jobs: if token.contenders > 1 { token.contenders } else { 0 },
                compute_holder: holder.map(|(_, tenant)| tenant.name.clone()),
                jobs: self.jobs_on(index, None) as u32,
                jobs_waiting: self.waiting_on(index),
                schedule: self.variant_names().into_iter().map(str::to_owned).collect(),
                driver: self.driver.clone(),
                mig: device.mig.clone(),
                drained: self.is_drained(index),
                health: self.health(index, view),
            }
        };
        self.devices.iter().enumerate().map(row).collect()
    }

    /// How it is with a device, in a few words.
    fn health(&self, index: usize, view: &View<'_>) -> String {
        let seen = view.sample.get(index);
        if self.is_drained(index) {
            // Until the daemon has let go of it.
            return if seen.is_some_and(|seen| seen.let_go) { "drained" } else { "draining" }.to_owned();
        }
        let error = view.trouble.map(str::to_owned).or_else(|| seen.and_then(|seen| seen.error.clone()));
        error.unwrap_or_else(|| if seen.is_some_and(|seen| seen.used.is_some()) { "ok" } else { "unknown" }.to_owned())
    }

    /// The share of a device's time that was used lately, by members and by others; none where nothing is known.
    fn used_percent(&self, device: usize, view: &View<'_>) -> Option<f64> {
        let members: Vec<MemberName> = self.members().collect();
        let of_members = members.iter().filter_map(|member| member_percent(*member, device, view));
        let sample = view.sample.get(device);
        let of_others = sample.into_iter().flat_map(|sample| sample.utilisation.iter().flatten());
        let of_others = of_others.filter(|(pid, _)| members.iter().all(|member| member.pid != *pid));
        let all: Vec<f64> = of_members.chain(of_others.map(|(_, percent)| f64::from(*percent))).collect();
        (!all.is_empty()).then(|| tenths(all.iter().sum::<f64>().min(100.0)))
    }

    /// What all processes of a tenant have charged on a device: no more than the device has.
    pub(super) fn charged(&self, id: TenantId, device: usize, usage: &dyn Usage) -> Bytes {
        let tenant = &self.tenants[&id];
        let there = tenant.members.values().filter(|_| !tenant.has_lost(&self.devices[device]));
        let slots = there.map(|member| member.slot);
        let sum = slots.map(|slot| usage.charged(id, slot, device).0).fold(0u64, u64::saturating_add);
        Bytes(sum.min(self.devices[device].total.0))
    }

    /// One row for each device on which the process holds something; for its first device when there is none.
    fn member_rows(
        &self,
        name: MemberName,
        tenant: &Tenant,
        member: &Member,
        view: &View<'_>,
        rows: &mut Vec<ProcessRow>,
    ) {
        let (id, View { usage, sample, .. }) = (name.tenant, *view);
        let seen_by_driver = |index: usize| {
            let processes = sample.get(index).map(|device| device.processes.as_slice()).unwrap_or_default();
            processes.iter().find(|(pid, _)| *pid == member.peer.pid).map(|(_, bytes)| bytes.unwrap_or_default())
        };
        let before = rows.len();
        let mut push = |index: usize, charged: Bytes, driver: Option<Bytes>| {
            // What the driver holds beyond the charges is overhead that is about to be booked.
            let beyond = driver.unwrap_or_default().0.saturating_sub(charged.0);
            let overhead = Bytes(usage.overhead(id, member.slot, index).0.min(charged.0) + beyond);
            let row = self.member_row(id, member, index, charged, overhead);
            let row = ProcessRow { memory_resident_bytes: driver.map(|bytes| bytes.0), ..row };
            rows.push(self.unless_lost(with_compute(row, tenant, name, view)));
        };
        for index in (0..self.devices.len()).filter(|index| !tenant.has_lost(&self.devices[*index])) {
            let charged = Bytes(usage.charged(id, member.slot, index).0.min(self.devices[index].total.0));
            let driver = seen_by_driver(index);
            let uses = usage.compute(id, member.slot, index).is_some();
            if charged.0 > 0 || driver.is_some() || uses {
                push(index, charged, driver);
            }
        }
        if rows.len() == before
            && let Some(first) = member.sees.first()
        {
            let row = self.member_row(id, member, *first, Bytes(0), Bytes(0));
            rows.push(self.unless_lost(with_compute(row, tenant, name, view)));
        }
        if rows.len() == before {
            rows.extend(Self::lost_rows(tenant, member));
        }
    }

    /// A process on a device that is drained: it goes on there for as long as the driver lets it.
    fn unless_lost(&self, row: ProcessRow) -> ProcessRow {
        let Some(device) = row.device.map(|device| device as usize).filter(|device| self.is_drained(*device)) else {
            return row;
        };
        ProcessRow { state: LOST.to_owned(), state_reason: Some(drained_in_words(device)), ..row }
    }

    fn member_row(&self, id: TenantId, member: &Member, index: usize, charged: Bytes, overhead: Bytes) -> ProcessRow {
        let tenant = &self.tenants[&id];
        let quota = self.effective(id, index).unwrap_or_default();
        let by_hello = matches!(tenant.origin, Origin::Hello { .. });
        let unmanaged = by_hello && quota.memory_cap.is_none() && quota.compute_cap.is_none();
        ProcessRow {
            tenant: tenant.name.clone(),
            pid: member.peer.pid,
            uid: member.peer.uid,
            command: member.command.clone(),
            device: Some(index as u32),
            uuid: self.devices[index].uuid_text.clone(),
            memory_used_bytes: charged.0,
            memory_quota_bytes: quota.memory_cap.map(|cap| cap.0),
            memory_overhead_bytes: overhead.0,
            memory_dynamic: quota.dynamic,
            compute_used_percent: None,
            compute_cap_percent: percent(quota.compute_cap),
            compute_guarantee_percent: percent(quota.guarantee),
            weight: quota.weight,
            priority: quota.priority.to_string(),
            state: if unmanaged { UNMANAGED } else { RUNNING }.to_owned(),
            started: member.peer.started.clone(),
            ..ProcessRow::default()
        }
    }

    fn foreign_row(&self, index: usize, pid: u32, bytes: Option<Bytes>, facts: (u32, String, String)) -> ProcessRow {
        let (uid, command, started) = facts;
        ProcessRow {
            tenant: "-".to_owned(),
            pid,
            uid,
            command,
            device: Some(index as u32),
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
    /// The driver counts by process. Of one that is a member several times (`all` its memberships), this one's part is
    /// what the others are not charged.
    pub fn held_on(
        &self,
        member: &MemberName,
        all: &[MemberName],
        device: usize,
        usage: &dyn Usage,
        sample: &[DeviceSample],
    ) -> Option<Bytes> {
        let seen = sample.get(device).filter(|seen| seen.used.is_some())?;
        let held = match seen.processes.iter().find(|(pid, _)| *pid == member.pid) {
            Some((_, bytes)) => (*bytes)?,
            None => Bytes(0),
        };
        let others = all.iter().filter(|other| other.connection != member.connection);
        let elsewhere = others.map(|other| usage.charged(other.tenant, other.slot, device).0).sum::<u64>();
        Some(Bytes(held.0.saturating_sub(elsewhere)))
    }

    /// The pid of the member that was made on a connection.
    pub fn pid_of(&self, connection: ConnectionId) -> Option<u32> {
        self.place_of(connection).map(|(pid, ..)| pid)
    }

    /// The same with its tenant and slot.
    pub fn place_of(&self, connection: ConnectionId) -> Option<(u32, TenantId, u32)> {
        let of = |(id, tenant): (&TenantId, &Tenant)| {
            tenant.members.get(&connection).map(|member| (member.peer.pid, *id, member.slot))
        };
        self.tenants.iter().find_map(of)
    }
}

/// What a member used lately: as measured where it is counted, else as the driver says.
fn member_percent(name: MemberName, device: usize, view: &View<'_>) -> Option<f64> {
    let claim = view.usage.compute(name.tenant, name.slot, device).filter(|claim| claim.counted);
    let measured = claim.and_then(|claim| view.shares.percent(name.connection, device, claim.busy_ns, view.now_ns));
    measured.or_else(|| driver_percent(view.sample.get(device)?, name.pid))
}

/// What the driver says a process used lately: nothing, where it speaks of others only.
fn driver_percent(sample: &DeviceSample, pid: u32) -> Option<f64> {
    let rows = sample.utilisation.as_ref()?;
    let row = rows.iter().find(|(other, _)| *other == pid);
    Some(row.map_or(0.0, |(_, percent)| f64::from((*percent).min(100))))
}

fn percent(percent: Option<Percent>) -> Option<f64> {
    percent.map(|it| f64::from(it.hundredths()) / 100.0)
}

fn with_compute(row: ProcessRow, tenant: &Tenant, name: MemberName, view: &View<'_>) -> ProcessRow {
    let Some(device) = row.device.map(|device| device as usize) else { return row };
    let used = member_percent(name, device, view);
    let claim = view.usage.compute(name.tenant, name.slot, device).unwrap_or_default();
    let interruption = tenant.interruption_in_words();
    let state = match () {
        () if interruption.is_some() => interruption.as_ref().map_or(RUNNING, |(state, _)| *state),
        () if tenant.paused => "paused",
        () if claim.waiting > 0 && claim.counted => "waiting",
        () if claim.throttled > 0 => "throttled",
        () if row.state == UNMANAGED => UNMANAGED,
        () if claim.counted && !claim.under_way && used.is_none_or(|percent| percent == 0.0) => "idle",
        () => RUNNING,
    };
    ProcessRow {
        compute_used_percent: used,
        compute_borrowed_percent: percent(claim.borrowed),
        compute_throttled_seconds: seconds(claim.throttled_ns, view.now_ns),
        compute_waited_seconds: seconds(claim.waited_ns, view.now_ns),
        compute_waiting: claim.waiting.min(WAITING_MAX),
        state: state.to_owned(),
        state_reason: interruption.map(|(_, reason)| reason),
        ..row
    }
}
