//! What programs asked of the driver, by its journal, without the shim's own questions.

use serde_json::Value;
use std::collections::HashMap;

/// Calls that the shim makes of its own accord: questions that change nothing.
const OWN_QUESTIONS: [&str; 35] = [
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetUuid_v2",
    // Where it differs from the other, the device is a MIG instance.
    "cuDeviceGetUuid",
    "cuDeviceTotalMem_v2",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuDevicePrimaryCtxGetState",
    "cuCtxFromGreenCtx",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuStreamIsCapturing_ptsz",
    "cuDeviceGetMemPool",
    "cuDeviceGetDefaultMemPool",
    "cuMemPoolGetAttribute",
    // Whether a device has room for a whole step of a pool.
    "cuMemGetInfo_v2",
    "cuThreadExchangeStreamCaptureMode",
    "cuDeviceGetAttribute",
    "cuMemGetInfo_v2",
    "cuDeviceGetGraphMemAttribute",
    "cuCtxGetLimit",
    "cuGraphGetNodes",
    "cuGraphNodeGetType",
    "cuGraphNodeGetDependencies_v2",
    "cuGraphMemAllocNodeGetParams",
    "cuGraphMemFreeNodeGetParams",
    "cuGraphChildGraphNodeGetGraph",
    // Whether what the driver refuses was done by one that was killed before it was booked.
    "cuCheckpointProcessGetState",
    // Measurements: NVML is asked what this process holds.
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetComputeRunningProcesses_v3",
];

const OUT_OF_MEMORY: i64 = 2;

/// Calls of one process in their order, each with its answer.
pub type Asked = Vec<(String, i64)>;

/// What each process of a program asked of the driver itself, in order and each with its answer; not what did not fit, which
/// the quota refuses without asking. A thread of these programs that calls the driver does so while the others wait.
pub fn asked(journal: &[Value]) -> Vec<Asked> {
    let mut processes: HashMap<i64, Asked> = HashMap::new();
    for call in journal {
        let function = call["function"].as_str().expect("a name").to_owned();
        let result = call["result"].as_i64().expect("a code");
        let process = processes.entry(call["pid"].as_i64().expect("a pid")).or_default();
        if result != OUT_OF_MEMORY && !OWN_QUESTIONS.contains(&function.as_str()) {
            process.push((function, result));
        }
    }
    let mut processes: Vec<_> = processes.into_values().collect();
    processes.sort();
    processes
}
