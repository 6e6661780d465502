//! What another document would change, for people.

use super::rows::Usage;
use super::{Grant, Registry, SharedDevice, Tenant, TenantId};
use crate::document::{Level, Placement};
use core::time::Duration;
use quota_core::Bytes;
use quota_core::compute::scheduler::{Policy, Quantum};
use quota_wire::page::Quota;

/// Lines that are shown; a document may name hundreds of tenants, and they must fit a packet.
const LINES_MAX: usize = 200;

/// A setting as the document writes it.
type Shown = fn(&Registry) -> String;

/// The differences between two states, one a line.
pub(super) fn lines(now: &Registry, next: &Registry, usage: &dyn Usage) -> String {
    let mut lines = Vec::new();
    for (index, (was, is)) in now.devices.iter().zip(&next.devices).enumerate() {
        device(index, was, is, &mut lines);
    }
    let rules: [(&str, Shown); 6] = [
        ("scheduling: policy", policy),
        ("scheduling: quantum", quantum),
        ("scheduling: preemption", preemption),
        ("scheduling: placement", placement),
        ("scheduling: aging", aging),
        ("schedule", variants),
    ];
    for (what, of) in rules {
        changed(&mut lines, what, of(now), of(next));
    }
    if now.variants != next.variants && variants(now) == variants(next) {
        lines.push("schedule: its times or defaults change".to_owned());
    }
    let ids = now.tenants.keys().chain(next.tenants.keys().filter(|id| !now.tenants.contains_key(id)));
    for id in ids {
        tenant(now, next, *id, usage, &mut lines);
    }
    let more = lines.len().saturating_sub(LINES_MAX);
    lines.truncate(LINES_MAX);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    if lines.is_empty() { "nothing would change".to_owned() } else { lines.join("\n") }
}

fn device(index: usize, was: &SharedDevice, is: &SharedDevice, lines: &mut Vec<String>) {
    let mut note = |what: &str, was: String, is: String| changed(lines, &format!("device {index}: {what}"), was, is);
    note("capacity", was.capacity().human(), is.capacity().human());
    let factor = |device: &SharedDevice| (f64::from(device.oversubscribe) / 100.0).to_string();
    note("oversubscribe", factor(was), factor(is));
    note("max_jobs", or_none(was.jobs_max), or_none(is.jobs_max));
    note("default memory", or_none(was.default_memory), or_none(is.default_memory));
    note("default compute", or_none(was.default_compute), or_none(is.default_compute));
}

fn tenant(now: &Registry, next: &Registry, id: TenantId, usage: &dyn Usage, lines: &mut Vec<String>) {
    let (was, is) = match (now.tenants.get(&id), next.tenants.get(&id)) {
        (Some(was), Some(is)) => (was, is),
        (None, Some(is)) => return lines.push(format!("tenant {}: is added: {}{}", is.name, own(is), grants(is))),
        (Some(was), None) => return lines.push(format!("tenant {}: goes", was.name)),
        (None, None) => return,
    };
    if was.is_standing() && !is.is_standing() {
        lines.push(format!("tenant {}: leaves the document, and stays as it is until it ends", was.name));
    }
    if was.is_standing() && is.is_standing() && was.origin != is.origin {
        lines.push(format!("tenant {}: match changes", was.name));
    }
    let place = format!("tenant {}", was.name);
    changed(lines, &format!("{place}: isolation"), isolation(was), isolation(is));
    for (index, (was, is)) in was.grants.iter().zip(&is.grants).enumerate() {
        let (Some(Grant { quota: was, .. }), Some(Grant { quota: is, .. })) = (was, is) else { continue };
        if was == is {
            continue;
        }
        let mut note = |what: &str, was: String, is: String| {
            changed(lines, &format!("{place}: {what} on device {index}"), was, is);
        };
        note("memory", bytes(was.memory_cap), bytes(is.memory_cap));
        note("compute", or_none(was.compute_cap), or_none(is.compute_cap));
        note("guarantee", or_none(was.guarantee), or_none(is.guarantee));
        note("weight", was.weight.to_string(), is.weight.to_string());
        note("oversubscribe", was.dynamic.to_string(), is.dynamic.to_string());
        note("priority", was.priority.to_string(), is.priority.to_string());
        let used = now.charged(id, index, usage);
        if is.memory_cap.is_some_and(|cap| used > cap) {
            let used = used.human();
            lines.push(format!("{place}: {used} are in use on device {index}: new memory is refused until that falls"));
        }
    }
}

/// With whom it shares devices, as the document writes it.
fn isolation(tenant: &Tenant) -> String {
    let rule = &tenant.apart.rule;
    match rule.share_with.is_empty() {
        true => rule.level.word().to_owned(),
        false => format!("{} (share_with {})", rule.level.word(), rule.share_with.join(", ")),
    }
}

/// The same of one that is added, where it is not as with most.
fn own(tenant: &Tenant) -> String {
    let shared = tenant.apart.rule.level == Level::Shared;
    if shared { String::new() } else { format!("isolation {}; ", isolation(tenant)) }
}

fn grants(tenant: &Tenant) -> String {
    let words = |quota: &Quota| {
        let mut words =
            format!("memory {}, weight {}, priority {}", bytes(quota.memory_cap), quota.weight, quota.priority);
        for (what, percent) in [("compute", quota.compute_cap), ("guarantee", quota.guarantee)] {
            if let Some(percent) = percent {
                words.push_str(&format!(", {what} {percent}"));
            }
        }
        words
    };
    let grant =
        |(index, grant): (usize, &Option<Grant>)| Some(format!("{} on device {index}", words(&grant.as_ref()?.quota)));
    tenant.grants.iter().enumerate().filter_map(grant).collect::<Vec<_>>().join("; ")
}

fn changed(lines: &mut Vec<String>, what: &str, was: String, is: String) {
    if was != is {
        let shown = |text: String| if text.is_empty() { "none".to_owned() } else { text };
        lines.push(format!("{what} from {} to {}", shown(was), shown(is)));
    }
}

fn policy(registry: &Registry) -> String {
    match registry.rules.policy {
        Policy::Fifo => "fifo",
        Policy::Priority => "priority",
        Policy::Fair => "fair",
        Policy::PriorityFair => "priority-fair",
    }
    .to_owned()
}

fn quantum(registry: &Registry) -> String {
    match registry.rules.quantum {
        Quantum::Adaptive => "auto".to_owned(),
        Quantum::Fixed(nanoseconds) => humantime::format_duration(Duration::from_nanos(nanoseconds)).to_string(),
    }
}

fn placement(registry: &Registry) -> String {
    match registry.admission.placement {
        Placement::BestFit => "best-fit",
        Placement::Spread => "spread",
        Placement::LeastInterference => "least-interference",
    }
    .to_owned()
}

fn aging(registry: &Registry) -> String {
    humantime::format_duration(Duration::from_millis(registry.admission.aging_ms)).to_string()
}

fn preemption(registry: &Registry) -> String {
    registry.rules.preemption.to_string()
}

fn variants(registry: &Registry) -> String {
    registry.variants.iter().map(|variant| variant.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn or_none<T: core::fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn bytes(value: Option<Bytes>) -> String {
    value.map_or_else(String::new, Bytes::human)
}
