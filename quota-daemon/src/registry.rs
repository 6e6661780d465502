//! Who is a tenant, what they may use, who waits: decided without a clock and without I/O.
//!
//! Events come in as calls, what has to happen goes out as [`Action`]s; [`crate::server`] carries them out.
//! Times are milliseconds of any clock that only goes forward.
//!
//! A *tenant* has a name, an owner and a grant per device. It comes from the document (and stays), from
//! `gpuquota run`, or from the first process that says hello, and goes with its last `run` and process.
//! A *member* is a process of a tenant; it leaves when the kernel says that it is dead. The sum of the
//! memory quotas granted on a device never exceeds the device's capacity.

mod admission;
mod backfill;
mod change;
mod hello;
mod interrupt;
mod job;
mod queue;
mod record;
mod rows;

use crate::devices::{Inventory, parse_uuid, select};
use crate::document::{Document, MatchRule, RESERVE_DEFAULT, TenantRule};
use crate::peer::Peer;
use quota_core::compute::scheduler::Rules;
use quota_core::{Bytes, MemorySize, Percent, Priority};
use quota_wire::message::Reply;
use quota_wire::page::Quota;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use interrupt::{InterruptRules, InterruptionRecord};
pub use record::{MemberRecord, ProcessRecord, TenantRecord};
pub use rows::{MemberName, Token, Usage, View};

/// Tenants at one time.
pub const TENANTS_MAX: usize = 4096;
/// Jobs that may wait.
pub const WAITING_MAX: usize = 1024;
/// Memberships one process may have at a time: one, but for programs that load the shim several times.
const MEMBERSHIPS_PER_PROCESS_MAX: usize = 8;
/// Weight of who asks for none.
pub const WEIGHT_DEFAULT: u32 = 100;
/// Most of a device's time that is guaranteed, in hundredths of a percent: the rest goes into switching and into what
/// can't be interrupted.
pub const GUARANTEED_MAX: u32 = 9_500;

/// Names a connection, and the membership that was made on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// Names a tenant for as long as the daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TenantId(u64);

impl TenantId {
    /// The same as a number; never 0.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What has to be done, in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// To be sent.
    Reply(ConnectionId, Reply),
    /// A process is a member: its slot is to be occupied, and it is to be told, with the tenant's pages.
    Welcome(Welcome),
    /// The member of this slot is gone: what it held is to be given back.
    Vacate(TenantId, u32),
    /// The tenant's quota has changed and is to be published.
    Publish(TenantId),
    /// Devices are shared out in another way from now on.
    Reschedule,
    /// The tenant of that name is gone.
    Forget(TenantId, String),
    /// The member is to end: it is asked to, or made to.
    End {
        /// Where it said hello.
        member: ConnectionId,
        /// It has been asked before.
        forced: bool,
    },
    /// For the log.
    Note(String),
}

/// A new member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// Where it said hello.
    pub connection: ConnectionId,
    /// Its tenant.
    pub tenant: TenantId,
    /// The tenant's name.
    pub name: String,
    /// Its slot in the ledger.
    pub slot: u32,
    /// Its pid.
    pub pid: u32,
    /// For each device of its hello, the number in the daemon's list; none where nothing may be allocated.
    pub devices: Vec<Option<usize>>,
}

/// A device, as it is shared.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedDevice {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// The UUID as text.
    pub uuid_text: String,
    /// The product.
    pub name: String,
    /// Its MIG mode, for people.
    pub mig: String,
    /// All its memory.
    pub total: Bytes,
    /// Kept free.
    pub reserve: Bytes,
    /// Most tenants at a time.
    pub jobs_max: Option<u32>,
    default_memory: Option<MemorySize>,
    default_compute: Option<Percent>,
}

impl SharedDevice {
    /// What can be granted.
    pub fn capacity(&self) -> Bytes {
        Bytes(self.total.0.saturating_sub(self.reserve.0))
    }
}

/// What the command line says instead of the document.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// Kept free on each device.
    pub reserve: Option<Bytes>,
    /// Most tenants on a device.
    pub jobs_max: Option<u32>,
}

