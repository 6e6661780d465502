//! Daemons that are killed, disks that are full, sockets that are removed: nobody is lost, and nothing is granted twice.

use crate::node::{GIB, Node, admit, ask, eventually, next, signal, text};
use crate::player::Outside;
use quota_wire::message::{Admit, Change, Hello, PROTOCOL_VERSION, ProcessRow, Reply, Request};
use quota_wire::socket::{Connection, accept, listen};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Memberships of one process.
const AT_A_TIME: usize = 8;

/// All processes, however many.
fn processes(node: &Node) -> Vec<ProcessRow> {
    let connection = node.connect();
    connection.send(&Request::Processes, &[]).expect("sent");
    let mut all = Vec::new();
    loop {
        match next(&connection) {
            Reply::Processes { rows, last } => {
                all.extend(rows);
                if last {
                    return all;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Tenant, slot's owner and quota of all members, in order.
fn members(node: &Node) -> Vec<(String, u32, Option<u64>)> {
    let rows = processes(node).into_iter().filter(|row| row.tenant != "-");
    let mut members: Vec<_> = rows.map(|row| (row.tenant, row.pid, row.memory_quota_bytes)).collect();
    members.sort();
    members
}

fn set(node: &Node, tenant: &str, bytes: u64) {
    let change = Change { tenant: tenant.to_owned(), memory: Some(bytes.to_string()), ..Change::default() };
    let reply = ask(&node.administer(), &Request::Set(change));
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
}

fn crowd(node: &Node, count: usize) -> (Vec<String>, Vec<Outside>) {
    let tenants: Vec<String> = (0..count).map(|at| format!("t{at}")).collect();
    let mut outside: Vec<Outside> =
        tenants.chunks(AT_A_TIME).map(|some| Outside::join(node, &some.join(" "))).collect();
    // Who answers has joined.
    for player in &mut outside {
        player.tell("poke");
    }
    (tenants, outside)
}

#[test]
fn two_hundred_members_are_all_back_after_a_restart() {
    let mut node = Node::start("l4-24gb", &[]);
    let (tenants, mut outside) = crowd(&node, 200);
    for tenant in &tenants {
        set(&node, tenant, 100 * MIB);
    }
    let (before, granted) = (members(&node), node.devices()[0].memory_granted_bytes);
    assert_eq!((before.len(), granted), (200, 200 * 100 * MIB));
    for _ in 0..2 {
        node.restart("l4-24gb");
        assert_eq!(members(&node), before);
        let device = &node.devices()[0];
        assert_eq!((device.memory_granted_bytes, device.jobs), (granted, 200));
        let refused = ask(&node.connect(), &admit("more", "4GiB", None));
        assert!(matches!(refused, Reply::Refused { .. }), "what they have is not free: {refused:?}");
    }
    for player in &mut outside {
        let answer = player.tell("rejoin");
        assert!(!answer.contains("Refused"), "{answer}");
    }
    assert_eq!(members(&node), before, "and nobody is there twice");
    drop(outside);
    eventually("all is free again", || node.devices()[0].memory_granted_bytes == 0);
}

/// Runs jobs one after the other until it is told to stop, whether or not there is a daemon.
fn churn(node: &Node, name: &str, stop: &AtomicBool) -> u32 {
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        let tenant = format!("{name}-{done}");
        let run = node
            .gpuquota(&["run", "--tenant", &tenant, "--memory", "4GiB", "--queue", "2s", "--", "true"])
            .env("GPUQUOTA_SOCKET", node.socket())
            .env("FAKE_CUDA_STATE", node.folder.join("state"))
            .stderr(Stdio::null())
            .status()
            .expect("it runs");
        done += u32::from(run.success());
    }
    done
}

/// The daemon is killed at moments that nobody has chosen, while jobs come, wait and go.
#[test]
fn a_daemon_killed_again_and_again_under_load_loses_nobody() {
    let mut node = Node::start("l4-24gb", &[]);
    let (tenants, _outside) = crowd(&node, 24);
    for tenant in &tenants {
        set(&node, tenant, 500 * MIB);
    }
    let before = members(&node);
    let capacity = node.devices()[0].memory_capacity_bytes;
    // Not dropped twice: it shares the folder with the node that is restarted.
    let beside = std::mem::ManuallyDrop::new(node.beside());
    let stop = AtomicBool::new(false);
    let done: u32 = std::thread::scope(|scope| {
        let (beside, stop) = (&beside, &stop);
        let load: Vec<_> = (0..3).map(|at| scope.spawn(move || churn(beside, &format!("job{at}"), stop))).collect();
        for round in 0..12u64 {
            // Two large primes stand for chance, and can be tried again.
            std::thread::sleep(Duration::from_micros(20_000 + (round * 7_368_787) % 90_000));
            node.restart("l4-24gb");
            let device = &node.devices()[0];
            let granted = device.memory_granted_bytes;
            assert!(granted <= capacity, "round {round}: {granted} of {capacity}");
            let mut now = members(&node);
            now.retain(|(tenant, ..)| tenants.contains(tenant));
            assert_eq!(now, before, "round {round}");
        }
        stop.store(true, Ordering::Relaxed);
        load.into_iter().map(|load| load.join().expect("it ends")).sum()
    });
    assert!(done > 0, "some jobs ran");
    eventually("what jobs had is free again", || node.devices()[0].memory_granted_bytes == 24 * 500 * MIB);
    assert_eq!(members(&node), before);
}

fn sleeper(node: &Node, tenant: &str) -> Child {
    let run = node.gpuquota(&["run", "--tenant", tenant, "--memory", "1GiB", "--", "sleep", "60"]).spawn();
    let run = run.expect("it starts");
    eventually("it has its place", || {
        matches!(ask(&node.connect(), &Request::Find { tenant: tenant.to_owned() }), Reply::Done { .. })
    });
    run
}

/// The disk is full: what was kept stays, what happens meanwhile is kept as soon as there is room.
#[test]
fn a_full_disk_forgets_nobody() {
    let mut node = Node::bare();
    let (log, out) = (node.folder.join("log"), std::fs::File::create(node.folder.join("log")).expect("writable"));
    node.daemon = Some(node.command("l4-24gb", &[]).stderr(out).spawn().expect("it starts"));
    eventually("the daemon listens", || Connection::connect(&node.socket(), Instant::now()).is_ok());
    let mut jobs = vec![sleeper(&node, "before")];
    let daemon = Pid::from_raw(node.daemon_pid().cast_signed());
    let limit = |bytes: Option<u64>| {
        prlimit(daemon, Resource::Fsize, Rlimit { current: bytes, maximum: None }).expect("it is ours");
    };
    let records = || {
        let state = std::fs::read_dir(node.folder.join("gpuquota.sock.state")).expect("made").flatten();
        let mut names: Vec<String> = state.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    // No file can grow: as on a full disk, the log's included.
    limit(Some(0));
    jobs.push(sleeper(&node, "meanwhile"));
    set(&node, "before", 2 * GIB);
    assert_eq!(records(), ["tenant-before.json"]);
    let kept = std::fs::read_to_string(node.folder.join("gpuquota.sock.state/tenant-before.json")).expect("kept");
    assert!(kept.contains(&GIB.to_string()) && !kept.contains(&(2 * GIB).to_string()), "{kept}");
    limit(None);
    eventually("what has happened meanwhile is kept", || records() == ["tenant-before.json", "tenant-meanwhile.json"]);
    let told = || std::fs::read_to_string(&log).unwrap_or_default().contains("all records are on disk again");
    eventually("and that is told", told);
    node.restart("l4-24gb");
    let find = |tenant: &str| ask(&node.connect(), &Request::Find { tenant: tenant.to_owned() });
    for tenant in ["before", "meanwhile"] {
        assert!(matches!(find(tenant), Reply::Done { .. }), "{tenant}");
    }
    assert_eq!(node.devices()[0].memory_granted_bytes, 3 * GIB);
    for mut job in jobs {
        signal(job.id(), Signal::TERM);
        job.wait().expect("it ends");
    }
}

#[test]
fn sockets_and_records_that_somebody_removes_are_made_again() {
    let node = Node::start("l4-24gb", &[]);
    let job = node.connect();
    assert!(matches!(ask(&job, &admit("t", "1GiB", None)), Reply::Granted(_)));
    let state = node.folder.join("gpuquota.sock.state");
    for path in [node.socket(), node.folder.join("gpuquota-admin.sock")] {
        std::fs::remove_file(&path).expect("there");
        eventually("it is made again", || Connection::connect(&path, Instant::now()).is_ok());
    }
    std::fs::remove_dir_all(&state).expect("ours");
    eventually("the record is made again", || state.join("tenant-t.json").exists());
    assert!(matches!(ask(&node.administer(), &Request::Pause { tenant: "t".to_owned() }), Reply::Done { .. }));
    assert!(matches!(ask(&job, &Request::About), Reply::About(_)), "who was connected still is");
}

#[test]
fn a_folder_that_somebody_removes_is_made_again() {
    let mut node = Node::bare();
    let folder = node.folder.join("run");
    let socket = folder.join("gpuquota.sock");
    let mut command = std::process::Command::new(harness::command("gpuquotad"));
    command.arg("--user").arg("--socket").arg(&socket).env("FAKE_CUDA_MACHINE", "l4-24gb");
    command.env("FAKE_CUDA_STATE", node.folder.join("state")).env("LD_LIBRARY_PATH", harness::fake_driver());
    node.daemon = Some(command.stderr(Stdio::null()).spawn().expect("it starts"));
    let connect = || Connection::connect(&socket, Instant::now());
    eventually("the daemon listens", || connect().is_ok());
    let job = connect().expect("it listens");
    assert!(matches!(ask(&job, &admit("t", "1GiB", None)), Reply::Granted(_)));
    // At once, since the daemon makes its things again while they are removed one by one.
    std::fs::rename(&folder, node.folder.join("gone")).expect("ours");
    eventually("it listens again", || connect().is_ok());
    eventually("with its records", || folder.join("gpuquota.sock.state/tenant-t.json").exists());
    let second = command.stderr(Stdio::piped()).output().expect("it runs");
    assert!(text(&second.stderr).contains("another gpuquotad answers"), "it has its lock again: {second:?}");
    // And once more: the new folder is watched as the old one was.
    std::fs::remove_file(&socket).expect("there");
    eventually("it listens again", || connect().is_ok());
}

/// Another daemon takes the socket's place: its socket is left alone, and it is told once. When it goes, ours is back.
#[test]
fn a_rival_is_told_of_and_left_alone() {
    let mut node = Node::bare();
    let log = node.folder.join("log");
    let out = std::fs::File::create(&log).expect("writable");
    node.daemon = Some(node.command("l4-24gb", &[]).stderr(out).spawn().expect("it starts"));
    eventually("the daemon listens", || Connection::connect(&node.socket(), Instant::now()).is_ok());
    let own = node.folder.join("rival.sock");
    let rival = listen(&own, 0o600).expect("a socket");
    std::fs::rename(&own, node.socket()).expect("ours");
    let told = || std::fs::read_to_string(&log).expect("written");
    let line = format!("another daemon answers there, process {}", std::process::id());
    eventually("it is told", || told().contains(&line));
    std::fs::write(node.folder.join("other"), "").expect("writable");
    std::fs::remove_file(node.folder.join("other")).expect("ours");
    assert!(accept(rival.as_fd()).is_ok(), "it was asked whether it lives");
    drop(rival);
    std::fs::write(node.folder.join("other"), "").expect("writable");
    std::fs::remove_file(node.folder.join("other")).expect("ours");
    eventually("ours is back", || Connection::connect(&node.socket(), Instant::now()).is_ok());
    assert_eq!(told().matches(&line).count(), 1, "{}", told());
}

/// Who ends leaves a rival's socket where it is.
#[test]
fn a_daemon_that_ends_removes_only_its_own_socket() {
    let mut node = Node::start("l4-24gb", &[]);
    let own = node.folder.join("rival.sock");
    let _rival = listen(&own, 0o600).expect("a socket");
    std::fs::rename(&own, node.socket()).expect("ours");
    signal(node.daemon_pid(), Signal::TERM);
    node.daemon.take().expect("started").wait().expect("it ends");
    assert!(node.socket().exists() && !node.folder.join("gpuquota-admin.sock").exists());
}

/// What was applied holds under the next daemon, until the file says something else.
#[test]
fn an_applied_document_survives_until_the_file_changes() {
    let mut node = Node::bare();
    let (file, other) = (node.folder.join("file.yaml"), node.folder.join("other.yaml"));
    let write = |path: &std::path::Path, gib: u64| {
        std::fs::write(path, format!("tenants: [{{name: a, memory: {gib}GiB}}]\n")).expect("writable");
    };
    write(&file, 1);
    write(&other, 2);
    let config = ["--config".to_owned(), file.display().to_string()];
    let config: Vec<&str> = config.iter().map(String::as_str).collect();
    node.daemon = Some(node.command("l4-24gb", &config).stderr(Stdio::null()).spawn().expect("it starts"));
    eventually("the daemon listens", || Connection::connect(&node.socket(), Instant::now()).is_ok());
    let granted = |node: &Node| node.devices()[0].memory_granted_bytes / GIB;
    let apply = |node: &Node, path: &std::path::Path| {
        let done = node.gpuquota(&["apply", path.to_str().expect("ASCII")]).output().expect("it runs");
        assert!(done.status.success(), "{done:?}");
    };
    assert_eq!(granted(&node), 1);
    apply(&node, &other);
    for _ in 0..2 {
        assert_eq!(granted(&node), 2);
        node.restart_with("l4-24gb", &config);
    }
    // A document that doesn't fit any more doesn't keep the daemon from starting.
    node.restart_with("l4-24gb", &[&config[..], &["--reserve", "21GiB"]].concat());
    assert_eq!(granted(&node), 1, "the file");
    node.restart_with("l4-24gb", &config);
    assert_eq!(granted(&node), 2, "it fits again");
    write(&file, 3);
    for _ in 0..2 {
        node.restart_with("l4-24gb", &config);
        assert_eq!(granted(&node), 3, "the file is newer");
    }
    apply(&node, &other);
    signal(node.daemon_pid(), Signal::HUP);
    eventually("the file holds", || granted(&node) == 3);
    node.restart_with("l4-24gb", &config);
    assert_eq!(granted(&node), 3, "and nothing else is kept");
    // The file is edited and then applied, as most do: it is the same whichever holds.
    write(&file, 4);
    apply(&node, &file);
    node.restart_with("l4-24gb", &config);
    assert_eq!(granted(&node), 4);
}

/// Both sides learn which of them is the older one.
#[test]
fn another_protocol_is_refused_with_the_side_to_update() {
    let node = Node::start("l4-24gb", &[]);
    for (version, older) in [(PROTOCOL_VERSION - 1, "update the "), (PROTOCOL_VERSION + 1, "update this daemon")] {
        for request in [
            Request::Hello(Hello { version, pid: std::process::id(), ..Hello::default() }),
            Request::Rejoin { version, slot: 0 },
            Request::Admit(Admit { version, ..Admit::default() }),
        ] {
            let Reply::Refused { reason } = ask(&node.connect(), &request) else { panic!("{request:?}") };
            assert!(reason.contains(older) && reason.contains(&version.to_string()), "{reason}");
        }
    }
    let connection = node.connect();
    connection.send(&BTreeMap::from([("type", "something_new")]), &[]).expect("sent");
    let Reply::Refused { reason } = next(&connection) else { panic!("it can't be known") };
    assert!(reason.contains("newer daemon"), "{reason}");
}

/// Report 19.07: a driver that hangs keeps nobody from getting a place, and is told of.
#[test]
fn a_driver_that_hangs_stops_no_admission() {
    let mut node = Node::bare();
    let log = node.folder.join("log");
    let mut command = node.command("l4-24gb", &[]);
    command.env("FAKE_CUDA_LATENCY", "nvmlDeviceGetMemoryInfo_v2=4s,nvmlDeviceGetMemoryInfo=4s");
    node.daemon = Some(command.stderr(std::fs::File::create(&log).expect("writable")).spawn().expect("it starts"));
    // It may ask the driver for its devices first.
    let deadline = Instant::now() + Duration::from_secs(60);
    while Connection::connect(&node.socket(), Instant::now()).is_err() {
        assert!(Instant::now() < deadline, "the daemon listens");
        std::thread::sleep(Duration::from_millis(10));
    }
    let begun = Instant::now();
    for _ in 0..3 {
        // Lists say what was known before.
        assert_eq!(node.devices().len(), 1);
    }
    let job = node.connect();
    assert!(matches!(ask(&job, &admit("t", "1GiB", None)), Reply::Granted(_)));
    let _member = node.hello(Some("t"), None);
    assert!(begun.elapsed() < Duration::from_secs(4), "not one answer of the driver was waited for");
    assert!(std::fs::read_to_string(&log).expect("written").contains("the driver doesn't answer"));
}

/// Report 19.10: a driver that has lost its device: who has a place keeps it, people are told, and the log doesn't fill.
#[test]
fn a_device_that_fails_in_between_takes_no_grant_away() {
    let mut node = Node::bare();
    let log = node.folder.join("log");
    let mut command = node.command("l4-24gb", &[]);
    // The first two calls are the daemon's own, for its list of devices.
    let lost: Vec<String> = (3..400).map(|call| format!("nvmlDeviceGetHandleByIndex_v2:{call}=15")).collect();
    command.env("FAKE_CUDA_FAIL", lost.join(","));
    node.daemon = Some(command.stderr(std::fs::File::create(&log).expect("writable")).spawn().expect("it starts"));
    eventually("the daemon listens", || Connection::connect(&node.socket(), Instant::now()).is_ok());
    let _member = node.hello(Some("t"), Some(GIB));
    eventually("it is told", || node.devices()[0].health.contains("lost"));
    let lines = || std::fs::read_to_string(&log).expect("written").lines().count();
    let before = lines();
    for _ in 0..50 {
        let device = &node.devices()[0];
        assert_eq!((device.memory_granted_bytes, device.jobs), (GIB, 1));
    }
    assert!(lines() <= before + 1, "{}", std::fs::read_to_string(&log).expect("written"));
    assert!(members(&node).iter().any(|(tenant, _, quota)| tenant == "t" && *quota == Some(GIB)));
}
