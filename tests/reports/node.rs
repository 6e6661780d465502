//! Reports about what is asked for, by whom, and what surrounds a job: mistakes, mounts, neighbours that ask too much.

use harness::{Daemon, Done, GIB, Job, MIB, Machine, command, eventually, program};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn run(machine: &Machine, daemon: &Daemon, options: &str) -> Job {
    machine.gpuquota(daemon, &format!("run {options} --")).env("FAKE_CUDA_CONTEXT", "0")
}

fn probe(job: Job, words: &str) -> Job {
    job.arg(program("probe-linked")).arg("linked").words(words)
}

fn ps(machine: &Machine, daemon: &Daemon) -> Vec<Value> {
    serde_json::from_str(&machine.gpuquota(daemon, "ps -o json").run().out).expect("JSON")
}

/// Nothing, zero and "0m": nothing is no quota; zero is a mistake, and nothing may be taken; HAMi's zero is HAMi's none. The
/// same for memory and compute, in CUDA and NVML.
#[test]
fn zero_has_one_meaning() {
    let machine = Machine::new("t4-16gb");
    let totals = |pairs: &[(&str, &str)]| {
        let set = |job: Job| pairs.iter().fold(job, |job, (name, value)| job.env(name, value));
        let cuda = set(machine.probe("linked")).words("init ctx total linear:a=1M").run();
        let nvml = set(machine.job(program("nvml"))).run();
        (cuda.numbers("total")[0], nvml.numbers("memory")[0], cuda.code("linear:a=1M"))
    };
    let (whole, whole_nvml, code) = totals(&[]);
    assert_eq!((whole, code), (machine.total_bytes(), 0));
    for name in ["CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"] {
        for value in if name.ends_with("SM_LIMIT") { ["0", "100"] } else { ["0", "0m"] } {
            assert_eq!(totals(&[(name, value)]), (whole, whole_nvml, 0), "{name}={value}");
        }
    }
    for name in ["GPUQUOTA_MEMORY", "GPUQUOTA_COMPUTE", "GPUQUOTA_MEMORY_0", "GPUQUOTA_COMPUTE_0"] {
        for value in ["0", "0m"] {
            assert_eq!(totals(&[(name, value)]).2, 2, "{name}={value}");
        }
    }
    let daemon = machine.daemon("");
    for option in ["--memory 0", "--memory 0m", "--compute 0", "--guarantee 0"] {
        let refused = probe(run(&machine, &daemon, option), "init").run();
        assert!(refused.status == 125 && refused.err.contains("expected"), "{option}: {refused:?}");
    }
}

/// What disables is a word, not that the name is there; what is no word is a mistake.
#[test]
fn a_switch_is_a_word() {
    let machine = Machine::new("t4-16gb");
    let whole = machine.total_bytes();
    let total = |value: &str| {
        let job = machine.probe("linked").memory("1GiB").env("CUDA_DISABLE_CONTROL", value);
        let done = job.words("init ctx total linear:a=1M").run();
        (done.numbers("total")[0], done.code("linear:a=1M"), done.err)
    };
    for value in ["true", "TRUE", "1", "yes", "on"] {
        assert_eq!(total(value).0, whole, "{value}");
    }
    for value in ["false", "FALSE", "0", "no", "off", ""] {
        assert_eq!((total(value).0, total(value).1), (GIB, 0), "{value}");
    }
    for value in ["junk", "2", "y e s"] {
        let (_, code, err) = total(value);
        assert!(code == 2 && err.contains("CUDA_DISABLE_CONTROL") && err.contains("true or false"), "{value}: {err}");
    }
}

