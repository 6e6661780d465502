//! NVML, found by the loader as `libnvidia-ml.so.1`: the few calls that are needed, each looked up by name.
#![allow(unsafe_code)]

mod instances;

use super::{Device, DeviceSample, Inventory, Utilisation, parse_uuid};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use libloading::{Library, Symbol};
use quota_core::Bytes;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The library's name for the loader.
pub const LIBRARY: &str = "libnvidia-ml.so.1";
/// Most devices that are looked at.
const DEVICES_MAX: c_uint = quota_core::ledger::DEVICES_MAX as c_uint;
/// Most processes that are looked at on one device.
const PROCESSES_MAX: usize = 4096;
/// How old a sample of utilisation may be: a second, and the sixth of one by which NVML is late.
const UTILISATION_AGE_MAX: Duration = Duration::from_millis(1_170);
/// NVML's word for "I don't know", as a number of bytes.
const NOT_AVAILABLE: u64 = u64::MAX;
const SUCCESS: c_int = 0;
const INSUFFICIENT_SIZE: c_int = 7;

/// Why the devices can't be listed. Each message says what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NvmlError {
    /// No library.
    #[error("there is no GPU driver here: {0}")]
    NoLibrary(String),
    /// The library lacks a function that every version has.
    #[error("{LIBRARY} lacks {0}: it is no NVML")]
    NoFunction(&'static str),
    /// A call failed.
    #[error("{function} answers {code} ({text})")]
    Call {
        /// Which.
        function: &'static str,
        /// Its result.
        code: i32,
        /// The driver's words for it.
        text: String,
    },
    /// A driver, but nothing to share.
    #[error("the driver sees no GPU")]
    NoDevices,
}

/// NVML, initialised; shut down when dropped.
#[derive(Debug)]
pub struct Nvml {
    library: Library,
}

type Handle = *mut c_void;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`, which tells what the driver keeps for itself.
#[repr(C)]
#[derive(Default)]
struct Memory2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlProcessInfo_t` since its second version.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    used_bytes: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlProcessUtilizationSample_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessUtilisation {
    pid: c_uint,
    time_us: u64,
    sm_percent: c_uint,
    memory_percent: c_uint,
    encoder_percent: c_uint,
    decoder_percent: c_uint,
}

/// The newest sample of each process. A percentage that is none is no data: some drivers leave it unset.
fn newest(rows: &[ProcessUtilisation]) -> Vec<(u32, u32)> {
    let mut newest: Vec<ProcessUtilisation> = Vec::new();
    for row in rows.iter().filter(|row| row.pid != 0 && row.sm_percent <= 100) {
        match newest.iter_mut().find(|known| known.pid == row.pid) {
            Some(known) if known.time_us < row.time_us => *known = *row,
            Some(_) => {}
            None => newest.push(*row),
        }
    }
    newest.iter().map(|row| (row.pid, row.sm_percent)).collect()
}

impl Nvml {
    /// Loads and initialises the library.
    ///
    /// # Errors
    /// When there is none, or it refuses.
    pub fn open() -> Result<Self, NvmlError> {
        // SAFETY: the driver's library; its initialisers have no demands on the caller.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| NvmlError::NoLibrary(error.to_string()))?;
        let nvml = Self { library };
        let init: Symbol<'_, unsafe extern "C" fn() -> c_int> = nvml.function("nvmlInit_v2")?;
        // SAFETY: NVML's signature.
        nvml.check("nvmlInit_v2", unsafe { init() })?;
        Ok(nvml)
    }

