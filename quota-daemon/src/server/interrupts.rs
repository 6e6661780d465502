//! What interruptions need of the shell: questions about them, signals to processes, and jobs that come back.

use super::Server;
use crate::log;
use crate::registry::{Action, ConnectionId};
use quota_core::settings::LogLevel;
use quota_wire::message::{PROTOCOL_VERSION, Reply, Request};
use rustix::process::{Signal, pidfd_send_signal};

impl Server {
    /// What members and jobs say about interruptions; most of it is not answered. What isn't about them comes back.
    pub(super) fn hear(&mut self, id: ConnectionId, request: Request) -> Option<Request> {
        let mut actions = Vec::new();
        match request {
            Request::Listen { listens } => self.registry.listen(id, listens),
            Request::Ready { notice } => self.registry.ready(id, notice),
            Request::Moved { notice, failed } => {
                let failed = failed.map(|reason| crate::peer::clean(&reason));
                self.registry.moved(id, notice, failed.as_deref(), &mut actions);
            }
            Request::Return { version, tenant } => self.take_job_back(id, version, &tenant, &mut actions),
            request => return Some(request),
        }
        self.perform(actions);
        None
    }

    /// `gpuquota run` is here again: its connection stands for the job, where its process did until now.
    fn take_job_back(&mut self, id: ConnectionId, version: u32, tenant: &str, actions: &mut Vec<Action>) {
        let returned = self.try_take_job_back(id, version, tenant, actions);
        let reply = match returned {
            Ok(()) => Reply::Done { message: format!("tenant {tenant}: the job is back") },
            Err(reason) => Reply::Refused { reason },
        };
        actions.insert(0, Action::Reply(id, reply));
    }

    fn try_take_job_back(
        &mut self,
        id: ConnectionId,
        version: u32,
        tenant: &str,
        actions: &mut Vec<Action>,
    ) -> Result<(), String> {
        if version != PROTOCOL_VERSION {
            return Err(format!("the command speaks protocol {version}, this daemon {PROTOCOL_VERSION}"));
        }
        let pid = self.clients.get(&id).map(|client| client.credentials.pid);
        let of_pid = self.adopted_jobs.iter().find(|(_, process)| Some(process.pid) == pid);
        let before = of_pid.map(|(before, _)| *before).ok_or("no job of this process was taken back")?;
        self.registry.returned(before, id, tenant, actions)?;
        self.adopted_jobs.remove(&before);
        self.notices.remove(&before);
        Ok(())
    }

    /// Ends a member's process. One that is dead already has what was wanted.
    pub(super) fn end_process(&mut self, member: ConnectionId, forced: bool) {
        let Some(process) = self.notices.get(&member) else { return };
        let signal = if forced { Signal::KILL } else { Signal::TERM };
        match pidfd_send_signal(process, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => log::line(LogLevel::Warn, format_args!("a process can't be ended: {error}")),
        }
    }
}
