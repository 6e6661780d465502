//! Generates the exported entry points from the list of driver functions.
//!
//! A symbol is *hooked* when a function of its ABI name stands in `src/hooks/*.rs`; every other symbol is a
//! trampoline to the driver. A symbol whose class asks for handling and that is neither hooked nor named with
//! a reason in `src/passed.rs` stops the build, and so does one that is both.

use driver_api::{Class, Library, SYMBOLS, Symbol, codegen};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::{env, fs, path::Path, path::PathBuf};

include!("src/passed.rs");

fn main() {
    println!("cargo::rerun-if-changed=src/hooks");
    println!("cargo::rerun-if-changed=src/passed.rs");
    println!("cargo::rerun-if-changed=compat/glibc.c");
    println!("cargo::rerun-if-changed=build.rs");
    compatibility();
    let mut hooks = find_hooks(Path::new("src/hooks"));
    check_census(&hooks);
    // For `tests/mutate`, which shows that the tests notice each hook that is missing.
    println!("cargo::rerun-if-env-changed=GPUQUOTA_BUILD_WITHOUT");
    if let Ok(names) = env::var("GPUQUOTA_BUILD_WITHOUT") {
        for name in names.split(',').filter(|name| !name.is_empty()) {
            assert!(hooks.remove(name).is_some(), "GPUQUOTA_BUILD_WITHOUT={names}: {name} is not hooked");
        }
    }
    let mut out = String::new();
    let mut addresses = String::new();
    for (id, symbol) in SYMBOLS.iter().enumerate() {
        match hooks.get(symbol.abi) {
            Some(module) => hooked(id, symbol, module, &mut out),
            None => trampoline(id, symbol, &mut out),
        }
        writeln!(addresses, "        {id} => {} as *const c_void,", symbol.name).expect("writing to a string");
    }
    // A match and not a table: a table of addresses is what the loader would have to relocate in every program.
    writeln!(
        out,
        "/// The shim's own entry point at a place of the list.\npub(crate) fn address_of(id: Id) -> *const c_void {{\n    match id.0 {{\n{addresses}        _ => core::ptr::null(),\n    }}\n}}",
    )
    .expect("writing to a string");
    out.push_str("/// Places in the list, for our own calls of the driver; few are needed.\n#[allow(dead_code, non_upper_case_globals)]\npub(crate) mod id {\n");
    for (id, symbol) in SYMBOLS.iter().enumerate() {
        writeln!(out, "    pub(crate) const {}: usize = {id};", symbol.name).expect("writing to a string");
    }
    out.push_str("}\n");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(folder.join("entries.rs"), out).expect("OUT_DIR is writable");
    fs::write(folder.join("names.rs"), packed_names()).expect("OUT_DIR is writable");
    // The loader then answers `dlopen("libcuda.so.1")` with the shim itself. It must never be unloaded: programs keep its
    // addresses. And calls among its own functions must not be interposed by anybody.
    for argument in ["-soname,libcuda.so.1", "-z,nodelete", "-Bsymbolic"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
}

/// ABI names of the hooks, each with the module it stands in.
fn find_hooks(folder: &Path) -> BTreeMap<String, String> {
    let mut hooks = BTreeMap::new();
    for file in fs::read_dir(folder).expect("the hooks are part of the package") {
        let path = file.expect("a readable folder").path();
        let source = fs::read_to_string(&path).expect("a source file");
        let module = path.file_stem().expect("a name").to_str().expect("ASCII").to_owned();
        for name in codegen::defined_functions(&source, "pub(crate) fn ") {
            if name.starts_with("cu") || name.starts_with("nvml") {
                assert!(SYMBOLS.iter().any(|symbol| symbol.abi == name), "{name} in {module}.rs is no driver function");
                let before = hooks.insert(name.to_owned(), module.clone());
                assert!(before.is_none(), "{name} is hooked twice");
            }
        }
    }
    hooks
}

fn check_census(hooks: &BTreeMap<String, String>) {
    for symbol in SYMBOLS.iter().filter(|symbol| symbol.class != Class::Pass) {
        let hooked = hooks.contains_key(symbol.abi);
        let named = PASSED.iter().any(|passed| match passed.what {
            What::Names(names) => names.contains(&symbol.base),
            _ => false,
        });
        assert!(!(hooked && named), "{} is hooked and passed on purpose (src/passed.rs)", symbol.name);
        assert!(
            hooked || reason(symbol).is_some(),
            "{} ({:?}) is neither hooked nor passed with a reason",
            symbol.name,
            symbol.class
        );
    }
}

/// Why `symbol` is passed.
fn reason(symbol: &Symbol) -> Option<&'static str> {
    let class = format!("{:?}", symbol.class);
    let fits = |passed: &&Passed| match passed.what {
        What::Classes(classes) => classes.contains(&class.as_str()),
        What::TruthfulAnswers(classes) => !symbol.virtualised && classes.contains(&class.as_str()),
        What::Charged(kinds) => symbol.charge.is_some_and(|kind| kinds.contains(&kind)),
        What::Freed(kinds) => symbol.free.is_some_and(|kind| kinds.contains(&kind)),
        What::Names(names) => names.contains(&symbol.base),
    };
    PASSED.iter().find(fits).map(|passed| passed.reason)
}

/// True for what is hooked for no other reason than to be paced: while nothing is to be counted, it goes straight to the driver.
fn is_only_paced(symbol: &Symbol) -> bool {
    symbol.class == Class::Launch && symbol.charge.is_none()
}

