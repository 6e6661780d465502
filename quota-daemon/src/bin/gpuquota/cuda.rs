//! The few calls of the driver API that the demo's jobs make: as any program's, through `dlopen` and `dlsym`.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_uint, c_void};
use libloading::{Library, Symbol};
use std::time::Instant;

/// The library's name for the loader.
pub(crate) const LIBRARY: &str = "libcuda.so.1";
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: i32 = 2;
const SUCCESS: i32 = 0;

/// Kernels between two waits of a job that is busy: some turns' worth, so that waiting costs it nothing.
const SPINS_PER_WAIT: u32 = 100;
/// How long the kernel takes, in microseconds.
pub(crate) const SPIN_US: u32 = 200;
/// A kernel that keeps the device busy for 200 µs; the simulated driver takes the time from the name.
const SPIN_PTX: &core::ffi::CStr = c".version 6.0
.target sm_50
.address_size 64
.visible .entry spin_200us()
{
    .reg .pred %p<2>;
    .reg .b64 %rd<4>;
    mov.u64 %rd1, %globaltimer;
AGAIN:
    mov.u64 %rd2, %globaltimer;
    sub.u64 %rd3, %rd2, %rd1;
    setp.lt.u64 %p1, %rd3, 200000;
    @%p1 bra AGAIN;
    ret;
}
";

/// A call that did not succeed: which, and its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CudaError {
    pub(crate) function: &'static str,
    pub(crate) code: i32,
}

/// The driver, with the first device's primary context current.
#[derive(Debug)]
pub(crate) struct Cuda {
    library: Library,
    device: c_int,
}

/// Memory on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allocation(u64);

/// Calls a function of the driver by its name, with its C types.
macro_rules! call {
    ($cuda:expr, $name:literal ($($type:ty),*) ($($argument:expr),*)) => {{
        let function: Result<Symbol<'_, unsafe extern "C" fn($($type),*) -> c_int>, _> =
            // SAFETY: the types are those of the driver API's documentation for this name.
            unsafe { $cuda.library.get($name.as_bytes()) };
        match function {
            // SAFETY: as above; pointers among the arguments are valid for the call.
            Ok(function) => checked($name, unsafe { function($($argument),*) }),
            Err(_) => Err(CudaError { function: $name, code: -1 }),
        }
    }};
}

impl Cuda {
    /// Opens the driver and makes the first device's context current.
    pub(crate) fn open() -> Result<Self, String> {
        // SAFETY: the driver's library, or what stands in for it; its initialisers have no demands on the caller.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| format!("{LIBRARY}: {error}"))?;
        let mut cuda = Self { library, device: 0 };
        cuda.start().map_err(|error| format!("{} answers {}", error.function, error.code))?;
        Ok(cuda)
    }

    fn start(&mut self) -> Result<(), CudaError> {
        call!(self, "cuInit"(c_uint)(0))?;
        let device = &raw mut self.device;
        call!(self, "cuDeviceGet" (*mut c_int, c_int) (device, 0))?;
        let mut context: *mut c_void = core::ptr::null_mut();
        call!(self, "cuDevicePrimaryCtxRetain" (*mut *mut c_void, c_int) (&mut context, self.device))?;
        call!(self, "cuCtxSetCurrent" (*mut c_void) (context))
    }

    /// The size of the device.
    pub(crate) fn total_bytes(&self) -> Result<u64, CudaError> {
        let mut bytes = 0usize;
        call!(self, "cuDeviceTotalMem_v2" (*mut usize, c_int) (&mut bytes, self.device))?;
        Ok(bytes as u64)
    }

    /// Free and total memory.
    pub(crate) fn memory(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0usize, 0usize);
        call!(self, "cuMemGetInfo_v2" (*mut usize, *mut usize) (&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    /// Allocates.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<Allocation, CudaError> {
        let mut at = 0u64;
        call!(self, "cuMemAlloc_v2" (*mut u64, usize) (&mut at, bytes as usize))?;
        Ok(Allocation(at))
    }

    /// Frees.
    pub(crate) fn free(&self, allocation: Allocation) -> Result<(), CudaError> {
        call!(self, "cuMemFree_v2"(u64)(allocation.0))
    }

    /// Copies to the device and back; true when the same bytes return.
    pub(crate) fn round_trip(&self, allocation: Allocation) -> Result<bool, CudaError> {
        let sent: Vec<u8> = (0..=255).collect();
        let mut back = vec![0u8; sent.len()];
        call!(self, "cuMemcpyHtoD_v2" (u64, *const c_void, usize) (allocation.0, sent.as_ptr().cast(), sent.len()))?;
        call!(self, "cuMemcpyDtoH_v2" (*mut c_void, u64, usize) (back.as_mut_ptr().cast(), allocation.0, back.len()))?;
        Ok(sent == back)
    }

    /// Runs the kernel so many times and waits for the last one.
    pub(crate) fn spin(&self, times: u32) -> Result<(), CudaError> {
        self.with_kernel(|function| {
            (0..times).try_for_each(|_| self.launch(function))?;
            self.synchronise()
        })
    }

    /// Runs the kernel until a time; how often.
    pub(crate) fn spin_until(&self, end: Instant) -> Result<u64, CudaError> {
        self.with_kernel(|function| {
            let mut times = 0;
            while Instant::now() < end {
                (0..SPINS_PER_WAIT).try_for_each(|_| self.launch(function))?;
                times += u64::from(SPINS_PER_WAIT);
                self.synchronise()?;
            }
            Ok(times)
        })
    }

    fn with_kernel<T>(&self, run: impl FnOnce(*mut c_void) -> Result<T, CudaError>) -> Result<T, CudaError> {
        let (mut module, mut function): (*mut c_void, *mut c_void) = (core::ptr::null_mut(), core::ptr::null_mut());
        call!(self, "cuModuleLoadData" (*mut *mut c_void, *const c_void) (&mut module, SPIN_PTX.as_ptr().cast()))?;
        let name = c"spin_200us".as_ptr();
        call!(self, "cuModuleGetFunction" (*mut *mut c_void, *mut c_void, *const c_char) (&mut function, module, name))?;
        let done = run(function)?;
        call!(self, "cuModuleUnload" (*mut c_void) (module))?;
        Ok(done)
    }

    fn launch(&self, function: *mut c_void) -> Result<(), CudaError> {
        let none: *mut *mut c_void = core::ptr::null_mut();
        call!(
            self,
            "cuLaunchKernel"
            (*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void, *mut *mut c_void, *mut *mut c_void)
            (function, 1, 1, 1, 1, 1, 1, 0, core::ptr::null_mut(), none, none)
        )
    }

    fn synchronise(&self) -> Result<(), CudaError> {
        call!(self, "cuCtxSynchronize"()())
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // The process is about to end; a driver that refuses this changes nothing.
        let _ = call!(self, "cuDevicePrimaryCtxRelease_v2"(c_int)(self.device));
    }
}

fn checked(function: &'static str, code: c_int) -> Result<(), CudaError> {
    if code == SUCCESS { Ok(()) } else { Err(CudaError { function, code }) }
}
