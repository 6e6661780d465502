//! Whatever is read is refused or understood: documents, packets, and what they make the registry do, drawn at random from a
//! fixed seed. `PROPTEST_CASES` has more of them tried.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use quota_core::Bytes;
use quota_daemon::devices::{Device, Inventory, parse_uuid};
use quota_daemon::document::{DOCUMENT_BYTES_MAX, Document};
use quota_daemon::peer::Peer;
use quota_daemon::registry::{Action, ConnectionId, Overrides, Registry, TenantId, Usage};
use quota_wire::audit::AuditKind;
use quota_wire::message::{Admit, Change, DeviceAsk, Hello, PROTOCOL_VERSION, QueueLimit, Reply, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;
const UUIDS: [&str; 2] = ["GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001"];

/// The same cases at every run.
fn config(cases: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() }
}

fn inventory() -> Inventory {
    let device = |uuid: &str| Device {
        uuid: parse_uuid(uuid).expect("legal"),
        uuid_text: uuid.to_owned(),
        name: "A100".to_owned(),
        total: Bytes(80 * GIB),
        mig: "disabled".to_owned(),
        ..Device::default()
    };
    Inventory { driver: "595.0".to_owned(), devices: UUIDS.iter().map(|uuid| device(uuid)).collect() }
}

const FULL: &str = "socket: /run/gpuquota/gpuquota.sock\ndevices:\n  - {select: all, sharing: time-slice, memory_reserve: 512MiB, max_jobs: 8, defaults: {memory: 20GiB, compute: 25%}}\nscheduling: {policy: priority-fair, quantum: 3ms, preemption: true}\ntenants:\n  - name: vision\n    memory: 40GiB\n    compute: {guarantee: 40%, limit: 100%, weight: 200}\n    priority: normal\n    match: {cgroup: \"*/vision-*\", uid: 1001}\naudit: {path: /var/log/gpuquota/audit.jsonl, keep: 30d}\n";

/// A document, or one line that says what is wrong; and if it is one, a registry or one line.
fn read(text: &str) {
    let begun = Instant::now();
    match Document::parse(text) {
        Ok(document) => {
            let registry = Registry::new(&inventory(), &document, Overrides::default());
            match registry {
                Ok(registry) => registry.check_granted().expect("what can't be granted is refused"),
                Err(reason) => assert_eq!(reason.lines().count(), 1, "{reason}"),
            }
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{text:?}: {error}"),
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{text:?}");
}

/// Pieces of documents, so that more than the first sign is right.
fn pieces() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "socket",
        "devices",
        "tenants",
        "audit",
        "scheduling",
        "name",
        "memory",
        "compute",
        "match",
        "keep",
        "path",
        "select",
        ": ",
        ":",
        "- ",
        "\n",
        "\n  ",
        "\n    ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "&a ",
        "*a",
        "!!str ",
        "|",
        ">",
        "\"",
        "'",
        "#",
        "%",
        "---\n",
        "20GiB",
        "18446744073709551616",
        "-1",
        "1e999",
        ".inf",
        "0x7f",
        "~",
        "true",
        "all",
        "/a",
        "\u{0}",
        "\u{feff}",
        "\t",
        "ü",
        "<<",
    ]);
    prop::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn any_text_is_a_document_or_refused_in_one_line(text in ".{0,200}") {
        read(&text);
    }

    #[test]
    fn pieces_of_documents_are_documents_or_refused_in_one_line(text in pieces()) {
        read(&text);
    }

    #[test]
    fn a_document_with_mistakes_is_refused_in_one_line(at in 0..FULL.len(), gone in 0usize..20, put in "[\\PC\n\t]{0,6}") {
        let end = (at + gone).min(FULL.len());
        read(&format!("{}{put}{}", &FULL[..at], &FULL[end..]));
    }
}

