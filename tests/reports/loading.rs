//! Report 19.06: the library is loaded, and looks functions up, before anything else runs: at once, and without an end to wait for.

use harness::{Machine, program, shim};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// What the report allows, many times what it takes.
const LOADED_MAX: Duration = Duration::from_millis(50);
const COUNTS: [usize; 3] = [0, 30, 300];

/// So many small libraries, each another file.
fn libraries(machine: &Machine, count: usize) -> Vec<PathBuf> {
    let copy = |number: usize| {
        let path = machine.folder().join(format!("other-{number}.so"));
        if !path.exists() {
            std::fs::copy(program("sub/neighbour.so"), &path).expect("writable");
        }
        path
    };
    (0..count).map(copy).collect()
}

/// The shortest of some runs of a program that does nothing, with these preloaded: what else the machine does only adds to it.
fn shortest(preloaded: &[PathBuf]) -> Duration {
    let list: Vec<String> = preloaded.iter().map(|path| path.display().to_string()).collect();
    let run = |_| {
        let begin = Instant::now();
        let done = Command::new(program("plain")).env("LD_PRELOAD", list.join(":")).output().expect("it runs");
        assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
        begin.elapsed()
    };
    (0..9).map(run).min().expect("it ran")
}

/// Before the program's first line, with none to 300 other libraries, before them and behind them.
#[test]
fn a_program_starts_as_fast_as_before_whatever_else_it_loads() {
    let machine = Machine::new("t4-16gb");
    for count in COUNTS {
        let others = libraries(&machine, count);
        let bare = shortest(&others);
        for ours in [[&[shim()], &others[..]].concat(), [&others[..], &[shim()]].concat()] {
            let more = shortest(&ours).saturating_sub(bare);
            assert!(more < LOADED_MAX, "{more:?} more than {bare:?} with {count} libraries");
        }
    }
}

/// Into a program that has as many libraries, and threads that run.
#[test]
fn it_is_loaded_at_once_into_a_program_with_threads() {
    let machine = Machine::new("t4-16gb");
    for count in COUNTS {
        let others = libraries(&machine, count);
        let run = |_| {
            let job =
                others.iter().fold(machine.bare(program("loading")).arg("8").arg(shim()), |job, path| job.arg(path));
            let done = job.run().quiet();
            let words: Vec<&str> = done.out.split_whitespace().collect();
            let ["loaded", loaded, "looked", looked] = words[..] else { panic!("{done:?}") };
            [loaded, looked].map(|text| Duration::from_micros(text.parse().expect("a number")))
        };
        let runs: Vec<[Duration; 2]> = (0..5).map(run).collect();
        let least = |which: usize| runs.iter().map(|run| run[which]).min().expect("it ran");
        assert!(least(0) < LOADED_MAX && least(1) < LOADED_MAX, "{count} libraries: {runs:?}");
    }
}

/// A thousand look-ups each from an `ifunc` that is resolved while the program is bound, from constructors, from destructors of
/// threads and from the program's own: each is answered, and the program's own alarm doesn't ring. So does a driver that is
/// asked for afterwards, under its quota.
#[test]
fn looking_up_hangs_nowhere() {
    let machine = Machine::new("t4-16gb");
    for count in COUNTS {
        let run = |job: harness::Job| {
            let job = libraries(&machine, count).into_iter().fold(job, |job, path| job.arg(path));
            let done = job.run().quiet();
            let right = done.answer("right").split(' ').next().and_then(|number| number.parse::<u32>().ok());
            assert!(
                right.is_some_and(|right| right >= 22_000) && done.answer("right").ends_with("wrong 0"),
                "{done:?}"
            );
            assert!(done.answer("chosen").starts_with("42 before"), "{done:?}");
            done.out
        };
        let bare = run(machine.bare(program("early")));
        for setting in ["enforce", "off"] {
            assert_eq!(
                run(machine.job(program("early")).memory("1GiB").env("GPUQUOTA_MODE", setting)),
                bare,
                "{setting}"
            );
        }
    }
}

/// What came too early is not remembered: the quota of the environment holds once the program runs.
#[test]
fn a_lookup_that_comes_too_early_settles_nothing() {
    let machine = Machine::new("t4-16gb");
    let allocates = |job: harness::Job| {
        let done = job.env("EARLY_ALLOCATES", "1").run();
        (done.code("init"), done.code("small"), done.code("large"), done.status)
    };
    assert_eq!(allocates(machine.bare(program("early"))), (0, 0, 0, 0));
    assert_eq!(allocates(machine.job(program("early")).memory("1GiB")), (0, 0, 2, 0));
}

/// Nor is a program taken for one that is not bound yet since it has thrown its environment away.
#[test]
fn a_program_without_an_environment_meets_us_all_the_same() {
    let machine = Machine::new("t4-16gb");
    let driver = harness::fake_driver().join("libcuda.so.1");
    let has_it = |job: harness::Job| job.arg(&driver).run().quiet().out;
    assert!(has_it(machine.bare(program("cleared"))).starts_with("lib"), "it is the driver's");
    assert_eq!(has_it(machine.job(program("cleared"))), "libgpuquota.so\n");
}
