//! Who a job is, the kernel says: other users, other namespaces, names that have a secret.

use harness::{Daemon, Done, Job, MIB, Machine, command, program};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A user that owns nothing here.
const NOBODY: u32 = 65_534;

/// Only root can become somebody else; elsewhere these claims are not checked.
fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("mounted")) == 0
}

/// What a command does for somebody else, and how long it took.
fn as_nobody(machine: &Machine, job: Job) -> (Done, Duration) {
    // A simulated machine belongs to one user; the devices of two such machines have the same UUIDs.
    let state = machine.folder().join("nobody");
    std::fs::create_dir_all(&state).expect("writable");
    for (folder, mode) in [(machine.folder(), 0o755), (&state, 0o777)] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).expect("ours");
    }
    let mut command = job.env("FAKE_CUDA_STATE", state.join("state")).into_command();
    command.uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
    let begin = Instant::now();
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let done =
        Done { status: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) };
    (done, begin.elapsed())
}

fn member(machine: &Machine, socket: &Path) -> Job {
    machine.job(program("probe-linked")).arg("linked").env("GPUQUOTA_SOCKET", socket).env("GPUQUOTA_LOG", "warn")
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).expect("there").permissions().mode() & 0o777
}

fn admin_of(daemon: &Daemon) -> std::path::PathBuf {
    daemon.socket().with_file_name("gpuquota-admin.sock")
}

/// The node's socket is for everybody, that for administrators for its owner; who is refused hears so at once, in one line
/// that names the path and what the kernel said.
#[test]
fn an_ordinary_user_may_ask_and_not_administer() {
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    assert_eq!((mode_of(daemon.socket()), mode_of(&admin_of(&daemon))), (0o666, 0o600));
    if !is_root() {
        return;
    }
    let mut job =
        member(&machine, daemon.socket()).tenant("roots").memory("1GiB").words("init ctx say=ready wait").start();
    job.until("ready");
    let gpuquota = |words: &str| as_nobody(&machine, machine.gpuquota(&daemon, words));
    let (shown, _) = gpuquota("ps -o json");
    let rows: Vec<Value> = serde_json::from_str(&shown.out).expect("JSON");
    assert_eq!((rows[0]["tenant"].as_str(), rows[0]["uid"].as_u64()), (Some("roots"), Some(0)), "{shown:?}");
    for words in ["set roots --memory 2GiB", "pause roots", "resume roots"] {
        let (refused, took) = gpuquota(words);
        assert!(refused.status != 0 && took < Duration::from_secs(1), "{words} {took:?} {refused:?}");
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
        let path = admin_of(&daemon).display().to_string();
        assert!(refused.err.contains(&path) && refused.err.contains("permission denied"), "{}", refused.err);
    }
    // Names belong to whom they belong.
    let (thief, _) =
        as_nobody(&machine, member(&machine, daemon.socket()).tenant("roots").words("init ctx linear:a=1M"));
    assert_eq!(thief.code("linear:a=1M"), 2, "{thief:?}");
    assert!(thief.err.contains("tenant roots belongs to user 0"), "{}", thief.err);
    let (own, _) =
        as_nobody(&machine, member(&machine, daemon.socket()).memory("1GiB").words("init ctx linear:a=1M total"));
    assert_eq!((own.code("linear:a=1M"), own.numbers("total")), (0, vec![1024 * MIB]), "{own:?}");
    job.finish();
}

/// A socket that is closed to the user: no memory and no waiting, never memory without a quota.
#[test]
fn a_socket_of_another_user_is_an_error_at_once() {
    if !is_root() {
        return;
    }
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("--user");
    assert_eq!(mode_of(daemon.socket()), 0o600);
    let path = daemon.socket().display().to_string();
    let words = "init ctx linear:a=1M linear:b=1M";
    for folder_mode in [0o755, 0o700] {
        let locked = machine.folder().join("locked");
        std::fs::create_dir_all(&locked).expect("writable");
        std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(folder_mode)).expect("ours");
        // Through a closed folder, or to a closed socket.
        let socket = if folder_mode == 0o700 { locked.join("gpuquota.sock") } else { daemon.socket().to_owned() };
        let (done, took) = as_nobody(&machine, member(&machine, &socket).memory("1GiB").words(words));
        assert_eq!((done.code("linear:a=1M"), done.code("linear:b=1M")), (2, 2), "{done:?}");
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
        let named =
            done.err.contains(&socket.display().to_string()) && done.err.contains("Permission denied (os error 13)");
        assert!(named, "{}", done.err);
    }
    let (ps, took) = as_nobody(&machine, machine.gpuquota(&daemon, "ps"));
    assert!(ps.status != 0 && took < Duration::from_secs(1), "{took:?} {ps:?}");
    assert!(
        ps.err.contains(&path) && ps.err.contains("Permission denied") && ps.err.lines().count() == 1,
        "{}",
        ps.err
    );
}

