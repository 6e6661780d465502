//! What users of such products reported, each by its kind: what must not happen here.

#[path = "reports/devices.rs"]
mod devices;
#[path = "reports/indices.rs"]
mod indices;
#[path = "reports/instances.rs"]
mod instances;
#[path = "reports/loading.rs"]
mod loading;
#[path = "reports/node.rs"]
mod node;
#[path = "reports/privileged.rs"]
mod privileged;
#[path = "reports/sandbox.rs"]
mod sandbox;

use harness::{GIB, MIB, Machine};

/// A context is part of what a process holds: 300 MiB of 1000, then 700 fit and no more; a second process pays its own.
#[test]
fn a_context_is_charged_once_a_process_and_shown() {
    let machine = Machine::new("a100-80gb");
    let job = || machine.probe("linked").with_context_cost().memory("1000MiB");
    let mut first =
        job().words("init ctx info linear:a=700M info linear:b=1M say=full wait free:a say=freed wait").start();
    assert_eq!(
        first.until("full"),
        [
            "init 0".to_owned(),
            "ctx 0".to_owned(),
            format!("info 0 {} {}", 700 * MIB, 1000 * MIB),
            "linear:a=700M 0".to_owned(),
            format!("info 0 0 {}", 1000 * MIB),
            "linear:b=1M 2".to_owned(),
        ]
    );
    let refused = job().words("init ctx").run();
    assert_eq!(refused.code("ctx"), 2, "its context doesn't fit: {refused:?}");
    first.go_on();
    first.until("freed");
    let second = job().words("init ctx info linear:a=401M linear:b=400M").run();
    assert_eq!(second.numbers("info"), [400 * MIB, 1000 * MIB], "two contexts");
    assert_eq!((second.code("linear:a=401M"), second.code("linear:b=400M")), (2, 0));
    first.finish();
}

/// A quota below the cost of a context: the question what is free is answered, not failed.
#[test]
fn a_quota_below_a_context_leaves_nothing_and_breaks_nothing() {
    for (quota, free) in [(1, 0), (100, 0), (345, 0), (346, 1)] {
        let machine = Machine::new("a100-80gb");
        let job = machine.probe("linked").env("FAKE_CUDA_CONTEXT", "345MiB").memory(&format!("{quota}MiB"));
        let done = job.words("init ctx info linear:a=2M").run();
        assert_eq!((done.code("ctx"), done.code("info")), (0, 0), "{quota}: {done:?}");
        assert_eq!(done.numbers("info"), [free * MIB, quota * MIB], "{quota}");
        assert_eq!(done.code("linear:a=2M"), 2, "{quota}");
    }
}

/// A context that comes and goes leaves room for the next, however often.
#[test]
fn contexts_come_and_go_without_a_false_refusal() {
    let machine = Machine::new("a100-80gb");
    let round = "ctx linear:a=90M drop ";
    let words = format!("init {}", round.repeat(100));
    let done = machine.probe("linked").with_context_cost().memory("400MiB").words(&words).run();
    let codes: Vec<&str> = done.lines().into_iter().filter(|line| !line.ends_with(" 0")).collect();
    assert!(codes.is_empty(), "{codes:?}");
}

/// Ask what is free, take 90 % of it, free it, twice: what burn-in programs do.
#[test]
fn what_was_free_is_free_again() {
    let machine = Machine::new("a100-80gb");
    let words = "init ctx info linear:a=900M free:a info linear:b=900M free:b info";
    let done = machine.probe("linked").memory("1GiB").words(words).run();
    let infos: Vec<&str> = done.lines().into_iter().filter(|line| line.starts_with("info")).collect();
    assert_eq!(infos, vec![format!("info 0 {GIB} {GIB}"); 3]);
    assert_eq!((done.code("linear:a=900M"), done.code("linear:b=900M")), (0, 0));
}

