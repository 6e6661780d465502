//! Jobs that have to make room: told, given a grace, then paused, checkpointed or ended; and back again.
//!
//! One state machine for all reasons. What asks for it is a job of a higher class that doesn't fit (`room` says whom it may
//! interrupt, `victims` chooses) or an administrator; `step` moves it on as time passes. An interrupted tenant keeps its grants. What
//! it doesn't use of them meanwhile is *lent*, to jobs of a higher class and to nobody else: it comes back by itself when
//! they are gone.

mod hands;
mod record;
mod room;
mod step;
mod victims;

use super::events::note;
use super::{Action, ConnectionId, Origin, Registry, Tenant, TenantId};
use quota_core::Bytes;
use quota_wire::audit::{AuditEvent, AuditKind};
use quota_wire::message::Reply;
use quota_wire::notice::{
    Action as Manner, Event, GRACE_FORM, GRACE_MS_DEFAULT, GRACE_MS_MAX, JobNotice, Notice, Reason,
};
use serde::{Deserialize, Serialize};

pub use hands::Move;
pub use record::InterruptionRecord;

/// How long the driver may take to move a job's memory to the host, or back.
const MOVE_MS_MAX: u64 = 60_000;
/// How long a job that is ended has between the signal that asks and the one that doesn't.
pub(super) const END_MS_MAX: u64 = 10_000;
/// Time after which a lowered quota binds every process: what was admitted before has been charged then.
const SETTLE_MS: u64 = 50;
/// How often it is looked whether somebody has given back what it has borrowed.
pub(super) const RECLAIM_LOOK_MS: u64 = 100;
/// How long a job that is paused may still free memory before the one that waits for it gives up.
const FREE_MS_MAX: u64 = 2_000;
/// How long a job that is killed may be about to end, for the one that waits for its place.
const DEATH_MS_MAX: u64 = 30_000;
/// Pause before a job's memory is brought back again that couldn't be.
const RESTORE_PAUSE_MS: u64 = 5_000;
/// How long what an earlier daemon began is left as it is: who wanted it comes back and asks again.
const EARLIER_MS_MAX: u64 = 10_000;

/// What the document says of interruptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterruptRules {
    /// A job of a higher class may have those of a lower one make room. Only where the document says so.
    pub preemption: bool,
    /// Time between notice and action.
    pub grace_ms: u64,
    /// What follows, of jobs that are to give back what they have borrowed, and don't say.
    pub reclaim: Manner,
    /// What follows, of jobs that don't say.
    pub manner: Manner,
}

impl Default for InterruptRules {
    fn default() -> Self {
        Self { preemption: false, grace_ms: GRACE_MS_DEFAULT, reclaim: Manner::Checkpoint, manner: Manner::Pause }
    }
}

/// What is known of a tenant for when it has to make room.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Interruptible {
    /// What is to follow, where its jobs say.
    pub(super) manner: Option<Manner>,
    /// Its jobs hear of a notice, by a signal or a command.
    pub(super) hears: bool,
    /// Number of the last notice.
    notices: u32,
    /// It was interrupted in vain, or an administrator has resumed it: nobody interrupts it for a job again.
    spared: bool,
    /// What its processes were told last: with the number, the notice.
    told: Option<(Event, Reason, Manner, u32)>,
    pub(super) now: Option<Interruption>,
}

/// An interruption under way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Interruption {
    reason: Reason,
    manner: Manner,
    grace_ms: u64,
    /// What is left of the grace for the one who waits, when that one was told.
    #[serde(skip)]
    left_ms: u64,
    #[serde(skip)]
    cause: Cause,
    /// The cause in words.
    cause_text: String,
    stage: Stage,
    /// The driver was asked to take its memory: whatever it answered, it is asked to bring it back.
    #[serde(default)]
    was_moved: bool,
    /// Not tried to be ended before.
    #[serde(default)]
    not_before_ms: u64,
    /// When it is looked whether it has freed more, while somebody waits for that.
    #[serde(skip)]
    look_again_ms: Option<u64>,
    /// It used no more than its own when that was looked at last.
    #[serde(skip)]
    is_down: bool,
    /// By device, what is expected to become free.
    #[serde(skip)]
    expects: Vec<u64>,
    /// Who moves its memory, while somebody does.
    #[serde(skip)]
    hand: hands::Hand,
    /// Why its memory could not be moved, the last time.
    #[serde(default)]
    trouble: Option<String>,
    /// By device, the memory that it keeps; none where it keeps its quota.
    #[serde(skip)]
    keeps: Vec<Option<Bytes>>,
}

