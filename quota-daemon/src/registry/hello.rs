//! A process with the shim says hello: which tenant is it of, and on what terms?

use super::admission::NoRoom;
use super::drain::drained_in_words;
use super::events::note;
use super::pools::Whose;
use super::queue::check_shares;
use super::{
    Action, Ask, ConnectionId, MEMBERSHIPS_PER_PROCESS_MAX, Member, Origin, Registry, SharedDevice, TENANTS_MAX,
    Tenant, TenantId, Welcome,
};
use crate::peer::{Peer, clean};
use quota_core::ledger::{DEVICES_MAX, SLOTS_MAX};
use quota_core::settings::{TENANT_FORM, parse_priority, parse_tenant};
use quota_core::{Bytes, Percent};
use quota_wire::Secret;
use quota_wire::audit::{AuditEvent, AuditKind};
use quota_wire::message::{DeviceAsk, Hello, Reply, mismatch};
use quota_wire::page::Quota;

impl Registry {
    /// Answers a hello. With a daemon, its word is final: a process can only ask for less than its tenant has.
    pub fn hello(&mut self, connection: ConnectionId, peer: &Peer, hello: &Hello, actions: &mut Vec<Action>) {
        let joined = self.try_hello(connection, peer, hello, None);
        self.answer_hello(joined, connection, peer, hello, actions);
    }

    /// The same for a process of ours that moves memory of `tenant`.
    pub fn hello_of_mover(
        &mut self,
        connection: ConnectionId,
        peer: &Peer,
        hello: &Hello,
        tenant: TenantId,
        actions: &mut Vec<Action>,
    ) {
        let is_there = self.tenants.contains_key(&tenant);
        let joined = match is_there {
            true => self.try_hello(connection, peer, hello, Some(tenant)),
            false => Err("the tenant is gone".to_owned()),
        };
        self.answer_hello(joined, connection, peer, hello, actions);
    }

    fn answer_hello(
        &mut self,
        joined: Result<Welcome, String>,
        connection: ConnectionId,
        peer: &Peer,
        hello: &Hello,
        actions: &mut Vec<Action>,
    ) {
        match joined {
            Ok(welcome) => {
                // Its page may be of a time when other things held.
                actions.push(Action::Publish(welcome.tenant));
                self.publish_pool(welcome.tenant, actions);
                self.publish_owners(actions);
                self.note_joined(&welcome, hello, actions);
                actions.push(Action::Welcome(welcome));
            }
            Err(reason) => {
                let event = AuditEvent {
                    event: AuditKind::Refused,
                    tenant: hello.tenant.clone(),
                    uid: Some(peer.uid),
                    pid: Some(peer.pid),
                    command: Some(hello.command.clone()),
                    reason: Some(reason.clone()),
                    ..AuditEvent::default()
                };
                note(self.with_asks(event, &self.asks(hello)), actions);
                actions.push(Action::Reply(connection, Reply::Refused { reason }));
            }
        }
    }

    fn note_joined(&self, welcome: &Welcome, hello: &Hello, actions: &mut Vec<Action>) {
        let tenant = &self.tenants[&welcome.tenant];
        let Some(member) = tenant.members.get(&welcome.connection) else { return };
        let event = self.with_asks(self.about_member(AuditKind::Joined, tenant, member), &self.asks(hello));
        let event = AuditEvent { reason: self.excess(welcome.tenant, hello), ..event };
        let grants = member.sees.iter().filter_map(|device| Some((*device, self.effective(welcome.tenant, *device)?)));
        self.note_granted(event, grants, actions);
    }

    /// What a process asks for on those of its devices that are here.
    fn asks(&self, hello: &Hello) -> Vec<(usize, Ask)> {
        let devices = hello.devices.iter().take(DEVICES_MAX);
        devices.filter_map(|device| Some((self.open_device(&device.uuid)?, ask(hello, device)))).collect()
    }

    /// A device on which somebody may have a place.
    fn open_device(&self, uuid: &str) -> Option<usize> {
        self.usable(uuid).filter(|index| !self.is_drained(*index))
    }

