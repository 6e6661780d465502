//! What clients ask for, and the answers.

use super::{SAMPLE_WAIT_MAX, Server};
use crate::arbiter::now_ns;
use crate::document::Document;
use crate::log;
use crate::peer::{Peer, clean, command, started, user};
use crate::registry::{Action, ConnectionId, TenantId, Token, View, Welcome};
use quota_core::settings::LogLevel;
use quota_wire::audit::{AuditEvent, AuditKind};
use quota_wire::message::{self, About, Hello, PROTOCOL_VERSION, ROWS_PER_PACKET, Reply, Request, mismatch};
use quota_wire::socket::WireError;
use serde::Serialize;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes of rows that go into one packet; the rest is for what is around them.
const ROW_BYTES_PER_PACKET: usize = message::PACKET_BYTES_MAX - 1024;

/// What a list is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    Processes,
    Devices,
}

/// A list that somebody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct List {
    pub(super) connection: ConnectionId,
    of: Of,
    /// The number of the sample's question.
    asked: u64,
    pub(super) deadline: Instant,
}

/// A member that waits to hear what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Measure {
    pub(super) connection: ConnectionId,
    sequence: u64,
    /// The number of the sample's question.
    asked: u64,
    pub(super) deadline: Instant,
}

impl Server {
    pub(super) fn answer(&mut self, id: ConnectionId, request: Request) {
        let Some(request) = self.hear(id, request) else { return };
        let mut actions = Vec::new();
        match request {
            Request::Hello(hello) => return self.hello(id, &hello),
            Request::Admit(admit) => {
                let now_ms = self.now_ms();
                match self.identify(id) {
                    None => return,
                    Some(Ok((peer, _))) => self.registry.admit(id, &peer, &admit, now_ms, &mut actions),
                    Some(Err(reason)) => return self.send(id, Reply::Refused { reason }),
                }
            }
            Request::Rejoin { version, slot } => return self.rejoin(id, version, slot),
            Request::Measure { sequence } => return self.measure(id, sequence),
            Request::Processes => return self.list(id, Of::Processes),
            Request::Devices => return self.list(id, Of::Devices),
            Request::About => return self.send(id, Reply::About(self.about())),
            Request::Audit(query) => return self.show_audit(id, query),
            Request::Find { tenant } => {
                let reply = match self.registry.find(&tenant) {
                    Ok(message) => Reply::Done { message },
                    Err(reason) => Reply::Refused { reason },
                };
                return self.send(id, reply);
            }
            request => return self.administer(id, request),
        }
        self.perform(actions);
    }

    /// What only an administrator may ask for: root on a node, the user of a daemon of one's own.
    fn administer(&mut self, id: ConnectionId, request: Request) {
        if !self.clients.get(&id).is_some_and(|client| client.admin) {
            let reason = "this needs the daemon's socket for administrators".to_owned();
            return self.send(id, Reply::Refused { reason });
        }
        let mut actions = Vec::new();
        let refusal = self.refusal_of(&request);
        let done = match request {
            Request::Set(change) => self.registry.set(&change, &self.pages, &mut actions),
            Request::Pause { tenant } => self.registry.pause(&tenant, true, &mut actions),
            Request::Resume { tenant } => self.registry.resume(&tenant, &mut actions),
            Request::Interrupt { tenant, grace_ms, action } => {
                let now_ms = self.now_ms();
                self.registry.interrupt(&tenant, grace_ms, action, now_ms, &mut actions)
            }
            Request::Pending => {
                let rows = self.registry.pending();
                return self.send_rows(id, rows, |rows, last| Reply::Pending { rows, last });
            }
            Request::Approve { number, deny, reason } => {
                let reason = clean(&reason.unwrap_or_default());
                self.registry.approve(number, deny.then_some(reason.as_str()), &mut actions)
            }
            Request::Drain { device } => self.drain(&device, true, &mut actions),
            Request::Undrain { device } => self.drain(&device, false, &mut actions),
            Request::Apply { document } => self.apply(&document, &mut actions),
            Request::Preview { document } => Document::parse(&document)
                .and_then(Document::with_secrets)
                .map_err(|error| error.to_string())
                .and_then(|document| self.registry.preview(&document, &self.pages)),
            Request::Shutdown => {
                self.configuration.idle_exit = Some(Duration::ZERO);
                let change = Some("shutdown".to_owned());
                let event = AuditEvent { event: AuditKind::Changed, change, ..AuditEvent::default() };
                actions.push(Action::Audit(Box::new(event)));
                Ok("the daemon ends once nobody has a place".to_owned())
            }
            _ => Err("this version of the daemon can't do that".to_owned()),
        };
        if let Err(reason) = &done {
            actions.push(Action::Audit(Box::new(AuditEvent { reason: Some(reason.clone()), ..refusal })));
        }
        self.sign(id, &mut actions);
        self.perform(actions);
        self.send(id, done.map_or_else(|reason| Reply::Refused { reason }, |message| Reply::Done { message }));
    }

