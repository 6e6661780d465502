//! `doctor`: looks at everything a job under a quota needs, says what is wrong and how to mend it.

use crate::cuda::{Code, Cuda, NO_DEVICE};
use crate::options::Output;
use crate::table::{Align, Table};
use crate::{Failure, STATUS_FAILED, daemons, environment, show, table};
use quota_core::settings::DEFAULT_SOCKET;
use quota_core::{Mode, Settings};
use quota_daemon::devices::Nvml;
use quota_wire::memory::anonymous_file;
use quota_wire::socket::Connection;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a check came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
struct Check {
    check: &'static str,
    verdict: Verdict,
    /// What was found.
    found: String,
    /// How to mend it; empty where nothing is to mend.
    remedy: String,
}

impl Check {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), remedy: String::new() }
    }

    fn warn(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, found: found.into(), remedy: remedy.into() }
    }

    fn fail(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fail, found: found.into(), remedy: remedy.into() }
    }
}

/// Looks at everything; fails when something does.
pub(crate) fn doctor(output: Output) -> Result<(), Failure> {
    let mut checks = vec![library(), preloaded(), driver(), nvml()];
    checks.extend([daemon(), settings(), ledgers(), kernel()]);
    match output {
        Output::Json => table::print(&show::json(&checks)?),
        Output::Table | Output::Wide => table::print(&rendered(&checks)),
    }
    let failed = checks.iter().any(|check| check.verdict == Verdict::Fail);
    if failed { Err(Failure::silent(STATUS_FAILED)) } else { Ok(()) }
}

fn rendered(checks: &[Check]) -> String {
    let mut shown = Table::new(&[("CHECK", Align::Left), ("", Align::Left), ("FOUND", Align::Left)]);
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        shown.push(vec![check.check.to_owned(), verdict.to_owned(), check.found.clone()]);
        if !check.remedy.is_empty() {
            shown.push(vec![String::new(), String::new(), format!("=> {}", check.remedy)]);
        }
    }
    shown.render()
}

/// The shim is there, and a program that has nothing to do with CUDA runs with it as without.
fn library() -> Check {
    const CHECK: &str = "library";
    let path = match environment::shim() {
        Ok(path) => path,
        Err(failure) => return Check::fail(CHECK, failure.text, "build it, or install it in /usr/lib/gpuquota"),
    };
    let mut command = Command::new("/bin/true");
    let run = command.env("LD_PRELOAD", &path).stdin(Stdio::null()).output();
    match run {
        Ok(output) if output.status.success() && output.stderr.is_empty() => {
            Check::ok(CHECK, path.display().to_string())
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            Check::fail(
                CHECK,
                format!("{}: {said}", path.display()),
                "build the library for this system's architecture",
            )
        }
        Err(error) => {
            Check::warn(CHECK, format!("{}; /bin/true: {error}", path.display()), "the library could not be tried")
        }
    }
}

fn preloaded() -> Check {
    const CHECK: &str = "LD_PRELOAD";
    let file = std::fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
    let variable = environment::variable("LD_PRELOAD").unwrap_or_default();
    let entries: Vec<&str> =
        file.split([' ', '\n', ':']).chain(variable.split([' ', ':'])).filter(|entry| !entry.is_empty()).collect();
    if let Some(missing) = entries.iter().find(|entry| entry.contains('/') && !Path::new(entry).exists()) {
        return Check::fail(CHECK, format!("{missing} does not exist"), "correct LD_PRELOAD or /etc/ld.so.preload");
    }
    if entries.iter().any(|entry| entry.contains("libvgpu.so")) {
        return Check::warn(CHECK, entries.join(" "), "two libraries would limit the same program; keep one");
    }
    Check::ok(
        CHECK,
        if entries.is_empty() { "nothing; `run` sets it for its job".to_owned() } else { entries.join(" ") },
    )
}

fn driver() -> Check {
    const CHECK: &str = "driver";
    let cuda = match Cuda::open() {
        Ok(cuda) => cuda,
        Err(error) => {
            return Check::fail(CHECK, error, "install NVIDIA's driver, or use --simulate MACHINE");
        }
    };
    let version = cuda.version().map_or_else(
        |_| "of unknown version".to_owned(),
        |version| format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
    );
    match cuda.init() {
        Ok(()) => Check::ok(CHECK, format!("libcuda.so.1, {version}")),
        Err(Code(NO_DEVICE)) => Check::fail(
            CHECK,
            format!("{version}, no device"),
            "give this machine or container a GPU, or use --simulate MACHINE",
        ),
        Err(Code(code)) => {
            Check::fail(CHECK, format!("{version}, cuInit answers {code}"), "see whether nvidia-smi works")
        }
    }
}