/// Who wants it to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Cause {
    /// A job, for as long as it waits on this connection.
    Job(ConnectionId),
    /// An administrator, until told otherwise.
    Administrator,
    /// Somebody at an earlier daemon; until when that is believed.
    Earlier(Option<u64>),
    /// Nobody any more: it ends as soon as there is room.
    #[default]
    Nobody,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Stage {
    /// The grace runs.
    Noticed { until_ms: u64 },
    /// The driver is to take its memory to the host.
    Parking { until_ms: u64 },
    /// Its quota is lowered to what it uses: no time is set yet, or until when it is watched.
    Settling { until_ms: Option<u64>, parked: bool },
    /// Interrupted; what it doesn't use is lent.
    Settled { since_ms: u64, parked: bool },
    /// Its memory is to come back.
    Restoring { until_ms: u64 },
    /// It has been asked to end.
    Ending { kill_at_ms: u64, killed: bool },
}

impl Tenant {
    /// True while an interruption withholds its compute. One that is to end may need it to save its state.
    pub(super) fn is_interrupted(&self) -> bool {
        let withholds = |stage| !matches!(stage, Stage::Noticed { .. } | Stage::Ending { .. });
        self.interrupt.now.as_ref().is_some_and(|now| withholds(now.stage))
    }

    /// What becomes free of its memory on a device when it ends, or yields what is expected of it.
    pub(super) fn may_free(&self, device: usize) -> Option<u64> {
        let cap = self.grants[device]?.quota.memory_cap?.0;
        let now = self.interrupt.now.as_ref();
        let expected = now.filter(|_| !self.lends()).and_then(|now| now.expects.get(device).copied());
        Some(expected.unwrap_or_else(|| self.keeps(device).map_or(cap, |keeps| keeps.0.min(cap))))
    }

    /// What an interruption leaves it of its memory on a device.
    pub(super) fn keeps(&self, device: usize) -> Option<Bytes> {
        let now = self.interrupt.now.as_ref()?;
        let lowered = matches!(now.stage, Stage::Settling { .. } | Stage::Settled { .. });
        now.keeps.get(device).copied().flatten().filter(|_| lowered)
    }

    /// True while others may have what it doesn't use.
    pub(super) fn lends(&self) -> bool {
        self.interrupt.now.as_ref().is_some_and(|now| matches!(now.stage, Stage::Settled { .. }))
    }

    /// True while it is to give back what it has borrowed.
    pub(super) fn gives_back(&self) -> bool {
        self.interrupt.now.as_ref().is_some_and(|now| now.reason == Reason::Reclaimed)
    }

    /// Whether it uses no more than its own, for the second time; the next look is at `again_ms`.
    pub(super) fn is_still_down(&mut self, is_down: bool, now_ms: u64, again_ms: u64) -> bool {
        let Some(now) = self.interrupt.now.as_mut().filter(|now| matches!(now.stage, Stage::Noticed { .. })) else {
            return false;
        };
        let is_due = now.look_again_ms.is_none_or(|at_ms| at_ms <= now_ms);
        if !is_due {
            return false;
        }
        now.look_again_ms = Some(again_ms);
        core::mem::replace(&mut now.is_down, is_down) && is_down
    }

    /// Its state, and why, for people; none while nobody interrupts it.
    pub(super) fn interruption_in_words(&self) -> Option<(&'static str, String)> {
        let now = self.interrupt.now.as_ref()?;
        let state = match now.stage {
            Stage::Noticed { .. } => "notified",
            Stage::Parking { .. } | Stage::Settling { parked: false, .. } | Stage::Settled { parked: false, .. } => {
                "interrupted"
            }
            Stage::Settling { .. } | Stage::Settled { .. } | Stage::Restoring { .. } => "checkpointed",
            Stage::Ending { .. } => "ending",
        };
        let trouble =
            now.trouble.as_ref().map_or_else(String::new, |reason| format!("; its memory can't be moved: {reason}"));
        Some((state, format!("{}, for {}{trouble}", now.reason.word(), now.cause_text)))
    }

    /// Somebody of it hears of a notice.
    pub(super) fn hears(&self) -> bool {
        self.interrupt.hears || self.members.values().any(|member| member.listens)
    }

    /// Everybody who hears of the notice by a callback has said that it is ready.
    fn is_ready(&self) -> bool {
        let is_ready = |ready: u32| ready == self.interrupt.notices;
        let members = || self.members.values();
        members().any(|member| is_ready(member.ready))
            && members().filter(|member| member.listens).all(|member| is_ready(member.ready))
    }
}

