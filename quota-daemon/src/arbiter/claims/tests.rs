use super::*;

const MS: u64 = 1_000_000;
const T: Tenant = Tenant(7);

fn process(slot: u32) -> Process {
    Process { slot, generation: 1, pid: 100 + slot }
}

/// Something under way since, of which so much was measured.
fn busy(submitted: u64, completed: u64, busy_ns: u64) -> Claim {
    Claim { submitted, completed, busy_ns, ..Claim::default() }
}

fn waiting() -> Claim {
    Claim { waiting: 1, ..Claim::default() }
}

/// An account at one process, and a clock.
struct Books {
    account: Account,
    now_ns: u64,
    stopped: bool,
}

impl Books {
    fn new() -> Self {
        Self { account: Account::new(T, 0), now_ns: 0, stopped: false }
    }

    fn at(&mut self, now_ns: u64, claim: Claim) -> Vec<Event> {
        self.all(now_ns, &[(process(0), claim)])
    }

    fn all(&mut self, now_ns: u64, claims: &[(Process, Claim)]) -> Vec<Event> {
        self.now_ns = now_ns;
        let mut events = Vec::new();
        let stopped = self.stopped;
        self.account.look(claims, now_ns, &mut |_| stopped, &mut events);
        events
    }

    fn closed(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.account.closed(self.now_ns, &mut events);
        events
    }
}

#[test]
fn work_is_told_when_it_begins_and_when_it_has_ended() {
    let mut books = Books::new();
    assert_eq!(books.at(MS, busy(0, 0, 0)), []);
    assert_eq!(books.at(2 * MS, waiting()), [Event::Wants(T)]);
    assert_eq!(books.at(3 * MS, busy(5, 2, 0)), [], "it goes on");
    assert_eq!(books.at(4 * MS, busy(5, 5, MS)), [Event::Used(T, MS), Event::Idles(T)]);
    // Begun and ended between two looks: it had work all the same.
    assert_eq!(books.at(5 * MS, busy(9, 9, MS)), [Event::Wants(T), Event::Idles(T)]);
}

#[test]
fn all_processes_of_a_tenant_are_taken_together() {
    let mut books = Books::new();
    books.all(MS, &[(process(0), busy(1, 1, 0)), (process(1), busy(0, 0, 0))]);
    let both = [(process(0), busy(2, 1, MS)), (process(1), busy(3, 0, 2 * MS))];
    assert_eq!(books.all(10 * MS, &both), [Event::Wants(T), Event::Used(T, 3 * MS)]);
    // One of them dies with work under way; the other has none.
    assert_eq!(books.all(11 * MS, &[(process(0), busy(2, 2, MS))]), [Event::Idles(T)]);
    // The next owner of a slot begins anew: what the slot says of before was never this process's.
    let next = Process { generation: 2, ..process(0) };
    assert_eq!(books.all(12 * MS, &[(next, busy(0, 0, 9 * MS))]), []);
}

#[test]
fn who_is_out_of_credit_is_not_lingered_for() {
    let mut books = Books::new();
    books.at(0, busy(4, 1, 0));
    let out = Claim { throttled: 1, ..busy(4, 4, MS) };
    assert_eq!(books.at(MS, out), [Event::Used(T, MS), Event::Rests(T)]);
    assert_eq!(books.at(2 * MS, out), [], "once");
    // It was idle already, and then wanted to go on and had no credit.
    assert_eq!(books.at(3 * MS, busy(5, 5, MS)), [Event::Wants(T), Event::Idles(T)]);
    assert_eq!(books.at(4 * MS, Claim { throttled: 1, ..busy(5, 5, MS) }), [Event::Rests(T)]);
}

#[test]
fn no_more_is_charged_than_time_has_passed_and_nothing_below_nothing() {
    let mut books = Books::new();
    books.at(0, busy(1, 0, 0));
    let used = |events: &[Event]| -> u64 {
        events.iter().map(|event| if let Event::Used(_, used_ns) = event { *used_ns } else { 0 }).sum()
    };
    assert_eq!(used(&books.at(10 * MS, busy(1, 0, u64::MAX))), 10 * MS);
    assert_eq!(used(&books.at(11 * MS, busy(1, 0, 5))), 0, "it goes backwards");
    assert_eq!(used(&books.at(12 * MS, busy(1, 0, 5 + MS))), MS, "and on from there");
    // What is measured late is charged in full, as long as there was time for it.
    assert_eq!(used(&books.at(512 * MS, busy(1, 0, 5 + 451 * MS))), 450 * MS);
}

