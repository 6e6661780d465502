//! Oversubscription: quotas beyond what the device has, for jobs that let their memory be moved to the host, and none the
//! worse for those that don't.

use harness::{Daemon, Done, GIB, Job, MIB, Machine, program};
use serde_json::Value;
use std::time::{Duration, Instant};

/// A program as a job of `gpuquota run`; contexts cost nothing.
fn job(machine: &Machine, daemon: &Daemon, options: &str, name: &str) -> Job {
    let job = machine.gpuquota(daemon, &format!("run {options} --")).env("FAKE_CUDA_CONTEXT", "0");
    job.arg(program(name))
}

fn probe(machine: &Machine, daemon: &Daemon, options: &str, words: &str) -> Job {
    job(machine, daemon, options, "probe-linked").arg("linked").words(words)
}

fn rows(machine: &Machine, daemon: &Daemon, what: &str) -> Vec<Value> {
    let done = machine.gpuquota(daemon, &format!("{what} -o json")).run();
    assert_eq!(done.status, 0, "{done:?}");
    serde_json::from_str(&done.out).expect("JSON")
}

fn row_of(rows: &[Value], tenant: &str) -> Value {
    rows.iter().find(|row| row["tenant"] == tenant).unwrap_or_else(|| panic!("no {tenant} in {rows:?}")).clone()
}

/// `calls N failed M last CODE`
fn failed(text: &str) -> (u64, u64) {
    let line = text.lines().find(|line| line.starts_with("calls ")).unwrap_or_else(|| panic!("no end: {text}"));
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    (numbers[0], numbers[1])
}

/// What the module of a `launch` takes.
const CODE: u64 = 2 * MIB;
const BY_HALF: &str = "devices: [{oversubscribe: 1.5}]\n";

/// 10 GiB twice on a device of 15: both hold what they are promised, whatever is on the device.
#[test]
fn two_dynamic_jobs_hold_more_than_the_device_has() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon_under(BY_HALF);
    let words = "init ctx info linear:a=9G copy:a launch=k_10us sync info linear:b=2G say=ready wait launch=k_10us sync copy:a free:a info say=done wait";
    let start = |name: &str| {
        let options = format!("--memory 10GiB --oversubscribe --tenant {name}");
        let mut job = probe(&machine, &daemon, &options, words).start();
        let lines = job.until("ready");
        assert_eq!(lines[2], format!("info 0 {} {}", 10 * GIB, 10 * GIB), "{lines:?}");
        let rest = ["linear:a=9G 0", "copy:a 0", "launch=k_10us 0", "sync 0"];
        assert_eq!(lines[3..7], rest, "{lines:?}");
        assert_eq!(
            lines[7],
            format!("info 0 {} {}", GIB - CODE, 10 * GIB),
            "whatever is left of the device: {lines:?}"
        );
        assert_eq!(lines[8], "linear:b=2G 2", "its quota holds");
        job
    };
    let mut jobs = ["one", "two"].map(start);
    let device = rows(&machine, &daemon, "devices")[0].clone();
    assert_eq!(device["memory_granted_bytes"].as_u64(), Some(20 * GIB), "{device}");
    assert_eq!(device["memory_firm_bytes"].as_u64(), Some(5 * GIB), "a quarter can't be moved: {device}");
    assert_eq!(device["memory_oversubscribe"].as_f64(), Some(1.5));
    let processes = rows(&machine, &daemon, "ps");
    let (one, two) = (row_of(&processes, "one"), row_of(&processes, "two"));
    for row in [&one, &two] {
        assert_eq!(
            (row["memory_dynamic"].as_bool(), row["memory_used_bytes"].as_u64()),
            (Some(true), Some(9 * GIB + CODE))
        );
    }
    let resident = |row: &Value| row["memory_resident_bytes"].as_u64().expect("the driver says it");
    let total = device["memory_total_bytes"].as_u64().expect("a number");
    assert_eq!(resident(&two), 9 * GIB + CODE, "it ran last: {two}");
    assert!(resident(&one) < 9 * GIB && resident(&one) + resident(&two) <= total, "{one} {two}");
    let (table, devices) = (machine.gpuquota(&daemon, "ps").run().out, machine.gpuquota(&daemon, "devices").run().out);
    assert!(table.contains("10 GiB dynamic") && devices.contains(" x 1.5"), "{table}{devices}");
    for job in &mut jobs {
        job.go_on();
        let lines = job.until("done");
        let end = format!("info 0 {} {}", 10 * GIB - CODE, 10 * GIB);
        assert_eq!(lines, ["launch=k_10us 0", "sync 0", "copy:a 0", "free:a 0", end.as_str()], "it ran on");
    }
    jobs.into_iter().for_each(|job| drop(job.finish()));
}

