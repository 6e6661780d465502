//! The fourth door: the driver resolves with the caller's own arguments, then its address is swapped for our
//! entry point of that address. Version, flags, status and names we don't know are right by construction.
#![allow(non_snake_case)]

use super::Answer;
use crate::args::{Name, Out, Raw};
use crate::entry::{Next, address_of};
use crate::real;
use core::ffi::c_void;
use driver_api::CUdriverProcAddressQueryResult;

pub(crate) fn cuGetProcAddress(
    next: Next<'_>,
    symbol: Name<'_>,
    pfn: Out<*mut c_void>,
    _cudaVersion: i32,
    _flags: u64,
) -> Answer {
    next.call()?;
    swap(&symbol, pfn);
    Ok(())
}

pub(crate) fn cuGetProcAddress_v2(
    next: Next<'_>,
    symbol: Name<'_>,
    pfn: Out<*mut c_void>,
    _cudaVersion: i32,
    _flags: u64,
    _symbolStatus: Raw<CUdriverProcAddressQueryResult>,
) -> Answer {
    next.call()?;
    swap(&symbol, pfn);
    Ok(())
}

/// "Not found" is a success with a null pointer in the second form.
fn swap(symbol: &Name<'_>, pfn: Out<*mut c_void>) {
    let found = pfn.get();
    if found.is_null() {
        return;
    }
    if let Some(id) = real::entry_of(found, symbol.0) {
        pfn.set(address_of(id).cast_mut());
    }
}
