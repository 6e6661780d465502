//! Executable graphs: instantiated, uploaded, launched.
//!
//! A launch goes through the nodes in an order that keeps the edges, one after the other in the stream.
//! Branches do not overlap, as the device's queue of a context serves one thing at a time anyhow.

use super::user_object::Reference;
use super::{Graph, Node, Payload, memory, node_handle};
use crate::args::{Answer, get, optional, put, put_text};
use crate::capture;
use crate::copy::{self, Rows};
use crate::entry::Call;
use crate::pages;
use crate::registry::Registry;
use crate::stream::{self, Stream};
use core::ffi::{c_char, c_int, c_uint};
use core::ptr::null_mut;
use core::sync::atomic::Ordering;
use driver_api::{CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream};
use fake_machine::Work;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

pub(crate) static EXECS: Registry<Exec> = Registry::new();

const AUTO_FREE_ON_LAUNCH: u64 = 1;
const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;
const FLAGS: u64 = 15;

/// `CUDA_GRAPH_INSTANTIATE_*`
const SUCCESS: c_int = 0;
const ERROR: c_int = 1;
const INVALID_STRUCTURE: c_int = 2;
const OPERATION_NOT_SUPPORTED: c_int = 3;

/// One node of an executable graph.
pub(crate) struct Step {
    /// Id of the node of the graph that was instantiated.
    pub(crate) node: u64,
    pub(crate) is_enabled: bool,
    pub(crate) payload: Payload,
    /// The steps of a child graph.
    pub(crate) inner: Vec<Step>,
    /// Places, among the steps of its graph, of what it waits for.
    pub(crate) before: Vec<usize>,
}

/// An executable graph.
pub(crate) struct Exec {
    id: u32,
    flags: u64,
    source: Weak<Graph>,
    pub(crate) steps: Mutex<Vec<Step>>,
    _users: Vec<Reference>,
}

