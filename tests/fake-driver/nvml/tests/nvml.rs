//! The simulated NVML as its programs see it.
//!
//! The environment is read once for a process, so each test runs in a process of its own: this program
//! again, with the one test and its environment.
#![allow(unsafe_code, clippy::unwrap_used)]
#![allow(non_snake_case)]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use fake_machine::Machine;
use fake_nvml as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr::null_mut;
use std::time::Duration;

unsafe extern "C" {
    fn nvmlInit_v2() -> c_int;
    fn nvmlShutdown() -> c_int;
    fn nvmlErrorString(code: c_int) -> *const c_char;
    fn nvmlSystemGetCudaDriverVersion(version: *mut c_int) -> c_int;
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> c_int;
    fn nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint) -> c_int;
    fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_int;
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut Handle) -> c_int;
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut Handle) -> c_int;
    fn nvmlDeviceGetHandleByPciBusId_v2(bus: *const c_char, device: *mut Handle) -> c_int;
    fn nvmlDeviceGetUUID(device: Handle, uuid: *mut c_char, length: c_uint) -> c_int;
    fn nvmlDeviceGetName(device: Handle, name: *mut c_char, length: c_uint) -> c_int;
    fn nvmlDeviceGetMemoryInfo(device: Handle, memory: *mut [u64; 3]) -> c_int;
    fn nvmlDeviceGetMemoryInfo_v2(device: Handle, memory: *mut MemoryV2) -> c_int;
    fn nvmlDeviceGetComputeRunningProcesses(device: Handle, count: *mut c_uint, out: *mut [u64; 2]) -> c_int;
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Handle, count: *mut c_uint, out: *mut [u64; 3]) -> c_int;
    fn nvmlDeviceGetMigMode(device: Handle, current: *mut c_uint, pending: *mut c_uint) -> c_int;
    fn nvmlDeviceSetMigMode() -> c_int;
    fn nvmlDeviceGetUtilizationRates(device: Handle, out: *mut [c_uint; 2]) -> c_int;
    fn nvmlDeviceGetProcessUtilization(device: Handle, out: *mut Sample, count: *mut c_uint, seen: u64) -> c_int;
    fn nvmlEventSetCreate(set: *mut Handle) -> c_int;
    fn nvmlEventSetWait_v2(set: Handle, data: *mut [u64; 4], timeout_ms: c_uint) -> c_int;
}

type Handle = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct MemoryV2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sample {
    pid: c_uint,
    time: u64,
    util: [c_uint; 4],
}

const UNINITIALIZED: c_int = 1;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;
const TIMEOUT: c_int = 10;
const VERSION_MISMATCH: c_int = 25;
const UNKNOWN: c_int = 999;

/// Calls a function of the library.
macro_rules! nvml {
    ($function:ident($($argument:expr),*)) => {
        // SAFETY: the arguments are what the function's declaration here asks for, and outlive the call.
        unsafe { $function($($argument),*) }
    };
}

/// A folder that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("fake-nvml-{}-{test}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `test` again in a process with that environment; `None` within it.
fn outside(test: &str, settings: &[(&str, &str)]) -> Option<Output> {
    const INSIDE: &str = "FAKE_NVML_TEST";
    if std::env::var_os(INSIDE).is_some() {
        return None;
    }
    let scratch = Scratch::new(test);
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FAKE_CUDA_")) {
        command.env_remove(name);
    }
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").envs(settings.iter().copied());
    command.env("FAKE_CUDA_STATE", scratch.0.join("state")).env("SCRATCH", &scratch.0);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    Some(output)
}

/// The machine, as the simulated CUDA driver of this process has it.
fn machine() -> Machine {
    let state = std::env::var_os("FAKE_CUDA_STATE").unwrap();
    Machine::open(&std::env::var("FAKE_CUDA_MACHINE").unwrap(), Path::new(&state)).unwrap()
}

fn text(call: impl Fn(*mut c_char, c_uint) -> c_int) -> String {
    let mut buffer = [0; 96];
    assert_eq!(call(buffer.as_mut_ptr(), 96), 0);
    let bytes: Vec<u8> = buffer.iter().take_while(|c| **c != 0).map(|c: &c_char| c.cast_unsigned()).collect();
    String::from_utf8(bytes).unwrap()
}

