//! `set`, `pause`, `interrupt` and `apply`: what the daemon has granted, changed.

use crate::Failure;
use crate::daemons::{administer, all, ask, sockets, unexpected};
use crate::options::{InterruptOptions, SetOptions, action};
use quota_core::settings::DEFAULT_SOCKET;
use quota_daemon::document::{Document, DocumentError};
use quota_wire::message::{Change, Reply, Request};
use quota_wire::socket::Connection;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Changes a tenant's quota, at whichever daemon has the tenant.
pub(crate) fn set(options: &SetOptions) -> Result<(), Failure> {
    let quota = options.quota.read()?;
    let change = Change {
        tenant: options.tenant.clone(),
        memory: quota.memory.map(|size| size.to_string()),
        compute: quota.compute.map(quota_core::Percent::hundredths),
        guarantee: quota.guarantee.map(quota_core::Percent::hundredths),
        weight: quota.weight,
        priority: quota.priority.map(|priority| priority.to_string()),
    };
    if (Change { tenant: options.tenant.clone(), ..Change::default() }) == change {
        return Err(Failure::usage(
            "set: nothing to change; give --memory, --compute, --guarantee, --weight or --priority",
        ));
    }
    let socket = daemon_of(&options.tenant)?;
    tell(&administer(&socket)?, &Request::Set(change))
}

/// Withholds a tenant's compute.
pub(crate) fn pause(tenant: &str) -> Result<(), Failure> {
    let socket = daemon_of(tenant)?;
    tell(&administer(&socket)?, &Request::Pause { tenant: tenant.to_owned() })
}

/// Has a tenant make room.
pub(crate) fn interrupt(options: &InterruptOptions) -> Result<(), Failure> {
    let grace_ms = options.grace_ms()?;
    let action = action("--action", options.action.as_deref())?;
    let socket = daemon_of(&options.tenant)?;
    tell(&administer(&socket)?, &Request::Interrupt { tenant: options.tenant.clone(), grace_ms, action })
}

/// The socket of the daemon that has the tenant.
pub(crate) fn daemon_of(tenant: &str) -> Result<PathBuf, Failure> {
    // A daemon that was named must answer; this says so in the words of the other commands.
    all()?;
    let mut with = Vec::new();
    let mut without = Vec::new();
    for socket in sockets()? {
        let Ok(connection) = Connection::connect(&socket, Instant::now() + Duration::from_secs(1)) else { continue };
        match ask(&connection, &Request::Find { tenant: tenant.to_owned() }) {
            Ok(_) => with.push(socket),
            Err(failure) => without.push(failure),
        }
    }
    match (with.len(), without.len()) {
        (1, _) => Ok(with.remove(0)),
        (0, 0) => Err(Failure::new(format!("there is no tenant {tenant:?}: no daemon answers"))),
        (0, 1) => Err(without.remove(0)),
        (0, _) => {
            Err(Failure::new(format!("no daemon has a tenant {tenant:?}; gpuquota ps shows those with processes")))
        }
        _ => {
            let places: Vec<String> = with.iter().map(|socket| socket.display().to_string()).collect();
            Err(Failure::new(format!(
                "several daemons have a tenant {tenant:?}: name one with GPUQUOTA_SOCKET, of {}",
                places.join(", ")
            )))
        }
    }
}

/// Replaces the document of the daemon that the environment names, else of the node's; or says what that would change.
pub(crate) fn apply(file: &Path, dry_run: bool) -> Result<(), Failure> {
    let shown = file.display().to_string();
    let wrong = |reason: &str| {
        Failure::new(if reason.starts_with(&shown) { reason.to_owned() } else { format!("{shown}: {reason}") })
    };
    // Read here first: what is wrong with the text needs no daemon to be said.
    Document::load(file).map_err(|error: DocumentError| wrong(&error.to_string()))?;
    let document = std::fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
    let connection = administer(&of_the_node())?;
    let request = if dry_run { Request::Preview { document } } else { Request::Apply { document } };
    tell(&connection, &request).map_err(|failure| wrong(&failure.text))
}

/// The socket of the daemon that the environment names, else of the node's.
pub(crate) fn of_the_node() -> PathBuf {
    std::env::var_os("GPUQUOTA_SOCKET").map_or_else(|| PathBuf::from(DEFAULT_SOCKET), PathBuf::from)
}

pub(crate) fn tell(connection: &Connection, request: &Request) -> Result<(), Failure> {
    match ask(connection, request)? {
        Reply::Done { message } => {
            crate::table::print(&format!("{message}\n"));
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}
