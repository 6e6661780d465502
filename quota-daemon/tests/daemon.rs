//! The daemon as its clients see it, through its sockets and over a simulated NVML.

#[path = "daemon/audit.rs"]
mod audit;
#[path = "daemon/begin.rs"]
mod begin;
#[path = "daemon/commands.rs"]
mod commands;
#[path = "daemon/compute.rs"]
mod compute;
#[path = "daemon/driver.rs"]
mod driver;
#[path = "daemon/figures.rs"]
mod figures;
#[path = "daemon/flood.rs"]
mod flood;
#[path = "daemon/hostile.rs"]
mod hostile;
#[path = "daemon/node.rs"]
mod node;
#[path = "daemon/notify.rs"]
mod notify;
#[path = "daemon/player.rs"]
mod player;
#[path = "daemon/survival.rs"]
mod survival;
#[path = "daemon/threads.rs"]
mod threads;

use node::{GIB, Node, PATIENCE, admit, ask, eventually, next, signal, text};
use quota_core::Bytes;
use quota_core::ledger::{DeviceId, SlotId};
use quota_wire::TenantMemory;
use quota_wire::memory::{Access, Mapping};
use quota_wire::message::{Change, ProcessRow, QueueLimit, Reply, Request};
use quota_wire::page::QuotaPage;
use quota_wire::socket::{Connection, WireError};
use serde_json::Value;
use std::os::fd::AsFd;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_change_is_on_the_page_when_it_is_answered() {
    let node = Node::start("2xl4-24gb", &[]);
    let (_connection, welcome, descriptors) = node.hello(Some("t"), Some(4 * GIB));
    assert_eq!((welcome.tenant.as_str(), welcome.slot, welcome.devices.len()), ("t", 0, 2));
    let page = Mapping::<QuotaPage>::new(descriptors[0].as_fd(), Access::ReadOnly).expect("a page");
    Mapping::<QuotaPage>::new(descriptors[0].as_fd(), Access::ReadWrite).expect_err("sealed against us");
    let place = DeviceId::new(welcome.devices[1].expect("known")).expect("in range");
    assert!(page.is_valid());
    assert_eq!(page.memory_cap(place), Some(Bytes(4 * GIB)));
    let change = Request::Set(Change { tenant: "t".to_owned(), memory: Some("2GiB".to_owned()), ..Change::default() });
    let Reply::Refused { reason } = ask(&node.connect(), &change) else { panic!("anybody may change a quota") };
    assert!(reason.contains("administrators"), "{reason}");
    assert_eq!(page.memory_cap(place), Some(Bytes(4 * GIB)));
    let epoch = page.epoch();
    assert!(matches!(ask(&node.administer(), &change), Reply::Done { .. }));
    assert_eq!(page.memory_cap(place), Some(Bytes(2 * GIB)));
    assert!(page.epoch() > epoch);
    let set = node.gpuquota(&["set", "t", "--memory", "3GiB", "--weight", "200"]).output().expect("it runs");
    assert!(text(&set.stdout).contains("3 GiB on device 0"), "{set:?}");
    assert_eq!((page.memory_cap(place), page.quota(place).weight), (Some(Bytes(3 * GIB)), 200));
}

#[test]
fn a_ledger_is_shown_as_it_is_and_no_further_than_the_device_goes() {
    let node = Node::start("l4-24gb", &[]);
    let (_connection, welcome, descriptors) = node.hello(Some("t"), None);
    let ledger = Mapping::<TenantMemory>::new(descriptors[1].as_fd(), Access::ReadWrite).expect("a ledger");
    let slot = SlotId::new(welcome.slot).expect("in range");
    let place = DeviceId::new(welcome.devices[0].expect("known")).expect("in range");
    assert_eq!(ledger.pid(slot), std::process::id());
    let lock = quota_wire::lock::LedgerLock::take(descriptors[1].as_fd()).expect("free");
    let units = quota_core::ledger::Units::holding(Bytes(GIB)).expect("small");
    ledger.force(slot, place, units, lock.token());
    assert_eq!(node.processes()[0].memory_used_bytes, GIB);
    assert_eq!((node.processes()[0].state.as_str(), node.processes()[0].memory_quota_bytes), ("unmanaged", None));
    let absurd = quota_core::ledger::Units::holding(Bytes(1 << 40)).expect("it can be said");
    ledger.force(slot, place, absurd, lock.token());
    assert_eq!(node.processes()[0].memory_used_bytes, node.devices()[0].memory_total_bytes);
}

