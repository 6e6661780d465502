//! Freeing pointers. Whatever freed it, memory is credited where it was charged; a pointer that the books
//! don't know (imported, external, from before we joined) is the driver's business alone.
#![allow(non_snake_case)]

use super::Answer;
use crate::entry::Next;
use crate::flight::Flight;
use crate::live::Block;
use crate::{calls, live, movable, overhead, pools};
use driver_api::{CUdeviceptr, CUdeviceptr_v1, CUstream};

pub(crate) fn cuMemFree_v2(next: Next<'_>, dptr: CUdeviceptr) -> Answer {
    free(next, dptr, |_| next.call())
}

pub(crate) fn cuMemFree(next: Next<'_>, dptr: CUdeviceptr_v1) -> Answer {
    free(next, u64::from(dptr), |_| next.call())
}

/// A stream-ordered free of an ordinary pointer is legal; of a pool's, only the pool knows when the bytes go.
pub(crate) fn cuMemFreeAsync(next: Next<'_>, dptr: CUdeviceptr, hStream: CUstream) -> Answer {
    free(
        next,
        dptr,
        |block| {
            if block.is_movable() { movable::free_in_order(&next, dptr, hStream) } else { next.call() }
        },
    )
}

fn free(next: Next<'_>, pointer: CUdeviceptr, known: impl FnOnce(&Block) -> Answer) -> Answer {
    let _flight = Flight::enter();
    // Out of the books first: once the driver has freed it, another thread may get the same address.
    let Some(block) = live::take(pointer as usize) else {
        next.call()?;
        // Perhaps a pool's: what the pool lets go shows when somebody looks, at a synchronisation or sooner.
        pools::mark_stale();
        if calls::current_context().is_none() {
            // There will be no synchronisation, perhaps for long.
            pools::resample_all();
        }
        overhead::unknown_freed();
        return Ok(());
    };
    if block.is_shared() {
        overhead::know_slack();
    }
    match known(&block) {
        Ok(()) => live::credit(block),
        Err(refusal) => {
            live::put_back(pointer as usize, block);
            return Err(refusal);
        }
    }
    Ok(())
}
