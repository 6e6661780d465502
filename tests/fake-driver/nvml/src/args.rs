//! Reading and writing what a program passes pointers to.
//!
//! The program answers for its pointers, as with the real library: a null one is told from others, nothing
//! else can be. Everything that follows such a pointer is here, so that bodies hold no unsafe code.
#![allow(unsafe_code)]

use crate::types::{Answer, Code, version_of};
use core::ffi::{CStr, c_char, c_uint};

/// Writes an output.
pub(crate) fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    // SAFETY: not null; the caller of the API passes memory that it may write a `T` to.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Reads an argument that is passed by address.
pub(crate) fn get<T: Copy>(from: *const T) -> Answer<T> {
    if from.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    // SAFETY: not null; the caller of the API passes memory that holds a `T`.
    Ok(unsafe { from.read_unaligned() })
}

/// Reads a structure that begins with its version, if it is the one that is known.
pub(crate) fn get_versioned<T: Copy>(from: *const T, number: u32) -> Answer<T> {
    // Only its first word: a structure of another version may be shorter.
    if get(from.cast::<c_uint>())? != version_of::<T>(number) {
        return Err(Code::ARGUMENT_VERSION_MISMATCH);
    }
    get(from)
}

/// Reads a text.
pub(crate) fn get_text(from: *const c_char) -> Answer<String> {
    if from.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    // SAFETY: not null; the caller of the API passes a text that ends with a zero.
    Ok(unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}

/// Writes a text and its zero into a buffer of `length` bytes.
pub(crate) fn put_text(out: *mut c_char, length: c_uint, text: &str) -> Answer {
    if out.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    // SAFETY: not null, and by the caller's word as long as `length`, which is longer than the text.
    unsafe { out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    // SAFETY: as above; the zero is the byte after the text.
    unsafe { out.add(text.len()).write(0) };
    Ok(())
}

/// Writes a list into an array that has room for `*count`, and its length into `*count`.
///
/// Without room, the length alone tells the program how much to bring.
pub(crate) fn put_list<T: Copy>(count: *mut c_uint, out: *mut T, items: &[T]) -> Answer {
    let room = get(count)? as usize;
    put(count, c_uint::try_from(items.len()).unwrap_or(c_uint::MAX))?;
    if items.is_empty() {
        return Ok(());
    }
    if out.is_null() || room < items.len() {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    put_all(out, items)
}

/// Writes all of a list into an array that is known to have the room.
pub(crate) fn put_all<T: Copy>(out: *mut T, items: &[T]) -> Answer {
    for (at, item) in items.iter().enumerate() {
        put(out.wrapping_add(at), *item)?;
    }
    Ok(())
}

/// A text as the fixed array of a structure, cut to leave room for its zero.
pub(crate) fn array<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, byte) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *to = byte.cast_signed();
    }
    array
}

/// The text in the fixed array of a structure.
pub(crate) fn text_of(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
