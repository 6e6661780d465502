//! Graphs: work described once, instantiated, and launched as a whole.
//!
//! - this file: what a graph and a node are;
//! - `add`, `parameters`, `structure`: the calls that make, change and look at them;
//! - `exec`: instantiation, launch, update; `memory`: allocations that belong to graphs;
//! - `user_object`: things of the program that live as long as a graph.

pub(crate) mod add;
pub(crate) mod attributes;
pub(crate) mod exec;
pub(crate) mod memory;
pub(crate) mod parameters;
pub(crate) mod specific;
pub(crate) mod structure;
pub(crate) mod update;
pub(crate) mod user_object;

use crate::args::Answer;
use crate::event::Event;
use crate::launch::KernelCall;
use crate::registry::Registry;
use crate::stream::callbacks::HostFunction;
use crate::stream::values::WordOperation;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use driver_api::{
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS_v2, CUgraph, CUgraphEdgeData, CUgraphNode, CUlaunchAttributeValue, CUresult,
    CUstreamBatchMemOpParams,
};
use memory::Allocation;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use user_object::Reference;

/// `CUDA_ERROR_LOSSY_QUERY`: the older form of a call can't tell what an edge is.
pub(crate) const LOSSY_QUERY: CUresult = CUresult(402);

pub(crate) static GRAPHS: Registry<Graph> = Registry::new();
pub(crate) static NODES: Registry<Node> = Registry::new();

/// What kind of dependency an edge is; the default waits for the whole of the node before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Edge {
    from_port: u8,
    to_port: u8,
    kind: u8,
}

impl Edge {
    /// Fails with 1 for ports that no node has.
    pub(crate) fn new(data: &CUgraphEdgeData) -> Answer<Self> {
        if data.from_port > 2 || data.to_port > 0 || data.r#type > 1 || data.reserved != [0; 5] {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(Self { from_port: data.from_port, to_port: data.to_port, kind: data.r#type })
    }

    /// As the API has it.
    pub(crate) fn data(self) -> CUgraphEdgeData {
        CUgraphEdgeData { from_port: self.from_port, to_port: self.to_port, r#type: self.kind, reserved: [0; 5] }
    }

    pub(crate) fn is_default(self) -> bool {
        self == Self::default()
    }
}

/// A copy that a node carries out.
#[derive(Clone, Copy)]
pub(crate) struct Copy3d(pub(crate) CUDA_MEMCPY3D);

// SAFETY: addresses in it are used by the copy only, which checks them as it does for a stream's copy.
#[allow(unsafe_code)]
unsafe impl Send for Copy3d {}
// SAFETY: as above; it is never written to through a shared reference.
#[allow(unsafe_code)]
unsafe impl Sync for Copy3d {}

/// A memset that a node carries out; the context's handle is 0 where none was named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fill {
    pub(crate) destination: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) element_bytes: u32,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl Fill {
    /// Fails with 1 for element sizes that don't exist, or an empty area.
    pub(crate) fn new(parameters: &CUDA_MEMSET_NODE_PARAMS_v2) -> Answer<Self> {
        let fill = Self {
            destination: parameters.dst,
            pitch: parameters.pitch,
            value: parameters.value,
            element_bytes: parameters.elementSize,
            width: parameters.width,
            height: parameters.height,
        };
        let valid = matches!(fill.element_bytes, 1 | 2 | 4) && fill.destination != 0 && fill.height > 0;
        if valid { Ok(fill) } else { Err(CUresult::INVALID_VALUE) }
    }
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum Payload {
    Kernel(KernelCall),
    Copy(Copy3d),
    Fill(Fill),
    Host(HostFunction),
    Child(Arc<Graph>),
    Empty,
    EventWait(Arc<Event>),
    EventRecord(Arc<Event>),
    Allocation(Arc<Allocation>),
    Free(Arc<Allocation>),
    Words(Vec<WordOperation>),
}

impl Payload {
    /// The number of its kind in the API.
    pub(crate) fn kind(&self) -> i32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) => 1,
            Self::Fill(_) => 2,
            Self::Host(_) => 3,
            Self::Child(_) => 4,
            Self::Empty => 5,
            Self::EventWait(_) => 6,
            Self::EventRecord(_) => 7,
            Self::Allocation(_) => 10,
            Self::Free(_) => 11,
            Self::Words(_) => 12,
        }
    }
}

