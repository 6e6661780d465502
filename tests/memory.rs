//! Every kind of memory against one quota, and the views on what is left.

use harness::{Books, GIB, MIB, Machine, Running, program};

const KINDS: [&str; 9] = ["linear", "pitch", "managed", "async", "pool", "vmm", "array", "array3d", "mipmap"];

/// 600 MiB of 1 GiB are granted, as much again is refused with the outputs untouched, a little is granted, and all comes back.
#[test]
fn every_kind_is_granted_refused_and_given_back() {
    for kind in KINDS {
        let machine = Machine::new("a100-80gb");
        let words = format!("init ctx info {kind}:a=600M {kind}:b=600M {kind}:c=2M info free:a free:c sync info");
        let done = machine.probe("dlopen:libcuda.so.1").memory("1GiB").words(&words).journalled().run();
        assert_eq!(done.code(&format!("{kind}:a=600M")), 0, "{kind}: {done:?}");
        assert_eq!(done.answer(&format!("{kind}:b=600M")), "2", "{kind}: refused, outputs untouched: {done:?}");
        assert_eq!(done.code(&format!("{kind}:c=2M")), 0, "{kind}: {done:?}");
        let infos: Vec<&str> = done.lines().into_iter().filter(|line| line.starts_with("info")).collect();
        assert_eq!(infos[0], format!("info 0 {GIB} {GIB}"), "{kind}");
        assert_eq!(infos[2], infos[0], "{kind}: used is back where it was");
        let free: u64 = infos[1].split(' ').nth(2).and_then(|free| free.parse().ok()).expect("a number");
        assert!((GIB - free) >= 602 * MIB && (GIB - free) <= 640 * MIB, "{kind}: {free} free with 602 MiB in use");
    }
}

/// The driver is not asked for what the quota refuses, and is for what it would refuse itself.
#[test]
fn the_driver_is_asked_only_for_what_fits() {
    let machine = Machine::new("a100-80gb");
    let done =
        machine.probe("linked").memory("1GiB").words("init ctx linear:a=2G linear:b=0 linear:c=1M").journalled().run();
    assert_eq!((done.code("linear:a=2G"), done.code("linear:b=0"), done.code("linear:c=1M")), (2, 1, 0));
    let asked: Vec<_> = machine.journal().into_iter().filter(|call| call["function"] == "cuMemAlloc_v2").collect();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(asked[0]["result"], 1, "size 0 is the driver's error");
}

#[test]
fn a_call_that_the_driver_refuses_keeps_its_code_and_costs_nothing() {
    let machine = Machine::new("a100-80gb");
    let job = machine.probe("linked").memory("1GiB").env("FAKE_CUDA_FAIL", "cuMemAlloc_v2:1=719,cuMemCreate:*=999");
    let done = job.words("init ctx linear:a=900M linear:b=900M vmm:c=100M info").run();
    let codes = ["linear:a=900M", "linear:b=900M", "vmm:c=100M"].map(|word| done.code(word));
    assert_eq!(codes, [719, 0, 999], "{done:?}");
    assert_eq!(done.numbers("info"), [124 * MIB, GIB], "only what was granted is charged");
}

/// Memory may be freed by another function than allocated it; where the driver allows it, the books follow.
#[test]
fn frees_of_all_kinds_cross() {
    for (kind, free) in [("linear", "afree"), ("async", "afree"), ("managed", "free"), ("pool", "afree")] {
        let machine = Machine::new("a100-80gb");
        let words = format!("init ctx {kind}:a=600M {free}:a sync trim {kind}:b=600M info");
        let words = words.replace(" trim", "");
        let done = machine.probe("dlopen:libcuda.so.1").memory("1GiB").words(&words).run();
        assert_eq!(done.code(&format!("{kind}:b=600M")), 0, "{kind} {free}: {done:?}");
    }
}

