//! Memory shared with other processes by `cuIpc*MemHandle`.
