//! Whole jobs that make room for others: told by callback, signal or command, given a grace, then paused, checkpointed or ended;
//! and back again by themselves.

#[path = "preemption/orphans.rs"]
mod orphans;

use harness::{Daemon, GIB, Job, Machine, Running, eventually, program};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A machine whose daemon has such a document.
fn node(spec: &str, scheduling: &str) -> (Machine, Daemon) {
    let machine = Machine::new(spec);
    let document = machine.folder().join("document.yaml");
    std::fs::write(&document, format!("scheduling: {{preemption: true, {scheduling}}}\n")).expect("writable");
    let daemon = machine.daemon(&format!("--config {} --reserve 0", document.display()));
    (machine, daemon)
}

/// A job of `gpuquota run` with the program that has something to lose.
fn run(machine: &Machine, daemon: &Daemon, options: &str, words: &str) -> Job {
    let job = machine.gpuquota(daemon, &format!("run {options} --")).env("FAKE_CUDA_CONTEXT", "0");
    job.arg(program("room")).words(words)
}

fn rows(machine: &Machine, daemon: &Daemon, tenant: &str) -> Vec<Value> {
    let done = machine.gpuquota(daemon, "ps -o json").run();
    let rows: Vec<Value> = serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    rows.into_iter().filter(|row| row["tenant"] == tenant).collect()
}

fn state(machine: &Machine, daemon: &Daemon, tenant: &str) -> String {
    let rows = rows(machine, daemon, tenant);
    rows.first().and_then(|row| row["state"].as_str()).unwrap_or("gone").to_owned()
}

