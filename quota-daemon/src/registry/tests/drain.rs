//! Report 19.14: devices that are drained, and what that means for those who wait and those who would make room.

use super::*;

fn on(device: &str, ask: Admit) -> Admit {
    Admit { device: Some(device.to_owned()), ..ask }
}

fn waiting(name: &str, memory: &str) -> Admit {
    queued(name, memory, QueueLimit::Forever)
}

impl Node {
    fn drain(&mut self, device: &str, drained: bool) -> (String, Vec<Action>) {
        let mut actions = Vec::new();
        let message = self.registry.drain(device, drained, &mut actions).expect("there is one");
        (message, actions)
    }

    fn waits_for(&mut self, ask: Admit) -> String {
        let (connection, actions) = self.admit(7, ask);
        waits(&actions, connection).unwrap_or_else(|| panic!("{actions:?}")).1
    }
}

#[test]
fn a_choice_is_made_among_the_devices_that_are_open() {
    let mut node = Node::new(3, "");
    let (message, actions) = node.drain("1", true);
    assert_eq!(
        message,
        "device 1: drained, and nobody is there; nobody new gets a place there until `gpuquota resume` 1"
    );
    let written: Vec<_> = actions.iter().filter(|action| matches!(action, Action::Audit(_))).collect();
    let [Action::Audit(event)] = &written[..] else { panic!("{actions:?}") };
    assert_eq!((event.change.as_deref(), &event.devices[..]), (Some("drain"), &[uuid(1)][..]));
    let two = |name: &str| Admit { count: Some(2), ..admit(name, "10GiB") };
    let (connection, actions) = node.admit(7, two("two"));
    let granted = actions.iter().find_map(|action| match action {
        Action::Reply(to, Reply::Granted(granted)) if *to == connection => Some(granted.devices.clone()),
        _ => None,
    });
    assert_eq!(granted, Some(vec![uuid(0), uuid(2)]));
    let all = node.refusal(7, Admit { count: Some(3), ..admit("three", "10GiB") });
    assert!(all.starts_with("device 1 is drained: an administrator has it until `gpuquota resume 1`"), "{all}");
    assert_eq!(node.drain("1", true).0, "device 1: drained already");
    assert_eq!(node.drain("all", true).0.split(':').next(), Some("devices 0,2"));
    assert_eq!(node.registry.drained(), [true; 3]);
    assert!(node.refusal(7, two("more")).contains("is drained"));
    assert_eq!(node.drain("all", false).0, "devices 0,1,2: in use again");
}

/// What is borrowed there isn't asked back for those who wait until the device is in use again: its owner, or somebody else.
#[test]
fn nobody_gives_back_for_one_that_waits_for_a_drained_device() {
    let tenants = "tenants: [{name: lab, memory: 10GiB, borrow: true}, {name: own, memory: 40GiB}]";
    for (name, memory) in [("own/job", "40GiB"), ("solo", "29GiB")] {
        let mut node = Node::new(1, &format!("{{scheduling: {{grace: 10s, reclaim: terminate}}, {tenants}}}"));
        node.job("lab/large", "75GiB");
        let (_, slot) = node.member_of("lab/large", 20);
        node.charged = vec![(slot, 70 * GIB)];
        node.drain("0", true);
        assert!(node.waits_for(on("0", waiting(name, memory))).contains("is drained"));
        node.step();
        assert!(node.pass(60_000).is_empty() && node.state("lab/large").is_none(), "for {name}, in vain");
        node.drain("0", false);
        node.step();
        assert_eq!(node.state("lab/large"), Some("notified"), "for {name}");
    }
}

/// Who is there stays, with all that is granted; a second job of the same tenant is new all the same.
#[test]
fn who_is_there_stays_and_gets_nobody_in() {
    let mut node = Node::new(2, "");
    node.admit(7, on("0", admit("there", "10GiB")));
    let (message, _) = node.drain("0", true);
    assert!(message.starts_with("device 0: drained; 1 tenant is still there (there); nobody new"), "{message}");
    assert_eq!(node.registry.granted(0, None), Bytes(10 * GIB));
    let change = Change { tenant: "there".to_owned(), memory: Some("20GiB".to_owned()), ..Change::default() };
    node.set(change).expect("what it has may be changed");
    assert!(node.refusal(7, on("0", Admit { memory: None, ..admit("there", "") })).contains("device 0 is drained"));
    let (connection, actions) = node.hello(&peer(70, 7), hello(Some("there"), None, 1));
    assert!(refused(&actions, connection).is_some_and(|reason| reason.contains("device 0 is drained")), "{actions:?}");
    let (_, welcome) = node.member(&peer(71, 7), hello(Some("there"), None, 2));
    assert_eq!(welcome.devices, [None, None], "the first is drained, and of the other it has nothing");
    // A document changes nothing about it, and neither does one that is looked at.
    node.registry
        .apply(&Document::parse("tenants: [{name: other}]").expect("legal"), &mut Vec::new())
        .expect("it fits");
    assert_eq!(node.registry.drained(), [true, false]);
}