fn handle(index: c_uint) -> Handle {
    let mut device = null_mut();
    assert_eq!(nvml!(nvmlDeviceGetHandleByIndex_v2(index, &mut device)), 0);
    device
}

#[test]
fn nothing_works_before_the_beginning_and_after_the_end() {
    if outside("nothing_works_before_the_beginning_and_after_the_end", &[("FAKE_CUDA_VERSION", "12040")]).is_some() {
        return;
    }
    let (mut count, mut version) = (77, 0);
    assert_eq!((nvml!(nvmlSystemGetCudaDriverVersion(&mut version)), version), (UNINITIALIZED, 0));
    assert_eq!(nvml!(nvmlDeviceGetCount_v2(&mut count)), UNINITIALIZED);
    // The real library minds no end too many.
    assert_eq!((nvml!(nvmlDeviceSetMigMode()), nvml!(nvmlShutdown())), (UNINITIALIZED, 0));
    assert_eq!([nvml!(nvmlInit_v2()), nvml!(nvmlInit_v2()), nvml!(nvmlShutdown())], [0; 3]);
    assert_eq!((nvml!(nvmlDeviceGetCount_v2(&mut count)), count), (0, 1));
    assert_eq!((nvml!(nvmlSystemGetCudaDriverVersion(&mut version)), version), (0, 12040));
    assert_eq!(nvml!(nvmlDeviceSetMigMode()), NOT_SUPPORTED);
    assert_eq!(text(|out, length| nvml!(nvmlSystemGetDriverVersion(out, length))), "550.00.00");
    assert_eq!(nvml!(nvmlShutdown()), 0);
    count = 77;
    assert_eq!((nvml!(nvmlDeviceGetCount_v2(&mut count)), count), (UNINITIALIZED, 77));
    assert_eq!([nvml!(nvmlInit_v2()), nvml!(nvmlDeviceGetCount_v2(&mut count))], [0; 2]);
    // SAFETY: the library's texts are static.
    let words = unsafe { CStr::from_ptr(nvmlErrorString(VERSION_MISMATCH)) };
    assert_eq!(words.to_str(), Ok("Argument version mismatch"));
}

#[test]
fn devices_are_found_by_all_their_names() {
    let settings = [("FAKE_CUDA_MACHINE", "2xa100-80gb,l4-24gb"), ("CUDA_VISIBLE_DEVICES", "1")];
    if outside("devices_are_found_by_all_their_names", &settings).is_some() {
        return;
    }
    let machine = machine();
    assert_eq!(nvml!(nvmlInit_v2()), 0);
    let mut count = 0;
    assert_eq!((nvml!(nvmlDeviceGetCount_v2(&mut count)), count), (0, 3));
    for (index, spec) in (0..).zip(machine.devices()) {
        let device = handle(index);
        assert_eq!(text(|out, length| nvml!(nvmlDeviceGetName(device, out, length))), spec.name);
        let uuid = text(|out, length| nvml!(nvmlDeviceGetUUID(device, out, length)));
        assert_eq!(uuid, spec.uuid_text());
        let mut found = null_mut();
        let uuid = std::ffi::CString::new(uuid).unwrap();
        assert_eq!((nvml!(nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &mut found)), found), (0, device));
        for bus in [format!("00000000:{:02X}:00.0", spec.pci_bus), format!("{:x}:0.0", spec.pci_bus)] {
            let bus = std::ffi::CString::new(bus).unwrap();
            found = null_mut();
            assert_eq!((nvml!(nvmlDeviceGetHandleByPciBusId_v2(bus.as_ptr(), &mut found)), found), (0, device));
        }
        assert_eq!(nvml!(nvmlDeviceGetUUID(device, [0; 8].as_mut_ptr(), 8)), INSUFFICIENT_SIZE);
        let (mut current, mut pending) = (9, 9);
        let mig = nvml!(nvmlDeviceGetMigMode(device, &mut current, &mut pending));
        assert_eq!((mig, current, pending), if spec.mig_capable { (0, 0, 0) } else { (NOT_SUPPORTED, 9, 9) });
    }
    let mut found = null_mut();
    assert_eq!(nvml!(nvmlDeviceGetHandleByIndex_v2(3, &mut found)), INVALID_ARGUMENT);
    assert_eq!(nvml!(nvmlDeviceGetHandleByUUID(c"GPU-0".as_ptr(), &mut found)), NOT_FOUND);
    assert_eq!(nvml!(nvmlDeviceGetHandleByPciBusId_v2(c"00000000:FF:00.0".as_ptr(), &mut found)), NOT_FOUND);
    assert_eq!(nvml!(nvmlDeviceGetHandleByPciBusId_v2(c"here".as_ptr(), &mut found)), INVALID_ARGUMENT);
    assert!(found.is_null());
    let invented = std::ptr::without_provenance_mut(77);
    for device in [null_mut(), invented] {
        assert_eq!(nvml!(nvmlDeviceGetName(device, [0; 96].as_mut_ptr(), 96)), INVALID_ARGUMENT);
    }
}