/// Before a pool's idle memory makes an allocation fail, it is trimmed, without a synchronisation by us.
#[test]
fn own_pools_are_trimmed_before_a_refusal() {
    let machine = Machine::new("a100-80gb");
    let done = machine
        .probe("dlopen:libcuda.so.1")
        .memory("1GiB")
        .words("init ctx async:a=600M afree:a info linear:b=600M info")
        .run();
    assert_eq!(done.code("linear:b=600M"), 0, "{done:?}");
}

#[test]
fn a_destroyed_context_gives_its_pointers_back() {
    let machine = Machine::new("a100-80gb");
    let done = machine
        .probe("linked")
        .memory("1GiB")
        .words("init ctx linear:a=600M linear:s=4K array:b=100M managed:c=100M drop ctx info linear:d=900M")
        .run();
    assert_eq!(done.numbers("info"), [GIB, GIB], "{done:?}");
    assert_eq!(done.code("linear:d=900M"), 0);
}

/// Small blocks share pages, as on the device.
#[test]
fn small_blocks_are_charged_by_the_page_they_fill() {
    let machine = Machine::new("a100-80gb");
    let blocks: String = (0..100).map(|index| format!(" linear:s{index}=100K")).collect();
    let done = machine.probe("linked").memory("1GiB").words(&format!("init ctx{blocks} info")).run();
    // 100 blocks of 102,400 bytes fill five pages of 2 MiB.
    assert_eq!(done.numbers("info"), [GIB - 10 * MIB, GIB], "{}", done.err);
}

#[test]
fn null_outputs_of_the_memory_query_are_legal() {
    let machine = Machine::new("a100-80gb");
    let done = machine.probe("linked").memory("1GiB").words("init ctx nullinfo info").run();
    let bare = machine.bare(harness::program("probe-linked")).arg("linked").words("init ctx nullinfo").run();
    assert_eq!(done.code("nullinfo"), bare.code("nullinfo"));
    assert_eq!(done.code("info"), 0);
}

/// A quota above the device is the device's size; what others hold limits what is free, never what is total.
#[test]
fn the_view_never_exceeds_the_device() {
    let machine = Machine::new("t4-16gb");
    let done = machine.probe("linked").with_context_cost().memory("1TiB").words("init ctx total info").run();
    let bare = machine.bare(harness::program("probe-linked")).arg("linked").words("init ctx total info").run();
    assert_eq!(done.numbers("total"), bare.numbers("total"));
    assert_eq!(done.numbers("info")[1], bare.numbers("info")[1]);
    assert_eq!(done.numbers("info"), bare.numbers("info"), "one process, alone: the driver's own numbers");
}

#[test]
fn devices_have_quotas_of_their_own() {
    let machine = Machine::new("2xt4-16gb");
    let done = machine
        .probe("linked")
        .env("GPUQUOTA_MEMORY_0", "1GiB")
        .env("GPUQUOTA_MEMORY_1", "50%")
        .words("init ctx=0 total=0 total=1 linear:a=1100M device=1 ctx=1 linear:b=1100M vmm:c=1100M")
        .run();
    assert_eq!(
        (done.code("linear:a=1100M"), done.code("linear:b=1100M"), done.code("vmm:c=1100M")),
        (2, 0, 0),
        "{done:?}"
    );
    assert_eq!(done.numbers("total=0"), [GIB]);
    assert!(done.numbers("total=1")[0] > 7 * GIB && done.numbers("total=1")[0] < 8 * GIB);
}

/// A program sees one of two devices: the quota is on that one, whatever its number is elsewhere.
#[test]
fn the_quota_is_on_the_device_that_is_seen() {
    let machine = Machine::new("2xt4-16gb");
    let job = machine.probe("linked").env("CUDA_VISIBLE_DEVICES", "1").memory("1GiB");
    let done = job.words("init ctx=0 total=0 linear:a=600M linear:b=600M").run();
    assert_eq!((done.code("linear:a=600M"), done.code("linear:b=600M")), (0, 2), "{done:?}");
}

