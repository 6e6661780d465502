//! MIG: devices that are divided run nothing themselves, their instances are devices of their own, and a CUDA process sees one of
//! them at most. A layout is as NVML tells it when the daemon starts; nothing here changes one.

use super::isolation::NO_INSTANCE;
use super::pools::Whose;
use super::{Registry, SharedDevice, TenantId};
use crate::devices::select;
use crate::document::{DeviceRule, Isolation, Level};

impl SharedDevice {
    /// True for a MIG instance.
    pub fn is_instance(&self) -> bool {
        self.uuid_text.starts_with("MIG-")
    }
}

impl Registry {
    /// The device of a UUID, where something may run on it.
    pub(super) fn usable(&self, uuid_text: &str) -> Option<usize> {
        self.device_with(uuid_text).filter(|device| !self.devices[*device].is_divided)
    }

    /// The instances of a device that are there.
    fn instances_of(&self, device: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.devices.len()).filter(move |index| self.devices[*index].parent == Some(device))
    }

    /// What of a selection a job may have, and how many of them it gets where it says nothing.
    ///
    /// Of all devices, one that is to have instances of its own may have those. Anybody else may have those that are whole
    /// or, where there are none, the instances. Of instances it gets one, since a process sees one.
    pub(super) fn may_have(
        &self,
        selection: Option<&str>,
        whose: Whose,
    ) -> Result<(Vec<usize>, Option<usize>), String> {
        let selection = selection.unwrap_or("all");
        let chosen = select(&self.names(), selection).map_err(|error| error.to_string())?;
        let (instances, whole): (Vec<usize>, Vec<usize>) =
            chosen.iter().copied().partition(|device| self.devices[*device].is_instance());
        let is_whole = |device: &usize| !self.devices[*device].is_divided;
        let devices = if selection.trim() == "all" {
            let own = whose.pool.or(whose.tenant).map(|id| self.tenants[&id].apart.rule.level) == Some(Level::OwnMig);
            let whole: Vec<usize> = whole.iter().copied().filter(is_whole).collect();
            if (own || whole.is_empty()) && !instances.is_empty() { instances } else { whole }
        } else if let Some(divided) = whole.iter().find(|device| !is_whole(device)) {
            // A product is a name for what is whole and for its instances alike.
            let named = chosen.iter().copied().filter(is_whole).collect::<Vec<_>>();
            if named.is_empty() || !self.is_product(selection) {
                return Err(self.divided_in_words(*divided));
            }
            named
        } else {
            chosen
        };
        if devices.is_empty() {
            let divided = whole.first().map(|device| self.divided_in_words(*device));
            return Err(divided.unwrap_or_else(|| "there is no device".to_owned()));
        }
        let one = devices.iter().all(|device| self.devices[*device].is_instance()) && devices.len() > 1;
        Ok((devices, one.then_some(1)))
    }

    /// True where no part of a selection is an index or a UUID.
    fn is_product(&self, selection: &str) -> bool {
        let names_one = |part: &str| {
            let lower = part.to_ascii_lowercase();
            part.bytes().all(|byte| byte.is_ascii_digit()) || lower.starts_with("gpu-") || lower.starts_with("mig-")
        };
        !selection.split(',').map(str::trim).any(names_one)
    }

    /// Why nothing runs on a divided device, and what does.
    pub(super) fn divided_in_words(&self, device: usize) -> String {
        let instances: Vec<String> = self
            .instances_of(device)
            .map(|at| format!("{at} ({}, {})", self.devices[at].uuid_text, self.devices[at].mig))
            .collect();
        let there = match instances.is_empty() {
            true => "it has none; make some with nvidia-smi mig, then start the daemon again".to_owned(),
            false => format!("they are {}", instances.join(", ")),
        };
        format!("device {device} has its MIG mode on, so that programs run on its instances only: {there}")
    }

    /// The devices of a rule of the document: where it names a divided one, its instances too.
    pub(super) fn under_rule(&self, rule: &DeviceRule) -> Result<Vec<usize>, String> {
        let mut chosen = select(&self.names(), &rule.select).map_err(|error| format!("select: {error}"))?;
        let parts: Vec<usize> = chosen.iter().flat_map(|device| self.instances_of(*device)).collect();
        chosen.extend(parts);
        chosen.sort_unstable();
        chosen.dedup();
        let usable = |device: &&usize| !self.devices[**device].is_divided;
        if rule.instances {
            if let Some(whole) = chosen.iter().filter(usable).find(|device| !self.devices[**device].is_instance()) {
                let device = &self.devices[*whole];
                return Err(format!(
                    "sharing: mig: device {whole} ({}) is no MIG instance, and its MIG mode is {}; select instances, or divided devices",
                    device.uuid_text, device.mig
                ));
            }
            if let Some(divided) = chosen.first().filter(|_| !chosen.iter().any(|device| usable(&device))) {
                return Err(format!("sharing: mig: {}", self.divided_in_words(*divided)));
            }
        }
        Ok(chosen)
    }

    /// Why a party may not run on a device, where MIG is the reason.
    pub(super) fn has_instances(&self, device: usize, party: Option<TenantId>) -> Result<(), String> {
        let it = &self.devices[device];
        if it.is_divided {
            return Err(self.divided_in_words(device));
        }
        let Some(tenant) = party.map(|id| &self.tenants[&id]).filter(|it| it.apart.rule.level == Level::OwnMig) else {
            return Ok(());
        };
        let name = &tenant.name;
        if !it.is_instance() {
            return Err(format!(
                "device {device} is no MIG instance, and tenant {name} runs on MIG instances of its own alone (isolation: own-mig); {NO_INSTANCE}"
            ));
        }
        if tenant.is_standing() && tenant.grants[device].is_none() {
            let capacity = it.capacity().human();
            return Err(format!("device {device} has {capacity} capacity, less than the document gives tenant {name}"));
        }
        Ok(())
    }

    /// Of the devices that a process sees, those that are meant: by NVML it may see all, and its tenant keeps to those of its jobs.
    pub(super) fn meant(&self, id: TenantId, sees: Vec<usize>) -> Vec<usize> {
        let apart = &self.tenants[&id].apart;
        let is_place = |device: &usize| apart.has_place_on(*device);
        if apart.rule == Isolation::default() || !sees.iter().any(is_place) {
            return sees;
        }
        sees.into_iter().filter(is_place).collect()
    }

    /// For messages and selections: UUIDs and products.
    pub(super) fn names(&self) -> Vec<(&str, &str)> {
        self.devices.iter().map(|device| (device.uuid_text.as_str(), device.name.as_str())).collect()
    }
}