#[test]
fn nonsense_is_no_work_and_no_panic() {
    let mut books = Books::new();
    assert_eq!(books.at(MS, busy(3, 9, 0)), [], "more completed than submitted");
    for value in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        for (step, other) in [0, 1, u64::MAX / 2, u64::MAX].into_iter().enumerate() {
            let claim = Claim {
                submitted: value,
                completed: other,
                until_ns: value,
                busy_ns: other,
                passed_at_ns: value,
                waiting: u32::MAX,
                throttled: u32::MAX,
                sure: true,
            };
            books.account.opened(books.now_ns);
            books.at(books.now_ns + step as u64, claim);
            books.closed();
            books.at(books.now_ns + 1, claim);
            let _ = books.account.next_deadline();
        }
    }
    books.at(u64::MAX, busy(u64::MAX, 0, u64::MAX));
    let _ = books.account.next_deadline();
}

#[test]
fn a_closed_gate_is_drained_when_all_has_ended() {
    let mut books = Books::new();
    books.at(0, waiting());
    books.account.opened(0);
    books.at(MS, Claim { passed_at_ns: 60_000, ..busy(4, 1, MS / 2) });
    books.closed();
    assert_eq!(books.at(2 * MS, Claim { passed_at_ns: 60_000, ..busy(4, 3, MS) }), [Event::Used(T, MS / 2)]);
    let ended = Claim { passed_at_ns: 60_000, waiting: 1, ..busy(4, 4, 2 * MS) };
    assert_eq!(books.at(3 * MS, ended), [Event::Used(T, MS), Event::Drained(T)], "it waits for its next turn");
    assert_eq!(books.at(4 * MS, ended), [], "once");
}

#[test]
fn the_end_of_what_drains_is_passed_on_when_it_is_sure_and_all_say_so() {
    let sure = |until_ns: u64| Claim { until_ns, sure: true, ..busy(4, 1, 0) };
    let mut books = Books::new();
    books.at(0, sure(5 * MS));
    books.account.opened(0);
    books.at(MS, sure(5 * MS));
    books.closed();
    assert_eq!(books.at(MS + 1, sure(5 * MS)), [Event::DrainsAt(T, 5 * MS)]);
    assert_eq!(books.at(MS + 2, sure(5 * MS)), [], "nothing new");
    assert_eq!(books.at(MS + 3, sure(6 * MS)), [Event::DrainsAt(T, 6 * MS)]);
    let unsure = Claim { sure: false, ..sure(9 * MS) };
    assert_eq!(books.all(MS + 4, &[(process(0), sure(7 * MS)), (process(1), unsure)]), []);
    // No time is too far away to be believed for longer than a second.
    assert_eq!(books.at(MS + 5, sure(u64::MAX)), [Event::DrainsAt(T, MS + 5 + UNTIL_NS_MAX)]);
}

#[test]
fn who_is_stopped_is_taken_at_its_word() {
    let unsure = Claim { until_ns: 3 * MS, ..busy(4, 1, 0) };
    let mut books = Books::new();
    books.at(0, unsure);
    books.account.opened(0);
    books.at(MS, unsure);
    books.closed();
    assert_eq!(books.at(2 * MS, unsure), []);
    assert_eq!(books.account.next_deadline(), Some(4 * MS), "a millisecond after its word");
    assert_eq!(books.at(4 * MS, unsure), [], "it is late, and runs");
    assert_eq!(books.account.next_deadline(), Some(9 * MS));
    books.stopped = true;
    assert_eq!(books.at(8 * MS, unsure), [], "nobody has looked");
    assert_eq!(
        books.at(9 * MS, unsure),
        [Event::Idles(T), Event::Drained(T)],
        "nothing of it is waited for, and no turn kept"
    );
    assert_eq!(books.at(11 * MS, unsure), [], "it stays so");
    books.stopped = false;
    assert_eq!(
        books.at(20 * MS, Claim { waiting: 1, ..busy(4, 4, 3 * MS) }),
        [Event::Wants(T), Event::Used(T, 2 * MS)],
        "it runs again, and one was charged already"
    );
}

