//! Who is interrupted for whom, what follows, and the way back.

use super::*;
use quota_wire::notice::{Action as Manner, Event, JobNotice};

/// Jobs make room for others; the grace is ten seconds.
const DOCUMENT: &str = "scheduling: {preemption: true, grace: 10s}\n";

pub(super) fn of_class(class: &str, manner: Option<Manner>, admit: Admit) -> Admit {
    Admit { priority: Some(class.to_owned()), on_interrupt: manner, ..admit }
}

/// A batch job that says what is to follow.
pub(super) fn batch(name: &str, memory: &str, manner: Manner) -> Admit {
    of_class("batch", Some(manner), admit(name, memory))
}

pub(super) fn high(name: &str, memory: &str) -> Admit {
    of_class("high", None, admit(name, memory))
}

impl Node {
    /// What is due by now.
    pub(super) fn step(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..100 {
            if self.registry.next_deadline_ms().is_none_or(|due_ms| due_ms > self.now_ms) {
                return actions;
            }
            self.registry.tick(self.now_ms, &mut actions);
            self.registry.step_interruptions(self.now_ms, &self.charged, &mut actions);
        }
        panic!("there is always something to do: {actions:?}");
    }

    /// The same after some time in which nothing happens but what is due.
    pub(super) fn pass(&mut self, ms: u64) -> Vec<Action> {
        let end_ms = self.now_ms + ms;
        let mut actions = self.step();
        while let Some(due_ms) = self.registry.next_deadline_ms().filter(|due_ms| *due_ms <= end_ms) {
            self.now_ms = due_ms;
            actions.extend(self.step());
        }
        self.now_ms = end_ms;
        actions
    }

    pub(super) fn id(&self, name: &str) -> TenantId {
        self.registry.tenant_named(name).unwrap_or_else(|| panic!("there is no {name}"))
    }

    pub(super) fn state(&self, name: &str) -> Option<&'static str> {
        self.registry.tenants[&self.id(name)].interruption_in_words().map(|(state, _)| state)
    }

    pub(super) fn member_of(&mut self, name: &str, pid: u32) -> (ConnectionId, u32) {
        let (connection, welcome) = self.member(&peer(pid, 7), hello(Some(name), None, 1));
        (connection, welcome.slot)
    }

    /// A number that a tenant's notices have reached.
    pub(super) fn number(&self, name: &str) -> u32 {
        self.registry.notice(self.id(name)).map_or(0, |notice| notice.number)
    }
}

/// What whoever runs a job was told.
pub(super) fn told(actions: &[Action], job: ConnectionId) -> Vec<JobNotice> {
    let of_it = |action: &Action| match action {
        Action::Reply(to, Reply::Notice(notice)) if *to == job => Some(notice.clone()),
        _ => None,
    };
    actions.iter().filter_map(of_it).collect()
}

pub(super) fn events(actions: &[Action], job: ConnectionId) -> Vec<Event> {
    told(actions, job).into_iter().map(|notice| notice.event).collect()
}

#[test]
fn a_job_of_a_higher_class_has_the_latest_of_the_lowest_end() {
    let mut node = Node::new(1, DOCUMENT);
    let first = node.admit(7, batch("first", "30GiB", Manner::Terminate)).0;
    let second = node.admit(7, batch("second", "30GiB", Manner::Terminate)).0;
    let (process, _) = node.member_of("second", 20);
    let (urgent, actions) = node.admit(7, high("urgent", "40GiB"));
    assert!(refused(&actions, urgent).is_none() && granted(&actions).is_empty(), "{actions:?}");
    let actions = node.step();
    assert_eq!((events(&actions, first), events(&actions, second)), (vec![], vec![Event::Notice]));
    let notice = &told(&actions, second)[0];
    assert_eq!(
        (notice.grace_ms, notice.action, notice.cause.as_str()),
        (10_000, Manner::Terminate, "job urgent of class high")
    );
    assert!(
        waits(&actions, urgent)
            .expect("it is told")
            .1
            .contains("tenant second makes room (within 10 s, then: terminate)")
    );
    assert_eq!((node.state("first"), node.state("second")), (None, Some("notified")));
    assert!(node.pass(9_999).is_empty(), "the grace runs");
    let actions = node.pass(1);
    assert!(actions.contains(&Action::End { member: process, forced: false }), "{actions:?}");
    assert_eq!((events(&actions, second), told(&actions, second)[0].pids.clone()), (vec![Event::End], vec![20]));
    assert!(!node.registry.is_paused(node.id("second")), "it may need the device to save its state");
    let actions = node.pass(10_000);
    assert!(actions.contains(&Action::End { member: process, forced: true }), "{actions:?}");
    node.died(process);
    let actions = node.closed(second);
    assert_eq!(granted(&actions), [(urgent, "urgent".to_owned())]);
    assert_eq!(node.state("first"), None);
}

