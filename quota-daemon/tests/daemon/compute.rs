//! Who may launch when, as processes see it.

use crate::node::{Node, ask, eventually, text};
use crate::player::{Outside, Player, now_ns};
use quota_core::Percent;
use quota_wire::message::{Change, DeviceAsk, Hello, Reply, Request};
use quota_wire::page::Gate;
use rustix::process::Signal;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const MS: u64 = 1_000_000;
/// Far more than the daemon takes for what it does at once, on a machine that is busy with other tests.
const SOON: Duration = Duration::from_millis(500);

fn weighing(weight: u32) -> Hello {
    Hello { weight: Some(weight), ..Hello::default() }
}

fn capped(percent: u32) -> Hello {
    Hello { devices: vec![DeviceAsk { compute: Some(percent * 100), ..DeviceAsk::default() }], ..Hello::default() }
}

fn apply(node: &Node, document: &str) {
    let reply = ask(&node.administer(), &Request::Apply { document: document.to_owned() });
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
}

/// A tenant that has the token, and one that waits for it; turns end when their holder has nothing to do.
fn holder_and_waiter(node: &Node) -> (Player, Player) {
    apply(node, "scheduling: {policy: fifo}\n");
    let (a, b) = (Player::join(node, "a", Hello::default()), Player::join(node, "b", Hello::default()));
    a.attach();
    a.until(Gate::Free);
    b.attach();
    a.until(Gate::Open);
    a.begin(now_ns() + 1000 * MS, false);
    b.want();
    b.until(Gate::Closed);
    (a, b)
}

#[test]
fn one_alone_is_free_and_two_take_turns() {
    let node = Node::start("l4-24gb", &[]);
    let (a, b) = holder_and_waiter(&node);
    eventually("it is kept short, since somebody waits", || a.page.ahead_us(a.place) == 1000);
    assert_eq!((a.gate(), b.gate()), (Gate::Open, Gate::Closed));
    // Idle: the other has its turn, and keeps it while nobody else wants it.
    a.end(MS);
    a.poke();
    b.until(Gate::Open);
    b.begin(now_ns() + MS, false);
    assert_eq!(a.gate(), Gate::Closed);
    b.end(MS);
    a.want();
    b.poke();
    a.until(Gate::Open);
    drop(b);
}

#[test]
fn a_cap_has_use_counted_also_when_it_is_alone() {
    let node = Node::start("l4-24gb", &[]);
    let a = Player::join(&node, "a", capped(30));
    assert_eq!(a.page.quota(a.place).compute_cap, Percent::from_hundredths(3000));
    a.attach();
    a.want();
    a.until(Gate::Open);
    assert_eq!(a.page.ahead_us(a.place), 5000, "nobody else wants the device");
}

/// All of the device's time is no cap: who may have that, and is alone, is free of all counting, also if he may borrow more of it.
#[test]
fn a_cap_of_all_is_none() {
    for borrows in [false, true] {
        let node = Node::start("l4-24gb", &[]);
        apply(&node, &format!("tenants: [{{name: lab, compute: {{limit: 100%}}, borrow: {borrows}}}]\n"));
        for tenant in ["a", "lab"] {
            let a = Player::join(&node, tenant, if tenant == "a" { capped(100) } else { Hello::default() });
            a.attach();
            a.want();
            a.until(Gate::Free);
        }
    }
}

#[test]
fn who_is_not_sure_is_waited_for_and_who_is_sure_is_followed_closely() {
    let node = Node::start("l4-24gb", &[]);
    apply(&node, "scheduling: {policy: fair, quantum: 1ms}\n");
    let (a, b) = (Player::join(&node, "a", capped(90)), Player::join(&node, "b", capped(90)));
    let takes = |sure: bool, for_ns: u64| {
        for player in [&a, &b] {
            player.end(0);
            player.usage().waiting.store(0, Ordering::Release);
            player.poke();
        }
        std::thread::sleep(Duration::from_millis(5));
        a.attach();
        a.want();
        a.until(Gate::Open);
        let begun = now_ns();
        a.begin(begun + for_ns, sure);
        b.attach();
        b.want();
        while b.gate() != Gate::Open {
            assert!(now_ns() - begun < SOON.as_nanos() as u64, "it never comes");
            std::hint::spin_loop();
        }
        let took_ns = now_ns() - begun;
        // Who never goes through is soon taken for one that is stopped.
        b.begin(now_ns(), false);
        b.end(0);
        took_ns
    };
    // Of several tries one: another test may have the processor.
    let sure: Vec<u64> = (0..20).map(|_| takes(true, 8 * MS)).take_while(|took_ns| *took_ns >= 16 * MS).collect();
    assert!(sure.len() < 20, "{sure:?}");
    let unsure = (0..3).map(|_| takes(false, 8 * MS)).min().expect("some");
    assert!(unsure >= 24 * MS, "it is late and runs: the next comes in after the longest wait: {unsure}");
}

