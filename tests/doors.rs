//! Through whatever door a program comes to the driver, it meets the quota, and the pointers are ours.

use harness::{GIB, Machine, fake_driver, program, shim};

const WORDS: &str =
    "init ctx total info linear:a=600M linear:b=600M async:c=600M linear:d=1M free:a linear:e=600M info";

fn the_quota_holds_behind(door: &str) {
    let machine = Machine::new("a100-80gb");
    let done = machine.probe(door).memory("1GiB").words(WORDS).run();
    assert_eq!(done.status, 0, "{door}: {done:?}");
    assert_eq!(done.numbers("total"), [GIB], "{door}");
    let codes = ["linear:a=600M", "linear:b=600M", "async:c=600M", "linear:d=1M", "free:a", "linear:e=600M"]
        .map(|word| done.code(word));
    assert_eq!(codes, [0, 2, 2, 0, 0, 0], "{door}: {}", done.out);
}

#[test]
fn linked() {
    the_quota_holds_behind("linked");
}

#[test]
fn dlopen_by_soname_and_by_development_name() {
    the_quota_holds_behind("dlopen:libcuda.so.1");
    the_quota_holds_behind("dlopen:libcuda.so");
}

#[test]
fn dlopen_by_absolute_path_and_of_a_copy() {
    the_quota_holds_behind(&format!("dlopen:{}", fake_driver().join("libcuda.so.1").display()));
    // A framework may ship a driver of its own under its own path.
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("libcuda.so.535.99");
    std::fs::copy(fake_driver().join("libcuda.so.1"), &copy).expect("a copy");
    the_quota_holds_behind(&format!("dlopen:{}", copy.display()));
}

#[test]
fn dlopen_with_deepbind() {
    the_quota_holds_behind("deepbind:libcuda.so.1");
    the_quota_holds_behind("deepbind:libcuda.so");
}

#[test]
fn names_asked_of_the_global_scope_and_of_the_shim_itself() {
    the_quota_holds_behind("default");
    the_quota_holds_behind(&format!("dlopen:{}", shim().display()));
}

#[test]
fn proc_address_in_both_forms_at_old_and_new_versions() {
    for door in ["proc:12000", "proc:12090", "proc:13020", "proc_v1:11030", "proc_v1:12000", "proc_v1:13020"] {
        the_quota_holds_behind(door);
    }
}

#[test]
fn per_thread_stream_names() {
    for door in ["dlopen:libcuda.so.1,ptsz", "proc:13020,ptsz", "proc_v1:11080,ptsz"] {
        the_quota_holds_behind(door);
    }
}

/// The quota acts on the very first call: there is no warming up.
#[test]
fn first_call_is_refused() {
    let machine = Machine::new("a100-80gb");
    let done = machine.probe("proc:13020").memory("64MiB").words("init ctx linear:a=65M").run();
    assert_eq!(done.code("linear:a=65M"), 2);
}

/// What the program is told of the driver is what the driver says, names, versions, flags and all.
#[test]
fn answers_of_the_resolver_are_the_drivers_and_the_pointers_ours() {
    let machine = Machine::new("a100-80gb");
    let symbols: Vec<&str> =
        driver_api::SYMBOLS.iter().filter(|s| s.library == driver_api::Library::Cuda).map(|s| s.name).collect();
    let mut bases: Vec<&str> = driver_api::RESOLVER.iter().map(|row| row.base).collect();
    bases.dedup();
    bases.extend(["cuMemAlloc_v2", "cuNoSuchFunction", "CUMEMALLOC"]);
    let list = machine.folder().join("symbols");
    std::fs::write(&list, symbols.join("\n")).expect("writable");
    let names = machine.folder().join("names");
    std::fs::write(&names, bases.join("\n")).expect("writable");
    for form in ["v1", "v2"] {
        let ask = |job: harness::Job| {
            let mut command = job
                .arg(&list)
                .arg(form)
                .words("0 2000 3020 7000 11030 11040 12000 12050 13000 13020 99999 -1")
                .into_command();
            let output = command.stdin(std::fs::File::open(&names).expect("written")).output().expect("it runs");
            assert!(output.status.success());
            String::from_utf8(output.stdout).expect("ASCII")
        };
        let bare = ask(machine.bare(program("resolve")));
        let ours = ask(machine.job(program("resolve")).memory("1GiB"));
        assert!(bare.lines().count() > 10_000, "it asked");
        assert!(
            !bare.contains(" ?\n") && !ours.contains(" ?\n"),
            "every pointer is an exported symbol, ours where we are"
        );
        for (bare, ours) in bare.lines().zip(ours.lines()) {
            assert_eq!(bare, ours);
        }
        assert_eq!(bare.len(), ours.len());
    }
}

