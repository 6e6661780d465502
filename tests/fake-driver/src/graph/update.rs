//! Changing executable graphs: single nodes, or all of them after another graph.

use super::exec::{Exec, Step, find, steps};
use super::{Graph, Payload, find_node, node_handle, parameters};
use crate::args::{Answer, get, optional, put};
use crate::entry::Call;
use crate::event::EVENTS;
use core::ffi::{c_int, c_uint};
use core::ptr::null_mut;
use driver_api::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeParams, CUresult,
};

/// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`
const UPDATE_FAILURE: CUresult = CUresult(910);

/// `CU_GRAPH_EXEC_UPDATE_*`
const SUCCESS: c_int = 0;
const TOPOLOGY_CHANGED: c_int = 2;
const NODE_TYPE_CHANGED: c_int = 3;
const NOT_SUPPORTED: c_int = 6;

/// The step that stands for a node of the graph that was instantiated, at any depth.
fn find_step(steps: &mut [Step], node: u64) -> Option<&mut Step> {
    for step in steps {
        if step.node == node {
            return Some(step);
        }
        if let Some(found) = find_step(&mut step.inner, node) {
            return Some(found);
        }
    }
    None
}

/// Changes the step of a node; what it does must stay of the same kind, and memory nodes stay what they are.
fn change(exec: CUgraphExec, node: CUgraphNode, payload: impl FnOnce() -> Answer<Payload>) -> Answer {
    let exec = find(exec)?;
    let node = find_node(node)?.id;
    let payload = payload()?;
    let mut steps = exec.steps.lock();
    let step = find_step(&mut steps, node).ok_or(CUresult::INVALID_VALUE)?;
    let is_memory = matches!(payload, Payload::Allocation(_) | Payload::Free(_));
    if step.payload.kind() != payload.kind() || is_memory {
        return Err(CUresult::INVALID_VALUE);
    }
    step.payload = payload;
    Ok(())
}

