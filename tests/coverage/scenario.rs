//! Runs scenarios and compares: what the program says it should hold, what it is charged, what the machine says it holds, and
//! what it was answered with what the driver alone answers.

use crate::launches;
use crate::lists::NOT_SIMULATED;
use driver_api::{Class, Library, SYMBOLS, Symbol};
use harness::{Books, Job, MIB, Machine, program};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Two devices that can do everything that the simulated driver knows.
const MACHINE: &str = "2xh100-80gb";
const DEVICES: usize = 2;
/// A driver that has every function of the list.
const VERSION: &str = "13050";
/// `QUOTA` of `coverage.h`.
const QUOTA: &str = "1GiB";

/// The classes whose every function is covered.
const CLASSES: [Class; 5] = [Class::Alloc, Class::Free, Class::Context, Class::Query, Class::State];

/// What the program prints where a function is unknown to the driver.
const UNKNOWN: &str = "ok the simulated driver does not know it";

/// The symbols that are covered.
pub(crate) fn covered() -> impl Iterator<Item = &'static Symbol> {
    SYMBOLS.iter().filter(|symbol| symbol.library == Library::Cuda && CLASSES.contains(&symbol.class))
}

/// The scenarios there are, by the name of the symbol without its lane: with all of the device, and under a quota.
pub(crate) struct Scenarios {
    /// Those of `WHOLE`.
    pub(crate) whole: BTreeSet<String>,
    /// Those of `PART`.
    pub(crate) part: BTreeSet<String>,
    /// What submits work and is always paced, on some device.
    pub(crate) paced: BTreeSet<String>,
    /// What is paced when it is large.
    pub(crate) paced_if_large: BTreeSet<String>,
    /// What would be if it could be large.
    pub(crate) never_large: BTreeSet<String>,
    /// What submits work that is passed.
    pub(crate) passed: BTreeSet<String>,
}

/// What the program has.
pub(crate) fn scenarios() -> &'static Scenarios {
    static SCENARIOS: OnceLock<Scenarios> = OnceLock::new();
    SCENARIOS.get_or_init(|| {
        let list = Machine::new(MACHINE).bare(program("coverage")).arg("list").run().quiet();
        let of = |kind: &str| -> BTreeSet<String> {
            let names = list.out.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
            names.map(str::to_owned).collect()
        };
        Scenarios {
            whole: of("whole"),
            part: of("part"),
            paced: of("paced"),
            paced_if_large: of("paced-if-large"),
            never_large: of("never-large"),
            passed: of("passed"),
        }
    })
}

