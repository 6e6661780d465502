//! What a process does, step by step: compute on the CPU, launch, wait for the device.

use crate::device::After;
use crate::rng::Rng;
use crate::workload::Workload;
use std::collections::VecDeque;

/// One step of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Computes on the CPU for so many nanoseconds.
    Compute(u64),
    /// Waits for a request that comes at this time; it is answered by the next [`Step::Synchronise`].
    Request(u64),
    /// Launches a kernel.
    Launch(Launch),
    /// Waits until all that was launched has ended.
    Synchronise,
    /// Ends.
    Exit,
}

/// A kernel as the program sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Launch {
    /// Number of the stream.
    pub stream: usize,
    /// How long it takes when nothing else runs.
    pub duration_ns: u64,
    /// An event of another stream that it waits for.
    pub after: Option<After>,
}

/// A round of a program: what it does before it begins again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    /// CPU time before the first launch.
    pub(crate) compute_ns: u64,
    /// When the request comes that the round answers.
    pub(crate) request_ns: Option<u64>,
    /// What is launched.
    pub(crate) launches: Vec<Launch>,
    /// Whether the program waits for each kernel, for all of them at the end, or for none.
    pub(crate) waits: Waits,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Waits {
    #[default]
    AtEnd,
    Each,
    Never,
}

/// A process's program.
#[derive(Debug)]
pub struct Program {
    workload: Workload,
    rng: Rng,
    state: State,
    steps: VecDeque<Step>,
}

/// How far a program has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    /// Rounds begun.
    pub(crate) rounds: u64,
    /// When the last request came.
    pub(crate) request_ns: u64,
    /// Kernels launched on each stream but the first, which are as many on each.
    pub(crate) launched: u64,
}

impl Program {
    /// A program that does `workload`, with chance from `rng`.
    pub fn new(workload: Workload, rng: Rng) -> Self {
        Self { workload, rng, state: State::default(), steps: VecDeque::new() }
    }

    /// What it does next.
    pub fn step(&mut self) -> Step {
        if self.steps.is_empty() {
            match self.workload.round(&mut self.state, &mut self.rng) {
                Some(round) => self.fill(&round),
                None => return Step::Exit,
            }
            self.state.rounds += 1;
        }
        self.steps.pop_front().unwrap_or(Step::Exit)
    }

    fn fill(&mut self, round: &Round) {
        self.steps.extend((round.compute_ns > 0).then_some(Step::Compute(round.compute_ns)));
        self.steps.extend(round.request_ns.map(Step::Request));
        for launch in &round.launches {
            self.steps.push_back(Step::Launch(*launch));
            self.steps.extend((round.waits == Waits::Each).then_some(Step::Synchronise));
        }
        self.steps.extend((round.waits == Waits::AtEnd).then_some(Step::Synchronise));
    }
}