    /// What a process asks for beyond what its tenant has, in words: it doesn't get it, and somebody may want to know.
    fn excess(&self, tenant: TenantId, hello: &Hello) -> Option<String> {
        hello.devices.iter().find_map(|device| {
            let index = self.device_with(&device.uuid)?;
            let cap = self.tenants[&tenant].grants[index]?.quota.memory_cap?;
            let asked = device.memory_bytes.map(Bytes).filter(|asked| *asked > cap)?;
            Some(format!("it asks for {} on device {index}, and has {}", asked.human(), cap.human()))
        })
    }

    fn try_hello(
        &mut self,
        connection: ConnectionId,
        peer: &Peer,
        hello: &Hello,
        known: Option<TenantId>,
    ) -> Result<Welcome, String> {
        check(hello)?;
        if self.memberships(peer.pid).len() >= MEMBERSHIPS_PER_PROCESS_MAX {
            return Err(format!("process {} has said hello too often", peer.pid));
        }
        let sees: Vec<Option<usize>> = hello.devices.iter().map(|device| self.open_device(&device.uuid)).collect();
        // What it sees of drained devices is to it as those that nobody knows: it can't allocate there.
        if let Some(drained) = hello.devices.iter().find_map(|device| self.usable(&device.uuid))
            && sees.iter().all(Option::is_none)
        {
            return Err(drained_in_words(drained));
        }
        self.knows_some(hello, &sees)?;
        let asks = self.asks(hello);
        let (tenant, fresh) = known.map_or_else(|| self.tenant_of(peer, hello, &asks), |known| Ok((known, false)))?;
        let joined = self.join(tenant, connection, peer, hello, &asks);
        if joined.is_err() && fresh {
            self.tenants.remove(&tenant);
        }
        let slot = joined?;
        let it = &self.tenants[&tenant];
        let meant = |index: &usize| it.members.get(&connection).is_some_and(|member| member.sees.contains(index));
        let devices =
            sees.iter().map(|index| index.filter(|index| meant(index) && it.grants[*index].is_some())).collect();
        Ok(Welcome { connection, tenant, name: it.name.clone(), slot, pid: peer.pid, devices })
    }

    /// A process that sees devices of which none is here can't be given anything, which had better be said at once.
    fn knows_some(&self, hello: &Hello, known: &[Option<usize>]) -> Result<(), String> {
        let Some(first) = hello.devices.first().filter(|_| known.iter().all(Option::is_none)) else { return Ok(()) };
        if let Some(divided) = self.device_with(&first.uuid) {
            return Err(self.divided_in_words(divided));
        }
        Err(format!(
            "the driver lists no device {} for this daemon, and the process sees no other; where devices or MIG instances have changed since it started, start it again",
            clean(&first.uuid)
        ))
    }

    /// The tenant of a process, and whether it was made for it.
    fn tenant_of(&mut self, peer: &Peer, hello: &Hello, asks: &[(usize, Ask)]) -> Result<(TenantId, bool), String> {
        let found = match &hello.tenant {
            Some(name) => self.tenant_named(name),
            None => self.tenant_by_origin(peer, hello.secret.as_ref(), asks),
        };
        if let Some(id) = found {
            self.tenants[&id].check_user(peer.uid, &peer.cgroup, hello.secret.as_ref())?;
            return Ok((id, false));
        }
        if self.tenants.len() >= TENANTS_MAX {
            return Err(format!("there are {TENANTS_MAX} tenants already"));
        }
        let pool = hello.tenant.as_deref().and_then(|name| self.pool_for(name));
        if let Some(pool) = pool {
            self.tenants[&pool].check_user(peer.uid, &peer.cgroup, hello.secret.as_ref())?;
        }
        let unnamed = hello.tenant.is_none().then(|| (peer.cgroup.clone(), says_something(asks)));
        let name = hello.tenant.clone().unwrap_or_else(|| self.name_for(peer));
        Ok((self.make_tenant(name, peer.uid, Origin::Hello { unnamed }, pool), true))
    }