#[test]
fn a_holder_that_is_killed_is_replaced_at_once() {
    let node = Node::start("l4-24gb", &[]);
    apply(&node, "scheduling: {policy: fifo}\n");
    let b = Player::join(&node, "b", capped(90));
    b.attach();
    // Of one tenant a process is left, the others end with the one that is killed.
    let _stays = Player::join(&node, "stays", Hello::default());
    let mut best = [Duration::MAX; 2];
    for round in 0..8 {
        let kind = round % 2;
        let name = if kind == 0 { "stays".to_owned() } else { format!("a{round}") };
        let mut a = Outside::join(&node, &name);
        a.tell("attach");
        a.tell("want");
        a.tell("open");
        a.tell("begin 1000000000");
        b.want();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(b.gate(), Gate::Closed);
        let begun = Instant::now();
        a.signal(Signal::KILL);
        while !matches!(b.gate(), Gate::Open | Gate::Free) {
            assert!(begun.elapsed() < SOON, "it waits for the dead");
        }
        best[kind] = best[kind].min(begun.elapsed());
        b.begin(now_ns(), false);
        b.end(0);
        b.poke();
    }
    println!("from kill to grant: {best:?}");
    assert!(best.iter().all(|best| *best < Duration::from_millis(10)), "{best:?}");
}

#[test]
fn a_holder_that_is_stopped_is_replaced_and_asks_again() {
    let node = Node::start("l4-24gb", &[]);
    apply(&node, "scheduling: {quantum: 1ms}\n");
    let b = Player::join(&node, "b", capped(90));
    let mut a = Outside::join(&node, "a");
    for order in ["attach", "want"] {
        a.tell(order);
    }
    b.attach();
    assert_eq!(a.tell("open"), "Open");
    // Unsure of what it has under way, and stopped: after its own word for it, not after the longest wait.
    a.tell("begin 4000000");
    b.want();
    a.signal(Signal::STOP);
    b.until(Gate::Open);
    b.begin(now_ns() + 1000 * MS, false);
    a.signal(Signal::CONT);
    a.tell("end");
    assert_eq!(a.tell("want"), "Closed");
    b.end(50 * MS);
    b.poke();
    assert_eq!(a.tell("open"), "Open");
}

#[test]
fn a_waiter_that_is_stopped_holds_nobody_up() {
    let node = Node::start("l4-24gb", &[]);
    let mut a = Outside::join(&node, "a");
    a.tell("attach");
    let b = Player::join(&node, "b", Hello::default());
    b.attach();
    a.tell("want");
    a.signal(Signal::STOP);
    let begun = Instant::now();
    let busy_before = b.usage().busy_ns.load(Ordering::Relaxed);
    b.work(Duration::from_micros(500), begun + Duration::from_millis(600));
    let busy = b.usage().busy_ns.load(Ordering::Relaxed) - busy_before;
    let share = busy as f64 / begun.elapsed().as_nanos() as f64;
    assert!(share > 0.6, "{share}");
}

#[test]
fn shares_follow_the_weights_and_a_change_acts_at_once() {
    let node = Node::start("l4-24gb", &[]);
    let (a, b) = (Player::join(&node, "a", weighing(300)), Player::join(&node, "b", weighing(100)));
    a.attach();
    b.attach();
    let share_of_a = || {
        let before = [&a, &b].map(|player| player.usage().busy_ns.load(Ordering::Relaxed));
        let deadline = Instant::now() + Duration::from_millis(1500);
        std::thread::scope(|scope| {
            for player in [&a, &b] {
                scope.spawn(move || player.work(Duration::from_micros(300), deadline));
            }
        });
        let used = [&a, &b].map(|player| player.usage().busy_ns.load(Ordering::Relaxed));
        let used = [used[0] - before[0], used[1] - before[1]];
        // Who waits is woken when it is his turn, and not some time later.
        assert!(used[0] + used[1] > 600 * MS, "{used:?}");
        used[0] as f64 / (used[0] + used[1]) as f64
    };
    let share = share_of_a();
    assert!((0.69..0.81).contains(&share), "{share}");
    let change = Change { tenant: "b".to_owned(), weight: Some(900), ..Change::default() };
    assert!(matches!(ask(&node.administer(), &Request::Set(change)), Reply::Done { .. }));
    let share = share_of_a();
    assert!((0.19..0.31).contains(&share), "{share}");
}