/// Where a tenant comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Origin {
    /// The document: it stays, and belongs to whom the rule covers.
    Document(MatchRule),
    /// `gpuquota run`.
    Job,
    /// A process that said hello; found again by its name, or by user and cgroup.
    Hello {
        /// The cgroup, where no name was given, and whether the members had asked for a quota.
        unnamed: Option<(String, bool)>,
    },
}

#[derive(Clone, PartialEq, Debug)]
struct Tenant {
    name: String,
    owner: u32,
    origin: Origin,
    /// By device; none where the tenant may not use the device.
    grants: Vec<Option<Grant>>,
    members: BTreeMap<ConnectionId, Member>,
    /// Connections of `gpuquota run`.
    jobs: BTreeSet<ConnectionId>,
    /// Its compute is withheld until it is resumed.
    paused: bool,
    /// How it is with making room for others.
    interrupt: interrupt::Interruptible,
}

/// What a tenant has on one device.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Grant {
    /// What was granted, as it stands now.
    quota: Quota,
    /// What was admitted. What a process asks for binds it only below this: asking again for what was
    /// admitted must not undo a quota that was raised since.
    admitted: Quota,
}

/// A process of a tenant.
#[derive(Clone, PartialEq, Debug)]
struct Member {
    peer: Peer,
    command: String,
    slot: u32,
    /// The devices it sees.
    sees: Vec<usize>,
    /// What it asked for below the tenant's quota, by device: holds for the tenant while it lives.
    asks: Vec<(usize, Option<Bytes>, Option<Percent>)>,
    /// It has a callback that hears of notices.
    listens: bool,
    /// The last notice of which it has said that it is ready.
    ready: u32,
}

/// The state of the node.
#[derive(Clone, Debug)]
pub struct Registry {
    driver: String,
    devices: Vec<SharedDevice>,
    overrides: Overrides,
    /// How device time is shared out.
    rules: Rules,
    /// How jobs make room for others.
    interrupts: InterruptRules,
    /// Something has happened since interruptions were looked after.
    stirred: bool,
    tenants: BTreeMap<TenantId, Tenant>,
    waiting: VecDeque<queue::Waiting>,
    tenants_made: u64,
    /// Tenants of which something has changed that must survive.
    changed: BTreeSet<TenantId>,
}

impl Registry {
    /// The state of a node on which nothing runs.
    ///
    /// # Errors
    /// When the document doesn't go with the devices; one line.
    pub fn new(inventory: &Inventory, document: &Document, overrides: Overrides) -> Result<Self, String> {
        let mut registry = Self {
            driver: inventory.driver.clone(),
            devices: inventory.devices.iter().map(SharedDevice::from).collect(),
            overrides,
            rules: document.scheduling,
            interrupts: document.interrupts,
            stirred: false,
            tenants: BTreeMap::new(),
            waiting: VecDeque::new(),
            tenants_made: 0,
            changed: BTreeSet::new(),
        };
        registry.set_rules(document)?;
        for rule in &document.tenants {
            registry.add_standing(rule)?;
        }
        Ok(registry)
    }

    /// The devices, in NVML's order.
    pub fn devices(&self) -> &[SharedDevice] {
        &self.devices
    }

    /// What holds for a tenant on a device: its grant, or less where one of its members asked for less.
    pub fn effective(&self, tenant: TenantId, device: usize) -> Option<Quota> {
        self.tenants.get(&tenant)?.effective(device)
    }

    /// How device time is shared out.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// True while a tenant's compute is withheld.
    pub fn is_paused(&self, tenant: TenantId) -> bool {
        self.tenants.get(&tenant).is_some_and(|tenant| tenant.paused || tenant.is_interrupted())
    }

    /// Tenants that have a job or a process now.
    pub fn active_tenants(&self) -> usize {
        self.tenants.values().filter(|tenant| tenant.is_active()).count()
    }

    /// True when nobody would notice if the daemon ended.
    pub fn is_idle(&self) -> bool {
        self.active_tenants() == 0 && self.waiting.is_empty()
    }

    /// Slots that process `pid` has: the connection, tenant and slot of each.
    pub fn memberships(&self, pid: u32) -> Vec<(ConnectionId, TenantId, u32)> {
        let of = |(tenant, it): (&TenantId, &Tenant)| {
            let tenant = *tenant;
            let own = it.members.iter().filter(|(_, member)| member.peer.pid == pid);
            own.map(|(connection, member)| (*connection, tenant, member.slot)).collect::<Vec<_>>()
        };
        self.tenants.iter().flat_map(of).collect()
    }

