//! Memory that tenants lend each other, and have back.

use super::*;

/// Of 79.5 GiB, 40 are v's, which may borrow, and 39 own's.
fn node() -> Node {
    Node::new(1, DOCUMENT)
}

const DOCUMENT: &str = "{scheduling: {policy: fifo, grace: 10s, reclaim: terminate},
    tenants: [{name: v, memory: 40GiB, borrow: true}, {name: own, memory: 39GiB}]}";

/// One of v that has 20 of own's, and its process.
fn borrower(node: &mut Node) -> (ConnectionId, ConnectionId, u32) {
    let (job, actions) = node.admit(7, admit("v/large", "60GiB"));
    assert_eq!(granted(&actions), [(job, "v/large".to_owned())]);
    let (process, slot) = node.member_of("v/large", 20);
    (job, process, slot)
}

#[test]
fn what_others_leave_idle_can_be_borrowed_and_no_more() {
    let mut node = node();
    assert!(node.refusal(7, admit("own/large", "40GiB")).contains("can never fit: tenant own has 39 GiB there"));
    assert!(node.refusal(7, admit("v/large", "79.75GiB")).contains("all that could be borrowed included"));
    borrower(&mut node);
    assert_eq!((node.cap("v/large"), node.registry.lent(0).0 / GIB), (Some(60), 20));
    assert_eq!(node.registry.granted(0, None).0 / GIB, 79, "it is granted once");
    assert!(node.refusal(7, admit("v/more", "20GiB")).contains("0 B left and 19.50 GiB to borrow"));
    let (more, actions) = node.admit(7, admit("v/more", "19GiB"));
    assert_eq!(granted(&actions), [(more, "v/more".to_owned())]);
    node.closed(more);
    // What is idle all the same is the owner's at once.
    node.job("own/small", "10GiB");
    assert_eq!(node.cap("v/large"), Some(60));
}

/// The owner asks: from then on the borrower gets nothing new, and what it no longer uses is the owner's.
#[test]
fn what_is_given_back_is_the_owners() {
    let mut node = node();
    let (job, _, slot) = borrower(&mut node);
    node.charged = vec![(slot, 50 * GIB)];
    let (owner, actions) = node.admit(7, admit("own/large", "25GiB"));
    let reason = waits(&actions, owner).map(|it| it.1).unwrap_or_default();
    assert!(refused(&actions, owner).is_none() && granted(&actions).is_empty(), "{actions:?}");
    let actions = node.step();
    assert_eq!(node.state("v/large"), Some("notified"), "{reason}");
    assert_eq!(node.cap("v/large"), Some(40), "at once");
    assert!(actions.contains(&Action::Publish(node.id("v/large"))));
    assert!(granted(&node.pass(5_000)).is_empty(), "50 are in use");
    node.charged = vec![(slot, 40 * GIB)];
    assert!(granted(&node.pass(100)).is_empty(), "it may be charged for more in this moment");
    assert_eq!(granted(&node.pass(200)), [(owner, "own/large".to_owned())]);
    node.step();
    assert_eq!((node.state("v/large"), node.cap("v/large"), node.registry.lent(0).0), (None, Some(40), 0));
    assert!(!node.closed(job).is_empty());
}

/// Who gives nothing back is ended when the grace is over.
#[test]
fn who_gives_nothing_back_is_ended() {
    let mut node = node();
    let (job, process, slot) = borrower(&mut node);
    node.charged = vec![(slot, 50 * GIB)];
    let (owner, _) = node.admit(7, queued("own/large", "39GiB", QueueLimit::Forever));
    let actions = node.pass(9_999);
    assert!(!actions.iter().any(|action| matches!(action, Action::End { .. })));
    let actions = node.pass(200);
    assert!(
        actions.contains(&Action::End { member: process, forced: false }),
        "{:?} {actions:?}",
        node.state("v/large")
    );
    node.died(process);
    assert_eq!(granted(&node.closed(job)), [(owner, "own/large".to_owned())]);
}

/// One that nobody can move to the host is ended, whatever the document would rather.
#[test]
fn who_can_not_be_moved_is_ended() {
    let mut node = Node::new(1, &DOCUMENT.replace("terminate", "checkpoint"));
    let (process, welcome) = node.member(&peer(20, 7), hello(Some("v/pod"), Some(60), 1));
    node.charged = vec![(welcome.slot, 50 * GIB)];
    node.admit(7, queued("own/large", "39GiB", QueueLimit::Forever));
    assert!(node.pass(10_100).contains(&Action::End { member: process, forced: false }));
}

