//! Tenants that want devices to themselves.

use super::*;

const DOCUMENT: &str = "tenants: [{name: vision, memory: 20GiB, isolation: own-device, share_with: [friend]},
    {name: friend}, {name: other, memory: 10GiB}, {name: rival, isolation: own-device}]";

pub(super) fn on(device: &str, ask: Admit) -> Admit {
    Admit { device: Some(device.to_owned()), ..ask }
}

pub(super) fn waiting(name: &str, memory: &str) -> Admit {
    on("0", queued(name, memory, QueueLimit::Forever))
}

/// A job of a tenant that asks for none of its memory.
pub(super) fn plain(name: &str) -> Admit {
    on("0", Admit { tenant: Some(name.to_owned()), ..Admit::default() })
}

impl Node {
    pub(super) fn placed_on(&mut self, ask: Admit) -> (ConnectionId, Vec<String>) {
        let (connection, actions) = self.admit(7, ask);
        let devices = actions.iter().find_map(|action| match action {
            Action::Reply(to, Reply::Granted(granted)) if *to == connection => Some(granted.devices.clone()),
            _ => None,
        });
        (connection, devices.unwrap_or_else(|| panic!("{actions:?}")))
    }

    pub(super) fn waits(&mut self, ask: Admit) -> (ConnectionId, String) {
        let (connection, actions) = self.admit(7, ask);
        (connection, waits(&actions, connection).unwrap_or_else(|| panic!("{actions:?}")).1)
    }

    fn apply_text(&mut self, text: &str) -> Result<String, String> {
        self.registry.apply(&Document::parse(text).expect("legal"), &mut Vec::new())
    }
}

/// The changes that are written down: which, about which tenant, on which devices, why.
fn changes<'a>(actions: &'a [Action]) -> Vec<(&'a str, Option<&'a str>, usize, &'a str)> {
    let told = |action: &'a Action| match action {
        Action::Audit(event) => {
            Some((event.change.as_deref()?, event.tenant.as_deref(), event.devices.len(), event.reason.as_deref()?))
        }
        _ => None,
    };
    actions.iter().filter_map(told).collect()
}

#[test]
fn nobody_is_placed_where_a_tenant_has_the_device_for_itself() {
    let mut node = Node::new(2, DOCUMENT);
    let (vision, _) = node.placed_on(plain("vision"));
    assert_eq!(
        node.refusal(7, on("0", admit("a", "1GiB"))),
        "device 0 is tenant vision's own while it runs, unless an administrator allows a job that waits to share it; wait with --queue"
    );
    assert!(node.refusal(7, plain("other")).starts_with("device 0 is tenant vision's own"));
    let (_, reason) = node.waits(waiting("a", "1GiB"));
    assert_eq!(
        reason,
        "device 0 is tenant vision's own while it runs; an administrator may allow it: gpuquota approve 4"
    );
    // Elsewhere there is room: it is by its job on device 0 alone.
    node.placed_on(on("1", admit("b", "1GiB")));
    let (_, devices) = node.placed_on(Admit { count: Some(1), ..admit("c", "1GiB") });
    assert_eq!(devices, [uuid(1)], "a device is chosen that it may have");
    let actions = node.closed(vision);
    assert_eq!(granted(&actions).len(), 1, "{actions:?}");
}

#[test]
fn it_is_not_placed_where_somebody_is() {
    let mut node = Node::new(2, DOCUMENT);
    let (a, _) = node.placed_on(on("0", admit("a", "1GiB")));
    let refusal = node.refusal(7, plain("vision"));
    assert!(refusal.starts_with("tenant vision is to have device 0 for itself, and a runs there"), "{refusal}");
    let (_, devices) = node.placed_on(Admit { count: Some(1), ..admit("vision", "1GiB") });
    assert_eq!(devices, [uuid(1)]);
    node.closed(a);
    node.placed_on(plain("vision"));
}

#[test]
fn its_parts_and_those_it_names_share_with_it() {
    let mut node = Node::new(1, DOCUMENT);
    node.placed_on(on("0", admit("vision", "5GiB")));
    node.placed_on(on("0", admit("vision/eval", "5GiB")));
    node.placed_on(plain("friend"));
    node.placed_on(on("0", admit("friend/x", "5GiB")));
    assert!(node.refusal(7, plain("other")).contains("vision's own"));
    assert!(node.refusal(7, plain("rival")).contains("device 0 is tenant vision's own"), "both want it");
    let mut node = Node::new(1, DOCUMENT);
    node.placed_on(plain("rival"));
    assert!(node.refusal(7, plain("friend")).contains("rival's own"));
}

