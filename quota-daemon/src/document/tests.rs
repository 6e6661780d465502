use super::*;
use quota_wire::notice::Action;

const FULL: &str = r#"
socket: /run/gpuquota/gpuquota.sock
listen: 127.0.0.1:9477            # metrics and console
devices:
  - select: all
    sharing: time-slice
    memory_reserve: 512MiB
    max_jobs: 8
    defaults: {memory: 20GiB, compute: 25%}
    oversubscribe: 1.25
scheduling:
  policy: priority-fair
  quantum: 3ms
  preemption: true
tenants:
  - name: vision
    memory: 40GiB
    compute: {guarantee: 40%, limit: 100%, weight: 200}
    priority: normal
    isolation: shared
    borrow: true
    match: {cgroup: "*/vision-*", uid: 1001}
  - name: 7
    compute: 12.5
audit: {path: /var/log/gpuquota/audit.jsonl, keep: 30d}
"#;

#[test]
fn the_whole_document_is_understood() {
    let document = Document::parse(FULL).expect("legal");
    assert_eq!(document.socket.as_deref(), Some(Path::new("/run/gpuquota/gpuquota.sock")));
    let rule = &document.devices[0];
    assert_eq!((rule.select.as_str(), rule.reserve, rule.jobs_max), ("all", Some(Bytes(512 << 20)), Some(8)));
    assert_eq!(rule.default_memory, Some(MemorySize::Absolute(Bytes(20 << 30))));
    assert_eq!((rule.oversubscribe, document.tenants[0].oversubscribe), (Some(125), false));
    let vision = &document.tenants[0];
    assert_eq!((vision.weight, vision.guarantee.map(Percent::hundredths)), (Some(200), Some(4000)));
    assert!(vision.matches.covers(1001, "/a.slice/vision-7"));
    assert!(!vision.matches.covers(1002, "/a.slice/vision-7"));
    assert!(!vision.matches.covers(1001, "/a.slice/other"));
    assert_eq!((document.tenants[1].name.as_str(), document.tenants[1].compute), ("7", Percent::from_hundredths(1250)));
    assert_eq!(document.without_effect, ["listen"]);
    let audit = document.audit.expect("named");
    assert_eq!((audit.path.as_path(), audit.keep.as_secs()), (Path::new("/var/log/gpuquota/audit.jsonl"), 30 * 86_400));
}

#[test]
fn a_tenant_may_want_devices_of_its_own() {
    let text =
        "tenants: [{name: a, isolation: own-device, share_with: [c, 7]}, {name: c, isolation: own-mig}, {name: 7}]";
    let document = Document::parse(text).expect("legal");
    let of = |at: usize| &document.tenants[at].isolation;
    assert_eq!(of(0), &Isolation { level: Level::OwnDevice, share_with: vec!["c".to_owned(), "7".to_owned()] });
    assert_eq!((of(1).level, of(2)), (Level::OwnMig, &Isolation::default()));
}

#[test]
fn a_mistake_in_isolation_names_what_there_is() {
    for (text, wanted) in [
        (
            "tenants:\n  - {name: a, isolation: own}\n",
            "tenant a: isolation: \"own\": it is unknown; expected shared, own-device or own-mig",
        ),
        (
            "tenants:\n  - {name: a, isolation: own-device, share_with: [b, d]}\n  - {name: b}\n  - {name: c}\n",
            "tenant a: share_with: \"d\": there is no such tenant; there are: b, c; expected names of other tenants",
        ),
        (
            "tenants:\n  - {name: a, isolation: own-device, share_with: [a]}\n",
            "tenant a: share_with: \"a\": there is no such tenant; there are no others; expected",
        ),
        (
            "tenants:\n  - {name: a, share_with: [b]}\n  - {name: b}\n",
            "tenant a: share_with: \"b\": a tenant that is shared has nothing to allow; expected isolation: own-device",
        ),
    ] {
        let error = Document::parse(text).expect_err(text).to_string();
        assert!(error.contains(wanted), "{text:?}: {error}");
    }
}

