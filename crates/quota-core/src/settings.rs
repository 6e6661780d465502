//! What the environment asks for: `GPUQUOTA_*`, and HAMi's names with HAMi's meaning.
//!
//! Pure: the environment is a function argument. The first setting that can't be understood is an error
//! that names it; nothing is ever guessed, and a quota is never read as "unlimited" by mistake.

use crate::{MemorySize, Percent, UnitError, units};
use core::fmt;

/// Settings by device are read for indices below this.
pub const INDEXED_MAX: usize = crate::ledger::DEVICES_MAX;
/// Where the node's daemon listens when nothing else is said.
pub const DEFAULT_SOCKET: &str = "/run/gpuquota/gpuquota.sock";
/// The longest tenant name.
pub const TENANT_LENGTH_MAX: usize = 128;

/// Whether quotas are enforced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Count and refuse.
    #[default]
    Enforce,
    /// Count, never refuse.
    Observe,
    /// Pass everything.
    Off,
}

/// What happens to a process whose daemon is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDaemonLoss {
    /// The last known quota goes on being enforced.
    #[default]
    Keep,
    /// New memory is refused.
    Refuse,
}

/// Class of a tenant's compute.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Priority {
    /// Gets what the others leave.
    Batch,
    /// Shares by weight.
    #[default]
    Normal,
    /// Goes first.
    High,
}

/// How much goes to the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What makes us refuse.
    Error,
    /// What the user should know.
    #[default]
    Warn,
    /// What happened.
    Info,
    /// Everything.
    Debug,
}

/// A value for every device, or device by device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerDevice<T> {
    every: Option<T>,
    by_index: Vec<(usize, Option<T>)>,
}

/// Everything the environment says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Memory caps; the index is the visible device's.
    pub memory: PerDevice<MemorySize>,
    /// Compute caps.
    pub compute: PerDevice<Percent>,
    /// Least share of compute.
    pub guarantee: Option<Percent>,
    /// Weight among contenders, 1 to 10,000; 100 where nothing is said.
    pub weight: Option<u32>,
    /// Class among contenders.
    pub priority: Option<Priority>,
    /// Name under which processes are counted together.
    pub tenant: Option<String>,
    /// The file with the tenant's secret.
    pub secret_file: Option<String>,
    /// The daemon's socket, when it was named.
    pub socket: Option<String>,
    /// A file beside which the ledger lies (`CUDA_DEVICE_MEMORY_SHARED_CACHE`).
    pub ledger_beside: Option<String>,
    /// Enforce, observe or off.
    pub mode: Mode,
    /// What happens when the daemon is gone.
    pub on_daemon_loss: OnDaemonLoss,
    /// How much is logged.
    pub log: LogLevel,
    /// Where to, instead of stderr.
    pub log_file: Option<String>,
}

/// A setting that can't be understood: names the setting, the value and what would be right.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{setting}={value:?}: {reason}; expected {expected}")]
pub struct SettingError {
    /// The variable or option.
    pub setting: String,
    /// What it says.
    pub value: String,
    /// What is wrong with that.
    pub reason: String,
    /// What would be right.
    pub expected: &'static str,
}

impl SettingError {
    /// For a value that `error` refused.
    pub fn new(setting: &str, value: &str, error: impl fmt::Display, expected: &'static str) -> Self {
        Self { setting: setting.to_owned(), value: shorten(value), reason: error.to_string(), expected }
    }
}

/// A hostile or broken value must not flood the log.
fn shorten(value: &str) -> String {
    const SHOWN_MAX: usize = 80;
    match value.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    }
}

impl<T> Default for PerDevice<T> {
    fn default() -> Self {
        Self { every: None, by_index: Vec::new() }
    }
}

impl<T: Copy> PerDevice<T> {
    /// One value for all devices.
    pub fn every(value: T) -> Self {
        Self { every: Some(value), by_index: Vec::new() }
    }

    /// What holds for the visible device `index`.
    pub fn on(&self, index: usize) -> Option<T> {
        self.by_index.iter().find(|(at, _)| *at == index).map_or(self.every, |(_, value)| *value)
    }

    /// True when something is said for one device by its index.
    pub fn is_indexed(&self) -> bool {
        !self.by_index.is_empty()
    }