/// A document with a key or a form that nobody knows is refused whole, with its line; the one before holds.
#[test]
fn a_document_that_is_wrong_anywhere_changes_nothing() {
    let machine = Machine::new("t4-16gb");
    let path = machine.folder().join("gpuquota.yaml");
    let daemon = machine.daemon_under("tenants:\n  - {name: kept, memory: 1GiB}\n");
    let granted = || {
        let rows: Vec<Value> =
            serde_json::from_str(&machine.gpuquota(&daemon, "devices -o json").run().out).expect("JSON");
        rows[0]["memory_granted_bytes"].as_u64()
    };
    assert_eq!(granted(), Some(GIB));
    for (text, wanted) in [
        ("tenants:\n  - {name: kept, memory: 2GiB}\n  - {name: b, memroy: 1GiB}\n", "line 3"),
        ("tenants:\n  - {name: kept, memory: 2GiB}\n  - {name: b, memory: \"0=1G\"}\n", "tenant b: memory: \"0=1G\""),
        ("tenants:\n  - name: kept\n    memory: [2GiB]\n", "line 3"),
        ("tenants:\n  - {name: kept, memory: 1TiB}\n", "device 0"),
    ] {
        std::fs::write(&path, text).expect("writable");
        let fresh = machine.folder().join("other.sock");
        let start = machine.bare(command("gpuquotad")).arg("--socket").arg(fresh).arg("--config").arg(&path).run();
        assert!(start.status == 2 && start.err.lines().count() == 1 && start.err.contains(wanted), "{start:?}");
        let apply = machine.gpuquota(&daemon, "apply").arg(&path).run();
        assert!(apply.status != 0 && apply.err.contains(wanted) && apply.err.lines().count() == 1, "{apply:?}");
        assert!(Command::new("kill").args(["-HUP", &daemon.pid().to_string()]).status().expect("kill runs").success());
        // Answered after the signal was taken.
        assert_eq!((granted(), granted()), (Some(GIB), Some(GIB)), "{text}");
    }
    std::fs::write(&path, "tenants:\n  - {name: kept, memory: 2GiB}\n").expect("writable");
    assert!(Command::new("kill").args(["-HUP", &daemon.pid().to_string()]).status().expect("kill runs").success());
    eventually(Duration::from_secs(2), "a right one holds", || granted() == Some(2 * GIB));
}

/// What is out of range is refused when it is asked for, with the number; nobody starts with it.
#[test]
fn what_is_out_of_range_is_refused_at_the_door() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon("");
    for (option, wanted) in [
        ("--memory 1TiB", "1 TiB on device 0 can never fit"),
        ("--memory 101%", "101%"),
        ("--memory -1", "-1"),
        ("--compute 101", "101"),
        ("--compute 0.001", "0.001"),
        ("--guarantee 96", "a guarantee of 96%"),
        ("--guarantee 50 --compute 30", "above --compute 30%"),
        ("--weight 10001", "10001"),
        ("--device 1", "1"),
    ] {
        let refused = probe(run(&machine, &daemon, option), "init").run();
        assert!(refused.status == 125 && refused.out.is_empty(), "{option}: {refused:?}");
        assert!(refused.err.contains(wanted) && refused.err.lines().count() == 1, "{option}: {}", refused.err);
    }
    assert!(ps(&machine, &daemon).is_empty());
}

