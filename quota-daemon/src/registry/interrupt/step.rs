//! Interruptions as time passes: begun for those who wait, carried out when the grace is over, ended when there is room.

use super::{
    Begin, Cause, DEATH_MS_MAX, EARLIER_MS_MAX, END_MS_MAX, FREE_MS_MAX, MOVE_MS_MAX, RESTORE_PAUSE_MS, SETTLE_MS,
    Stage,
};
use crate::registry::events::note;
use crate::registry::job::Job;
use crate::registry::pools::Whose;
use crate::registry::rows::Usage;
use crate::registry::{Action, ConnectionId, Registry, Tenant, TenantId};
use quota_core::{Bytes, Priority};
use quota_wire::audit::{AuditEvent, AuditKind};
use quota_wire::notice::{Action as Manner, Event, Reason};
use quota_wire::page::Quota;
use std::collections::BTreeSet;

impl Registry {
    /// Moves all interruptions on, and begins those that are needed. To be called whenever [`Registry::next_deadline_ms`] is
    /// due, after [`Registry::tick`].
    pub fn step_interruptions(&mut self, now_ms: u64, usage: &dyn Usage, actions: &mut Vec<Action>) {
        if !self.stirred && self.next_interruption_ms().is_none_or(|due_ms| due_ms > now_ms) {
            return;
        }
        for id in self.interrupted() {
            self.advance(id, now_ms, usage, actions);
        }
        self.reclaim(now_ms, usage, actions);
        self.pump(actions);
        for id in self.interrupted() {
            self.let_go(id, now_ms, actions);
        }
        self.make_room(now_ms, usage, actions);
        self.stirred = self.has_to_reclaim();
    }

    /// When there is something to do for [`Registry::step_interruptions`].
    pub(in crate::registry) fn next_interruption_ms(&self) -> Option<u64> {
        let has_to_do = |it: &Tenant| it.interrupt.now.is_some() || it.is_borrower();
        let is_any = || self.tenants.values().any(has_to_do);
        if self.stirred && (self.interrupts.preemption || self.somebody_is_unqueued() || is_any()) {
            return Some(0);
        }
        let due = |tenant: &Tenant| {
            let now = tenant.interrupt.now.as_ref()?;
            let is_waited_for = matches!(now.cause, Cause::Job(job) if self.waits(job));
            let stage_ms = match now.stage {
                // It may have given back what it is to.
                Stage::Noticed { until_ms } if tenant.gives_back() => {
                    Some(now.look_again_ms.map_or(until_ms, |at_ms| at_ms.min(until_ms)))
                }
                Stage::Noticed { until_ms } | Stage::Parking { until_ms } | Stage::Restoring { until_ms } => {
                    Some(until_ms)
                }
                Stage::Settling { until_ms, .. } => Some(until_ms.unwrap_or(0)),
                // While somebody waits for what it may still free; else when it may be tried again.
                Stage::Settled { .. } if is_waited_for => now.look_again_ms,
                Stage::Settled { .. } => Some(now.not_before_ms).filter(|at_ms| *at_ms > 0),
                Stage::Ending { kill_at_ms, killed: false } => Some(kill_at_ms),
                Stage::Ending { kill_at_ms, .. } => Some(kill_at_ms + DEATH_MS_MAX).filter(|_| is_waited_for),
            };
            let believed_ms = match now.cause {
                Cause::Earlier(until_ms) => Some(until_ms.unwrap_or(0)),
                _ => None,
            };
            [stage_ms, believed_ms].into_iter().flatten().min()
        };
        self.tenants.values().filter_map(due).min()
    }

    fn interrupted(&self) -> Vec<TenantId> {
        let of = self.tenants.iter().filter(|(_, tenant)| tenant.interrupt.now.is_some());
        let mut all: Vec<TenantId> = of.map(|(id, _)| *id).collect();
        // Those of a higher class come back first; of one class, those who came first.
        all.sort_by_key(|id| (core::cmp::Reverse(self.tenants[id].class()), *id));
        all
    }

    fn set_stage(&mut self, id: TenantId, stage: Stage) {
        self.changed.insert(id);
        if let Some(now) = self.tenants.get_mut(&id).and_then(|tenant| tenant.interrupt.now.as_mut()) {
            now.stage = stage;
        }
    }

