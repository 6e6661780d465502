//! Jobs that want a place: admitted, refused, or waiting in order of arrival.
//!
//! A job that waits is passed only by jobs for which it won't start later, whichever of the running ones end (`backfill`), so
//! that small jobs can't keep a large one waiting for ever.

use super::admission::NoRoom;
use super::job::Job;
use super::{Action, ConnectionId, Origin, Registry, TENANTS_MAX, TenantId, WAITING_MAX};
use crate::peer::Peer;
use quota_wire::message::{Admit, Granted, QueueLimit, Reply};
use quota_wire::page::Quota;
use std::collections::{BTreeSet, VecDeque};

/// A job in the queue.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Waiting {
    pub(super) connection: ConnectionId,
    job: Job,
    deadline_ms: Option<u64>,
    /// It waits only while others make room for it.
    unqueued: bool,
    /// Position and reason, as last told.
    told: Option<(u32, String)>,
}

impl Waiting {
    /// When its wait is over. For whom others make room, that is waited for.
    fn deadline_besides(&self, makers: &BTreeSet<ConnectionId>) -> Option<u64> {
        self.deadline_ms.filter(|_| !makers.contains(&self.connection))
    }
}

/// What is to be granted, by the number of the device.
pub(super) type Wants = Vec<(usize, Quota)>;

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
        let known = self.waiting.iter().any(|waiting| waiting.connection == connection)
            || self.tenants.values().any(|tenant| tenant.jobs.contains(&connection));
        if known {
            return refuse(connection, "a connection is for one job".to_owned(), actions);
        }
        let job = match self.job(peer, admit) {
            Ok(job) => job,
            Err(reason) => return refuse(connection, reason, actions),
        };
        let placed = match self.plan(&job) {
            Ok(plan) if !self.delays_nobody(&job, &plan, self.waiting.iter().map(|waiting| &waiting.job)) => {
                Err(NoRoom::NotNow(format!("{} jobs wait for room before it", self.waiting.len())))
            }
            Ok(_) => self.place(&job),
            Err(no_room) => Err(no_room),
        };
        match (placed, admit.queue) {
            (Ok(tenant), _) => self.seat(tenant, connection, &job, actions),
            (Err(NoRoom::NotNow(_)), Some(_)) if self.waiting.len() >= WAITING_MAX => {
                refuse(connection, format!("{WAITING_MAX} jobs wait already"), actions);
            }
            (Err(NoRoom::NotNow(_)), limit)
                if limit.is_some() || self.waiting.len() < WAITING_MAX && self.may_interrupt(&job) =>
            {
                let deadline_ms = match limit {
                    None | Some(QueueLimit::Forever) => None,
                    Some(QueueLimit::Milliseconds(patience)) => Some(now_ms.saturating_add(patience)),
                };
                self.waiting.push_back(Waiting { connection, job, deadline_ms, unqueued: limit.is_none(), told: None });
                self.pump(actions);
            }
            (Err(NoRoom::NotNow(reason)), _) => refuse(connection, format!("{reason}; wait with --queue"), actions),
            (Err(NoRoom::Never(reason)), _) => refuse(connection, reason, actions),
        }
    }

    /// Refuses what has waited for too long.
    pub fn tick(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let makers = self.makers_of_room();
        let expired = |it: &Waiting| it.deadline_besides(&makers).is_some_and(|deadline_ms| deadline_ms <= now_ms);
        let (gone, left) = self.waiting.drain(..).partition::<Vec<_>, _>(expired);
        self.waiting = left.into();
        for waiting in gone {
            let reason = waiting.told.map_or_else(String::new, |(_, reason)| format!(": {reason}"));
            refuse(waiting.connection, format!("the wait for room is over{reason}"), actions);
        }
        self.pump(actions);
    }

    /// Jobs that wait for room on a device.
    pub(super) fn waiting_on(&self, device: usize) -> u32 {
        self.waiting.iter().filter(|waiting| waiting.job.devices.contains(&device)).count() as u32
    }

    /// When [`Registry::tick`] has something to do.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let makers = self.makers_of_room();
        let ends = self.waiting.iter().filter_map(|waiting| waiting.deadline_besides(&makers)).min();
        [ends, self.next_interruption_ms()].into_iter().flatten().min()
    }

    /// True while the job of a connection waits.
    pub(super) fn waits(&self, connection: ConnectionId) -> bool {
        self.waiting.iter().any(|waiting| waiting.connection == connection)
    }

    /// Who waits, those of a higher class first, and whether they asked to wait.
    pub(super) fn waiting_by_class(&self) -> Vec<(ConnectionId, bool)> {
        let mut all: Vec<&Waiting> = self.waiting.iter().collect();
        all.sort_by_key(|waiting| core::cmp::Reverse(waiting.job.wish.priority.unwrap_or_default()));
        all.into_iter().map(|waiting| (waiting.connection, !waiting.unqueued)).collect()
    }

    /// True while a job is here that didn't ask to wait.
    pub(super) fn somebody_is_unqueued(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.unqueued)
    }

    /// The job that waits on a connection.
    pub(super) fn waiting_job(&self, connection: ConnectionId) -> Option<Job> {
        self.waiting.iter().find(|waiting| waiting.connection == connection).map(|waiting| waiting.job.clone())
    }

    /// For a job that didn't ask to wait, nobody makes room.
    pub(super) fn refuse_unqueued(&mut self, connection: ConnectionId, actions: &mut Vec<Action>) {
        let Some(job) = self.waiting_job(connection) else { return };
        let reason = match self.plan(&job) {
            Ok(_) => format!("{} jobs wait for room before it", self.waiting.len() - 1),
            Err(no_room) => no_room.to_string(),
        };
        self.waiting.retain(|waiting| waiting.connection != connection);
        refuse(connection, format!("{reason}; wait with --queue"), actions);
    }

    /// Gives places to those who wait and now fit, and tells the others what has changed for them.
    pub(super) fn pump(&mut self, actions: &mut Vec<Action>) {
        let mut left: VecDeque<Waiting> = VecDeque::new();
        self.stirred = true;
        let makers = self.makers_of_room();
        // What others make room for is for whom they make it.
        let (first, then): (Vec<_>, Vec<_>) =
            self.waiting.drain(..).partition(|waiting| makers.contains(&waiting.connection));
        for mut waiting in first.into_iter().chain(then) {
            let placed = match self.plan(&waiting.job) {
                Ok(plan) if !self.delays_nobody(&waiting.job, &plan, left.iter().map(|waiting| &waiting.job)) => {
                    Ok(None)
                }
                Ok(_) => self.place(&waiting.job).map(Some),
                Err(no_room) => Err(no_room),
            };
            let reason = match placed {
                Ok(Some(tenant)) => {
                    self.seat(tenant, waiting.connection, &waiting.job, actions);
                    continue;
                }
                Err(NoRoom::Never(reason)) => {
                    refuse(waiting.connection, reason, actions);
                    continue;
                }
                Ok(None) => "those before it".to_owned(),
                Err(NoRoom::NotNow(reason)) => self.making_room_in_words(waiting.connection).unwrap_or(reason),
            };
            let told = (left.len() as u32, reason);
            // One that doesn't wait unless others make room is told once they do, or it waits for its turn to have them do it.
            let is_told = !waiting.unqueued || !makers.is_empty();
            if is_told && waiting.told.as_ref() != Some(&told) {
                let (position, reason) = told.clone();
                actions.push(Action::Reply(waiting.connection, Reply::Waiting { position, reason }));
                waiting.told = Some(told);
            }
            left.push_back(waiting);
        }
        self.waiting = left;
    }

    /// Gives the job its place, when there is one.
    fn place(&mut self, job: &Job) -> Result<TenantId, NoRoom> {
        let (tenant, wants) = self.plan(job)?;
        let tenant = tenant.unwrap_or_else(|| {
            let name = job.tenant.clone().unwrap_or_else(|| self.free_name(&stem(&job.command), false));
            self.make_tenant(name, job.uid, Origin::Job)
        });
        self.grant(tenant, &wants);
        Ok(tenant)
    }

    /// The job's tenant and what it wants, when it fits now.
    pub(super) fn plan(&self, job: &Job) -> Result<(Option<TenantId>, Wants), NoRoom> {
        let (tenant, wants) = self.wants_of_job(job)?;
        self.fits(&self.needs(tenant, &job.devices, &wants), tenant, true)?;
        Ok((tenant, wants))
    }

    /// The job's tenant, when there is one already, and what it has to be granted, whether it fits or not.
    pub(super) fn wants_of_job(&self, job: &Job) -> Result<(Option<TenantId>, Wants), NoRoom> {
        let tenant = job.tenant.as_deref().and_then(|name| self.tenant_named(name));
        if tenant.is_none() && self.tenants.len() >= TENANTS_MAX {
            return Err(NoRoom::NotNow(format!("there are {TENANTS_MAX} tenants already")));
        }
        let mut wants = Vec::new();
        for index in &job.devices {
            let ask = job.wish.on(&self.devices[*index]);
            let grant = tenant.and_then(|id| self.tenants[&id].grants[*index]);
            let Some(grant) = grant else {
                wants.push((*index, ask.on(&self.devices[*index])));
                continue;
            };
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
        if let Some(id) = tenant {
            self.tenants[&id].check_user(job.uid, &job.cgroup).map_err(NoRoom::Never)?;
        }
        Ok((tenant, wants))
    }

    fn seat(&mut self, id: TenantId, connection: ConnectionId, job: &Job, actions: &mut Vec<Action>) {
        self.changed.insert(id);
        // Nobody waits for those any more.
        self.changed.extend(self.begun_for(connection));
        let tenant = self.tenants.get_mut(&id).expect("it has just got its place");
        tenant.jobs.insert(connection);
        tenant.interrupt.manner = job.on_interrupt.or(tenant.interrupt.manner);
        tenant.interrupt.hears |= job.hears;
        let granted = Granted {
            tenant: tenant.name.clone(),
            devices: job.devices.iter().map(|index| self.devices[*index].uuid_text.clone()).collect(),
        };
        let memory = job.wish.memory.map_or_else(|| "no memory quota asked for".to_owned(), |size| size.to_string());
        actions.push(Action::Publish(id));
        actions.push(Action::Note(format!(
            "tenant {}: admitted for user {}: {memory}, {} devices: {}",
            granted.tenant,
            job.uid,
            granted.devices.len(),
            job.command
        )));
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

fn refuse(connection: ConnectionId, reason: String, actions: &mut Vec<Action>) {
    actions.push(Action::Note(format!("refused: {reason}")));
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