#[test]
fn nobody_of_the_same_class_or_of_the_document_is_interrupted_and_nobody_unless_the_document_says_so() {
    for document in ["", "scheduling: {preemption: false}\n", "scheduling: {grace: 10s}\n"] {
        let mut node = Node::new(1, document);
        node.admit(7, batch("batch", "60GiB", Manner::Terminate));
        assert!(node.refusal(7, high("urgent", "60GiB")).contains("do not fit"), "{document}");
    }
    let document = format!("{DOCUMENT}tenants: [{{name: kept, memory: 30GiB, priority: batch}}]\n");
    let mut node = Node::new(1, &document);
    node.admit(7, Admit { memory: None, ..batch("kept", "30GiB", Manner::Terminate) });
    node.admit(7, of_class("high", Some(Manner::Terminate), admit("equal", "40GiB")));
    assert!(node.refusal(7, high("urgent", "20GiB")).contains("do not fit"), "at once");
    let (urgent, _) = node.admit(7, Admit { queue: Some(QueueLimit::Forever), ..high("patient", "20GiB") });
    node.step();
    assert!(node.registry.waits(urgent) && node.state("kept").is_none() && node.state("equal").is_none());
}

/// A job of a pool has others of the pool make room, since what anybody else has is of no use to it; and so the other way round.
#[test]
fn room_in_a_pool_is_made_in_the_pool() {
    let document = format!("{DOCUMENT}tenants: [{{name: pool, memory: 40GiB}}]\n");
    let mut node = Node::new(1, &document);
    node.admit(7, batch("pool/low", "30GiB", Manner::Terminate));
    node.admit(7, batch("outside", "30GiB", Manner::Terminate));
    let (urgent, _) = node.admit(7, of_class("normal", None, admit("pool/urgent", "20GiB")));
    let actions = node.step();
    assert!(refused(&actions, urgent).is_none(), "{actions:?}");
    assert_eq!((node.state("pool/low"), node.state("outside")), (Some("notified"), None));
    let (other, _) = node.admit(7, high("other", "39GiB"));
    node.step();
    assert!(node.registry.waits(urgent) && node.registry.waits(other));
    let mut node = Node::new(1, &document);
    node.admit(7, batch("pool/low", "30GiB", Manner::Terminate));
    let (outside, _) = node.admit(7, batch("outside", "30GiB", Manner::Terminate));
    node.admit(7, high("other", "39GiB"));
    node.step();
    assert_eq!((node.state("pool/low"), node.state("outside")), (None, Some("notified")));
    node.closed(outside);
}

/// Who leaves the choice of the device to the daemon has room made where the least is missing.
#[test]
fn room_is_made_where_the_least_is_missing() {
    let mut node = Node::new(3, DOCUMENT);
    for (device, memory) in [("0", "70GiB"), ("1", "40GiB"), ("2", "60GiB")] {
        let ask = batch(&format!("on-{device}"), memory, Manner::Terminate);
        node.admit(7, Admit { device: Some(device.to_owned()), ..ask });
    }
    node.admit(7, Admit { count: Some(1), ..high("urgent", "50GiB") });
    node.step();
    assert_eq!(["on-0", "on-1", "on-2"].map(|name| node.state(name)), [None, Some("notified"), None]);
}