/// A process that asks nobody but the shim is told the same.
#[test]
fn a_process_without_run_is_kept_apart_too() {
    let mut node = Node::new(2, DOCUMENT);
    let (vision, _) = node.member(&peer(10, 7), hello(Some("vision"), None, 1));
    let (connection, actions) = node.hello(&peer(11, 7), hello(Some("a"), Some(1), 1));
    assert!(refused(&actions, connection).expect("refused").contains("vision's own"), "{actions:?}");
    let (connection, actions) = node.hello(&peer(12, 7), hello(Some("other"), None, 2));
    assert!(refused(&actions, connection).expect("refused").contains("vision's own"), "{actions:?}");
    node.member(&peer(13, 7), hello(Some("vision"), None, 1));
    assert!(node.registry.tenant_named("a").is_none(), "nothing is left of it");
    // Nor does it get before one that waits for the device to be empty.
    let (_, reason) = node.waits(waiting("b", "1GiB"));
    assert!(reason.contains("vision's own"), "{reason}");
    node.died(vision);
    assert!(node.refusal(7, plain("a")).contains("vision's own"), "its other process is there");
}

#[test]
fn who_waits_for_an_empty_device_is_not_passed() {
    let mut node = Node::new(1, DOCUMENT);
    let (a, _) = node.placed_on(on("0", admit("a", "1GiB")));
    let (vision, _) = node.waits(waiting("vision", "5GiB"));
    let (b, reason) = node.waits(waiting("b", "1GiB"));
    assert_eq!(reason, "those before it");
    let (connection, actions) = node.hello(&peer(12, 7), hello(Some("other"), None, 1));
    assert_eq!(refused(&actions, connection).as_deref(), Some("2 jobs wait for room before it"), "{actions:?}");
    let actions = node.closed(a);
    assert_eq!(granted(&actions).into_iter().map(|it| it.0).collect::<Vec<_>>(), [vision], "{actions:?}");
    // One that waits for the device's owner to leave waits for all of the owner's jobs.
    let (late, _) = node.placed_on(waiting("vision", "5GiB"));
    assert!(granted(&node.closed(vision)).is_empty());
    let actions = node.closed(late);
    assert_eq!(granted(&actions).into_iter().map(|it| it.0).collect::<Vec<_>>(), [b], "{actions:?}");
}

#[test]
fn an_administrator_may_allow_one_job() {
    let mut node = Node::new(1, DOCUMENT);
    node.placed_on(plain("vision"));
    let (a, _) = node.waits(waiting("a", "1GiB"));
    node.placed_on(on("0", admit("friend/x", "30GiB")));
    let (big, _) = node.waits(waiting("big", "30GiB"));
    let rows = node.registry.pending();
    assert_eq!(rows.len(), 1, "the other one doesn't fit anyhow: {rows:?}");
    let row = &rows[0];
    assert_eq!((row.number, row.tenant.as_deref(), row.uid), (2, Some("a"), 7));
    assert_eq!(
        (&row.devices[..], &row.uuids[..], &row.beside[..]),
        (&[0][..], &[uuid(0)][..], &["vision".to_owned()][..])
    );
    assert!(row.risk.starts_with("It would share device 0 with tenant vision, kept apart by the library's memory"));
    let mut actions = Vec::new();
    for number in [1, 4, 99] {
        let error = node.registry.approve(number, None, &mut actions).expect_err("none of them");
        assert!(error.starts_with(&format!("no request {number} waits")), "{error}");
    }
    assert_eq!(actions, []);
    let message = node.registry.approve(2, None, &mut actions).expect("it waits");
    assert_eq!(message, "request 2 may share device 0 with tenant vision for as long as it runs; it has its place");
    assert_eq!(granted(&actions), [(a, "a".to_owned())]);
    assert_eq!(changes(&actions), [("approve", Some("a"), 1, row.risk.as_str())]);
    assert!(node.registry.pending().is_empty());
    assert_eq!(node.registry.check_isolation(), Ok(()));
    node.closed(big);
    // Its processes, and more of the owner, but nobody else; and not its next job.
    node.member(&peer(20, 7), hello(Some("a"), None, 1));
    node.placed_on(plain("vision"));
    assert!(node.refusal(7, on("0", admit("b", "1GiB"))).contains("vision's own"));
    assert!(node.refusal(7, plain("a")).contains("vision's own"), "it was one job that was allowed");
}

