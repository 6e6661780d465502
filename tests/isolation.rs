//! Tenants that want devices to themselves, with real processes: kept apart, allowed one by one, and written down.

use harness::{Daemon, Job, Machine, Running, eventually, program};
use serde_json::Value;
use std::time::Duration;

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

const DOCUMENT: &str =
    "tenants: [{name: vision, memory: 20GiB, isolation: own-device}, {name: other, memory: 10GiB}]\n";

fn node(spec: &str) -> (Machine, Daemon) {
    let machine = Machine::new(spec);
    std::fs::write(machine.folder().join("document.yaml"), DOCUMENT).expect("writable");
    let daemon = started(&machine);
    (machine, daemon)
}

fn started(machine: &Machine) -> Daemon {
    machine.daemon(&format!("--config {}", machine.folder().join("document.yaml").display()))
}

fn run(machine: &Machine, daemon: &Daemon, options: &str) -> Job {
    let job = machine.gpuquota(daemon, &format!("run {options} --")).env("FAKE_CUDA_CONTEXT", "0");
    job.arg(program("probe-linked")).arg("linked").words("init ctx linear:a=100M say=ready wait")
}

/// A job that has its place and its memory.
fn running(machine: &Machine, daemon: &Daemon, options: &str) -> Running {
    let mut job = run(machine, daemon, options).start();
    job.until("ready");
    job
}

fn pending(machine: &Machine, daemon: &Daemon) -> Vec<Value> {
    let done = machine.gpuquota(daemon, "approve -o json").run();
    assert_eq!(done.status, 0, "{done:?}");
    serde_json::from_str(&done.out).expect("JSON")
}

/// The only request, once there is one.
fn request(machine: &Machine, daemon: &Daemon) -> Value {
    eventually(PATIENCE, "a request", || !pending(machine, daemon).is_empty());
    let rows = pending(machine, daemon);
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0].clone()
}

