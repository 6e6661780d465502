//! The ledger's own source on atomics that are watched, to be run under chosen interleavings.
//!
//! `ledger.rs` is compiled here a second and a third time, with another `basis`: a few slots, one device, and
//! the atomics of a checker that decides which process comes next.
//!
//! - [`every`] runs on loom: all interleavings of two or three short processes up to a number of preemptions,
//!   and every value that a relaxed load may return by the memory model.
//! - [`many`] runs on shuttle: random interleavings of longer lives; a load returns the latest value.
//!
//! In both, each atomic operation of a process is a step, and a process may be killed before any of them
//! (`life`). After each step that changes a word the books are read as a whole (`books`), so that a breach is
//! seen the moment it is there. `node` plays what surrounds the ledger: the kernel's locks, the quota page, the
//! shim's way to charge, and the daemon.
//!
//! Nothing else depends on this crate, and no feature of `quota-core` is involved: the real build never changes.
#![allow(clippy::duplicate_mod, reason = "the same source runs on two checkers")]

// Where the ledger's source looks for it.
use quota_core::Bytes;

/// On loom.
#[path = "."]
pub mod every {
    mod checker {
        pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
        pub(crate) use loom::sync::{Mutex, MutexGuard};
        pub(crate) use loom::thread_local;
        /// A relaxed load may return an old value, so a refusal may be one that was right a moment ago.
        pub(crate) const LOADS_ARE_LATEST: bool = false;
    }
    mod basis;
    pub mod books;
    pub mod life;
    pub mod node;

    #[path = "../../src"]
    mod source {
        use super::basis;
        pub mod ledger;
    }
    pub use source::ledger;
}

/// On shuttle.
#[path = "."]
pub mod many {
    mod checker {
        pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
        pub(crate) use shuttle::sync::{Mutex, MutexGuard};
        pub(crate) use shuttle::thread_local;
        /// So every refusal must be right.
        pub(crate) const LOADS_ARE_LATEST: bool = true;
    }
    mod basis;
    pub mod books;
    pub mod life;
    pub mod node;

    #[path = "../../src"]
    mod source {
        use super::basis;
        pub mod ledger;
    }
    pub use source::ledger;
}
