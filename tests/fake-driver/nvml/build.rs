//! Generates the exports: every NVML symbol of the list, with a body where `src/` defines one.
//!
//! A body is a function `pub(crate) fn NAME(` at the start of a line of a file in `src/`. The list doesn't
//! say in Rust what NVML's functions take, so the generated function takes what the body does. All that has
//! no body is generated too, and answers that it isn't supported.

use driver_api::{Library, SYMBOLS, codegen};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Symbols that work without `nvmlInit`: those that do in the real library of driver 535, which was asked.
const STATELESS: &[&str] =
    &["nvmlErrorString", "nvmlInit", "nvmlInitWithFlags", "nvmlInit_v2", "nvmlShutdown", "nvmlSystemGetNVMLVersion"];

/// What a body takes, and what it returns.
struct Body {
    module: String,
    parameters: Vec<(String, String)>,
    returns: String,
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{}", Library::Nvml.soname());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let bodies = find_bodies(Path::new("src")).expect("the sources are readable");
    fs::write(out.join("exports.rs"), exports(&bodies)).expect("OUT_DIR is writable");
    link_names(&out).expect("the target folder is writable");
}

fn find_bodies(folder: &Path) -> io::Result<BTreeMap<String, Body>> {
    let mut bodies = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let module = path.file_stem().and_then(|stem| stem.to_str()).expect("file names are text").to_owned();
        let source = fs::read_to_string(&path)?;
        for name in codegen::defined_functions(&source, "pub(crate) fn ").filter(|name| name.starts_with("nvml")) {
            let listed = SYMBOLS.iter().any(|symbol| symbol.library == Library::Nvml && symbol.name == name);
            assert!(listed, "{name} in {module} is no symbol of NVML");
            let before = bodies.insert(name.to_owned(), body(&source, name, &module));
            assert!(before.is_none(), "{name} has two bodies");
        }
    }
    Ok(bodies)
}

/// Reads the signature of a body; no type in it holds a parenthesis or a comma.
fn body(source: &str, name: &str, module: &str) -> Body {
    let start = source.find(&format!("\npub(crate) fn {name}(")).expect("it was just found");
    let signature = &source[start..source[start..].find(" {\n").map_or(source.len(), |end| start + end)];
    let (_, rest) = signature.split_once('(').expect("of `pub(crate)`");
    let (_, rest) = rest.split_once('(').expect("of the parameters");
    let (parameters, returns) = rest.split_once(") -> ").expect("a body returns something");
    let parameters = parameters.split(',').map(str::trim).filter(|parameter| !parameter.is_empty());
    let parameters = parameters.map(|parameter| {
        let (name, kind) = parameter.split_once(": ").expect("a parameter has a type");
        (name.trim_start_matches('_').to_owned(), kind.to_owned())
    });
    Body { module: module.to_owned(), parameters: parameters.collect(), returns: returns.to_owned() }
}

fn exports(bodies: &BTreeMap<String, Body>) -> String {
    let mut out = String::new();
    for name in SYMBOLS.iter().filter(|symbol| symbol.library == Library::Nvml).map(|symbol| symbol.name) {
        let stateless = STATELESS.contains(&name);
        let entry = format!("&Entry {{ name: {name:?}, stateless: {stateless} }}");
        let (list, returns, call) = match bodies.get(name) {
            None => (String::new(), "c_int", format!("entry::unmodelled({entry})")),
            Some(Body { module, parameters, returns }) => {
                let join = |each: &dyn Fn(&str, &str) -> String| {
                    parameters.iter().map(|(name, kind)| each(name, kind)).collect::<Vec<_>>().join(", ")
                };
                let list = join(&|name, kind| format!("p_{name}: {kind}"));
                let words = join(&|name, _| format!("({name:?}, p_{name}.word())"));
                let arguments = join(&|name, _| format!("p_{name}"));
                if returns == "Answer" {
                    let call = format!("entry::enter({entry}, &[{words}], || {module}::{name}({arguments}))");
                    (list, "c_int", call)
                } else {
                    (list, returns.as_str(), format!("{module}::{name}({arguments})"))
                }
            }
        };
        writeln!(
            out,
            "#[unsafe(no_mangle)]\npub(crate) extern \"C\" fn {name}({list}) -> {returns} {{\n    {call}\n}}"
        )
        .expect("writing to a string");
    }
    out
}

/// The library under the names that programs open, in a folder of its own beside the build's results.
fn link_names(out: &Path) -> io::Result<()> {
    let profile = out.ancestors().nth(3).expect("OUT_DIR is <profile>/build/<package>/out");
    let folder = profile.join("fake-driver");
    fs::create_dir_all(&folder)?;
    for name in [Library::Nvml.soname(), "libnvidia-ml.so"] {
        let link = folder.join(name);
        if fs::read_link(&link).is_ok() {
            fs::remove_file(&link)?;
        }
        std::os::unix::fs::symlink("../deps/libfake_nvml.so", &link)?;
    }
    Ok(())
}
