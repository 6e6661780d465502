//! Managed memory of several processes: it makes room for what can't be moved, and comes back when it is used.

use super::process::{Process, Scratch};

const GIB: u64 = 1 << 30;

#[test]
fn managed_memory_makes_room_and_comes_back() {
    let scratch = Scratch::new();
    let machine = scratch.open();
    let (mut one, mut two) = (Process::start(&scratch), Process::start(&scratch));
    assert_eq!(one.tell("managed 50"), "50 50");
    assert_eq!(two.tell("managed 50"), "50 0", "no room: it begins on the host");
    assert_eq!(two.tell("use"), "50 50", "used: the other's goes to the host");
    let used = machine.devices()[0].total_bytes - machine.devices()[0].reserved_bytes;
    assert!(machine.used_by_self(0) == 0 && machine.used(0) <= machine.devices()[0].total_bytes);
    let rest = used / GIB - 50;
    assert_eq!(one.tell("look"), format!("50 {rest}"), "as much as has to");
    // Memory that can't be moved has precedence, whosever it is.
    machine.take(0, 70 * GIB).unwrap();
    let [here_one, here_two] = [one.tell("look"), two.tell("look")]
        .map(|shown| shown.split(' ').nth(1).and_then(|gib| gib.parse::<u64>().ok()).expect("a number"));
    assert!(here_one + here_two <= used / GIB - 70, "{here_one} and {here_two}");
    let refused = machine.take(0, 70 * GIB).unwrap_err();
    assert_eq!(refused.requested_bytes, 70 * GIB, "more than there is without them");
    assert_eq!([one.tell("look"), two.tell("look")].map(|shown| shown.starts_with("50 ")), [true; 2]);
    // What is given back is first what lies on the host.
    assert_eq!(one.tell("unmanaged 49"), format!("1 {}", here_one.min(1)));
    machine.give(0, 70 * GIB);
    assert_eq!(two.tell("use"), "50 50");
    two.kill();
    assert_eq!(one.tell("use"), "1 1");
    assert_eq!(machine.used(0) - machine.devices()[0].reserved_bytes, GIB, "the dead leave nothing");
    one.kill();
}
