//! `audit`: what has happened, by the daemons' word.

use crate::daemons::{ANSWER_WAIT_MAX, sockets, unexpected};
use crate::options::{AuditOptions, AuditOutput};
use crate::{Failure, daemons};
use quota_core::Bytes;
use quota_daemon::audit::file::{now_ms, since_1970_ms};
use quota_daemon::places::admin_socket;
use quota_wire::audit::{AuditOlder, AuditQuery, AuditRow, AuditTerms, DeviceTerms, KINDS};
use quota_wire::message::{Reply, Request};
use quota_wire::socket::{Connection, WireError};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a packet is waited for while nothing happens, before it is waited for again.
const FOLLOW_WAIT: Duration = Duration::from_secs(60);
/// How long the daemon may look for old events in its files before it finds one more packet of them.
const HISTORY_WAIT_MAX: Duration = Duration::from_secs(60);
/// What `--since` looks like.
const SINCE_FORM: &str = "a duration such as 10m or 2d, or a time such as 2026-01-31T12:00:00Z";

/// Prints what has happened.
pub(crate) fn audit(options: &AuditOptions) -> Result<(), Failure> {
    let query = query(options)?;
    let connections = readable()?;
    if connections.is_empty() {
        eprintln!("gpuquota: no daemon is running; gpuquota run starts one");
        return Ok(());
    }
    if !options.follow {
        return list(&connections, &query, options);
    }
    if options.output == AuditOutput::Table {
        let _ = put(&header());
    }
    // Each daemon at its own pace; the first that ends, ends all.
    let (ended, ends) = std::sync::mpsc::channel();
    for connection in connections {
        let (ended, query, output) = (ended.clone(), query.clone(), options.output);
        std::thread::spawn(move || ended.send(follow(&connection, &query, output)));
    }
    ends.recv().unwrap_or(Ok(()))
}

fn list(connections: &[Connection], query: &AuditQuery, options: &AuditOptions) -> Result<(), Failure> {
    let (mut rows, mut hints) = (Vec::new(), Vec::new());
    for connection in connections {
        let (newer, older) = all(connection, query, ANSWER_WAIT_MAX)?;
        let left = query.newest.map(|newest| newest.saturating_sub(newer.len() as u32));
        match older {
            Some(_) if left == Some(0) => {}
            Some(older) if older.files && (left.is_some() || query.since_ms.is_some()) => {
                let before = AuditQuery { before: Some(older.before), newest: left, ..query.clone() };
                rows.extend(all(connection, &before, HISTORY_WAIT_MAX)?.0);
            }
            Some(older) => hints.push(older.hint),
            None => {}
        }
        rows.extend(newer);
    }
    // Those of one daemon are in order already, and stay so where times are the same.
    if connections.len() > 1 {
        rows.sort_by(|one, other| one.time.cmp(&other.time));
        let newest = options.newest.map_or(usize::MAX, |newest| newest as usize);
        rows.drain(..rows.len().saturating_sub(newest));
    }
    if options.output == AuditOutput::Table {
        let _ = put(&header());
    }
    // A reader that has gone away has seen enough.
    let _ = put_rows(&rows, options.output);
    for hint in hints {
        eprintln!("gpuquota: {hint}");
    }
    Ok(())
}

/// All that a daemon answers, each packet within `patience`.
fn all(
    connection: &Connection,
    query: &AuditQuery,
    patience: Duration,
) -> Result<(Vec<AuditRow>, Option<AuditOlder>), Failure> {
    connection.send(&Request::Audit(query.clone()), &[]).map_err(broken)?;
    let mut all = Vec::new();
    loop {
        match connection.receive_until(Instant::now() + patience).map_err(broken)? {
            (Reply::Audit { rows, last, older }, _) => {
                all.extend(rows);
                if last {
                    return Ok((all, older));
                }
            }
            (other, _) => return Err(unexpected(&other)),
        }
    }
}

fn follow(connection: &Connection, query: &AuditQuery, output: AuditOutput) -> Result<(), Failure> {
    connection.send(&Request::Audit(query.clone()), &[]).map_err(broken)?;
    loop {
        match connection.receive_until(Instant::now() + FOLLOW_WAIT) {
            Ok((Reply::Audit { rows, .. }, _)) => {
                if put_rows(&rows, output).is_err() {
                    return Ok(());
                }
            }
            Ok((other, _)) => return Err(unexpected(&other)),
            Err(WireError::TimedOut) => {}
            Err(error) => return Err(broken(error)),
        }
    }
}

/// Connections to the daemons, as an administrator where that is allowed.
fn readable() -> Result<Vec<Connection>, Failure> {
    let ordinary = daemons::all()?;
    let soon = || Instant::now() + Duration::from_secs(1);
    let connect = |socket: &Path| {
        let admin = Connection::connect(&admin_socket(socket), soon());
        admin.or_else(|_| Connection::connect(socket, soon())).ok()
    };
    let connections: Vec<Connection> = sockets()?.iter().filter_map(|socket| connect(socket)).collect();
    Ok(if connections.is_empty() { ordinary } else { connections })
}

