//! Claims about the registry, on a node without clock or sockets.

mod audit;
mod borrow;
mod compute;
mod document;
mod drain;
mod dynamic;
mod hands;
mod identity;
mod interrupt;
mod isolation;
mod model;
mod order;
mod owners;
mod placement;
mod pools;
mod queue;
mod rows;

use super::*;
use crate::devices::{Device, DeviceSample};
use quota_wire::message::{Admit, Change, DeviceAsk, Hello, PROTOCOL_VERSION, QueueLimit};

const GIB: u64 = 1 << 30;

/// A node with 80 GiB devices, its clock, and what was done so far.
struct Node {
    registry: Registry,
    now_ms: u64,
    connections: u64,
    charged: Vec<(u32, u64)>,
}

impl Usage for Vec<(u32, u64)> {
    fn charged(&self, _tenant: TenantId, slot: u32, _device: usize) -> Bytes {
        Bytes(self.iter().filter(|(at, _)| *at == slot).map(|(_, bytes)| bytes).sum())
    }

    fn overhead(&self, _tenant: TenantId, _slot: u32, _device: usize) -> Bytes {
        Bytes(0)
    }
}

fn uuid(index: usize) -> String {
    format!("GPU-0000000{index}-0000-0000-0000-00000000000{index}")
}

fn inventory(count: usize) -> Inventory {
    let device = |index| Device {
        uuid: parse_uuid(&uuid(index)).expect("legal"),
        uuid_text: uuid(index),
        name: "A100".to_owned(),
        total: Bytes(80 * GIB),
        mig: "disabled".to_owned(),
        ..Device::default()
    };
    Inventory { driver: "595.0".to_owned(), devices: (0..count).map(device).collect() }
}

impl Node {
    fn new(count: usize, document: &str) -> Self {
        let document = Document::parse(document).expect("legal");
        let registry = Registry::new(&inventory(count), &document, Overrides::default()).expect("it fits");
        Self { registry, now_ms: 0, connections: 0, charged: Vec::new() }
    }

    fn connection(&mut self) -> ConnectionId {
        self.connections += 1;
        ConnectionId(self.connections)
    }

    fn admit(&mut self, uid: u32, admit: Admit) -> (ConnectionId, Vec<Action>) {
        let connection = self.connection();
        let mut actions = Vec::new();
        let admit = Admit { version: PROTOCOL_VERSION, ..admit };
        self.registry.admit(connection, &peer(1, uid), &admit, self.now_ms, &mut actions);
        (connection, actions)
    }

    /// A job that must get its place at once.
    fn job(&mut self, name: &str, memory: &str) -> ConnectionId {
        let (connection, actions) = self.admit(7, admit(name, memory));
        assert_eq!(granted(&actions), [(connection, name.to_owned())], "{actions:?}");
        connection
    }

    fn refusal(&mut self, uid: u32, admit: Admit) -> String {
        let (connection, actions) = self.admit(uid, admit);
        refused(&actions, connection).unwrap_or_else(|| panic!("{actions:?}"))
    }

    fn hello(&mut self, peer: &Peer, hello: Hello) -> (ConnectionId, Vec<Action>) {
        let connection = self.connection();
        let mut actions = Vec::new();
        let hello = Hello { version: PROTOCOL_VERSION, pid: peer.pid, ..hello };
        self.registry.hello(connection, peer, &hello, &mut actions);
        (connection, actions)
    }

    /// A process that must be let in: its connection and welcome.
    fn member(&mut self, peer: &Peer, hello: Hello) -> (ConnectionId, Welcome) {
        let (connection, actions) = self.hello(peer, hello);
        let welcome = actions.iter().find_map(|action| match action {
            Action::Welcome(welcome) => Some(welcome.clone()),
            _ => None,
        });
        (connection, welcome.unwrap_or_else(|| panic!("{actions:?}")))
    }

    fn closed(&mut self, connection: ConnectionId) -> Vec<Action> {
        let mut actions = Vec::new();
        self.registry.closed(connection, &mut actions);
        actions
    }

    fn died(&mut self, connection: ConnectionId) -> Vec<Action> {
        let mut actions = Vec::new();
        self.registry.died(connection, &mut actions);
        actions
    }

