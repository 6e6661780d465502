//! `gpuquota` with a daemon: found, started, joined; the job's memory, signals and end.

use crate::node::{CONTEXT, GIB, Node, PATIENCE, ask, eventually, signal, text};
use quota_wire::message::{Reply, Request};
use quota_wire::socket::Connection;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A job that holds memory until it is told to go on; the command's own.
fn demo_job(node: &Node, options: &[&str]) -> (Child, Value) {
    let program = harness::command("gpuquota").display().to_string();
    let mut arguments = vec!["run"];
    arguments.extend(options);
    arguments.extend(["--", &program, "demo-job"]);
    let mut child = node.gpuquota(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("readable");
    (child, serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}")))
}

#[test]
fn a_run_starts_a_daemon_once_however_many_start_together() {
    let node = Node::bare();
    let run = |_| {
        node.gpuquota(&["run", "--simulate", "l4-24gb", "--memory", "1GiB", "--", "sleep", "0.5"])
            .spawn()
            .expect("it starts")
    };
    let runs: Vec<Child> = (0..6).map(run).collect();
    for mut run in runs {
        assert!(run.wait().expect("it ends").success());
    }
    let socket = node.folder.join("gpuquota/sim-l4-24gb/gpuquota.sock");
    let connection = Connection::connect(&socket, Instant::now() + PATIENCE).expect("it stays a while");
    let Reply::About(about) = ask(&connection, &Request::About) else { panic!("no answer") };
    assert_eq!(about.simulated.as_deref(), Some("l4-24gb"));
    let log = std::fs::read_to_string(node.folder.join("gpuquota/sim-l4-24gb/gpuquotad.log")).expect("a log");
    assert_eq!(log.lines().filter(|line| line.contains("listens on")).count(), 1, "{log}");
    // The job and its surroundings, as others see them; then the daemon goes.
    let (mut job, seen) = demo_job(&node, &["--simulate", "l4-24gb", "--memory", "2GiB", "--tenant", "seen"]);
    assert_eq!((seen["total_bytes"].as_u64(), seen["beyond"].as_i64()), (Some(2 * GIB), Some(2)));
    let rows: Vec<Value> =
        serde_json::from_slice(&node.gpuquota(&["ps", "-o", "json"]).output().expect("it runs").stdout).expect("JSON");
    assert_eq!(
        (rows.len(), rows[0]["tenant"].as_str(), rows[0]["memory_used_bytes"].as_u64()),
        (1, Some("seen"), Some(GIB + CONTEXT))
    );
    job.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
    assert!(job.wait().expect("it ends").success());
    signal(about.pid, rustix::process::Signal::TERM);
    eventually("the daemon is gone", || !socket.exists());
}

#[test]
fn memory_is_back_at_once_when_its_holder_is_killed() {
    let node = Node::start("l4-24gb", &[]);
    let (mut run, seen) = demo_job(&node, &["--memory", "2GiB", "--simulate", "l4-24gb"]);
    assert_eq!(node.devices()[0].memory_charged_bytes, GIB + CONTEXT);
    let pid = u32::try_from(seen["pid"].as_u64().expect("a number")).expect("a pid");
    signal(pid, rustix::process::Signal::KILL);
    let begun = Instant::now();
    eventually("charged bytes are back", || node.devices()[0].memory_charged_bytes == 0);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(run.wait().expect("it ends").code(), Some(137));
    eventually("the grant is back", || node.devices()[0].memory_granted_bytes == 0);
}

#[test]
fn what_a_process_held_before_exec_is_given_back() {
    let node = Node::start("l4-24gb", &[]);
    // A process that is a member, holds a gibibyte, and becomes another program that knows nothing of it.
    let script = "import ctypes, os, sys\n\
        cuda = ctypes.CDLL('libcuda.so.1')\n\
        context, at = ctypes.c_void_p(), ctypes.c_uint64()\n\
        assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n\
        assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 30)) == 0\n\
        sys.stdin.readline(); os.execvp('sleep', ['sleep', '30'])";
    if Command::new("python3").arg("-c").arg("import ctypes").status().is_ok_and(|status| status.success()) {
        let mut run = node.gpuquota(&["run", "--memory", "2GiB", "--tenant", "t", "--simulate", "l4-24gb", "--"]);
        let mut run = run.args(["python3", "-c", script]).stdin(Stdio::piped()).spawn().expect("it starts");
        eventually("the job holds memory", || node.devices()[0].memory_charged_bytes == GIB + CONTEXT);
        drop(run.stdin.take());
        eventually("it is back, though the process lives", || node.devices()[0].memory_charged_bytes == 0);
        assert!(node.processes().is_empty());
        assert_eq!(node.devices()[0].memory_granted_bytes, 2 * GIB, "the job still has its place");
        signal(run.id(), rustix::process::Signal::TERM);
        assert_eq!(run.wait().expect("it ends").code(), Some(143), "the mask of the job is empty");
    }
}

#[test]
fn signals_that_a_process_sends_are_passed_on_and_those_of_a_dead_child_shown() {
    let node = Node::start("l4-24gb", &[]);
    for (name, number) in
        [(rustix::process::Signal::INT, 2), (rustix::process::Signal::HUP, 1), (rustix::process::Signal::USR1, 10)]
    {
        let script = format!("trap 'exit $((40 + {number}))' {number}; echo ready; while :; do sleep 0.02; done");
        let mut run = node.gpuquota(&["run", "--", "sh", "-c", &script]);
        let mut run = harness::hears_signals(&mut run).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(run.stdout.as_mut().expect("piped")).read_line(&mut line).expect("readable");
        signal(run.id(), name);
        let status = run.wait().expect("it ends");
        assert_eq!(status.code(), Some(40 + number));
    }
}

#[test]
fn a_daemon_over_another_machine_is_not_used() {
    let node = Node::start("l4-24gb", &[]);
    let run = node.gpuquota(&["run", "--simulate", "t4-16gb", "--", "true"]).output().expect("it runs");
    assert_eq!(run.status.code(), Some(125));
    assert!(text(&run.stderr).contains("the daemon that GPUQUOTA_SOCKET names has l4-24gb"), "{run:?}");
}

#[test]
fn a_folder_that_others_can_write_is_not_trusted() {
    use std::os::unix::fs::PermissionsExt;
    let node = Node::bare();
    let own = node.folder.join("gpuquota");
    std::fs::create_dir(&own).expect("writable");
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o777)).expect("ours");
    let run = node.gpuquota(&["run", "--simulate", "l4-24gb", "--", "true"]).output().expect("it runs");
    assert_eq!(run.status.code(), Some(125));
    assert!(text(&run.stderr).contains("must be a folder of yours with mode 0700"), "{run:?}");
}

