//! Jobs that want a place: admitted, refused, or waiting, in the order that the policy says (`order`).
//!
//! Who is further back starts before one that waits only where that one won't start later for it, whichever of the running
//! ones end (`backfill`), so that small jobs can't keep a large one waiting for ever.

use super::admission::NoRoom;
use super::events::note;
use super::job::Job;
use super::pools::Whose;
use super::{Action, ConnectionId, Origin, Registry, WAITING_MAX};
use crate::peer::{Peer, clean};
use quota_wire::audit::{AuditEvent, AuditKind};
use quota_wire::message::{Admit, Granted, QueueLimit, Reply};
use quota_wire::page::Quota;
use std::collections::BTreeSet;

/// A job in the queue.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Waiting {
    pub(super) connection: ConnectionId,
    pub(super) job: Job,
    /// Its place in the order of arrival.
    pub(super) arrival: u64,
    pub(super) since_ms: u64,
    patience: Patience,
    /// Position and reason, as last told.
    told: Option<(u32, String)>,
}

/// How long a job waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patience {
    /// Not at all.
    None,
    /// Until then, in milliseconds.
    Until(u64),
    /// Until there is room.
    Forever,
    /// Only while others make room for it.
    WhileRoomIsMade,
}

impl Waiting {
    /// When its wait is over. For whom others make room, that is waited for.
    fn deadline_besides(&self, makers: &BTreeSet<ConnectionId>) -> Option<u64> {
        match self.patience {
            Patience::Until(deadline_ms) if !makers.contains(&self.connection) => Some(deadline_ms),
            _ => None,
        }
    }
}

/// What is to be granted, by the number of the device.
pub(super) type Wants = Vec<(usize, Quota)>;

/// Where a job has its place.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Plan {
    /// Whose it is.
    pub(super) whose: Whose,
    /// All the devices that it gets.
    pub(super) devices: Vec<usize>,
    /// What has to be granted to the tenant for it.
    pub(super) wants: Wants,
}

impl Registry {
    /// Answers `gpuquota run`.
    pub fn admit(
        &mut self,
        connection: ConnectionId,
        peer: &Peer,
        admit: &Admit,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) {
        self.pass_time(now_ms);
        let known = self.waiting.iter().any(|waiting| waiting.connection == connection)
            || self.tenants.values().any(|tenant| tenant.jobs.contains(&connection));
        let unread = AuditEvent {
            event: AuditKind::Refused,
            tenant: admit.tenant.clone(),
            uid: Some(peer.uid),
            pid: Some(peer.pid),
            command: Some(clean(&admit.command)),
            ..AuditEvent::default()
        };
        if known {
            return refuse(connection, unread, "a connection is for one job".to_owned(), actions);
        }
        let job = match self.job(peer, admit) {
            Ok(job) => job,
            Err(reason) => return refuse(connection, unread, reason, actions),
        };
        note(self.about_job(AuditKind::Asked, &job), actions);
        let patience = match admit.queue {
            None => Patience::None,
            Some(QueueLimit::Forever) => Patience::Forever,
            Some(QueueLimit::Milliseconds(patience)) => Patience::Until(now_ms.saturating_add(patience)),
        };
        let patience = match patience {
            Patience::None if self.waiting.len() < WAITING_MAX && self.may_interrupt(&job) => Patience::WhileRoomIsMade,
            patience => patience,
        };
        self.arrivals += 1;
        let (arrival, since_ms) = (self.arrivals, self.now_ms);
        self.waiting.push_back(Waiting { connection, job, arrival, since_ms, patience, told: None });
        self.pump(actions);
        if self.waiting.len() > WAITING_MAX
            && let Some(at) = self.waiting.iter().position(|waiting| waiting.connection == connection)
        {
            let refused = self.waiting.remove(at).map(|waiting| self.about_job(AuditKind::Refused, &waiting.job));
            refuse(connection, refused.unwrap_or_default(), format!("{WAITING_MAX} jobs wait already"), actions);
        }
    }

