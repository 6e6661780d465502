//! Things of the program that graphs keep alive: counted, and destroyed with the last reference.

use super::Graph;
use crate::args::{Answer, put};
use crate::entry::Call;
use crate::registry::{Registry, handle_of, pointer};
use crate::stream::callbacks::HostFunction;
use core::ffi::{c_uint, c_void};
use driver_api::{CUgraph, CUhostFn, CUresult, CUuserObject};
use parking_lot::Mutex;
use std::sync::Arc;

static OBJECTS: Registry<UserObject> = Registry::new();

/// One user object.
pub(crate) struct UserObject {
    destroy: HostFunction,
    references: Mutex<u64>,
}

impl UserObject {
    /// Gives references back. The destructor runs on a thread of its own, as it may not call the driver.
    fn release(self: &Arc<Self>, count: u64) -> Answer {
        let mut references = self.references.lock();
        *references = references.checked_sub(count).ok_or(CUresult::INVALID_VALUE)?;
        if *references == 0 {
            drop(OBJECTS.remove(pointer(handle_of(self))));
            let destroy = self.destroy;
            let started = std::thread::Builder::new().name("cuda-destructor".to_owned()).spawn(move || destroy.call());
            started.map_err(|_| CUresult::UNKNOWN)?;
        }
        Ok(())
    }
}

/// References that a graph holds.
pub(crate) struct Reference {
    object: Arc<UserObject>,
    count: u64,
}

impl Reference {
    fn new(object: &Arc<UserObject>, count: u64) -> Self {
        *object.references.lock() += count;
        Self { object: Arc::clone(object), count }
    }

    /// As many references for a copy of the graph.
    pub(crate) fn duplicate(&self) -> Self {
        Self::new(&self.object, self.count)
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        // A failure would mean that the program gave back more than it had; nothing is left to destroy then.
        let _ = self.object.release(self.count);
    }
}

fn counted(count: c_uint) -> Answer<u64> {
    if count == 0 || count > c_uint::MAX >> 1 { Err(CUresult::INVALID_VALUE) } else { Ok(u64::from(count)) }
}

fn find(object: CUuserObject) -> Answer<Arc<UserObject>> {
    OBJECTS.get(object).map_err(|_| CUresult::INVALID_VALUE)
}

pub(crate) fn cuUserObjectCreate(
    _: &Call,
    out: *mut CUuserObject,
    argument: *mut c_void,
    destroy: CUhostFn,
    count: c_uint,
    flags: c_uint,
) -> Answer {
    const NO_DESTRUCTOR_SYNC: c_uint = 1;
    if out.is_null() || flags != NO_DESTRUCTOR_SYNC {
        return Err(CUresult::INVALID_VALUE);
    }
    let destroy = HostFunction::new(destroy, argument)?;
    put(out, OBJECTS.insert(Arc::new(UserObject { destroy, references: Mutex::new(counted(count)?) })))
}

pub(crate) fn cuUserObjectRetain(_: &Call, object: CUuserObject, count: c_uint) -> Answer {
    *find(object)?.references.lock() += counted(count)?;
    Ok(())
}

pub(crate) fn cuUserObjectRelease(_: &Call, object: CUuserObject, count: c_uint) -> Answer {
    find(object)?.release(counted(count)?)
}

pub(crate) fn cuGraphRetainUserObject(
    _: &Call,
    graph: CUgraph,
    object: CUuserObject,
    count: c_uint,
    flags: c_uint,
) -> Answer {
    const MOVE: c_uint = 1;
    let graph = Graph::find(graph)?;
    let object = find(object)?;
    let count = counted(count)?;
    if flags > MOVE {
        return Err(CUresult::INVALID_VALUE);
    }
    let reference = Reference::new(&object, count);
    if flags == MOVE {
        object.release(count)?;
    }
    graph.users.lock().push(reference);
    Ok(())
}

pub(crate) fn cuGraphReleaseUserObject(_: &Call, graph: CUgraph, object: CUuserObject, count: c_uint) -> Answer {
    let graph = Graph::find(graph)?;
    let object = find(object)?;
    let mut left = counted(count)?;
    let mut users = graph.users.lock();
    let held: u64 = users.iter().filter(|user| Arc::ptr_eq(&user.object, &object)).map(|user| user.count).sum();
    if held < left {
        return Err(CUresult::INVALID_VALUE);
    }
    for user in users.iter_mut().filter(|user| Arc::ptr_eq(&user.object, &object)) {
        let taken = user.count.min(left);
        user.count -= taken;
        left -= taken;
    }
    users.retain(|user| user.count > 0);
    drop(users);
    object.release(u64::from(count))
}
