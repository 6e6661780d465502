//! Whose a process is, by user, control group and secret.

use super::*;
use crate::document::MatchRule;
use std::os::unix::fs::PermissionsExt;

const CONTAINER: &str = "/docker/4f2d1c0b9a8e7d6c5b4a39281706f5e4d3c2b1a0f9e8d7c6b5a4938271605f4e";

fn within(cgroup: &str, pid: u32, uid: u32) -> Peer {
    Peer { cgroup: cgroup.to_owned(), ..peer(pid, uid) }
}

fn named(name: &str) -> Hello {
    Hello { tenant: Some(name.to_owned()), ..Hello::default() }
}

/// In a container everybody is root: that is no reason to be let into another's account.
#[test]
fn a_containers_root_is_not_the_nodes() {
    let mut node = Node::new(1, "tenants: [{name: vision, memory: 4GiB, match: {cgroup: \"*/vision-*\"}}]\n");
    let (connection, actions) = node.hello(&within(CONTAINER, 10, 0), named("vision"));
    let reason = refused(&actions, connection).expect("another's");
    assert!(reason.contains("tenant vision is not for user 0 in cgroup /docker/4f2d"), "{reason}");
    node.member(&within("/user.slice/user-0.slice/session-1.scope", 11, 0), named("vision"));
    let (_, welcome) = node.member(&within("/m/vision-7", 12, 0), Hello::default());
    assert_eq!(welcome.name, "vision");
    let (_, welcome) = node.member(&within(CONTAINER, 13, 0), Hello::default());
    assert_ne!(welcome.name, "vision");
}

/// Two containers of one user are two tenants; the processes of one are one.
#[test]
fn a_container_is_a_tenant() {
    let mut node = Node::new(1, "");
    let other = CONTAINER.replace("4f2d", "5f2d");
    let names: Vec<String> = [(CONTAINER, 20), (CONTAINER, 21), (other.as_str(), 22)]
        .into_iter()
        .map(|(cgroup, pid)| node.member(&within(cgroup, pid, 0), Hello::default()).1.name)
        .collect();
    assert_eq!(names[0], names[1]);
    assert_ne!(names[0], names[2]);
}

#[test]
fn a_secret_is_for_those_who_know_it() {
    let path = std::env::temp_dir().join(format!("gq-registry-secret-{}", std::process::id()));
    std::fs::write(&path, "0123456789abcdef0123\n").expect("writable");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let secret = quota_wire::Secret::read(&path).expect("long enough");
    let text = format!("tenants: [{{name: vision, memory: 4GiB, match: {{secret_file: {}}}}}]\n", path.display());
    let read = Document::parse(&text).and_then(Document::with_secrets).expect("legal");
    std::fs::remove_file(&path).expect("ours");
    let mut node = Node::new(1, "");
    node.registry.apply(&read, &mut Vec::new()).expect("it fits");
    // Whoever asks: a user, the node's root, and one who gives no name and might be covered.
    for (uid, hello) in [(7, named("vision")), (0, named("vision"))] {
        let (connection, actions) = node.hello(&peer(30 + uid, uid), hello.clone());
        assert!(refused(&actions, connection).expect("unknown").contains("has a secret"), "{actions:?}");
        node.member(&peer(40 + uid, uid), Hello { secret: Some(secret.clone()), ..hello });
    }
    assert_ne!(node.member(&peer(50, 7), Hello::default()).1.name, "vision");
    assert_eq!(node.member(&peer(51, 7), Hello { secret: Some(secret.clone()), ..Hello::default() }).1.name, "vision");
    assert!(node.refusal(7, admit("vision", "1GiB")).contains("has a secret"));
    assert!(node.refusal(7, admit("vision/part", "1GiB")).contains("has a secret"));
    let ask = Admit { tenant: Some("vision".to_owned()), secret: Some(secret.clone()), ..Admit::default() };
    let (connection, actions) = node.admit(7, ask);
    assert_eq!(granted(&actions), [(connection, "vision".to_owned())]);
    // A secret that could not be read is nobody's.
    let unread = MatchRule { secret_file: Some(path), ..MatchRule::default() };
    assert!(!unread.is_known(None) && !unread.is_known(Some(&secret)));
}
