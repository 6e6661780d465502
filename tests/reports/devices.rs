//! Reports about nodes with several devices: of different sizes, named by halves of names, or only the last of them used.

use harness::{Daemon, Done, GIB, Job, MIB, Machine, program};
use serde_json::Value;

fn run(machine: &Machine, daemon: &Daemon, options: &str, words: &str) -> Job {
    let job = machine.gpuquota(daemon, &format!("run {options} --")).env("FAKE_CUDA_CONTEXT", "0");
    job.arg(program("probe-linked")).arg("linked").words(words)
}

fn rows(machine: &Machine, daemon: &Daemon, what: &str) -> Vec<Value> {
    let done = machine.gpuquota(daemon, &format!("{what} -o json")).run();
    assert_eq!(done.status, 0, "{done:?}");
    serde_json::from_str(&done.out).expect("JSON")
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_else(|| panic!("{name} in {row}"))
}

fn uuids(machine: &Machine, daemon: &Daemon) -> Vec<String> {
    rows(machine, daemon, "devices").iter().map(|row| row["uuid"].as_str().expect("a text").to_owned()).collect()
}

/// Used bytes of each device, as NVML shows them.
fn used(done: &Done) -> Vec<u64> {
    let lines = done.out.lines().filter_map(|line| line.strip_prefix("memory 0 "));
    lines.map(|line| line.split(' ').nth(2).and_then(|used| used.parse().ok()).expect("a number")).collect()
}

/// Two programs, each with its own card as its device 0: each is counted on that card, by CUDA, NVML and the daemon.
#[test]
fn each_program_is_counted_on_its_own_card() {
    let machine = Machine::new("2xt4-16gb");
    let with_daemon = machine.daemon_under("");
    let uuids = uuids(&machine, &with_daemon);
    let sockets = [None, Some(with_daemon.socket())];
    for socket in sockets {
        let job = |name: &str| {
            let job = machine.job(program(name)).memory("6GiB");
            match socket {
                Some(socket) => job.tenant("pod").env("GPUQUOTA_SOCKET", socket),
                None => job,
            }
        };
        let mut programs: Vec<_> = uuids
            .iter()
            .map(|uuid| {
                let job = job("probe-linked").arg("linked").env("CUDA_VISIBLE_DEVICES", uuid);
                let mut job = job.words("init ctx=0 linear:a=5G linear:b=2G info say=ready wait").start();
                let lines = job.until("ready");
                assert_eq!(lines[2..], ["linear:a=5G 0", "linear:b=2G 2", &format!("info 0 {GIB} {}", 6 * GIB)]);
                job
            })
            .collect();
        assert_eq!(used(&job("nvml").run()), [5 * GIB; 2], "not ten and none");
        if socket.is_some() {
            let mut shown: Vec<(u64, u64)> = rows(&machine, &with_daemon, "ps")
                .iter()
                .filter(|row| row["tenant"] == "pod" && number(row, "memory_used_bytes") > 0)
                .map(|row| (number(row, "device"), number(row, "memory_used_bytes")))
                .collect();
            shown.sort_unstable();
            assert_eq!(shown, [(0, 5 * GIB), (1, 5 * GIB)]);
        }
        programs.drain(..).for_each(|job| drop(job.finish()));
    }
}

