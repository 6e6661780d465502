//! SIGKILL at random instants into processes that allocate at full speed under one quota: never over, nothing
//! leaked, nobody kept waiting; with a daemon, with daemons that are killed too, and without one.

use harness::{Books, Daemon, Job, MIB, Machine, Running, eventually, ledger_of, program};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const WORKERS: usize = 8;
const QUOTA: u64 = 1024 * MIB;
/// So often somebody is killed, unless `GPUQUOTA_TEST_KILLS` says otherwise; the whole run is a thousand:
/// `GPUQUOTA_TEST_KILLS=1000 cargo test --release --test killed -- --nocapture`, on a machine that does nothing else.
const KILLS: usize = 120;
/// The longest that a call may sleep, that is wait for somebody else, in the whole run.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The same beside other tests: who holds a lock may wait for a processor. What waits for somebody dead would wait for ever.
const SLEEP_MAX_WHEN_BUSY: Duration = Duration::from_secs(1);
/// One set-up at a time, so that the processes compete with each other and not with other tests' processes.
static ALONE: Mutex<()> = Mutex::new(());
/// Numbers of a record of `killed.c`.
const RECORD_WORDS: usize = 8;

/// How the processes get their quota.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    NoDaemon,
    Daemon,
    /// The daemon is killed, too, every so many kills.
    DyingDaemon(usize),
}

/// The processes and where they are.
struct Field {
    machine: Machine,
    daemon: Option<Daemon>,
    report: PathBuf,
    seed: u64,
}

/// A process that ends when it is dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("a child");
    }
}

impl Field {
    fn new(mode: Mode) -> Self {
        let machine = Machine::new("a100-80gb");
        let daemon = (mode != Mode::NoDaemon).then(|| machine.daemon(""));
        let report = machine.folder().join("report");
        std::fs::write(&report, [0; 4096]).expect("writable");
        Self { machine, daemon, report, seed: 0x5eed }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn job(&self, name: &str) -> Job {
        let job = self.machine.job(program(name)).memory("1GiB").env("FAKE_CUDA_CONTEXT", "16MiB");
        let job = job.env("GPUQUOTA_LOG", "error");
        match &self.daemon {
            Some(daemon) => job.tenant("t").env("GPUQUOTA_SOCKET", daemon.socket()),
            None => job,
        }
    }

    fn worker(&mut self, index: usize) -> Worker {
        let seed = self.random(1 << 30).to_string();
        let job = self.job("killed").arg("dlopen:libcuda.so.1").arg(seed).arg(&self.report).arg(index.to_string());
        let mut command = job.into_command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        Worker(command.spawn().expect("it starts"))
    }

    /// A process that stays, holds a context, and through which the ledger can be read whoever dies.
    fn anchor(&self) -> Running {
        let mut anchor =
            self.job("probe").arg("dlopen:libcuda.so.1").words("init ctx linear:a=1M say=ready wait").start();
        anchor.until("ready");
        anchor
    }

    fn books(&self, anchor: &Running) -> Books {
        self.machine.books_of(vec![ledger_of(anchor.pid())])
    }

    /// Sums of the workers' records: calls, refusals, wrong answers; and the longest sleep.
    fn told(&self) -> (u64, u64, u64, Duration) {
        let bytes = std::fs::read(&self.report).expect("readable");
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
        let records: Vec<&[u64]> = words.chunks_exact(RECORD_WORDS).take(WORKERS).collect();
        let sum = |at: usize| records.iter().map(|record| record[at]).sum();
        let slept = records.iter().map(|record| record[3]).max().unwrap_or(0);
        (sum(0), sum(1), sum(2), Duration::from_nanos(slept))
    }
}

fn kills() -> usize {
    let asked = std::env::var("GPUQUOTA_TEST_KILLS").ok();
    asked.map_or(KILLS, |text| text.parse().expect("GPUQUOTA_TEST_KILLS is a number"))
}

/// Looks all the time whether more is held, or may be charged, than the quota.
fn watch(books: &Books, stop: &AtomicBool) -> (u64, u64) {
    let (mut held_most, mut charged_most) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let held = books.held_in_all(0);
        if held > QUOTA && held_most <= QUOTA {
            eprintln!("{held} held:\n{}", books.dump(0));
        }
        held_most = held_most.max(held);
        charged_most = charged_most.max(books.stock_in_all(0));
        std::thread::sleep(Duration::from_millis(1));
    }
    (held_most, charged_most)
}

fn kill_at_random(mode: Mode) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut field = Field::new(mode);
    let anchor = field.anchor();
    let books = field.books(&anchor);
    let mut workers: Vec<Worker> = (0..WORKERS).map(|index| field.worker(index)).collect();
    let stop = AtomicBool::new(false);
    let (held_most, charged_most) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&books, &stop));
        for kill in 1..=kills() {
            // From before it has said hello to the middle of an allocation.
            std::thread::sleep(Duration::from_micros(field.random(12_000)));
            let index = field.random(WORKERS as u64) as usize;
            // The old one is killed by what takes its place; that one comes later.
            let fresh = field.worker(index);
            workers[index] = fresh;
            if let Mode::DyingDaemon(every) = mode
                && kill % every == 0
            {
                field.daemon.as_mut().expect("there is one").kill();
                std::thread::sleep(Duration::from_millis(field.random(60)));
                field.daemon = Some(field.machine.daemon(""));
            }
        }
        // Those that are left must all have had their turn.
        std::thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        watcher.join().expect("it watches")
    });
    assert!(held_most <= QUOTA && charged_most <= QUOTA, "{held_most} held, {charged_most} charged of {QUOTA}");
    assert!(charged_most > QUOTA / 2, "the quota was in reach: {charged_most}");
    let (calls, refused, wrong, slept) = field.told();
    assert!(calls > 1000 && refused > 0, "{calls} calls, {refused} refused");
    assert_eq!(wrong, 0, "answers that are neither success nor out of memory");
    // Only calls of 20 ms and more are looked at.
    let longest = slept.max(Duration::from_millis(20));
    println!("{} kills: {calls} calls, {refused} refused, the longest sleep in a call at most {longest:?}", kills());
    let limit = if kills() >= 1000 { SLEEP_MAX } else { SLEEP_MAX_WHEN_BUSY };
    assert!(slept <= limit, "a call slept {slept:?}");
    drop(workers);
    // The anchor is the last one alive, and what it holds is all that is charged.
    let own = books.held(anchor.pid(), 0);
    assert!(own > 0);
    eventually(Duration::from_secs(5), "everything of the dead is back", || {
        // Without a daemon, the dead are buried by whoever looks.
        let looked = field.job("probe").arg("dlopen:libcuda.so.1").words("init total").run();
        assert_eq!(looked.status, 0, "{looked:?}");
        (books.charged_in_all(0), books.held_in_all(0)) == (own, own)
    });
    let rest = (QUOTA - own - 20 * MIB) / MIB;
    let all = field.job("probe").arg("dlopen:libcuda.so.1").words(&format!("init ctx linear:rest={rest}M")).run();
    assert_eq!(all.code(&format!("linear:rest={rest}M")), 0, "{all:?}");
    anchor.finish();
}

#[test]
fn kills_without_a_daemon() {
    kill_at_random(Mode::NoDaemon);
}

#[test]
fn kills_under_a_daemon() {
    kill_at_random(Mode::Daemon);
}

#[test]
fn kills_of_the_daemon_too() {
    kill_at_random(Mode::DyingDaemon(25));
}