    /// For a process without a name: the document's tenant that covers it, else the one of its user and cgroup.
    fn tenant_by_origin(&self, peer: &Peer, secret: Option<&Secret>, asks: &[(usize, Ask)]) -> Option<TenantId> {
        let covered = |tenant: &&Tenant| match &tenant.origin {
            Origin::Document(rule) => !rule.is_empty() && rule.covers(peer.uid, &peer.cgroup) && rule.is_known(secret),
            _ => false,
        };
        // Processes that ask and processes that don't are counted apart: in one login session, a job with a
        // quota must not put a cap on everything else.
        let wanted = (peer.cgroup.clone(), says_something(asks));
        let same = |tenant: &&Tenant| match &tenant.origin {
            Origin::Hello { unnamed: Some(unnamed) } => tenant.owner == peer.uid && *unnamed == wanted,
            _ => false,
        };
        let find = |wanted: &dyn Fn(&&Tenant) -> bool| {
            self.tenants.iter().find(|(_, tenant)| wanted(tenant)).map(|(id, _)| *id)
        };
        find(&covered).or_else(|| find(&same))
    }

    /// A name for people, from user and cgroup.
    fn name_for(&self, peer: &Peer) -> String {
        let last = peer.cgroup.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
        let last: String =
            last.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')).take(48).collect();
        let stem = if last.is_empty() { format!("user-{}", peer.uid) } else { format!("user-{}@{last}", peer.uid) };
        self.free_name(&stem, true)
    }

    /// `stem`, when `bare` allows it and nobody has it, else with the first number that is free.
    pub(super) fn free_name(&self, stem: &str, bare: bool) -> String {
        if bare && self.tenant_named(stem).is_none() {
            return stem.to_owned();
        }
        let free = (1..=TENANTS_MAX + 1).map(|number| format!("{stem}-{number}"));
        free.into_iter().find(|name| self.tenant_named(name).is_none()).expect("more numbers than tenants")
    }

    /// Makes the process a member: its slot.
    fn join(
        &mut self,
        id: TenantId,
        connection: ConnectionId,
        peer: &Peer,
        hello: &Hello,
        asks: &[(usize, Ask)],
    ) -> Result<u32, String> {
        let wants = self.wants(id, asks).map_err(|no_room| no_room.to_string())?;
        let whose = Whose { tenant: Some(id), pool: self.tenants[&id].pool };
        for (_, quota) in &wants {
            check_shares(quota)?;
        }
        let sees = self.meant(id, asks.iter().map(|(index, _)| *index).collect());
        let wants: Vec<(usize, Quota)> = wants.into_iter().filter(|(index, _)| sees.contains(index)).collect();
        let needs = self.needs(Some(id), &sees, &wants);
        if let Err(no_room) = self.fits(&needs, whose, true) {
            self.turn_away(peer.pid, &needs, whose);
            return Err(no_room.to_string());
        }
        // Nor does a process that asks nobody but the shim get before those who wait.
        let ahead = || self.waiting.iter().map(|waiting| &waiting.job).filter(|job| self.waits_for_room(job));
        let allowed = &self.tenants[&id].apart.allowed;
        if wants.iter().any(|(index, _)| self.behind(*index, whose, &wants, allowed, ahead()).is_some()) {
            return Err(format!("{} jobs wait for room before it", self.waiting.len()));
        }
        self.leaves_something(id, &sees)?;
        let granted = |index: &usize| self.tenants[&id].grants[*index].is_some();
        let wanted = |index: &usize| wants.iter().any(|(wanted, _)| wanted == index);
        let may_use: Vec<usize> = sees.iter().copied().filter(|index| granted(index) || wanted(index)).collect();
        if let Some(first) = sees.first().filter(|_| may_use.is_empty()) {
            self.has_instances(*first, self.tenants[&id].pool.or(Some(id)))?;
        }
        self.is_apart_for_hello(id, &may_use)?;
        let tenant = &self.tenants[&id];
        let taken: std::collections::BTreeSet<u32> = tenant.members.values().map(|member| member.slot).collect();
        let slot = (0..SLOTS_MAX as u32)
            .find(|slot| !taken.contains(slot))
            .ok_or_else(|| format!("tenant {}: {SLOTS_MAX} processes are running already", tenant.name))?;
        self.let_in(peer.pid);
        self.grant(id, &wants);
        let tenant = self.tenants.get_mut(&id).expect("the caller has found it");
        let binding = binding(tenant, asks, &self.devices);
        let (command, asks) = (clean(&hello.command), binding);
        let member = Member { peer: peer.clone(), command, slot, sees, asks, listens: false, ready: 0 };
        tenant.members.insert(connection, member);
        // It may be an owner's, whose memory is lent.
        self.stirred = true;
        self.changed.insert(id);
        Ok(slot)
    }