/// What costs more to read than to write.
#[test]
fn bombs_are_refused_in_time() {
    let laughs = (1..20).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, level| {
        let names = vec![format!("*a{}", level - 1); 9].join(", ");
        text + &format!("a{level}: &a{level} [{names}]\n")
    });
    let most = DOCUMENT_BYTES_MAX as usize;
    read(&laughs);
    read(&format!("devices: {}", "[".repeat(most - 9)));
    read(&"{a: ".repeat(most / 4));
    read(&"- ".repeat(most / 2));
    read(&format!("tenants: [{}]", "{name: a}, ".repeat(most / 11 - 2)));
    read(&format!("tenants: [{{name: a, match: {{cgroup: \"{}\"}}}}]", "*a".repeat(most / 2 - 30)));
    let pattern = Document::parse(&format!("tenants: [{{name: a, match: {{cgroup: \"{}b\"}}}}]", "*a".repeat(20_000)));
    let begun = Instant::now();
    assert!(!pattern.expect("legal").tenants[0].matches.covers(1, &"a".repeat(60_000)));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// Something that a client or the kernel does.
#[derive(Clone, Debug)]
enum Step {
    Hello(u8, Hello),
    Admit(u8, Admit),
    Closed(u8),
    Died(u8),
    Left(u8),
    Set(Change),
    Pause(String, bool),
    Apply(u8),
    Tick(u16),
}

fn name() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        2 => Just(None),
        6 => prop::sample::select(vec!["a", "b", "c", "s", "t", "s/x", "s/y", "t/x"]).prop_map(|name| Some(name.to_owned())),
        1 => ".{0,150}".prop_map(Some),
    ]
}

fn size() -> impl Strategy<Value = Option<String>> {
    let words =
        vec!["1GiB", "10GiB", "30GiB", "50%", "79GiB", "200GiB", "1", "0", "12Q", "99999999999999999999GiB", ""];
    prop::option::of(prop::sample::select(words).prop_map(str::to_owned))
}

fn hundredths() -> impl Strategy<Value = Option<u32>> {
    prop::option::of(prop_oneof![4 => 100u32..=10_000, 1 => any::<u32>()])
}

fn class() -> impl Strategy<Value = Option<String>> {
    prop::option::of(prop::sample::select(vec!["batch", "normal", "high", "urgent"]).prop_map(str::to_owned))
}

fn weight() -> impl Strategy<Value = Option<u32>> {
    prop::option::of(prop_oneof![4 => 1u32..=10_000, 1 => any::<u32>()])
}

fn device_ask() -> impl Strategy<Value = DeviceAsk> {
    let uuid = prop_oneof![8 => prop::sample::select(UUIDS.to_vec()).prop_map(str::to_owned), 1 => ".{0,50}"];
    let bytes = prop::option::of(prop_oneof![4 => (1..40u64).prop_map(|gib| gib * GIB), 1 => any::<u64>()]);
    (uuid, any::<u64>(), bytes, hundredths()).prop_map(|(uuid, total_bytes, memory_bytes, compute)| DeviceAsk {
        uuid,
        total_bytes,
        memory_bytes,
        compute,
    })
}

fn version() -> impl Strategy<Value = u32> {
    prop_oneof![20 => Just(PROTOCOL_VERSION), 1 => any::<u32>()]
}

fn hello() -> impl Strategy<Value = Hello> {
    let devices =
        prop_oneof![20 => prop::collection::vec(device_ask(), 0..3), 1 => prop::collection::vec(device_ask(), 0..100)];
    let rest = (weight(), class(), hundredths());
    (version(), name(), any::<u32>(), ".{0,20}", devices, rest).prop_map(
        |(version, tenant, pid, command, devices, (weight, priority, guarantee))| Hello {
            version,
            tenant,
            pid,
            command,
            devices,
            weight,
            priority,
            guarantee,
            secret: None,
        },
    )
}