#[test]
fn nobody_is_interrupted_when_that_makes_no_room() {
    let mut node = Node::new(1, DOCUMENT);
    node.admit(7, batch("small", "10GiB", Manner::Terminate));
    node.job("normal", "60GiB");
    let (urgent, actions) = node.admit(7, of_class("normal", None, admit("urgent", "40GiB")));
    assert!(refused(&actions, urgent).is_none());
    assert!(refused(&node.step(), urgent).expect("at once").contains("; wait with --queue"));
    assert_eq!((node.state("small"), node.state("normal")), (None, None));
    // One that hears of nothing frees nothing while it is paused.
    let mut node = Node::new(1, DOCUMENT);
    node.admit(7, batch("deaf", "60GiB", Manner::Pause));
    let (urgent, _) = node.admit(7, high("urgent", "40GiB"));
    assert!(refused(&node.step(), urgent).is_some() && node.state("deaf").is_none());
}

/// A paused job that has freed its memory lends it, to who asked and to nobody of its own class, and has it back after.
#[test]
fn a_paused_job_keeps_what_it_uses_and_lends_the_rest_to_its_betters() {
    let mut node = Node::new(1, DOCUMENT);
    let (victim, _) = node.admit(7, Admit { hears: true, ..batch("victim", "60GiB", Manner::Pause) });
    let (process, slot) = node.member_of("victim", 20);
    node.registry.listen(process, true);
    node.charged = vec![(slot, 50 * GIB)];
    let (urgent, _) = node.admit(7, high("urgent", "70GiB"));
    let actions = node.step();
    assert_eq!(events(&actions, victim), [Event::Notice]);
    node.charged = vec![(slot, 5 * GIB)];
    node.registry.ready(process, node.number("victim") + 1);
    assert!(node.step().is_empty(), "of another notice");
    node.registry.ready(process, node.number("victim"));
    let actions = node.step();
    assert_eq!((events(&actions, victim), node.state("victim")), (vec![Event::Interrupted], Some("interrupted")));
    assert!(node.registry.is_paused(node.id("victim")));
    assert_eq!(node.cap("victim"), Some(5), "lowered before it is lent");
    assert!(granted(&actions).is_empty(), "what was admitted under the old quota may not be charged yet");
    assert_eq!(granted(&node.pass(100)), [(urgent, "urgent".to_owned())]);
    node.charged = vec![(slot, 5 * GIB)];
    assert_eq!(node.cap("victim"), Some(5));
    assert!(node.refusal(7, of_class("batch", None, admit("other", "1GiB"))).contains("do not fit"));
    node.job("better", "4GiB");
    assert!(node.pass(60_000).is_empty(), "it waits, and nothing is asked again and again");
    node.closed(urgent);
    let actions = node.step();
    assert_eq!((events(&actions, victim), node.state("victim")), (vec![Event::Resumed], None));
    assert_eq!((node.cap("victim"), node.registry.is_paused(node.id("victim"))), (Some(60), false));
}

#[test]
fn who_frees_nothing_was_interrupted_in_vain_once() {
    let mut node = Node::new(1, DOCUMENT);
    let (victim, _) = node.admit(7, Admit { hears: true, ..batch("victim", "60GiB", Manner::Pause) });
    let (_, slot) = node.member_of("victim", 20);
    node.charged = vec![(slot, 60 * GIB)];
    let (urgent, _) = node.admit(7, high("urgent", "70GiB"));
    let actions = node.pass(15_000);
    assert_eq!(events(&actions, victim), [Event::Notice, Event::Interrupted, Event::Resumed]);
    assert!(refused(&actions, urgent).expect("no room").contains("do not fit"));
    assert_eq!((node.cap("victim"), node.state("victim")), (Some(60), None));
    assert!(node.refusal(7, high("again", "70GiB")).contains("do not fit"), "not a second time");
}

#[test]
fn a_notice_is_withdrawn_when_nobody_needs_it_any_more() {
    let mut node = Node::new(1, DOCUMENT);
    let (victim, _) = node.admit(7, batch("victim", "30GiB", Manner::Terminate));
    let other = node.job("other", "40GiB");
    let (urgent, _) = node.admit(7, high("urgent", "30GiB"));
    assert_eq!(events(&node.step(), victim), [Event::Notice]);
    assert_eq!(granted(&node.closed(other)), [(urgent, "urgent".to_owned())], "room came by itself");
    assert_eq!(events(&node.step(), victim), [Event::Resumed]);
    let (late, _) = node.admit(7, high("late", "40GiB"));
    assert_eq!(events(&node.step(), victim), [Event::Notice]);
    node.closed(late);
    assert_eq!((events(&node.step(), victim), node.state("victim")), (vec![Event::Resumed], None));
    assert_eq!(node.registry.next_deadline_ms(), None);
}

