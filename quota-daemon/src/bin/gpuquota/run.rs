//! `run`: a place from the daemon, then the command in it.

use crate::daemons::{self, ANSWER_WAIT_MAX, own_folder, place, reach};
use crate::environment::{preload, quota, variable};
use crate::job::interruption::Interruption;
use crate::options::{Quota, RunOptions, action};
use crate::simulated::Simulated;
use crate::{Failure, STATUS_FAILED, STATUS_RUN, STATUS_USAGE, job};
use quota_core::settings::SECRET_FILE;
use quota_wire::Secret;
use quota_wire::message::{Admit, Granted, PROTOCOL_VERSION, QueueLimit, Reply, Request};
use quota_wire::secret::SECRET_FORM;
use quota_wire::socket::{Connection, WireError};
use std::path::Path;
use std::time::{Duration, Instant};

/// One wait for an answer while the job queues; then the next one begins.
const QUEUE_ANSWER_WAIT: Duration = Duration::from_secs(3600);
/// Pause before a daemon that went away is looked for again.
const RETURN_PAUSE: Duration = Duration::from_millis(50);

/// Runs the command; never answers `Ok` without having run it.
pub(crate) fn run(options: &RunOptions) -> Result<(), Failure> {
    start(options).map_err(|failure| match failure.status {
        // What is wrong with the command line or the machine is `run`'s own failure.
        STATUS_FAILED | STATUS_USAGE => Failure { status: STATUS_RUN, ..failure },
        _ => failure,
    })
}

fn start(options: &RunOptions) -> Result<(), Failure> {
    let asked = options.job.quota.read_with(variable)?;
    // A job within a job is of the same tenant, unless it says otherwise.
    let tenant = options.job.tenant(variable)?;
    let queue = options.queue.as_deref().map(queue_limit).transpose()?;
    let preload = preload(variable("LD_PRELOAD").as_deref())?;
    let on_interrupt = action("--on-interrupt", options.on_interrupt.as_deref())?;
    let told = options.told()?;
    job::check_command(&options.command)?;
    let simulated =
        options.job.simulate.as_deref().map(|machine| Simulated::new(machine, &own_folder())).transpose()?;
    let surroundings = simulated
        .as_ref()
        .map(|simulated| simulated.environment(variable("LD_LIBRARY_PATH").as_deref()))
        .unwrap_or_default();
    let place = place(simulated.as_ref())?;
    let secret = variable(SECRET_FILE).map(|path| secret(&path)).transpose()?;
    let hears = told.signal.is_some() || told.command.is_some();
    let admit = Admit { secret, queue, on_interrupt, hears, ..admit(&asked, tenant, options) };
    let (connection, granted) = placed(&place, simulated.as_ref(), &surroundings, &admit)?;
    let mut environment = surroundings;
    environment.push(preload);
    environment.push(("GPUQUOTA_SOCKET".to_owned(), place.socket.display().to_string()));
    environment.push(("GPUQUOTA_TENANT".to_owned(), granted.tenant.clone()));
    environment.extend(quota(&asked, true));
    let chosen = options.job.device.as_deref().is_some_and(|selection| selection.trim() != "all");
    // Where there are MIG instances, it has not all devices, and without a word CUDA would show it the first instance.
    if chosen || options.count.is_some() || granted.has_others {
        environment.push(("CUDA_VISIBLE_DEVICES".to_owned(), granted.devices.join(",")));
    }
    // The place is ours for as long as the connection is open.
    let interruption = Interruption::new(connection, place.socket, granted.tenant, told, environment.clone());
    let status = job::run(&options.command, &environment, interruption)?;
    if status == 0 { Ok(()) } else { Err(Failure::silent(status)) }
}

fn secret(path: &str) -> Result<Secret, Failure> {
    Secret::read(Path::new(path))
        .map_err(|why| Failure::usage(format!("{SECRET_FILE}={path:?}: {why}; expected {SECRET_FORM}")))
}

