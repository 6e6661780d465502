//! Memory that the daemon moves itself, of jobs whose `gpuquota run` was killed: by a child that is the same program as `run`
//! would have started, with the same rights as the job's processes.

use super::Server;
use crate::installed::{preload, program};
use crate::log;
use crate::movers::{MOVE_WAIT, instruct, outcome};
use crate::registry::{Action, ConnectionId, Move, TenantId};
use quota_core::settings::LogLevel;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Instant;

/// Settings of whoever started the daemon, which are not the job's.
const FOREIGN_SETTINGS: [&str; 4] = ["GPUQUOTA_", "CUDA_DEVICE_", "CUDA_TASK_", "GPU_CORE_"];

/// A child that moves the memory of a tenant's processes.
#[derive(Debug)]
pub(super) struct Mover {
    pub(super) tenant: TenantId,
    notice: u32,
    child: Child,
    pub(super) deadline: Option<Instant>,
}

impl Server {
    /// Starts one, or says at once why that can't be done.
    pub(super) fn start_mover(&mut self, order: &Move) -> Vec<Action> {
        let mut actions = Vec::new();
        let started = self.mover(order).and_then(|mut command| command.spawn().map_err(|error| error.to_string()));
        let child = match started {
            Ok(child) => child,
            Err(reason) => {
                self.registry.moved_by_daemon(order.tenant, order.notice.number, Some(&reason), &mut actions);
                return actions;
            }
        };
        let text = format!("tenant {}: nobody runs its jobs any more: the daemon moves its memory", order.name);
        log::line(LogLevel::Info, format_args!("{text}"));
        let deadline = Some(Instant::now() + MOVE_WAIT);
        let mut mover = Mover { tenant: order.tenant, notice: order.notice.number, child, deadline };
        match self.watch_process(mover.child.id()) {
            Some(id) => _ = self.movers.insert(id, mover),
            None => {
                // Its end would not be heard of.
                let _ = mover.child.kill();
                let _ = mover.child.wait();
                let reason = Some("the kernel doesn't let us watch what moves its memory");
                self.registry.moved_by_daemon(order.tenant, order.notice.number, reason, &mut actions);
            }
        }
        actions
    }

    /// The program, in the daemon's own surroundings: what the job's processes have in theirs is their user's, and of no
    /// concern to a daemon that may be root.
    fn mover(&self, order: &Move) -> Result<Command, String> {
        let mut command = Command::new(program("gpuquota"));
        instruct(&mut command, &order.notice);
        for (name, _) in std::env::vars_os() {
            if FOREIGN_SETTINGS.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command.env_remove("NOTIFY_SOCKET");
        command.env("LD_PRELOAD", preload(None)?);
        command.env("GPUQUOTA_SOCKET", &self.configuration.socket);
        command.env("GPUQUOTA_TENANT", &order.name);
        // What it says is read at its end, and is to be one line.
        command.env("GPUQUOTA_LOG", "error");
        command.env("CUDA_VISIBLE_DEVICES", order.devices.join(","));
        let own = rustix::process::geteuid();
        if let Some(uid) = order.uid.filter(|uid| own.is_root() && *uid != own.as_raw()) {
            let pid = order.notice.pids.first().copied().unwrap_or_default();
            let group = std::fs::metadata(format!("/proc/{pid}")).map_err(|error| format!("process {pid}: {error}"))?;
            command.uid(uid).gid(group.gid());
        }
        self.signals.unblock_in(&mut command);
        Ok(command)
    }

    /// The tenant whose memory a process moves for us.
    pub(super) fn moves_for(&self, pid: u32) -> Option<TenantId> {
        self.movers.values().find(|mover| mover.child.id() == pid).map(|mover| mover.tenant)
    }

    /// A process has ended that was watched under `id`: true where it was one of these.
    pub(super) fn has_ended_mover(&mut self, id: ConnectionId) -> bool {
        let Some(mut mover) = self.movers.remove(&id) else { return false };
        let failed = outcome(&mut mover.child);
        let mut actions = Vec::new();
        self.registry.moved_by_daemon(mover.tenant, mover.notice, failed.as_deref(), &mut actions);
        self.perform(actions);
        true
    }

    /// Ends those that have taken too long. They die when the driver lets them go, which is heard of as of any other's end.
    pub(super) fn end_late_movers(&mut self, now: Instant) {
        for mover in self.movers.values_mut().filter(|mover| mover.deadline.is_some_and(|at| at <= now)) {
            mover.deadline = None;
            let _ = mover.child.kill();
        }
    }
}
