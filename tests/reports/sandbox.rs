//! Reports about sandboxes, and about what is asked of the system at all: by the library (22.05) and by the daemon (19.12).

use harness::{Done, GIB, Job, Machine, command, eventually, program};
use quota_wire::message::{DeviceAsk, Hello, PROTOCOL_VERSION, Reply, Request};
use quota_wire::socket::Connection;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Names and numbers of system calls, where the architecture has them.
macro_rules! calls {
    ($($(#[$only:meta])* $name:literal $number:ident),* $(,)?) => { &[$($(#[$only])* ($name, libc::$number)),*] };
}

/// What README says the library makes beside the program's and the driver's own.
const DOCUMENTED: &[(&str, i64)] = calls![
    "socket" SYS_socket,
    "connect" SYS_connect,
    "sendmsg" SYS_sendmsg,
    "recvmsg" SYS_recvmsg,
    #[cfg(target_arch = "x86_64")]
    "poll" SYS_poll,
    #[cfg(not(target_arch = "x86_64"))]
    "ppoll" SYS_ppoll,
    "fcntl" SYS_fcntl,
    "ftruncate" SYS_ftruncate,
    "futex" SYS_futex,
    "clock_nanosleep" SYS_clock_nanosleep,
    "sched_yield" SYS_sched_yield,
];

/// The same for a process whose device time may be counted: its thread.
const DOCUMENTED_OF_THE_THREAD: &[(&str, i64)] = calls![
    "clone3" SYS_clone3,
    "clone" SYS_clone,
    "rt_sigaction" SYS_rt_sigaction,
    "rt_sigprocmask" SYS_rt_sigprocmask,
    "prctl" SYS_prctl,
    "madvise" SYS_madvise,
    "exit" SYS_exit,
];

const WORDS: &str = "init ctx linear:a=600M linear:b=600M vmm:c=10M async:d=5M sync info total free:a";
/// The sandbox's status where the kernel has no such filters for us.
const UNABLE: i32 = 77;
/// That of a program that has made another system call.
const KILLED: i32 = 128 + libc::SIGSYS;

/// The probe in the sandbox; `line` says which and how.
fn sandboxed(machine: &Machine, line: &[&str], words: &str) -> Job {
    let job = line.iter().fold(machine.bare(program("sandbox")), |job, word| job.arg(word));
    job.env("FAKE_CUDA_CONTEXT", "0").arg(program("probe-linked")).arg("linked").words(words)
}

fn under_the_library(job: Job) -> Job {
    job.env("SANDBOX_PRELOAD", harness::shim()).env("GPUQUOTA_MEMORY", "1GiB").env("GPUQUOTA_LOG", "off")
}

/// The numbers of the system calls that the probe makes without the library, and a program that asks NVML, as the library does
/// where there is no daemon; none where they can't be learnt.
fn learnt(machine: &Machine, words: &str) -> Option<BTreeSet<i64>> {
    let file = machine.folder().join("calls");
    let mut numbers = BTreeSet::new();
    let learn = ["learn", file.to_str().expect("ASCII")];
    let asks_nvml = || machine.bare(program("sandbox")).arg(learn[0]).arg(learn[1]).arg(program("nvml"));
    // What depends on how threads meet shows in one run or the other.
    for job in [sandboxed(machine, &learn, words), sandboxed(machine, &learn, words), asks_nvml()] {
        let done = job.run();
        if done.status == UNABLE {
            return None;
        }
        assert!(done.status == 0 && !done.out.is_empty(), "{done:?}");
        let text = std::fs::read_to_string(&file).expect("written");
        numbers.extend(text.lines().filter_map(|line| line.split(' ').next()?.parse::<i64>().ok()));
    }
    assert!(numbers.contains(&libc::SYS_mmap) && numbers.len() > 10, "{numbers:?}");
    Some(numbers)
}

fn list(numbers: &BTreeSet<i64>, more: &[&[(&str, i64)]]) -> String {
    let more = more.iter().flat_map(|calls| calls.iter().map(|(_, number)| *number));
    let all: BTreeSet<i64> = numbers.iter().copied().chain(more).collect();
    all.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}

fn skipped(why: &str) {
    eprintln!("NOT TESTED: {why}");
}

fn is_limited(done: &Done) {
    let codes = ["linear:a=600M", "linear:b=600M", "vmm:c=10M", "async:d=5M", "free:a"].map(|word| done.code(word));
    assert_eq!((done.status, codes), (0, [0, 2, 0, 0, 0]), "{done:?}");
    assert_eq!(done.numbers("total"), [GIB]);
}

/// Report 22.05: in a sandbox that ends a program at any system call but those that it makes without the library and those that
/// README lists, it runs and is limited.
#[test]
fn a_sandbox_that_lets_through_what_is_documented_is_enough() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon("");
    let Some(own) = learnt(&machine, WORDS) else { return skipped("the kernel has no filters with a listener for us") };
    let member = |line: &[&str], words: &str| {
        under_the_library(sandboxed(&machine, line, words)).env("GPUQUOTA_SOCKET", daemon.socket())
    };
    is_limited(&member(&["only", &list(&own, &[DOCUMENTED])], WORDS).run());
    // Without a daemon: the ledger is a file.
    let ledger = machine.folder().join("ledger");
    let alone = sandboxed(&machine, &["only", &list(&own, &[DOCUMENTED])], WORDS);
    is_limited(&under_the_library(alone).env("CUDA_DEVICE_MEMORY_SHARED_CACHE", ledger).run());
    // The filter is one: without what is needed of the list, the program ends.
    for (name, number) in DOCUMENTED.iter().filter(|(name, _)| ["connect", "sendmsg"].contains(name)) {
        let without: BTreeSet<i64> = own.iter().copied().filter(|own| own != number).collect();
        let rest: Vec<(&str, i64)> = DOCUMENTED.iter().copied().filter(|(_, other)| other != number).collect();
        let done = member(&["only", &list(&without, &[&rest])], WORDS).run();
        assert_eq!(done.status, KILLED, "without {name}: {done:?}");
    }
}

/// Report 22.05: the same for a process whose device time is counted, alone under a cap and beside another one, without and
/// with threads of its own.
#[test]
fn a_sandbox_lets_a_process_have_turns_by_what_is_documented() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon("");
    let words = "init ctx linear:a=1M launch=spin_5ms launch=spin_5ms launch=spin_5ms launch=spin_5ms launch=spin_5ms sync \
                 launch=spin_5ms launch=spin_5ms launch=spin_5ms launch=spin_5ms launch=spin_5ms launch=spin_5ms sync info";
    let Some(own) = learnt(&machine, words) else { return skipped("the kernel has no filters with a listener for us") };
    let line = list(&own, &[DOCUMENTED, DOCUMENTED_OF_THE_THREAD]);
    let job = || under_the_library(sandboxed(&machine, &["only", &line], words));
    let member = |name: &str| job().env("GPUQUOTA_SOCKET", daemon.socket()).env("GPUQUOTA_TENANT", name);
    let ran = |done: &Done| {
        assert_eq!((done.status, done.code("sync"), done.code("info")), (0, 0, 0), "{done:?}");
        assert_eq!(done.numbers("info")[1], GIB);
    };
    ran(&member("capped").env("GPUQUOTA_COMPUTE", "30").run());
    ran(&job().env("GPUQUOTA_COMPUTE", "30").env("CUDA_DEVICE_MEMORY_SHARED_CACHE", machine.folder().join("l")).run());
    // Two that want the device at one time, each in such a sandbox.
    let both = std::thread::scope(|scope| {
        ["one", "other"].map(|name| scope.spawn(move || member(name).run())).map(|run| run.join().expect("it runs"))
    });
    both.iter().for_each(ran);
}

/// How a command gets a mount namespace of its own with something prepared in it; none where that isn't allowed.
fn mounts(prepare: &str) -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["--mount"], &["--map-root-user", "--mount"]];
    ways.into_iter().find(|way| {
        let test = Command::new("unshare").args(*way).args(["sh", "-c", prepare]).stderr(Stdio::null()).status();
        test.is_ok_and(|status| status.success())
    })
}

