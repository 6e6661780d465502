//! Processes of one tenant without a daemon: one quota, exact, and nothing outlives a process.

use harness::{GIB, Ledger, MIB, Machine, eventually, program};
use std::time::Duration;

fn free_of(machine: &Machine) -> u64 {
    machine.probe("linked").memory("1GiB").words("init ctx info").run().numbers("info")[0]
}

#[test]
fn two_processes_share_one_quota() {
    let machine = Machine::new("a100-80gb");
    let mut first = machine
        .probe("linked")
        .memory("1GiB")
        .words("init ctx linear:a=600M say=ready wait free:a say=freed wait")
        .start();
    first.until("say=ready".trim_start_matches("say="));
    let second = machine.probe("linked").memory("1GiB").words("init ctx info linear:b=600M linear:c=400M").run();
    assert_eq!(second.numbers("info"), [424 * MIB, GIB]);
    assert_eq!((second.code("linear:b=600M"), second.code("linear:c=400M")), (2, 0));
    first.go_on();
    first.until("freed");
    let third = machine.probe("linked").memory("1GiB").words("init ctx linear:b=1G").run();
    assert_eq!(third.code("linear:b=1G"), 0);
    first.finish();
}

/// What was made and then doesn't fit is taken back; what the driver won't take back is the program's, which can end it.
#[test]
fn a_context_that_cannot_be_unmade_is_the_programs() {
    let machine = Machine::new("a100-80gb");
    let member = |context: &str| machine.probe("linked").memory("1GiB").env("FAKE_CUDA_CONTEXT", context);
    let mut first = member("20MiB").words("init ctx linear:a=940M say=ready wait").start();
    first.until("ready");
    let refused = member("100MiB").words("init ctx").run();
    assert_eq!(refused.code("ctx"), 2, "100 MiB where 64 are left: {refused:?}");
    let failing = member("100MiB").env("FAKE_CUDA_FAIL", "cuCtxDestroy_v2:1=999");
    let mut left = failing.words("init ctx info linear:b=2M drop say=dropped wait").start();
    let lines = left.until("dropped");
    assert_eq!(
        lines,
        ["init 0", "ctx 0", &format!("info 0 0 {GIB}"), "linear:b=2M 2", "drop 0"],
        "charged, fit or not"
    );
    first.go_on();
    first.finish();
    let after = member("20MiB").words("init ctx linear:c=1000M").run();
    assert_eq!(after.code("linear:c=1000M"), 0, "it has given everything back: {after:?}");
}

/// The kernel drops locks when it closes files, and the driver lets go of memory after that: what a process held that is just
/// ending is nobody's yet.
#[test]
fn what_a_process_held_is_credited_when_it_has_ended() {
    let machine = Machine::new("a100-80gb");
    let mut ending = machine.job(program("ending")).memory("1GiB").start();
    ending.until("ready");
    let stat = format!("/proc/{}/stat", ending.pid());
    let has_begun = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "));
    eventually(Duration::from_secs(5), "its first thread has ended", has_begun);
    let other = || machine.probe("linked").memory("1GiB").words("init ctx linear:a=600M").run().code("linear:a=600M");
    let meanwhile = other();
    ending.kill();
    assert_eq!((meanwhile, other()), (2, 0));
}

/// By name: processes of one tenant share, and those of another don't.
#[test]
fn a_tenants_name_finds_its_ledger() {
    let machine = Machine::new("a100-80gb");
    let [one, two] = ["one", "two"].map(|name| format!("{name}-{}", std::process::id()));
    let ledgers = [Ledger::of(&one), Ledger::of(&two)];
    let mut first =
        machine.probe("linked").tenant(&one).memory("1GiB").words("init ctx linear:a=600M say=ready wait").start();
    first.until("ready");
    let ask =
        |tenant: &str| machine.probe("linked").tenant(tenant).memory("1GiB").words("init ctx linear:b=600M").run();
    assert_eq!((ask(&one).code("linear:b=600M"), ask(&two).code("linear:b=600M")), (2, 0));
    first.finish();
    for ledger in &ledgers {
        use std::os::unix::fs::MetadataExt;
        assert_eq!(std::fs::metadata(ledger.path()).expect("made").mode() & 0o777, 0o600, "nobody else's business");
    }
}

/// SIGKILL at a moment of full use: everything is back within a second.
#[test]
fn a_killed_process_gives_everything_back() {
    let machine = Machine::new("a100-80gb");
    let mut victim =
        machine.probe("linked").memory("1GiB").words("init ctx linear:a=900M vmm:b=50M say=ready wait").start();
    victim.until("ready");
    assert_eq!(free_of(&machine), 74 * MIB);
    victim.kill();
    eventually(Duration::from_secs(1), "the memory is back", || free_of(&machine) == GIB);
}

/// A survivor sees it too, without a new process looking.
#[test]
fn a_survivor_sees_what_a_killed_process_gave_back() {
    let machine = Machine::new("a100-80gb");
    let mut victim = machine.probe("linked").memory("1GiB").words("init ctx linear:a=900M say=ready wait").start();
    victim.until("ready");
    let mut survivor = machine
        .probe("linked")
        .memory("1GiB")
        .words("init ctx linear:x=100M wait sleep=300 info linear:b=800M")
        .start();
    assert_eq!(survivor.until("linear:x=100M 0").len(), 2);
    victim.kill();
    survivor.go_on();
    let (rest, status) = survivor.finish();
    assert_eq!(rest, format!("info 0 {} {GIB}\nlinear:b=800M 0\n", 924 * MIB));
    assert_eq!(status, 0);
}