/// One that waits for a device to be given back keeps nobody from the others, and gets its place once it is.
#[test]
fn who_waits_for_a_drained_device_is_in_nobodys_way() {
    let mut node = Node::new(2, "");
    let (first, _) = node.admit(7, on("1", admit("first", "50GiB")));
    node.drain("0", true);
    let reason = node.waits_for(on("0,1", waiting("both", "60GiB")));
    assert!(!reason.is_empty());
    // It would have the memory that "both" needs, of a device that "both" can't have alone.
    node.admit(7, on("1", admit("small", "20GiB")));
    assert!(node.registry.tenant_named("small").is_some(), "it need not wait");
    node.closed(first);
    let (process, _) = node.member(&peer(72, 7), hello(Some("process"), Some(20), 2));
    node.died(process);
    let (_, actions) = node.drain("0", false);
    assert!(granted(&actions).iter().all(|(_, name)| name != "both"), "there is no room yet: {actions:?}");
    let (small, _) = node.admit(7, on("1", waiting("later", "20GiB")));
    assert!(node.registry.tenant_named("later").is_none(), "now it is in the way, being first");
    node.closed(small);
}

/// Nobody makes room on a device on which the job can't be.
#[test]
fn nobody_is_interrupted_for_a_drained_device() {
    let mut node = Node::new(2, "scheduling: {preemption: true, grace: 10s}\n");
    let manner = Some(quota_wire::notice::Action::Terminate);
    let low = |name: &str| Admit { priority: Some("batch".to_owned()), on_interrupt: manner, ..admit(name, "70GiB") };
    for (device, name) in [("0", "a"), ("1", "b")] {
        node.admit(7, on(device, low(name)));
    }
    node.drain("0", true);
    let high = |name: &str| Admit { priority: Some("high".to_owned()), ..waiting(name, "60GiB") };
    for devices in ["0", "0,1"] {
        let reason = node.waits_for(on(devices, high(&format!("urgent-{devices}").replace(',', "-"))));
        assert!(reason.contains("on device") || reason.contains("device 0 is drained"), "{reason}");
    }
    node.pass(9_000);
    assert_eq!((node.state("a"), node.state("b")), (None, None));
    // For one that may have either, room is made on the other one.
    node.admit(7, Admit { count: Some(1), ..high("either") });
    node.step();
    assert_eq!((node.state("a"), node.state("b")), (None, Some("notified")));
}

/// What divides a device anew ends its instances.
#[test]
fn instances_are_drained_with_their_device() {
    use super::isolation::{divided_node, instance};
    let mut node = divided_node("");
    let (_, actions) = node.admit(7, on("1", admit("there", "1GiB")));
    assert!(format!("{actions:?}").contains(&instance(1)), "{actions:?}");
    let (message, _) = node.drain("0", true);
    assert!(message.starts_with("device 0: drained; 1 tenant is still there (there);"), "{message}");
    assert_eq!(node.registry.drained(), [true, true, true, true, false]);
    assert!(node.refusal(7, on("2", admit("new", "1GiB"))).contains("device 2 is drained"));
    let mut actions = Vec::new();
    let part = node.registry.drain("2", false, &mut actions).expect_err("only with the whole");
    assert_eq!(part, "device 2 is a part of device 0, which is drained: resume that");
    assert_eq!(node.drain("0", false).0, "device 0: in use again");
    let (message, _) = node.drain("3", true);
    assert!(message.starts_with("device 3: drained, and nobody is there"), "{message}");
    assert_eq!(node.registry.drained(), [false, false, false, true, false]);
    assert_eq!(node.drain("0,3", false).0, "device 3: in use again");
}
