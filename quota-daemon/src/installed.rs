//! Where the files lie that belong together: beside the program that runs, or where they are installed.

use std::path::PathBuf;

/// The shim's file.
pub const SHIM: &str = "libgpuquota.so";
/// Where an installed shim lies.
const INSTALLED: &str = "/usr/lib/gpuquota";

/// Where the shim lies.
///
/// # Errors
/// One line, when it is nowhere.
pub fn shim() -> Result<PathBuf, String> {
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(SHIM)));
    let places = [beside, Some(PathBuf::from(INSTALLED).join(SHIM))];
    let found = places.iter().flatten().find(|path| path.exists());
    found.cloned().ok_or_else(|| {
        let places: Vec<String> = places.iter().flatten().map(|path| path.display().to_string()).collect();
        format!("{SHIM} is neither {}; build it with cargo build --release", places.join(" nor "))
    })
}

/// The shim before what is preloaded already, as a value of `LD_PRELOAD`.
///
/// # Errors
/// One line, when it is nowhere, or where the loader can't preload it from.
pub fn preload(existing: Option<&str>) -> Result<String, String> {
    let shim = shim()?.display().to_string();
    if shim.contains([' ', ':']) {
        return Err(format!("{shim}: the loader can't preload from a path with a space or a colon"));
    }
    let others: Vec<&str> =
        existing.unwrap_or_default().split([' ', ':']).filter(|path| !path.is_empty() && *path != shim).collect();
    Ok(std::iter::once(shim.as_str()).chain(others).collect::<Vec<_>>().join(":"))
}

/// One of our programs by its name: the one beside this one, else whatever the path leads to.
pub fn program(name: &str) -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(name)));
    beside.filter(|program| program.exists()).unwrap_or_else(|| PathBuf::from(name))
}
