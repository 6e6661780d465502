//! Virtual time: who is behind the share of the device that its weight gives it, at every level of a tree.
//!
//! Each inner node is a queue. A child that used the device is moved on by what it used over its weight; the queue's
//! clock is the mean of its children, by weight. Who is not ahead of the clock is eligible, and of these the one with
//! the earliest virtual deadline is served ("earliest eligible virtual deadline first"). All of it in integers, in
//! 2^-20 ns; what a division leaves is carried to the next one.
//!
//! A child that stops competing while it is owed something stays a member of its queue for [`RETENTION_NS`]: that is
//! kept for it, and sleep adds nothing to it. One that is ahead stays where it is, so that its debt is paid off by the
//! others' progress and by nothing else, however long it sleeps.

/// Names a node of the tree.
pub(super) type Node = usize;

/// For how long one that sleeps is still one of those that share: its credit waits for it.
pub(super) const RETENTION_NS: u64 = 1_000_000_000;

const FRACTION_BITS: u32 = 20;

/// The tree of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    entries: Vec<Option<Entry>>,
    charges: u64,
}

/// What of a path a provisional charge changed.
pub(super) struct Saved(Vec<(Node, Place, Clock)>);

#[derive(Clone, Debug)]
struct Entry {
    parent: Option<Node>,
    weight: u64,
    /// The weight is that of its competing children together, or was when there were some.
    summed: bool,
    competes: bool,
    stop: Stop,
    place: Place,
    clock: Clock,
    /// Competing weight of the children.
    active: u64,
    /// The children that compete or did a short time ago.
    members: Vec<Node>,
}

/// Where a node stands among its siblings.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    time: i128,
    deadline: i128,
    rest: i128,
    /// The number of its last charge: among equals, who was served longest ago goes first.
    charge: u64,
}

/// When a node stopped competing, and how far its queue was.
#[derive(Clone, Copy, Debug, Default)]
struct Stop {
    at: u64,
    progress: i128,
}

/// How far a queue is.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// The mean of the members when it was last looked at.
    time: i128,
    /// How far those that compete have come, since the beginning.
    progress: i128,
    rest: i128,
}

impl Tree {
    /// A node under `parent`, or a root, of the given weight; of weight 0, it has that of its children that compete.
    pub(super) fn add(&mut self, parent: Option<Node>, weight: u32) -> Node {
        let time = parent.map_or(0, |parent| self.clock(parent));
        let entry = Entry {
            parent,
            weight: u64::from(weight.max(1)),
            summed: weight == 0,
            competes: false,
            stop: Stop::default(),
            place: Place { time, deadline: time, ..Place::default() },
            clock: Clock::default(),
            active: 0,
            members: Vec::new(),
        };
        if let Some(free) = self.entries.iter().position(Option::is_none) {
            self.entries[free] = Some(entry);
            return free;
        }
        self.entries.push(Some(entry));
        self.entries.len() - 1
    }

    /// Takes a node out that has no children.
    pub(super) fn remove(&mut self, node: Node, now: u64, slice_ns: u64) {
        self.set_competes(node, false, now, slice_ns);
        if let Some(parent) = self.entry(node).parent {
            self.entry_mut(parent).members.retain(|member| *member != node);
        }
        self.entries[node] = None;
    }

    /// Changes a node's weight; its credit or debt stays as much device time as it was.
    pub(super) fn set_weight(&mut self, node: Node, weight: u32) {
        let Some(parent) = self.entry(node).parent else { return };
        let clock = self.clock(parent);
        let entry = self.entry_mut(node);
        let (before, after) = (i128::from(entry.weight), i128::from(weight.max(1)));
        if before == after {
            return;
        }
        entry.weight = u64::from(weight.max(1));
        entry.place.time = clock + (entry.place.time - clock) * before / after;
        entry.place.deadline = clock + (entry.place.deadline - clock) * before / after;
        entry.place.deadline = entry.place.deadline.max(entry.place.time);
        entry.place.rest = 0;
        let mut queue = Some(parent);
        while let Some(node) = queue {
            self.weigh(node);
            queue = self.entry(node).parent;
        }
    }

    /// A leaf begins or ceases to compete, and with it the nodes above it.
    pub(super) fn set_competes(&mut self, leaf: Node, competes: bool, now: u64, slice_ns: u64) {
        let (mut node, mut competes) = (leaf, competes);
        while let Some(parent) = self.entry(node).parent {
            if self.entry(node).competes != competes {
                self.settle(parent, now);
                if competes {
                    self.place(node, parent, slice_ns);
                } else {
                    let Clock { time, progress, .. } = self.entry(parent).clock;
                    let entry = self.entry_mut(node);
                    entry.stop = Stop { at: now, progress };
                    if entry.place.time > time {
                        self.entry_mut(parent).members.retain(|member| *member != node);
                    }
                }
                self.entry_mut(node).competes = competes;
            }
            self.weigh(parent);
            competes = self.entry(parent).active > 0;
            node = parent;
        }
    }