    /// One interruption, as far as it goes by now.
    fn advance(&mut self, id: TenantId, now_ms: u64, usage: &dyn Usage, actions: &mut Vec<Action>) {
        let tenant = &self.tenants[&id];
        let Some(now) = &tenant.interrupt.now else { return };
        match now.stage {
            Stage::Noticed { until_ms } if until_ms <= now_ms || tenant.is_ready() => self.act(id, now_ms, actions),
            Stage::Parking { until_ms } if until_ms <= now_ms => {
                let name = &tenant.name;
                actions.push(Action::Note(format!("tenant {name}: a checkpoint takes too long; it is paused instead")));
                self.set_stage(id, Stage::Settling { until_ms: None, parked: false });
            }
            Stage::Restoring { until_ms } if until_ms <= now_ms => {
                self.set_stage(id, Stage::Settling { until_ms: None, parked: true });
                if let Some(now) = self.tenants.get_mut(&id).and_then(|tenant| tenant.interrupt.now.as_mut()) {
                    now.not_before_ms = now_ms + RESTORE_PAUSE_MS;
                }
            }
            Stage::Ending { kill_at_ms, killed: false } if kill_at_ms <= now_ms => {
                actions.push(Action::Note(format!("tenant {}: doesn't end; is killed", tenant.name)));
                self.set_stage(id, Stage::Ending { kill_at_ms, killed: true });
                self.end(id, true, actions);
            }
            Stage::Settled { parked: false, .. } if self.may_free_more(id, usage) => {
                self.set_stage(id, Stage::Settling { until_ms: None, parked: false });
            }
            // Its memory could not be moved.
            Stage::Settled { parked: false, .. } if tenant.gives_back() && self.is_to_give_back(id) => {
                self.set_stage(id, Stage::Ending { kill_at_ms: now_ms + END_MS_MAX, killed: false });
                self.end(id, false, actions);
            }
            Stage::Settled { since_ms, parked } => {
                let last_ms = since_ms + FREE_MS_MAX;
                let again_ms = (!parked && now_ms < last_ms).then(|| (now_ms + SETTLE_MS).min(last_ms));
                if let Some(now) = self.tenants.get_mut(&id).and_then(|tenant| tenant.interrupt.now.as_mut()) {
                    now.look_again_ms = again_ms;
                }
            }
            _ => {}
        }
        // Who was to move its memory may be gone.
        self.hand_over(id, actions);
        let stage = self.tenants[&id].interrupt.now.as_ref().map(|now| now.stage);
        if let Some(Stage::Settling { until_ms, parked }) = stage {
            self.settle(id, until_ms, parked, now_ms, usage, actions);
        }
    }

    /// The grace is over.
    fn act(&mut self, id: TenantId, now_ms: u64, actions: &mut Vec<Action>) {
        let tenant = &self.tenants[&id];
        let manner = match tenant.interrupt.now.as_ref().map(|now| now.manner) {
            // A pause gives nothing back.
            Some(Manner::Checkpoint) if !tenant.can_be_parked() && tenant.gives_back() => Manner::Terminate,
            Some(Manner::Checkpoint) if !tenant.can_be_parked() => Manner::Pause,
            manner => manner.unwrap_or_default(),
        };
        actions.push(Action::Note(format!("tenant {}: the grace is over: {manner}", tenant.name)));
        match manner {
            Manner::Pause => {
                self.set_stage(id, Stage::Settling { until_ms: None, parked: false });
                self.tell(id, Event::Interrupted, actions);
            }
            Manner::Checkpoint => {
                self.set_stage(id, Stage::Parking { until_ms: now_ms + MOVE_MS_MAX });
                if let Some(now) = self.tenants.get_mut(&id).and_then(|tenant| tenant.interrupt.now.as_mut()) {
                    now.was_moved = true;
                }
                self.tell(id, Event::Checkpoint, actions);
            }
            Manner::Terminate => {
                self.set_stage(id, Stage::Ending { kill_at_ms: now_ms + END_MS_MAX, killed: false });
                self.end(id, false, actions);
            }
        }
    }

    fn end(&mut self, id: TenantId, forced: bool, actions: &mut Vec<Action>) {
        self.tell(id, Event::End, actions);
        let members = self.tenants[&id].members.keys();
        actions.extend(members.map(|member| Action::End { member: *member, forced }));
    }