/// The room that is being made is for whom it is made, however long others have waited.
#[test]
fn a_wait_is_not_over_while_others_make_room() {
    let mut node = Node::new(1, DOCUMENT);
    let (victim, _) = node.admit(7, batch("victim", "60GiB", Manner::Terminate));
    let (patient, _) = node.admit(7, of_class("batch", None, queued("patient", "60GiB", QueueLimit::Forever)));
    let (urgent, _) = node.admit(7, of_class("high", None, queued("urgent", "60GiB", QueueLimit::Milliseconds(500))));
    assert_eq!(events(&node.step(), victim), [Event::Notice]);
    assert!(node.pass(5_000).iter().all(|action| !matches!(action, Action::Reply(_, Reply::Refused { .. }))));
    assert_eq!(granted(&node.closed(victim)), [(urgent, "urgent".to_owned())]);
    assert_eq!(granted(&node.closed(urgent)), [(patient, "patient".to_owned())]);
}

/// The whole way of a checkpointed job, over a daemon's death while it is away.
#[test]
fn a_checkpointed_job_comes_back_when_there_is_room_also_under_the_next_daemon() {
    let mut node = Node::new(1, DOCUMENT);
    let (victim, _) = node.admit(7, batch("victim", "60GiB", Manner::Checkpoint));
    let (process, slot) = node.member_of("victim", 20);
    node.charged = vec![(slot, 50 * GIB)];
    let (urgent, _) = node.admit(7, high("urgent", "79GiB"));
    let actions = node.pass(10_000);
    assert_eq!(events(&actions, victim), [Event::Notice, Event::Checkpoint]);
    assert_eq!(told(&actions, victim)[1].pids, [20]);
    let number = told(&actions, victim)[1].number;
    node.charged = vec![(slot, 0)];
    node.registry.moved(victim, number + 1, None, &mut Vec::new());
    assert!(granted(&node.pass(1_000)).is_empty(), "an answer to something else");
    node.registry.moved(victim, number, None, &mut Vec::new());
    assert_eq!(granted(&node.pass(100)), [(urgent, "urgent".to_owned())]);
    assert_eq!((node.state("victim"), node.cap("victim")), (Some("checkpointed"), Some(0)));
    let process_of = |_: ConnectionId| Some(ProcessRecord { pid: 1, start_ticks: 1 });
    assert!(
        node.registry.take_changed().contains(&(node.id("victim"), None)),
        "its record says that nobody waits for it any more"
    );
    let records: Vec<TenantRecord> = ["victim", "urgent"]
        .map(|name| node.registry.record(node.id(name), &process_of).expect("active"))
        .map(|record| serde_json::from_str(&serde_json::to_string(&record).expect("JSON")).expect("as it was"))
        .to_vec();
    let mut next = Node::new(1, DOCUMENT);
    (next.charged, next.connections, next.now_ms) = (node.charged.clone(), 100, node.now_ms + 500);
    let member = &records[0].members[0];
    next.registry.adopt(&records[0], &[(process, member)], &[victim]);
    next.registry.adopt(&records[1], &[], &[urgent]);
    next.pass(30_000);
    assert_eq!((next.state("victim"), next.cap("victim")), (Some("checkpointed"), Some(0)));
    let back = next.connection();
    let mut actions = Vec::new();
    next.registry.returned(victim, back, "victim", &mut actions).expect("it is that job");
    assert_eq!(events(&actions, back), [Event::Interrupted]);
    next.closed(urgent);
    let actions = next.step();
    assert_eq!((events(&actions, back), next.cap("victim")), (vec![Event::Restore], Some(60)));
    assert!(next.registry.is_paused(next.id("victim")), "not before its memory is back");
    let number = told(&actions, back)[0].number;
    next.registry.moved(back, number, Some("out of memory"), &mut Vec::new());
    let actions = next.pass(6_000);
    assert_eq!(events(&actions, back), [Event::Restore], "tried again");
    next.registry.moved(back, told(&actions, back)[0].number, None, &mut actions.clone());
    assert_eq!((next.state("victim"), next.registry.is_paused(next.id("victim"))), (None, false));
}

