//! Many random interleavings of longer lives: processes that come, charge, die and come again, beside a daemon
//! that changes the cap, books overhead and buries the dead.
//!
//! The seed is fixed; `SHUTTLE_RANDOM_SEED` names another. A failure prints its own, and the schedule.

use ledger_model::many::ledger::SlotId;
use ledger_model::many::node::{Node, Process, slot};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, Runner};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// In units; three processes of up to four units each don't fit.
const CAP: u64 = 8;
/// Interleavings of each kind.
const RUNS: usize = 2_000;
const SEED: u64 = 20_261_129;
/// For the tests that preempt rarely: most errors need no more, and show sooner.
const PREEMPTIONS: usize = 4;
/// A doomed process dies within so many steps.
const STEPS_MAX: u32 = 150;

fn explore(scheduler: impl Scheduler + 'static, scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::default();
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(scenario);
}

/// The steps of a life: every second process is doomed.
fn lot() -> Option<u32> {
    let mut random = thread_rng();
    random.gen_bool(0.5).then(|| random.gen_range(0..STEPS_MAX))
}

/// Asks and frees at random, and frees all that is left.
fn live(process: &Process<'_>, reserve: fn(&Process<'_>, u32) -> bool) {
    for _ in 0..4 {
        let asked = process.asked();
        if asked > 0 && thread_rng().gen_bool(0.4) {
            process.free(thread_rng().gen_range(1..=asked));
        } else {
            reserve(process, thread_rng().gen_range(1..=4));
        }
    }
    process.free(process.asked());
}

/// No daemon: processes find their slots, and bury each other.
fn among_themselves() {
    let node = Node::new(CAP);
    let lives = || {
        let node = node.clone();
        thread::spawn(move || {
            for pid in 1..=2 {
                node.run(lot(), |process| {
                    if process.join(pid) {
                        live(process, |process, amount| {
                            let charged = process.reserve(amount);
                            process.check_own();
                            charged
                        });
                        process.check_own();
                    }
                });
            }
        })
    };
    let threads = [lives(), lives(), lives()];
    for thread in threads {
        thread.join().expect("a failure ends the exploration");
    }
    node.check_at_the_end();
}

/// A process under a daemon.
struct Child {
    thread: JoinHandle<()>,
    has_ended: Arc<AtomicBool>,
}

/// The daemon's part of a start, then the process's: it also has memory that nobody asked for.
fn start(node: &Arc<Node>, slot: SlotId) -> Child {
    node.ledger().occupy(slot, 1);
    let has_ended = Arc::new(AtomicBool::new(false));
    let (node, ends) = (node.clone(), has_ended.clone());
    let thread = thread::spawn(move || {
        node.run(lot(), |process| {
            process.join_at(slot, 2);
            process.set_unasked(thread_rng().gen_range(0..=2));
            live(process, |process, amount| {
                if thread_rng().gen_bool(0.3) {
                    process.settle();
                }
                process.reserve_with_daemon(amount)
            });
            process.set_unasked(0);
            process.settle();
        });
        ends.store(true, Ordering::Relaxed);
    });
    Child { thread, has_ended }
}

/// The daemon hands out the slots, changes the cap, books overhead, and buries the dead, who give place to others.
fn under_a_daemon() {
    let node = Node::new(CAP);
    let ended = node.run(None, |daemon| {
        let mut children = [0, 1, 2].map(|index| start(&node, slot(index)));
        for _ in 0..10 {
            let index = thread_rng().gen_range(0..children.len());
            let place = slot(index as u32);
            match thread_rng().gen_range(0..4) {
                0 => daemon.publish(thread_rng().gen_range(CAP / 2..=CAP)),
                1 => daemon.correct(place),
                _ if children[index].has_ended.load(Ordering::Relaxed) => {
                    node.ledger().vacate(place);
                    children[index] = start(&node, place);
                }
                _ => thread::yield_now(),
            }
        }
        for child in children {
            child.thread.join().expect("a failure ends the exploration");
        }
    });
    assert!(ended);
    node.check_at_the_end();
}

#[test]
fn processes_among_themselves_in_random_order() {
    explore(RandomScheduler::new_from_seed(SEED, RUNS), among_themselves);
}

#[test]
fn processes_among_themselves_with_few_preemptions() {
    explore(PctScheduler::new_from_seed(SEED, PREEMPTIONS, RUNS), among_themselves);
}

#[test]
fn processes_under_a_daemon_in_random_order() {
    explore(RandomScheduler::new_from_seed(SEED, RUNS), under_a_daemon);
}

#[test]
fn processes_under_a_daemon_with_few_preemptions() {
    explore(PctScheduler::new_from_seed(SEED, PREEMPTIONS, RUNS), under_a_daemon);
}