#[test]
fn who_is_stopped_with_work_under_way_gets_no_turn_for_waiting() {
    let stands = Claim { until_ns: MS, waiting: 1, ..busy(4, 1, 0) };
    let mut books = Books::new();
    books.at(0, stands);
    books.account.opened(0);
    books.stopped = true;
    assert_eq!(books.at(3 * MS, stands), [Event::Idles(T)]);
    books.closed();
    assert_eq!(books.at(20 * MS, stands), [Event::Drained(T)]);
    assert_eq!(books.at(40 * MS, stands), [], "the device would stand idle");
    // Another process of the tenant waits, and is not stopped.
    let moves = (Process { pid: 1, ..process(1) }, waiting());
    books.now_ns = 60 * MS;
    let mut events = Vec::new();
    books.account.look(&[(process(0), stands), moves], 60 * MS, &mut |process| process.pid != 1, &mut events);
    assert_eq!(events, [Event::Wants(T)]);
}

#[test]
fn what_was_used_after_a_pause_is_charged_to_one_that_competes() {
    let mut books = Books::new();
    books.at(0, waiting());
    books.account.opened(0);
    books.at(MS, Claim { passed_at_ns: 1, ..busy(4, 4, MS) });
    let pieces =
        (1..5).flat_map(|piece| books.at((piece * 100 + 1) * MS, busy(4 + piece, 4 + piece, MS + piece * 90 * MS)));
    let piece = [Event::Wants(T), Event::Used(T, 90 * MS), Event::Idles(T)];
    assert_eq!(pieces.collect::<Vec<_>>(), piece.repeat(4));
}

#[test]
fn processes_of_one_tenant_end_one_after_the_other() {
    let sure = |until_ns: u64| Claim { until_ns, sure: true, ..busy(4, 1, 0) };
    let mut books = Books::new();
    let both = [(process(0), sure(5 * MS)), (process(1), sure(4 * MS))];
    books.all(0, &both);
    books.account.opened(0);
    books.all(MS, &both);
    books.closed();
    assert_eq!(books.all(2 * MS, &both), [Event::DrainsAt(T, 7 * MS)], "3 ms and 2 ms are left");
}

#[test]
fn how_long_the_way_through_the_gate_takes_is_told_once_a_turn() {
    let mut books = Books::new();
    books.at(0, waiting());
    books.account.opened(MS);
    let through = |passed_at_ns| Claim { passed_at_ns, ..busy(1, 0, 0) };
    assert_eq!(books.at(2 * MS, through(MS + 40_000)), [Event::Opened(T, 40_000)]);
    assert_eq!(books.at(3 * MS, through(MS + 90_000)), []);
    books.closed();
    books.account.opened(5 * MS);
    assert_eq!(books.at(6 * MS, through(MS + 90_000)), [], "that was before");
    assert_eq!(books.at(7 * MS, through(u64::MAX)), [], "by then it was known to launch");
    books.closed();
    books.account.opened(50 * MS);
    let absurd = books.at(90 * MS, Claim { submitted: 1, completed: 1, ..through(u64::MAX - 1) });
    assert!(absurd.contains(&Event::Opened(T, OPENED_NS_MAX)), "{absurd:?}");
}

#[test]
fn who_does_not_come_through_an_open_gate_is_passed_over_ever_longer() {
    let mut books = Books::new();
    let mut now_ns = 0;
    let mut pauses = Vec::new();
    assert_eq!(books.at(0, waiting()), [Event::Wants(T)]);
    for _ in 0..9 {
        books.account.opened(now_ns);
        assert_eq!(books.account.next_deadline(), Some(now_ns + STOPPED_GRACE_NS), "is it stopped?");
        assert_eq!(books.at(now_ns + STOPPED_GRACE_NS, waiting()), []);
        assert_eq!(books.account.next_deadline(), Some(now_ns + NO_SHOW_NS));
        now_ns += NO_SHOW_NS;
        assert_eq!(books.at(now_ns, waiting()), [Event::Idles(T)]);
        books.closed();
        let again_ns = books.account.next_deadline().expect("it is given another chance");
        pauses.push((again_ns - now_ns) / MS);
        assert!(!books.at(again_ns - 1, waiting()).contains(&Event::Wants(T)));
        assert_eq!(books.at(again_ns, waiting()), [Event::Wants(T)]);
        now_ns = again_ns;
    }
    assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 640, 640]);
    // It comes after all: it is believed at once, and from the start.
    books.account.opened(now_ns);
    books.at(now_ns + NO_SHOW_NS, waiting());
    let comes = books.at(now_ns + NO_SHOW_NS + 1, Claim { waiting: 1, ..busy(1, 0, 0) });
    assert!(comes.contains(&Event::Wants(T)), "{comes:?}");
}

