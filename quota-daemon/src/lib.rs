//! The node daemon gpuquotad and the command gpuquota.