impl Drop for Exec {
    fn drop(&mut self) {
        if let Some(graph) = self.source.upgrade() {
            graph.instances.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The executable graph behind a handle; 1 for none.
pub(crate) fn find(exec: CUgraphExec) -> Answer<Arc<Exec>> {
    EXECS.get(exec).map_err(|_| CUresult::INVALID_VALUE)
}

/// The steps of a graph and of the graphs in it; `None` when its edges go in a circle.
pub(crate) fn steps(graph: &Graph) -> Option<Vec<Step>> {
    let (order, before) = {
        let shape = graph.shape.lock();
        let order = shape.sorted()?;
        let places: HashMap<u64, usize> = order.iter().enumerate().map(|(at, node)| (node.id, at)).collect();
        let places_before = |node: &Arc<Node>| shape.before(node.id).map(|(id, _)| places[&id]).collect();
        let before: Vec<Vec<usize>> = order.iter().map(places_before).collect();
        (order, before)
    };
    order
        .iter()
        .zip(before)
        .map(|(node, mut before)| {
            before.sort_unstable();
            let payload = node.payload();
            let inner = if let Payload::Child(child) = &payload { steps(child)? } else { Vec::new() };
            Some(Step { node: node.id, is_enabled: true, payload, inner, before })
        })
        .collect()
}

/// What the steps do, in order, without the disabled ones.
fn payloads(steps: &[Step]) -> Vec<&Payload> {
    let mut list = Vec::with_capacity(steps.len());
    for step in steps.iter().filter(|step| step.is_enabled) {
        if matches!(step.payload, Payload::Child(_)) {
            list.extend(payloads(&step.inner));
        } else {
            list.push(&step.payload);
        }
    }
    list
}

/// A failed instantiation: the code for the caller and the finer result.
struct Failure {
    code: CUresult,
    result: c_int,
    node: CUgraphNode,
}

fn instantiate(graph: CUgraph, flags: u64) -> Result<CUgraphExec, Failure> {
    use core::sync::atomic::AtomicU32;
    static NEXT_ID: AtomicU32 = AtomicU32::new(1);
    let fail = |code, result| Failure { code, result, node: null_mut() };
    let graph = Graph::find(graph).map_err(|code| fail(code, ERROR))?;
    if flags & !FLAGS != 0 || flags & (AUTO_FREE_ON_LAUNCH | DEVICE_LAUNCH) == AUTO_FREE_ON_LAUNCH | DEVICE_LAUNCH {
        return Err(fail(CUresult::INVALID_VALUE, ERROR));
    }
    let has_memory = graph.has_memory_nodes();
    if has_memory && graph.instances.load(Ordering::Acquire) > 0 {
        return Err(fail(CUresult::INVALID_VALUE, ERROR));
    }
    if flags & DEVICE_LAUNCH != 0 {
        let nodes: Vec<Arc<Node>> = graph.shape.lock().nodes.values().cloned().collect();
        // From the device only kernels, copies, memsets and children can be launched.
        if let Some(node) = nodes.iter().find(|node| !matches!(node.payload.lock().kind(), 0..=2 | 4)) {
            let node = node_handle(node);
            return Err(Failure { code: CUresult::NOT_SUPPORTED, result: OPERATION_NOT_SUPPORTED, node });
        }
    }
    let steps = steps(&graph).ok_or_else(|| fail(CUresult::INVALID_VALUE, INVALID_STRUCTURE))?;
    graph.instances.fetch_add(1, Ordering::AcqRel);
    let users = graph.users.lock().iter().map(Reference::duplicate).collect();
    Ok(EXECS.insert(Arc::new(Exec {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        flags,
        source: Arc::downgrade(&graph),
        steps: Mutex::new(steps),
        _users: users,
    })))
}

pub(crate) fn cuGraphInstantiateWithFlags(_: &Call, out: *mut CUgraphExec, graph: CUgraph, flags: u64) -> Answer {
    // Uploading takes a stream, which only the form with parameters has.
    if out.is_null() || flags & UPLOAD != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, instantiate(graph, flags).map_err(|failure| failure.code)?)
}

pub(crate) fn cuGraphInstantiateWithParams(
    call: &Call,
    out: *mut CUgraphExec,
    graph: CUgraph,
    parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Answer {
    let mut wanted = get(parameters)?;
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let made = instantiate(graph, wanted.flags);
    (wanted.hErrNode_out, wanted.result_out) = match &made {
        Ok(_) => (null_mut(), SUCCESS),
        Err(failure) => (failure.node, failure.result),
    };
    put(parameters, wanted)?;
    let exec = made.map_err(|failure| failure.code)?;
    if wanted.flags & UPLOAD != 0
        && let Err(error) = cuGraphUpload(call, exec, wanted.hUploadStream)
    {
        EXECS.remove(exec)?;
        return Err(error);
    }
    put(out, exec)
}

/// The form of CUDA 10 and 11, which reports on a failure: the node, where there is one, and an empty log.
pub(crate) fn cuGraphInstantiate_v2(
    _: &Call,
    out: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    log: *mut c_char,
    length: usize,
) -> Answer {
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    if !log.is_null() && length > 0 {
        put_text(log, length, "")?;
    }
    let made = instantiate(graph, 0);
    optional(node, made.as_ref().err().map_or(null_mut(), |failure| failure.node));
    put(out, made.map_err(|failure| failure.code)?)
}

pub(crate) fn cuGraphInstantiate(
    call: &Call,
    out: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    log: *mut c_char,
    length: usize,
) -> Answer {
    cuGraphInstantiate_v2(call, out, graph, node, log, length)
}

/// Launches under way go on: they hold what they need.
pub(crate) fn cuGraphExecDestroy(_: &Call, exec: CUgraphExec) -> Answer {
    EXECS.remove(exec).map(drop).map_err(|_| CUresult::INVALID_VALUE)
}

pub(crate) fn cuGraphExecGetFlags(_: &Call, exec: CUgraphExec, flags: *mut u64) -> Answer {
    put(flags, find(exec)?.flags)
}

pub(crate) fn cuGraphExecGetId(_: &Call, exec: CUgraphExec, id: *mut c_uint) -> Answer {
    put(id, find(exec)?.id)
}

pub(crate) fn cuGraphUpload(call: &Call, exec: CUgraphExec, stream: CUstream) -> Answer {
    let exec = find(exec)?;
    let stream = stream::resolve(call, stream)?;
    capture::forbid_on(&stream)?;
    memory::upload(payloads(&exec.steps.lock()).into_iter())
}

pub(crate) fn cuGraphLaunch(call: &Call, exec: CUgraphExec, stream: CUstream) -> Answer {
    let exec = find(exec)?;
    let stream = stream::resolve(call, stream)?;
    let steps = exec.steps.lock();
    let payloads = payloads(&steps);
    if let Some(recorder) = capture::enter(&stream)? {
        // The launch becomes a child graph: a chain in the order of the launch.
        if payloads.iter().any(|payload| matches!(payload, Payload::Allocation(_) | Payload::Free(_))) {
            return Err(recorder.invalidate(CUresult::STREAM_CAPTURE_UNSUPPORTED));
        }
        return recorder.record(Payload::Child(chain(&payloads)?)).map(drop);
    }
    let mut moving_ns = 0;
    for payload in &payloads {
        if let Payload::Kernel(call) = payload {
            moving_ns += call.function.fit()?;
        }
    }
    memory::launch(payloads.iter().copied(), exec.flags & AUTO_FREE_ON_LAUNCH != 0)?;
    if moving_ns > 0 {
        stream.launch(moving_ns)?;
    }
    run(&payloads, &stream)
}

fn chain(payloads: &[&Payload]) -> Answer<Arc<Graph>> {
    let graph = Graph::new().duplicate_owned();
    let mut last = None;
    for payload in payloads {
        let before: Vec<_> = last.into_iter().map(|id| (id, super::Edge::default())).collect();
        last = Some(graph.add((*payload).clone(), &before)?.id);
    }
    Ok(graph)
}

/// Enqueues what the nodes do. Kernels without anything between them are one piece of work.
fn run(payloads: &[&Payload], stream: &Arc<Stream>) -> Answer {
    let mut kernels_ns = 0u64;
    for payload in payloads {
        if !matches!(payload, Payload::Kernel(_)) && kernels_ns > 0 {
            stream.launch(std::mem::take(&mut kernels_ns))?;
        }
        match payload {
            Payload::Kernel(call) => match call.function.timing.next() {
                Work::Time(duration_ns) => kernels_ns = kernels_ns.saturating_add(duration_ns),
                meeting @ Work::Meeting { .. } => {
                    if kernels_ns > 0 {
                        stream.launch(std::mem::take(&mut kernels_ns))?;
                    }
                    stream.launch(meeting)?;
                }
            },
            Payload::Copy(copy) => {
                if let Some(rows) = Rows::new(&copy.0)? {
                    stream.run_for(rows.duration_ns(), move || rows.run())?;
                }
            }
            Payload::Fill(fill) => {
                let fill = *fill;
                let bytes = fill.width as u64 * fill.height as u64 * u64::from(fill.element_bytes);
                stream.run_for(copy::duration_ns(bytes, false), move || fill.carry_out())?;
            }
            Payload::Host(host) => {
                let host = *host;
                stream.host(move || host.call());
            }
            Payload::EventRecord(event) => event.record(stream),
            Payload::EventWait(event) => event.wait_by(stream),
            Payload::Words(operations) => {
                let operations = operations.clone();
                stream.host(move || operations.iter().for_each(|operation| operation.carry_out()));
            }
            Payload::Child(_) | Payload::Empty | Payload::Allocation(_) | Payload::Free(_) => {}
        }
    }
    if kernels_ns > 0 { stream.launch(kernels_ns) } else { Ok(()) }
}

impl super::Fill {
    fn carry_out(self) {
        let pitch = if self.pitch == 0 { self.width as u64 * u64::from(self.element_bytes) } else { self.pitch as u64 };
        for row in 0..self.height as u64 {
            pages::fill(self.destination + row * pitch, self.value, u64::from(self.element_bytes), self.width as u64);
        }
    }
}
