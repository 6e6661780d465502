//! Admission against a model: what is granted is added up here as well, from what was asked and answered alone, over a
//! hundred thousand events under each policy. `GPUQUOTA_TEST_EVENTS` has more of them.

use quota_core::Bytes;
use quota_daemon::devices::{Device, Inventory, parse_uuid};
use quota_daemon::document::Document;
use quota_daemon::peer::Peer;
use quota_daemon::registry::{Action, ConnectionId, Overrides, Registry};
use quota_wire::message::{Admit, PROTOCOL_VERSION, QueueLimit, Reply};
use std::collections::BTreeMap;

const GIB: u64 = 1 << 30;
const CAPACITY_GIB: u64 = 79;
const JOBS_MAX: usize = 6;
const AGING_MS: u64 = 600_000;
const CLASSES: [&str; 3] = ["batch", "normal", "high"];

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn uuid(index: usize) -> String {
    format!("GPU-0000000{index}-0000-0000-0000-00000000000{index}")
}

/// A job as it was asked for.
#[derive(Clone, Debug)]
struct Job {
    uid: u32,
    class: usize,
    memory_gib: u64,
    guarantee: u32,
    /// Devices it may have, and how many of them it wants.
    devices: Vec<usize>,
    count: usize,
    since_ms: u64,
    arrival: u64,
}

/// The node as it is seen from outside.
struct Model {
    registry: Registry,
    dice: Dice,
    policy: &'static str,
    devices: usize,
    now_ms: u64,
    arrivals: u64,
    waiting: BTreeMap<ConnectionId, Job>,
    position: BTreeMap<ConnectionId, u32>,
    running: BTreeMap<ConnectionId, (Job, Vec<usize>)>,
    started: u64,
}

impl Model {
    fn new(policy: &'static str, devices: usize, seed: u64) -> Self {
        let device = |index| Device {
            uuid: parse_uuid(&uuid(index)).expect("legal"),
            uuid_text: uuid(index),
            name: "A100".to_owned(),
            total: Bytes((CAPACITY_GIB + 1) * GIB),
            mig: "disabled".to_owned(),
            ..Device::default()
        };
        let inventory = Inventory { driver: "595.0".to_owned(), devices: (0..devices).map(device).collect() };
        let text = format!(
            "{{scheduling: {{policy: {policy}, aging: 10m}}, devices: [{{memory_reserve: 1GiB, max_jobs: {JOBS_MAX}}}]}}"
        );
        let document = Document::parse(&text).expect("legal");
        let registry = Registry::new(&inventory, &document, Overrides::default()).expect("it fits");
        let (waiting, position, running) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let dice = Dice(seed);
        Self { registry, dice, policy, devices, now_ms: 0, arrivals: 0, waiting, position, running, started: 0 }
    }

    fn arrive(&mut self) {
        self.arrivals += 1;
        let some = self.dice.below(self.devices as u64 + 1) as usize;
        // One of them, some of all, or all.
        let devices: Vec<usize> = match some {
            0 => (0..self.devices).collect(),
            one => vec![one - 1],
        };
        let count = match self.dice.below(2) {
            0 => devices.len(),
            _ => 1 + self.dice.below(devices.len() as u64) as usize,
        };
        let most_gib = if self.dice.below(4) == 0 { CAPACITY_GIB } else { 20 };
        let job = Job {
            uid: 1 + self.dice.below(4) as u32,
            class: self.dice.below(3) as usize,
            memory_gib: 1 + self.dice.below(most_gib),
            guarantee: if self.dice.below(3) == 0 { 500 * (1 + self.dice.below(12) as u32) } else { 0 },
            devices,
            count,
            since_ms: self.now_ms,
            arrival: self.arrivals,
        };
        let connection = ConnectionId(self.arrivals);
        let devices: Vec<String> = job.devices.iter().map(usize::to_string).collect();
        let admit = Admit {
            version: PROTOCOL_VERSION,
            memory: Some(format!("{}GiB", job.memory_gib)),
            guarantee: Some(job.guarantee).filter(|guarantee| *guarantee > 0),
            priority: Some(CLASSES[job.class].to_owned()),
            device: Some(devices.join(",")),
            count: Some(job.count as u32),
            queue: Some(QueueLimit::Forever),
            ..Admit::default()
        };
        let peer = Peer { pid: 1, uid: job.uid, ..Peer::default() };
        self.waiting.insert(connection, job);
        let mut actions = Vec::new();
        self.registry.admit(connection, &peer, &admit, self.now_ms, &mut actions);
        self.take(actions);
    }

