//! Who shares devices with whom: `tenants[].isolation` and `tenants[].share_with`.

use super::raw::RawTenant;
use super::{DocumentError, TenantRule, value};

/// With whom a tenant shares devices.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Isolation {
    /// What it has for itself.
    pub level: Level,
    /// Tenants of the document that may share that nonetheless.
    #[serde(default)]
    pub share_with: Vec<String>,
}

/// What a tenant has for itself while it runs there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Nothing: others may be on its devices.
    #[default]
    Shared,
    /// Its devices.
    OwnDevice,
    /// Its MIG instances; it runs on nothing else.
    OwnMig,
}

impl Level {
    /// As the document writes it.
    pub fn word(self) -> &'static str {
        LEVELS.iter().find(|(_, level)| *level == self).map_or("", |(word, _)| word)
    }
}

const LEVELS: [(&str, Level); 3] =
    [("shared", Level::Shared), ("own-device", Level::OwnDevice), ("own-mig", Level::OwnMig)];
/// Names that a message tells.
const NAMED_MAX: usize = 8;

pub(super) fn isolation(place: &str, raw: &RawTenant) -> Result<Isolation, DocumentError> {
    let word = raw.isolation.as_deref().unwrap_or("shared");
    let known = LEVELS.iter().find(|(known, _)| *known == word).map(|(_, level)| *level);
    let unknown = || value(&format!("{place}: isolation"), word, "it is unknown", "shared, own-device or own-mig");
    let level = known.ok_or_else(unknown)?;
    let share_with: Vec<String> = raw.share_with.iter().flatten().map(|name| name.0.clone()).collect();
    match share_with.first() {
        Some(name) if level == Level::Shared => {
            let reason = "a tenant that is shared has nothing to allow";
            Err(value(&format!("{place}: share_with"), name, reason, "isolation: own-device beside it"))
        }
        _ => Ok(Isolation { level, share_with }),
    }
}

/// Those with whom a tenant may share must be there.
pub(super) fn check(tenants: &[TenantRule]) -> Result<(), DocumentError> {
    for tenant in tenants {
        let others = || tenants.iter().map(|other| other.name.as_str()).filter(|name| *name != tenant.name);
        let unknown = tenant.isolation.share_with.iter().find(|name| !others().any(|other| other == name.as_str()));
        let Some(unknown) = unknown else { continue };
        let named: Vec<&str> = others().take(NAMED_MAX).collect();
        let more = others().count() - named.len();
        let there = match (named.len(), more) {
            (0, _) => "there are no others".to_owned(),
            (_, 0) => format!("there are: {}", named.join(", ")),
            _ => format!("there are: {} and {more} more", named.join(", ")),
        };
        let place = format!("tenant {}: share_with", tenant.name);
        return Err(value(&place, unknown, format!("there is no such tenant; {there}"), "names of other tenants"));
    }
    Ok(())
}
