//! Graphs as wholes: making, copying and ending them, and what is connected to what.

use super::{Edge, GRAPHS, Graph, LOSSY_QUERY, Node, Payload, Shape, find_node, graph_handle, node_handle, remove};
use crate::args::{Answer, get, put, put_at, slice, text};
use crate::entry::Call;
use core::ffi::{c_char, c_uint};
use core::sync::atomic::Ordering;
use driver_api::{CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphNodeType, CUresult};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

pub(crate) fn cuGraphCreate(_: &Call, out: *mut CUgraph, flags: c_uint) -> Answer {
    if out.is_null() || flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, GRAPHS.insert(Graph::new()))
}

pub(crate) fn cuGraphDestroy(_: &Call, graph: CUgraph) -> Answer {
    let graph = Graph::find(graph)?;
    if graph.is_owned.load(Ordering::Relaxed) {
        return Err(CUresult::INVALID_VALUE);
    }
    graph.forget();
    Ok(())
}

pub(crate) fn cuGraphClone(_: &Call, out: *mut CUgraph, graph: CUgraph) -> Answer {
    let graph = Graph::find(graph)?;
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    if graph.has_memory_nodes() {
        return Err(CUresult::NOT_SUPPORTED);
    }
    put(out, GRAPHS.insert(graph.duplicate()))
}

pub(crate) fn cuGraphDestroyNode(_: &Call, node: CUgraphNode) -> Answer {
    let node = find_node(node)?;
    let graph = node.graph()?;
    if graph.has_memory_nodes() {
        return Err(CUresult::NOT_SUPPORTED);
    }
    remove(&mut graph.shape.lock(), node.id);
    Ok(())
}

/// Writes a list into the caller's array: as many as fit, then nulls; the array's length becomes the
/// number written. Without an array, the length of the list.
fn list<T>(items: &[T], out: *mut T, count: *mut usize, filler: T) -> Answer
where
    T: Copy,
{
    if out.is_null() {
        return put(count, items.len());
    }
    let room = get(count)?;
    for at in 0..room {
        put_at(out, at, items.get(at).copied().unwrap_or(filler))?;
    }
    put(count, room.min(items.len()))
}

fn list_nodes(nodes: &[CUgraphNode], out: *mut CUgraphNode, count: *mut usize) -> Answer {
    list(nodes, out, count, core::ptr::null_mut())
}

