//! Who waits, for how long, and who may start before them.

use super::*;

#[test]
fn the_queue_is_served_in_order_of_arrival() {
    let mut node = Node::new(1, "");
    let first = node.job("a", "60GiB");
    let (large, actions) = node.admit(7, queued("large", "70GiB", QueueLimit::Forever));
    assert_eq!(waits(&actions, large).map(|it| it.0), Some(0));
    // It would fit now, but the one that waits would then wait for it too.
    let (small, actions) = node.admit(7, queued("small", "15GiB", QueueLimit::Forever));
    assert_eq!(waits(&actions, small), Some((1, "those before it".to_owned())));
    assert!(node.refusal(7, admit("sneaky", "15GiB")).contains("wait for room before it; wait with --queue"));
    let actions = node.closed(first);
    assert_eq!(granted(&actions), [(large, "large".to_owned())]);
    assert_eq!(granted(&node.closed(large)), [(small, "small".to_owned())]);
    assert_eq!(node.registry.next_deadline_ms(), None);
}

/// 60 run, 70 wait for 79.5: 9.5 can go to others without those 70 starting later, and not more.
#[test]
fn what_delays_nobody_passes_the_queue() {
    let mut node = Node::new(1, "");
    let first = node.job("a", "60GiB");
    let (large, _) = node.admit(7, queued("large", "70GiB", QueueLimit::Forever));
    let (small, actions) = node.admit(7, queued("small", "5GiB", QueueLimit::Forever));
    assert_eq!(granted(&actions), [(small, "small".to_owned())]);
    node.job("unqueued", "4GiB");
    assert!(node.refusal(7, admit("too-much", "1GiB")).contains("wait for room before it"));
    assert_eq!(granted(&node.closed(first)), [(large, "large".to_owned())]);
}

/// What the document has set aside never comes back: it is not counted on, nor kept free for.
#[test]
fn what_the_document_keeps_does_not_end() {
    let mut node = Node::new(1, "tenants: [{name: kept, memory: 35GiB}]");
    node.job("a", "40GiB");
    let (large, actions) = node.admit(7, queued("large", "39GiB", QueueLimit::Forever));
    assert!(waits(&actions, large).is_some());
    node.job("small", "4GiB");
}

/// Guarantees too: 50 and 40 of 95 leave 5 beside the one that waits.
#[test]
fn a_guarantee_that_somebody_waits_for_is_not_given_away() {
    let mut node = Node::new(1, "");
    let with = |guarantee, ask: Admit| Admit { guarantee: Some(guarantee), ..ask };
    node.admit(7, with(5000, admit("a", "60GiB")));
    let (large, actions) = node.admit(7, with(4000, queued("large", "70GiB", QueueLimit::Forever)));
    assert!(waits(&actions, large).is_some());
    assert!(node.refusal(7, with(600, admit("b", "1GiB"))).contains("wait for room before it"));
    let (small, actions) = node.admit(7, with(500, admit("c", "1GiB")));
    assert_eq!(granted(&actions), [(small, "c".to_owned())]);
}

/// The last place among the jobs of a device is the first waiter's, however little memory somebody else wants.
#[test]
fn the_last_place_is_kept_for_the_first_who_waits() {
    let mut node = Node::new(1, "devices: [{select: all, max_jobs: 2}]");
    let first = node.job("a", "60GiB");
    let (large, _) = node.admit(7, queued("large", "70GiB", QueueLimit::Forever));
    let (small, actions) = node.admit(7, queued("small", "1GiB", QueueLimit::Forever));
    assert!(waits(&actions, small).is_some());
    let actions = node.closed(first);
    assert_eq!(granted(&actions), [(large, "large".to_owned()), (small, "small".to_owned())]);
}

/// So it is for a tenant of the document, whose memory is set aside, but not its place.
#[test]
fn a_place_is_kept_from_tenants_of_the_document_too() {
    let tenants = "scheduling: {policy: fifo}, tenants: [{name: kept, memory: 5GiB}]";
    let mut node = Node::new(1, &format!("{{devices: [{{select: all, max_jobs: 2}}], {tenants}}}"));
    let first = node.job("a", "60GiB");
    let (large, _) = node.admit(7, queued("large", "70GiB", QueueLimit::Forever));
    let kept = || Admit { tenant: Some("kept".to_owned()), ..Admit::default() };
    assert!(node.refusal(7, kept()).contains("wait for room before it"));
    assert_eq!(granted(&node.closed(first)), [(large, "large".to_owned())]);
    assert_eq!(granted(&node.admit(7, kept()).1).len(), 1);
    // A further job of one that runs takes none.
    let (third, _) = node.admit(7, queued("third", "1GiB", QueueLimit::Forever));
    assert_eq!(granted(&node.admit(7, kept()).1).len(), 1);
    node.closed(third);
}

/// Looking through what all may come to is bounded: behind more than sixteen, one waits.
#[test]
fn behind_many_one_waits() {
    let mut node = Node::new(1, "");
    node.job("a", "60GiB");
    for number in 0..=16 {
        node.job(&format!("small-{number}"), "1MiB");
        node.admit(7, queued(&format!("large-{number}"), "70GiB", QueueLimit::Forever));
    }
    assert!(node.refusal(7, admit("late", "1MiB")).contains("wait for room before it"));
}

#[test]
fn a_job_on_other_devices_passes_the_queue() {
    let mut node = Node::new(2, "");
    let on = |device: &str, ask: Admit| Admit { device: Some(device.to_owned()), ..ask };
    node.admit(7, on("0", admit("a", "60GiB")));
    let (waiting, actions) = node.admit(7, on("0", queued("b", "60GiB", QueueLimit::Forever)));
    assert!(waits(&actions, waiting).is_some());
    let (other, actions) = node.admit(7, on("1", admit("c", "60GiB")));
    assert_eq!(granted(&actions), [(other, "c".to_owned())]);
}

#[test]
fn a_wait_ends_at_its_deadline_or_with_its_connection() {
    let mut node = Node::new(1, "");
    node.job("a", "60GiB");
    let (first, _) = node.admit(7, queued("b", "60GiB", QueueLimit::Milliseconds(1000)));
    let (second, _) = node.admit(7, queued("c", "60GiB", QueueLimit::Milliseconds(5000)));
    assert_eq!(node.registry.next_deadline_ms(), Some(1000));
    let mut actions = Vec::new();
    node.registry.tick(1000, &mut actions);
    assert!(refused(&actions, first).expect("over").contains("60 GiB on device 0 do not fit"));
    assert_eq!(waits(&actions, second).map(|it| it.0), Some(0), "told that it is first now");
    node.closed(second);
    assert_eq!(node.registry.next_deadline_ms(), None);
    assert!(!node.registry.is_idle());
}
