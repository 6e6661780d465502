//! What tenants lend each other, with real processes: memory, given back when its owner asks. (Time: `compute.rs`.)

use harness::{Daemon, GIB, Job, Machine, Running, eventually, program};
use serde_json::Value;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);

/// `own` has 38 GiB, `lab` 40 and may borrow; who is to give back has this long.
fn node(grace: &str) -> (Machine, Daemon) {
    let machine = Machine::new("a100-80gb");
    let tenants = "[{name: lab, memory: 40GiB, borrow: true}, {name: own, memory: 38GiB}]";
    let daemon =
        machine.daemon_under(&format!("scheduling: {{grace: {grace}, reclaim: terminate}}\ntenants: {tenants}\n"));
    (machine, daemon)
}

fn job(machine: &Machine, daemon: &Daemon, options: &str, words: &str) -> Job {
    let job = machine.gpuquota(daemon, &format!("run {options} --")).env("FAKE_CUDA_CONTEXT", "0");
    job.arg(program("probe-linked")).arg("linked").words(words)
}

fn state(machine: &Machine, daemon: &Daemon, tenant: &str) -> Option<(String, u64)> {
    let rows: Vec<Value> = serde_json::from_str(&machine.gpuquota(daemon, "ps -o json").run().out).expect("JSON");
    let row = rows.iter().find(|row| row["tenant"] == tenant)?;
    Some((row["state"].as_str()?.to_owned(), row["memory_quota_bytes"].as_u64()? / GIB))
}

fn borrower(machine: &Machine, daemon: &Daemon) -> Running {
    let words = "init ctx linear:a=30G linear:b=20G say=in wait free:b linear:c=15G say=freed wait";
    let mut job = job(machine, daemon, "--tenant lab/large --memory 60GiB", words).start();
    let lines = job.until("in");
    assert_eq!(lines, ["init 0", "ctx 0", "linear:a=30G 0", "linear:b=20G 0"], "40 of its own and 10 of the other's");
    job
}

/// The owner's job waits until the borrower has freed what is too much, and not longer; nothing new is given to it meanwhile.
#[test]
fn what_is_borrowed_is_given_back_when_its_owner_asks() {
    let (machine, daemon) = node("60s");
    let mut borrower = borrower(&machine, &daemon);
    let mut small = job(&machine, &daemon, "--tenant own/small --memory 10GiB", "init ctx say=in wait").start();
    small.until("in");
    let mut owner =
        job(&machine, &daemon, "--tenant own/large --memory 25GiB", "init ctx linear:a=25G say=in wait").start();
    let notified = Some(("notified".to_owned(), 40));
    eventually(PATIENCE, "it is told", || state(&machine, &daemon, "lab/large") == notified);
    let begun = Instant::now();
    borrower.go_on();
    assert_eq!(borrower.until("freed"), ["free:b 0", "linear:c=15G 2"], "its own 40 from now on");
    assert_eq!(owner.until("in"), ["init 0", "ctx 0", "linear:a=25G 0"]);
    assert!(begun.elapsed() < Duration::from_secs(30), "long before the grace is over: {:?}", begun.elapsed());
    let (state, quota) = state(&machine, &daemon, "lab/large").expect("it goes on");
    assert_eq!((state == "notified", quota), (false, 40));
    for job in [borrower, small, owner] {
        job.finish();
    }
}

/// Who gives nothing back is ended when the grace is over.
#[test]
fn who_gives_nothing_back_is_ended() {
    let (machine, daemon) = node("300ms");
    let borrower = borrower(&machine, &daemon);
    let mut owner =
        job(&machine, &daemon, "--tenant own/large --memory 38GiB", "init ctx linear:a=38G say=in wait").start();
    assert_eq!(owner.until("in"), ["init 0", "ctx 0", "linear:a=38G 0"]);
    let (_, status) = borrower.finish();
    assert_eq!(status, 128 + 15, "as it was asked to");
    owner.finish();
    let log = machine.gpuquota(&daemon, "audit -o json --event interrupted").run().out;
    assert!(log.contains("lab/large") && log.contains("the owner of what it has borrowed"), "{log}");
}

/// What nobody has been promised is lent as well, and had back by a job that needs it to start.
#[test]
fn the_free_rest_is_borrowed_and_given_back() {
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon_under(
        "scheduling: {grace: 60s, reclaim: terminate}\ntenants: [{name: lab, memory: 40GiB, borrow: true}]\n",
    );
    let granted = || {
        let rows: Vec<Value> =
            serde_json::from_str(&machine.gpuquota(&daemon, "devices -o json").run().out).expect("JSON");
        rows[0]["memory_granted_bytes"].as_u64().expect("a number") / GIB
    };
    let mut borrower = borrower(&machine, &daemon);
    assert_eq!(granted(), 60);
    let mut beside =
        job(&machine, &daemon, "--tenant beside --memory 15GiB", "init ctx linear:a=15G say=in wait").start();
    assert_eq!(beside.until("in"), ["init 0", "ctx 0", "linear:a=15G 0"], "there is room beside the loan");
    let mut solo = job(&machine, &daemon, "--tenant solo --memory 20GiB", "init ctx linear:a=20G say=in wait").start();
    let notified = Some(("notified".to_owned(), 40));
    eventually(PATIENCE, "it is told", || state(&machine, &daemon, "lab/large") == notified);
    borrower.go_on();
    assert_eq!(borrower.until("freed"), ["free:b 0", "linear:c=15G 2"], "its own 40 from now on");
    assert_eq!(solo.until("in"), ["init 0", "ctx 0", "linear:a=20G 0"]);
    for job in [borrower, beside, solo] {
        job.finish();
    }
}
