//! What a device did lately: when each context was served, and how busy each stretch of time was.

/// Length of the stretches over which NVML measures: a sixth of a second.
pub(crate) const WINDOW_NS: u64 = 1_000_000_000 / 6;

/// Services kept of one context: more than there are pieces of work that the driver lets wait, so that the
/// end of each is known when the driver gets round to asking.
pub(super) const SERVICES: usize = 1536;

/// The number of the window that a moment lies in.
pub(crate) const fn window_of(at_ns: u64) -> u64 {
    at_ns / WINDOW_NS
}

/// Busy time of the last `N` windows.
#[repr(C)]
pub(crate) struct Windows<const N: usize> {
    /// Number of the newest window.
    newest: u64,
    busy_ns: [u32; N],
}

impl<const N: usize> Windows<N> {
    pub(super) fn clear(&mut self) {
        *self = Self { newest: 0, busy_ns: [0; N] };
    }

    /// Adds busy time that began at `from_ns`.
    pub(super) fn add(&mut self, from_ns: u64, length_ns: u64) {
        let end = from_ns + length_ns;
        let mut at = from_ns.max(end.saturating_sub(N as u64 * WINDOW_NS));
        while at < end {
            let window = window_of(at);
            self.reach(window);
            let part = end.min((window + 1) * WINDOW_NS) - at;
            let busy = &mut self.busy_ns[(window % N as u64) as usize];
            *busy = busy.saturating_add(u32::try_from(part).expect("a window is less than four seconds"));
            at += part;
        }
    }

    /// Busy time of a window; 0 for one that is too old or to come.
    pub(crate) fn busy_ns(&self, window: u64) -> u64 {
        let kept = window <= self.newest && self.newest - window < N as u64;
        if kept { u64::from(self.busy_ns[(window % N as u64) as usize]) } else { 0 }
    }

    fn reach(&mut self, window: u64) {
        if window > self.newest {
            let first = (self.newest + 1).max((window + 1).saturating_sub(N as u64));
            for skipped in first..=window {
                self.busy_ns[(skipped % N as u64) as usize] = 0;
            }
            self.newest = window;
        }
    }
}

/// A stretch of uninterrupted service, by its end.
#[derive(Clone, Copy)]
#[repr(C)]
struct Service {
    /// Total served at the end.
    served_ns: u64,
    /// When that was.
    at_ns: u64,
}

/// The last services of a context.
#[repr(C)]
pub(super) struct History {
    /// How many there were since the context was made.
    count: u64,
    services: [Service; SERVICES],
}

impl History {
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// Notes that at `now`, with `served_ns` served before, `part` was served.
    pub(super) fn serve(&mut self, served_ns: u64, now: u64, part: u64) {
        let end = Service { served_ns: served_ns + part, at_ns: now + part };
        let goes_on = self.count > 0 && self.services[Self::index(self.count - 1)].at_ns == now;
        if goes_on {
            self.services[Self::index(self.count - 1)] = end;
        } else {
            self.services[Self::index(self.count)] = end;
            self.count += 1;
        }
    }

    /// When `total` had been served: time and service grow alike within a stretch.
    pub(super) fn reached(&self, total: u64) -> Option<u64> {
        let oldest = self.count.saturating_sub(SERVICES as u64);
        let service = |at: u64| self.services[Self::index(at)];
        // The first service that ends with no less; totals grow along the ring.
        let (mut low, mut high) = (oldest, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if service(middle).served_ns < total { low = middle + 1 } else { high = middle }
        }
        if low == self.count {
            return None;
        }
        let found = service(low);
        if low == oldest && oldest > 0 {
            return Some(found.at_ns); // Where this stretch begins is forgotten.
        }
        Some(found.at_ns.saturating_sub(found.served_ns - total))
    }

    fn index(at: u64) -> usize {
        (at % SERVICES as u64) as usize
    }
}
