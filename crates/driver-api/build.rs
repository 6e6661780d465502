//! Turns `data/cuda-surface.json`, the only list of driver functions there is, into Rust statics.
//!
//! Nothing is decided here: names, ABIs, versions and classes are copied; C types are spelt in Rust by
//! the rules of [`rust_type`], with `src/types.rs` as the list of what has a layout.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=data/cuda-surface.json");
    println!("cargo::rerun-if-changed=src/types.rs");
    println!("cargo::rerun-if-changed=build.rs");
    let text = fs::read_to_string("data/cuda-surface.json").expect("the list is part of the package");
    let list: Value = serde_json::from_str(&text).expect("the list is JSON");
    let known = declared_types(&fs::read_to_string("src/types.rs").expect("types.rs is part of the package"));
    let mut opaque = BTreeSet::new();
    let mut symbols = BTreeMap::new();
    for (key, library) in [("cuda", "Cuda"), ("nvml", "Nvml")] {
        for function in list[key].as_array().expect("a list of functions") {
            add_function(function, library, &known, &mut opaque, &mut symbols);
        }
    }
    let names: Vec<&String> = symbols.keys().collect();
    let index = |name: &str| names.binary_search_by(|n| n.as_str().cmp(name)).expect("a listed symbol");

    let mut out = String::from("/// Every exported symbol, sorted by name.\npub static SYMBOLS: &[Symbol] = &[\n");
    for row in symbols.values() {
        writeln!(out, "    {row},").expect("writing to a string");
    }
    out.push_str("];\n");
    resolver(&list["cuda"], &index, &mut out);
    formats(&list["array_formats"], &mut out);
    for name in &opaque {
        writeln!(out, "/// A structure of the driver that is only ever passed on.\n#[repr(C)]\n#[derive(Debug)]\npub struct {name} {{ _private: [u8; 0] }}").expect("writing to a string");
    }
    let path = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("list.rs");
    fs::write(path, out).expect("OUT_DIR is writable");
}

