//! Jobs under a node's daemon: granted, shown, changed while they run, and cleaned up after.

use harness::{Daemon, GIB, Job, MIB, Machine, Running, eventually, program};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The probe as a job of `gpuquota run`.
fn run(machine: &Machine, daemon: &Daemon, options: &str, words: &str) -> Job {
    let job = machine.gpuquota(daemon, &format!("run {options} --")).env("FAKE_CUDA_CONTEXT", "0");
    job.arg(program("probe-linked")).arg("linked").words(words)
}

fn ps(machine: &Machine, daemon: &Daemon) -> Vec<Value> {
    let done = machine.gpuquota(daemon, "ps -o json").run();
    assert_eq!(done.status, 0, "{done:?}");
    serde_json::from_str(&done.out).expect("JSON")
}

fn used_by(machine: &Machine, daemon: &Daemon, tenant: &str) -> u64 {
    ps(machine, daemon)
        .iter()
        .filter(|row| row["tenant"] == tenant)
        .filter_map(|row| row["memory_used_bytes"].as_u64())
        .sum()
}

#[test]
fn two_jobs_share_a_device_and_ps_shows_both() {
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let words = "init ctx total linear:a=600M linear:b=600M say=ready wait free:a info say=freed wait";
    let context = 300 * MIB;
    let mut a = run(&machine, &daemon, "--memory 1GiB --tenant a", words).with_context_cost().start();
    let mut b = run(&machine, &daemon, "--memory 2GiB --tenant b", words).with_context_cost().start();
    let (a_lines, b_lines) = (a.until("ready"), b.until("ready"));
    assert_eq!(a_lines[2..], [format!("total 0 {GIB}"), "linear:a=600M 0".to_owned(), "linear:b=600M 2".to_owned()]);
    assert_eq!(
        b_lines[2..],
        [format!("total 0 {}", 2 * GIB), "linear:a=600M 0".to_owned(), "linear:b=600M 0".to_owned()]
    );
    let rows = ps(&machine, &daemon);
    assert_eq!(rows.len(), 2, "{rows:?}");
    for (tenant, quota, used) in [("a", GIB, 600 * MIB), ("b", 2 * GIB, 1200 * MIB)] {
        let row = rows.iter().find(|row| row["tenant"] == tenant).expect("shown");
        assert_eq!(
            (row["memory_quota_bytes"].as_u64(), row["memory_used_bytes"].as_u64()),
            (Some(quota), Some(used + context)),
            "{row}"
        );
        for field in [
            "pid",
            "uid",
            "command",
            "device",
            "uuid",
            "memory_overhead_bytes",
            "compute_used_percent",
            "compute_cap_percent",
            "compute_guarantee_percent",
            "weight",
            "priority",
            "state",
            "started",
        ] {
            assert!(row.get(field).is_some(), "{field} in {row}");
        }
        assert_eq!(row["memory_overhead_bytes"].as_u64(), Some(context), "the context is shown apart: {row}");
    }
    let table = machine.gpuquota(&daemon, "ps").run();
    assert!(table.out.contains("900 MiB") && !table.out.contains('\u{1b}'), "{}", table.out);
    a.go_on();
    assert_eq!(a.until("freed")[1], format!("info 0 {} {GIB}", GIB - context));
    eventually(Duration::from_secs(1), "a's memory is back", || used_by(&machine, &daemon, "a") == context);
    drop((a.finish(), b.finish()));
    eventually(Duration::from_secs(2), "both are gone", || ps(&machine, &daemon).is_empty());
}

#[test]
fn processes_of_a_job_share_its_quota() {
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let mut first =
        run(&machine, &daemon, "--memory 1GiB --tenant pair", "init ctx linear:a=600M say=ready wait").start();
    first.until("ready");
    // The second joins by the tenant's name, as a child of the first would by its environment.
    let second = machine.job(program("probe-linked")).tenant("pair").env("GPUQUOTA_SOCKET", daemon.socket());
    let done = second.arg("linked").words("init ctx linear:b=600M linear:c=400M").run();
    assert_eq!((done.code("linear:b=600M"), done.code("linear:c=400M")), (2, 0), "{done:?}");
    first.finish();
}