/// The beginning of a UUID names the device that has it, if only one does: for CUDA and for us alike.
#[test]
fn the_beginning_of_a_uuid_names_its_device() {
    let machine = Machine::new("2xt4-16gb");
    let daemon = machine.daemon_under("");
    let uuids = uuids(&machine, &daemon);
    let common = uuids[0].bytes().zip(uuids[1].bytes()).take_while(|(one, other)| one == other).count();
    for (index, uuid) in uuids.iter().enumerate() {
        for name in [uuid.as_str(), &uuid[..common + 1]] {
            // By the program's environment, and by our option.
            let job = machine.job(program("probe-linked")).arg("linked").env("CUDA_VISIBLE_DEVICES", name);
            let job =
                job.env("GPUQUOTA_SOCKET", daemon.socket()).tenant(&format!("v{index}-{}", name.len())).memory("1GiB");
            let mut job = job.words("init ctx total linear:a=600M linear:b=600M say=ready wait").start();
            assert_eq!(
                job.until("ready")[2..],
                [format!("total 0 {GIB}"), "linear:a=600M 0".into(), "linear:b=600M 2".into()]
            );
            let held: Vec<Value> = rows(&machine, &daemon, "ps")
                .into_iter()
                .filter(|row| number(row, "memory_used_bytes") == 600 * MIB)
                .collect();
            assert_eq!((held.len(), held[0]["uuid"].as_str()), (1, Some(uuid.as_str())), "{name}");
            job.finish();
            let done =
                run(&machine, &daemon, &format!("--memory 1GiB --device {name}"), "init ctx total total=1").run();
            assert_eq!(done.numbers("total"), [GIB], "{done:?}");
            assert_eq!(done.code("total=1"), 101, "it sees that one alone: {done:?}");
        }
    }
    // What both begin with names neither.
    let ambiguous = &uuids[0][..common];
    let done = machine.probe("linked").env("CUDA_VISIBLE_DEVICES", ambiguous).memory("1GiB").words("init").run();
    assert_eq!(done.code("init"), 100, "no device: {done:?}");
    let refused = run(&machine, &daemon, &format!("--memory 1GiB --device {ambiguous}"), "init").run();
    assert!(refused.status == 125 && refused.err.contains(ambiguous), "{refused:?}");
}

/// Devices of different sizes: a share is a share of each, and what can be granted is what each has.
#[test]
fn devices_of_different_size_are_judged_by_their_own() {
    let machine = Machine::new("l4-24gb,t4-16gb");
    let daemon = machine.daemon_under("");
    let devices = rows(&machine, &daemon, "devices");
    let totals: Vec<u64> = devices.iter().map(|row| number(row, "memory_total_bytes")).collect();
    assert!(totals[0] > 20 * GIB && totals[1] < 16 * GIB, "{totals:?}");
    for (row, total) in devices.iter().zip(&totals) {
        assert_eq!(number(row, "memory_capacity_bytes"), total - 512 * MIB, "{row}");
    }
    let mut job = run(&machine, &daemon, "--memory 50% --tenant half", "init ctx say=ready wait").start();
    job.until("ready");
    let granted: Vec<u64> =
        rows(&machine, &daemon, "devices").iter().map(|row| number(row, "memory_granted_bytes")).collect();
    assert_eq!(granted, totals.iter().map(|total| total / 2).collect::<Vec<_>>());
    // 15 GiB fit the one that is larger, never the other.
    let large = run(&machine, &daemon, "--memory 15GiB --device 1", "init").run();
    assert!(large.status == 125 && large.err.contains("on device 1 can never fit"), "{large:?}");
    job.finish();
    assert_eq!(
        run(&machine, &daemon, "--memory 15GiB --device 0", "init ctx linear:a=14G").run().code("linear:a=14G"),
        0
    );
}

/// Two containers of one pod ask for the same: each has a grant of its own, by whatever name it has.
#[test]
fn equal_requests_are_two_grants() {
    let machine = Machine::new("l4-24gb,t4-16gb");
    let daemon = machine.daemon_under("");
    let words = "init ctx linear:a=1500M say=ready wait";
    let mut jobs = [(); 2].map(|()| run(&machine, &daemon, "--memory 2GiB", words).start());
    for job in &mut jobs {
        assert_eq!(job.until("ready")[2..], ["linear:a=1500M 0"], "neither is in the other's way");
    }
    let shown = rows(&machine, &daemon, "ps");
    assert!(shown.len() == 2 && shown[0]["tenant"] != shown[1]["tenant"], "{shown:?}");
    let device = &rows(&machine, &daemon, "devices")[0];
    assert_eq!((number(device, "memory_granted_bytes"), number(device, "jobs")), (4 * GIB, 2));
    jobs.into_iter().for_each(|job| drop(job.finish()));
}