/// Report 22.05: and `/proc` may be hidden as well.
#[test]
fn a_sandbox_without_proc_is_enough_too() {
    let machine = Machine::new("t4-16gb");
    let daemon = machine.daemon("");
    let hide = "mount -t tmpfs none /proc";
    let Some(way) = mounts(hide) else { return skipped("nobody may make a mount namespace here") };
    let Some(own) = learnt(&machine, WORDS) else { return skipped("the kernel has no filters with a listener for us") };
    let inside = |job: Job| {
        let outer = way.iter().fold(machine.bare("unshare"), |outer, word| outer.arg(word));
        let line = format!("{hide} && ! test -e /proc/self && exec \"$0\" \"$@\"");
        let mut command = outer.words("sh -c").arg(line).into_command();
        let inner = job.into_command();
        command.arg(inner.get_program()).args(inner.get_args());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = command.output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let status = output.status.code().unwrap_or(-1);
        Done { status, out: text(&output.stdout), err: text(&output.stderr) }
    };
    let member = under_the_library(sandboxed(&machine, &["only", &list(&own, &[DOCUMENTED])], WORDS));
    // A user namespace is another one: by its own pid, the daemon finds the process all the same.
    is_limited(&inside(member.env("GPUQUOTA_SOCKET", daemon.socket())));
}

