//! Every symbol of the list is accounted for: exported by the shim, hooked or passed with a reason, exported by the
//! simulated driver; and the shim exports nothing else and needs nothing new.

use driver_api::{Class, Library, SYMBOLS};
use harness::{fake_driver, shim};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

#[path = "census/decided.rs"]
mod decided;

include!("../shim/src/passed.rs");

fn tool(program: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(file).output();
    let output = output.unwrap_or_else(|error| panic!("{program} (binutils, which the linker needs too): {error}"));
    assert!(output.status.success(), "{program} {}", file.display());
    String::from_utf8(output.stdout).expect("ASCII")
}

fn exports(file: &Path) -> BTreeSet<String> {
    let table = tool("nm", &["-D", "--defined-only", "--format=posix"], file);
    table
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(|name| name.split('@').next().unwrap_or(name).to_owned())
        .collect()
}

fn listed(library: Library) -> BTreeSet<String> {
    SYMBOLS.iter().filter(|symbol| symbol.library == library).map(|symbol| symbol.name.to_owned()).collect()
}

/// The functions that `include/gpuquota.h` declares.
fn declared() -> BTreeSet<String> {
    let header =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/gpuquota.h")).expect("there");
    let name = |line: &str| Some(line.strip_prefix("int ")?.split_once('(')?.0.to_owned());
    header.lines().filter(|line| line.ends_with("GPUQUOTA_WEAK;")).filter_map(name).collect()
}

#[test]
fn the_shim_exports_the_list_and_nothing_else() {
    let mut expected = listed(Library::Cuda);
    expected.extend(listed(Library::Nvml));
    expected.extend(["dlsym".to_owned(), "dlvsym".to_owned()]);
    let declared = declared();
    assert_eq!(declared.len(), 4, "{declared:?}");
    expected.extend(declared);
    assert_eq!(exports(&shim()), expected);
    assert_eq!(listed(Library::Cuda).len(), 726);
}

#[test]
fn the_simulated_driver_exports_the_list_and_nothing_else() {
    assert_eq!(exports(&fake_driver().join("libcuda.so.1")), listed(Library::Cuda));
    assert_eq!(exports(&fake_driver().join("libnvidia-ml.so.1")), listed(Library::Nvml));
}

/// ABI names that have a hook in the shim's sources.
fn hooks() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim/src/hooks");
    let files = std::fs::read_dir(folder).expect("the sources").map(|file| file.expect("readable").path());
    let sources = files.map(|file| std::fs::read_to_string(file).expect("readable"));
    let names = sources.flat_map(|source| {
        driver_api::codegen::defined_functions(&source, "pub(crate) fn ").map(str::to_owned).collect::<Vec<_>>()
    });
    names.filter(|name| name.starts_with("cu") || name.starts_with("nvml")).collect()
}

#[test]
fn every_symbol_is_hooked_or_passed_with_a_reason() {
    let hooks = hooks();
    let fits = |symbol: &driver_api::Symbol, passed: &Passed| {
        let class = format!("{:?}", symbol.class);
        match passed.what {
            What::Classes(classes) => classes.contains(&class.as_str()),
            What::TruthfulAnswers(classes) => !symbol.virtualised && classes.contains(&class.as_str()),
            What::Charged(kinds) => symbol.charge.is_some_and(|kind| kinds.contains(&kind)),
            What::Freed(kinds) => symbol.free.is_some_and(|kind| kinds.contains(&kind)),
            What::Names(names) => names.contains(&symbol.base),
        }
    };
    for symbol in SYMBOLS.iter().filter(|symbol| symbol.class != Class::Pass && !hooks.contains(symbol.abi)) {
        assert!(
            PASSED.iter().any(|passed| !passed.reason.is_empty() && fits(symbol, passed)),
            "{} ({:?})",
            symbol.name,
            symbol.class
        );
    }
    for passed in PASSED {
        let used = SYMBOLS
            .iter()
            .any(|symbol| symbol.class != Class::Pass && !hooks.contains(symbol.abi) && fits(symbol, passed));
        assert!(used, "nothing is passed because it {}", passed.reason);
    }
}

/// Memory that this version charges must be hooked by every name that takes or gives it.
#[test]
fn memory_of_the_charged_kinds_is_hooked_by_every_name() {
    let hooks = hooks();
    let charged = ["linear", "pitch", "managed", "pool_reserved", "phys_handle", "array_desc", "mip_desc"];
    let freed = [
        "ptr",
        "ptr_async",
        "phys_handle",
        "phys_unmap",
        "array",
        "mip",
        "pool",
        "pool_trim",
        "primary_ctx",
        "context",
    ];
    let names: Vec<_> = SYMBOLS
        .iter()
        .filter(|symbol| {
            symbol.charge.is_some_and(|kind| charged.contains(&kind))
                || symbol.free.is_some_and(|kind| freed.contains(&kind))
        })
        .collect();
    assert!(names.len() >= 30, "{}", names.len());
    for symbol in names {
        assert!(hooks.contains(symbol.abi), "{} is not hooked", symbol.name);
    }
}

/// The checker that comes with the list agrees, where there is a Python to run it.
#[test]
fn the_lists_own_checker_passes_on_the_shim() {
    if Command::new("python3").arg("-V").output().is_err() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let names = folder.path().join("names");
    std::fs::write(&names, exports(&shim()).into_iter().collect::<Vec<_>>().join("\n")).expect("writable");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/driver-api/data");
    let output = Command::new("python3")
        .arg(data.join("check-surface.py"))
        .arg(data.join("cuda-surface.json"))
        .arg("--nm")
        .arg(&names)
        .arg("--shim")
        .output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Loads wherever programs run: nothing newer than glibc 2.17, no private symbol, nothing but libc's own libraries.
#[test]
fn the_shim_loads_on_old_systems() {
    let dynamic = tool("objdump", &["-p"], &shim());
    let needed: Vec<_> = dynamic.lines().filter_map(|line| line.trim().strip_prefix("NEEDED")).map(str::trim).collect();
    for library in needed {
        assert!(library.starts_with("libc.so."), "needs {library}");
    }
    let table = tool("objdump", &["-T"], &shim());
    for line in table.lines().filter(|line| line.contains("*UND*")) {
        assert!(!line.contains("GLIBC_PRIVATE"), "{line}");
        // musl has neither, and a program there must start all the same.
        assert!(!line.contains("__tls_get_addr") && !line.contains("__register_atfork"), "{line}");
        if let Some(version) = line.split("GLIBC_2.").nth(1) {
            let minor = version.split(|c: char| !c.is_ascii_digit()).next().and_then(|minor| minor.parse::<u32>().ok());
            assert!(minor.is_none_or(|minor| minor <= 17), "{line}");
        }
    }
}