#[test]
fn what_was_allowed_ends_with_the_job() {
    let mut node = Node::new(1, DOCUMENT);
    let (vision, _) = node.placed_on(plain("vision"));
    let (other, _) = node.waits(Admit { queue: Some(QueueLimit::Forever), ..plain("other") });
    node.registry.approve(2, None, &mut Vec::new()).expect("it waits");
    node.closed(other);
    assert!(node.refusal(7, plain("other")).contains("vision's own"), "the tenant stays, what it was allowed doesn't");
    let (process, actions) = node.hello(&peer(11, 7), hello(Some("other"), None, 1));
    assert!(refused(&actions, process).expect("refused").contains("vision's own"), "{actions:?}");
    node.closed(vision);
    // Beside one that is gone, nobody is allowed: the next of its name is somebody else.
    let (a, _) = node.placed_on(on("0", admit("a", "1GiB")));
    let (_, reason) = node.waits(Admit { queue: Some(QueueLimit::Forever), ..plain("rival") });
    assert!(reason.contains("rival is to have device 0 for itself, and a runs there"), "{reason}");
    node.registry.approve(5, None, &mut Vec::new()).expect("it waits");
    node.closed(a);
    assert!(node.refusal(7, on("0", admit("a", "1GiB"))).contains("rival's own"));
    let (process, actions) = node.hello(&peer(12, 7), hello(Some("a"), Some(1), 1));
    assert!(refused(&actions, process).expect("refused").contains("rival's own"), "{actions:?}");
}

/// Of devices that it may choose, an approval is for no more than it needs.
#[test]
fn a_job_with_a_choice_shares_as_little_as_it_can() {
    let mut node = Node::new(3, DOCUMENT);
    node.placed_on(plain("vision"));
    node.placed_on(on("2", Admit { tenant: Some("rival".to_owned()), ..Admit::default() }));
    let ask = Admit { queue: Some(QueueLimit::Forever), count: Some(2), ..admit("a", "1GiB") };
    let (a, _) = node.waits(ask);
    let rows = node.registry.pending();
    assert_eq!((&rows[0].devices[..], &rows[0].beside[..]), (&[0, 1][..], &["vision".to_owned()][..]));
    let mut actions = Vec::new();
    node.registry.approve(3, None, &mut actions).expect("it waits");
    assert_eq!(granted(&actions), [(a, "a".to_owned())]);
    assert_eq!(node.registry.check_isolation(), Ok(()));
}

/// A job comes back to the next daemon on another connection; its devices, and what it was allowed, stay its own.
#[test]
fn a_job_that_comes_back_is_where_it_was() {
    let mut node = Node::new(2, DOCUMENT);
    let (vision, _) = node.placed_on(plain("vision"));
    let (other, _) = node.waits(Admit { queue: Some(QueueLimit::Forever), ..plain("other") });
    node.registry.approve(2, None, &mut Vec::new()).expect("it waits");
    let (later, gone) = (ConnectionId(1000), ConnectionId(1001));
    node.registry.returned(vision, later, "vision", &mut Vec::new()).expect("its job");
    node.registry.returned(other, gone, "other", &mut Vec::new()).expect("its job");
    let (short, _) = node.placed_on(plain("vision"));
    node.closed(short);
    assert_eq!(node.registry.check_isolation(), Ok(()));
    assert!(node.refusal(7, on("0", admit("a", "1GiB"))).contains("vision's own"));
    node.closed(later);
    node.placed_on(on("0", admit("a", "1GiB")));
}

/// An own device is not made by interrupting those who are there: their processes would stay on it.
#[test]
fn nobody_is_interrupted_in_vain_for_an_own_device() {
    let mut node = Node::new(
        1,
        "{scheduling: {preemption: true, grace: 0s}, tenants: [{name: vision, priority: high, isolation: own-device}]}",
    );
    let low = Admit { priority: Some("batch".to_owned()), ..on("0", admit("a", "60GiB")) };
    node.placed_on(Admit { on_interrupt: Some(quota_wire::notice::Action::Checkpoint), hears: true, ..low });
    node.waits(waiting("vision", "40GiB"));
    let mut actions = Vec::new();
    node.registry.step_interruptions(0, &node.charged, &mut actions);
    let notices = actions.iter().filter(|action| matches!(action, Action::Reply(_, Reply::Notice(_)))).count();
    assert_eq!(notices, 0, "{actions:?}");
}