/// In a pid namespace of its own a process has another number; it is known by the daemon's, and so is its death.
#[test]
fn a_process_in_its_own_namespaces_is_known() {
    let unshare = ["--pid", "--fork", "--mount-proc", "--cgroup"];
    if !Command::new("unshare").args(unshare).arg("true").status().is_ok_and(|status| status.success()) {
        return;
    }
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let job = machine.job("unshare").words(&unshare.join(" ")).arg(program("probe-linked")).arg("linked");
    let job = job.env("GPUQUOTA_SOCKET", daemon.socket()).tenant("inside").memory("1GiB");
    let mut job = job.words("init ctx linear:a=600M info say=ready wait").start();
    let lines = job.until("ready");
    assert_eq!(lines[2..], ["linear:a=600M 0".to_owned(), format!("info 0 {} {}", 424 * MIB, 1024 * MIB)]);
    let rows = |machine: &Machine| -> Vec<Value> {
        let done = machine.gpuquota(&daemon, "ps -o json").run();
        serde_json::from_str(&done.out).expect("JSON")
    };
    let row = rows(&machine).into_iter().find(|row| row["tenant"] == "inside").expect("shown");
    assert_eq!(row["memory_used_bytes"].as_u64(), Some(600 * MIB), "{row}");
    let pid = row["pid"].as_u64().expect("a pid");
    assert!(
        pid > 1 && std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("a pid of ours").contains("probe")
    );
    job.kill();
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().is_ok());
    harness::eventually(Duration::from_secs(1), "it is gone", || {
        rows(&machine).iter().all(|row| row["tenant"] != "inside")
    });
}

/// The kernel cuts names of processes at 15 bytes, also in the middle of a character.
#[test]
fn a_program_with_a_name_of_any_bytes_is_let_in() {
    let machine = Machine::new("a100-80gb");
    let daemon = machine.daemon("");
    let named = machine.folder().join("обучение");
    harness::copy_program(&program("probe-linked"), &named);
    let job = machine.job(&named).arg("linked").env("GPUQUOTA_SOCKET", daemon.socket()).tenant("named").memory("1GiB");
    let mut job = job.words("init ctx linear:a=600M info say=ready wait").start();
    let stat = std::fs::read(format!("/proc/{}/stat", job.pid())).expect("it lives");
    assert!(String::from_utf8(stat).is_err(), "its name is cut");
    let lines = job.until("ready");
    assert_eq!(lines[2..], ["linear:a=600M 0".to_owned(), format!("info 0 {} {}", 424 * MIB, 1024 * MIB)]);
    let shown = |machine: &Machine| machine.gpuquota(&daemon, "ps").run().out.contains("600 MiB");
    assert!(shown(&machine));
    job.kill();
    harness::eventually(Duration::from_secs(2), "it is gone", || !shown(&machine));
}

/// A copied program can be run whatever other threads start meanwhile, as those of a test process do all the time.
#[test]
fn a_copied_program_is_not_held_open_by_what_others_start() {
    let machine = Machine::new("a100-80gb");
    let (copy, ended) = (machine.folder().join("copy"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !ended.load(Relaxed) {
                    let mut other = Command::new("true");
                    harness::starts_slowly(&mut other, Duration::from_millis(2)).status().expect("it runs");
                }
            });
        }
        let runs = (0..200).map(|_| {
            harness::copy_program(&program("plain"), &copy);
            let done = Command::new(&copy).output();
            std::fs::remove_file(&copy).expect("ours");
            done
        });
        let failed = runs.filter(|done| !done.as_ref().is_ok_and(|done| done.status.success())).collect::<Vec<_>>();
        ended.store(true, Relaxed);
        assert!(failed.is_empty(), "{failed:?}");
    });
}

