//! What the shim costs: nanoseconds a call, direct and through it, in one run. `cargo bench --bench overhead`.
//!
//! Absolute figures depend on the machine and on the simulated driver's own speed; what counts is the difference
//! in one row, and its target (design section 9).

use harness::{Machine, program, shim};
use std::process::Command;
use std::time::Instant;

const QUOTA: &str = "10GiB";
/// Starts of a program whose median is taken.
const STARTS: usize = 201;

fn main() {
    println!("{:<34} {:>10} {:>10} {:>10}   target", "call", "direct ns", "shim ns", "over ns");
    let row_under = |settings: &[(&str, &str)], processes: usize, name: &str, words: &[&str], target: &str| {
        let machine = Machine::new("a100-80gb");
        // Others of the tenant, each with a block of its own, that do nothing meanwhile.
        let start = |_| {
            let mut other = machine.probe("linked").memory(QUOTA).words("init ctx linear:a=1M say=ready wait").start();
            other.until("ready");
            other
        };
        let others: Vec<_> = (1..processes).map(start).collect();
        let measure = |job: harness::Job| -> f64 {
            let done = words.iter().fold(job, |job, word| job.arg(word)).run();
            assert_eq!(done.status, 0, "{done:?}");
            done.out.trim().parse().expect("a number")
        };
        // Alternating, and the better of three each, since other work on the machine only ever adds.
        let (mut direct, mut through) = (f64::MAX, f64::MAX);
        for _ in 0..3 {
            direct = direct.min(measure(machine.bare(program("bench"))));
            let job = machine.job(program("bench")).memory(QUOTA);
            through = through.min(measure(settings.iter().fold(job, |job, (name, value)| job.env(name, value))));
        }
        println!("{name:<34} {direct:>10.1} {through:>10.1} {:>10.1}   {target}", through - direct);
        others.into_iter().for_each(harness::Running::kill);
    };
    let row_among = |processes: usize, name: &str, words: &[&str], target: &str| {
        row_under(&[], processes, name, words, target);
    };
    let row = |name: &str, words: &[&str], target: &str| row_among(1, name, words, target);
    row("cuLaunchKernel", &["launch"], "<= 20 ns over");
    row_under(&[("GPUQUOTA_COMPUTE", "99")], 1, "cuLaunchKernel, counted", &["launch"], "<= 150 ns over");
    row("cuMemAlloc + cuMemFree", &["pair"], "<= 150 ns over");
    row("the same, 4 MiB blocks", &["pair-large"], "<= 150 ns over");
    row("the same, 100,000 live", &["pair", "100000"], "<= 150 ns over");
    row("the same, 1,000,000 live", &["pair", "1000000"], "<= 150 ns over");
    row_among(64, "the same, 64 processes", &["pair"], "<= 150 ns over");
    row("cuMemGetInfo", &["info"], "<= 50 ns over");
    row("cuGetProcAddress", &["resolve"], "<= 2 x direct");
    let (bare, ours) = (start_us(false), start_us(true));
    println!(
        "{:<34} {:>8.1} us {:>8.1} us {:>8.1} us   <= 100 us over",
        "start of a program without CUDA",
        bare,
        ours,
        ours - bare
    );
}

/// Median microseconds of running a program that does nothing.
fn start_us(preload: bool) -> f64 {
    let mut times: Vec<f64> = (0..STARTS)
        .map(|_| {
            let mut command = Command::new("/bin/true");
            command.env_clear();
            if preload {
                command.env("LD_PRELOAD", shim());
            }
            let start = Instant::now();
            assert!(command.status().expect("it runs").success());
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[STARTS / 2]
}
