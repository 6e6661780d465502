//! The simulated driver by the family: each C program under `programs/driver` checks one and prints a line a claim. The same
//! programs run under the shim with a quota that never bites, and must see and do exactly the same.

#[path = "driver/checkpoints.rs"]
mod checkpoints;
#[path = "driver/device_time.rs"]
mod device_time;
#[path = "driver/faults.rs"]
mod faults;
#[path = "driver/machines.rs"]
mod machines;
#[path = "driver/mig.rs"]
mod mig;
#[path = "driver/neighbours.rs"]
mod neighbours;
#[path = "driver/symbols.rs"]
mod symbols;

use harness::{Done, Job, Machine, asked, program};

/// Programs that check nothing themselves.
const TOLD_WHAT_TO_DO: [&str; 5] = ["devices", "freeze", "lacks", "spin", "zeros"];

fn run(job: Job, name: &str) -> Done {
    let done = job.run();
    let failed: Vec<&str> = done.lines().into_iter().filter(|line| !line.starts_with("ok ")).collect();
    assert!(failed.is_empty(), "{name}: {failed:#?} {}", done.err);
    assert_eq!(done.status, 0, "{name}: {done:?}");
    assert!(done.lines().len() >= 6, "{name} checks something: {done:?}");
    done
}

fn a_family(name: &str) {
    let file = format!("driver/{name}");
    let spec = match name {
        "endpoints" | "multicast" => "2xh100-80gb",
        "peers" => "2xa100-80gb",
        _ => "a100-80gb",
    };
    // What came with CUDA 13.3 and 13.4; the others are as they are on the usual driver.
    let driver = if matches!(name, "endpoints" | "later") { "13050" } else { "13020" };
    let machine = Machine::new(spec);
    let bare = run(machine.bare(program(&file)).env("FAKE_CUDA_VERSION", driver).journalled(), name);
    let bare_calls = asked(&machine.journal());
    let machine = Machine::new(spec);
    let ours = run(
        machine
            .job(program(&file))
            .with_context_cost()
            .memory("100%")
            .env("GPUQUOTA_LOG", "off")
            .env("FAKE_CUDA_VERSION", driver)
            .journalled(),
        name,
    );
    assert_eq!(ours.out, bare.out, "{name}");
    let our_calls = asked(&machine.journal());
    // Processes are told apart; their pids, which differ from run to run, are not compared.
    assert_eq!(our_calls.len(), bare_calls.len(), "{name}: processes");
    for (at, (bare, ours)) in bare_calls.iter().zip(&our_calls).enumerate() {
        let differs = bare.iter().zip(ours).position(|(bare, ours)| bare != ours).unwrap_or(bare.len().min(ours.len()));
        let near = |calls: &[(String, i64)]| calls[differs.saturating_sub(3)..calls.len().min(differs + 3)].to_vec();
        assert_eq!(near(ours), near(bare), "{name}: process {at}, call {differs}");
    }
}

macro_rules! families {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { a_family(stringify!($name)); })*

        /// A program that nobody runs would be worse than none.
        #[test]
        fn every_program_is_run() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/driver");
            let names = std::fs::read_dir(folder).expect("readable").map(|file| file.expect("readable").file_name());
            let mut programs: Vec<_> = names.filter_map(|name| name.to_str()?.strip_suffix(".c").map(str::to_owned)).collect();
            programs.sort();
            let mut run = [&[$(stringify!($name)),*], &TOLD_WHAT_TO_DO[..]].concat();
            run.sort_unstable();
            assert_eq!(programs, run);
        }
    };
}
families!(
    arrays,
    capture,
    checkpoint,
    contexts,
    copies,
    endpoints,
    events,
    forked,
    graph_memory,
    graphs,
    init,
    ipc_events,
    later,
    launch,
    local,
    memory,
    modules,
    multicast,
    peers,
    pools,
    processes,
    sparse,
    streams,
    tables,
    timing,
    vmm,
);