fn nvml() -> Check {
    const CHECK: &str = "devices";
    let inventory = match Nvml::open().and_then(|nvml| nvml.inventory()) {
        Ok(inventory) => inventory,
        Err(error) => {
            return Check::fail(CHECK, error.to_string(), "install libnvidia-ml.so.1, which comes with the driver");
        }
    };
    let devices: Vec<String> =
        inventory.devices.iter().map(|device| format!("{} ({})", device.name, device.total.human())).collect();
    if devices.is_empty() {
        return Check::fail(CHECK, "NVML lists none", "see whether nvidia-smi shows the device");
    }
    Check::ok(CHECK, format!("{}; driver {}", devices.join(", "), inventory.driver))
}

fn daemon() -> Check {
    const CHECK: &str = "daemon";
    let sockets = match daemons::sockets() {
        Ok(sockets) => sockets,
        Err(failure) => return Check::fail(CHECK, failure.text, "correct GPUQUOTA_SOCKET"),
    };
    let named = environment::variable("GPUQUOTA_SOCKET").is_some();
    let mut answering = Vec::new();
    for socket in &sockets {
        match Connection::connect(socket, Instant::now() + Duration::from_secs(1)) {
            Ok(_) => answering.push(socket.display().to_string()),
            Err(error) if named || socket == Path::new(DEFAULT_SOCKET) => {
                return Check::fail(
                    CHECK,
                    format!("{}: {error}", socket.display()),
                    "start gpuquotad there, or mend the socket's permissions",
                );
            }
            // A daemon of one's own leaves its socket only when it is killed; the next `run` replaces it.
            Err(_) => {}
        }
    }
    if answering.is_empty() {
        return Check::ok(CHECK, "none answers; `run` starts one");
    }
    Check::ok(CHECK, answering.join(", "))
}

/// What a CUDA program started here would be told.
fn settings() -> Check {
    const CHECK: &str = "settings";
    let settings = match Settings::read(environment::variable) {
        Ok(settings) => settings,
        Err(mistake) => {
            return Check::fail(
                CHECK,
                mistake.to_string(),
                "until then every allocation of a preloaded program is refused",
            );
        }
    };
    let hami =
        ["CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"].iter().any(|name| environment::variable(name).is_some());
    let names = if hami { " (HAMi's names are set and understood)" } else { "" };
    if settings.mode != Mode::Enforce {
        return Check::warn(
            CHECK,
            format!("GPUQUOTA_MODE={}{names}", settings.mode),
            "nothing is refused in this mode",
        );
    }
    let has_daemon = Path::new(DEFAULT_SOCKET).exists() || settings.socket.is_some();
    if !settings.asks_for_something() && !has_daemon {
        return Check::ok(CHECK, "neither quota nor daemon here: outside of `run`, everything passes, unmanaged");
    }
    if settings.memory.is_empty() && !has_daemon {
        return Check::warn(
            CHECK,
            format!("a compute quota alone{names}"),
            "compute is not enforced by this version; set GPUQUOTA_MEMORY",
        );
    }
    Check::ok(CHECK, format!("a quota or a daemon is set{names}"))
}

/// Processes without a daemon account for their memory together there.
fn ledgers() -> Check {
    const CHECK: &str = "/dev/shm";
    match rustix::fs::access("/dev/shm", rustix::fs::Access::WRITE_OK) {
        Ok(()) => Check::ok(CHECK, "writable"),
        Err(error) => Check::warn(CHECK, error.to_string(), "quotas without a daemon need it; mount a tmpfs there"),
    }
}

fn kernel() -> Check {
    const CHECK: &str = "kernel";
    if let Err(error) = anonymous_file(c"gpuquota-doctor", 4096) {
        return Check::fail(CHECK, format!("memfd: {error}"), "the daemon needs Linux 5.3 or later");
    }
    match rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()) {
        Ok(_) => Check::ok(CHECK, "memfd and pidfd work"),
        Err(error) => Check::fail(CHECK, format!("pidfd: {error}"), "the daemon needs Linux 5.3 or later"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_stands_below_what_was_found() {
        let checks = [Check::ok("a", "fine"), Check::fail("b", "broken", "mend it")];
        assert_eq!(
            rendered(&checks),
            "CHECK        FOUND\na      ok    fine\nb      FAIL  broken\n             => mend it\n"
        );
    }
}