    /// True when nothing is said for any device.
    pub fn is_empty(&self) -> bool {
        self.every.is_none() && self.by_index.iter().all(|(_, value)| value.is_none())
    }
}

/// The setting that names the file with a tenant's secret.
pub const SECRET_FILE: &str = "GPUQUOTA_TENANT_SECRET_FILE";
/// Words for [`Mode`].
pub const MODE_FORM: &str = "enforce, observe or off";
/// Words for [`Priority`].
pub const PRIORITY_FORM: &str = "batch, normal or high";
/// Range of a weight.
pub const WEIGHT_FORM: &str = "a whole number from 1 to 10000";
/// Form of a tenant's name.
pub const TENANT_FORM: &str = "1 to 128 letters, digits, '.', '_', '-', ':', '@' or '/'";

/// Reads the word of a priority.
pub fn parse_priority(text: &str) -> Result<Priority, &'static str> {
    match text {
        "batch" => Ok(Priority::Batch),
        "normal" => Ok(Priority::Normal),
        "high" => Ok(Priority::High),
        _ => Err("it is no priority"),
    }
}

/// Reads a weight.
pub fn parse_weight(text: &str) -> Result<u32, &'static str> {
    match text.parse() {
        Ok(weight @ 1..=10_000) => Ok(weight),
        _ => Err("it is out of range"),
    }
}

/// Reads a tenant's name.
pub fn parse_tenant(text: &str) -> Result<String, &'static str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '@' | '/');
    match text {
        "" => Err("it is empty"),
        _ if text.len() > TENANT_LENGTH_MAX => Err("it is too long"),
        _ if !text.chars().all(legal) => Err("it has a character that a name may not have"),
        _ => Ok(text.to_owned()),
    }
}

impl Settings {
    /// Reads all settings through `get`, which answers what the environment has under a name.
    ///
    /// # Errors
    /// The first setting that can't be understood.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingError> {
        let environment = Environment { get };
        let mut settings = Self {
            memory: environment.per_device("GPUQUOTA_MEMORY", units::SIZE_FORM, |text| text.parse().map(Some))?,
            compute: environment.per_device("GPUQUOTA_COMPUTE", units::PERCENT_FORM, |text| text.parse().map(Some))?,
            guarantee: environment.parse("GPUQUOTA_GUARANTEE", units::PERCENT_FORM, str::parse)?,
            weight: environment.parse("GPUQUOTA_WEIGHT", WEIGHT_FORM, parse_weight)?,
            priority: environment.parse("GPUQUOTA_PRIORITY", PRIORITY_FORM, parse_priority)?,
            tenant: environment.parse("GPUQUOTA_TENANT", TENANT_FORM, parse_tenant)?,
            secret_file: environment.parse(SECRET_FILE, "the absolute path of a file", absolute_path)?,
            socket: environment.parse("GPUQUOTA_SOCKET", "the absolute path of a socket", absolute_path)?,
            ledger_beside: None,
            mode: environment.parse("GPUQUOTA_MODE", MODE_FORM, parse_mode)?.unwrap_or_default(),
            on_daemon_loss: environment
                .parse("GPUQUOTA_ON_DAEMON_LOSS", "keep or refuse", parse_on_daemon_loss)?
                .unwrap_or_default(),
            log: environment.parse("GPUQUOTA_LOG", "off, error, warn, info or debug", parse_log)?.unwrap_or_default(),
            log_file: environment.parse("GPUQUOTA_LOG_FILE", "the absolute path of a file", absolute_path)?,
        };
        environment.hami(&mut settings)?;
        Ok(settings)
    }

    /// True when some quota is asked for.
    pub fn asks_for_something(&self) -> bool {
        !self.memory.is_empty() || !self.compute.is_empty()
    }
}

fn parse_mode(text: &str) -> Result<Mode, &'static str> {
    match text {
        "enforce" => Ok(Mode::Enforce),
        "observe" => Ok(Mode::Observe),
        "off" => Ok(Mode::Off),
        _ => Err("it is no mode"),
    }
}

fn parse_on_daemon_loss(text: &str) -> Result<OnDaemonLoss, &'static str> {
    match text {
        "keep" => Ok(OnDaemonLoss::Keep),
        "refuse" => Ok(OnDaemonLoss::Refuse),
        _ => Err("it is neither"),
    }
}

