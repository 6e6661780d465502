//! Captures: the launch path has to know while there are any, since nothing of ours may get into one.
#![allow(non_snake_case, clippy::too_many_arguments)]

use super::Answer;
use crate::args::Raw;
use crate::entry::{Lane, Next};
use crate::{calls, pace};
use core::ffi::c_void;
use driver_api::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphRecaptureCallback, CUstream, CUstreamCaptureMode,
    CUstreamCigCaptureParams,
};

pub(crate) fn cuStreamBeginCapture(next: Next<'_>, _hStream: CUstream) -> Answer {
    begin(next)
}

pub(crate) fn cuStreamBeginCapture_v2(next: Next<'_>, _hStream: CUstream, _mode: CUstreamCaptureMode) -> Answer {
    begin(next)
}

pub(crate) fn cuStreamBeginCaptureToGraph(
    next: Next<'_>,
    _hStream: CUstream,
    _hGraph: CUgraph,
    _dependencies: Raw<CUgraphNode>,
    _dependencyData: Raw<CUgraphEdgeData>,
    _numDependencies: usize,
    _mode: CUstreamCaptureMode,
) -> Answer {
    begin(next)
}

pub(crate) fn cuStreamBeginRecaptureToGraph(
    next: Next<'_>,
    _hStream: CUstream,
    _mode: CUstreamCaptureMode,
    _hGraph: CUgraph,
    _callbackFunc: CUgraphRecaptureCallback,
    _userData: Raw<c_void>,
) -> Answer {
    begin(next)
}

pub(crate) fn cuStreamBeginCaptureToCig(
    next: Next<'_>,
    _hStream: CUstream,
    _streamCigCaptureParams: Raw<CUstreamCigCaptureParams>,
) -> Answer {
    begin(next)
}

fn begin(next: Next<'_>) -> Answer {
    pace::capture_begins();
    next.call().inspect_err(|_| pace::capture_ended())
}

pub(crate) fn cuStreamEndCapture(next: Next<'_>, hStream: CUstream, _phGraph: Raw<CUgraph>) -> Answer {
    end(next, hStream)
}

pub(crate) fn cuStreamEndCaptureToCig(next: Next<'_>, hStream: CUstream) -> Answer {
    end(next, hStream)
}

/// A capture may end with an error, and go on after one: the stream knows. One that ends with its stream is never seen to,
/// and then our calls are only a little more careful than they need be.
fn end(next: Next<'_>, stream: CUstream) -> Answer {
    let is_captured = || calls::is_capturing(stream, next.lane == Lane::PerThread);
    let was_captured = is_captured();
    let answer = next.call();
    if was_captured && !is_captured() {
        pace::capture_ended();
    }
    answer
}
