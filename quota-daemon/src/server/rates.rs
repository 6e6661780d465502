//! How much anybody may ask of the daemon: so that who floods it, by one connection or by many, delays nobody but itself.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Requests a second of one connection: a process that is measured at each of its calls asks some hundreds.
const PER_CONNECTION: f64 = 2_000.0;
/// And of all connections of one asker: a part of what the daemon can answer.
const PER_ASKER: f64 = 10_000.0;
/// What may be asked at once, in seconds of the rates above.
const BURST_SECONDS: f64 = 1.0;
/// Connections of one asker at a time: half of all.
const CONNECTIONS_PER_ASKER: usize = super::CLIENTS_MAX / 2;

/// Whose connections are counted together: a user's, in each container apart, since in containers everybody is root.
pub(super) type Asker = (u32, String);

/// What may still be asked; grows with time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    requests: f64,
    per_second: f64,
    at: Instant,
}

impl Allowance {
    /// A full one, for a connection.
    pub(super) fn of_connection(now: Instant) -> Self {
        Self::full(PER_CONNECTION, now)
    }

    fn full(per_second: f64, now: Instant) -> Self {
        Self { requests: per_second * BURST_SECONDS, per_second, at: now }
    }

    /// Takes one request; false when there is none.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let passed: Duration = now.saturating_duration_since(self.at);
        self.at = now;
        let most = self.per_second * BURST_SECONDS;
        self.requests = (self.requests + passed.as_secs_f64() * self.per_second).min(most);
        let may = self.requests >= 1.0;
        self.requests -= if may { 1.0 } else { 0.0 };
        may
    }
}

/// Those with connections.
#[derive(Debug, Default)]
pub(super) struct Askers {
    known: HashMap<Asker, Counted>,
}

#[derive(Debug)]
struct Counted {
    connections: usize,
    allowance: Allowance,
}

impl Askers {
    /// A connection comes; it is counted until it [leaves](Askers::leave).
    ///
    /// # Errors
    /// One line when there are too many already; then it is not counted.
    pub(super) fn enter(&mut self, asker: &Asker, now: Instant) -> Result<(), String> {
        let fresh = || Counted { connections: 0, allowance: Allowance::full(PER_ASKER, now) };
        let counted = self.known.entry(asker.clone()).or_insert_with(fresh);
        if counted.connections >= CONNECTIONS_PER_ASKER {
            let (uid, container) = asker;
            let place = if container.is_empty() { String::new() } else { format!(" in {container}") };
            return Err(format!(
                "user {uid}{place} has {CONNECTIONS_PER_ASKER} connections to the daemon already, the most for one user"
            ));
        }
        counted.connections += 1;
        Ok(())
    }

    /// A connection is closed. Who has none left is forgotten.
    pub(super) fn leave(&mut self, asker: &Asker) {
        let Some(counted) = self.known.get_mut(asker) else { return };
        counted.connections = counted.connections.saturating_sub(1);
        if counted.connections == 0 {
            self.known.remove(asker);
        }
    }

    /// Takes one request from what the asker may ask.
    pub(super) fn may_ask(&mut self, asker: &Asker, now: Instant) -> bool {
        self.known.get_mut(asker).is_none_or(|counted| counted.allowance.take(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_a_rate_with_a_burst() {
        let begin = Instant::now();
        let mut allowance = Allowance::of_connection(begin);
        let asked = |allowance: &mut Allowance, at: Instant| (0..9_999).take_while(|_| allowance.take(at)).count();
        assert_eq!(asked(&mut allowance, begin), 2_000);
        assert_eq!(asked(&mut allowance, begin + Duration::from_millis(100)), 200);
        assert_eq!(asked(&mut allowance, begin + Duration::from_secs(60)), 2_000, "no more than a burst is saved up");
    }

    #[test]
    fn an_asker_has_half_of_the_connections() {
        let (now, mut askers) = (Instant::now(), Askers::default());
        let (one, other) = ((1000, String::new()), (1000, "/docker/x".to_owned()));
        for _ in 0..CONNECTIONS_PER_ASKER {
            askers.enter(&one, now).expect("there is room");
        }
        assert!(askers.enter(&one, now).expect_err("too many").contains("user 1000 has 2048 connections"));
        askers.enter(&other, now).expect("the same user in a container");
        askers.leave(&one);
        askers.enter(&one, now).expect("again");
        for _ in 0..CONNECTIONS_PER_ASKER {
            askers.leave(&one);
        }
        assert_eq!(askers.known.len(), 1, "who is gone is forgotten");
    }
}
