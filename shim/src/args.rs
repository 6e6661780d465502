//! Turns the driver's raw arguments into checked ones. An argument that can't be read (a null pointer where
//! a hook needs one) means that the call goes to the driver unchanged: the error is the driver's to give.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;
use driver_api::CUmemLocation;

/// A value that the caller lets us write, and the driver writes.
pub(crate) struct Out<T>(NonNull<T>);

/// A value that the caller lets us read.
pub(crate) struct In<T>(NonNull<T>);

/// A C string.
pub(crate) struct Name<'a>(pub(crate) &'a CStr);

/// A pointer or null, passed through.
pub(crate) struct Raw<T>(pub(crate) *mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T: Copy> Out<T> {
    pub(crate) fn get(self) -> T {
        // SAFETY: `from_arg` refused null, and the contract of the driver's function keeps the pointee valid for the call.
        unsafe { self.0.as_ptr().read_unaligned() }
    }

    pub(crate) fn set(self, value: T) {
        // SAFETY: as in `get`, and the function's contract lets the callee write there.
        unsafe { self.0.as_ptr().write_unaligned(value) }
    }

    /// The `index`-th of an array whose length the caller knows.
    pub(crate) fn get_nth(self, index: usize) -> T {
        // SAFETY: as in `get`; the caller of this method has the array's length from its own caller.
        unsafe { self.0.as_ptr().add(index).read_unaligned() }
    }

    /// The same, to be written.
    pub(crate) fn set_nth(self, index: usize, value: T) {
        // SAFETY: as in `set`; the caller of this method checked the index against the array's stated length.
        unsafe { self.0.as_ptr().add(index).write_unaligned(value) }
    }
}

impl<T: Copy> In<T> {
    pub(crate) fn get(&self) -> T {
        // SAFETY: `from_arg` refused null, and the contract of the driver's function keeps the pointee valid for the call.
        unsafe { self.0.as_ptr().read_unaligned() }
    }
}

impl<T> Raw<T> {
    /// The pointee, unless the pointer is null.
    pub(crate) fn out(&self) -> Option<Out<T>> {
        NonNull::new(self.0).map(Out)
    }
}

pub(crate) trait FromArg<A>: Sized {
    fn from_arg(raw: A) -> Option<Self>;
}

impl<T> FromArg<*mut T> for Out<T> {
    fn from_arg(raw: *mut T) -> Option<Self> {
        NonNull::new(raw).map(Out)
    }
}

impl<T> FromArg<*mut T> for Raw<T> {
    fn from_arg(raw: *mut T) -> Option<Self> {
        Some(Self(raw))
    }
}

impl<T> FromArg<*const T> for Raw<T> {
    fn from_arg(raw: *const T) -> Option<Self> {
        Some(Self(raw.cast_mut()))
    }
}

impl<T> FromArg<*const T> for In<T> {
    fn from_arg(raw: *const T) -> Option<Self> {
        NonNull::new(raw.cast_mut()).map(In)
    }
}

impl FromArg<*const c_char> for Name<'_> {
    fn from_arg(raw: *const c_char) -> Option<Self> {
        // SAFETY: not null; the contract of the driver's function makes it a C string that outlives the call.
        (!raw.is_null()).then(|| Name(unsafe { CStr::from_ptr(raw) }))
    }
}

macro_rules! by_value {
    ($($kind:ty),*) => { $(impl FromArg<$kind> for $kind { fn from_arg(raw: $kind) -> Option<Self> { Some(raw) } })* };
}
by_value!(u64, u32, u16, u8, i32, usize, *mut c_void, CUmemLocation);