#[test]
fn a_quota_changes_while_the_job_runs() {
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let words = "init ctx linear:a=600M say=one wait info linear:b=600M say=two wait info total linear:c=10M free:b linear:d=10M say=three";
    let mut job = run(&machine, &daemon, "--memory 1GiB --tenant t", words).start();
    job.until("one");
    let set = machine.gpuquota(&daemon, "set t --memory 2GiB").run();
    assert_eq!(set.status, 0, "{set:?}");
    job.go_on();
    assert_eq!(job.until("two"), [format!("info 0 {} {}", 2 * GIB - 600 * MIB, 2 * GIB), "linear:b=600M 0".to_owned()]);
    // Below what is in use: nothing is taken away, nothing new is given until use falls.
    assert_eq!(machine.gpuquota(&daemon, "set t --memory 700MiB").run().status, 0);
    job.go_on();
    let lines = job.until("three");
    assert_eq!(
        lines,
        [
            format!("info 0 0 {}", 700 * MIB),
            format!("total 0 {}", 700 * MIB),
            "linear:c=10M 2".to_owned(),
            "free:b 0".to_owned(),
            "linear:d=10M 0".to_owned(),
        ]
    );
    job.finish();
}

#[test]
fn a_killed_job_gives_everything_back_within_a_second() {
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let socket = daemon.socket().to_owned();
    let direct = || {
        machine
            .job(program("probe-linked"))
            .env("GPUQUOTA_SOCKET", &socket)
            .tenant("victim")
            .memory("1GiB")
            .arg("linked")
    };
    let mut victim = direct().words("init ctx linear:a=900M say=ready wait").start();
    victim.until("ready");
    assert_eq!(used_by(&machine, &daemon, "victim"), 900 * MIB);
    victim.kill();
    let killed = Instant::now();
    eventually(Duration::from_secs(1), "the row is gone", || ps(&machine, &daemon).is_empty());
    assert!(killed.elapsed() < Duration::from_secs(1));
    let next = direct().words("init ctx info linear:a=1G").run();
    assert_eq!((next.numbers("info"), next.code("linear:a=1G")), (vec![GIB, GIB], 0), "{next:?}");
}

/// With a daemon the environment can only ask for less.
#[test]
fn the_daemons_word_is_final() {
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let more = run(&machine, &daemon, "--memory 1GiB --tenant t", "init total").env("CUDA_DEVICE_MEMORY_LIMIT", "4g");
    assert_eq!(more.run().numbers("total"), [GIB]);
    let script = format!("GPUQUOTA_MEMORY=4GiB exec {} linked init total", program("probe-linked").display());
    let more = machine.gpuquota(&daemon, "run --memory 1GiB --tenant u -- sh -c").arg(script).run();
    assert_eq!(more.numbers("total"), [GIB]);
}

#[test]
fn what_does_not_fit_is_refused_with_the_numbers() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon("");
    let mut first = run(&machine, &daemon, "--memory 10GiB --tenant a", "init say=ready wait").start();
    first.until("ready");
    let second = run(&machine, &daemon, "--memory 8GiB --tenant b", "init").run();
    assert_eq!(second.status, 125, "{second:?}");
    for part in ["8 GiB", "10 GiB", "--queue"] {
        assert!(second.err.contains(part), "{part} in {}", second.err);
    }
    let never = run(&machine, &daemon, "--memory 20GiB --queue --tenant c", "init").run();
    assert_eq!(never.status, 125, "what can never fit does not wait: {never:?}");
    let mut waiting = run(&machine, &daemon, "--memory 8GiB --queue 30s --tenant d", "init say=in wait").start();
    std::thread::sleep(Duration::from_millis(300));
    first.finish();
    waiting.until("in");
    waiting.finish();
}

/// Three jobs of 40 GiB on 79.5: each waits for the one before it. One of 10 GiB that delays none of them starts at once.
#[test]
fn jobs_wait_in_order_and_what_delays_nobody_starts_at_once() {
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let job = |name: &str, options: &str| {
        run(&machine, &daemon, &format!("--tenant {name} {options}"), "init say=in wait").start()
    };
    let waiting = || {
        let devices = machine.gpuquota(&daemon, "devices -o json").run();
        serde_json::from_str::<Vec<Value>>(&devices.out).expect("JSON")[0]["jobs_waiting"].clone()
    };
    let mut first = job("first", "--memory 40GiB");
    first.until("in");
    let mut second = job("second", "--memory 40GiB --queue");
    eventually(Duration::from_secs(5), "the second waits", || waiting() == 1);
    let mut third = job("third", "--memory 40GiB --queue");
    eventually(Duration::from_secs(5), "the third waits", || waiting() == 2);
    let mut small = job("small", "--memory 10GiB");
    small.until("in");
    first.finish();
    second.until("in");
    assert_eq!(waiting(), 1, "order is kept");
    second.finish();
    third.until("in");
    third.finish();
    small.finish();
}

