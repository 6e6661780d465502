//! The simulated driver by itself: it must be what it stands in for, as far as the interface shows, and the shim
//! under a quota that never bites must not be seen through it.

use harness::{Done, GIB, Job, MIB, Machine, eventually, program};
use std::time::{Duration, Instant};

fn bare(machine: &Machine, words: &str) -> Job {
    machine.bare(program("probe-linked")).arg("linked").words(words)
}

/// `cuGetProcAddress` in both forms, every name, old and new versions, all flags, by drivers of three ages: the list's answer.
#[test]
fn resolution_follows_the_measured_rules() {
    let machine = Machine::new("a100-80gb");
    let symbols: Vec<&str> =
        driver_api::SYMBOLS.iter().map(|symbol| symbol.name).filter(|name| name.starts_with("cu")).collect();
    let mut bases: Vec<&str> = driver_api::RESOLVER.iter().map(|row| row.base).collect();
    bases.dedup();
    bases.extend(["cuMemAlloc_v2", "cuNoSuchFunction", "cumemalloc"]);
    let (list, names) = (machine.folder().join("symbols"), machine.folder().join("names"));
    std::fs::write(&list, symbols.join("\n")).expect("writable");
    std::fs::write(&names, bases.join("\n")).expect("writable");
    for driver in [11040, 12020, 13020] {
        for form in ["v1", "v2"] {
            let job = machine
                .bare(program("resolve"))
                .arg(&list)
                .arg(form)
                .words("0 1999 2000 3019 3020 7000 11040 11050 12050 13020 99999 -1");
            let mut command = job.env("FAKE_CUDA_VERSION", driver.to_string()).into_command();
            let output = command.stdin(std::fs::File::open(&names).expect("written")).output().expect("it runs");
            let text = String::from_utf8(output.stdout).expect("ASCII");
            // The second form's own export can't be hidden in a linked library; the first form never gives it out.
            if form == "v2" && driver < 12000 {
                continue;
            }
            assert!(text.lines().count() > 20_000, "{driver} {form}");
            text.lines().for_each(|line| check_resolution(line, form, driver));
        }
    }
}

fn check_resolution(line: &str, form: &str, driver: i32) {
    let parts: Vec<&str> = line.split(' ').collect();
    let [name, version, flags, code, status, symbol] = parts[..] else { panic!("{line}") };
    let flags: u32 = flags.parse().expect("a number");
    let answer = (code, status, symbol);
    if flags > 2 {
        assert_eq!(answer, ("1", "77", "untouched"), "{line}");
        return;
    }
    let expected = driver_api::resolve(name, version.parse().expect("a number"), flags == 2, driver);
    match (expected, form) {
        (Ok(id), "v1") => assert_eq!(answer, ("0", "77", id.get().name), "{line}"),
        (Ok(id), _) => assert_eq!(answer, ("0", "0", id.get().name), "{line}"),
        (Err(_), "v1") => assert_eq!(answer, ("500", "77", "untouched"), "{line}"),
        (Err(why), _) => assert_eq!(answer, ("0", (why as i32).to_string().as_str(), "-"), "{line}"),
    }
}

#[test]
fn every_machine_starts_and_has_the_memory_it_should() {
    for (spec, gib) in [
        ("a100-80gb", 80),
        ("a100-40gb", 40),
        ("h100-80gb", 80),
        ("h200-141gb", 141),
        ("l4-24gb", 24),
        ("t4-16gb", 16),
        ("v100-32gb", 32),
        ("rtx3090-24gb", 24),
        ("rtx4090-24gb", 24),
    ] {
        let machine = Machine::new(spec);
        let done = bare(&machine, "init ctx total info linear:a=1G copy:a launch=spin_0us sync").run().quiet();
        let total = done.numbers("total")[0];
        assert!(total <= gib * GIB && total > gib * GIB / 10 * 9, "{spec}: {total}");
        assert_eq!((done.code("copy:a"), done.code("launch=spin_0us")), (0, 0), "{spec}");
    }
}

#[test]
fn visible_devices_are_chosen_as_the_driver_does() {
    let machine = Machine::new("l4-24gb,t4-16gb");
    let count = |visible: &str| {
        let done = bare(&machine, "init total=0 total=1 total=2").env("CUDA_VISIBLE_DEVICES", visible).run();
        if done.code("init") != 0 {
            return Vec::new();
        }
        let sizes =
            ["total=0", "total=1", "total=2"].map(|word| (done.code(word) == 0).then(|| done.numbers(word)[0] / GIB));
        sizes.into_iter().flatten().collect::<Vec<_>>()
    };
    let (l4, t4) = (22, 14);
    for (visible, expected) in [
        ("0,1", vec![l4, t4]),
        ("1,0", vec![t4, l4]),
        ("1", vec![t4]),
        ("", vec![]),
        ("-1", vec![]),
        ("0,-1,1", vec![l4]),
        ("0,7,1", vec![l4]),
        ("GPU-", vec![]),
        ("0,0", vec![]),
    ] {
        assert_eq!(count(visible), expected, "{visible:?}");
    }
    let uuids = uuids(&machine);
    assert_eq!(count(&uuids[1]), [t4], "by its UUID");
    assert_eq!(count(&uuids[1][..12]), [t4], "by the beginning of it");
    assert_ne!(uuids[0], uuids[1]);
}

