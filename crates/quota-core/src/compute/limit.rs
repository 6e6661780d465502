//! A cap on device time: a bucket that fills at the cap's rate and is charged what was measured, into debt if need be.
//!
//! The bucket is one word, the time at which it was, or will be, empty. Its content at a moment is what has flowed in
//! since, so that refilling needs no store, and a change of the rate acts at once on what flows in from now on.
//!
//! Debt is never forgotten: a kernel that ran for longer than there was credit keeps the tenant waiting for as long as
//! the rate demands. Credit that can be saved up is bounded, so that a pause buys at most [`Limit::burst_ns`].

use crate::Percent;

/// The period over which a cap is meant: a tenth of a second, in nanoseconds.
pub const PERIOD_NS: u64 = 100_000_000;

/// A cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Parts of 10,000 of the device's time.
    rate: u32,
    /// Most credit that can be saved up.
    burst_ns: u64,
    /// Credit at which a tenant that was out of it goes on.
    resume_ns: u64,
}

impl Limit {
    /// The bucket of a cap where turns last `quantum_ns`. The sizes are those of the model (design, "Limits"): burst
    /// `max(q/2, l·P/2)`, resumption at `min(q/4, l·P/5)`.
    pub fn new(cap: Percent, quantum_ns: u64) -> Self {
        let rate = cap.hundredths();
        let share_ns = scaled(PERIOD_NS, u64::from(rate), 10_000);
        let burst_ns = (quantum_ns / 2).max(share_ns / 2);
        Self { rate, burst_ns, resume_ns: (quantum_ns / 4).min(share_ns / 5).max(1) }
    }

    /// Most credit that can be saved up, in nanoseconds of device time.
    pub fn burst_ns(&self) -> u64 {
        self.burst_ns
    }

    /// The word after `used_ns` of device time.
    pub fn charge(&self, empty_at: u64, used_ns: u64, now: u64) -> u64 {
        self.bounded(empty_at, now).saturating_add(self.time_for(used_ns))
    }

    /// Credit at `now`, in nanoseconds of device time; debt is below zero.
    pub fn credit_ns(&self, empty_at: u64, now: u64) -> i64 {
        let empty_at = self.bounded(empty_at, now);
        let flowed = |time: u64| i64::try_from(scaled(time, u64::from(self.rate), 10_000)).unwrap_or(i64::MAX);
        if now >= empty_at { flowed(now - empty_at) } else { -flowed(empty_at - now) }
    }

    /// True when there is credit: who is launching may go on.
    pub fn has_credit(&self, empty_at: u64, now: u64) -> bool {
        now > empty_at
    }

    /// When a tenant that was out of credit may go on.
    pub fn resumes_at(&self, empty_at: u64) -> u64 {
        empty_at.saturating_add(self.time_for(self.resume_ns))
    }

    /// When the bucket will be empty if the device is used without a pause from `now`.
    pub fn lasts_until(&self, empty_at: u64, now: u64) -> u64 {
        let credit_ns = u64::try_from(self.credit_ns(empty_at, now)).unwrap_or(0);
        // It flows in at the rate while it is used at one.
        let net = 10_000u64.saturating_sub(u64::from(self.rate)).max(1);
        now.saturating_add(scaled(credit_ns, 10_000, net))
    }

    /// The word, with no more credit than can be saved up.
    fn bounded(&self, empty_at: u64, now: u64) -> u64 {
        empty_at.max(now.saturating_sub(self.time_for(self.burst_ns)))
    }

    /// The time in which so much device time flows in; rounded up, so that no fraction is lost to the tenant's gain.
    fn time_for(&self, device_ns: u64) -> u64 {
        let time = (u128::from(device_ns) * 10_000).div_ceil(u128::from(self.rate.max(1)));
        u64::try_from(time).unwrap_or(u64::MAX)
    }
}

fn scaled(value: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(of)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn limit(hundredths: u32) -> Limit {
        Limit::new(Percent::from_hundredths(hundredths).expect("a percentage"), 3 * MS)
    }

    #[test]
    fn a_saturating_tenant_gets_its_cap_to_a_thousandth_over_a_second() {
        for hundredths in [100, 1000, 3000, 3333, 7550, 9900] {
            let limit = limit(hundredths);
            let (mut word, mut now, mut used) = (0, 1000 * MS, 0u64);
            let (start, kernel) = (now, 200_000);
            while now - start < 1000 * MS {
                if !limit.has_credit(word, now) {
                    now = now.max(limit.resumes_at(word));
                }
                now += kernel;
                used += kernel;
                word = limit.charge(word, kernel, now);
            }
            let got = used as f64 / (now - start) as f64 * 10_000.0;
            // The burst that was saved up before is spent within it.
            let saved = limit.burst_ns() as f64 / (now - start) as f64 * 10_000.0;
            assert!((got - f64::from(hundredths)).abs() <= saved + 10.0, "{hundredths}: {got}");
        }
    }

    #[test]
    fn debt_is_paid_back_in_full_and_credit_is_bounded() {
        let limit = limit(2500);
        let now = 10_000 * MS;
        let word = limit.charge(0, limit.burst_ns() + 100 * MS, now);
        assert_eq!(limit.credit_ns(word, now), -100 * MS as i64);
        assert!(!limit.has_credit(word, now + 399 * MS));
        assert!(limit.has_credit(word, now + 401 * MS));
        assert_eq!(limit.credit_ns(word, u64::MAX / 2), limit.burst_ns() as i64, "a long pause buys one burst");
    }

    #[test]
    fn hostile_words_neither_panic_nor_wrap() {
        let limit = limit(100);
        for word in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            for now in [0, 1, u64::MAX / 2, u64::MAX] {
                for used in [0, 1, u64::MAX] {
                    let after = limit.charge(word, used, now);
                    let _ = (limit.credit_ns(after, now), limit.resumes_at(after), limit.lasts_until(after, now));
                }
            }
        }
    }
}