    /// Charges what a leaf used, to it and to all above it. From `bounded` upwards, if given, a node gets no further
    /// ahead of its clock than the device time given: that was its due whatever the weights say.
    pub(super) fn charge(&mut self, leaf: Node, used_ns: u64, bounded: Option<(Node, u64)>, slice_ns: u64) {
        self.charges += 1;
        let charge = self.charges;
        let mut node = leaf;
        let mut ahead = None;
        while let Some(parent) = self.entry(node).parent {
            if let Some((from, ahead_ns)) = bounded
                && from == node
            {
                ahead = Some(ahead_ns);
            }
            let weight = self.weight(node);
            let bound = ahead.map(|ahead_ns| self.clock(parent) + fixed(ahead_ns) / weight);
            let place = &mut self.entry_mut(node).place;
            let before = place.time;
            place.charge = charge;
            let used = fixed(used_ns) + place.rest;
            place.time += used / weight;
            place.rest = used % weight;
            if let Some(bound) = bound.filter(|bound| place.time > *bound) {
                place.time = bound.max(before);
                place.rest = 0;
            }
            if place.time >= place.deadline {
                place.deadline = place.time + fixed(slice_ns) / weight;
            }
            let moved = (place.time - before) * weight;
            let queue = self.entry_mut(parent);
            if queue.active > 0 {
                let moved = moved + queue.clock.rest;
                queue.clock.progress += moved / i128::from(queue.active);
                queue.clock.rest = moved % i128::from(queue.active);
            }
            node = parent;
        }
    }

    /// The leaf under `root` that is to be served.
    pub(super) fn pick(&mut self, root: Node, now: u64) -> Option<Node> {
        let mut node = root;
        loop {
            self.settle(node, now);
            let queue = self.entry(node);
            if queue.members.is_empty() {
                return (node != root).then_some(node);
            }
            let clock = queue.clock.time;
            let competing = queue.members.iter().filter(|member| self.entry(**member).competes);
            node = *competing.min_by_key(|member| {
                let place = self.entry(**member).place;
                let eligible = place.time <= clock;
                // Of those that are all ahead, the one that is least so.
                let rank = if eligible { place.deadline } else { place.time };
                (!eligible, rank, place.time, place.charge, **member)
            })?;
        }
    }

    /// True when one that has just begun to compete should not wait for the end of the holder's slice: it is eligible,
    /// and its deadline comes first or the holder is further ahead than `grain_ns`.
    pub(super) fn beats(&self, challenger: Node, holder: Node, grain_ns: u64) -> bool {
        let Some((challenger, holder, queue)) = self.siblings(challenger, holder) else { return false };
        let clock = self.clock(queue);
        let (mine, its) = (self.entry(challenger).place, self.entry(holder).place);
        let far = clock + fixed(grain_ns) / self.weight(holder);
        mine.time <= clock && (mine.deadline <= its.deadline || its.time > far)
    }

    /// What is left of a leaf's slice, in nanoseconds of device time.
    pub(super) fn left_ns(&self, leaf: Node) -> u64 {
        let place = self.entry(leaf).place;
        let left = (place.deadline - place.time).max(0) * self.weight(leaf);
        u64::try_from(left >> FRACTION_BITS).unwrap_or(u64::MAX)
    }

    /// Credit of a node among its siblings in nanoseconds of device time; debt is below zero.
    pub(super) fn lag_ns(&self, node: Node) -> i64 {
        let lag = self.lag(node) >> FRACTION_BITS;
        i64::try_from(lag).unwrap_or(if lag < 0 { i64::MIN } else { i64::MAX })
    }

    /// Sets a leaf that doesn't compete as far ahead of its siblings as `debt_ns` of device time.
    pub(super) fn set_debt(&mut self, leaf: Node, debt_ns: u64) {
        let Some(parent) = self.entry(leaf).parent else { return };
        let time = self.clock(parent) + fixed(debt_ns) / self.weight(leaf);
        self.entry_mut(leaf).place = Place { time, deadline: time, ..Place::default() };
    }

    /// A slice begins anew for a leaf and all above it: it was alone, and others have come.
    pub(super) fn renew(&mut self, leaf: Node, slice_ns: u64) {
        let mut next = Some(leaf);
        while let Some(node) = next {
            let slice = fixed(slice_ns) / self.weight(node);
            let entry = self.entry_mut(node);
            entry.place.deadline = entry.place.time + slice;
            next = entry.parent;
        }
    }

    /// The queue that a node is in.
    pub(super) fn parent(&self, node: Node) -> Option<Node> {
        self.entry(node).parent
    }

    /// True while some leaf under `node` competes.
    pub(super) fn is_active(&self, node: Node) -> bool {
        self.entry(node).active > 0
    }

    /// What [`Tree::restore`] needs to undo a charge of `leaf`, and what is decided upon it.
    pub(super) fn save(&self, leaf: Node) -> Saved {
        let mut path = Vec::with_capacity(4);
        let mut next = Some(leaf);
        while let Some(node) = next {
            let entry = self.entry(node);
            path.push((node, entry.place, entry.clock));
            next = entry.parent;
        }
        Saved(path)
    }

