//! Transparency: under a quota that never bites, random calls, right and wrong ones, have the results, the outputs and the effects
//! that they have without the shim, call by call.
//!
//! A failure names the seed of the sequence; `CHAOS_SEED` runs that one alone, `CHAOS_SEQUENCES` so many from there on.

use harness::{Asked, Job, Machine, asked, program};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SPEC: &str = "2xt4-16gb";
const CALLS: u64 = 300;
const SEQUENCES: u64 = 300;
const TRIMS: [&str; 2] = ["cuMemPoolTrimTo", "cuDeviceGraphMemTrim"];

/// What one run printed and asked of the driver.
struct Seen {
    out: String,
    asked: Vec<Asked>,
}

fn run(seed: u64, job: impl Fn(&Machine) -> Job) -> Seen {
    let machine = Machine::new(SPEC);
    let job = job(&machine).arg(seed.to_string()).arg(CALLS.to_string());
    let done = job.env("CHAOS_COMPARE", "1").env("FAKE_CUDA_CONTEXT", "24MiB").journalled().run();
    assert_eq!((done.status, done.err.as_str()), (0, ""), "sequence {seed}\n{}", done.out);
    let mut asked = asked(&machine.journal());
    // Before a refusal the shim trims the process's pools. What the program itself trims is in its output.
    asked.iter_mut().for_each(|calls| calls.retain(|(function, _)| !TRIMS.contains(&function.as_str())));
    Seen { asked, out: done.out }
}

/// The first line, and the first call of the driver, that differ.
fn difference(bare: &Seen, ours: &Seen) -> Option<String> {
    let lines = |seen: &Seen| seen.out.lines().map(str::to_owned).collect::<Vec<_>>();
    if let Some(found) = first_difference(&lines(bare), &lines(ours)) {
        return Some(found);
    }
    if bare.asked.len() != ours.asked.len() {
        return Some(format!("{} processes called the driver, and {} did", bare.asked.len(), ours.asked.len()));
    }
    bare.asked.iter().zip(&ours.asked).find_map(|(bare, ours)| first_difference(bare, ours))
}

fn first_difference<T: PartialEq + std::fmt::Debug>(bare: &[T], ours: &[T]) -> Option<String> {
    let at = bare.iter().zip(ours).position(|(bare, ours)| bare != ours).unwrap_or(bare.len().min(ours.len()));
    if at == bare.len() && at == ours.len() {
        return None;
    }
    let near = |side: &[T]| format!("{:?}", &side[at.saturating_sub(2)..side.len().min(at + 2)]);
    Some(format!("at {at}:\n  bare {}\n  ours {}", near(bare), near(ours)))
}

fn compare(seed: u64) -> Option<String> {
    let bare = run(seed, |machine| machine.bare(program("chaos")));
    let ours = run(seed, |machine| machine.job(program("chaos")).memory("100%").env("GPUQUOTA_LOG", "off"));
    difference(&bare, &ours).map(|found| format!("CHAOS_SEED={seed} {found}"))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_calls_have_the_drivers_results_and_effects() {
    let first = number("CHAOS_SEED").unwrap_or(1);
    let count = number("CHAOS_SEQUENCES").unwrap_or(if number("CHAOS_SEED").is_some() { 1 } else { SEQUENCES });
    let (next, found) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                break;
            }
            found.lock().expect("no thread panics with it").extend(compare(seed));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().expect("all threads have ended");
    found.sort();
    assert!(found.is_empty(), "{} of {count} sequences differ:\n{}", found.len(), found.join("\n"));
}
