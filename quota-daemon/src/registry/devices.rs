//! Devices as they are shared: what the document says of them, at all times and at some.

use super::admission::OVERSUBSCRIBE_NONE;
use super::{Action, Overrides, Registry};
use crate::document::{DeviceRule, Document, Minute, RESERVE_DEFAULT};
use quota_core::{Bytes, MemorySize, Percent};

/// A device, as it is shared.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedDevice {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// The UUID as text.
    pub uuid_text: String,
    /// The product.
    pub name: String,
    /// Its MIG mode, or an instance's profile, for people.
    pub mig: String,
    /// Nothing runs on it but on its instances.
    pub is_divided: bool,
    /// Of an instance, the number of the device that it is a part of.
    pub parent: Option<usize>,
    /// All its memory.
    pub total: Bytes,
    /// Kept free.
    pub reserve: Bytes,
    /// Most tenants at a time.
    pub jobs_max: Option<u32>,
    /// All quotas together, in percent of the capacity; above 100 there may be dynamic ones.
    pub oversubscribe: u32,
    pub(super) default_memory: Option<MemorySize>,
    pub(super) default_compute: Option<Percent>,
}

impl SharedDevice {
    /// What can be granted.
    pub fn capacity(&self) -> Bytes {
        if self.is_divided { Bytes(0) } else { Bytes(self.total.0.saturating_sub(self.reserve.0)) }
    }
}

impl From<&crate::devices::Device> for SharedDevice {
    fn from(device: &crate::devices::Device) -> Self {
        Self {
            uuid: device.uuid,
            uuid_text: device.uuid_text.clone(),
            name: device.name.clone(),
            mig: device.mig.clone(),
            is_divided: device.is_divided,
            parent: device.parent,
            total: device.total,
            reserve: RESERVE_DEFAULT,
            jobs_max: None,
            oversubscribe: OVERSUBSCRIBE_NONE,
            default_memory: None,
            default_compute: None,
        }
    }
}

impl SharedDevice {
    fn set_rule(&mut self, rule: &DeviceRule, overrides: Overrides) -> Result<(), String> {
        self.reserve = overrides.reserve.or(rule.reserve).unwrap_or(RESERVE_DEFAULT);
        self.oversubscribe = rule.oversubscribe.unwrap_or(OVERSUBSCRIBE_NONE);
        if self.is_divided {
            // What a rule says of it is said of its instances.
            return Ok(());
        }
        if self.reserve >= self.total {
            let (reserve, total) = (self.reserve.human(), self.total.human());
            return Err(format!("a reserve of {reserve} leaves nothing of the {total} of device {}", self.uuid_text));
        }
        self.set_new_jobs(rule, overrides)
    }

    /// A variant's rule; what it doesn't say stays as it is.
    fn overlaid(&self, rule: &DeviceRule) -> DeviceRule {
        if rule.sliced {
            return rule.clone();
        }
        DeviceRule {
            jobs_max: rule.jobs_max.or(self.jobs_max),
            default_memory: rule.default_memory.or(self.default_memory),
            default_compute: rule.default_compute.or(self.default_compute),
            ..rule.clone()
        }
    }

    /// The part of a rule that holds for new jobs only.
    fn set_new_jobs(&mut self, rule: &DeviceRule, overrides: Overrides) -> Result<(), String> {
        self.jobs_max = overrides.jobs_max.or(rule.jobs_max);
        self.default_memory = rule.default_memory;
        self.default_compute = rule.default_compute;
        let (Some(count), Some(each)) = (rule.jobs_max, rule.default_memory.filter(|_| rule.sliced)) else {
            return Ok(());
        };
        let all = each.on(self.total).0.saturating_mul(u64::from(count));
        if all > self.capacity().0 {
            let (each, all, capacity) = (each.on(self.total).human(), Bytes(all).human(), self.capacity().human());
            return Err(format!(
                "slices: {count} of {each} are {all}, more than the {capacity} capacity of device {}",
                self.uuid_text
            ));
        }
        Ok(())
    }
}

impl Registry {
    /// Makes the document's rules hold for the devices.
    pub(super) fn set_rules(&mut self, document: &Document) -> Result<(), String> {
        (self.rules, self.admission, self.interrupts) = (document.scheduling, document.admission, document.interrupts);
        (self.device_rules, self.variants) = (document.devices.clone(), document.variants.clone());
        // What will hold at some time must go with the devices now.
        for at in 0..self.variants.len() {
            self.set_devices(&[at])?;
        }
        self.set_devices(&self.holding())
    }

    /// Tells the time of the week, by which defaults for new jobs may change.
    pub fn set_minute(&mut self, minute: Minute, actions: &mut Vec<Action>) {
        let before = self.holding();
        self.minute = minute;
        let now = self.holding();
        // They were checked when the document was taken.
        if before == now || self.set_devices(&now).is_err() {
            return;
        }
        let names = self.variant_names();
        let names = if names.is_empty() { "the document's own".to_owned() } else { names.join(", ") };
        actions.push(Action::Note(format!("defaults for new jobs by the schedule: {names}")));
        self.pump(actions);
    }

    /// True when time changes what holds for new jobs.
    pub fn has_schedule(&self) -> bool {
        !self.variants.is_empty()
    }

    /// The variants that hold now.
    pub fn variant_names(&self) -> Vec<&str> {
        self.holding().into_iter().map(|at| self.variants[at].name.as_str()).collect()
    }

    fn holding(&self) -> Vec<usize> {
        (0..self.variants.len()).filter(|at| self.variants[*at].holds(self.minute)).collect()
    }

    /// Makes the rules and some variants hold; the last that selects a device wins.
    fn set_devices(&mut self, variants: &[usize]) -> Result<(), String> {
        for device in &mut self.devices {
            device.set_rule(&DeviceRule::default(), self.overrides)?;
        }
        for index in 0..self.device_rules.len() {
            let rule = &self.device_rules[index];
            let chosen = self.under_rule(rule).map_err(|error| format!("devices[{index}].{error}"))?;
            for device in chosen {
                self.devices[device].set_rule(&self.device_rules[index], self.overrides)?;
            }
        }
        for at in variants {
            for index in 0..self.variants[*at].devices.len() {
                let variant = &self.variants[*at];
                let wrong = |reason: &dyn core::fmt::Display| format!("schedule {}: {reason}", variant.name);
                let rule = &variant.devices[index];
                for device in self.under_rule(rule).map_err(|error| wrong(&error))? {
                    let rule = self.devices[device].overlaid(rule);
                    self.devices[device].set_new_jobs(&rule, self.overrides).map_err(|error| wrong(&error))?;
                }
            }
        }
        Ok(())
    }
}
