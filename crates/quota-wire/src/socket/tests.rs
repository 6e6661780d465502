//! Packets over a pair, and sockets that are found only once they listen.

use super::*;
use crate::message::{Reply, Request};

#[test]
fn a_packet_arrives_with_its_descriptors() {
    let (a, b) = Connection::pair().expect("a pair");
    let file = crate::memory::anonymous_file(c"test", 4096).expect("a memfd");
    a.send(&Request::About, &[file.as_fd(), file.as_fd()]).expect("sent");
    let (request, descriptors): (Request, _) = b.receive().expect("received");
    assert_eq!((request, descriptors.len()), (Request::About, 2));
    assert_eq!(crate::memory::file_bytes(descriptors[1].as_fd()).expect("a file"), 4096);
}

#[test]
fn silence_junk_and_hang_ups_are_told_apart() {
    let (a, b) = Connection::pair().expect("a pair");
    assert!(matches!(b.receive::<Request>(), Err(WireError::WouldBlock)));
    let soon = Instant::now() + Duration::from_millis(5);
    assert!(matches!(b.receive_until::<Request>(soon), Err(WireError::TimedOut)));
    a.send(&"junk", &[]).expect("sent");
    assert!(matches!(b.receive::<Request>(), Err(WireError::Malformed(_))));
    a.send(&Request::Apply { document: "x".repeat(PACKET_BYTES_MAX) }, &[]).expect_err("too large");
    drop(a);
    assert!(matches!(b.receive::<Request>(), Err(WireError::Closed)));
    assert!(matches!(b.send(&Reply::Done { message: String::new() }, &[]), Err(WireError::Closed)));
}

/// A folder of a test's own.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gq-wire-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("writable");
    folder
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).expect("there").permissions().mode() & 0o777
}

/// Whoever comes while a socket is made finds none, or one that lets him in: nobody is refused, as by one that is bound and
/// doesn't listen, and nobody finds the mode that files have by themselves.
#[test]
fn a_socket_is_found_only_once_it_listens() {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    let folder = folder("found");
    let path = folder.join("a.sock");
    let (done, let_in) = (AtomicBool::new(false), AtomicU32::new(0));
    let tries = [AtomicU32::new(0), AtomicU32::new(0)];
    let hammer = |tries: &AtomicU32| {
        let mut refused = Vec::new();
        while !done.load(Ordering::Relaxed) {
            tries.fetch_add(1, Ordering::Release);
            match Connection::connect(&path, Instant::now()) {
                Ok(_) => drop(let_in.fetch_add(1, Ordering::Relaxed)),
                Err(WireError::Io(error)) if error.raw_os_error() == Some(libc::ENOENT) => {}
                // One whose queue is full is there.
                Err(WireError::TimedOut) => {}
                Err(error) => refused.push(error.to_string()),
            }
        }
        refused
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    let refused = std::thread::scope(|scope| {
        let hammers = tries.each_ref().map(|tries| scope.spawn(|| hammer(tries)));
        let mut rounds = 0;
        // Until it was tried often enough, however slow the machine is.
        while Instant::now() < deadline && (rounds < 500 || let_in.load(Ordering::Relaxed) < 500) {
            let socket = listen(&path, 0o640).expect("free");
            assert_eq!(mode_of(&path), 0o640);
            std::fs::remove_file(&path).expect("ours");
            // Who has found it before may still be on the way to it: it closes when both have begun anew.
            let before = tries.each_ref().map(|tries| tries.load(Ordering::Acquire));
            while tries.iter().zip(before).any(|(tries, before)| tries.load(Ordering::Acquire) == before)
                && Instant::now() < deadline
            {
                std::thread::yield_now();
            }
            drop(socket);
            rounds += 1;
        }
        done.store(true, Ordering::Relaxed);
        hammers.map(|hammer| hammer.join().expect("it ends"))
    });
    let let_in = let_in.into_inner();
    assert!(let_in >= 500 && refused.iter().all(Vec::is_empty), "{let_in} were let in: {refused:?}");
    std::fs::remove_dir_all(folder).expect("ours");
}

/// What others have left goes: a dead socket in its place, and one that was killed before it had its name. Nothing else does.
#[test]
fn a_dead_socket_is_replaced_and_nothing_else() {
    let folder = folder("replaced");
    let path = folder.join("a.sock");
    drop(listen(&path, 0o600).expect("free"));
    drop(listen(&fresh_name(&path), 0o600).expect("free"));
    let socket = listen(&path, 0o666).expect("nobody listens there");
    assert!(Connection::connect(&path, Instant::now()).is_ok() && mode_of(&path) == 0o666);
    assert_eq!(std::fs::read_dir(&folder).expect("ours").count(), 1, "nothing else is left");
    drop(socket);
    for precious in [fresh_name(&path), path.clone()] {
        let _ = std::fs::remove_file(&precious);
        std::fs::write(&precious, "precious").expect("writable");
        let refused = listen(&path, 0o600).expect_err("it isn't ours").to_string();
        assert!(refused.contains("no socket") && refused.contains(&precious.display().to_string()), "{refused}");
        assert_eq!(std::fs::read(&precious).expect("there"), b"precious");
        std::fs::remove_file(&precious).expect("ours");
    }
    std::fs::remove_dir_all(folder).expect("ours");
}

/// A path as long as an address can be leaves no room for the name before; it is had all the same, and one more is refused.
#[test]
fn the_longest_path_is_no_longer_than_its_address() {
    const LONGEST: usize = 107;
    let folder = folder("long");
    let name = |bytes: usize| folder.join("s".repeat(bytes - folder.as_os_str().len() - 1));
    for bytes in [LONGEST - 4, LONGEST - 3, LONGEST] {
        let path = name(bytes);
        let _socket = listen(&path, 0o600).expect("it fits");
        assert!(Connection::connect(&path, Instant::now()).is_ok(), "{bytes}");
        std::fs::remove_file(&path).expect("ours");
    }
    let refused = listen(&name(LONGEST + 1), 0o600).expect_err("too long").to_string();
    assert!(refused.contains("1 to 107 bytes"), "{refused}");
    assert_eq!(std::fs::read_dir(&folder).expect("ours").count(), 0);
    std::fs::remove_dir_all(folder).expect("ours");
}
