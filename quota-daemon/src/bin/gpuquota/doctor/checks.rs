//! The checks, each answering one question.
#![allow(unsafe_code)]

use super::Finding;
use crate::daemons::{about, sockets};
use crate::environment::{SHIM, shim, variable};
use crate::{cuda, simulated};
use libloading::{Library, Symbol};
use quota_core::settings::DEFAULT_SOCKET;
use quota_core::{Mode, Settings};
use quota_daemon::devices::{Inventory, Nvml};
use quota_wire::socket::{Connection, WireError};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// HAMi's names for settings.
const HAMI_NAMES: [&str; 5] = [
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_SM_LIMIT",
    "CUDA_TASK_PRIORITY",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE",
    "CUDA_DISABLE_CONTROL",
];

/// All of them, in the order in which a job would stumble over them.
pub(super) fn all() -> Vec<Finding> {
    let mut findings = vec![library(), preloading(), kernel(), shared_memory(), driver()];
    findings.extend(devices());
    findings.push(simulated_driver());
    let settings = Settings::read(variable);
    let daemons = daemons(&mut findings);
    findings.push(settings_finding(&settings));
    findings.extend(hami());
    findings.push(quota(&settings, daemons));
    findings.extend(mps());
    findings
}

/// The shim is there, and a program under it starts.
fn library() -> Finding {
    let path = match shim() {
        Ok(path) => path,
        Err(failure) => return Finding::fail("library", failure.text, format!("install {SHIM} in /usr/lib/gpuquota")),
    };
    // In a process of its own, as a job would load it. The loader says on stderr what it could not preload.
    match Command::new("/bin/true").env("LD_PRELOAD", &path).output() {
        Ok(output) if output.status.success() && output.stderr.is_empty() => {
            Finding::ok("library", format!("{} can be preloaded", path.display()))
        }
        Ok(output) => {
            let words =
                String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("a program under it fails").to_owned();
            let remedy = "build it for this machine's libc and architecture, on a file system that allows execution";
            Finding::fail("library", format!("{}: {words}", path.display()), remedy)
        }
        Err(error) => {
            Finding::warn("library", format!("{} was not tried: /bin/true: {error}", path.display()), "try it by hand")
        }
    }
}

/// What else is preloaded.
fn preloading() -> Finding {
    let file = std::fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
    let existing = [variable("LD_PRELOAD").unwrap_or_default(), file].join(" ");
    let others: Vec<&str> =
        existing.split([' ', ':', '\n']).filter(|path| !path.is_empty() && !path.ends_with(SHIM)).collect();
    if others.iter().any(|path| path.contains("libvgpu")) {
        let found = format!("HAMi's library is preloaded: {}", others.join(" "));
        return Finding::warn("preload", found, "preload only one of them; gpuquota understands HAMi's settings");
    }
    match others.len() {
        0 => Finding::ok("preload", "nothing else is preloaded"),
        _ => Finding::ok("preload", format!("also preloaded, after {SHIM}: {}", others.join(" "))),
    }
}

/// What the daemon asks of the kernel.
fn kernel() -> Finding {
    let own = rustix::process::getpid();
    let pidfd = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty());
    let sealed = quota_wire::memory::anonymous_file(c"gpuquota-doctor", 4096);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    match (pidfd, sealed) {
        (Ok(_), Ok(_)) => Finding::ok("kernel", format!("Linux {release}: pidfd, sealed memory")),
        (Err(error), _) => {
            Finding::fail("kernel", format!("Linux {release}: pidfd_open: {error}"), "the daemon needs Linux 5.3")
        }
        (_, Err(error)) => {
            Finding::fail("kernel", format!("Linux {release}: sealed memory: {error}"), "the daemon needs Linux 5.3")
        }
    }
}