/// A node of one graph.
pub(crate) struct Node {
    /// Unique in the process, and growing: nodes are listed in the order of their creation.
    pub(crate) id: u64,
    /// Its number in its graph.
    pub(crate) local_id: u32,
    pub(crate) graph: Weak<Graph>,
    /// The node that it was cloned from, over any number of clonings; its own id if none.
    pub(crate) origin: u64,
    pub(crate) payload: Mutex<Payload>,
    pub(crate) attributes: Mutex<BTreeMap<i32, CUlaunchAttributeValue>>,
    /// A batch of word operations as it was last given out, for the caller to look at.
    pub(crate) shown: Mutex<Vec<CUstreamBatchMemOpParams>>,
}

impl Node {
    /// What it does, at this moment.
    pub(crate) fn payload(&self) -> Payload {
        self.payload.lock().clone()
    }

    pub(crate) fn graph(&self) -> Answer<Arc<Graph>> {
        self.graph.upgrade().ok_or(CUresult::INVALID_VALUE)
    }
}

/// The nodes of a graph and the edges between them, by ids.
#[derive(Default)]
pub(crate) struct Shape {
    pub(crate) nodes: BTreeMap<u64, Arc<Node>>,
    /// From, to, and what kind.
    pub(crate) edges: BTreeSet<(u64, u64, Edge)>,
    /// The same by their ends: to, from.
    pub(crate) incoming: BTreeSet<(u64, u64, Edge)>,
    added: u32,
}

impl Shape {
    pub(crate) fn connect(&mut self, from: u64, to: u64, edge: Edge) -> bool {
        self.incoming.insert((to, from, edge));
        self.edges.insert((from, to, edge))
    }

    pub(crate) fn disconnect(&mut self, from: u64, to: u64, edge: Edge) -> bool {
        self.incoming.remove(&(to, from, edge));
        self.edges.remove(&(from, to, edge))
    }