    /// True when a process became a member on this connection.
    pub fn is_member(&self, connection: ConnectionId) -> bool {
        self.tenants.values().any(|tenant| tenant.members.contains_key(&connection))
    }

    /// The connection is closed. Ends a job and a wait at once; a process remains until it dies.
    pub fn closed(&mut self, connection: ConnectionId, actions: &mut Vec<Action>) {
        self.waiting.retain(|waiting| waiting.connection != connection);
        let job_of = self.tenants.iter_mut().find_map(|(id, tenant)| tenant.jobs.remove(&connection).then_some(*id));
        if let Some(tenant) = job_of {
            self.changed.insert(tenant);
            self.forget_if_left(tenant, actions);
        }
        self.pump(actions);
    }

    /// The process that became a member on this connection is dead.
    pub fn died(&mut self, connection: ConnectionId, actions: &mut Vec<Action>) {
        let gone = self.tenants.iter_mut().find_map(|(id, tenant)| Some((*id, tenant.members.remove(&connection)?)));
        let Some((tenant, member)) = gone else { return };
        self.changed.insert(tenant);
        actions.push(Action::Vacate(tenant, member.slot));
        if !member.asks.is_empty() {
            actions.push(Action::Publish(tenant));
        }
        self.forget_if_left(tenant, actions);
        self.pump(actions);
    }

    fn forget_if_left(&mut self, id: TenantId, actions: &mut Vec<Action>) {
        let left = |tenant: &Tenant| !tenant.is_active() && !matches!(tenant.origin, Origin::Document(_));
        if self.tenants.get(&id).is_some_and(left) {
            let tenant = self.tenants.remove(&id).expect("just seen");
            actions.push(Action::Forget(id, tenant.name.clone()));
            actions.push(Action::Note(format!("tenant {}: gone", tenant.name)));
        }
    }

    fn make_tenant(&mut self, name: String, owner: u32, origin: Origin) -> TenantId {
        self.tenants_made += 1;
        let id = TenantId(self.tenants_made);
        let grants = vec![None; self.devices.len()];
        let (members, jobs, interrupt) = (BTreeMap::new(), BTreeSet::new(), interrupt::Interruptible::default());
        let tenant = Tenant { name, owner, origin, grants, members, jobs, paused: false, interrupt };
        self.tenants.insert(id, tenant);
        id
    }

    fn tenant_named(&self, name: &str) -> Option<TenantId> {
        self.tenants.iter().find(|(_, tenant)| tenant.name == name).map(|(id, _)| *id)
    }

    fn device_with(&self, uuid_text: &str) -> Option<usize> {
        let uuid = parse_uuid(uuid_text)?;
        self.devices.iter().position(|device| device.uuid == uuid)
    }

    /// Makes the document's rules hold for the devices; the last rule that selects a device wins.
    fn set_rules(&mut self, document: &Document) -> Result<(), String> {
        (self.rules, self.interrupts) = (document.scheduling, document.interrupts);
        let names: Vec<(String, String)> =
            self.devices.iter().map(|device| (device.uuid_text.clone(), device.name.clone())).collect();
        let names: Vec<(&str, &str)> = names.iter().map(|(uuid, name)| (uuid.as_str(), name.as_str())).collect();
        for device in &mut self.devices {
            device.set_rule(&crate::document::DeviceRule::default(), self.overrides)?;
        }
        for (index, rule) in document.devices.iter().enumerate() {
            let chosen = select(&names, &rule.select).map_err(|error| format!("devices[{index}].select: {error}"))?;
            for device in chosen {
                self.devices[device].set_rule(rule, self.overrides)?;
            }
        }
        Ok(())
    }

    /// Grants what the document says to one of its tenants.
    fn add_standing(&mut self, rule: &TenantRule) -> Result<(), String> {
        let wants: Vec<(usize, Quota)> =
            self.devices.iter().map(|device| rule.quota(device.total)).enumerate().collect();
        self.fits(&wants, None, false).map_err(|no_room| format!("tenant {}: {no_room}", rule.name))?;
        let id = self.make_tenant(rule.name.clone(), 0, Origin::Document(rule.matches.clone()));
        self.grant(id, &wants);
        Ok(())
    }

