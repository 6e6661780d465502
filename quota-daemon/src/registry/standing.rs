//! What the document grants its tenants, whether they run or not.

use super::pools::Whose;
use super::{Origin, Registry, WEIGHT_DEFAULT};
use crate::document::{Level, TenantRule};
use quota_core::Bytes;
use quota_wire::page::Quota;

impl Registry {
    /// Grants what the document says to one of its tenants.
    pub(super) fn add_standing(&mut self, rule: &TenantRule) -> Result<(), String> {
        let wants = self.standing_wants(rule);
        self.fits(&wants, Whose::default(), false).map_err(|no_room| format!("tenant {}: {no_room}", rule.name))?;
        let id = self.make_tenant(rule.name.clone(), 0, Origin::Document(rule.matches.clone()), None);
        self.grant(id, &wants);
        self.tenants.entry(id).and_modify(|tenant| tenant.borrows = rule.borrow);
        self.isolate(id, rule);
        Ok(())
    }

    /// What the document gives a tenant: on every device on which it may run. One with instances of its own has those that
    /// are large enough.
    pub(super) fn standing_wants(&self, rule: &TenantRule) -> Vec<(usize, Quota)> {
        let wants = self.devices.iter().enumerate().filter(|(_, device)| !device.is_divided);
        let wants = wants.map(|(index, device)| (index, rule.quota(device.total)));
        if rule.isolation.level != Level::OwnMig {
            return wants.collect();
        }
        let fits = |(index, quota): &(usize, Quota)| {
            let device = &self.devices[*index];
            device.is_instance() && quota.memory_cap.is_none_or(|cap| cap <= device.capacity())
        };
        wants.filter(fits).collect()
    }
}

impl TenantRule {
    fn quota(&self, total: Bytes) -> Quota {
        Quota {
            memory_cap: self.memory.map(|size| size.on(total)),
            compute_cap: self.compute,
            guarantee: self.guarantee,
            weight: self.weight.unwrap_or(WEIGHT_DEFAULT),
            priority: self.priority,
            dynamic: self.oversubscribe,
            crowded: false,
        }
    }
}
