//! Runs what submits work under a compute cap: each call is counted as often as it is made, and waits when the tenant is out
//! of credit; or neither, where it is passed.

use crate::scenario::scenarios;
use driver_api::{Class, Library, SYMBOLS, Symbol};
use harness::{Books, Job, Machine, Usage, program, shim};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// It is the shim's, which says more than is asked here.
#[allow(dead_code, unreachable_pub, missing_docs)]
mod passed {
    include!("../../shim/src/passed.rs");
}
use passed::{PASSED, What};

const MACHINE: &str = "2xh100-80gb";
const DEVICES: usize = 2;
/// A driver that has every function of the list.
const VERSION: &str = "13050";
/// The kernel of the scenarios that uses the credit up lasts 60 ms: at a quarter of the device's time that is a debt of at least
/// 47 ms, whatever was saved up before, and takes four times as long to pay back; so long the machine may be busy with
/// something else before a wait is missed.
const CAP: &str = "25";
/// How long the end of what has ended may stay unseen.
const END_SEEN_MAX: Duration = Duration::from_secs(1);

/// What the simulated driver lacks; another library (`programs/launched.c`) stands between it and the shim, and succeeds.
const STOOD_IN: [&str; 9] = [
    "cuFabricCpyBatchAsync",
    "cuMemBatchDecompressAsync",
    "cuMemDiscardAndPrefetchBatchAsync",
    "cuMemDiscardBatchAsync",
    "cuMemPrefetchBatchAsync",
    "cuMemcpy3DBatchAsync",
    "cuMemcpy3DWithAttributesAsync",
    "cuSignalExternalSemaphoresAsync",
    "cuWaitExternalSemaphoresAsync",
];

/// The symbols that submit work.
pub(crate) fn listed() -> impl Iterator<Item = &'static Symbol> {
    SYMBOLS.iter().filter(|symbol| symbol.library == Library::Cuda && symbol.class == Class::Launch)
}

/// Runs the scenarios of every symbol of a function.
pub(crate) fn function(base: &str) {
    let mistakes: Vec<String> =
        listed().filter(|symbol| symbol.base == base).flat_map(|symbol| check("launch", symbol)).collect();
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
}

fn job(machine: &Machine, what: &str, symbol: &Symbol) -> Job {
    let job = machine.job(program("coverage")).memory("100%").env("GPUQUOTA_COMPUTE", CAP);
    let job = job.env("FAKE_CUDA_VERSION", VERSION).env("GPUQUOTA_LOG", "off").arg(what).arg(symbol.name);
    if STOOD_IN.contains(&symbol.base) {
        return job.env("LD_PRELOAD", format!("{}:{}", shim().display(), program("launched.so").display()));
    }
    job
}

fn check(what: &str, symbol: &Symbol) -> Vec<String> {
    let machine = Machine::new(MACHINE);
    let books = machine.books();
    let mut running = job(&machine, what, symbol).start();
    let pid = running.pid();
    let mut mistakes = Vec::new();
    let mut before = Usage::default();
    loop {
        let line = running.line();
        let (word, number) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "done" => break,
            "ok" => continue,
            "from" | "debt" => before = usage(&books, pid),
            "counted" => mistakes.extend(counted(&before, || usage(&books, pid), number.parse().expect("a number"))),
            "waited" => mistakes.extend(waited(&before, &usage(&books, pid), number)),
            _ => mistakes.push(format!("{line:?}")),
        }
        if word.is_empty() {
            break;
        }
        if word != "FAIL" {
            running.go_on();
        }
    }
    let (_, status) = running.finish();
    if status != 0 {
        mistakes.push(format!("ended with {status}"));
    }
    mistakes.into_iter().map(|mistake| format!("{}: {mistake}", symbol.name)).collect()
}

/// On all devices.
fn usage(books: &Books, pid: u32) -> Usage {
    (0..DEVICES).map(|device| books.usage(pid, device)).fold(Usage::default(), Usage::plus)
}

/// The program has synchronised; who looks what has ended may be another thread, which is just doing so.
fn counted(before: &Usage, now: impl Fn() -> Usage, expected: u64) -> Option<String> {
    let deadline = Instant::now() + END_SEEN_MAX;
    let mut usage = now();
    while usage.submitted != usage.completed && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
        usage = now();
    }
    let (submitted, under_way) = (usage.submitted - before.submitted, usage.submitted - usage.completed);
    let fits = submitted == expected && under_way == 0;
    (!fits).then(|| format!("{submitted} are counted, expected {expected}; {under_way} are still under way"))
}

/// 1 for a call that had to wait, 2 for one that came so late that it may have had no need to.
fn waited(before: &Usage, now: &Usage, expected: &str) -> Option<String> {
    let waited_ns = now.throttled_ns - before.throttled_ns;
    let fits = expected == "2" || (expected == "1") == (waited_ns > 0);
    (!fits).then(|| format!("waited for {waited_ns} ns, expected: {expected}"))
}

/// Whichever mode they are made in, and whatever another thread launches meanwhile.
#[test]
fn what_is_captured_neither_counts_nor_waits_and_no_capture_is_spoilt() {
    let kernels = listed().filter(|symbol| symbol.abi == "cuLaunchKernel");
    let mistakes: Vec<String> = kernels.flat_map(|symbol| check("captured", symbol)).collect();
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
}

#[test]
fn every_launch_has_a_scenario_and_every_scenario_a_launch() {
    let symbols: BTreeSet<&str> = listed().map(|symbol| symbol.abi).collect();
    let kinds = scenarios();
    let all = [&kinds.paced, &kinds.paced_if_large, &kinds.never_large, &kinds.passed];
    let named: BTreeSet<&str> = all.into_iter().flatten().map(String::as_str).collect();
    assert_eq!(named, symbols);
    assert_eq!(listed().map(|symbol| symbol.base).collect::<BTreeSet<_>>().len(), 63);
    assert_eq!(listed().count(), 164);
}

/// What is shown to be passed is what has a reason, and nothing else has one.
#[test]
fn what_is_passed_has_a_reason() {
    let has_reason = |symbol: &&Symbol| {
        PASSED.iter().any(|passed| match passed.what {
            What::Names(names) => names.contains(&symbol.base),
            What::Classes(classes) => classes.contains(&"Launch"),
            _ => false,
        })
    };
    let reasons: BTreeSet<&str> = listed().filter(has_reason).map(|symbol| symbol.abi).collect();
    let passed: BTreeSet<&str> = scenarios().passed.iter().map(String::as_str).collect();
    assert_eq!(reasons, passed);
}