    fn set(&mut self, change: Change) -> Result<String, String> {
        self.registry.set(&change, &self.charged, &mut Vec::new())
    }

    fn cap(&self, name: &str) -> Option<u64> {
        let id = self.registry.tenant_named(name).expect("there is one");
        self.registry.effective(id, 0).and_then(|quota| quota.memory_cap).map(|cap| cap.0 / GIB)
    }
}

fn peer(pid: u32, uid: u32) -> Peer {
    Peer { pid, uid, cgroup: "/session".to_owned(), started: "2026-01-01T00:00:00Z".to_owned() }
}

fn admit(name: &str, memory: &str) -> Admit {
    Admit { tenant: Some(name.to_owned()), memory: Some(memory.to_owned()), ..Admit::default() }
}

fn queued(name: &str, memory: &str, limit: QueueLimit) -> Admit {
    Admit { queue: Some(limit), ..admit(name, memory) }
}

fn hello(name: Option<&str>, memory: Option<u64>, devices: usize) -> Hello {
    let ask = |index| DeviceAsk {
        uuid: uuid(index),
        total_bytes: 80 * GIB,
        memory_bytes: memory.map(|gib| gib * GIB),
        compute: None,
    };
    Hello { tenant: name.map(str::to_owned), devices: (0..devices).map(ask).collect(), ..Hello::default() }
}

fn granted(actions: &[Action]) -> Vec<(ConnectionId, String)> {
    let grant = |action: &Action| match action {
        Action::Reply(connection, Reply::Granted(granted)) => Some((*connection, granted.tenant.clone())),
        _ => None,
    };
    actions.iter().filter_map(grant).collect()
}

fn refused(actions: &[Action], wanted: ConnectionId) -> Option<String> {
    actions.iter().find_map(|action| match action {
        Action::Reply(connection, Reply::Refused { reason }) if *connection == wanted => Some(reason.clone()),
        _ => None,
    })
}

fn waits(actions: &[Action], wanted: ConnectionId) -> Option<(u32, String)> {
    actions.iter().rev().find_map(|action| match action {
        Action::Reply(connection, Reply::Waiting { position, reason }) if *connection == wanted => {
            Some((*position, reason.clone()))
        }
        _ => None,
    })
}

#[test]
fn a_refusal_has_all_the_numbers() {
    let mut node = Node::new(1, "");
    node.job("a", "40GiB");
    node.job("b", "20GiB");
    assert_eq!(
        node.refusal(7, admit("c", "40GiB")),
        "40 GiB on device 0 do not fit: 79.50 GiB capacity, 60 GiB granted to 2 tenants (a: 40 GiB, b: 20 GiB), 19.50 GiB left; wait with --queue"
    );
    node.job("d", "19.5GiB");
}

#[test]
fn what_can_never_fit_is_told_so_even_with_a_queue() {
    let mut node = Node::new(1, "tenants:\n  - {name: vision, memory: 40GiB}\n");
    let wanted = "80 GiB on device 0 can never fit: 79.50 GiB capacity (80 GiB less 512 MiB reserve)";
    assert_eq!(node.refusal(7, queued("a", "100%", QueueLimit::Forever)), wanted);
    assert!(node.refusal(7, queued("a", "50%", QueueLimit::Forever)).contains("40 GiB of it set aside"));
    node.job("a", "39.5GiB");
}

#[test]
fn bad_words_are_refused_whole() {
    let mut node = Node::new(2, "");
    let with = |change: fn(&mut Admit)| {
        let mut ask = admit("a", "1GiB");
        change(&mut ask);
        ask
    };
    for (ask, word) in [
        (with(|ask| ask.memory = Some("12Q".to_owned())), "12Q"),
        (with(|ask| ask.tenant = Some("a b".to_owned())), "tenant"),
        (with(|ask| ask.compute = Some(0)), "compute"),
        (with(|ask| ask.weight = Some(0)), "weight"),
        (with(|ask| ask.priority = Some("urgent".to_owned())), "priority"),
        (with(|ask| ask.device = Some("2".to_owned())), "the devices are 0 (GPU-00000000"),
        (
            with(|ask| {
                ask.compute = Some(3000);
                ask.guarantee = Some(4000);
            }),
            "above the compute cap",
        ),
    ] {
        let reason = node.refusal(7, ask);
        assert!(reason.contains(word), "{reason}");
    }
    assert!(node.registry.is_idle(), "nothing is left of it");
}