    fn end(&mut self) {
        let at = self.dice.below(self.running.len().max(1) as u64) as usize;
        let Some(connection) = self.running.keys().nth(at).copied() else { return };
        self.running.remove(&connection);
        self.close(connection);
    }

    fn cancel(&mut self) {
        let at = self.dice.below(self.waiting.len().max(1) as u64) as usize;
        let Some(connection) = self.waiting.keys().nth(at).copied() else { return };
        self.waiting.remove(&connection);
        self.position.remove(&connection);
        self.close(connection);
    }

    fn close(&mut self, connection: ConnectionId) {
        let mut actions = Vec::new();
        self.registry.pass_time(self.now_ms);
        self.registry.closed(connection, &mut actions);
        self.take(actions);
    }

    fn take(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Reply(connection, Reply::Granted(granted)) => {
                    let job = self.waiting.remove(&connection).expect("it waited");
                    self.position.remove(&connection);
                    let devices: Vec<usize> =
                        (0..self.devices).filter(|at| granted.devices.contains(&uuid(*at))).collect();
                    assert_eq!(devices.len(), job.count, "as many as it wanted");
                    assert!(devices.iter().all(|at| job.devices.contains(at)), "of those that it may have");
                    self.running.insert(connection, (job, devices));
                    self.started += 1;
                }
                Action::Reply(connection, Reply::Waiting { position, .. }) => {
                    self.position.insert(connection, position);
                }
                Action::Reply(_, Reply::Refused { reason }) => panic!("all can have a place some time: {reason}"),
                _ => {}
            }
        }
        self.check();
    }

    /// What holds on each device: memory, guarantees and places within what there is.
    fn check(&self) {
        for device in 0..self.devices {
            let on = || self.running.values().filter(|(_, devices)| devices.contains(&device)).map(|(job, _)| job);
            let memory: u64 = on().map(|job| job.memory_gib).sum();
            let guaranteed: u32 = on().map(|job| job.guarantee).sum();
            assert!(memory <= CAPACITY_GIB, "{memory} GiB on device {device}");
            assert!(guaranteed <= 9_500, "{guaranteed} on device {device}");
            assert!(on().count() <= JOBS_MAX, "{} jobs on device {device}", on().count());
        }
        assert_eq!(self.registry.active_tenants(), self.running.len());
        assert_eq!(self.position.len(), self.waiting.len(), "everybody knows where he stands");
        self.check_order();
    }

    /// Whoever has waited longer than another by more than two classes are worth is never behind it, and nobody of the same
    /// class and user is, who came first.
    fn check_order(&self) {
        for (connection, job) in &self.waiting {
            let (place, age) = (self.position[connection], (self.now_ms - job.since_ms) / AGING_MS);
            for (other, later) in self.waiting.iter().filter(|(_, later)| later.arrival > job.arrival) {
                let younger = (self.now_ms - later.since_ms) / AGING_MS;
                let older = match self.policy {
                    "fifo" => true,
                    "fair" => age > younger || later.uid == job.uid,
                    _ => age > younger + 2 || (later.class, later.uid) == (job.class, job.uid),
                };
                let order = self.position[other] > place;
                assert!(order || !older, "{}: {later:?} is before {job:?}", self.policy);
            }
        }
    }

    fn step(&mut self) {
        self.now_ms += self.dice.below(AGING_MS / 20);
        if self.registry.next_deadline_ms().is_some_and(|deadline_ms| deadline_ms <= self.now_ms) {
            let mut actions = Vec::new();
            self.registry.tick(self.now_ms, &mut actions);
            self.take(actions);
        }
        match self.dice.below(20) {
            0 => self.cancel(),
            1..=10 if self.waiting.len() < 24 => self.arrive(),
            _ => self.end(),
        }
    }

    /// Nobody comes any more: all that wait have their places in the end, and nothing is left.
    fn drain(&mut self) {
        while !self.waiting.is_empty() {
            assert!(!self.running.is_empty(), "the node is empty, and these wait: {:?}", self.waiting);
            self.end();
        }
        while !self.running.is_empty() {
            self.end();
        }
        assert!(self.registry.is_idle());
    }
}

