//! Reports 19.07 and 19.14: what the daemon has open of the driver: not for ever, and not of a device that somebody else is to
//! have.

use crate::node::{GIB, Node, admit, ask, eventually, next, text};
use crate::player::Outside;
use quota_wire::audit::{AuditEvent, AuditQuery};
use quota_wire::message::{Admit, Hello, PROTOCOL_VERSION, QueueLimit, Reply, Request};
use quota_wire::socket::Connection;
use serde_json::Value;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

const MACHINE: &str = "2xl4-24gb";

/// How often NVML was begun and ended by the node's daemon, by the journal of the driver.
fn beginnings(node: &Node) -> (usize, usize) {
    let text = std::fs::read_to_string(node.folder.join("journal")).unwrap_or_default();
    let pid = u64::from(node.daemon_pid());
    // The last line may be under way.
    let calls = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let names: Vec<String> = calls
        .filter(|call| call["pid"].as_u64() == Some(pid) && call["result"] == 0)
        .filter_map(|call| Some(call["function"].as_str()?.to_owned()))
        .collect();
    let count = |name: &str| names.iter().filter(|it| *it == name).count();
    (count("nvmlInit_v2"), count("nvmlShutdown"))
}

fn start(node: &mut Node, settings: &[(&str, &str)]) {
    let mut command = node.command(MACHINE, &[]);
    command.env("FAKE_CUDA_JOURNAL", node.folder.join("journal")).envs(settings.iter().copied());
    node.daemon = Some(command.stderr(Stdio::null()).spawn().expect("it starts"));
    eventually("the daemon listens", || Connection::connect(&node.socket(), Instant::now()).is_ok());
}