fn queue_limit(text: &str) -> Result<QueueLimit, Failure> {
    if text.is_empty() {
        return Ok(QueueLimit::Forever);
    }
    let wait = humantime::parse_duration(text).map_err(|error| {
        Failure::usage(format!(
            "--queue {text}: {error}; expected a time such as 90s, 10m or 2h, and -- before the command"
        ))
    })?;
    Ok(QueueLimit::Milliseconds(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
}

fn admit(asked: &Quota, tenant: Option<String>, options: &RunOptions) -> Admit {
    let words: Vec<String> = options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut line = words.join(" ");
    if let Some((end, _)) = line.char_indices().nth(quota_daemon::peer::COMMAND_BYTES_MAX) {
        line.truncate(end);
    }
    Admit {
        version: PROTOCOL_VERSION,
        tenant,
        command: line,
        memory: asked.memory.map(|size| size.to_string()),
        compute: asked.compute.map(quota_core::Percent::hundredths),
        guarantee: asked.guarantee.map(quota_core::Percent::hundredths),
        weight: asked.weight,
        priority: asked.priority.map(|priority| priority.to_string()),
        device: options.job.device.clone(),
        count: options.count,
        oversubscribe: options.oversubscribe,
        ..Admit::default()
    }
}

/// Asks for a place. A daemon of one's own may end just when it is asked; then it is started again. One that is replaced while
/// the job waits is waited for, and asked again.
fn placed(
    place: &daemons::Place,
    simulated: Option<&Simulated>,
    surroundings: &[(String, String)],
    admit: &Admit,
) -> Result<(Connection, Granted), Failure> {
    let mut lost_at: Option<Instant> = None;
    loop {
        let is_patient = lost_at.is_some_and(|at| at.elapsed() < ANSWER_WAIT_MAX);
        let connection = match reach(place, surroundings) {
            Ok(connection) => connection,
            Err(_) if is_patient => {
                std::thread::sleep(RETURN_PAUSE);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        if let Some(simulated) = simulated {
            check_machine(&connection, simulated)?;
        }
        let asked = Instant::now();
        match wait(&connection, admit) {
            Ok(Ok(granted)) => return Ok((connection, granted)),
            Ok(Err(reason)) => return Err(Failure::new(reason)),
            Err(WireError::Closed | WireError::Io(_))
                if lost_at.is_none() || is_patient || asked.elapsed() > ANSWER_WAIT_MAX =>
            {
                lost_at = lost_at.filter(|_| is_patient).or_else(|| Some(Instant::now()));
                std::thread::sleep(RETURN_PAUSE);
            }
            Err(error) => return Err(Failure::new(format!("the daemon at {}: {error}", place.socket.display()))),
        }
    }
}

/// A daemon that was named may be over another machine than the job.
fn check_machine(connection: &Connection, simulated: &Simulated) -> Result<(), Failure> {
    // A daemon that goes away meanwhile is noticed by the next question.
    let Ok(about) = daemons::about(connection) else { return Ok(()) };
    match about.simulated {
        Some(machine) if machine == simulated.machine => Ok(()),
        other => {
            let (wanted, has) = (&simulated.machine, other.unwrap_or_else(|| "real devices".to_owned()));
            Err(Failure::new(format!("--simulate {wanted}: the daemon that GPUQUOTA_SOCKET names has {has}")))
        }
    }
}

/// The daemon's answer: a place, or why not. Says on stderr what the job waits for.
fn wait(connection: &Connection, admit: &Admit) -> Result<Result<Granted, String>, WireError> {
    connection.request(&Request::Admit(admit.clone()))?;
    let mut patience = if admit.queue.is_some() { QUEUE_ANSWER_WAIT } else { ANSWER_WAIT_MAX };
    loop {
        match connection.receive_until(Instant::now() + patience) {
            Ok((Reply::Granted(granted), _)) => return Ok(Ok(granted)),
            Ok((Reply::Refused { reason }, _)) => return Ok(Err(reason)),
            Ok((Reply::Waiting { position, reason }, _)) => {
                let before = if position == 0 { String::new() } else { format!(", {position} before it") };
                eprintln!("gpuquota: waits{before}: {reason}");
                // Also for one that didn't ask to: others make room for it, which has an end.
                patience = QUEUE_ANSWER_WAIT;
            }
            Ok((other, _)) => return Ok(Err(daemons::unexpected(&other).text)),
            Err(WireError::TimedOut) if admit.queue.is_some() => {}
            Err(error) => return Err(error),
        }
    }
}
