//! Quotas changed while jobs run: one tenant's, or the whole document.

use super::events::note;
use super::job::Wish;
use super::pools::Whose;
use super::queue::check_shares;
use super::rows::Usage;
use super::{Action, GUARANTEED_MAX, Origin, Registry, TenantId};
use crate::document::{Document, Isolation};
use quota_core::Bytes;
use quota_wire::audit::{AuditEvent, AuditKind};
use quota_wire::message::Change;
use quota_wire::page::Quota;
use std::collections::BTreeSet;

impl Registry {
    /// Says that a tenant has a place here.
    ///
    /// # Errors
    /// One line with those that have, when it has none.
    pub fn find(&self, name: &str) -> Result<String, String> {
        self.tenant_named(name).map(|_| format!("tenant {name} has a place")).ok_or_else(|| self.no_such_tenant(name))
    }

    /// Changes a tenant's quota on all its devices, or on none.
    ///
    /// # Errors
    /// One line that says why not.
    pub fn set(&mut self, change: &Change, usage: &dyn Usage, actions: &mut Vec<Action>) -> Result<String, String> {
        let wish = Wish::read(
            change.memory.as_deref(),
            change.compute,
            change.guarantee,
            change.weight,
            change.priority.as_deref(),
        )?;
        if wish == Wish::default() {
            return Err("nothing to change; give --memory, --compute, --guarantee, --weight or --priority".to_owned());
        }
        let id = self.tenant_named(&change.tenant).ok_or_else(|| self.no_such_tenant(&change.tenant))?;
        let wants = self.changed(id, wish);
        for (index, quota) in &wants {
            check_shares(quota)?;
            self.parts_fit(id, *index, quota)?;
        }
        let whose = Whose { tenant: Some(id), pool: self.tenants[&id].pool };
        self.fits(&wants, whose, false).map_err(|no_room| no_room.to_string())?;
        self.changed.insert(id);
        for (index, quota) in &wants {
            let borrowed = self.beyond_its_pool(id, *index, quota);
            let tenant = self.tenants.get_mut(&id).expect("just found");
            if let Some(grant) = &mut tenant.grants[*index] {
                (grant.quota, grant.borrowed) = (*quota, borrowed);
            }
        }
        actions.push(Action::Publish(id));
        self.publish_pool(id, actions);
        let message = self.change_in_words(id, &wants, usage);
        let devices: Vec<usize> = wants.iter().map(|(device, _)| *device).collect();
        let event =
            AuditEvent { asked: Some(self.wished_terms(&wish, &devices)), ..self.about_change(id, "set", &message) };
        self.note_granted(event, wants, actions);
        self.pump(actions);
        Ok(message)
    }

    /// Withholds a tenant's compute, or gives it back.
    ///
    /// # Errors
    /// One line with those that there are, when there is no such tenant.
    pub fn pause(&mut self, name: &str, paused: bool, actions: &mut Vec<Action>) -> Result<String, String> {
        let id = self.tenant_named(name).ok_or_else(|| self.no_such_tenant(name))?;
        let tenant = self.tenants.get_mut(&id).expect("just found");
        if tenant.paused == paused {
            return Ok(format!("tenant {name}: {}", if paused { "it is paused already" } else { "it is not paused" }));
        }
        tenant.paused = paused;
        self.changed.insert(id);
        actions.push(Action::Publish(id));
        self.publish_pool(id, actions);
        let done =
            if paused { "paused: it gets no compute until it is resumed, and keeps its memory" } else { "resumed" };
        let message = format!("tenant {name}: {done}");
        note(self.about_change(id, if paused { "pause" } else { "resume" }, &message), actions);
        Ok(message)
    }