fn query(options: &AuditOptions) -> Result<AuditQuery, Failure> {
    let kinds: Vec<String> = options.event.clone();
    if let Some(unknown) = kinds.iter().find(|word| KINDS.iter().all(|(_, known)| known != word)) {
        let known: Vec<&str> = KINDS.iter().map(|(_, word)| *word).collect();
        return Err(Failure::usage(format!("--event {unknown}: it is unknown; expected {}", known.join(", "))));
    }
    let since_ms = options.since.as_deref().map(since).transpose()?;
    Ok(AuditQuery {
        tenant: options.tenant.clone(),
        kinds,
        since_ms,
        newest: options.newest,
        before: None,
        follow: options.follow,
    })
}

fn since(text: &str) -> Result<u64, Failure> {
    if let Ok(time) = humantime::parse_rfc3339(text) {
        return Ok(since_1970_ms(time));
    }
    let ago = humantime::parse_duration(text)
        .map_err(|_| Failure::usage(format!("--since {text}: it is neither; expected {SINCE_FORM}")))?;
    Ok(now_ms().saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)))
}

fn broken(error: WireError) -> Failure {
    Failure::new(format!("the daemon: {error}"))
}

fn put_rows(rows: &[AuditRow], output: AuditOutput) -> std::io::Result<()> {
    let lines = rows.iter().map(|row| match output {
        AuditOutput::Json => serde_json::to_string(row).unwrap_or_default() + "\n",
        AuditOutput::Table => line(row),
    });
    put(&lines.collect::<String>())
}

fn put(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Columns of one width, since it isn't known what comes.
fn columns(cells: [&str; 8]) -> String {
    let [time, event, tenant, uid, pid, asked, granted, what] = cells;
    let line = format!("{time:<24}  {event:<11}  {tenant:<16}  {uid:>5}  {pid:>7}  {asked:<14}  {granted:<14}  {what}");
    line.trim_end().to_owned() + "\n"
}

fn header() -> String {
    columns(["TIME", "EVENT", "TENANT", "UID", "PID", "ASKED", "GRANTED", "WHAT"])
}

fn line(row: &AuditRow) -> String {
    let event = &row.event;
    let number = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let mut what: Vec<String> = Vec::new();
    what.extend(event.lost.map(|count| format!("{count} events")));
    what.extend(event.change.clone());
    what.extend(event.command.clone().filter(|command| !command.is_empty()));
    what.extend(event.reason.clone());
    what.extend(event.by_uid.map(|uid| format!("by user {uid} (process {})", number(event.by_pid))));
    columns([
        &row.time,
        event.event.word(),
        event.tenant.as_deref().unwrap_or("-"),
        &number(event.uid),
        &number(event.pid),
        &terms(event.asked.as_ref(), &event.asked_by_device),
        &terms(event.granted.as_ref(), &event.granted_by_device),
        &what.join(": "),
    ])
}

/// Memory and compute; the rest is in the JSON.
fn terms(terms: Option<&AuditTerms>, by_device: &[DeviceTerms]) -> String {
    let Some(terms) = terms else { return if by_device.is_empty() { "-" } else { "by device" }.to_owned() };
    let memory = match (terms.memory_percent, terms.memory_bytes) {
        (Some(percent), _) => format!("{percent}%"),
        (None, Some(bytes)) => Bytes(bytes).human(),
        (None, None) => "no cap".to_owned(),
    };
    terms.compute_percent.map_or(memory.clone(), |percent| format!("{memory}, {percent}%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quota_wire::audit::{AuditEvent, AuditKind};

    #[test]
    fn a_row_is_one_line_whose_columns_stand_under_the_header() {
        let event = AuditEvent {
            event: AuditKind::Granted,
            tenant: Some("vision".to_owned()),
            uid: Some(1000),
            pid: Some(4242),
            command: Some("python train.py".to_owned()),
            granted: Some(AuditTerms { memory_bytes: Some(4 << 30), ..AuditTerms::default() }),
            ..AuditEvent::default()
        };
        let text = line(&AuditRow { time: "2026-01-31T12:00:00.000Z".to_owned(), event, ..AuditRow::default() });
        let head = header();
        for (name, value) in
            [("EVENT", "granted"), ("TENANT", "vision"), ("GRANTED", "4 GiB"), ("WHAT", "python train.py")]
        {
            assert_eq!(head.find(name), text.find(value), "{name}\n{head}{text}");
        }
    }

    #[test]
    fn since_is_a_duration_or_a_time() {
        assert_eq!(since("2026-01-01T00:00:00Z"), Ok(1_767_225_600_000));
        let ago = now_ms() - since("10m").expect("a duration");
        assert!((600_000..660_000).contains(&ago), "{ago}");
        assert!(since("yesterday").expect_err("neither").text.contains("expected a duration"));
    }
}
