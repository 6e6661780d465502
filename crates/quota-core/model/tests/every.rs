//! Every interleaving of a few short processes, each killed in front of every step in turn.
//!
//! `LOOM_MAX_PREEMPTIONS=3 cargo test --release -p ledger-model --test every` looks deeper.

use ledger_model::every::ledger::SlotId;
use ledger_model::every::node::{Node, Process, device, slot, units};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Explores a scenario with up to so many preemptions; how many interleavings that were.
fn explore(preemptions: usize, scenario: impl Fn() + Send + Sync + 'static) -> usize {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        scenario();
    });
    count.load(Ordering::Relaxed)
}

/// Explores a scenario in which somebody has so many steps to live: none, one, two and so on, until they suffice.
/// The scenario says whether they did.
fn explore_deaths(name: &str, preemptions: usize, scenario: fn(u32) -> bool) {
    let mut count = 0;
    for steps in 0.. {
        let died = Arc::new(AtomicBool::new(false));
        let dies = died.clone();
        count += explore(preemptions, move || {
            if !scenario(steps) {
                dies.store(true, Ordering::Relaxed);
            }
        });
        if !died.load(Ordering::Relaxed) {
            println!("{name}: {count} interleavings, killed in front of {steps} steps");
            assert!(steps > 5, "somebody should have died");
            return;
        }
    }
}