fn events(node: &Node) -> Vec<AuditEvent> {
    let connection = node.administer();
    connection.send(&Request::Audit(AuditQuery::default()), &[]).expect("sent");
    let mut events = Vec::new();
    loop {
        match next(&connection) {
            Reply::Audit { rows, last, .. } => {
                events.extend(rows.into_iter().map(|row| row.event));
                if last {
                    return events;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

#[cfg(debug_assertions)]
fn reasons(node: &Node, word: &str) -> Vec<String> {
    events(node).into_iter().filter_map(|event| event.reason.filter(|_| event.event.word() == word)).collect()
}

/// Handles by which the daemon holds each device.
fn held(node: &Node) -> [usize; 2] {
    let machine = fake_machine::Machine::open(MACHINE, &node.folder.join("state")).expect("the node's machine");
    [0, 1].map(|device| machine.holders(device).into_iter().filter(|pid| *pid == node.daemon_pid()).count())
}

fn run(node: &Node, arguments: &[&str]) -> Output {
    node.gpuquota(arguments).output().expect("it runs")
}

fn states(node: &Node) -> Vec<(String, String)> {
    node.processes().into_iter().map(|row| (row.tenant, row.state)).collect()
}

/// Report 19.07: each call of the driver takes longer than it is waited for. Others ask in the meantime, until one has the time
/// that it takes; places are given all the while; it is told in devices and in the audit; and what was begun is ended.
#[test]
#[cfg(debug_assertions)] // What shortens the wait isn't in builds for use.
fn a_driver_that_hangs_is_asked_anew_and_what_was_begun_is_ended() {
    let mut node = Node::bare();
    let settings = [("FAKE_CUDA_LATENCY", "nvmlDeviceGetMemoryInfo=500ms"), ("GPUQUOTA_TEST_DRIVER_PATIENCE", "200ms")];
    start(&mut node, &settings);
    let mut outside = Outside::join(&node, "t");
    outside.tell("poke");
    let mut worst = (0, 0);
    let told = |node: &Node, word: &str| reasons(node, "driver").iter().any(|reason| reason.contains(word));
    eventually("it is told in devices", || {
        let health = node.devices()[0].health.clone();
        health.contains("no answer from the driver for") && health.contains("asked anew")
    });
    eventually("it answers in the end", || {
        let now = beginnings(&node);
        worst = if now.0 - now.1 > worst.0 - worst.1 { now } else { worst };
        told(&node, "it answers again, after")
    });
    assert!(told(&node, "one thread is left behind in it, and another one asks"), "{:?}", reasons(&node, "driver"));
    // One for each device, and more than the driver takes for all if one of its answers were waited for.
    let begun = Instant::now();
    let jobs: Vec<Connection> = (0..8).map(|_| node.connect()).collect();
    for (number, job) in jobs.iter().enumerate() {
        let reply = ask(job, &admit(&format!("job-{number}"), "1GiB", None));
        assert!(matches!(reply, Reply::Granted(_)), "{reply:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(worst.0 - worst.1 <= 1 + quota_daemon::devices::watchdog::LEFT_BEHIND_MAX, "{worst:?}");
    drop((jobs, outside));
    // Nobody is there any more of whom the driver would be asked.
    let deadline = Instant::now() + 4 * crate::node::PATIENCE;
    while beginnings(&node).0 != beginnings(&node).1 + 1 {
        assert!(Instant::now() < deadline, "{:?}", beginnings(&node));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(beginnings(&node).0 >= 3, "{:?}", beginnings(&node));
}

/// Report 19.14: the daemon lets go of a device within a second; who is there keeps the place and is shown as lost, nobody new gets
/// one, and all of that holds under the next daemon, until the device is given back.
#[test]
fn a_drained_device_is_let_go_of_until_it_is_given_back() {
    let mut node = Node::bare();
    start(&mut node, &[]);
    let mut outside = Outside::join(&node, "there");
    // Who answers has joined.
    outside.tell("poke");
    let job = node.connect();
    let on = |device: &str, queue| match admit("waits", "1GiB", queue) {
        Request::Admit(ask) => Request::Admit(Admit { device: Some(device.to_owned()), ..ask }),
        other => other,
    };
    eventually("it holds both", || held(&node) == [1, 1]);
    let granted = node.devices()[0].memory_granted_bytes;
    let begun = Instant::now();
    let drained = run(&node, &["drain", "0"]);
    assert_eq!(held(&node), [0, 1]);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let said = text(&drained.stdout);
    assert!(said.contains("device 0: drained; 1 tenant is still there (there)"), "{drained:?}");
    assert!(said.contains("gpuquota resume` 0"), "{said}");
    let again = run(&node, &["drain", "0", "-o", "json"]);
    let rows: Vec<Value> = serde_json::from_slice(&again.stdout).expect("JSON");
    assert_eq!((rows.len(), &rows[0]["drained"], &rows[0]["health"]), (1, &Value::from(true), &Value::from("drained")));
    // One that waits, one that doesn't, one for another device, and processes that ask by themselves.
    let Reply::Waiting { reason, .. } = ask(&job, &on("0", Some(QueueLimit::Forever))) else { panic!("it is drained") };
    assert!(reason.contains("device 0 is drained") && reason.contains("gpuquota resume 0"), "{reason}");
    let Reply::Refused { reason } = ask(&node.connect(), &on("0", None)) else { panic!("it is drained") };
    assert!(reason.contains("device 0 is drained"), "{reason}");
    let elsewhere = node.connect();
    assert!(matches!(ask(&elsewhere, &on("1", None)), Reply::Granted(_)));
    let (both, welcome, _pages) = node.hello(Some("sees-both"), Some(GIB));
    assert!(welcome.devices[0].is_none() && welcome.devices[1].is_some(), "{welcome:?}");
    let Request::Hello(hello) = node.hello_request(Some("sees-one"), Some(GIB)) else { panic!("it is one") };
    let one = Request::Hello(Hello { devices: hello.devices[..1].to_vec(), version: PROTOCOL_VERSION, ..hello });
    let Reply::Refused { reason } = ask(&node.connect(), &one) else { panic!("it is drained") };
    assert!(reason.contains("device 0 is drained"), "{reason}");
    for _ in 0..2 {
        assert!(states(&node).contains(&("there".to_owned(), "lost".to_owned())), "{:?}", states(&node));
        let device = &node.devices()[0];
        assert_eq!(
            (device.health.as_str(), device.memory_granted_bytes),
            ("drained", granted),
            "what is granted stays"
        );
        assert_eq!(node.devices()[1].health, "ok");
        node.restart(MACHINE);
        eventually("the next one lets go of it, too", || held(&node) == [0, 1]);
    }
    drop((both, job));
    let job = node.connect();
    assert!(matches!(ask(&job, &on("0", Some(QueueLimit::Forever))), Reply::Waiting { .. }));
    let resumed = run(&node, &["resume", "0"]);
    assert_eq!(text(&resumed.stdout), "device 0: in use again\n", "{resumed:?}");
    assert!(matches!(next(&job), Reply::Granted(_)), "what has waited for it is there");
    eventually("it is asked for again", || held(&node) == [1, 1] && node.devices()[0].health == "ok");
    assert!(!states(&node).iter().any(|(_, state)| state == "lost"));
    let changes: Vec<AuditEvent> = events(&node).into_iter().filter(|event| event.change.is_some()).collect();
    let last = changes.last().expect("it is written down");
    assert_eq!((last.change.as_deref(), last.devices.len()), (Some("resume"), 1), "{changes:?}");
    assert_eq!(last.by_pid.is_some(), last.by_uid.is_some());
    assert!(last.by_uid == Some(rustix::process::getuid().as_raw()), "{last:?}");
    node.restart(MACHINE);
    assert!(!node.devices()[0].drained, "and stays so");
}

/// Report 19.14: who may not, and what is none.
#[test]
fn a_device_is_drained_by_an_administrator_and_by_its_name() {
    let mut node = Node::bare();
    start(&mut node, &[]);
    for request in [Request::Drain { device: "0".to_owned() }, Request::Undrain { device: "0".to_owned() }] {
        let Reply::Refused { reason } = ask(&node.connect(), &request) else { panic!("anybody may") };
        assert!(reason.contains("administrators"), "{reason}");
    }
    for (line, wanted) in [
        (&["drain", "7"][..], "there is no device \"7\"; the devices are 0 ("),
        (&["drain", "GPU-"], "no device"),
        (&["resume", "nobody"], "there is no tenant \"nobody\""),
        (&["resume", "7"], "there is no tenant \"7\""),
    ] {
        let refused = run(&node, line);
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(wanted) && said.lines().count() == 1, "{line:?}: {said}");
    }
    assert_eq!(text(&run(&node, &["resume", "1"]).stdout), "device 1: not drained\n");
    let uuid = node.devices()[1].uuid.clone();
    assert!(run(&node, &["drain", &uuid]).status.success());
    // A tenant that is called as a device is: the name is the tenant's.
    let (_member, ..) = node.hello(Some("1"), Some(GIB));
    assert!(text(&run(&node, &["resume", "1"]).stdout).starts_with("tenant 1"));
    assert!(node.devices()[1].drained);
    assert!(run(&node, &["resume", &uuid]).status.success() && !node.devices()[1].drained);
}

/// Reports 19.07 and 19.14: however often devices are drained and given back, what was begun with NVML is ended.
#[test]
fn every_beginning_has_its_end_however_often_devices_are_drained() {
    let mut node = Node::bare();
    start(&mut node, &[]);
    for round in 0..20 {
        for (request, open) in [
            (Request::Drain { device: "0".to_owned() }, 1),
            (Request::Drain { device: "1".to_owned() }, 0),
            (Request::Undrain { device: "all".to_owned() }, 1),
        ] {
            assert!(matches!(ask(&node.administer(), &request), Reply::Done { .. }));
            let rows = node.devices();
            let (begun, ended) = beginnings(&node);
            assert_eq!(begun, ended + open, "round {round}: {request:?} {rows:?}");
        }
    }
    assert!(beginnings(&node).0 >= 41, "{:?}", beginnings(&node));
}
