//! A simulated libnvidia-ml.so.1.
//!
//! It answers for the devices of the simulated machine (`fake-machine`), which the simulated CUDA driver
//! uses too: what a CUDA program takes and does in one process, NVML shows in another. Devices come in the
//! order of the PCI bus, whatever `CUDA_VISIBLE_DEVICES` says.
//!
//! `build.rs` exports every symbol of the list; a symbol without a body here answers that it isn't
//! supported. What the machine doesn't model (fans, links, faults) is not invented: it has no body, or the
//! body says why its answer is a constant.

mod args;
mod devices;
mod entry;
mod events;
mod exports;
mod fields;
mod hardware;
mod health;
mod lifecycle;
mod memory;
mod mig;
mod power;
mod processes;
mod types;