#[test]
fn a_closed_socket_is_not_death_while_the_ledger_is_mapped() {
    let node = Node::start("l4-24gb", &[]);
    let (connection, _, descriptors) = node.hello(Some("stays"), Some(GIB));
    let ledger = Mapping::<TenantMemory>::new(descriptors[1].as_fd(), Access::ReadWrite).expect("a ledger");
    drop((connection, descriptors));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(node.devices()[0].memory_granted_bytes, GIB, "this process lives");
    // Without the mapping, it must have called exec: nothing of what it held is left.
    let (connection, _, descriptors) = node.hello(Some("stays"), None);
    drop(ledger);
    drop((connection, descriptors));
    eventually("both memberships are over", || node.devices()[0].jobs <= 1);
}

#[test]
fn junk_is_answered_and_hurts_nobody() {
    let node = Node::start("l4-24gb", &[]);
    let bystander = node.connect();
    for junk in [
        Value::from("junk"),
        Value::from(17),
        serde_json::json!({"type": "no such thing"}),
        serde_json::json!([[[[1]]]]),
    ] {
        let connection = node.connect();
        connection.send(&junk, &[]).expect("sent");
        assert!(matches!(next(&connection), Reply::Refused { .. }));
        let end = connection.receive_until::<Reply>(Instant::now() + PATIENCE);
        assert!(matches!(end, Err(WireError::Closed)), "{end:?}");
    }
    for request in [Request::Pause { tenant: "t".to_owned() }, Request::Shutdown] {
        assert!(matches!(ask(&bystander, &request), Reply::Refused { .. }));
    }
    let unknown = ask(&node.administer(), &Request::Pause { tenant: "t".to_owned() });
    assert!(matches!(unknown, Reply::Refused { .. }), "{unknown:?}");
    assert!(matches!(ask(&bystander, &Request::About), Reply::About(_)));
}

#[test]
fn a_thousand_connections_are_served_and_cost_little() {
    let node = Node::start("l4-24gb", &[]);
    // The soft limit of a login session is near a thousand.
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("up to the hard limit");
    let connections: Vec<Connection> = (0..1000).map(|_| node.connect()).collect();
    for connection in &connections {
        connection.send(&Request::Devices, &[]).expect("sent");
    }
    for connection in &connections {
        assert!(matches!(next(connection), Reply::Devices { .. }));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.daemon_pid())).expect("it lives");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("shown");
    let resident_kib: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(resident_kib < 50 << 10, "{resident}");
}

#[test]
fn an_idle_daemon_sleeps() {
    let node = Node::start("l4-24gb", &["--idle-exit", "1h"]);
    let switches = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", node.daemon_pid())).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).expect("shown");
        line.trim().parse().expect("a number")
    };
    std::thread::sleep(Duration::from_millis(100));
    let before = switches();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(switches(), before, "nobody is there");
    let _member = node.hello(Some("t"), Some(GIB));
    std::thread::sleep(Duration::from_millis(100));
    let before = switches();
    std::thread::sleep(Duration::from_millis(2500));
    // Once a second it asks the driver what its members hold, and hears the answer.
    let looked = switches() - before;
    assert!((2..=8).contains(&looked), "{looked}");
}

/// What a member holds and was never charged is booked, and goes when it goes; what nobody registered is shown.
#[test]
fn what_no_call_shows_is_booked_by_the_daemon() {
    const MIB: u64 = 1 << 20;
    let node = Node::start("l4-24gb", &[]);
    let (_member, welcome, _pages) = node.hello(Some("t"), Some(GIB));
    assert_eq!(welcome.slot, 0);
    // This process is the member, and holds memory of the machine that no call has asked for.
    let machine = fake_machine::Machine::open("l4-24gb", &node.folder.join("state")).expect("the node's machine");
    machine.take(0, 100 * MIB).expect("there is room");
    let row = || node.processes().into_iter().find(|row| row.tenant == "t").expect("it is shown");
    let booked =
        |bytes: u64| move |row: ProcessRow| row.memory_used_bytes == bytes && row.memory_overhead_bytes == bytes;
    eventually("it is booked", || booked(100 * MIB)(row()));
    assert_eq!(node.devices()[0].memory_charged_bytes, 100 * MIB);
    machine.give(0, 60 * MIB);
    eventually("less is held", || booked(40 * MIB)(row()));
    machine.give(0, 40 * MIB);
    eventually("nothing is left", || booked(0)(row()));
}

