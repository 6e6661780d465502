//! Owners of devices: those who wait for one to leave, and those who leave for one.

use super::isolation::{on, plain, waiting};
use super::*;
use quota_wire::notice::Action as Manner;

/// `vision` has its devices for itself, beside `friend`.
const TENANTS: &str = "tenants: [{name: vision, priority: high, isolation: own-device, share_with: [friend]}, {name: friend}, {name: rival, isolation: own-device}]";

fn node(devices: usize) -> Node {
    Node::new(devices, &format!("{{scheduling: {{policy: fifo, preemption: true, grace: 10s}}, {TENANTS}}}"))
}

fn low(name: &str, memory: &str, manner: Manner) -> Admit {
    Admit {
        priority: Some("batch".to_owned()),
        on_interrupt: Some(manner),
        hears: true,
        ..on("0", admit(name, memory))
    }
}

fn queued_on(device: &str, name: &str, memory: &str) -> Admit {
    on(device, queued(name, memory, QueueLimit::Forever))
}

/// An owner's later jobs don't wait behind those who wait for it to leave, however much those want; nor do its processes.
#[test]
fn who_waits_for_an_owner_to_leave_keeps_no_job_of_the_owner_waiting() {
    let mut node = node(1);
    let (vision, _) = node.placed_on(plain("vision"));
    node.placed_on(plain("friend"));
    let (stranger, reason) = node.waits(waiting("stranger", "70GiB"));
    assert!(reason.contains("vision's own"), "{reason}");
    let (_, reason) = node.waits(waiting("rival", "10GiB"));
    assert!(reason.contains("vision's own"), "{reason}");
    let (big, _) = node.placed_on(on("0", admit("vision/large", "60GiB")));
    node.member(&peer(20, 7), hello(Some("vision/small"), Some(5), 1));
    assert!(granted(&node.closed(big)).is_empty(), "they wait for all of it");
    assert!(node.registry.waits(stranger) && granted(&node.closed(vision)).is_empty());
    assert_eq!(node.registry.check_isolation(), Ok(()));
}

/// Nor do they wait behind those who might share with the owner and wait for such a one; but behind those who came before him.
#[test]
fn who_waits_behind_a_stranger_keeps_no_job_of_the_owner_waiting() {
    for (name, memory) in [("rival", "5GiB"), ("stranger", "75GiB")] {
        let mut node = node(1);
        let (vision, _) = node.placed_on(plain("vision"));
        let (stranger, reason) = node.waits(waiting(name, memory));
        assert!(reason.contains("vision's own"), "{reason}");
        let (friend, reason) = node.waits(waiting("friend/x", "40GiB"));
        assert_eq!(reason, "those before it", "{name} would wait for it");
        let (later, _) = node.placed_on(on("0", admit("vision/later", "50GiB")));
        assert!(granted(&node.closed(vision)).is_empty());
        assert_eq!(granted(&node.closed(later)).first().map(|it| it.0), Some(stranger));
        assert_eq!(granted(&node.closed(stranger)).first().map(|it| it.0), Some(friend));
        assert_eq!(node.registry.check_isolation(), Ok(()));
    }
    let mut node = self::node(1);
    node.placed_on(on("0", admit("vision/large", "60GiB")));
    node.waits(waiting("friend/x", "70GiB"));
    node.waits(waiting("rival", "5GiB"));
    let (_, reason) = node.waits(waiting("vision/later", "14GiB"));
    assert_eq!(reason, "those before it", "the friend waits for room, and came before the rival");
}

/// Before the owner is there, those before it are before it; and whom it doesn't keep out, always.
#[test]
fn an_owner_waits_its_turn_behind_those_whom_it_does_not_keep_out() {
    let mut node = node(1);
    let (friend, _) = node.placed_on(on("0", admit("friend/x", "70GiB")));
    node.waits(waiting("b", "20GiB"));
    let (_, reason) = node.waits(waiting("vision", "5GiB"));
    assert_eq!(reason, "those before it", "b would wait for it to leave");
    node.closed(friend);
    let mut node = self::node(1);
    let (big, _) = node.placed_on(on("0", admit("vision/large", "60GiB")));
    let (friend, _) = node.waits(waiting("friend/x", "70GiB"));
    let (later, reason) = node.waits(waiting("vision/later", "14GiB"));
    assert_eq!(reason, "those before it");
    assert_eq!(granted(&node.closed(big)), [(friend, "friend/x".to_owned())]);
    assert_eq!(granted(&node.closed(friend)), [(later, "vision/later".to_owned())]);
    let mut node = self::node(1);
    let (a, _) = node.placed_on(on("0", Admit { priority: Some("high".to_owned()), ..admit("a", "70GiB") }));
    let (b, _) = node.waits(Admit { priority: Some("high".to_owned()), ..waiting("b", "20GiB") });
    let (vision, _) = node.waits(waiting("vision", "10GiB"));
    assert_eq!(granted(&node.closed(a)), [(b, "b".to_owned())]);
    assert!(granted(&node.closed(b)).iter().any(|(at, _)| *at == vision));
}

