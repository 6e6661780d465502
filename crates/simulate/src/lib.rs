//! A device and its jobs on a virtual clock.
//!
//! The scheduler is the one that the daemon uses; the device takes turns between contexts as hardware does; jobs, their
//! arrivals and the errors of predictions come from a seed. The same seed gives the same run, to the nanosecond, so that
//! what sharing costs and how far it is from what was asked can be measured finely and tested.
//!
//! It is a model, not a GPU. Compared with it are the published ideas of other systems with their published constants,
//! written anew; they are no measurements of those products.
#![forbid(unsafe_code)]

pub mod device;
pub mod outcome;
pub mod policy;
pub mod program;
pub mod queue;
pub mod record;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod scenarios;
pub mod tables;
pub mod workload;
pub mod world;

pub use outcome::{Off, Outcome};
pub use policy::Plan;
pub use policy::ours::Options;
pub use scenario::{Change, Overheads, Scenario, TenantPlan};
pub use workload::{Arrivals, Wait, Workload};
pub use world::simulate;
