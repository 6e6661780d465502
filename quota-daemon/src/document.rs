//! The node's document, `/etc/gpuquota/gpuquota.yaml`: read once, whole, or refused with one line.
//!
//! What this version can't enforce but would change who is protected from whom (MPS) is refused. What merely has no effect yet is accepted and listed by
//! [`Document::without_effect`], so that a document for a later version can be checked in.

mod admission;
mod interrupts;
mod isolation;
mod raw;
mod schedule;

use crate::registry::InterruptRules;
pub use admission::{AdmissionRules, Placement};
pub use interrupts::parse_grace;
pub use isolation::{Isolation, Level};
use quota_core::compute::scheduler::{Policy, Quantum, Rules};
use quota_core::settings::{parse_priority, parse_tenant, parse_weight};
use quota_core::{Bytes, MemorySize, Percent, Priority};
use quota_wire::Secret;
use quota_wire::page::FIRM_PARTS;
use quota_wire::secret::SECRET_FORM;
use raw::{RawAudit, RawCompute, RawDevice, RawDocument, RawMatch, RawTenant, Scalar};
pub use schedule::{Minute, Variant};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the document lies when no other is named.
pub const DEFAULT_PATH: &str = "/etc/gpuquota/gpuquota.yaml";
/// Kept free on each device for contexts and the driver, when the document says nothing.
pub const RESERVE_DEFAULT: Bytes = Bytes(512 << 20);
/// The largest document: it must fit a packet.
pub const DOCUMENT_BYTES_MAX: u64 = 60 << 10;
/// Tenants one document may name.
const TENANTS_MAX: usize = 512;

/// The whole document, checked.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Document {
    /// Where to listen.
    pub socket: Option<PathBuf>,
    /// How devices are shared; the last rule that selects a device holds.
    pub devices: Vec<DeviceRule>,
    /// How device time is shared out.
    pub scheduling: Rules,
    /// How places are given.
    pub admission: AdmissionRules,
    /// Other defaults at some times; where several hold, the last that selects a device.
    pub variants: Vec<Variant>,
    /// How jobs make room for others.
    pub interrupts: InterruptRules,
    /// Standing grants.
    pub tenants: Vec<TenantRule>,
    /// Where what happens is written down.
    pub audit: Option<AuditRule>,
    /// Settings that are understood but change nothing in this version.
    pub without_effect: Vec<String>,
}

/// Where what happens is written down, and for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditRule {
    /// The file.
    pub path: PathBuf,
    /// For how long the files of before are kept.
    pub keep: Duration,
}

/// How the selected devices are shared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceRule {
    /// As in `--device`.
    pub select: String,
    /// `sharing: mig`: what is selected must be MIG instances, each for one tenant at a time.
    pub instances: bool,
    /// Kept free.
    pub reserve: Option<Bytes>,
    /// Most tenants at a time; 1 for `sharing: exclusive` and `mig`.
    pub jobs_max: Option<u32>,
    /// All quotas together, in percent of the capacity: 100 to [`OVERSUBSCRIBE_MAX`].
    pub oversubscribe: Option<u32>,
    /// Memory quota of a job that asks for none.
    pub default_memory: Option<MemorySize>,
    /// Compute cap of a job that asks for none.
    pub default_compute: Option<Percent>,
    /// That many have that much each: all of it must have room.
    pub sliced: bool,
}

impl DeviceRule {
    fn with(self, new: schedule::NewJobs) -> Self {
        Self {
            jobs_max: new.jobs_max,
            default_memory: new.memory,
            default_compute: new.compute,
            sliced: new.sliced,
            ..self
        }
    }
}

/// A standing grant, on every device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TenantRule {
    /// Its name.
    pub name: String,
    /// Its memory quota on each device.
    pub memory: Option<MemorySize>,
    /// Its compute cap.
    pub compute: Option<Percent>,
    /// Its compute guarantee.
    pub guarantee: Option<Percent>,
    /// Its weight.
    pub weight: Option<u32>,
    /// Its class.
    pub priority: Priority,
    /// It may have what other tenants leave idle, until they want it back.
    pub borrow: bool,
    /// Its memory may be moved to the host, and its quota lie beyond what the device has.
    pub oversubscribe: bool,
    /// With whom it shares devices.
    pub isolation: Isolation,
    /// Whose processes belong to it; anybody's who gives the name, when nothing is said.
    pub matches: MatchRule,
}

/// Which processes belong to a tenant. All that is said must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MatchRule {
    /// Their user.
    pub uid: Option<u32>,
    /// Their control group; `*` stands for any characters.
    pub cgroup: Option<String>,
    /// They know the secret in this file.
    pub secret_file: Option<PathBuf>,
    /// Which is this, once it was read.
    pub secret: Option<Secret>,
}