/// Starts a process; true when it comes to its end.
fn start(node: &Arc<Node>, steps: Option<u32>, script: impl Fn(&Process<'_>) + 'static) -> JoinHandle<bool> {
    let node = node.clone();
    thread::spawn(move || node.run(steps, script))
}

/// Starts a process in a slot of its own.
fn start_at(
    node: &Arc<Node>,
    slot: SlotId,
    steps: Option<u32>,
    script: impl Fn(&Process<'_>) + 'static,
) -> JoinHandle<bool> {
    node.ledger().occupy(slot, 1);
    start(node, steps, move |process| {
        process.join_at(slot, 1);
        script(process);
    })
}

fn end(process: JoinHandle<bool>) -> bool {
    process.join().expect("a failure ends the exploration")
}

/// All live to the end here.
fn report(name: &str, count: usize) {
    println!("{name}: {count} interleavings");
    assert!(count > 100, "only {count} interleavings: nothing was explored");
}

#[test]
fn two_processes_share_a_cap() {
    let count = explore(2, || {
        let node = Node::new(3);
        let script = |process: &Process<'_>| {
            if process.reserve(2) {
                process.check_own();
                process.free(2);
            }
            process.check_own();
        };
        let both = [0, 1].map(|index| start_at(&node, slot(index), None, script));
        assert!(both.map(end).iter().all(|ended| *ended));
        // Their stocks are still there, and are no reason to refuse.
        let third = start_at(&node, slot(2), None, |process| assert!(process.reserve_with_daemon(3)));
        assert!(end(third));
        node.check_at_the_end();
    });
    report("two processes", count);
}

#[test]
fn three_processes_share_a_cap() {
    let count = explore(1, || {
        let node = Node::new(2);
        let all = [0, 1, 2].map(|index| {
            start_at(&node, slot(index), None, |process| {
                process.reserve(1);
            })
        });
        assert!(all.map(end).iter().all(|ended| *ended));
        node.check_at_the_end();
    });
    report("three processes", count);
}

#[test]
fn threads_of_one_process_lose_nothing() {
    let count = explore(3, || {
        let node = Node::new(4);
        let ended = node.run(None, |process| {
            node.ledger().occupy(slot(0), 1);
            process.join_at(slot(0), 1);
            assert!(process.reserve_with_daemon(2));
            let left = Arc::new(AtomicU32::new(0));
            let of_process = |asked, script: fn(&Process<'_>)| {
                let left = left.clone();
                start(&node, None, move |thread| {
                    thread.join_as_thread(slot(0), asked);
                    script(thread);
                    left.fetch_add(thread.asked(), Ordering::Relaxed);
                })
            };
            let first = of_process(2, |thread| thread.free(1));
            let second = of_process(0, |thread| assert!(thread.reserve_with_daemon(2)));
            assert!(end(first) && end(second));
            assert_eq!(node.books.used_by(slot(0)), left.load(Ordering::Relaxed));
        });
        assert!(ended);
        node.check_at_the_end();
    });
    report("threads", count);
}

#[test]
fn a_process_may_die_anywhere() {
    explore_deaths("a process", 1, |steps| {
        let node = Node::new(4);
        let victim = start_at(&node, slot(0), Some(steps), |process| {
            if process.reserve(2) && process.reserve(1) {
                process.free(2);
            }
        });
        let other = start_at(&node, slot(1), None, |process| {
            if process.reserve(3) {
                process.check_own();
                process.free(2);
            }
            process.check_own();
        });
        let ended = end(victim);
        assert!(end(other));
        node.check_at_the_end();
        ended
    });
}

#[test]
fn who_sweeps_may_die_anywhere() {
    explore_deaths("a sweep", 2, |steps| {
        let node = Node::new(4);
        let dead = node.run(None, |process| {
            assert!(process.join(1) && process.reserve(3));
            node.ledger().add_overhead(process.slot(), device(), units(1));
            node.ledger().add_soft(process.slot(), device(), units(1));
        });
        assert!(dead);
        let victim = start(&node, Some(steps), |process| {
            assert!(process.join(2));
            process.reserve(3);
        });
        let other = start(&node, None, |process| {
            assert!(process.join(3));
            process.reserve(2);
            process.check_own();
        });
        let ended = end(victim);
        assert!(end(other));
        node.check_at_the_end();
        ended
    });
}

#[test]
fn a_lowered_cap_holds_for_whoever_asks_after() {
    let count = explore(2, || {
        let node = Node::new(4);
        let process = start_at(&node, slot(0), None, |process| {
            if process.reserve_with_daemon(3) {
                process.free(2);
                process.reserve_with_daemon(2);
            }
            process.reserve_with_daemon(1);
            process.free(process.asked());
        });
        let daemon = start(&node, None, |daemon| {
            daemon.publish(2);
            daemon.publish(4);
        });
        assert!(end(process) && end(daemon));
        node.check_at_the_end();
    });
    report("a cap that changes", count);
}

/// The refusal comes first: it must not make the process believe that its old stock was granted anew.
#[test]
fn what_is_freed_under_a_lowered_cap_is_not_charged_again() {
    let count = explore(2, || {
        let node = Node::new(4);
        let daemon = start(&node, None, |daemon| daemon.publish(2));
        let process = start_at(&node, slot(0), None, |process| {
            if process.reserve_with_daemon(4) {
                process.reserve_with_daemon(1);
                process.free(4);
                process.reserve_with_daemon(4);
            }
            process.free(process.asked());
        });
        assert!(end(daemon) && end(process));
        node.check_at_the_end();
    });
    report("a refusal under a lowered cap", count);
}

/// A process takes memory that nobody asked for and lets it go again, and both it and the daemon book that.
fn with_overhead(settles: bool, daemon_steps: Option<u32>) -> bool {
    let node = Node::new(4);
    let mut daemon_ended = false;
    let ended = node.run(None, |process| {
        node.ledger().occupy(slot(0), 1);
        process.join_at(slot(0), 1);
        let daemon = start(&node, daemon_steps, |daemon| {
            daemon.correct(slot(0));
            daemon.correct(slot(0));
        });
        assert!(process.reserve_with_daemon(1));
        process.set_unasked(2);
        if settles {
            process.settle();
        }
        process.free(1);
        process.set_unasked(1);
        if settles {
            process.settle();
        }
        daemon_ended = end(daemon);
        process.settle();
        let (used, overhead) = (node.books.used_by(slot(0)), node.books.overhead(slot(0)));
        assert!(used >= overhead, "{overhead} are overhead, and only {used} charged");
        if daemon_ended {
            assert_eq!((used, overhead), (1, 1), "what is held is charged, once");
        }
    });
    assert!(ended);
    node.check_at_the_end();
    daemon_ended
}

#[test]
fn process_and_daemon_never_book_the_same_memory_twice() {
    let count = explore(2, || assert!(with_overhead(true, None)));
    report("overhead", count);
}

#[test]
fn a_daemon_may_die_while_it_books() {
    explore_deaths("a daemon", 2, |steps| with_overhead(false, Some(steps)));
}

#[test]
fn a_process_may_die_while_it_books() {
    explore_deaths("a process that books", 1, |steps| {
        let node = Node::new(4);
        let process = start_at(&node, slot(0), Some(steps), |process| {
            process.reserve(1);
            process.set_unasked(1);
            process.settle();
            process.set_unasked(0);
            process.settle();
        });
        let other = start_at(&node, slot(1), None, |process| {
            if process.reserve(3) {
                process.check_own();
            }
        });
        let ended = end(process);
        assert!(end(other));
        node.check_at_the_end();
        ended
    });
}

/// Memory that is held already is charged whatever the cap, and until it is gone nothing else fits.
#[test]
fn forced_charges_make_nobody_else_exceed_the_cap() {
    let count = explore(2, || {
        let node = Node::new(4);
        let process = start_at(&node, slot(0), None, |process| {
            process.set_unasked(2);
            process.settle();
            process.set_unasked(0);
            process.settle();
            process.reserve(2);
            process.free(process.asked());
        });
        let other = start_at(&node, slot(1), None, |process| {
            if process.reserve(2) {
                process.free(2);
                process.reserve(3);
            }
        });
        assert!(end(process) && end(other));
        node.check_at_the_end();
    });
    report("forced charges", count);
}

/// A checkpointed process is set aside and comes back; whoever sees to that may die, and another does it again.
#[test]
fn a_checkpoint_may_be_interrupted_anywhere() {
    explore_deaths("a checkpoint", 2, |steps| {
        let node = Node::new(4);
        let mut parker_ended = false;
        let ended = node.run(None, |process| {
            assert!(process.join(1) && process.reserve(2));
            let other = start(&node, None, |other| {
                assert!(other.join(2));
                if other.reserve(3) {
                    other.check_own();
                    other.free(3);
                }
            });
            let slot = process.slot();
            let parker = start(&node, Some(steps), move |parker| {
                parker.park(slot);
                parker.restore(slot);
                parker.park(slot);
            });
            parker_ended = end(parker);
            assert!(end(other));
            process.park(slot);
            let set_aside = (node.books.used_by(slot), node.ledger().parked(slot, device()));
            assert_eq!(set_aside, (0, units(2)), "set aside, all of it and once");
            process.restore(slot);
            process.check_own();
            assert_eq!(node.ledger().parked(slot, device()), units(0));
        });
        assert!(ended);
        node.check_at_the_end();
        parker_ended
    });
}

#[test]
fn who_makes_a_ledger_may_die_anywhere() {
    explore_deaths("a new ledger", 2, |steps| {
        let node = Node::new(4);
        let makers = [Some(steps), None].map(|steps| start(&node, steps, |process| process.make([7; 16])));
        let [ended, other] = makers.map(end);
        assert!(other);
        ended
    });
}
