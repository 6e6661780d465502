//! The sharing of device time: who may launch next, for how long, and under which cap.
//!
//! All of it is arithmetic on what it is told. [`scheduler::Scheduler`] decides for one device who has the token; it is
//! the same in the daemon and in the simulator. [`limit::Limit`] is a cap as a bucket of device time that may go into
//! debt; the shim keeps a tenant's in memory that the tenant's processes share. Times are nanoseconds of any clock that
//! only goes forward.

pub mod limit;
pub mod parts;
pub mod predict;
pub mod scheduler;
pub mod spans;

pub use limit::Limit;
pub use parts::{Demand, Part};
pub use scheduler::{Action, Event, Pool, Scheduler, Share, Tenant};