    /// How it is written down that a change was refused.
    fn refusal_of(&self, request: &Request) -> AuditEvent {
        let (change, tenant, asked) = match request {
            Request::Set(change) => ("set", Some(&change.tenant), self.registry.asked_by(change)),
            Request::Pause { tenant } => ("pause", Some(tenant), None),
            Request::Resume { tenant } => ("resume", Some(tenant), None),
            Request::Drain { .. } => ("drain", None, None),
            Request::Undrain { .. } => ("resume", None, None),
            Request::Apply { .. } => ("apply", None, None),
            Request::Approve { .. } => ("approve", None, None),
            _ => ("shutdown", None, None),
        };
        let (change, tenant) = (Some(change.to_owned()), tenant.cloned());
        AuditEvent { event: AuditKind::Refused, tenant, asked, change, ..AuditEvent::default() }
    }

    fn hello(&mut self, id: ConnectionId, hello: &Hello) {
        let Some(client) = self.clients.get(&id) else { return };
        let (uid, pid) = (Some(client.credentials.uid), Some(client.credentials.pid));
        let refuse = |server: &mut Self, reason: String| {
            let (tenant, command) = (hello.tenant.clone(), Some(hello.command.clone()));
            let refused = AuditEvent { event: AuditKind::Refused, tenant, uid, pid, command, ..AuditEvent::default() };
            server.record(AuditEvent { reason: Some(reason.clone()), ..refused });
            server.send(id, Reply::Refused { reason });
        };
        if self.registry.is_member(id) {
            return refuse(self, "a connection is for one hello".to_owned());
        }
        let (peer, notice) = match self.identify(id) {
            None => return,
            Some(Ok(known)) => known,
            Some(Err(reason)) => return refuse(self, reason),
        };
        self.forget_past_lives(peer.pid);
        if let Err(error) = self.watch(&notice, id.0 * 2 + 1) {
            return refuse(self, format!("the process can't be watched: {error}"));
        }
        self.notices.insert(id, notice);
        let mut actions = Vec::new();
        match self.moves_for(peer.pid) {
            // It is ours: whom the tenant is for, and what its processes must know, is not asked of it.
            Some(tenant) => self.registry.hello_of_mover(id, &peer, hello, tenant, &mut actions),
            None => self.registry.hello(id, &peer, hello, &mut actions),
        }
        self.perform(actions);
        if !self.registry.is_member(id) {
            self.notices.remove(&id);
        }
    }