    fn grant(&mut self, id: TenantId, wants: &[(usize, Quota)]) {
        self.changed.insert(id);
        let tenant = self.tenants.get_mut(&id).expect("the caller has found or made it");
        for (device, quota) in wants {
            tenant.grants[*device] = Some(Grant { quota: *quota, admitted: *quota });
        }
    }
}

impl Tenant {
    fn is_active(&self) -> bool {
        !self.members.is_empty() || !self.jobs.is_empty()
    }

    fn is_standing(&self) -> bool {
        matches!(self.origin, Origin::Document(_))
    }

    fn effective(&self, device: usize) -> Option<Quota> {
        let mut quota = self.grants.get(device).copied().flatten()?.quota;
        quota.memory_cap = least(quota.memory_cap, self.keeps(device));
        for (_, memory, compute) in self.members.values().flat_map(|member| &member.asks).filter(|ask| ask.0 == device)
        {
            quota.memory_cap = least(quota.memory_cap, *memory);
            quota.compute_cap = least(quota.compute_cap, *compute);
        }
        // A process that asks for less than its tenant is guaranteed gives the rest of that up.
        quota.guarantee =
            quota.guarantee.map(|guarantee| quota.compute_cap.map_or(guarantee, |cap| guarantee.min(cap)));
        Some(quota)
    }

    /// Says why user `uid` may not act for this tenant, when it may not.
    fn check_user(&self, uid: u32, cgroup: &str) -> Result<(), String> {
        match &self.origin {
            Origin::Document(rule) if !rule.covers(uid, cgroup) && uid != 0 => Err(format!(
                "tenant {} is not for user {uid} in cgroup {cgroup} (see `match` in the daemon's document)",
                self.name
            )),
            Origin::Job | Origin::Hello { .. } if uid != self.owner && uid != 0 => {
                Err(format!("tenant {} belongs to user {}; choose another name", self.name, self.owner))
            }
            _ => Ok(()),
        }
    }
}

/// The smaller cap, where no cap is the largest.
fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl From<&crate::devices::Device> for SharedDevice {
    fn from(device: &crate::devices::Device) -> Self {
        Self {
            uuid: device.uuid,
            uuid_text: device.uuid_text.clone(),
            name: device.name.clone(),
            mig: device.mig.clone(),
            total: device.total,
            reserve: RESERVE_DEFAULT,
            jobs_max: None,
            default_memory: None,
            default_compute: None,
        }
    }
}

impl SharedDevice {
    fn set_rule(&mut self, rule: &crate::document::DeviceRule, overrides: Overrides) -> Result<(), String> {
        self.reserve = overrides.reserve.or(rule.reserve).unwrap_or(RESERVE_DEFAULT);
        self.jobs_max = overrides.jobs_max.or(rule.jobs_max);
        self.default_memory = rule.default_memory;
        self.default_compute = rule.default_compute;
        if self.reserve >= self.total {
            let (reserve, total) = (self.reserve.human(), self.total.human());
            return Err(format!("a reserve of {reserve} leaves nothing of the {total} of device {}", self.uuid_text));
        }
        Ok(())
    }
}

impl TenantRule {
    fn quota(&self, total: Bytes) -> Quota {
        Quota {
            memory_cap: self.memory.map(|size| size.on(total)),
            compute_cap: self.compute,
            guarantee: self.guarantee,
            weight: self.weight.unwrap_or(WEIGHT_DEFAULT),
            priority: self.priority,
        }
    }
}

/// An ask, as far as it concerns one device.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Ask {
    memory: Option<Bytes>,
    compute: Option<Percent>,
    guarantee: Option<Percent>,
    weight: Option<u32>,
    priority: Option<Priority>,
}

impl Ask {
    /// The quota it would become on a device where the tenant has none yet.
    fn on(self, device: &SharedDevice) -> Quota {
        Quota {
            memory_cap: self.memory.or_else(|| device.default_memory.map(|size| size.on(device.total))),
            compute_cap: self.compute.or(device.default_compute),
            guarantee: self.guarantee,
            weight: self.weight.unwrap_or(WEIGHT_DEFAULT),
            priority: self.priority.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
