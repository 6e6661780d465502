//! Pacing isn't seen: under a compute cap, with launches counted and made to wait, programs are answered as they are without us.
//! The programs are those of the simulated driver, which check what they are answered.

use harness::{Job, Machine, program};

fn run(job: Job, name: &str) -> String {
    let done = job.env("FAKE_CUDA_VERSION", "13020").run();
    let failed: Vec<&str> = done.lines().into_iter().filter(|line| !line.starts_with("ok ")).collect();
    assert!(failed.is_empty(), "{name}: {failed:#?} {}", done.err);
    assert_eq!(done.status, 0, "{name}: {done:?}");
    done.out
}

fn a_family(name: &str) {
    let file = format!("driver/{name}");
    let spec = if name == "peers" { "2xa100-80gb" } else { "a100-80gb" };
    let machine = Machine::new(spec);
    let bare = run(machine.bare(program(&file)), name);
    let machine = Machine::new(spec);
    let job = machine.job(program(&file)).with_context_cost().memory("100%").env("GPUQUOTA_LOG", "off");
    assert_eq!(run(job.env("GPUQUOTA_COMPUTE", "40"), name), bare, "{name}");
}

/// Random sequences of calls, right and wrong ones, in several processes.
const SEQUENCES: u64 = 40;
const CALLS: u64 = 300;

/// A failure names the seed of the sequence; `CHAOS_SEED` runs that one alone.
#[test]
fn random_calls_have_the_drivers_results() {
    let chosen: Option<u64> = std::env::var("CHAOS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = chosen.map_or(1..=SEQUENCES, |seed| seed..=seed);
    let run = |seed: u64, job: Job| {
        let job = job.env("CHAOS_COMPARE", "1").env("FAKE_CUDA_CONTEXT", "24MiB");
        let done = job.arg(seed.to_string()).arg(CALLS.to_string()).run();
        assert_eq!((done.status, done.err.as_str()), (0, ""), "CHAOS_SEED={seed}\n{}", done.out);
        done.out
    };
    for seed in seeds {
        let machine = Machine::new("2xt4-16gb");
        let bare = run(seed, machine.bare(program("chaos")));
        let machine = Machine::new("2xt4-16gb");
        let job = machine.job(program("chaos")).memory("100%").env("GPUQUOTA_COMPUTE", "40").env("GPUQUOTA_LOG", "off");
        let ours = run(seed, job);
        let differs = ours.lines().zip(bare.lines()).find(|(ours, bare)| ours != bare);
        assert!(ours == bare, "CHAOS_SEED={seed}: {differs:?} (under a cap, without us)");
    }
}

macro_rules! families {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { a_family(stringify!($name)); })* };
}
families!(
    arrays,
    capture,
    contexts,
    copies,
    events,
    forked,
    graph_memory,
    graphs,
    ipc_events,
    launch,
    local,
    memory,
    modules,
    peers,
    pools,
    processes,
    streams,
);
