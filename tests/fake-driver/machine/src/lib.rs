//! The simulated machine: devices as data, memory and time shared by all its processes.
//!
//! [`Machine`] is what the simulated driver and the simulated NVML both ask. Its state is a file that all
//! processes of the machine map: who holds how much memory of which device, and which contexts have how
//! much work. There is no server and no thread; who asks brings the state up to date first. A process may
//! die at any instruction: its memory and its contexts are given back when somebody next looks.
//!
//! - `models`: the devices, with public figures;
//! - `settings`: the environment's `FAKE_CUDA_…` variables;
//! - `checkpoint`: processes that others stop, and whose memory they put aside;
//! - `time`: which context the device serves when, as arithmetic;
//! - `state`, `liveness`, `clock`: the shared file, who lives, and the time. All unsafe code is there.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod activity;
mod checkpoint;
mod clock;
mod liveness;
mod machine;
mod models;
mod settings;
mod state;
mod time;

pub use activity::{ProcessSample, Sample};
pub use checkpoint::{CheckpointError, ProcessState};
pub use clock::now_ns;
pub use machine::{ContextSlot, Machine, MachineError, OutOfMemory, ProcessUse, Ticket};
pub use models::{DEVICES_MAX, DeviceSpec, Ecc, MODELS, Model, parse_machine};
pub use settings::{
    Failures, Journal, KernelTime, Kernels, Latencies, SettingError, context_bytes, driver_version, parse_duration_ns,
    parse_size, validate,
};
pub use time::Hardware;
