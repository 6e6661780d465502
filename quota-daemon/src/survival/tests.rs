//! A daemon that ends between any two things that it does with its files, and what the next one finds.

use super::*;
use crate::devices::{Device, Inventory, parse_uuid};
use crate::document::Document;
use crate::peer::Peer;
use crate::registry::{Action, MemberRecord, Overrides, TenantRecord};
use quota_core::Bytes;
use quota_wire::message::{Admit, Change, DeviceAsk, Hello, PROTOCOL_VERSION, Reply};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const GIB: u64 = 1 << 30;
const UUID: &str = "GPU-00000000-0000-0000-0000-000000000001";

/// A folder in memory, with a moment at which its daemon is killed or the disk is full.
#[derive(Clone, Default)]
struct Model(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    files: BTreeMap<String, Content>,
    /// As the disk has it when power is lost now: names as of the last sync, and what became of them since, in order.
    names_synced: BTreeMap<String, Content>,
    names_since: Vec<BTreeMap<String, Content>>,
    /// Operations until the daemon is killed; in which of its ways a write is then left.
    left: Option<usize>,
    torn: usize,
    full: bool,
    operations: usize,
}

#[derive(Clone, Default, Debug)]
struct Content(Rc<RefCell<(Vec<u8>, bool)>>);

impl Model {
    /// Counts an operation; an error once the daemon is dead.
    fn step(&self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.operations += 1;
        match &mut state.left {
            Some(0) => Err(io::Error::other("dead")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn is_dead(&self) -> bool {
        self.0.borrow().left == Some(0)
    }

    fn names_changed(&self) {
        let mut state = self.0.borrow_mut();
        let files = state.files.clone();
        state.names_since.push(files);
    }

    /// What may be found after a loss of power now: any beginning of the changes of names, and of files that were not
    /// synced nothing, a half or all.
    fn after_power_loss(&self) -> Vec<BTreeMap<String, Vec<u8>>> {
        let state = self.0.borrow();
        let mut all = Vec::new();
        for names in std::iter::once(&state.names_synced).chain(&state.names_since) {
            for part in 0..3 {
                let found = |content: &Content| {
                    let (bytes, synced) = &*content.0.borrow();
                    if *synced { bytes.clone() } else { bytes[..bytes.len() * part / 2].to_vec() }
                };
                all.push(names.iter().map(|(name, content)| (name.clone(), found(content))).collect());
            }
        }
        all
    }

    fn holding(files: BTreeMap<String, Vec<u8>>) -> Self {
        let model = Self::default();
        for (name, bytes) in files {
            model.0.borrow_mut().files.insert(name, Content(Rc::new(RefCell::new((bytes, true)))));
        }
        model
    }

    /// The same files for the next daemon, which isn't killed.
    fn reborn(&self) -> Self {
        let files = self.0.borrow().files.iter().map(|(name, it)| (name.clone(), it.0.borrow().0.clone())).collect();
        Self::holding(files)
    }
}

impl Disk for Model {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.borrow().files.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let state = self.0.borrow();
        let content = state.files.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(content.0.borrow().0.clone())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let alive = self.step();
        let (torn, full) = (self.0.borrow().torn, self.0.borrow().full);
        if alive.is_err() && (torn == 0 || self.0.borrow().operations > 10_000) {
            return alive;
        }
        let kept = match (&alive, full) {
            (Ok(()), false) => bytes.len(),
            (Ok(()), true) => bytes.len() / 2,
            // Emptied, half written, all written.
            (Err(_), _) => bytes.len() * (torn - 1) / 2,
        };
        let content = Content(Rc::new(RefCell::new((bytes[..kept].to_vec(), false))));
        self.0.borrow_mut().files.insert(name.to_owned(), content);
        self.names_changed();
        alive?;
        if full { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.step()?;
        if let Some(content) = self.0.borrow().files.get(name) {
            content.0.borrow_mut().1 = true;
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.step()?;
        let content = self.0.borrow_mut().files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.0.borrow_mut().files.insert(to.to_owned(), content);
        self.names_changed();
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.step()?;
        self.0.borrow_mut().files.remove(name);
        self.names_changed();
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.step()?;
        let mut state = self.0.borrow_mut();
        state.names_synced = state.files.clone();
        state.names_since.clear();
        Ok(())
    }
}

fn registry(document: &str) -> Registry {
    let device = Device {
        uuid: parse_uuid(UUID).expect("legal"),
        uuid_text: UUID.to_owned(),
        name: "A100".to_owned(),
        total: Bytes(80 * GIB),
        mig: "disabled".to_owned(),
        ..Device::default()
    };
    let inventory = Inventory { driver: "595.0".to_owned(), devices: vec![device] };
    let document = Document::parse(document).expect("legal");
    Registry::new(&inventory, &document, Overrides::default()).expect("it fits")
}

/// Everybody's truth: who lives, and what they were told.
#[derive(Clone, Default)]
struct World {
    /// Connections of processes and jobs that live: pid, and whether it is a job.
    alive: BTreeMap<u64, (u32, bool)>,
    /// Members that were told their slot: tenant, slot, pid.
    welcomed: BTreeMap<u64, (String, u32, u32)>,
    /// Jobs that were told their tenant.
    granted: BTreeMap<u64, String>,
    /// What jobs have asked for, in gibibytes.
    asked: BTreeMap<u64, u64>,
    /// Caps in gibibytes that somebody was told.
    caps: BTreeMap<String, u64>,
    /// A change that nobody was told of yet.
    changing: Option<(String, u64)>,
}

/// A daemon at work: the pure registry, the store, and the world around it.
struct Daemon {
    registry: Registry,
    store: Store<Model>,
    disk: Model,
    world: World,
}

struct Used;

impl crate::registry::Usage for Used {
    fn charged(&self, _tenant: crate::registry::TenantId, _slot: u32, _device: usize) -> Bytes {
        Bytes(0)
    }

    fn overhead(&self, _tenant: crate::registry::TenantId, _slot: u32, _device: usize) -> Bytes {
        Bytes(0)
    }
}

impl Daemon {
    /// Keeps, then tells: as the server does it. Nobody hears from a dead daemon.
    fn perform(&mut self, actions: Vec<Action>) -> bool {
        let alive = self.world.alive.clone();
        let process = |job: ConnectionId| {
            let (pid, _) = alive.get(&job.0)?;
            Some(ProcessRecord { pid: *pid, start_ticks: 1 })
        };
        keep_changes(&mut self.store, &mut self.registry, &process);
        if self.disk.is_dead() {
            return false;
        }
        for action in actions {
            match action {
                Action::Welcome(welcome) => {
                    let told = (welcome.name, welcome.slot, welcome.pid);
                    self.world.welcomed.insert(welcome.connection.0, told);
                }
                Action::Reply(connection, Reply::Granted(granted)) => {
                    self.world.caps.insert(granted.tenant.clone(), self.world.asked[&connection.0]);
                    self.world.granted.insert(connection.0, granted.tenant);
                }
                _ => {}
            }
        }
        true
    }

    fn job(&mut self, connection: u64, name: &str, gib: u64, queue: bool) -> bool {
        self.world.alive.insert(connection, (connection as u32, true));
        self.world.asked.insert(connection, gib);
        let admit = Admit {
            version: PROTOCOL_VERSION,
            tenant: Some(name.to_owned()),
            memory: Some(format!("{gib}GiB")),
            queue: queue.then_some(quota_wire::message::QueueLimit::Forever),
            ..Admit::default()
        };
        let mut actions = Vec::new();
        let peer = Peer { pid: connection as u32, uid: 7, ..Peer::default() };
        self.registry.admit(ConnectionId(connection), &peer, &admit, 0, &mut actions);
        self.perform(actions)
    }

    fn process(&mut self, connection: u64, name: &str) -> bool {
        self.world.alive.insert(connection, (connection as u32, false));
        let device = DeviceAsk { uuid: UUID.to_owned(), total_bytes: 80 * GIB, ..DeviceAsk::default() };
        let (version, tenant) = (PROTOCOL_VERSION, Some(name.to_owned()));
        let hello = Hello { version, tenant, pid: connection as u32, devices: vec![device], ..Hello::default() };
        let mut actions = Vec::new();
        let peer = Peer { pid: connection as u32, uid: 7, ..Peer::default() };
        self.registry.hello(ConnectionId(connection), &peer, &hello, &mut actions);
        self.perform(actions)
    }

    fn set(&mut self, name: &str, gib: u64) -> bool {
        let change = Change { tenant: name.to_owned(), memory: Some(format!("{gib}GiB")), ..Change::default() };
        self.world.changing = Some((name.to_owned(), gib));
        let mut actions = Vec::new();
        self.registry.set(&change, &Used, &mut actions).expect("it fits");
        let told = self.perform(actions);
        if told {
            self.world.changing = None;
            self.world.caps.insert(name.to_owned(), gib);
        }
        told
    }

    fn dies(&mut self, connection: u64) -> bool {
        self.world.alive.remove(&connection);
        self.world.welcomed.remove(&connection);
        if let Some(tenant) = self.world.granted.remove(&connection)
            && !self.world.granted.values().any(|other| *other == tenant)
        {
            self.world.caps.remove(&tenant);
        }
        let mut actions = Vec::new();
        self.registry.died(ConnectionId(connection), &mut actions);
        self.registry.closed(ConnectionId(connection), &mut actions);
        self.perform(actions)
    }
}

/// A tenant that is there before all others, and gets its memory when there is room.
const LATE: &str = "tenants: [{name: late}]\n";

/// A morning on a device of 79.5 GiB: it is full, jobs wait, room is made by a change and by an end.
fn morning(daemon: &mut Daemon) -> bool {
    daemon.job(1, "a", 50, false)
        && daemon.process(11, "a")
        && daemon.job(2, "b", 20, false)
        && daemon.process(12, "b")
        && daemon.process(13, "b")
        && daemon.job(3, "late", 25, true)
        && daemon.set("a", 30)
        && daemon.process(14, "late")
        && daemon.dies(12)
        && daemon.job(4, "later", 20, true)
        && daemon.dies(2)
        && daemon.dies(13)
        && daemon.process(15, "later")
        && daemon.set("later", 10)
        && daemon.process(16, "a")
        && daemon.dies(11)
}

/// Kills the daemon at its `moment`-th operation, and has the next one take back what is there. None when it wasn't killed.
fn killed_at(moment: usize, torn: usize) -> Option<()> {
    let disk = Model::default();
    disk.0.borrow_mut().left = Some(moment);
    disk.0.borrow_mut().torn = torn;
    let store = Store::on(disk.clone());
    let mut daemon = Daemon { registry: registry(LATE), store, disk: disk.clone(), world: World::default() };
    let is_done = morning(&mut daemon);
    let world = daemon.world;
    let store = Store::on(disk.reborn());
    let mut next = registry(LATE);
    let lives = |pid: u32, is_job: bool| world.alive.values().any(|alive| *alive == (pid, is_job));
    let (mut slots, mut ids) = (Vec::new(), BTreeMap::new());
    for record in store.load().expect("a folder") {
        let record: TenantRecord = record.unwrap_or_else(|error| panic!("at {moment}: {error}"));
        let members: Vec<(ConnectionId, &MemberRecord)> = record
            .members
            .iter()
            .filter(|member| lives(member.pid, false))
            .map(|member| (ConnectionId(u64::from(member.pid)), member))
            .collect();
        let jobs: Vec<ConnectionId> =
            record.jobs.iter().filter(|job| lives(job.pid, true)).map(|job| ConnectionId(job.pid.into())).collect();
        if members.is_empty() && jobs.is_empty() {
            continue;
        }
        for (_, member) in &members {
            slots.push((record.name.clone(), member.slot, member.pid));
        }
        let id = next.adopt(&record, &members, &jobs);
        ids.insert(record.name.clone(), id);
    }
    next.check_granted().unwrap_or_else(|reason| panic!("granted twice, killed at {moment}: {reason}"));
    for told in world.welcomed.values() {
        assert!(slots.contains(told), "killed at {moment}: {told:?} is not back in {slots:?}");
    }
    let mut unique: Vec<(&String, u32)> = slots.iter().map(|(tenant, slot, _)| (tenant, *slot)).collect();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), slots.len(), "killed at {moment}: two share a slot: {slots:?}");
    for tenant in world.granted.values() {
        assert!(next.find(tenant).is_ok(), "killed at {moment}: {tenant} has lost its place");
    }
    for (tenant, gib) in &world.caps {
        let id = ids.get(tenant).unwrap_or_else(|| panic!("killed at {moment}: {tenant} is gone"));
        let cap = next.effective(*id, 0).and_then(|quota| quota.memory_cap).map(|cap| cap.0 / GIB);
        let in_between = world.changing.as_ref().filter(|(name, _)| name == tenant).map(|(_, gib)| *gib);
        let is_legal = cap == Some(*gib) || (cap.is_some() && cap == in_between);
        assert!(is_legal, "killed at {moment}: {tenant} was told {gib} GiB and has {cap:?}");
    }
    (!is_done).then_some(())
}

#[test]
fn a_daemon_killed_at_any_moment_loses_nobody_and_grants_nothing_twice() {
    for torn in 0..4 {
        let moments = (0..1000).take_while(|moment| killed_at(*moment, torn).is_some()).count();
        assert!(moments > 30, "{moments} moments were tried");
    }
}

fn document(text: &str) -> AppliedDocument {
    AppliedDocument { document: text.to_owned(), file: None, file_text: None, applied: "2026".to_owned() }
}

/// A document that was applied holds after a loss of power, at whatever moment that comes.
#[test]
fn a_kept_document_survives_a_loss_of_power() {
    let mut moments = 0;
    for moment in 0..100 {
        for torn in 0..4 {
            let disk = Model::default();
            disk.0.borrow_mut().left = Some(moment);
            disk.0.borrow_mut().torn = torn;
            let mut store = Store::on(disk.clone());
            let mut answered = None;
            for text in ["first", "second", "third"] {
                if store.keep_document(&document(text)).is_ok() && !disk.is_dead() {
                    answered = Some(text);
                }
            }
            moments += usize::from(answered != Some("third"));
            for files in disk.after_power_loss() {
                let found = Store::on(Model::holding(files)).document();
                let found = found.unwrap_or_else(|error| panic!("torn at {moment}: {error}")).map(|kept| kept.document);
                let later: &[&str] = match answered {
                    None => &["first", "second", "third"],
                    Some("first") => &["first", "second", "third"],
                    Some("second") => &["second", "third"],
                    Some(_) => &["third"],
                };
                let is_legal = found.as_deref().map_or(answered.is_none(), |found| later.contains(&found));
                assert!(is_legal, "at {moment}: answered {answered:?}, found {found:?}");
            }
        }
    }
    assert!(moments > 20, "{moments} moments were tried");
}

#[test]
fn a_full_disk_leaves_the_old_record_and_nothing_is_forgotten() {
    let disk = Model::default();
    let store = Store::on(disk.clone());
    let mut daemon = Daemon { registry: registry(""), store, disk: disk.clone(), world: World::default() };
    assert!(daemon.job(1, "a", 50, false) && daemon.job(2, "b", 10, false));
    let names = disk.names().expect("a folder");
    let before = disk.read("tenant-a.json").expect("kept");
    disk.0.borrow_mut().full = true;
    assert!(daemon.set("a", 30) && daemon.job(3, "c", 5, false) && daemon.dies(2));
    assert_eq!(disk.read("tenant-a.json").expect("kept"), before);
    assert_eq!(disk.names().expect("a folder"), [names[0].clone()], "b is gone, and nothing half written stays");
    daemon.store.retry();
    assert!(daemon.store.is_behind());
    disk.0.borrow_mut().full = false;
    daemon.store.retry();
    assert!(!daemon.store.is_behind());
    assert_eq!(disk.names().expect("a folder"), ["tenant-a.json", "tenant-c.json"]);
    assert_ne!(disk.read("tenant-a.json").expect("kept"), before);
}

#[test]
fn what_is_changed_of_a_standing_tenant_stays_without_a_process() {
    let text = "tenants: [{name: s, memory: 10GiB}]\n";
    let disk = Model::default();
    let store = Store::on(disk.clone());
    let mut daemon = Daemon { registry: registry(text), store, disk: disk.clone(), world: World::default() };
    assert!(daemon.set("s", 20));
    let records = Store::on(disk.reborn()).load().expect("a folder");
    let record = records[0].as_ref().expect("whole");
    let cap_under = |text: &str| {
        let mut next = registry(text);
        next.stays(record).then(|| {
            let id = next.adopt(record, &[], &[]);
            next.effective(id, 0).and_then(|quota| quota.memory_cap).map(|cap| cap.0 / GIB)
        })
    };
    assert_eq!(cap_under(text), Some(Some(20)));
    assert_eq!(cap_under("tenants: [{name: s, memory: 15GiB}]\n"), Some(Some(15)), "the document says otherwise now");
    assert_eq!(cap_under(""), None);
    assert!(daemon.set("s", 10));
    assert!(disk.names().expect("a folder").is_empty(), "as the document says: nothing to be kept");
}

#[test]
fn what_was_being_written_is_cleared_away() {
    let files = BTreeMap::from([("tenant-a.json.new".to_owned(), b"{".to_vec()), ("notes".to_owned(), Vec::new())]);
    let disk = Model::holding(files);
    let store = Store::on(disk.clone());
    assert_eq!(disk.names().expect("a folder"), ["notes"]);
    assert!(store.load().expect("a folder").is_empty());
    assert_eq!(store.document().expect("none"), None);
}
