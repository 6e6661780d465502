//! Who takes a job's memory to the host and brings it back: one of its `gpuquota run`, and where none is left, the daemon.
//!
//! `gpuquota run` is what people kill, by hand or with their terminal, and their programs go on without it. What it was asked to
//! do is then asked of the next one that there is, under the same notice.

use super::{Event, Interruption, JobNotice, Stage};
use crate::registry::{Action, ConnectionId, Origin, Registry, Tenant, TenantId};
use quota_wire::message::Reply;
use std::collections::BTreeSet;

/// Who was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Hand {
    #[default]
    Nobody,
    /// Whoever runs a job, for as long as the job is there.
    Job(ConnectionId),
    Daemon,
}

/// What the daemon is to do itself, since nobody runs the tenant's jobs any more.
#[derive(Clone, PartialEq, Debug)]
pub struct Move {
    /// Whose memory it is.
    pub tenant: TenantId,
    /// The tenant's name.
    pub name: String,
    /// What is to be done, to which processes, and under which number it is answered.
    pub notice: JobNotice,
    /// The user of all those processes; none where they are of several.
    pub uid: Option<u32>,
    /// UUIDs of the devices that they see.
    pub devices: Vec<String>,
}

impl Interruption {
    /// What whoever moves the job's memory is to do now.
    fn movement(&self) -> Option<Event> {
        match self.stage {
            Stage::Parking { .. } => Some(Event::Checkpoint),
            Stage::Restoring { .. } => Some(Event::Restore),
            _ => None,
        }
    }
}

impl Tenant {
    /// True for one that can be checkpointed: there is something to do it to, and it was started by somebody who does it, or
    /// would.
    pub(super) fn can_be_parked(&self) -> bool {
        !self.members.is_empty() && (!self.jobs.is_empty() || self.origin == Origin::Job)
    }

    /// What a job that is back from under an earlier daemon is told.
    pub(super) fn told_on_return(&mut self, before: ConnectionId, now_on: ConnectionId) -> Option<Event> {
        let now = self.interrupt.now.as_mut()?;
        if matches!(now.hand, Hand::Nobody) || now.hand == Hand::Job(before) {
            now.hand = Hand::Job(now_on);
        }
        Some(match now.stage {
            Stage::Noticed { .. } => Event::Notice,
            Stage::Settling { .. } | Stage::Settled { .. } => Event::Interrupted,
            Stage::Ending { .. } => Event::End,
            // To move what another one moves already would be to do it twice at a time.
            Stage::Parking { .. } | Stage::Restoring { .. } if now.hand != Hand::Job(now_on) => Event::Interrupted,
            Stage::Parking { .. } => Event::Checkpoint,
            Stage::Restoring { .. } => Event::Restore,
        })
    }
}

impl Registry {
    /// Has somebody move a tenant's memory who is there, unless somebody does.
    pub(super) fn hand_over(&mut self, id: TenantId, actions: &mut Vec<Action>) {
        let Some(tenant) = self.tenants.get(&id) else { return };
        let Some(now) = &tenant.interrupt.now else { return };
        let is_at_it = match now.hand {
            Hand::Nobody => false,
            Hand::Job(job) => tenant.jobs.contains(&job),
            Hand::Daemon => true,
        };
        let Some(notice) = now.movement().filter(|_| !is_at_it).and_then(|event| tenant.job_notice(event)) else {
            return;
        };
        // One is enough to move what all the processes of the tenant have.
        let (hand, action) = match tenant.jobs.first() {
            Some(job) => (Hand::Job(*job), Action::Reply(*job, Reply::Notice(notice))),
            None => (Hand::Daemon, Action::Move(Box::new(self.own_move(id, tenant, notice)))),
        };
        actions.push(action);
        if let Some(now) = self.tenants.get_mut(&id).and_then(|tenant| tenant.interrupt.now.as_mut()) {
            now.hand = hand;
        }
    }

    fn own_move(&self, id: TenantId, tenant: &Tenant, notice: JobNotice) -> Move {
        let uids: BTreeSet<u32> = tenant.members.values().map(|member| member.peer.uid).collect();
        let seen = tenant.members.values().flat_map(|member| &member.sees).copied();
        let seen: BTreeSet<usize> = seen.filter(|device| tenant.grants[*device].is_some()).collect();
        Move {
            tenant: id,
            name: tenant.name.clone(),
            notice,
            uid: uids.first().copied().filter(|_| uids.len() == 1),
            devices: self.uuids(seen),
        }
    }

    /// Who runs a job says that its memory is where it was to be brought, or why not.
    pub fn moved(&mut self, connection: ConnectionId, notice: u32, failed: Option<&str>, actions: &mut Vec<Action>) {
        let of = |(id, tenant): (&TenantId, &Tenant)| tenant.jobs.contains(&connection).then_some(*id);
        if let Some(id) = self.tenants.iter().find_map(of) {
            self.has_moved(id, notice, failed, actions);
        }
    }

    /// The same of what the daemon was to do itself: an answer to [`Action::Move`].
    pub fn moved_by_daemon(&mut self, of: TenantId, notice: u32, failed: Option<&str>, actions: &mut Vec<Action>) {
        let is_ours = |tenant: &Tenant| tenant.interrupt.now.as_ref().is_some_and(|now| now.hand == Hand::Daemon);
        if self.tenants.get(&of).is_some_and(is_ours) {
            self.has_moved(of, notice, failed, actions);
        }
    }

    fn has_moved(&mut self, id: TenantId, notice: u32, failed: Option<&str>, actions: &mut Vec<Action>) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        let Some(now) = tenant.interrupt.now.as_mut().filter(|_| tenant.interrupt.notices == notice) else { return };
        let name = &tenant.name;
        now.trouble = failed.map(str::to_owned);
        match (now.stage, failed) {
            (Stage::Parking { .. }, None) => {
                now.stage = Stage::Settling { until_ms: None, parked: true };
                actions.push(Action::Note(format!("tenant {name}: checkpointed")));
            }
            (Stage::Parking { .. }, Some(reason)) => {
                now.stage = Stage::Settling { until_ms: None, parked: false };
                actions.push(Action::Note(format!("tenant {name}: can't be checkpointed, is paused: {reason}")));
            }
            (Stage::Restoring { .. }, None) => self.finish(id, actions),
            (Stage::Restoring { .. }, Some(reason)) => {
                actions.push(Action::Note(format!("tenant {name}: its memory doesn't come back yet: {reason}")));
                now.stage = Stage::Restoring { until_ms: 0 };
            }
            _ => return,
        }
        self.changed.insert(id);
        self.stirred = true;
    }
}
