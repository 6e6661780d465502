//! The time in which at least one of several things ran, added up as they are found to have ended, in whatever order.

use std::collections::VecDeque;

/// Stretches of time that are remembered apart. What is older than all of them counts as added already: with so many gaps
/// since, it would be a piece of work that ended long before it was looked at.
const SPANS_MAX: usize = 64;

/// A stretch of time on any clock, from `start` up to `end`, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its beginning.
    pub start: u64,
    /// Its end; one that is not after the beginning is an empty stretch.
    pub end: u64,
}

/// Stretches that were added, merged.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    merged: VecDeque<Span>,
    /// Everything before counts as added.
    floor: u64,
}

impl Spans {
    /// Adds a stretch; how much of it was not added before, in nanoseconds.
    pub fn add(&mut self, span: Span) -> u64 {
        let (mut start, mut end) = (span.start.max(self.floor), span.end);
        if start >= end {
            return 0;
        }
        // Mostly it is the last: look from behind for the first that it touches.
        let mut from = self.merged.len();
        while from > 0 && self.merged[from - 1].end >= start {
            from -= 1;
        }
        let mut to = from;
        let mut known = 0;
        let (asked_start, asked_end) = (start, end);
        while to < self.merged.len() && self.merged[to].start <= end {
            let other = self.merged[to];
            known += other.end.min(asked_end).saturating_sub(other.start.max(asked_start));
            start = start.min(other.start);
            end = end.max(other.end);
            to += 1;
        }
        self.merged.drain(from..to);
        self.merged.insert(from, Span { start, end });
        if self.merged.len() > SPANS_MAX {
            self.floor = self.merged.pop_front().map_or(self.floor, |first| first.end);
        }
        asked_end - asked_start - known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u64, end: u64) -> Span {
        Span { start, end }
    }

    #[test]
    fn what_overlaps_is_counted_once_in_any_order() {
        let pieces = [span(0, 100), span(50, 150), span(200, 300), span(120, 210), span(10, 20), span(300, 400)];
        for turn in 0..pieces.len() {
            let mut spans = Spans::default();
            let mut rotated = pieces;
            rotated.rotate_left(turn);
            let total: u64 = rotated.iter().map(|piece| spans.add(*piece)).sum();
            assert_eq!(total, 400);
            assert_eq!(spans.merged, [span(0, 400)]);
        }
    }

    #[test]
    fn a_long_piece_beside_many_short_ones_counts_its_gaps() {
        let mut spans = Spans::default();
        let short: u64 = (0..20).map(|at| spans.add(span(at * 1000, at * 1000 + 100))).sum();
        assert_eq!(short, 2000);
        assert_eq!(spans.add(span(0, 20_000)), 18_000);
    }

    #[test]
    fn it_agrees_with_counting_one_by_one() {
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let (mut spans, mut slow) = (Spans::default(), [false; 400]);
            for _ in 0..40 {
                let start = next(390);
                let end = start + next(40).min(400 - start);
                let fresh = (start..end).filter(|at| !slow[*at as usize]).count() as u64;
                (start..end).for_each(|at| slow[at as usize] = true);
                assert_eq!(spans.add(span(start, end)), fresh);
            }
        }
    }

    #[test]
    fn the_memory_is_bounded_and_backward_stretches_are_empty() {
        let mut spans = Spans::default();
        for at in 0..10_000 {
            assert_eq!(spans.add(span(at * 10, at * 10 + 1)), 1);
        }
        assert!(spans.merged.len() <= SPANS_MAX);
        assert_eq!(spans.add(span(0, 50)), 0, "too long ago");
        assert_eq!(spans.add(span(9, 3)), 0);
    }
}