    /// Undoes what was charged since [`Tree::save`].
    pub(super) fn restore(&mut self, saved: Saved) {
        for (node, place, clock) in saved.0 {
            let entry = self.entry_mut(node);
            (entry.place, entry.clock) = (place, clock);
        }
    }

    /// Asserts what holds between the nodes.
    pub(super) fn check(&self) {
        for (node, entry) in self.entries.iter().enumerate() {
            let Some(entry) = entry else { continue };
            let competing = entry.members.iter().filter(|member| self.entry(**member).competes);
            let active: i128 = competing.map(|member| self.weight(*member)).sum();
            assert_eq!(i128::from(entry.active), active, "the weight of those that compete under {node}");
            assert!(entry.place.deadline >= entry.place.time, "{node} is past its deadline");
            if let Some(parent) = entry.parent {
                let member = self.entry(parent).members.contains(&node);
                assert!(member || !entry.competes, "{node} competes and is no member");
            }
        }
    }

    /// Where one that begins to compete stands: where it stood, or at the clock if that is further. None that waits is
    /// to be more than a slice behind it; it would wait until that had been made up for.
    fn place(&mut self, node: Node, parent: Node, slice_ns: u64) {
        let weight = self.weight(node);
        let time = if self.entry(parent).members.contains(&node) {
            self.time(node, parent)
        } else {
            let members = self.entry(parent).members.iter().filter(|member| self.entry(**member).competes);
            let behind = members.map(|member| self.entry(*member).place.time + fixed(slice_ns) / self.weight(*member));
            let clock = self.entry(parent).clock.time;
            let time = self.entry(node).place.time.max(behind.min().map_or(clock, |behind| clock.min(behind)));
            self.entry_mut(parent).members.push(node);
            time
        };
        let place = &mut self.entry_mut(node).place;
        (place.time, place.deadline) = (time, time + fixed(slice_ns) / weight);
    }

    /// Forgets members that stopped long ago, and reads the clock.
    fn settle(&mut self, queue: Node, now: u64) {
        let old = |member: &Node| {
            let entry = self.entry(*member);
            !entry.competes && now.saturating_sub(entry.stop.at) >= RETENTION_NS
        };
        let members = &self.entry(queue).members;
        if members.iter().any(old) {
            let (gone, members): (Vec<Node>, Vec<Node>) = members.iter().copied().partition(old);
            for member in gone {
                self.entry_mut(member).place.time = self.time(member, queue);
                self.entry_mut(member).place.deadline = self.entry(member).place.time;
            }
            self.entry_mut(queue).members = members;
        }
        self.entry_mut(queue).clock.time = self.clock(queue);
    }

    /// The mean of a queue's members by weight; where it was if there are none.
    fn clock(&self, queue: Node) -> i128 {
        let entry = self.entry(queue);
        let sums = entry.members.iter().fold((0, 0), |(times, weights), member| {
            // From the last mean on, so that the product with a weight has room.
            let time = self.time(*member, queue) - entry.clock.time;
            (times + time * self.weight(*member), weights + self.weight(*member))
        });
        entry.clock.time + sums.0 / sums.1.max(1)
    }

    /// Where a member stands: one that sleeps goes along with the others.
    fn time(&self, member: Node, queue: Node) -> i128 {
        let entry = self.entry(member);
        let progress = if entry.competes { 0 } else { self.entry(queue).clock.progress - entry.stop.progress };
        entry.place.time + progress
    }

    /// Sums up the competing weight of a queue again.
    fn weigh(&mut self, queue: Node) {
        let members = &self.entry(queue).members;
        let competing = members.iter().filter(|member| self.entry(**member).competes);
        let active: i128 = competing.map(|member| self.weight(*member)).sum();
        let entry = self.entry_mut(queue);
        entry.active = u64::try_from(active).unwrap_or(u64::MAX);
        if entry.summed && entry.active > 0 {
            entry.weight = entry.active;
        }
    }

    /// The ancestors of two leaves that share a parent, and that parent.
    fn siblings(&self, one: Node, other: Node) -> Option<(Node, Node, Node)> {
        let mut mine = one;
        while let Some(parent) = self.entry(mine).parent {
            let mut its = other;
            while let Some(above) = self.entry(its).parent {
                if above == parent {
                    return (mine != its).then_some((mine, its, parent));
                }
                its = above;
            }
            mine = parent;
        }
        None
    }

    fn lag(&self, node: Node) -> i128 {
        let Some(parent) = self.entry(node).parent else { return 0 };
        let member = self.entry(parent).members.contains(&node);
        let time = if member { self.time(node, parent) } else { self.entry(node).place.time };
        (self.clock(parent) - time) * self.weight(node)
    }

    /// A node's weight; at least 1, since it divides.
    fn weight(&self, node: Node) -> i128 {
        i128::from(self.entry(node).weight.max(1))
    }

    fn entry(&self, node: Node) -> &Entry {
        self.entries[node].as_ref().expect("a node lives as long as whoever added it says")
    }

    fn entry_mut(&mut self, node: Node) -> &mut Entry {
        self.entries[node].as_mut().expect("a node lives as long as whoever added it says")
    }
}

fn fixed(ns: u64) -> i128 {
    i128::from(ns) << FRACTION_BITS
}
