//! The kinds of jobs that share the device; durations are device time.

use crate::device::After;
use crate::program::{Launch, Round, State, Waits};
use crate::rng::Rng;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A kind of job.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Workload {
    /// Trains: rounds of `round_ns` of kernels of mixed length, a synchronisation, and a moment on the CPU.
    Train {
        /// Device time of a round.
        round_ns: u64,
        /// Median length of a kernel.
        median_ns: u64,
        /// Spread of the logarithm of the length.
        sigma: f64,
        /// Longest kernel.
        longest_ns: u64,
        /// CPU time between two rounds, give or take a tenth.
        gap_ns: u64,
    },
    /// Kernels of one length, `count` a round, never, at the end, or each waited for.
    Steady {
        /// Length of a kernel.
        kernel_ns: u64,
        /// Parts of a thousand by which it varies either way.
        jitter: u32,
        /// Kernels in a round.
        count: u32,
        /// CPU time between two rounds.
        gap_ns: u64,
        /// What is waited for.
        waits: Wait,
    },
    /// Answers requests of `total_ns` in `kernels` kernels.
    Serve {
        /// How requests come.
        arrivals: Arrivals,
        /// Device time of a request.
        total_ns: u64,
        /// Kernels of a request.
        kernels: u32,
    },
    /// A batch job that computes on the CPU and on the device in turn, `rounds` times, and ends.
    Alternate {
        /// How often.
        rounds: u64,
        /// CPU time of a round.
        cpu_ns: u64,
        /// Device time of a round.
        device_ns: u64,
        /// Median length of a kernel.
        median_ns: u64,
    },
    /// A server of a language model: a long first pass, then many short steps, one graph each.
    Decode {
        /// Device time of the first pass.
        prefill_ns: u64,
        /// Device time of a step.
        step_ns: u64,
        /// Steps.
        steps: u32,
    },
    /// Several streams, of which each waits for the one before it after every kernel.
    Streams {
        /// How many.
        streams: usize,
        /// Median length of a kernel.
        median_ns: u64,
        /// Kernels in a round.
        count: u32,
    },
    /// One kernel of this length, and then nothing.
    Once {
        /// CPU time before it.
        after_ns: u64,
        /// Its length.
        kernel_ns: u64,
    },
}

/// What a program waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// For each kernel.
    Each,
    /// For a round.
    Round,
    /// For nothing.
    Never,
}

/// How requests come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arrivals {
    /// As chance has it, so many a second.
    Poisson(f64),
    /// At equal distances, so many a second.
    Periodic(f64),
    /// In the first half of each second as chance has it, twice as many as this a second; none in the second half.
    Bursty(f64),
}

impl Workload {
    /// A trainer that keeps the device busy but for `gap_ns` each tenth of a second.
    pub fn train(median_ns: u64, gap_ns: u64) -> Self {
        Self::Train { round_ns: 100 * MS, median_ns, sigma: 0.8, longest_ns: 8 * MS, gap_ns }
    }

    /// A trainer whose kernels are no longer than a millisecond.
    pub fn train_short(median_ns: u64, gap_ns: u64) -> Self {
        Self::Train { round_ns: 100 * MS, median_ns, sigma: 0.8, longest_ns: MS, gap_ns }
    }

    /// Long kernels, ten a round.
    pub fn long(kernel_ns: u64) -> Self {
        Self::Steady { kernel_ns, jitter: 100, count: 10, gap_ns: 500 * US, waits: Wait::Round }
    }

    /// Requests of 4 ms in 40 kernels.
    pub fn serve(arrivals: Arrivals) -> Self {
        Self::Serve { arrivals, total_ns: 4 * MS, kernels: 40 }
    }

