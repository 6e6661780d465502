//! The daemons that can be this user's: found, started, asked.

use crate::simulated::Simulated;
use crate::{Failure, STATUS_FAILED};
use quota_core::settings::DEFAULT_SOCKET;
use quota_daemon::places::{SOCKET_NAME, admin_socket, check_private, make_private, simulated_folder, user_folder};
use quota_wire::message::{About, Reply, Request};
use quota_wire::socket::{Connection, WireError};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long a daemon may take to start or to answer.
pub(crate) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
/// A daemon that `run` has started ends so long after its last job.
const IDLE_EXIT: &str = "60s";
/// A log is begun anew beyond this.
const LOG_BYTES_MAX: u64 = 1 << 20;
/// Packets of one list: more than a node's processes fill.
const PACKETS_MAX: usize = 1024;
/// Daemons of one user that are looked at.
const DAEMONS_MAX: usize = 64;

/// Where a job's daemon is, or is to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Where it listens.
    pub(crate) socket: PathBuf,
    /// The folder of a daemon of one's own, which is started when nobody answers.
    own: Option<PathBuf>,
    /// What the socket's name comes from, for messages.
    source: &'static str,
}

/// The user's folder for daemons of their own.
pub(crate) fn own_folder() -> PathBuf {
    let runtime = std::env::var("XDG_RUNTIME_DIR").ok();
    user_folder(runtime.as_deref(), rustix::process::getuid().as_raw())
}

/// The socket that the environment names.
fn named() -> Result<Option<PathBuf>, Failure> {
    let Some(name) = std::env::var_os("GPUQUOTA_SOCKET") else { return Ok(None) };
    let path = PathBuf::from(name);
    if path.is_absolute() {
        return Ok(Some(path));
    }
    let path = path.display();
    Err(Failure::usage(format!(
        "GPUQUOTA_SOCKET={path}: it is not an absolute path; expected the absolute path of a socket"
    )))
}

/// Which daemon a job is for: the named one, else the simulated machine's own, else the node's, else the user's.
pub(crate) fn place(simulated: Option<&Simulated>) -> Result<Place, Failure> {
    if let Some(socket) = named()? {
        return Ok(Place { socket, own: None, source: "GPUQUOTA_SOCKET" });
    }
    let own = |folder: PathBuf| Place { socket: folder.join(SOCKET_NAME), own: Some(folder), source: "the daemon" };
    if let Some(simulated) = simulated {
        return Ok(own(simulated.folder.clone()));
    }
    if Connection::connect(Path::new(DEFAULT_SOCKET), soon()).is_ok() {
        return Ok(Place { socket: PathBuf::from(DEFAULT_SOCKET), own: None, source: "the node's daemon" });
    }
    // Whoever has put a simulated driver in the way by hand must not share a daemon with the real one.
    let folder = own_folder();
    Ok(own(match std::env::var("FAKE_CUDA_MACHINE") {
        Ok(machine) => simulated_folder(&folder, &machine, Some(&std::env::var("FAKE_CUDA_STATE").unwrap_or_default())),
        Err(_) => folder,
    }))
}

/// All sockets at which this user's jobs may be known.
pub(crate) fn sockets() -> Result<Vec<PathBuf>, Failure> {
    if let Some(socket) = named()? {
        return Ok(vec![socket]);
    }
    let own = own_folder();
    let mut sockets = vec![PathBuf::from(DEFAULT_SOCKET)];
    if check_private(&own).is_err() {
        // Nobody's, or somebody else's.
        return Ok(sockets.into_iter().filter(|socket| socket.exists()).collect());
    }
    sockets.push(own.join(SOCKET_NAME));
    let mut simulated: Vec<PathBuf> = std::fs::read_dir(&own)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("sim-"))
        .map(|entry| entry.path().join(SOCKET_NAME))
        .take(DAEMONS_MAX)
        .collect();
    simulated.sort();
    sockets.extend(simulated);
    Ok(sockets.into_iter().filter(|socket| socket.exists()).collect())
}

/// Connections to all daemons that answer. A daemon that was named must.
pub(crate) fn all() -> Result<Vec<Connection>, Failure> {
    let is_named = named()?.is_some();
    let mut connections = Vec::new();
    for socket in sockets()? {
        match Connection::connect(&socket, soon()) {
            Ok(connection) => connections.push(connection),
            Err(error) if is_named => return Err(unreachable(&socket, "GPUQUOTA_SOCKET", &error)),
            Err(_) => {}
        }
    }
    if connections.is_empty() && is_named {
        let socket = named()?.unwrap_or_default();
        return Err(Failure::new(format!("GPUQUOTA_SOCKET={}: nobody answers there", socket.display())));
    }
    Ok(connections)
}

/// A connection to the socket for administrators beside `socket`.
pub(crate) fn administer(socket: &Path) -> Result<Connection, Failure> {
    let path = admin_socket(socket);
    Connection::connect(&path, soon()).map_err(|error| match error {
        WireError::Io(error) if error.kind() == ErrorKind::PermissionDenied => {
            Failure::new(format!("{}: permission denied; the node's daemon is changed by root", path.display()))
        }
        error => Failure::new(format!("{}: {error}", path.display())),
    })
}