#[test]
fn a_quota_is_per_device_and_a_device_can_be_chosen() {
    let mut node = Node::new(2, "");
    node.job("both", "50GiB");
    assert!(node.refusal(7, admit("c", "30GiB")).contains("device 0"));
    let (connection, actions) = node.admit(7, Admit { device: Some("gpu-00000001".to_owned()), ..admit("d", "29GiB") });
    assert!(granted(&actions).contains(&(connection, "d".to_owned())), "{actions:?}");
}

#[test]
fn names_are_made_up_from_the_command() {
    let mut node = Node::new(1, "");
    let ask = || Admit { command: "/usr/bin/python3 train.py".to_owned(), ..Admit::default() };
    let names: Vec<String> = (0..2).flat_map(|_| granted(&node.admit(7, ask()).1)).map(|(_, name)| name).collect();
    assert_eq!(names, ["python3-1", "python3-2"]);
}

#[test]
fn a_place_is_free_when_the_job_and_its_last_process_are_gone() {
    let mut node = Node::new(1, "");
    let job = node.job("a", "60GiB");
    let (first, _) = node.member(&peer(10, 7), hello(Some("a"), Some(60), 1));
    let (second, welcome) = node.member(&peer(11, 7), hello(Some("a"), None, 1));
    assert_eq!(welcome.slot, 1);
    node.closed(job);
    node.closed(first);
    assert!(node.refusal(7, admit("b", "60GiB")).contains("a: 60 GiB"), "a closed socket is not death");
    let actions = node.died(first);
    assert!(matches!(actions[0], Action::Vacate(_, 0)), "{actions:?}");
    assert!(!actions.iter().any(|action| matches!(action, Action::Forget(..))));
    let actions = node.died(second);
    assert!(actions.iter().any(|action| matches!(action, Action::Forget(..))), "{actions:?}");
    assert!(node.registry.is_idle());
    assert_eq!(node.died(second), [], "nobody dies twice");
}

#[test]
fn a_slot_is_used_again_only_after_its_owner_is_gone() {
    let mut node = Node::new(1, "");
    node.job("a", "1GiB");
    let (first, _) = node.member(&peer(10, 7), hello(Some("a"), None, 1));
    let (_, second) = node.member(&peer(11, 7), hello(Some("a"), None, 1));
    node.died(first);
    let (_, third) = node.member(&peer(12, 7), hello(Some("a"), None, 1));
    assert_eq!((second.slot, third.slot), (1, 0));
}

#[test]
fn the_environment_can_only_ask_for_less() {
    let mut node = Node::new(1, "");
    node.job("a", "20GiB");
    node.member(&peer(10, 7), hello(Some("a"), Some(70), 1));
    assert_eq!(node.cap("a"), Some(20));
    let (less, _) = node.member(&peer(11, 7), hello(Some("a"), Some(5), 1));
    assert_eq!(node.cap("a"), Some(5));
    node.died(less);
    assert_eq!(node.cap("a"), Some(20));
}

/// The page of a tenant whose other processes run already says so before the one that asks for less is let in, and follows
/// when that has gone.
#[test]
fn a_page_says_what_the_latest_process_asks_for() {
    let mut node = Node::new(1, "");
    node.job("a", "20GiB");
    node.member(&peer(10, 7), hello(Some("a"), None, 1));
    let (less, actions) = node.hello(&peer(11, 7), hello(Some("a"), Some(5), 1));
    let publish = Action::Publish(node.registry.tenant_named("a").expect("it runs"));
    let published = actions.iter().position(|action| *action == publish);
    let welcome = actions.iter().position(|action| matches!(action, Action::Welcome(_)));
    assert!(published.is_some() && published < welcome, "{actions:?}");
    assert!(node.died(less).contains(&publish));
}

