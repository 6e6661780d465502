//! A simulated libnvidia-ml.so.1.
