//! Tenants that lend, borrow and give back, at random: whatever happens, what all may have, or still hold of what they had, is
//! never more than there is, and the pages say so at once.

use super::*;
use quota_core::Priority;
use std::collections::BTreeMap;

const DOCUMENT: &str = "{scheduling: {grace: 2s, reclaim: terminate, preemption: true},
    tenants: [{name: lab, memory: 30GiB, borrow: true, compute: {guarantee: 30%}}, {name: own, memory: 25GiB},
        {name: art, memory: 15GiB, borrow: true}]}";
const CAPACITY: u64 = 79 * GIB + GIB / 2;

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What processes use, by tenant.
#[derive(Default)]
struct Used(BTreeMap<TenantId, u64>);

impl Usage for Used {
    fn charged(&self, tenant: TenantId, _slot: u32, _device: usize) -> Bytes {
        Bytes(self.0.get(&tenant).copied().unwrap_or_default())
    }

    fn overhead(&self, _tenant: TenantId, _slot: u32, _device: usize) -> Bytes {
        Bytes(0)
    }
}

struct World {
    node: Node,
    dice: Dice,
    used: Used,
    /// Jobs with their places, and their processes.
    running: BTreeMap<ConnectionId, (String, Option<ConnectionId>)>,
    waiting: Vec<ConnectionId>,
    /// What the pages of those with processes say.
    pages: BTreeMap<TenantId, Option<Quota>>,
    started: u64,
    reclaimed: u64,
    /// Looks at which something of the free rest was lent.
    lent_of_rest: u64,
}