/// The device is full of others' memory: the driver's refusal passes, and costs no quota.
#[test]
fn a_full_device_is_told_from_a_full_quota() {
    let machine = Machine::new("t4-16gb");
    let mut other = machine
        .bare(harness::program("probe-linked"))
        .arg("linked")
        .words("init ctx linear:a=13G say=ready wait")
        .start();
    other.until("ready");
    let done = machine.probe("linked").memory("8GiB").words("init ctx linear:a=4G info linear:b=100M").run();
    assert_eq!((done.code("linear:a=4G"), done.code("linear:b=100M")), (2, 0), "{done:?}");
    assert!(done.numbers("info")[0] < 4 * GIB && done.numbers("info")[1] == 8 * GIB, "{done:?}");
    assert!(done.err.contains("the device is full") && !done.err.contains("of the 8 GiB quota in use"), "{}", done.err);
    other.finish();
}

/// Neighbours come and go: what a tenant sees is its own.
#[test]
fn the_view_does_not_change_by_what_neighbours_do() {
    let machine = Machine::new("a100-80gb");
    let tenant = |name: &str| machine.probe("linked").memory("4GiB").tenant(name);
    let (one, two) = (format!("view-one-{}", std::process::id()), format!("view-two-{}", std::process::id()));
    let (_one, _two) = (harness::Ledger::of(&one), harness::Ledger::of(&two));
    let mut watcher =
        tenant(&one).words("init ctx linear:a=1G info say=one wait info say=two wait info say=three").start();
    assert_eq!(watcher.until("one")[3], format!("info 0 {} {}", 3 * GIB, 4 * GIB));
    let mut neighbour = tenant(&two).words("init ctx linear:b=3G say=took wait free:b say=gave wait").start();
    neighbour.until("took");
    watcher.go_on();
    assert_eq!(watcher.until("two"), [format!("info 0 {} {}", 3 * GIB, 4 * GIB)]);
    neighbour.go_on();
    neighbour.until("gave");
    watcher.go_on();
    assert_eq!(watcher.until("three"), [format!("info 0 {} {}", 3 * GIB, 4 * GIB)]);
    drop((watcher.finish(), neighbour.finish()));
}

/// Two pools against one quota; what one frees, the other may take.
#[test]
fn pools_are_counted_together() {
    let machine = Machine::new("a100-80gb");
    let words = "init ctx async:a=300M pool:b=300M afree:a sync pool:c=300M info";
    let done = machine.probe("linked").memory("512MiB").words(words).run();
    let codes = ["async:a=300M", "pool:b=300M", "pool:c=300M"].map(|word| done.code(word));
    assert_eq!(codes, [0, 2, 0], "{done:?}");
    assert_eq!(done.numbers("info"), [192 * MIB, 512 * MIB], "320 MiB are held");
}

/// Many processes on many devices begin at once: all get what is theirs.
#[test]
fn everybody_who_starts_at_once_is_served() {
    let machine = Machine::new("8xl4-24gb");
    let start = |device: usize| {
        let words = format!("init device={device} ctx={device} linear:a=200M info");
        machine.probe("linked").memory("10GiB").words(&words).run()
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..48).map(|process| scope.spawn(move || start(process % 8))).collect();
        runs.into_iter().map(|run| run.join().expect("it runs")).collect()
    });
    for done in done {
        assert_eq!((done.status, done.code("linear:a=200M")), (0, 0), "{done:?}");
        let [free, total] = done.numbers("info")[..] else { panic!("{done:?}") };
        assert!(total == 10 * GIB && free <= total - 200 * MIB && free >= total - 6 * 200 * MIB, "{free} of {total}");
    }
}

/// Short programs in a loop leave nothing behind.
#[test]
fn short_programs_in_a_loop_leave_nothing() {
    let machine = Machine::new("a100-80gb");
    let run = || machine.probe("linked").memory("1GiB").words("init ctx linear:a=1000M").run().quiet();
    let ledger_bytes = || {
        run();
        std::fs::metadata(machine.folder().join("ledger.gpuquota")).expect("it is there").len()
    };
    let first = ledger_bytes();
    for _ in 0..60 {
        assert_eq!(run().code("linear:a=1000M"), 0);
    }
    assert_eq!(ledger_bytes(), first);
    let files = std::fs::read_dir(machine.folder()).expect("readable").count();
    assert!(files <= 4, "{files} files");
    // Without a daemon, the dead are buried by whoever looks.
    let after = machine.probe("linked").memory("1GiB").words("init ctx info").run();
    assert_eq!(after.numbers("info"), [GIB, GIB]);
}