    /// Replaces the document: device rules and standing grants; what runs keeps what it has.
    ///
    /// # Errors
    /// One line that says why not; nothing has changed then.
    pub fn apply(&mut self, document: &Document, actions: &mut Vec<Action>) -> Result<String, String> {
        let mut next = self.under(document)?;
        for id in self.standing() {
            actions.push(match self.tenants.get(&id) {
                Some(gone) if !next.tenants.contains_key(&id) => {
                    next.changed.gone(id, &gone.name);
                    Action::Forget(id)
                }
                _ => Action::Publish(id),
            });
        }
        let factors = |registry: &Self| registry.devices.iter().map(|it| it.oversubscribe).collect::<Vec<_>>();
        if factors(self) != factors(&next) {
            // What is shown to all others as free follows from it.
            let standing = self.standing();
            actions.extend(next.tenants.keys().filter(|id| !standing.contains(id)).map(|id| Action::Publish(*id)));
        }
        if self.rules != next.rules {
            actions.push(Action::Reschedule);
        }
        let before = std::mem::replace(self, next);
        let (devices, tenants) = (document.devices.len(), document.tenants.len());
        let message = format!("the document holds: {devices} device rules, {tenants} tenants");
        let (change, reason) = (Some("apply".to_owned()), Some(message.clone()));
        note(AuditEvent { event: AuditKind::Changed, change, reason, ..AuditEvent::default() }, actions);
        self.note_standing(&before, actions);
        self.pump(actions);
        Ok(message)
    }

    /// What [`Registry::apply`] would change, in lines.
    ///
    /// # Errors
    /// As [`Registry::apply`].
    pub fn preview(&self, document: &Document, usage: &dyn Usage) -> Result<String, String> {
        Ok(super::preview::lines(self, &self.under(document)?, usage))
    }

    /// The registry as it would be under the document.
    fn under(&self, document: &Document) -> Result<Self, String> {
        let mut next = self.clone();
        next.set_rules(document)?;
        let standing = self.standing();
        for id in &standing {
            next.renew_standing(*id, document)?;
        }
        for rule in &document.tenants {
            match next.tenant_named(&rule.name) {
                None => next.add_standing(rule)?,
                Some(id) if standing.contains(&id) => {}
                Some(_) => return Err(format!("tenant {}: a job runs under this name already", rule.name)),
            }
        }
        next.check_capacity()?;
        next.check_isolation()?;
        Ok(next)
    }

    fn standing(&self) -> Vec<TenantId> {
        self.tenants.iter().filter(|(_, tenant)| tenant.is_standing()).map(|(id, _)| *id).collect()
    }

    /// Writes down what a document has changed for its tenants, those of the one before included.
    fn note_standing(&self, before: &Self, actions: &mut Vec<Action>) {
        let grants = |registry: &Self, id: &TenantId| -> Option<(Vec<(usize, Quota)>, Isolation)> {
            let tenant = registry.tenants.get(id).filter(|tenant| tenant.is_standing())?;
            Some((tenant.granted().collect(), tenant.apart.rule.clone()))
        };
        let ids: BTreeSet<&TenantId> = before.tenants.keys().chain(self.tenants.keys()).collect();
        for id in ids {
            let (old, new) = (grants(before, id), grants(self, id));
            let (kind, of, (granted, _)) = match (old, new) {
                (None, Some(new)) => (AuditKind::Granted, self, new),
                (Some(old), Some(new)) if old != new => (AuditKind::Changed, self, new),
                (Some(old), None) if !self.tenants.contains_key(id) => (AuditKind::Released, before, old),
                _ => continue,
            };
            let event = of.about_change(*id, "apply", "as the document says");
            self.note_granted(AuditEvent { event: kind, ..event }, granted, actions);
        }
    }

    pub(super) fn about_change(&self, id: TenantId, change: &str, message: &str) -> AuditEvent {
        let event = self.about_tenant(AuditKind::Changed, id);
        let own = format!("tenant {}: ", self.tenants[&id].name);
        let reason = message.strip_prefix(&own).unwrap_or(message).to_owned();
        AuditEvent { change: Some(change.to_owned()), reason: Some(reason), ..event }
    }