fn events(machine: &Machine, daemon: &Daemon, kind: &str) -> Vec<Value> {
    let done = machine.gpuquota(daemon, &format!("audit -o json --event {kind}")).run();
    done.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Refused, listed, approved, started, and recorded, with who allowed it.
#[test]
fn a_job_beside_an_own_device_tenant_needs_an_approval() {
    let (machine, daemon) = node("a100-80gb");
    let vision = running(&machine, &daemon, "--tenant vision --memory 5GiB");
    let eval = running(&machine, &daemon, "--tenant vision/eval --memory 5GiB");
    let refused = run(&machine, &daemon, "--tenant a --memory 1GiB").run();
    assert_eq!(refused.status, 125, "{refused:?}");
    assert!(refused.err.contains("device 0 is tenant vision's own while it runs"), "{}", refused.err);
    assert!(refused.err.contains("an administrator") && refused.err.contains("--queue"), "{}", refused.err);
    let mut a = run(&machine, &daemon, "--tenant a --memory 1GiB --queue").start();
    let row = request(&machine, &daemon);
    let number = row["number"].as_u64().expect("a number");
    assert_eq!(
        (row["tenant"].as_str(), &row["devices"][0], &row["beside"][0]),
        (Some("a"), &0.into(), &"vision".into())
    );
    assert!(row["command"].as_str().is_some_and(|command| command.contains("probe-linked")), "{row}");
    let table = machine.gpuquota(&daemon, "approve").run();
    assert!(table.out.contains("vision") && table.out.contains("side channels"), "{}", table.out);
    let approved = machine.gpuquota(&daemon, &format!("approve {number}")).run();
    assert!(approved.status == 0 && approved.out.contains("it has its place"), "{approved:?}");
    a.until("ready");
    assert!(pending(&machine, &daemon).is_empty());
    let again = machine.gpuquota(&daemon, &format!("approve {number}")).run();
    assert!(again.status == 1 && again.err.contains(&format!("no request {number} waits")), "{again:?}");
    let changed = events(&machine, &daemon, "changed");
    let event = changed.iter().find(|event| event["change"] == "approve").expect("written down");
    assert_eq!((event["tenant"].as_str(), &event["devices"][0]), (Some("a"), &row["uuids"][0]), "{event}");
    assert!(event["by_uid"].is_u64() && event["by_pid"].is_u64(), "{event}");
    assert_eq!(event["reason"], row["risk"], "{event}");
    drop((vision.finish(), eval.finish(), a.finish()));
}

#[test]
fn a_denied_job_ends_with_the_reason() {
    let (machine, daemon) = node("a100-80gb");
    let vision = running(&machine, &daemon, "--tenant vision --memory 5GiB");
    let job = run(&machine, &daemon, "--tenant other --queue");
    let waiting = std::thread::spawn(move || job.run());
    let number = request(&machine, &daemon)["number"].as_u64().expect("a number");
    let denied = machine.gpuquota(&daemon, &format!("approve {number} --deny --reason nights-only")).run();
    assert_eq!(denied.status, 0, "{denied:?}");
    let done = waiting.join().expect("it ends");
    assert_eq!(done.status, 125, "{done:?}");
    assert!(done.err.contains("an administrator doesn't allow it: nights-only"), "{}", done.err);
    let refused = events(&machine, &daemon, "refused");
    let told = |event: &Value| event["reason"].as_str().is_some_and(|reason| reason.contains("nights-only"));
    assert!(refused.iter().any(told), "{refused:?}");
    vision.finish();
}

/// Without an approval it waits for the owner to end; an owner waits for the device to be empty.
#[test]
fn the_next_tenant_waits_until_the_owner_has_ended() {
    let (machine, daemon) = node("2xa100-80gb");
    let vision = running(&machine, &daemon, "--tenant vision --device 0");
    let elsewhere = running(&machine, &daemon, "--tenant b --memory 1GiB --count 1");
    let mut other = run(&machine, &daemon, "--tenant other --device 0 --queue").start();
    request(&machine, &daemon);
    vision.finish();
    other.until("ready");
    let mut next = run(&machine, &daemon, "--tenant vision --device 0 --queue").start();
    let waits = request(&machine, &daemon);
    assert_eq!((waits["tenant"].as_str(), &waits["beside"][0]), (Some("vision"), &"other".into()), "{waits}");
    other.finish();
    next.until("ready");
    drop((next.finish(), elsewhere.finish()));
}

/// What was allowed holds under the next daemon.
#[test]
fn an_approval_outlives_the_daemon() {
    let (machine, mut daemon) = node("a100-80gb");
    let vision = running(&machine, &daemon, "--tenant vision --memory 5GiB");
    let mut a = run(&machine, &daemon, "--tenant a --memory 1GiB --queue").start();
    let number = request(&machine, &daemon)["number"].as_u64().expect("a number");
    machine.gpuquota(&daemon, &format!("approve {number}")).run();
    a.until("ready");
    daemon.kill();
    let daemon = started(&machine);
    let child = machine.job(program("probe-linked")).tenant("a").env("GPUQUOTA_SOCKET", daemon.socket());
    let done = child.arg("linked").words("init ctx linear:a=1M").run();
    assert_eq!(done.code("linear:a=1M"), 0, "{done:?}");
    let refused = run(&machine, &daemon, "--tenant b --memory 1GiB").run();
    assert!(refused.err.contains("device 0 is tenant vision's own"), "{}", refused.err);
    drop((vision.finish(), a.finish()));
}

/// A job of an owner starts beside its others while strangers wait for the device; and those of a lower class are ended for it
/// where the document says so.
#[test]
fn an_owner_passes_those_that_it_keeps_out_and_has_others_leave() {
    let machine = Machine::new("a100-80gb");
    let scheduling = "{policy: fifo, preemption: true, grace: 0s, interrupt: terminate}";
    let tenants = "[{name: vision, memory: 20GiB, priority: high, isolation: own-device}]";
    let daemon = machine.daemon_under(&format!("scheduling: {scheduling}\ntenants: {tenants}\n"));
    let low = running(&machine, &daemon, "--tenant low --priority batch --memory 5GiB");
    let mut first = run(&machine, &daemon, "--tenant vision --memory 5GiB").start();
    first.until("ready");
    assert_eq!(low.finish().1, 128 + 15, "it left, and the first came only then");
    let mut stranger = run(&machine, &daemon, "--tenant stranger --memory 40GiB --queue").start();
    request(&machine, &daemon);
    let later = running(&machine, &daemon, "--tenant vision/later --memory 10GiB");
    assert_eq!(request(&machine, &daemon)["tenant"], "stranger");
    drop((first.finish(), later.finish()));
    stranger.until("ready");
    stranger.finish();
}
