//! The packets: one JSON object each, at most [`PACKET_BYTES_MAX`].
//!
//! A client says who it is and what it would like; who it *is* the daemon learns from the kernel. Unknown
//! fields are ignored, so that an older side can talk to a newer one; what changes the meaning of an
//! existing field raises [`PROTOCOL_VERSION`].

mod rows;

use crate::Secret;
use crate::audit::{AuditOlder, AuditQuery, AuditRow};
use crate::notice::{Action, JobNotice};
use serde::{Deserialize, Serialize};

pub use rows::{DeviceRow, PendingRow, ProcessRow};

/// Version of this protocol.
pub const PROTOCOL_VERSION: u32 = 2;
/// The largest packet either side sends or takes: below every kernel's default socket buffer.
pub const PACKET_BYTES_MAX: usize = 64 << 10;
/// Rows of a list in one packet.
pub const ROWS_PER_PACKET: usize = 64;

/// What is wrong when the other side, such as `the library`, speaks another protocol than `own`, and which of the two is to be
/// updated: the one with the lower number.
pub fn mismatch(other: &str, version: u32, own: &str) -> Option<String> {
    let older = if version < PROTOCOL_VERSION { other } else { own };
    (version != PROTOCOL_VERSION)
        .then(|| format!("{other} speaks protocol {version}, {own} {PROTOCOL_VERSION}; update {older}"))
}

/// What a client sends.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// A process with the shim wants its quota. Answered by [`Reply::Welcome`] with three descriptors: the
    /// quota page, the ledger, and the eventfd with which the tenant's processes say "look"; or by [`Reply::Refused`]. The process is a member until the socket closes or it dies.
    Hello(Hello),
    /// `gpuquota run` wants a place for a job. Answered by [`Reply::Granted`], [`Reply::Waiting`] (any
    /// number) or [`Reply::Refused`]. The grant lasts until the socket closes and the last process of the tenant is gone.
    Admit(Admit),
    /// A member of a daemon that is gone wants to be one of this daemon, with the slot that it has. Answered by
    /// [`Reply::Done`] with one descriptor, the eventfd of the new daemon, or by [`Reply::Refused`]. The pages are those
    /// that it has.
    Rejoin {
        /// [`PROTOCOL_VERSION`] of the client.
        version: u32,
        /// Its slot in the ledger.
        slot: u32,
    },
    /// A member wants to know what the driver says it holds, now. Answered by [`Reply::Measured`].
    Measure {
        /// Comes back in the answer, so that a late one is not taken for the next.
        sequence: u64,
    },
    /// All processes. Answered by [`Reply::Processes`] until one has `last`.
    Processes,
    /// All devices. Answered by [`Reply::Devices`].
    Devices,
    /// Whether a tenant has a place here. Answered by [`Reply::Done`] or [`Reply::Refused`].
    Find {
        /// Its name.
        tenant: String,
    },
    /// Changes a tenant's quota while it runs (admin). Answered by [`Reply::Done`] or [`Reply::Refused`].
    Set(Change),
    /// Withholds the tenant's compute (admin). Answered, as the next, by [`Reply::Done`] or [`Reply::Refused`].
    Pause {
        /// Whose.
        tenant: String,
    },
    /// Gives it back (admin).
    Resume {
        /// Whose.
        tenant: String,
    },
    /// Has the daemon let go of devices, and nobody new get a place there (admin). Answered, as the next, by [`Reply::Done`]
    /// or [`Reply::Refused`]; which devices it has let go of is in [`DeviceRow::health`].
    Drain {
        /// Which, as for [`Admit::device`].
        device: String,
    },
    /// Has it use them again (admin).
    Undrain {
        /// Which.
        device: String,
    },
    /// Has the tenant make room (admin). Answered by [`Reply::Done`] or [`Reply::Refused`].
    Interrupt {
        /// Whose processes.
        tenant: String,
        /// How long they have; what the document says when absent.
        #[serde(default)]
        grace_ms: Option<u64>,
        /// What follows; what the job or the document says when absent.
        #[serde(default)]
        action: Option<Action>,
    },
    /// A member wants to hear of notices from now on, or no more. Not answered.
    Listen {
        /// Whether it does.
        listens: bool,
    },
    /// A member has done what it wanted to before it is interrupted. Not answered.
    Ready {
        /// The notice's number.
        notice: u32,
    },
    /// `gpuquota run` did what an [`crate::notice::Event::Checkpoint`] or `Restore` asked for, or couldn't. Not answered.
    Moved {
        /// The notice's number.
        notice: u32,
        /// Why not.
        #[serde(default)]
        failed: Option<String>,
    },
    /// `gpuquota run` comes back to a daemon that has taken its job back from the one before. Answered by [`Reply::Done`] or
    /// [`Reply::Refused`].
    Return {
        /// [`PROTOCOL_VERSION`] of the client.
        version: u32,
        /// The job's tenant.
        tenant: String,
    },
    /// Replaces the daemon's document (admin).
    Apply {
        /// The whole document, YAML.
        document: String,
    },
    /// What [`Request::Apply`] would change (admin).
    Preview {
        /// The whole document, YAML.
        document: String,
    },
    /// The jobs that wait since they would share a device with somebody from whom they are kept apart (admin). Answered by
    /// [`Reply::Pending`] until one has `last`.
    Pending,
    /// Lets one of those share it for as long as it runs, or refuses it (admin). Answered by [`Reply::Done`] or [`Reply::Refused`].
    Approve {
        /// [`PendingRow::number`].
        number: u64,
        /// It is refused.
        #[serde(default)]
        deny: bool,
        /// Why, for people.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Asks the daemon to end once nobody is left (admin).
    Shutdown,
    /// What the daemon is. Answered by [`Reply::About`].
    About,
    /// What has happened: to an administrator all of it, to others what is about their user. Answered by [`Reply::Audit`]
    /// until one has `last`; where `follow` is asked for, until the connection is closed.
    Audit(AuditQuery),
}