/// Jobs of a lower class leave an owner's device where they are to be ended; its own job has it then, and nobody before it.
#[test]
fn those_of_a_lower_class_leave_an_owners_device() {
    let mut node = node(1);
    let (small, _) = node.placed_on(low("small", "5GiB", Manner::Terminate));
    let (other, _) = node.placed_on(low("other", "5GiB", Manner::Terminate));
    node.placed_on(low("friend/low", "5GiB", Manner::Terminate));
    let (process, _) = node.member_of("small", 20);
    let (vision, actions) = node.admit(7, on("0", admit("vision", "10GiB")));
    assert!(refused(&actions, vision).is_none(), "{actions:?}");
    let actions = node.step();
    assert_eq!(
        ["small", "other", "friend/low"].map(|name| node.state(name)),
        [Some("notified"), Some("notified"), None]
    );
    let (_, reason) = waits(&actions, vision).expect("it is told");
    assert!(reason.contains("makes room"), "{reason}");
    let (_, reason) = node.waits(waiting("late", "1GiB"));
    assert_eq!(reason, "those before it", "nobody comes in its way again");
    assert!(node.pass(10_000).contains(&Action::End { member: process, forced: false }));
    node.closed(small);
    node.died(process);
    assert!(node.registry.waits(vision), "one of them is there");
    let actions = node.closed(other);
    assert_eq!(granted(&actions), [(vision, "vision".to_owned())], "{actions:?}");
    assert_eq!((node.registry.check_isolation(), node.state("friend/low")), (Ok(()), None));
}

/// Also where memory is missing besides, and on the devices that the fewest have to leave.
#[test]
fn the_fewest_leave_and_what_is_missing_besides_is_yielded() {
    let at = |device: &str, ask: Admit| Admit { device: Some(device.to_owned()), ..ask };
    let told = Some("notified");
    for (memory, friend) in [("40GiB", None), ("70GiB", told)] {
        let mut node = node(3);
        node.placed_on(at("0", low("one", "5GiB", Manner::Terminate)));
        node.placed_on(at("0", low("two", "5GiB", Manner::Terminate)));
        node.placed_on(at("1", low("stays", "5GiB", Manner::Checkpoint)));
        node.placed_on(at("2", low("three", "30GiB", Manner::Terminate)));
        node.placed_on(at("2", low("friend/low", "20GiB", Manner::Checkpoint)));
        node.member_of("friend/low", 20);
        let (vision, _) = node.admit(7, Admit { device: None, count: Some(1), ..queued_on("0", "vision", memory) });
        node.step();
        let states = ["one", "two", "stays", "three", "friend/low"].map(|name| node.state(name));
        assert_eq!(states, [None, None, None, told, friend], "{memory} of device 2, which fewer leave");
        assert!(node.registry.waits(vision));
    }
}

/// Nobody leaves in vain: not where one of them stays, not for its equals, not an owner, and not its own parts.
#[test]
fn nobody_leaves_where_that_makes_no_room() {
    let stays = |manner, class: &str| Admit { priority: Some(class.to_owned()), ..low("stays", "5GiB", manner) };
    for other in [stays(Manner::Checkpoint, "batch"), stays(Manner::Pause, "batch"), stays(Manner::Terminate, "high")] {
        let mut node = self::node(1);
        node.placed_on(low("low", "5GiB", Manner::Terminate));
        node.placed_on(other);
        assert!(node.refusal(7, on("0", admit("vision", "10GiB"))).contains("to have device 0 for itself"));
        assert_eq!((node.state("low"), node.state("stays")), (None, None));
    }
    let mut node = self::node(1);
    node.placed_on(low("rival/low", "5GiB", Manner::Terminate));
    assert!(node.refusal(7, on("0", admit("vision", "10GiB"))).contains("rival's own"), "it is another's own");
    let (urgent, actions) =
        node.admit(7, Admit { priority: Some("high".to_owned()), ..on("0", admit("urgent", "1GiB")) });
    assert!(refused(&actions, urgent).expect("refused").contains("rival's own"), "nor for a stranger");
    let mut node = self::node(1);
    node.placed_on(low("vision/low", "70GiB", Manner::Terminate));
    node.placed_on(low("friend/low", "5GiB", Manner::Terminate));
    node.admit(7, queued_on("0", "vision/urgent", "60GiB"));
    node.step();
    assert_eq!((node.state("vision/low"), node.state("friend/low")), (Some("notified"), None), "of its own, by class");
}

/// What an earlier daemon began for an owner goes on for it.
#[test]
fn the_next_daemon_has_them_leave_for_the_owner() {
    let patient = format!("{{scheduling: {{preemption: true, grace: 1m}}, {TENANTS}}}");
    let mut node = Node::new(1, &patient);
    let (job, _) = node.placed_on(low("low", "5GiB", Manner::Terminate));
    node.admit(7, queued_on("0", "vision", "10GiB"));
    node.step();
    let process_of = |_: ConnectionId| Some(ProcessRecord { pid: 1, start_ticks: 1 });
    let record = node.registry.record(node.id("low"), &process_of).expect("active");
    let mut next = Node::new(1, &patient);
    (next.connections, next.now_ms) = (100, 1_000);
    next.registry.adopt(&record, &[], &[job]);
    next.registry.all_adopted();
    let (vision, _) = next.admit(7, queued_on("0", "vision", "10GiB"));
    let mut actions = next.step();
    actions.extend(next.pass(58_000));
    let is_told = |action: &Action| matches!(action, Action::Reply(at, Reply::Notice(_)) if *at == job);
    assert!(!actions.iter().any(is_told), "neither a second notice nor an end of the first: {actions:?}");
    next.pass(1_100);
    assert_eq!(next.state("low"), Some("ending"));
    assert_eq!(granted(&next.closed(job)).first().map(|it| it.0), Some(vision));
}