/// Runs the scenarios of every symbol of a function.
pub(crate) fn function(base: &str) {
    if launches::listed().any(|symbol| symbol.base == base) {
        return launches::function(base);
    }
    let unknown = NOT_SIMULATED.iter().any(|(_, names)| names.contains(&base));
    let mut wrong = Vec::new();
    for symbol in covered().filter(|symbol| symbol.base == base) {
        if let Err(found) = whole(symbol.name, unknown) {
            wrong.push(found);
        }
        if scenarios().part.contains(symbol.abi)
            && let Err(found) = part(symbol.name)
        {
            wrong.push(found);
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn job(job: Job, kind: &str, symbol: &str) -> Job {
    job.with_context_cost().env("FAKE_CUDA_VERSION", VERSION).env("GPUQUOTA_LOG", "off").arg(kind).arg(symbol)
}

/// Without the shim and under it, with all of the device: the answers are the same.
fn whole(symbol: &str, unknown: bool) -> Result<(), String> {
    let machine = Machine::new(MACHINE);
    let bare = Run::new(job(machine.bare(program("coverage")), "whole", symbol), &machine, false);
    let machine = Machine::new(MACHINE);
    let ours = Run::new(job(machine.job(program("coverage")).memory("100%"), "whole", symbol), &machine, true);
    let mut wrong = bare.wrong(&format!("{symbol} without the shim"));
    wrong.extend(ours.wrong(symbol));
    if ours.answers != bare.answers {
        let differs = ours.answers.iter().zip(&bare.answers).find(|(ours, bare)| ours != bare);
        wrong.push(format!("{symbol}: answered differently: {differs:?} (under the shim, without)"));
    }
    if bare.answers.iter().any(|line| line == UNKNOWN) != unknown {
        wrong.push(format!("{symbol}: NOT_SIMULATED has it: {unknown}"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Under a small quota.
fn part(symbol: &str) -> Result<(), String> {
    let machine = Machine::new(MACHINE);
    let ours = Run::new(job(machine.job(program("coverage")).memory(QUOTA), "part", symbol), &machine, true);
    let wrong = ours.wrong(&format!("{symbol} under a quota"));
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// What a run of the program showed.
struct Run {
    /// Its lines, with nothing that differs from run to run.
    answers: Vec<String>,
    mistakes: Vec<String>,
    points: usize,
    status: i32,
}

impl Run {
    fn new(job: Job, machine: &Machine, is_charged: bool) -> Self {
        let books = machine.books();
        let mut running = job.start();
        let mut run = Self { answers: Vec::new(), mistakes: Vec::new(), points: 0, status: 0 };
        let mut pids = vec![running.pid()];
        loop {
            let line = running.line();
            if line.is_empty() || line == "done" {
                run.answers.push(line);
                break;
            } else if let Some(pid) = line.strip_prefix("WITH ") {
                pids.push(pid.parse().expect("a pid"));
            } else if let Some(pid) = line.strip_prefix("WITHOUT ") {
                pids.retain(|other| other.to_string() != pid);
            } else if let Some(point) = line.strip_prefix("at ") {
                run.points += 1;
                run.mistakes.extend(Point::parse(point).mistakes(&books, &pids, is_charged));
                run.answers.push(line);
                running.go_on();
            } else {
                if line.starts_with("FAIL ") {
                    run.mistakes.push(line.clone());
                }
                run.answers.push(line);
            }
        }
        let (rest, status) = running.finish();
        run.answers.extend(rest.lines().map(str::to_owned));
        run.status = status;
        run
    }

    fn wrong(&self, name: &str) -> Vec<String> {
        let mut wrong: Vec<String> = self.mistakes.iter().map(|mistake| format!("{name}: {mistake}")).collect();
        if self.status != 0 || self.points == 0 || !self.answers.iter().any(|line| line == "done") {
            let last = self.answers.iter().rev().take(4).collect::<Vec<_>>();
            wrong.push(format!("{name}: ended with {} after {last:?}", self.status));
        }
        wrong
    }
}

/// A quiet point.
struct Point<'a> {
    asked: [u64; DEVICES],
    measured: [u64; DEVICES],
    name: &'a str,
}

impl<'a> Point<'a> {
    fn parse(text: &'a str) -> Self {
        let mut words = text.splitn(5, ' ');
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
        let (asked, measured, asked_second, measured_second) = (number(), number(), number(), number());
        let name = words.next().expect("a name");
        Self { asked: [asked, asked_second], measured: [measured, measured_second], name }
    }

    /// What the books say that they shouldn't; `pids` begins with the program's own.
    fn mistakes(&self, books: &Books, pids: &[u32], is_charged: bool) -> Vec<String> {
        let mut mistakes = Vec::new();
        for device in 0..DEVICES {
            let mut claim = |what: &str, got: u64, expected: u64| {
                if got != expected {
                    let (got, expected) = (mib(got), mib(expected));
                    mistakes.push(format!("{:?}, device {device}: {what} {got}, expected {expected}", self.name));
                }
            };
            let (own, expected) = (pids[0], self.asked[device] + self.measured[device]);
            claim("held", books.held(own, device), expected);
            if is_charged {
                claim("charged", books.charged(own, device), expected);
                claim("of it measured", books.overhead(own, device), self.measured[device]);
                for other in &pids[1..] {
                    claim("charged to the other process", books.charged(*other, device), books.held(*other, device));
                }
            }
        }
        mistakes
    }
}

fn mib(bytes: u64) -> String {
    if bytes.is_multiple_of(MIB) { format!("{} MiB", bytes / MIB) } else { format!("{bytes} bytes") }
}
