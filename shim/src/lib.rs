//! `libgpuquota.so`: stands between a program and the CUDA driver.
//!
//! Four doors lead a program to the driver, and all four lead through here (`ARCHITECTURE.md`): linked
//! symbols and `dlopen("libcuda.so.1")` end at [`entry`], `dlsym` at [`dlsym`], and `cuGetProcAddress` at
//! [`hooks::resolve`]. Behind them, [`hooks`] decide in safe code; [`process`] is the state they share.
//!
//! A guest in other people's processes: nothing happens before the first call of a driver function; then no
//! output but one line on stderr for each cause, no signal handler, no exported helper but the few of `include/gpuquota.h`
//! ([`api`]), and no thread but one while launches are counted (`pace/keeper.rs`) and one while the program wants to hear of
//! notices ([`notices`]).
#![deny(unsafe_code)]

mod account;
mod api;
mod args;
mod calls;
mod devices;
mod dlsym;
mod driver;
mod elf;
mod entry;
mod flight;
mod functions;
mod graphs;
mod hooks;
mod join;
mod ld_cache;
mod ledger_file;
mod link;
mod live;
mod log;
mod meter;
mod movable;
mod names;
mod notices;
mod overhead;
mod pace;
mod pools;
mod process;
mod real;
mod vmm;