fn admit() -> impl Strategy<Value = Admit> {
    let device = prop::option::of(
        prop::sample::select(vec!["0", "1", "all", "0,1", "7", "", ",", "GPU-0"]).prop_map(str::to_owned),
    );
    let queue =
        prop::option::of(prop_oneof![Just(QueueLimit::Forever), any::<u64>().prop_map(QueueLimit::Milliseconds)]);
    let shares = (hundredths(), hundredths(), weight(), class());
    let count = prop::option::of(prop_oneof![8 => 1u32..3, 1 => any::<u32>()]);
    (version(), name(), ".{0,20}", size(), shares, (device, count, any::<bool>()), queue).prop_map(
        |(version, tenant, command, memory, (compute, guarantee, weight, priority), devices, queue)| Admit {
            version,
            tenant,
            command,
            memory,
            compute,
            guarantee,
            weight,
            priority,
            device: devices.0,
            count: devices.1,
            oversubscribe: devices.2,
            queue,
            ..Admit::default()
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    (name(), size(), hundredths(), hundredths(), weight(), class()).prop_map(
        |(tenant, memory, compute, guarantee, weight, priority)| Change {
            tenant: tenant.unwrap_or_default(),
            memory,
            compute,
            guarantee,
            weight,
            priority,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u8>(), hello()).prop_map(|(at, hello)| Step::Hello(at % 32, hello)),
        6 => (any::<u8>(), admit()).prop_map(|(at, admit)| Step::Admit(at % 32, admit)),
        3 => any::<u8>().prop_map(|at| Step::Closed(at % 32)),
        3 => any::<u8>().prop_map(|at| Step::Died(at % 32)),
        1 => any::<u8>().prop_map(|at| Step::Left(at % 32)),
        3 => change().prop_map(Step::Set),
        1 => (name(), any::<bool>()).prop_map(|(name, paused)| Step::Pause(name.unwrap_or_default(), paused)),
        1 => any::<u8>().prop_map(Step::Apply),
        1 => any::<u16>().prop_map(Step::Tick),
    ]
}

struct Claims;

impl Usage for Claims {
    fn charged(&self, tenant: TenantId, slot: u32, _device: usize) -> Bytes {
        // As absurd as a tenant can write it.
        Bytes(u64::MAX - u64::from(slot) * tenant.number())
    }

    fn overhead(&self, _tenant: TenantId, _slot: u32, _device: usize) -> Bytes {
        Bytes(u64::MAX)
    }
}

const DOCUMENTS: [&str; 7] = [
    "",
    "tenants: [{name: s, memory: 20GiB}]\n",
    "tenants: [{name: s, memory: 10GiB, compute: {guarantee: 30%}}, {name: t}]\ndevices: [{select: all, max_jobs: 3}]\n",
    "tenants: [{name: s, match: {uid: 7}}]\ndevices: [{select: 0, memory_reserve: 40GiB}, {select: 1, defaults: {memory: 5GiB}}]\n",
    "scheduling: {policy: fair, placement: spread}\ndevices: [{slices: 5 x 15GiB + 20%}]\ntenants: [{name: t, memory: 30GiB}]\n",
    "scheduling: {policy: priority, aging: 1m, placement: least-interference}\ndevices: [{oversubscribe: 2}]\ntenants: [{name: s, memory: 40GiB, oversubscribe: true}]\n",
    "scheduling: {preemption: true, grace: 1s}\ntenants: [{name: s, memory: 40GiB, borrow: true}, {name: t, memory: 39GiB, compute: {limit: 50%}, borrow: true}]\n",
];

/// The registry, and what everybody outside was told.
struct Outside {
    registry: Registry,
    now_ms: u64,
    /// Who is a member, by the welcomes and the vacated slots.
    members: BTreeMap<ConnectionId, (TenantId, u32)>,
    events: BTreeMap<AuditKind, i64>,
}

impl Outside {
    fn take(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Welcome(welcome) => {
                    let slot = (welcome.tenant, welcome.slot);
                    assert!(!self.members.values().any(|taken| *taken == slot), "{slot:?} is given twice");
                    self.members.insert(welcome.connection, slot);
                }
                Action::Vacate(tenant, slot) => self.members.retain(|_, taken| *taken != (tenant, slot)),
                Action::Audit(event) => *self.events.entry(event.event).or_default() += 1,
                Action::Reply(_, Reply::Refused { reason }) => {
                    assert!(!reason.is_empty() && reason.lines().count() == 1, "{reason:?}");
                }
                _ => {}
            }
        }
        let told: BTreeSet<(ConnectionId, TenantId, u32)> =
            self.members.iter().map(|(connection, (tenant, slot))| (*connection, *tenant, *slot)).collect();
        let known: BTreeSet<(ConnectionId, TenantId, u32)> =
            self.registry.members().map(|member| (member.connection, member.tenant, member.slot)).collect();
        assert_eq!(told, known);
        self.registry.check_granted().expect("no more is granted than there is");
        let count = |kind| self.events.get(&kind).copied().unwrap_or_default();
        let left = count(AuditKind::Died) + count(AuditKind::Left) - self.ended_jobs();
        assert_eq!(count(AuditKind::Joined) - left, self.members.len() as i64, "{:?}", self.events);
    }

    /// What `left` says of jobs: as many as were granted on a connection and have ended.
    fn ended_jobs(&self) -> i64 {
        self.events.get(&AuditKind::Lost).copied().unwrap_or_default()
    }

    fn step(&mut self, step: Step) {
        let connection = |at: u8| ConnectionId(u64::from(at) + 8);
        let peer = |at: u8| Peer {
            pid: u32::from(at / 2) + 100,
            uid: u32::from(at % 3),
            cgroup: format!("/{}", at % 5),
            ..Peer::default()
        };
        let mut actions = Vec::new();
        match step {
            Step::Hello(at, hello) if !self.registry.is_member(connection(at)) => {
                self.registry.hello(connection(at), &peer(at), &hello, &mut actions);
            }
            Step::Hello(..) => {}
            Step::Admit(at, admit) => {
                self.registry.admit(connection(at), &peer(at), &admit, self.now_ms, &mut actions);
            }
            Step::Closed(at) => {
                self.registry.closed(connection(at), &mut actions);
                let ended = actions
                    .iter()
                    .filter(|action| matches!(action, Action::Audit(event) if event.event == AuditKind::Left))
                    .count();
                *self.events.entry(AuditKind::Lost).or_default() += ended as i64;
            }
            Step::Died(at) => self.registry.died(connection(at), &mut actions),
            Step::Left(at) => self.registry.left(connection(at), &mut actions),
            Step::Set(change) => drop(self.registry.set(&change, &Claims, &mut actions)),
            Step::Pause(name, paused) => drop(self.registry.pause(&name, paused, &mut actions)),
            Step::Apply(which) => {
                let document = Document::parse(DOCUMENTS[usize::from(which) % DOCUMENTS.len()]).expect("legal");
                let _ = self.registry.apply(&document, &mut actions);
            }
            Step::Tick(later_ms) => {
                self.now_ms += u64::from(later_ms);
                self.registry.tick(self.now_ms, &mut actions);
            }
        }
        self.take(actions);
    }
}

