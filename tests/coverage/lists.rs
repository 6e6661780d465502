//! The lists agree: functions, scenarios, and what isn't simulated.

use crate::functions::FUNCTIONS;
use crate::launches;
use crate::scenario::{covered, scenarios};
use std::collections::BTreeSet;

/// Functions that the simulated driver lacks, with the reason.
pub(crate) const NOT_SIMULATED: &[(&str, &[&str])] = &[
    (
        "OpenGL, EGL and VDPAU are other libraries, which a simulated device doesn't draw with",
        &[
            "cuEventCreateFromEGLSync",
            "cuGLCtxCreate",
            "cuGLGetDevices",
            "cuGLMapBufferObject",
            "cuGLMapBufferObjectAsync",
            "cuGLRegisterBufferObject",
            "cuGLUnmapBufferObject",
            "cuGLUnmapBufferObjectAsync",
            "cuGLUnregisterBufferObject",
            "cuGraphicsEGLRegisterImage",
            "cuGraphicsGLRegisterBuffer",
            "cuGraphicsGLRegisterImage",
            "cuGraphicsMapResources",
            "cuGraphicsUnmapResources",
            "cuGraphicsUnregisterResource",
            "cuGraphicsVDPAURegisterOutputSurface",
            "cuGraphicsVDPAURegisterVideoSurface",
            "cuVDPAUCtxCreate",
            "cuVDPAUGetDevice",
        ],
    ),
    ("graphics calls in a capture, as above", &["cuStreamBeginCaptureToCig", "cuStreamEndCaptureToCig"]),
    ("a graph that is captured again, which no client of the tests does", &["cuStreamBeginRecaptureToGraph"]),
];

/// What takes device memory by these kinds of charge is refused when it doesn't fit, so that a scenario has to show it.
const REFUSED: [&str; 12] = [
    "array_desc",
    "checkpoint",
    "context",
    "graph_exec",
    "graph_reserved",
    "limit",
    "linear",
    "managed",
    "mip_desc",
    "phys_handle",
    "pitch",
    "pool_reserved",
];

#[test]
fn every_function_has_a_test() {
    let listed: BTreeSet<&str> = covered().chain(launches::listed()).map(|symbol| symbol.base).collect();
    let tested: BTreeSet<&str> = FUNCTIONS.iter().copied().collect();
    assert_eq!(tested, listed);
}

#[test]
fn every_symbol_has_a_scenario_and_every_scenario_a_symbol() {
    let symbols: BTreeSet<&str> = covered().map(|symbol| symbol.abi).collect();
    let whole: BTreeSet<&str> = scenarios().whole.iter().map(String::as_str).collect();
    let part: BTreeSet<&str> = scenarios().part.iter().map(String::as_str).collect();
    assert_eq!(whole, symbols);
    assert!(part.is_subset(&symbols), "{:?}", part.difference(&symbols));
}

/// A function that can be refused shows that it is.
#[test]
fn every_refusal_has_a_scenario() {
    let refused = covered().filter(|symbol| symbol.charge.is_some_and(|kind| REFUSED.contains(&kind)));
    let missing: Vec<&str> =
        refused.map(|symbol| symbol.abi).filter(|symbol| !scenarios().part.contains(*symbol)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // Of these kinds the list has more, which take nothing at the call.
    let measured = |symbol: &&driver_api::Symbol| {
        symbol.charge == Some("module") && symbol.base.starts_with("cuModule")
            || symbol.base == "cuImportExternalMemory"
    };
    let missing: Vec<&str> =
        covered().filter(measured).map(|symbol| symbol.abi).filter(|abi| !scenarios().part.contains(*abi)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_is_not_simulated_is_of_the_list() {
    let named: Vec<&str> = NOT_SIMULATED.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let unknown: Vec<&&str> = named.iter().filter(|name| !FUNCTIONS.contains(*name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
