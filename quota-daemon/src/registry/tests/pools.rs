//! Tenants of the document as pools of jobs with quotas of their own.

use super::*;
use quota_core::compute::Part;

/// Of two devices, 40 GiB and 40 % of each are vision's, with twice the usual weight.
fn node() -> Node {
    let vision = "{name: vision, memory: 40GiB, compute: {guarantee: 40%, limit: 60%, weight: 200}}";
    Node::new(1, &format!("{{scheduling: {{policy: fifo}}, tenants: [{vision}]}}"))
}

impl Node {
    fn part(&mut self, ask: Admit) -> (ConnectionId, String) {
        let (connection, actions) = self.admit(7, ask);
        let granted = granted(&actions);
        assert_eq!(granted.len(), 1, "{actions:?}");
        (connection, granted[0].1.clone())
    }

    fn quota(&self, name: &str) -> Quota {
        let id = self.registry.tenant_named(name).unwrap_or_else(|| panic!("no {name}"));
        self.registry.effective(id, 0).expect("granted")
    }
}

fn hundredths(percent: Option<Percent>) -> Option<u32> {
    percent.map(Percent::hundredths)
}

#[test]
fn parts_have_what_the_pool_has_and_nobody_counts_it_twice() {
    let mut node = node();
    let (first, name) = node.part(Admit { command: "/usr/bin/train --all".to_owned(), ..admit("vision", "10GiB") });
    assert_eq!(name, "vision/train-1");
    assert_eq!(node.part(admit("vision/eval", "20GiB")).1, "vision/eval");
    assert_eq!(node.registry.granted(0, None).0 / GIB, 40);
    assert_eq!(
        node.refusal(7, admit("vision", "20GiB")),
        "20 GiB on device 0 do not fit: tenant vision has 40 GiB there, 30 GiB granted to 2 of its jobs, 10 GiB left; wait with --queue"
    );
    assert_eq!(
        node.refusal(7, queued("vision/x", "41GiB", QueueLimit::Forever)),
        "41 GiB on device 0 can never fit: tenant vision has 40 GiB there"
    );
    assert!(
        node.refusal(7, Admit { tenant: Some("vision/x".to_owned()), ..Admit::default() }).contains("give --memory")
    );
    assert!(node.refusal(7, admit("other", "40GiB")).contains("40 GiB of it set aside"));
    node.job("other", "39GiB");
    node.closed(first);
    assert_eq!(node.registry.tenant_named("vision/train-1"), None);
    node.part(admit("vision", "20GiB"));
}

/// A name that begins with a pool's is its part's also where no `run` asks for it.
#[test]
fn a_process_may_be_a_part_by_its_name() {
    let mut node = node();
    let (member, welcome) = node.member(&peer(10, 7), hello(Some("vision/pod"), Some(15), 1));
    assert_eq!((welcome.name.as_str(), node.cap("vision/pod")), ("vision/pod", Some(15)));
    assert_eq!(node.registry.granted(0, None).0 / GIB, 40);
    let (connection, actions) = node.hello(&peer(11, 7), hello(Some("vision/pad"), Some(30), 1));
    assert!(refused(&actions, connection).expect("no").contains("tenant vision has 40 GiB there, 15 GiB granted to 1"));
    let (connection, actions) = node.hello(&peer(11, 7), hello(Some("vision/pad"), None, 1));
    assert!(refused(&actions, connection).expect("no").contains("needs a part of the 40 GiB"), "never without a quota");
    node.died(member);
    node.member(&peer(11, 7), hello(Some("vision/pad"), Some(30), 1));
}

/// Processes without a quota of their own have what the parts leave, and then parts wait.
#[test]
fn processes_of_no_part_have_the_rest() {
    let mut node = node();
    let (first, _) = node.part(admit("vision", "10GiB"));
    let (rest, _) = node.member(&peer(10, 7), hello(Some("vision"), None, 1));
    assert_eq!(node.cap("vision"), Some(30));
    let (waiting, actions) = node.admit(7, queued("vision/late", "5GiB", QueueLimit::Forever));
    assert!(waits(&actions, waiting).expect("it waits").1.contains("processes of tenant vision without a quota"));
    let actions = node.closed(first);
    assert_eq!(node.cap("vision"), Some(40));
    let id = node.registry.tenant_named("vision").expect("it stays");
    assert!(actions.contains(&Action::Publish(id)), "its page says so: {actions:?}");
    assert_eq!(granted(&node.died(rest)), [(waiting, "vision/late".to_owned())]);
    node.part(admit("vision", "35GiB"));
    let (connection, actions) = node.hello(&peer(11, 7), hello(Some("vision"), None, 1));
    assert!(
        refused(&actions, connection).expect("no").contains("all 40 GiB of tenant vision on device 0"),
        "{actions:?}"
    );
    assert!(node.refusal(7, Admit { tenant: Some("vision".to_owned()), ..Admit::default() }).contains("all 40 GiB"));
}

