//! What will happen when: events in the order of their time, those of one time in the order in which they were set.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The device comes to the end of a kernel, of a slice or of a switch; of no meaning once the number is an old one.
    Device(u64),
    /// The thread of this process goes on; of no meaning once the number is an old one.
    Thread(u32, u32),
    /// A timer of the policy.
    Policy(Timer),
    /// The n-th change of the scenario is made.
    Change(u32),
}

/// A timer that a policy has set; what it says is the policy's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timer {
    /// What is to be done.
    pub kind: u8,
    /// For whom.
    pub who: u32,
    /// When it was set, as the policy counts.
    pub stamp: u64,
}

/// Events that are to come.
#[derive(Debug, Default)]
pub struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    set: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    at_ns: u64,
    order: u64,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Queue {
    /// `event` will happen at `at_ns`.
    pub fn set(&mut self, at_ns: u64, event: Event) {
        self.set += 1;
        self.heap.push(Reverse(Entry { at_ns, order: self.set, event }));
    }

    /// The next event up to and including `until_ns`, with its time.
    pub fn next(&mut self, until_ns: u64) -> Option<(u64, Event)> {
        if self.heap.peek()?.0.at_ns > until_ns {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at_ns, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_in_which_they_were_set() {
        let mut queue = Queue::default();
        for (at_ns, number) in [(5, 1), (3, 2), (5, 3), (9, 4)] {
            queue.set(at_ns, Event::Device(number));
        }
        let seen: Vec<_> = std::iter::from_fn(|| queue.next(5)).collect();
        assert_eq!(seen, [(3, Event::Device(2)), (5, Event::Device(1)), (5, Event::Device(3))]);
        assert_eq!(queue.next(9), Some((9, Event::Device(4))));
    }
}
