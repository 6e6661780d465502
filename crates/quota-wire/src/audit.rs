//! What is written down of what happens on a node: one JSON object a line in the audit file, the same over the socket.

use serde::{Deserialize, Serialize};

/// Rows of the audit in one packet.
pub const ROWS_PER_PACKET: usize = 32;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditKind {
    /// The daemon has started.
    #[default]
    Started,
    /// The daemon has ended as it was told to.
    Stopped,
    /// `gpuquota run` wants a place for a job.
    Asked,
    /// A job has its place.
    Granted,
    /// A job waits for room.
    Queued,
    /// A job, a process or a change was refused.
    Refused,
    /// A waiting job's command has ended.
    Cancelled,
    /// A job has waited for as long as it wanted.
    Expired,
    /// A process has become a member of a tenant.
    Joined,
    /// A process is a member no more and lives, since it has called `exec`; or the `gpuquota run` of a job has ended.
    Left,
    /// A member's process has ended.
    Died,
    /// A tenant's last job and process are gone; what it was granted is free.
    Released,
    /// The daemon has taken a tenant of the daemon before it back.
    Adopted,
    /// An administrator has changed something; `change` says by which command.
    Changed,
    /// A job's compute was taken away for another's sake.
    Interrupted,
    /// It has that compute again.
    Resumed,
    /// A process that is no member holds something on a device.
    Bypass,
    /// A device is there no more on which a tenant was granted something.
    Vanished,
    /// The driver doesn't answer, or does again.
    Driver,
    /// So many events could not be kept, this one's number being that of the last of them.
    Lost,
}

/// All kinds, with their words.
pub const KINDS: [(AuditKind, &str); 20] = [
    (AuditKind::Started, "started"),
    (AuditKind::Stopped, "stopped"),
    (AuditKind::Asked, "asked"),
    (AuditKind::Granted, "granted"),
    (AuditKind::Queued, "queued"),
    (AuditKind::Refused, "refused"),
    (AuditKind::Cancelled, "cancelled"),
    (AuditKind::Expired, "expired"),
    (AuditKind::Joined, "joined"),
    (AuditKind::Left, "left"),
    (AuditKind::Died, "died"),
    (AuditKind::Released, "released"),
    (AuditKind::Adopted, "adopted"),
    (AuditKind::Changed, "changed"),
    (AuditKind::Interrupted, "interrupted"),
    (AuditKind::Resumed, "resumed"),
    (AuditKind::Bypass, "bypass"),
    (AuditKind::Vanished, "vanished"),
    (AuditKind::Driver, "driver"),
    (AuditKind::Lost, "lost"),
];

impl AuditKind {
    /// Its word.
    pub fn word(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }
}

/// What is asked for or granted on one device, or on each of an event's devices.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // Units are in the names; what is absent was not asked for, or has no cap.
pub struct AuditTerms {
    pub memory_bytes: Option<u64>,
    /// Asked for as a share of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<f64>,
    pub compute_percent: Option<f64>,
    pub guarantee_percent: Option<f64>,
    pub weight: Option<u32>,
    pub priority: Option<String>,
}

/// What is asked for or granted on one device, where it isn't the same on all.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DeviceTerms {
    /// The device's UUID.
    pub device: String,
    /// What is asked for or granted there.
    #[serde(flatten)]
    pub terms: AuditTerms,
}

/// One event. What doesn't apply to it is null.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AuditEvent {
    /// What happened.
    pub event: AuditKind,
    /// To whose quota.
    pub tenant: Option<String>,
    /// The user whom it is about: who asked, whose process it is, whom the tenant belongs to.
    pub uid: Option<u32>,
    /// The process that it is about.
    pub pid: Option<u32>,
    /// What that runs.
    pub command: Option<String>,
    /// UUIDs of the devices concerned.
    pub devices: Vec<String>,
    /// What was asked for on each of them.
    pub asked: Option<AuditTerms>,
    /// The same, where it differs from one to the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by_device: Vec<DeviceTerms>,
    /// What holds on each of them from now on, or held until now for one that goes.
    pub granted: Option<AuditTerms>,
    /// The same, where it differs from one to the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub granted_by_device: Vec<DeviceTerms>,
    /// `set`, `pause`, `resume`, `drain`, `apply`, `approve`, `deny`, `reload` or `shutdown`.
    pub change: Option<String>,
    /// Why, or what exactly, for people.
    pub reason: Option<String>,
    /// The user who changed it.
    pub by_uid: Option<u32>,
    /// That user's process.
    pub by_pid: Option<u32>,
    /// Events that are missing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

/// An event with its time and number.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AuditRow {
    /// RFC 3339, UTC, with milliseconds.
    pub time: String,
    /// Names one run of the daemon.
    pub run: String,
    /// From 1 in each run, without a gap: one that shows is a loss.
    pub seq: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: AuditEvent,
}

/// Names an event.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AuditPlace {
    /// [`AuditRow::run`].
    pub run: String,
    /// [`AuditRow::seq`].
    pub seq: u64,
}

/// Events that were asked for are no longer in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AuditOlder {
    /// The oldest that is in memory: those before it can be asked for by [`AuditQuery::before`], if there are `files`.
    pub before: AuditPlace,
    /// Whether they are in files.
    pub files: bool,
    /// What to know, for people.
    pub hint: String,
}

/// Which events are wanted.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AuditQuery {
    /// Of this tenant only.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Of these kinds only, as [`AuditKind::word`]; of all, when there are none.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Not before this time, in milliseconds since 1970.
    #[serde(default)]
    pub since_ms: Option<u64>,
    /// Of those that there are now, only so many, the newest.
    #[serde(default)]
    pub newest: Option<u32>,
    /// Only those before this one, from the files.
    #[serde(default)]
    pub before: Option<AuditPlace>,
    /// What comes later, too, until the connection is closed.
    #[serde(default)]
    pub follow: bool,
}

impl AuditQuery {
    /// True for an event that is wanted, whenever it was. A loss is always told.
    pub fn wants(&self, event: &AuditEvent) -> bool {
        let tenant = self.tenant.is_none() || self.tenant == event.tenant;
        let kind = self.kinds.is_empty() || self.kinds.iter().any(|word| word == event.event.word());
        event.event == AuditKind::Lost || (tenant && kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_word_that_it_is_written_as() {
        for (kind, word) in KINDS {
            assert_eq!(serde_json::to_value(kind).expect("a word"), word);
            assert_eq!(kind.word(), word);
        }
    }

    #[test]
    fn a_row_is_one_flat_object_and_comes_back() {
        let event =
            AuditEvent { event: AuditKind::Lost, tenant: Some("t".to_owned()), lost: Some(3), ..AuditEvent::default() };
        let row = AuditRow { time: "2026-01-01T00:00:00.000Z".to_owned(), run: "1-2".to_owned(), seq: 9, event };
        let text = serde_json::to_string(&row).expect("JSON");
        assert!(
            text.starts_with(r#"{"time":"2026-01-01T00:00:00.000Z","run":"1-2","seq":9,"event":"lost","tenant":"t""#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<AuditRow>(&text).expect("its own"), row);
    }
}
