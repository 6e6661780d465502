//! What is shown, and documents that replace others.

use super::*;

#[test]
fn rows_show_what_ledger_and_driver_say_and_believe_no_claim() {
    let mut node = Node::new(1, "");
    node.job("a", "20GiB");
    node.member(&peer(10, 7), Hello { command: "train\u{1b}[2J".to_owned(), ..hello(Some("a"), None, 1) });
    node.member(&peer(11, 7), hello(Some("a"), None, 1));
    node.charged = vec![(0, 4 * GIB), (1, u64::MAX)];
    let processes = vec![(10, Some(Bytes(5 * GIB))), (99, Some(Bytes(GIB))), (98, None)];
    let sample = [DeviceSample { used: Some(Bytes(9 * GIB)), processes, error: None }];
    let describe = |pid| (pid == 99).then(|| (3, "other".to_owned(), "then".to_owned()));
    let rows = node.registry.process_rows(&node.charged, &sample, &describe);
    assert_eq!(rows.len(), 3);
    assert_eq!((rows[0].memory_used_bytes, rows[0].memory_overhead_bytes), (4 * GIB, GIB));
    assert_eq!((rows[0].command.as_str(), rows[0].memory_quota_bytes), ("train [2J", Some(20 * GIB)));
    assert_eq!((rows[1].memory_used_bytes, rows[1].memory_overhead_bytes), (80 * GIB, 0), "bounded by the device");
    assert_eq!((rows[2].tenant.as_str(), rows[2].state.as_str(), rows[2].uid), ("-", "foreign", 3));
    let device = &node.registry.device_rows(&node.charged, &sample)[0];
    assert_eq!((device.memory_granted_bytes, device.memory_used_bytes, device.jobs), (20 * GIB, 9 * GIB, 1));
    assert_eq!((device.memory_charged_bytes, device.health.as_str()), (80 * GIB, "ok"));
}

#[test]
fn a_document_is_replaced_whole_or_not_at_all() {
    let mut node = Node::new(1, "tenants:\n  - {name: old, memory: 10GiB}\n  - {name: kept, memory: 10GiB}\n");
    node.job("a", "40GiB");
    let (member, _) = node.member(&peer(10, 7), hello(Some("old"), None, 1));
    let apply = |node: &mut Node, text: &str| {
        let document = Document::parse(text).expect("legal");
        node.registry.apply(&document, &mut Vec::new())
    };
    for (text, word) in [
        ("tenants:\n  - {name: big, memory: 30GiB}\n", "do not fit"),
        ("tenants:\n  - {name: a, memory: 1GiB}\n", "a job runs under this name"),
        ("devices:\n  - {memory_reserve: 40GiB}\n", "would be granted"),
        ("devices:\n  - {select: 4}\n", "no device"),
    ] {
        let reason = apply(&mut node, text).expect_err(text);
        assert!(reason.contains(word), "{reason}");
        assert_eq!((node.cap("kept"), node.cap("old")), (Some(10), Some(10)), "nothing has changed");
    }
    apply(&mut node, "tenants:\n  - {name: kept, memory: 25GiB}\n").expect("it fits");
    assert_eq!((node.cap("kept"), node.cap("old")), (Some(25), Some(10)), "who runs keeps what it has");
    node.died(member);
    assert_eq!(node.registry.tenant_named("old"), None);
}

#[test]
fn a_document_must_go_with_the_devices() {
    for (text, word) in [
        ("tenants:\n  - {name: a, memory: 50GiB}\n  - {name: b, memory: 50GiB}\n", "tenant b"),
        ("devices:\n  - {memory_reserve: 80GiB}\n", "leaves nothing"),
        ("devices:\n  - {select: GPU-9}\n", "devices[0].select"),
    ] {
        let document = Document::parse(text).expect("legal");
        let reason = Registry::new(&inventory(1), &document, Overrides::default()).expect_err(text);
        assert!(reason.contains(word), "{reason}");
    }
}
