//! Rows of what `gpuquota ps`, `devices` and `approve` show.

use serde::{Deserialize, Serialize};

/// One process on one device; the object of `ps -o json`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the contract's; units are in them.
pub struct ProcessRow {
    pub tenant: String,
    pub pid: u32,
    pub uid: u32,
    pub command: String,
    /// None for one that is there no more.
    pub device: Option<u32>,
    pub uuid: String,
    pub memory_used_bytes: u64,
    pub memory_quota_bytes: Option<u64>,
    pub memory_overhead_bytes: u64,
    /// The quota is dynamic: its memory may be moved to the host.
    #[serde(default)]
    pub memory_dynamic: bool,
    /// What of it the driver says is on the device; none where it doesn't say.
    #[serde(default)]
    pub memory_resident_bytes: Option<u64>,
    pub compute_used_percent: Option<f64>,
    pub compute_cap_percent: Option<f64>,
    /// What it may use beyond that for now, of what its tenant's other jobs leave of their parts; none for nothing.
    #[serde(default)]
    pub compute_borrowed_percent: Option<f64>,
    pub compute_guarantee_percent: Option<f64>,
    /// Time in which some thread waited for credit under the cap.
    #[serde(default)]
    pub compute_throttled_seconds: f64,
    /// Time in which some thread waited for its turn.
    #[serde(default)]
    pub compute_waited_seconds: f64,
    /// Threads that wait for their turn now.
    #[serde(default)]
    pub compute_waiting: u32,
    pub weight: u32,
    pub priority: String,
    pub state: String,
    /// Why it is in that state, where somebody else wants it so.
    #[serde(default)]
    pub state_reason: Option<String>,
    /// RFC 3339, UTC.
    pub started: String,
}

fn one() -> f64 {
    1.0
}

/// One device; the object of `devices -o json`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct DeviceRow {
    pub device: u32,
    pub uuid: String,
    /// Of a MIG instance, the device that it is a part of.
    #[serde(default)]
    pub parent_uuid: Option<String>,
    pub name: String,
    pub memory_total_bytes: u64,
    pub memory_capacity_bytes: u64,
    /// All quotas together.
    pub memory_granted_bytes: u64,
    /// What of that can't be moved to the host: at most the capacity.
    #[serde(default)]
    pub memory_firm_bytes: u64,
    /// How many times the capacity all quotas may be together.
    #[serde(default = "one")]
    pub memory_oversubscribe: f64,
    pub memory_charged_bytes: u64,
    pub memory_used_bytes: u64,
    /// Share of the device's time used in the last second, by whomever.
    #[serde(default)]
    pub compute_used_percent: Option<f64>,
    #[serde(default)]
    pub compute_guaranteed_percent: f64,
    /// Jobs that want the device at one time; 0 where one has it for itself.
    #[serde(default)]
    pub compute_contended_jobs: u32,
    /// The tenant whose turn it is.
    #[serde(default)]
    pub compute_holder: Option<String>,
    pub jobs: u32,
    /// Jobs that wait for room on it.
    #[serde(default)]
    pub jobs_waiting: u32,
    /// Variants of the document's schedule that hold now.
    #[serde(default)]
    pub schedule: Vec<String>,
    pub driver: String,
    pub mig: String,
    /// An administrator has it: nobody new gets a place there.
    #[serde(default)]
    pub drained: bool,
    /// `ok`; `draining` and, once the daemon has let go of it, `drained`; what is wrong; or `unknown`.
    pub health: String,
}

/// A job that waits for an approval; the object of `approve -o json`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct PendingRow {
    /// Names it to [`Request::Approve`].
    pub number: u64,
    pub tenant: Option<String>,
    pub uid: u32,
    pub pid: u32,
    pub command: String,
    /// Those that it would have.
    pub devices: Vec<u32>,
    pub uuids: Vec<String>,
    /// Tenants with which it would share them.
    pub beside: Vec<String>,
    pub waits_seconds: u64,
    /// What to know before, for people.
    pub risk: String,
}