/// One number for two devices holds on each of them, not on both together.
#[test]
fn one_number_holds_on_each_device() {
    let words = "init total=0 total=1 ctx=0 linear:a=900M linear:x=200M device=1 ctx=1 linear:b=900M linear:y=200M";
    let check = |done: Done| {
        assert_eq!((done.numbers("total=0"), done.numbers("total=1")), (vec![GIB], vec![GIB]), "{done:?}");
        let codes = ["linear:a=900M", "linear:x=200M", "linear:b=900M", "linear:y=200M"].map(|word| done.code(word));
        assert_eq!(codes, [0, 2, 0, 2], "{done:?}");
    };
    let machine = Machine::new("2xt4-16gb");
    check(machine.probe("linked").memory("1GiB").words(words).run());
    let node = Machine::new("2xt4-16gb");
    let daemon = node.daemon_under("tenants: [{name: kept, memory: 1GiB}]\n");
    check(run(&node, &daemon, "--memory 1GiB", words).run());
    check(run(&node, &daemon, "--tenant kept", words).run());
}

/// Whatever the daemon does for a device it does for the last of four alone.
#[test]
fn the_last_device_is_as_good_as_the_first() {
    let machine = Machine::new("4xt4-16gb");
    let text =
        "devices: [{select: 3, memory_reserve: 1GiB, max_jobs: 2, defaults: {memory: 2GiB}, oversubscribe: 1.5}]\n";
    let daemon = machine.daemon_under(text);
    let at =
        |name: &str| -> Vec<u64> { rows(&machine, &daemon, "devices").iter().map(|row| number(row, name)).collect() };
    let capacity = at("memory_capacity_bytes");
    assert_eq!((capacity[0], capacity[0] - capacity[3]), (capacity[1], 512 * MIB), "{capacity:?}");
    let words = "init ctx total linear:a=1G say=ready wait info say=again wait";
    // By the document's default, since nothing is asked for.
    let mut job = run(&machine, &daemon, "--device 3 --tenant last", words).start();
    assert_eq!(job.until("ready")[2..], [format!("total 0 {}", 2 * GIB), "linear:a=1G 0".into()]);
    assert_eq!(at("memory_granted_bytes"), [0, 0, 0, 2 * GIB]);
    assert_eq!(machine.gpuquota(&daemon, "set last --memory 3GiB").run().status, 0);
    assert_eq!(at("memory_granted_bytes"), [0, 0, 0, 3 * GIB]);
    job.go_on();
    assert_eq!(job.until("again"), [format!("info 0 {} {}", 2 * GIB, 3 * GIB)]);
    let shown = rows(&machine, &daemon, "ps");
    assert_eq!((shown.len(), number(&shown[0], "device"), number(&shown[0], "memory_used_bytes")), (1, 3, GIB));
    let mut moving =
        run(&machine, &daemon, "--device 3 --memory 4GiB --oversubscribe --tenant moving", "init ctx say=ready wait")
            .start();
    moving.until("ready");
    let third = run(&machine, &daemon, "--device 3 --memory 1GiB", "init").run();
    assert!(third.err.contains("device 3 takes at most 2 jobs at a time, 2 are running"), "{third:?}");
    let elsewhere = run(&machine, &daemon, "--device 2 --memory 4GiB --oversubscribe", "init").run();
    assert!(elsewhere.err.contains("device 2 is not oversubscribed"), "{elsewhere:?}");
    for words in ["pause last", "resume last"] {
        assert_eq!(machine.gpuquota(&daemon, words).run().status, 0, "{words}");
    }
    drop((job.finish(), moving.finish()));
    harness::eventually(std::time::Duration::from_secs(2), "all is back", || at("memory_granted_bytes") == [0; 4]);
}
