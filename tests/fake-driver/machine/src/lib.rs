//! The simulated machine: devices as data, memory and time shared by all its processes.
