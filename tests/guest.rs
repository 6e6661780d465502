//! A guest in other people's processes: who doesn't use CUDA doesn't notice, and a machine without a driver stays as it was.

use harness::{Machine, program, shim};
use std::process::Command;

/// What a program does with and without us preloaded, with settings that would matter to a CUDA program.
fn same(mut command: impl FnMut() -> Command) {
    let bare = command().output().expect("it runs");
    let ours = command()
        .env("LD_PRELOAD", shim())
        .env("GPUQUOTA_MEMORY", "1GiB")
        .env("GPUQUOTA_SOCKET", "/nonexistent/gpuquota.sock")
        .output()
        .expect("it runs");
    assert_eq!(String::from_utf8_lossy(&ours.stderr), String::from_utf8_lossy(&bare.stderr));
    assert_eq!(ours.status, bare.status);
    assert_eq!(String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&bare.stdout));
}

fn with(program: &str, arguments: &[&str]) -> impl FnMut() -> Command {
    move || {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }
}

#[test]
fn shells_and_tools_behave_as_before() {
    same(with("sh", &["-c", "echo hello; exit 7"]));
    same(with("ls", &["/"]));
    same(with("true", &[]));
    same(with("false", &[]));
    same(with("env", &["-i", "true"]));
    if Command::new("python3").arg("-V").output().is_ok() {
        same(with("python3", &["-c", "pass"]));
        same(with("python3", &["-c", "import ctypes, sys; ctypes.CDLL(None).getpid(); sys.exit(3)"]));
    }
}

#[test]
fn exit_status_and_threads_of_a_plain_program() {
    let output = Command::new(program("plain"))
        .arg("42")
        .env("LD_PRELOAD", shim())
        .env("GPUQUOTA_MEMORY", "1GiB")
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "preloaded 1 mapped 1 threads 1\n", "mapped, and no thread");
    assert!(output.stderr.is_empty());
}

#[test]
fn a_static_program_is_beyond_reach_and_unharmed() {
    let output = Command::new(program("plain-static")).arg("5").env("LD_PRELOAD", shim()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "preloaded 1 mapped 0 threads 1\n");
}

/// A musl program can't be limited by this library, and must not be hurt by it: it starts, and finds its own functions.
#[test]
fn a_musl_program_is_unharmed() {
    let machine = Machine::new("a100-80gb");
    let built = machine.folder().join("plain");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/plain.c");
    // Only where there is a compiler for it; what keeps musl's loader content is checked by the census everywhere.
    if !Command::new("musl-gcc").arg("-o").arg(&built).arg(source).status().is_ok_and(|status| status.success()) {
        return;
    }
    let output = Command::new(&built)
        .arg("5")
        .env("LD_PRELOAD", shim())
        .env("GPUQUOTA_MEMORY", "1GiB")
        .output()
        .expect("it runs");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(5), 0), "{output:?}");
}

/// The loader leaves us out of privileged programs; where the suid bit can't be set, `su`'s own will do.
#[test]
fn a_setuid_program_behaves_as_before() {
    for tool in ["/usr/bin/passwd", "/usr/bin/su", "/usr/bin/mount"] {
        if std::path::Path::new(tool).exists() {
            same(with(tool, &["--version"]));
            same(with(tool, &["--help"]));
        }
    }
}

/// No file, no socket, no thread: a trace of the program's system calls has nothing of ours but the loader's own reading of the library.
#[test]
fn nothing_is_opened_in_a_program_without_cuda() {
    let traced = |preload: bool| {
        let mut command = Command::new("strace");
        command.env_remove("LD_LIBRARY_PATH").args(["-f", "-e", "trace=file,network,memfd_create,clone,clone3"]);
        if preload {
            command.arg("-E").arg(format!("LD_PRELOAD={}", shim().display()));
        }
        command.args(["-E", "GPUQUOTA_MEMORY=1GiB"]).arg(program("plain"));
        let output = command.output().ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let calls: Vec<String> = text.lines().filter(|line| line.contains('(')).map(str::to_owned).collect();
        (output.status.success() && !calls.is_empty()).then_some(calls)
    };
    // Without strace (or where tracing is forbidden), the maps and threads above have to do.
    let (Some(bare), Some(ours)) = (traced(false), traced(true)) else { return };
    let extra: Vec<&String> = ours.iter().filter(|call| !bare.contains(call)).collect();
    // The loader opens the library and asks for its size.
    let size = format!("st_size={}", std::fs::metadata(shim()).expect("built").len());
    let loading = |call: &str| call.contains("libgpuquota.so") || call.contains(&size) || call.contains("execve(");
    let foreign: Vec<_> = extra.iter().filter(|call| !loading(call)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

/// No driver on the machine: CUDA programs hear "no device", nothing crashes, look-ups fail as they would.
#[test]
fn no_driver() {
    let machine = Machine::new("a100-80gb");
    let none = |job: harness::Job| job.env("LD_LIBRARY_PATH", "/nonexistent");
    if std::path::Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.1").exists() {
        return;
    }
    let linked = none(machine.probe("linked")).memory("1GiB").words("init").run();
    assert_eq!((linked.status, linked.code("init")), (0, 100), "{linked:?}");
    let lookups = none(machine.job(program("lookups"))).run();
    assert_eq!(lookups.status, 0, "{lookups:?}");
    assert_eq!(lookups.answer("alloc"), "- error", "absent, with dlerror set");
    assert_eq!(lookups.answer("curl"), "lookups");
}

/// Settings are not read, and nothing is said, before CUDA is used; a mistake is told once when it is.
#[test]
fn a_mistake_in_the_settings_is_told_to_cuda_programs_alone() {
    let plain = Command::new(program("plain"))
        .env("LD_PRELOAD", shim())
        .env("GPUQUOTA_MEMORY", "12Q")
        .output()
        .expect("it runs");
    assert!(plain.stderr.is_empty());
    let machine = Machine::new("a100-80gb");
    let done =
        machine.probe("linked").memory("12Q").words("init ctx linear:a=1M linear:b=1M vmm:c=2M async:d=1M").run();
    for word in ["linear:a=1M", "linear:b=1M", "vmm:c=2M", "async:d=1M"] {
        assert_eq!(done.code(word), 2, "{done:?}");
    }
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    for part in ["GPUQUOTA_MEMORY", "12Q", "expected"] {
        assert!(done.err.contains(part), "{}", done.err);
    }
}