pub(crate) fn cuGraphGetNodes(_: &Call, graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> Answer {
    let graph = Graph::find(graph)?;
    let handles: Vec<_> = graph.shape.lock().nodes.values().map(node_handle).collect();
    list_nodes(&handles, nodes, count)
}

pub(crate) fn cuGraphGetRootNodes(_: &Call, graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> Answer {
    let graph = Graph::find(graph)?;
    let shape = graph.shape.lock();
    let roots = shape.nodes.values().filter(|node| shape.before(node.id).next().is_none());
    let handles: Vec<_> = roots.map(node_handle).collect();
    list_nodes(&handles, nodes, count)
}

/// Handles and kinds of what lies at the other ends of edges; 402 when the caller can't be told the kinds.
struct Ends {
    nodes: Vec<CUgraphNode>,
    edges: Vec<CUgraphEdgeData>,
}

impl Ends {
    fn new(shape: &Shape, edges: impl Iterator<Item = (u64, Edge)>, tells_kinds: bool) -> Answer<Self> {
        let mut ends = Self { nodes: Vec::new(), edges: Vec::new() };
        for (id, edge) in edges {
            if !tells_kinds && !edge.is_default() {
                return Err(LOSSY_QUERY);
            }
            ends.nodes.push(shape.nodes.get(&id).map_or(core::ptr::null_mut(), node_handle));
            ends.edges.push(edge.data());
        }
        Ok(ends)
    }
}

const NO_EDGE: CUgraphEdgeData = CUgraphEdgeData { from_port: 0, to_port: 0, r#type: 0, reserved: [0; 5] };

/// Writes the three arrays of an edge query.
fn put_edges(
    from: (&[CUgraphNode], *mut CUgraphNode),
    to: (&[CUgraphNode], *mut CUgraphNode),
    edges: (&[CUgraphEdgeData], *mut CUgraphEdgeData),
    count: *mut usize,
) -> Answer {
    if from.1.is_null() != to.1.is_null() || from.1.is_null() && !edges.1.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut room = get(count).unwrap_or(0);
    if !edges.1.is_null() {
        let mut edge_room = room;
        list(edges.0, edges.1, &raw mut edge_room, NO_EDGE)?;
    }
    list_nodes(to.0, to.1, &raw mut room)?;
    list_nodes(from.0, from.1, count)
}

fn get_edges(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
    tells_kinds: bool,
) -> Answer {
    let graph = Graph::find(graph)?;
    let shape = graph.shape.lock();
    let all = || shape.edges.iter();
    let starts = Ends::new(&shape, all().map(|(from, _, edge)| (*from, *edge)), tells_kinds || from.is_null())?;
    let ends = Ends::new(&shape, all().map(|(_, to, edge)| (*to, *edge)), true)?;
    drop(shape);
    put_edges((&starts.nodes, from), (&ends.nodes, to), (&starts.edges, edges), count)
}

pub(crate) fn cuGraphGetEdges(
    _: &Call,
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> Answer {
    get_edges(graph, from, to, core::ptr::null_mut(), count, false)
}

pub(crate) fn cuGraphGetEdges_v2(
    _: &Call,
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Answer {
    get_edges(graph, from, to, edges, count, !edges.is_null())
}

fn get_neighbours(
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
    is_before: bool,
) -> Answer {
    let node = find_node(node)?;
    let graph = node.graph()?;
    let shape = graph.shape.lock();
    let tells_kinds = !edges.is_null() || nodes.is_null();
    let ends = if is_before {
        Ends::new(&shape, shape.before(node.id), tells_kinds)?
    } else {
        Ends::new(&shape, shape.after(node.id), tells_kinds)?
    };
    drop(shape);
    if !edges.is_null() {
        let mut room = get(count)?;
        list(&ends.edges, edges, &raw mut room, NO_EDGE)?;
    }
    list_nodes(&ends.nodes, nodes, count)
}

pub(crate) fn cuGraphNodeGetDependencies(
    _: &Call,
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    count: *mut usize,
) -> Answer {
    get_neighbours(node, nodes, core::ptr::null_mut(), count, true)
}

pub(crate) fn cuGraphNodeGetDependencies_v2(
    _: &Call,
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Answer {
    get_neighbours(node, nodes, edges, count, true)
}

pub(crate) fn cuGraphNodeGetDependentNodes(
    _: &Call,
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    count: *mut usize,
) -> Answer {
    get_neighbours(node, nodes, core::ptr::null_mut(), count, false)
}

pub(crate) fn cuGraphNodeGetDependentNodes_v2(
    _: &Call,
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Answer {
    get_neighbours(node, nodes, edges, count, false)
}

/// Adds or takes away edges: all of them, or none when one is wrong.
fn change_edges(
    graph: CUgraph,
    (from, to, edges): (*const CUgraphNode, *const CUgraphNode, *const CUgraphEdgeData),
    count: usize,
    is_added: bool,
) -> Answer {
    let graph = Graph::find(graph)?;
    let kinds = if edges.is_null() { &[] } else { slice(edges, count)? };
    let mut wanted = Vec::new();
    for (at, (from, to)) in slice(from, count)?.iter().zip(slice(to, count)?).enumerate() {
        let edge = kinds.get(at).map_or(Ok(Edge::default()), Edge::new)?;
        wanted.push((find_node(*from)?.id, find_node(*to)?.id, edge));
    }
    if !is_added && graph.has_memory_nodes() {
        return Err(CUresult::NOT_SUPPORTED);
    }
    let mut shape = graph.shape.lock();
    let right = |edge: &(u64, u64, Edge)| {
        let known = shape.nodes.contains_key(&edge.0) && shape.nodes.contains_key(&edge.1);
        known && edge.0 != edge.1 && shape.edges.contains(edge) != is_added
    };
    if !wanted.iter().all(right) {
        return Err(CUresult::INVALID_VALUE);
    }
    for (from, to, edge) in wanted {
        if is_added {
            shape.connect(from, to, edge);
        } else {
            shape.disconnect(from, to, edge);
        }
    }
    Ok(())
}

pub(crate) fn cuGraphAddDependencies(
    _: &Call,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Answer {
    change_edges(graph, (from, to, core::ptr::null()), count, true)
}

pub(crate) fn cuGraphAddDependencies_v2(
    _: &Call,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
) -> Answer {
    change_edges(graph, (from, to, edges), count, true)
}

pub(crate) fn cuGraphRemoveDependencies(
    _: &Call,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Answer {
    change_edges(graph, (from, to, core::ptr::null()), count, false)
}

pub(crate) fn cuGraphRemoveDependencies_v2(
    _: &Call,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
) -> Answer {
    change_edges(graph, (from, to, edges), count, false)
}

pub(crate) fn cuGraphNodeGetType(_: &Call, node: CUgraphNode, kind: *mut CUgraphNodeType) -> Answer {
    put(kind, find_node(node)?.payload.lock().kind())
}

/// The node of a clone that was copied from `original`.
pub(crate) fn cuGraphNodeFindInClone(_: &Call, out: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) -> Answer {
    let origin = find_node(original)?.origin;
    let clone = Graph::find(clone)?;
    let found = find_origin(&clone, origin).ok_or(CUresult::INVALID_VALUE)?;
    put(out, node_handle(&found))
}

fn find_origin(graph: &Arc<Graph>, origin: u64) -> Option<Arc<Node>> {
    let nodes: Vec<Arc<Node>> = graph.shape.lock().nodes.values().cloned().collect();
    nodes.iter().find(|node| node.origin == origin).cloned().or_else(|| {
        nodes.iter().find_map(|node| match node.payload() {
            Payload::Child(child) => find_origin(&child, origin),
            _ => None,
        })
    })
}

pub(crate) fn cuGraphGetId(_: &Call, graph: CUgraph, id: *mut c_uint) -> Answer {
    put(id, Graph::find(graph)?.id)
}

pub(crate) fn cuGraphNodeGetLocalId(_: &Call, node: CUgraphNode, id: *mut c_uint) -> Answer {
    put(id, find_node(node)?.local_id)
}

pub(crate) fn cuGraphNodeGetToolsId(_: &Call, node: CUgraphNode, id: *mut u64) -> Answer {
    put(id, find_node(node)?.id)
}

pub(crate) fn cuGraphNodeGetContainingGraph(_: &Call, node: CUgraphNode, graph: *mut CUgraph) -> Answer {
    put(graph, graph_handle(&find_node(node)?.graph()?))
}

/// Writes nodes and edges in the language of Graphviz; the flags, which ask for details, change nothing.
pub(crate) fn cuGraphDebugDotPrint(_: &Call, graph: CUgraph, path: *const c_char, _flags: c_uint) -> Answer {
    use std::fmt::Write as _;
    const KINDS: [&str; 13] = [
        "kernel",
        "memcpy",
        "memset",
        "host",
        "graph",
        "empty",
        "wait event",
        "record event",
        "signal",
        "wait",
        "alloc",
        "free",
        "memop",
    ];
    let graph = Graph::find(graph)?;
    let shape = graph.shape.lock();
    let mut dot = format!("digraph graph_{} {{\n", graph.id);
    for node in shape.nodes.values() {
        let kind = usize::try_from(node.payload.lock().kind()).ok().and_then(|kind| KINDS.get(kind)).unwrap_or(&"");
        writeln!(dot, "  node_{} [label=\"{kind} {}\"];", node.id, node.local_id).map_err(|_| CUresult::UNKNOWN)?;
    }
    for (from, to, _) in &shape.edges {
        writeln!(dot, "  node_{from} -> node_{to};").map_err(|_| CUresult::UNKNOWN)?;
    }
    dot.push_str("}\n");
    std::fs::write(OsStr::from_bytes(text(path)?.to_bytes()), dot).map_err(|_| CUresult(304))
}