#[test]
fn who_waits_and_is_stopped_gets_no_turn_until_it_goes_on() {
    let mut books = Books::new();
    books.at(0, waiting());
    books.account.opened(0);
    books.stopped = true;
    assert_eq!(books.at(STOPPED_GRACE_NS, waiting()), [Event::Idles(T)], "it is not waited for any longer");
    books.closed();
    for _ in 0..8 {
        let now_ns = books.account.next_deadline().expect("it is looked at again");
        assert!(!books.at(now_ns, waiting()).contains(&Event::Wants(T)), "the device would stand idle");
    }
    books.stopped = false;
    let now_ns = books.account.next_deadline().expect("as above");
    assert_eq!(books.at(now_ns, waiting()), [Event::Wants(T)]);
}

#[test]
fn a_turn_of_which_nothing_is_measured_is_charged_and_set_off_later() {
    let mut books = Books::new();
    books.at(0, waiting());
    books.account.opened(0);
    books.at(MS, busy(1, 0, 0));
    books.now_ns = 3 * MS;
    assert_eq!(books.closed(), [Event::Used(T, 3 * MS)], "a long kernel, or a lie");
    assert_eq!(books.at(10 * MS, busy(1, 1, 9 * MS)), [Event::Used(T, 6 * MS), Event::Idles(T), Event::Drained(T)]);
}

#[test]
fn who_is_alone_is_busy_and_owes_nothing() {
    let mut books = Books::new();
    let mut events = Vec::new();
    books.account.set_free(true, 0, &mut events);
    assert_eq!(events, [Event::Wants(T)]);
    assert_eq!(books.at(100 * MS, busy(0, 0, 50 * MS)), [], "nothing is counted");
    assert_eq!(books.account.next_deadline(), None);
    books.account.set_free(false, 200 * MS, &mut events);
    assert_eq!(events.len(), 1);
    // What it launched before isn't counted; that it says nothing of it is no idleness yet.
    assert_eq!(books.at(201 * MS, busy(0, 0, 50 * MS)), []);
    assert_eq!(books.account.next_deadline(), Some(200 * MS + FREE_GRACE_NS));
    assert_eq!(books.at(202 * MS, busy(0, 0, 50 * MS)), [Event::Idles(T)]);
}

#[test]
fn a_tenant_that_may_be_waiting_for_itself_is_let_go_on() {
    let spins = (process(0), Claim { until_ns: MS, ..busy(4, 3, 0) });
    let waits = (process(1), waiting());
    let mut books = Books::new();
    books.all(0, &[spins, waits]);
    books.account.opened(0);
    books.all(MS, &[spins, waits]);
    assert_eq!((books.account.has_lease(), books.account.stuck_since_ns), (false, None), "its gate is open");
    books.closed();
    books.all(2 * MS, &[spins, waits]);
    assert!(!books.account.has_lease(), "it has not waited for long");
    assert_eq!(books.account.next_deadline(), Some(2 * MS + STUCK_NS));
    books.all(2 * MS + STUCK_NS, &[spins, waits]);
    assert!(books.account.has_lease());
    assert_eq!(books.account.next_deadline(), Some(2 * MS + STUCK_NS + LEASE_LOOK_NS));
    books.all(6 * MS, &[spins, (process(1), Claim { passed_at_ns: 6 * MS, ..busy(1, 0, 0) })]);
    assert!(!books.account.has_lease(), "it has gone on");
    let through = (process(1), Claim { passed_at_ns: 6 * MS, ..busy(1, 0, 0) });
    let third = (process(2), waiting());
    books.all(7 * MS, &[spins, through, third]);
    books.all(7 * MS + STUCK_NS, &[spins, through, third]);
    assert!(books.account.has_lease(), "a third one is still kept out");
    books.all(11 * MS, &[(process(0), busy(4, 4, 0)), through, third]);
    assert!(!books.account.has_lease(), "something has ended");
    // One that waits for nothing of its own, or has nothing under way, waits for its turn.
    for claims in [[(process(0), busy(4, 4, 0)), waits], [spins, (process(1), busy(1, 1, 0))]] {
        books.all(12 * MS, &claims);
        books.all(25 * MS, &claims);
        assert!(!books.account.has_lease());
    }
}
