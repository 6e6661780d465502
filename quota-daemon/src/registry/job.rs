//! What `gpuquota run` asks for, checked; what asks and rules of the document are as quotas.

use super::isolation::Allowed;
use super::{Registry, SharedDevice, WEIGHT_DEFAULT};
use crate::peer::{Peer, clean};
use quota_core::settings::{PRIORITY_FORM, TENANT_FORM, parse_priority, parse_tenant};
use quota_core::{Bytes, MemorySize, Percent, Priority, units};
use quota_wire::Secret;
use quota_wire::message::{Admit, mismatch};
use quota_wire::page::Quota;

/// A job that wants a place.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Job {
    pub(super) tenant: Option<String>,
    pub(super) uid: u32,
    pub(super) pid: u32,
    pub(super) cgroup: String,
    pub(super) secret: Option<Secret>,
    pub(super) command: String,
    /// Those that it may have.
    pub(super) devices: Vec<usize>,
    /// So many of them; all, where nothing is said.
    pub(super) count: Option<usize>,
    pub(super) wish: Wish,
    /// Beside whom an administrator lets it be.
    pub(super) allowed: Allowed,
    /// What is to follow when it has to make room.
    pub(super) on_interrupt: Option<quota_wire::notice::Action>,
    /// It hears of a notice, by a signal or a command.
    pub(super) hears: bool,
}

/// What a person asks for, of a job or of a change; the same on every device.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Wish {
    pub(super) memory: Option<MemorySize>,
    pub(super) compute: Option<Percent>,
    pub(super) guarantee: Option<Percent>,
    pub(super) weight: Option<u32>,
    pub(super) priority: Option<Priority>,
    /// Its memory may be moved to the host.
    pub(super) dynamic: bool,
}

impl Wish {
    /// Checks the words of a message.
    pub(super) fn read(
        memory: Option<&str>,
        compute: Option<u32>,
        guarantee: Option<u32>,
        weight: Option<u32>,
        priority: Option<&str>,
    ) -> Result<Self, String> {
        let percent = |name: &str, hundredths: Option<u32>| match hundredths.map(Percent::from_hundredths) {
            Some(None) => Err(format!("{name}: it is out of range; expected {}", units::PERCENT_FORM)),
            other => Ok(other.flatten()),
        };
        let size =
            |text: &str| text.parse().map_err(|why| format!("memory: {text:?}: {why}; expected {}", units::SIZE_FORM));
        let class =
            |word: &str| parse_priority(word).map_err(|why| format!("priority: {why}; expected {PRIORITY_FORM}"));
        let wish = Self {
            memory: memory.map(size).transpose()?,
            compute: percent("compute", compute)?,
            guarantee: percent("guarantee", guarantee)?,
            weight,
            priority: priority.map(class).transpose()?,
            dynamic: false,
        };
        if weight.is_some_and(|weight| !(1..=10_000).contains(&weight)) {
            return Err(format!("weight: it is out of range; expected {}", quota_core::settings::WEIGHT_FORM));
        }
        Ok(wish)
    }

    /// The same for one device.
    pub(super) fn on(self, device: &SharedDevice) -> Ask {
        Ask {
            memory: self.memory.map(|size| size.on(device.total)),
            compute: self.compute,
            guarantee: self.guarantee,
            weight: self.weight,
            priority: self.priority,
            dynamic: self.dynamic,
        }
    }
}

/// An ask, as far as it concerns one device.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Ask {
    pub(super) memory: Option<Bytes>,
    pub(super) compute: Option<Percent>,
    pub(super) guarantee: Option<Percent>,
    pub(super) weight: Option<u32>,
    pub(super) priority: Option<Priority>,
    pub(super) dynamic: bool,
}

impl Ask {
    /// The quota it would become on a device where the tenant has none yet.
    pub(super) fn on(self, device: &SharedDevice) -> Quota {
        Quota {
            memory_cap: self.memory.or_else(|| device.default_memory.map(|size| size.on(device.total))),
            compute_cap: self.compute.or(device.default_compute),
            guarantee: self.guarantee,
            weight: self.weight.unwrap_or(WEIGHT_DEFAULT),
            priority: self.priority.unwrap_or_default(),
            dynamic: self.dynamic,
            crowded: false,
        }
    }
}

impl Registry {
    /// Checks what a client says.
    pub(super) fn job(&self, peer: &Peer, admit: &Admit) -> Result<Job, String> {
        if let Some(reason) = mismatch("the command gpuquota", admit.version, "this daemon") {
            return Err(reason);
        }
        if let Some(name) = &admit.tenant {
            parse_tenant(name).map_err(|reason| format!("tenant: {reason}; expected {TENANT_FORM}"))?;
        }
        let whose = self.whose(admit.tenant.as_deref(), admit.memory.is_some());
        let (devices, count) = self.may_have(admit.device.as_deref(), whose)?;
        let count = admit.count.map(|count| count as usize).or(count);
        if count.is_some_and(|count| count == 0 || count > devices.len()) {
            let (count, all) = (count.unwrap_or_default(), devices.len());
            return Err(format!("count: {count}: expected 1 to {all}, the number of devices it may have"));
        }
        let wish = Wish::read(
            admit.memory.as_deref(),
            admit.compute,
            admit.guarantee,
            admit.weight,
            admit.priority.as_deref(),
        )?;
        Ok(Job {
            tenant: admit.tenant.clone(),
            uid: peer.uid,
            pid: peer.pid,
            cgroup: peer.cgroup.clone(),
            secret: admit.secret.clone(),
            command: clean(&admit.command),
            devices,
            count,
            wish: Wish { dynamic: admit.oversubscribe, ..wish },
            allowed: Allowed::default(),
            on_interrupt: admit.on_interrupt,
            hears: admit.hears,
        })
    }
}