    /// A process that was taken back says hello on a connection of its own.
    fn rejoin(&mut self, id: ConnectionId, version: u32, slot: u32) {
        let (tenant, message) = match self.try_rejoin(id, version, slot) {
            Ok(joined) => joined,
            Err(reason) => return self.send(id, Reply::Refused { reason }),
        };
        let reply = Reply::Done { message };
        let poke = self.pages.get(tenant).map(|pages| pages.common().poke.as_fd());
        let (Some(poke), Some(client)) = (poke, self.clients.get(&id)) else { return self.send(id, reply) };
        // Sent at once, as a welcome is: the connection is fresh. Who can't be reached is noticed as such.
        let _ = client.connection.send(&reply, &[poke]);
    }

    fn try_rejoin(&mut self, id: ConnectionId, version: u32, slot: u32) -> Result<(TenantId, String), String> {
        if let Some(reason) = mismatch("the library", version, "this daemon") {
            return Err(reason);
        }
        let (peer, notice) = self.identify(id).ok_or("the connection is closed")??;
        let pid = peer.pid;
        let unwatched = |error: std::io::Error| format!("the process can't be watched: {error}");
        self.watch(&notice, id.0 * 2 + 1).map_err(unwatched)?;
        let (before, tenant) = self.registry.rejoin(id, pid, slot)?;
        let name = self.registry.name_of(tenant).unwrap_or_default();
        let message = format!("tenant {name}: process {pid} is back");
        self.notices.remove(&before);
        self.notices.insert(id, notice);
        log::line(LogLevel::Info, format_args!("{message}"));
        Ok((tenant, message))
    }

    /// A process that called exec says hello again; what it held before is gone, and so are its marks.
    fn forget_past_lives(&mut self, pid: u32) {
        let mut actions = Vec::new();
        for (connection, tenant, slot) in self.registry.memberships(pid) {
            if !self.pages.is_marked(tenant, slot) {
                self.notices.remove(&connection);
                self.registry.left(connection, &mut actions);
            }
        }
        self.perform(actions);
    }

    /// Makes the slot the process's own and tells it.
    pub(super) fn welcome(&mut self, welcome: &Welcome) -> std::io::Result<()> {
        let pages = self.pages.of(welcome.tenant, &self.registry)?;
        pages.occupy(welcome.slot, welcome.pid);
        self.arbiter.set(welcome.tenant, pages.common(), &self.registry);
        self.arbiter.occupy(welcome.tenant, welcome.slot, welcome.pid);
        let reply = Reply::Welcome(message::Welcome {
            version: PROTOCOL_VERSION,
            tenant: welcome.name.clone(),
            slot: welcome.slot,
            devices: welcome.devices.iter().map(|device| device.and_then(|device| pages.place(device))).collect(),
        });
        let Some(client) = self.clients.get(&welcome.connection) else { return Ok(()) };
        match client.connection.send(&reply, &pages.descriptors()) {
            // A peer that is gone is noticed as such.
            Ok(()) | Err(WireError::Closed) => Ok(()),
            Err(error) => Err(std::io::Error::other(error.to_string())),
        }
    }

