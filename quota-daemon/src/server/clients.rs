//! Connections: accepted, read, written to, closed.

use super::rates::{Allowance, Asker};
use super::{CLIENTS_MAX, Server, TOKEN_ADMIN, TOKEN_EVERYBODY};
use crate::log;
use crate::peer::{Arrival, container, has_dropped_ledger, is_ending};
use crate::registry::{Action, ConnectionId};
use quota_core::settings::LogLevel;
use quota_wire::audit::AuditKind;
use quota_wire::message::{Reply, Request};
use quota_wire::socket::{Connection, Credentials, WireError, accept, credentials};
use rustix::event::epoll::{self, EventFlags};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Requests taken from one connection before the others have their turn.
const REQUESTS_PER_TURN: usize = 16;
/// Answers that wait for a slow reader; a list of all processes of a node fits.
const OUTBOX_MAX: usize = 512;

/// Connections of administrators beyond those of all others.
const ADMINISTRATORS_MAX: usize = 64;
/// Connections accepted before those that are there have their turn.
const ACCEPTED_PER_TURN: usize = 64;
/// How long one that has asked too much isn't read.
const ASK_PAUSE: Duration = Duration::from_millis(50);
/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// One connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) connection: Connection,
    pub(super) credentials: Credentials,
    /// It, as it was when it came.
    pub(super) arrival: Arrival,
    /// With whose its connection is counted; no administrator's is.
    asker: Option<Asker>,
    /// It came through the socket for administrators.
    pub(super) admin: bool,
    /// What it may still ask.
    allowance: Allowance,
    /// It has asked too much: not read before then.
    paused_until: Option<Instant>,
    /// Answers that the socket doesn't take yet. Nothing is read meanwhile.
    outbox: VecDeque<Reply>,
    /// To be closed once the outbox is empty.
    pub(super) ending: bool,
}

impl Client {
    /// Answers that it hasn't taken yet.
    pub(super) fn waiting(&self) -> usize {
        self.outbox.len()
    }
}

impl Server {
    /// Watches the listening sockets again, when there is room for clients.
    pub(super) fn resume_accepting(&mut self) {
        let is_early = self.accept_again_at.is_some_and(|at| Instant::now() < at);
        if self.accepting || is_early || self.clients.len() >= CLIENTS_MAX {
            return;
        }
        let is_watched = |watched: io::Result<()>| match watched {
            Ok(()) => true,
            // It was watched all the time.
            Err(error) => error.kind() == io::ErrorKind::AlreadyExists,
        };
        let everybody = is_watched(self.watch(&self.listening.everybody, TOKEN_EVERYBODY));
        let admin = is_watched(self.watch(&self.listening.admin, TOKEN_ADMIN));
        self.accepting = everybody && admin;
    }

    /// Stops watching them: a socket that is ready and isn't served would keep the daemon awake. Administrators get in
    /// for longer than the others.
    pub(super) fn pause_accepting(&mut self, both: bool) {
        let _ = epoll::delete(&self.epoll, &self.listening.everybody);
        if both {
            let _ = epoll::delete(&self.epoll, &self.listening.admin);
        }
        self.accepting = false;
    }

    pub(super) fn accept_all(&mut self, admin: bool) {
        for _ in 0..ACCEPTED_PER_TURN {
            if self.clients.len() >= CLIENTS_MAX + if admin { ADMINISTRATORS_MAX } else { 0 } {
                return self.pause_accepting(admin);
            }
            let listener = if admin { &self.listening.admin } else { &self.listening.everybody };
            let connection = match accept(listener.as_fd()) {
                Ok(connection) => connection,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => continue,
                Err(error) => {
                    // Out of descriptors, most likely. The next connection that ends lets it go on, or the next attempt.
                    if self.accept_again_at.is_none() {
                        log::line(LogLevel::Error, format_args!("can't accept connections: {error}; goes on trying"));
                    }
                    self.accept_again_at = Some(Instant::now() + ACCEPT_PAUSE);
                    return self.pause_accepting(true);
                }
            };
            if self.accept_again_at.take().is_some() {
                log::line(LogLevel::Info, format_args!("accepts connections again"));
            }
            if let Err(error) = self.add_client(connection, admin) {
                log::line(LogLevel::Warn, format_args!("a connection was lost: {error}"));
            }
        }
    }

    fn add_client(&mut self, connection: Connection, admin: bool) -> io::Result<()> {
        let credentials = credentials(connection.as_fd())?;
        // An administrator gets in whoever else there is, and is counted apart.
        let asker = (!admin).then(|| (credentials.uid, container(credentials.pid)));
        if let Some(Err(reason)) = asker.as_ref().map(|asker| self.askers.enter(asker, Instant::now())) {
            // Whether it reads that or not, it is closed.
            let _ = connection.send(&Reply::Refused { reason }, &[]);
            return Ok(());
        }
        self.connections_made += 1;
        let id = ConnectionId(self.connections_made);
        let client = Client {
            connection,
            credentials,
            arrival: Arrival::now(credentials.pid, credentials.uid),
            asker,
            admin,
            allowance: Allowance::of_connection(Instant::now()),
            paused_until: None,
            outbox: VecDeque::new(),
            ending: false,
        };
        if let Err(error) = self.watch(&client.connection, id.0 * 2) {
            self.left(&client);
            return Err(error);
        }
        self.clients.insert(id, client);
        Ok(())
    }