#[test]
fn asking_again_for_what_was_admitted_does_not_undo_a_raise() {
    let mut node = Node::new(1, "");
    node.job("a", "20GiB");
    node.member(&peer(10, 7), hello(Some("a"), Some(20), 1));
    let change = |memory: &str| Change { tenant: "a".to_owned(), memory: Some(memory.to_owned()), ..Change::default() };
    node.set(change("30GiB")).expect("there is room");
    node.member(&peer(11, 7), hello(Some("a"), Some(20), 1));
    assert_eq!(node.cap("a"), Some(30));
    node.set(change("10GiB")).expect("less is always possible");
    assert_eq!(node.cap("a"), Some(10));
}

#[test]
fn a_change_needs_room_and_says_what_is_above_it() {
    let mut node = Node::new(1, "");
    node.job("a", "40GiB");
    node.job("b", "30GiB");
    node.charged = vec![(0, 25 * GIB)];
    let (_, _) = node.member(&peer(10, 7), hello(Some("b"), None, 1));
    let change = |memory: &str| Change { tenant: "b".to_owned(), memory: Some(memory.to_owned()), ..Change::default() };
    let reason = node.set(change("40GiB")).expect_err("no room");
    assert!(reason.contains("40 GiB on device 0 do not fit") && reason.contains("(a: 40 GiB)"), "{reason}");
    assert_eq!(node.cap("b"), Some(30), "refused whole");
    let message = node.set(change("20GiB")).expect("less is always possible");
    assert!(message.contains("25 GiB are in use"), "{message}");
    node.set(Change { tenant: "b".to_owned(), weight: Some(300), ..Change::default() }).expect("no memory in it");
    assert!(
        node.set(Change { tenant: "b".to_owned(), ..Change::default() })
            .expect_err("empty")
            .contains("nothing to change")
    );
    let reason =
        node.set(Change { tenant: "z".to_owned(), weight: Some(1), ..Change::default() }).expect_err("unknown");
    assert!(reason.contains("there are: a, b"), "{reason}");
}

#[test]
fn a_lowered_quota_lets_the_queue_move() {
    let mut node = Node::new(1, "");
    node.job("a", "60GiB");
    let (waiting, _) = node.admit(7, queued("b", "40GiB", QueueLimit::Forever));
    let change = Change { tenant: "a".to_owned(), memory: Some("30GiB".to_owned()), ..Change::default() };
    let mut actions = Vec::new();
    node.registry.set(&change, &node.charged, &mut actions).expect("less");
    assert_eq!(granted(&actions), [(waiting, "b".to_owned())]);
}

#[test]
fn processes_with_a_quota_in_their_environment_are_admitted_like_jobs() {
    let mut node = Node::new(1, "");
    node.job("a", "60GiB");
    let (first, actions) = node.hello(&peer(10, 7), hello(None, Some(30), 1));
    assert!(refused(&actions, first).expect("no room").contains("a: 60 GiB"));
    assert_eq!(node.registry.active_tenants(), 1, "nothing is left of it");
    let (_, one) = node.member(&peer(10, 7), hello(None, Some(10), 1));
    let (_, two) = node.member(&peer(11, 7), hello(None, Some(50), 1));
    assert_eq!((one.name.as_str(), one.tenant), ("user-7@session", two.tenant), "one quota for user and cgroup");
    assert_eq!(node.cap("user-7@session"), Some(10));
    let other = Peer { cgroup: "/other".to_owned(), ..peer(12, 7) };
    assert_ne!(node.member(&other, hello(None, Some(1), 1)).1.tenant, one.tenant);
}

#[test]
fn who_asks_for_nothing_is_unmanaged_and_not_counted() {
    let mut node = Node::new(1, "");
    let (_, free) = node.member(&peer(10, 7), hello(None, None, 1));
    assert_eq!(node.cap(&free.name), None);
    let (_, asked) = node.member(&peer(11, 7), hello(None, Some(79), 1));
    assert_ne!(free.tenant, asked.tenant);
    let rows = node.registry.process_rows(&rows::view(&node.charged, &[]), &|_| None);
    let states: Vec<(u32, &str)> = rows.iter().map(|row| (row.pid, row.state.as_str())).collect();
    assert_eq!(states, [(10, "unmanaged"), (11, "running")]);
}

