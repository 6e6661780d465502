//! How jobs make room for others: `scheduling.preemption`, `grace`, `interrupt` and `reclaim`.

use super::raw::RawDocument;
use super::{DocumentError, read};
use crate::registry::InterruptRules;
use quota_wire::notice::{ACTION_FORM, Action, GRACE_FORM, GRACE_MS_MAX};

/// Whole jobs make room only where the document says so in so many words; device time is preempted where it says nothing.
pub(super) fn interrupts(raw: &RawDocument) -> Result<InterruptRules, DocumentError> {
    let mut rules = InterruptRules::default();
    let Some(scheduling) = &raw.scheduling else { return Ok(rules) };
    rules.preemption = scheduling.preemption == Some(true);
    let grace_ms = read("scheduling.grace", scheduling.grace.as_ref(), GRACE_FORM, parse_grace)?;
    let manner = read("scheduling.interrupt", scheduling.interrupt.as_ref(), ACTION_FORM, str::parse)?;
    rules.grace_ms = grace_ms.unwrap_or(rules.grace_ms);
    rules.manner = manner.unwrap_or(rules.manner);
    let reclaim = read("scheduling.reclaim", scheduling.reclaim.as_ref(), RECLAIM_FORM, parse_reclaim)?;
    rules.reclaim = reclaim.unwrap_or(rules.reclaim);
    Ok(rules)
}

/// What follows when borrowed memory is not given back.
const RECLAIM_FORM: &str = "checkpoint or terminate";

fn parse_reclaim(text: &str) -> Result<Action, &'static str> {
    match text.parse() {
        Ok(Action::Pause) => Err("a pause gives nothing back"),
        Ok(action) => Ok(action),
        Err(_) => Err("it is unknown"),
    }
}

/// The time between notice and action, in milliseconds.
///
/// # Errors
/// When it is none, or too long.
pub fn parse_grace(text: &str) -> Result<u64, &'static str> {
    let grace = humantime::parse_duration(text).map_err(|_| "it is no duration")?;
    u64::try_from(grace.as_millis()).ok().filter(|grace_ms| *grace_ms <= GRACE_MS_MAX).ok_or("it is out of range")
}