#[test]
fn the_system_calls_of_the_library_are_documented() {
    let readme = include_str!("../../README.md");
    let missing: Vec<&str> = DOCUMENTED
        .iter()
        .chain(DOCUMENTED_OF_THE_THREAD)
        .map(|(name, _)| *name)
        .filter(|name| !readme.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Where the daemon may look: the system's libraries and clocks, what the kernel says, and its own folder.
const MAY_LOOK: [&str; 11] = [
    "/proc/",
    "/sys/",
    "/dev/",
    "/lib",
    "/usr/lib",
    "/etc/ld.so.",
    "/etc/localtime",
    "/etc/timezone",
    "/usr/share/zoneinfo",
    "/etc/gpuquota",
    "/bin/",
];

/// Report 19.12: the daemon starts, and grants what its document says, without looking for anybody else: every path that it names
/// and every socket that it calls is its own or the system's, so that none of a container engine, a kubelet or a plug-in has to be there.
#[test]
fn the_daemon_asks_no_container_engine() {
    let machine = Machine::new("t4-16gb");
    let folder = machine.folder();
    let (file, socket, document) = (folder.join("asked"), folder.join("gpuquota.sock"), folder.join("gpuquota.yaml"));
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(folder).expect("ours"));
    let text = format!("tenants: [{{name: vision, memory: 3GiB, match: {{uid: {uid}}}}}]\n");
    std::fs::write(&document, text).expect("writable");
    let job = machine.bare(program("sandbox")).arg("learn").arg(&file).arg(command("gpuquotad"));
    let mut command = job.arg("--socket").arg(&socket).arg("--config").arg(&document).into_command();
    let mut sandbox =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut ended = None;
    eventually(Duration::from_secs(30), "the daemon listens", || {
        ended = sandbox.try_wait().expect("a child");
        ended.is_some() || Connection::connect(&socket, Instant::now()).is_ok()
    });
    if ended.is_some_and(|status| status.code() == Some(UNABLE)) {
        return skipped("the kernel has no filters with a listener for us");
    }
    assert_eq!(ended, None, "it runs");
    let about = is_granted(&machine, &socket);
    assert!(Command::new("kill").arg(about.to_string()).status().is_ok_and(|status| status.success()));
    eventually(Duration::from_secs(30), "it ends", || sandbox.try_wait().expect("a child").is_some());
    let asked = std::fs::read_to_string(&file).expect("written");
    let paths: BTreeSet<&str> = asked.lines().filter_map(|line| Some(line.split_once(' ')?.1)).collect();
    let paths: BTreeSet<&str> = paths.into_iter().filter(|path| !path.is_empty()).collect();
    assert!(paths.contains(socket.to_str().expect("ASCII")) && paths.len() > 5, "it is seen: {paths:?}");
    let ours =
        [folder, harness::fake_driver().as_path(), command_folder().as_path()].map(|path| path.display().to_string());
    let may = |path: &&str| {
        !path.starts_with('/')
            || *path == "/"
            || ours.iter().any(|own| path.starts_with(own))
            || MAY_LOOK.iter().any(|may| path.starts_with(may))
    };
    let others: Vec<&str> = paths.iter().copied().filter(|path| !may(path)).collect();
    assert!(others.is_empty(), "{others:?}");
    let words = ["docker", "containerd", "crio", "kubelet", "podman", "cri-", "device-plugins"];
    let named: Vec<&&str> = paths.iter().filter(|path| words.iter().any(|word| path.contains(word))).collect();
    assert!(named.is_empty(), "{named:?}");
}

fn command_folder() -> std::path::PathBuf {
    command("gpuquotad").parent().expect("a folder").to_owned()
}

/// A process of the user has what the document says; the daemon's pid.
fn is_granted(machine: &Machine, socket: &Path) -> u32 {
    let connect = || Connection::connect(socket, Instant::now() + Duration::from_secs(10)).expect("it listens");
    let ask = |connection: &Connection, request: &Request| {
        connection.ask(request, Instant::now() + Duration::from_secs(30)).expect("an answer").0
    };
    let Reply::About(about) = ask(&connect(), &Request::About) else { panic!("it is asked what it is") };
    let Reply::Devices { rows, .. } = ask(&connect(), &Request::Devices) else { panic!("there are devices") };
    assert_eq!(rows[0].memory_granted_bytes, 3 * GIB);
    let device =
        DeviceAsk { uuid: rows[0].uuid.clone(), total_bytes: rows[0].memory_total_bytes, ..DeviceAsk::default() };
    let hello = Hello { version: PROTOCOL_VERSION, pid: std::process::id(), devices: vec![device], ..Hello::default() };
    let Reply::Welcome(welcome) = ask(&connect(), &Request::Hello(hello)) else { panic!("it is the document's") };
    assert_eq!((welcome.tenant.as_str(), welcome.devices.len()), ("vision", 1));
    let job = machine.job(program("probe-linked")).env("GPUQUOTA_SOCKET", socket).arg("linked");
    let done = job.words("init ctx total linear:a=2G linear:b=2G").run();
    assert_eq!(
        (done.numbers("total"), done.code("linear:a=2G"), done.code("linear:b=2G")),
        (vec![3 * GIB], 0, 2),
        "{done:?}"
    );
    about.pid
}