    /// What has to be granted before the process can join: a tenant that came by hello gets what its first
    /// asking process asks for; the others have their grants.
    fn wants(&self, id: TenantId, asks: &[(usize, Ask)]) -> Result<Vec<(usize, Quota)>, NoRoom> {
        let tenant = &self.tenants[&id];
        if !matches!(tenant.origin, Origin::Hello { .. }) {
            return Ok(Vec::new());
        }
        let want = |(index, ask): &(usize, Ask)| match tenant.grants[*index] {
            None => {
                let quota = ask.on(&self.devices[*index]);
                let part = |pool| self.as_part(pool, *index, quota, ask.priority.is_some());
                Some(tenant.pool.map_or(Ok(quota), part).map(|quota| (*index, quota)))
            }
            Some(grant) if grant.quota.memory_cap.is_none() && ask.memory.is_some() => {
                Some(Ok((*index, Quota { memory_cap: ask.memory, ..grant.quota })))
            }
            Some(_) => None,
        };
        asks.iter().filter_map(want).collect()
    }
}

/// What holds for the tenant while the process lives: asks below what it has, and below what was admitted.
fn binding(
    tenant: &Tenant,
    asks: &[(usize, Ask)],
    devices: &[SharedDevice],
) -> Vec<(usize, Option<Bytes>, Option<Percent>)> {
    let bind = |(index, ask): &(usize, Ask)| {
        let grant = tenant.grants[*index]?;
        let memory = below(ask.memory, grant.quota.memory_cap, grant.admitted.memory_cap);
        // More than the device has binds nobody.
        let memory = memory.filter(|asked| *asked < devices[*index].total);
        let compute = below(ask.compute, grant.quota.compute_cap, grant.admitted.compute_cap);
        (memory.is_some() || compute.is_some()).then_some((*index, memory, compute))
    };
    asks.iter().filter_map(bind).collect()
}

/// What is asked for, when it is below both caps.
fn below<T: Copy + Ord>(asked: Option<T>, cap: Option<T>, admitted: Option<T>) -> Option<T> {
    asked.filter(|asked| [cap, admitted].into_iter().flatten().all(|cap| *asked < cap))
}

fn says_something(asks: &[(usize, Ask)]) -> bool {
    asks.iter().any(|(_, ask)| *ask != Ask::default())
}

fn ask(hello: &Hello, device: &DeviceAsk) -> Ask {
    Ask {
        memory: device.memory_bytes.map(Bytes),
        compute: device.compute.and_then(Percent::from_hundredths),
        guarantee: hello.guarantee.and_then(Percent::from_hundredths),
        weight: hello.weight,
        priority: hello.priority.as_deref().and_then(|word| parse_priority(word).ok()),
        dynamic: false,
    }
}

/// A client says what it likes; what it says is checked before it is used.
fn check(hello: &Hello) -> Result<(), String> {
    if let Some(reason) = mismatch("the library", hello.version, "this daemon") {
        return Err(reason);
    }
    if let Some(name) = &hello.tenant {
        parse_tenant(name).map_err(|reason| format!("GPUQUOTA_TENANT: {reason}; expected {TENANT_FORM}"))?;
    }
    if hello.devices.len() > DEVICES_MAX {
        return Err(format!("{} devices are more than {DEVICES_MAX}", hello.devices.len()));
    }
    let percents = hello.devices.iter().filter_map(|device| device.compute).chain(hello.guarantee);
    let legal = hello.weight.is_none_or(|weight| (1..=10_000).contains(&weight))
        && percents.into_iter().all(|hundredths| Percent::from_hundredths(hundredths).is_some())
        && hello.priority.as_deref().is_none_or(|word| parse_priority(word).is_ok())
        && hello.devices.iter().all(|device| device.memory_bytes != Some(0));
    if legal { Ok(()) } else { Err("the library sent a quota that is none".to_owned()) }
}