    /// The next round of what it does.
    pub(crate) fn round(&self, state: &mut State, rng: &mut Rng) -> Option<Round> {
        let at_end = |compute_ns, launches| Round { compute_ns, launches, ..Round::default() };
        Some(match *self {
            Self::Train { round_ns, median_ns, sigma, longest_ns, gap_ns } => {
                let compute_ns = varied(gap_ns, 100, rng);
                at_end(compute_ns, until(round_ns, || kernel(median_ns, sigma, rng).min(longest_ns)))
            }
            Self::Steady { kernel_ns, jitter, count, gap_ns, waits } => {
                let launches = (0..count).map(|_| launch(0, varied(kernel_ns, jitter, rng))).collect();
                let waits = match waits {
                    Wait::Each => Waits::Each,
                    Wait::Round => Waits::AtEnd,
                    Wait::Never => Waits::Never,
                };
                Round { waits, ..at_end(gap_ns, launches) }
            }
            Self::Serve { arrivals, total_ns, kernels } => {
                state.request_ns = arrivals.next(state.request_ns, rng);
                let each = total_ns / u64::from(kernels);
                let launches = (0..kernels).map(|_| launch(0, varied(each, 500, rng))).collect();
                Round { request_ns: Some(state.request_ns), ..at_end(0, launches) }
            }
            Self::Alternate { rounds, cpu_ns, device_ns, median_ns } => {
                if state.rounds == rounds {
                    return None;
                }
                at_end(cpu_ns, until(device_ns, || kernel(median_ns, 0.6, rng)))
            }
            Self::Decode { prefill_ns, step_ns, steps } => {
                // One round is a pass or a step; a pass comes before each `steps` steps.
                match state.rounds % u64::from(steps + 1) {
                    0 => at_end(MS, until(prefill_ns, || kernel(MS, 0.6, rng))),
                    _ => at_end(200 * US, vec![launch(0, varied(step_ns, 50, rng))]),
                }
            }
            Self::Streams { streams, median_ns, count } => {
                at_end(50 * US, braid(streams, median_ns, count, state, rng))
            }
            Self::Once { after_ns, kernel_ns } => {
                if state.rounds > 0 {
                    return None;
                }
                at_end(after_ns, vec![launch(0, kernel_ns)])
            }
        })
    }
}

impl Arrivals {
    fn next(self, before_ns: u64, rng: &mut Rng) -> u64 {
        const SECOND: f64 = 1e9;
        match self {
            Self::Poisson(rate) => before_ns + rng.exponential(SECOND / rate) as u64,
            Self::Periodic(rate) => before_ns + (SECOND / rate) as u64,
            Self::Bursty(rate) => {
                let next_ns = before_ns + rng.exponential(SECOND / (2.0 * rate)) as u64;
                let into_second = next_ns % 1_000_000_000;
                if into_second < 500 * MS { next_ns } else { next_ns - into_second + 1_000_000_000 }
            }
        }
    }
}

/// Kernels on several streams; the n-th of each waits for the n-th of the stream before it.
fn braid(streams: usize, median_ns: u64, count: u32, state: &mut State, rng: &mut Rng) -> Vec<Launch> {
    let mut launches = Vec::new();
    for _ in 0..count {
        state.launched += 1;
        for stream in 0..streams {
            let after = stream.checked_sub(1).map(|before| After { stream: before, ended: state.launched });
            launches.push(Launch { after, ..launch(stream, kernel(median_ns, 0.8, rng)) });
        }
    }
    launches
}

fn launch(stream: usize, duration_ns: u64) -> Launch {
    Launch { stream, duration_ns, after: None }
}

/// The length of a kernel; none takes less than three microseconds.
fn kernel(median_ns: u64, sigma: f64, rng: &mut Rng) -> u64 {
    (rng.lognormal(median_ns as f64, sigma) as u64).max(3 * US)
}

fn varied(mean_ns: u64, permille: u32, rng: &mut Rng) -> u64 {
    let by = f64::from(permille) / 1000.0;
    (mean_ns as f64 * rng.between(1.0 - by, 1.0 + by)) as u64
}

fn until(total_ns: u64, mut next: impl FnMut() -> u64) -> Vec<Launch> {
    let mut sum_ns = 0;
    let mut launches = Vec::new();
    while sum_ns < total_ns {
        let duration_ns = next();
        sum_ns += duration_ns;
        launches.push(launch(0, duration_ns));
    }
    launches
}