/// A tenant with a secret is for those who know it, whoever they are; nobody else hears what it is.
#[test]
fn a_secret_makes_a_name_ones_own() {
    const SECRET: &str = "a-long-and-secret-word";
    let machine = Machine::new("a100-80gb");
    let file = |name: &str, text: &str, mode: u32| {
        let path = machine.folder().join(name);
        std::fs::write(&path, text).expect("writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
        path
    };
    let (right, wrong) = (file("right", SECRET, 0o600), file("wrong", "another-long-secret-word", 0o600));
    let document = file(
        "gpuquota.yaml",
        &format!("tenants: [{{name: vision, memory: 4GiB, match: {{secret_file: {}}}}}]\n", right.display()),
        0o644,
    );
    let socket = machine.folder().join("gpuquota.sock");
    let log = machine.folder().join("log");
    let mut daemon = machine.bare(command("gpuquotad")).arg("--socket").arg(&socket).arg("--log").arg("debug");
    daemon = daemon.arg("--config").arg(&document);
    let mut daemon = daemon.into_command();
    daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log).expect("writable"));
    let mut daemon = daemon.spawn().expect("it starts");
    harness::eventually(Duration::from_secs(10), "the daemon listens", || {
        quota_wire::socket::Connection::connect(&socket, Instant::now()).is_ok()
    });
    let words = "init ctx total linear:a=1M";
    let vision = || member(&machine, &socket).tenant("vision").words(words);
    let with = |path: &Path| vision().env("GPUQUOTA_TENANT_SECRET_FILE", path).run();
    let run = |path: Option<&Path>| {
        let job = machine.bare(command("gpuquota")).env("GPUQUOTA_SOCKET", &socket).words("run --tenant vision --");
        let job = job.arg(program("probe-linked")).arg("linked").words(words);
        path.into_iter().fold(job, |job, path| job.env("GPUQUOTA_TENANT_SECRET_FILE", path)).run()
    };
    let open = file("open", SECRET, 0o644);
    let mut said = String::new();
    for (refused, wanted) in [
        (vision().run(), "tenant vision has a secret that this process doesn't know"),
        (with(&wrong), "GPUQUOTA_TENANT_SECRET_FILE names the file with it"),
        (with(&open), "others may read or change it (its mode is 644); expected a file with 16"),
        (with(Path::new("/nonexistent")), "GPUQUOTA_TENANT_SECRET_FILE=\"/nonexistent\""),
    ] {
        assert_eq!(refused.code("linear:a=1M"), 2, "{refused:?}");
        assert!(refused.err.contains(wanted) && refused.err.lines().count() == 1, "{wanted}: {}", refused.err);
        said.push_str(&refused.err);
    }
    for (refused, wanted) in
        [(run(None), "has a secret"), (run(Some(&wrong)), "has a secret"), (run(Some(&open)), "mode is 644")]
    {
        assert!(
            refused.status == 125 && refused.err.contains(wanted) && refused.err.lines().count() == 1,
            "{refused:?}"
        );
        said.push_str(&refused.err);
    }
    for granted in [with(&right), run(Some(&right))] {
        assert_eq!((granted.code("linear:a=1M"), granted.numbers("total")), (0, vec![4096 * MIB]), "{granted:?}");
        said.push_str(&granted.err);
    }
    let bad =
        file("bad.yaml", &format!("tenants: [{{name: vision, match: {{secret_file: {}}}}}]\n", open.display()), 0o644);
    let apply = machine.bare(command("gpuquota")).env("GPUQUOTA_SOCKET", &socket).arg("apply").arg(&bad).run();
    assert!(apply.status != 0 && apply.err.contains("tenant vision: match.secret_file"), "{apply:?}");
    said.push_str(&apply.err);
    daemon.kill().expect("it lives");
    daemon.wait().expect("it lived");
    said.push_str(&std::fs::read_to_string(&log).expect("a log"));
    assert!(said.contains("tenant vision") && !said.contains(SECRET) && !said.contains("another-long"), "{said}");
}
