//! `cuGetProcAddress`: the rules are `driver_api::resolve`, the addresses those of our own exports.
//!
//! As measured on the driver, a null name or a null output crashes it; here both answer that they are
//! invalid, since a test that crashes tells less than one that fails.

use crate::args::{Answer, optional, put, text};
use crate::entry::{self, Call};
use crate::exports;
use core::ffi::{c_char, c_int, c_void};
use driver_api::{CUdriverProcAddressQueryResult, CUresult, Unresolved};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`, the highest flag there is.
const PER_THREAD: u64 = 2;

pub(crate) fn cuGetProcAddress(
    _: &Call,
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Answer {
    match find(name, version, flags)? {
        Ok(address) => put(function, address),
        Err(_) => Err(CUresult::NOT_FOUND),
    }
}

pub(crate) fn cuGetProcAddress_v2(
    _: &Call,
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut CUdriverProcAddressQueryResult,
) -> Answer {
    let (address, found) = match find(name, version, flags)? {
        Ok(address) => (address, 0),
        Err(why) => (core::ptr::null_mut(), why as c_int),
    };
    put(function, address)?;
    optional(status, found);
    Ok(())
}

fn find(name: *const c_char, version: c_int, flags: u64) -> Answer<Result<*mut c_void, Unresolved>> {
    if flags > PER_THREAD {
        return Err(CUresult::INVALID_VALUE);
    }
    let Ok(name) = text(name)?.to_str() else { return Ok(Err(Unresolved::UnknownName)) };
    Ok(driver_api::resolve(name, version, flags == PER_THREAD, entry::version())
        .and_then(|symbol| exports::address(symbol).map(<*const c_void>::cast_mut).ok_or(Unresolved::UnknownName)))
}
