//! Attributes of kernel nodes: remembered, and copied with the node.

use super::{Node, Payload, find_node};
use crate::args::{Answer, get, put};
use crate::entry::Call;
use driver_api::{CUgraphNode, CUkernelNodeAttrID, CUkernelNodeAttrValue, CUlaunchAttributeValue, CUresult};
use std::sync::Arc;

/// The attributes that kernel nodes have.
const KNOWN: &[CUkernelNodeAttrID] = &[1, 2, 4, 5, 8, 9, 10, 11, 13, 14];

fn kernel_node(node: CUgraphNode, attribute: CUkernelNodeAttrID) -> Answer<Arc<Node>> {
    let node = find_node(node)?;
    let is_kernel = matches!(&*node.payload.lock(), Payload::Kernel(_));
    if is_kernel && KNOWN.contains(&attribute) { Ok(node) } else { Err(CUresult::INVALID_VALUE) }
}

pub(crate) fn cuGraphKernelNodeGetAttribute(
    _: &Call,
    node: CUgraphNode,
    attribute: CUkernelNodeAttrID,
    value: *mut CUkernelNodeAttrValue,
) -> Answer {
    let node = kernel_node(node, attribute)?;
    let known = node.attributes.lock().get(&attribute).copied();
    put(value, known.unwrap_or(CUlaunchAttributeValue { words: [0; 8] }))
}

pub(crate) fn cuGraphKernelNodeSetAttribute(
    _: &Call,
    node: CUgraphNode,
    attribute: CUkernelNodeAttrID,
    value: *const CUkernelNodeAttrValue,
) -> Answer {
    let node = kernel_node(node, attribute)?;
    let value = get(value)?;
    node.attributes.lock().insert(attribute, value);
    Ok(())
}

pub(crate) fn cuGraphKernelNodeCopyAttributes(_: &Call, to: CUgraphNode, from: CUgraphNode) -> Answer {
    let (to, from) = (kernel_node(to, KNOWN[0])?, kernel_node(from, KNOWN[0])?);
    let copied = from.attributes.lock().clone();
    *to.attributes.lock() = copied;
    Ok(())
}
