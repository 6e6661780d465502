//! Graphs: nothing is charged when a node is made or captured; a launch is charged what its allocations add to what
//! the device keeps for graphs, and paced as a whole.
#![allow(non_snake_case)]

use super::{Answer, Code};
use crate::args::{Out, Raw};
use crate::entry::{Lane, Next};
use crate::graphs::{self, Plan};
use crate::pace::{self, Work};
use crate::{calls, overhead, pools};
use core::ffi::c_char;
use driver_api::{CUDA_GRAPH_INSTANTIATE_PARAMS, CUdevice, CUgraph, CUgraphExec, CUgraphNode, CUstream};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_*`
const AUTO_FREE_ON_LAUNCH: u64 = 1;
const UPLOAD: u64 = 2;

pub(crate) fn cuGraphInstantiate(
    next: Next<'_>,
    phGraphExec: Out<CUgraphExec>,
    hGraph: CUgraph,
    _phErrorNode: Raw<CUgraphNode>,
    _logBuffer: Raw<c_char>,
    _bufferSize: usize,
) -> Answer {
    instantiate(next, phGraphExec, hGraph, 0)
}

pub(crate) fn cuGraphInstantiate_v2(
    next: Next<'_>,
    phGraphExec: Out<CUgraphExec>,
    hGraph: CUgraph,
    _phErrorNode: Raw<CUgraphNode>,
    _logBuffer: Raw<c_char>,
    _bufferSize: usize,
) -> Answer {
    instantiate(next, phGraphExec, hGraph, 0)
}

pub(crate) fn cuGraphInstantiateWithFlags(
    next: Next<'_>,
    phGraphExec: Out<CUgraphExec>,
    hGraph: CUgraph,
    flags: u64,
) -> Answer {
    instantiate(next, phGraphExec, hGraph, flags)
}

pub(crate) fn cuGraphInstantiateWithParams(
    next: Next<'_>,
    phGraphExec: Out<CUgraphExec>,
    hGraph: CUgraph,
    instantiateParams: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Answer {
    instantiate(next, phGraphExec, hGraph, instantiateParams.get().flags)
}

fn instantiate(next: Next<'_>, exec: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> Answer {
    let Some(plan) = graphs::plan_of(graph as usize, flags & AUTO_FREE_ON_LAUNCH != 0) else {
        next.call()?;
        overhead::mark_stale();
        return Ok(());
    };
    plan.admit()?;
    if flags & UPLOAD != 0 {
        graphs::with_memory(&plan, || next.call())?
    } else {
        next.call()?
    }
    graphs::remember(exec.get() as usize, plan);
    overhead::mark_stale();
    Ok(())
}

pub(crate) fn cuGraphUpload(next: Next<'_>, hGraphExec: CUgraphExec, hStream: CUstream) -> Answer {
    match plan_to_run(next, hGraphExec, hStream) {
        Some(plan) => graphs::with_memory(&plan, || next.call()),
        None => next.call(),
    }
}

pub(crate) fn cuGraphLaunch(next: Next<'_>, hGraphExec: CUgraphExec, hStream: CUstream) -> Answer {
    if pace::is_free() {
        return launch(next, hGraphExec, hStream);
    }
    // Memory is charged once the launch may go on: others of the tenant may need it meanwhile.
    let launch = || launch(next, hGraphExec, hStream).code();
    pace::paced(next.through(&launch), hStream, Work::Graph { exec: hGraphExec as usize })
}

fn launch(next: Next<'_>, hGraphExec: CUgraphExec, hStream: CUstream) -> Answer {
    let Some(plan) = plan_to_run(next, hGraphExec, hStream) else { return next.call() };
    graphs::with_memory(&plan, || next.call())?;
    graphs::launched(hGraphExec as usize);
    Ok(())
}

/// What will need memory now: a launch into a capture is recorded and runs nothing.
fn plan_to_run(next: Next<'_>, exec: CUgraphExec, stream: CUstream) -> Option<Plan> {
    graphs::plan_for(exec as usize).filter(|_| !calls::is_capturing(stream, next.lane == Lane::PerThread))
}

pub(crate) fn cuGraphExecDestroy(next: Next<'_>, hGraphExec: CUgraphExec) -> Answer {
    // Out of the books first: another thread may get the same handle for another graph.
    let plan = graphs::forget(hGraphExec as usize);
    pace::graph_gone(hGraphExec as usize);
    next.call().inspect_err(|_| {
        if let Some(plan) = plan {
            graphs::remember(hGraphExec as usize, plan);
        }
    })?;
    overhead::mark_stale();
    Ok(())
}

pub(crate) fn cuDeviceGraphMemTrim(next: Next<'_>, _device: CUdevice) -> Answer {
    next.call()?;
    pools::resample_all();
    Ok(())
}
