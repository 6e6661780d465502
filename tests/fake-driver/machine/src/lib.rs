//! The simulated machine: devices as data, memory and time shared by all its processes.
//!
//! [`Machine`] is what the simulated driver and the simulated NVML both ask. Its state is a file that all
//! processes of the machine map: who holds how much memory of which device, and which contexts have how
//! much work. There is no server and no thread; who asks brings the state up to date first. A process may
//! die at any instruction: its memory and its contexts are given back when somebody next looks.
//!
//! - `models`: the devices, with public figures, and how they are divided into MIG instances;
//! - `settings`: the environment's `FAKE_CUDA_…` variables;
//! - `checkpoint`: processes that others stop, and whose memory they put aside;
//! - `work`: what contexts are to do, and when it is done; `truth`: who had how much of a device;
//! - `time`: which context the device serves when, as arithmetic;
//! - `handles`: who holds a device through NVML;
//! - `state`, `liveness`, `clock`: the shared file, who lives, and the time. All unsafe code is there.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod activity;
mod checkpoint;
mod clock;
mod handles;
mod liveness;
mod machine;
mod managed;
mod models;
mod settings;
mod state;
mod time;
mod truth;
mod work;

pub use activity::{ProcessSample, Sample};
pub use checkpoint::{CheckpointError, ProcessState};
pub use clock::now_ns;
pub use handles::Handle;
pub use machine::{Machine, MachineError, OutOfMemory, ProcessUse};
pub use models::{Board, DEVICES_MAX, DeviceSpec, Ecc, Instance, MODELS, Model, Profile, UNITS_MAX, parse_machine};
pub use settings::{
    Bandwidth, Failures, Journal, KernelTime, Kernels, Lack, Latencies, SettingError, context_bytes, driver_version,
    lacks, parse_duration_ns, parse_size, validate,
};
pub use time::Hardware;
pub use time::meeting::RANKS_MAX;
pub use truth::{Account, signal_process};
pub use work::{ContextSlot, Ticket, Work};
