//! One job of the demo: an ordinary CUDA program that knows nothing of quotas, and says what it sees.
//!
//! It writes one JSON object a line, and between its two parts waits for a line on its standard input.

use crate::cuda::{Cuda, CudaError};
use crate::{Failure, table};
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::time::{Duration, Instant};

/// Kernels that a job launches.
const KERNELS: u32 = 50;

/// What a job has seen with its memory in use.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) pid: u32,
    /// The size of the device, as the driver says.
    pub(crate) total_bytes: u64,
    /// The same by the other call.
    pub(crate) info_total_bytes: u64,
    /// What it has allocated.
    pub(crate) held_bytes: u64,
    /// What is free afterwards.
    pub(crate) free_bytes: u64,
    /// The bytes that went to the device came back.
    pub(crate) copied: bool,
    pub(crate) kernels: u32,
    pub(crate) kernels_ms: u64,
    /// The answer to one byte more than the device seems to have left.
    pub(crate) beyond: i32,
}

/// What it has seen after it has freed everything.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Freed {
    pub(crate) free_bytes: u64,
    /// The allocation that was refused, tried again.
    pub(crate) again: i32,
}

/// What a job has done in the time it was given.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Worked {
    pub(crate) kernels: u64,
    pub(crate) milliseconds: u64,
}

/// Keeps the device busy for so long, once it is told to.
pub(crate) fn keep_busy(time: Duration) -> Result<(), Failure> {
    let failed = |error: CudaError| Failure::new(format!("{} answers {}", error.function, error.code));
    let cuda = Cuda::open().map_err(Failure::new)?;
    say(&Worked { kernels: 0, milliseconds: 0 })?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(Failure::new)?;
    let begun = Instant::now();
    let kernels = cuda.spin_until(begun + time).map_err(failed)?;
    say(&Worked { kernels, milliseconds: begun.elapsed().as_millis() as u64 })
}

/// Runs the job.
pub(crate) fn run() -> Result<(), Failure> {
    let cuda = Cuda::open().map_err(Failure::new)?;
    let failed = |error: CudaError| Failure::new(format!("{} answers {}", error.function, error.code));
    let total_bytes = cuda.total_bytes().map_err(failed)?;
    let held_bytes = total_bytes / 2;
    let held = cuda.allocate(held_bytes).map_err(failed)?;
    let copied = cuda.round_trip(held).map_err(failed)?;
    let begun = Instant::now();
    cuda.spin(KERNELS).map_err(failed)?;
    let kernels_ms = begun.elapsed().as_millis() as u64;
    let (free_bytes, info_total_bytes) = cuda.memory().map_err(failed)?;
    let more = total_bytes - held_bytes + (2 << 20);
    let beyond = answer(&cuda, more);
    let pid = std::process::id();
    say(&Seen {
        pid,
        total_bytes,
        info_total_bytes,
        held_bytes,
        free_bytes,
        copied,
        kernels: KERNELS,
        kernels_ms,
        beyond,
    })?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(Failure::new)?;
    cuda.free(held).map_err(failed)?;
    let (free_bytes, _) = cuda.memory().map_err(failed)?;
    say(&Freed { free_bytes, again: answer(&cuda, more) })
}

/// The driver's answer to an allocation, which is not kept.
fn answer(cuda: &Cuda, bytes: u64) -> i32 {
    match cuda.allocate(bytes) {
        Ok(allocation) => cuda.free(allocation).map_or_else(|error| error.code, |()| 0),
        Err(error) => error.code,
    }
}

fn say<T: Serialize>(seen: &T) -> Result<(), Failure> {
    let text = serde_json::to_string(seen).map_err(Failure::new)?;
    table::print(&format!("{text}\n"));
    Ok(())
}
