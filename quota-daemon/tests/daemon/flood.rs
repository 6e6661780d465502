//! Clients that ask too much, or are too many: what they do to others.

use crate::node::{GIB, Node, PATIENCE, ask, next, text};
use quota_wire::message::{PACKET_BYTES_MAX, Reply, Request};
use quota_wire::socket::{Connection, WireError};
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Asks as fast as it can, by several connections; how often it was answered.
fn flood(node: &Node, stop: &AtomicBool, answered: &AtomicUsize) {
    let connections: Vec<Connection> = (0..8).map(|_| node.connect()).collect();
    while !stop.load(Ordering::Relaxed) {
        for connection in &connections {
            while connection.send(&Request::About, &[]).is_ok() {}
            while let Ok((Reply::About(_), _)) = connection.receive() {
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Two that flood the daemon get their rate, and others their answers as if nobody did.
#[test]
fn who_floods_the_daemon_delays_nobody() {
    let node = Node::start("l4-24gb", &[]);
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let begin = Instant::now();
    let mut waits = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&node, &stop, &answered));
        // Longer than their burst lasts.
        while begin.elapsed() < Duration::from_millis(2500) {
            let asked = Instant::now();
            let (connection, welcome, _) = node.hello(Some("calm"), Some(GIB));
            waits.push(asked.elapsed());
            assert_eq!(welcome.tenant, "calm");
            drop(connection);
            std::thread::sleep(Duration::from_millis(25));
            assert!(matches!(ask(&node.administer(), &Request::About), Reply::About(_)));
            if waits.len() >= 7 {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(2000).saturating_sub(begin.elapsed()));
        stop.store(true, Ordering::Relaxed);
    });
    let (count, seconds) = (answered.load(Ordering::Relaxed), begin.elapsed().as_secs_f64());
    // A second's worth at once, and then 10,000 a second, for this user.
    assert!(count > 2_000, "they are served: {count}");
    assert!((count as f64) < 10_000.0 * (seconds + 1.5), "{count} in {seconds} s");
    waits.sort_unstable();
    assert!(waits.len() >= 7 && waits[waits.len() / 2] < Duration::from_millis(500), "{waits:?}");
}

/// One connection alone gets its own rate.
#[test]
fn a_connection_is_answered_at_its_rate() {
    let node = Node::start("l4-24gb", &[]);
    let connection = node.connect();
    let begin = Instant::now();
    for _ in 0..3_000 {
        assert!(matches!(ask(&connection, &Request::About), Reply::About(_)));
    }
    // 2,000 at once, and the rest at 2,000 a second.
    assert!(begin.elapsed() > Duration::from_millis(350), "{:?}", begin.elapsed());
}

/// A user has half of the connections: the next one is told so, and administrators get in.
#[test]
fn one_user_cannot_have_all_connections() {
    const MOST: usize = 2048;
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("up to the hard limit");
    if limit.current.is_some_and(|most| most < 2 * MOST as u64 + 256) {
        return;
    }
    let node = Node::start("l4-24gb", &[]);
    let mut connections: Vec<Connection> = (0..MOST).map(|_| node.connect()).collect();
    assert!(matches!(ask(connections.last().expect("one"), &Request::About), Reply::About(_)));
    let beyond = node.connect();
    let Reply::Refused { reason } = next(&beyond) else { panic!("one too many") };
    assert!(reason.contains("connections to the daemon already, the most for one user"), "{reason}");
    assert!(matches!(beyond.receive_until::<Reply>(Instant::now() + PATIENCE), Err(WireError::Closed)));
    assert!(matches!(ask(&node.administer(), &Request::About), Reply::About(_)));
    let shown = node.gpuquota(&["ps"]).output().expect("it runs");
    assert!(!shown.status.success() && text(&shown.stderr).contains("the most for one user"), "{shown:?}");
    connections.truncate(MOST - 8);
    crate::node::eventually("there is room again", || {
        let connection = node.connect();
        connection
            .ask::<_, Reply>(&Request::About, Instant::now() + PATIENCE)
            .is_ok_and(|(reply, _)| matches!(reply, Reply::About(_)))
    });
}

/// Packets that are too large end the connection that they came by, and no other.
#[test]
fn a_packet_that_is_too_large_ends_its_connection() {
    let node = Node::start("l4-24gb", &[]);
    let (bystander, large) = (node.connect(), node.connect());
    let bytes = vec![b' '; PACKET_BYTES_MAX + 1];
    let socket = rustix::fd::AsFd::as_fd(&large);
    assert!(socket.as_raw_fd() >= 0 && large.as_fd().as_raw_fd() >= 0);
    rustix::net::send(socket, &bytes, rustix::net::SendFlags::empty()).expect("sent");
    let Reply::Refused { reason } = next(&large) else { panic!("too large") };
    assert!(reason.contains("larger than 65536 bytes"), "{reason}");
    assert!(matches!(large.receive_until::<Reply>(Instant::now() + PATIENCE), Err(WireError::Closed)));
    assert!(matches!(ask(&bystander, &Request::About), Reply::About(_)));
}
