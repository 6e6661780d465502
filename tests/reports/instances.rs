//! Reports about MIG: instances are devices, with numbers of their own, and what is granted on one is granted nowhere else.

use harness::{Busy, Daemon, Done, GIB, Job, MIB, Machine, Running, alone, eventually, program};
use serde_json::Value;
use std::time::Duration;

const LAYOUT: &str = "a100-40gb:3g.20gb+2g.10gb+1g.5gb";
const OWN: &str = "tenants: [{name: vision, isolation: own-mig}, {name: speech, isolation: own-mig}, {name: other}]\n";
/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A job that takes so many MiB of what it sees and waits.
fn run(machine: &Machine, daemon: &Daemon, options: &str, mib: u64) -> Job {
    let job = machine.gpuquota(daemon, &format!("run {options} --")).env("FAKE_CUDA_CONTEXT", "0");
    job.arg(program("mig")).arg(mib.to_string())
}

/// A running job, and the words of what it sees.
struct Placed {
    running: Running,
    lines: Vec<String>,
}

impl Placed {
    fn of(job: Job) -> Self {
        let mut running = job.start();
        let lines = running.until("ready");
        Self { running, lines }
    }

    fn words(&self, kind: &str) -> Vec<&str> {
        let line = self.lines.iter().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {kind} in {:?}", self.lines)).split(' ').collect()
    }

    /// The instance that it sees.
    fn uuid(&self) -> String {
        format!("MIG-{}", self.words("seen")[1])
    }
}

fn placed(machine: &Machine, daemon: &Daemon, options: &str, mib: u64) -> Placed {
    Placed::of(run(machine, daemon, options, mib))
}

fn refused(machine: &Machine, daemon: &Daemon, options: &str) -> String {
    let done = run(machine, daemon, options, 1).run();
    assert_eq!(done.status, 125, "{options}: {done:?}");
    done.err
}

fn rows(machine: &Machine, daemon: &Daemon, what: &str) -> Vec<Value> {
    let done = machine.gpuquota(daemon, &format!("{what} -o json")).run();
    assert_eq!(done.status, 0, "{done:?}");
    serde_json::from_str(&done.out).expect("JSON")
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_else(|| panic!("{name} in {row}"))
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_else(|| panic!("{name} in {row}"))
}

/// UUIDs of the instances, in the daemon's order.
fn instances(machine: &Machine, daemon: &Daemon) -> Vec<String> {
    let rows = rows(machine, daemon, "devices");
    rows.iter().filter(|row| row["parent_uuid"].is_string()).map(|row| text(row, "uuid").to_owned()).collect()
}

fn events(machine: &Machine, daemon: &Daemon, kind: &str) -> Vec<Value> {
    let done = machine.gpuquota(daemon, &format!("audit -o json --event {kind}")).run();
    done.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Lines of a kind, by their words.
fn lines(out: &str, kind: &str) -> Vec<Vec<String>> {
    let lines = out.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// A daemon that ends with its test, however that ends.
struct Ended(Option<Running>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Running::kill);
    }
}

