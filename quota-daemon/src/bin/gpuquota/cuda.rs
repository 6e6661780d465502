//! The few driver calls that the demo's jobs and `doctor` make, looked up as any program would.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use libloading::{Library, Symbol};

/// `CUDA_ERROR_OUT_OF_MEMORY`
pub(crate) const OUT_OF_MEMORY: i32 = 2;
/// `CUDA_ERROR_NO_DEVICE`
pub(crate) const NO_DEVICE: i32 = 100;
/// `CUDA_ERROR_NOT_FOUND`: here also for a function that the driver lacks.
const NOT_FOUND: i32 = 500;

/// The driver's own code for what went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code(pub(crate) i32);

/// The driver, opened.
pub(crate) struct Cuda(Library);

/// A block of device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block(u64);

/// Calls the driver's function of that name with these arguments.
macro_rules! call {
    ($cuda:expr, $name:literal($($argument:expr => $kind:ty),*)) => {{
        // SAFETY: the driver's function of this name has this signature, by its public headers.
        let found: Result<Symbol<'_, unsafe extern "C" fn($($kind),*) -> c_int>, _> = unsafe { $cuda.0.get($name) };
        match found {
            // SAFETY: the arguments are values, or references that outlive the call.
            Ok(function) => match unsafe { function($($argument),*) } {
                0 => Ok(()),
                code => Err(Code(code)),
            },
            Err(_) => Err(Code(NOT_FOUND)),
        }
    }};
}

impl Cuda {
    /// Opens the driver that a program would get.
    pub(crate) fn open() -> Result<Self, String> {
        // SAFETY: a driver's constructors are made to run in any program.
        unsafe { Library::new("libcuda.so.1") }.map(Self).map_err(|error| error.to_string())
    }

    pub(crate) fn init(&self) -> Result<(), Code> {
        call!(self, b"cuInit\0"(0 => c_uint))
    }

    /// 1000 × major + 10 × minor.
    pub(crate) fn version(&self) -> Result<i32, Code> {
        let mut version = 0;
        call!(self, b"cuDriverGetVersion\0"(&mut version => *mut c_int)).map(|()| version)
    }

    /// Makes the first device's context the thread's.
    pub(crate) fn use_first_device(&self) -> Result<(), Code> {
        let mut context: *mut c_void = core::ptr::null_mut();
        call!(self, b"cuDevicePrimaryCtxRetain\0"(&mut context => *mut *mut c_void, 0 => c_int))?;
        call!(self, b"cuCtxSetCurrent\0"(context => *mut c_void))
    }

    /// Size of the first device.
    pub(crate) fn total_bytes(&self) -> Result<u64, Code> {
        let mut bytes = 0usize;
        call!(self, b"cuDeviceTotalMem_v2\0"(&mut bytes => *mut usize, 0 => c_int)).map(|()| bytes as u64)
    }

    /// Free and total bytes of the current device.
    pub(crate) fn memory(&self) -> Result<(u64, u64), Code> {
        let (mut free, mut total) = (0usize, 0usize);
        call!(self, b"cuMemGetInfo_v2\0"(&mut free => *mut usize, &mut total => *mut usize))
            .map(|()| (free as u64, total as u64))
    }

    pub(crate) fn allocate(&self, bytes: u64) -> Result<Block, Code> {
        let mut at = 0u64;
        call!(self, b"cuMemAlloc_v2\0"(&mut at => *mut u64, bytes as usize => usize)).map(|()| Block(at))
    }

    pub(crate) fn free(&self, block: Block) -> Result<(), Code> {
        call!(self, b"cuMemFree_v2\0"(block.0 => u64))
    }

    /// Copies `out` to the device and back; true when it came back the same.
    pub(crate) fn round_trip(&self, block: Block, out: &[u8]) -> Result<bool, Code> {
        let mut back = vec![0u8; out.len()];
        call!(self, b"cuMemcpyHtoD_v2\0"(block.0 => u64, out.as_ptr().cast() => *const c_void, out.len() => usize))?;
        call!(self, b"cuMemcpyDtoH_v2\0"(back.as_mut_ptr().cast() => *mut c_void, block.0 => u64, back.len() => usize))?;
        Ok(back == out)
    }

    /// Loads `ptx`, launches its function `name` on one thread, and waits for it.
    pub(crate) fn launch(&self, ptx: &CStr, name: &CStr) -> Result<(), Code> {
        let mut module: *mut c_void = core::ptr::null_mut();
        let mut function: *mut c_void = core::ptr::null_mut();
        let null = core::ptr::null_mut();
        call!(self, b"cuModuleLoadData\0"(&mut module => *mut *mut c_void, ptx.as_ptr().cast() => *const c_void))?;
        call!(self, b"cuModuleGetFunction\0"(&mut function => *mut *mut c_void, module => *mut c_void, name.as_ptr() => *const c_char))?;
        call!(self, b"cuLaunchKernel\0"(
            function => *mut c_void, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint,
            0 => c_uint, null => *mut c_void, null => *mut c_void, null => *mut c_void
        ))?;
        call!(self, b"cuCtxSynchronize\0"())
    }
}
