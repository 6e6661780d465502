//! Who is next, by policy.

use super::*;

const HOUR_MS: u64 = 3_600_000;

fn node(policy: &str) -> Node {
    Node::new(1, &format!("scheduling: {{policy: {policy}, aging: 1h}}"))
}

impl Node {
    /// A job that waits for room.
    fn waiting(&mut self, uid: u32, ask: Admit) -> ConnectionId {
        let (connection, actions) = self.admit(uid, Admit { queue: Some(QueueLimit::Forever), ..ask });
        assert!(waits(&actions, connection).is_some(), "{actions:?}");
        connection
    }

    /// Those that get their places when a job ends.
    fn next(&mut self, ends: ConnectionId) -> Vec<ConnectionId> {
        granted(&self.closed(ends)).into_iter().map(|(connection, _)| connection).collect()
    }

    fn tick(&mut self, now_ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        self.now_ms = now_ms;
        self.registry.tick(now_ms, &mut actions);
        actions
    }
}

fn of_class(class: &str, ask: Admit) -> Admit {
    Admit { priority: Some(class.to_owned()), ..ask }
}

#[test]
fn under_fifo_nobody_passes() {
    let mut node = node("fifo");
    let first = node.job("a", "70GiB");
    let batch = node.waiting(7, of_class("batch", admit("b", "70GiB")));
    let high = node.waiting(8, of_class("high", admit("c", "70GiB")));
    node.tick(100 * HOUR_MS);
    assert_eq!(node.next(first), [batch]);
    assert_eq!(node.next(batch), [high]);
}

#[test]
fn under_priority_the_higher_class_is_next_and_waiting_raises() {
    let mut node = node("priority");
    let first = node.job("a", "70GiB");
    let batch = node.waiting(7, of_class("batch", admit("b", "70GiB")));
    let normal = node.waiting(7, admit("c", "70GiB"));
    let (high, actions) = node.admit(7, of_class("high", queued("d", "70GiB", QueueLimit::Forever)));
    assert_eq!(waits(&actions, high).map(|it| it.0), Some(0), "before the others");
    assert_eq!(waits(&actions, batch).map(|it| it.0), Some(2), "which are told so");
    assert_eq!(node.next(first), [high]);
    // An hour later the first has come up to those that come now; it came before them.
    assert_eq!(node.registry.next_deadline_ms(), Some(HOUR_MS));
    node.tick(HOUR_MS);
    let late = node.waiting(7, admit("e", "70GiB"));
    assert_eq!(node.next(high), [normal], "which has risen as well");
    assert_eq!(node.next(normal), [batch]);
    assert_eq!(node.next(batch), [late]);
}

/// However many come later, and of whatever class: two hours' waiting is as good as being of the high class.
#[test]
fn nobody_waits_for_ever() {
    for policy in ["priority", "fair", "priority-fair"] {
        let mut node = node(policy);
        let mut running = node.job("a", "70GiB");
        // Its party has much, those that come have nothing.
        node.job("b", "9GiB");
        let batch = node.waiting(7, of_class("batch", admit("c", "70GiB")));
        let mut rounds = 0;
        while running != batch {
            node.tick(rounds * 600_000);
            let uid = 100 + rounds as u32;
            node.waiting(uid, of_class("high", admit(&format!("d-{rounds}"), "70GiB")));
            running = node.next(running)[0];
            rounds += 1;
            assert!(rounds < 20, "{policy}: it waits for ever");
        }
        assert!(rounds > 5, "{policy}: {rounds}");
    }
}

/// The example of dominant resource fairness: of 18 of memory and 90 of compute, one wants 4 and 10 a job, the other 1 and
/// 30. Both have two thirds of what they want most of when the one has three jobs and the other two.
#[test]
fn under_fair_dominant_shares_are_evened_out() {
    let document = "{devices: [{select: all, memory_reserve: 62GiB}], scheduling: {policy: fair}}";
    let mut node = Node::new(1, document);
    let blocks = node.job("all", "18GiB");
    let mut asks = Vec::new();
    for number in 0..5 {
        let memory = |ask: Admit| Admit { guarantee: Some(1000), ..ask };
        let compute = |ask: Admit| Admit { guarantee: Some(3000), ..ask };
        asks.push(node.waiting(1, memory(admit(&format!("m-{number}"), "4GiB"))));
        asks.push(node.waiting(2, compute(admit(&format!("c-{number}"), "1GiB"))));
    }
    let started = node.next(blocks);
    let of = |parity: usize| {
        started.iter().filter(|it| asks.iter().position(|ask| ask == *it).expect("one of them") % 2 == parity).count()
    };
    assert_eq!((of(0), of(1)), (3, 2), "{started:?} of {asks:?}");
}

/// Names are free, users are not: who gives each job a name of its own has no larger share by it.
#[test]
fn under_fair_a_user_is_one_party() {
    let mut node = node("fair");
    node.job("a", "40GiB");
    let other = node.admit(8, admit("b", "30GiB")).0;
    let more = node.waiting(7, admit("c", "30GiB"));
    let less = node.waiting(9, admit("d", "30GiB"));
    assert_eq!(node.next(other), [less], "user 7 has 40");
    assert_eq!(node.next(less), [more]);
}

/// A tenant of the document is a party whoever runs its jobs, and its weight counts.
#[test]
fn under_fair_weights_count() {
    let tenants = "[{name: heavy, compute: {weight: 300}}, {name: light}]";
    let mut node = Node::new(1, &format!("{{scheduling: {{policy: fair}}, tenants: {tenants}}}"));
    let other = node.admit(9, admit("x", "20GiB")).0;
    node.job("heavy", "30GiB");
    node.job("light", "15GiB");
    let filler = node.admit(9, admit("y", "14GiB")).0;
    let light = node.waiting(8, Admit { device: Some("0".to_owned()), ..admit("z", "34GiB") });
    assert_eq!(node.next(other).len(), 0);
    assert_eq!(node.next(filler), [light]);
    let shares = node.registry.shares_in_order();
    assert_eq!(shares, ["heavy", "light", "user 8"], "30 of 300, 15 of 100, 34");
}

#[test]
fn under_priority_fair_classes_come_first_and_shares_second() {
    let mut node = node("priority-fair");
    let first = node.job("a", "60GiB");
    node.job("b", "10GiB");
    let rich = node.waiting(7, admit("c", "60GiB"));
    let poor = node.waiting(8, admit("d", "60GiB"));
    let batch = node.waiting(9, of_class("batch", admit("e", "60GiB")));
    let high = node.waiting(7, of_class("high", admit("f", "60GiB")));
    assert_eq!(node.next(first), [high]);
    assert_eq!(node.next(high), [poor]);
    assert_eq!(node.next(poor), [rich]);
    assert_eq!(node.next(rich), [batch]);
}

/// What a process asks for without `run` is subject to the queue as well.
#[test]
fn a_process_does_not_get_before_those_who_wait() {
    let mut node = node("fifo");
    node.job("a", "60GiB");
    node.waiting(7, admit("b", "70GiB"));
    let (connection, actions) = node.hello(&peer(5, 9), hello(Some("c"), Some(15), 1));
    assert!(refused(&actions, connection).expect("no").contains("1 jobs wait for room before it"), "{actions:?}");
    node.member(&peer(6, 9), hello(Some("d"), Some(9), 1));
    node.member(&peer(7, 9), hello(Some("e"), None, 1));
}
