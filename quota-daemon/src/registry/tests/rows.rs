//! What is shown, and documents that replace others.

use super::*;
use crate::shares::{ComputeClaim, Shares};
use std::sync::LazyLock;

pub(super) fn view<'a>(usage: &'a dyn Usage, sample: &'a [DeviceSample]) -> View<'a> {
    static SHARES: LazyLock<Shares> = LazyLock::new(Shares::default);
    View { usage, sample, shares: &SHARES, trouble: None, now_ns: 5_000_000_000 }
}

/// What the process in slot 0 claims of its use of the device.
struct Claims(ComputeClaim);

impl Usage for Claims {
    fn charged(&self, _tenant: TenantId, _slot: u32, _device: usize) -> Bytes {
        Bytes(0)
    }

    fn overhead(&self, _tenant: TenantId, _slot: u32, _device: usize) -> Bytes {
        Bytes(0)
    }

    fn compute(&self, _tenant: TenantId, slot: u32, _device: usize) -> Option<ComputeClaim> {
        (slot == 0).then_some(self.0)
    }
}

#[test]
fn a_row_says_what_a_process_got_and_what_holds_it_back() {
    let mut node = Node::new(1, "");
    node.job("a", "20GiB");
    node.member(&peer(10, 7), hello(Some("a"), None, 1));
    let row = |node: &Node, claim: ComputeClaim, used: Option<u32>| {
        let utilisation = used.map(|percent| vec![(10, percent), (99, 20)]);
        let sample = [DeviceSample { utilisation, ..DeviceSample::default() }];
        node.registry.process_rows(&view(&Claims(claim), &sample), &|_| None).remove(0)
    };
    let counted = ComputeClaim { counted: true, ..ComputeClaim::default() };
    for (claim, used, state) in [
        (ComputeClaim::default(), None, "running"),
        (ComputeClaim::default(), Some(0), "running"),
        (counted, Some(0), "idle"),
        (ComputeClaim { under_way: true, ..counted }, Some(0), "running"),
        (counted, Some(40), "running"),
        (ComputeClaim { waiting: 2, ..counted }, None, "waiting"),
        (ComputeClaim { throttled: 1, ..counted }, None, "throttled"),
    ] {
        let row = row(&node, claim, used);
        assert_eq!((row.state.as_str(), row.compute_used_percent), (state, used.map(f64::from)), "{claim:?}");
    }
    let absurd = ComputeClaim { waited_ns: u64::MAX, throttled_ns: 1_234_567_890, waiting: u32::MAX, ..counted };
    let shown = row(&node, absurd, None);
    assert_eq!((shown.compute_waited_seconds, shown.compute_throttled_seconds), (5.0, 1.234), "no more than there was");
    assert!(shown.compute_waiting < u32::MAX);
    let borrows = ComputeClaim { borrowed: Percent::from_hundredths(1_250), ..counted };
    assert_eq!(
        (shown.compute_borrowed_percent, row(&node, borrows, None).compute_borrowed_percent),
        (None, Some(12.5))
    );
    node.registry.pause("a", true, &mut Vec::new()).expect("there is one");
    assert_eq!(row(&node, ComputeClaim { waiting: 1, ..counted }, None).state, "paused");
}

#[test]
fn a_device_says_who_has_it_and_what_of_it_is_promised() {
    let mut node = Node::new(1, "tenants:\n  - {name: a, compute: {guarantee: 40%}}\n");
    node.member(&peer(10, 7), hello(Some("a"), None, 1));
    let a = node.registry.tenant_named("a").expect("there is one");
    let sample = [DeviceSample { utilisation: Some(vec![(10, 30), (99, 90)]), ..DeviceSample::default() }];
    let device = |token: Token| node.registry.device_rows(&view(&node.charged, &sample), &[token]).remove(0);
    let shared = device(Token { holder: Some(a.number()), contenders: 3 });
    assert_eq!((shared.compute_guaranteed_percent, shared.compute_used_percent), (40.0, Some(100.0)));
    assert_eq!((shared.compute_contended_jobs, shared.compute_holder.as_deref()), (3, Some("a")));
    let alone = device(Token { holder: Some(77), contenders: 1 });
    assert_eq!((alone.compute_contended_jobs, alone.compute_holder), (0, None), "nothing is shared");
    let nothing = &node.registry.device_rows(&view(&node.charged, &[]), &[])[0];
    assert_eq!(nothing.compute_used_percent, None, "nobody knows");
}

#[test]
fn rows_show_what_ledger_and_driver_say_and_believe_no_claim() {
    let mut node = Node::new(1, "");
    node.job("a", "20GiB");
    node.member(&peer(10, 7), Hello { command: "train\u{1b}[2J".to_owned(), ..hello(Some("a"), None, 1) });
    node.member(&peer(11, 7), hello(Some("a"), None, 1));
    node.charged = vec![(0, 4 * GIB), (1, u64::MAX)];
    let processes = vec![(10, Some(Bytes(5 * GIB))), (99, Some(Bytes(GIB))), (98, None)];
    let sample = [DeviceSample { used: Some(Bytes(9 * GIB)), processes, ..DeviceSample::default() }];
    let describe = |pid| (pid == 99).then(|| (3, "other".to_owned(), "then".to_owned()));
    let rows = node.registry.process_rows(&view(&node.charged, &sample), &describe);
    assert_eq!(rows.len(), 3);
    assert_eq!((rows[0].memory_used_bytes, rows[0].memory_overhead_bytes), (4 * GIB, GIB));
    assert_eq!((rows[0].command.as_str(), rows[0].memory_quota_bytes), ("train [2J", Some(20 * GIB)));
    assert_eq!((rows[1].memory_used_bytes, rows[1].memory_overhead_bytes), (80 * GIB, 0), "bounded by the device");
    assert_eq!((rows[2].tenant.as_str(), rows[2].state.as_str(), rows[2].uid), ("-", "foreign", 3));
    let device = &node.registry.device_rows(&view(&node.charged, &sample), &[])[0];
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
