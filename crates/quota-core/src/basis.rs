//! What the ledger stands on: its atomics and its sizes. Apart from it, so that the model (`model/`) can put
//! atomics that it watches and smaller sizes under the same source.

use super::ledger::UNIT;

pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Devices a ledger can account for: more than any node holds, MIG instances of eight GPUs included.
pub const DEVICES_MAX: usize = 64;
/// Processes of one tenant at one time.
pub const SLOTS_MAX: usize = 1024;
/// Stock taken beyond the need, so that a run of small allocations asks once.
pub(crate) const BATCH_UNITS: u64 = (32 << 20) / UNIT;
