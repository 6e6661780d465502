//! Conservation: whatever programs do, they are charged what they hold, on every device, and never more than the cap together.
//!
//! Several processes make random calls of all kinds, some of which the driver is made to fail, and stop together now and then. A
//! failure names the seed. What runs it again, or a part of it: `CHAOS_SEED`, `CHAOS_OPERATIONS` (of all processes together),
//! `CHAOS_QUIET` (of one process, between two points), `CHAOS_THREADS` (such as `1,1,2`: one number a process), `CHAOS_FAILURES=0`
//! (the driver fails of its own accord only), `CHAOS_WITHOUT` (operations of `chaos/steps.c` to leave out, with commas),
//! `CHAOS_VARIABLES=0` (images without variables). `TRACE=1` shows every call since the last point at which the books were right;
//! with `CHAOS_THREADS=1 CHAOS_QUIET=1` that is one.

use harness::{Books, Chaos, Crowd, Daemon, Job, MIB, Machine, Running, ledger_of, program};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Operations of all processes together, each time the tests run.
const OPERATIONS: u64 = 200_000;
const DEVICES: usize = 2;
const SPEC: &str = "2xt4-16gb";
/// Small enough that a part of what is asked for is refused.
const CAP: u64 = 1024 * MIB;
/// What calls may hold for a moment, or until it is measured, that only the driver knows beforehand: code and variables of images
/// up to 6 MiB, and what a context costs beyond the least that was seen, for each thread.
const UNASKED: u64 = 6 * (6 + 24) * MIB;
const SAMPLE_PAUSE: Duration = Duration::from_millis(1);

/// Functions that are made to fail, at some of their calls. Not what the shim itself asks in order to know what is held.
const FAILING: &[&str] = &[
    "cuArray3DCreate_v2",
    "cuArrayCreate_v2",
    "cuArrayDestroy",
    "cuCtxCreate_v2",
    "cuCtxCreate_v4",
    "cuCtxDestroy_v2",
    "cuCtxSetLimit",
    "cuCtxSynchronize",
    "cuDeviceGraphMemTrim",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxReset_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceSetMemPool",
    "cuGraphAddMemAllocNode",
    "cuGraphAddMemFreeNode",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphInstantiateWithParams",
    "cuGraphInstantiate_v2",
    "cuGraphLaunch",
    "cuGraphLaunch_ptsz",
    "cuGraphUpload",
    "cuKernelGetFunction",
    "cuLaunchKernel",
    "cuLibraryGetGlobal",
    "cuLibraryGetModule",
    "cuLibraryLoadData",
    "cuLibraryUnload",
    "cuMemAlloc",
    "cuMemAllocAsync",
    "cuMemAllocAsync_ptsz",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz",
    "cuMemAllocManaged",
    "cuMemAllocPitch_v2",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemFree",
    "cuMemFreeAsync",
    "cuMemFreeAsync_ptsz",
    "cuMemFree_v2",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemRelease",
    "cuMemRetainAllocationHandle",
    "cuMemUnmap",
    "cuMipmappedArrayCreate",
    "cuMipmappedArrayDestroy",
    "cuModuleGetGlobal_v2",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
];
const CODES: [i32; 3] = [999, 2, 719];

