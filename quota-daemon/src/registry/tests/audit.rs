//! What is written down of what the registry decides.

use super::*;
use quota_wire::audit::AuditTerms;

fn events(actions: &[Action]) -> Vec<AuditEvent> {
    let event = |action: &Action| match action {
        Action::Audit(event) => Some((**event).clone()),
        _ => None,
    };
    actions.iter().filter_map(event).collect()
}

fn kinds(actions: &[Action]) -> Vec<AuditKind> {
    events(actions).iter().map(|event| event.event).collect()
}

/// Who, what and how much, in one place.
fn facts(event: &AuditEvent) -> (AuditKind, Option<&str>, Option<u32>, Option<u32>, usize) {
    (event.event, event.tenant.as_deref(), event.uid, event.pid, event.devices.len())
}

fn memory(terms: Option<&AuditTerms>) -> Option<u64> {
    terms.and_then(|terms| terms.memory_bytes).map(|bytes| bytes / GIB)
}

#[test]
fn a_job_is_written_down_from_the_question_to_the_end() {
    let mut node = Node::new(2, "");
    let wish = Admit {
        memory: Some("25%".to_owned()),
        compute: Some(3000),
        weight: Some(300),
        command: "train\n".to_owned(),
        ..admit("a", "")
    };
    let (job, actions) = node.admit(7, wish);
    let seen = events(&actions);
    assert_eq!(facts(&seen[0]), (AuditKind::Asked, Some("a"), Some(7), Some(1), 2));
    assert_eq!(facts(&seen[1]), (AuditKind::Granted, Some("a"), Some(7), Some(1), 2));
    let asked = seen[1].asked.as_ref().expect("said");
    assert_eq!(
        (asked.memory_percent, asked.memory_bytes, asked.compute_percent),
        (Some(25.0), Some(20 * GIB), Some(30.0))
    );
    let granted = seen[1].granted.as_ref().expect("said");
    assert_eq!(
        (granted.memory_bytes, granted.weight, granted.priority.as_deref()),
        (Some(20 * GIB), Some(300), Some("normal"))
    );
    assert_eq!((seen[1].command.as_deref(), seen.len()), (Some("train"), 2));
    let (member, actions) = node.hello(&peer(10, 7), hello(Some("a"), Some(5), 2));
    let joined = &events(&actions)[0];
    assert_eq!(facts(joined), (AuditKind::Joined, Some("a"), Some(7), Some(10), 2));
    assert_eq!((memory(joined.asked.as_ref()), memory(joined.granted.as_ref())), (Some(5), Some(5)));
    assert_eq!(kinds(&node.closed(job)), [AuditKind::Left], "the process goes on");
    let actions = node.died(member);
    let seen = events(&actions);
    assert_eq!(facts(&seen[0]), (AuditKind::Died, Some("a"), Some(7), Some(10), 2));
    assert_eq!(facts(&seen[1]), (AuditKind::Released, Some("a"), Some(7), None, 2));
    assert_eq!((memory(seen[1].granted.as_ref()), seen.len()), (Some(20), 2));
}

#[test]
fn the_queue_is_written_down() {
    let mut node = Node::new(1, "");
    let first = node.job("first", "50GiB");
    let (_, actions) = node.admit(7, queued("second", "40GiB", QueueLimit::Forever));
    let seen = events(&actions);
    assert_eq!(kinds(&actions), [AuditKind::Asked, AuditKind::Queued]);
    assert!(seen[1].reason.as_deref().is_some_and(|reason| reason.contains("29.50 GiB left")), "{seen:?}");
    assert_eq!(memory(seen[1].asked.as_ref()), Some(40));
    let (third, _) = node.admit(7, queued("third", "40GiB", QueueLimit::Forever));
    node.admit(7, queued("fourth", "40GiB", QueueLimit::Milliseconds(5)));
    let cancelled = events(&node.closed(third));
    assert_eq!(
        (cancelled.len(), facts(&cancelled[0])),
        (1, (AuditKind::Cancelled, Some("third"), Some(7), Some(1), 1))
    );
    let mut actions = Vec::new();
    node.registry.tick(5, &mut actions);
    let expired = events(&actions);
    assert_eq!((expired.len(), facts(&expired[0])), (1, (AuditKind::Expired, Some("fourth"), Some(7), Some(1), 1)));
    let actions = node.closed(first);
    assert_eq!(kinds(&actions), [AuditKind::Left, AuditKind::Released, AuditKind::Granted]);
    let (_, actions) = node.admit(9, admit("second", "1GiB"));
    let refused = events(&actions);
    assert_eq!(kinds(&actions), [AuditKind::Asked, AuditKind::Refused]);
    assert!(refused[1].reason.as_deref().is_some_and(|reason| reason.contains("belongs to user 7")), "{refused:?}");
    let (_, actions) = node.admit(9, admit("bad", "12Q"));
    assert_eq!((kinds(&actions), events(&actions)[0].asked.is_none()), (vec![AuditKind::Refused], true));
}