/// What a process says of itself.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the client.
    pub version: u32,
    /// The tenant's name, when the process was given one.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Its pid as it sees itself; may differ from the kernel's in a pid namespace.
    pub pid: u32,
    /// What it runs, for people: the first words of its command line.
    #[serde(default)]
    pub command: String,
    /// The devices it sees, in its own order, and what it asks for on each.
    pub devices: Vec<DeviceAsk>,
    /// Weight asked for.
    #[serde(default)]
    pub weight: Option<u32>,
    /// `batch`, `normal` or `high`.
    #[serde(default)]
    pub priority: Option<String>,
    /// Least compute asked for, in hundredths of a percent.
    #[serde(default)]
    pub guarantee: Option<u32>,
    /// The tenant's secret, where it was given one.
    #[serde(default)]
    pub secret: Option<Secret>,
}

/// What is asked for on one device.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DeviceAsk {
    /// `GPU-...`, as NVML writes it.
    pub uuid: String,
    /// Its memory, as the driver says.
    pub total_bytes: u64,
    /// Memory cap asked for.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Compute cap asked for, in hundredths of a percent.
    #[serde(default)]
    pub compute: Option<u32>,
}

/// What `gpuquota run` asks for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Admit {
    /// [`PROTOCOL_VERSION`] of the client.
    pub version: u32,
    /// Name of the tenant; the daemon makes one up when there is none.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The command line, for people.
    #[serde(default)]
    pub command: String,
    /// `20GiB` or `50%`.
    #[serde(default)]
    pub memory: Option<String>,
    /// Compute cap in hundredths of a percent.
    #[serde(default)]
    pub compute: Option<u32>,
    /// Least compute in hundredths of a percent.
    #[serde(default)]
    pub guarantee: Option<u32>,
    /// 1 to 10,000.
    #[serde(default)]
    pub weight: Option<u32>,
    /// `batch`, `normal` or `high`.
    #[serde(default)]
    pub priority: Option<String>,
    /// Index, UUID, UUID prefix, product, or a comma-separated list of them; all visible ones when absent.
    #[serde(default)]
    pub device: Option<String>,
    /// So many of them, which the daemon chooses; all when absent.
    #[serde(default)]
    pub count: Option<u32>,
    /// Its memory may be moved to the host, and its quota lie beyond what the device has.
    #[serde(default)]
    pub oversubscribe: bool,
    /// The tenant's secret, where it was given one.
    #[serde(default)]
    pub secret: Option<Secret>,
    /// Wait for room: milliseconds, or for ever; absent means don't.
    #[serde(default)]
    pub queue: Option<QueueLimit>,
    /// What is to follow when it has to make room; what the document says when absent.
    #[serde(default)]
    pub on_interrupt: Option<Action>,
    /// It hears of a notice, by a signal or a command.
    #[serde(default)]
    pub hears: bool,
}

