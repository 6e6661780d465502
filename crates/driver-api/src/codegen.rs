//! Helpers for build scripts that turn rows of the list into `extern "C"` functions.

use crate::Symbol;
use std::fmt::Write as _;

/// `a: u64, b: *mut c_void`: the parameters as a Rust parameter list.
///
/// Names get a leading `p_` so that none is a Rust keyword or shadows something.
pub fn parameter_list(symbol: &Symbol) -> Option<String> {
    symbol.params.map(|params| {
        params.iter().fold(String::new(), |mut out, (name, ty)| {
            write!(out, "p_{name}: {ty}, ").expect("writing to a string");
            out
        })
    })
}

/// `a, b`: the parameters as call arguments, each passed through `wrap` (`"{}"` stands for the name).
pub fn argument_list(symbol: &Symbol, wrap: &str) -> Option<String> {
    symbol.params.map(|params| {
        params.iter().fold(String::new(), |mut out, (name, _)| {
            write!(out, "{}, ", wrap.replace("{}", &format!("p_{name}"))).expect("writing to a string");
            out
        })
    })
}

/// `u64, *mut c_void`: the types alone, for a function pointer.
pub fn type_list(symbol: &Symbol) -> Option<String> {
    symbol.params.map(|params| params.iter().map(|(_, ty)| format!("{ty}, ")).collect())
}

/// Names of the functions that `source` defines as `prefix NAME(`, one a line, as rustfmt lays them out.
///
/// The bodies in the hooks' and the simulated driver's files are found this way, so that writing one is
/// all it takes; a wrong signature is the compiler's to find.
pub fn defined_functions<'a>(source: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> + 'a {
    source.lines().filter_map(move |line| {
        let rest = line.strip_prefix(prefix)?.trim_start();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
        Some(&rest[..end])
    })
}
