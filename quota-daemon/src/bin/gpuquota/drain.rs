//! `drain` and `resume`: devices that the daemon lets go of, and who goes on.

use crate::Failure;
use crate::daemons::{ANSWER_WAIT_MAX, administer, ask, unexpected};
use crate::options::{DrainOptions, Output};
use crate::set::{daemon_of, of_the_node, tell};
use crate::show::{device_rows, json};
use crate::table::print;
use quota_daemon::devices::select;
use quota_wire::message::{DeviceRow, Reply, Request};
use quota_wire::socket::Connection;
use std::time::{Duration, Instant};

/// Between two looks whether the daemon has let go.
const LOOK: Duration = Duration::from_millis(20);

/// Has the daemon let go of devices, and waits until it has.
pub(crate) fn drain(options: &DrainOptions) -> Result<(), Failure> {
    let connection = administer(&of_the_node())?;
    let message = match ask(&connection, &Request::Drain { device: options.device.clone() })? {
        Reply::Done { message } => message,
        other => return Err(unexpected(&other)),
    };
    let rows = let_go_of(&connection, &options.device)?;
    match options.output {
        Output::Json => print(&json(&rows)?),
        _ => print(&format!("{message}\n")),
    }
    Ok(())
}

/// The devices, once nothing of the daemon's holds them.
fn let_go_of(connection: &Connection, selection: &str) -> Result<Vec<DeviceRow>, Failure> {
    let deadline = Instant::now() + ANSWER_WAIT_MAX;
    loop {
        let rows = chosen(device_rows(connection)?, selection);
        let Some(held) = rows.iter().find(|row| row.health == "draining") else { return Ok(rows) };
        if Instant::now() >= deadline {
            return Err(Failure::new(format!(
                "device {} is drained, but the daemon still holds it: the driver doesn't answer; see gpuquota audit",
                held.device
            )));
        }
        std::thread::sleep(LOOK);
    }
}

fn chosen(rows: Vec<DeviceRow>, selection: &str) -> Vec<DeviceRow> {
    let names: Vec<(&str, &str)> = rows.iter().map(|row| (row.uuid.as_str(), row.name.as_str())).collect();
    let chosen = select(&names, selection).unwrap_or_default();
    let numbered = rows.into_iter().enumerate();
    numbered.filter(|(index, _)| chosen.contains(index)).map(|(_, row)| row).collect()
}

/// Gives a tenant back what was taken from it, or has the daemon use a device again.
pub(crate) fn resume(name: &str) -> Result<(), Failure> {
    match daemon_of(name) {
        Ok(socket) => tell(&administer(&socket)?, &Request::Resume { tenant: name.to_owned() }),
        Err(_) if is_device(name) => tell(&administer(&of_the_node())?, &Request::Undrain { device: name.to_owned() }),
        Err(failure) => Err(failure),
    }
}

/// True for what names devices of the daemon that [`drain`] is for.
fn is_device(name: &str) -> bool {
    let Ok(connection) = Connection::connect(&of_the_node(), Instant::now() + Duration::from_secs(1)) else {
        return false;
    };
    device_rows(&connection).is_ok_and(|rows| !chosen(rows, name).is_empty())
}