#[test]
fn without_a_device_a_run_says_so_and_names_the_simulator() {
    if Path::new("/dev/nvidiactl").exists() {
        return;
    }
    let node = Node::bare();
    let run = node.gpuquota(&["run", "--memory", "1GiB", "--", "true"]).output().expect("it runs");
    let err = text(&run.stderr);
    assert_eq!((run.status.code(), err.lines().count()), (Some(125), 1), "{err}");
    assert!(err.contains("no GPU") && err.contains("--simulate"), "{err}");
}

#[test]
fn what_env_prints_is_understood_by_a_shell() {
    let node = Node::bare();
    let program = harness::command("gpuquota").display().to_string();
    let script = format!(
        "eval \"$({program} env --memory 2GiB --simulate l4-24gb --tenant env-{})\"; echo | exec {program} demo-job",
        std::process::id()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env_clear().env("PATH", "/usr/bin:/bin").env("XDG_RUNTIME_DIR", &node.folder);
    let output = shell.output().expect("it runs");
    let lines = text(&output.stdout);
    let seen: Value =
        lines.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!((seen["total_bytes"].as_u64(), seen["beyond"].as_i64()), (Some(2 * GIB), Some(2)), "no daemon needed");
    assert!(!node.folder.join("gpuquota/sim-l4-24gb/gpuquota.sock").exists());
}

#[test]
fn the_doctor_reports_in_lines_that_programs_can_read() {
    let node = Node::start("l4-24gb", &[]);
    let output = node.gpuquota(&["doctor", "-o", "json"]).output().expect("it runs");
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let of = |check: &str| {
        findings.iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("{check}")).clone()
    };
    assert_eq!(
        (of("library")["verdict"].as_str(), of("daemon")["verdict"].as_str()),
        (Some("ok"), Some("ok")),
        "{findings:?}"
    );
    assert_eq!(output.status.success(), !findings.iter().any(|finding| finding["verdict"] == "fail"));
    let wrong = node.gpuquota(&["doctor"]).env("GPUQUOTA_MEMORY", "12Q").output().expect("it runs");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stdout).contains("every allocation is refused"), "{wrong:?}");
}

#[test]
fn the_demo_holds_what_it_says() {
    let node = Node::bare();
    let output = node.gpuquota(&["demo", "--simulate", "2xt4-16gb"]).output().expect("it runs");
    assert!(output.status.success() && text(&output.stdout).contains("All of this was checked."), "{output:?}");
    let socket = node.folder.join("gpuquota/sim-2xt4-16gb/gpuquota.sock");
    let connection = Connection::connect(&socket, Instant::now() + PATIENCE).expect("it stays a while");
    if let Reply::About(about) = ask(&connection, &Request::About) {
        signal(about.pid, rustix::process::Signal::TERM);
    }
}