/// Runs the probe in a mount namespace of its own, after `prepare`, as root or by what makes it another user; `None` where
/// that isn't allowed.
fn mounted(machine: &Machine, prepare: &str, user: &str, job: impl Fn(Job) -> Job, words: &str) -> Option<Done> {
    let test = format!("{prepare} && {user} true");
    let allowed = Command::new("unshare").args(["--mount", "sh", "-c", &test]).stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return None;
    }
    std::fs::set_permissions(machine.folder(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    // The loader's settings are for the probe alone.
    let line = format!("{prepare} && exec {user} env LD_PRELOAD=\"$SHIM\" \"$0\" \"$@\"");
    let outer = machine.job("unshare").env("LD_PRELOAD", "").env("SHIM", harness::shim());
    let outer = outer.env("FAKE_CUDA_STATE", machine.folder().join(format!("state-{}", user.len())));
    let outer = job(outer.words("--mount sh -c").arg(line).arg(program("probe-linked")).arg("linked"));
    Some(outer.words(words).run())
}

const SOMEBODY: &str = "setpriv --reuid=1000 --regid=1000 --clear-groups";

/// The place for ledgers hidden behind an empty volume, and one that can't be written, for root and for an ordinary user:
/// limited, or refused with the reason, and never without a limit. With a daemon it isn't needed.
#[test]
fn a_hidden_or_unwritable_place_is_no_way_around_a_quota() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon("");
    let words = "init ctx linear:a=600M linear:b=600M";
    let [hidden, unwritable] = ["mount -t tmpfs none /dev/shm", "mount -t tmpfs -o ro none /dev/shm"];
    for user in ["", SOMEBODY] {
        let name = format!("mounts-{}-{}", std::process::id(), user.len());
        let alone = |job: Job| job.tenant(&name).memory("1GiB");
        let member = |job: Job| alone(job).env("GPUQUOTA_SOCKET", daemon.socket());
        let Some(done) = mounted(&machine, hidden, user, alone, words) else { return };
        assert_eq!((done.code("linear:a=600M"), done.code("linear:b=600M")), (0, 2), "{user}: {done:?}");
        let done = mounted(&machine, unwritable, user, alone, words).expect("as above");
        assert_eq!((done.code("linear:a=600M"), done.code("linear:b=600M")), (2, 2), "{user}: {done:?}");
        assert!(done.err.contains("/dev/shm") && done.err.lines().count() == 1, "{}", done.err);
        for prepare in [hidden, unwritable, "mount -t tmpfs none /run"] {
            let done = mounted(&machine, prepare, user, member, words).expect("as above");
            assert_eq!((done.code("linear:a=600M"), done.code("linear:b=600M")), (0, 2), "{user} {prepare}: {done:?}");
        }
    }
}

/// Where a sandbox hides /proc, a member is limited as anywhere.
#[test]
fn a_job_without_proc_is_limited_too() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon("");
    let member = |job: Job| job.tenant("sandboxed").memory("1GiB").env("GPUQUOTA_SOCKET", daemon.socket());
    let words = "init ctx linear:a=600M linear:b=600M launch=k_10us sync free:a linear:c=900M info";
    let Some(done) = mounted(&machine, "mount -t tmpfs none /proc", "", member, words) else { return };
    let codes = ["linear:a=600M", "linear:b=600M", "launch=k_10us", "linear:c=900M"].map(|word| done.code(word));
    assert_eq!(codes, [0, 2, 0, 0], "{done:?}");
}

/// One asks for more than it may have, over and over; its neighbour, within its quota, gets all it asks for, in a hundred
/// thousand calls.
#[test]
fn who_asks_too_much_fails_alone() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon("");
    let start = |options: &str, words: &str| {
        run(&machine, &daemon, options).env("GPUQUOTA_LOG", "off").arg(program("pressure")).words(words).start()
    };
    // 13 of 14.25 GiB for the neighbour, and 15 wanted by the other.
    let greedy = start("--memory 1GiB --tenant greedy", "churn 15 40000");
    let mut neighbour = start("--memory 13GiB --tenant neighbour", "churn 13 10000");
    neighbour.until("ready");
    let (out, status) = neighbour.finish();
    let end = out.lines().find_map(|line| line.strip_prefix("calls ")).expect("its end").to_owned();
    let calls: u64 = end.split(' ').next().and_then(|calls| calls.parse().ok()).expect("a number");
    assert!(status == 0 && calls >= 100_000 && end.contains(" failed 0 "), "{end}");
    let (out, _) = greedy.finish();
    assert!(out.contains("last 2") && !out.contains("failed 0 "), "{out}");
}

