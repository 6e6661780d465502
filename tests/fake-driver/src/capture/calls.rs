//! The calls that begin, end and look at captures.

use super::{Mode, StreamCapture, THREAD_MODE, add_tips, begin, capture_of, end, enter};
use crate::args::{Answer, get, optional, put, slice};
use crate::entry::Call;
use crate::graph::{Edge, GRAPHS, Graph, Node, find_node, graph_handle, node_handle};
use crate::stream::{Kind, resolve};
use core::ffi::c_uint;
use core::sync::atomic::Ordering;
use driver_api::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use std::sync::Arc;

const NONE: CUstreamCaptureStatus = 0;
const ACTIVE: CUstreamCaptureStatus = 1;
const INVALIDATED: CUstreamCaptureStatus = 2;

pub(crate) fn cuStreamBeginCapture(call: &Call, stream: CUstream) -> Answer {
    cuStreamBeginCapture_v2(call, stream, Mode::Global.number())
}

pub(crate) fn cuStreamBeginCapture_v2(call: &Call, stream: CUstream, mode: CUstreamCaptureMode) -> Answer {
    begin(&resolve(call, stream)?, Mode::new(mode)?, None)
}

/// Handles and kinds of dependencies as the API passes them; null edge data means the default.
fn dependencies(
    nodes: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
) -> Answer<Vec<(Arc<Node>, Edge)>> {
    let kinds = if edges.is_null() { &[] } else { slice(edges, count)? };
    let nodes = slice(nodes, count)?.iter().enumerate().map(|(at, handle)| {
        let edge = kinds.get(at).map_or(Ok(Edge::default()), Edge::new)?;
        Ok((find_node(*handle)?, edge))
    });
    nodes.collect()
}

pub(crate) fn cuStreamBeginCaptureToGraph(
    call: &Call,
    stream: CUstream,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> Answer {
    let graph = Graph::find(graph)?;
    let tips = dependencies(nodes, edges, count)?;
    if !tips.iter().all(|(node, _)| graph.shape.lock().nodes.contains_key(&node.id)) {
        return Err(CUresult::INVALID_VALUE);
    }
    begin(&resolve(call, stream)?, Mode::new(mode)?, Some((graph, tips)))
}

pub(crate) fn cuStreamEndCapture(call: &Call, stream: CUstream, graph: *mut CUgraph) -> Answer {
    let stream = resolve(call, stream)?;
    let is_given = capture_of(&stream).is_some_and(|capture| capture.is_given);
    match end(&stream) {
        Ok(captured) if is_given => {
            optional(graph, graph_handle(&captured));
            Ok(())
        }
        Ok(captured) => put(graph, GRAPHS.insert(captured)),
        Err(code) => {
            optional(graph, core::ptr::null_mut());
            Err(code)
        }
    }
}

fn status(stream: CUstream, call: &Call) -> Answer<CUstreamCaptureStatus> {
    let stream = resolve(call, stream)?;
    if stream.kind == Kind::Legacy && stream.queue.blocking_captures.load(Ordering::Acquire) > 0 {
        return Err(CUresult::STREAM_CAPTURE_IMPLICIT);
    }
    Ok(match capture_of(&stream) {
        None => NONE,
        Some(capture) if capture.is_invalid() => INVALIDATED,
        Some(_) => ACTIVE,
    })
}

pub(crate) fn cuStreamIsCapturing(call: &Call, stream: CUstream, out: *mut CUstreamCaptureStatus) -> Answer {
    put(out, status(stream, call)?)
}

pub(crate) fn cuStreamGetCaptureInfo(
    call: &Call,
    stream: CUstream,
    out: *mut CUstreamCaptureStatus,
    id: *mut u64,
) -> Answer {
    let none = core::ptr::null_mut();
    cuStreamGetCaptureInfo_v2(call, stream, out, id, none, core::ptr::null_mut(), core::ptr::null_mut())
}

pub(crate) fn cuStreamGetCaptureInfo_v2(
    call: &Call,
    stream: CUstream,
    out: *mut CUstreamCaptureStatus,
    id: *mut u64,
    graph: *mut CUgraph,
    nodes: *mut *const CUgraphNode,
    count: *mut usize,
) -> Answer {
    let found = resolve(call, stream)?;
    let has_kinds = |part: &StreamCapture| part.tips.iter().any(|(_, edge)| !edge.is_default());
    if !nodes.is_null() && found.capture.lock().as_ref().is_some_and(has_kinds) {
        return Err(crate::graph::LOSSY_QUERY);
    }
    let no_edges = core::ptr::null_mut::<*const CUgraphEdgeData>();
    cuStreamGetCaptureInfo_v3(call, stream, out, id, graph, nodes, no_edges, count)
}

#[allow(clippy::too_many_arguments)] // The API has that many.
pub(crate) fn cuStreamGetCaptureInfo_v3(
    call: &Call,
    stream: CUstream,
    out: *mut CUstreamCaptureStatus,
    id: *mut u64,
    graph: *mut CUgraph,
    nodes: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> Answer {
    let status = status(stream, call)?;
    put(out, status)?;
    let stream = resolve(call, stream)?;
    let mut place = stream.capture.lock();
    let Some(part) = place.as_mut().filter(|_| status == ACTIVE) else { return Ok(()) };
    optional(id, part.capture.id);
    optional(graph, shown_graph(&part.capture.graph));
    show(part);
    optional(nodes, part.shown.nodes.as_ptr());
    optional(edges, part.shown.edges.as_ptr());
    optional(count, part.tips.len());
    Ok(())
}

/// A graph under capture gets its handle when somebody asks for it.
fn shown_graph(graph: &Arc<Graph>) -> CUgraph {
    if GRAPHS.get(graph_handle(graph)).is_err() {
        GRAPHS.insert(Arc::clone(graph));
    }
    graph_handle(graph)
}

fn show(part: &mut StreamCapture) {
    part.shown.nodes = part.tips.iter().map(|(node, _)| node_handle(node)).collect();
    part.shown.edges = part.tips.iter().map(|(_, edge)| edge.data()).collect();
}

pub(crate) fn cuStreamUpdateCaptureDependencies(
    call: &Call,
    stream: CUstream,
    nodes: *mut CUgraphNode,
    count: usize,
    flags: c_uint,
) -> Answer {
    cuStreamUpdateCaptureDependencies_v2(call, stream, nodes, core::ptr::null(), count, flags)
}

pub(crate) fn cuStreamUpdateCaptureDependencies_v2(
    call: &Call,
    stream: CUstream,
    nodes: *mut CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    flags: c_uint,
) -> Answer {
    const SET: c_uint = 1;
    let stream = resolve(call, stream)?;
    let recorder = enter(&stream)?.ok_or(CUresult::ILLEGAL_STATE)?;
    let more = dependencies(nodes, edges, count)?;
    let known = |(node, _): &(Arc<Node>, Edge)| recorder.capture.graph.shape.lock().nodes.contains_key(&node.id);
    if flags > SET || !more.iter().all(known) {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut place = stream.capture.lock();
    let part = place.as_mut().ok_or(CUresult::ILLEGAL_STATE)?;
    if flags == SET {
        part.tips.clear();
    }
    add_tips(&mut part.tips, &more);
    Ok(())
}

pub(crate) fn cuThreadExchangeStreamCaptureMode(_: &Call, mode: *mut CUstreamCaptureMode) -> Answer {
    let wanted = Mode::new(get(mode)?)?;
    put(mode, THREAD_MODE.replace(wanted).number())
}
