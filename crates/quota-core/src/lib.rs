//! Policy without a clock, I/O or unsafe code: units, quotas and settings, and the ledger in which the
//! processes of a tenant account for device memory together.
#![forbid(unsafe_code)]

mod basis;
pub mod compute;
pub mod ledger;
pub mod settings;
pub mod units;

pub use settings::{Mode, OnDaemonLoss, Priority, Settings};
pub use units::{Bytes, MemorySize, Percent, UnitError};