/// Two jobs that each want some device of two get one each, and see no other; the urgent one of those that wait is next.
#[test]
fn jobs_get_devices_and_the_urgent_one_is_next() {
    let machine = Machine::new("2xa100-80gb");
    let daemon = machine.daemon_under("scheduling: {policy: priority}\n");
    let job = |name: &str, options: &str| {
        let options = format!("--tenant {name} --count 1 --memory 50GiB {options}");
        run(&machine, &daemon, &options, "init device=1 ctx device=0 ctx say=in wait").start()
    };
    let waiting = |count: u64| {
        eventually(Duration::from_secs(5), "it waits", || {
            let devices = machine.gpuquota(&daemon, "devices -o json").run();
            let devices: Vec<Value> = serde_json::from_str(&devices.out).expect("JSON");
            devices.iter().all(|device| device["jobs_waiting"] == count)
        });
    };
    let (mut first, mut second) = (job("first", ""), job("second", ""));
    for job in [&mut first, &mut second] {
        assert_eq!(job.until("in"), ["init 0", "ctx 101", "ctx 0"], "it sees its own device only");
    }
    let devices = ps(&machine, &daemon).iter().map(|row| row["device"].to_string()).collect::<BTreeSet<_>>();
    assert_eq!(devices.len(), 2, "{devices:?}");
    let mut normal = job("normal", "--queue");
    waiting(1);
    let mut urgent = job("urgent", "--queue --priority high");
    waiting(2);
    first.finish();
    urgent.until("in");
    waiting(1);
    second.finish();
    normal.until("in");
    urgent.finish();
    normal.finish();
}

/// A pool's processes of no job have what its jobs leave, under the next daemon too, whichever of them it takes back first.
#[test]
fn a_pool_is_taken_back_as_a_whole() {
    let machine = Machine::new("a100-80gb");
    let document = "tenants: [{name: a, memory: 40GiB}, {name: z, memory: 30GiB}]\n";
    let mut daemon = machine.daemon_under(document);
    let mut jobs = Vec::new();
    for pool in ["a", "z"] {
        for name in ["b", "y"] {
            let mut part =
                run(&machine, &daemon, &format!("--tenant {pool}/{name} --memory 5GiB"), "init ctx say=in wait")
                    .start();
            part.until("in");
            jobs.push(part);
        }
        let words = "init ctx say=in wait info wait";
        let rest = machine.probe("linked").tenant(pool).env("GPUQUOTA_SOCKET", daemon.socket());
        let mut rest = rest.env("FAKE_CUDA_CONTEXT", "0").words(words).start();
        rest.until("in");
        jobs.push(rest);
    }
    daemon.kill();
    let daemon = machine.daemon(&format!("--config {}", machine.folder().join("gpuquota.yaml").display()));
    eventually(Duration::from_secs(10), "all are back", || ps(&machine, &daemon).len() == 6);
    for (at, gib) in [(2, 30), (5, 20)] {
        jobs[at].go_on();
        let line = jobs[at].line();
        assert!(line.ends_with(&format!(" {}", gib * GIB)), "{line}: {gib} GiB are left");
    }
    jobs.into_iter().for_each(Running::kill);
}

/// The daemon is killed: jobs go on under their last quota.
#[test]
fn jobs_go_on_without_their_daemon() {
    for (policy, code) in [("keep", "0"), ("refuse", "2")] {
        let machine = Machine::new("a100-80gb");
        let mut daemon = machine.daemon("");
        let words = "init ctx linear:a=600M say=ready wait info linear:b=600M linear:c=100M free:a say=done";
        let mut job =
            run(&machine, &daemon, "--memory 1GiB --tenant t", words).env("GPUQUOTA_ON_DAEMON_LOSS", policy).start();
        job.until("ready");
        daemon.kill();
        job.go_on();
        let lines = job.until("done");
        assert_eq!(lines[0], format!("info 0 {} {GIB}", 424 * MIB), "{policy}");
        assert_eq!(lines[1..3], ["linear:b=600M 2".to_owned(), format!("linear:c=100M {code}")], "{policy}");
        job.finish();
    }
}