/// A driver older than the second form: it is absent, and the first form works.
#[test]
fn an_old_driver_has_only_the_first_form() {
    let machine = Machine::new("v100-32gb");
    let old = |job: harness::Job| job.env("FAKE_CUDA_VERSION", "11040");
    let done = old(machine.probe("proc_v1:11040")).memory("1GiB").words("init ctx linear:a=600M linear:b=600M").run();
    assert_eq!((done.code("linear:a=600M"), done.code("linear:b=600M")), (0, 2), "{done:?}");
}

/// A driver that lacks much and has something new: absent names look absent, and called all the same they answer 801;
/// what nobody has heard of still works.
#[test]
fn a_driver_of_another_age() {
    let machine = Machine::new("v100-32gb");
    let small = program("small-driver/libcuda.so.1");
    let job =
        machine.job(program("other-age")).env("LD_LIBRARY_PATH", small.parent().expect("a folder")).memory("1GiB");
    let done = job.run();
    assert_eq!(
        done.lines(),
        ["init 0", "absent 1 1", "future 0 42", "unknown 500 1", "by-name 2", "linked-absent 801 801"],
        "{done:?}"
    );
}

#[test]
fn dlvsym_of_a_driver_with_versions() {
    let machine = Machine::new("v100-32gb");
    let small = program("small-driver/libcuda.so.1");
    let look = |job: harness::Job| job.env("LD_LIBRARY_PATH", small.parent().expect("a folder")).run();
    let by_path = |job: harness::Job| look(job.arg(&small));
    let (bare, ours) = (by_path(machine.bare(program("lookups"))), by_path(machine.job(program("lookups"))));
    assert!(bare.answer("dlvsym-alloc").starts_with("libcuda.so.1"), "{bare:?}");
    assert_eq!(bare.answer("dlvsym-wrong"), "- error");
    // Asked of the shim under the driver's name, whose symbols have no versions: by name, as ever.
    assert_eq!(ours.answer("alloc"), "libgpuquota.so");
    assert_eq!(ours.answer("driver-dlvsym-alloc"), "libgpuquota.so", "{ours:?}");
    assert_eq!(ours.answer("driver-dlvsym-wrong"), "- error");
}

/// The library works from any path and under any name: nothing in it knows where it was installed.
#[test]
fn the_library_may_lie_anywhere() {
    let machine = Machine::new("a100-80gb");
    let elsewhere = machine.folder().join("renamed.so");
    std::fs::copy(shim(), &elsewhere).expect("a copy");
    let done = machine.probe("linked").env("LD_PRELOAD", &elsewhere).memory("1GiB").words(WORDS).run();
    assert_eq!((done.code("linear:a=600M"), done.code("linear:b=600M")), (0, 2), "{done:?}");
}

/// Put into the loader's path under the driver's name, it still finds the real one behind itself.
#[test]
fn the_library_in_the_drivers_place_is_not_its_own_driver() {
    let machine = Machine::new("a100-80gb");
    let folder = machine.folder().join("lib");
    std::fs::create_dir(&folder).expect("writable");
    std::fs::hard_link(shim(), folder.join("libcuda.so.1"))
        .or_else(|_| std::fs::copy(shim(), folder.join("libcuda.so.1")).map(drop))
        .expect("a copy");
    let path = format!("{}:{}", folder.display(), fake_driver().display());
    let done = machine.probe("linked").env("LD_LIBRARY_PATH", path).memory("1GiB").words(WORDS).run();
    assert_eq!((done.code("linear:a=600M"), done.code("linear:b=600M")), (0, 2), "{done:?}");
}

/// With hooks switched off, look-ups give the driver's own addresses.
#[test]
fn off_gives_out_no_hook() {
    let machine = Machine::new("a100-80gb");
    let done = machine.probe("proc:13020").env("GPUQUOTA_MODE", "off").memory("1GiB").words(WORDS).run().quiet();
    assert_eq!((done.code("linear:a=600M"), done.code("linear:b=600M")), (0, 0));
}

#[test]
fn the_library_looks_like_a_driver_to_the_loader() {
    let output = std::process::Command::new("readelf").arg("-d").arg(shim()).output();
    // Without binutils the loader's own behaviour, tested above, says the same.
    let Ok(output) = output else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("soname: [libcuda.so.1]"), "{text}");
}