/// The whole way with real processes: an instance for each, none for two, and the divided device for nobody.
#[test]
fn a_tenant_with_instances_of_its_own_has_what_nobody_else_has() {
    let machine = Machine::new(LAYOUT);
    let daemon = machine.daemon_under(OWN);
    let all = instances(&machine, &daemon);
    assert_eq!(all.len(), 3);
    let vision = placed(&machine, &daemon, "--tenant vision --memory 8GiB", 4000);
    assert_eq!(vision.uuid(), all[1], "the smallest that has room: {:?}", vision.lines);
    assert_eq!((vision.words("alloc"), vision.words("info")[2]), (vec!["0"], (8 * GIB).to_string().as_str()));
    let beside = refused(&machine, &daemon, &format!("--tenant other --device {}", all[1]));
    assert!(beside.contains("is tenant vision's own while it runs"), "{beside}");
    let other = placed(&machine, &daemon, "--tenant other", 100);
    assert_eq!(other.uuid(), all[2], "where nobody is: {:?}", other.lines);
    let speech = placed(&machine, &daemon, "--tenant speech --memory 2GiB", 100);
    assert_eq!(speech.uuid(), all[0], "not beside anybody");
    let late = refused(&machine, &daemon, "--tenant late --memory 1GiB --device 1");
    assert!(late.contains("device 1 is tenant speech's own"), "{late}");
    for divided in ["0".to_owned(), lines(&other.lines.join("\n"), "seen")[0][0].clone()] {
        let divided = if divided.len() > 1 { format!("GPU-{divided}") } else { divided };
        let whole = refused(&machine, &daemon, &format!("--device {divided}"));
        assert!(whole.contains("device 0 has its MIG mode on") && whole.contains(&all[2]), "{whole}");
    }
    let devices = rows(&machine, &daemon, "devices");
    assert_eq!((text(&devices[0], "mig"), number(&devices[0], "memory_capacity_bytes")), ("enabled", 0));
    let jobs: Vec<u64> = devices.iter().map(|row| number(row, "jobs")).collect();
    assert_eq!(jobs, [0, 1, 1, 1], "and nobody is on the divided device: {devices:?}");
    assert!(devices[1..].iter().all(|row| row["parent_uuid"] == devices[0]["uuid"]), "{devices:?}");
    let table = machine.gpuquota(&daemon, "devices").run().out;
    let shown: Vec<&str> = table.lines().skip(1).collect();
    for (line, word) in shown.iter().zip(["NVIDIA A100-SXM4-40GB", "MIG 3g.20gb", "MIG 2g.10gb", "MIG 1g.5gb"]) {
        assert!(line.contains(word), "{table}");
    }
    for job in [vision, other, speech] {
        job.running.finish();
    }
}

/// Quotas hold on an instance as on a device: memory to the byte, time by weight.
#[test]
fn an_instance_is_shared_by_memory_and_time() {
    let _alone = alone();
    let machine = Machine::new("a100-40gb:2x3g.20gb");
    let daemon = machine.daemon_under("");
    let all = instances(&machine, &daemon);
    let job = placed(&machine, &daemon, &format!("--memory 3GiB --device {}", all[1]), 3072);
    assert_eq!((job.words("alloc"), job.words("info")[1..].to_vec()), (vec!["0"], vec!["0", "3221225472"]));
    let beyond = placed(&machine, &daemon, &format!("--memory 3GiB --device {}", all[1]), 3073);
    assert_eq!(beyond.words("alloc"), ["2"]);
    drop((job.running.finish(), beyond.running.finish()));
    let hire = |options: &str, at: usize| {
        machine.hired(&daemon, &format!("{options} --device {}", all[at]), "kernel=spin_200us")
    };
    let busy = Busy::start_all([hire("--weight 300", 0), hire("--weight 100", 0), hire("--compute 50", 1)]);
    let truth = machine.truth();
    std::thread::sleep(Duration::from_millis(300));
    // The machine numbers its instances after its device.
    truth.shares(1, &busy[..2], Duration::from_secs(2)).assert_divided(&[3, 1], 8.0);
    truth.shares(2, &busy[2..], Duration::from_secs(2)).assert_has(0, 50.0, 8.0);
}