    /// Refuses what has waited for too long.
    pub fn tick(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        self.pass_time(now_ms);
        let makers = self.makers_of_room();
        let expired = |it: &Waiting| it.deadline_besides(&makers).is_some_and(|deadline_ms| deadline_ms <= now_ms);
        let (gone, left) = self.waiting.drain(..).partition::<Vec<_>, _>(expired);
        self.waiting = left.into();
        for waiting in gone {
            let reason = waiting.told.map_or_else(String::new, |(_, reason)| format!(": {reason}"));
            let event = self.about_job(AuditKind::Expired, &waiting.job);
            refuse(waiting.connection, event, format!("the wait for room is over{reason}"), actions);
        }
        self.pump(actions);
    }

    /// Has the registry know how late it is: whoever has waited for long goes before others.
    pub fn pass_time(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// Whoever waited on this connection doesn't any more.
    pub(super) fn cancel(&mut self, connection: ConnectionId, actions: &mut Vec<Action>) {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.connection == connection) else { return };
        if let Some(waiting) = self.waiting.remove(at) {
            note(self.about_job(AuditKind::Cancelled, &waiting.job), actions);
        }
    }

    /// Jobs that wait for room on a device.
    pub(super) fn waiting_on(&self, device: usize) -> u32 {
        self.waiting.iter().filter(|waiting| waiting.job.devices.contains(&device)).count() as u32
    }