    /// A connection is closed that was let in.
    pub(super) fn left(&mut self, client: &Client) {
        if let Some(asker) = &client.asker {
            self.askers.leave(asker);
        }
    }

    /// Takes what a request costs from what its connection and its user may ask; false when it has to wait.
    fn may_ask(&mut self, id: ConnectionId) -> bool {
        let now = Instant::now();
        let Some(client) = self.clients.get_mut(&id) else { return false };
        if client.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        let asks_no_more = client.asker.as_ref().is_some_and(|asker| !self.askers.may_ask(asker, now));
        if client.allowance.take(now) && !asks_no_more {
            return true;
        }
        client.paused_until = Some(now + ASK_PAUSE);
        self.paused.push_back((now + ASK_PAUSE, id));
        let _ =
            epoll::modify(&self.epoll, &client.connection, epoll::EventData::new_u64(id.0 * 2), EventFlags::empty());
        false
    }

    /// Reads again those that have waited for long enough.
    pub(super) fn resume_asking(&mut self, now: Instant) {
        while let Some((_, id)) = self.paused.front().copied().filter(|(until, _)| *until <= now) {
            self.paused.pop_front();
            if let Some(client) = self.clients.get_mut(&id) {
                client.paused_until = None;
                // What is wanted of it is asked of the kernel again.
                self.flush(id);
            }
        }
    }

    /// A connection is readable, writable or closed.
    pub(super) fn serve(&mut self, id: ConnectionId, flags: EventFlags) {
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) && !flags.contains(EventFlags::IN) {
            return self.close(id);
        }
        self.flush(id);
        self.feed(id);
        for _ in 0..REQUESTS_PER_TURN {
            if !self.clients.get(&id).is_some_and(|client| client.outbox.is_empty()) || !self.may_ask(id) {
                return;
            }
            let Some(client) = self.clients.get(&id) else { return };
            match client.connection.receive::<Request>() {
                // Descriptors that a client sends are closed unseen.
                Ok((request, _)) => self.answer(id, request),
                Err(WireError::WouldBlock) => return,
                Err(WireError::Closed | WireError::Io(_)) => return self.close(id),
                Err(error) => {
                    let version = env!("CARGO_PKG_VERSION");
                    let hint = "what a newer program asks needs a newer daemon";
                    let reason = format!("{error}; this is gpuquotad {version}, and {hint}");
                    self.send(id, Reply::Refused { reason });
                    return self.end(id);
                }
            }
        }
    }

    /// Sends, now or when the client has read what is before it.
    pub(super) fn send(&mut self, id: ConnectionId, reply: Reply) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.outbox.len() >= OUTBOX_MAX {
            log::line(LogLevel::Warn, format_args!("process {} doesn't read its answers", client.credentials.pid));
            return self.close(id);
        }
        client.outbox.push_back(reply);
        if client.outbox.len() == 1 {
            self.flush(id);
        }
    }

    /// Closes once everything is sent.
    pub(super) fn end(&mut self, id: ConnectionId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.ending = true;
            self.flush(id);
        }
    }

    fn flush(&mut self, id: ConnectionId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        while let Some(reply) = client.outbox.front() {
            match client.connection.send(reply, &[]) {
                Ok(()) => drop(client.outbox.pop_front()),
                Err(WireError::WouldBlock) => break,
                Err(_) => return self.close(id),
            }
        }
        if client.outbox.is_empty() && client.ending {
            return self.close(id);
        }
        let wanted = match () {
            () if !client.outbox.is_empty() => EventFlags::OUT,
            () if client.paused_until.is_some() => EventFlags::empty(),
            () => EventFlags::IN,
        };
        let _ = epoll::modify(&self.epoll, &client.connection, epoll::EventData::new_u64(id.0 * 2), wanted);
    }

    /// The connection is closed, by either side. A process that became a member on it remains one until it
    /// dies: programs close descriptors that they don't know.
    pub(super) fn close(&mut self, id: ConnectionId) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.left(&client);
        if let Some(at) = &mut self.accept_again_at {
            *at = Instant::now();
        }
        let _ = epoll::delete(&self.epoll, &client.connection);
        self.lists.retain(|list| list.connection != id);
        self.measures.retain(|measure| measure.connection != id);
        self.readers.remove(&id);
        let mut actions = Vec::new();
        self.registry.closed(id, &mut actions);
        name_process(client.credentials.pid, &mut actions);
        // Who has no ledger any more waits for no turn: it has called exec, or is dying.
        if let Some((pid, tenant, slot)) = self.registry.place_of(id).filter(|(pid, ..)| has_dropped_ledger(*pid)) {
            if is_ending(pid) && self.notices.contains_key(&id) {
                // The driver may hold its memory until it has ended, of which we hear.
                self.arbiter.vacate(tenant, slot);
            } else {
                self.notices.remove(&id);
                self.registry.left(id, &mut actions);
            }
        }
        self.perform(actions);
    }
}

/// Says of which process the connection was that has ended a job.
pub(super) fn name_process(pid: u32, actions: &mut [Action]) {
    for action in actions {
        if let Action::Audit(event) = action
            && event.event == AuditKind::Left
            && event.pid.is_none()
        {
            event.pid = Some(pid);
        }
    }
}