/// In a container that was given an instance, its device refuses what is asked of it. That is told, or the instance's numbers
/// are; never nothing.
#[test]
fn the_numbers_are_the_instances_or_the_refusal_is_told() {
    let machine = Machine::new(LAYOUT);
    let daemon = machine.daemon_under("");
    let all = instances(&machine, &daemon);
    let with = |job: Job| job.env("FAKE_CUDA_LACKS", "parent-access");
    let told = |mut job: Placed| {
        job.running.go_on();
        job.lines.extend(job.running.until("told"));
        let out = job.lines.join("\n");
        drop(job.running.finish());
        out
    };
    for (name, options, first) in [("after", "--tenant after", false), ("before", "--tenant before", true)] {
        let job = with(run(&machine, &daemon, &format!("{options} --memory 6GiB --device {}", all[1]), 1000));
        let job = Placed::of(if first { job.arg("first") } else { job });
        let pid = rows(&machine, &daemon, "ps").iter().map(|row| number(row, "pid")).next_back().expect("it runs");
        let out = told(job);
        let device = lines(&out, "device").pop().expect("a device");
        assert_eq!(device[4], "4", "{name}: refused, not nothing: {out}");
        let row = |at: usize| lines(&out, "instance").into_iter().rfind(|row| row[1] == all[at]).expect("an instance");
        let (total, left, used) = (6 * GIB, 6 * GIB - 1000 * MIB, 1000 * MIB);
        assert_eq!(row(1)[2..6], ["0".to_owned(), total.to_string(), left.to_string(), used.to_string()], "{name}");
        let shown = lines(&out, "instance").into_iter().filter(|row| row[1] == all[1]);
        let totals: Vec<String> = shown.map(|row| row[3].clone()).collect();
        assert_eq!(totals, vec![total.to_string(); 1 + usize::from(first)], "{name}: whichever is asked first");
        let processes = lines(&out, "process");
        let own: Vec<_> = processes.iter().filter(|row| row[1] == pid.to_string()).collect();
        assert!(!own.is_empty() && own.iter().all(|row| row[3..] == ["5", "0"]), "{name}: {out}");
        // CUDA says the same.
        assert_eq!(lines(&out, "info").pop().expect("told"), ["0".to_owned(), left.to_string(), total.to_string()]);
    }
    // Without a daemon, too.
    let alone = with(machine.job(program("mig")).memory("6GiB").env("CUDA_VISIBLE_DEVICES", &all[1]));
    let out = told(Placed::of(alone.arg("1000")));
    let row = lines(&out, "instance").into_iter().find(|row| row[1] == all[1]).expect("an instance");
    assert_eq!(
        (row[2].as_str(), row[3].clone(), row[5].clone()),
        ("0", (6 * GIB).to_string(), (1000 * MIB).to_string())
    );
    assert_eq!(lines(&out, "device")[0][4], "4");
    // Nor does the daemon take a refusal for nothing.
    let path = machine.folder().join("refused.sock");
    let refused = with(machine.bare(harness::command("gpuquotad")).arg("--socket").arg(&path));
    let _daemon = Ended(Some(Running::of(refused.into_command())));
    eventually(PATIENCE, "it listens", || path.exists());
    let devices = machine.bare(harness::command("gpuquota")).env("GPUQUOTA_SOCKET", &path).words("devices -o json");
    let devices: Vec<Value> = serde_json::from_str(&devices.run().out).expect("JSON");
    assert!(text(&devices[0], "health").contains("Insufficient Permissions"), "{devices:?}");
    assert!(devices[1..].iter().all(|row| text(row, "health") == "ok" && number(row, "memory_total_bytes") > 4 * GIB));
}