/// A connection to the daemon of `place`, which is started where that is ours to do.
///
/// `environment` is what a daemon over a simulated machine needs.
pub(crate) fn reach(place: &Place, environment: &[(String, String)]) -> Result<Connection, Failure> {
    if let Some(folder) = &place.own {
        // Before anything in it is believed: `/tmp` is everybody's.
        for folder in [&own_folder(), folder] {
            make_private(folder).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
        }
    }
    let error = match Connection::connect(&place.socket, Instant::now() + ANSWER_WAIT_MAX) {
        Ok(connection) => return Ok(connection),
        Err(error) => error,
    };
    let Some(folder) = &place.own else { return Err(unreachable(&place.socket, place.source, &error)) };
    let log_path = folder.join("gpuquotad.log");
    let (mut child, log_start) = start(place, &log_path, environment)?;
    let deadline = Instant::now() + ANSWER_WAIT_MAX;
    loop {
        if let Ok(connection) = Connection::connect(&place.socket, Instant::now()) {
            return Ok(connection);
        }
        let ended = child.try_wait().ok().flatten();
        let last = last_line(&log_path, log_start);
        // Another `run` may have started one at the same moment; that one will answer.
        if ended.is_some_and(|status| !status.success()) && !last.contains("another gpuquotad answers") {
            return Err(Failure { status: STATUS_FAILED, text: last.trim_start_matches("gpuquotad: ").to_owned() });
        }
        if Instant::now() >= deadline {
            let (seconds, log) = (ANSWER_WAIT_MAX.as_secs(), log_path.display());
            return Err(Failure::new(format!("the daemon doesn't answer after {seconds} s; its log is {log}: {last}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts `gpuquotad` on its own, and says where its log begins.
fn start(place: &Place, log_path: &Path, environment: &[(String, String)]) -> Result<(Child, u64), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", log_path.display()));
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(log_path)
        .map_err(failed)?;
    if log.metadata().map_err(failed)?.len() > LOG_BYTES_MAX {
        log.set_len(0).map_err(failed)?;
    }
    let log_start = log.seek(SeekFrom::End(0)).map_err(failed)?;
    let program = quota_daemon::installed::program("gpuquotad");
    let child = std::process::Command::new(&program)
        .args(["--user", "--detach", "--idle-exit", IDLE_EXIT, "--socket"])
        .arg(&place.socket)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        // The daemon looks at the real devices, never through the shim.
        .env_remove("LD_PRELOAD")
        // The service manager that waits for the job, if one does, is not to hear of its daemon.
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .spawn()
        .map_err(|error| Failure::new(format!("{} can't be started: {error}", program.display())))?;
    Ok((child, log_start))
}

fn last_line(log: &Path, start: u64) -> String {
    let mut text = String::new();
    if let Ok(mut file) = std::fs::File::open(log) {
        let _ = file.seek(SeekFrom::Start(start));
        let _ = file.take(LOG_BYTES_MAX).read_to_string(&mut text);
    }
    text.lines().last().unwrap_or_default().to_owned()
}

fn unreachable(socket: &Path, source: &str, error: &WireError) -> Failure {
    let reason = match error {
        WireError::Io(error) if error.kind() == ErrorKind::NotFound => "there is no such socket".to_owned(),
        WireError::Io(error) if error.kind() == ErrorKind::ConnectionRefused => "nobody answers there".to_owned(),
        error => error.to_string(),
    };
    Failure::new(format!("{source}: {}: {reason}", socket.display()))
}

/// Asks and takes one answer.
pub(crate) fn ask(connection: &Connection, request: &Request) -> Result<Reply, Failure> {
    match connection.ask(request, Instant::now() + ANSWER_WAIT_MAX) {
        Ok((Reply::Refused { reason }, _)) => Err(Failure::new(reason)),
        Ok((reply, _)) => Ok(reply),
        Err(error) => Err(Failure::new(format!("the daemon: {error}"))),
    }
}

/// What the daemon is.
pub(crate) fn about(connection: &Connection) -> Result<About, Failure> {
    match ask(connection, &Request::About)? {
        Reply::About(about) => Ok(about),
        other => Err(unexpected(&other)),
    }
}

/// All rows of a list.
pub(crate) fn list<T>(
    connection: &Connection,
    request: &Request,
    rows_of: impl Fn(Reply) -> Result<(Vec<T>, bool), Reply>,
) -> Result<Vec<T>, Failure> {
    let deadline = Instant::now() + ANSWER_WAIT_MAX;
    connection.request(request).map_err(|error| Failure::new(format!("the daemon: {error}")))?;
    let mut all = Vec::new();
    for _ in 0..PACKETS_MAX {
        let (reply, _) =
            connection.receive_until(deadline).map_err(|error| Failure::new(format!("the daemon: {error}")))?;
        let (rows, last) = rows_of(reply).map_err(|reply| unexpected(&reply))?;
        all.extend(rows);
        if last {
            return Ok(all);
        }
    }
    Err(Failure::new("the daemon's list has no end"))
}

/// An answer that this version doesn't know what to do with.
pub(crate) fn unexpected(reply: &Reply) -> Failure {
    match reply {
        Reply::Refused { reason } => Failure::new(reason),
        other => Failure::new(format!("the daemon answers what wasn't asked for: {other:?}")),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(1)
}
