//! Generates the exports: every symbol of the list, with a body where `src/` defines one.
//!
//! A body is a line `pub(crate) fn NAME(` at the start of a line of some file under `src/`, `NAME` being
//! the symbol without its per-thread suffix. All that has no body is generated too, and answers that it
//! isn't supported.

use driver_api::{Library, SYMBOLS, Symbol, codegen};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Symbols that work without `cuInit`, and in the child of a process that had called it.
const STATELESS: &[&str] = &[
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{}", Library::Cuda.soname());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut bodies = BTreeMap::new();
    find_bodies(Path::new("src"), "crate", &mut bodies).expect("the sources are readable");
    fs::write(out.join("exports.rs"), exports(&bodies)).expect("OUT_DIR is writable");
    link_names(&out).expect("the target folder is writable");
}

/// Where each body lives: symbol name to the path of its module.
fn find_bodies(folder: &Path, module: &str, bodies: &mut BTreeMap<String, String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("file names are text").to_owned();
        let inner = if stem == "lib" { module.to_owned() } else { format!("{module}::{stem}") };
        if path.is_dir() {
            find_bodies(&path, &inner, bodies)?;
        } else {
            let source = fs::read_to_string(&path)?;
            for name in codegen::defined_functions(&source, "pub(crate) fn ").filter(|name| is_listed(name)) {
                let before = bodies.insert(name.to_owned(), inner.clone());
                assert!(before.is_none(), "{name} has two bodies: in {inner} and in {}", before.unwrap_or_default());
            }
        }
    }
    Ok(())
}

fn is_listed(name: &str) -> bool {
    SYMBOLS.iter().any(|symbol| symbol.library == Library::Cuda && symbol.abi == name)
}

fn exports(bodies: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut addresses = String::new();
    for (index, symbol) in SYMBOLS.iter().enumerate() {
        if symbol.library == Library::Cuda {
            let name = symbol.name;
            writeln!(addresses, "    (SymbolId({index}), Address({name} as *const c_void)),")
                .expect("writing to a string");
            export(index, symbol, bodies.get(symbol.abi), &mut out);
        }
    }
    write!(out, "/// Where each symbol is, in the order of the list.\npub(crate) static ADDRESSES: &[(SymbolId, Address)] = &[\n{addresses}];\n")
        .expect("writing to a string");
    out
}

fn export(index: usize, symbol: &Symbol, module: Option<&String>, out: &mut String) {
    let name = symbol.name;
    let stateless = STATELESS.contains(&name);
    // These ask and change what locks and checkpoints are, so that they work in a locked process, too.
    let unheld = stateless || name.starts_with("cuCheckpoint");
    let since = driver_api::since(driver_api::SymbolId(index)).max(1);
    let per_thread = symbol.per_thread;
    let entry = format!(
        "&Entry {{ name: {name:?}, since: {since}, stateless: {stateless}, unheld: {unheld}, per_thread: {per_thread} }}"
    );
    let Some(module) = module else {
        writeln!(
            out,
            "#[unsafe(no_mangle)]\npub(crate) extern \"C\" fn {name}() -> CUresult {{\n    entry::unmodelled({entry})\n}}"
        )
        .expect("writing to a string");
        return;
    };
    let list = codegen::parameter_list(symbol)
        .unwrap_or_else(|| panic!("{name} has a body, but no header declares its parameters"));
    let arguments = codegen::argument_list(symbol, "{}").expect("it has parameters");
    let words: String = symbol
        .params
        .expect("it has parameters")
        .iter()
        .map(|(parameter, _)| format!("({parameter:?}, p_{parameter}.word()), "))
        .collect();
    writeln!(
        out,
        "#[unsafe(no_mangle)]\npub(crate) extern \"C\" fn {name}({list}) -> CUresult {{\n    entry::enter({entry}, || [{words}], |call| {module}::{}(call, {arguments}))\n}}",
        symbol.abi
    )
    .expect("writing to a string");
}

/// The library under the names that programs open, in a folder of its own beside the build's results.
fn link_names(out: &Path) -> io::Result<()> {
    let profile = out.ancestors().nth(3).expect("OUT_DIR is <profile>/build/<package>/out");
    let folder = profile.join("fake-driver");
    fs::create_dir_all(&folder)?;
    for name in ["libcuda.so.1", "libcuda.so"] {
        let link = folder.join(name);
        if fs::read_link(&link).is_ok() {
            fs::remove_file(&link)?;
        }
        // Cargo leaves it among the dependencies, and beside them only when it is asked for by name.
        std::os::unix::fs::symlink("../deps/libfake_cuda.so", &link)?;
    }
    Ok(())
}
