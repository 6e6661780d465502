//! Synchronisation is where pools let memory go, so what they hold is looked at again.
#![allow(non_snake_case)]

use super::Answer;
use crate::entry::Next;
use crate::{overhead, pools};
use driver_api::{CUcontext, CUevent, CUstream};

fn settled(next: Next<'_>) -> Answer {
    next.call()?;
    pools::resample_if_freed();
    overhead::settle_if_stale();
    overhead::settle_lingering();
    Ok(())
}

/// Programs that poll do so very often.
fn polled(next: Next<'_>) -> Answer {
    next.call()?;
    pools::resample_if_stale();
    overhead::settle_if_stale();
    Ok(())
}

pub(crate) fn cuCtxSynchronize(next: Next<'_>) -> Answer {
    settled(next)
}

pub(crate) fn cuCtxSynchronize_v2(next: Next<'_>, _ctx: CUcontext) -> Answer {
    settled(next)
}

pub(crate) fn cuStreamSynchronize(next: Next<'_>, _hStream: CUstream) -> Answer {
    settled(next)
}

pub(crate) fn cuStreamQuery(next: Next<'_>, _hStream: CUstream) -> Answer {
    polled(next)
}

pub(crate) fn cuEventSynchronize(next: Next<'_>, _hEvent: CUevent) -> Answer {
    settled(next)
}

pub(crate) fn cuEventQuery(next: Next<'_>, _hEvent: CUevent) -> Answer {
    polled(next)
}