/// How long a job waits for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueLimit {
    /// Until there is room.
    Forever,
    /// So many milliseconds.
    Milliseconds(u64),
}

/// A change of a tenant's quota; what is absent stays.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Change {
    /// Whose quota.
    pub tenant: String,
    /// `20GiB` or `50%`.
    #[serde(default)]
    pub memory: Option<String>,
    /// Compute cap in hundredths of a percent.
    #[serde(default)]
    pub compute: Option<u32>,
    /// Least compute in hundredths of a percent.
    #[serde(default)]
    pub guarantee: Option<u32>,
    /// 1 to 10,000.
    #[serde(default)]
    pub weight: Option<u32>,
    /// `batch`, `normal` or `high`.
    #[serde(default)]
    pub priority: Option<String>,
}

/// What the daemon sends.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Reply {
    /// The process is a member; with the descriptors of the quota page, the ledger and the eventfd, in this order.
    Welcome(Welcome),
    /// The job has its place.
    Granted(Granted),
    /// The job waits.
    Waiting {
        /// How many are before it.
        position: u32,
        /// What it waits for, for people.
        reason: String,
    },
    /// The job has to make room, or has its place back; told to `gpuquota run` at any time after [`Reply::Granted`].
    Notice(JobNotice),
    /// No; with the reason for people.
    Refused {
        /// One line that names the setting, the value and what would be right.
        reason: String,
    },
    /// Some processes.
    Processes {
        /// At most [`ROWS_PER_PACKET`].
        rows: Vec<ProcessRow>,
        /// No more follow.
        last: bool,
    },
    /// The devices.
    Devices {
        /// At most [`ROWS_PER_PACKET`].
        rows: Vec<DeviceRow>,
        /// No more follow.
        last: bool,
    },
    /// Some jobs that wait for an approval.
    Pending {
        /// At most [`ROWS_PER_PACKET`].
        rows: Vec<PendingRow>,
        /// No more follow.
        last: bool,
    },
    /// What the driver says the asking process holds.
    Measured {
        /// That of the question.
        sequence: u64,
        /// Bytes by the place of the device in ledger and quota page; none where the driver doesn't say.
        held_bytes: Vec<Option<u64>>,
    },
    /// It is done.
    Done {
        /// What was done, for people.
        message: String,
    },
    /// What the daemon is.
    About(About),
    /// Some events, oldest first.
    Audit {
        /// At most [`crate::audit::ROWS_PER_PACKET`].
        rows: Vec<AuditRow>,
        /// No more follow.
        last: bool,
        /// With the last packet: what of it the daemon doesn't keep in memory.
        older: Option<AuditOlder>,
    },
}

/// A process's membership.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Welcome {
    /// [`PROTOCOL_VERSION`] of the daemon.
    pub version: u32,
    /// The tenant it belongs to.
    pub tenant: String,
    /// Its slot in the ledger.
    pub slot: u32,
    /// For each device of the hello, in its order: the place in ledger and quota page; none where the
    /// daemon doesn't know the device, on which nothing may then be allocated.
    pub devices: Vec<Option<u32>>,
}

/// A job's place.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Granted {
    /// The tenant's name.
    pub tenant: String,
    /// UUIDs of the devices it may use, in the daemon's order.
    pub devices: Vec<String>,
    /// There are others, which CUDA would show where nothing is said.
    #[serde(default)]
    pub has_others: bool,
}

/// What the daemon is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// Version of the program.
    pub version: String,
    /// [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// Its pid.
    pub pid: u32,
    /// `FAKE_CUDA_MACHINE` of a daemon over a simulated machine.
    #[serde(default)]
    pub simulated: Option<String>,
    /// Tenants that have a place now.
    pub tenants: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_side_is_to_be_updated() {
        assert_eq!(mismatch("the library", PROTOCOL_VERSION, "this daemon"), None);
        let older = mismatch("the library", PROTOCOL_VERSION - 1, "this daemon").expect("another");
        assert!(older.ends_with("update the library"), "{older}");
        let newer = mismatch("the library", PROTOCOL_VERSION + 1, "this daemon").expect("another");
        assert!(newer.ends_with("update this daemon"), "{newer}");
    }
}
