//! The preloaded library libgpuquota.so.
