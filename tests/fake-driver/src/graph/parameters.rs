//! Between what nodes do and the structures in which the API says it.

use super::memory::Allocation;
use super::{Copy3d, Fill, Graph, Node, Payload, graph_handle};
use crate::args::{Answer, get, slice};
use crate::copy::Rows;
use crate::event::EVENTS;
use crate::launch::{KernelCall, Shape};
use crate::registry::{handle_of, pointer};
use crate::state;
use crate::stream::callbacks::HostFunction;
use crate::stream::values::parse_all;
use core::ptr::null_mut;
use driver_api::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CHILD_GRAPH_NODE_PARAMS, CUDA_EVENT_RECORD_NODE_PARAMS,
    CUDA_EVENT_WAIT_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_HOST_NODE_PARAMS_v2, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEM_FREE_NODE_PARAMS, CUDA_MEMCPY_NODE_PARAMS,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v2, CUcontext, CUgraphNodeParams, CUmemLocation,
    CUmemPoolProps, CUresult,
};

/// A kernel; it may be named as a function or as a library's kernel.
pub(super) fn kernel(parameters: &CUDA_KERNEL_NODE_PARAMS) -> Answer<Payload> {
    let handle = if parameters.func.is_null() { parameters.kern } else { parameters.func };
    let shape = Shape {
        grid: [parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ],
        block: [parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ],
        shared_bytes: parameters.sharedMemBytes,
    };
    Ok(Payload::Kernel(KernelCall::new(handle, shape, parameters.kernelParams, parameters.extra)?))
}

pub(super) fn kernel_v1(parameters: &CUDA_KERNEL_NODE_PARAMS_v1) -> Answer<Payload> {
    kernel(&CUDA_KERNEL_NODE_PARAMS {
        func: parameters.func,
        gridDimX: parameters.gridDimX,
        gridDimY: parameters.gridDimY,
        gridDimZ: parameters.gridDimZ,
        blockDimX: parameters.blockDimX,
        blockDimY: parameters.blockDimY,
        blockDimZ: parameters.blockDimZ,
        sharedMemBytes: parameters.sharedMemBytes,
        kernelParams: parameters.kernelParams,
        extra: parameters.extra,
        kern: null_mut(),
        ctx: null_mut(),
    })
}

/// As a kernel node's parameters are read back: pointers to the copies, null where sizes are unknown.
pub(super) fn kernel_parameters(call: &KernelCall) -> Answer<CUDA_KERNEL_NODE_PARAMS> {
    let kernel = pointer(call.kernel);
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: if kernel.is_null() { call.function.handle() } else { null_mut() },
        gridDimX: call.shape.grid[0],
        gridDimY: call.shape.grid[1],
        gridDimZ: call.shape.grid[2],
        blockDimX: call.shape.block[0],
        blockDimY: call.shape.block[1],
        blockDimZ: call.shape.block[2],
        sharedMemBytes: call.shape.shared_bytes,
        kernelParams: call.arguments.as_ref().map_or(null_mut(), |arguments| arguments.pointers()),
        extra: null_mut(),
        kern: kernel,
        ctx: call.function.context()?.pointer(),
    })
}

pub(super) fn kernel_parameters_v1(call: &KernelCall) -> Answer<CUDA_KERNEL_NODE_PARAMS_v1> {
    let new = kernel_parameters(call)?;
    Ok(CUDA_KERNEL_NODE_PARAMS_v1 {
        func: call.function.handle(),
        gridDimX: new.gridDimX,
        gridDimY: new.gridDimY,
        gridDimZ: new.gridDimZ,
        blockDimX: new.blockDimX,
        blockDimY: new.blockDimY,
        blockDimZ: new.blockDimZ,
        sharedMemBytes: new.sharedMemBytes,
        kernelParams: new.kernelParams,
        extra: new.extra,
    })
}

/// A copy, checked as one in a stream would be.
pub(super) fn copy(parameters: &CUDA_MEMCPY3D, context: CUcontext) -> Answer<Payload> {
    state::context(context)?;
    Rows::new(parameters)?;
    Ok(Payload::Copy(Copy3d(*parameters)))
}