impl Registry {
    /// What a tenant's processes are told on its page.
    pub fn notice(&self, id: TenantId) -> Option<Notice> {
        let of = &self.tenants.get(&id)?.interrupt;
        let (event, reason, action, grace_ms) = of.told?;
        Some(Notice { number: of.notices, event, reason, action, grace_ms })
    }

    /// Has a tenant make room for an administrator.
    ///
    /// # Errors
    /// One line that says why not.
    pub fn interrupt(
        &mut self,
        name: &str,
        grace_ms: Option<u64>,
        manner: Option<Manner>,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) -> Result<String, String> {
        let id = self.find(name).map(|_| self.tenant_named(name).expect("just found"))?;
        let tenant = &self.tenants[&id];
        if let Some((state, why)) = tenant.interruption_in_words() {
            return Err(format!("tenant {name}: it is {state} already ({why})"));
        }
        if !tenant.is_active() {
            return Err(format!("tenant {name}: nothing of it runs"));
        }
        let grace_ms = grace_ms.unwrap_or(self.interrupts.grace_ms);
        if grace_ms > GRACE_MS_MAX {
            return Err(format!("grace: it is out of range; expected {GRACE_FORM}"));
        }
        let manner = manner.or(tenant.interrupt.manner).unwrap_or(self.interrupts.manner);
        let begun = Begin { reason: Reason::Asked, manner, grace_ms, cause: Cause::Administrator, expects: Vec::new() };
        self.begin(id, begun, "an administrator".to_owned(), now_ms, actions);
        let seconds = grace_ms as f64 / 1000.0;
        Ok(format!("tenant {name}: told; in {seconds} s: {manner}; gpuquota resume {name} takes it back"))
    }

    /// Ends a tenant's interruption and its pause, as soon as there is room.
    ///
    /// # Errors
    /// One line with those that there are, when there is no such tenant.
    pub fn resume(&mut self, name: &str, actions: &mut Vec<Action>) -> Result<String, String> {
        let interrupted = self.tenant_named(name).filter(|id| self.tenants[id].interrupt.now.is_some());
        let Some(id) = interrupted else { return self.pause(name, false, actions) };
        let tenant = self.tenants.get_mut(&id).expect("just found");
        tenant.paused = false;
        tenant.interrupt.spared = true;
        if let Some(now) = &mut tenant.interrupt.now {
            if matches!(now.stage, Stage::Ending { .. }) {
                return Err(format!("tenant {name}: it is being ended"));
            }
            (now.cause, now.not_before_ms) = (Cause::Nobody, 0);
        }
        self.changed.insert(id);
        self.stirred = true;
        let message = format!("tenant {name}: goes on as soon as there is room for it");
        note(self.about_change(id, "resume", &message), actions);
        Ok(message)
    }

    /// A member wants to hear of notices, or no more.
    pub fn listen(&mut self, connection: ConnectionId, listens: bool) {
        let Some((id, member)) = self.member_mut(connection) else { return };
        member.listens = listens;
        self.changed.insert(id);
        self.stirred = true;
    }

    /// A member has done what it wanted to.
    pub fn ready(&mut self, connection: ConnectionId, notice: u32) {
        let Some((_, member)) = self.member_mut(connection) else { return };
        member.ready = notice;
        self.stirred = true;
    }

    fn member_mut(&mut self, connection: ConnectionId) -> Option<(TenantId, &mut super::Member)> {
        self.tenants.iter_mut().find_map(|(id, tenant)| Some((*id, tenant.members.get_mut(&connection)?)))
    }

    /// Who runs a job of an earlier daemon is here: from now on this connection stands for it.
    ///
    /// # Errors
    /// When `before` is no job of that tenant; one line.
    pub fn returned(
        &mut self,
        before: ConnectionId,
        connection: ConnectionId,
        name: &str,
        actions: &mut Vec<Action>,
    ) -> Result<(), String> {
        let id = self.tenant_named(name).ok_or_else(|| format!("there is no tenant {name:?}"))?;
        let tenant = self.tenants.get_mut(&id).expect("just found");
        if !tenant.jobs.remove(&before) {
            return Err(format!("tenant {name}: this is no job of it"));
        }
        tenant.jobs.insert(connection);
        tenant.apart.moved(before, connection);
        let event = tenant.told_on_return(before, connection);
        if let Some(event) = event {
            actions.extend(tenant.job_notice(event).map(|notice| Action::Reply(connection, Reply::Notice(notice))));
        }
        self.changed.insert(id);
        Ok(())
    }

