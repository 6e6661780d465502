//! An event as one line for people: what the daemon's log says.

use core::fmt::Write;
use quota_core::Bytes;
use quota_wire::audit::{AuditEvent, AuditTerms};

/// The event on one line.
pub fn in_words(event: &AuditEvent) -> String {
    let mut parts = Vec::new();
    if let Some(tenant) = &event.tenant {
        parts.push(format!("tenant {tenant}"));
    }
    parts.push(event.change.clone().unwrap_or_else(|| event.event.word().to_owned()));
    if let Some(count) = event.lost {
        parts.push(format!("{count} events"));
    }
    match (event.pid, event.uid) {
        (Some(pid), Some(uid)) => parts.push(format!("process {pid} of user {uid}")),
        (Some(pid), None) => parts.push(format!("process {pid}")),
        _ => {}
    }
    // What `set` has changed is in its own words.
    let is_told = event.change.as_deref() == Some("set") && event.reason.is_some();
    if let Some(terms) = terms(event).filter(|_| !is_told) {
        let devices = event.devices.len();
        let plural = if devices == 1 { "" } else { "s" };
        parts.push(format!("{} on {devices} device{plural}", terms_in_words(terms)));
    }
    if !event.granted_by_device.is_empty() {
        parts.push(format!("different on each of {} devices", event.granted_by_device.len()));
    }
    parts.extend(event.command.iter().filter(|command| !command.is_empty()).cloned());
    parts.extend(event.reason.clone());
    if let Some(uid) = event.by_uid {
        parts.push(format!("by user {uid}"));
    }
    parts.join(": ")
}

fn terms(event: &AuditEvent) -> Option<&AuditTerms> {
    event.granted.as_ref().or(event.asked.as_ref()).filter(|_| event.granted_by_device.is_empty())
}

/// What is asked for or granted, in a few words.
pub(super) fn terms_in_words(terms: &AuditTerms) -> String {
    let memory = match (terms.memory_bytes, terms.memory_percent) {
        (Some(bytes), _) => Bytes(bytes).human(),
        (None, Some(percent)) => format!("{percent}% of the memory"),
        (None, None) => "no memory cap".to_owned(),
    };
    let mut text = memory;
    // Writing to a text can't fail.
    if let Some(percent) = terms.compute_percent {
        let _ = write!(text, ", compute {percent}%");
    }
    if let Some(percent) = terms.guarantee_percent {
        let _ = write!(text, ", guarantee {percent}%");
    }
    if let Some(weight) = terms.weight {
        let _ = write!(text, ", weight {weight}");
    }
    if let Some(class) = &terms.priority {
        let _ = write!(text, ", {class}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use quota_wire::audit::AuditKind;

    #[test]
    fn an_event_is_one_line_with_its_numbers() {
        let terms = AuditTerms { memory_bytes: Some(4 << 30), weight: Some(100), ..AuditTerms::default() };
        let event = AuditEvent {
            event: AuditKind::Changed,
            tenant: Some("t".to_owned()),
            uid: Some(7),
            devices: vec!["GPU-1".to_owned()],
            granted: Some(terms),
            change: Some("apply".to_owned()),
            reason: Some("as the document says".to_owned()),
            by_uid: Some(0),
            ..AuditEvent::default()
        };
        let text = in_words(&event);
        assert_eq!(text, "tenant t: apply: 4 GiB, weight 100 on 1 device: as the document says: by user 0");
    }
}