/// What a user puts into the environment can't raise what the daemon gave: asked for more, it is told in the log; another
/// daemon that isn't there gives nothing; and who steps out is shown as one whom nobody limits.
#[test]
fn the_environment_cannot_raise_a_quota() {
    let machine = Machine::new("t4-16gb");
    let log = machine.folder().join("log");
    let socket = machine.folder().join("gpuquota.sock");
    let mut command = machine.bare(command("gpuquotad")).arg("--socket").arg(&socket).into_command();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log).expect("writable"));
    let mut daemon = command.spawn().expect("it starts");
    eventually(Duration::from_secs(10), "the daemon listens", || {
        quota_wire::socket::Connection::connect(&socket, Instant::now()).is_ok()
    });
    let gpuquota =
        |words: &str| machine.bare(harness::command("gpuquota")).env("GPUQUOTA_SOCKET", &socket).words(words);
    let within = |setting: &str, words: &str| {
        let job = gpuquota("run --memory 1GiB --tenant t -- env").env("FAKE_CUDA_CONTEXT", "0").words(setting);
        probe(job, words)
    };
    let words = "init ctx total linear:a=600M linear:b=600M";
    for setting in [
        "GPUQUOTA_MEMORY=10GiB",
        "GPUQUOTA_MEMORY_0=10GiB",
        "CUDA_DEVICE_MEMORY_LIMIT=10g",
        "GPUQUOTA_MEMORY=100%",
        "GPUQUOTA_PRIORITY=high GPUQUOTA_WEIGHT=10000 GPUQUOTA_GUARANTEE=95",
    ] {
        let done = within(setting, words).run();
        let codes = (done.numbers("total"), done.code("linear:a=600M"), done.code("linear:b=600M"));
        assert_eq!(codes, (vec![GIB], 0, 2), "{setting}: {done:?}");
    }
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(said.contains("it asks for 10 GiB on device 0, and has 1 GiB"), "{said}");
    let elsewhere = within("GPUQUOTA_SOCKET=/nonexistent/gpuquota.sock", words).run();
    assert_eq!((elsewhere.code("linear:a=600M"), elsewhere.code("linear:b=600M")), (2, 2), "{elsewhere:?}");
    for setting in ["GPUQUOTA_MODE=off", "CUDA_DISABLE_CONTROL=true"] {
        let mut out = within(setting, "init ctx linear:a=2G say=ready wait").start();
        out.until("ready");
        let rows: Vec<Value> = serde_json::from_str(&gpuquota("ps -o json").run().out).expect("JSON");
        let row = rows.iter().find(|row| row["memory_used_bytes"] == 2 * GIB).expect("it is seen");
        assert_eq!((row["state"].as_str(), row["tenant"].as_str()), (Some("foreign"), Some("-")), "{setting}: {row}");
        out.finish();
    }
    daemon.kill().expect("it lives");
    daemon.wait().expect("it lived");
}

/// A job that has a device for itself needs no switch to be left alone: every answer is the driver's.
#[test]
fn a_job_without_a_quota_hears_the_driver() {
    let words = "init ctx total info linear:a=1G info pitch:b=5M managed:c=7M async:d=9M pool:e=3M vmm:f=4M array:g=2M \
                 mipmap:h=1M free:a free:b free:f launch=k_10us sync linear:z=900G info ctx=7 drop";
    let machine = Machine::new("t4-16gb");
    let bare = machine.bare(program("probe-linked")).arg("linked").words(words).run().quiet();
    let node = Machine::new("t4-16gb");
    let daemon = node.daemon("");
    let job = node.gpuquota(&daemon, "run --").env("GPUQUOTA_LOG", "warn");
    let ours = probe(job, words).run();
    assert_eq!((ours.status, ours.err.as_str()), (0, ""), "{ours:?}");
    assert_eq!(ours.out, bare.out);
    assert!(bare.out.contains(" 2\n") && 900 * GIB > 16 * GIB + MIB, "errors are among the answers");
}