/// A quota that is changed is of one's own first; nothing of it is granted twice.
#[test]
fn a_changed_quota_borrows_what_is_left() {
    let mut node = node();
    borrower(&mut node);
    node.job("own/small", "10GiB");
    let set = |node: &mut Node, name: &str, memory: &str| {
        node.set(Change { tenant: name.to_owned(), memory: Some(memory.to_owned()), ..Change::default() })
    };
    assert!(set(&mut node, "own/small", "30GiB").expect_err("29 less 20").contains("are lent to v/large"));
    set(&mut node, "own/small", "19GiB").expect("it is there");
    assert!(
        set(&mut node, "v/large", "61GiB").expect_err("20 are all").contains("40 GiB left and 20.50 GiB to borrow")
    );
    set(&mut node, "v/large", "50GiB").expect("less");
    assert_eq!(node.registry.lent(0).0 / GIB, 10);
    set(&mut node, "own/small", "29GiB").expect("it is there");
    set(&mut node, "v/large", "30GiB").expect("less");
    assert_eq!(node.registry.lent(0).0, 0);
}

/// Nobody is asked for what nobody wants any more, and nobody else borrows it meanwhile.
#[test]
fn an_owner_that_gives_up_leaves_things_as_they_were() {
    let mut node = node();
    let (_, _, slot) = borrower(&mut node);
    node.charged = vec![(slot, 50 * GIB)];
    let (owner, _) = node.admit(7, queued("own/large", "39GiB", QueueLimit::Forever));
    node.step();
    assert!(node.refusal(7, admit("v/more", "1GiB")).contains("0 B left"), "while it is wanted back");
    node.closed(owner);
    node.step();
    assert_eq!((node.state("v/large"), node.cap("v/large"), node.registry.lent(0).0 / GIB), (None, Some(60), 20));
}

/// Processes of the owner that are of no job don't wait: they have what is there, and the rest as it comes back.
#[test]
fn processes_of_the_owner_have_what_is_there() {
    let mut node = node();
    let (_, _, slot) = borrower(&mut node);
    node.charged = vec![(slot, 50 * GIB)];
    node.member(&peer(30, 7), hello(Some("own"), None, 1));
    assert_eq!(node.cap("own"), Some(19));
    node.step();
    assert_eq!(node.state("v/large"), Some("notified"));
    // The process of own has the same slot, in another ledger.
    node.charged = vec![(slot, 10 * GIB)];
    let actions = node.pass(300);
    assert!(actions.contains(&Action::Publish(node.id("own"))), "{actions:?}");
    assert_eq!((node.cap("own"), node.cap("v/large")), (Some(39), Some(40)));
}

/// Of several owners that have come back, each page says what is there for all of them.
#[test]
fn an_owners_page_follows_another_owner() {
    let tenants = "[{name: v, memory: 40GiB, borrow: true}, {name: one, memory: 20GiB}, {name: two, memory: 19GiB}]";
    let mut node = Node::new(1, &format!("{{scheduling: {{grace: 10s}}, tenants: {tenants}}}"));
    borrower(&mut node);
    node.member(&peer(30, 7), hello(Some("one"), None, 1));
    assert_eq!(node.cap("one"), Some(19), "20 are lent, 19 of them are two's");
    let (_, actions) = node.hello(&peer(31, 7), hello(Some("two"), None, 1));
    assert!(actions.contains(&Action::Publish(node.id("one"))), "{actions:?}");
    assert_eq!(node.cap("one"), Some(0));
}

/// The next daemon knows whose it is.
#[test]
fn what_is_borrowed_is_borrowed_after_a_restart() {
    let mut node = node();
    borrower(&mut node);
    let process_of = |_: ConnectionId| Some(ProcessRecord { pid: 1, start_ticks: 1 });
    let record = node.registry.record(node.id("v/large"), &process_of).expect("active");
    let record: TenantRecord = serde_json::from_str(&serde_json::to_string(&record).expect("JSON")).expect("as it was");
    let mut next = self::node();
    next.registry.adopt(&record, &[], &[ConnectionId(99)]);
    assert_eq!((next.registry.lent(0).0 / GIB, next.cap("v/large")), (20, Some(60)));
    assert!(next.refusal(7, admit("v/more", "20GiB")).contains("0 B left"));
}

