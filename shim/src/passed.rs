// Why symbols that need handling are passed on all the same. Data, read by the build script (which refuses
// to build a shim with a symbol that is neither hooked nor named here, or is both) and by the census test.

/// One reason and the base names it holds for.
pub struct Passed {
    /// Why the program's call may go to the driver as it is.
    pub reason: &'static str,
    /// What the reason holds for.
    pub what: What,
}

/// A set of symbols.
pub enum What {
    /// Every symbol of these classes (names of `driver_api::Class`).
    Classes(&'static [&'static str]),
    /// Symbols whose answers the list does not mark as virtualised, of these classes.
    TruthfulAnswers(&'static [&'static str]),
    /// Symbols charged in one of these ways (the list's `charge_kinds`).
    Charged(&'static [&'static str]),
    /// Symbols that free in one of these ways (the list's `free_kinds`).
    Freed(&'static [&'static str]),
    /// These base names.
    Names(&'static [&'static str]),
}

/// All reasons, the first that fits counts.
pub const PASSED: &[Passed] = &[
    Passed { reason: "runs on the host, takes no device time, and may wait for another thread's launch, which must not wait for it", what: What::Names(&["cuLaunchHostFunc", "cuStreamAddCallback"]) },
    Passed { reason: "is done by the front end in no time, or waits, maybe for another thread's launch, which must not wait for it", what: What::Names(&[
        "cuStreamBatchMemOp", "cuStreamWaitValue32", "cuStreamWaitValue64", "cuStreamWriteValue32", "cuStreamWriteValue64",
        "cuSignalExternalSemaphoresAsync", "cuWaitExternalSemaphoresAsync",
    ]) },
    Passed { reason: "tells the truth about the hardware, which programs size their kernels by", what: What::TruthfulAnswers(&["Query", "QueryMem", "QueryUtil"]) },
    Passed { reason: "takes no device memory of its own", what: What::Charged(&["va_only", "host_pinned", "driver_overhead", "multicast"]) },
    Passed { reason: "the memory is the exporter's or another API's, charged there or not at all", what: What::Charged(&["import", "external"]) },
    Passed { reason: "a node takes no memory; the graph does, when it is launched", what: What::Charged(&["graph_node"]) },
    Passed { reason: "gives back what was never charged", what: What::Freed(&["driver_overhead", "external", "graph", "host", "ipc", "va"]) },
    Passed { reason: "changes the current context, which hooks ask the driver for", what: What::Names(&["cuCtxAttach", "cuCtxFromGreenCtx", "cuCtxGetCurrent", "cuCtxPopCurrent", "cuCtxPushCurrent", "cuCtxSetCurrent", "cuCtxSetFlags", "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxSetFlags"]) },
    Passed { reason: "private tables must reach the driver unchanged", what: What::Names(&["cuGetExportTable", "nvmlInternalGetExportTable", "nvmlRetry_NvRmControl"]) },
    Passed { reason: "hooks ask the driver which stream is capturing and which pool is current", what: What::Names(&[
        "cuThreadExchangeStreamCaptureMode",
        "cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool", "cuDeviceSetMemPool", "cuMemGetDefaultMemPool", "cuMemGetMemPool", "cuMemSetMemPool",
    ]) },
    Passed { reason: "moves or describes memory that is charged where it was allocated", what: What::Names(&[
        "cuMemAdvise", "cuStreamAttachMemAsync", "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess",
        "cuMemPoolExportPointer", "cuMemPoolExportToShareableHandle",
        "cuGraphicsMapResources", "cuGraphicsUnmapResources", "cuGLMapBufferObject", "cuGLMapBufferObjectAsync",
        "cuGLUnmapBufferObject", "cuGLUnmapBufferObjectAsync",
    ]) },
    Passed { reason: "changes what a graph is, which is asked of the driver when it is instantiated, or what can't change its memory", what: What::Names(&[
        "cuGraphAddChildGraphNode", "cuGraphAddMemFreeNode", "cuGraphExecUpdate", "cuDeviceSetGraphMemAttribute",
    ]) },
    Passed { reason: "moves no memory", what: What::Names(&["cuCheckpointOperationComplete", "cuCheckpointProcessLock", "cuCheckpointProcessUnlock"]) },
    Passed { reason: "says nothing about memory", what: What::Names(&["cuDeviceRegisterAsyncNotification", "cuDeviceUnregisterAsyncNotification", "cuFuncSetBlockShape"]) },
    Passed { reason: "pool attributes are the pool's own truth", what: What::Names(&["cuMemPoolGetAttribute"]) },
    Passed { reason: "device identity, events, health and control are the driver's business", what: What::Classes(&["Enum", "Mig", "MigControl", "Event", "Health", "Lifecycle", "Control"]) },
    Passed { reason: "utilisation and per-process accounting are not virtualised yet", what: What::Names(&[
        "nvmlDeviceGetAccountingBufferSize", "nvmlDeviceGetAccountingMode", "nvmlDeviceGetAccountingPids", "nvmlDeviceGetAccountingStats",
        "nvmlDeviceGetConfComputeMemSizeInfo", "nvmlDeviceGetConfComputeProtectedMemoryUsage", "nvmlDeviceGetAttributes",
        "nvmlDeviceGetFieldValues", "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo", "nvmlDeviceGetSamples",
        "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetDecoderUtilization", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetJpgUtilization",
        "nvmlDeviceGetOfaUtilization", "nvmlDeviceGetDynamicPstatesInfo", "nvmlDevicePerfMetricsGetSamples", "nvmlSystemGetProcessName",
        "nvmlGpmMetricsGet", "nvmlDeviceGetRunningProcessDetailList",
    ]) },
];