/// UUIDs in NVML's order.
fn uuids(machine: &Machine) -> Vec<String> {
    let done = machine.bare(program("nvml")).run();
    done.lines().iter().filter_map(|line| line.strip_prefix("uuid ")).map(str::to_owned).collect()
}

#[test]
fn memory_is_finite_across_processes_and_comes_back() {
    let machine = Machine::new("t4-16gb");
    let mut holder = bare(&machine, "init ctx linear:a=10G say=ready wait").start();
    holder.until("ready");
    let second = bare(&machine, "init ctx linear:b=8G linear:c=2G info").run();
    assert_eq!((second.code("linear:b=8G"), second.code("linear:c=2G")), (2, 0), "{second:?}");
    holder.kill();
    eventually(Duration::from_secs(1), "a killed process's memory is back", || {
        bare(&machine, "init ctx linear:b=12G").run().code("linear:b=12G") == 0
    });
}

#[test]
fn a_context_costs_what_it_is_told_to() {
    let free = |context: &str| {
        let machine = Machine::new("a100-80gb");
        bare(&machine, "init ctx info").env("FAKE_CUDA_CONTEXT", context).run().numbers("info")[0]
    };
    assert_eq!(free("100MiB") - free("500MiB"), 400 * MIB);
}

#[test]
fn failures_and_latencies_come_when_they_are_asked_for() {
    let machine = Machine::new("a100-80gb");
    let job = bare(&machine, "init ctx linear:a=1M linear:b=1M linear:c=1M launch=spin_0us launch=spin_0us");
    let done = job.env("FAKE_CUDA_FAIL", "cuMemAlloc_v2:2=2,cuLaunchKernel:*=719").run();
    assert_eq!(["linear:a=1M", "linear:b=1M", "linear:c=1M"].map(|word| done.code(word)), [0, 2, 0]);
    assert_eq!(done.lines().iter().filter(|line| **line == "launch=spin_0us 719").count(), 2);
    let start = Instant::now();
    bare(&machine, "init ctx linear:a=1M linear:b=1M").env("FAKE_CUDA_LATENCY", "cuMemAlloc_v2=100ms").run().quiet();
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[test]
fn the_journal_has_every_call_and_says_what_is_not_modelled() {
    let machine = Machine::new("a100-80gb");
    let done = machine.bare(program("unmodelled")).journalled().run().quiet();
    assert_eq!(done.out, "init 0\nmulticast 801\n");
    let journal = machine.journal();
    let call = |name: &str| {
        journal.iter().find(|call| call["function"] == name).unwrap_or_else(|| panic!("{name} in {journal:?}"))
    };
    assert_eq!(call("cuInit")["result"], 0);
    let multicast = call("cuMulticastCreate");
    assert_eq!((&multicast["result"], &multicast["args"]["unmodelled"]), (&801.into(), &1.into()));
    for field in ["function", "args", "result", "pid", "time_ns"] {
        assert!(multicast.get(field).is_some(), "{field}");
    }
}

#[test]
fn kernels_take_the_time_in_their_name_and_share_the_device() {
    let machine = Machine::new("a100-80gb");
    let launches = "launch=spin_20ms ".repeat(10);
    let alone = || bare(&machine, &format!("init ctx {launches}sync")).run().quiet();
    let start = Instant::now();
    alone();
    let one = start.elapsed();
    assert!(one >= Duration::from_millis(200), "{one:?}");
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(alone);
        }
    });
    let three = start.elapsed();
    assert!(three >= Duration::from_millis(600), "three processes take turns: {three:?}");
}

#[test]
fn a_setting_that_cannot_be_understood_is_one_line() {
    for (name, value) in [
        ("FAKE_CUDA_MACHINE", "a100"),
        ("FAKE_CUDA_FAIL", "cuInit"),
        ("FAKE_CUDA_VERSION", "new"),
        ("FAKE_CUDA_CONTEXT", "big"),
    ] {
        let machine = Machine::new("a100-80gb");
        let done = bare(&machine, "init").env(name, value).run();
        assert_ne!(done.code("init"), 0, "{name}");
        assert_eq!(done.err.lines().count(), 1, "{name}: {}", done.err);
        assert!(done.err.contains(name) && done.err.contains(value), "{name}: {}", done.err);
    }
}

/// Under a quota that never bites, every call answers what it would without us.
#[test]
fn a_quota_that_never_bites_changes_no_answer() {
    let words = "init ctx=0 linear:a=0 linear:b=3M copy:b pitch:c=5M managed:d=7M copy:d async:e=9M copy:e pool:f=3M vmm:g=4M copy:g \
                 vmm:h=1M array:i=2M array3d:j=8M mipmap:k=1M free:b free:b afree:e sync free:c free:d afree:f free:g free:i free:j \
                 free:k linear:l=900G launch=spin_20us launch=other sync ctx=7 total=5 drop drop linear:m=1M";
    let answers = |done: Done| {
        assert_eq!(done.status, 0, "{done:?}");
        done.out
    };
    for door in ["linked", "proc:13020", "dlopen:libcuda.so.1,ptsz"] {
        let machine = Machine::new("a100-80gb");
        let name = if door == "linked" { "probe-linked" } else { "probe" };
        let without = answers(machine.bare(program(name)).arg(door).words(words).run());
        let with = answers(machine.probe(door).memory("100%").env("GPUQUOTA_LOG", "off").words(words).run());
        assert_eq!(with, without, "{door}");
        assert!(without.contains(" 1\n") && without.contains(" 2\n"), "errors are among the answers: {without}");
    }
}