/// Where ledgers lie when there is no daemon.
fn shared_memory() -> Finding {
    let folder = Path::new("/dev/shm");
    match rustix::fs::access(folder, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Finding::ok("/dev/shm", "writable"),
        Err(error) => {
            let remedy = "mount a tmpfs there, or use a daemon; quotas by environment alone need it";
            Finding::warn("/dev/shm", error, remedy)
        }
    }
}

/// The driver, as a program would find it.
fn driver() -> Finding {
    // SAFETY: the driver's library; its initialisers have no demands on the caller.
    let library = match unsafe { Library::new(cuda::LIBRARY) } {
        Ok(library) => library,
        Err(error) => {
            let remedy = "install NVIDIA's driver; without a GPU, use gpuquota run --simulate a100-80gb";
            return Finding::warn("driver", error, remedy);
        }
    };
    let mut version = 0i32;
    // SAFETY: the driver API's signature for this name.
    let function: Result<Symbol<'_, unsafe extern "C" fn(*mut i32) -> i32>, _> =
        unsafe { library.get(b"cuDriverGetVersion") };
    // SAFETY: it fills one integer.
    let known = function.is_ok_and(|function| unsafe { function(&mut version) } == 0);
    let path = loaded_from("libcuda.so").unwrap_or_else(|| cuda::LIBRARY.to_owned());
    if known {
        Finding::ok("driver", format!("{path}, CUDA {}.{}", version / 1000, version % 1000 / 10))
    } else {
        Finding::fail(
            "driver",
            format!("{path} is no CUDA driver"),
            "see what LD_LIBRARY_PATH and LD_PRELOAD put in its place",
        )
    }
}

/// The file from which this process has loaded a library.
fn loaded_from(name: &str) -> Option<String> {
    let maps = quota_wire::stat::text_of("/proc/self/maps").ok()?;
    let path = maps
        .lines()
        .filter_map(|line| line.get(line.find('/')?..))
        .find(|path| path.contains(name) || path.contains("fake_driver"))?;
    Some(path.to_owned())
}

/// NVML and what it lists.
fn devices() -> Vec<Finding> {
    let nvml = match Nvml::open() {
        Ok(nvml) => nvml,
        Err(error) => {
            return vec![Finding::warn("nvml", error, "the daemon needs NVML, which comes with NVIDIA's driver")];
        }
    };
    let version = Finding::ok("nvml", format!("NVML {}", nvml.version()));
    match nvml.inventory() {
        Ok(inventory) => vec![version, listed(&inventory)],
        Err(error) => vec![version, Finding::fail("devices", error, "see dmesg and nvidia-smi")],
    }
}

fn listed(inventory: &Inventory) -> Finding {
    let names: Vec<String> = inventory
        .devices
        .iter()
        .map(|device| format!("{} ({}, MIG {})", device.name, device.total.human(), device.mig))
        .collect();
    let found = format!("driver {}: {}", inventory.driver, names.join(", "));
    let has_none = |at: usize| inventory.devices.iter().all(|device| device.parent != Some(at));
    if (0..inventory.devices.len()).any(|at| inventory.devices[at].is_divided && has_none(at)) {
        return Finding::warn(
            "devices",
            found,
            "nothing runs on a device whose MIG mode is on without instances: make some with nvidia-smi mig, or switch it off",
        );
    }
    Finding::ok("devices", found)
}

fn simulated_driver() -> Finding {
    match simulated::driver_folder() {
        Ok(folder) => Finding::ok("simulator", folder.display()),
        Err(failure) => Finding::warn("simulator", failure.text, "only --simulate needs it"),
    }
}