proptest! {
    #![proptest_config(config(256))]

    /// Whatever clients say and in whatever order: no more is granted than there is, no slot twice, each who joined is written
    /// down as gone once, and when all are gone nothing is left.
    #[test]
    fn no_order_of_events_grants_too_much(document in 0..DOCUMENTS.len(), steps in prop::collection::vec(step(), 0..80)) {
        let document = Document::parse(DOCUMENTS[document]).expect("legal");
        let registry = Registry::new(&inventory(), &document, Overrides::default()).expect("it fits");
        let mut outside = Outside { registry, now_ms: 0, members: BTreeMap::new(), events: BTreeMap::new() };
        for step in steps {
            outside.step(step);
        }
        for at in 0..32 {
            outside.step(Step::Closed(at));
            outside.step(Step::Died(at));
        }
        prop_assert!(outside.registry.is_idle());
        outside.step(Step::Apply(0));
        prop_assert!(outside.registry.find("s").is_err());
    }

    /// What a packet may hold is a request or none; what isn't one says so.
    #[test]
    fn bytes_are_a_request_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(serde_json::from_slice::<Request>(&bytes).is_err());
    }

    #[test]
    fn a_request_comes_back_as_it_was(hello in hello(), admit in admit(), change in change()) {
        for request in [Request::Hello(hello), Request::Admit(admit), Request::Set(change)] {
            let text = serde_json::to_vec(&request).expect("JSON");
            prop_assert_eq!(serde_json::from_slice::<Request>(&text).expect("its own"), request);
        }
    }
}
