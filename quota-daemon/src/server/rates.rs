//! How much anybody may ask of the daemon: so that who floods it, by one connection or by many, delays nobody but itself.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Requests a second of one connection: a process that is measured at each of its calls asks some hundreds.
const PER_CONNECTION: f64 = 2_000.0;
/// And of all connections of one user: a part of what the daemon can answer.
const PER_USER: f64 = 10_000.0;
/// What may be asked at once, in seconds of the rates above.
const BURST_SECONDS: f64 = 1.0;
/// Connections of one user at a time: half of all.
pub(super) const CONNECTIONS_PER_USER: usize = super::CLIENTS_MAX / 2;

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

/// Users with connections.
#[derive(Debug, Default)]
pub(super) struct Users {
    known: HashMap<u32, User>,
}

#[derive(Debug)]
struct User {
    connections: usize,
    allowance: Allowance,
}

impl Users {
    /// A connection of user `uid` comes; it is counted whether it may stay or not, until it [leaves](Users::leave).
    ///
    /// # Errors
    /// One line when the user has too many; then it is not counted.
    pub(super) fn enter(&mut self, uid: u32, now: Instant) -> Result<(), String> {
        let fresh = || User { connections: 0, allowance: Allowance::full(PER_USER, now) };
        let user = self.known.entry(uid).or_insert_with(fresh);
        if user.connections >= CONNECTIONS_PER_USER {
            return Err(format!(
                "user {uid} has {CONNECTIONS_PER_USER} connections to the daemon already, the most for one user"
            ));
        }
        user.connections += 1;
        Ok(())
    }

    /// A connection of the user is closed. Who has none left is forgotten.
    pub(super) fn leave(&mut self, uid: u32) {
        let Some(user) = self.known.get_mut(&uid) else { return };
        user.connections = user.connections.saturating_sub(1);
        if user.connections == 0 {
            self.known.remove(&uid);
        }
    }

    /// Takes one request from what a user may ask.
    pub(super) fn may_ask(&mut self, uid: u32, now: Instant) -> bool {
        self.known.get_mut(&uid).is_none_or(|user| user.allowance.take(now))
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
    fn a_user_has_half_of_the_connections() {
        let (now, mut users) = (Instant::now(), Users::default());
        for _ in 0..CONNECTIONS_PER_USER {
            users.enter(1000, now).expect("there is room");
        }
        assert!(users.enter(1000, now).expect_err("too many").contains("user 1000 has 2048 connections"));
        users.enter(1001, now).expect("another");
        users.leave(1000);
        users.enter(1000, now).expect("again");
        for uid in [1000; CONNECTIONS_PER_USER] {
            users.leave(uid);
        }
        assert_eq!(users.known.len(), 1, "who is gone is forgotten");
    }
}
