//! Calls that fail, take long or are written down when told so; settings that say nothing useful are told in one line.

use harness::{Done, Machine, program};
use std::time::{Duration, Instant};

fn probe(machine: &Machine, variable: &str, value: &str, words: &str) -> Done {
    machine.bare(program("probe-linked")).env(variable, value).arg("linked").words(words).run()
}

#[test]
fn the_named_call_fails_and_no_other() {
    let machine = Machine::new("t4-16gb");
    let done = probe(
        &machine,
        "FAKE_CUDA_FAIL",
        "cuMemAlloc_v2:2=2,cuMemFree_v2:1=719",
        "init ctx linear:a=1M linear:b=1M linear:c=1M free:a free:c",
    );
    let codes = ["linear:a=1M", "linear:b=1M", "linear:c=1M", "free:a", "free:c"].map(|word| done.code(word));
    assert_eq!(codes, [0, 2, 0, 719, 0], "{done:?}");
    assert!(!done.out.contains("touched"), "{done:?}");
    let done =
        probe(&machine, "FAKE_CUDA_FAIL", "cuMemAlloc_v2:*=999", "init ctx linear:a=1M linear:b=1M managed:c=1M");
    assert_eq!(["linear:a=1M", "linear:b=1M", "managed:c=1M"].map(|word| done.code(word)), [999, 999, 0], "{done:?}");
}

/// A failed call did nothing: what it would have taken is free, what it would have freed is not.
#[test]
fn a_failed_call_does_nothing() {
    let machine = Machine::new("t4-16gb");
    let clean = machine.bare(program("probe-linked")).words("linked init ctx info").run().numbers("info");
    let done = probe(&machine, "FAKE_CUDA_FAIL", "cuMemAlloc_v2:1=2", "init ctx linear:a=1G info");
    assert_eq!(done.numbers("info"), clean);
    let done = probe(&machine, "FAKE_CUDA_FAIL", "cuMemFree_v2:1=999", "init ctx linear:a=1G free:a info");
    assert_eq!(clean[0] - done.numbers("info")[0], 1 << 30);
}

#[test]
fn initialisation_itself_can_fail() {
    let machine = Machine::new("t4-16gb");
    assert_eq!(probe(&machine, "FAKE_CUDA_FAIL", "cuInit:1=100", "init").code("init"), 100);
    let nvml =
        machine.bare(program("driver/devices")).env("FAKE_CUDA_FAIL", "nvmlInit_v2:1=9").arg("nvml").run().quiet();
    assert_eq!(nvml.out, "init 9\n");
}

#[test]
fn the_named_call_takes_its_time() {
    let machine = Machine::new("t4-16gb");
    let begun = Instant::now();
    probe(&machine, "FAKE_CUDA_LATENCY", "cuMemAlloc_v2=100ms", "init ctx linear:a=1M linear:b=1M");
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
}

#[test]
fn the_journal_has_a_line_for_each_call() {
    let machine = Machine::new("t4-16gb");
    let done = machine
        .bare(program("probe-linked"))
        .journalled()
        .words("linked init ctx linear:a=64M linear:b=900G free:a")
        .run();
    assert_eq!(done.code("linear:b=900G"), 2);
    let journal = machine.journal();
    let mut last_ns = 0;
    for call in &journal {
        let fields = call.as_object().expect("an object");
        assert_eq!(
            fields.keys().map(String::as_str).collect::<Vec<_>>(),
            ["args", "function", "pid", "result", "time_ns"]
        );
        assert!(call["args"].as_object().expect("arguments").values().all(serde_json::Value::is_u64), "{call}");
        let time_ns = call["time_ns"].as_u64().expect("a time");
        assert!(time_ns >= last_ns, "calls of one thread are in order");
        last_ns = time_ns;
    }
    let calls = journal
        .iter()
        .map(|call| (call["function"].as_str().expect("a name"), call["result"].as_i64().expect("a code")));
    let of_memory: Vec<_> = calls.filter(|(function, _)| function.starts_with("cuMem")).collect();
    assert_eq!(of_memory, [("cuMemAlloc_v2", 0), ("cuMemAlloc_v2", 2), ("cuMemFree_v2", 0)]);
    let first = journal.iter().find(|call| call["function"] == "cuMemAlloc_v2").expect("journalled");
    assert_eq!(first["args"]["bytesize"], 64 << 20);
}

/// A function without a model says so, in its answer and in the journal; one with a model never does.
#[test]
fn what_is_not_modelled_is_not_pretended() {
    let machine = Machine::new("a100-80gb");
    machine.bare(program("driver/init")).journalled().run().quiet();
    let journal = machine.journal();
    let unmodelled: Vec<_> = journal.iter().filter(|call| call["args"]["unmodelled"] == 1).collect();
    assert_eq!(unmodelled.len(), 1, "{unmodelled:?}");
    assert_eq!((&unmodelled[0]["function"], &unmodelled[0]["result"]), (&"cuLogsRegisterCallback".into(), &801.into()));
}

/// One line that names the variable, its value and what would be right; the driver then does not start.
#[test]
fn bad_settings_are_told() {
    let machine = Machine::new("t4-16gb");
    let rows = [
        ("FAKE_CUDA_MACHINE", "b1000", "a100-80gb"),
        ("FAKE_CUDA_MACHINE", "0xt4-16gb", "t4-16gb"),
        ("FAKE_CUDA_VERSION", "13.2", "13020"),
        ("FAKE_CUDA_CONTEXT", "lots", "300MiB"),
        ("FAKE_CUDA_KERNELS", "k=fast", "FAKE_CUDA_KERNELS"),
        ("FAKE_CUDA_SLICE", "1h", "2ms"),
        ("FAKE_CUDA_SWITCH", "soon", "170us"),
        ("FAKE_CUDA_FAIL", "cuMemAlloc:1", "FUNCTION:CALL=CODE"),
        ("FAKE_CUDA_FAIL", "cuMemAllok:1=2", "cuMemAllok"),
        ("FAKE_CUDA_LATENCY", "cuMemAlloc_v2=5", "FUNCTION=DURATION"),
        ("FAKE_CUDA_JOURNAL", "/nonexistent/journal", "writable"),
    ];
    for (variable, value, right) in rows {
        let done = probe(&machine, variable, value, "init");
        assert_ne!(done.code("init"), 0, "{variable}={value}");
        assert_eq!(done.err.lines().count(), 1, "{variable}={value}: {}", done.err);
        for part in [variable, value, right] {
            assert!(done.err.contains(part), "{variable}={value}: {}", done.err);
        }
    }
}

/// A file that is no machine's state, or another machine's, is named and left alone.
#[test]
fn a_foreign_state_file_is_refused() {
    let machine = Machine::new("t4-16gb");
    let state = machine.folder().join("foreign");
    for content in [&b"not a machine"[..], &[0x5a; 1 << 20][..]] {
        std::fs::write(&state, content).expect("writable");
        let done = machine.bare(program("probe-linked")).env("FAKE_CUDA_STATE", &state).words("linked init").run();
        assert_ne!(done.code("init"), 0, "{done:?}");
        assert!(done.err.contains("foreign") && done.err.lines().count() == 1, "{}", done.err);
        assert_eq!(std::fs::read(&state).expect("still there"), content);
    }
    let other = Machine::new("a100-80gb");
    other.bare(program("probe-linked")).words("linked init").run();
    let done = machine
        .bare(program("probe-linked"))
        .env("FAKE_CUDA_STATE", other.folder().join("state"))
        .words("linked init")
        .run();
    assert_ne!(done.code("init"), 0, "the state of another machine: {done:?}");
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}
