//! Who is a tenant, what they may use, who waits: decided without a clock and without I/O.
//!
//! Events come in as calls, what has to happen goes out as [`Action`]s; [`crate::server`] carries them out.
//! Times are milliseconds of any clock that only goes forward.
//!
//! A *tenant* has a name, an owner and a grant per device. It comes from the document (and stays), from
//! `gpuquota run`, or from the first process that says hello, and goes with its last `run` and process.
//! A *member* is a process of a tenant; it leaves when the kernel says that it is dead. The sum of the
//! memory quotas granted on a device never exceeds the device's capacity; where it is oversubscribed, that holds for
//! what of them can't be moved to the host.

mod admission;
mod backfill;
mod borrow;
mod change;
mod devices;
mod drain;
mod events;
mod hello;
mod instances;
mod interrupt;
mod isolation;
mod job;
mod lost;
mod order;
mod placement;
mod pools;
mod preview;
mod queue;
mod record;
mod rest;
mod rows;
mod standing;

use crate::devices::{Inventory, parse_uuid};
use crate::document::{AdmissionRules, DeviceRule, Document, MatchRule, Minute, Variant};
use crate::peer::{Peer, is_container};
use job::Ask;
use quota_core::compute::scheduler::Rules;
use quota_core::settings::SECRET_FILE;
use quota_core::{Bytes, Percent};
use quota_wire::Secret;
use quota_wire::audit::{AuditEvent, AuditKind};
use quota_wire::message::Reply;
use quota_wire::page::Quota;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use devices::SharedDevice;
pub use interrupt::{InterruptRules, InterruptionRecord, Move};
pub use isolation::ApartRecord;
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
    /// The tenant is gone.
    Forget(TenantId),
    /// The member is to end: it is asked to, or made to.
    End {
        /// Where it said hello.
        member: ConnectionId,
        /// It has been asked before.
        forced: bool,
    },
    /// A tenant's memory is to be moved by the daemon; to be answered with [`Registry::moved_by_daemon`].
    Move(Box<Move>),
    /// To be written down, and told in the log.
    Audit(Box<AuditEvent>),
    /// For the log: what is no event.
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
    /// The tenant of the document that it is a part of.
    pool: Option<TenantId>,
    /// Others are, or were, parts of it. Of one that never had any nobody looks for them.
    is_pool: bool,
    /// A tenant of the document that may have what others of them leave idle.
    borrows: bool,
    /// Its compute is withheld until it is resumed.
    paused: bool,
    /// How it is with making room for others.
    interrupt: interrupt::Interruptible,
    /// How it is kept apart from others.
    apart: isolation::Apart,
    /// What it had on devices that are there no more.
    lost: Vec<record::GrantRecord>,
}

