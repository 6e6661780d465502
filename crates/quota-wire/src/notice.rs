//! What a job is told when it has to make room: why, what follows, and how long it has until then.
//!
//! It reaches the job's processes by a word on the quota page, and whoever runs the job by a packet.

use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

/// Longest time between a notice and what follows: somebody waits meanwhile.
pub const GRACE_MS_MAX: u64 = 600_000;
/// The same when nobody says anything.
pub const GRACE_MS_DEFAULT: u64 = 30_000;
/// What a grace looks like.
pub const GRACE_FORM: &str = "a time from 0s to 10m";
/// What an action looks like.
pub const ACTION_FORM: &str = "pause, checkpoint or terminate";

/// Why a job has to make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Reason {
    /// A job of a higher class needs its place.
    Preempted = 1,
    /// An administrator wants it.
    Asked = 2,
    /// What it has was borrowed and is wanted back. No daemon says so yet.
    Reclaimed = 3,
}

/// What follows the grace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Action {
    /// Its compute is withheld; its memory stays, but for what it has freed.
    #[default]
    Pause = 1,
    /// The driver takes its memory to the host.
    Checkpoint = 2,
    /// It is ended.
    Terminate = 3,
}

/// Where the matter stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Event {
    /// The grace begins.
    Notice = 1,
    /// It is over, and compute is withheld.
    Interrupted = 2,
    /// Everything is as it was before the notice.
    Resumed = 3,
    /// The job is to end now. Told to who runs it; its processes get a signal.
    End = 4,
    /// The job's processes are to be checkpointed. Told to who runs it.
    Checkpoint = 5,
    /// The same the other way.
    Restore = 6,
}

/// A notice as the quota page has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Grows with every event of the tenant's; 0 is none.
    pub number: u32,
    /// Where the matter stands.
    pub event: Event,
    /// Why.
    pub reason: Reason,
    /// What follows.
    pub action: Action,
    /// The whole grace.
    pub grace_ms: u32,
}

impl Notice {
    /// All but the number, of which it has the end, in one word; 0 is none.
    pub fn to_word(self) -> u64 {
        u64::from(self.grace_ms) << 32
            | u64::from(self.number as u8) << 24
            | u64::from(self.action as u8) << 16
            | u64::from(self.reason as u8) << 8
            | u64::from(self.event as u8)
    }

    /// The notice that a number and a word of the page stand for; none where they are of two notices or a part is of another
    /// version.
    pub fn from_word(number: u32, word: u64) -> Option<Self> {
        let [event, reason, action, end, ..] = word.to_le_bytes();
        Some(Self {
            number: Some(number).filter(|number| *number != 0 && *number as u8 == end)?,
            event: match event {
                1 => Event::Notice,
                2 => Event::Interrupted,
                3 => Event::Resumed,
                _ => return None,
            },
            reason: match reason {
                1 => Reason::Preempted,
                2 => Reason::Asked,
                3 => Reason::Reclaimed,
                _ => return None,
            },
            action: match action {
                1 => Action::Pause,
                2 => Action::Checkpoint,
                3 => Action::Terminate,
                _ => return None,
            },
            grace_ms: (word >> 32) as u32,
        })
    }
}

/// The same for who runs the job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobNotice {
    /// That of the page; comes back with the answer.
    pub number: u32,
    /// What is to be done, or has been.
    pub event: Event,
    /// Why.
    pub reason: Reason,
    /// What follows.
    pub action: Action,
    /// How long it has until then; of [`Event::End`], until it is killed.
    pub grace_ms: u64,
    /// For whom it is, for people.
    pub cause: String,
    /// Its processes, for [`Event::Checkpoint`], [`Event::Restore`] and [`Event::End`].
    #[serde(default)]
    pub pids: Vec<u32>,
}

impl Reason {
    /// The word by which scripts know it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Preempted => "preempted",
            Self::Asked => "asked",
            Self::Reclaimed => "reclaimed",
        }
    }
}

impl Event {
    /// The word by which scripts know it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Interrupted => "interrupted",
            Self::Resumed => "resumed",
            Self::End => "end",
            Self::Checkpoint => "checkpoint",
            Self::Restore => "restore",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pause => "pause",
            Self::Checkpoint => "checkpoint",
            Self::Terminate => "terminate",
        })
    }
}

impl FromStr for Action {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "pause" => Ok(Self::Pause),
            "checkpoint" => Ok(Self::Checkpoint),
            "terminate" => Ok(Self::Terminate),
            _ => Err("it is unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_a_word_and_what_is_none_is_no_notice() {
        let notice = Notice {
            number: 7,
            event: Event::Notice,
            reason: Reason::Asked,
            action: Action::Terminate,
            grace_ms: u32::MAX,
        };
        assert_eq!(Notice::from_word(7, notice.to_word()), Some(notice));
        assert_eq!(Notice::from_word(0, notice.to_word()), None, "nobody has said anything yet");
        assert_eq!(Notice::from_word(6, notice.to_word()), None, "of the next one");
        assert_eq!(Notice::from_word(7, 0), None);
        assert_eq!(Notice::from_word(7, notice.to_word() | 0xff), None, "of another version");
    }
}