#[test]
fn a_pools_cap_and_guarantee_are_divided_by_weight_among_the_active() {
    let mut node = node();
    let (first, one) = node.part(Admit { weight: Some(100), ..admit("vision", "10GiB") });
    let quota = node.quota(&one);
    assert_eq!((hundredths(quota.compute_cap), hundredths(quota.guarantee)), (Some(6000), Some(4000)), "alone");
    let (_, two) = node.part(Admit { weight: Some(300), ..admit("vision", "10GiB") });
    let of =
        |node: &Node, name: &str| (hundredths(node.quota(name).compute_cap), hundredths(node.quota(name).guarantee));
    assert_eq!(of(&node, &one), (Some(1500), Some(1000)));
    assert_eq!(of(&node, &two), (Some(4500), Some(3000)));
    // Of its own: a guarantee of 20 %, and no more than 25 % in all.
    let ask = Admit { guarantee: Some(2000), compute: Some(2500), weight: Some(600), ..admit("vision", "10GiB") };
    let (_, three) = node.part(ask);
    assert_eq!(of(&node, &three), (Some(2500), Some(2000)));
    assert_eq!(of(&node, &one), (Some(875), Some(500)), "of the 35 and 20 that are left");
    assert!(
        node.refusal(7, Admit { guarantee: Some(2500), ..admit("vision", "1GiB") })
            .contains("20% promised to its jobs")
    );
    assert!(
        node.refusal(7, Admit { guarantee: Some(4500), ..admit("vision", "1GiB") })
            .contains("can never fit: tenant vision has 40%")
    );
    assert!(
        node.refusal(7, Admit { priority: Some("high".to_owned()), ..admit("vision", "1GiB") })
            .contains("of class normal")
    );
    node.closed(first);
    assert_eq!(of(&node, &two), (Some(3500), Some(2000)));
    let id = |name: &str| node.registry.tenant_named(name).expect("it runs");
    let (pool, weight) = node.registry.pool_of(id(&two), 0).expect("a part");
    assert_eq!((pool.weight, pool.id, weight), (200, id("vision").number(), 300));
    assert_eq!(node.registry.guaranteed(0, None), 4000, "the pool's, once");
    let part = |name: &str| node.registry.part_of_cap(id(name), 0);
    let all = Part { weight: 300, own: 3500, most: 6000, all: 6000 };
    assert_eq!(part(&two), Some(all), "what it may borrow of the other's");
    assert_eq!(part(&three), Some(Part { weight: 600, own: 2500, most: 2500, ..all }), "no more than its own cap");
}

/// Nobody may ask for less than one per cent, but have that as a part: a part too small to be asked for is a cap all the same.
#[test]
fn a_small_part_of_a_small_cap_is_no_less_a_cap() {
    let mut node = Node::new(1, "{tenants: [{name: lab, memory: 40GiB, compute: {guarantee: 1%, limit: 5%}}]}");
    let names: Vec<String> = (0..20).map(|_| node.part(admit("lab", "1GiB")).1).collect();
    let quotas = names.iter().map(|name| node.quota(name));
    let quotas: Vec<_> = quotas.map(|quota| (hundredths(quota.compute_cap), hundredths(quota.guarantee))).collect();
    assert_eq!(quotas, [(Some(25), Some(5)); 20]);
}

/// Where there is no cap that several have, there are no parts of it, and all of the time is no cap; one that may be borrowed
/// beyond has parts like any other.
#[test]
fn only_a_cap_has_parts() {
    let limit = |limit: &str| format!("borrow: true, compute: {{limit: {limit}}}");
    let weighs = "compute: {weight: 2}".to_owned();
    for (pool, asks, caps) in [
        (limit("60%"), "lab", [Some(6000), Some(3000)]),
        (limit("100%"), "lab", [None; 2]),
        (weighs.clone(), "lab", [None; 2]),
        (weighs, "other", [None; 2]),
    ] {
        let mut node = Node::new(1, &format!("{{tenants: [{{name: lab, memory: 40GiB, {pool}}}]}}"));
        let (_, name) = node.part(admit(asks, "10GiB"));
        let id = node.registry.tenant_named(&name).expect("it runs");
        for cap in caps {
            let part = cap.map(|own| Part { weight: 100, own, most: 6000, all: 6000 });
            let got = (hundredths(node.quota(&name).compute_cap), node.registry.part_of_cap(id, 0));
            assert_eq!(got, (cap, part), "{pool}");
            node.part(admit(asks, "10GiB"));
        }
    }
}

