//! MIG: which devices are divided, and their instances. What is shared out is what is there; nothing here changes a layout.
#![allow(unsafe_code)]

use super::{Handle, Nvml, NvmlError, SUCCESS};
use crate::devices::Device;
use core::ffi::{CStr, c_char, c_int, c_uint};
use libloading::Symbol;
use std::ffi::CString;

/// The word for a device whose MIG mode is on.
pub(super) const ENABLED: &str = "enabled";
/// Instances of one device that are looked at: today's have seven at most.
const INSTANCES_MAX: c_uint = 64;

/// An instance's profile, which is at the end of its name.
pub(super) fn profile(name: &str) -> String {
    name.rsplit_once(" MIG ").map_or("instance", |(_, profile)| profile).to_owned()
}

impl Nvml {
    pub(super) fn mig(&self, handle: Handle) -> String {
        type Function<'a> = Symbol<'a, unsafe extern "C" fn(Handle, *mut c_uint, *mut c_uint) -> c_int>;
        let (mut current, mut pending) = (0, 0);
        let known = self.function("nvmlDeviceGetMigMode").is_ok_and(|function: Function<'_>| {
            // SAFETY: NVML's signature; it fills two words.
            unsafe { function(handle, &mut current, &mut pending) == SUCCESS }
        });
        match (known, current) {
            (false, _) => "-",
            (true, 0) => "disabled",
            (true, _) => ENABLED,
        }
        .to_owned()
    }

    /// The instances of a device. Numbers between two of them may be nobody's.
    pub(super) fn instances(&self, device: Handle) -> Vec<Handle> {
        type Count<'a> = Symbol<'a, unsafe extern "C" fn(Handle, *mut c_uint) -> c_int>;
        type ByIndex<'a> = Symbol<'a, unsafe extern "C" fn(Handle, c_uint, *mut Handle) -> c_int>;
        let count: Result<Count<'_>, NvmlError> = self.function("nvmlDeviceGetMaxMigDeviceCount");
        let by_index: Result<ByIndex<'_>, NvmlError> = self.function("nvmlDeviceGetMigDeviceHandleByIndex");
        let (Ok(count), Ok(by_index)) = (count, by_index) else { return Vec::new() };
        let mut most = 0;
        // SAFETY: NVML's signature; it fills one word.
        if unsafe { count(device, &mut most) } != SUCCESS {
            return Vec::new();
        }
        let instance = |index| {
            let mut instance = core::ptr::null_mut();
            // SAFETY: NVML's signature; it fills one handle.
            (unsafe { by_index(device, index, &mut instance) } == SUCCESS).then_some(instance)
        };
        (0..most.min(INSTANCES_MAX)).filter_map(instance).collect()
    }

    /// One of the devices that there were: by its number, which is NVML's where instances don't count; an instance by its UUID,
    /// since its number may become another's.
    pub(super) fn find(&self, devices: &[Device], device: usize) -> Result<Handle, NvmlError> {
        if devices[device].parent.is_some() {
            return self.handle_of(&devices[device].uuid_text);
        }
        let before = devices[..device].iter().filter(|device| device.parent.is_none()).count();
        self.handle(before as c_uint)
    }

    fn handle_of(&self, uuid: &str) -> Result<Handle, NvmlError> {
        let name = "nvmlDeviceGetHandleByUUID";
        let function: Symbol<'_, unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int> = self.function(name)?;
        let text = CString::new(uuid).unwrap_or_default();
        let mut handle = core::ptr::null_mut();
        // SAFETY: NVML's signature and a C string; it fills one handle.
        self.check(name, unsafe { function(CStr::as_ptr(&text), &mut handle) })?;
        Ok(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_the_end_of_a_name() {
        assert_eq!(profile("NVIDIA A100-SXM4-40GB MIG 3g.20gb"), "3g.20gb");
        assert_eq!(profile("NVIDIA A100-SXM4-40GB"), "instance");
    }
}
