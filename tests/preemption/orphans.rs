//! `gpuquota run` is killed with SIGKILL while its job is being moved to the host and back: the daemon does what is left to do,
//! and the job finds its memory as it was.

use super::*;

/// A batch job with 12 GiB that is checkpointed when others need room, slowed down where `slow` says so.
fn train(machine: &Machine, daemon: &Daemon, slow: &str) -> Running {
    let words = "take=12G say=ready wait check launch say=done wait";
    let job = run(machine, daemon, "--tenant train --priority batch --memory 14GiB", words);
    let mut job = job.env("FAKE_CUDA_LATENCY", slow).start();
    job.until("ready");
    job
}

fn checkpoints(grace: &str) -> (Machine, Daemon) {
    node("t4-16gb", &format!("grace: {grace}, interrupt: checkpoint"))
}

/// Kills `gpuquota run` alone: its program goes on and is still to be talked to.
fn kill_run(job: &Running) {
    let done = std::process::Command::new("kill").arg("-KILL").arg(job.pid().to_string()).status();
    assert!(done.expect("there is a kill").success());
}

/// Until `gpuquota run` has started what moves the memory.
fn until_moved(job: &Running, how: &str) {
    let moves = |process: &Path| {
        let read = |name: &str| std::fs::read_to_string(process.join(name)).unwrap_or_default();
        let (line, stat) = (read("cmdline").replace('\0', " "), read("stat"));
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(2)?.parse().ok());
        line.contains(how) && parent == Some(job.pid())
    };
    let processes = || std::fs::read_dir("/proc").expect("there is one").flatten().map(|entry| entry.path());
    eventually(PATIENCE, how, || processes().any(|process| moves(&process)));
}

/// The job is back, with all that it had, and nothing else of the tenant is left.
fn is_back(machine: &Machine, daemon: &Daemon, mut job: Running) {
    job.go_on();
    assert_eq!(job.until("done"), ["check 1", "launch 0"]);
    eventually(PATIENCE, "it alone is left", || rows(machine, daemon, "train").len() == 1);
    let row = rows(machine, daemon, "train").remove(0);
    let number = |name: &str| row[name].as_u64().unwrap_or_default();
    assert_eq!(number("memory_used_bytes") - number("memory_overhead_bytes"), 12 * GIB, "{row}");
    assert_eq!((row["state_reason"].as_str(), number("memory_quota_bytes")), (None, 14 * GIB), "{row}");
    job.finish();
    eventually(PATIENCE, "nothing is left", || rows(machine, daemon, "train").is_empty());
}

/// During the grace: the daemon checkpoints it at its end.
#[test]
fn a_run_killed_when_noticed() {
    let (machine, daemon) = checkpoints("2s");
    let job = train(&machine, &daemon, "");
    let mut urgent = urgent(&machine, &daemon, "14GiB");
    until_state(&machine, &daemon, "train", "notified");
    kill_run(&job);
    urgent.until("in");
    assert_eq!(state(&machine, &daemon, "train"), "checkpointed");
    urgent.finish();
    is_back(&machine, &daemon, job);
}

/// In the middle of taking the memory away: what does that dies with it.
#[test]
fn a_run_killed_while_its_memory_is_taken_away() {
    let (machine, daemon) = checkpoints("0s");
    let job = train(&machine, &daemon, "cuCheckpointProcessCheckpoint=3s");
    let mut urgent = urgent(&machine, &daemon, "14GiB");
    until_moved(&job, "move checkpoint");
    kill_run(&job);
    urgent.until("in");
    assert_eq!(state(&machine, &daemon, "train"), "checkpointed");
    urgent.finish();
    is_back(&machine, &daemon, job);
}