fn hooked(id: usize, symbol: &Symbol, module: &str, out: &mut String) {
    let name = symbol.name;
    let parameters =
        codegen::parameter_list(symbol).unwrap_or_else(|| panic!("{name}: no header declares its parameters"));
    let arguments = codegen::argument_list(symbol, "{}").expect("as above");
    let types = codegen::type_list(symbol).expect("as above");
    let names: Vec<&str> = symbol.params.expect("as above").iter().map(|(name, _)| *name).collect();
    let read: String = names
        .iter()
        .map(|name| format!("let Some(a_{name}) = FromArg::from_arg(p_{name}) else {{ return real(); }};\n        "))
        .collect();
    let given: String = names.iter().map(|name| format!(", a_{name}")).collect();
    let lane = if symbol.per_thread { "PerThread" } else { "Legacy" };
    let library = match symbol.library {
        Library::Cuda => "guarded",
        Library::Nvml => "guarded_nvml",
    };
    let export = if is_only_paced(symbol) {
        fast_entry(id, symbol, out);
        format!("/// The same when launches are counted.\n#[cold]\nunsafe extern \"C\" fn {name}_counted")
    } else {
        format!("/// See the hook.\n#[unsafe(no_mangle)]\nunsafe extern \"C\" fn {name}")
    };
    writeln!(
        out,
        "{export}({parameters}) -> CUresult {{
    let real = || {{
        // SAFETY: the driver's function of this name has this signature.
        let function = unsafe {{ core::mem::transmute::<*const c_void, unsafe extern \"C\" fn({types}) -> CUresult>(real::address({id})) }};
        // SAFETY: the caller's own arguments, unchanged.
        unsafe {{ function({arguments}) }}
    }};
    if !crate::process::hooks_active() {{ return real(); }}
    {library}(&real, |next| {{
        {read}hooks::{module}::{abi}(next.on(Lane::{lane}){given}).code()
    }})
}}",
        abi = symbol.abi,
    )
    .expect("writing to a string");
}

/// The entry of what is only paced: to the driver, or to what counts. One call with the caller's own arguments, wherever it goes,
/// becomes a jump that leaves them where they are.
fn fast_entry(id: usize, symbol: &Symbol, out: &mut String) {
    let name = symbol.name;
    let parameters = codegen::parameter_list(symbol).expect("a hook has them");
    let arguments = codegen::argument_list(symbol, "{}").expect("as above");
    let types = codegen::type_list(symbol).expect("as above");
    writeln!(
        out,
        "/// See the hook.\n#[unsafe(no_mangle)]\nunsafe extern \"C\" fn {name}({parameters}) -> CUresult {{
    let mut address = real::loaded_address({id});
    if !crate::pace::is_free() || address.is_null() {{ address = {name}_counted as *const c_void; }}
    // SAFETY: the driver's function of this name has this signature, and so has ours.
    let function = unsafe {{ core::mem::transmute::<*const c_void, unsafe extern \"C\" fn({types}) -> CUresult>(address) }};
    // SAFETY: the caller's own arguments, unchanged.
    unsafe {{ function({arguments}) }}
}}"
    )
    .expect("writing to a string");
}

fn trampoline(id: usize, symbol: &Symbol, out: &mut String) {
    writeln!(
        out,
        "/// Goes to the driver as it is.\n#[unsafe(no_mangle)]\n#[unsafe(naked)]\nunsafe extern \"C\" fn {}() {{\n    trampoline!({id})\n}}",
        symbol.name
    )
    .expect("writing to a string");
}

/// The names as one text with NULs, and where each starts (`src/names.rs`).
fn packed_names() -> String {
    let mut text = String::new();
    let mut starts = vec![0];
    for symbol in SYMBOLS {
        text.push_str(symbol.name);
        text.push_str("\\0");
        starts.push(starts[starts.len() - 1] + symbol.name.len() + 1);
    }
    let cuda = SYMBOLS.iter().take_while(|symbol| symbol.library == Library::Cuda).count();
    assert!(SYMBOLS[cuda..].iter().all(|symbol| symbol.library == Library::Nvml), "sorted names are sorted by library");
    format!(
        "const CUDA_COUNT: usize = {cuda};\nstatic NAMES: &[u8] = b\"{text}\";\nstatic STARTS: [u16; {}] = {starts:?};\n",
        starts.len()
    )
}

/// Builds `compat/glibc.c` together with libgcc's static unwinder (see there).
fn compatibility() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut build = cc::Build::new();
    build.file("compat/glibc.c").warnings(true).cargo_metadata(false);
    let compiler = build.get_compiler();
    let found = compiler.to_command().arg("-print-file-name=libgcc_eh.a").output();
    let archive =
        found.ok().and_then(|found| String::from_utf8(found.stdout).ok()).map(|path| PathBuf::from(path.trim()));
    match archive.filter(|path| path.is_absolute() && path.exists()) {
        Some(archive) => {
            let objects = out.join("unwinder");
            fs::create_dir_all(&objects).expect("OUT_DIR is writable");
            let done = build.get_archiver().arg("x").arg(&archive).current_dir(&objects).status();
            assert!(done.is_ok_and(|status| status.success()), "ar can't unpack {}", archive.display());
            for object in fs::read_dir(&objects).expect("just made") {
                build.object(object.expect("a readable folder").path());
            }
        }
        None => println!("cargo::warning=no libgcc_eh.a: the library will need libgcc_s.so.1"),
    }
    build.compile("compat");
    // Whole, since the references come from the standard library, which is linked later.
    println!("cargo::rustc-link-lib=static:+whole-archive=compat");
    println!("cargo::rustc-link-search=native={}", out.display());
}