/// Early calls and late ones fail, each function at its own.
fn failures(seed: u64) -> String {
    let mut rules = Vec::new();
    for (number, function) in FAILING.iter().enumerate() {
        let mut call = 2 + (seed.wrapping_mul(31).wrapping_add(number as u64 * 7)) % 23;
        for time in 0..3 {
            rules.push(format!("{function}:{call}={}", CODES[(number + time) % CODES.len()]));
            call = call * 9 + 3;
        }
    }
    rules.join(",")
}

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str, otherwise: u64) -> u64 {
    setting(name).map_or(otherwise, |value| value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

fn chaos(operations: u64, without: &str) -> Chaos {
    let threads = setting("CHAOS_THREADS").unwrap_or_else(|| "1,1,1,3".to_owned());
    let seed = number("CHAOS_SEED", 1);
    Chaos {
        seed,
        operations: number("CHAOS_OPERATIONS", operations),
        quiet: number("CHAOS_QUIET", 2500),
        threads: threads.split(',').map(|count| count.parse().expect("numbers of threads")).collect(),
        failures: if number("CHAOS_FAILURES", 1) == 0 { String::new() } else { failures(seed) },
        without: setting("CHAOS_WITHOUT").unwrap_or_else(|| without.to_owned()),
        has_variables: number("CHAOS_VARIABLES", 1) != 0,
        traced: setting("TRACE").is_some(),
    }
}

/// What one measurement may miss of what can't be moved, when what can changes meanwhile: a module, a stack that grows.
const MEASURED: u64 = 16 * MIB;

/// What doesn't agree, a line for each process and device.
///
/// What others let go, or other threads free, just when managed memory is allocated looks like managed memory that is
/// elsewhere: as much may be charged too much until that is freed, and never too little. Where there are no others and no
/// other threads, nothing may.
fn differences(books: &Books, pids: &[u32], point: &str, chaos: &Chaos, quota: Kind) -> Vec<String> {
    let mut found = Vec::new();
    for (process, pid) in pids.iter().enumerate() {
        for device in 0..DEVICES {
            let (charged, held) = (books.charged(*pid, device), books.held(*pid, device));
            let is_exact = chaos.threads[process] == 1 && !chaos.shares() && quota == Kind::Static;
            let doubt = if is_exact { 0 } else { books.soft(*pid, device) };
            // What can't be moved is not hidden behind what can, but for a measurement during which the other changes: of a
            // dynamic quota, nearly all is of that kind.
            let firm = (books.held_firmly(*pid, device), charged.saturating_sub(books.soft(*pid, device)));
            if quota == Kind::Dynamic && firm.0 > firm.1 + MEASURED {
                found.push(format!(
                    "process {process} device {device}: {} can't be moved, {} charged of it",
                    firm.0, firm.1
                ));
            }
            if !(held..=held + doubt).contains(&charged) || (point == "empty" && held != 0) {
                let overhead = books.overhead(*pid, device);
                found.push(format!(
                    "process {process} device {device}: charged {charged}, of it overhead {overhead}, held {held} (charged {:+} KiB)",
                    (charged as i64 - held as i64) / 1024
                ));
            }
        }
    }
    found
}

/// Looks again and again whether the processes together hold, or may be charged, more than the cap.
fn watch(books: &Books, others_hold: u64, is_over: &AtomicBool) -> Vec<String> {
    let mut most = [(0, 0); DEVICES];
    while !is_over.load(Ordering::Relaxed) {
        for (device, (charged, held)) in most.iter_mut().enumerate() {
            *charged = books.stock_in_all(device).max(*charged);
            *held = (books.held_in_all(device) - others_hold).max(*held);
        }
        std::thread::sleep(SAMPLE_PAUSE);
    }
    let over = |(device, (charged, held)): (usize, (u64, u64))| {
        let line = format!("device {device}: at most {} MiB charged and {} MiB held", charged / MIB, held / MIB);
        eprintln!("{line}");
        (charged > CAP + UNASKED || held > CAP + UNASKED).then_some(line)
    };
    most.into_iter().enumerate().filter_map(over).collect()
}

/// Goes from point to point and compares the books at each; what was wrong at the first that was.
fn compare_at_each_point(crowd: &mut Crowd, books: &Books, chaos: &Chaos, quota: Kind) -> Vec<String> {
    let pids = crowd.pids();
    for [stopped, point] in crowd.points() {
        let mut printed = crowd.reach(&stopped);
        crowd.go_on();
        for (lines, more) in printed.iter_mut().zip(crowd.reach(&point)) {
            lines.extend(more);
        }
        let mut found = differences(books, &pids, &point, chaos, quota);
        if !found.is_empty() {
            found.insert(0, format!("at {point:?}"));
            for (process, lines) in printed.iter().enumerate() {
                found.extend(lines.iter().map(|line| format!("process {process}: {line}")));
            }
            return found;
        }
        crowd.go_on();
    }
    Vec::new()
}

/// Where the processes run.
struct Place {
    machine: Machine,
    daemon: Option<(Daemon, Running)>,
    /// What processes hold on each device that are none of the crowd.
    others_hold: u64,
    quota: Kind,
}

/// What kind of quota it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Static,
    /// Its linear memory may be moved to the host.
    Dynamic,
    /// And is, all the time.
    Moving,
}

impl Place {
    fn without_daemon() -> Self {
        Self { machine: Machine::new(SPEC), daemon: None, others_hold: 0, quota: Kind::Static }
    }

    /// The ledger is read through a process of the tenant that only waits.
    fn with_daemon(document: &str) -> Self {
        let machine = Machine::new(SPEC);
        let daemon = machine.daemon_under(document);
        let anchor = Self::member(machine.probe("dlopen:libcuda.so.1"), &daemon).words("init ctx total say=ready wait");
        let mut anchor = anchor.start();
        anchor.until("ready");
        Self { machine, daemon: Some((daemon, anchor)), others_hold: 0, quota: Kind::Static }
    }

    fn member(job: Job, daemon: &Daemon) -> Job {
        job.memory("1GiB").tenant("chaos").env("GPUQUOTA_SOCKET", daemon.socket())
    }

    fn job(&self, job: Job) -> Job {
        let job = job.env("FAKE_CUDA_CONTEXT", "24MiB").env("GPUQUOTA_LOG", "off");
        match &self.daemon {
            Some((daemon, _)) => Self::member(job, daemon),
            None => job.memory("1GiB"),
        }
    }

    fn books(&self) -> Books {
        match &self.daemon {
            Some((_, anchor)) => self.machine.books_of(vec![ledger_of(anchor.pid())]),
            None => self.machine.books(),
        }
    }
}

fn conserve(place: &Place, operations: u64, without: &str) {
    let chaos = chaos(operations, without);
    let begin = Instant::now();
    let mut crowd = chaos.start(&place.machine, |job| place.job(job));
    let (books, watched, is_over) = (place.books(), place.books(), AtomicBool::new(false));
    let (wrong, over) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&watched, place.others_hold, &is_over));
        let wrong = compare_at_each_point(&mut crowd, &books, &chaos, place.quota);
        is_over.store(true, Ordering::Relaxed);
        (wrong, watcher.join().expect("the watcher only looks"))
    });
    let Chaos { seed, operations, quiet, without, .. } = &chaos;
    let again = format!("CHAOS_SEED={seed} CHAOS_OPERATIONS={operations} CHAOS_QUIET={quiet} CHAOS_WITHOUT={without}");
    assert!(wrong.is_empty(), "{again}\n{}", wrong.join("\n"));
    assert!(over.is_empty(), "{again}\n{}", over.join("\n"));
    assert!(crowd.finish().iter().all(|status| *status == 0), "{again}: a process ended badly");
    eprintln!("{} operations in {:?}", chaos.operations, begin.elapsed());
}

