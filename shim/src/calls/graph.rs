//! Our own calls that concern graphs, contexts and what is in them.
#![allow(unsafe_code)]
#![allow(non_snake_case)]

use super::memory::outside_captures;
use super::{Called, call, when_done};
use crate::entry::id;
use crate::names::Id;
use crate::real;
use core::ffi::{c_int, c_void};
use driver_api::*;

/// Bytes that a device keeps for graphs, and bytes of them that graphs have allocated.
pub(crate) fn graph_bytes(device: CUdevice) -> Called<(u64, u64)> {
    const USED_MEM_CURRENT: c_int = 0;
    const RESERVED_MEM_CURRENT: c_int = 2;
    let read = |attribute: c_int| {
        let mut bytes = 0u64;
        let code = call!(cuDeviceGetGraphMemAttribute(
            device => CUdevice,
            attribute => c_int,
            (&raw mut bytes).cast() => *mut c_void,
        ));
        when_done(code, bytes)
    };
    outside_captures(|| Ok((read(RESERVED_MEM_CURRENT)?, read(USED_MEM_CURRENT)?)))
}

pub(crate) fn trim_graphs(device: CUdevice) -> Called<()> {
    outside_captures(|| when_done(call!(cuDeviceGraphMemTrim(device => CUdevice)), ()))
}

/// What a node of a graph does, as far as memory is concerned.
pub(crate) enum NodeMemory {
    /// Takes so many bytes at an address of a device.
    Allocates { device: CUmemLocation, bytes: u64, address: CUdeviceptr },
    /// Gives back what is at an address.
    Frees { address: CUdeviceptr },
    /// What another graph does.
    Child { graph: usize },
    /// Nothing.
    None,
}

/// The nodes of a graph.
pub(crate) fn graph_nodes(graph: usize) -> Called<Vec<usize>> {
    let graph = graph as CUgraph;
    let mut count = 0usize;
    let null = core::ptr::null_mut::<CUgraphNode>();
    when_done(call!(cuGraphGetNodes(graph => CUgraph, null => *mut CUgraphNode, &mut count => *mut usize)), ())?;
    let mut nodes = vec![core::ptr::null_mut(); count];
    let at = nodes.as_mut_ptr();
    let code = call!(cuGraphGetNodes(graph => CUgraph, at => *mut CUgraphNode, &mut count => *mut usize));
    nodes.truncate(count);
    when_done(code, nodes.into_iter().map(|node| node as usize).collect())
}

/// The nodes that `node` waits for.
pub(crate) fn node_dependencies(node: usize) -> Called<Vec<usize>> {
    let node = node as CUgraphNode;
    let (mut count, null) = (0usize, core::ptr::null_mut::<CUgraphNode>());
    // The second form exists where edges may carry data, which the first one then refuses to lose.
    let has_data = real::driver_address(Id(id::cuGraphNodeGetDependencies_v2)).is_some();
    let ask = |nodes: *mut CUgraphNode, data: *mut u64, count: &mut usize| {
        if has_data {
            call!(cuGraphNodeGetDependencies_v2(
                node => CUgraphNode, nodes => *mut CUgraphNode, data.cast() => *mut c_void, count => *mut usize,
            ))
        } else {
            call!(cuGraphNodeGetDependencies(node => CUgraphNode, nodes => *mut CUgraphNode, count => *mut usize))
        }
    };
    when_done(ask(null, core::ptr::null_mut(), &mut count), ())?;
    let (mut nodes, mut data) = (vec![core::ptr::null_mut(); count], vec![0u64; count]);
    let code = if count == 0 { CUresult::SUCCESS } else { ask(nodes.as_mut_ptr(), data.as_mut_ptr(), &mut count) };
    when_done(code, nodes.into_iter().map(|node| node as usize).collect())
}