#[test]
fn a_pause_closes_the_gate_and_its_end_opens_it() {
    let node = Node::start("l4-24gb", &[]);
    let (a, b) = (Player::join(&node, "a", Hello::default()), Player::join(&node, "b", Hello::default()));
    a.attach();
    a.until(Gate::Free);
    let gpuquota = |arguments: &[&str]| {
        let output = node.gpuquota(arguments).output().expect("it runs");
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    assert!(gpuquota(&["pause", "a"]).0);
    assert_eq!(a.gate(), Gate::Closed, "it is closed when it is answered, or a moment later");
    let (done, said) = gpuquota(&["pause", "a"]);
    assert!(done && said.contains("paused already"), "{said}");
    let (done, said) = gpuquota(&["pause", "nobody"]);
    assert!(!done && said.contains("there is no tenant \"nobody\"") && said.lines().count() == 1, "{said}");
    assert!(node.processes().iter().any(|row| row.tenant == "a" && row.state == "paused"));
    // Whoever waits in a pause sees that somebody looks after him, and another one is served meanwhile.
    a.want();
    b.attach();
    b.want();
    b.until(Gate::Open);
    let before = a.page.heartbeat_ns();
    eventually("the heart beats", || a.page.heartbeat_ns() > before);
    b.begin(now_ns(), false);
    b.end(0);
    b.poke();
    assert!(gpuquota(&["resume", "a"]).0);
    a.until(Gate::Open);
    let (done, said) = gpuquota(&["resume", "a"]);
    assert!(done && said.contains("not paused"), "{said}");
}

#[test]
fn a_heart_beats_only_while_somebody_waits_or_shares() {
    let node = Node::start("l4-24gb", &[]);
    let a = Player::join(&node, "a", Hello::default());
    a.attach();
    a.until(Gate::Free);
    std::thread::sleep(Duration::from_millis(250));
    let (beat, switches) = (a.page.heartbeat_ns(), node.switches("arbiter"));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!((a.page.heartbeat_ns(), node.switches("arbiter")), (beat, switches), "it is alone");
    let b = Player::join(&node, "b", Hello::default());
    b.attach();
    a.until(Gate::Open);
    a.begin(now_ns() + 5000 * MS, false);
    b.want();
    let begun = now_ns();
    for _ in 0..3 {
        let before = b.page.heartbeat_ns();
        eventually("the heart beats", || b.page.heartbeat_ns() > before);
    }
    assert!(now_ns() - begun < 3 * SOON.as_nanos() as u64);
    drop((a, b));
}

#[test]
fn a_policy_is_changed_live() {
    let node = Node::start("l4-24gb", &[]);
    let (a, b) = holder_and_waiter(&node);
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(b.gate(), Gate::Closed, "first come, first served, to the end");
    apply(&node, "scheduling: {policy: fair, quantum: 2ms}\n");
    b.until(Gate::Open);
    assert_eq!(a.gate(), Gate::Closed);
}

#[test]
fn a_hostile_page_and_a_flood_of_pokes_hurt_nobody_else() {
    let node = Node::start("l4-24gb", &[]);
    let evil = Player::join(&node, "evil", Hello::default());
    let (a, b) = (Player::join(&node, "a", Hello::default()), Player::join(&node, "b", Hello::default()));
    for player in [&evil, &a, &b] {
        player.attach();
    }
    let deadline = Instant::now() + Duration::from_millis(1500);
    let used = std::thread::scope(|scope| {
        scope.spawn(|| {
            let usage = evil.usage();
            for step in 0u64.. {
                let value = [0, 1, u64::MAX, u64::MAX - 1, now_ns(), step][(step % 6) as usize];
                usage.submitted.store(value, Ordering::Relaxed);
                usage.completed.store(step, Ordering::Relaxed);
                usage.until_ns.store(value, Ordering::Relaxed);
                usage.busy_ns.store(u64::MAX - value, Ordering::Relaxed);
                usage.passed_at_ns.store(value, Ordering::Relaxed);
                usage.waiting.store(step as u32, Ordering::Relaxed);
                usage.sure.store(step as u32, Ordering::Relaxed);
                let _ = rustix::io::write(evil.poke_descriptor(), &1u64.to_ne_bytes());
                if step % 64 == 0 {
                    let _ = rustix::io::read(evil.poke_descriptor(), &mut [0u8; 8]);
                    std::thread::sleep(Duration::from_micros(50));
                }
                if Instant::now() >= deadline {
                    return;
                }
            }
        });
        for player in [&a, &b] {
            scope.spawn(move || player.work(Duration::from_micros(300), deadline));
        }
        std::thread::sleep(deadline - Instant::now());
        [&a, &b].map(|player| player.usage().busy_ns.load(Ordering::Relaxed) / MS)
    });
    // A third each, less what hand-overs cost beside one who says nothing that is true.
    assert!(used.iter().all(|used_ms| *used_ms > 150), "{used:?}");
    assert!(matches!(ask(&node.connect(), &Request::About), Reply::About(_)));
    // An honest pair goes on as if nothing had been.
    drop(evil);
    a.work(Duration::from_micros(300), Instant::now() + Duration::from_millis(100));
}

#[test]
fn what_was_said_outlives_the_daemon() {
    let mut node = Node::start("l4-24gb", &[]);
    let (mut a, mut b) = (Outside::join(&node, "a"), Outside::join(&node, "b"));
    for player in [&mut a, &mut b] {
        player.tell("attach");
    }
    let change = Change { tenant: "a".to_owned(), weight: Some(777), compute: Some(5000), ..Change::default() };
    assert!(matches!(ask(&node.administer(), &Request::Set(change)), Reply::Done { .. }));
    let paused = ask(&node.administer(), &Request::Pause { tenant: "b".to_owned() });
    assert!(matches!(paused, Reply::Done { .. }), "{paused:?}");
    node.restart("l4-24gb");
    let row = |tenant: &str| node.processes().into_iter().find(|row| row.tenant == tenant).expect("taken back");
    assert_eq!((row("a").weight, row("a").compute_cap_percent, row("b").state.as_str()), (777, Some(50.0), "paused"));
    for player in [&mut a, &mut b] {
        let gate = player.tell("rejoin");
        assert!(["Closed", "Open"].contains(&gate.as_str()), "{gate}");
    }
    // Through the eventfds of the new daemon.
    a.tell("want");
    assert_eq!(a.tell("open"), "Open");
    assert_eq!(b.tell("want"), "Closed");
    a.tell("begin 0");
    a.tell("end");
    assert_eq!(a.tell("poke"), "Open");
    assert!(matches!(ask(&node.administer(), &Request::Resume { tenant: "b".to_owned() }), Reply::Done { .. }));
    assert_eq!(b.tell("open"), "Open");
}

#[test]
fn what_each_got_and_who_waits_is_shown() {
    let node = Node::start("l4-24gb", &[]);
    let (a, b) = (Player::join(&node, "a", weighing(300)), Player::join(&node, "b", weighing(100)));
    for player in [&a, &b] {
        player.attach();
    }
    let deadline = Instant::now() + Duration::from_millis(2600);
    std::thread::scope(|scope| {
        for player in [&a, &b] {
            scope.spawn(move || player.work(Duration::from_micros(300), deadline));
        }
        b.usage().waited_ns.store(1_500 * MS, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2200));
        let rows = node.processes();
        let percent = |tenant: &str| {
            let row = rows.iter().find(|row| row.tenant == tenant).expect("shown");
            row.compute_used_percent.expect("it is measured")
        };
        let ratio = percent("a") / (percent("a") + percent("b"));
        assert!((0.65..0.85).contains(&ratio), "{rows:?}");
        let waited = rows.iter().find(|row| row.tenant == "b").expect("shown").compute_waited_seconds;
        assert!((waited - 1.5).abs() < 1e-9, "{waited}");
        let device = &node.devices()[0];
        eventually("both want it at one time", || node.devices()[0].compute_contended_jobs == 2);
        let used = device.compute_used_percent.expect("measured");
        assert!((percent("a") + percent("b") - used).abs() < 40.0 && used <= 100.0, "{used}");
        assert!(["a", "b"].contains(&device.compute_holder.as_deref().unwrap_or("a")));
    });
}

/// Without any compute quota, and with nobody else there: what the driver says.
#[test]
fn what_one_alone_got_is_shown_without_any_quota() {
    let node = Node::start("l4-24gb", &[]);
    let machine = fake_machine::Machine::open("l4-24gb", &node.folder.join("state")).expect("the node's machine");
    let a = Player::join(&node, "a", Hello::default());
    a.attach();
    a.until(Gate::Free);
    let slot = machine.context_opened(0);
    machine.submit(&slot, 3_600_000 * MS);
    let percent = || node.processes().iter().find(|row| row.tenant == "a").and_then(|row| row.compute_used_percent);
    eventually("it is busy all the time", || percent() == Some(100.0));
    assert_eq!(node.devices()[0].compute_used_percent, Some(100.0));
}