#[test]
fn a_denied_job_is_told_why() {
    let mut node = Node::new(1, DOCUMENT);
    node.placed_on(plain("vision"));
    let (a, _) = node.waits(waiting("a", "1GiB"));
    let mut actions = Vec::new();
    let message = node.registry.approve(2, Some("not today"), &mut actions).expect("it waits");
    assert_eq!(message, "request 2 is denied");
    assert_eq!(refused(&actions, a).as_deref(), Some("an administrator doesn't allow it: not today"));
    assert_eq!(changes(&actions), [("deny", Some("a"), 1, "request 2 is denied: not today")]);
    assert!(node.registry.pending().is_empty() && node.registry.waiting.is_empty());
}

#[test]
fn own_instances_are_of_mig_or_nothing() {
    let text = "tenants: [{name: vision, isolation: own-mig}]";
    let mut node = Node::new(2, text);
    let refusal = node.refusal(7, Admit { queue: Some(QueueLimit::Forever), ..plain("vision") });
    assert_eq!(
        refusal,
        "device 0 is no MIG instance, and tenant vision runs on MIG instances of its own alone (isolation: own-mig); gpuquota can't divide a device into them"
    );
    let (connection, actions) = node.hello(&peer(11, 7), hello(Some("vision"), None, 1));
    assert!(refused(&actions, connection).expect("refused").contains("no MIG instance"), "{actions:?}");
    let mut inventory = inventory(2);
    for device in &mut inventory.devices {
        device.uuid_text = device.uuid_text.replace("GPU-", "MIG-");
    }
    node.registry =
        Registry::new(&inventory, &Document::parse(text).expect("legal"), Overrides::default()).expect("ok");
    node.placed_on(plain("vision"));
    assert!(node.refusal(7, on("0", admit("a", "1GiB"))).contains("device 0 is tenant vision's own"));
    node.placed_on(on("1", admit("a", "1GiB")));
}

/// Instances that lie under a device, and a whole device beside them.
fn divided() -> crate::devices::Inventory {
    let mut inventory = inventory(5);
    inventory.devices[0].is_divided = true;
    for (at, gib) in [(1, 20), (2, 10), (3, 5)] {
        let device = &mut inventory.devices[at];
        (device.parent, device.total) = (Some(0), quota_core::Bytes(gib * GIB));
        device.uuid_text = device.uuid_text.replace("GPU-", "MIG-");
    }
    inventory
}

pub(super) fn divided_node(document: &str) -> Node {
    let mut node = Node::new(1, "");
    let document = Document::parse(document).expect("legal");
    node.registry = Registry::new(&divided(), &document, Overrides::default()).expect("it fits");
    node
}

pub(super) fn instance(index: usize) -> String {
    uuid(index).replace("GPU-", "MIG-")
}

#[test]
fn a_job_gets_one_instance_and_never_the_divided_device() {
    let mut node = divided_node("tenants: [{name: vision, isolation: own-mig, memory: 8GiB}]");
    let (_, devices) = node.placed_on(Admit { device: None, ..plain("vision") });
    assert_eq!(devices, [instance(2)], "the smallest that is large enough, of which it has a standing grant");
    let (_, devices) = node.placed_on(admit("a", "1GiB"));
    assert_eq!(devices, [uuid(4)], "who says nothing gets what is whole");
    let (_, devices) = node.placed_on(on("1,3", admit("b", "1GiB")));
    assert_eq!(devices, [instance(3)], "one of those it names, since a process sees one");
    let (_, devices) = node.placed_on(Admit { count: Some(2), ..on("1,3", admit("c", "1GiB")) });
    assert_eq!(devices, [instance(1), instance(3)], "or as many as it says");
    for (selection, word) in [("0", "device 0 has its MIG mode on"), (&*uuid(0), "MIG mode on"), ("0,4", "MIG mode on")]
    {
        let refusal = node.refusal(7, on(selection, admit("d", "1GiB")));
        assert!(refusal.contains(word) && refusal.contains(&instance(3)), "{refusal}");
    }
    let small = node.refusal(7, on("3", plain("vision")));
    assert!(small.contains("device 3 has 4.50 GiB capacity, less than the document gives tenant vision"), "{small}");
    // Nor does a process get anything of the device, by whatever name.
    let (connection, actions) = node.hello(&peer(11, 7), hello(None, Some(1), 1));
    assert!(refused(&actions, connection).expect("refused").contains("its MIG mode on"), "{actions:?}");
}

/// By NVML a process sees all instances; its tenant keeps to those of its jobs all the same.
#[test]
fn a_process_that_sees_all_instances_keeps_to_its_own() {
    let mut node = divided_node("tenants: [{name: vision, isolation: own-mig}, {name: speech, isolation: own-mig}]");
    let devices = [node.placed_on(on("1", plain("vision"))).1, node.placed_on(on("2", plain("speech"))).1];
    assert_eq!(devices, [vec![instance(1)], vec![instance(2)]]);
    let all = hello(Some("vision"), None, 5);
    let (_, welcome) = node.member(&peer(11, 7), all);
    let places: Vec<Option<usize>> = vec![None, Some(1), None, None, None];
    assert_eq!(welcome.devices, places);
    node.registry.check_isolation().expect("nobody is where another is");
}

