//! The function by which a program says how much shared memory a block of some size needs.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use driver_api::CUoccupancyB2DSize;

/// What the function answers for a block of `threads`; `None` without a function.
pub(super) fn dynamic_bytes(function: CUoccupancyB2DSize, threads: c_int) -> Option<usize> {
    if function.is_null() {
        return None;
    }
    // SAFETY: not null, and the API says that the pointer is a function of this type.
    let function = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> usize>(function) };
    // SAFETY: the program passed it to be called with block sizes.
    Some(unsafe { function(threads) })
}
