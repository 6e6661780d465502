//! Report 19.11: a function that could take memory or device time by its name is hooked, or somebody has looked at it.
//!
//! Whole classes are passed for one reason, and what the list calls harmless is passed without one. A function that comes with
//! a new release and lands there by mistake would be missed. So what has one of these words in its name is named here, each
//! with what was found; a new one fails the test until somebody has.

use super::{PASSED, What, hooks};
use driver_api::{SYMBOLS, Symbol};
use std::collections::BTreeSet;

/// Functions with these in their names take, make or start something.
const WORDS: [&str; 4] = ["Alloc", "Create", "Launch", "Mem"];

/// What was found, and of which functions, by their base names.
const REVIEWED: &[(&str, &[&str])] = &[
    (
        "asks how much something takes, or has, and takes nothing",
        &[
            "cuArrayGetMemoryRequirements",
            "cuMipmappedArrayGetMemoryRequirements",
            "cuMemGetAllocationGranularity",
            "cuMemGetAllocationPropertiesFromHandle",
            "cuMemGetAddressRange",
            "cuDeviceGetGraphMemAttribute",
            "cuOccupancyAvailableDynamicSMemPerBlock",
            "nvmlDeviceGetBAR1MemoryInfo",
        ],
    ),
    (
        "asks what a pointer or a range is, which must be the driver's own word",
        &[
            "cuMemGetAccess",
            "cuMemGetAttribute",
            "cuMemGetLocationInfo",
            "cuMemHostGetDevicePointer",
            "cuMemHostGetFlags",
            "cuMemPoolGetAccess",
            "cuMemRangeGetAttribute",
            "cuMemRangeGetAttributes",
        ],
    ),
    (
        "says who may reach memory that is charged already: entries of page tables",
        &["cuMemPoolSetAccess", "cuMemSetAccess"],
    ),
    (
        "divides a multiprocessor's own memory, of which none is the device's",
        &["cuCtxGetSharedMemConfig", "cuCtxSetSharedMemConfig", "cuFuncSetSharedMemConfig"],
    ),
    (
        "changes or reads a graph that doesn't run: it is asked for its memory when it is instantiated, and paced when it is launched",
        &[
            "cuGraphCreate",
            "cuGraphAddBatchMemOpNode",
            "cuGraphAddMemAllocNode",
            "cuGraphAddMemcpyNode",
            "cuGraphAddMemsetNode",
            "cuGraphBatchMemOpNodeGetParams",
            "cuGraphBatchMemOpNodeSetParams",
            "cuGraphConditionalHandleCreate",
            "cuGraphMemAllocNodeGetParams",
            "cuGraphMemFreeNodeGetParams",
            "cuGraphMemcpyNodeGetParams",
            "cuGraphMemcpyNodeSetParams",
            "cuGraphMemsetNodeGetParams",
            "cuGraphMemsetNodeSetParams",
        ],
    ),
    (
        "changes arguments of an instantiated graph, and can't change what memory it has",
        &["cuGraphExecBatchMemOpNodeSetParams", "cuGraphExecMemcpyNodeSetParams", "cuGraphExecMemsetNodeSetParams"],
    ),
    (
        "takes memory of the host, or shows that to the device",
        &["cuMemAllocHost", "cuMemFreeHost", "cuMemHostAlloc", "cuMemHostRegister", "cuMemHostUnregister"],
    ),
    ("takes addresses, of which there are enough, and no memory", &["cuMemAddressReserve", "cuMemAddressFree"]),
    (
        "shows memory that another process or API has allocated, and is charged for",
        &[
            "cuIpcOpenMemHandle",
            "cuIpcCloseMemHandle",
            "cuMemPoolImportPointer",
            "cuExternalMemoryGetMappedBuffer",
            "cuExternalMemoryGetMappedMipmappedArray",
        ],
    ),
    (
        "makes an object without memory of its own, to which memory is bound by functions that are hooked",
        &["cuMulticastCreate", "cuLogicalEndpointCreate"],
    ),
    (
        "makes a small object of the driver's, from what the context has: seen by measurement where it grows",
        &[
            "cuEventCreate",
            "cuEventCreateFromEGLSync",
            "cuStreamCreate",
            "cuStreamCreateWithPriority",
            "cuGreenCtxStreamCreate",
            "cuSurfObjectCreate",
            "cuTexObjectCreate",
            "cuTexRefCreate",
        ],
    ),
    (
        "works on the host: links code, describes tensors, counts references, writes logs",
        &["cuLinkCreate", "cuTensorMapSetAllocationClass", "cuUserObjectCreate", "cuLogsDumpToMemory"],
    ),
    (
        "reads clocks, errors, links or widths of the device's memory",
        &[
            "nvmlDeviceGetMemClkMinMaxVfOffset",
            "nvmlDeviceGetMemClkVfOffset",
            "nvmlDeviceGetMemoryAffinity",
            "nvmlDeviceGetMemoryBusWidth",
            "nvmlDeviceGetMemoryErrorCounter",
            "nvmlDeviceGetSupportedMemoryClocks",
            "nvmlDeviceGetUnrepairableMemoryFlag",
        ],
    ),
    (
        "changes the device itself, for which the driver demands an administrator",
        &[
            "nvmlDeviceCreateGpuInstance",
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            "nvmlGpuInstanceCreateComputeInstance",
            "nvmlGpuInstanceCreateComputeInstanceWithPlacement",
            "nvmlDeviceResetMemoryLockedClocks",
            "nvmlDeviceSetConfComputeUnprotectedMemSize",
            "nvmlDeviceSetMemClkVfOffset",
            "nvmlDeviceSetMemoryLockedClocks",
        ],
    ),
    (
        "reads and sets the driver's own limits of control groups, an administrator's too; ours hold whatever they are",
        &["nvmlDeviceGetMemoryLimits", "nvmlDeviceSetMemoryLimits"],
    ),
    (
        "makes an object of NVML's on the host",
        &["nvmlEventSetCreate", "nvmlGpmSampleAlloc", "nvmlSystemEventSetCreate"],
    ),
];

