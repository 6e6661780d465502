//! What a daemon writes down: every kind of event, with its numbers, whoever asks and however slowly.

use crate::node::{GIB, Node, PATIENCE, admit, ask, eventually, next, signal, text};
use quota_wire::audit::{AuditKind, AuditOlder, AuditQuery, AuditRow};
use quota_wire::message::{QueueLimit, Reply, Request};
use quota_wire::socket::Connection;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// All that the daemon tells.
fn audit(connection: &Connection, query: AuditQuery) -> (Vec<AuditRow>, Option<AuditOlder>) {
    connection.send(&Request::Audit(query), &[]).expect("sent");
    let mut all = Vec::new();
    loop {
        match next(connection) {
            Reply::Audit { rows, last, older } => {
                all.extend(rows);
                if last {
                    return (all, older);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn in_file(path: &Path) -> Vec<AuditRow> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line may just be written.
    let whole = text.rfind('\n').map_or("", |at| &text[..at]);
    whole.lines().map(|line| serde_json::from_str(line).expect("whole lines")).collect()
}

/// A node whose daemon writes its audit to a file.
fn audited(machine: &str, more: &str) -> (Node, PathBuf) {
    let mut node = Node::bare();
    let (document, path) = (node.folder.join("document.yaml"), node.folder.join("audit.jsonl"));
    std::fs::write(&document, format!("audit: {{path: {}}}\n{more}", path.display())).expect("writable");
    let arguments = ["--config", document.to_str().expect("ASCII")];
    node.start_with(machine, &arguments);
    (node, path)
}

fn kind_of<'a>(rows: &'a [AuditRow], kind: AuditKind, tenant: &str) -> &'a AuditRow {
    let found = rows.iter().find(|row| row.event.event == kind && row.event.tenant.as_deref() == Some(tenant));
    found.unwrap_or_else(|| panic!("{kind:?} of {tenant} in {rows:#?}"))
}

/// Each kind of event happens once, under a daemon that is killed in between and ends as it is told to.
fn one_day(node: &mut Node, path: &Path) {
    let job = node.connect();
    assert!(matches!(ask(&job, &admit("job", "10GiB", None)), Reply::Granted(_)));
    assert!(matches!(ask(&node.connect(), &admit("large", "30GiB", None)), Reply::Refused { .. }));
    let waiting = node.connect();
    assert!(matches!(
        ask(&waiting, &admit("late", "20GiB", Some(QueueLimit::Milliseconds(50)))),
        Reply::Waiting { .. }
    ));
    assert!(matches!(next(&waiting), Reply::Refused { .. }));
    let waiting = node.connect();
    assert!(matches!(ask(&waiting, &admit("gone", "20GiB", Some(QueueLimit::Forever))), Reply::Waiting { .. }));
    drop(waiting);
    let mut outside = crate::player::Outside::join(node, "member");
    outside.tell("attach");
    outside.signal(rustix::process::Signal::KILL);
    for arguments in [&["set", "job", "--memory", "12GiB"][..], &["pause", "job"], &["resume", "job"]] {
        assert!(node.gpuquota(arguments).output().expect("it runs").status.success(), "{arguments:?}");
    }
    assert!(!node.gpuquota(&["set", "job", "--memory", "50GiB"]).output().expect("it runs").status.success());
    let document = std::fs::read_to_string(node.folder.join("document.yaml")).expect("written");
    std::fs::write(node.folder.join("document.yaml"), document.replace("1GiB", "2GiB")).expect("writable");
    signal(node.daemon_pid(), rustix::process::Signal::HUP);
    drop(job);
    let is_there = |kind: AuditKind, tenant: &str| {
        in_file(path).iter().any(|row| row.event.event == kind && row.event.tenant.as_deref() == Some(tenant))
    };
    eventually("the last are written", || is_there(AuditKind::Released, "job") && is_there(AuditKind::Died, "member"));
    eventually("the document was read", || is_there(AuditKind::Changed, "standing"));
    node.restart_with("l4-24gb", &["--config", node.folder.join("document.yaml").to_str().expect("ASCII")]);
    signal(node.daemon_pid(), rustix::process::Signal::TERM);
    assert!(node.daemon.take().expect("started").wait().expect("it ends").success());
}

/// Each kind of event is in the file with what was asked and granted.
#[test]
fn every_event_is_in_the_file_with_its_numbers() {
    let (mut node, path) = audited("l4-24gb", "tenants: [{name: standing, memory: 1GiB}]\n");
    let uid = rustix::process::getuid().as_raw();
    let own = std::process::id();
    one_day(&mut node, &path);
    let rows = in_file(&path);
    let memory = |kind, tenant| {
        let event = &kind_of(&rows, kind, tenant).event;
        let bytes = |terms: &Option<quota_wire::audit::AuditTerms>| {
            terms.as_ref().and_then(|terms| terms.memory_bytes).map(|bytes| bytes / GIB)
        };
        (bytes(&event.asked), bytes(&event.granted))
    };
    assert_eq!(memory(AuditKind::Asked, "job"), (Some(10), None));
    assert_eq!(memory(AuditKind::Granted, "job"), (Some(10), Some(10)));
    assert_eq!(memory(AuditKind::Refused, "large"), (Some(30), None));
    assert_eq!(memory(AuditKind::Queued, "late"), (Some(20), None));
    assert_eq!(memory(AuditKind::Expired, "late"), (Some(20), None));
    assert_eq!(memory(AuditKind::Cancelled, "gone"), (Some(20), None));
    assert_eq!(memory(AuditKind::Released, "job"), (None, Some(12)));
    assert_eq!(memory(AuditKind::Changed, "job"), (Some(12), Some(12)));
    assert_eq!(memory(AuditKind::Refused, "job"), (Some(50), None));
    assert_eq!(memory(AuditKind::Changed, "standing"), (None, Some(2)));
    let granted = &kind_of(&rows, AuditKind::Granted, "job").event;
    assert_eq!((granted.uid, granted.pid, granted.devices.len()), (Some(uid), Some(own), 1));
    assert_eq!(kind_of(&rows, AuditKind::Left, "job").event.pid, Some(own));
    let joined = &kind_of(&rows, AuditKind::Joined, "member").event;
    assert_eq!(joined.pid, kind_of(&rows, AuditKind::Died, "member").event.pid);
    let changes: Vec<&str> = rows
        .iter()
        .filter(|row| row.event.tenant.as_deref() == Some("job"))
        .filter_map(|row| row.event.change.as_deref())
        .collect();
    assert_eq!(changes, ["set", "pause", "resume", "set"]);
    for row in rows.iter().filter(|row| row.event.change.is_some()) {
        assert!(row.event.by_uid == Some(uid) && row.event.by_pid.is_some(), "{row:?}");
    }
    assert!(rows.iter().any(|row| row.event.change.as_deref() == Some("reload") && row.event.by_pid == Some(own)));
    // Two runs, the first killed, the second ended as it was told to; no number is missing.
    let runs: Vec<&AuditRow> = rows.iter().filter(|row| row.event.event == AuditKind::Started).collect();
    assert_eq!(runs.len(), 2);
    for run in runs {
        let seqs: Vec<u64> = rows.iter().filter(|row| row.run == run.run).map(|row| row.seq).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    }
    let last = &rows.last().expect("some").event;
    assert_eq!((last.event, last.by_pid), (AuditKind::Stopped, Some(own)));
    assert!(rows.windows(2).all(|pair| pair[0].time <= pair[1].time));
}

#[test]
fn a_tenant_taken_back_is_written_down_and_the_run_before_is_remembered() {
    let (mut node, _) = audited("l4-24gb", "");
    let mut outside = crate::player::Outside::join(&node, "stays");
    outside.tell("attach");
    node.restart_with("l4-24gb", &["--config", node.folder.join("document.yaml").to_str().expect("ASCII")]);
    let (rows, _) = audit(&node.administer(), AuditQuery { tenant: Some("stays".to_owned()), ..AuditQuery::default() });
    let kinds: Vec<AuditKind> = rows.iter().map(|row| row.event.event).collect();
    assert_eq!(kinds, [AuditKind::Joined, AuditKind::Adopted]);
    assert_ne!(rows[0].run, rows[1].run);
}

#[test]
fn who_uses_a_device_without_a_quota_is_written_down_once() {
    let node = Node::start("l4-24gb", &[]);
    let _member = node.hello(Some("t"), Some(GIB));
    // A process that never registers.
    let mut foreign = std::process::Command::new(harness::program("probe-linked"));
    foreign.args(["linked", "init", "ctx", "linear:a=100M", "say=ready", "wait"]);
    foreign.env("LD_LIBRARY_PATH", harness::fake_driver()).env("FAKE_CUDA_MACHINE", "l4-24gb");
    foreign.env("FAKE_CUDA_STATE", node.folder.join("state")).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut foreign = foreign.spawn().expect("it starts");
    let seen = || audit(&node.administer(), AuditQuery { kinds: vec!["bypass".to_owned()], ..AuditQuery::default() }).0;
    eventually("it is seen", || !seen().is_empty());
    std::thread::sleep(Duration::from_millis(2500));
    let rows = seen();
    assert_eq!((rows.len(), rows[0].event.pid), (1, Some(foreign.id())), "{rows:?}");
    assert!(rows[0].event.command.as_deref().is_some_and(|command| command.contains("probe-linked")), "{rows:?}");
    assert_eq!(rows[0].event.devices, [node.devices()[0].uuid.clone()]);
    foreign.kill().expect("it lives");
    foreign.wait().expect("a child");
}

#[test]
fn the_command_shows_filters_and_counts() {
    let node = Node::start("l4-24gb", &[]);
    for tenant in ["a", "b"] {
        assert!(matches!(ask(&node.connect(), &admit(tenant, "1GiB", None)), Reply::Granted(_)));
    }
    let lines = |arguments: &[&str]| -> Vec<String> {
        let mut all = vec!["audit"];
        all.extend(arguments);
        let done = node.gpuquota(&all).output().expect("it runs");
        assert!(done.status.success(), "{done:?}");
        text(&done.stdout).lines().map(str::to_owned).collect()
    };
    eventually("both have ended", || lines(&["-o", "json", "--event", "released"]).len() == 2);
    let table = lines(&[]);
    assert!(table[0].starts_with("TIME") && table.len() == 10, "{table:?}");
    let rows: Vec<AuditRow> =
        lines(&["-o", "json"]).iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>());
    assert_eq!(lines(&["-o", "json", "--tenant", "a"]).len(), 4);
    assert_eq!(lines(&["-o", "json", "--event", "asked,granted", "--tenant", "b"]).len(), 2);
    let newest: AuditRow = serde_json::from_str(&lines(&["-o", "json", "-n", "1"])[0]).expect("JSON");
    assert_eq!(newest.seq, 9);
    assert_eq!(
        (
            lines(&["-o", "json", "--since", "1h"]).len(),
            lines(&["-o", "json", "--since", "2100-01-01T00:00:00Z"]).len()
        ),
        (9, 0)
    );
    for (arguments, part) in
        [(["--event", "bogus"], "expected started, stopped"), (["--since", "yesterday"], "expected a duration")]
    {
        let done = node.gpuquota(&["audit", arguments[0], arguments[1]]).output().expect("it runs");
        assert!(done.status.code() == Some(2) && text(&done.stderr).contains(part), "{done:?}");
    }
}

#[test]
fn a_follower_sees_what_comes_and_ends_with_the_daemon() {
    let node = Node::start("l4-24gb", &[]);
    let mut follower = node
        .gpuquota(&["audit", "--follow", "-o", "json", "--event", "granted"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut out = BufReader::new(follower.stdout.take().expect("piped"));
    for tenant in ["one", "two"] {
        assert!(matches!(ask(&node.connect(), &admit(tenant, "1GiB", None)), Reply::Granted(_)));
        let mut line = String::new();
        out.read_line(&mut line).expect("readable");
        let row: AuditRow = serde_json::from_str(&line).expect("JSON");
        assert_eq!(row.event.tenant.as_deref(), Some(tenant));
    }
    signal(node.daemon_pid(), rustix::process::Signal::TERM);
    let done = follower.wait_with_output().expect("it ends");
    assert!(done.status.code() == Some(1) && text(&done.stderr).contains("closed the connection"), "{done:?}");
}

/// A reader that stands still misses what no longer fits, is told how much, and goes on; the daemon doesn't wait for it.
#[test]
fn a_slow_follower_is_told_what_it_missed() {
    let node = Node::start("l4-24gb", &[]);
    let slow = node.connect();
    slow.send(&Request::Audit(AuditQuery { follow: true, ..AuditQuery::default() }), &[]).expect("sent");
    let busy = node.connect();
    for round in 0..6000 {
        let reply = ask(&busy, &admit("a b", "1GiB", None));
        assert!(matches!(reply, Reply::Refused { .. }), "{round}: {reply:?}");
    }
    let (mut at, mut missed) = (0, 0);
    let deadline = Instant::now() + PATIENCE * 2;
    while at < 6001 {
        assert!(Instant::now() < deadline, "at {at}");
        let Reply::Audit { rows, last: false, .. } = next(&slow) else { panic!("it follows") };
        for row in rows {
            let covers = row.event.lost.unwrap_or(1);
            assert_eq!(row.seq, at + covers, "nothing is missing unseen");
            missed += row.event.lost.unwrap_or(0);
            at = row.seq;
        }
    }
    assert!(missed > 0 && missed < 6000, "{missed}");
    let (rows, older) = audit(&node.administer(), AuditQuery::default());
    assert_eq!((rows.len(), rows.last().map(|row| row.seq)), (1024, Some(6001)));
    assert!(older.is_some_and(|hint| !hint.files && hint.hint.contains("older ones are gone")));
}

/// The disk is full: jobs come and go as ever, and when there is room again nothing is missing unseen.
#[test]
fn a_full_disk_stops_nobody() {
    let mut node = Node::bare();
    let (document, path) = (node.folder.join("document.yaml"), node.folder.join("audit.jsonl"));
    std::os::unix::fs::symlink("/dev/full", &path).expect("ours");
    std::fs::write(&document, format!("audit: {{path: {}}}\n", path.display())).expect("writable");
    let log = std::fs::File::create(node.folder.join("log")).expect("writable");
    let arguments = ["--config", document.to_str().expect("ASCII")];
    node.daemon = Some(node.command("l4-24gb", &arguments).stderr(log).spawn().expect("it starts"));
    eventually("the daemon listens", || Connection::connect(&node.socket(), Instant::now()).is_ok());
    let busy = node.connect();
    for _ in 0..5000 {
        assert!(matches!(ask(&busy, &admit("a b", "1GiB", None)), Reply::Refused { .. }));
    }
    assert!(matches!(ask(&node.connect(), &admit("t", "1GiB", None)), Reply::Granted(_)));
    std::fs::remove_file(&path).expect("ours");
    let released = || in_file(&path).iter().any(|row| row.event.event == AuditKind::Lost);
    eventually("what was lost is told", released);
    let (mut at, mut lost) = (0, 0);
    for row in in_file(&path) {
        let covers = row.event.lost.unwrap_or(1);
        assert_eq!(row.seq, at + covers);
        lost += row.event.lost.unwrap_or(0);
        at = row.seq;
    }
    assert!(lost > 0, "5000 don't fit the queue");
    let log = std::fs::read_to_string(node.folder.join("log")).expect("written");
    assert_eq!(log.lines().filter(|line| line.contains("the audit can't be written")).count(), 1, "said once");
    assert!(log.contains("the audit is written again"));
}

#[test]
fn a_document_with_a_file_that_cannot_be_written_is_refused() {
    let node = Node::start("l4-24gb", &[]);
    let document = node.folder.join("document.yaml");
    std::fs::write(&document, "audit: {path: /dev/null/audit.jsonl}\n").expect("writable");
    let done = node.gpuquota(&["apply", document.to_str().expect("ASCII")]).output().expect("it runs");
    let err = text(&done.stderr);
    assert!(
        !done.status.success() && err.contains("audit.path: /dev/null/audit.jsonl") && err.lines().count() == 1,
        "{err}"
    );
    let (rows, _) =
        audit(&node.administer(), AuditQuery { kinds: vec!["refused".to_owned()], ..AuditQuery::default() });
    assert_eq!(rows[0].event.change.as_deref(), Some("apply"), "{rows:?}");
}

/// More than is kept in memory comes from the files, those of before included.
#[test]
fn what_is_no_longer_in_memory_is_read_from_the_files() {
    let (node, path) = audited("l4-24gb", "");
    let busy = node.connect();
    let refuse = |count: usize| {
        for _ in 0..count {
            assert!(matches!(ask(&busy, &admit("a b", "1GiB", None)), Reply::Refused { .. }));
        }
    };
    refuse(1500);
    eventually("all are written", || in_file(&path).len() == 1501);
    // As on the day after.
    std::fs::rename(&path, node.folder.join("audit-20260101T000000.000Z.jsonl")).expect("ours");
    refuse(500);
    eventually("all are written", || in_file(&path).len() == 500);
    // The first and the last; none is missing in between.
    let numbers = |arguments: &[&str]| -> (u64, u64) {
        let mut all = vec!["audit", "-o", "json"];
        all.extend(arguments);
        let done = node.gpuquota(&all).output().expect("it runs");
        assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
        let rows = text(&done.stdout);
        let seqs: Vec<u64> =
            rows.lines().map(|line| serde_json::from_str::<AuditRow>(line).expect("JSON").seq).collect();
        assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{arguments:?}");
        (seqs[0], seqs[seqs.len() - 1])
    };
    // What was renamed says that it is of January.
    assert_eq!(numbers(&["--since", "2025-12-31T00:00:00Z"]), (1, 2001));
    assert_eq!(numbers(&["--since", "2026-01-02T00:00:00Z"]), (978, 2001), "by its name it is older");
    assert_eq!(numbers(&["--event", "started", "--since", "2025-12-31T00:00:00Z"]), (1, 1));
    assert_eq!(numbers(&["-n", "1500"]), (502, 2001));
    assert_eq!(numbers(&["-n", "5"]), (1997, 2001));
}