/// Whatever NVML numbers them by: what is granted is an instance by its UUID, also for the next daemon.
#[test]
fn no_instance_is_granted_twice_across_a_restart() {
    let machine = Machine::new("a100-40gb:3x2g.10gb+1g.5gb");
    let document = "tenants: [{name: a, isolation: own-mig}, {name: b, isolation: own-mig}, {name: c, isolation: own-mig}, {name: d, isolation: own-mig}]\n";
    let mut daemon = machine.daemon_under(document);
    let all = instances(&machine, &daemon);
    let on = |daemon: &Daemon, tenant: &str, at: usize| {
        placed(&machine, daemon, &format!("--tenant {tenant} --device {}", all[at]), 10)
    };
    let before = [on(&daemon, "a", 2), on(&daemon, "b", 0)];
    daemon.kill();
    let daemon = machine.daemon_under(document);
    let held: Vec<String> = before.iter().map(Placed::uuid).collect();
    for uuid in &held {
        let beside = refused(&machine, &daemon, &format!("--tenant c --device {uuid}"));
        assert!(beside.contains("own while it runs"), "{beside}");
    }
    let after = ["c", "d"].map(|tenant| placed(&machine, &daemon, &format!("--tenant {tenant}"), 10));
    let mut live: Vec<String> = held.iter().cloned().chain(after.iter().map(Placed::uuid)).collect();
    live.sort_unstable();
    live.dedup();
    assert_eq!(live.len(), 4, "four jobs on four instances: {live:?}");
    for job in before.into_iter().chain(after) {
        job.running.finish();
    }
}

/// A layout is gone after a restart of the node. What was granted on an instance is lost, told, and moved nowhere.
#[test]
fn a_grant_is_lost_with_its_instance_and_moves_nowhere() {
    let mut machine = Machine::new(LAYOUT);
    let mut daemon = machine.daemon_under(OWN);
    let before = instances(&machine, &daemon);
    let vision = placed(&machine, &daemon, &format!("--tenant vision --device {}", before[1]), 1000);
    let plain = placed(&machine, &daemon, &format!("--tenant plain --memory 2GiB --device {}", before[2]), 100);
    daemon.kill();
    // The first lies where it lay; the others are new ones, as many as before.
    machine.restart_as("a100-40gb:3g.20gb+2x1g.5gb");
    let mut daemon = machine.daemon_under(OWN);
    let after = instances(&machine, &daemon);
    assert_eq!((after.len(), &after[0]), (3, &before[0]));
    assert!(after[1..].iter().all(|uuid| !before.contains(uuid)), "{after:?}");
    let lost = events(&machine, &daemon, "vanished");
    let of = |tenant: &str| lost.iter().find(|event| event["tenant"] == tenant).expect("told");
    assert_eq!(of("vision")["devices"], serde_json::json!([before[1]]));
    assert_eq!(of("plain")["devices"], serde_json::json!([before[2]]));
    let marked = |daemon: &Daemon, machine: &Machine| {
        let rows = rows(machine, daemon, "ps");
        let lost = rows.iter().filter(|row| row["state"] == "lost" && row["device"].is_null());
        let mut lost: Vec<(String, String)> =
            lost.map(|row| (text(row, "tenant").to_owned(), text(row, "uuid").to_owned())).collect();
        lost.sort_unstable();
        lost
    };
    let both = [("plain".to_owned(), before[2].clone()), ("vision".to_owned(), before[1].clone())];
    assert_eq!(marked(&daemon, &machine), both);
    for row in rows(&machine, &daemon, "devices") {
        assert_eq!((number(&row, "jobs"), number(&row, "memory_granted_bytes")), (0, 0), "moved nowhere: {row}");
    }
    // Nobody is kept out by what is lost, and it stays lost when such an instance is there again.
    let speech = placed(&machine, &daemon, &format!("--tenant speech --device {}", after[1]), 10);
    assert_eq!(speech.uuid(), after[1]);
    speech.running.finish();
    daemon.kill();
    machine.restart_as(LAYOUT);
    let daemon = machine.daemon_under(OWN);
    assert_eq!(instances(&machine, &daemon), before);
    assert!(events(&machine, &daemon, "vanished").is_empty(), "it was told once");
    assert_eq!(marked(&daemon, &machine), both);
    let again = placed(&machine, &daemon, &format!("--tenant speech --device {}", before[1]), 10);
    assert_eq!(again.uuid(), before[1]);
    for job in [vision, plain, again] {
        job.running.finish();
    }
}