/// While the memory is away, over a restart of the daemon; what it doesn't need is not kept from others.
#[test]
fn a_run_killed_when_checkpointed() {
    let (machine, mut daemon) = checkpoints("0s");
    let job = train(&machine, &daemon, "");
    let mut urgent = urgent(&machine, &daemon, "10GiB");
    urgent.until("in");
    kill_run(&job);
    until_state(&machine, &daemon, "train", "checkpointed");
    let other = run(&machine, &daemon, "--tenant other --priority high --memory 4GiB", "take=4G").run();
    assert_eq!(other.status, 0, "there is room for it: {other:?}");
    daemon.kill();
    let daemon = machine.daemon(&format!("--config {} --reserve 0", machine.folder().join("document.yaml").display()));
    assert_eq!(state(&machine, &daemon, "train"), "checkpointed");
    urgent.finish();
    is_back(&machine, &daemon, job);
}

/// While no daemon is there.
#[test]
fn a_run_killed_when_checkpointed_and_unseen() {
    let (machine, mut daemon) = checkpoints("0s");
    let job = train(&machine, &daemon, "");
    let mut urgent = urgent(&machine, &daemon, "14GiB");
    urgent.until("in");
    daemon.kill();
    kill_run(&job);
    let daemon = machine.daemon(&format!("--config {} --reserve 0", machine.folder().join("document.yaml").display()));
    assert_eq!(state(&machine, &daemon, "train"), "checkpointed");
    urgent.finish();
    is_back(&machine, &daemon, job);
}

/// In the middle of bringing the memory back.
#[test]
fn a_run_killed_while_its_memory_comes_back() {
    let (machine, daemon) = checkpoints("0s");
    let job = train(&machine, &daemon, "cuCheckpointProcessRestore=3s");
    let mut urgent = urgent(&machine, &daemon, "14GiB");
    urgent.until("in");
    urgent.finish();
    until_moved(&job, "move restore");
    kill_run(&job);
    is_back(&machine, &daemon, job);
}

/// One whose memory doesn't come back says why, for as long as that lasts.
#[test]
fn what_does_not_come_back_says_why() {
    let (machine, daemon) = checkpoints("0s");
    let job = train(&machine, &daemon, "");
    let mut urgent = urgent(&machine, &daemon, "14GiB");
    urgent.until("in");
    kill_run(&job);
    // Something that knows of no quota has taken the room.
    let mut foreign = machine.bare(program("room")).env("FAKE_CUDA_CONTEXT", "0").words("take=5G say=in wait").start();
    foreign.until("in");
    urgent.finish();
    let why = || rows(&machine, &daemon, "train").iter().any(|row| row.to_string().contains("can't be moved"));
    eventually(PATIENCE, "it says why", why);
    assert_eq!(state(&machine, &daemon, "train"), "checkpointed");
    foreign.finish();
    is_back(&machine, &daemon, job);
}

/// A daemon of root does it as the user whose processes they are.
#[test]
fn what_the_daemon_moves_it_moves_as_their_user() {
    const SOMEBODY: u32 = 1000;
    let user = |path: &str| std::fs::metadata(path).map(|data| std::os::unix::fs::MetadataExt::uid(&data)).ok();
    if user("/proc/self") != Some(0) {
        eprintln!("passed over: only root has daemons for others");
        return;
    }
    let (machine, daemon) = checkpoints("0s");
    let open = |path: &Path, mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("ours");
    };
    open(machine.folder(), 0o755);
    let words = "take=12G say=ready wait check launch say=done wait";
    let mut job = run(&machine, &daemon, "--tenant train --priority batch --memory 14GiB", words).into_command();
    open(&machine.folder().join("state"), 0o666);
    std::os::unix::process::CommandExt::uid(&mut job, SOMEBODY);
    std::os::unix::process::CommandExt::gid(&mut job, SOMEBODY);
    job.stderr(std::process::Stdio::inherit());
    let mut job = Running::of(job);
    job.until("ready");
    let mut urgent = urgent(&machine, &daemon, "14GiB");
    urgent.until("in");
    kill_run(&job);
    urgent.finish();
    is_back(&machine, &daemon, job);
    let log = machine.gpuquota(&daemon, "audit -o json --event joined").run().out;
    let joined: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let restores = |event: &&Value| event["command"].as_str().is_some_and(|command| command.contains("move restore"));
    let uids: Vec<Option<u64>> = joined.iter().filter(restores).map(|event| event["uid"].as_u64()).collect();
    assert_eq!(uids, [Some(u64::from(SOMEBODY))]);
}