    /// Has a tenant give back what it has borrowed.
    pub(super) fn begin_reclaim(&mut self, id: TenantId, now_ms: u64, actions: &mut Vec<Action>) {
        let said = self.tenants[&id].interrupt.manner.filter(|manner| *manner != Manner::Pause);
        let manner = said.unwrap_or(self.interrupts.reclaim);
        let (grace_ms, expects) = (self.interrupts.grace_ms, Vec::new());
        let begun = Begin { reason: Reason::Reclaimed, manner, grace_ms, cause: Cause::Nobody, expects };
        self.begin(id, begun, "the owner of what it has borrowed".to_owned(), now_ms, actions);
        if let Some(now) = self.tenants.get_mut(&id).and_then(|tenant| tenant.interrupt.now.as_mut()) {
            now.look_again_ms = Some(now_ms + RECLAIM_LOOK_MS);
        }
    }

    /// Tells a tenant that it has to make room.
    fn begin(&mut self, id: TenantId, begin: Begin, cause_text: String, now_ms: u64, actions: &mut Vec<Action>) {
        let Begin { reason, manner, grace_ms, cause, expects } = begin;
        let why = format!("{}, for {cause_text}: {manner} in {grace_ms} ms", reason.word());
        let change = (cause == Cause::Administrator).then(|| "interrupt".to_owned());
        let event = self.about_tenant(AuditKind::Interrupted, id);
        note(AuditEvent { reason: Some(why), change, ..event }, actions);
        let tenant = self.tenants.get_mut(&id).expect("the caller has found it");
        let stage = Stage::Noticed { until_ms: now_ms.saturating_add(grace_ms) };
        let (not_before_ms, look_again_ms, keeps) = (0, None, Vec::new());
        tenant.interrupt.now = Some(Interruption {
            reason,
            manner,
            grace_ms,
            left_ms: grace_ms,
            cause,
            cause_text,
            stage,
            was_moved: false,
            is_down: false,
            not_before_ms,
            look_again_ms,
            expects,
            hand: hands::Hand::Nobody,
            trouble: None,
            keeps,
        });
        self.tell(id, Event::Notice, actions);
    }

    /// Tells a tenant's processes and jobs where the matter stands.
    fn tell(&mut self, id: TenantId, event: Event, actions: &mut Vec<Action>) {
        let tenant = self.tenants.get_mut(&id).expect("the caller has found it");
        let Some(now) = &tenant.interrupt.now else { return };
        // To the processes, whatever is done about it is the interruption.
        let shown = if matches!(event, Event::Notice | Event::Resumed) { event } else { Event::Interrupted };
        let grace_ms = u32::try_from(now.grace_ms).unwrap_or(u32::MAX);
        tenant.interrupt.told = Some((shown, now.reason, now.manner, grace_ms));
        tenant.interrupt.notices = tenant.interrupt.notices.wrapping_add(1).max(1);
        actions.push(Action::Publish(id));
        if matches!(event, Event::Checkpoint | Event::Restore) {
            if let Some(now) = &mut tenant.interrupt.now {
                now.hand = hands::Hand::Nobody;
            }
            self.hand_over(id, actions);
        } else if let Some(notice) = tenant.job_notice(event) {
            actions.extend(tenant.jobs.iter().map(|job| Action::Reply(*job, Reply::Notice(notice.clone()))));
        }
        self.changed.insert(id);
        self.stirred = true;
    }

    /// Everything is as it was.
    fn finish(&mut self, id: TenantId, actions: &mut Vec<Action>) {
        self.tell(id, Event::Resumed, actions);
        let tenant = self.tenants.get_mut(&id).expect("the caller has found it");
        tenant.interrupt.now = None;
        let event = self.about_tenant(AuditKind::Resumed, id);
        note(AuditEvent { reason: Some("goes on".to_owned()), ..event }, actions);
    }
}

/// What an interruption begins with.
struct Begin {
    reason: Reason,
    manner: Manner,
    grace_ms: u64,
    cause: Cause,
    expects: Vec<u64>,
}

impl Tenant {
    fn job_notice(&self, event: Event) -> Option<JobNotice> {
        let now = self.interrupt.now.as_ref()?;
        let grace_ms = match (event, now.stage) {
            (Event::End, Stage::Ending { killed: false, .. }) => END_MS_MAX,
            (Event::End, _) => 0,
            _ => now.grace_ms,
        };
        let names = matches!(event, Event::Checkpoint | Event::Restore | Event::End);
        let pids = self.members.values().filter(|_| names).map(|member| member.peer.pid).collect();
        Some(JobNotice {
            number: self.interrupt.notices,
            event,
            reason: now.reason,
            action: now.manner,
            grace_ms,
            cause: now.cause_text.clone(),
            pids,
        })
    }

    fn came_by_itself(&self) -> bool {
        matches!(self.origin, Origin::Job | Origin::Hello { .. })
    }
}