    /// Lowers the quota to what is used, and sees after a moment what that is: what was admitted before is charged by then.
    fn settle(
        &mut self,
        id: TenantId,
        until_ms: Option<u64>,
        parked: bool,
        now_ms: u64,
        usage: &dyn Usage,
        actions: &mut Vec<Action>,
    ) {
        if until_ms.is_some_and(|until_ms| until_ms > now_ms) {
            return;
        }
        let tenant = &self.tenants[&id];
        // One that hears of nothing can't have freed anything, and may need what it has to go on in the host's part.
        let lowers = parked || tenant.hears();
        let before = tenant.interrupt.now.as_ref().map(|now| now.keeps.clone()).unwrap_or_default();
        let keeps = |device: usize| {
            let used = self.charged(id, device, usage);
            let floor = before.get(device).copied().flatten().filter(|_| until_ms.is_some());
            tenant.grants[device]?
                .quota
                .memory_cap
                .filter(|_| lowers)
                .map(|cap| used.max(floor.unwrap_or(Bytes(0))).min(cap))
        };
        let keeps: Vec<Option<Bytes>> = (0..self.devices.len()).map(keeps).collect();
        let stage = match until_ms {
            None => Stage::Settling { until_ms: Some(now_ms + SETTLE_MS), parked },
            Some(_) => Stage::Settled { since_ms: now_ms, parked },
        };
        if until_ms.is_some() {
            let text = |it: &Option<Bytes>| it.map_or_else(|| "its quota".to_owned(), Bytes::human);
            let kept: Vec<String> = keeps.iter().map(text).collect();
            let reason = Some(format!("is interrupted and keeps {}", kept.join(", ")));
            note(AuditEvent { reason, ..self.about_tenant(AuditKind::Interrupted, id) }, actions);
        }
        if let Some(now) = self.tenants.get_mut(&id).and_then(|tenant| tenant.interrupt.now.as_mut()) {
            (now.keeps, now.look_again_ms) = (keeps, Some(now_ms + SETTLE_MS));
        }
        self.set_stage(id, stage);
        actions.push(Action::Publish(id));
    }

    /// True while somebody waits for more than it has freed by now, and it has freed more since.
    fn may_free_more(&self, id: TenantId, usage: &dyn Usage) -> bool {
        let Some(now) = &self.tenants[&id].interrupt.now else { return false };
        let is_waited_for = matches!(now.cause, Cause::Job(job) if self.waits(job));
        let less = |(device, keeps): (usize, &Option<Bytes>)| {
            keeps.is_some_and(|keeps| self.charged(id, device, usage) < keeps)
        };
        is_waited_for && now.keeps.iter().enumerate().any(less)
    }

    /// Ends an interruption that nobody wants any more: at once when nothing was taken, else when there is room.
    fn let_go(&mut self, id: TenantId, now_ms: u64, actions: &mut Vec<Action>) {
        let Some(now) = self.tenants.get_mut(&id).and_then(|tenant| tenant.interrupt.now.as_mut()) else { return };
        if now.cause == Cause::Earlier(None) {
            now.cause = Cause::Earlier(Some(now_ms + EARLIER_MS_MAX));
        }
        if now.not_before_ms <= now_ms {
            now.not_before_ms = 0;
        }
        let (cause, stage, not_before_ms, was_moved) = (now.cause, now.stage, now.not_before_ms, now.was_moved);
        let is_reclaimed = self.tenants[&id].gives_back();
        let is_wanted = match cause {
            _ if is_reclaimed => self.is_to_give_back(id),
            Cause::Job(job) => self.waits(job),
            Cause::Administrator => true,
            Cause::Earlier(until_ms) => until_ms.is_none_or(|until_ms| now_ms < until_ms),
            Cause::Nobody => false,
        };
        if is_wanted || not_before_ms > now_ms {
            return;
        }
        if let Some(now) = self.tenants.get_mut(&id).and_then(|tenant| tenant.interrupt.now.as_mut()) {
            now.cause = if matches!(cause, Cause::Earlier(_)) { Cause::Nobody } else { cause };
        }
        match stage {
            Stage::Noticed { .. } => self.finish(id, actions),
            Stage::Settling { parked: false, .. } | Stage::Settled { parked: false, .. }
                if !was_moved && self.has_room_again(id) =>
            {
                self.finish(id, actions);
            }
            Stage::Settled { .. } if self.has_room_again(id) => {
                self.set_stage(id, Stage::Restoring { until_ms: now_ms + MOVE_MS_MAX });
                self.tell(id, Event::Restore, actions);
            }
            _ => {}
        }
    }

    /// Whether all that it was granted fits again.
    fn has_room_again(&self, id: TenantId) -> bool {
        let grants = self.tenants[&id].grants.iter().enumerate();
        let wants: Vec<(usize, Quota)> = grants.filter_map(|(index, grant)| Some((index, (*grant)?.quota))).collect();
        self.fits(&wants, Whose { tenant: Some(id), pool: self.tenants[&id].pool }, true).is_ok()
    }