#[test]
fn a_default_of_the_document_holds_for_who_asks_for_nothing() {
    let mut node = Node::new(1, "devices:\n  - {defaults: {memory: 50%}}\n");
    let (_, actions) = node.admit(7, Admit { tenant: Some("a".to_owned()), ..Admit::default() });
    assert_eq!(granted(&actions).len(), 1);
    assert_eq!(node.cap("a"), Some(40));
    let (connection, actions) = node.hello(&peer(10, 8), hello(None, None, 1));
    assert!(refused(&actions, connection).expect("no second half").contains("40 GiB on device 0 do not fit"));
}

#[test]
fn a_name_is_its_owners() {
    let mut node = Node::new(1, "tenants:\n  - {name: vision, memory: 10GiB, match: {uid: 9}}\n");
    node.job("a", "10GiB");
    assert!(node.refusal(8, admit("a", "1GiB")).contains("belongs to user 7"));
    let (connection, actions) = node.hello(&peer(10, 8), hello(Some("a"), None, 1));
    assert!(refused(&actions, connection).expect("not his").contains("belongs to user 7"));
    node.member(&peer(11, 0), hello(Some("a"), None, 1));
    assert!(node.refusal(8, admit("vision", "1GiB")).contains("not for user 8"));
    let (_, welcome) = node.member(&peer(12, 9), hello(None, Some(70), 1));
    assert_eq!((welcome.name.as_str(), node.cap("vision")), ("vision", Some(10)), "found by its rule");
}

#[test]
fn several_runs_share_a_tenant() {
    let mut node = Node::new(1, "");
    let first = node.job("a", "20GiB");
    let second = node.job("a", "20GiB");
    assert!(node.refusal(7, admit("a", "30GiB")).contains("gpuquota set a --memory 30GiB"));
    node.closed(first);
    assert_eq!(node.registry.active_tenants(), 1);
    node.closed(second);
    assert!(node.registry.is_idle());
}

#[test]
fn a_device_takes_so_many_jobs() {
    let mut node = Node::new(1, "devices:\n  - {max_jobs: 2}\n");
    let first = node.job("a", "1GiB");
    node.job("b", "1GiB");
    assert!(node.refusal(7, admit("c", "1GiB")).contains("at most 2 jobs"));
    let (waiting, _) = node.admit(7, queued("c", "1GiB", QueueLimit::Forever));
    assert_eq!(granted(&node.closed(first)), [(waiting, "c".to_owned())]);
}

#[test]
fn a_job_can_use_only_the_devices_it_was_given() {
    let mut node = Node::new(2, "");
    node.admit(7, Admit { device: Some("1".to_owned()), ..admit("a", "1GiB") });
    let mut both = hello(Some("a"), None, 2);
    both.devices.push(DeviceAsk { uuid: "GPU-unknown".to_owned(), ..DeviceAsk::default() });
    let (_, welcome) = node.member(&peer(10, 7), both);
    assert_eq!(welcome.devices, [None, Some(1), None]);
}

#[test]
fn junk_in_a_hello_is_refused() {
    let mut node = Node::new(1, "");
    for bad in [
        Hello { tenant: Some("a b".to_owned()), ..hello(None, None, 1) },
        Hello { weight: Some(0), ..hello(None, None, 1) },
        Hello { guarantee: Some(20_000), ..hello(None, None, 1) },
        Hello { priority: Some("top".to_owned()), ..hello(None, None, 1) },
        hello(None, Some(0), 1),
        hello(None, None, 1000),
    ] {
        let (connection, actions) = node.hello(&peer(10, 7), bad);
        assert!(refused(&actions, connection).is_some(), "{actions:?}");
    }
    for _ in 0..MEMBERSHIPS_PER_PROCESS_MAX {
        node.member(&peer(10, 7), hello(None, None, 1));
    }
    let (connection, actions) = node.hello(&peer(10, 7), hello(None, None, 1));
    assert!(refused(&actions, connection).expect("enough").contains("too often"));
}