#[test]
fn changes_are_written_down_with_what_they_change() {
    let mut node = Node::new(1, "");
    node.job("a", "10GiB");
    let mut actions = Vec::new();
    let change = Change { tenant: "a".to_owned(), memory: Some("20GiB".to_owned()), ..Change::default() };
    node.registry.set(&change, &node.charged, &mut actions).expect("it fits");
    let set = &events(&actions)[0];
    assert_eq!(facts(set), (AuditKind::Changed, Some("a"), Some(7), None, 1));
    assert_eq!(
        (set.change.as_deref(), memory(set.asked.as_ref()), memory(set.granted.as_ref())),
        (Some("set"), Some(20), Some(20))
    );
    assert!(set.asked.as_ref().is_some_and(|asked| asked.weight.is_none()), "not asked for");
    for (paused, word) in [(true, "pause"), (false, "resume")] {
        let mut actions = Vec::new();
        node.registry.pause("a", paused, &mut actions).expect("there is one");
        node.registry.pause("a", paused, &mut actions).expect("there is one");
        let seen = events(&actions);
        assert_eq!((seen.len(), seen[0].change.as_deref()), (1, Some(word)), "the second time changes nothing");
    }
    let mut apply = |text: &str| {
        let mut actions = Vec::new();
        node.registry.apply(&Document::parse(text).expect("legal"), &mut actions).expect("it fits");
        events(&actions)
    };
    let tenants = |seen: &[AuditEvent]| -> Vec<(AuditKind, Option<String>, Option<u64>)> {
        seen.iter().map(|event| (event.event, event.tenant.clone(), memory(event.granted.as_ref()))).collect()
    };
    let named = |name: &str| Some(name.to_owned());
    let document = (AuditKind::Changed, None, None);
    let seen = apply("tenants: [{name: e, memory: 10GiB}, {name: f, memory: 10GiB}]\n");
    assert_eq!(
        tenants(&seen),
        [document.clone(), (AuditKind::Granted, named("e"), Some(10)), (AuditKind::Granted, named("f"), Some(10))]
    );
    assert!(seen.iter().all(|event| event.change.as_deref() == Some("apply")));
    let seen = apply("tenants: [{name: e, memory: 20GiB}]\n");
    assert_eq!(
        tenants(&seen),
        [document, (AuditKind::Changed, named("e"), Some(20)), (AuditKind::Released, named("f"), Some(10))]
    );
}

/// A share of two devices of different size is different on each; it is one event all the same.
#[test]
fn what_differs_by_device_is_told_for_each() {
    let mut devices = inventory(3);
    devices.devices[2].total = Bytes(40 * GIB);
    let registry = Registry::new(&devices, &Document::default(), Overrides::default()).expect("it fits");
    let mut node = Node { registry, now_ms: 0, connections: 0, charged: Vec::new() };
    let (_, actions) = node.admit(7, admit("a", "50%"));
    let seen = events(&actions);
    assert_eq!(kinds(&actions), [AuditKind::Asked, AuditKind::Granted]);
    let asked = seen[0].asked.as_ref().expect("said");
    assert_eq!((asked.memory_percent, asked.memory_bytes, seen[0].devices.len()), (Some(50.0), None, 3));
    let each: Vec<_> =
        seen[1].granted_by_device.iter().map(|it| (it.device.clone(), memory(Some(&it.terms)))).collect();
    assert_eq!(each, [(uuid(0), Some(40)), (uuid(1), Some(40)), (uuid(2), Some(20))]);
    assert!(seen[1].granted.is_none() && seen[1].devices.len() == 3);
}

#[test]
fn a_refused_hello_is_written_down_and_one_that_called_exec_has_left() {
    let mut node = Node::new(1, "");
    let (_, actions) = node.hello(&peer(10, 7), hello(Some("a"), Some(100), 1));
    let refused = &events(&actions)[0];
    assert_eq!(facts(refused), (AuditKind::Refused, Some("a"), Some(7), Some(10), 0));
    assert_eq!(memory(refused.asked.as_ref()), Some(100));
    let (member, _) = node.member(&peer(10, 7), hello(Some("a"), Some(1), 1));
    let mut actions = Vec::new();
    node.registry.left(member, &mut actions);
    assert_eq!(kinds(&actions), [AuditKind::Left, AuditKind::Released]);
}