/// Two dynamic jobs move all that they have over and over; beside them a job with a quota of its own gets all of it, each
/// time, in a hundred thousand calls.
#[test]
fn a_static_neighbour_never_fails_while_dynamic_ones_thrash() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon_under("devices: [{oversubscribe: 2.2}]\n");
    let start = |name: &str| {
        let options = format!("--memory 10GiB --oversubscribe --tenant {name}");
        job(&machine, &daemon, &options, "pressure").words("use 9").start()
    };
    let mut dynamic = ["one", "two"].map(start);
    dynamic.iter_mut().for_each(|job| drop(job.until("ready")));
    let mut neighbour =
        job(&machine, &daemon, "--memory 8GiB --tenant static", "pressure").words("churn 8 10000").start();
    let mut look =
        probe(&machine, &daemon, "--memory 1GiB --tenant view", "init ctx info linear:a=1G say=ready wait").start();
    let lines = look.until("ready");
    assert_eq!(lines[2..], [format!("info 0 {GIB} {GIB}"), "linear:a=1G 0".to_owned()], "what is free is what it gets");
    neighbour.until("ready");
    let (out, status) = neighbour.finish();
    let (calls, lost) = failed(&out);
    assert!(status == 0 && calls >= 100_000 && lost == 0, "{out}");
    let row = row_of(&rows(&machine, &daemon, "ps"), "view");
    assert_eq!(row["memory_dynamic"].as_bool(), Some(false), "{row}");
    drop(look.finish());
    for job in dynamic {
        let (out, status) = job.finish();
        let (calls, lost) = failed(&out);
        assert!(status == 0 && calls > 100 && lost == 0, "who thrashes is slow and whole: {out}");
    }
}

/// What can't be moved would take the room of others: a quarter of the quota, and a line that says so.
#[test]
fn a_quarter_of_a_dynamic_quota_may_be_what_stays() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon_under(BY_HALF);
    for kind in ["vmm", "array", "pool"] {
        let words =
            format!("init ctx {kind}:a=1G {kind}:b=1200M linear:c=6G {kind}:d=512M free:a sync {kind}:e=900M info");
        let done = probe(&machine, &daemon, "--memory 8GiB --oversubscribe", &words).run();
        let codes: Vec<i32> =
            ["a=1G", "b=1200M", "d=512M", "e=900M"].iter().map(|word| done.code(&format!("{kind}:{word}"))).collect();
        assert_eq!((codes, done.code("linear:c=6G")), (vec![0, 2, 0, 0], 0), "{kind}: {done:?}");
        assert!(done.err.contains("that can't be moved to the host asked") && done.err.contains("of at most 2 GiB"));
        assert!(done.err.contains("without --oversubscribe"), "{}", done.err);
    }
    // Contexts are such memory too.
    let with_context = |cost: &str| {
        let job = probe(&machine, &daemon, "--memory 2GiB --oversubscribe", "init ctx ctx linear:a=1G");
        job.env("FAKE_CUDA_CONTEXT", cost).run()
    };
    let (dear, cheap) = (with_context("300MiB"), with_context("200MiB"));
    assert_eq!((dear.code("ctx"), cheap.code("ctx")), (2, 0), "512 MiB at least: {dear:?} {cheap:?}");
    assert_eq!((dear.code("linear:a=1G"), cheap.code("linear:a=1G")), (0, 0));
}

/// Every way to linear memory goes beyond the quarter, counts, and comes back.
#[test]
fn all_linear_memory_may_be_moved() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon_under(BY_HALF);
    for kind in ["linear", "pitch", "async", "managed"] {
        let words = format!("init ctx info {kind}:a=6G copy:a info {kind}:b=3G free:a sync info {kind}:c=7G");
        let done = probe(&machine, &daemon, "--memory 8GiB --oversubscribe", &words).run();
        let codes = ["a=6G", "b=3G", "c=7G"].map(|word| done.code(&format!("{kind}:{word}")));
        assert_eq!((codes, done.code("copy:a")), ([0, 2, 0], 0), "{kind}: {done:?}");
        let infos: Vec<&str> = done.out.lines().filter(|line| line.starts_with("info")).collect();
        assert_eq!(infos[1], format!("info 0 {} {}", 2 * GIB, 8 * GIB), "{kind}: {done:?}");
        assert_eq!(infos[2], infos[0], "{kind}: {done:?}");
    }
    // A stream-ordered free of a driver that doesn't take managed memory there.
    let job = probe(&machine, &daemon, "--memory 8GiB --oversubscribe", "init ctx async:a=6G afree:a sync info");
    let done = job.env("FAKE_CUDA_FAIL", "cuMemFreeAsync:1=1").run();
    assert_eq!((done.code("afree:a"), done.numbers("info")), (0, vec![8 * GIB; 2]), "{done:?}");
}

