//! Memory of another API. Whether the driver counts it as this process's is measured.
#![allow(non_snake_case)]

use super::Answer;
use crate::args::{In, Out};
use crate::entry::Next;
use crate::{account, calls, overhead};
use driver_api::{CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUexternalMemory};

pub(crate) fn cuImportExternalMemory(
    next: Next<'_>,
    extMem_out: Out<CUexternalMemory>,
    memHandleDesc: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>,
) -> Answer {
    let Some(account) = account::of_current_device()? else { return next.call() };
    // All of it is asked for first: once the driver has it, the program's descriptor is gone.
    let measured = overhead::before_call(account, memHandleDesc.get().size)?;
    let before = extMem_out.get();
    next.call()?;
    measured.settle_or(|| {
        calls::destroy_external_memory(extMem_out.get() as usize)?;
        extMem_out.set(before);
        Ok(())
    })?;
    // Buffers mapped from it keep it, and are freed like any pointer.
    overhead::watch_frees();
    Ok(())
}

pub(crate) fn cuDestroyExternalMemory(next: Next<'_>, _extMem: CUexternalMemory) -> Answer {
    overhead::around_free(|| next.call())
}
