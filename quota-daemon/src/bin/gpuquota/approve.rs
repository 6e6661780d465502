//! `approve`: jobs that wait since they would share a device that is somebody's own.

use crate::Failure;
use crate::daemons::{administer, all, list, sockets};
use crate::options::{ApproveOptions, AuditOutput};
use crate::set::tell;
use crate::show::json;
use crate::table::{Align, Table, print};
use quota_wire::message::{PendingRow, Reply, Request};
use quota_wire::socket::Connection;
use std::path::PathBuf;

/// Shows the requests, or decides one.
pub(crate) fn approve(options: &ApproveOptions) -> Result<(), Failure> {
    let daemons = daemons()?;
    let Some(number) = options.number else { return show(daemons, options.output) };
    let mut with = daemons.iter().filter(|(_, rows)| rows.iter().any(|row| row.number == number));
    let request = Request::Approve { number, deny: options.deny, reason: options.reason.clone() };
    match (with.next(), with.next()) {
        // On a connection of its own: a list takes one.
        (Some((socket, _)), None) => tell(&administer(socket)?, &request),
        (Some(_), Some(_)) => {
            let places: Vec<String> = daemons.iter().map(|(socket, _)| socket.display().to_string()).collect();
            let of = places.join(", ");
            Err(Failure::new(format!(
                "several daemons have a request {number}: name one with GPUQUOTA_SOCKET, of {of}"
            )))
        }
        _ => {
            let text = "waits for an approval; gpuquota approve lists those that do";
            Err(Failure::new(format!("no request {number} {text}")))
        }
    }
}

/// What waits at each daemon that this user may administer.
fn daemons() -> Result<Vec<(PathBuf, Vec<PendingRow>)>, Failure> {
    // A daemon that was named must answer; this says so in the words of the other commands.
    all()?;
    let (mut found, mut refused) = (Vec::new(), None);
    for socket in sockets()? {
        match administer(&socket).and_then(|connection| pending(&connection)) {
            Ok(rows) => found.push((socket, rows)),
            Err(failure) => refused = Some(failure),
        }
    }
    match refused {
        Some(failure) if found.is_empty() => Err(failure),
        _ => Ok(found),
    }
}

fn pending(connection: &Connection) -> Result<Vec<PendingRow>, Failure> {
    list(connection, &Request::Pending, |reply| match reply {
        Reply::Pending { rows, last } => Ok((rows, last)),
        other => Err(other),
    })
}

fn show(daemons: Vec<(PathBuf, Vec<PendingRow>)>, output: AuditOutput) -> Result<(), Failure> {
    let rows: Vec<PendingRow> = daemons.into_iter().flat_map(|(_, rows)| rows).collect();
    if output == AuditOutput::Json {
        print(&json(&rows)?);
        return Ok(());
    }
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("NUMBER", Right),
        ("TENANT", Left),
        ("UID", Right),
        ("PID", Right),
        ("WAITS", Right),
        ("DEVICES", Left),
        ("BESIDE", Left),
        ("COMMAND", Left),
        ("RISK", Left),
    ]);
    for row in &rows {
        let devices: Vec<String> = row.devices.iter().map(u32::to_string).collect();
        table.push(vec![
            row.number.to_string(),
            row.tenant.clone().unwrap_or_else(|| "-".to_owned()),
            row.uid.to_string(),
            row.pid.to_string(),
            format!("{}s", row.waits_seconds),
            devices.join(","),
            row.beside.join(","),
            row.command.clone(),
            row.risk.clone(),
        ]);
    }
    print(&table.render());
    if rows.is_empty() {
        eprintln!("gpuquota: nothing waits for an approval");
    }
    Ok(())
}
