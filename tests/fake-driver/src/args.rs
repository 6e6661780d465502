//! Reads and writes what the pointers of a call point to, so that bodies are safe code.
//!
//! A C caller vouches for every pointer it passes: the functions here check for null, as the driver does,
//! and rely on the caller for the rest. They are for pointers that arrived as an argument of an exported
//! function (or inside a structure that did), during that call, and for nothing else.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char};
use driver_api::CUresult;

/// What a body answers; the error is the code that the program gets.
pub(crate) type Answer<T = ()> = Result<T, CUresult>;

/// Writes an output that must be asked for.
pub(crate) fn put<T>(pointer: *mut T, value: T) -> Answer {
    if pointer.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller of the exported function vouches for its outputs; it need not align them.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Writes an output that may be left out.
pub(crate) fn optional<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: not null, and the caller of the exported function vouches for its outputs.
        unsafe { pointer.write_unaligned(value) };
    }
}

/// Reads an input structure or number that must be there.
pub(crate) fn get<T: Copy>(pointer: *const T) -> Answer<T> {
    if pointer.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller of the exported function vouches for its inputs.
    Ok(unsafe { pointer.read_unaligned() })
}

/// Reads an input that may be left out.
pub(crate) fn get_optional<T: Copy>(pointer: *const T) -> Option<T> {
    get(pointer).ok()
}

/// An array of `count` inputs; null is allowed for none.
pub(crate) fn slice<'a, T>(pointer: *const T, count: usize) -> Answer<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || !pointer.is_aligned() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(CUresult::INVALID_VALUE);
    }
    // SAFETY: not null, aligned, not longer than the address space; the caller vouches for `count` elements
    // that nobody writes during the call, and bodies don't keep the slice.
    Ok(unsafe { core::slice::from_raw_parts(pointer, count) })
}

/// Writes `value` to element `index` of an output array.
pub(crate) fn put_at<T>(pointer: *mut T, index: usize, value: T) -> Answer {
    put(if pointer.is_null() { pointer } else { pointer.wrapping_add(index) }, value)
}

/// A C string that must be there.
pub(crate) fn text<'a>(pointer: *const c_char) -> Answer<&'a CStr> {
    if pointer.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller of the exported function vouches for a terminated string.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// Writes `value` and its end into a buffer of `length` characters, cut where it is too long.
pub(crate) fn put_text(pointer: *mut c_char, length: usize, value: &str) -> Answer {
    if pointer.is_null() || length == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let bytes = &value.as_bytes()[..value.len().min(length - 1)];
    // SAFETY: the caller vouches for `length` characters, of which at most that many are written.
    unsafe {
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.cast::<u8>(), bytes.len());
        pointer.add(bytes.len()).write(0);
    }
    Ok(())
}
