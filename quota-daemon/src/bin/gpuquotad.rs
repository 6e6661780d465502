//! `gpuquotad`: the node's daemon, in the foreground.

use clap::Parser;
use quota_core::Bytes;
use quota_core::settings::{DEFAULT_SOCKET, LogLevel};
use quota_daemon::devices::{Inventory, Nvml, NvmlError};
use quota_daemon::document::{self, Document};
use quota_daemon::places;
use quota_daemon::registry::{Overrides, Registry};
use quota_daemon::server::{Configuration, ServeError, Server};
use quota_daemon::{log, signals, threads, usage};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Exit status for a document or an option that can't be used, as clap's own.
const STATUS_USAGE: u8 = 2;

/// Shares the node's GPUs between jobs: hands out memory quotas, watches over them, shows who uses what.
#[derive(Parser, Debug)]
#[command(name = "gpuquotad", version)]
struct Options {
    /// The document; /etc/gpuquota/gpuquota.yaml by default, where that exists. One that was applied since the file was
    /// last changed holds instead
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen; a second socket, for administrators, lies beside it
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Memory kept free on each device for contexts, 512MiB by default
    #[arg(long, value_name = "SIZE", value_parser = parse_reserve)]
    reserve: Option<Bytes>,
    /// Most jobs on a device at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_jobs: Option<u32>,
    /// For this user only: nobody else can connect
    #[arg(long)]
    user: bool,
    /// End when nobody has had a place for so long, such as 60s or 10m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    idle_exit: Option<Duration>,
    /// off, error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = parse_level)]
    log: LogLevel,
    /// Check the document and the devices, say what is wrong, and end
    #[arg(long)]
    check: bool,
    /// Leave the session of whoever starts it, as `gpuquota run` wants it
    #[arg(long, hide = true)]
    detach: bool,
}

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) if error.use_stderr() => {
            eprintln!("gpuquotad: {}; see gpuquotad --help", usage::one_line(&error));
            return ExitCode::from(STATUS_USAGE);
        }
        // Help goes out as it is; a reader that has gone away has seen what it wanted.
        Err(error) => return error.print().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
    };
    log::set_level(options.log);
    signals::survive_large_files();
    threads::die_together();
    if options.detach {
        signals::close_inherited();
        // Already a leader of its own: nothing to leave.
        let _ = rustix::process::setsid();
        let _ = std::env::set_current_dir("/");
    }
    match start(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, reason)) => {
            eprintln!("gpuquotad: {reason}");
            ExitCode::from(status)
        }
    }
}

fn start(options: &Options) -> Result<(), (u8, String)> {
    let path = options.config.clone().or_else(|| {
        let default = Path::new(document::DEFAULT_PATH);
        (!options.user && default.exists()).then(|| default.to_owned())
    });
    let document = match &path {
        Some(path) => Document::load(path).map_err(|error| (STATUS_USAGE, located(path, &error.to_string())))?,
        None => Document::default(),
    };
    for key in &document.without_effect {
        eprintln!("gpuquotad: {key} has no effect in this version");
    }
    let overrides = Overrides { reserve: options.reserve, jobs_max: options.max_jobs };
    let devices = Nvml::open().and_then(|nvml| nvml.inventory().map(|inventory| (nvml, inventory)));
    if options.check {
        return check(&document, overrides, devices.as_ref().map(|(_, inventory)| inventory));
    }
    let (nvml, inventory) = devices.map_err(|error| (1, no_devices(&error)))?;
    let socket =
        options.socket.clone().or_else(|| document.socket.clone()).unwrap_or_else(|| default_socket(options.user));
    let configuration = Configuration {
        socket: std::path::absolute(&socket).unwrap_or(socket),
        user: options.user,
        idle_exit: options.idle_exit,
        overrides,
        document,
        document_path: path.clone().map(|path| std::path::absolute(&path).unwrap_or(path)),
        simulated: std::env::var("FAKE_CUDA_MACHINE").ok(),
    };
    let place = configuration.socket.display().to_string();
    let server = Server::start(configuration, nvml, &inventory).map_err(|error| match (error, &path) {
        (ServeError::Document(reason), Some(path)) => (STATUS_USAGE, located(path, &reason)),
        (error, _) => (1, error.to_string()),
    })?;
    let count = inventory.devices.len();
    log::line(LogLevel::Info, format_args!("listens on {place}; {count} devices, driver {}", inventory.driver));
    server.run().map_err(|error| (1, error.to_string()))
}

fn check(
    document: &Document,
    overrides: Overrides,
    devices: Result<&Inventory, &NvmlError>,
) -> Result<(), (u8, String)> {
    match devices {
        Ok(inventory) => {
            let registry = Registry::new(inventory, document, overrides).map_err(|reason| (STATUS_USAGE, reason))?;
            for (index, device) in registry.devices().iter().enumerate() {
                println!(
                    "device {index}: {}, {}, {} capacity",
                    device.uuid_text,
                    device.name,
                    device.capacity().human()
                );
            }
            println!("the document is fit for use");
            Ok(())
        }
        Err(error) => {
            println!("the document can be read; whether it goes with the devices was not checked: {error}");
            Ok(())
        }
    }
}

fn located(path: &Path, reason: &str) -> String {
    let path = path.display().to_string();
    if reason.starts_with(&path) { reason.to_owned() } else { format!("{path}: {reason}") }
}

fn no_devices(error: &NvmlError) -> String {
    format!("{error}; install NVIDIA's driver, or share a simulated GPU: gpuquota run --simulate a100-80gb -- COMMAND")
}

fn default_socket(user: bool) -> PathBuf {
    if !user {
        return PathBuf::from(DEFAULT_SOCKET);
    }
    let runtime = std::env::var("XDG_RUNTIME_DIR").ok();
    places::user_folder(runtime.as_deref(), rustix::process::getuid().as_raw()).join(places::SOCKET_NAME)
}

fn parse_reserve(text: &str) -> Result<Bytes, String> {
    text.parse().map_err(|error| format!("{error}; expected {}", document::RESERVE_FORM))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; expected a duration such as 60s, 10m or 1h"))
}

fn parse_level(text: &str) -> Result<LogLevel, &'static str> {
    match text {
        "off" => Ok(LogLevel::Off),
        "error" => Ok(LogLevel::Error),
        "warn" => Ok(LogLevel::Warn),
        "info" => Ok(LogLevel::Info),
        "debug" => Ok(LogLevel::Debug),
        _ => Err("expected off, error, warn, info or debug"),
    }
}
