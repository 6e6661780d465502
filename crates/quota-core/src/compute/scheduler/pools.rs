//! Tenants that share what one pool gets: a pool is a queue of its own under that of its class, with the pool's weight, while
//! it has tenants there.

use super::tree::{Node, Tree};
use super::{Pool, Scheduler, Share};
use std::collections::BTreeMap;

/// The queues of pools, by the queue that they are under.
#[derive(Clone, Debug, Default)]
pub(super) struct Pools(BTreeMap<(Node, u64), Node>);

impl Scheduler {
    /// Under which queue a tenant belongs; that of its pool is made where there is none yet.
    pub(super) fn queue(&mut self, share: &Share) -> Node {
        let root = self.root(share);
        let Some(Pool { id, weight }) = share.pool else { return root };
        let tree: &mut Tree = &mut self.tree;
        let queue = *self.pools.0.entry((root, id)).or_insert_with(|| tree.add(Some(root), weight.max(1)));
        self.tree.set_weight(queue, weight);
        queue
    }

    /// Takes out the queues of pools that have no tenant any more.
    pub(super) fn drop_empty_pools(&mut self) {
        let Self { pools, members, tree, .. } = self;
        let used = |queue: Node| members.values().any(|member| tree.parent(member.node) == Some(queue));
        let empty: Vec<(Node, u64)> = pools.0.iter().filter(|(_, queue)| !used(**queue)).map(|(at, _)| *at).collect();
        for at in empty {
            if let Some(queue) = self.pools.0.remove(&at) {
                self.tree.remove(queue, self.now, self.quantum_ns());
            }
        }
    }
}