/// Small blocks share pages that stay; when the part that stays is used up, they go on as memory that may be moved.
#[test]
fn small_blocks_stay_as_long_as_there_is_room() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon_under(BY_HALF);
    let blocks: String = (0..700).map(|block| format!(" linear:s{block}=1000K")).collect();
    let frees: String = (0..700).map(|block| format!(" free:s{block}")).collect();
    let words = format!("init ctx{blocks} info{frees} info");
    let done = probe(&machine, &daemon, "--memory 2GiB --oversubscribe", &words).run();
    let lost: Vec<&str> = done.out.lines().filter(|line| line.starts_with("linear") && !line.ends_with(" 0")).collect();
    assert!(lost.is_empty(), "{lost:?} {}", done.err);
    assert_eq!(done.numbers("info"), [2 * GIB; 2], "all came back");
    let between: u64 = done
        .out
        .lines()
        .find_map(|line| line.strip_prefix("info 0 ")?.split(' ').next()?.parse().ok())
        .expect("a number");
    // 524 blocks fill the 512 MiB that stay, two to a page and more; each of the rest has a page of its own.
    assert!((600 * MIB..=1100 * MIB).contains(&(2 * GIB - between)), "{between}");
}

/// What a program can find out: the pointer is managed, and has no handle for others. The driver says so, and one line why.
#[test]
fn a_movable_pointer_is_a_managed_one() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon_under(BY_HALF);
    let kinds = |options: &str| job(&machine, &daemon, options, "pressure").arg("kinds").run();
    let facts =
        |done: &Done| ["alloc", "ipc", "type", "managed", "range", "copies"].map(|word| done.answer(word).to_owned());
    let (stays, moves) = (kinds("--memory 1GiB"), kinds("--memory 1GiB --oversubscribe"));
    assert_eq!(facts(&stays), ["0", "0", "0 2", "0 0", "0 1 67108864", "0"], "{stays:?}");
    assert_eq!(facts(&moves), ["0", "1", "0 2", "0 1", "0 1 67108864", "0"], "{moves:?}");
    let said: Vec<&str> = moves.err.lines().filter(|line| line.contains("cuIpcGetMemHandle")).collect();
    assert!(said.len() == 1 && said[0].contains("without --oversubscribe"), "{}", moves.err);
    assert!(!stays.err.contains("cuIpcGetMemHandle"), "{}", stays.err);
}

/// A stream-ordered call is legal whatever is captured elsewhere, and what it is made of must not spoil that.
#[test]
fn stream_ordered_memory_spoils_no_capture() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon_under(BY_HALF);
    for options in ["--memory 2GiB", "--memory 2GiB --oversubscribe"] {
        let done = job(&machine, &daemon, options, "pressure").arg("captured").run();
        assert_eq!(["alloc", "free", "end"].map(|word| done.code(word)), [0; 3], "{options}: {done:?}");
        assert!(done.out.contains(" failed 0 "), "{options}: {done:?}");
    }
}

