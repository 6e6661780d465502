//! What a document makes hold: said before, and by the time of the week.

use super::*;

fn preview(node: &Node, text: &str) -> Result<Vec<String>, String> {
    let document = Document::parse(text).expect("legal");
    let lines = node.registry.preview(&document, &node.charged)?;
    Ok(lines.lines().map(str::to_owned).collect())
}

#[test]
fn a_preview_says_what_would_change_and_changes_nothing() {
    let text = "{scheduling: {quantum: 3ms}, tenants: [{name: a, memory: 10GiB}, {name: b, memory: 5GiB}, {name: c}]}";
    let mut node = Node::new(2, text);
    assert_eq!(preview(&node, text), Ok(vec!["nothing would change".to_owned()]));
    let (_, welcome) = node.member(&peer(10, 7), hello(Some("a"), None, 1));
    node.member(&peer(11, 7), hello(Some("b"), None, 1));
    node.charged = vec![(welcome.slot, 4 * GIB)];
    let before = format!("{:?}", node.registry);
    let lines = preview(
        &node,
        "{devices: [{select: 1, memory_reserve: 1GiB, slices: 4 x 10GiB + 25%}],
          scheduling: {policy: fair, aging: 2h}, schedule: [{name: night, from: \"22:00\", to: \"6:00\", devices: []}],
          tenants: [{name: a, memory: 3GiB, compute: {limit: 50%}}, {name: d, memory: 1GiB, priority: high}]}",
    );
    assert_eq!(
        lines.expect("it fits"),
        [
            "device 1: capacity from 79.50 GiB to 79 GiB",
            "device 1: max_jobs from none to 4",
            "device 1: default memory from none to 10GiB",
            "device 1: default compute from none to 25%",
            "scheduling: policy from priority-fair to fair",
            "scheduling: quantum from 3ms to auto",
            "scheduling: aging from 1h to 2h",
            "schedule from none to night",
            "tenant a: memory on device 0 from 10 GiB to 3 GiB",
            "tenant a: compute on device 0 from none to 50%",
            "tenant a: 4 GiB are in use on device 0: new memory is refused until that falls",
            "tenant a: memory on device 1 from 10 GiB to 3 GiB",
            "tenant a: compute on device 1 from none to 50%",
            "tenant a: 4 GiB are in use on device 1: new memory is refused until that falls",
            "tenant b: leaves the document, and stays as it is until it ends",
            "tenant c: goes",
            "tenant d: is added: memory 1 GiB, weight 100, priority high on device 0; memory 1 GiB, weight 100, priority high on device 1",
        ]
    );
    assert_eq!(format!("{:?}", node.registry), before);
    let refused = preview(&node, "tenants: [{name: big, memory: 75GiB}]").expect_err("b runs");
    assert!(refused.contains("tenant big: 75 GiB on device 0 do not fit"), "{refused}");
}

/// A schedule changes what new jobs get, and leaves alone those that run.
#[test]
fn a_schedule_switches_the_defaults_of_new_jobs() {
    let night = "{name: night, from: \"22:00\", to: \"06:00\", devices: [{select: 1, defaults: {memory: 40GiB}}]}";
    let weekend = "{name: weekend, days: sat-sun, from: \"00:00\", to: \"00:00\", devices: [{slices: 1 x 70GiB}]}";
    let text = format!(
        "{{devices: [{{max_jobs: 2, defaults: {{memory: 20GiB, compute: 50%}}}}], schedule: [{night}, {weekend}]}}"
    );
    let mut node = Node::new(2, &text);
    let tell = |node: &mut Node, day, hour| {
        let mut actions = Vec::new();
        node.registry.set_minute(Minute::new(day, hour, 0), &mut actions);
        actions
    };
    let gets = |node: &mut Node, device: usize, name: &str| {
        let (connection, actions) = node
            .admit(7, Admit { device: Some(device.to_string()), tenant: Some(name.to_owned()), ..Admit::default() });
        assert_eq!(granted(&actions).len(), 1, "{actions:?}");
        let id = node.registry.tenant_named(name).expect("it runs");
        let quota = node.registry.effective(id, device).expect("granted");
        let got = (quota.memory_cap.map(|cap| cap.0 / GIB), quota.compute_cap.map(Percent::hundredths));
        (connection, got)
    };
    assert_eq!(tell(&mut node, 0, 12).len(), 1, "before, it was Monday, 0:00");
    let (day, got) = gets(&mut node, 1, "day");
    assert_eq!(got, (Some(20), Some(5000)));
    assert_eq!(tell(&mut node, 0, 23).len(), 1, "for the log");
    assert_eq!(node.registry.variant_names(), ["night"]);
    assert_eq!(gets(&mut node, 1, "late").1, (Some(40), Some(5000)), "the rest is as it was");
    assert_eq!(gets(&mut node, 0, "late-0").1, (Some(20), Some(5000)), "another device");
    assert_eq!(node.cap("day"), None);
    assert_eq!(tell(&mut node, 0, 23), [], "nothing new");
    node.closed(day);
    let (waiting, actions) =
        node.admit(7, Admit { device: Some("1".to_owned()), ..queued("w", "35GiB", QueueLimit::Forever) });
    assert_eq!(granted(&actions), [(waiting, "w".to_owned())]);
    let (third, actions) =
        node.admit(7, Admit { device: Some("1".to_owned()), ..queued("x", "1GiB", QueueLimit::Forever) });
    assert!(waits(&actions, third).expect("it waits").1.contains("at most 2 jobs"), "{actions:?}");
    let actions = tell(&mut node, 5, 12);
    assert!(matches!(&actions[0], Action::Note(text) if text.ends_with("weekend")), "{actions:?}");
    assert!(waits(&actions, third).expect("it is told").1.contains("at most 1 jobs"), "{actions:?}");
    assert_eq!(node.registry.variant_names(), ["weekend"]);
    assert_eq!(node.registry.devices()[0].jobs_max, Some(1));
    assert_eq!(node.registry.devices()[0].default_compute, None, "slices say it all");
}

#[test]
fn slices_must_go_with_the_device() {
    for text in [
        "devices: [{slices: 4 x 20GiB}]",
        "schedule: [{name: \"n\", from: \"1:00\", to: \"2:00\", devices: [{slices: 4 x 20GiB}]}]",
    ] {
        let document = Document::parse(text).expect("legal");
        let reason = Registry::new(&inventory(1), &document, Overrides::default()).expect_err(text);
        assert!(reason.contains("slices: 4 of 20 GiB are 80 GiB, more than the 79.50 GiB capacity"), "{reason}");
    }
    let mut node = Node::new(1, "devices: [{slices: 3 x 25GiB}]");
    for name in ["a", "b", "c"] {
        node.admit(7, Admit { tenant: Some(name.to_owned()), ..Admit::default() });
        assert_eq!(node.cap(name), Some(25));
    }
    assert!(node.refusal(7, admit("d", "1GiB")).contains("at most 3 jobs"));
}