fn parse_log(text: &str) -> Result<LogLevel, &'static str> {
    match text {
        "off" => Ok(LogLevel::Off),
        "error" => Ok(LogLevel::Error),
        "warn" => Ok(LogLevel::Warn),
        "info" => Ok(LogLevel::Info),
        "debug" => Ok(LogLevel::Debug),
        _ => Err("it is no level"),
    }
}

fn absolute_path(text: &str) -> Result<String, &'static str> {
    if text.starts_with('/') { Ok(text.to_owned()) } else { Err("it is not an absolute path") }
}

/// HAMi's sizes: plain bytes or `k`, `m`, `g` for powers of 1024; 0 is HAMi's "no limit".
fn hami_size(text: &str) -> Result<Option<MemorySize>, UnitError> {
    match text.parse::<MemorySize>() {
        Err(UnitError::Zero) => Ok(None),
        other => other.map(Some),
    }
}

/// HAMi's percentages: 0 and 100 are its "no limit".
fn hami_percent(text: &str) -> Result<Option<Percent>, UnitError> {
    if matches!(text, "0" | "100") { Ok(None) } else { text.parse().map(Some) }
}

struct Environment<F> {
    get: F,
}

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    fn parse<T, E: fmt::Display>(
        &self,
        name: &str,
        expected: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, SettingError> {
        let Some(value) = (self.get)(name) else { return Ok(None) };
        parse(&value).map(Some).map_err(|error| SettingError::new(name, &value, error, expected))
    }

    /// `NAME` for every device and `NAME_<i>` for one.
    fn per_device<T, E: fmt::Display>(
        &self,
        name: &str,
        expected: &'static str,
        parse: impl Fn(&str) -> Result<Option<T>, E>,
    ) -> Result<PerDevice<T>, SettingError> {
        let every = self.parse(name, expected, &parse)?.flatten();
        let mut by_index = Vec::new();
        for index in 0..INDEXED_MAX {
            if let Some(value) = self.parse(&format!("{name}_{index}"), expected, &parse)? {
                by_index.push((index, value));
            }
        }
        Ok(PerDevice { every, by_index })
    }

    /// HAMi's names fill what ours leave open.
    fn hami(&self, settings: &mut Settings) -> Result<(), SettingError> {
        const DISABLE_FORM: &str = "true or false";
        let memory = self.per_device("CUDA_DEVICE_MEMORY_LIMIT", units::SIZE_FORM, hami_size)?;
        let compute = self.per_device("CUDA_DEVICE_SM_LIMIT", units::PERCENT_FORM, hami_percent)?;
        let policy = self.parse("GPU_CORE_UTILIZATION_POLICY", "default, force or disable", |text| {
            if matches!(text.to_ascii_lowercase().as_str(), "default" | "force" | "disable") {
                Ok(text.eq_ignore_ascii_case("disable"))
            } else {
                Err("it is no policy")
            }
        })?;
        if settings.memory.is_empty() {
            settings.memory = memory;
        }
        if settings.compute.is_empty() && policy != Some(true) {
            settings.compute = compute;
        }
        let priority = self.parse("CUDA_TASK_PRIORITY", "0 (high) or a larger number", |text| {
            text.parse::<u32>().map(|level| if level == 0 { Priority::High } else { Priority::Normal })
        })?;
        settings.priority = settings.priority.or(priority);
        settings.ledger_beside =
            self.parse("CUDA_DEVICE_MEMORY_SHARED_CACHE", "the absolute path of a file", absolute_path)?;
        let disabled = self.parse("CUDA_DISABLE_CONTROL", DISABLE_FORM, parse_bool)?.unwrap_or(false);
        if disabled && (self.get)("GPUQUOTA_MODE").is_none() {
            settings.mode = Mode::Off;
        }
        Ok(())
    }
}

fn parse_bool(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" | "" => Ok(false),
        _ => Err("it is neither"),
    }
}

