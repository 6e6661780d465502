//! Free addresses, the best fit first, neighbours joined.

use crate::pages;
use std::collections::{BTreeMap, BTreeSet};

/// Where more addresses come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// Anywhere.
    Any,
    /// Below 4 GiB.
    Low,
    /// Nowhere: what it was given is all there is.
    Nowhere,
}

/// A store of addresses that grows by spans, which are never given back: they cost nothing.
pub(crate) struct Ranges {
    free: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    source: Source,
    /// What it has grown by, start and size; neighbours are kept apart, so that no range lies in two.
    spans: BTreeMap<u64, u64>,
    span: u64,
    alignment: u64,
}

impl Ranges {
    pub(crate) const fn new(source: Source, span: u64, alignment: u64) -> Self {
        Self { free: BTreeMap::new(), by_size: BTreeSet::new(), source, spans: BTreeMap::new(), span, alignment }
    }

    /// `bytes`, a multiple of the alignment, from the smallest free range that has them.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        if self.by_size.range((bytes, 0)..).next().is_none() {
            self.grow(bytes)?;
        }
        let &(size, start) = self.by_size.range((bytes, 0)..).next()?;
        self.remove(start, size);
        if size > bytes {
            self.insert(start + bytes, size - bytes);
        }
        Some(start)
    }

    /// Takes back what [`take`](Self::take) gave.
    pub(crate) fn give(&mut self, mut start: u64, mut bytes: u64) {
        let before = self.free.range(..start).next_back().map(|(&before, &size)| (before, size));
        if let Some((before, size)) = before.filter(|&(before, size)| before + size == start) {
            self.remove(before, size);
            start = before;
            bytes += size;
        }
        if let Some(&size) = self.free.get(&(start + bytes)) {
            self.remove(start + bytes, size);
            bytes += size;
        }
        self.insert(start, bytes);
    }

    /// The span that an address lies in, with its size.
    pub(crate) fn span_of(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &size) = self.spans.range(..=address).next_back()?;
        (address - start < size).then_some((start, size))
    }

    fn grow(&mut self, bytes: u64) -> Option<()> {
        let alignment = self.alignment.max(pages::HOST_PAGE);
        let span = bytes.max(self.span).next_multiple_of(alignment);
        let gap = alignment;
        let start = match self.source {
            Source::Any => pages::reserve(span + gap, alignment, true)?,
            Source::Low => pages::reserve_low(span + gap)?,
            Source::Nowhere => return None,
        };
        self.spans.insert(start, span);
        self.give(start, span);
        Some(())
    }

    fn insert(&mut self, start: u64, bytes: u64) {
        self.free.insert(start, bytes);
        self.by_size.insert((bytes, start));
    }

    fn remove(&mut self, start: u64, bytes: u64) {
        self.free.remove(&start);
        self.by_size.remove(&(bytes, start));
    }
}