    /// What there is.
    ///
    /// # Errors
    /// When there is nothing, or the driver fails.
    pub fn inventory(&self) -> Result<Inventory, NvmlError> {
        let count = self.count()?;
        let mut devices = Vec::new();
        for index in 0..count.min(DEVICES_MAX) {
            let handle = self.handle(index)?;
            let device = self.device(handle)?;
            let (parent, is_divided) = (devices.len(), device.is_divided);
            devices.push(device);
            for instance in if is_divided { self.instances(handle) } else { Vec::new() } {
                devices.push(Device { parent: Some(parent), ..self.device(instance)? });
            }
        }
        devices.truncate(DEVICES_MAX as usize);
        if devices.is_empty() {
            return Err(NvmlError::NoDevices);
        }
        Ok(Inventory { driver: self.driver_version(), devices })
    }

    /// What these devices say now.
    pub fn sample(&self, devices: &[Device]) -> Vec<DeviceSample> {
        (0..devices.len()).map(|device| self.sample_one(devices, device)).collect()
    }

    /// The version of the library itself.
    pub fn version(&self) -> String {
        self.text("nvmlSystemGetNVMLVersion", |function, buffer, length| {
            let function: Symbol<'_, unsafe extern "C" fn(*mut c_char, c_uint) -> c_int> = function?;
            // SAFETY: NVML's signature; the buffer has `length` bytes.
            Ok(unsafe { function(buffer, length) })
        })
        .unwrap_or_default()
    }

    fn driver_version(&self) -> String {
        self.text("nvmlSystemGetDriverVersion", |function, buffer, length| {
            let function: Symbol<'_, unsafe extern "C" fn(*mut c_char, c_uint) -> c_int> = function?;
            // SAFETY: NVML's signature; the buffer has `length` bytes.
            Ok(unsafe { function(buffer, length) })
        })
        .unwrap_or_default()
    }

    fn count(&self) -> Result<c_uint, NvmlError> {
        let mut count = 0;
        let name = "nvmlDeviceGetCount_v2";
        let function: Symbol<'_, unsafe extern "C" fn(*mut c_uint) -> c_int> = self.function(name)?;
        // SAFETY: NVML's signature; it fills one word.
        self.check(name, unsafe { function(&mut count) })?;
        Ok(count)
    }

    fn handle(&self, index: c_uint) -> Result<Handle, NvmlError> {
        let mut handle = core::ptr::null_mut();
        let name = "nvmlDeviceGetHandleByIndex_v2";
        let function: Symbol<'_, unsafe extern "C" fn(c_uint, *mut Handle) -> c_int> = self.function(name)?;
        // SAFETY: NVML's signature; it fills one handle.
        self.check(name, unsafe { function(index, &mut handle) })?;
        Ok(handle)
    }

    fn device(&self, handle: Handle) -> Result<Device, NvmlError> {
        let uuid_text = self.device_text("nvmlDeviceGetUUID", handle)?;
        let uuid = parse_uuid(&uuid_text).ok_or_else(|| NvmlError::Call {
            function: "nvmlDeviceGetUUID",
            code: SUCCESS,
            text: format!("with {uuid_text:?}, which is no UUID"),
        })?;
        let name = self.device_text("nvmlDeviceGetName", handle)?;
        let mig = if uuid_text.starts_with("MIG-") { instances::profile(&name) } else { self.mig(handle) };
        let is_divided = mig == instances::ENABLED;
        let total = match self.memory(handle) {
            Ok(memory) => memory.total.saturating_sub(self.reserved_bytes(handle)),
            // It may tell only those who may use all of it; nobody will have any of it but by its instances.
            Err(_) if is_divided => 0,
            Err(error) => return Err(error),
        };
        Ok(Device { uuid, uuid_text, name, total: Bytes(total), mig, is_divided, parent: None })
    }

    fn memory(&self, handle: Handle) -> Result<Memory, NvmlError> {
        let mut memory = Memory::default();
        let name = "nvmlDeviceGetMemoryInfo";
        let function: Symbol<'_, unsafe extern "C" fn(Handle, *mut Memory) -> c_int> = self.function(name)?;
        // SAFETY: NVML's signature and structure, and a handle of its own.
        self.check(name, unsafe { function(handle, &mut memory) })?;
        Ok(memory)
    }

