//! A simulated `libcuda.so.1`: every symbol of the driver API over the simulated machine of `fake-machine`.
//!
//! `build.rs` exports all 726 symbols. Those with a body, a `pub(crate) fn` of the symbol's name in one of
//! these files, do what the driver does as far as a program can see it; the others answer 801 (not
//! supported) and leave a line in the journal. A body takes the [`entry::Call`] and then the parameters of
//! the list, and answers a `CUresult` or an [`args::Answer`]. Modules that hold bodies are `pub(crate)`.
//!
//! - [`entry`]: what happens around each call: initialisation, forks, injected failures, journal.
//! - [`args`]: the only place that touches the pointers programs pass; [`pages`] is the memory itself.
//! - [`state`]: the driver's state: devices, contexts, each thread's stack of contexts.
//! - The rest are bodies, a file for each part of the API.
#![allow(non_snake_case)] // Bodies carry the names of the API.

pub(crate) mod args;
pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod checkpoint;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
mod entry;
pub(crate) mod errors;
pub(crate) mod event;
pub(crate) mod export_table;
mod exports;
pub(crate) mod external;
pub(crate) mod graph;
pub(crate) mod green;
pub(crate) mod host;
pub(crate) mod ipc;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod managed;
pub(crate) mod memory;
pub(crate) mod memset;
pub(crate) mod misc;
pub(crate) mod module;
pub(crate) mod occupancy;
mod pages;
pub(crate) mod pointer;
pub(crate) mod pool;
mod registry;
pub(crate) mod resolve;
mod state;
pub(crate) mod stream;
pub(crate) mod texture;
pub(crate) mod vmm;
