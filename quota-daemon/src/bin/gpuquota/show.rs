//! `ps` and `devices`.

use crate::daemons::{all, list};
use crate::options::Output;
use crate::table::{Align, Table, print};
use crate::{Failure, STATUS_FAILED};
use quota_core::Bytes;
use quota_daemon::arbiter::now_ns;
use quota_daemon::devices::Nvml;
use quota_daemon::document::Document;
use quota_daemon::registry::{Overrides, Registry, TenantId, Usage, View};
use quota_daemon::shares::Shares;
use quota_wire::message::{DeviceRow, ProcessRow, Reply, Request};
use quota_wire::socket::Connection;

/// Characters of a command in a table that isn't wide.
const COMMAND_CHARS_MAX: usize = 48;

/// Prints who holds what.
pub(crate) fn processes(output: Output) -> Result<(), Failure> {
    let connections = all()?;
    let mut rows = Vec::new();
    for connection in &connections {
        merge(&mut rows, process_rows(connection)?);
    }
    if output == Output::Json {
        print(&json(&rows)?);
        return Ok(());
    }
    print(&process_table(&rows, output).render());
    if connections.is_empty() {
        eprintln!("gpuquota: no daemon is running; gpuquota run starts one");
    } else if rows.is_empty() {
        eprintln!("gpuquota: no processes");
    }
    Ok(())
}

/// All processes of one daemon.
pub(crate) fn process_rows(connection: &Connection) -> Result<Vec<ProcessRow>, Failure> {
    list(connection, &Request::Processes, |reply| match reply {
        Reply::Processes { rows, last } => Ok((rows, last)),
        other => Err(other),
    })
}

/// A process that one daemon manages is a stranger to another one over the same device.
fn merge(rows: &mut Vec<ProcessRow>, more: Vec<ProcessRow>) {
    let is_foreign = |row: &ProcessRow| row.tenant == "-";
    for row in more {
        let twin = rows.iter().position(|known| known.pid == row.pid && known.uuid == row.uuid);
        match twin {
            Some(at) if is_foreign(&rows[at]) => rows[at] = row,
            Some(_) if is_foreign(&row) => {}
            _ => rows.push(row),
        }
    }
}

/// Processes as a table.
pub(crate) fn process_table(rows: &[ProcessRow], output: Output) -> Table {
    use Align::{Left, Right};
    let mut columns = vec![
        ("TENANT", Left),
        ("PID", Right),
        ("DEVICE", Right),
        ("USED", Right),
        ("QUOTA", Right),
        ("SHARE", Right),
        ("CAP", Right),
        ("STATE", Left),
    ];
    if output == Output::Wide {
        columns.extend([
            ("UID", Right),
            ("OVERHEAD", Right),
            ("RESIDENT", Right),
            ("GUARANTEE", Right),
            ("WEIGHT", Right),
            ("PRIORITY", Left),
            ("THROTTLED", Right),
            ("WAITED", Right),
            ("WAITING", Right),
            ("STARTED", Left),
            ("UUID", Left),
        ]);
    }
    columns.push(("COMMAND", Left));
    if output == Output::Wide {
        columns.push(("WHY", Left));
    }
    let mut table = Table::new(&columns);
    for row in rows {
        let mut cells = vec![
            row.tenant.clone(),
            row.pid.to_string(),
            row.device.map_or_else(dash, |device| device.to_string()),
            human(row.memory_used_bytes),
            row.memory_quota_bytes.map_or_else(dash, |bytes| quota(bytes, row.memory_dynamic)),
            row.compute_used_percent.map_or_else(dash, percent),
            row.compute_cap_percent.map_or_else(dash, |cap| match row.compute_borrowed_percent {
                Some(borrowed) => format!("{}+{}", percent(cap), percent(borrowed)),
                None => percent(cap),
            }),
            row.state.clone(),
        ];
        if output == Output::Wide {
            cells.extend([
                row.uid.to_string(),
                human(row.memory_overhead_bytes),
                row.memory_resident_bytes.map_or_else(dash, human),
                row.compute_guarantee_percent.map_or_else(dash, percent),
                row.weight.to_string(),
                row.priority.clone(),
                seconds(row.compute_throttled_seconds),
                seconds(row.compute_waited_seconds),
                row.compute_waiting.to_string(),
                row.started.clone(),
                row.uuid.clone(),
            ]);
            cells.push(row.command.clone());
            cells.push(row.state_reason.clone().unwrap_or_else(dash));
        } else {
            cells.push(row.command.chars().take(COMMAND_CHARS_MAX).collect());
        }
        table.push(cells);
    }
    table
}

