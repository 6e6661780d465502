//! The node daemon `gpuquotad`, and what the command `gpuquota` shares with it.
//!
//! [`registry`] decides, without a clock and without I/O: who is a tenant, what fits, who waits. [`server`]
//! is the thin shell around it: sockets, death notices, pages. [`devices`] asks NVML, [`reconcile`] compares its
//! word with the books, [`document`] reads
//! the node's configuration, [`places`] knows where sockets lie.
#![deny(unsafe_code)]

pub mod devices;
pub mod document;
pub mod log;
pub mod pages;
pub mod peer;
pub mod places;
pub mod reconcile;
pub mod registry;
pub mod server;
pub mod signals;
pub mod survival;
pub mod usage;