#[test]
fn the_jobs_own_status_and_signals_come_through() {
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let status = |arguments: &str| machine.gpuquota(&daemon, arguments).run().status;
    assert_eq!(status("run -- sh -c true"), 0);
    let seven = machine.gpuquota(&daemon, "run -- sh -c").arg("exit 7").run();
    assert_eq!(seven.status, 7);
    assert_eq!(machine.gpuquota(&daemon, "run -- sh -c").arg("kill -9 $$").run().status, 137);
    assert_eq!(status("run -- /nonexistent/command"), 127);
    assert_eq!(status("run -- /etc/passwd"), 126);
    let mut job = machine
        .gpuquota(&daemon, "run -- sh -c")
        .arg("trap 'echo got; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
        .start();
    job.until("ready");
    let killed =
        std::process::Command::new("kill").arg("-TERM").arg(job.pid().to_string()).status().expect("kill runs");
    assert!(killed.success());
    job.until("got");
    assert_eq!(job.finish().1, 3);
}

/// A share is of what programs can have: what the driver keeps for itself is in neither number.
#[test]
fn a_share_is_of_the_device_that_programs_see() {
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let half = run(&machine, &daemon, "--memory 50%", "init total").run();
    assert_eq!(half.numbers("total"), [machine.total_bytes() / 2]);
    let capacity = |field: &str| {
        let done = machine.gpuquota(&daemon, "devices -o json").run();
        let rows: Vec<Value> = serde_json::from_str(&done.out).expect("JSON");
        rows[0][field].as_u64().expect("a number")
    };
    assert_eq!(capacity("memory_total_bytes"), machine.total_bytes());
    assert_eq!(capacity("memory_capacity_bytes"), machine.total_bytes() - 512 * MIB);
}

/// Whoever uses a device without having registered is seen all the same.
#[test]
fn a_process_that_never_registered_is_shown_as_foreign() {
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let mut foreign =
        machine.bare(program("probe-linked")).arg("linked").words("init ctx linear:a=100M say=ready wait").start();
    foreign.until("ready");
    let rows = ps(&machine, &daemon);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((rows[0]["state"].as_str(), rows[0]["pid"].as_u64()), (Some("foreign"), Some(foreign.pid().into())));
    foreign.finish();
}

/// The daemon is killed and another one started: it has the tenants as they were, and their processes are its own.
#[test]
fn a_restarted_daemon_takes_its_clients_back() {
    let machine = Machine::new("a100-80gb");
    let mut daemon = machine.daemon("");
    let words =
        "init ctx linear:a=600M say=ready wait linear:b=600M linear:c=200M say=full wait linear:d=600M say=more wait";
    let mut job = run(&machine, &daemon, "--memory 1GiB --tenant t", words).start();
    job.until("ready");
    daemon.kill();
    let daemon = machine.daemon("");
    let rows = ps(&machine, &daemon);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(
        (rows[0]["tenant"].as_str(), rows[0]["memory_used_bytes"].as_u64(), rows[0]["memory_quota_bytes"].as_u64()),
        (Some("t"), Some(600 * MIB), Some(GIB)),
    );
    // A newcomer shares what is left with those who were there.
    let newcomer = machine.job(program("probe-linked")).tenant("t").env("GPUQUOTA_SOCKET", daemon.socket());
    let done = newcomer.arg("linked").words("init ctx linear:x=500M linear:y=400M").run();
    assert_eq!((done.code("linear:x=500M"), done.code("linear:y=400M")), (2, 0), "{done:?}");
    job.go_on();
    assert_eq!(job.until("full"), ["linear:b=600M 2", "linear:c=200M 0"]);
    // And the daemon's word reaches them.
    assert_eq!(machine.gpuquota(&daemon, "set t --memory 2GiB").run().status, 0);
    job.go_on();
    assert_eq!(job.until("more"), ["linear:d=600M 0"]);
    assert_eq!(used_by(&machine, &daemon, "t"), 1400 * MIB);
    job.kill();
    eventually(Duration::from_secs(1), "its memory is back", || used_by(&machine, &daemon, "t") == 0);
    eventually(Duration::from_secs(1), "its tenant is gone", || ps(&machine, &daemon).is_empty());
}

/// The daemon is killed and started again while jobs allocate and free all the time: none of them is ever over its quota, and none is
/// refused what it has.
#[test]
fn nobody_is_over_quota_however_often_the_daemon_is_killed() {
    const ROUNDS: usize = 300;
    let machine = Machine::new("a100-80gb");
    let mut daemon = machine.daemon("");
    let round = "linear:a=600M linear:b=600M info free:a sleep=3";
    let words = format!("init ctx say=ready {} say=done wait", vec![round; ROUNDS].join(" "));
    let mut jobs: Vec<_> =
        (0..3).map(|at| run(&machine, &daemon, &format!("--memory 1GiB --tenant t{at}"), &words).start()).collect();
    jobs.iter_mut().for_each(|job| drop(job.until("ready")));
    for round in 0..8u64 {
        std::thread::sleep(Duration::from_millis(10 + round * 37 % 60));
        daemon.kill();
        std::thread::sleep(Duration::from_millis(round * 23 % 40));
        daemon = machine.daemon("");
        let rows = ps(&machine, &daemon);
        assert_eq!(rows.len(), 3, "round {round}: {rows:?}");
        for row in &rows {
            assert_eq!(row["memory_quota_bytes"].as_u64(), Some(GIB), "{row}");
            assert!(row["memory_used_bytes"].as_u64().is_some_and(|used| used <= GIB), "{row}");
        }
    }
    let expected = [
        "linear:a=600M 0".to_owned(),
        "linear:b=600M 2".to_owned(),
        format!("info 0 {} {GIB}", 424 * MIB),
        "free:a 0".to_owned(),
    ];
    for mut job in jobs {
        let lines = job.until("done");
        assert_eq!(lines.len(), ROUNDS * 4);
        for (at, line) in lines.iter().enumerate() {
            assert_eq!(*line, expected[at % 4], "line {at}");
        }
        job.finish();
    }
    eventually(Duration::from_secs(2), "all is free again", || ps(&machine, &daemon).is_empty());
}

/// Deaths while no daemon watches: the others give back what the dead held, and so does the next daemon.
#[test]
fn the_dead_are_buried_while_there_is_no_daemon() {
    let machine = Machine::new("a100-80gb");
    let mut daemon = machine.daemon("");
    let job = |words: &str| run(&machine, &daemon, "--memory 1GiB --tenant t", words).start();
    let mut first = job("init ctx linear:a=600M say=ready wait");
    let mut second = job("init ctx say=ready wait linear:b=600M say=done wait free:b say=freed wait");
    first.until("ready");
    second.until("ready");
    daemon.kill();
    // `gpuquota run` is what we started; the probe is its child.
    kill_children(first.pid());
    first.kill();
    second.go_on();
    assert_eq!(second.until("done"), ["linear:b=600M 0"]);
    second.go_on();
    second.until("freed");
    let daemon = machine.daemon("");
    assert_eq!(used_by(&machine, &daemon, "t"), 0);
    let rows = ps(&machine, &daemon);
    assert_eq!((rows.len(), rows[0]["tenant"].as_str()), (1, Some("t")), "the other is still a member: {rows:?}");
    second.finish();
}

/// A daemon of another version: whoever reads the program's output learns which side is to be updated.
#[test]
fn a_library_tells_an_older_daemon_from_a_newer_one() {
    use quota_wire::message::{PROTOCOL_VERSION, Reply, Request, Welcome};
    for (version, older) in [(PROTOCOL_VERSION + 1, "update this library"), (PROTOCOL_VERSION - 1, "update the daemon")]
    {
        let machine = Machine::new("l4-24gb");
        let path = machine.folder().join("other.sock");
        let listener = quota_wire::socket::listen(&path, 0o600).expect("a socket");
        let job = machine
            .job(program("probe-linked"))
            .env("GPUQUOTA_SOCKET", &path)
            .arg("linked")
            .words("init ctx linear:a=1M");
        let done = std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                let mut client = None;
                eventually(Duration::from_secs(10), "it says hello", || {
                    client = quota_wire::socket::accept(std::os::fd::AsFd::as_fd(&listener)).ok();
                    client.is_some()
                });
                let client = client.expect("just seen");
                let until = Instant::now() + Duration::from_secs(10);
                let hello = client.receive_until::<Request>(until).expect("a hello").0;
                assert!(matches!(hello, Request::Hello(_)), "{hello:?}");
                client.send(&Reply::Welcome(Welcome { version, ..Welcome::default() }), &[]).expect("it reads");
                let _ = client.receive_until::<Request>(until);
            });
            let done = job.run();
            other.join().expect("it was asked");
            done
        });
        assert_eq!(done.code("linear:a=1M"), 2, "nothing is had without a quota: {done:?}");
        assert!(done.err.contains(older) && done.err.contains(&version.to_string()), "{done:?}");
    }
}

fn kill_children(pid: u32) {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it lives");
    for child in children.split_whitespace() {
        assert!(std::process::Command::new("kill").args(["-KILL", child]).status().expect("kill runs").success());
        eventually(Duration::from_secs(1), "it is dead", || {
            std::fs::read_to_string(format!("/proc/{child}/stat")).map_or(true, |stat| stat.contains(") Z"))
        });
    }
}
