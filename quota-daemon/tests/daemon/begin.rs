//! A daemon that begins: nobody who finds its sockets is turned away.

use crate::node::{Node, PATIENCE, signal};
use quota_wire::socket::{Connection, WireError};
use rustix::process::Signal;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Connects again and again until it is let in; what went wrong before, but that there was no socket yet.
fn hammer(path: &Path, stop: &AtomicBool) -> Vec<String> {
    let mut wrong = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match Connection::connect(path, Instant::now()) {
            Ok(_) => return wrong,
            Err(WireError::Io(error)) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => wrong.push(error.to_string()),
        }
    }
    vec!["it was never let in".to_owned()]
}

/// Started after one that has ended as it should, a daemon has a socket only once it listens; and who is let in by that for
/// everybody is let in by the other, too.
#[test]
fn nobody_is_refused_by_a_daemon_that_begins() {
    let mut node = Node::bare();
    let admin = node.folder.join("gpuquota-admin.sock");
    for round in 0..12 {
        let daemon = node.command("l4-24gb", &[]).stderr(Stdio::null()).spawn().expect("it starts");
        node.daemon = Some(daemon);
        let (socket, stop) = (node.socket(), AtomicBool::new(false));
        let (wrong, of_admin) = std::thread::scope(|scope| {
            let other = scope.spawn(|| hammer(&socket, &stop));
            let deadline = Instant::now() + PATIENCE;
            while !other.is_finished() && Instant::now() < deadline {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            let of_admin = Connection::connect(&admin, Instant::now());
            (other.join().expect("it ends"), of_admin)
        });
        assert_eq!(wrong, [""; 0], "round {round}");
        assert!(of_admin.is_ok(), "round {round}: {of_admin:?}");
        signal(node.daemon_pid(), Signal::TERM);
        assert!(node.daemon.take().expect("started").wait().expect("it ends").success());
        let left: Vec<_> = std::fs::read_dir(&node.folder).expect("ours").flatten().map(|it| it.file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains(".sock.new")), "{left:?}");
    }
}
