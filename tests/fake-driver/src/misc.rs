//! Calls that belong nowhere else.

use crate::args::Answer;
use crate::entry::Call;

/// There is no profiler to start.
pub(crate) fn cuProfilerStart(_: &Call) -> Answer {
    crate::state::current().map(drop)
}

/// There is no profiler to stop.
pub(crate) fn cuProfilerStop(_: &Call) -> Answer {
    crate::state::current().map(drop)
}