    /// When [`Registry::tick`] has something to do.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let makers = self.makers_of_room();
        let ends = self.waiting.iter().filter_map(|waiting| waiting.deadline_besides(&makers)).min();
        [ends, self.next_rise_ms(), self.next_interruption_ms()].into_iter().flatten().min()
    }

    /// True while the job of a connection waits.
    pub(super) fn waits(&self, connection: ConnectionId) -> bool {
        self.waiting.iter().any(|waiting| waiting.connection == connection)
    }

    /// Who waits, those of a higher class first, and whether they asked to wait.
    pub(super) fn waiting_by_class(&self) -> Vec<(ConnectionId, bool)> {
        let mut all: Vec<&Waiting> = self.waiting.iter().collect();
        all.sort_by_cached_key(|waiting| core::cmp::Reverse(self.class_of(&waiting.job)));
        all.into_iter().map(|waiting| (waiting.connection, waiting.patience != Patience::WhileRoomIsMade)).collect()
    }

    /// True while a job is here that didn't ask to wait.
    pub(super) fn somebody_is_unqueued(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.patience == Patience::WhileRoomIsMade)
    }

    /// The job that waits on a connection.
    pub(super) fn waiting_job(&self, connection: ConnectionId) -> Option<Job> {
        self.waiting.iter().find(|waiting| waiting.connection == connection).map(|waiting| waiting.job.clone())
    }

    /// For a job that didn't ask to wait, nobody makes room.
    pub(super) fn refuse_unqueued(&mut self, connection: ConnectionId, actions: &mut Vec<Action>) {
        let Some(job) = self.waiting_job(connection) else { return };
        let reason = match self.plan(&job, core::iter::empty()) {
            Ok(_) => format!("{} jobs wait for room before it", self.waiting.len() - 1),
            Err(no_room) => no_room.unqueued(),
        };
        self.waiting.retain(|waiting| waiting.connection != connection);
        refuse(connection, self.about_job(AuditKind::Refused, &job), format!("{reason}; wait with --queue"), actions);
    }

    /// Gives places to those who wait and now fit, and tells the others what has changed for them.
    pub(super) fn pump(&mut self, actions: &mut Vec<Action>) {
        self.fill(actions);
        self.publish_owners(actions);
    }

    fn fill(&mut self, actions: &mut Vec<Action>) {
        self.stirred = true;
        // Each round takes one out, so there are no more rounds than jobs.
        loop {
            self.put_in_order();
            let (at, outcome) = match self.first_to_leave() {
                Ok(found) => found,
                Err(reasons) => return self.tell_waiting(reasons, actions),
            };
            let Some(waiting) = self.waiting.remove(at) else { return };
            match outcome {
                Ok(plan) => self.seat(plan, waiting.connection, &waiting.job, actions),
                Err(reason) => {
                    let event = self.about_job(AuditKind::Refused, &waiting.job);
                    refuse(waiting.connection, event, reason, actions);
                }
            }
        }
    }

    /// The first in the queue that is to leave it, with its place or refused; else why each of them waits.
    fn first_to_leave(&self) -> Result<(usize, Result<Plan, String>), Vec<String>> {
        let mut reasons = Vec::new();
        for (at, waiting) in self.waiting.iter().enumerate() {
            let ahead = self.waiting.range(..at).map(|waiting| &waiting.job).filter(|job| self.waits_for_room(job));
            let reason = match self.plan(&waiting.job, ahead) {
                Ok(plan) => return Ok((at, Ok(plan))),
                Err(NoRoom::Never(reason)) => return Ok((at, Err(reason))),
                Err(NoRoom::Behind) if waiting.patience == Patience::None => {
                    format!("{at} jobs wait for room before it")
                }
                Err(no_room) if waiting.patience == Patience::None => no_room.unqueued(),
                Err(no_room) => self.making_room_in_words(waiting.connection).unwrap_or_else(|| match no_room {
                    NoRoom::Apart(reason) => {
                        format!("{reason}; an administrator may allow it: gpuquota approve {}", waiting.arrival)
                    }
                    reason => reason.to_string(),
                }),
            };
            if waiting.patience == Patience::None {
                return Ok((at, Err(format!("{reason}; wait with --queue"))));
            }
            reasons.push(reason);
        }
        Err(reasons)
    }

    /// Tells those who wait their position and why, where it has changed.
    fn tell_waiting(&mut self, reasons: Vec<String>, actions: &mut Vec<Action>) {
        // One that doesn't wait unless others make room is told once they do, or it waits for its turn to have them do it.
        let makers = self.makers_of_room();
        let is_told = |waiting: &Waiting| waiting.patience != Patience::WhileRoomIsMade || !makers.is_empty();
        let fresh: Vec<AuditEvent> = (self.waiting.iter().zip(&reasons))
            .filter(|(waiting, _)| waiting.told.is_none() && is_told(waiting))
            .map(|(waiting, reason)| AuditEvent {
                reason: Some(reason.clone()),
                ..self.about_job(AuditKind::Queued, &waiting.job)
            })
            .collect();
        fresh.into_iter().for_each(|event| note(event, actions));
        for (position, (waiting, reason)) in self.waiting.iter_mut().zip(reasons).enumerate() {
            let told = (position as u32, reason);
            if is_told(waiting) && waiting.told.as_ref() != Some(&told) {
                let (position, reason) = told.clone();
                actions.push(Action::Reply(waiting.connection, Reply::Waiting { position, reason }));
                waiting.told = Some(told);
            }
        }
    }

    /// What has to be granted to the job on each device that it may get, whether it fits or not.
    pub(super) fn wants_of_job(&self, job: &Job, whose: Whose) -> Result<Wants, NoRoom> {
        let mut wants = Vec::new();
        for index in &job.devices {
            let ask = job.wish.on(&self.devices[*index]);
            let grant = whose.tenant.and_then(|id| self.tenants[&id].grants[*index]);
            let Some(grant) = grant else {
                let quota = ask.on(&self.devices[*index]);
                let quota =
                    whose.pool.map_or(Ok(quota), |pool| self.as_part(pool, *index, quota, ask.priority.is_some()))?;
                wants.push((*index, quota));
                continue;
            };
            if job.wish.dynamic && !grant.quota.dynamic {
                let name = job.tenant.as_deref().unwrap_or_default();
                return Err(NoRoom::Never(format!(
                    "--oversubscribe: tenant {name} has memory that stays on device {index}; choose another name, or leave it out"
                )));
            }
            match (ask.memory, grant.quota.memory_cap) {
                (Some(asked), Some(cap)) if asked > cap => {
                    let name = job.tenant.as_deref().unwrap_or_default();
                    return Err(NoRoom::Never(format!(
                        "{} on device {index} are more than the {} that tenant {name} has there; change that with `gpuquota set {name} --memory {asked}`",
                        asked.human(),
                        cap.human(),
                    )));
                }
                (Some(_), None) => wants.push((*index, Quota { memory_cap: ask.memory, ..grant.quota })),
                _ => {}
            }
        }
        for (_, quota) in &wants {
            check_shares(quota).map_err(NoRoom::Never)?;
        }
        Ok(wants)
    }

    /// Gives the job its place.
    fn seat(&mut self, plan: Plan, connection: ConnectionId, job: &Job, actions: &mut Vec<Action>) {
        let id = plan.whose.tenant.unwrap_or_else(|| {
            let pool = plan.whose.pool.map(|pool| &self.tenants[&pool].name);
            let name = match (&job.tenant, pool) {
                (Some(name), Some(pool)) if name == pool => {
                    self.free_name(&format!("{pool}/{}", stem(&job.command)), false)
                }
                (Some(name), _) => name.clone(),
                (None, _) => self.free_name(&stem(&job.command), false),
            };
            self.make_tenant(name, job.uid, Origin::Job, plan.whose.pool)
        });
        self.grant(id, &plan.wants);
        self.changed.insert(id);
        // Nobody waits for those any more.
        self.begun_for(connection).into_iter().for_each(|id| self.changed.insert(id));
        let tenant = self.tenants.get_mut(&id).expect("it has just got its place");
        tenant.jobs.insert(connection);
        tenant.interrupt.manner = job.on_interrupt.or(tenant.interrupt.manner);
        tenant.interrupt.hears |= job.hears;
        self.settle_in(id, connection, job, &plan.devices);
        let granted = Granted {
            tenant: self.tenants[&id].name.clone(),
            devices: plan.devices.iter().map(|index| self.devices[*index].uuid_text.clone()).collect(),
            has_others: plan.devices.len() < self.devices.len(),
        };
        actions.push(Action::Publish(id));
        self.publish_pool(id, actions);
        let tenant = Some(granted.tenant.clone());
        let event = AuditEvent { tenant, ..self.about_job(AuditKind::Granted, job) };
        let on_its_devices = self.tenants[&id].granted().filter(|(device, _)| plan.devices.contains(device));
        self.note_granted(event, on_its_devices, actions);
        actions.push(Action::Reply(connection, Reply::Granted(granted)));
    }
}

/// A guarantee above the cap would promise what is then withheld.
pub(super) fn check_shares(quota: &Quota) -> Result<(), String> {
    match (quota.guarantee, quota.compute_cap) {
        (Some(guarantee), Some(cap)) if guarantee > cap => {
            Err(format!("a guarantee of {guarantee} is above the compute cap of {cap}"))
        }
        _ => Ok(()),
    }
}

/// Says no, and has it written down as `event`.
pub(super) fn refuse(connection: ConnectionId, event: AuditEvent, reason: String, actions: &mut Vec<Action>) {
    note(AuditEvent { reason: Some(reason.clone()), ..event }, actions);
    actions.push(Action::Reply(connection, Reply::Refused { reason }));
}

/// The first word of the command, as a name.
fn stem(command: &str) -> String {
    let word = command.split_whitespace().next().unwrap_or_default();
    let word = word.rsplit('/').next().unwrap_or_default();
    let legal: String =
        word.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')).take(32).collect();
    if legal.is_empty() { "job".to_owned() } else { legal }
}