#[test]
fn the_queue_moves_when_a_job_ends() {
    let node = Node::start("l4-24gb", &["--reserve", "1GiB", "--max-jobs", "2"]);
    let first = node.connect();
    assert!(matches!(ask(&first, &admit("first", "15GiB", None)), Reply::Granted(_)));
    let Reply::Refused { reason } = ask(&node.connect(), &admit("second", "15GiB", None)) else { panic!("it fits") };
    assert!(reason.contains("(first: 15 GiB)") && reason.contains("--queue"), "{reason}");
    let waiting = node.connect();
    assert!(matches!(
        ask(&waiting, &admit("second", "15GiB", Some(QueueLimit::Forever))),
        Reply::Waiting { position: 0, .. }
    ));
    let late = node.connect();
    let patience = Some(QueueLimit::Milliseconds(150));
    assert!(matches!(ask(&late, &admit("late", "1GiB", patience)), Reply::Waiting { position: 1, .. }));
    let Reply::Refused { reason } = next(&late) else { panic!("its time is over") };
    assert!(reason.contains("the wait for room is over"), "{reason}");
    let begun = Instant::now();
    drop(first);
    assert!(matches!(next(&waiting), Reply::Granted(_)));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[test]
fn a_socket_has_one_daemon_and_a_dead_ones_is_replaced() {
    let mut node = Node::start("l4-24gb", &[]);
    let second = node.command("l4-24gb", &[]).output().expect("it runs");
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("another gpuquotad answers on"), "{second:?}");
    let mut daemon = node.daemon.take().expect("started");
    daemon.kill().expect("it lives");
    daemon.wait().expect("it lived");
    assert!(node.socket().exists(), "left behind");
    node.daemon = Some(node.command("l4-24gb", &[]).stderr(Stdio::null()).spawn().expect("it starts"));
    eventually("the new one listens", || Connection::connect(&node.socket(), Instant::now()).is_ok());
    signal(node.daemon_pid(), rustix::process::Signal::TERM);
    let ended = node.daemon.take().expect("started").wait().expect("it ends");
    assert!(ended.success(), "{ended:?}");
    assert!(!node.socket().exists() && !node.folder.join("gpuquota-admin.sock").exists());
}

#[test]
fn something_else_at_the_sockets_place_is_left_alone() {
    let node = Node::bare();
    std::fs::write(node.socket(), "precious").expect("writable");
    let output = node.command("l4-24gb", &[]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no socket"), "{output:?}");
    assert_eq!(std::fs::read(node.socket()).expect("there"), b"precious");
}

#[test]
fn a_daemon_ends_when_nobody_has_a_place_for_a_while() {
    let mut node = Node::start("l4-24gb", &["--idle-exit", "150ms"]);
    let job = node.connect();
    assert!(matches!(ask(&job, &admit("t", "1GiB", None)), Reply::Granted(_)));
    std::thread::sleep(Duration::from_millis(400));
    assert!(matches!(ask(&job, &Request::About), Reply::About(_)), "a job keeps it");
    drop(job);
    let ended = node.daemon.take().expect("started").wait().expect("it ends");
    assert!(ended.success() && !node.socket().exists());
}

#[test]
fn a_document_is_applied_whole_or_refused() {
    let node = Node::start("l4-24gb", &[]);
    let document = node.folder.join("document.yaml");
    let apply = |content: &str| -> Output {
        std::fs::write(&document, content).expect("writable");
        node.gpuquota(&["apply", document.to_str().expect("ASCII")]).output().expect("it runs")
    };
    let typo = apply("tenants:\n  - name: a\n    memry: 1GiB\n");
    let err = text(&typo.stderr);
    assert!(
        err.contains("document.yaml: line 3") && err.contains("did you mean `memory`?") && err.lines().count() == 1,
        "{err}"
    );
    let large = apply("tenants:\n  - {name: a, memory: 20GiB}\n  - {name: b, memory: 20GiB}\n");
    assert!(text(&large.stderr).contains("tenant b: 20 GiB on device 0 can never fit"), "{large:?}");
    assert_eq!(node.devices()[0].memory_granted_bytes, 0, "nothing of it holds");
    std::fs::write(&document, "tenants: [{name: a, memory: 20GiB}]\n").expect("writable");
    let preview = node.gpuquota(&["apply", "--dry-run", document.to_str().expect("ASCII")]).output().expect("it runs");
    let wanted = "tenant a: is added: memory 20 GiB, weight 100, priority normal on device 0\n";
    assert_eq!((text(&preview.stdout).as_str(), preview.status.success()), (wanted, true));
    assert_eq!(node.devices()[0].memory_granted_bytes, 0, "it was only said");
    assert!(apply("tenants:\n  - {name: a, memory: 20GiB}\n").status.success());
    assert_eq!(node.devices()[0].memory_granted_bytes, 20 * GIB);
}
