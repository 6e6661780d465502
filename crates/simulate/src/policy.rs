//! How a device is shared out: ours, and what others do.
//!
//! The others are the published ideas with the published constants, written anew; they are no measurement of anybody's
//! product.

pub mod exclusive;
pub mod feedback;
pub mod highest;
pub mod native;
pub mod ours;
pub mod turns;

use crate::device::{Done, Kernel};
use crate::queue::Timer;
use crate::scenario::Change;
use crate::world::System;

/// Decides which launches may go to the device.
pub trait Policy {
    /// Before anything happens.
    fn begin(&mut self, _system: &mut System) {}

    /// Whether `process` may launch now; if not, it waits until [`System::retry`] lets it ask again.
    fn admit(&mut self, _system: &mut System, _process: usize) -> bool {
        true
    }

    /// A kernel went to the device.
    fn launched(&mut self, _system: &mut System, _process: usize, _kernel: &Kernel) {}

    /// A kernel ended. Whoever cannot see that at once has to wait until it would be seen.
    fn ended(&mut self, _system: &mut System, _process: usize, _done: &Done) {}

    /// The process has work after it had none.
    fn wants(&mut self, _system: &mut System, _process: usize) {}

    /// The process has neither work under way nor any to launch.
    fn idles(&mut self, _system: &mut System, _process: usize) {}

    /// The process is gone.
    fn exits(&mut self, _system: &mut System, _process: usize) {}

    /// A timer that the policy has set.
    fn timer(&mut self, _system: &mut System, _timer: Timer) {}

    /// Something happened to a tenant or a process.
    fn change(&mut self, _system: &mut System, _change: Change) {}
}

/// A policy by its name and settings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Plan {
    /// Nobody does anything; contexts take turns in hardware.
    Native,
    /// Caps by sampled utilisation, with a proportional controller.
    FeedbackDelta,
    /// Caps by sampled utilisation, additive increase and multiplicative decrease.
    FeedbackAimd,
    /// One token for all, held for half a minute or until nothing was done for five seconds.
    ExclusiveLong,
    /// One token for all, to whom is furthest below its share of the last ten seconds, for 300 ms.
    ExclusiveWindow,
    /// Weighted turns of 5 ms on average, with so many kernels in flight, of which nobody waits for the end.
    Turns(u32),
    /// The highest class only, with so many kernels in flight.
    Highest(u32),
    /// Ours.
    Ours(ours::Options),
}

impl Plan {
    /// Ours as it is set up by default.
    pub fn ours() -> Self {
        Self::Ours(ours::Options::default())
    }

    /// The policy itself.
    pub fn build(&self) -> Box<dyn Policy> {
        match *self {
            Self::Native => Box::new(native::Native),
            Self::FeedbackDelta => Box::new(feedback::Feedback::new(feedback::Controller::Delta)),
            Self::FeedbackAimd => Box::new(feedback::Feedback::new(feedback::Controller::Aimd)),
            Self::ExclusiveLong => Box::new(exclusive::Exclusive::new(exclusive::Rule::Long)),
            Self::ExclusiveWindow => Box::new(exclusive::Exclusive::new(exclusive::Rule::Window)),
            Self::Turns(threshold) => Box::new(turns::Turns::new(threshold)),
            Self::Highest(threshold) => Box::new(highest::Highest::new(threshold)),
            Self::Ours(options) => Box::new(ours::Ours::new(options)),
        }
    }

    /// Whether it can only give shares by means of caps.
    pub fn needs_caps(&self) -> bool {
        matches!(self, Self::FeedbackDelta | Self::FeedbackAimd)
    }

    /// What it is called in tables.
    pub fn name(&self) -> String {
        match self {
            Self::Native => "native time slices".into(),
            Self::FeedbackDelta => "utilisation feedback, delta (vcuda-like)".into(),
            Self::FeedbackAimd => "utilisation feedback, AIMD (vgpu-manager-like)".into(),
            Self::ExclusiveLong => "exclusive token, 30 s (nvshare-like)".into(),
            Self::ExclusiveWindow => "exclusive token, 300 ms (Gemini-like)".into(),
            Self::Turns(threshold) => format!("turns of 5 ms, {threshold} in flight (XSched-Lv1-like)"),
            Self::Highest(threshold) => format!("highest first, {threshold} in flight (XSched-Lv1-like)"),
            Self::Ours(_) => "ours, G0".into(),
        }
    }
}