/// Memory that is moved to the host is the owner's meanwhile, and comes back when the owner is gone.
#[test]
fn a_borrower_may_be_moved_to_the_host() {
    let mut node = Node::new(1, &DOCUMENT.replace("terminate", "checkpoint"));
    let (job, _, slot) = borrower(&mut node);
    node.charged = vec![(slot, 50 * GIB)];
    let (owner, _) = node.admit(7, queued("own/large", "39GiB", QueueLimit::Forever));
    node.pass(10_000);
    let number = node.number("v/large");
    node.charged = Vec::new();
    node.registry.moved(job, number, None, &mut Vec::new());
    assert_eq!(granted(&node.pass(500)), [(owner, "own/large".to_owned())]);
    assert_eq!((node.state("v/large"), node.registry.lent(0).0), (Some("checkpointed"), 0));
    node.pass(60_000);
    assert_eq!(node.state("v/large"), Some("checkpointed"), "there is no room for what it had");
    node.closed(owner);
    node.pass(100);
    node.registry.moved(job, node.number("v/large"), None, &mut Vec::new());
    node.pass(100);
    assert_eq!((node.state("v/large"), node.cap("v/large"), node.registry.lent(0).0 / GIB), (None, Some(60), 20));
}

/// Of 79.5 GiB, 30 are v's, which may borrow, and nobody's the rest.
fn half_empty(grace: &str) -> Node {
    let scheduling = format!("{{policy: fifo, grace: {grace}, reclaim: terminate, preemption: true}}");
    Node::new(
        1,
        &format!(
            "{{scheduling: {scheduling}, tenants: [{{name: v, memory: 30GiB, borrow: true}}, {{name: own, memory: 10GiB}}]}}"
        ),
    )
}

#[test]
fn what_nobody_has_been_promised_can_be_borrowed() {
    let mut node = half_empty("10s");
    assert!(node.refusal(7, admit("v/large", "79.75GiB")).contains("all that could be borrowed included"));
    assert!(node.refusal(7, admit("own/large", "11GiB")).contains("can never fit: tenant own has 10 GiB there"));
    node.job("solo", "20GiB");
    assert!(node.refusal(7, admit("v/large", "60GiB")).contains("30 GiB left and 29.50 GiB to borrow"));
    let large = node.job("v/large", "59.5GiB");
    let granted = |node: &Node| {
        let rows = node.registry.device_rows(&rows::view(&node.charged, &[]), &[]);
        rows[0].memory_granted_bytes * 2 / GIB
    };
    assert_eq!((node.cap("v/large"), node.registry.lent(0).0 * 2 / GIB, granted(&node)), (Some(59), 59, 159));
    assert_eq!(node.registry.check_granted(), Ok(()));
    node.closed(large);
    assert_eq!(granted(&node), 120);
}

/// A job that waits and would fit without the loan asks for it; nobody is let in before it is back, nor borrows it again.
#[test]
fn the_rest_is_given_back_to_whoever_needs_it_to_be_let_in() {
    let mut node = half_empty("10s");
    node.job("v/large", "69.5GiB");
    let (process, slot) = node.member_of("v/large", 20);
    node.charged = vec![(slot, 60 * GIB)];
    let (solo, actions) = node.admit(7, queued("solo", "20GiB", QueueLimit::Forever));
    assert!(waits(&actions, solo).expect("it waits").1.contains("39.50 GiB of memory on device 0 are lent to v/large"));
    node.step();
    assert_eq!((node.state("v/large"), node.cap("v/large")), (Some("notified"), Some(30)));
    assert!(node.refusal(7, admit("v/more", "1GiB")).contains("0 B left"), "while it is wanted back");
    assert!(granted(&node.pass(5_000)).is_empty(), "60 are in use");
    node.charged = vec![(slot, 30 * GIB)];
    assert_eq!(granted(&node.pass(300)), [(solo, "solo".to_owned())]);
    node.step();
    assert_eq!((node.state("v/large"), node.registry.lent(0).0), (None, 0));
    // One that doesn't wait for that has it asked back, too, and is refused when nobody gives it in time.
    let mut node = half_empty("10s");
    node.job("v/large", "69.5GiB");
    node.member_of("v/large", 20);
    node.charged = vec![(slot, 60 * GIB)];
    let (solo, actions) = node.admit(7, admit("solo", "20GiB"));
    assert!(refused(&actions, solo).is_none());
    assert!(node.pass(10_100).contains(&Action::End { member: process, forced: false }));
}

