//! The settings of the simulated driver, read from the environment.
//!
//! Every parser is a function of a text; what can't be followed is an error that names the variable, its
//! value and what would be right. An unset variable and an empty one mean the default.

mod copies;
mod failures;
mod journal;
mod kernels;
mod lacks;
mod quantity;

pub use copies::Bandwidth;
pub use failures::{Failures, Latencies};
pub use journal::Journal;
pub use kernels::{KernelTime, Kernels};
pub use lacks::{Lack, lacks};
pub use quantity::{parse_duration_ns, parse_size};

use crate::time::Hardware;
use std::sync::OnceLock;

/// A setting that says nothing that could be followed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{variable}={value:?}: {why}; {right}")]
pub struct SettingError {
    /// The variable.
    pub variable: &'static str,
    /// What it is set to.
    pub value: String,
    /// What is wrong with that.
    pub why: String,
    /// What would be right.
    pub right: &'static str,
}

/// The driver's CUDA version where `FAKE_CUDA_VERSION` says nothing else.
const VERSION_DEFAULT: i32 = 13020;
/// What a context costs where `FAKE_CUDA_CONTEXT` says nothing else.
const CONTEXT_DEFAULT: u64 = 300 << 20;

/// The driver's CUDA version, `FAKE_CUDA_VERSION`: 1000 times the major plus 10 times the minor one.
///
/// A mistake in the setting is reported by [`validate`], which `cuInit` and `nvmlInit` call.
pub fn driver_version() -> i32 {
    static VERSION: OnceLock<i32> = OnceLock::new();
    *VERSION.get_or_init(|| version_from_environment().unwrap_or(VERSION_DEFAULT))
}

/// Bytes of device memory that a context costs, `FAKE_CUDA_CONTEXT`.
///
/// A mistake in the setting is reported by [`validate`], which `cuInit` and `nvmlInit` call.
pub fn context_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| context_from_environment().unwrap_or(CONTEXT_DEFAULT))
}

/// Checks every setting except the machine itself.
///
/// # Errors
/// The first mistake found.
pub fn validate() -> Result<(), SettingError> {
    version_from_environment()?;
    context_from_environment()?;
    hardware_from_environment()?;
    Kernels::from_environment()?;
    Failures::from_environment()?;
    Latencies::from_environment()?;
    Bandwidth::from_environment()?;
    lacks::validate()?;
    Ok(())
}

/// The hardware's slice and switches; `None` where nothing is set, so that the machine's own hold.
pub(crate) fn hardware_from_environment() -> Result<Option<Hardware>, SettingError> {
    let slice = text("FAKE_CUDA_SLICE")?;
    let switch = text("FAKE_CUDA_SWITCH")?;
    if slice.is_none() && switch.is_none() {
        return Ok(None);
    }
    let mut hardware = Hardware::default();
    if let Some(value) = slice {
        hardware.slice_ns = parse_slice(&value)?;
    }
    if let Some(value) = switch {
        (hardware.hot_switch_ns, hardware.drained_switch_ns) = parse_switch(&value)?;
    }
    Ok(Some(hardware))
}

fn version_from_environment() -> Result<i32, SettingError> {
    text("FAKE_CUDA_VERSION")?.map_or(Ok(VERSION_DEFAULT), |value| parse_version(&value))
}

fn context_from_environment() -> Result<u64, SettingError> {
    const NAME: &str = "FAKE_CUDA_CONTEXT";
    const RIGHT: &str = "a size is right, such as 300MiB, 4GiB or a number of bytes";
    text(NAME)?.map_or(Ok(CONTEXT_DEFAULT), |value| {
        parse_size(&value).map_err(|why| SettingError { variable: NAME, value, why, right: RIGHT })
    })
}

fn parse_version(value: &str) -> Result<i32, SettingError> {
    /// The oldest driver with today's form of the API, and room above the newest.
    const KNOWN: std::ops::RangeInclusive<i32> = 6000..=99990;
    let version = value.trim().parse::<i32>().ok().filter(|version| KNOWN.contains(version) && version % 10 == 0);
    version.ok_or_else(|| SettingError {
        variable: "FAKE_CUDA_VERSION",
        value: value.to_owned(),
        why: "not a CUDA version".to_owned(),
        right: "1000 times the major plus 10 times the minor version is right, such as 13020 for CUDA 13.2",
    })
}

fn parse_slice(value: &str) -> Result<u64, SettingError> {
    /// Shorter slices are all switch; longer ones are none.
    const SLICES_NS: std::ops::RangeInclusive<u64> = 10_000..=10_000_000_000;
    let wrong = |why| SettingError {
        variable: "FAKE_CUDA_SLICE",
        value: value.to_owned(),
        why,
        right: "a duration from 10us to 10s is right, such as 2ms",
    };
    let slice = parse_duration_ns(value).map_err(wrong)?;
    if SLICES_NS.contains(&slice) { Ok(slice) } else { Err(wrong("out of range".to_owned())) }
}

fn parse_switch(value: &str) -> Result<(u64, u64), SettingError> {
    const SWITCH_NS_MAX: u64 = 1_000_000_000;
    let wrong = |why| SettingError {
        variable: "FAKE_CUDA_SWITCH",
        value: value.to_owned(),
        why,
        right: "one duration up to 1s, or two for hot and drained switches, is right, such as 170us,30us",
    };
    let one = |text: &str| match parse_duration_ns(text.trim()) {
        Ok(duration) if duration > SWITCH_NS_MAX => Err(wrong("out of range".to_owned())),
        Ok(duration) => Ok(duration),
        Err(why) => Err(wrong(why)),
    };
    match value.split_once(',') {
        Some((hot, drained)) => Ok((one(hot)?, one(drained)?)),
        None => one(value).map(|both| (both, both)),
    }
}

/// A variable's text, if it is set to something.
pub(crate) fn text(variable: &'static str) -> Result<Option<String>, SettingError> {
    let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    value.into_string().map(Some).map_err(|value| SettingError {
        variable,
        value: value.to_string_lossy().into_owned(),
        why: "not UTF-8".to_owned(),
        right: "plain text is right",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_as_cuda_writes_them() {
        assert_eq!(parse_version("13020"), Ok(13020));
        assert_eq!(parse_version(" 11040 "), Ok(11040));
        for wrong in ["13.2", "13021", "0", "-13020", "999999", "new"] {
            let message = parse_version(wrong).unwrap_err().to_string();
            assert!(message.contains("FAKE_CUDA_VERSION") && message.contains(wrong) && message.contains("13020"));
        }
    }

    #[test]
    fn slices_have_bounds() {
        assert_eq!(parse_slice("2ms"), Ok(2_000_000));
        for wrong in ["9us", "11s", "2", "fast"] {
            assert!(parse_slice(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_switch_cost_means_both() {
        assert_eq!(parse_switch("0"), Ok((0, 0)));
        assert_eq!(parse_switch("200us, 40us"), Ok((200_000, 40_000)));
        for wrong in ["2s", "1us,2us,3us", ",", "x"] {
            assert!(parse_switch(wrong).is_err(), "{wrong}");
        }
    }
}
