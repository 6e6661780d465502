//! Every symbol: resolved as the list says, at every version; callable by anybody without harm.

use driver_api::{CUresult, Library, RESOLVER, SYMBOLS, SymbolId, Unresolved, resolve};
use harness::{Job, Machine, program};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;

fn exported() -> Vec<&'static str> {
    SYMBOLS.iter().filter(|symbol| symbol.library == Library::Cuda).map(|symbol| symbol.name).collect()
}

/// What `job` prints when it gets these names on its standard input.
fn told(machine: &Machine, names: &[&str], job: Job) -> String {
    let list = machine.folder().join("names");
    std::fs::write(&list, names.join("\n")).expect("writable");
    let output = job.into_command().stdin(File::open(&list).expect("written")).output().expect("it runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("ASCII")
}

/// Code, status and symbol for a name, as `resolve` prints them.
fn expected(second_form: bool, base: &str, version: i32, flags: u64, driver: i32) -> String {
    if second_form && driver < 12_000 {
        return "801 77 untouched".to_owned(); // An older driver has only the first form.
    }
    if flags > 2 {
        return "1 77 untouched".to_owned();
    }
    match resolve(base, version, flags == 2, driver) {
        Ok(symbol) => format!("0 {} {}", if second_form { 0 } else { 77 }, symbol.get().name),
        Err(why) if second_form => format!("0 {} -", why as i32),
        Err(Unresolved::UnknownName | Unresolved::VersionTooLow) => "500 77 untouched".to_owned(),
    }
}

/// Every base name and some that are none, at every version of the list and beside it, by both forms.
fn resolves_as_the_list_says(driver: i32) {
    let machine = Machine::new("a100-80gb");
    let symbols = machine.folder().join("symbols");
    std::fs::write(&symbols, exported().join("\n")).expect("writable");
    let mut bases: Vec<&str> = RESOLVER.iter().map(|row| row.base).collect::<BTreeSet<_>>().into_iter().collect();
    assert!(bases.len() > 500);
    bases.extend(["cuMemAlloc_v2", "cuLaunchKernel_ptsz", "CUMEMALLOC", "cuNoSuchFunction"]);
    let rows = RESOLVER.iter().map(|row| i32::try_from(row.version).expect("small"));
    let mut versions: BTreeSet<i32> = rows.flat_map(|version| [version - 10, version, version + 10]).collect();
    versions.extend([0, 99_990, -1]);
    let versions = versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    for form in ["v1", "v2"] {
        let job = machine.bare(program("resolve")).env("FAKE_CUDA_VERSION", driver.to_string());
        let text = told(&machine, &bases, job.arg(&symbols).arg(form).words(&versions));
        let mut answers = 0;
        for line in text.lines() {
            let mut words = line.splitn(4, ' ');
            let mut word = || words.next().expect("four words");
            let (base, version, flags, answer) =
                (word(), word().parse().expect("a version"), word().parse().expect("flags"), word());
            assert_eq!(
                answer,
                expected(form == "v2", base, version, flags, driver),
                "driver {driver}, {form}: {base} {version} {flags}"
            );
            answers += 1;
        }
        assert_eq!(answers, bases.len() * versions.split(' ').count() * 4);
    }
}

#[test]
fn names_resolve_on_a_driver_of_cuda_13() {
    resolves_as_the_list_says(13_020);
}

#[test]
fn names_resolve_on_a_driver_of_cuda_12() {
    resolves_as_the_list_says(12_020);
}

#[test]
fn names_resolve_on_a_driver_of_cuda_11() {
    resolves_as_the_list_says(11_040);
}

/// Answers of real drivers that no rule about suffixes would give, written down apart from the list.
#[test]
fn peculiar_answers_are_the_real_drivers() {
    let machine = Machine::new("a100-80gb");
    let symbols = machine.folder().join("symbols");
    std::fs::write(&symbols, exported().join("\n")).expect("writable");
    let rows = [
        ("cuGetProcAddress", 11_030, 0, "cuGetProcAddress"),
        ("cuGetProcAddress", 12_000, 0, "cuGetProcAddress_v2"),
        ("cuGraphInstantiate", 12_000, 0, "cuGraphInstantiate_v2"),
        ("cuDeviceGetUuid", 11_030, 0, "cuDeviceGetUuid"),
        ("cuDeviceGetUuid", 11_040, 0, "cuDeviceGetUuid_v2"),
        ("cuCtxCreate", 11_040, 0, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12_050, 0, "cuCtxCreate_v4"),
        ("cuMemAlloc", 2_000, 0, "cuMemAlloc"),
        ("cuMemAlloc", 3_020, 0, "cuMemAlloc_v2"),
        ("cuMemcpy", 4_000, 0, "cuMemcpy"),
        ("cuMemcpy", 7_000, 2, "cuMemcpy_ptds"),
        ("cuLaunchKernel", 7_000, 2, "cuLaunchKernel_ptsz"),
        ("cuMemAlloc", 13_020, 2, "cuMemAlloc_v2"),
    ];
    for (base, version, flags, symbol) in rows {
        let job = machine.bare(program("resolve")).arg(&symbols).arg("v2").arg(version.to_string());
        let text = told(&machine, &[base], job);
        assert!(text.contains(&format!("{base} {version} {flags} 0 0 {symbol}\n")), "{text}");
    }
}

/// The code that each function answers to zeros; none dies of them, and all answer the same under the shim.
fn answers_to_zeros(mode: &str) -> HashMap<String, i32> {
    let machine = Machine::new("a100-80gb");
    let names = exported();
    assert_eq!(names.len(), 726);
    let bare = told(&machine, &names, machine.bare(program("driver/zeros")).arg(mode));
    let ours = told(
        &machine,
        &names,
        machine.job(program("driver/zeros")).memory("100%").env("GPUQUOTA_LOG", "off").arg(mode),
    );
    for (bare, ours) in bare.lines().zip(ours.lines()) {
        assert_eq!(ours, bare, "{mode}");
    }
    let answer = |line: &str| {
        let (name, code) = line.split_once(' ').expect("a name and a code");
        (name.to_owned(), code.parse().unwrap_or_else(|_| panic!("{line}")))
    };
    let answers: HashMap<String, i32> = bare.lines().map(answer).collect();
    assert_eq!(answers.len(), names.len());
    answers
}

/// Before `cuInit` everything says so, but the few functions that work without, and what this driver is too old for.
#[test]
fn before_initialisation_every_function_says_so() {
    let answers = answers_to_zeros("bare");
    for (name, code) in answers {
        let symbol = SymbolId::exported(&name).expect("listed");
        let right = match name.as_str() {
            "cuInit" => CUresult::SUCCESS,
            "cuDriverGetVersion" | "cuGetProcAddress" | "cuGetProcAddress_v2" | "cuGetExportTable" => {
                CUresult::INVALID_VALUE
            }
            "cuGetErrorName" | "cuGetErrorString" => CUresult::INVALID_VALUE,
            _ if driver_api::since(symbol) > 13_020 => CUresult::NOT_SUPPORTED,
            _ => CUresult::NOT_INITIALIZED,
        };
        assert_eq!(code, right.0, "{name}");
    }
}

#[test]
fn without_a_context_no_function_dies_of_zeros() {
    let answers = answers_to_zeros("init");
    assert_eq!(answers["cuMemAlloc_v2"], CUresult::INVALID_VALUE.0);
    assert_eq!(answers["cuCtxSynchronize"], CUresult::INVALID_CONTEXT.0);
}

#[test]
fn with_a_context_no_function_dies_of_zeros() {
    let answers = answers_to_zeros("context");
    assert_eq!(answers["cuCtxSynchronize"], CUresult::SUCCESS.0);
    assert_eq!(answers["cuLaunchKernel"], CUresult::INVALID_HANDLE.0);
}
