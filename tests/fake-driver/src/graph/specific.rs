//! Reading and changing what a node does, for nodes of a graph.

use super::{Copy3d, Node, Payload, find_node, graph_handle, parameters};
use crate::args::{Answer, get, put};
use crate::entry::Call;
use crate::event::EVENTS;
use crate::launch::KernelCall;
use crate::registry::{handle_of, pointer};
use driver_api::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUdeviceptr, CUevent, CUgraph, CUgraphNode,
    CUgraphNodeParams, CUresult,
};

/// Lets a node do something else of the same kind; memory nodes stay what they are.
fn replace(node: &Node, payload: Payload) -> Answer {
    let mut place = node.payload.lock();
    let is_memory = matches!(payload, Payload::Allocation(_) | Payload::Free(_));
    if place.kind() != payload.kind() || is_memory {
        return Err(CUresult::INVALID_VALUE);
    }
    let before = std::mem::replace(&mut *place, payload);
    drop(place);
    if let Payload::Child(child) = before {
        child.forget();
    }
    Ok(())
}

/// Changes the node behind a handle.
fn change(node: CUgraphNode, payload: impl FnOnce() -> Answer<Payload>) -> Answer {
    let node = find_node(node)?;
    replace(&node, payload()?)
}

fn kernel_of(node: CUgraphNode) -> Answer<KernelCall> {
    match find_node(node)?.payload() {
        Payload::Kernel(call) => Ok(call),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) fn cuGraphKernelNodeGetParams(_: &Call, node: CUgraphNode, out: *mut CUDA_KERNEL_NODE_PARAMS_v1) -> Answer {
    put(out, parameters::kernel_parameters_v1(&kernel_of(node)?)?)
}

pub(crate) fn cuGraphKernelNodeGetParams_v2(_: &Call, node: CUgraphNode, out: *mut CUDA_KERNEL_NODE_PARAMS) -> Answer {
    put(out, parameters::kernel_parameters(&kernel_of(node)?)?)
}

pub(crate) fn cuGraphKernelNodeSetParams(
    _: &Call,
    node: CUgraphNode,
    kernel: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Answer {
    change(node, || parameters::kernel_v1(&get(kernel)?))
}

pub(crate) fn cuGraphKernelNodeSetParams_v2(
    _: &Call,
    node: CUgraphNode,
    kernel: *const CUDA_KERNEL_NODE_PARAMS,
) -> Answer {
    change(node, || parameters::kernel(&get(kernel)?))
}

pub(crate) fn cuGraphMemcpyNodeGetParams(_: &Call, node: CUgraphNode, out: *mut CUDA_MEMCPY3D) -> Answer {
    match find_node(node)?.payload() {
        Payload::Copy(Copy3d(copy)) => put(out, copy),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) fn cuGraphMemcpyNodeSetParams(_: &Call, node: CUgraphNode, copy: *const CUDA_MEMCPY3D) -> Answer {
    change(node, || parameters::copy(&get(copy)?, core::ptr::null_mut()))
}

pub(crate) fn cuGraphMemsetNodeGetParams(_: &Call, node: CUgraphNode, out: *mut CUDA_MEMSET_NODE_PARAMS) -> Answer {
    match find_node(node)?.payload() {
        Payload::Fill(fill) => put(out, parameters::fill_parameters(&fill)),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) fn cuGraphMemsetNodeSetParams(_: &Call, node: CUgraphNode, fill: *const CUDA_MEMSET_NODE_PARAMS) -> Answer {
    change(node, || parameters::fill_v1(&get(fill)?, core::ptr::null_mut()))
}

pub(crate) fn cuGraphHostNodeGetParams(_: &Call, node: CUgraphNode, out: *mut CUDA_HOST_NODE_PARAMS) -> Answer {
    match find_node(node)?.payload() {
        Payload::Host(host) => put(out, parameters::host_parameters(host)),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) fn cuGraphHostNodeSetParams(_: &Call, node: CUgraphNode, host: *const CUDA_HOST_NODE_PARAMS) -> Answer {
    change(node, || parameters::host(&get(host)?))
}

pub(crate) fn cuGraphChildGraphNodeGetGraph(_: &Call, node: CUgraphNode, out: *mut CUgraph) -> Answer {
    match find_node(node)?.payload() {
        Payload::Child(graph) => put(out, graph_handle(&graph)),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) fn cuGraphEventRecordNodeGetEvent(_: &Call, node: CUgraphNode, out: *mut CUevent) -> Answer {
    match find_node(node)?.payload() {
        Payload::EventRecord(event) => put(out, pointer(handle_of(&event))),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) fn cuGraphEventRecordNodeSetEvent(_: &Call, node: CUgraphNode, event: CUevent) -> Answer {
    change(node, || EVENTS.get(event).map(Payload::EventRecord))
}

pub(crate) fn cuGraphEventWaitNodeGetEvent(_: &Call, node: CUgraphNode, out: *mut CUevent) -> Answer {
    match find_node(node)?.payload() {
        Payload::EventWait(event) => put(out, pointer(handle_of(&event))),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) fn cuGraphEventWaitNodeSetEvent(_: &Call, node: CUgraphNode, event: CUevent) -> Answer {
    change(node, || EVENTS.get(event).map(Payload::EventWait))
}

pub(crate) fn cuGraphMemAllocNodeGetParams(
    _: &Call,
    node: CUgraphNode,
    out: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Answer {
    match find_node(node)?.payload() {
        Payload::Allocation(allocation) => put(out, parameters::allocation_parameters(&allocation)),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) fn cuGraphMemFreeNodeGetParams(_: &Call, node: CUgraphNode, out: *mut CUdeviceptr) -> Answer {
    match find_node(node)?.payload() {
        Payload::Free(allocation) => put(out, allocation.address()),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) fn cuGraphBatchMemOpNodeGetParams(
    _: &Call,
    node: CUgraphNode,
    out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Answer {
    put(out, parameters::words_parameters(&*find_node(node)?)?)
}

pub(crate) fn cuGraphBatchMemOpNodeSetParams(
    _: &Call,
    node: CUgraphNode,
    words: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Answer {
    change(node, || parameters::words(&get(words)?))
}

pub(crate) fn cuGraphNodeGetParams(_: &Call, node: CUgraphNode, out: *mut CUgraphNodeParams) -> Answer {
    put(out, parameters::of_node(&*find_node(node)?)?)
}

pub(crate) fn cuGraphNodeSetParams(_: &Call, node: CUgraphNode, wanted: *mut CUgraphNodeParams) -> Answer {
    change(node, || parameters::generic_change(&get(wanted)?))
}

pub(crate) fn cuGraphNodeSetParams_v2(call: &Call, node: CUgraphNode, wanted: *mut CUgraphNodeParams) -> Answer {
    cuGraphNodeSetParams(call, node, wanted)
}
