//! Report 19.08: a daemon of which a part is dead is none.
#![cfg(debug_assertions)] // What makes a thread die isn't in builds for use.

use crate::node::{Node, PATIENCE, ask, eventually, text};
use crate::notify::news;
use crate::player::Outside;
use quota_wire::audit::{AuditPlace, AuditQuery};
use quota_wire::message::{Reply, Request};
use quota_wire::socket::Connection;
use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// All of them, by their names.
const THREADS: [&str; 5] = ["main", "sampler", "arbiter", "audit", "audit-history"];

/// Has every thread do something.
fn stir(node: &Node, outside: &mut Outside) {
    // Whether there are answers is another question.
    let send = |connection: &Connection, request: &Request| drop(connection.send(request, &[]));
    if let Ok(connection) = Connection::connect(&node.socket(), Instant::now()) {
        send(&connection, &Request::Devices);
        let before = Some(AuditPlace { run: "earlier".to_owned(), seq: 1 });
        send(&connection, &Request::Audit(AuditQuery { before, ..AuditQuery::default() }));
    }
    if let Ok(connection) = Connection::connect(&node.folder.join("gpuquota-admin.sock"), Instant::now()) {
        send(&connection, &Request::Pause { tenant: "nobody".to_owned() });
    }
    outside.tell("poke");
}

/// The names of the daemon's threads.
fn names(node: &Node) -> BTreeSet<String> {
    let pid = node.daemon_pid();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
    let name = |task: std::fs::DirEntry| {
        let is_main = task.file_name().to_str() == Some(&pid.to_string());
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        Some(if is_main { "main".to_owned() } else { name.trim().to_owned() })
    };
    tasks.filter_map(name).collect()
}

/// Whichever thread dies: the manager hears at once that nothing is served any more, the process is gone within a second and not
/// as one that has ended well, `doctor` says so, and the next daemon has the members.
#[test]
fn a_daemon_of_which_a_thread_dies_ends_as_a_whole() {
    for thread in THREADS {
        let mut node = Node::bare();
        let document = node.folder.join("document.yaml");
        let content = format!("audit: {{path: {}}}\n", node.folder.join("audit.jsonl").display());
        std::fs::write(&document, content).expect("writable");
        let arguments = ["--config", document.to_str().expect("ASCII")];
        let path = node.folder.join("notify");
        let manager = UnixDatagram::bind(&path).expect("free");
        manager.set_read_timeout(Some(PATIENCE)).expect("ours");
        let die = node.folder.join("die");
        let mut command = node.command("l4-24gb", &arguments);
        command.env("GPUQUOTA_TEST_THREAD_DIES", format!("{thread}@{}", die.display())).env("NOTIFY_SOCKET", &path);
        node.daemon = Some(command.stderr(Stdio::piped()).spawn().expect("it starts"));
        assert!(news(&manager).starts_with("READY=1"), "{thread}");
        let mut outside = Outside::join(&node, "t");
        outside.tell("attach");
        stir(&node, &mut outside);
        assert!(matches!(ask(&node.connect(), &Request::About), Reply::About(_)), "{thread}: it serves");
        let known: BTreeSet<String> = THREADS.map(str::to_owned).into();
        // One that begins gives itself its name.
        eventually("all threads are among those whose death is tried", || names(&node).is_subset(&known));
        std::fs::write(&die, "").expect("writable");
        stir(&node, &mut outside);
        assert_eq!(news(&manager), format!("STOPPING=1\nSTATUS=the thread {thread} has died"));
        let since = Instant::now();
        let daemon = node.daemon.as_mut().expect("started");
        eventually("it ends", || daemon.try_wait().expect("a child").is_some());
        assert!(since.elapsed() < Duration::from_secs(1), "{thread}: {:?}", since.elapsed());
        let doctor = node.gpuquota(&["doctor"]).output().expect("it runs");
        let said = text(&doctor.stdout);
        assert!(!doctor.status.success() && said.contains("FAIL") && said.contains("start gpuquotad"), "{said}");
        let done = node.daemon.take().expect("started").wait_with_output().expect("it has ended");
        let said = text(&done.stderr);
        assert!(!done.status.success() && said.contains(&format!("the thread {thread} dies")), "{said}");
        node.start_with("l4-24gb", &arguments);
        let rows = node.processes();
        assert!(rows.iter().any(|row| row.tenant == "t"), "{thread}: the next one has the member: {rows:?}");
    }
}