#[test]
fn memory_and_processes_are_those_of_the_machine() {
    if outside("memory_and_processes_are_those_of_the_machine", &[("FAKE_CUDA_MACHINE", "a100-80gb")]).is_some() {
        return;
    }
    const MIB: u64 = 1 << 20;
    let machine = machine();
    assert_eq!(nvml!(nvmlInit_v2()), 0);
    let device = handle(0);
    let reserved = machine.devices()[0].reserved_bytes;
    let mut first = [0; 3];
    assert_eq!(nvml!(nvmlDeviceGetMemoryInfo(device, &mut first)), 0);
    assert_eq!(first, [81920 * MIB, 81920 * MIB - reserved, reserved]);
    let mut count = 0;
    assert_eq!((nvml!(nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, null_mut())), count), (0, 0));

    machine.set_context(0, true);
    machine.take(0, 1000 * MIB).unwrap();
    let mut second = MemoryV2 { version: 2 << 24 | 40, ..MemoryV2::default() };
    assert_eq!(nvml!(nvmlDeviceGetMemoryInfo_v2(device, &mut second)), 0);
    assert_eq!((second.total, second.reserved, second.used), (81920 * MIB, reserved, 1000 * MIB));
    assert_eq!(second.free, 80920 * MIB - reserved);
    for version in [0, 2, 1 << 24 | 40, 2 << 24 | 32] {
        let mut wrong = MemoryV2 { version, ..MemoryV2::default() };
        assert_eq!(nvml!(nvmlDeviceGetMemoryInfo_v2(device, &mut wrong)), VERSION_MISMATCH);
        assert_eq!(wrong.total, 0);
    }
    assert_eq!(nvml!(nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, null_mut())), INSUFFICIENT_SIZE);
    assert_eq!(count, 1);
    let (mut list, mut old) = ([[0; 3]; 4], [[0; 2]; 4]);
    count = 4;
    assert_eq!(nvml!(nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, list.as_mut_ptr())), 0);
    // Four bytes of padding follow the pid.
    assert_eq!((list[0][0] as u32, count), (std::process::id(), 1));
    assert_eq!((&list[0][1..], list[1]), (&[1000 * MIB, u64::MAX][..], [0; 3]));
    assert_eq!(nvml!(nvmlDeviceGetComputeRunningProcesses(device, &mut count, old.as_mut_ptr())), 0);
    assert_eq!((old[0][0] as u32, old[0][1]), (std::process::id(), 1000 * MIB));
    let own = std::env::current_exe().unwrap();
    let name = text(|out, length| nvml!(nvmlSystemGetProcessName(std::process::id(), out, length)));
    assert!(own.to_str().unwrap().starts_with(&name) || name.starts_with(own.to_str().unwrap()), "{name}");
}

