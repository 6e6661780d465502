//! The simulated driver by the family: each C program under `programs/driver` checks one and prints a line a claim. The same
//! programs run under the shim with a quota that never bites, and must see and do exactly the same.

use harness::{Done, Job, Machine, program};
use serde_json::Value;
use std::collections::HashMap;

/// Calls that the shim makes of its own accord: questions that change nothing.
const OWN_QUESTIONS: [&str; 16] = [
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
];

const OUT_OF_MEMORY: i64 = 2;

fn run(job: Job, name: &str) -> Done {
    let done = job.run();
    let failed: Vec<&str> = done.lines().into_iter().filter(|line| !line.starts_with("ok ")).collect();
    assert!(failed.is_empty(), "{name}: {failed:#?} {}", done.err);
    assert_eq!(done.status, 0, "{name}: {done:?}");
    assert!(done.lines().len() >= 10, "{name} checks something: {done:?}");
    done
}

/// What the program itself asked of the driver, each with its answer; not what did not fit, which the quota refuses without asking.
fn asked(journal: &[Value]) -> Vec<(String, i64)> {
    let calls = journal
        .iter()
        .map(|call| (call["function"].as_str().unwrap_or("?").to_owned(), call["result"].as_i64().unwrap_or(-1)));
    calls.filter(|(function, result)| *result != OUT_OF_MEMORY && !OWN_QUESTIONS.contains(&function.as_str())).collect()
}

fn a_family(name: &str) {
    let file = format!("driver/{name}");
    let machine = Machine::new("a100-80gb");
    let bare = run(machine.bare(program(&file)).journalled(), name);
    let bare_calls = asked(&machine.journal());
    let machine = Machine::new("a100-80gb");
    let ours = run(machine.job(program(&file)).memory("100%").env("GPUQUOTA_LOG", "off").journalled(), name);
    assert_eq!(ours.out, bare.out, "{name}");
    let our_calls = asked(&machine.journal());
    // Calls of one function may come in another order where threads make them, so they are compared function by function.
    let grouped = |calls: Vec<(String, i64)>| {
        calls.into_iter().fold(HashMap::<String, Vec<i64>>::new(), |mut by_name, (function, result)| {
            by_name.entry(function).or_default().push(result);
            by_name
        })
    };
    let (bare_calls, our_calls) = (grouped(bare_calls), grouped(our_calls));
    for (function, results) in &bare_calls {
        assert_eq!(our_calls.get(function), Some(results), "{name}: {function}");
    }
    assert_eq!(our_calls.len(), bare_calls.len(), "{name}: nothing else was called");
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
            let mut run = [$(stringify!($name)),*];
            run.sort_unstable();
            assert_eq!(programs, run);
        }
    };
}
families!(init, contexts, copies, events, graphs, launch, memory, modules, vmm, pools, arrays, streams);