fn has_a_word(symbol: &Symbol) -> bool {
    WORDS.iter().any(|word| symbol.name.contains(word) || symbol.base.contains(word))
}

/// Hooked, passed by its name (`shim/src/passed.rs`), or reviewed above.
fn is_decided(symbol: &Symbol, hooks: &BTreeSet<String>) -> bool {
    let by_name = PASSED.iter().any(|passed| match passed.what {
        What::Names(names) => names.contains(&symbol.base),
        _ => false,
    });
    hooks.contains(symbol.abi) || by_name || REVIEWED.iter().any(|(_, names)| names.contains(&symbol.base))
}

#[test]
fn what_may_take_something_by_its_name_is_hooked_or_reviewed() {
    let hooks = hooks();
    let with_a_word: Vec<&Symbol> = SYMBOLS.iter().filter(|symbol| has_a_word(symbol)).collect();
    assert!(with_a_word.len() > 200, "{}", with_a_word.len());
    let open: BTreeSet<&str> =
        with_a_word.iter().filter(|symbol| !is_decided(symbol, &hooks)).map(|symbol| symbol.base).collect();
    assert!(
        open.is_empty(),
        "neither hooked nor reviewed: {open:?}; what does each take? Hook it, or say in tests/census/decided.rs why not"
    );
}

#[test]
fn what_was_reviewed_is_there_is_passed_and_is_named_once() {
    let hooks = hooks();
    let mut seen = BTreeSet::new();
    for (reason, names) in REVIEWED {
        assert!(reason.split(' ').count() >= 3, "{reason:?} is no reason");
        for name in *names {
            let of_that_name: Vec<&Symbol> = SYMBOLS.iter().filter(|symbol| symbol.base == *name).collect();
            assert!(!of_that_name.is_empty(), "there is no {name}");
            assert!(seen.insert(*name), "{name} is named twice");
            assert!(of_that_name.iter().any(|symbol| has_a_word(symbol)), "{name} needs no review");
            let hooked: Vec<&str> =
                of_that_name.iter().map(|symbol| symbol.abi).filter(|abi| hooks.contains(*abi)).collect();
            assert!(hooked.is_empty(), "{hooked:?} are hooked");
        }
    }
}

/// A function of tomorrow, whatever class it is put into, is noticed.
#[test]
fn a_new_function_is_not_decided() {
    let hooks = hooks();
    let known = SYMBOLS.iter().find(|symbol| symbol.name == "cuMemGetAddressRange_v2").expect("it is listed");
    for name in ["cuMemAllocTomorrow", "cuGraphCreateFromFile", "cuLaunchSwarm", "nvmlDeviceSetMemoryMode"] {
        for class in SYMBOLS.iter().map(|symbol| symbol.class) {
            let new = Symbol { name, abi: name, base: name, class, params: None, ..symbol_like(known) };
            assert!(has_a_word(&new) && !is_decided(&new, &hooks), "{name} {class:?}");
        }
    }
}

fn symbol_like(known: &Symbol) -> Symbol {
    Symbol {
        name: known.name,
        abi: known.abi,
        base: known.base,
        library: known.library,
        class: known.class,
        per_thread: known.per_thread,
        virtualised: known.virtualised,
        charge: known.charge,
        free: known.free,
        params: known.params,
    }
}
