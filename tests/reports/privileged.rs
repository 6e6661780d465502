//! A set-uid program: the loader leaves preloaded libraries out of it, but those of the system's own file.

use harness::{Done, GIB, Job, Machine, copy_program, fake_driver, program, shim};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const SOMEBODY: &str = "setpriv --reuid=1000 --regid=1000 --clear-groups";

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
}

/// A machine with the driver where the loader always looks and, if `in_file`, the library in its file of preloads; both in a
/// mount namespace that ends with the command. What prepares it; `None` where that isn't allowed.
fn prepared(machine: &Machine, in_file: bool) -> Option<String> {
    let (driver, settings) = (machine.folder().join("driver"), machine.folder().join("etc"));
    for folder in [machine.folder(), &driver, &settings] {
        std::fs::create_dir_all(folder).expect("writable");
        set_mode(folder, 0o755);
    }
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        std::fs::copy(fake_driver().join(name), driver.join(name)).expect("writable");
    }
    let library = machine.folder().join("libgpuquota.so");
    std::fs::copy(shim(), &library).expect("writable");
    std::fs::write(settings.join("ld.so.preload"), format!("{}\n", library.display())).expect("writable");
    let over = |from: &Path, at: &str| format!("mount -t overlay -o lowerdir={}:{at} overlay {at}", from.display());
    let mut lines = vec![over(&driver, "/usr/lib")];
    lines.extend(in_file.then(|| over(&settings, "/etc")));
    let line = lines.join(" && ");
    let mut test = Command::new("unshare");
    test.args(["--mount", "sh", "-c", &format!("{line} && {SOMEBODY} true")]).stderr(Stdio::null());
    test.status().is_ok_and(|status| status.success()).then_some(line)
}

fn job(machine: &Machine, line: &str, words: &str) -> Job {
    let program_copy = machine.folder().join("suid");
    copy_program(&program("probe-linked"), &program_copy);
    set_mode(&program_copy, 0o4755);
    let library = machine.folder().join("libgpuquota.so");
    let preload = if line.contains("/etc") { String::new() } else { format!("LD_PRELOAD={}", library.display()) };
    let run = format!("{line} && exec {SOMEBODY} env {preload} {} linked {words}", program_copy.display());
    machine.bare("unshare").words("--mount sh -c").arg(run).env("GPUQUOTA_MEMORY", "1GiB")
}

/// By the environment alone such a program is not reached: it runs as it would, the loader says nothing, and the daemon shows
/// it. By the system's file it is limited.
#[test]
fn a_set_uid_program_is_limited_by_the_systems_file_or_shown() {
    let machine = Machine::new("t4-16gb");
    let Some(line) = prepared(&machine, false) else { return };
    let daemon = machine.daemon("");
    let mut out = job(&machine, &line, "init ctx linear:a=600M linear:b=600M say=ready wait").start();
    let lines = out.until("ready");
    assert_eq!(lines[2..], ["linear:a=600M 0", "linear:b=600M 0"], "not reached");
    let rows: Vec<Value> = serde_json::from_str(&machine.gpuquota(&daemon, "ps -o json").run().out).expect("JSON");
    let is_it = |row: &&Value| row["state"] == "foreign" && row["memory_used_bytes"].as_u64() > Some(GIB);
    assert!(rows.iter().any(|row| is_it(&row)), "shown as nobody's: {rows:?}");
    out.finish();
    let quiet: Done = job(&machine, &line, "init ctx").run().quiet();
    assert_eq!(quiet.code("ctx"), 0, "and the loader says nothing");
    let line = prepared(&machine, true).expect("as above");
    let done = job(&machine, &line, "init ctx linear:a=600M linear:b=600M").run();
    assert_eq!((done.code("linear:a=600M"), done.code("linear:b=600M")), (0, 2), "{done:?}");
}
