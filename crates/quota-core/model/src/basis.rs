//! The ledger's atomics and sizes in the model: each operation is a step of the process that does it, and each
//! change of a word is shown to the books.

use super::{books, checker, life};

pub(crate) use core::sync::atomic::Ordering;

/// One is enough: devices share nothing.
pub const DEVICES_MAX: usize = 1;
/// Processes at one time.
pub const SLOTS_MAX: usize = 3;
/// Small beside the caps, so that there is slack, and room beyond it.
pub(crate) const BATCH_UNITS: u64 = 1;

macro_rules! watched {
    ($name:ident, $integer:ty) => {
        /// An atomic of the checker's; `now` repeats its value for those who watch.
        #[derive(Debug)]
        pub(crate) struct $name {
            cell: checker::$name,
            now: core::sync::atomic::$name,
        }

        #[allow(dead_code, reason = "the ledger needs some of these for one width only")]
        impl $name {
            pub(crate) fn new(value: $integer) -> Self {
                Self { cell: checker::$name::new(value), now: core::sync::atomic::$name::new(value) }
            }

            /// The value, without a step.
            pub(crate) fn now(&self) -> $integer {
                self.now.load(Ordering::Relaxed)
            }

            pub(crate) fn load(&self, ordering: Ordering) -> $integer {
                life::step();
                self.cell.load(ordering)
            }

            pub(crate) fn store(&self, value: $integer, ordering: Ordering) {
                self.before();
                self.cell.store(value, ordering);
                self.now.store(value, Ordering::Relaxed);
                books::look();
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $integer,
                new: $integer,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$integer, $integer> {
                self.before();
                let answer = self.cell.compare_exchange(current, new, success, failure);
                if answer.is_ok() {
                    self.replaced(current, new);
                }
                answer
            }

            pub(crate) fn compare_exchange_weak(
                &self,
                current: $integer,
                new: $integer,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$integer, $integer> {
                self.compare_exchange(current, new, success, failure)
            }

            pub(crate) fn fetch_max(&self, value: $integer, ordering: Ordering) -> $integer {
                self.before();
                let before = self.cell.fetch_max(value, ordering);
                self.replaced(before, before.max(value));
                before
            }

            pub(crate) fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut update: impl FnMut($integer) -> Option<$integer>,
            ) -> Result<$integer, $integer> {
                let mut now = self.load(fetch);
                while let Some(after) = update(now) {
                    match self.compare_exchange_weak(now, after, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(seen) => now = seen,
                    }
                }
                Err(now)
            }

            fn before(&self) {
                life::step();
                books::turn();
            }

            /// An exchange that saw another value than the latest comes earlier in the order of the changes. That is
            /// exact while no two processes race to `store`: the lock keeps them apart in all that runs on loom.
            fn replaced(&self, before: $integer, after: $integer) {
                let _ = self.now.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
                books::look();
            }
        }
    };
}

watched!(AtomicU32, u32);
watched!(AtomicU64, u64);
