//! Handles that programs hold: the address of an object, valid while the object is registered here.
//!
//! A handle that was never given out, or no longer is, is an error and never a crash.

use crate::args::Answer;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use driver_api::CUresult;
use parking_lot::RwLock;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// All live objects of one kind.
pub(crate) struct Registry<T> {
    objects: RwLock<Option<HashMap<usize, Arc<T>>>>,
    /// Grows with every removal, so that a thread's cache knows when not to trust itself.
    removals: AtomicU64,
}

/// The number that a program holds for `object`.
pub(crate) fn handle_of<T>(object: &Arc<T>) -> usize {
    Arc::as_ptr(object).addr()
}

/// A handle as the API's type for it.
pub(crate) fn pointer(handle: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(handle)
}

impl<T> Registry<T> {
    /// An empty registry.
    pub(crate) const fn new() -> Self {
        Self { objects: RwLock::new(None), removals: AtomicU64::new(0) }
    }

    /// Makes `object` known; its handle.
    pub(crate) fn insert(&self, object: Arc<T>) -> *mut c_void {
        let handle = handle_of(&object);
        self.objects.write().get_or_insert_default().insert(handle, object);
        pointer(handle)
    }

    /// The object behind a handle; 400 for any other number.
    pub(crate) fn get(&self, handle: *mut c_void) -> Answer<Arc<T>> {
        let objects = self.objects.read();
        objects.as_ref().and_then(|objects| objects.get(&handle.addr())).cloned().ok_or(CUresult::INVALID_HANDLE)
    }

    /// Takes the object out: its handle is valid no more.
    pub(crate) fn remove(&self, handle: *mut c_void) -> Answer<Arc<T>> {
        let removed = self.objects.write().as_mut().and_then(|objects| objects.remove(&handle.addr()));
        self.removals.fetch_add(1, Ordering::Release);
        removed.ok_or(CUresult::INVALID_HANDLE)
    }

    /// All objects that are registered now.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.objects.read().iter().flat_map(|objects| objects.values().cloned()).collect()
    }

    /// Takes out every object for which `doomed` says so.
    pub(crate) fn remove_all(&self, doomed: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut objects = self.objects.write();
        let taken = objects.get_or_insert_default().extract_if(|_, object| doomed(object)).map(|(_, object)| object);
        let taken = taken.collect();
        self.removals.fetch_add(1, Ordering::Release);
        taken
    }
}

/// A thread's memory of the handles it used last, so that launches need no lock.
pub(crate) struct Cache<T: 'static> {
    places: RefCell<[Option<Place<T>>; PLACES]>,
}

/// A handle, the count of removals when it was looked up, and the object.
type Place<T> = (usize, u64, Arc<T>);

const PLACES: usize = 32;

impl<T> Cache<T> {
    /// An empty cache, for a `thread_local`.
    pub(crate) const fn new() -> Self {
        Self { places: RefCell::new([const { None }; PLACES]) }
    }

    /// Calls `use_object` with the object behind `handle`, which must not use this cache itself.
    pub(crate) fn with<R>(
        &self,
        registry: &Registry<T>,
        handle: *mut c_void,
        use_object: impl FnOnce(&Arc<T>) -> R,
    ) -> Answer<R> {
        // Acquire pairs with the release of a removal: who sees the old count may use the object once more,
        // as if the call had come before the removal.
        let removals = registry.removals.load(Ordering::Acquire);
        let handle_number = handle.addr();
        let place = (handle_number >> 4 ^ handle_number >> 9) % PLACES;
        {
            let places = self.places.borrow();
            if let Some((known, seen, object)) = &places[place]
                && *known == handle_number
                && *seen == removals
            {
                return Ok(use_object(object));
            }
        }
        let object = registry.get(handle)?;
        let result = use_object(&object);
        let forgotten = self.places.borrow_mut()[place].replace((handle_number, removals, object));
        drop(forgotten);
        Ok(result)
    }
}
