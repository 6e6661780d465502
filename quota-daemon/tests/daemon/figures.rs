//! What the daemon costs, and how fast it answers: figures to be read, on a machine that does nothing else. Run with `--ignored --nocapture`.

use crate::node::{Node, admit, ask};
use crate::player::{Outside, Player};
use quota_wire::message::{Hello, Reply};
use quota_wire::page::Gate;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Memberships of one process.
const AT_A_TIME: usize = 8;

#[test]
#[ignore = "figures, not a claim"]
fn eight_that_share_a_device() {
    let node = Node::start("l4-24gb", &[]);
    let players: Vec<Player> = (0..8).map(|at| Player::join(&node, &format!("t{at}"), Hello::default())).collect();
    players.iter().for_each(Player::attach);
    let (begun, deadline) = (Instant::now(), Instant::now() + Duration::from_secs(5));
    let cpu_before = node.cpu();
    let switches = node.switches("arbiter");
    std::thread::scope(|scope| {
        for player in &players {
            scope.spawn(move || player.work(Duration::from_micros(200), deadline));
        }
    });
    let cpu = node.cpu() - cpu_before;
    let took = begun.elapsed().as_secs_f64();
    let used: Vec<u64> =
        players.iter().map(|player| player.usage().busy_ns.load(Ordering::Relaxed) / 1_000_000).collect();
    let per_second = (node.switches("arbiter") - switches) as f64 / took;
    println!("eight contended: {:.2} % of a core, {per_second:.0} wake-ups/s, ms each {used:?}", cpu / took * 100.0);
}

#[test]
#[ignore = "figures, not a claim"]
fn a_thousand_that_are_idle() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("up to the hard limit");
    let mut node = Node::bare();
    let document = node.folder.join("document.yaml");
    std::fs::write(&document, format!("audit: {{path: {}}}\n", node.folder.join("audit.jsonl").display()))
        .expect("writable");
    node.start_with("l4-24gb", &["--config", document.to_str().expect("ASCII")]);
    let tenants: Vec<String> = (0..1000).map(|at| format!("t{at}")).collect();
    let mut players: Vec<Outside> =
        tenants.chunks(AT_A_TIME).map(|tenants| Outside::join(&node, &tenants.join(" "))).collect();
    for player in &mut players {
        player.tell("attach");
    }
    // Until all but one are asked again at their next use.
    std::thread::sleep(Duration::from_secs(12));
    let (cpu, switches) = (node.cpu(), node.switches("arbiter"));
    std::thread::sleep(Duration::from_secs(10));
    let (cpu, switches) = (node.cpu() - cpu, node.switches("arbiter") - switches);
    println!(
        "a thousand idle: {:.2} % of a core, {switches} wake-ups of the arbiter in 10 s, {}",
        cpu * 10.0,
        node.resident()
    );
    hello_and_admission(&node);
    // And beside a thousand that rest, one that works is free.
    let one = Player::join(&node, "one", Hello::default());
    one.attach();
    one.pass(Instant::now() + Duration::from_secs(1));
    println!("one beside them: {:?} of {:?}", one.gate(), [Gate::Free, Gate::Open]);
}

/// From the connection to the quota, as a process and as `gpuquota run` have it, beside whoever is there. What was asked for is
/// given back each time.
fn hello_and_admission(node: &Node) {
    const TIMES: usize = 300;
    let mut times = [Vec::new(), Vec::new()];
    for at in 0..TIMES {
        let hello = node.hello_request(Some("newcomer"), None);
        let begun = Instant::now();
        let (connection, _, descriptors) = node.hello_as(&hello);
        times[0].push(begun.elapsed());
        drop((connection, descriptors));
        let begun = Instant::now();
        let connection = node.connect();
        assert!(matches!(ask(&connection, &admit(&format!("job{at}"), "1MiB", None)), Reply::Granted(_)));
        times[1].push(begun.elapsed());
    }
    for (what, times) in ["hello to quota", "admission"].into_iter().zip(&mut times) {
        times.sort();
        println!(
            "{what}: p50 {:?}, p99 {:?} (with the connection, {TIMES} times)",
            times[TIMES / 2],
            times[TIMES * 99 / 100]
        );
    }
}