    /// Interrupts whom it takes for those who wait, one for each device at a time, and gives up what is in vain.
    fn make_room(&mut self, now_ms: u64, usage: &dyn Usage, actions: &mut Vec<Action>) {
        let mut busy = BTreeSet::new();
        let nobody_may_be = !self.somebody_may_be_interrupted();
        for (connection, is_queued) in self.waiting_by_class() {
            if is_queued && nobody_may_be {
                continue;
            }
            let Some(job) = self.waiting_job(connection) else { continue };
            let is_free = job.devices.iter().all(|device| !busy.contains(device));
            let begun = self.begun_for(connection);
            let unsettled = begun.iter().any(|id| self.may_still_yield(*id, now_ms));
            if unsettled
                || (is_free
                    && self.plan(&job, core::iter::empty()).is_err()
                    && self.begin_for(connection, now_ms, usage, actions))
            {
                busy.extend(job.devices.iter().copied());
                continue;
            }
            for id in &begun {
                self.spare(*id, now_ms, actions);
            }
            if self.waits_for_borrowers(&job) {
                continue;
            }
            // One that waits its turn to interrupt somebody is not refused for that.
            if !is_queued && is_free {
                self.refuse_unqueued(connection, actions);
            }
        }
        if self.stirred {
            self.pump(actions);
        }
    }

    /// The tenants that are interrupted for a job.
    pub(in crate::registry) fn begun_for(&self, connection: ConnectionId) -> Vec<TenantId> {
        let is_for = |(_, tenant): &(&TenantId, &Tenant)| {
            tenant.interrupt.now.as_ref().is_some_and(|now| now.is_for(connection))
        };
        self.tenants.iter().filter(is_for).map(|(id, _)| *id).collect()
    }

    /// The jobs that wait and have others make room for them.
    pub(in crate::registry) fn makers_of_room(&self) -> BTreeSet<ConnectionId> {
        let cause = |tenant: &Tenant| match tenant.interrupt.now.as_ref()?.cause {
            Cause::Job(job) => Some(job),
            _ => None,
        };
        self.tenants.values().filter_map(cause).filter(|job| self.waits(*job)).collect()
    }

    fn may_still_yield(&self, id: TenantId, now_ms: u64) -> bool {
        let Some(now) = &self.tenants[&id].interrupt.now else { return false };
        match now.stage {
            Stage::Settled { since_ms, parked } => !parked && now_ms < since_ms + FREE_MS_MAX,
            Stage::Ending { kill_at_ms, .. } => now_ms < kill_at_ms + DEATH_MS_MAX,
            _ => true,
        }
    }

    /// Interrupts those whom it takes for a job; false when that doesn't help.
    fn begin_for(
        &mut self,
        connection: ConnectionId,
        now_ms: u64,
        usage: &dyn Usage,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(job) = self.waiting_job(connection).filter(|_| self.interrupts.preemption) else { return false };
        let Some(class) = self.class_in_need(&job) else { return false };
        if self.take_over(connection, &job, class, now_ms, actions) {
            return true;
        }
        let name = job.tenant.clone().unwrap_or_else(|| job.command.clone());
        let Some(victims) = self.victims(&job, usage) else { return false };
        let grace_ms = self.interrupts.grace_ms;
        for id in victims {
            let expects = (0..self.devices.len()).map(|device| self.yields(id, device, usage).memory).collect();
            let manner = self.manner_of(&self.tenants[&id]);
            let cause = Cause::Job(connection);
            let begun = Begin { reason: Reason::Preempted, manner, grace_ms, cause, expects };
            self.begin(id, begun, format!("job {name} of class {class}"), now_ms, actions);
        }
        true
    }

    /// What an earlier daemon began for somebody on these devices goes on for this job.
    fn take_over(
        &mut self,
        connection: ConnectionId,
        job: &Job,
        class: Priority,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) -> bool {
        let mut taken = false;
        for (id, tenant) in &mut self.tenants {
            let is_lower = tenant.class() < class;
            let uses = job.devices.iter().any(|device| tenant.grants[*device].is_some());
            let Some(now) = &mut tenant.interrupt.now else { continue };
            if matches!(now.cause, Cause::Earlier(_)) && uses && is_lower {
                now.cause = Cause::Job(connection);
                if let Stage::Noticed { until_ms } = now.stage {
                    now.left_ms = until_ms.saturating_sub(now_ms);
                }
                self.changed.insert(*id);
                actions.push(Action::Note(format!("tenant {}: is interrupted as before", tenant.name)));
                taken = true;
            }
        }
        taken
    }

    /// It was in vain: it goes on, and is left alone from now on.
    fn spare(&mut self, id: TenantId, now_ms: u64, actions: &mut Vec<Action>) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        actions.push(Action::Note(format!("tenant {}: was interrupted in vain", tenant.name)));
        tenant.interrupt.spared = true;
        if let Some(now) = &mut tenant.interrupt.now {
            now.cause = Cause::Nobody;
        }
        self.changed.insert(id);
        self.let_go(id, now_ms, actions);
    }
}
