//! How places are given: `scheduling.placement` and `scheduling.aging`.

use super::raw::RawDocument;
use super::{DocumentError, read};
use std::time::Duration;

/// How places are given to jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdmissionRules {
    /// Which devices a job gets that leaves it to the daemon.
    pub placement: Placement,
    /// Milliseconds of waiting that raise a job by one class.
    pub aging_ms: u64,
}

impl Default for AdmissionRules {
    fn default() -> Self {
        Self { placement: Placement::default(), aging_ms: 3_600_000 }
    }
}

/// Which devices a job gets of those that have room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// Those on which it leaves the least memory free, so that large jobs find room.
    #[default]
    BestFit,
    /// Those with the fewest jobs.
    Spread,
    /// Those of whose time the jobs that are served no later than it may want the least.
    LeastInterference,
}

pub(super) fn admission(raw: &RawDocument) -> Result<AdmissionRules, DocumentError> {
    let mut rules = AdmissionRules::default();
    let Some(scheduling) = &raw.scheduling else { return Ok(rules) };
    let placement = read("scheduling.placement", scheduling.placement.as_ref(), PLACEMENT_FORM, parse_placement)?;
    let aging = read("scheduling.aging", scheduling.aging.as_ref(), AGING_FORM, parse_aging)?;
    rules.placement = placement.unwrap_or(rules.placement);
    rules.aging_ms = aging.unwrap_or(rules.aging_ms);
    Ok(rules)
}

/// What a placement looks like.
const PLACEMENT_FORM: &str = "best-fit, spread or least-interference";
/// What an aging time looks like.
const AGING_FORM: &str = "1s to 30d";

fn parse_placement(text: &str) -> Result<Placement, &'static str> {
    match text {
        "best-fit" => Ok(Placement::BestFit),
        "spread" => Ok(Placement::Spread),
        "least-interference" => Ok(Placement::LeastInterference),
        _ => Err("it is unknown"),
    }
}

fn parse_aging(text: &str) -> Result<u64, &'static str> {
    let duration = humantime::parse_duration(text).map_err(|_| "it is no duration")?;
    let legal = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
    if legal.contains(&duration) { Ok(duration.as_millis() as u64) } else { Err("it is out of range") }
}
