//! Synchronisation is where pools let memory go, so what they hold is looked at again, and where launches are seen to have
//! ended.
#![allow(non_snake_case)]

use super::Answer;
use crate::entry::Next;
use crate::pace::{self, Awaited};
use crate::{overhead, pools};
use driver_api::{CUcontext, CUevent, CUstream};

fn settled(next: Next<'_>, awaited: Awaited) -> Answer {
    pace::synchronising(next, awaited)?;
    pools::resample_if_freed();
    overhead::settle_if_stale();
    overhead::settle_lingering();
    Ok(())
}

/// Programs that poll do so very often.
fn polled(next: Next<'_>, awaited: Awaited) -> Answer {
    pace::synchronising(next, awaited)?;
    pools::resample_if_stale();
    overhead::settle_if_stale();
    Ok(())
}

pub(crate) fn cuCtxSynchronize(next: Next<'_>) -> Answer {
    settled(next, Awaited::Context)
}

pub(crate) fn cuCtxSynchronize_v2(next: Next<'_>, ctx: CUcontext) -> Answer {
    settled(next, Awaited::ThisContext(ctx as usize))
}

pub(crate) fn cuStreamSynchronize(next: Next<'_>, hStream: CUstream) -> Answer {
    settled(next, Awaited::Stream(hStream))
}

pub(crate) fn cuStreamQuery(next: Next<'_>, hStream: CUstream) -> Answer {
    polled(next, Awaited::Stream(hStream))
}

pub(crate) fn cuEventSynchronize(next: Next<'_>, _hEvent: CUevent) -> Answer {
    settled(next, Awaited::Event)
}

pub(crate) fn cuEventQuery(next: Next<'_>, _hEvent: CUevent) -> Answer {
    polled(next, Awaited::Event)
}
