//! Who holds a device by a handle of NVML's: as with a real one, a file that stays open.
//!
//! A real library opens the device's node with the first handle of a device, and closes it with its last `nvmlShutdown`; what
//! divides or resets a device finds out by that who is in its way. Here the file is an anonymous one with the device's name, so
//! that a process that dies holds nothing, and nothing is left on disk.
#![allow(unsafe_code)]

use crate::Machine;
use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// The node of a device, open until it is dropped.
#[derive(Debug)]
pub struct Handle(#[expect(dead_code, reason = "it is there to be seen, and to be closed")] OwnedFd);

impl Machine {
    /// Opens the node of a device.
    ///
    /// # Errors
    /// When the kernel gives no descriptor.
    pub fn hold(&self, device: usize) -> io::Result<Handle> {
        let name = CString::new(self.node(device)).map_err(io::Error::other)?;
        // SAFETY: a C string, and flags.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Handle(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Pids of the processes that have the node of a device open, as far as the caller may look; one for each handle.
    pub fn holders(&self, device: usize) -> Vec<u32> {
        let wanted = format!("/memfd:{} (deleted)", self.node(device));
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut holders = Vec::new();
        for pid in pids {
            let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let targets = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
            let count = targets.filter(|target| target.to_str() == Some(wanted.as_str())).count();
            holders.extend(std::iter::repeat_n(pid, count));
        }
        holders
    }

    /// The name of a device's node: the machine's own, whatever others there are.
    fn node(&self, device: usize) -> String {
        let (file_system, file) = self.file.identity();
        format!("simulated-nvidia{device}-{file_system:x}-{file:x}")
    }
}
