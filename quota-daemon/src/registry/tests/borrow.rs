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
    assert!(node.refusal(7, admit("v/large", "79.25GiB")).contains("all that could be borrowed included"));
    borrower(&mut node);
    assert_eq!((node.cap("v/large"), node.registry.lent(0).0 / GIB), (Some(60), 20));
    assert_eq!(node.registry.granted(0, None).0 / GIB, 79, "it is granted once");
    assert!(node.refusal(7, admit("v/more", "20GiB")).contains("0 B left and 19 GiB to borrow"));
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
    assert!(set(&mut node, "v/large", "61GiB").expect_err("20 are all").contains("40 GiB left and 20 GiB to borrow"));
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
