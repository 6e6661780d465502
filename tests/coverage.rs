//! Every driver function that matters to a quota, by name: each symbol of it, of every age and for either default stream, runs
//! a scenario of its own (`programs/coverage`) without the shim, under it, and where that says more under a small quota. What
//! submits work is called under a compute cap, which counts it.

#[path = "coverage/functions.rs"]
mod functions;
#[path = "coverage/launches.rs"]
mod launches;
#[path = "coverage/lists.rs"]
mod lists;
#[path = "coverage/scenario.rs"]
mod scenario;
