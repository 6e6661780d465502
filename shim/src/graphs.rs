//! Memory that graphs allocate: nothing when a node is made, all of it when the graph is launched.
//!
//! What a launch will need is known once the graph is instantiated, and is asked of the driver then: nodes come
//! by many calls, by capture and by cloning. Launches of graphs without such nodes cost one load here.

use crate::account::{self, Account, Held};
use crate::calls::{self, NodeMemory};
use crate::flight::Flight;
use crate::hooks::vmm::device_of_location;
use crate::hooks::{Answer, Refusal};
use crate::pools::{self, Source};
use crate::process::process;
use core::sync::atomic::{AtomicUsize, Ordering};
use driver_api::layout::{DEVICE_PAGE, round_up};
use driver_api::{CUdevice, CUdeviceptr, CUresult};
use std::collections::{HashMap, VecDeque};

/// How deep graphs may lie within graphs; CUDA itself has no graph this deep.
const DEPTH_MAX: usize = 64;

/// What the instantiated graphs of the process will allocate.
#[derive(Default)]
pub(crate) struct Graphs {
    plans: HashMap<usize, Plan>,
}

/// How many plans there are: launches look no further while there are none.
static PLANS: AtomicUsize = AtomicUsize::new(0);

/// What a launch of one graph allocates, by device.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    devices: Vec<Need>,
    /// A launch first frees what the last one left.
    frees_first: bool,
    launched: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Need {
    device: CUdevice,
    now: u64,
    /// The most that is alive at a time, in the order in which we walk.
    peak: u64,
    /// All allocations together: no order of branches needs more.
    total: u64,
}

/// Asks the driver what a launch of `graph` will allocate; `None` for nothing.
pub(crate) fn plan_of(graph: usize, frees_first: bool) -> Option<Plan> {
    let mut walk = Walk::default();
    // A graph that can't be read is the driver's to refuse.
    walk.graph(graph, DEPTH_MAX).ok()?;
    let plan = Plan { devices: walk.needs, frees_first, launched: false };
    (!plan.devices.is_empty()).then_some(plan)
}

#[derive(Default)]
struct Walk {
    needs: Vec<Need>,
    live: HashMap<CUdeviceptr, (CUdevice, u64)>,
}

impl Walk {
    fn graph(&mut self, graph: usize, depth_left: usize) -> Result<(), CUresult> {
        let nodes = calls::graph_nodes(graph)?;
        let memory = nodes.iter().map(|node| calls::node_memory(*node)).collect::<Result<Vec<_>, _>>()?;
        if memory.iter().all(|memory| matches!(memory, NodeMemory::None)) {
            return Ok(());
        }
        for at in in_order(&nodes)? {
            match &memory[at] {
                NodeMemory::Allocates { device, bytes, address } => {
                    if let Some(device) = device_of_location(*device) {
                        self.allocate(device, round_up(*bytes, DEVICE_PAGE).unwrap_or(u64::MAX), *address);
                    }
                }
                NodeMemory::Frees { address } => self.free(*address),
                NodeMemory::Child { graph } if depth_left > 0 => self.graph(*graph, depth_left - 1)?,
                NodeMemory::Child { .. } | NodeMemory::None => {}
            }
        }
        Ok(())
    }

    fn allocate(&mut self, device: CUdevice, bytes: u64, address: CUdeviceptr) {
        self.live.insert(address, (device, bytes));
        let at = self.needs.iter().position(|need| need.device == device).unwrap_or_else(|| {
            self.needs.push(Need { device, now: 0, peak: 0, total: 0 });
            self.needs.len() - 1
        });
        let need = &mut self.needs[at];
        need.now = need.now.saturating_add(bytes);
        need.peak = need.peak.max(need.now);
        need.total = need.total.saturating_add(bytes);
    }

    fn free(&mut self, address: CUdeviceptr) {
        if let Some((device, bytes)) = self.live.remove(&address)
            && let Some(need) = self.needs.iter_mut().find(|need| need.device == device)
        {
            need.now -= bytes;
        }
    }
}

/// Places of the nodes in an order that keeps the edges.
fn in_order(nodes: &[usize]) -> Result<Vec<usize>, CUresult> {
    let places: HashMap<usize, usize> = nodes.iter().enumerate().map(|(at, node)| (*node, at)).collect();
    let mut waits = vec![0usize; nodes.len()];
    let mut after = vec![Vec::new(); nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        for before in calls::node_dependencies(*node)? {
            if let Some(before) = places.get(&before) {
                waits[at] += 1;
                after[*before].push(at);
            }
        }
    }
    let mut ready: VecDeque<usize> = (0..nodes.len()).filter(|at| waits[*at] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(at) = ready.pop_front() {
        order.push(at);
        for next in &after[at] {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                ready.push_back(*next);
            }
        }
    }
    Ok(order)
}

impl Plan {
    /// Refuses a graph that could never be launched under the quota, whatever else is freed.
    pub(crate) fn admit(&self) -> Answer {
        for need in &self.devices {
            if let Some(account) = account::of_device(need.device)? {
                account.admit(need.peak)?;
            }
        }
        Ok(())
    }

    /// Charges what a launch may add to what the devices keep for graphs.
    fn reserve(&self) -> Result<Vec<(Source, Held)>, Refusal> {
        let mut held = Vec::new();
        for need in &self.devices {
            let Some(account) = account::of_device(need.device)? else { continue };
            held.push((Source::Graphs(need.device), self.reserve_one(account, *need)?));
        }
        Ok(held)
    }

    fn reserve_one(&self, account: Account, need: Need) -> Result<Held, Refusal> {
        let source = Source::Graphs(need.device);
        // What the last launch left is still in use, and goes before this one takes anything.
        let left = if self.frees_first && self.launched { need.now } else { 0 };
        match pools::try_reserve(account, source, need.total, left) {
            Some(held) => Ok(held),
            None => pools::reserve_beside(account, source, need.peak, left),
        }
    }
}

/// Runs `call`, which puts memory behind the allocations of `plan`, between charge and settlement.
pub(crate) fn with_memory(plan: &Plan, call: impl FnOnce() -> Answer) -> Answer {
    let _flight = Flight::enter();
    let held = plan.reserve()?;
    let answer = call();
    // A launch that fails may have taken a part.
    for (source, held) in held {
        pools::settle_forced(source, held);
    }
    answer
}

/// `exec` will allocate as planned.
pub(crate) fn remember(exec: usize, plan: Plan) {
    let before = process().graphs.lock().plans.insert(exec, plan);
    if before.is_none() {
        PLANS.fetch_add(1, Ordering::Relaxed);
    }
}

/// `exec` is about to go; what it would have allocated.
pub(crate) fn forget(exec: usize) -> Option<Plan> {
    if PLANS.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let plan = process().graphs.lock().plans.remove(&exec)?;
    PLANS.fetch_sub(1, Ordering::Relaxed);
    Some(plan)
}

/// What a launch of `exec` will allocate.
pub(crate) fn plan_for(exec: usize) -> Option<Plan> {
    if PLANS.load(Ordering::Relaxed) == 0 {
        return None;
    }
    process().graphs.lock().plans.get(&exec).cloned()
}

/// `exec` has been launched.
pub(crate) fn launched(exec: usize) {
    if let Some(plan) = process().graphs.lock().plans.get_mut(&exec) {
        plan.launched = true;
    }
}
