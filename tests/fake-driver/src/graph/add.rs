//! Adding nodes to graphs.

use super::memory::Allocation;
use super::{Edge, Graph, Payload, find_node, node_handle, parameters};
use crate::args::{Answer, get, put, slice};
use crate::entry::Call;
use crate::event::EVENTS;
use driver_api::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr, CUevent, CUgraph,
    CUgraphEdgeData, CUgraphNode, CUgraphNodeParams, CUresult,
};

/// The nodes before a new one, with the kinds of edges where they are given.
fn before(nodes: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize) -> Answer<Vec<(u64, Edge)>> {
    let kinds = if edges.is_null() { &[] } else { slice(edges, count)? };
    let nodes = slice(nodes, count)?.iter().enumerate().map(|(at, handle)| {
        let edge = kinds.get(at).map_or(Ok(Edge::default()), Edge::new)?;
        Ok((find_node(*handle)?.id, edge))
    });
    nodes.collect()
}

/// Adds what `payload` makes, once everything else has been found right.
fn add(
    out: *mut CUgraphNode,
    graph: CUgraph,
    (nodes, edges, count): (*const CUgraphNode, *const CUgraphEdgeData, usize),
    payload: impl FnOnce() -> Answer<Payload>,
) -> Answer {
    let graph = Graph::find(graph)?;
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let before = before(nodes, edges, count)?;
    put(out, node_handle(&graph.add(payload()?, &before)?))
}

pub(crate) fn cuGraphAddKernelNode(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    kernel: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Answer {
    add(out, graph, (nodes, core::ptr::null(), count), || parameters::kernel_v1(&get(kernel)?))
}

pub(crate) fn cuGraphAddKernelNode_v2(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    kernel: *const CUDA_KERNEL_NODE_PARAMS,
) -> Answer {
    add(out, graph, (nodes, core::ptr::null(), count), || parameters::kernel(&get(kernel)?))
}

pub(crate) fn cuGraphAddMemcpyNode(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    copy: *const CUDA_MEMCPY3D,
    context: CUcontext,
) -> Answer {
    add(out, graph, (nodes, core::ptr::null(), count), || parameters::copy(&get(copy)?, context))
}

pub(crate) fn cuGraphAddMemsetNode(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    fill: *const CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Answer {
    add(out, graph, (nodes, core::ptr::null(), count), || parameters::fill_v1(&get(fill)?, context))
}

pub(crate) fn cuGraphAddHostNode(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    host: *const CUDA_HOST_NODE_PARAMS,
) -> Answer {
    add(out, graph, (nodes, core::ptr::null(), count), || parameters::host(&get(host)?))
}

pub(crate) fn cuGraphAddChildGraphNode(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    child: CUgraph,
) -> Answer {
    add(out, graph, (nodes, core::ptr::null(), count), || parameters::child(&*Graph::find(child)?))
}

pub(crate) fn cuGraphAddEmptyNode(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
) -> Answer {
    add(out, graph, (nodes, core::ptr::null(), count), || Ok(Payload::Empty))
}

pub(crate) fn cuGraphAddEventRecordNode(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> Answer {
    add(out, graph, (nodes, core::ptr::null(), count), || EVENTS.get(event).map(Payload::EventRecord))
}

pub(crate) fn cuGraphAddEventWaitNode(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> Answer {
    add(out, graph, (nodes, core::ptr::null(), count), || EVENTS.get(event).map(Payload::EventWait))
}

pub(crate) fn cuGraphAddMemAllocNode(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    allocation: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Answer {
    let mut wanted = get(allocation)?;
    add(out, graph, (nodes, core::ptr::null(), count), || {
        let made = parameters::allocation(&wanted)?;
        wanted.dptr = made.address();
        Ok(Payload::Allocation(made))
    })?;
    put(allocation, wanted)
}

pub(crate) fn cuGraphAddMemFreeNode(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    address: CUdeviceptr,
) -> Answer {
    add(out, graph, (nodes, core::ptr::null(), count), || Allocation::to_free(address).map(Payload::Free))
}

pub(crate) fn cuGraphAddBatchMemOpNode(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    words: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Answer {
    add(out, graph, (nodes, core::ptr::null(), count), || parameters::words(&get(words)?))
}

pub(crate) fn cuGraphAddNode(
    call: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    node: *mut CUgraphNodeParams,
) -> Answer {
    cuGraphAddNode_v2(call, out, graph, nodes, core::ptr::null(), count, node)
}

pub(crate) fn cuGraphAddNode_v2(
    _: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    node: *mut CUgraphNodeParams,
) -> Answer {
    let mut wanted = get(node)?;
    add(out, graph, (nodes, edges, count), || {
        let payload = parameters::generic(&wanted)?;
        // The address of a new allocation, and the copy of a child, are told in the structure.
        match &payload {
            Payload::Allocation(made) => {
                let told = parameters::allocation_parameters(made);
                put(
                    wanted.words.as_mut_ptr().cast(),
                    CUDA_MEM_ALLOC_NODE_PARAMS { dptr: told.dptr, ..get(wanted.words.as_ptr().cast())? },
                )?;
            }
            Payload::Child(child) => put(wanted.words.as_mut_ptr().cast(), super::graph_handle(child))?,
            _ => {}
        }
        Ok(payload)
    })?;
    put(node, wanted)
}

pub(crate) fn cuGraphAddNode_v3(
    call: &Call,
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    node: *mut CUgraphNodeParams,
) -> Answer {
    cuGraphAddNode_v2(call, out, graph, nodes, edges, count, node)
}
