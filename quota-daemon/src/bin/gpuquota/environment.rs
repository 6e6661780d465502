//! What a job needs in its environment; `run` sets it, `env` prints it.

use crate::Failure;
use crate::daemons::own_folder;
use crate::options::{JobOptions, Quota};
use crate::simulated::Simulated;
use quota_core::MemorySize;
use quota_daemon::devices::SelectError;
use quota_daemon::installed;
pub(crate) use quota_daemon::installed::SHIM;
use std::path::PathBuf;

/// Where the shim lies: beside this program, or where it is installed.
pub(crate) fn shim() -> Result<PathBuf, Failure> {
    installed::shim().map_err(Failure::new)
}

/// The shim before what is preloaded already.
pub(crate) fn preload(existing: Option<&str>) -> Result<(String, String), Failure> {
    Ok(("LD_PRELOAD".to_owned(), installed::preload(existing).map_err(Failure::new)?))
}

/// The quota as settings. A share of the memory is left out where `absolute_only` says so: the daemon has
/// it, and the driver's own idea of a device's size may differ from NVML's.
pub(crate) fn quota(quota: &Quota, absolute_only: bool) -> Vec<(String, String)> {
    let memory = quota.memory.filter(|size| !absolute_only || matches!(size, MemorySize::Absolute(_)));
    let settings = [
        ("GPUQUOTA_MEMORY", memory.map(|size| size.to_string())),
        ("GPUQUOTA_COMPUTE", quota.compute.map(|percent| percent.to_string())),
        ("GPUQUOTA_GUARANTEE", quota.guarantee.map(|percent| percent.to_string())),
        ("GPUQUOTA_WEIGHT", quota.weight.map(|weight| weight.to_string())),
        ("GPUQUOTA_PRIORITY", quota.priority.map(|priority| priority.to_string())),
    ];
    settings.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// `env`: prints what `run` would set, without asking a daemon.
pub(crate) fn print(options: &JobOptions) -> Result<(), Failure> {
    let asked = options.quota.read()?;
    let mut settings = vec![preload(variable("LD_PRELOAD").as_deref())?];
    if let Some(machine) = &options.simulate {
        let simulated = Simulated::new(machine, &own_folder())?;
        settings.extend(simulated.environment(variable("LD_LIBRARY_PATH").as_deref()));
    }
    settings.extend(quota(&asked, false));
    if let Some(tenant) = options.tenant(|_| None)? {
        settings.push(("GPUQUOTA_TENANT".to_owned(), tenant));
    }
    if let Some(selection) = &options.device {
        settings.extend(visible(selection)?);
    }
    let lines: String = settings.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect();
    crate::table::print(&lines);
    Ok(())
}

/// A selection in CUDA's own words: indices in the order of the bus, UUIDs, beginnings of UUIDs.
fn visible(selection: &str) -> Result<Vec<(String, String)>, Failure> {
    if selection.trim() == "all" {
        return Ok(Vec::new());
    }
    let parts: Vec<&str> = selection.split(',').map(str::trim).collect();
    let legal = |part: &str| {
        let is_index = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        is_index || (part.starts_with("GPU-") || part.starts_with("MIG-")) && part.len() > 4
    };
    if !parts.iter().all(|part| legal(part)) {
        return Err(Failure::usage(format!("--device {}", SelectError::Empty(selection.to_owned()))));
    }
    Ok(vec![
        ("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned()),
        ("CUDA_VISIBLE_DEVICES".to_owned(), parts.join(",")),
    ])
}

/// A variable of ours; one that isn't Unicode is as good as none.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Safe for any shell: nothing in single quotes means anything.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_quoted_for_any_shell() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }

    #[test]
    fn a_selection_is_put_in_cudas_words() {
        assert_eq!(visible("all"), Ok(Vec::new()));
        assert_eq!(visible(" 1, GPU-ab").map(|settings| settings[1].1.clone()), Ok("1,GPU-ab".to_owned()));
        for bad in ["", "1,", "one", "-1", "GPU-"] {
            assert!(visible(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_share_is_left_to_the_daemon_that_knows_the_device() {
        let asked = Quota { memory: "50%".parse().ok(), weight: Some(5), ..Quota::default() };
        assert_eq!(quota(&asked, true), [("GPUQUOTA_WEIGHT".to_owned(), "5".to_owned())]);
        assert_eq!(quota(&asked, false)[0], ("GPUQUOTA_MEMORY".to_owned(), "50%".to_owned()));
    }
}