fn play(policy: &'static str) {
    let events: u64 = std::env::var("GPUQUOTA_TEST_EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(25_000);
    let mut started = 0;
    for seed in 0..events / 500 {
        let mut model = Model::new(policy, 1 + seed as usize % 3, seed + 1);
        for _ in 0..500 {
            model.step();
        }
        started += model.started;
        model.drain();
    }
    assert!(started > events / 5, "{started} of {events}: hardly anything happened");
}

#[test]
fn the_model_holds_under_fifo() {
    play("fifo");
}

#[test]
fn the_model_holds_under_priority() {
    play("priority");
}

#[test]
fn the_model_holds_under_fair() {
    play("fair");
}

#[test]
fn the_model_holds_under_priority_fair() {
    play("priority-fair");
}

/// Two who always want more. Whoever has less is served first: who has more got its last job when it had no more than the
/// other, or when the other's next one didn't fit; and who has less leaves nothing that it could use.
#[test]
fn dominant_shares_are_fair() {
    let mut dice = Dice(1);
    for round in 0..300 {
        let wants: Vec<(u64, u32)> = (0..2).map(|_| (1 + dice.below(12), 200 + 100 * dice.below(10) as u32)).collect();
        let mut model = Model::new("fair", 1, round);
        let document = Document::parse("{scheduling: {policy: fair, aging: 30d}, devices: [{memory_reserve: 1GiB}]}");
        model.registry.apply(&document.expect("legal"), &mut Vec::new()).expect("it fits");
        let ask = |connection: u64, uid: u32, memory_gib: u64, guarantee: u32, model: &mut Model| {
            let admit = Admit {
                version: PROTOCOL_VERSION,
                memory: Some(format!("{memory_gib}GiB")),
                guarantee: Some(guarantee).filter(|it| *it > 0),
                queue: Some(QueueLimit::Forever),
                ..Admit::default()
            };
            let mut actions = Vec::new();
            let peer = Peer { pid: 1, uid, ..Peer::default() };
            model.registry.admit(ConnectionId(connection), &peer, &admit, 0, &mut actions);
        };
        ask(1, 9, CAPACITY_GIB, 0, &mut model);
        for number in 0..100 {
            for (user, (memory, guarantee)) in wants.iter().enumerate() {
                ask(10 + 2 * number + user as u64, user as u32, *memory, *guarantee, &mut model);
            }
        }
        let mut actions = Vec::new();
        model.registry.closed(ConnectionId(1), &mut actions);
        let mut jobs = [0u64; 2];
        for action in &actions {
            if let Action::Reply(connection, Reply::Granted(_)) = action {
                jobs[(connection.0 % 2) as usize] += 1;
            }
        }
        let part = |user: usize| {
            let (memory, guarantee) = wants[user];
            f64::max(memory as f64 / CAPACITY_GIB as f64, f64::from(guarantee) / 10_000.0)
        };
        let share = |user: usize| jobs[user] as f64 * part(user);
        let used = |of: &dyn Fn((u64, u32)) -> u64| (0..2).map(|user| jobs[user] * of(wants[user])).sum::<u64>();
        let (memory, guarantee) = (used(&|want| want.0), used(&|want| want.1.into()));
        let fits =
            |user: usize| memory + wants[user].0 <= CAPACITY_GIB && guarantee + u64::from(wants[user].1) <= 9_500;
        let case = format!("{wants:?}: {jobs:?} jobs, shares {:.2} {:.2}", share(0), share(1));
        let (less, more) = if share(0) <= share(1) { (0, 1) } else { (1, 0) };
        // Where both have the same, who came first is next.
        let equal = (share(0) - share(1)).abs() < 1e-9;
        assert!(!fits(less) || equal && !fits(more), "there is room for another: {case}");
        let before = share(more) - part(more);
        let others_last = (memory - wants[more].0 + wants[less].0 > CAPACITY_GIB)
            || (guarantee - u64::from(wants[more].1) + u64::from(wants[less].1) > 9_500);
        assert!(before <= share(less) + 1e-9 || others_last, "{case}");
    }
}