#[test]
fn a_document_that_would_part_those_who_run_is_refused() {
    let mut node = Node::new(1, "tenants: [{name: vision}, {name: other}]");
    let (vision, _) = node.placed_on(plain("vision"));
    node.placed_on(plain("other"));
    let own = "tenants: [{name: vision, isolation: own-device}, {name: other}]";
    let refused = node.apply_text(own).expect_err("both run");
    assert!(refused.contains("device 0") && refused.contains("vision") && refused.contains("other"), "{refused}");
    assert_eq!(refused.lines().count(), 1);
    let shared = "tenants: [{name: vision, isolation: own-device, share_with: [other]}, {name: other}]";
    let lines = node.registry.preview(&Document::parse(shared).expect("legal"), &node.charged).expect("they may");
    assert_eq!(lines, "tenant vision: isolation from shared to own-device (share_with other)");
    node.closed(vision);
    node.apply_text(own).expect("it has ended");
    assert!(node.refusal(7, plain("vision")).contains("vision is to have device 0 for itself, and other runs"));
    let mut actions = Vec::new();
    let document = Document::parse(shared).expect("legal");
    node.registry.apply(&document, &mut actions).expect("they may");
    let told: Vec<_> = changes(&actions).into_iter().map(|(change, tenant, ..)| (change, tenant)).collect();
    assert_eq!(told, [("apply", None), ("apply", Some("vision"))], "written down");
    let mig = node.apply_text("tenants: [{name: other, isolation: own-mig}]").expect_err("it runs");
    assert!(mig.contains("no MIG instance"), "{mig}");
}

/// A restarted daemon knows who was allowed what, and on which devices jobs are.
#[test]
fn what_was_allowed_survives_the_daemon() {
    let mut node = Node::new(2, DOCUMENT);
    node.placed_on(plain("vision"));
    node.waits(Admit { queue: Some(QueueLimit::Forever), ..plain("other") });
    node.registry.approve(2, None, &mut Vec::new()).expect("it waits");
    let process_of = |_| Some(ProcessRecord { pid: 1, start_ticks: 1 });
    let ids = ["other", "vision"].map(|name| node.registry.tenant_named(name).expect("it runs"));
    let records = ids.map(|id| node.registry.record(id, &process_of).expect("it is kept"));
    let mut next = Node::new(2, DOCUMENT);
    for (at, record) in records.iter().enumerate() {
        let text = serde_json::to_string(record).expect("JSON");
        let record: TenantRecord = serde_json::from_str(&text).expect("its own");
        next.registry.adopt(&record, &[], &[ConnectionId(100 + at as u64)]);
    }
    next.registry.all_adopted();
    assert_eq!(next.registry.check_isolation(), Ok(()));
    assert!(next.refusal(7, on("0", admit("a", "1GiB"))).contains("vision's own"));
    next.placed_on(on("1", admit("a", "1GiB")));
    // With one of the two gone meanwhile, its next job is not the one that was allowed.
    let mut next = Node::new(2, DOCUMENT);
    next.registry.adopt(&records[1], &[], &[ConnectionId(100)]);
    next.registry.all_adopted();
    assert!(next.refusal(7, plain("other")).contains("vision's own"));
}

/// Whoever died while no daemon was there is not the next of its name.
#[test]
fn beside_one_that_died_meanwhile_nobody_is_allowed() {
    let mut node = Node::new(1, DOCUMENT);
    node.placed_on(on("0", admit("a", "1GiB")));
    node.waits(Admit { queue: Some(QueueLimit::Forever), ..plain("rival") });
    node.registry.approve(2, None, &mut Vec::new()).expect("it waits");
    let rival = node.registry.tenant_named("rival").expect("it runs");
    let record = node.registry.record(rival, &|_| Some(ProcessRecord { pid: 1, start_ticks: 1 })).expect("it is kept");
    let mut next = Node::new(1, DOCUMENT);
    next.registry.adopt(&record, &[], &[ConnectionId(100)]);
    next.registry.all_adopted();
    let (process, actions) = next.hello(&peer(12, 7), hello(Some("a"), Some(1), 1));
    assert!(refused(&actions, process).expect("refused").contains("rival's own"), "{actions:?}");
}
