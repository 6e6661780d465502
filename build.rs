//! Builds the C programs under `tests/programs` and `examples`, and a stub of the driver to link them against.
//!
//! The stub has the driver's SONAME and every symbol of the list, so that a linked program has exactly the
//! references that one built with NVIDIA's own stub has; it is never run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// A program: its source, further arguments, and whether it is linked to the driver.
struct Program {
    name: &'static str,
    source: &'static str,
    arguments: &'static [&'static str],
}

const PROGRAMS: &[Program] = &[
    Program { name: "probe", source: "tests/programs/probe.c", arguments: &["-ldl"] },
    Program { name: "probe-linked", source: "tests/programs/probe.c", arguments: &["-DLINKED", "-lcuda", "-ldl"] },
    Program { name: "resolve", source: "tests/programs/resolve.c", arguments: &["-ldl"] },
    Program { name: "nvml", source: "tests/programs/nvml.c", arguments: &["-ldl"] },
    Program { name: "mig", source: "tests/programs/mig.c", arguments: &["-lcuda", "-ldl"] },
    Program { name: "lookups", source: "tests/programs/lookups.c", arguments: &["-rdynamic", "-ldl"] },
    Program { name: "plain", source: "tests/programs/plain.c", arguments: &[] },
    Program { name: "plain-static", source: "tests/programs/plain.c", arguments: &["-static"] },
    Program { name: "other-age", source: "tests/programs/other_age.c", arguments: &["-lcuda", "-ldl"] },
    Program { name: "threads", source: "tests/programs/threads.c", arguments: &["-ldl", "-pthread"] },
    Program { name: "no-syscalls", source: "tests/programs/no_syscalls.c", arguments: &["-ldl"] },
    Program { name: "early", source: "tests/programs/early.c", arguments: &["-ldl", "-pthread"] },
    Program { name: "primary", source: "tests/programs/primary.c", arguments: &["-lcuda"] },
    Program { name: "ending", source: "tests/programs/ending.c", arguments: &["-lcuda", "-pthread"] },
    Program { name: "cleared", source: "tests/programs/cleared.c", arguments: &["-ldl"] },
    Program { name: "loading", source: "tests/programs/loading.c", arguments: &["-ldl", "-pthread"] },
    Program { name: "sandbox", source: "tests/programs/sandbox.c", arguments: &[] },
    Program { name: "pressure", source: "tests/programs/pressure.c", arguments: &["-DLINKED", "-lcuda", "-ldl"] },
    Program { name: "room", source: "tests/programs/room.c", arguments: &["-lcuda", "-lpthread"] },
    Program { name: "killed", source: "tests/programs/killed.c", arguments: &["-ldl"] },
    Program {
        name: "chaos",
        source: "tests/programs/chaos/chaos.c",
        arguments: &[
            "tests/programs/chaos/arrays.c",
            "tests/programs/chaos/code.c",
            "tests/programs/chaos/contexts.c",
            "tests/programs/chaos/draw.c",
            "tests/programs/chaos/graphs.c",
            "tests/programs/chaos/memory.c",
            "tests/programs/chaos/physical.c",
            "tests/programs/chaos/pools.c",
            "tests/programs/chaos/quiet.c",
            "tests/programs/chaos/sharing.c",
            "tests/programs/chaos/shelf.c",
            "tests/programs/chaos/steps.c",
            "tests/programs/chaos/streams.c",
            "tests/programs/chaos/tell.c",
            "-lcuda",
            "-lpthread",
        ],
    },
    Program {
        name: "busy",
        source: "tests/programs/busy/busy.c",
        arguments: &[
            "tests/programs/busy/launch.c",
            "tests/programs/busy/ranks.c",
            "tests/programs/busy/requests.c",
            "tests/programs/busy/saturate.c",
            "-lcuda",
            "-lpthread",
            "-lm",
        ],
    },
    Program { name: "fork", source: "tests/programs/fork.c", arguments: &["-ldl"] },
    Program { name: "bench", source: "tests/programs/bench.c", arguments: &["-O2", "-ldl"] },
    Program { name: "example", source: "examples/quota.c", arguments: &["-lcuda"] },
    Program { name: "example-notice", source: "examples/notice.c", arguments: &["-lcuda"] },
];

