//! `--simulate`: which machine, and what a process needs in its environment to see it.

use crate::Failure;
use quota_daemon::places::{make_private, simulated_folder};
use std::path::{Path, PathBuf};

/// The devices that the simulated driver knows.
pub(crate) const KNOWN: [&str; 9] = [
    "a100-80gb",
    "a100-40gb",
    "h100-80gb",
    "h200-141gb",
    "l4-24gb",
    "t4-16gb",
    "v100-32gb",
    "rtx3090-24gb",
    "rtx4090-24gb",
];
/// Devices of one machine.
const DEVICES_MAX: usize = 16;
/// Where an installed simulated driver lies.
const INSTALLED: &str = "/usr/lib/gpuquota/fake-driver";

/// A simulated machine, ready for use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Simulated {
    /// Its name, the same for every way of writing it.
    pub(crate) machine: String,
    /// The folder of its daemon.
    pub(crate) folder: PathBuf,
    state: PathBuf,
    driver: PathBuf,
}

impl Simulated {
    /// Finds the driver and makes the machine's folder in the user's.
    pub(crate) fn new(option: &str, user_folder: &Path) -> Result<Self, Failure> {
        let machine = canonical(option)?;
        let driver = driver_folder()?;
        let named = std::env::var("FAKE_CUDA_STATE").ok().filter(|path| !path.is_empty());
        let folder = simulated_folder(user_folder, &machine, named.as_deref());
        for folder in [user_folder, &folder] {
            make_private(folder).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
        }
        let state = named.map_or_else(|| folder.join("machine"), PathBuf::from);
        Ok(Self { machine, folder, state, driver })
    }

    /// What a process needs in its environment; `library_path` is what it has already.
    pub(crate) fn environment(&self, library_path: Option<&str>) -> Vec<(String, String)> {
        let driver = self.driver.display().to_string();
        let path = match library_path.filter(|path| !path.is_empty()) {
            // Twice would be harmless, but `env` may be evaluated again and again.
            Some(path) if path.split(':').next() == Some(&driver) => path.to_owned(),
            Some(path) => format!("{driver}:{path}"),
            None => driver,
        };
        vec![
            ("FAKE_CUDA_MACHINE".to_owned(), self.machine.clone()),
            ("FAKE_CUDA_STATE".to_owned(), self.state.display().to_string()),
            ("LD_LIBRARY_PATH".to_owned(), path),
        ]
    }
}

/// The machine in a form that is the same for every way of writing it.
fn canonical(option: &str) -> Result<String, Failure> {
    let wrong = |why: String| {
        let known = KNOWN.join(" ");
        Failure::usage(format!(
            "--simulate {option}: {why}; expected one of {known}, as in l4-24gb, 2xa100-80gb or l4-24gb,t4-16gb"
        ))
    };
    let mut parts: Vec<(usize, String)> = Vec::new();
    for part in option.split(',').map(str::trim) {
        let (board, layout) = part.split_once(':').map_or((part, None), |(board, layout)| (board, Some(layout)));
        let (count, name) = counted(board);
        if !KNOWN.contains(&name) {
            return Err(wrong(format!("{name:?} is no machine")));
        }
        let total = parts.iter().map(|(count, _)| count).sum::<usize>().saturating_add(count);
        if count == 0 || total > DEVICES_MAX {
            return Err(wrong(format!("a machine has 1 to {DEVICES_MAX} devices")));
        }
        // Which instances a device can have, the simulated driver says.
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+');
        if layout.is_some_and(|layout| layout.is_empty() || !layout.chars().all(legal)) {
            return Err(wrong(format!("{part:?} names no MIG instances; a100-40gb:3g.20gb+2x1g.5gb has some")));
        }
        let name = layout.map_or_else(|| name.to_owned(), |layout| format!("{name}:{layout}"));
        match parts.last_mut() {
            Some((before, last)) if *last == name => *before += count,
            _ => parts.push((count, name)),
        }
    }
    let part = |(count, name): &(usize, String)| if *count == 1 { name.clone() } else { format!("{count}x{name}") };
    Ok(parts.iter().map(part).collect::<Vec<_>>().join(","))
}

/// `3xNAME` as 3 and the name; anything else is one of that name.
fn counted(part: &str) -> (usize, &str) {
    match part.split_once('x') {
        Some((count, name)) if !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()) => {
            (count.parse().unwrap_or(usize::MAX), name)
        }
        _ => (1, part),
    }
}

/// Where the simulated driver lies: beside this program, or where it is installed.
pub(crate) fn driver_folder() -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join("fake-driver")));
    let places = [beside, Some(PathBuf::from(INSTALLED))];
    let found = places.iter().flatten().find(|folder| folder.join("libcuda.so.1").exists());
    found.cloned().ok_or_else(|| {
        let places: Vec<String> = places.iter().flatten().map(|folder| folder.display().to_string()).collect();
        Failure::new(format!(
            "the simulated driver is in none of {}; build it with cargo build --release",
            places.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_name() {
        for (option, machine) in [
            ("a100-80gb", "a100-80gb"),
            ("1xl4-24gb", "l4-24gb"),
            ("l4-24gb, l4-24gb,t4-16gb", "2xl4-24gb,t4-16gb"),
            ("rtx3090-24gb", "rtx3090-24gb"),
            ("16xrtx4090-24gb", "16xrtx4090-24gb"),
            ("a100-40gb:3g.20gb+2x1g.5gb, a100-40gb", "a100-40gb:3g.20gb+2x1g.5gb,a100-40gb"),
            ("a100-40gb:mig,a100-40gb:mig", "2xa100-40gb:mig"),
        ] {
            assert_eq!(canonical(option).as_deref(), Ok(machine));
        }
        for option in [
            "",
            "a100",
            "0xa100-80gb",
            "17xl4-24gb",
            "99999999999999999999xl4-24gb",
            "l4-24gb,",
            "x",
            "a100-40gb:",
            "a100-40gb:;",
        ] {
            let text = canonical(option).expect_err(option).text;
            assert!(text.contains("--simulate") && !text.contains('\n'), "{text}");
        }
    }
}