#[test]
fn a_notice_that_an_earlier_daemon_gave_is_taken_over_or_withdrawn() {
    let mut node = Node::new(1, DOCUMENT);
    let (victim, _) = node.admit(7, batch("victim", "60GiB", Manner::Terminate));
    node.admit(7, high("urgent", "60GiB"));
    node.step();
    let process_of = |_: ConnectionId| Some(ProcessRecord { pid: 1, start_ticks: 1 });
    let record = node.registry.record(node.id("victim"), &process_of).expect("active");
    let next = |now_ms| {
        let mut next = Node::new(1, DOCUMENT);
        (next.now_ms, next.connections) = (now_ms, 100);
        next.registry.adopt(&record, &[], &[victim]);
        next.step();
        next
    };
    let mut alone = next(1_000);
    assert!(events(&alone.pass(8_000), victim).is_empty(), "who wanted it may come back");
    let mut asked = next(1_000);
    asked.admit(7, high("urgent", "60GiB"));
    assert!(events(&asked.pass(8_000), victim).is_empty(), "no second notice");
    assert_eq!(events(&asked.pass(2_000), victim), [Event::End], "ten seconds after it was given");
    // Nobody comes back, and the grace would last longer than that is believed.
    let long = "scheduling: {preemption: true, grace: 1m}\n";
    let mut node = Node::new(1, long);
    node.admit(7, batch("victim", "60GiB", Manner::Terminate));
    node.admit(7, high("urgent", "60GiB"));
    node.step();
    let record = node.registry.record(node.id("victim"), &process_of).expect("active");
    let mut next = Node::new(1, long);
    next.registry.adopt(&record, &[], &[victim]);
    assert_eq!(events(&next.pass(15_000), victim), [Event::Resumed]);
    // They come back: it goes on as it was.
    let mut next = Node::new(1, long);
    next.connections = 100;
    next.registry.adopt(&record, &[], &[victim]);
    let (again, _) = next.admit(7, high("again", "60GiB"));
    next.now_ms = 5_500;
    let actions = next.step();
    assert!(waits(&actions, again).expect("told").1.contains("within 55 s"), "{actions:?}");
    let seen = next.pass(44_500);
    assert!(events(&seen, victim).is_empty() && next.registry.waits(again), "{seen:?}");
    assert_eq!(events(&next.pass(10_000), victim), [Event::End]);
}

#[test]
fn an_administrator_interrupts_whom_they_like_and_resumes_them() {
    let mut node = Node::new(1, "");
    let job = node.job("a", "10GiB");
    let ask = |node: &mut Node, name: &str, grace_ms, manner| {
        let mut actions = Vec::new();
        let now_ms = node.now_ms;
        node.registry.interrupt(name, grace_ms, manner, now_ms, &mut actions).map(|_| actions)
    };
    assert!(ask(&mut node, "nobody", None, None).expect_err("there is none").contains("there are: a"));
    assert!(ask(&mut node, "a", Some(600_001), None).expect_err("too long").contains("from 0s to 10m"));
    assert_eq!(events(&ask(&mut node, "a", Some(0), Some(Manner::Pause)).expect("it runs"), job), [Event::Notice]);
    assert!(ask(&mut node, "a", None, None).expect_err("it is").contains("notified already"));
    node.pass(1_000);
    assert_eq!(
        (node.state("a"), node.cap("a")),
        (Some("interrupted"), Some(10)),
        "it hears of nothing: it keeps its quota"
    );
    assert!(node.pass(100_000).is_empty());
    let mut actions = Vec::new();
    node.registry.resume("a", &mut actions).expect("it is interrupted");
    actions.extend(node.step());
    assert_eq!((events(&actions, job), node.state("a")), (vec![Event::Resumed], None));
    assert!(node.registry.resume("a", &mut Vec::new()).expect("there is one").contains("not paused"));
}

