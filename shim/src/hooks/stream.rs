//! The end of streams, which the launch path keeps something of.
#![allow(non_snake_case)]

use super::Answer;
use crate::entry::Next;
use crate::pace;
use driver_api::CUstream;

pub(crate) fn cuStreamDestroy_v2(next: Next<'_>, hStream: CUstream) -> Answer {
    destroy(next, hStream)
}

pub(crate) fn cuStreamDestroy(next: Next<'_>, hStream: CUstream) -> Answer {
    destroy(next, hStream)
}

/// Forgotten first: another thread may get the same handle for another stream.
fn destroy(next: Next<'_>, stream: CUstream) -> Answer {
    pace::stream_going(stream);
    next.call()
}