pub(super) fn fill(parameters: &CUDA_MEMSET_NODE_PARAMS_v2) -> Answer<Payload> {
    state::context(parameters.ctx)?;
    Fill::new(parameters).map(Payload::Fill)
}

pub(super) fn fill_v1(parameters: &CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> Answer<Payload> {
    fill(&CUDA_MEMSET_NODE_PARAMS_v2 {
        dst: parameters.dst,
        pitch: parameters.pitch,
        value: parameters.value,
        elementSize: parameters.elementSize,
        width: parameters.width,
        height: parameters.height,
        ctx: context,
    })
}

pub(super) fn fill_parameters(fill: &Fill) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: fill.destination,
        pitch: fill.pitch,
        value: fill.value,
        elementSize: fill.element_bytes,
        width: fill.width,
        height: fill.height,
    }
}

pub(super) fn host(parameters: &CUDA_HOST_NODE_PARAMS) -> Answer<Payload> {
    HostFunction::new(parameters.r#fn, parameters.userData).map(Payload::Host)
}

pub(super) fn host_parameters(host: HostFunction) -> CUDA_HOST_NODE_PARAMS {
    let (function, argument) = host.parts();
    CUDA_HOST_NODE_PARAMS { r#fn: function, userData: argument }
}

pub(super) fn words(parameters: &CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Answer<Payload> {
    state::context(parameters.ctx)?;
    if parameters.flags != 0 || parameters.count > 256 {
        return Err(CUresult::INVALID_VALUE);
    }
    parse_all(slice(parameters.paramArray, parameters.count as usize)?).map(Payload::Words)
}

/// A copy of a graph as a child; graphs with memory nodes can only be moved there.
pub(super) fn child(graph: &Graph) -> Answer<Payload> {
    if graph.has_memory_nodes() {
        return Err(CUresult::NOT_SUPPORTED);
    }
    Ok(Payload::Child(graph.duplicate_owned()))
}

/// An allocation on the device that the pool's properties name.
pub(super) fn allocation(parameters: &CUDA_MEM_ALLOC_NODE_PARAMS) -> Answer<std::sync::Arc<Allocation>> {
    const DEVICE: i32 = 1;
    const PINNED: i32 = 1;
    let props = &parameters.poolProps;
    if props.location.kind != DEVICE || props.allocType != PINNED || props.handleTypes != 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    slice(parameters.accessDescs, parameters.accessDescCount)?;
    Allocation::on(state::device(props.location.id)?, parameters.bytesize as u64)
}

pub(super) fn allocation_parameters(allocation: &Allocation) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: CUmemPoolProps {
            allocType: 1,
            handleTypes: 0,
            location: CUmemLocation { kind: 1, id: allocation.ordinal() },
            win32SecurityAttributes: null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        },
        accessDescs: core::ptr::null(),
        accessDescCount: 0,
        bytesize: usize::try_from(allocation.bytes).unwrap_or(usize::MAX),
        dptr: allocation.address(),
    }
}

/// Reads the member of the union that the node's type says. Allocations are left to the caller.
pub(super) fn generic(parameters: &CUgraphNodeParams) -> Answer<Payload> {
    let union = parameters.words.as_ptr();
    match parameters.r#type {
        0 => kernel(&get(union.cast())?),
        1 => {
            let copy_parameters: CUDA_MEMCPY_NODE_PARAMS = get(union.cast())?;
            copy(&copy_parameters.copyParams, copy_parameters.copyCtx)
        }
        2 => fill(&get(union.cast())?),
        3 => host(&get(union.cast::<CUDA_HOST_NODE_PARAMS>())?),
        4 => {
            let child_parameters: CUDA_CHILD_GRAPH_NODE_PARAMS = get(union.cast())?;
            let graph = Graph::find(child_parameters.graph)?;
            match child_parameters.ownership {
                0 => child(&graph),
                1 => {
                    graph.is_owned.store(true, core::sync::atomic::Ordering::Relaxed);
                    Ok(Payload::Child(graph))
                }
                _ => Err(CUresult::INVALID_VALUE),
            }
        }
        5 => Ok(Payload::Empty),
        6 => Ok(Payload::EventWait(EVENTS.get(get(union.cast::<CUDA_EVENT_WAIT_NODE_PARAMS>())?.event)?)),
        7 => Ok(Payload::EventRecord(EVENTS.get(get(union.cast::<CUDA_EVENT_RECORD_NODE_PARAMS>())?.event)?)),
        10 => allocation(&get(union.cast())?).map(Payload::Allocation),
        11 => Allocation::to_free(get(union.cast::<CUDA_MEM_FREE_NODE_PARAMS>())?.dptr).map(Payload::Free),
        12 => words(&get(union.cast())?),
        8 | 9 | 13..=18 => Err(CUresult::NOT_SUPPORTED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// The same for a change of a node, which can't make memory nodes of others, nor change them.
pub(super) fn generic_change(parameters: &CUgraphNodeParams) -> Answer<Payload> {
    match parameters.r#type {
        10 | 11 => Err(CUresult::INVALID_VALUE),
        _ => generic(parameters),
    }
}

/// Writes a structure over the beginning of the union.
fn lay<T: Copy>(out: &mut CUgraphNodeParams, value: T) -> Answer {
    const { assert!(size_of::<T>() <= 232, "every member fits the union") };
    crate::args::put(out.words.as_mut_ptr().cast::<T>(), value)
}

/// The parameters of a node in the union's form.
pub(super) fn of_node(node: &Node) -> Answer<CUgraphNodeParams> {
    let payload = node.payload();
    let mut out = CUgraphNodeParams { r#type: payload.kind(), reserved0: [0; 3], words: [0; 29], reserved2: 0 };
    match payload {
        Payload::Kernel(call) => lay(&mut out, kernel_parameters(&call)?)?,
        Payload::Copy(Copy3d(copy)) => {
            lay(&mut out, CUDA_MEMCPY_NODE_PARAMS { flags: 0, reserved: 0, copyCtx: null_mut(), copyParams: copy })?;
        }
        Payload::Fill(fill) => lay(&mut out, fill_parameters(&fill))?,
        Payload::Host(host) => {
            let (function, argument) = host.parts();
            let new = CUDA_HOST_NODE_PARAMS_v2 { r#fn: function, userData: argument, syncMode: 0, ctx: null_mut() };
            lay(&mut out, new)?;
        }
        Payload::Child(graph) => {
            lay(&mut out, CUDA_CHILD_GRAPH_NODE_PARAMS { graph: graph_handle(&graph), ownership: -1 })?;
        }
        Payload::Empty => {}
        Payload::EventWait(event) => {
            lay(&mut out, CUDA_EVENT_WAIT_NODE_PARAMS { event: pointer(handle_of(&event)) })?;
        }
        Payload::EventRecord(event) => {
            let event = pointer(handle_of(&event));
            lay(&mut out, CUDA_EVENT_RECORD_NODE_PARAMS { event, ctx: null_mut() })?;
        }
        Payload::Allocation(allocation) => lay(&mut out, allocation_parameters(&allocation))?,
        Payload::Free(allocation) => lay(&mut out, CUDA_MEM_FREE_NODE_PARAMS { dptr: allocation.address() })?,
        Payload::Words(_) => lay(&mut out, words_parameters(node)?)?,
    }
    Ok(out)
}

/// A batch of a node, whose array the node keeps.
pub(super) fn words_parameters(node: &Node) -> Answer<CUDA_BATCH_MEM_OP_NODE_PARAMS> {
    let Payload::Words(operations) = node.payload() else { return Err(CUresult::INVALID_VALUE) };
    let mut shown = node.shown.lock();
    *shown = operations.iter().map(|operation| operation.parameters()).collect();
    Ok(CUDA_BATCH_MEM_OP_NODE_PARAMS {
        ctx: null_mut(),
        count: u32::try_from(shown.len()).unwrap_or(0),
        paramArray: shown.as_mut_ptr(),
        flags: 0,
    })
}