    /// What the driver keeps for itself; 0 where NVML is too old to say.
    fn reserved_bytes(&self, handle: Handle) -> u64 {
        let version = size_of::<Memory2>() as c_uint | 2 << 24;
        let mut memory = Memory2 { version, ..Memory2::default() };
        type Function<'a> = Symbol<'a, unsafe extern "C" fn(Handle, *mut Memory2) -> c_int>;
        let known = self.function("nvmlDeviceGetMemoryInfo_v2").is_ok_and(|function: Function<'_>| {
            // SAFETY: NVML's signature and structure, and a handle of its own.
            unsafe { function(handle, &mut memory) == SUCCESS }
        });
        if known { memory.reserved } else { 0 }
    }

    /// What one of these devices says now.
    pub(super) fn sample_one(&self, devices: &[Device], device: usize) -> DeviceSample {
        let failing = |error: String| DeviceSample { error: Some(error), ..DeviceSample::default() };
        let handle = match self.find(devices, device) {
            Ok(handle) => handle,
            Err(error) => return failing(error.to_string()),
        };
        let uuid = &devices[device].uuid_text;
        if let Some(now) = self.device_text("nvmlDeviceGetUUID", handle).ok().filter(|now| now != uuid) {
            return failing(format!("device {device} is {now} now; restart gpuquotad"));
        }
        let (used, error) = match self.memory(handle) {
            Ok(memory) => (Some(Bytes(memory.used)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let mut processes = Vec::new();
        // Those on a divided device are its instances'.
        for kind in if devices[device].is_divided { &[][..] } else { &["Compute", "Graphics"] } {
            for (pid, bytes) in self.processes(handle, kind) {
                // A process that computes and draws is in both lists, with the same memory.
                if !processes.iter().any(|(known, _)| *known == pid) {
                    processes.push((pid, bytes));
                }
            }
        }
        DeviceSample { used, processes, error, ..DeviceSample::default() }
    }

    /// What processes used lately of these devices: by device, percent by pid; none where the driver doesn't say.
    pub fn utilisation(&self, devices: &[Device]) -> Vec<Utilisation> {
        (0..devices.len()).map(|device| self.utilisation_one(devices, device)).collect()
    }

    /// The same of one of them.
    #[allow(clippy::disallowed_methods)] // NVML's time stamps are of the wall clock.
    pub(super) fn utilisation_one(&self, devices: &[Device], device: usize) -> Utilisation {
        let since_us =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(UTILISATION_AGE_MAX);
        let since_us = u64::try_from(since_us.as_micros()).unwrap_or(u64::MAX);
        self.utilisation_of(self.find(devices, device).ok()?, since_us)
    }

    fn utilisation_of(&self, handle: Handle, since_us: u64) -> Utilisation {
        type Function<'a> =
            Symbol<'a, unsafe extern "C" fn(Handle, *mut ProcessUtilisation, *mut c_uint, u64) -> c_int>;
        let function: Function<'_> = self.function("nvmlDeviceGetProcessUtilization").ok()?;
        let mut capacity = 128;
        while capacity <= PROCESSES_MAX {
            let mut rows = vec![ProcessUtilisation::default(); capacity];
            let mut count = capacity as c_uint;
            // SAFETY: NVML's signature and structure; `count` says how many fit.
            match unsafe { function(handle, rows.as_mut_ptr(), &mut count, since_us) } {
                SUCCESS => {
                    rows.truncate(count as usize);
                    return Some(newest(&rows));
                }
                INSUFFICIENT_SIZE => capacity *= 4,
                // Not found: nothing was sampled, which is not the same as nothing used.
                _ => return None,
            }
        }
        None
    }

    /// The newest form of the list that the driver has; the two last ones fill the same structure.
    fn processes(&self, handle: Handle, kind: &str) -> Vec<(u32, Option<Bytes>)> {
        type Function<'a> = Symbol<'a, unsafe extern "C" fn(Handle, *mut c_uint, *mut ProcessInfo) -> c_int>;
        let function = ["v3", "v2"].iter().find_map(|version| {
            let name = format!("nvmlDeviceGet{kind}RunningProcesses_{version}");
            // SAFETY: NVML's signature under either name.
            unsafe { self.library.get(name.as_bytes()) }.ok()
        });
        let Some(function): Option<Function<'_>> = function else { return Vec::new() };
        let mut capacity = 64;
        while capacity <= PROCESSES_MAX {
            let mut rows = vec![ProcessInfo::default(); capacity];
            let mut count = capacity as c_uint;
            // SAFETY: NVML's signature and structure; `count` says how many fit.
            match unsafe { function(handle, &mut count, rows.as_mut_ptr()) } {
                SUCCESS => {
                    rows.truncate(count as usize);
                    return rows.iter().map(|row| (row.pid, known_bytes(row.used_bytes))).collect();
                }
                INSUFFICIENT_SIZE => capacity *= 4,
                _ => return Vec::new(),
            }
        }
        Vec::new()
    }

    fn device_text(&self, name: &'static str, handle: Handle) -> Result<String, NvmlError> {
        self.text(name, |function, buffer, length| {
            let function: Symbol<'_, unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int> = function?;
            // SAFETY: NVML's signature; the buffer has `length` bytes.
            Ok(unsafe { function(handle, buffer, length) })
        })
    }

    /// A call that fills a buffer with a C string.
    fn text<'a, F: 'a>(
        &'a self,
        name: &'static str,
        call: impl FnOnce(Result<Symbol<'a, F>, NvmlError>, *mut c_char, c_uint) -> Result<c_int, NvmlError>,
    ) -> Result<String, NvmlError> {
        let mut buffer = [0u8; 128];
        let code = call(self.function(name), buffer.as_mut_ptr().cast(), buffer.len() as c_uint - 1)?;
        self.check(name, code)?;
        let text = CStr::from_bytes_until_nul(&buffer).expect("the last byte was never given away");
        Ok(text.to_string_lossy().into_owned())
    }

    fn function<F>(&self, name: &'static str) -> Result<Symbol<'_, F>, NvmlError> {
        // SAFETY: each caller names the type that NVML's documentation gives to this function.
        unsafe { self.library.get(name.as_bytes()) }.map_err(|_| NvmlError::NoFunction(name))
    }

    fn check(&self, function: &'static str, code: c_int) -> Result<(), NvmlError> {
        if code == SUCCESS { Ok(()) } else { Err(NvmlError::Call { function, code, text: self.error_text(code) }) }
    }

    fn error_text(&self, code: c_int) -> String {
        let function: Result<Symbol<'_, unsafe extern "C" fn(c_int) -> *const c_char>, _> =
            self.function("nvmlErrorString");
        let Ok(function) = function else { return "unknown".to_owned() };
        // SAFETY: NVML's signature; it answers a string of its own that lives for ever.
        let text = unsafe { function(code) };
        if text.is_null() {
            return "unknown".to_owned();
        }
        // SAFETY: not null, a C string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        let shutdown: Result<Symbol<'_, unsafe extern "C" fn() -> c_int>, _> = self.function("nvmlShutdown");
        if let Ok(shutdown) = shutdown {
            // SAFETY: NVML's signature; balances the initialisation.
            unsafe { shutdown() };
        }
    }
}

fn known_bytes(bytes: u64) -> Option<Bytes> {
    (bytes != NOT_AVAILABLE).then_some(Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_that_is_none_is_no_data_and_the_newest_counts() {
        let row = |pid, time_us, sm_percent| ProcessUtilisation { pid, time_us, sm_percent, ..Default::default() };
        let rows = [row(7, 2, 40), row(7, 3, 60), row(7, 1, 90), row(8, 1, 4_000_000), row(0, 1, 5), row(9, 1, 100)];
        assert_eq!(newest(&rows), [(7, 60), (9, 100)]);
    }
}
