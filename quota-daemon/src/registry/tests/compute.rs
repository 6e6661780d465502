//! Guarantees, pauses and how device time is shared out.

use super::*;

#[test]
fn guarantees_are_promised_once() {
    let mut node = Node::new(1, "");
    let ask = |name: &str, hundredths| Admit { guarantee: Some(hundredths), ..admit(name, "1GiB") };
    node.admit(7, ask("a", 6000));
    assert!(node.refusal(7, ask("b", 5000)).contains("60% are promised already, of 95%"));
    assert!(node.refusal(7, ask("b", 9600)).contains("can never fit: 95% can be promised"));
    assert_eq!(granted(&node.admit(7, ask("b", 3500)).1).len(), 1);
    assert!(node.set(Change { tenant: "b".to_owned(), guarantee: Some(3600), ..Change::default() }).is_err());
    let above = Admit { compute: Some(1000), ..ask("c", 2000) };
    assert!(node.refusal(7, above).contains("a guarantee of 20% is above the compute cap of 10%"));
    // The document can promise no more than the jobs leave.
    let document = |guarantee: u32| format!("tenants:\n  - {{name: s, compute: {{guarantee: {guarantee}%}}}}\n");
    let apply =
        |node: &mut Node, text: &str| node.registry.apply(&Document::parse(text).expect("legal"), &mut Vec::new());
    assert!(apply(&mut node, &document(10)).expect_err("too much").contains("of 95%"));
    let mut other = Node::new(1, &document(90));
    assert!(other.refusal(7, ask("x", 600)).contains("90% of it by the daemon's document"));
}

#[test]
fn a_process_that_asks_for_less_than_is_guaranteed_gives_the_rest_up() {
    let mut node = Node::new(1, "tenants:\n  - {name: a, compute: {guarantee: 40%, limit: 80%}}\n");
    let mut asks = hello(Some("a"), None, 1);
    asks.devices[0].compute = Some(3000);
    let (connection, welcome) = node.member(&peer(10, 7), asks);
    let shares = |node: &Node| {
        let quota = node.registry.effective(welcome.tenant, 0).expect("granted");
        (quota.compute_cap.map(Percent::hundredths), quota.guarantee.map(Percent::hundredths))
    };
    assert_eq!(shares(&node), (Some(3000), Some(3000)));
    node.died(connection);
    assert_eq!(shares(&node), (Some(8000), Some(4000)));
    let mut greedy = hello(Some("b"), None, 1);
    (greedy.devices[0].compute, greedy.guarantee) = (Some(3000), Some(4000));
    let (connection, actions) = node.hello(&peer(11, 7), greedy);
    assert!(refused(&actions, connection).expect("refused").contains("above the compute cap"));
}

#[test]
fn a_pause_is_said_kept_and_ended() {
    let mut node = Node::new(1, "");
    let job = node.job("a", "1GiB");
    let id = node.registry.tenant_named("a").expect("there is one");
    let pause = |node: &mut Node, name: &str, paused: bool| {
        let mut actions = Vec::new();
        node.registry.pause(name, paused, &mut actions).map(|message| (message, actions.contains(&Action::Publish(id))))
    };
    assert!(pause(&mut node, "nobody", true).expect_err("there is none").contains("there are: a"));
    let (message, published) = pause(&mut node, "a", true).expect("there is one");
    assert!(message.contains("paused") && published && node.registry.is_paused(id));
    let (message, published) = pause(&mut node, "a", true).expect("there is one");
    assert!(message.contains("paused already") && !published, "{message}");
    let record = node.registry.record(id, &|_| None).expect("it is active");
    let mut next = Node::new(1, "").registry;
    let adopted = next.adopt(&record, &[], &[job]);
    assert!(next.is_paused(adopted), "it outlives the daemon");
    assert!(!Node::new(1, "").registry.stays(&record), "it is no tenant of the document: it ends with its job");
    let document = "tenants:\n  - {name: s}\n";
    let mut standing = Node::new(1, document).registry;
    standing.pause("s", true, &mut Vec::new()).expect("there is one");
    let s = standing.tenant_named("s").expect("there is one");
    let record = standing.record(s, &|_| None).expect("a pause is kept also while nobody is there");
    assert!(Node::new(1, document).registry.stays(&record));
    assert!(pause(&mut node, "a", false).expect("there is one").1 && !node.registry.is_paused(id));
    assert!(pause(&mut node, "a", false).expect("there is one").0.contains("not paused"));
}

#[test]
fn a_document_that_changes_the_scheduling_has_it_changed_live() {
    let mut node = Node::new(1, "scheduling: {policy: fifo}\n");
    let apply = |node: &mut Node, text: &str| {
        let mut actions = Vec::new();
        node.registry.apply(&Document::parse(text).expect("legal"), &mut actions).expect("it fits");
        actions.contains(&Action::Reschedule)
    };
    assert!(!apply(&mut node, "scheduling: {policy: fifo}\n"));
    assert!(apply(&mut node, "scheduling: {policy: fifo, quantum: 5ms}\n"));
    assert!(apply(&mut node, "# back to what it is without\n"));
    assert_eq!(node.registry.rules(), Rules::default());
}
