//! Oversubscribed devices: what may be granted to whom. A device has 79.5 GiB to grant.

use super::*;

fn dynamic(name: &str, memory: &str) -> Admit {
    Admit { oversubscribe: true, ..admit(name, memory) }
}

fn node(factor: &str) -> Node {
    Node::new(1, &format!("devices: [{{oversubscribe: {factor}}}]\n"))
}

impl Node {
    fn dynamic_job(&mut self, name: &str, memory: &str) -> ConnectionId {
        let (connection, actions) = self.admit(7, dynamic(name, memory));
        assert_eq!(granted(&actions), [(connection, name.to_owned())], "{actions:?}");
        connection
    }
}

#[test]
fn only_who_lets_memory_be_moved_goes_beyond_the_capacity() {
    let mut node = node("1.5");
    node.job("a", "60GiB");
    let reason = node.refusal(7, admit("b", "20GiB"));
    assert!(reason.contains("20 GiB on device 0 do not fit: 79.50 GiB capacity, 60 GiB of it granted"), "{reason}");
    // 60 stay, and of 59.25 more a quarter: 74.8 of 79.5; all together 119.25 of 119.25.
    node.dynamic_job("c", "59.25GiB");
    let reason = node.refusal(7, dynamic("d", "1GiB"));
    for part in
        ["119.25 GiB may be granted (1.5 times 79.50 GiB capacity)", "119.25 GiB granted to 2 tenants", "0 B left"]
    {
        assert!(reason.contains(part), "{reason}");
    }
}

#[test]
fn what_stays_never_exceeds_the_capacity() {
    let mut node = node("4");
    // 76 stay, and a quarter of 12; then there is room for 0.5 more that stays.
    node.job("a", "76GiB");
    node.dynamic_job("b", "12GiB");
    let reason = node.refusal(7, dynamic("c", "4GiB"));
    assert!(reason.contains("1 GiB of 4 GiB, which can't be moved, on device 0 do not fit"), "{reason}");
    assert!(
        reason.contains("79 GiB of it granted as memory that stays, to 2 tenants (a: 76 GiB, b: 3 GiB)"),
        "{reason}"
    );
    node.dynamic_job("d", "2GiB");
    assert!(node.refusal(7, dynamic("e", "1MiB")).contains("1 MiB of 1 MiB, which can't be moved"), "small ones stay");
}

/// The largest factor: quotas of four times the device, and what stays of them just fits.
#[test]
fn the_largest_factor_fits() {
    let mut node = node("4.0");
    let jobs: Vec<ConnectionId> = (0..4).map(|job| node.dynamic_job(&format!("j{job}"), "79.5GiB")).collect();
    assert!(node.refusal(7, admit("stays", "1GiB")).contains("0 B left"));
    node.closed(jobs[0]);
    node.job("stays", "19.5GiB");
}

#[test]
fn one_job_alone_has_no_more_than_the_device() {
    let mut node = node("3");
    assert!(node.refusal(7, dynamic("a", "80GiB")).contains("can never fit"));
    assert!(node.refusal(7, Admit { memory: None, ..dynamic("a", "1GiB") }).contains("give --memory"));
    let mut plain = Node::new(1, "");
    assert!(plain.refusal(7, dynamic("a", "1GiB")).contains("not oversubscribed"));
}

/// A changed quota is of the same kind as before.
#[test]
fn a_change_keeps_the_kind() {
    let mut node = node("1.5");
    node.dynamic_job("a", "20GiB");
    node.job("b", "70GiB");
    let change = |memory: &str| Change { tenant: "a".to_owned(), memory: Some(memory.to_owned()), ..Change::default() };
    node.set(change("38GiB")).expect("a quarter of it is 9.5");
    assert!(node.set(change("39GiB")).expect_err("too much stays").contains("can't be moved"));
    assert_eq!(node.cap("a"), Some(38));
    let id = node.registry.tenant_named("a").expect("there is one");
    assert!(node.registry.effective(id, 0).is_some_and(|quota| quota.dynamic && quota.crowded));
}

/// What stays and what there may be in all are two rooms: who passes those who wait takes nothing from them in either. When
/// the 60 end, 70 leave 9.5 of what stays, and 17.45 of all.
#[test]
fn who_passes_the_queue_delays_nobody_in_either_room() {
    let mut node = node("1.1");
    let first = node.job("a", "60GiB");
    let (large, actions) = node.admit(7, queued("large", "70GiB", QueueLimit::Forever));
    assert!(waits(&actions, large).is_some());
    assert!(node.refusal(7, admit("b", "10GiB")).contains("wait for room before it"), "what stays");
    assert!(node.refusal(7, dynamic("c", "18GiB")).contains("wait for room before it"), "in all");
    node.dynamic_job("c", "17GiB");
    assert_eq!(granted(&node.closed(first)), [(large, "large".to_owned())]);
}

#[test]
fn a_document_grants_both_kinds() {
    let text = "devices: [{oversubscribe: 2}]\ntenants: [{name: a, memory: 60GiB}, {name: b, memory: 70GiB, oversubscribe: true}]\n";
    let node = Node::new(1, text);
    assert_eq!((node.registry.granted(0, None).0, node.registry.firm(0, None).0), (130 * GIB, 60 * GIB + 35 * GIB / 2));
    let refused = |text: &str| {
        Registry::new(&inventory(1), &Document::parse(text).expect("legal"), Overrides::default()).expect_err(text)
    };
    assert!(refused("tenants: [{name: b, memory: 70GiB, oversubscribe: true}]\n").contains("not oversubscribed"));
    assert!(refused(&text.replace("60", "63")).contains("can't be moved"));
}
