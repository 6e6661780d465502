//! When a driver that doesn't answer is asked anew, by another thread: decided without a clock and without threads.
//!
//! A call that hangs in the driver can't be ended. The thread in it is left behind, and another one tries from the
//! beginning: that helps where the call was lost, and does no harm where the driver itself is stuck, since only a few are left
//! behind at a time, and the pauses grow.

use std::time::{Duration, Instant};

/// How long an answer is waited for. Without its persistence daemon, a driver may take seconds for each device.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The longest pause between two threads.
pub const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Threads that are left behind at a time. Each keeps its stack, and NVML initialised once.
pub const LEFT_BEHIND_MAX: usize = 4;
/// Who looks so much later than it was due has been stopped, and the driver's thread with it.
const LATE: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing yet.
    Wait,
    /// Another thread is to ask.
    Replace,
    /// It would be time for one, but too many are left behind already.
    Full,
}

/// Since when which pauses are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watchdog {
    patience: Duration,
    pause: Duration,
    /// None while everything is answered.
    next: Option<Instant>,
}

impl Watchdog {
    /// One that waits so long for the first answer.
    pub fn new(patience: Duration) -> Self {
        Self { patience, pause: patience, next: None }
    }

    /// The driver has answered.
    pub fn answered(&mut self) {
        *self = Self::new(self.patience);
    }

    /// When it is to be looked next, at a driver that has been silent `since` then.
    pub fn due(&self, since: Instant) -> Instant {
        self.next.unwrap_or(since + self.patience)
    }

    /// Looks, while `left_behind` threads are in calls that hang.
    pub fn look(&mut self, now: Instant, since: Instant, left_behind: usize) -> Verdict {
        let due = self.due(since);
        if now < due {
            return Verdict::Wait;
        }
        if now.duration_since(due) > LATE {
            self.next = Some(now + LATE);
            return Verdict::Wait;
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX.max(self.patience));
        self.next = Some(now + self.pause);
        if left_behind < LEFT_BEHIND_MAX { Verdict::Replace } else { Verdict::Full }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// Looks whenever it is due for so long; how often another thread was wanted, and how often there were too many.
    fn silent_for(time: Duration, left_behind: impl Fn(u32, Duration) -> usize) -> (u32, u32) {
        let begin = Instant::now();
        let mut watchdog = Watchdog::new(PATIENCE);
        let (mut replaced, mut full) = (0, 0);
        loop {
            let now = watchdog.due(begin);
            if now - begin > time {
                return (replaced, full);
            }
            match watchdog.look(now, begin, left_behind(replaced, now - begin)) {
                Verdict::Wait => panic!("it is due"),
                Verdict::Replace => replaced += 1,
                Verdict::Full => full += 1,
            }
            assert!(watchdog.due(begin) > now);
        }
    }

    /// Report 19.07: a driver that hangs for thirty days costs a few threads, or few at a time where they come back.
    #[test]
    fn thirty_days_of_silence_cost_four_threads() {
        let (replaced, full) = silent_for(30 * DAY, |replaced, _| replaced as usize);
        assert_eq!(replaced as usize, LEFT_BEHIND_MAX);
        let longest = (30 * DAY).as_secs() / PAUSE_MAX.as_secs();
        assert!(u64::from(full) <= longest, "it looks every ten minutes: {full}");
        let (replaced, full) = silent_for(30 * DAY, |_, _| 0);
        assert!(full == 0 && u64::from(replaced) <= longest + 8, "{replaced}");
    }

    #[test]
    fn pauses_grow_and_begin_anew_with_an_answer() {
        let begin = Instant::now();
        let mut watchdog = Watchdog::new(PATIENCE);
        let just_before = begin + PATIENCE - Duration::from_nanos(1);
        assert_eq!(watchdog.look(just_before, begin, 0), Verdict::Wait);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let now = watchdog.due(begin);
            assert_eq!(watchdog.look(now, begin, 0), Verdict::Replace);
            pauses.push((watchdog.due(begin) - now).as_secs());
        }
        assert_eq!(pauses, [20, 40, 80, 160, 320, 600, 600, 600]);
        watchdog.answered();
        let since = begin + DAY;
        assert_eq!(watchdog.due(since), since + PATIENCE);
    }

    /// A daemon that was stopped has heard nothing either.
    #[test]
    fn who_looks_too_late_looks_again() {
        let begin = Instant::now();
        let mut watchdog = Watchdog::new(PATIENCE);
        let late = begin + DAY;
        assert_eq!(watchdog.look(late, begin, 0), Verdict::Wait);
        assert_eq!(watchdog.due(begin), late + LATE);
        assert_eq!(watchdog.look(late + LATE, begin, 0), Verdict::Replace);
    }
}