/// Names that `types.rs` declares: `pub type` and `pub struct` items, and the lists given to its macros.
fn declared_types(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut in_list = false;
    for line in source.lines() {
        let item = line.strip_prefix("pub type ").or_else(|| line.strip_prefix("pub struct "));
        let field = line.strip_prefix("    ").filter(|l| in_list && !l.starts_with([' ', '/', '}']));
        for part in
            item.into_iter().chain(field.into_iter().flat_map(|l| l.split(if l.contains('{') { '\n' } else { ',' })))
        {
            names.insert(part.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
        in_list = match line {
            "handles!(" | "enumerations!(" | "layouts! {" => true,
            ");" | "}" => false,
            _ => in_list,
        };
    }
    names
}

fn add_function(
    function: &Value,
    library: &str,
    known: &BTreeSet<String>,
    opaque: &mut BTreeSet<String>,
    symbols: &mut BTreeMap<String, String>,
) {
    let text = |key: &str| function[key].as_str().unwrap_or("");
    let signatures = function["sig"].as_object().expect("signatures by ABI");
    for variant in function["variants"].as_array().expect("variants") {
        let name = variant.as_str().expect("a name");
        let abi = name.strip_suffix("_ptds").or_else(|| name.strip_suffix("_ptsz")).unwrap_or(name);
        let params = match signatures.get(abi).or_else(|| signatures.get(name)).and_then(Value::as_str) {
            Some(signature) => match parameters(signature, known, opaque) {
                Some(list) => format!("Some(&[{list}])"),
                None if library == "Nvml" => "None".to_owned(),
                None => panic!("types.rs does not say what the parameters of {name} are: {signature}"),
            },
            None => "None".to_owned(),
        };
        let kind = |key: &str| match function[key]["kind"].as_str() {
            Some(kind) => format!("Some({kind:?})"),
            None => "None".to_owned(),
        };
        let virtualised = function["virtualize"].as_bool().unwrap_or(false);
        symbols.insert(
            name.to_owned(),
            format!(
                "Symbol {{ name: {name:?}, abi: {abi:?}, base: {:?}, library: Library::{library}, class: Class::{}, per_thread: {}, virtualised: {virtualised}, charge: {}, free: {}, params: {params} }}",
                text("base"), camel(text("class")), abi != name, kind("charge"), kind("free"),
            ),
        );
    }
}

fn camel(class: &str) -> String {
    class.split('_').map(|word| word[..1].to_owned() + &word[1..].to_lowercase()).collect()
}

/// `(CUstream hStream, void **p)` as Rust tuples of name and type; `None` for a type that has no layout here.
fn parameters(signature: &str, known: &BTreeSet<String>, opaque: &mut BTreeSet<String>) -> Option<String> {
    let inner = signature.trim().trim_start_matches('(').trim_end_matches(')').trim();
    if inner.is_empty() || inner == "void" {
        return Some(String::new());
    }
    let mut out = String::new();
    for parameter in inner.split(',') {
        let parameter = parameter.trim();
        let at = parameter.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
        let (mut kind, mut name) = (parameter[..at].trim(), parameter[at..].to_owned());
        if kind.is_empty() {
            (kind, name) = (parameter, "unnamed".to_owned());
        }
        if matches!(name.as_str(), "type" | "ref" | "in" | "fn") {
            name.push('_');
        }
        write!(out, "({name:?}, {:?}), ", rust_type(kind, known, opaque)?).expect("writing to a string");
    }
    Some(out)
}

fn rust_type(c: &str, known: &BTreeSet<String>, opaque: &mut BTreeSet<String>) -> Option<String> {
    let pointers = c.matches('*').count();
    let constant = c.starts_with("const ");
    let base = c.replace('*', " ").replace("const ", " ");
    let base = base.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rust = match base.as_str() {
        "unsigned int" | "unsigned" | "cuuint32_t" | "GLuint" | "GLenum" | "VdpDevice" | "VdpOutputSurface"
        | "VdpVideoSurface" => "u32".to_owned(),
        "int" | "EGLint" => "c_int".to_owned(),
        "size_t" => "usize".to_owned(),
        "unsigned long long" | "unsigned long" | "cuuint64_t" => "u64".to_owned(),
        "long long" => "i64".to_owned(),
        "double" => "f64".to_owned(),
        "unsigned short" => "u16".to_owned(),
        "unsigned char" => "u8".to_owned(),
        "char" => "c_char".to_owned(),
        "float" => "f32".to_owned(),
        "void" => "c_void".to_owned(),
        other if known.contains(other) => other.to_owned(),
        other if pointers > 0 => {
            opaque.insert(other.to_owned());
            other.to_owned()
        }
        _ => return None,
    };
    for level in 0..pointers {
        rust = format!("{} {rust}", if constant && level == 0 { "*const" } else { "*mut" });
    }
    Some(rust)
}

fn resolver(functions: &Value, index: &dyn Fn(&str) -> usize, out: &mut String) {
    out.push_str("/// What `cuGetProcAddress` answers: sorted by base name, then lane, then version.\npub static RESOLVER: &[Resolution] = &[\n");
    let mut rows = Vec::new();
    for function in functions.as_array().expect("a list of functions") {
        for row in function["get_proc_address"].as_array().into_iter().flatten() {
            let symbol = row["symbol"].as_str().expect("a symbol");
            rows.push((
                function["base"].as_str().expect("a base name").to_owned(),
                row["per_thread"].as_bool().unwrap_or(false),
                row["version"].as_u64().expect("a version"),
                index(symbol),
            ));
        }
    }
    rows.sort();
    for (base, per_thread, version, symbol) in rows {
        writeln!(out, "    Resolution {{ base: {base:?}, per_thread: {per_thread}, version: {version}, symbol: SymbolId({symbol}) }},").expect("writing to a string");
    }
    out.push_str("];\n");
}

fn formats(formats: &Value, out: &mut String) {
    out.push_str(
        "/// Array formats and the room their elements take.\npub static ARRAY_FORMATS: &[ArrayFormat] = &[\n",
    );
    for format in formats.as_array().expect("a list of formats") {
        let number = |key: &str| format[key].as_f64();
        let size = match (number("bytes_per_channel"), number("bits_per_pixel"), number("bytes_per_4x4_block")) {
            (Some(bytes), _, _) => format!("ElementSize::BytesPerChannel({bytes})"),
            (_, Some(bits), _) => format!("ElementSize::BitsPerPixel({bits})"),
            (_, _, Some(bytes)) => format!("ElementSize::BytesPerBlock({bytes})"),
            _ => panic!("a format without a size"),
        };
        writeln!(out, "    ArrayFormat {{ name: {}, value: {}, size: {size} }},", format["name"], format["value"])
            .expect("writing to a string");
    }
    out.push_str("];\n");
}