/// Nobody is asked for what would not help, and an owner has its own back as before.
#[test]
fn the_rest_is_not_asked_back_in_vain() {
    let mut node = half_empty("10s");
    node.job("first", "20GiB");
    let (_, slot) = {
        node.job("v/large", "49.5GiB");
        node.member_of("v/large", 20)
    };
    node.charged = vec![(slot, 49 * GIB)];
    let (big, actions) = node.admit(7, queued("big", "30GiB", QueueLimit::Forever));
    assert!(waits(&actions, big).expect("it waits").1.contains("do not fit"));
    assert!(node.pass(60_000).is_empty() && node.state("v/large").is_none(), "first is in its way");
    // It is lent out of the rest and not out of what own has.
    node.job("own/x", "10GiB");
    assert_eq!(node.state("v/large"), None);
    let (small, _) = node.admit(7, queued("small", "19GiB", QueueLimit::Forever));
    node.step();
    assert_eq!(node.state("v/large"), Some("notified"), "small would have room");
    node.closed(small);
    node.step();
    assert_eq!((node.state("v/large"), node.registry.lent(0).0 * 2 / GIB), (None, 39), "nobody wants it any more");
}

/// A process that asks nobody but the shim is refused meanwhile, and let in when it comes again.
#[test]
fn a_process_that_was_turned_away_finds_room_when_it_comes_again() {
    let mut node = half_empty("10s");
    node.job("v/large", "69.5GiB");
    let (_, slot) = node.member_of("v/large", 20);
    node.charged = vec![(slot, 60 * GIB)];
    let (connection, actions) = node.hello(&peer(30, 8), hello(None, Some(20), 1));
    assert!(refused(&actions, connection).expect("not now").contains("are lent to v/large"), "{actions:?}");
    node.step();
    assert_eq!(node.state("v/large"), Some("notified"));
    node.charged = vec![(slot, 30 * GIB)];
    node.pass(300);
    assert_eq!((node.state("v/large"), node.registry.lent(0).0), (None, 0));
    node.member(&peer(30, 8), hello(None, Some(20), 1));
    // One that never comes again keeps nothing from anybody.
    let mut node = half_empty("30s");
    node.job("v/large", "69.5GiB");
    node.charged = vec![(slot, 60 * GIB)];
    node.member_of("v/large", 20);
    node.hello(&peer(30, 8), hello(None, Some(100), 1));
    node.step();
    assert_eq!(node.state("v/large"), None, "it would not fit anyhow");
    node.registry.pass_time(0);
    node.hello(&peer(31, 8), hello(None, Some(20), 1));
    node.step();
    assert_eq!(node.state("v/large"), Some("notified"));
}

/// What is lent is nothing that the interrupted need to come back; and whoever has them make room, has loans given back, too.
#[test]
fn those_who_make_room_come_back_whatever_was_lent() {
    let mut node = half_empty("0s");
    let batch = Admit {
        priority: Some("batch".to_owned()),
        on_interrupt: Some(quota_wire::notice::Action::Checkpoint),
        ..admit("low", "30GiB")
    };
    let (low, _) = node.admit(7, batch);
    let (_, slot) = node.member_of("low", 20);
    node.charged = vec![(slot, 0)];
    let (urgent, _) = node.admit(7, Admit { priority: Some("high".to_owned()), ..admit("urgent", "39GiB") });
    node.pass(100);
    node.registry.moved(low, node.number("low"), None, &mut Vec::new());
    assert_eq!(granted(&node.pass(100)), [(urgent, "urgent".to_owned())]);
    assert!(node.refusal(7, admit("v/large", "41GiB")).contains("30 GiB left and 10 GiB to borrow"), "own's alone");
    node.closed(urgent);
    let borrower = node.job("v/large", "49.5GiB");
    node.pass(100);
    node.registry.moved(low, node.number("low"), None, &mut Vec::new());
    assert_eq!((node.state("low"), node.cap("low"), node.cap("v/large")), (None, Some(30), Some(49)), "both have room");
    node.closed(borrower);
}

/// A document that promises more of the rest is not kept waiting by a loan: it is lent out of the promise then.
#[test]
fn a_document_may_promise_what_is_lent() {
    let mut node = half_empty("10s");
    node.job("v/large", "69.5GiB");
    let more = "{scheduling: {grace: 10s, reclaim: terminate}, tenants: [{name: v, memory: 30GiB, borrow: true}, {name: own, memory: 10GiB}, {name: new, memory: 39GiB}]}";
    node.registry.apply(&Document::parse(more).expect("legal"), &mut Vec::new()).expect("it fits");
    node.step();
    assert_eq!(node.state("v/large"), None, "nobody of it is there");
    node.admit(7, queued("new/job", "39GiB", QueueLimit::Forever));
    node.step();
    assert_eq!(node.state("v/large"), Some("notified"));
}