#[test]
fn observing_counts_and_never_refuses_and_off_does_nothing() {
    let machine = Machine::new("a100-80gb");
    let words = "init ctx linear:a=600M linear:b=600M total";
    let observed = machine.probe("linked").memory("1GiB").env("GPUQUOTA_MODE", "observe").words(words).run();
    assert_eq!(observed.code("linear:b=600M"), 0, "{observed:?}");
    let off = machine.probe("linked").memory("1GiB").env("GPUQUOTA_MODE", "off").words(words).run().quiet();
    assert_eq!(off.code("linear:b=600M"), 0);
    assert_eq!(off.numbers("total")[0], machine.total_bytes());
}

/// Neither quota nor daemon: everything passes, and nothing is said.
#[test]
fn unmanaged_passes() {
    let machine = Machine::new("a100-80gb");
    let done = machine.probe("linked").words("init ctx total linear:a=2G copy:a launch=spin_20us sync").run().quiet();
    assert_eq!(done.numbers("total")[0], machine.total_bytes());
    assert_eq!((done.code("linear:a=2G"), done.code("copy:a"), done.code("launch=spin_20us")), (0, 0, 0));
}

/// An allocation, a free and a look at what is free make no system call: one would end the program.
#[test]
fn the_ordinary_path_makes_no_system_call() {
    let machine = Machine::new("a100-80gb");
    let quiet = harness::program("quiet-driver/libcuda.so.1");
    let folder = quiet.parent().expect("a folder");
    let job = || machine.job(harness::program("no-syscalls")).memory("1GiB").env("LD_LIBRARY_PATH", folder);
    let done = job().arg("forbid").run().quiet();
    assert_eq!(done.out, format!("free {} of {GIB}\n", GIB - 2 * MIB), "the shim was there");
    assert_eq!(job().run().quiet().out, done.out);
}

/// What a process is charged is what it holds; how much.
fn held(books: &Books, process: &Running) -> u64 {
    let (charged, held) = (books.charged(process.pid(), 0), books.held(process.pid(), 0));
    assert_eq!(charged, held, "charged, held");
    held
}

/// A primary context that was reset is still retained, so it doesn't go when what a refused call took is given back: it is
/// reset again. And the program has retained it as often as it thinks.
#[test]
fn a_refused_primary_context_is_gone_although_it_is_retained() {
    for how in ["retain", "green"] {
        let machine = Machine::new("a100-80gb");
        // What a context costs is known from others, for whom it costs less.
        let cheap = machine.probe("linked").memory("1GiB").env("FAKE_CUDA_CONTEXT", "24MiB").words("init ctx").run();
        assert_eq!(cheap.code("ctx"), 0, "{cheap:?}");
        let job = machine.job(program("primary")).arg(how).memory("1GiB").env("FAKE_CUDA_CONTEXT", "48MiB");
        let (mut job, books) = (job.start(), machine.books());
        assert_eq!(job.until("look"), ["retain 0", "reset 0", "fill 0", "full 2", "state 0 0"], "{how}");
        assert_eq!(held(&books, &job), 984 * MIB, "{how}");
        job.go_on();
        let after = ["empty 0", "retain 0", "release 0", "state 0 1", "release 0", "state 0 0", "release 201"];
        assert_eq!(job.until("look"), after, "{how}");
        assert_eq!(held(&books, &job), 0, "{how}");
        job.finish();
    }
}

/// A primary context that nobody was seen to retain ends, and with it what was in it.
#[test]
fn a_primary_context_made_for_a_green_one_takes_what_is_in_it() {
    let machine = Machine::new("a100-80gb");
    let mut job = machine.job(program("primary")).arg("reset").memory("1GiB").env("FAKE_CUDA_CONTEXT", "24MiB").start();
    let books = machine.books();
    assert_eq!(job.until("look"), ["green 0", "context 0", "allocate 0"]);
    assert_eq!(held(&books, &job), (24 + 4 + 2) * MIB);
    job.go_on();
    assert_eq!(job.until("look"), ["reset 0"]);
    assert_eq!(held(&books, &job), 0);
    job.finish();
}