/// Prints the devices: as the daemons see them, else as the driver does.
pub(crate) fn devices(output: Output) -> Result<(), Failure> {
    let connections = all()?;
    let mut rows: Vec<DeviceRow> = Vec::new();
    for connection in &connections {
        rows.extend(device_rows(connection)?);
    }
    if connections.is_empty() {
        rows = without_daemon()?;
    }
    if output == Output::Json {
        print(&json(&rows)?);
        return Ok(());
    }
    print(&device_table(&rows, output).render());
    if connections.is_empty() {
        eprintln!("gpuquota: no daemon is running; this is what the driver says");
    }
    Ok(())
}

/// All devices of one daemon.
pub(crate) fn device_rows(connection: &Connection) -> Result<Vec<DeviceRow>, Failure> {
    list(connection, &Request::Devices, |reply| match reply {
        Reply::Devices { rows, last } => Ok((rows, last)),
        other => Err(other),
    })
}

/// Nobody has anything.
struct Nothing;

impl Usage for Nothing {
    fn charged(&self, _tenant: TenantId, _slot: u32, _device: usize) -> Bytes {
        Bytes(0)
    }

    fn overhead(&self, _tenant: TenantId, _slot: u32, _device: usize) -> Bytes {
        Bytes(0)
    }
}

fn without_daemon() -> Result<Vec<DeviceRow>, Failure> {
    let failed = |error: &dyn core::fmt::Display| Failure { status: STATUS_FAILED, text: error.to_string() };
    let nvml = Nvml::open().map_err(|error| failed(&error))?;
    let inventory = nvml.inventory().map_err(|error| failed(&error))?;
    let registry =
        Registry::new(&inventory, &Document::default(), Overrides::default()).map_err(|error| failed(&error))?;
    let mut sample = nvml.sample(&inventory.devices);
    for (device, used) in sample.iter_mut().zip(nvml.utilisation(&inventory.devices)) {
        device.utilisation = used;
    }
    let view = View { usage: &Nothing, sample: &sample, shares: &Shares::default(), trouble: None, now_ns: now_ns() };
    Ok(registry.device_rows(&view, &[]))
}

fn device_table(rows: &[DeviceRow], output: Output) -> Table {
    use Align::{Left, Right};
    let mut columns = vec![
        ("DEVICE", Right),
        ("NAME", Left),
        ("CAPACITY", Right),
        ("GRANTED", Right),
        ("USED", Right),
        ("COMPUTE", Right),
        ("GUARANTEED", Right),
        ("JOBS", Right),
        ("QUEUED", Right),
        ("DRIVER", Left),
        ("MIG", Left),
        ("HEALTH", Left),
    ];
    if output == Output::Wide {
        columns.extend([("TOTAL", Right), ("CHARGED", Right), ("CONTENDED", Right), ("HOLDER", Left), ("UUID", Left)]);
    }
    let mut table = Table::new(&columns);
    for row in rows {
        let mut cells = vec![
            row.device.to_string(),
            shown_name(row),
            capacity(row),
            human(row.memory_granted_bytes),
            human(row.memory_used_bytes),
            row.compute_used_percent.map_or_else(dash, percent),
            percent(row.compute_guaranteed_percent),
            row.jobs.to_string(),
            row.jobs_waiting.to_string(),
            row.driver.clone(),
            row.mig.clone(),
            row.health.clone(),
        ];
        if output == Output::Wide {
            cells.extend([
                human(row.memory_total_bytes),
                human(row.memory_charged_bytes),
                row.compute_contended_jobs.to_string(),
                row.compute_holder.clone().unwrap_or_else(dash),
                row.uuid.clone(),
            ]);
        }
        table.push(cells);
    }
    table
}

/// A MIG instance stands under the device that it is a part of.
fn shown_name(row: &DeviceRow) -> String {
    if row.parent_uuid.is_some() { format!("  MIG {}", row.mig) } else { row.name.clone() }
}

/// An array, one object a line, so that a diff of two shows what has changed.
pub(crate) fn json<T: serde::Serialize>(rows: &[T]) -> Result<String, Failure> {
    let text: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
    let text = text.map_err(|error| Failure::new(error.to_string()))?;
    Ok(if text.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", text.join(",\n")) })
}

fn human(bytes: u64) -> String {
    Bytes(bytes).human()
}

/// A quota whose memory may be moved to the host is marked.
fn quota(bytes: u64, dynamic: bool) -> String {
    if dynamic { format!("{} dynamic", human(bytes)) } else { human(bytes) }
}

/// What can be granted, and how many times where that is more than once.
fn capacity(row: &DeviceRow) -> String {
    let bytes = human(row.memory_capacity_bytes);
    if row.memory_oversubscribe > 1.0 { format!("{bytes} x {}", row.memory_oversubscribe) } else { bytes }
}

fn percent(percent: f64) -> String {
    format!("{percent}%")
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.1}s")
}

fn dash() -> String {
    "-".to_owned()
}