#[test]
fn what_is_charged_is_what_is_held() {
    conserve(&Place::without_daemon(), OPERATIONS / 2, "");
}

#[test]
fn what_is_charged_is_what_is_held_without_managed_memory() {
    conserve(&Place::without_daemon(), OPERATIONS / 2, "managed");
}

#[test]
fn what_is_charged_is_what_is_held_where_nothing_is_shared() {
    conserve(&Place::without_daemon(), OPERATIONS / 2, "offer,share_with_self");
}

#[test]
fn what_is_charged_under_a_daemon_is_what_is_held() {
    // A measurement takes longer here: the daemon makes it.
    conserve(&Place::with_daemon("# nothing\n"), OPERATIONS / 8, "");
}

/// The same where linear memory is made so that it may be moved to the host.
#[test]
fn what_is_charged_of_a_dynamic_quota_is_what_is_held() {
    let document = "devices: [{oversubscribe: 1.5}]\ntenants: [{name: chaos, memory: 1GiB, oversubscribe: true}]\n";
    conserve(&Place { quota: Kind::Dynamic, ..Place::with_daemon(document) }, OPERATIONS / 8, "");
}

/// And where there is no room for it: others hold so much that what may be moved is moved all the time.
#[test]
fn what_is_charged_of_a_dynamic_quota_covers_what_is_held_when_pages_move() {
    let document = "devices: [{oversubscribe: 1.5}]\ntenants: [{name: chaos, memory: 1GiB, oversubscribe: true}]\n";
    let mut place = Place::with_daemon(document);
    let full = "linked init ctx=0 linear:a=14000M device=1 ctx=1 linear:b=14000M say=ready wait";
    let mut others = place.machine.bare(program("probe-linked")).words(full).env("FAKE_CUDA_CONTEXT", "0").start();
    let lines = others.until("ready");
    assert!(lines.iter().all(|line| line.ends_with(" 0")), "{lines:?}");
    (place.others_hold, place.quota) = (14_000 * MIB, Kind::Moving);
    conserve(&place, OPERATIONS / 8, "");
    others.finish();
}

/// The same, for longer: `cargo test --test conservation -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn what_is_charged_is_what_is_held_after_a_million_operations() {
    conserve(&Place::without_daemon(), 1_000_000, "");
}

/// And this, where each measurement is a question to the daemon.
#[test]
#[ignore = "takes minutes"]
fn what_is_charged_under_a_daemon_is_what_is_held_for_longer() {
    conserve(&Place::with_daemon("# nothing\n"), 200_000, "");
}