/// What no UUID of NVML's is, is granted to nobody: by the document, by a job, by a process, or when a device has no instance.
#[test]
fn what_the_driver_does_not_list_is_granted_to_nobody() {
    let machine = Machine::new(LAYOUT);
    let absent = "MIG-00000000-1111-2222-3333-444444444444";
    let under = |text: &str| -> Done {
        let path = machine.folder().join("absent.yaml");
        std::fs::write(&path, text).expect("writable");
        let job = machine.bare(harness::command("gpuquotad")).arg("--socket").arg(machine.folder().join("no.sock"));
        job.arg("--config").arg(&path).run()
    };
    let document = format!("devices: [{{select: {absent}, sharing: mig}}]\n");
    let started = under(&document);
    assert!(started.status != 0 && started.err.contains(absent) && started.err.contains("no device"), "{started:?}");
    let daemon = machine.daemon_under(OWN);
    let all = instances(&machine, &daemon);
    let path = machine.folder().join("absent.yaml");
    let applied = machine.gpuquota(&daemon, &format!("apply {}", path.display())).run();
    assert!(applied.status != 0 && applied.err.contains(absent), "{applied:?}");
    let job = refused(&machine, &daemon, &format!("--device {absent}"));
    assert!(job.contains(absent) && job.contains(&all[0]), "{job}");
    // A process that sees instances which the daemon's driver does not list.
    let mut elsewhere = Machine::new(LAYOUT);
    elsewhere.restart_as("a100-40gb:2g.10gb+3g.20gb");
    let process = elsewhere.job(program("mig")).env("GPUQUOTA_SOCKET", daemon.socket()).arg("10").run();
    let seen = format!("MIG-{}", lines(&process.out, "seen")[0][1]);
    assert!(!all.contains(&seen) && process.out.contains("alloc 2"), "{process:?}");
    assert!(process.err.contains(&format!("the driver lists no device {seen}")), "{}", process.err);
    assert!(rows(&machine, &daemon, "ps").is_empty());
    // MIG mode is on, and nobody made an instance.
    let empty = Machine::new("a100-40gb:mig");
    let daemon = empty.daemon_under(OWN);
    for options in ["--tenant vision", "--tenant other", "--device 0"] {
        let why = refused(&empty, &daemon, options);
        assert!(why.contains("it has none; make some with nvidia-smi mig"), "{options}: {why}");
    }
    let mig = empty.bare(harness::command("gpuquota")).words("doctor").run();
    assert!(mig.out.contains("MIG mode is on without instances"), "{mig:?}");
}

/// `sharing: mig`: one tenant an instance, on instances only.
#[test]
fn a_device_shared_by_mig_has_one_tenant_an_instance() {
    let machine = Machine::new("a100-40gb:3g.20gb+2g.10gb,l4-24gb");
    let daemon = machine.daemon_under("devices: [{select: 0, sharing: mig}]\n");
    let all = instances(&machine, &daemon);
    let one = placed(&machine, &daemon, &format!("--tenant one --device {}", all[0]), 10);
    let full = refused(&machine, &daemon, &format!("--tenant two --device {}", all[0]));
    assert!(full.contains("takes at most 1 jobs at a time"), "{full}");
    let two = placed(&machine, &daemon, "--tenant two --device a100", 10);
    assert_eq!(two.uuid(), all[1], "of all instances, one that is free");
    let whole = run(&machine, &daemon, "--tenant three", 10).run();
    assert!(whole.out.contains("NVIDIA L4"), "who says nothing gets what is whole: {whole:?}");
    drop((one.running.finish(), two.running.finish()));
    let path = machine.folder().join("whole.yaml");
    std::fs::write(&path, "devices: [{select: all, sharing: mig}]\n").expect("writable");
    let refused = machine.gpuquota(&daemon, &format!("apply {}", path.display())).run();
    assert!(refused.err.contains("is no MIG instance, and its MIG mode is -"), "{refused:?}");
}
