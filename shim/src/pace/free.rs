//! Whether nothing is to be counted: the question that every launch asks first.
//!
//! A process that is free on all devices it uses notes the page's number of gate changes at that moment. As long as it stands,
//! launches cost a comparison.
#![allow(unsafe_code)]

use crate::join::{Caps, Member};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use parking_lot::Mutex;

/// The word that must stand still; null while something is counted, or nobody has looked.
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// What it stood at. A store of this goes before one of `WORD`, whose Release pairs with the Acquire of the reader.
static FREE_AT: AtomicU64 = AtomicU64::new(0);
/// The word of those whose gates nobody changes.
static NEVER_MOVES: AtomicU64 = AtomicU64::new(0);
/// One thread at a time decides.
#[derive(Default)]
pub(super) struct Decisions(Mutex<()>);

#[inline]
pub(super) fn is_free() -> bool {
    let word = WORD.load(Ordering::Acquire);
    // SAFETY: null, a static, or a word of the page of a member, which is never unmapped.
    let word = unsafe { word.as_ref() };
    word.is_some_and(|word| word.load(Ordering::Acquire) == FREE_AT.load(Ordering::Relaxed))
}

/// Nothing is ever counted in this process.
pub(super) fn for_good() {
    FREE_AT.store(0, Ordering::Relaxed);
    WORD.store((&raw const NEVER_MOVES).cast_mut(), Ordering::Release);
}

impl Decisions {
    /// A device more is used: what was decided is void.
    pub(super) fn reconsider(&self) {
        let _one = self.0.lock();
        WORD.store(core::ptr::null_mut(), Ordering::Release);
    }

    /// Decides anew: `all_free` tells whether all devices in use are.
    pub(super) fn decide(&self, member: &'static Member, all_free: impl Fn() -> bool) {
        let _one = self.0.lock();
        match &member.caps {
            Caps::Fixed(_) => {
                if all_free() {
                    for_good();
                }
            }
            Caps::Page(page) => {
                // Read before the gates: a change that comes in between makes the number another.
                let at = page.gates_epoch().load(Ordering::Acquire);
                if all_free() {
                    FREE_AT.store(at, Ordering::Relaxed);
                    WORD.store(core::ptr::from_ref(page.gates_epoch()).cast_mut(), Ordering::Release);
                }
            }
        }
    }
}

/// In a forked child, before anything else.
pub(super) fn forget_in_child() {
    WORD.store(core::ptr::null_mut(), Ordering::Relaxed);
}
