//! What the runtime keeps for each context, with the functions that destroy it.

use super::{Entry, entry};
use crate::args::{Answer, put};
use crate::entry as calls;
use crate::state;
use core::ffi::c_void;
use driver_api::{CUcontext, CUresult};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Destroys a value: context, key, value.
type Destructor = Option<unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void)>;

#[derive(Clone, Copy)]
struct Value {
    value: usize,
    destructor: Destructor,
}

/// By the context's handle and the key. Handles of primary contexts are valid before these are active.
static VALUES: Mutex<BTreeMap<(usize, usize), Value>> = Mutex::new(BTreeMap::new());

/// Null means the current context.
fn owner(context: CUcontext) -> Answer<usize> {
    if context.is_null() { Ok(state::current()?.handle()) } else { Ok(context.addr()) }
}

pub(super) extern "C" fn put_value(
    context: CUcontext,
    key: *mut c_void,
    value: *mut c_void,
    destructor: Destructor,
) -> CUresult {
    static ENTRY: Entry = entry("export table: put context storage");
    let body = |_: &calls::Call| -> Answer {
        let value = Value { value: value.expose_provenance(), destructor };
        VALUES.lock().insert((owner(context)?, key.expose_provenance()), value);
        Ok(())
    };
    calls::enter(&ENTRY, || [("key", key.addr() as u64)], body)
}

pub(super) extern "C" fn delete_value(context: CUcontext, key: *mut c_void) -> CUresult {
    static ENTRY: Entry = entry("export table: delete context storage");
    let body = |_: &calls::Call| -> Answer {
        let removed = VALUES.lock().remove(&(owner(context)?, key.addr()));
        removed.map(drop).ok_or(CUresult::INVALID_HANDLE)
    };
    calls::enter(&ENTRY, || [("key", key.addr() as u64)], body)
}

pub(super) extern "C" fn get_value(out: *mut *mut c_void, context: CUcontext, key: *mut c_void) -> CUresult {
    static ENTRY: Entry = entry("export table: get context storage");
    let body = |_: &calls::Call| -> Answer {
        let found = VALUES.lock().get(&(owner(context)?, key.addr())).copied();
        put(out, core::ptr::with_exposed_provenance_mut(found.ok_or(CUresult::INVALID_HANDLE)?.value))
    };
    calls::enter(&ENTRY, || [("key", key.addr() as u64)], body)
}

/// Takes out the values of a context and destroys them. A destructor may call the driver, and here.
pub(super) fn context_closes(context: usize) {
    let ended: Vec<((usize, usize), Value)> = {
        let mut values = VALUES.lock();
        let mut own = values.split_off(&(context, 0));
        values.append(&mut own.split_off(&(context + 1, 0)));
        own.into_iter().collect()
    };
    for ((_, key), value) in ended {
        if let Some(destroy) = value.destructor {
            let (key, value) =
                (core::ptr::with_exposed_provenance_mut(key), core::ptr::with_exposed_provenance_mut(value.value));
            // SAFETY: the runtime gave the function to be called with these, once, when the context ends.
            unsafe { destroy(state::handle(context), key, value) };
        }
    }
}