    /// A tenant of the old document: as in the new one; gone, or on its own until it ends, when it isn't there.
    fn renew_standing(&mut self, id: TenantId, document: &Document) -> Result<(), String> {
        let has_parts = self.has_parts(id);
        let tenant = self.tenants.get_mut(&id).expect("taken from the list");
        let Some(rule) = document.tenants.iter().find(|rule| rule.name == tenant.name) else {
            if tenant.is_active() || has_parts {
                tenant.origin = Origin::Job;
            } else {
                self.tenants.remove(&id);
            }
            return Ok(());
        };
        let was_dynamic = tenant.grants.iter().flatten().any(|grant| grant.quota.dynamic);
        if tenant.is_active() && was_dynamic != rule.oversubscribe {
            return Err(format!(
                "tenant {}: oversubscribe: its processes have their memory already; it can change once they have ended",
                tenant.name
            ));
        }
        tenant.origin = Origin::Document(rule.matches.clone());
        tenant.borrows = rule.borrow;
        let wants = self.standing_wants(rule);
        self.grant(id, &wants);
        self.isolate(id, rule);
        Ok(())
    }

    /// True for a document under which everything that is granted has room.
    pub(super) fn check_capacity(&self) -> Result<(), String> {
        for (index, device) in self.devices.iter().enumerate() {
            let guaranteed = self.guaranteed(index, None);
            if guaranteed > GUARANTEED_MAX {
                let (guaranteed, most) = (f64::from(guaranteed) / 100.0, f64::from(GUARANTEED_MAX) / 100.0);
                return Err(format!(
                    "device {index}: {guaranteed}% of compute would be guaranteed, of {most}% that can be"
                ));
            }
            self.check_memory(index, device)?;
        }
        self.check_pools()
    }

    fn changed(&self, id: TenantId, wish: Wish) -> Vec<(usize, Quota)> {
        let grants = self.tenants[&id].grants.iter().enumerate();
        let change = |(index, grant): (usize, &Option<super::Grant>)| {
            let now = grant.as_ref()?.quota;
            let ask = wish.on(&self.devices[index]);
            let quota = Quota {
                memory_cap: ask.memory.or(now.memory_cap),
                compute_cap: ask.compute.or(now.compute_cap),
                guarantee: ask.guarantee.or(now.guarantee),
                weight: ask.weight.unwrap_or(now.weight),
                priority: ask.priority.unwrap_or(now.priority),
                ..now
            };
            Some((index, quota))
        };
        grants.filter_map(change).collect()
    }

    fn change_in_words(&self, id: TenantId, wants: &[(usize, Quota)], usage: &dyn Usage) -> String {
        let tenant = &self.tenants[&id];
        let mut parts = Vec::new();
        for (index, quota) in wants {
            let memory = quota.memory_cap.map_or_else(|| "no cap".to_owned(), Bytes::human);
            let used = self.charged(id, *index, usage);
            let mut part = format!("{memory} on device {index}");
            if quota.memory_cap.is_some_and(|cap| used > cap) {
                part.push_str(&format!(" ({} are in use: new memory is refused until that falls)", used.human()));
            }
            let bound = self.effective(id, *index).and_then(|it| it.memory_cap);
            if let Some(bound) = bound.filter(|bound| Some(*bound) != quota.memory_cap) {
                part.push_str(&format!(" (one of its processes has asked for {} only)", bound.human()));
            }
            parts.push(part);
        }
        let quota = wants.first().map(|(_, quota)| *quota).unwrap_or_default();
        let percent = |name: &str, percent: Option<quota_core::Percent>| {
            percent.map_or_else(String::new, |percent| format!(", {name} {percent}"))
        };
        format!(
            "tenant {}: memory {}{}{}, weight {}, priority {}",
            tenant.name,
            parts.join(", "),
            percent("compute", quota.compute_cap),
            percent("guarantee", quota.guarantee),
            quota.weight,
            quota.priority
        )
    }

    fn no_such_tenant(&self, name: &str) -> String {
        const SHOWN_MAX: usize = 8;
        let mut names: Vec<&str> = self.tenants.values().map(|tenant| tenant.name.as_str()).collect();
        names.truncate(SHOWN_MAX);
        match names.len() {
            0 => format!("there is no tenant {name:?}; nobody has a place now"),
            _ => format!("there is no tenant {name:?}; there are: {}", names.join(", ")),
        }
    }
}