impl World {
    fn take(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Reply(connection, Reply::Granted(granted)) => {
                    self.waiting.retain(|waiting| *waiting != connection);
                    self.running.insert(connection, (granted.tenant, None));
                    self.started += 1;
                }
                Action::Reply(connection, Reply::Refused { .. }) => {
                    self.waiting.retain(|waiting| *waiting != connection);
                }
                Action::End { member, .. } => {
                    let of_it = self.running.iter().find(|(_, (_, process))| *process == Some(member));
                    if let Some(job) = of_it.map(|(job, _)| *job) {
                        self.end(job);
                    }
                }
                Action::Publish(id) if self.pages.contains_key(&id) => {
                    self.pages.insert(id, self.node.registry.effective(id, 0));
                }
                Action::Welcome(welcome) => {
                    let fresh = self.node.registry.effective(welcome.tenant, 0);
                    self.pages.entry(welcome.tenant).or_insert(fresh);
                }
                Action::Forget(id) => drop(self.pages.remove(&id)),
                Action::Audit(event) if event.change.as_deref() == Some("reclaim") => self.reclaimed += 1,
                _ => {}
            }
        }
        self.check();
    }

    /// Whoever runs has what it may have, or what it still uses; those that are at the host use nothing here.
    fn check(&self) {
        let registry = &self.node.registry;
        for (id, page) in &self.pages {
            let Some(Tenant { name, members, .. }) = registry.tenants.get(id) else { continue };
            if members.is_empty() {
                continue;
            }
            assert_eq!(*page, registry.effective(*id, 0), "what {name} has on its page");
        }
        let active = registry.tenants.iter().filter(|(_, tenant)| tenant.is_active());
        let most = active.map(|(id, tenant)| {
            let may = registry.effective(*id, 0).and_then(|quota| quota.memory_cap).expect("all have quotas");
            let uses = self.used.0.get(id).copied().unwrap_or_default();
            (tenant.name.clone(), may.0.max(uses) / (GIB / 2), uses / (GIB / 2))
        });
        let most: Vec<(String, u64, u64)> = most.collect();
        let all: u64 = most.iter().map(|(_, most, _)| most).sum();
        assert!(all <= CAPACITY / (GIB / 2), "{all} of {}: {most:?}", CAPACITY / (GIB / 2));
        registry.check_granted().expect("no more is granted than there is");
        let granted = registry.granted_to(0, None, Priority::High).0 + registry.lent_of_rest(0).0;
        let owed = registry.owed_now(0).0;
        assert!(granted - owed <= CAPACITY, "{granted} granted or lent, {owed} of it to be given back");
    }

    /// Whoever waits for nothing but what is lent has it asked back.
    fn check_asked(&mut self) {
        let registry = &self.node.registry;
        self.lent_of_rest += u64::from(registry.lent_of_rest(0) > Bytes(0));
        let waits = |waiting: &crate::registry::queue::Waiting| registry.waits_for_borrowers(&waiting.job);
        let asked = registry.tenants.values().any(|tenant| tenant.is_borrower() && tenant.interrupt.now.is_some());
        // What has happened since is looked at in the next step.
        let is_settled = !registry.stirred;
        assert!(!is_settled || asked || !registry.waiting.iter().any(waits), "nobody is asked for what is waited for");
    }

    fn end(&mut self, job: ConnectionId) {
        let Some((name, process)) = self.running.remove(&job) else { return };
        if let Some(id) = self.node.registry.tenant_named(&name) {
            let others = self.running.values().any(|(other, process)| *other == name && process.is_some());
            if !others {
                self.used.0.remove(&id);
            }
        }
        if let Some(process) = process {
            let actions = self.node.died(process);
            self.take(actions);
        }
        let actions = self.node.closed(job);
        self.take(actions);
    }

    fn some_job(&mut self) -> Option<ConnectionId> {
        let at = self.dice.below(self.running.len().max(1) as u64) as usize;
        self.running.keys().nth(at).copied()
    }

    fn step(&mut self) {
        self.node.now_ms += self.dice.below(400);
        match self.dice.below(12) {
            0..=3 if self.waiting.len() < 8 => self.ask(),
            4 => self.some_job().into_iter().for_each(|job| self.end(job)),
            5 | 6 => self.begin_process(),
            7..=9 => self.use_some(),
            _ => {
                let mut actions = Vec::new();
                self.node.registry.tick(self.node.now_ms, &mut actions);
                self.node.registry.step_interruptions(self.node.now_ms, &self.used, &mut actions);
                self.take(actions);
                self.check_asked();
            }
        }
    }

    fn ask(&mut self) {
        let pool = ["lab", "own", "art", "solo"][self.dice.below(4) as usize];
        let (number, memory) = (self.dice.below(6), 1 + self.dice.below([50, 12, 12][(self.dice.0 % 3) as usize]));
        let mut ask = queued(&format!("{pool}/{number}"), &format!("{memory}GiB"), QueueLimit::Forever);
        if self.dice.below(5) == 0 && pool != "solo" {
            ask = Admit { tenant: Some(pool.to_owned()), memory: None, ..ask };
        }
        let (connection, actions) = self.node.admit(7, ask);
        self.waiting.push(connection);
        self.take(actions);
    }

    /// A process of a job that has its place.
    fn begin_process(&mut self) {
        let Some(job) = self.some_job().filter(|job| self.running[job].1.is_none()) else { return };
        let name = self.running[&job].0.clone();
        // One that asks for less binds all of its tenant for as long as it lives.
        let less = Some(1 + self.dice.below(20)).filter(|gib| gib % 4 == 0);
        let (process, actions) = self.node.hello(&peer(1000 + job.0 as u32, 7), hello(Some(&name), less, 1));
        if actions.iter().any(|action| matches!(action, Action::Welcome(_))) {
            self.running.insert(job, (name, Some(process)));
        }
        self.take(actions);
    }

    /// It allocates as far as it may, or frees.
    fn use_some(&mut self) {
        let Some(job) = self.some_job().filter(|job| self.running[job].1.is_some()) else { return };
        let Some(id) = self.node.registry.tenant_named(&self.running[&job].0) else { return };
        let may = self.node.registry.effective(id, 0).and_then(|quota| quota.memory_cap).unwrap_or_default().0;
        let uses = self.used.0.get(&id).copied().unwrap_or_default();
        let wanted = self.dice.below(may / GIB + 1) * GIB;
        // New memory within what it may have; what it has stays until it frees it.
        let now = if wanted <= may && wanted > uses { wanted } else { uses.min(self.dice.below(uses / GIB + 1) * GIB) };
        self.used.0.insert(id, now);
        self.check();
    }
}

#[test]
fn nothing_is_granted_twice_however_tenants_lend() {
    let (mut started, mut reclaimed, mut lent) = (0, 0, 0);
    for seed in 0..60 {
        let (used, running, waiting) = (Used::default(), BTreeMap::new(), Vec::new());
        let (node, dice) = (Node::new(1, DOCUMENT), Dice(seed));
        let pages = BTreeMap::new();
        let mut world = World { node, dice, used, running, waiting, pages, started: 0, reclaimed: 0, lent_of_rest: 0 };
        for _ in 0..500 {
            world.step();
        }
        (started, reclaimed) = (started + world.started, reclaimed + world.reclaimed);
        lent += world.lent_of_rest;
    }
    assert!(started > 2_000 && reclaimed > 20, "{started} started, {reclaimed} times something was given back");
    assert!(lent > 100, "the free rest was lent at {lent} looks");
}