pub(crate) fn cuGraphExecKernelNodeSetParams(
    _: &Call,
    exec: CUgraphExec,
    node: CUgraphNode,
    kernel: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Answer {
    change(exec, node, || parameters::kernel_v1(&get(kernel)?))
}

pub(crate) fn cuGraphExecKernelNodeSetParams_v2(
    _: &Call,
    exec: CUgraphExec,
    node: CUgraphNode,
    kernel: *const CUDA_KERNEL_NODE_PARAMS,
) -> Answer {
    change(exec, node, || parameters::kernel(&get(kernel)?))
}

pub(crate) fn cuGraphExecMemcpyNodeSetParams(
    _: &Call,
    exec: CUgraphExec,
    node: CUgraphNode,
    copy: *const CUDA_MEMCPY3D,
    context: CUcontext,
) -> Answer {
    change(exec, node, || parameters::copy(&get(copy)?, context))
}

pub(crate) fn cuGraphExecMemsetNodeSetParams(
    _: &Call,
    exec: CUgraphExec,
    node: CUgraphNode,
    fill: *const CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Answer {
    change(exec, node, || parameters::fill_v1(&get(fill)?, context))
}

pub(crate) fn cuGraphExecHostNodeSetParams(
    _: &Call,
    exec: CUgraphExec,
    node: CUgraphNode,
    host: *const CUDA_HOST_NODE_PARAMS,
) -> Answer {
    change(exec, node, || parameters::host(&get(host)?))
}

pub(crate) fn cuGraphExecEventRecordNodeSetEvent(
    _: &Call,
    exec: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> Answer {
    change(exec, node, || EVENTS.get(event).map(Payload::EventRecord))
}

pub(crate) fn cuGraphExecEventWaitNodeSetEvent(
    _: &Call,
    exec: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> Answer {
    change(exec, node, || EVENTS.get(event).map(Payload::EventWait))
}

pub(crate) fn cuGraphExecBatchMemOpNodeSetParams(
    _: &Call,
    exec: CUgraphExec,
    node: CUgraphNode,
    words: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Answer {
    change(exec, node, || parameters::words(&get(words)?))
}

/// Updates a child after a graph of the same shape.
pub(crate) fn cuGraphExecChildGraphNodeSetParams(
    _: &Call,
    exec: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
) -> Answer {
    let exec = find(exec)?;
    let node = find_node(node)?.id;
    let new = steps(&*Graph::find(child)?).ok_or(CUresult::INVALID_VALUE)?;
    let mut own = exec.steps.lock();
    let step = find_step(&mut own, node).ok_or(CUresult::INVALID_VALUE)?;
    if !matches!(step.payload, Payload::Child(_)) || compare(&step.inner, &new).is_err() {
        return Err(CUresult::INVALID_VALUE);
    }
    take_over(&mut step.inner, new);
    Ok(())
}

pub(crate) fn cuGraphExecNodeSetParams(
    call: &Call,
    exec: CUgraphExec,
    node: CUgraphNode,
    wanted: *mut CUgraphNodeParams,
) -> Answer {
    const CHILD: c_int = 4;
    let wanted = get(wanted)?;
    if wanted.r#type == CHILD {
        return cuGraphExecChildGraphNodeSetParams(call, exec, node, get(wanted.words.as_ptr().cast::<CUgraph>())?);
    }
    change(exec, node, || parameters::generic_change(&wanted))
}

/// Only kernels, memsets and copies can be disabled.
fn switchable(step: &Step) -> Answer {
    if (0..=2).contains(&step.payload.kind()) { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

pub(crate) fn cuGraphNodeSetEnabled(_: &Call, exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) -> Answer {
    let exec = find(exec)?;
    let node = find_node(node)?.id;
    let mut steps = exec.steps.lock();
    let step = find_step(&mut steps, node).ok_or(CUresult::INVALID_VALUE)?;
    switchable(step)?;
    step.is_enabled = enabled != 0;
    Ok(())
}

pub(crate) fn cuGraphNodeGetEnabled(_: &Call, exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint) -> Answer {
    let exec = find(exec)?;
    let node = find_node(node)?.id;
    let mut steps = exec.steps.lock();
    let step = find_step(&mut steps, node).ok_or(CUresult::INVALID_VALUE)?;
    switchable(step)?;
    put(enabled, c_uint::from(step.is_enabled))
}

/// Whether two lists of steps have one shape: the reason and, where it has one, the differing node if not.
fn compare(old: &[Step], new: &[Step]) -> Result<(), (c_int, Option<u64>)> {
    if old.len() != new.len() {
        return Err((TOPOLOGY_CHANGED, None));
    }
    for (old, new) in old.iter().zip(new) {
        if old.before != new.before {
            return Err((TOPOLOGY_CHANGED, Some(new.node)));
        }
        if old.payload.kind() != new.payload.kind() {
            return Err((NODE_TYPE_CHANGED, Some(new.node)));
        }
        compare(&old.inner, &new.inner)?;
        let is_memory = matches!(new.payload, Payload::Allocation(_) | Payload::Free(_));
        if is_memory && old.node != new.node {
            return Err((NOT_SUPPORTED, Some(new.node)));
        }
    }
    Ok(())
}

/// Lets the steps do what the new ones do; they stand for the same nodes as before.
fn take_over(old: &mut [Step], new: Vec<Step>) {
    for (old, new) in old.iter_mut().zip(new) {
        old.payload = new.payload;
        take_over(&mut old.inner, new.inner);
    }
}

/// The result of an update, and the node that stopped it.
fn update(exec: &Exec, graph: &Graph) -> (CUgraphExecUpdateResult, CUgraphNode) {
    let Some(new) = steps(graph) else { return (TOPOLOGY_CHANGED, null_mut()) };
    let mut own = exec.steps.lock();
    match compare(&own, &new) {
        Ok(()) => {
            take_over(&mut own, new);
            (SUCCESS, null_mut())
        }
        Err((reason, node)) => {
            let known = node.and_then(|id| graph.shape.lock().nodes.get(&id).map(node_handle));
            (reason, known.unwrap_or(null_mut()))
        }
    }
}

fn outcome(result: CUgraphExecUpdateResult) -> Answer {
    if result == SUCCESS { Ok(()) } else { Err(UPDATE_FAILURE) }
}

pub(crate) fn cuGraphExecUpdate(
    _: &Call,
    exec: CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    result: *mut CUgraphExecUpdateResult,
) -> Answer {
    let (reason, stopped) = update(&*find(exec)?, &*Graph::find(graph)?);
    optional(node, stopped);
    put(result, reason)?;
    outcome(reason)
}

pub(crate) fn cuGraphExecUpdate_v2(
    _: &Call,
    exec: CUgraphExec,
    graph: CUgraph,
    info: *mut CUgraphExecUpdateResultInfo,
) -> Answer {
    let (result, node) = update(&*find(exec)?, &*Graph::find(graph)?);
    put(info, CUgraphExecUpdateResultInfo { result, errorNode: node, errorFromNode: null_mut() })?;
    outcome(result)
}