/// What a tenant has on one device.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Grant {
    /// What was granted, as it stands now.
    quota: Quota,
    /// What was admitted. What a process asks for binds it only below this: asking again for what was
    /// admitted must not undo a quota that was raised since.
    admitted: Quota,
    /// What of its memory others than its pool have lent.
    borrowed: Bytes,
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
    /// UUIDs of those that are drained.
    drained: BTreeSet<String>,
    overrides: Overrides,
    /// How device time is shared out.
    rules: Rules,
    /// How jobs make room for others.
    interrupts: InterruptRules,
    /// Something has happened since interruptions were looked after.
    stirred: bool,
    tenants: BTreeMap<TenantId, Tenant>,
    /// How places are given.
    admission: AdmissionRules,
    /// What the document says of devices, at all times and at some.
    device_rules: Vec<DeviceRule>,
    variants: Vec<Variant>,
    minute: Minute,
    /// In the order in which they are to have places.
    waiting: VecDeque<queue::Waiting>,
    arrivals: u64,
    /// The latest time that it was told of.
    now_ms: u64,
    /// By device, what owners miss of what they have lent, as their pages say.
    owed: Vec<Bytes>,
    /// Processes that were refused for what is lent.
    turned_away: Vec<rest::TurnedAway>,
    tenants_made: u64,
    /// Tenants of which something has changed that must survive.
    changed: record::Changed,
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
            drained: BTreeSet::new(),
            overrides,
            rules: document.scheduling,
            interrupts: document.interrupts,
            stirred: false,
            tenants: BTreeMap::new(),
            admission: document.admission,
            device_rules: Vec::new(),
            variants: Vec::new(),
            minute: Minute::default(),
            waiting: VecDeque::new(),
            arrivals: 0,
            now_ms: 0,
            owed: vec![Bytes(0); inventory.devices.len()],
            turned_away: Vec::new(),
            tenants_made: 0,
            changed: record::Changed::default(),
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

    /// How device time is shared out.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// True while a tenant's compute is withheld.
    pub fn is_paused(&self, tenant: TenantId) -> bool {
        let is = |tenant: &Tenant| tenant.paused || tenant.is_interrupted();
        let Some(tenant) = self.tenants.get(&tenant) else { return false };
        is(tenant) || tenant.pool.and_then(|pool| self.tenants.get(&pool)).is_some_and(|pool| pool.paused)
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
        let waited = self.waiting.len();
        self.cancel(connection, actions);
        let job_of = self.tenants.iter_mut().find_map(|(id, tenant)| tenant.jobs.remove(&connection).then_some(*id));
        if let Some(tenant) = job_of {
            self.changed.insert(tenant);
            events::note(self.about_tenant(AuditKind::Left, tenant), actions);
            self.forget_if_left(tenant, actions);
        }
        // Most connections only ask for a list.
        if job_of.is_some() || self.waiting.len() != waited {
            self.pump(actions);
        }
    }

    /// The process that became a member on this connection is dead.
    pub fn died(&mut self, connection: ConnectionId, actions: &mut Vec<Action>) {
        self.is_member_no_more(connection, AuditKind::Died, actions);
    }

    /// The process that became a member on this connection lives on as another program.
    pub fn left(&mut self, connection: ConnectionId, actions: &mut Vec<Action>) {
        self.is_member_no_more(connection, AuditKind::Left, actions);
    }

    fn is_member_no_more(&mut self, connection: ConnectionId, kind: AuditKind, actions: &mut Vec<Action>) {
        let gone = self.tenants.iter_mut().find_map(|(id, tenant)| Some((*id, tenant.members.remove(&connection)?)));
        let Some((tenant, member)) = gone else { return };
        self.changed.insert(tenant);
        actions.push(Action::Vacate(tenant, member.slot));
        events::note(self.about_member(kind, &self.tenants[&tenant], &member), actions);
        if !member.asks.is_empty() {
            actions.push(Action::Publish(tenant));
        }
        self.forget_if_left(tenant, actions);
        self.pump(actions);
    }

    fn forget_if_left(&mut self, id: TenantId, actions: &mut Vec<Action>) {
        self.move_out(id);
        let left = |tenant: &Tenant| !tenant.is_active() && !tenant.is_standing() && !self.has_parts(id);
        if !self.tenants.get(&id).is_some_and(left) {
            return self.publish_pool(id, actions);
        }
        let event = self.about_tenant(AuditKind::Released, id);
        let tenant = self.tenants.remove(&id).expect("just seen");
        self.changed.gone(id, &tenant.name);
        self.disallow(&tenant.name);
        actions.push(Action::Forget(id));
        self.note_granted(event, tenant.granted(), actions);
        // What it was a part of may have been kept for its parts alone.
        if let Some(pool) = tenant.pool {
            self.forget_if_left(pool, actions);
        }
    }

    fn make_tenant(&mut self, name: String, owner: u32, origin: Origin, pool: Option<TenantId>) -> TenantId {
        self.tenants_made += 1;
        let id = TenantId(self.tenants_made);
        let grants = vec![None; self.devices.len()];
        let tenant = Tenant {
            name,
            owner,
            origin,
            grants,
            members: BTreeMap::new(),
            jobs: BTreeSet::new(),
            pool,
            is_pool: false,
            borrows: false,
            paused: false,
            interrupt: interrupt::Interruptible::default(),
            apart: isolation::Apart::default(),
            lost: Vec::new(),
        };
        self.tenants.insert(id, tenant);
        if let Some(pool) = pool.and_then(|pool| self.tenants.get_mut(&pool)) {
            pool.is_pool = true;
        }
        id
    }

    fn tenant_named(&self, name: &str) -> Option<TenantId> {
        self.tenants.iter().find(|(_, tenant)| tenant.name == name).map(|(id, _)| *id)
    }

    fn device_with(&self, uuid_text: &str) -> Option<usize> {
        let uuid = parse_uuid(uuid_text)?;
        self.devices.iter().position(|device| device.uuid == uuid)
    }

    fn grant(&mut self, id: TenantId, wants: &[(usize, Quota)]) {
        self.changed.insert(id);
        for (device, quota) in wants {
            let borrowed = self.beyond_its_pool(id, *device, quota);
            let tenant = self.tenants.get_mut(&id).expect("the caller has found or made it");
            tenant.grants[*device] = Some(Grant { quota: *quota, admitted: *quota, borrowed });
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

    /// Says why a process of user `uid` may not act for this tenant, when it may not. The node's root may, but not a
    /// container's.
    fn check_user(&self, uid: u32, cgroup: &str, secret: Option<&Secret>) -> Result<(), String> {
        let is_root = uid == 0 && !is_container(cgroup);
        match &self.origin {
            Origin::Document(rule) if !rule.is_known(secret) => Err(format!(
                "tenant {} has a secret that this process doesn't know; {SECRET_FILE} names the file with it",
                self.name
            )),
            Origin::Document(rule) if !rule.covers(uid, cgroup) && !is_root => Err(format!(
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

#[cfg(test)]
mod tests;