/// Eight processes ask for more than there is, all at once: what is granted fits exactly.
#[test]
fn many_processes_at_once_get_exactly_the_quota() {
    let machine = Machine::new("a100-80gb");
    let words = "init ctx say=ready wait linear:a=64M linear:b=64M linear:c=64M linear:d=64M say=done wait";
    let mut jobs: Vec<_> = (0..8)
        .map(|_| machine.probe("linked").memory("1GiB").env("GPUQUOTA_LOG", "off").words(words).start())
        .collect();
    for job in &mut jobs {
        job.until("ready");
    }
    for job in &mut jobs {
        job.go_on();
    }
    let mut granted = 0;
    for job in &mut jobs {
        granted += job.until("done").iter().filter(|line| line.ends_with(" 0")).count();
    }
    assert_eq!(granted, 16, "16 blocks of 64 MiB fill 1 GiB");
    assert_eq!(free_of(&machine), 0);
    for job in jobs {
        job.finish();
    }
    assert_eq!(free_of(&machine), GIB);
}

/// The child of a process that used CUDA is refused by the driver, not by us, and the parent's books stay.
#[test]
fn a_forked_child_gets_the_drivers_error_and_the_parent_keeps_its_use() {
    let machine = Machine::new("a100-80gb");
    for used in ["used", "unused"] {
        let bare = machine.bare(program("fork")).arg(used).run().quiet();
        let ours = machine.job(program("fork")).memory("1GiB").arg(used).run();
        assert_eq!(ours.status, 0);
        for word in ["child-init", "child-ctx", "child-alloc", "child-status"] {
            assert_eq!(ours.answer(word), bare.answer(word), "{used} {word}");
        }
        if used == "used" {
            assert_eq!(ours.code("after-alloc"), 2, "the parent's 600 MiB still count");
        } else {
            assert_eq!(ours.numbers("child-info"), [GIB], "a child of its own right has the quota");
        }
    }
}

/// What lies under the ledger's name and is no ledger is refused, named, and left alone.
#[test]
fn a_foreign_file_in_the_ledgers_place_is_refused() {
    let machine = Machine::new("a100-80gb");
    for (content, reason) in [(&b"not a ledger"[..], "not a gpuquota ledger"), (&[7u8; 590_912][..], "ledger")] {
        let cache = machine.folder().join(format!("cache-{}", content.len()));
        let ledger = format!("{}.gpuquota", cache.display());
        std::fs::write(&ledger, content).expect("writable");
        let job = machine.probe("linked").memory("1GiB").env("CUDA_DEVICE_MEMORY_SHARED_CACHE", &cache);
        let done = job.words("init ctx linear:a=1M").run();
        assert_eq!(done.code("linear:a=1M"), 2, "{done:?}");
        assert!(done.err.contains(reason) && done.err.contains(&ledger), "{}", done.err);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
        assert_eq!(std::fs::read(&ledger).expect("still there"), content);
    }
}

/// HAMi's shared cache file names the ledger: processes that mount it share, whatever else differs.
#[test]
fn hami_names_share_a_quota_by_their_cache_file() {
    let machine = Machine::new("a100-80gb");
    let job = || {
        let job = machine.job(program("probe-linked")).arg("linked").env("CUDA_DEVICE_MEMORY_LIMIT", "1024m");
        job.env("CUDA_DEVICE_MEMORY_SHARED_CACHE", machine.folder().join("vgpu.cache"))
    };
    let mut first = job().words("init ctx linear:a=600M say=ready wait").start();
    first.until("ready");
    let second = job().words("init ctx total linear:b=600M linear:c=400M").run();
    assert_eq!(
        (second.numbers("total"), second.code("linear:b=600M"), second.code("linear:c=400M")),
        (vec![GIB], 2, 0)
    );
    first.finish();
}

/// Threads of several processes at full speed: no wrong answer, nothing lost, nothing left.
#[test]
fn threads_of_many_processes_leave_the_books_balanced() {
    let machine = Machine::new("a100-80gb");
    let job = || {
        let job = machine.job(program("threads")).memory("512MiB").env("GPUQUOTA_LOG", "off");
        job.words("proc:13020 6 3000")
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| job().run())).collect();
        runs.into_iter().map(|run| run.join().expect("it runs")).collect()
    });
    for done in &done {
        assert_eq!(done.status, 0, "{done:?}");
        let calls = done.numbers("calls");
        assert!(calls[0] > 0 && calls[1] > 0, "some were granted and some refused: {done:?}");
        assert_eq!(calls[2], 0, "no call answered anything else: {done:?}");
    }
    let after = machine.probe("linked").memory("512MiB").words("init ctx info linear:a=512M").run();
    assert_eq!((after.numbers("info"), after.code("linear:a=512M")), (vec![512 * MIB, 512 * MIB], 0));
}
