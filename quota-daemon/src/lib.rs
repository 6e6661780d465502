//! The node daemon `gpuquotad`, and what the command `gpuquota` shares with it.
//!
//! [`registry`] decides, without a clock and without I/O: who is a tenant, what fits, who waits. [`server`]
//! is the thin shell around it: sockets, death notices, pages. [`audit`] keeps and writes down what has happened. [`devices`] asks NVML, [`reconcile`] compares its
//! word with the books, [`document`] reads
//! the node's configuration, [`arbiter`] says on a thread of its own who may launch, [`shares`] tells what each got, [`places`] knows where sockets lie,
//! [`installed`] where our files do, [`notify`] tells a service manager.
#![deny(unsafe_code)]

pub mod arbiter;
pub mod audit;
pub mod devices;
pub mod document;
pub mod installed;
pub mod log;
pub mod movers;
pub mod notify;
pub mod pages;
pub mod peer;
pub mod places;
pub mod reconcile;
pub mod registry;
pub mod server;
pub mod shares;
pub mod signals;
pub mod survival;
pub mod threads;
pub mod usage;