/// Why a document is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DocumentError {
    /// It can't be read at all.
    #[error("{0}: {1}")]
    Unreadable(String, String),
    /// The text is not such a document.
    #[error("line {line}, column {column}: {message}")]
    Text {
        /// From 1.
        line: u64,
        /// From 1.
        column: u64,
        /// What is wrong there.
        message: String,
    },
    /// A value is not what it should be.
    #[error("{place}: {value:?}: {reason}; expected {expected}")]
    Value {
        /// Path of the key.
        place: String,
        /// What it says.
        value: String,
        /// What is wrong with that.
        reason: String,
        /// What would be right.
        expected: &'static str,
    },
}

impl Document {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// When it can't be read or is no such document.
    pub fn load(path: &Path) -> Result<Self, DocumentError> {
        let unreadable =
            |error: &dyn core::fmt::Display| DocumentError::Unreadable(path.display().to_string(), error.to_string());
        let bytes = std::fs::metadata(path).map_err(|error| unreadable(&error))?.len();
        if bytes > DOCUMENT_BYTES_MAX {
            return Err(unreadable(&format!("it is larger than {DOCUMENT_BYTES_MAX} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
        Self::parse(&text)?.with_secrets()
    }

    /// Reads the files with secrets that it names.
    ///
    /// # Errors
    /// The first one that can't be used.
    pub fn with_secrets(mut self) -> Result<Self, DocumentError> {
        for tenant in &mut self.tenants {
            let Some(path) = &tenant.matches.secret_file else { continue };
            let place = format!("tenant {}: match.secret_file", tenant.name);
            let failed = |reason: String| value(&place, &path.display().to_string(), reason, SECRET_FORM);
            tenant.matches.secret = Some(Secret::read(path).map_err(failed)?);
        }
        Ok(self)
    }

    /// Reads `text`, and no file that it names.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        // A file with nothing but comments is a document that says nothing.
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        let raw = raw::parse(text)?;
        let mut document = Self { without_effect: raw::without_effect(&raw), ..Self::default() };
        document.socket = raw.socket.as_ref().map(|socket| absolute("socket", socket)).transpose()?;
        for (index, device) in raw.devices.iter().flatten().enumerate() {
            document.devices.push(device_rule(&format!("devices[{index}]"), device)?);
        }
        document.scheduling = scheduling(&raw)?;
        document.admission = admission::admission(&raw)?;
        document.variants = schedule::schedule(&raw)?;
        document.audit = raw.audit.as_ref().map(audit).transpose()?.flatten();
        document.interrupts = interrupts::interrupts(&raw)?;
        for (index, tenant) in raw.tenants.iter().flatten().enumerate() {
            let rule = tenant_rule(&format!("tenants[{index}]"), tenant)?;
            if document.tenants.iter().any(|other| other.name == rule.name) {
                return Err(value(
                    &format!("tenants[{index}].name"),
                    &rule.name,
                    "it is there twice",
                    "different names",
                ));
            }
            let is_part = |one: &str, of: &str| one.strip_prefix(of).is_some_and(|rest| rest.starts_with('/'));
            let nested =
                document.tenants.iter().find(|it| is_part(&it.name, &rule.name) || is_part(&rule.name, &it.name));
            if let Some(other) = nested {
                let reason = format!("one is a part of the other, by its name, {}", other.name);
                return Err(value(
                    &format!("tenants[{index}].name"),
                    &rule.name,
                    reason,
                    "names that are not parts of others",
                ));
            }
            document.tenants.push(rule);
        }
        if document.tenants.len() > TENANTS_MAX {
            let count = document.tenants.len().to_string();
            return Err(value("tenants", &count, "there are too many", "at most 512 tenants"));
        }
        isolation::check(&document.tenants)?;
        Ok(document)
    }
}

impl MatchRule {
    /// True when nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True when a process is meant that knows `secret`; a secret that was not read is known to nobody.
    pub fn is_known(&self, secret: Option<&Secret>) -> bool {
        self.secret_file.is_none() || (self.secret.is_some() && self.secret.as_ref() == secret)
    }

    /// True when a process of user `uid` in `cgroup` is meant.
    pub fn covers(&self, uid: u32, cgroup: &str) -> bool {
        self.uid.is_none_or(|wanted| wanted == uid)
            && self.cgroup.as_deref().is_none_or(|pattern| wildcard(pattern, cgroup))
    }
}

/// `*` matches any characters, anything else itself.
fn wildcard(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(previous) = last.replace(part) {
            let Some(at) = rest.find(previous) else { return false };
            rest = &rest[at + previous.len()..];
        }
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}

fn value(place: &str, value: &str, reason: impl core::fmt::Display, expected: &'static str) -> DocumentError {
    let value = value.chars().take(80).collect();
    DocumentError::Value { place: place.to_owned(), value, reason: reason.to_string(), expected }
}

fn read<T, E: core::fmt::Display>(
    place: &str,
    scalar: Option<&Scalar>,
    expected: &'static str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, DocumentError> {
    scalar.map(|Scalar(text)| parse(text).map_err(|error| value(place, text, error, expected))).transpose()
}

fn memory(place: &str, scalar: Option<&Scalar>) -> Result<Option<MemorySize>, DocumentError> {
    read(place, scalar, quota_core::units::SIZE_FORM, str::parse)
}

fn percent(place: &str, scalar: Option<&Scalar>) -> Result<Option<Percent>, DocumentError> {
    read(place, scalar, quota_core::units::PERCENT_FORM, str::parse)
}

fn absolute(place: &str, text: &str) -> Result<PathBuf, DocumentError> {
    if text.starts_with('/') {
        Ok(PathBuf::from(text))
    } else {
        Err(value(place, text, "it is not absolute", "an absolute path"))
    }
}

fn device_rule(place: &str, raw: &RawDevice) -> Result<DeviceRule, DocumentError> {
    let sharing = raw.sharing.as_deref().unwrap_or("time-slice");
    let exclusive = match sharing {
        "time-slice" => false,
        "exclusive" | "mig" => true,
        "mps" => {
            return Err(value(
                &format!("{place}.sharing"),
                sharing,
                "this version can't do it",
                "time-slice, mig or exclusive",
            ));
        }
        _ => {
            return Err(value(
                &format!("{place}.sharing"),
                sharing,
                "it is unknown",
                "time-slice, mps, mig or exclusive",
            ));
        }
    };
    let new = schedule::new_jobs(place, raw.slices.as_ref(), raw.defaults.as_ref(), raw.max_jobs.as_ref())?;
    let oversubscribe = format!("{place}.oversubscribe");
    let rule = DeviceRule {
        select: raw.select.as_ref().map_or_else(|| "all".to_owned(), |scalar| scalar.0.clone()),
        instances: sharing == "mig",
        reserve: read(&format!("{place}.memory_reserve"), raw.memory_reserve.as_ref(), RESERVE_FORM, str::parse)?,
        oversubscribe: read(&oversubscribe, raw.oversubscribe.as_ref(), OVERSUBSCRIBE_FORM, parse_oversubscribe)?,
        ..DeviceRule::default()
    }
    .with(new);
    Ok(DeviceRule { jobs_max: if exclusive { Some(1) } else { rule.jobs_max }, ..rule })
}

fn jobs_max(place: &str, scalar: Option<&Scalar>) -> Result<Option<u32>, DocumentError> {
    read(place, scalar, "a whole number from 1 to 1024", |text| {
        text.parse::<u32>().ok().filter(|jobs| (1..=1024).contains(jobs)).ok_or("it is out of range")
    })
}

/// The largest oversubscription, in percent: the parts of dynamic quotas that can't be moved then still fit the device.
pub const OVERSUBSCRIBE_MAX: u32 = 100 * FIRM_PARTS as u32;
/// What an oversubscription looks like.
const OVERSUBSCRIBE_FORM: &str = "1.0 to 4.0, with two decimals at most";

/// A factor, as percent.
fn parse_oversubscribe(text: &str) -> Result<u32, &'static str> {
    let percent = text.parse::<f64>().map_err(|_| "it is not a number")? * 100.0;
    if !(100.0..=f64::from(OVERSUBSCRIBE_MAX)).contains(&percent) {
        return Err("it is out of range");
    }
    if (percent - percent.round()).abs() > 1e-6 { Err("it has too many decimals") } else { Ok(percent.round() as u32) }
}

/// What a reserve looks like.
pub const RESERVE_FORM: &str = "a size such as 512MiB or 1GiB";

fn tenant_rule(place: &str, raw: &RawTenant) -> Result<TenantRule, DocumentError> {
    let name = parse_tenant(&raw.name.0)
        .map_err(|error| value(&format!("{place}.name"), &raw.name.0, error, quota_core::settings::TENANT_FORM))?;
    let place = format!("tenant {name}");
    let compute = raw.compute.as_ref().map(RawCompute::parts).unwrap_or_default();
    let rule = TenantRule {
        borrow: raw.borrow.unwrap_or(false),
        memory: memory(&format!("{place}: memory"), raw.memory.as_ref())?,
        compute: percent(&format!("{place}: compute.limit"), compute.limit.as_ref())?,
        guarantee: percent(&format!("{place}: compute.guarantee"), compute.guarantee.as_ref())?,
        weight: read(
            &format!("{place}: compute.weight"),
            compute.weight.as_ref(),
            quota_core::settings::WEIGHT_FORM,
            parse_weight,
        )?,
        priority: read(
            &format!("{place}: priority"),
            raw.priority.as_ref(),
            quota_core::settings::PRIORITY_FORM,
            parse_priority,
        )?
        .unwrap_or_default(),
        oversubscribe: raw.oversubscribe.unwrap_or(false),
        isolation: isolation::isolation(&place, raw)?,
        matches: raw.matches.as_ref().map(|raw| match_rule(&place, raw)).transpose()?.unwrap_or_default(),
        name,
    };
    if rule.oversubscribe && rule.memory.is_none() {
        let expected = "a memory quota beside it";
        return Err(value(&format!("{place}: oversubscribe"), "true", "it needs a quota to go beyond", expected));
    }
    match (rule.guarantee, rule.compute) {
        (Some(guarantee), Some(cap)) if guarantee > cap => {
            let reason = format!("it is above the limit {cap}");
            let expected = "a guarantee of at most the limit";
            Err(value(&format!("{place}: compute.guarantee"), &guarantee.to_string(), reason, expected))
        }
        _ => Ok(rule),
    }
}

fn match_rule(place: &str, raw: &RawMatch) -> Result<MatchRule, DocumentError> {
    let secret_file = raw.secret_file.as_ref().map(|path| absolute(&format!("{place}: match.secret_file"), path));
    Ok(MatchRule { uid: raw.uid, cgroup: raw.cgroup.clone(), secret_file: secret_file.transpose()?, secret: None })
}

fn scheduling(raw: &RawDocument) -> Result<Rules, DocumentError> {
    let mut rules = Rules::default();
    let Some(scheduling) = &raw.scheduling else { return Ok(rules) };
    let policy = read("scheduling.policy", scheduling.policy.as_ref(), POLICY_FORM, parse_policy)?;
    let quantum = read("scheduling.quantum", scheduling.quantum.as_ref(), QUANTUM_FORM, parse_quantum)?;
    rules.policy = policy.unwrap_or(rules.policy);
    rules.quantum = quantum.unwrap_or(rules.quantum);
    rules.preemption = scheduling.preemption.unwrap_or(rules.preemption);
    Ok(rules)
}

/// For how long the audit is kept when nothing is said.
const KEEP_DEFAULT: Duration = Duration::from_secs(30 * 86_400);
/// What such a time looks like.
const KEEP_FORM: &str = "a duration from 1h to 3650d, such as 30d";

fn audit(raw: &RawAudit) -> Result<Option<AuditRule>, DocumentError> {
    let keep = read("audit.keep", raw.keep.as_ref(), KEEP_FORM, parse_keep)?;
    let Some(path) = &raw.path else {
        let alone = value("audit.path", "", "it is missing", "the absolute path of a file");
        return if keep.is_some() { Err(alone) } else { Ok(None) };
    };
    let path = absolute("audit.path", path)?;
    if path.file_name().is_none() {
        return Err(value(
            "audit.path",
            &path.display().to_string(),
            "it names no file",
            "the absolute path of a file",
        ));
    }
    Ok(Some(AuditRule { path, keep: keep.unwrap_or(KEEP_DEFAULT) }))
}

fn parse_keep(text: &str) -> Result<Duration, &'static str> {
    let keep = humantime::parse_duration(text).map_err(|_| "it is no duration")?;
    let legal = Duration::from_secs(3600)..=Duration::from_secs(3650 * 86_400);
    if legal.contains(&keep) { Ok(keep) } else { Err("it is out of range") }
}

/// What a policy looks like.
const POLICY_FORM: &str = "fifo, priority, fair or priority-fair";
/// What a quantum looks like.
const QUANTUM_FORM: &str = "auto, or 1ms to 1s";

fn parse_policy(text: &str) -> Result<Policy, &'static str> {
    match text {
        "fifo" => Ok(Policy::Fifo),
        "priority" => Ok(Policy::Priority),
        "fair" => Ok(Policy::Fair),
        "priority-fair" => Ok(Policy::PriorityFair),
        _ => Err("it is unknown"),
    }
}

fn parse_quantum(text: &str) -> Result<Quantum, &'static str> {
    if text == "auto" {
        return Ok(Quantum::Adaptive);
    }
    let duration = humantime::parse_duration(text).map_err(|_| "it is no duration")?;
    let legal = Duration::from_millis(1)..=Duration::from_secs(1);
    if legal.contains(&duration) { Ok(Quantum::Fixed(duration.as_nanos() as u64)) } else { Err("it is out of range") }
}

#[cfg(test)]
mod tests;