#[test]
fn utilisation_comes_late() {
    if outside("utilisation_comes_late", &[("FAKE_CUDA_MACHINE", "l4-24gb")]).is_some() {
        return;
    }
    let machine = machine();
    assert_eq!(nvml!(nvmlInit_v2()), 0);
    let device = handle(0);
    let (mut rates, mut count, mut sample) = ([9; 2], 1, Sample::default());
    assert_eq!((nvml!(nvmlDeviceGetUtilizationRates(device, &mut rates)), rates), (0, [0, 0]));
    assert_eq!(nvml!(nvmlDeviceGetProcessUtilization(device, &mut sample, &mut count, 0)), NOT_FOUND);
    let slot = machine.context_opened(0);
    machine.submit(&slot, 3_600_000_000_000);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!((nvml!(nvmlDeviceGetUtilizationRates(device, &mut rates)), rates), (0, [100, 0]));
    count = 1;
    assert_eq!(nvml!(nvmlDeviceGetProcessUtilization(device, &mut sample, &mut count, 0)), 0);
    assert_eq!((count, sample.pid, sample.util), (1, std::process::id(), [100, 0, 0, 0]));
    // Nothing newer than the newest.
    let seen = sample.time + 60_000_000;
    assert_eq!(nvml!(nvmlDeviceGetProcessUtilization(device, &mut sample, &mut count, seen)), NOT_FOUND);
}

#[test]
fn a_wait_for_events_ends() {
    if outside("a_wait_for_events_ends", &[]).is_some() {
        return;
    }
    assert_eq!(nvml!(nvmlInit_v2()), 0);
    let mut set = null_mut();
    assert_eq!(nvml!(nvmlEventSetCreate(&mut set)), 0);
    assert_eq!(nvml!(nvmlEventSetWait_v2(set, &mut [0; 4], 20)), TIMEOUT);
    assert_eq!(nvml!(nvmlEventSetWait_v2(null_mut(), &mut [0; 4], 20)), INVALID_ARGUMENT);
}

#[test]
fn a_machine_that_is_none_is_told() {
    let Some(output) = outside("a_machine_that_is_none_is_told", &[("FAKE_CUDA_MACHINE", "a1000")]) else {
        assert_eq!(nvml!(nvmlInit_v2()), UNKNOWN);
        assert_eq!(nvml!(nvmlDeviceGetCount_v2(&mut 0)), UNINITIALIZED);
        return;
    };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("FAKE_CUDA")).collect();
    assert_eq!(lines.len(), 1, "{told}");
    assert!(["FAKE_CUDA_MACHINE", "a1000", "a100-80gb"].iter().all(|word| lines[0].contains(word)), "{told}");
}

#[test]
fn any_bad_setting_is_told() {
    let Some(output) = outside("any_bad_setting_is_told", &[("FAKE_CUDA_FAIL", "cuNothing:1=2")]) else {
        assert_eq!(nvml!(nvmlInit_v2()), UNKNOWN);
        return;
    };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(["FAKE_CUDA_FAIL", "cuNothing"].iter().all(|word| told.contains(word)), "{told}");
}

#[test]
fn calls_fail_and_are_written_down_as_asked() {
    let journal = std::env::temp_dir().join(format!("fake-nvml-journal-{}", std::process::id()));
    let settings = [
        ("FAKE_CUDA_FAIL", "nvmlDeviceGetCount_v2:2=15,nvmlInit_v2:1=9"),
        ("FAKE_CUDA_LATENCY", "nvmlDeviceGetCount_v2=20ms"),
        ("FAKE_CUDA_JOURNAL", journal.to_str().unwrap()),
    ];
    if outside("calls_fail_and_are_written_down_as_asked", &settings).is_none() {
        assert_eq!((nvml!(nvmlInit_v2()), nvml!(nvmlInit_v2())), (9, 0));
        let begin = std::time::Instant::now();
        assert_eq!([1, 2, 3].map(|_| nvml!(nvmlDeviceGetCount_v2(&mut 0))), [0, 15, 0]);
        assert!(begin.elapsed() >= Duration::from_millis(60));
        assert_eq!(nvml!(nvmlDeviceSetMigMode()), NOT_SUPPORTED);
        return;
    }
    let written = std::fs::read_to_string(&journal).unwrap();
    std::fs::remove_file(&journal).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!(lines.len(), 6, "{written}");
    assert!(lines[0].contains("\"function\":\"nvmlInit_v2\"") && lines[0].contains("\"result\":9"));
    assert!(lines[3].contains("nvmlDeviceGetCount_v2") && lines[3].contains("\"deviceCount\":"));
    assert!(lines[5].contains("\"unmodelled\":1") && lines[5].contains("\"result\":3"));
}