#[test]
fn a_document_may_say_nothing() {
    for text in ["", "# nothing\n", "devices: []\n"] {
        assert_eq!(Document::parse(text), Ok(Document::default()), "{text:?}");
    }
}

#[test]
fn one_mistake_refuses_it_with_its_place() {
    for (text, wanted) in [
        ("tennants: []\n", "did you mean `tenants`?"),
        ("devices:\n  - selct: all\n", "did you mean `select`?"),
        ("devices:\n  - selct: all\n", "line 2"),
        ("tenants:\n  - {name: a, memory: 12Q}\n", "tenant a: memory: \"12Q\": the unit is unknown; expected a size"),
        ("tenants: [{name: no}]\n", "put it in quotes"),
        ("tenants:\n  - {name: a, memory: 0}\n", "zero is not a quota"),
        ("tenants:\n  - {name: a, memory: -4}\n", "expected a size"),
        ("tenants:\n  - {name: a b}\n", "expected 1 to 128 letters"),
        ("tenants:\n  - {name: a}\n  - {name: a}\n", "twice"),
        ("tenants:\n  - {name: a, compute: 130}\n", "between 1 and 100"),
        ("tenants:\n  - {name: a, compute: {limit: 30, guarantee: 40}}\n", "above the limit"),
        ("tenants:\n  - {name: a, compute: {limit: 30, wait: 40}}\n", "wait"),
        ("tenants:\n  - {name: a, priority: urgent}\n", "expected batch, normal or high"),
        ("tenants:\n  - {memory: 1GiB}\n", "name"),
        ("devices:\n  - {sharing: mps}\n", "this version can't do it"),
        ("devices:\n  - {sharing: sometimes}\n", "expected time-slice"),
        ("devices:\n  - {oversubscribe: 0.9}\n", "out of range; expected 1.0 to 4.0"),
        ("devices:\n  - {oversubscribe: 4.01}\n", "devices[0].oversubscribe: \"4.01\": it is out of range"),
        ("devices:\n  - {oversubscribe: 1.555}\n", "too many decimals"),
        ("devices:\n  - {oversubscribe: nan}\n", "out of range"),
        ("devices:\n  - {oversubscribe: much}\n", "it is not a number"),
        ("tenants:\n  - {name: a, oversubscribe: true}\n", "tenant a: oversubscribe: \"true\": it needs a quota"),
        ("tenants:\n  - {name: a, memory: 1GiB, oversubscribe: perhaps}\n", "line 2"),
        ("devices:\n  - {max_jobs: 0}\n", "out of range"),
        (
            "scheduling: {policy: random}\n",
            "scheduling.policy: \"random\": it is unknown; expected fifo, priority, fair",
        ),
        ("scheduling: {policy: 3}\n", "scheduling.policy: \"3\""),
        ("scheduling: {quantum: 1h}\n", "scheduling.quantum: \"1h\": it is out of range; expected auto, or 1ms to 1s"),
        ("scheduling: {quantum: 999us}\n", "out of range"),
        ("scheduling: {quantum: 1001ms}\n", "out of range"),
        ("scheduling: {quantum: 3}\n", "it is no duration; expected auto, or 1ms to 1s"),
        ("scheduling: {preemption: perhaps}\n", "line 1"),
        ("scheduling: {polcy: fifo}\n", "did you mean `policy`?"),
        ("socket: relative\n", "absolute"),
        ("sock\n et: /a\n", "line"),
        ("devices: [{selct\n\n a: all}]\n", "unknown key"),
        ("audit: {path: relative}\n", "audit.path: \"relative\": it is not absolute"),
        ("audit: {path: /}\n", "audit.path: \"/\": it names no file"),
        ("audit: {keep: 30d}\n", "audit.path: \"\": it is missing"),
        (
            "audit: {path: /a, keep: soon}\n",
            "audit.keep: \"soon\": it is no duration; expected a duration from 1h to 3650d",
        ),
        ("audit: {path: /a, keep: 30}\n", "audit.keep: \"30\": it is no duration"),
        ("audit: {path: /a, keep: 10m}\n", "audit.keep: \"10m\": it is out of range"),
        ("audit: {path: /a, kep: 30d}\n", "did you mean `keep`?"),
        ("socket: /a\nsocket: /b\n", "line 2"),
        ("[", "line 1"),
        ("just words\n", "line 1"),
        ("devices: {a: b}\n", "line 1"),
    ] {
        let error = Document::parse(text).expect_err(text).to_string();
        assert!(error.contains(wanted), "{text:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn a_star_stands_for_anything() {
    for (pattern, text, matches) in [
        ("*", "", true),
        ("", "", true),
        ("", "a", false),
        ("a*", "abc", true),
        ("*c", "abc", true),
        ("*b*", "abc", true),
        ("a*a", "a", false),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-c-b", false),
        ("*/x-*", "/m/x-1", true),
    ] {
        assert_eq!(wildcard(pattern, text), matches, "{pattern} {text}");
    }
}

#[test]
fn scheduling_is_read_and_has_defaults() {
    let rules = |text: &str| Document::parse(text).expect(text).scheduling;
    assert_eq!(rules("socket: /a\n"), Rules::default());
    assert_eq!(rules("scheduling: {}\n"), Rules::default());
    for (word, policy) in [
        ("fifo", Policy::Fifo),
        ("priority", Policy::Priority),
        ("fair", Policy::Fair),
        ("priority-fair", Policy::PriorityFair),
    ] {
        assert_eq!(rules(&format!("scheduling: {{policy: {word}}}\n")).policy, policy);
    }
    for (text, quantum) in [
        ("auto", Quantum::Adaptive),
        ("1ms", Quantum::Fixed(1_000_000)),
        ("2500us", Quantum::Fixed(2_500_000)),
        ("1s", Quantum::Fixed(1_000_000_000)),
    ] {
        assert_eq!(rules(&format!("scheduling: {{quantum: {text}}}\n")).quantum, quantum);
    }
    assert!(!rules("scheduling: {preemption: false}\n").preemption && Rules::default().preemption);
}

#[test]
fn jobs_make_room_where_the_document_says_so() {
    let interrupts = |text: &str| Document::parse(text).expect("legal").interrupts;
    assert!(
        !interrupts("scheduling: {policy: fifo}\n").preemption,
        "device time is preempted without a word, jobs aren't"
    );
    let default = interrupts("scheduling: {preemption: true}\n");
    assert_eq!((default.preemption, default.grace_ms, default.manner), (true, 30_000, Action::Pause));
    let all = interrupts("scheduling: {preemption: true, grace: 1m 500ms, interrupt: checkpoint}\n");
    assert_eq!((all.grace_ms, all.manner), (60_500, Action::Checkpoint));
    assert_eq!(interrupts("scheduling: {grace: 0s, interrupt: terminate}\n").grace_ms, 0);
    for wrong in ["{grace: 11m}", "{grace: soon}", "{interrupt: kill}"] {
        let error = Document::parse(&format!("scheduling: {wrong}\n")).expect_err(wrong).to_string();
        assert!(error.contains("expected") && error.starts_with("scheduling."), "{error}");
    }
}

/// What we show is what we take: the example, and each document in the README.
#[test]
fn what_is_shown_is_a_document() {
    Document::parse(include_str!("../../../examples/gpuquota.yaml")).expect("the example");
    let readme = include_str!("../../../README.md");
    let blocks: Vec<&str> = readme.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        Document::parse(block).unwrap_or_else(|error| panic!("{error}: {block}"));
    }
}