fn until_state(machine: &Machine, daemon: &Daemon, tenant: &str, wanted: &str) {
    let mut last = String::new();
    let limit = Instant::now() + PATIENCE;
    while Instant::now() < limit {
        last = state(machine, daemon, tenant);
        if last == wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{tenant} is {last}, not {wanted}");
}

/// A job of class high that starts when it has room, and its end.
fn urgent(machine: &Machine, daemon: &Daemon, memory: &str) -> Running {
    run(machine, daemon, &format!("--tenant urgent --priority high --memory {memory}"), "take=8G say=in wait").start()
}

/// It frees its memory in the callback: the urgent job has it long before the grace is over, and it has it back after.
#[test]
fn a_callback_frees_memory_and_hears_when_it_may_have_it_back() {
    let (machine, daemon) = node("t4-16gb", "grace: 60s");
    let words = "hear take=12G say=ready wait check launch quota say=done wait";
    let mut job = run(&machine, &daemon, "--tenant train --priority batch --memory 14GiB", words).start();
    job.until("ready");
    let begun = Instant::now();
    let mut urgent = urgent(&machine, &daemon, "10GiB");
    assert_eq!([job.line(), job.line(), job.line()], ["heard 1 1 1 1", "freed 0", "ready 0"]);
    urgent.until("in");
    assert!(begun.elapsed() < Duration::from_secs(30), "half of the grace: {:?}", begun.elapsed());
    assert_eq!(job.line(), "heard 2 1 1 0");
    let row = rows(&machine, &daemon, "train").remove(0);
    assert_eq!(
        (row["state"].as_str(), row["state_reason"].as_str()),
        (Some("interrupted"), Some("preempted, for job urgent of class high"))
    );
    assert!(row["memory_quota_bytes"].as_u64().is_some_and(|quota| quota < GIB), "{row}");
    assert_eq!(machine.gpuquota(&daemon, "ps -o wide").run().out.matches("for job urgent of class high").count(), 1);
    urgent.finish();
    assert_eq!([job.line(), job.line()], ["heard 3 1 1 0", "again 0"]);
    job.go_on();
    let lines = job.until("done");
    assert_eq!(lines[..2], ["check 1", "launch 0"]);
    assert!(lines[2].starts_with(&format!("quota 0 {} ", 14 * GIB)) && lines[2].ends_with(" 0 0"), "{lines:?}");
    assert_eq!(job.finish().1, 0);
}

/// Signal and command; then it is ended where it chose so, says why on stderr, and has its own exit status.
#[test]
fn a_signal_and_a_command_come_before_the_end() {
    let (machine, daemon) = node("t4-16gb", "grace: 2s");
    let heard = machine.folder().join("heard");
    let tell = "echo $GPUQUOTA_NOTICE_TENANT $GPUQUOTA_NOTICE_REASON $GPUQUOTA_NOTICE_ACTION $GPUQUOTA_NOTICE_GRACE $GPUQUOTA_NOTICE_CAUSE";
    let command = format!("{tell} > {0}.new; mv {0}.new {0}; echo said", heard.display());
    let options =
        "--tenant train --priority batch --memory 14GiB --on-interrupt terminate --notice-signal usr1 --notice-command";
    let job = machine.gpuquota(&daemon, "run").words(options).arg(command).arg("--").env("FAKE_CUDA_CONTEXT", "0");
    let stderr = machine.folder().join("stderr");
    let mut job = job.arg(program("room")).words("catch-usr1 take=12G say=ready wait").into_command();
    job.stderr(std::fs::File::create(&stderr).expect("writable"));
    let mut job = Running::of(job);
    job.until("ready");
    let begun = Instant::now();
    let mut urgent = urgent(&machine, &daemon, "10GiB");
    assert_eq!(job.line(), "caught-usr1");
    eventually(PATIENCE, "the command ran", || heard.exists());
    let said = std::fs::read_to_string(&heard).expect("it is there");
    assert_eq!(said.trim(), "train preempted terminate 2 job urgent of class high");
    urgent.until("in");
    assert!(begun.elapsed() >= Duration::from_secs(2), "not before the grace is over");
    let (rest, status) = job.finish();
    assert_eq!((rest.as_str(), status), ("", 128 + 15), "nothing of ours or of the command's on stdout");
    let err = std::fs::read_to_string(&stderr).expect("it is there");
    assert!(
        err.contains("tenant train was ended (preempted, for job urgent of class high)") && err.contains("said"),
        "{err}"
    );
    urgent.finish();
}

/// A program that takes no signal hears of its end twice: the second time it has no choice. One that does has its own status.
#[test]
fn an_end_is_asked_for_once_and_status_is_the_programs() {
    let (machine, daemon) = node("t4-16gb", "grace: 0s, interrupt: terminate");
    let words = "catch-term take=12G say=ready wait";
    let mut job = run(&machine, &daemon, "--tenant polite --priority batch --memory 14GiB", words).start();
    job.until("ready");
    let mut urgent = urgent(&machine, &daemon, "10GiB");
    urgent.until("in");
    assert_eq!(job.finish(), ("caught-term\n".to_owned(), 3));
    urgent.finish();
}

/// What hears of nothing frees nothing by being paused: it is left alone, but for an administrator.
#[test]
fn a_deaf_job_is_paused_for_an_administrator_and_not_in_vain() {
    let (machine, daemon) = node("t4-16gb", "grace: 0s");
    let words = "take=12G say=ready wait launch say=ran wait listen wait check say=end wait";
    let mut job = run(&machine, &daemon, "--tenant deaf --priority batch --memory 14GiB", words).start();
    job.until("ready");
    let refused = run(&machine, &daemon, "--priority high --memory 10GiB", "say=in").run();
    assert_eq!((refused.status, state(&machine, &daemon, "deaf").as_str()), (125, "running"), "{refused:?}");
    assert!(refused.err.contains("do not fit") && refused.err.lines().count() == 1, "{refused:?}");
    let told = machine.gpuquota(&daemon, "interrupt deaf --grace 2s").run();
    assert!(told.status == 0 && told.out.contains("in 2 s: pause"), "{told:?}");
    assert_eq!(state(&machine, &daemon, "deaf"), "notified");
    until_state(&machine, &daemon, "deaf", "interrupted");
    job.go_on();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(state(&machine, &daemon, "deaf"), "interrupted", "its kernel waits");
    assert_eq!(machine.gpuquota(&daemon, "resume deaf").run().status, 0);
    assert_eq!(job.until("ran"), ["launch 0"]);
    job.go_on();
    assert_eq!(job.line(), "listen 0");
    std::thread::sleep(Duration::from_millis(200));
    job.go_on();
    assert_eq!(job.until("end"), ["check 1"], "who wasn't told to make room isn't told that it goes on");
    job.finish();
}

/// The memory leaves the device and comes back, with its contents, without a word from the program.
#[test]
fn a_checkpointed_job_makes_room_and_comes_back_as_it_was() {
    let (machine, daemon) = node("t4-16gb", "grace: 200ms, interrupt: checkpoint");
    let words = "take=12G say=ready wait check launch say=done wait";
    let mut job = run(&machine, &daemon, "--tenant train --priority batch --memory 14GiB", words).start();
    job.until("ready");
    let mut urgent = urgent(&machine, &daemon, "14GiB");
    urgent.until("in");
    assert_eq!(state(&machine, &daemon, "train"), "checkpointed");
    job.go_on();
    let done = machine.gpuquota(&daemon, "devices -o json").run();
    let device = serde_json::from_str::<Vec<Value>>(&done.out).expect("JSON").remove(0);
    assert_eq!(device["memory_charged_bytes"].as_u64(), Some(8 * GIB), "what is away is not charged: {device}");
    urgent.finish();
    assert_eq!(job.until("done"), ["check 1", "launch 0"], "it waited in the driver, and found what it had left");
    until_state(&machine, &daemon, "train", "running");
    let row = rows(&machine, &daemon, "train").remove(0);
    let used =
        row["memory_used_bytes"].as_u64().expect("a number") - row["memory_overhead_bytes"].as_u64().expect("a number");
    assert_eq!(used, 12 * GIB, "{row}");
    assert_eq!(job.finish().1, 0);
}

/// Both processes of a job are away together and come back together, and an administrator says when.
#[test]
fn all_processes_of_a_job_are_checkpointed_together() {
    let (machine, daemon) = node("t4-16gb", "grace: 0s");
    let words = "take=3G say=ready wait check say=done wait";
    let mut first = run(&machine, &daemon, "--tenant pair --memory 8GiB", words).start();
    first.until("ready");
    let second = machine.job(program("room")).tenant("pair").env("GPUQUOTA_SOCKET", daemon.socket()).words(words);
    let mut second = second.start();
    second.until("ready");
    assert_eq!(machine.gpuquota(&daemon, "interrupt pair --action checkpoint").run().status, 0);
    let used =
        || rows(&machine, &daemon, "pair").iter().filter_map(|row| row["memory_used_bytes"].as_u64()).sum::<u64>();
    eventually(PATIENCE, "both are away", || used() == 0);
    until_state(&machine, &daemon, "pair", "checkpointed");
    for job in [&mut first, &mut second] {
        job.go_on();
    }
    assert_eq!(machine.gpuquota(&daemon, "resume pair").run().status, 0);
    for mut job in [first, second] {
        assert_eq!(job.until("done"), ["check 1"]);
        assert_eq!(job.finish().1, 0);
    }
}

/// Where the driver can't do it, the job is paused instead, goes on when that was in vain, and the other one is told the numbers.
#[test]
fn a_driver_that_cannot_checkpoint_leaves_the_job_as_it_was() {
    let (machine, daemon) = node("t4-16gb", "grace: 0s, interrupt: checkpoint");
    let job = run(&machine, &daemon, "--tenant train --memory 14GiB", "take=12G say=ready wait check launch say=done");
    let mut job = job.env("FAKE_CUDA_FAIL", "cuCheckpointProcessCheckpoint:*=801").start();
    job.until("ready");
    let refused = run(&machine, &daemon, "--priority high --memory 10GiB", "say=in").run();
    assert!(refused.status == 125 && refused.err.contains("do not fit"), "{refused:?}");
    until_state(&machine, &daemon, "train", "running");
    job.go_on();
    assert_eq!(job.until("done"), ["check 1", "launch 0"]);
    assert_eq!(job.finish().1, 0);
}

/// A process that nobody runs for is a job as well: the daemon itself asks it to end.
#[test]
fn a_process_that_came_by_itself_makes_room_too() {
    let (machine, daemon) = node("t4-16gb", "grace: 0s, interrupt: terminate");
    let job = machine.job(program("room")).tenant("alone").memory("14GiB").env("GPUQUOTA_SOCKET", daemon.socket());
    let mut job = job.env("GPUQUOTA_PRIORITY", "batch").words("take=12G say=ready wait").start();
    job.until("ready");
    let mut urgent = urgent(&machine, &daemon, "10GiB");
    urgent.until("in");
    assert_eq!(job.finish(), (String::new(), 128 + 15));
    urgent.finish();
}

/// Whoever runs the job is killed while it is being interrupted: the daemon goes on with what is left of it.
#[test]
fn a_killed_run_leaves_no_interruption_behind() {
    let (machine, daemon) = node("t4-16gb", "grace: 3s, interrupt: terminate");
    let mut job =
        run(&machine, &daemon, "--tenant train --priority batch --memory 14GiB", "take=12G say=ready wait").start();
    job.until("ready");
    let mut urgent = urgent(&machine, &daemon, "10GiB");
    until_state(&machine, &daemon, "train", "notified");
    // Its command goes on without it, as a process of the tenant, and is ended as such.
    job.kill();
    urgent.until("in");
    assert_eq!(state(&machine, &daemon, "train"), "gone");
    urgent.finish();
}

/// Nobody of the same class is interrupted, and who came first in vain is told that it may go on.
#[test]
fn only_lower_classes_are_interrupted_and_a_notice_is_withdrawn_when_its_cause_is_killed() {
    let (machine, daemon) = node("t4-16gb", "grace: 60s");
    let job = |name: &str, class: &str, size: &str| {
        let options = format!("--tenant {name} --priority {class} --memory {size}");
        run(&machine, &daemon, &options, "listen take=1G say=ready wait").start()
    };
    let mut equal = job("equal", "high", "5GiB");
    equal.until("ready");
    let mut low = job("low", "batch", "9GiB");
    low.until("ready");
    let urgent = urgent(&machine, &daemon, "9GiB");
    assert_eq!(low.line(), "heard 1 1 1 1");
    assert_eq!(
        (state(&machine, &daemon, "low"), state(&machine, &daemon, "equal")),
        ("notified".to_owned(), "idle".to_owned())
    );
    urgent.kill();
    assert_eq!(low.line(), "heard 3 1 1 0");
    until_state(&machine, &daemon, "low", "idle");
    for job in [low, equal] {
        assert_eq!(job.finish(), (String::new(), 0), "nothing else was said");
    }
}

/// An interruption goes on under the next daemon: the notice is not given twice, and the job is back when there is room.
#[test]
fn a_daemon_that_comes_after_goes_on_with_it() {
    let (machine, mut daemon) = node("t4-16gb", "grace: 3s, interrupt: checkpoint");
    let words = "listen take=12G say=ready wait check say=done wait";
    let mut job = run(&machine, &daemon, "--tenant train --priority batch --memory 14GiB", words).start();
    job.until("ready");
    let mut urgent = urgent(&machine, &daemon, "14GiB");
    assert_eq!(job.line(), "heard 1 1 2 1");
    daemon.kill();
    let document = machine.folder().join("document.yaml");
    let config = format!("--config {} --reserve 0", document.display());
    let mut daemon = machine.daemon(&config);
    urgent.until("in");
    assert_eq!(job.line(), "heard 2 1 2 0", "no second notice");
    assert_eq!(state(&machine, &daemon, "train"), "checkpointed");
    daemon.kill();
    let daemon = machine.daemon(&config);
    assert_eq!(state(&machine, &daemon, "train"), "checkpointed");
    urgent.finish();
    assert_eq!(job.line(), "heard 3 1 2 0");
    job.go_on();
    assert_eq!(job.until("done"), ["check 1"]);
    assert_eq!(job.finish().1, 0);
}

/// The functions of the header: what they say with a daemon, with a ledger's file, and without any quota; no thread unless somebody
/// listens, and nothing of it in a forked child.
#[test]
fn the_library_answers_and_has_a_thread_only_for_who_listens() {
    let (machine, daemon) = node("t4-16gb", "grace: 60s");
    let words = "version ready threads quota deaf threads listen threads fork deaf say=ready";
    let done = run(&machine, &daemon, "--tenant t --priority high --memory 2GiB --compute 40", words).run();
    let quota = format!("quota 0 {} 0 4000 100 2 0", 2 * GIB);
    let lines = [
        "version 1",
        "ready 2",
        "threads 1",
        &quota,
        "deaf 0",
        "threads 1",
        "listen 0",
        "threads 2",
        "threads 1",
        "fork 0",
        "deaf 0",
        "ready",
    ];
    assert_eq!(done.lines(), lines, "{done:?}");
    let done = run(&machine, &daemon, "--tenant t --memory 2GiB", "early threads say=ready").run();
    assert_eq!(done.lines(), ["listen 0", "threads 1", "threads 2", "ready"], "before CUDA there is nothing to hear");
    let done = machine.job(program("room")).memory("1GiB").words("take=1M quota listen threads").run();
    assert_eq!(
        done.lines(),
        ["take=1M 0", &format!("quota 0 {GIB} {} 10000 100 1 0", 2 << 20), "listen 1", "threads 1"]
    );
    let done = machine.bare(program("room")).words("version quota listen").run();
    assert_eq!(done.lines(), ["version -1", "quota absent", "listen -1"], "without the library");
    let done = machine.job(program("room")).words("quota listen ready").env("GPUQUOTA_MODE", "off").run();
    assert_eq!(done.lines(), ["quota 1", "listen 1", "ready 1"]);
}

/// The example does what its text says.
#[test]
fn the_example_makes_room_and_goes_on() {
    let (machine, daemon) = node("t4-16gb", "");
    let job = machine.gpuquota(&daemon, "run --tenant example --memory 2GiB --").env("FAKE_CUDA_CONTEXT", "0");
    let mut job = job.arg(program("example-notice")).arg("30").start();
    assert_eq!(job.line(), "1024 of 2048 MiB in use");
    assert_eq!(machine.gpuquota(&daemon, "interrupt example --grace 10s").run().status, 0);
    let told = job.line();
    assert!(told.starts_with("to make room within "), "{told}");
    assert_eq!(job.line(), "interrupted");
    assert_eq!(machine.gpuquota(&daemon, "resume example").run().status, 0);
    assert_eq!(job.line(), "goes on: 0");
    job.kill();
    let alone = machine.bare(program("example-notice")).arg("0").run();
    assert_eq!((alone.status, alone.out.as_str()), (0, "nobody will ask for room\n"), "{alone:?}");
}

/// From Python, without anything to build.
#[test]
fn a_python_program_hears_of_a_notice() {
    if !Path::new("/usr/bin/python3").exists() {
        eprintln!("passed over: there is no /usr/bin/python3");
        return;
    }
    let (machine, daemon) = node("t4-16gb", "grace: 60s, interrupt: terminate");
    let script = r#"
import ctypes, sys
cuda, lib = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
class Notice(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("event", ctypes.c_int), ("reason", ctypes.c_int), ("action", ctypes.c_int), ("grace_ms", ctypes.c_uint)]
@ctypes.CFUNCTYPE(None, ctypes.POINTER(Notice), ctypes.c_void_p)
def heard(notice, data):
    print("heard", notice[0].event, notice[0].action, flush=True)
    if notice[0].event == 1: lib.gpuquota_ready()
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
print(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(12 << 30)), lib.gpuquota_on_notice(heard, None), flush=True)
sys.stdin.readline()
"#;
    let job = machine.gpuquota(&daemon, "run --tenant train --priority batch --memory 14GiB -- /usr/bin/python3 -c");
    let mut job = job.arg(script).env("FAKE_CUDA_CONTEXT", "0").start();
    job.until("0 0");
    let begun = Instant::now();
    let mut urgent = urgent(&machine, &daemon, "10GiB");
    assert_eq!(job.line(), "heard 1 3");
    urgent.until("in");
    assert!(begun.elapsed() < Duration::from_secs(30), "it was ready long before the grace was over");
    assert_eq!(job.finish().1, 128 + 15);
    urgent.finish();
}