#[test]
fn who_may_not_is_told_what_would_be_right() {
    let machine = Machine::new("t4-16gb");
    let plain = machine.daemon_under("");
    let run = |daemon: &Daemon, options: &str| probe(&machine, daemon, options, "init").run();
    let refused = run(&plain, "--memory 1GiB --oversubscribe");
    assert_eq!(refused.status, 125);
    assert!(refused.err.contains("device 0 is not oversubscribed") && refused.err.contains("devices[].oversubscribe"));
    drop(plain);
    let daemon = machine
        .daemon_under("devices: [{oversubscribe: 1.5}]\ntenants: [{name: kept, memory: 4GiB, oversubscribe: true}]\n");
    for (options, wanted) in [
        ("--oversubscribe", "needs a quota to go beyond; give --memory"),
        ("--memory 1TiB --oversubscribe", "can never fit"),
        ("--memory 99% --tenant large", "can never fit"),
    ] {
        let done = run(&daemon, options);
        let last = done.err.lines().last().unwrap_or_default();
        assert!(done.status == 125 && last.contains(wanted), "{options}: {done:?}");
    }
    let env = machine.gpuquota(&daemon, "env --memory 1GiB --oversubscribe").run();
    assert!(env.status == 2 && env.out.is_empty(), "{env:?}");
    // A tenant whose memory stays doesn't change its mind by a second process.
    let mut stays = probe(&machine, &daemon, "--memory 1GiB --tenant stays", "init ctx say=ready wait").start();
    stays.until("ready");
    assert!(run(&daemon, "--tenant stays --oversubscribe").err.contains("has memory that stays"));
    // Nor one of the document that runs.
    let mut kept =
        probe(&machine, &daemon, "--tenant kept", "init ctx linear:a=3G say=ready wait linear:b=512M say=more wait")
            .start();
    kept.until("ready");
    let changed = machine.folder().join("changed.yaml");
    for (document, wanted) in [
        ("devices: [{oversubscribe: 1.5}]\ntenants: [{name: kept, memory: 4GiB}]\n", "once they have ended"),
        ("tenants: [{name: kept, memory: 4GiB, oversubscribe: true}]\n", "must be above 1.0"),
        ("devices: [{oversubscribe: 1.0}]\n", "must be above 1.0"),
    ] {
        std::fs::write(&changed, document).expect("writable");
        let done = machine.gpuquota(&daemon, "apply").arg(&changed).run();
        assert!(done.status != 0 && done.err.contains(wanted), "{document}: {done:?}");
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    }
    kept.go_on();
    assert_eq!(kept.until("more"), ["linear:b=512M 0"]);
    drop((kept.finish(), stays.finish()));
}

/// A restarted daemon knows what may be moved and what not, and the memory of who was killed is nobody's.
#[test]
fn dynamic_tenants_survive_their_daemon_and_leave_nothing() {
    let machine = Machine::new("t4-16gb");
    let mut first = machine.daemon_under(BY_HALF);
    let words = "init ctx linear:a=6G say=ready wait vmm:b=3G linear:c=3G say=more wait";
    let mut job = probe(&machine, &first, "--memory 10GiB --oversubscribe --tenant moves", words).start();
    job.until("ready");
    first.kill();
    let second = machine.daemon(&format!("--config {}", machine.folder().join("gpuquota.yaml").display()));
    let row = row_of(&rows(&machine, &second, "ps"), "moves");
    assert_eq!((row["memory_dynamic"].as_bool(), row["memory_used_bytes"].as_u64()), (Some(true), Some(6 * GIB)));
    assert_eq!(rows(&machine, &second, "devices")[0]["memory_firm_bytes"].as_u64(), Some(10 * GIB / 4));
    job.go_on();
    assert_eq!(job.until("more"), ["vmm:b=3G 2", "linear:c=3G 0"]);
    let pid = row["pid"].as_u64().expect("a pid").to_string();
    assert!(std::process::Command::new("kill").args(["-KILL", &pid]).status().expect("kill runs").success());
    harness::eventually(Duration::from_secs(2), "nothing is left", || {
        let device = rows(&machine, &second, "devices")[0].clone();
        device["memory_granted_bytes"] == 0 && device["memory_firm_bytes"] == 0
    });
    let whole = probe(&machine, &second, "--memory 13GiB", "init ctx linear:a=13G").run();
    assert_eq!(whole.code("linear:a=13G"), 0, "{whole:?}");
}

/// What it costs: as long as the pages take that come and go.
#[test]
fn a_kernel_waits_for_the_pages_that_it_uses() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon_under(BY_HALF);
    let start = |name: &str| {
        let options = format!("--memory 10GiB --oversubscribe --tenant {name}");
        let job =
            probe(&machine, &daemon, &options, "init ctx linear:a=9G say=ready wait launch=k_10us sync say=done wait");
        let mut job = job.env("FAKE_CUDA_BANDWIDTH", "50GB,1500GB").start();
        job.until("ready");
        job
    };
    let mut jobs = ["one", "two"].map(start);
    let begin = Instant::now();
    jobs[1].go_on();
    jobs[1].until("done");
    // 9 GiB come and 3 or more go, at 50 GB/s.
    assert!(begin.elapsed() >= Duration::from_millis(200), "{:?}", begin.elapsed());
    jobs.into_iter().for_each(|job| drop(job.finish()));
}