    /// What a node waits for.
    pub(crate) fn before(&self, node: u64) -> impl Iterator<Item = (u64, Edge)> + '_ {
        around(&self.incoming, node)
    }

    /// What waits for a node.
    pub(crate) fn after(&self, node: u64) -> impl Iterator<Item = (u64, Edge)> + '_ {
        around(&self.edges, node)
    }

    /// The nodes in an order in which they can run; `None` when there is a cycle.
    pub(crate) fn sorted(&self) -> Option<Vec<Arc<Node>>> {
        let mut missing: BTreeMap<u64, usize> = self.nodes.keys().map(|id| (*id, self.before(*id).count())).collect();
        let mut ready: BTreeSet<u64> = missing.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(id) = ready.pop_first() {
            order.push(Arc::clone(&self.nodes[&id]));
            for (next, _) in self.after(id) {
                if let Some(count) = missing.get_mut(&next) {
                    *count -= 1;
                    if *count == 0 {
                        ready.insert(next);
                    }
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }

    /// The given nodes and all that they wait for, directly or not.
    pub(crate) fn up_to(&self, ends: impl Iterator<Item = u64>) -> BTreeSet<u64> {
        let mut found: BTreeSet<u64> = ends.collect();
        let mut open: Vec<u64> = found.iter().copied().collect();
        while let Some(id) = open.pop() {
            for (earlier, _) in self.before(id) {
                if found.insert(earlier) {
                    open.push(earlier);
                }
            }
        }
        found
    }
}

fn around(edges: &BTreeSet<(u64, u64, Edge)>, node: u64) -> impl Iterator<Item = (u64, Edge)> + '_ {
    let first = (node, 0, Edge::default());
    edges.range(first..).take_while(move |(near, _, _)| *near == node).map(|(_, far, edge)| (*far, *edge))
}

/// A graph.
pub(crate) struct Graph {
    pub(crate) id: u32,
    pub(crate) shape: Mutex<Shape>,
    /// True for the graph of a child node, which ends with its parent.
    pub(crate) is_owned: AtomicBool,
    /// True while an instance exists; matters for graphs with memory nodes.
    pub(crate) instances: AtomicU32,
    pub(crate) users: Mutex<Vec<Reference>>,
}

impl Graph {
    pub(crate) fn new() -> Arc<Self> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(1);
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            shape: Mutex::default(),
            is_owned: AtomicBool::new(false),
            instances: AtomicU32::new(0),
            users: Mutex::default(),
        })
    }

    /// The graph behind a handle; 1 for none, as the graph calls answer.
    pub(crate) fn find(handle: CUgraph) -> Answer<Arc<Self>> {
        GRAPHS.get(handle).map_err(|_| CUresult::INVALID_VALUE)
    }

    /// Adds a node behind others of this graph.
    pub(crate) fn add(self: &Arc<Self>, payload: Payload, after: &[(u64, Edge)]) -> Answer<Arc<Node>> {
        let mut shape = self.shape.lock();
        if !after.iter().all(|(id, _)| shape.nodes.contains_key(id)) {
            return Err(CUresult::INVALID_VALUE);
        }
        let node = self.insert(&mut shape, payload, None);
        for (before, edge) in after {
            if !shape.connect(*before, node.id, *edge) {
                // The same dependency twice.
                remove(&mut shape, node.id);
                return Err(CUresult::INVALID_VALUE);
            }
        }
        Ok(node)
    }

    fn insert(self: &Arc<Self>, shape: &mut Shape, payload: Payload, original: Option<&Node>) -> Arc<Node> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let node = Arc::new(Node {
            id,
            local_id: shape.added,
            graph: Arc::downgrade(self),
            origin: original.map_or(id, |original| original.origin),
            payload: Mutex::new(payload),
            attributes: Mutex::new(original.map(|original| original.attributes.lock().clone()).unwrap_or_default()),
            shown: Mutex::default(),
        });
        shape.added += 1;
        shape.nodes.insert(id, Arc::clone(&node));
        NODES.insert(Arc::clone(&node));
        node
    }

    /// True when it or a child has allocations or frees, which puts limits on what can be done with it.
    pub(crate) fn has_memory_nodes(&self) -> bool {
        let nodes: Vec<Arc<Node>> = self.shape.lock().nodes.values().cloned().collect();
        nodes.iter().any(|node| match &*node.payload.lock() {
            Payload::Allocation(_) | Payload::Free(_) => true,
            Payload::Child(child) => child.has_memory_nodes(),
            _ => false,
        })
    }

    /// A copy with nodes of its own, children copied too.
    pub(crate) fn duplicate(&self) -> Arc<Self> {
        let copy = Self::new();
        let original = self.shape.lock();
        let mut names = BTreeMap::new();
        {
            let mut shape = copy.shape.lock();
            for node in original.nodes.values() {
                let payload = match node.payload() {
                    Payload::Child(child) => Payload::Child(child.duplicate_owned()),
                    other => other,
                };
                names.insert(node.id, copy.insert(&mut shape, payload, Some(node)).id);
            }
            for (from, to, edge) in &original.edges {
                shape.connect(names[from], names[to], *edge);
            }
        }
        copy.users.lock().extend(self.users.lock().iter().map(Reference::duplicate));
        copy
    }

    /// A copy for a child node: known by its handle, but not the program's to destroy.
    pub(crate) fn duplicate_owned(&self) -> Arc<Self> {
        let copy = self.duplicate();
        copy.is_owned.store(true, Ordering::Relaxed);
        GRAPHS.insert(Arc::clone(&copy));
        copy
    }

    /// Ends the handles of the graph, its nodes and its children.
    pub(crate) fn forget(self: &Arc<Self>) {
        let nodes = std::mem::take(&mut *self.shape.lock()).nodes;
        for node in nodes.values() {
            forget_node(node);
        }
        drop(GRAPHS.remove(crate::registry::pointer(crate::registry::handle_of(self))));
        self.users.lock().clear();
    }
}

/// Takes a node and its edges out of a graph.
pub(crate) fn remove(shape: &mut Shape, id: u64) {
    let before: Vec<_> = shape.before(id).collect();
    let after: Vec<_> = shape.after(id).collect();
    for (other, edge) in before {
        shape.disconnect(other, id, edge);
    }
    for (other, edge) in after {
        shape.disconnect(id, other, edge);
    }
    if let Some(node) = shape.nodes.remove(&id) {
        forget_node(&node);
    }
}

fn forget_node(node: &Arc<Node>) {
    drop(NODES.remove(node_handle(node)));
    if let Payload::Child(child) = &*node.payload.lock() {
        child.forget();
    }
}

/// The program's handle of a node.
pub(crate) fn node_handle(node: &Arc<Node>) -> CUgraphNode {
    crate::registry::pointer(crate::registry::handle_of(node))
}

/// The program's handle of a graph.
pub(crate) fn graph_handle(graph: &Arc<Graph>) -> CUgraph {
    crate::registry::pointer(crate::registry::handle_of(graph))
}

/// The node behind a handle; 1 for none, as the graph calls answer.
pub(crate) fn find_node(handle: CUgraphNode) -> Answer<Arc<Node>> {
    NODES.get(handle).map_err(|_| CUresult::INVALID_VALUE)
}