macro_rules! words {
    ($($name:ident { $($variant:ident = $word:literal),* })*) => {
        $(impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $word),* })
            }
        })*
    };
}
words! {
    Priority { Batch = "batch", Normal = "normal", High = "high" }
    Mode { Enforce = "enforce", Observe = "observe", Off = "off" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, SettingError> {
        Settings::read(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn an_empty_environment_asks_for_nothing() {
        let settings = read(&[]).expect("nothing to misread");
        assert_eq!(settings, Settings::default());
        assert!(!settings.asks_for_something());
    }

    #[test]
    fn a_device_may_differ_from_the_rest() {
        let settings = read(&[("GPUQUOTA_MEMORY", "4GiB"), ("GPUQUOTA_MEMORY_1", "50%")]).expect("legal");
        assert_eq!(settings.memory.on(0), Some(MemorySize::Absolute(Bytes(4 << 30))));
        assert_eq!(settings.memory.on(1), Some("50%".parse().expect("legal")));
        assert_eq!(settings.compute.on(0), None);
    }

    #[test]
    fn what_cannot_be_understood_is_an_error_that_names_it() {
        for (name, value) in [
            ("GPUQUOTA_MEMORY", "12Q"),
            ("GPUQUOTA_MEMORY", ""),
            ("GPUQUOTA_MEMORY", "0"),
            ("GPUQUOTA_MEMORY_3", "-1"),
            ("GPUQUOTA_COMPUTE", "130"),
            ("GPUQUOTA_WEIGHT", "0"),
            ("GPUQUOTA_PRIORITY", "urgent"),
            ("GPUQUOTA_MODE", "on"),
            ("GPUQUOTA_TENANT", "a b"),
            ("GPUQUOTA_SOCKET", "relative.sock"),
            ("CUDA_DEVICE_MEMORY_LIMIT", "lots"),
            ("CUDA_DEVICE_SM_LIMIT_0", "200"),
            ("CUDA_DISABLE_CONTROL", "maybe"),
        ] {
            let error = read(&[(name, value)]).expect_err(name);
            assert_eq!((error.setting.as_str(), error.value.as_str()), (name, value));
            assert!(error.to_string().contains("expected"), "{error}");
        }
    }

    #[test]
    fn hami_names_fill_what_ours_leave_open() {
        let settings = read(&[
            ("CUDA_DEVICE_MEMORY_LIMIT", "3000m"),
            ("CUDA_DEVICE_MEMORY_LIMIT_1", "0"),
            ("CUDA_DEVICE_SM_LIMIT", "30"),
            ("CUDA_TASK_PRIORITY", "0"),
            ("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/tmp/vgpu/a.cache"),
        ])
        .expect("legal");
        assert_eq!(settings.memory.on(0), Some(MemorySize::Absolute(Bytes(3000 << 20))));
        assert_eq!(settings.memory.on(1), None, "0 is HAMi's word for no limit");
        assert_eq!(settings.compute.on(5).map(Percent::hundredths), Some(3000));
        assert_eq!(settings.priority, Some(Priority::High));
        let ours = read(&[("CUDA_DEVICE_MEMORY_LIMIT", "3000m"), ("GPUQUOTA_MEMORY", "1GiB")]).expect("legal");
        assert_eq!(ours.memory.on(0), Some(MemorySize::Absolute(Bytes(1 << 30))));
        let off = read(&[("CUDA_DEVICE_SM_LIMIT", "30"), ("GPU_CORE_UTILIZATION_POLICY", "disable")]).expect("legal");
        assert!(off.compute.is_empty());
    }

    #[test]
    fn disable_is_a_boolean_not_a_presence() {
        for (value, mode) in [
            ("true", Mode::Off),
            ("TRUE", Mode::Off),
            ("1", Mode::Off),
            ("false", Mode::Enforce),
            ("0", Mode::Enforce),
            ("", Mode::Enforce),
        ] {
            assert_eq!(read(&[("CUDA_DISABLE_CONTROL", value)]).expect("legal").mode, mode, "{value}");
        }
        let ours = read(&[("CUDA_DISABLE_CONTROL", "true"), ("GPUQUOTA_MODE", "observe")]).expect("legal");
        assert_eq!(ours.mode, Mode::Observe);
    }

    #[test]
    fn a_long_value_is_shown_in_part() {
        let error = read(&[("GPUQUOTA_MEMORY", &"9".repeat(5000))]).expect_err("too large");
        assert!(error.to_string().len() < 300);
    }
}