/// One after the other on a device; who waits for its turn to have others make room is told so.
#[test]
fn one_job_at_a_time_has_others_make_room() {
    let mut node = Node::new(1, DOCUMENT);
    let (a, _) = node.admit(7, batch("a", "39GiB", Manner::Terminate));
    let (b, _) = node.admit(7, batch("b", "39GiB", Manner::Terminate));
    let (first, _) = node.admit(7, high("first", "39GiB"));
    let actions = node.step();
    assert_eq!((events(&actions, a), events(&actions, b)), (vec![], vec![Event::Notice]));
    let (second, actions) = node.admit(7, high("second", "39GiB"));
    assert!(waits(&actions, second).is_some() && node.step().is_empty(), "{actions:?}");
    assert_eq!(granted(&node.closed(b)), [(first, "first".to_owned())]);
    assert_eq!(events(&node.step(), a), [Event::Notice]);
    assert_eq!(granted(&node.closed(a)), [(second, "second".to_owned())]);
}

/// A checkpoint that fails is a pause; what the driver may have done is undone in any case.
#[test]
fn a_failed_checkpoint_is_a_pause_and_is_undone() {
    let mut node = Node::new(1, DOCUMENT);
    let (victim, _) = node.admit(7, batch("victim", "60GiB", Manner::Checkpoint));
    let (_, slot) = node.member_of("victim", 20);
    node.charged = vec![(slot, 50 * GIB)];
    let (urgent, _) = node.admit(7, high("urgent", "60GiB"));
    let asked = told(&node.pass(10_000), victim).remove(1);
    node.registry.moved(victim, asked.number, Some("it can't"), &mut Vec::new());
    let actions = node.pass(5_000);
    assert!(refused(&actions, urgent).is_some(), "{actions:?}");
    assert_eq!((events(&actions, victim), node.cap("victim")), (vec![Event::Restore], Some(60)));
    node.registry.moved(victim, told(&actions, victim)[0].number, None, &mut Vec::new());
    assert_eq!((node.state("victim"), node.registry.is_paused(node.id("victim"))), (None, false));
    // The same when nobody ever answers.
    let (urgent, _) = node.admit(7, high("again", "60GiB"));
    assert!(!node.registry.waits(urgent), "not a second time");
}

/// A document that no longer has jobs make room: what has begun is carried out, and who waits only for that is refused.
#[test]
fn who_waits_for_nothing_but_room_made_by_others_is_refused_when_nobody_makes_any() {
    let mut node = Node::new(1, DOCUMENT);
    let (victim, _) = node.admit(7, batch("victim", "60GiB", Manner::Terminate));
    let (urgent, _) = node.admit(7, high("urgent", "60GiB"));
    node.registry.apply(&Document::default(), &mut Vec::new()).expect("it fits");
    let actions = node.step();
    assert!(refused(&actions, urgent).is_some() && events(&actions, victim).is_empty(), "{actions:?}");
}

/// Places and guarantees are yielded too, and by those who hear of nothing.
#[test]
fn a_place_and_a_guarantee_are_room() {
    let mut node = Node::new(1, &format!("{DOCUMENT}devices: [{{select: all, max_jobs: 1}}]\n"));
    let (deaf, _) = node.admit(7, batch("deaf", "10GiB", Manner::Pause));
    let (urgent, _) = node.admit(7, high("urgent", "10GiB"));
    let actions = node.pass(10_100);
    assert_eq!((events(&actions, deaf), granted(&actions).len()), (vec![Event::Notice, Event::Interrupted], 1));
    assert_eq!(node.cap("deaf"), Some(10));
    node.closed(urgent);
    assert_eq!(events(&node.step(), deaf), [Event::Resumed]);
    let mut node = Node::new(1, DOCUMENT);
    node.admit(7, Admit { guarantee: Some(6000), ..batch("deaf", "10GiB", Manner::Pause) });
    node.admit(7, Admit { guarantee: Some(6000), ..high("urgent", "10GiB") });
    assert_eq!(granted(&node.pass(10_100)).len(), 1);
}
