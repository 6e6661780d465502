//! Who moves a job's memory when whoever ran the job has been killed.

use super::interrupt::{batch, events, high, told};
use super::*;
use quota_wire::notice::{Action as Manner, Event, JobNotice};

const DOCUMENT: &str = "scheduling: {preemption: true, grace: 10s}\n";

/// What the daemon was told to do itself.
fn moves(actions: &[Action]) -> Vec<(TenantId, JobNotice, Vec<String>)> {
    let of = |action: &Action| match action {
        Action::Move(order) => Some((order.tenant, order.notice.clone(), order.devices.clone())),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

/// A batch job of 60 GiB with its process, and a job of class high that waits for as much.
struct Scene {
    node: Node,
    victim: ConnectionId,
    slot: u32,
    process: ConnectionId,
    urgent: ConnectionId,
}

fn scene() -> Scene {
    let mut node = Node::new(1, DOCUMENT);
    let (victim, _) = node.admit(7, batch("victim", "60GiB", Manner::Checkpoint));
    let (process, slot) = node.member_of("victim", 20);
    node.charged = vec![(slot, 50 * GIB)];
    let (urgent, _) = node.admit(7, high("urgent", "60GiB"));
    node.step();
    Scene { node, victim, slot, process, urgent }
}

impl Scene {
    /// What the daemon was told last is done, or not.
    fn moved(&mut self, number: u32, failed: Option<&str>) {
        let id = self.node.id("victim");
        self.node.registry.moved_by_daemon(id, number, failed, &mut Vec::new());
    }

    fn state(&self) -> Option<&'static str> {
        self.node.state("victim")
    }
}

/// Noticed: the daemon checkpoints it when the grace is over, and brings it back when there is room.
#[test]
fn the_daemon_moves_what_nobody_else_can() {
    let mut scene = scene();
    scene.node.closed(scene.victim);
    assert_eq!(scene.state(), Some("notified"));
    let asked = moves(&scene.node.pass(10_000));
    let (id, parking, devices) = asked.first().cloned().expect("the daemon is asked");
    assert_eq!((asked.len(), id, parking.event), (1, scene.node.id("victim"), Event::Checkpoint));
    assert_eq!((parking.pids.as_slice(), devices.as_slice()), (&[20][..], &[uuid(0)][..]));
    assert!(moves(&scene.node.pass(5_000)).is_empty(), "once");
    scene.node.charged = vec![(scene.slot, 0)];
    scene.moved(parking.number + 1, None);
    assert!(granted(&scene.node.pass(1_000)).is_empty(), "an answer to something else");
    scene.moved(parking.number, None);
    assert_eq!(granted(&scene.node.pass(100)), [(scene.urgent, "urgent".to_owned())]);
    assert_eq!((scene.state(), scene.node.cap("victim")), (Some("checkpointed"), Some(0)));
    scene.node.closed(scene.urgent);
    let (_, restoring, _) = moves(&scene.node.step()).remove(0);
    assert_eq!(restoring.event, Event::Restore);
    scene.moved(restoring.number, Some("no memory"));
    scene.node.pass(100);
    let why = scene.node.registry.tenants[&scene.node.id("victim")].interruption_in_words().expect("it is away").1;
    assert!(why.ends_with("; its memory can't be moved: no memory"), "{why}");
    // What it doesn't use is not kept from others of a higher class meanwhile.
    let (other, actions) = scene.node.admit(7, high("other", "30GiB"));
    assert_eq!(granted(&actions), [(other, "other".to_owned())]);
    scene.node.closed(other);
    let (_, again, _) = moves(&scene.node.pass(6_000)).remove(0);
    scene.moved(again.number, None);
    assert_eq!((scene.state(), scene.node.registry.is_paused(scene.node.id("victim"))), (None, false));
}

/// Killed while it was at it, or while the memory was away: the daemon goes on with the same notice.
#[test]
fn the_daemon_goes_on_where_a_killed_run_has_left_off() {
    let mut scene = scene();
    let actions = scene.node.pass(10_000);
    let notice = told(&actions, scene.victim).pop().expect("it is asked");
    assert!(notice.event == Event::Checkpoint && moves(&actions).is_empty());
    scene.node.closed(scene.victim);
    let (_, same, _) = moves(&scene.node.step()).remove(0);
    assert_eq!(same, notice);
    scene.node.charged = vec![(scene.slot, 0)];
    scene.moved(same.number, None);
    scene.node.pass(100);
    scene.node.closed(scene.urgent);
    let (_, restoring, _) = moves(&scene.node.step()).remove(0);
    // A job that joins the tenant meanwhile has nothing to do with it.
    let (late, actions) = scene.node.admit(7, admit("victim", "60GiB"));
    assert_eq!((granted(&actions).len(), events(&scene.node.step(), late)), (1, vec![]));
    scene.moved(restoring.number, None);
    assert_eq!((scene.state(), scene.node.cap("victim")), (None, Some(60)));
}

/// A tenant may have several jobs: the next of them is asked before the daemon is.
#[test]
fn another_job_of_the_tenant_goes_on_with_it() {
    let mut scene = scene();
    let (second, _) = scene.node.admit(7, admit("victim", "60GiB"));
    let actions = scene.node.pass(10_000);
    assert_eq!(events(&actions, scene.victim).last(), Some(&Event::Checkpoint));
    assert!(!events(&actions, second).contains(&Event::Checkpoint));
    scene.node.closed(scene.victim);
    let actions = scene.node.step();
    assert_eq!((events(&actions, second), moves(&actions).len()), (vec![Event::Checkpoint], 0));
    scene.node.closed(second);
    assert_eq!(moves(&scene.node.step()).len(), 1);
    // Its last process is gone: nothing of it is left to be brought back.
    scene.node.died(scene.process);
    assert!(scene.node.registry.tenant_named("victim").is_none());
    assert_eq!(moves(&scene.node.pass(100_000)).len(), 0);
}

/// The run was killed while no daemon was there, or never comes back to the next one.
#[test]
fn the_next_daemon_moves_it_too() {
    for killed_before in [true, false] {
        let mut scene = scene();
        scene.node.pass(10_000);
        let process_of = |_: ConnectionId| Some(ProcessRecord { pid: 1, start_ticks: 1 });
        let record = scene.node.registry.record(scene.node.id("victim"), &process_of).expect("active");
        let record: TenantRecord = serde_json::from_str(&serde_json::to_string(&record).expect("JSON")).expect("same");
        let mut next = Node::new(1, DOCUMENT);
        (next.charged, next.connections, next.now_ms) = (scene.node.charged.clone(), 100, scene.node.now_ms + 500);
        let jobs = if killed_before { vec![] } else { vec![scene.victim] };
        next.registry.adopt(&record, &[(scene.process, &record.members[0])], &jobs);
        let mut actions = next.step();
        if !killed_before {
            assert!(moves(&actions).is_empty(), "it may come back");
            next.closed(scene.victim);
            actions = next.step();
        }
        let (_, parking, _) = moves(&actions).remove(0);
        assert_eq!((parking.event, parking.pids), (Event::Checkpoint, vec![20]));
        next.charged = vec![(scene.slot, 0)];
        let id = next.id("victim");
        next.registry.moved_by_daemon(id, parking.number, None, &mut Vec::new());
        let (_, restoring, _) = moves(&next.pass(15_000)).remove(0);
        assert_eq!(restoring.event, Event::Restore, "nobody who waited for it has come back");
        next.registry.moved_by_daemon(id, restoring.number, None, &mut Vec::new());
        assert_eq!(next.state("victim"), None);
    }
}

/// Of several that come back to the next daemon, one is told to move the memory.
#[test]
fn only_one_of_several_that_come_back_moves_it() {
    let mut scene = scene();
    let (second, _) = scene.node.admit(7, admit("victim", "60GiB"));
    scene.node.pass(10_000);
    let mut back = Vec::new();
    scene.node.registry.returned(scene.victim, ConnectionId(900), "victim", &mut back).expect("its job");
    scene.node.registry.returned(second, ConnectionId(901), "victim", &mut back).expect("its job");
    assert_eq!(
        (events(&back, ConnectionId(900)), events(&back, ConnectionId(901))),
        (vec![Event::Checkpoint], vec![Event::Interrupted])
    );
}

/// The daemon's own helper is let in for that tenant, whatever its rule asks of others, and what it sees is the tenant's.
#[test]
fn what_moves_memory_for_the_daemon_needs_no_match() {
    let tenants = "tenants: [{name: pool, memory: 40GiB, match: {uid: 9, cgroup: '/pods/*'}}]";
    let mut node = Node::new(1, tenants);
    let of_pool = Peer { cgroup: "/pods/1".to_owned(), ..peer(10, 9) };
    node.member(&of_pool, hello(Some("pool"), None, 1));
    let (connection, actions) = node.hello(&peer(11, 9), hello(Some("pool"), None, 1));
    assert!(refused(&actions, connection).is_some());
    let (connection, id) = (node.connection(), node.id("pool"));
    let hello = Hello { version: PROTOCOL_VERSION, pid: 12, ..hello(Some("pool"), None, 1) };
    let mut actions = Vec::new();
    node.registry.hello_of_mover(connection, &peer(12, 9), &hello, id, &mut actions);
    assert!(actions.iter().any(|action| matches!(action, Action::Welcome(_))), "{actions:?}");
    let mut actions = Vec::new();
    node.registry.hello_of_mover(ConnectionId(99), &peer(13, 9), &hello, TenantId(99), &mut actions);
    assert_eq!(refused(&actions, ConnectionId(99)).as_deref(), Some("the tenant is gone"));
}