/// Who comes, goes or is changed changes what the others have: all of them are told.
#[test]
fn all_of_a_pool_learn_what_changes_for_them() {
    let mut node = node();
    let (_, one) = node.part(admit("vision", "10GiB"));
    let id = node.registry.tenant_named(&one).expect("it runs");
    let (second, actions) = node.admit(7, admit("vision", "10GiB"));
    assert!(actions.contains(&Action::Publish(id)), "{actions:?}");
    assert!(node.closed(second).contains(&Action::Publish(id)));
    let mut actions = Vec::new();
    let change = Change { tenant: "vision".to_owned(), compute: Some(4000), ..Change::default() };
    node.registry.set(&change, &node.charged, &mut actions).expect("it fits");
    assert!(actions.contains(&Action::Publish(id)));
    assert_eq!(hundredths(node.quota(&one).compute_cap), Some(4000));
    node.registry.pause("vision", true, &mut actions).expect("there is one");
    assert!(node.registry.is_paused(id), "with its pool");
}

#[test]
fn a_pool_is_never_less_than_its_parts() {
    let mut node = node();
    let (first, one) = node.part(admit("vision", "30GiB"));
    let set = |node: &mut Node, name: &str, memory: &str| {
        node.set(Change { tenant: name.to_owned(), memory: Some(memory.to_owned()), ..Change::default() })
    };
    assert!(set(&mut node, "vision", "20GiB").expect_err("30 are granted").contains("30 GiB are granted to its jobs"));
    assert!(set(&mut node, &one, "41GiB").expect_err("40 are all").contains("tenant vision has 40 GiB there"));
    set(&mut node, &one, "35GiB").expect("it fits");
    let apply = |node: &mut Node, text: &str| {
        node.registry.apply(&Document::parse(text).expect("legal"), &mut Vec::new()).map(|_| ())
    };
    let reason = apply(&mut node, "tenants: [{name: vision, memory: 30GiB}]").expect_err("35 are granted");
    assert!(reason.contains("35 GiB are granted to its jobs on device 0, of 30 GiB"), "{reason}");
    apply(&mut node, "tenants: []").expect("it stays until its jobs have ended");
    assert_eq!(node.registry.granted(0, None).0 / GIB, 40);
    node.closed(first);
    assert_eq!((node.registry.tenant_named("vision"), node.registry.granted(0, None).0), (None, 0));
    let nested = Document::parse("tenants: [{name: a/b}, {name: a}]").expect_err("nested").to_string();
    assert!(nested.contains("tenants[1].name: \"a\": one is a part of the other, by its name, a/b"), "{nested}");
}

/// Who waits in a pool is not passed in the pool, and keeps nobody outside from the device.
#[test]
fn a_queue_in_a_pool_is_its_own() {
    let mut node = node();
    let (first, _) = node.part(admit("vision", "30GiB"));
    let (large, actions) = node.admit(7, queued("vision/large", "40GiB", QueueLimit::Forever));
    assert!(waits(&actions, large).is_some());
    assert!(node.refusal(7, admit("vision/small", "1GiB")).contains("wait for room before it"));
    node.job("outside", "39GiB");
    assert_eq!(granted(&node.closed(first)), [(large, "vision/large".to_owned())]);
}

/// The next daemon knows whose part it is.
#[test]
fn a_part_is_one_again_after_a_restart() {
    let mut node = node();
    let (_, name) = node.part(admit("vision", "30GiB"));
    let id = node.registry.tenant_named(&name).expect("it runs");
    let process = ProcessRecord { pid: 1, start_ticks: 1 };
    let record = node.registry.record(id, &|_| Some(process.clone())).expect("something to keep");
    let mut next = self::node();
    next.registry.adopt(&record, &[], &[ConnectionId(99)]);
    assert_eq!(next.registry.granted(0, None).0 / GIB, 40);
    let refusal = next.refusal(7, admit("vision", "20GiB"));
    assert!(refusal.contains("30 GiB granted to 1 of its jobs"), "{refusal}");
}

/// Only those whom the pool's rule covers.
#[test]
fn a_pool_is_for_its_users() {
    let mut node = Node::new(1, "tenants: [{name: vision, memory: 40GiB, match: {uid: 7}}]");
    assert!(node.refusal(8, admit("vision/x", "1GiB")).contains("not for user 8"));
    let (connection, actions) = node.hello(&peer(10, 8), hello(Some("vision/x"), Some(1), 1));
    assert!(refused(&actions, connection).expect("no").contains("not for user 8"), "{actions:?}");
    node.part(admit("vision/x", "1GiB"));
}
