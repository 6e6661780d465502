//! The simulated driver by the family: each C program under `programs/driver` checks one and prints a line a claim. The same
//! programs run under the shim with a quota that never bites, and must see and do exactly the same.

#[path = "driver/checkpoints.rs"]
mod checkpoints;
#[path = "driver/faults.rs"]
mod faults;
#[path = "driver/machines.rs"]
mod machines;
#[path = "driver/neighbours.rs"]
mod neighbours;
#[path = "driver/symbols.rs"]
mod symbols;

use harness::{Done, Job, Machine, program};
use serde_json::Value;
use std::collections::HashMap;

/// Calls that the shim makes of its own accord: questions that change nothing.
const OWN_QUESTIONS: [&str; 30] = [
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetUuid_v2",
    "cuDeviceTotalMem_v2",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuDevicePrimaryCtxGetState",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuStreamIsCapturing_ptsz",
    "cuDeviceGetMemPool",
    "cuDeviceGetDefaultMemPool",
    "cuMemPoolGetAttribute",
    "cuThreadExchangeStreamCaptureMode",
    "cuDeviceGetAttribute",
    "cuDeviceGetGraphMemAttribute",
    "cuCtxGetLimit",
    "cuGraphGetNodes",
    "cuGraphNodeGetType",
    "cuGraphNodeGetDependencies_v2",
    "cuGraphMemAllocNodeGetParams",
    "cuGraphMemFreeNodeGetParams",
    "cuGraphChildGraphNodeGetGraph",
    // Measurements: NVML is asked what this process holds.
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetComputeRunningProcesses_v3",
];

/// Programs that check nothing themselves.
const TOLD_WHAT_TO_DO: [&str; 4] = ["devices", "freeze", "spin", "zeros"];

const OUT_OF_MEMORY: i64 = 2;

fn run(job: Job, name: &str) -> Done {
    let done = job.run();
    let failed: Vec<&str> = done.lines().into_iter().filter(|line| !line.starts_with("ok ")).collect();
    assert!(failed.is_empty(), "{name}: {failed:#?} {}", done.err);
    assert_eq!(done.status, 0, "{name}: {done:?}");
    assert!(done.lines().len() >= 6, "{name} checks something: {done:?}");
    done
}

/// What each process of a program asked of the driver itself, in order and each with its answer; not what did not fit, which
/// the quota refuses without asking. A thread of these programs that calls the driver does so while the others wait.
fn asked(journal: &[Value]) -> Vec<Vec<(String, i64)>> {
    let mut processes: HashMap<i64, Vec<(String, i64)>> = HashMap::new();
    for call in journal {
        let function = call["function"].as_str().expect("a name").to_owned();
        let result = call["result"].as_i64().expect("a code");
        let process = processes.entry(call["pid"].as_i64().expect("a pid")).or_default();
        if result != OUT_OF_MEMORY && !OWN_QUESTIONS.contains(&function.as_str()) {
            process.push((function, result));
        }
    }
    let mut processes: Vec<_> = processes.into_values().collect();
    processes.sort();
    processes
}

fn a_family(name: &str) {
    let file = format!("driver/{name}");
    let spec = if name == "peers" { "2xa100-80gb" } else { "a100-80gb" };
    let machine = Machine::new(spec);
    let bare = run(machine.bare(program(&file)).journalled(), name);
    let bare_calls = asked(&machine.journal());
    let machine = Machine::new(spec);
    let ours = run(machine.job(program(&file)).with_context_cost().memory("100%").env("GPUQUOTA_LOG", "off").journalled(), name);
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
    events,
    forked,
    graph_memory,
    graphs,
    init,
    launch,
    memory,
    modules,
    peers,
    pools,
    processes,
    streams,
    tables,
    vmm,
);