const LIBRARIES: &[Program] = &[
    Program { name: "tracer-dlsym.so", source: "tests/programs/tracer.c", arguments: &["-DWRAP_DLSYM", "-ldl"] },
    Program { name: "launched.so", source: "tests/programs/launched.c", arguments: &[] },
    Program { name: "tracer.so", source: "tests/programs/tracer.c", arguments: &["-ldl"] },
    Program { name: "next-a.so", source: "tests/programs/next.c", arguments: &["-DNAME=\"a\"", "-ldl"] },
    Program { name: "next-b.so", source: "tests/programs/next.c", arguments: &["-DNAME=\"b\"", "-ldl"] },
    Program { name: "plugin.so", source: "tests/programs/plugin.c", arguments: &["-ldl", "-Wl,-rpath,$ORIGIN/sub"] },
    Program {
        name: "small-driver/libcuda.so.1",
        source: "tests/programs/small_driver.c",
        arguments: &["-Wl,-soname,libcuda.so.1", "-Wl,--version-script,tests/programs/small_driver.map"],
    },
    Program {
        name: "quiet-driver/libcuda.so.1",
        source: "tests/programs/quiet_driver.c",
        arguments: &["-Wl,-soname,libcuda.so.1"],
    },
    Program { name: "sub/neighbour.so", source: "tests/programs/neighbour.c", arguments: &[] },
];

/// A program may be C of any age.
fn check_header(compiler: &cc::Tool, out: &Path) {
    let source = out.join("header.c");
    fs::write(&source, "#include \"gpuquota.h\"\nint main(void) { return gpuquota_ready ? gpuquota_ready() : 0; }\n")
        .expect("OUT_DIR is writable");
    let mut command = compiler.to_command();
    command.args(["-std=c89", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-o"]).arg(out.join("header"));
    command.arg(&source);
    run(command, "include/gpuquota.h");
}

fn main() {
    println!("cargo::rerun-if-changed=tests/programs");
    println!("cargo::rerun-if-changed=examples/quota.c");
    println!("cargo::rerun-if-changed=examples/notice.c");
    println!("cargo::rerun-if-changed=include");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for folder in ["sub", "small-driver", "quiet-driver", "driver"] {
        fs::create_dir_all(out.join(folder)).expect("OUT_DIR is writable");
    }
    let compiler = cc::Build::new().opt_level(1).get_compiler();
    stub(&compiler, &out);
    check_header(&compiler, &out);
    for program in PROGRAMS {
        compile(&compiler, &out, program, &[]);
    }
    // Each checks one family of the simulated driver; a new file is a new program.
    for source in fs::read_dir("tests/programs/driver").expect("part of the package") {
        let source = source.expect("readable").path();
        if source.extension().is_some_and(|extension| extension == "c") {
            compile_file(&compiler, &out.join("driver"), &source, &out);
        }
    }
    coverage(&compiler, &out);
    for library in LIBRARIES {
        compile(&compiler, &out, library, &["-shared", "-fPIC"]);
    }
    println!("cargo::rustc-env=PROGRAMS={}", out.display());
}

fn stub(compiler: &cc::Tool, out: &Path) {
    let symbols = driver_api::SYMBOLS.iter().filter(|symbol| symbol.library == driver_api::Library::Cuda);
    let source: String = symbols.map(|symbol| format!("void {}(void) {{}}\n", symbol.name)).collect();
    fs::write(out.join("stub.c"), source).expect("OUT_DIR is writable");
    let mut command = compiler.to_command();
    command.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]);
    command.arg(out.join("libcuda.so")).arg(out.join("stub.c"));
    run(command, "the stub of the driver");
}

fn compile(compiler: &cc::Tool, out: &Path, program: &Program, kind: &[&str]) {
    let mut command = compiler.to_command();
    command.args(["-Wall", "-Wextra", "-Werror", "-Iinclude"]).args(kind).arg("-o").arg(out.join(program.name));
    command.arg(program.source).arg(format!("-L{}", out.display())).arg("-Wl,--no-as-needed").args(program.arguments);
    run(command, program.source);
}

fn compile_file(compiler: &cc::Tool, to: &Path, source: &Path, stub: &Path) {
    let mut command = compiler.to_command();
    command.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(to.join(source.file_stem().expect("a file"))).arg(source);
    command.arg(format!("-L{}", stub.display())).args(["-Wl,--no-as-needed", "-lcuda", "-lpthread", "-ldl"]);
    run(command, &source.display().to_string());
}

/// One program of many files: a scenario for each driver function that matters to a quota.
fn coverage(compiler: &cc::Tool, out: &Path) {
    let files = fs::read_dir("tests/programs/coverage").expect("part of the package");
    let mut sources: Vec<PathBuf> = files.map(|file| file.expect("readable").path()).collect();
    sources.retain(|source| source.extension().is_some_and(|extension| extension == "c"));
    sources.sort();
    let mut command = compiler.to_command();
    command.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(out.join("coverage")).args(sources);
    command.arg(format!("-L{}", out.display())).args(["-Wl,--no-as-needed", "-lcuda", "-ldl"]);
    run(command, "the program of the coverage test");
}

fn run(mut command: Command, what: &str) {
    let status = command.status().unwrap_or_else(|error| panic!("the C compiler does not run: {error}"));
    assert!(status.success(), "{what} does not build");
}