    fn about(&self) -> About {
        About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSION,
            pid: std::process::id(),
            simulated: self.configuration.simulated.clone(),
            tenants: self.registry.active_tenants() as u32,
        }
    }

    /// Asks the driver what a member holds. A question replaces the one before.
    fn measure(&mut self, connection: ConnectionId, sequence: u64) {
        if !self.registry.is_member(connection) {
            let reason = "only a member can be measured".to_owned();
            return self.send(connection, Reply::Refused { reason });
        }
        let asked = self.sampler.ask(Instant::now());
        self.measures.retain(|measure| measure.connection != connection);
        let deadline = Instant::now() + SAMPLE_WAIT_MAX;
        self.measures.push(Measure { connection, sequence, asked, deadline });
    }

    /// Answers those whose question came before the sample with this number.
    pub(super) fn answer_measures(&mut self, answers: u64) {
        let (due, left): (Vec<_>, Vec<_>) = self.measures.drain(..).partition(|measure| measure.asked <= answers);
        self.measures = left;
        for measure in due {
            let member = self.registry.members().find(|member| member.connection == measure.connection);
            let held = |member| self.pages.held_by_place(&member, &self.registry, &self.sample);
            let held_bytes = member.map(held).unwrap_or_default();
            self.send(measure.connection, Reply::Measured { sequence: measure.sequence, held_bytes });
        }
    }

    /// A driver that doesn't answer in time is not waited for.
    pub(super) fn drop_late_measures(&mut self, now: Instant) {
        let (late, left): (Vec<_>, Vec<_>) = self.measures.drain(..).partition(|measure| measure.deadline <= now);
        self.measures = left;
        for measure in late {
            let held_bytes = Vec::new();
            self.send(measure.connection, Reply::Measured { sequence: measure.sequence, held_bytes });
        }
    }

    /// Asks the driver first; the answer follows when it has said something, or has been silent for too long.
    fn list(&mut self, id: ConnectionId, of: Of) {
        let asked = self.sampler.ask_utilisation(Instant::now());
        // A driver that hangs has been waited for once already.
        let patience = if self.driver_hangs { Duration::ZERO } else { SAMPLE_WAIT_MAX };
        self.lists.retain(|waiting| waiting.connection != id);
        self.lists.push(List { connection: id, of, asked, deadline: Instant::now() + patience });
    }

    /// Answers those who wait for lists: whose question came before the sample with this number, or whose patience
    /// is over.
    pub(super) fn answer_lists(&mut self, answers: u64, now: Instant) {
        let is_due = |list: &List| list.asked <= answers || list.deadline <= now;
        let (due, left): (Vec<_>, Vec<_>) = self.lists.drain(..).partition(is_due);
        self.lists = left;
        let trouble = self.driver_trouble(now);
        let trouble = trouble.as_deref();
        for List { connection, of, .. } in due {
            match of {
                Of::Processes => {
                    let describe = |pid: u32| Some((user(pid)?, command(pid), started(pid)));
                    let rows = self.registry.process_rows(&self.view(trouble), &describe);
                    self.send_rows(connection, rows, |rows, last| Reply::Processes { rows, last });
                }
                Of::Devices => {
                    let tokens: Vec<Token> = (0..self.sample.len()).map(|device| self.token(device)).collect();
                    let rows = self.registry.device_rows(&self.view(trouble), &tokens);
                    self.send_rows(connection, rows, |rows, last| Reply::Devices { rows, last });
                }
            }
        }
    }

    fn view<'a>(&'a self, trouble: Option<&'a str>) -> View<'a> {
        View { usage: &self.pages, sample: &self.sample, shares: &self.shares, trouble, now_ns: now_ns() }
    }

    fn token(&self, device: usize) -> Token {
        Token { holder: self.arbiter.holder(device), contenders: self.arbiter.contenders(device) }
    }

    fn send_rows<T: Serialize>(&mut self, id: ConnectionId, rows: Vec<T>, reply: impl Fn(Vec<T>, bool) -> Reply) {
        let mut packet = Vec::new();
        let mut bytes = 0;
        for row in rows {
            let row_bytes = serde_json::to_vec(&row).map_or(0, |text| text.len() + 1);
            if packet.len() == ROWS_PER_PACKET || bytes + row_bytes > ROW_BYTES_PER_PACKET {
                self.send(id, reply(std::mem::take(&mut packet), false));
                bytes = 0;
            }
            bytes += row_bytes;
            packet.push(row);
        }
        self.send(id, reply(packet, true));
    }

    /// Who is at the other end, and the notice of its death; `None` when the connection is gone.
    fn identify(&self, id: ConnectionId) -> Option<Result<(Peer, OwnedFd), String>> {
        let client = self.clients.get(&id)?;
        if client.credentials.pid == 0 {
            return Some(Err("the daemon's pid namespace doesn't contain the process".to_owned()));
        }
        Some(client.arrival.identify(client.connection.as_fd()))
    }
}