/// The daemons that can be reached; true when there is one.
fn daemons(findings: &mut Vec<Finding>) -> bool {
    let mut answering = false;
    let sockets = match sockets() {
        Ok(sockets) => sockets,
        Err(failure) => {
            findings.push(Finding::fail("daemon", failure.text, "correct GPUQUOTA_SOCKET, or unset it"));
            return false;
        }
    };
    for socket in &sockets {
        let shown = socket.display();
        let finding = match Connection::connect(socket, Instant::now() + Duration::from_secs(1)) {
            Ok(connection) => match about(&connection) {
                Ok(about) => {
                    answering = true;
                    let machine = about.simulated.map_or_else(String::new, |machine| format!(", simulated {machine}"));
                    Finding::ok(
                        "daemon",
                        format!("{shown}: gpuquotad {}, {} tenants{machine}", about.version, about.tenants),
                    )
                }
                Err(failure) => {
                    Finding::fail("daemon", format!("{shown}: {}", failure.text), "restart gpuquotad there")
                }
            },
            Err(error) => unreachable(socket, &error),
        };
        findings.push(finding);
    }
    if sockets.is_empty() {
        findings.push(Finding::ok("daemon", format!("none on {DEFAULT_SOCKET}; gpuquota run starts one for you")));
    }
    answering
}

fn unreachable(socket: &Path, error: &WireError) -> Finding {
    let found = format!("{}: {error}", socket.display());
    let is_default = socket == Path::new(DEFAULT_SOCKET);
    match error {
        WireError::Io(error) if error.kind() == ErrorKind::PermissionDenied => {
            Finding::fail("daemon", found, "the socket's folder must be open to its users (mode 0755)")
        }
        // A dead daemon of one's own is replaced by the next run; the node's is somebody's business.
        _ if !is_default && std::env::var_os("GPUQUOTA_SOCKET").is_none() => {
            Finding::ok("daemon", format!("{found}; the next run replaces it"))
        }
        _ => Finding::fail("daemon", found, "start gpuquotad, or remove the socket"),
    }
}

fn settings_finding(settings: &Result<Settings, quota_core::settings::SettingError>) -> Finding {
    match settings {
        Ok(_) => {
            let ours: Vec<String> = std::env::vars_os()
                .filter_map(|(name, _)| name.into_string().ok())
                .filter(|name| name.starts_with("GPUQUOTA_"))
                .collect();
            let found = if ours.is_empty() {
                "no setting in this environment".to_owned()
            } else {
                format!("understood: {}", ours.join(", "))
            };
            Finding::ok("settings", found)
        }
        Err(error) => Finding::fail("settings", error, "correct it; until then every allocation is refused"),
    }
}

fn hami() -> Option<Finding> {
    let names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| HAMI_NAMES.iter().any(|known| name.starts_with(known)))
        .collect();
    (!names.is_empty())
        .then(|| Finding::ok("hami", format!("HAMi's settings are used where ours say nothing: {}", names.join(", "))))
}

/// Whether a job started here would have a quota at all.
fn quota(settings: &Result<Settings, quota_core::settings::SettingError>, daemon: bool) -> Finding {
    let Ok(settings) = settings else {
        return Finding::warn("quota", "unknown, as long as a setting is wrong", "see settings");
    };
    match settings.mode {
        Mode::Off => return Finding::warn("quota", "GPUQUOTA_MODE=off: everything passes", "unset it"),
        Mode::Observe => return Finding::warn("quota", "GPUQUOTA_MODE=observe: counted, never refused", "unset it"),
        Mode::Enforce => {}
    }
    if settings.asks_for_something() {
        Finding::ok("quota", "the environment asks for one")
    } else if daemon {
        Finding::ok("quota", "none in this environment; jobs get theirs from gpuquota run")
    } else {
        let remedy = "start jobs with gpuquota run --memory SIZE, or set GPUQUOTA_MEMORY";
        Finding::warn("quota", "neither quota nor daemon: everything passes unmanaged", remedy)
    }
}

/// A running MPS control daemon, where clients look for it.
fn mps() -> Option<Finding> {
    let folder = variable("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| "/tmp/nvidia-mps".to_owned());
    Path::new(&folder).join("control").exists().then(|| {
        Finding::warn(
            "mps",
            format!("MPS seems to run ({folder})"),
            "memory quotas hold under MPS; compute is shared by MPS",
        )
    })
}