/// What `node` does with memory.
pub(crate) fn node_memory(node: usize) -> Called<NodeMemory> {
    const CHILD: c_int = 4;
    const ALLOCATION: c_int = 10;
    const FREE: c_int = 11;
    let node = node as CUgraphNode;
    let mut kind: c_int = 0;
    when_done(call!(cuGraphNodeGetType(node => CUgraphNode, &mut kind => *mut c_int)), ())?;
    match kind {
        CHILD => {
            let mut graph: CUgraph = core::ptr::null_mut();
            let code = call!(cuGraphChildGraphNodeGetGraph(node => CUgraphNode, &mut graph => *mut CUgraph));
            when_done(code, NodeMemory::Child { graph: graph as usize })
        }
        ALLOCATION => {
            // SAFETY: plain numbers and pointers, for which zeros are valid.
            let mut made: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { core::mem::zeroed() };
            let at = &raw mut made;
            let code = call!(cuGraphMemAllocNodeGetParams(node => CUgraphNode, at => *mut CUDA_MEM_ALLOC_NODE_PARAMS));
            let (device, bytes) = (made.poolProps.location, made.bytesize as u64);
            when_done(code, NodeMemory::Allocates { device, bytes, address: made.dptr })
        }
        FREE => {
            let mut address: CUdeviceptr = 0;
            let code = call!(cuGraphMemFreeNodeGetParams(node => CUgraphNode, &mut address => *mut CUdeviceptr));
            when_done(code, NodeMemory::Frees { address })
        }
        _ => Ok(NodeMemory::None),
    }
}

pub(crate) fn destroy_context(context: usize) -> Called<()> {
    when_done(call!(cuCtxDestroy_v2(context as CUcontext => CUcontext)), ())
}

pub(crate) fn release_primary(device: CUdevice) -> Called<()> {
    when_done(call!(cuDevicePrimaryCtxRelease_v2(device => CUdevice)), ())
}

pub(crate) fn reset_primary(device: CUdevice) -> Called<()> {
    when_done(call!(cuDevicePrimaryCtxReset_v2(device => CUdevice)), ())
}

pub(crate) fn destroy_green_context(green: usize) -> Called<()> {
    when_done(call!(cuGreenCtxDestroy(green as CUgreenCtx => CUgreenCtx)), ())
}

/// The device of a green context.
pub(crate) fn device_of_green_context(green: usize) -> Option<CUdevice> {
    let mut context: CUcontext = core::ptr::null_mut();
    let code = call!(cuCtxFromGreenCtx(&mut context => *mut CUcontext, green as CUgreenCtx => CUgreenCtx));
    if code.is_success() { super::device_of_context(context as usize) } else { None }
}

pub(crate) fn destroy_external_memory(memory: usize) -> Called<()> {
    when_done(call!(cuDestroyExternalMemory(memory as CUexternalMemory => CUexternalMemory)), ())
}

pub(crate) fn unload_module(module: usize) -> Called<()> {
    when_done(call!(cuModuleUnload(module as CUmodule => CUmodule)), ())
}

pub(crate) fn unload_library(library: usize) -> Called<()> {
    when_done(call!(cuLibraryUnload(library as CUlibrary => CUlibrary)), ())
}

/// A limit of the current context.
pub(crate) fn limit(kind: c_int) -> Called<usize> {
    let mut value = 0usize;
    let code = call!(cuCtxGetLimit(&mut value => *mut usize, kind => c_int));
    when_done(code, value)
}

pub(crate) fn set_limit(kind: c_int, value: usize) -> Called<()> {
    when_done(call!(cuCtxSetLimit(kind => c_int, value => usize)), ())
}

/// An attribute of a device.
pub(crate) fn device_attribute(attribute: c_int, device: CUdevice) -> Called<u64> {
    let mut value: c_int = 0;
    let code = call!(cuDeviceGetAttribute(&mut value => *mut c_int, attribute => c_int, device => CUdevice));
    when_done(code, u64::try_from(value).unwrap_or(0))
}
