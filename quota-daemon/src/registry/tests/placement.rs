//! Which devices a job gets that leaves it to the daemon.

use super::*;

fn some(count: u32, ask: Admit) -> Admit {
    Admit { count: Some(count), ..ask }
}

fn on(device: &str, ask: Admit) -> Admit {
    Admit { device: Some(device.to_owned()), ..ask }
}

impl Node {
    /// The devices of a job that must get its place at once.
    fn placed(&mut self, ask: Admit) -> Vec<usize> {
        let (connection, actions) = self.admit(7, ask);
        let granted = actions.iter().find_map(|action| match action {
            Action::Reply(to, Reply::Granted(granted)) if *to == connection => Some(granted.devices.clone()),
            _ => None,
        });
        let devices = granted.unwrap_or_else(|| panic!("{actions:?}"));
        devices.iter().map(|device| self.registry.device_with(device).expect("known")).collect()
    }
}

fn node(placement: &str) -> Node {
    let mut node = Node::new(3, &format!("scheduling: {{placement: {placement}}}"));
    node.placed(on("0", admit("a", "20GiB")));
    node.placed(on("1", admit("b", "40GiB")));
    node.placed(on("1", admit("c", "10GiB")));
    node
}

#[test]
fn the_best_fit_leaves_the_least() {
    let mut node = node("best-fit");
    assert_eq!(node.placed(some(1, admit("d", "25GiB"))), [1]);
    assert_eq!(node.placed(some(1, admit("e", "25GiB"))), [0]);
    assert_eq!(node.placed(some(2, admit("f", "30GiB"))), [0, 2]);
}

#[test]
fn spread_goes_where_the_fewest_are() {
    let mut node = node("spread");
    assert_eq!(node.placed(some(1, admit("d", "25GiB"))), [2]);
    assert_eq!(node.placed(some(1, admit("e", "5GiB"))), [0], "one job each, and it has the most memory left");
    assert_eq!(node.placed(some(2, admit("f", "1GiB"))), [0, 2]);
}

/// What those of its class and above want counts first: a batch job is no neighbour to one of the high class.
#[test]
fn the_least_interference_is_where_the_least_time_is_wanted() {
    let mut node = Node::new(3, "scheduling: {placement: least-interference}");
    let with = |class: &str, compute, ask: Admit| Admit { priority: Some(class.to_owned()), compute, ..ask };
    node.placed(on("0", with("normal", Some(3000), admit("a", "1GiB"))));
    node.placed(on("1", with("batch", None, admit("b", "1GiB"))));
    node.placed(on("2", with("high", Some(2000), admit("c", "1GiB"))));
    assert_eq!(node.placed(some(1, with("normal", None, admit("d", "1GiB")))), [1], "nothing before it");
    assert_eq!(node.placed(some(1, with("batch", Some(1000), admit("e", "1GiB")))), [2], "20 of the time");
}

#[test]
fn what_is_left_to_the_daemon_is_refused_with_the_numbers_or_waits() {
    let mut node = node("best-fit");
    let refusal = node.refusal(7, some(3, admit("d", "79GiB")));
    assert!(refusal.contains("79 GiB on device 0 do not fit") && refusal.ends_with("wait with --queue"), "{refusal}");
    let never = node.refusal(7, some(2, queued("d", "81GiB", QueueLimit::Forever)));
    assert_eq!(
        never,
        "2 of 3 devices can never be had: 81 GiB on device 0 can never fit: 79.50 GiB capacity (80 GiB less 512 MiB reserve)"
    );
    assert!(node.refusal(7, some(4, admit("d", "1GiB"))).starts_with("count: 4: expected 1 to 3"));
    assert!(node.refusal(7, on("0", some(2, admit("d", "1GiB")))).starts_with("count: 2: expected 1 to 1"));
    let (waiting, actions) = node.admit(7, some(2, queued("d", "60GiB", QueueLimit::Forever)));
    assert!(waits(&actions, waiting).expect("it waits").1.contains("60 GiB on device 0 do not fit"), "{actions:?}");
    assert_eq!(node.placed(some(1, admit("e", "5GiB"))), [1], "what the other can't have");
}

/// A tenant's next job goes where the tenant is.
#[test]
fn a_tenant_stays_where_it_is() {
    let mut node = node("spread");
    assert_eq!(node.placed(some(1, on("1", admit("d", "5GiB")))), [1]);
    assert_eq!(node.placed(some(1, admit("d", "5GiB"))), [1]);
}

/// Devices of different sizes: half is half of each.
#[test]
fn each_device_is_judged_by_its_own_size() {
    let mut inventory = inventory(2);
    inventory.devices[0].total = Bytes(10 * GIB);
    inventory.devices[1].total = Bytes(20 * GIB);
    let overrides = Overrides { reserve: Some(Bytes(0)), ..Overrides::default() };
    let mut node = Node::new(1, "");
    node.registry = Registry::new(&inventory, &Document::default(), overrides).expect("it fits");
    assert_eq!(node.placed(admit("a", "50%")), [0, 1]);
    let cap = |node: &Node, device| node.registry.granted(device, None).0 / GIB;
    assert_eq!((cap(&node, 0), cap(&node, 1)), (5, 10));
    assert_eq!(node.placed(some(1, admit("b", "8GiB"))), [1], "the only one");
}
