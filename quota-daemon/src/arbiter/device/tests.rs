use super::*;
use quota_core::compute::Limit;
use quota_core::{Percent, Priority};

const MS: u64 = 1_000_000;

/// What tenants say, each with one process, and the time.
#[derive(Default)]
struct Stage {
    now_ns: u64,
    claims: BTreeMap<Tenant, Claim>,
    gates: BTreeMap<Tenant, (Gate, u32)>,
}

impl Eyes for Stage {
    fn claims(&mut self, tenant: Tenant, claims: &mut Vec<(Process, Claim)>) {
        let process = Process { slot: 0, generation: 1, pid: 1 };
        claims.extend(self.claims.get(&tenant).map(|claim| (process, *claim)));
    }

    fn is_stopped(&mut self, _process: Process) -> bool {
        false
    }

    fn now_ns(&mut self) -> u64 {
        self.now_ns
    }
}

fn terms(weight: u32) -> Terms {
    let share = Share { weight, guarantee: None, cap: None, class: Priority::Normal, pool: None };
    Terms { share, capped: false, soft: false, part: None, paused: false }
}

fn capped() -> Terms {
    Terms { capped: true, ..terms(100) }
}

impl Stage {
    fn look(&mut self, device: &mut Device) {
        device.look(self);
        let mut shows = Vec::new();
        device.shows(&mut shows);
        for show in shows {
            self.gates.insert(show.tenant, (show.gate, show.ahead_us));
        }
    }

    fn gate(&self, tenant: u64) -> Gate {
        self.gates[&Tenant(tenant)].0
    }

    fn says(&mut self, tenant: u64, claim: Claim) {
        self.claims.insert(Tenant(tenant), claim);
    }

    /// Time passes, with a look whenever one is due.
    fn pass(&mut self, device: &mut Device, until_ns: u64) -> usize {
        let mut looks = 0;
        while let Some(due_ns) = device.next_deadline().filter(|due_ns| *due_ns <= until_ns) {
            assert!(due_ns >= self.now_ns, "{due_ns} is past at {}", self.now_ns);
            self.now_ns = due_ns;
            self.look(device);
            looks += 1;
            assert!(looks < 10_000, "it never comes to rest");
        }
        self.now_ns = until_ns;
        looks
    }
}

fn waits() -> Claim {
    Claim { waiting: 1, ..Claim::default() }
}

#[test]
fn who_is_alone_is_free_until_another_comes_and_again_when_he_is_gone() {
    let (mut stage, mut device) = (Stage::default(), Device::new(Rules::default()));
    device.seat(Tenant(1), terms(100), 0);
    stage.look(&mut device);
    assert_eq!((stage.gate(1), device.next_deadline(), device.beats()), (Gate::Free, None, false));
    device.seat(Tenant(2), terms(100), 0);
    stage.look(&mut device);
    assert_eq!((stage.gate(1), stage.gate(2)), (Gate::Open, Gate::Closed), "who was there holds the token");
    device.unseat(Tenant(2), 0);
    stage.look(&mut device);
    assert_eq!((stage.gate(1), device.next_deadline()), (Gate::Free, None));
}

#[test]
fn a_cap_or_a_pause_is_never_free() {
    let (mut stage, mut device) = (Stage::default(), Device::new(Rules::default()));
    device.seat(Tenant(1), capped(), 0);
    stage.look(&mut device);
    assert_eq!(stage.gate(1), Gate::Closed, "it has not asked yet");
    stage.says(1, waits());
    stage.look(&mut device);
    assert_eq!(stage.gates[&Tenant(1)], (Gate::Open, AHEAD_QUIET_US));
    device.change(Tenant(1), terms(100), 0);
    stage.look(&mut device);
    assert_eq!(stage.gate(1), Gate::Free);
    device.change(Tenant(1), Terms { paused: true, ..terms(100) }, 0);
    stage.look(&mut device);
    assert_eq!(stage.gate(1), Gate::Closed);
    device.change(Tenant(1), terms(100), 0);
    stage.look(&mut device);
    assert_eq!(stage.gate(1), Gate::Free);
}

/// What is under way when a tenant of the high class comes is what it waits for, so it is little, while there is one.
#[test]
fn beside_a_tenant_of_the_high_class_less_is_under_way() {
    let (mut stage, mut device) = (Stage::default(), Device::new(Rules::default()));
    let high = Share { class: Priority::High, ..terms(100).share };
    device.seat(Tenant(1), capped(), 0);
    device.seat(Tenant(2), Terms { share: high, ..terms(100) }, 0);
    stage.says(1, waits());
    stage.look(&mut device);
    assert_eq!(stage.gates[&Tenant(1)], (Gate::Open, AHEAD_BESIDE_HIGH_US));
    assert_eq!(stage.gates[&Tenant(2)].1, AHEAD_CONTENDED_US, "not for itself");
    device.change(Tenant(2), terms(100), 0);
    stage.look(&mut device);
    assert_eq!(stage.gates[&Tenant(1)], (Gate::Open, AHEAD_QUIET_US));
}

#[test]
fn two_that_are_busy_take_turns_and_idle_ones_come_to_rest() {
    let (mut stage, mut device) = (Stage::default(), Device::new(Rules::default()));
    for tenant in [1, 2] {
        stage.says(tenant, waits());
        device.seat(Tenant(tenant), capped(), 0);
    }
    stage.look(&mut device);
    assert!(device.beats() && device.contenders() == 2);
    let open = |stage: &Stage| [1, 2].map(|tenant| stage.gate(tenant) == Gate::Open);
    assert_eq!(open(&stage).iter().filter(|open| **open).count(), 1);
    let mut held = [0, 0];
    for _ in 0..200 {
        // Whoever has the token has work under way, and none of it ends late.
        for (tenant, open) in [1, 2].into_iter().zip(open(&stage)) {
            let before = stage.claims[&Tenant(tenant)];
            let used = if open { MS } else { 0 };
            let submitted = before.submitted + u64::from(open);
            let waiting = u32::from(!open);
            held[tenant as usize - 1] += used;
            let (completed, busy_ns) = (submitted - u64::from(open), before.busy_ns + used);
            stage.says(tenant, Claim { submitted, completed, busy_ns, waiting, ..Claim::default() });
        }
        let until_ns = stage.now_ns + MS;
        stage.pass(&mut device, until_ns);
        stage.look(&mut device);
        assert!(open(&stage).iter().filter(|open| **open).count() <= 1);
    }
    let share = held[0] as f64 / (held[0] + held[1]) as f64;
    assert!((0.45..0.55).contains(&share), "{held:?}");
    assert_eq!(stage.gates[&Tenant(1)].1, AHEAD_CONTENDED_US);
    for tenant in [1, 2] {
        let submitted = stage.claims[&Tenant(tenant)].submitted;
        stage.says(tenant, Claim { submitted, completed: submitted, ..stage.claims[&Tenant(tenant)] });
        stage.says(tenant, Claim { waiting: 0, ..stage.claims[&Tenant(tenant)] });
    }
    stage.look(&mut device);
    assert!(!device.beats(), "nobody waits");
    let looks = stage.pass(&mut device, stage.now_ns + 2 * REST_AFTER_NS);
    assert!((1..=4).contains(&looks), "{looks}");
    assert_eq!(device.next_deadline(), None, "nothing is due any more");
    let asked = [1, 2].iter().filter(|tenant| stage.gate(**tenant) == Gate::Ask).count();
    assert_eq!(asked, 1, "one asks at its next use, so that the other is alone");
}

/// Time that nobody of another tenant wants is lent to who may borrow beyond his cap; it holds as soon as somebody does, for
/// the jobs of a tenant together.
#[test]
fn a_soft_cap_holds_while_somebody_else_wants_the_device() {
    let (mut stage, mut device) = (Stage::default(), Device::new(Rules::default()));
    let soft = Terms { soft: true, ..capped() };
    let part = Part { weight: 100, own: 1_500, most: 3_000, all: 3_000 };
    let job = Terms { part: Some(part), ..soft.in_pool(Pool { id: 7, weight: 100 }, 100) };
    for (tenant, terms) in [(1, job), (2, job), (3, capped()), (4, soft)] {
        device.seat(Tenant(tenant), terms, 0);
    }
    let mut used = [0u64; 4];
    let mut run = |device: &mut Device, uses: [u64; 4], lasts_ms: u64| {
        for (at, used) in used.iter_mut().enumerate() {
            *used += uses[at] * MS;
            let waiting = u32::from(uses[at] > 0);
            let claim = Claim { busy_ns: *used, submitted: *used, completed: *used, waiting, ..Claim::default() };
            stage.says(at as u64 + 1, claim);
        }
        stage.now_ns += lasts_ms * MS;
        stage.look(device);
        let mut loans = Vec::new();
        device.lend(stage.now_ns, &mut loans);
        let shown = |loan: &Loan| (loan.tenant.0, loan.cap.map(Percent::hundredths));
        loans.iter().map(shown).collect::<Vec<_>>()
    };
    let all = |tenant| (tenant, Some(10_000));
    run(&mut device, [0; 4], 100);
    assert_eq!(run(&mut device, [1, 0, 0, 0], 1), [all(1), all(2), (4, None)], "at once");
    assert_eq!(run(&mut device, [50, 50, 0, 0], 100), [all(1), all(2)], "for all jobs of the tenant");
    assert_eq!(run(&mut device, [1, 1, 1, 0], 1), [(1, None), (2, None)], "somebody else comes");
    assert_eq!(run(&mut device, [1, 1, 1, 0], 1), [], "nothing new");
    for _ in 0..20 {
        run(&mut device, [15, 0, 70, 0], 100);
    }
    assert_eq!(run(&mut device, [15, 0, 70, 0], 100), [(1, Some(2_850))], "what one leaves of the cap the other has");
    assert_eq!(run(&mut device, [1, 0, 0, 1], 1), [], "of two that borrow neither has more");
    assert_eq!(run(&mut device, [0, 0, 0, 1], 1), [(1, Some(2_850)), all(4)], "who is alone has all");
    device.change(Tenant(4), capped(), 0);
    assert_eq!(run(&mut device, [0, 0, 0, 1], 1)[1..], [(4, None)], "and may no longer");
    run(&mut device, [0; 4], 100);
    assert_eq!(device.loans_due(), None, "nobody looks where nobody has work");
}

/// What that comes to, where processes keep to their caps and loans: all while nobody else wants it, and at once the other's part.
#[test]
fn time_that_is_borrowed_is_given_back_at_once() {
    /// Each launch takes so long, and each change of hands.
    const STEP_NS: u64 = MS / 10;
    let (mut stage, mut device) = (Stage::default(), Device::new(Rules::default()));
    for (tenant, terms) in [(1, Terms { soft: true, ..capped() }), (2, capped())] {
        device.seat(Tenant(tenant), terms, 0);
    }
    let limit = Limit::new(Percent::from_hundredths(3_000).expect("legal"), 3 * MS);
    let (mut empty_at, mut throttled, mut loan) = (0, false, None);
    let mut run = |busy: &[u64], ms: u64| {
        let mut used_ns = [0; 2];
        for _ in 0..ms * MS / STEP_NS {
            let keeps = loan.is_none_or(|loan: Loan| loan.cap.is_none() || loan.until_ns <= stage.now_ns);
            let has_credit = if throttled {
                stage.now_ns >= limit.resumes_at(empty_at)
            } else {
                limit.has_credit(empty_at, stage.now_ns)
            };
            throttled = keeps && !has_credit;
            for tenant in [1, 2] {
                let before = stage.claims.get(&Tenant(tenant)).copied().unwrap_or_default();
                let (is_busy, may) = (busy.contains(&tenant), tenant == 2 || !throttled);
                let runs = u64::from(is_busy && may && device.holder() == Some(Tenant(tenant)));
                if tenant == 1 && keeps && runs > 0 {
                    empty_at = limit.charge(empty_at, STEP_NS, stage.now_ns);
                }
                used_ns[tenant as usize - 1] += runs * STEP_NS;
                let (submitted, busy_ns) = (before.submitted + runs, before.busy_ns + runs * STEP_NS);
                let (waiting, throttled) = (u32::from(is_busy && may), u32::from(is_busy && !may));
                let claim = Claim { submitted, completed: submitted, busy_ns, waiting, throttled, ..Claim::default() };
                stage.says(tenant, claim);
            }
            stage.now_ns += STEP_NS;
            stage.look(&mut device);
            let mut loans = Vec::new();
            device.lend(stage.now_ns, &mut loans);
            loan = loans.into_iter().find(|loan| loan.tenant == Tenant(1)).or(loan);
        }
        used_ns.map(|used_ns| used_ns / MS)
    };
    let [alone, _] = run(&[1], 1_000);
    assert!(alone >= 980, "{alone} of 1,000");
    let [first, second] = run(&[1, 2], 50);
    assert!(first <= 25 && second >= 25, "at once: {first} and {second} of 50");
    let [capped, other] = run(&[1, 2], 2_000);
    assert!((540..=660).contains(&capped) && other >= 1_300, "{capped} and {other} of 2,000");
    let [again, _] = run(&[1], 1_000);
    assert!(again >= 950, "{again} of 1,000");
}

/// While nobody looked after the gates, both launched as they liked; what they say of that time is no debt of either.
#[test]
fn what_is_used_while_nobody_looks_is_no_debt() {
    let (mut stage, mut device) = (Stage::default(), Device::new(Rules::default()));
    for tenant in [1, 2] {
        stage.says(tenant, waits());
        device.seat(Tenant(tenant), capped(), 0);
    }
    stage.look(&mut device);
    let mut run = |stage: &mut Stage, lasts_ns: u64, used_ns: u64| {
        stage.now_ns += lasts_ns;
        let holder = device.holder().expect("one of them").0;
        let before = stage.claims[&Tenant(holder)];
        let (submitted, busy_ns) = (before.submitted + 1, before.busy_ns + used_ns);
        stage.says(holder, Claim { submitted, completed: submitted, busy_ns, waiting: 1, ..Claim::default() });
        stage.look(&mut device);
        holder
    };
    run(&mut stage, MS, MS);
    let holder = run(&mut stage, UNWATCHED_NS + 100 * MS, UNWATCHED_NS + 100 * MS);
    let turns: Vec<u64> = (0..100).map(|_| run(&mut stage, MS, MS)).collect();
    let had = turns.iter().filter(|tenant| **tenant == holder).count();
    assert!((40..=60).contains(&had), "{had} of 100 for who held the token meanwhile");
}

#[test]
fn who_rests_comes_back_when_he_asks() {
    let (mut stage, mut device) = (Stage::default(), Device::new(Rules::default()));
    device.seat(Tenant(1), terms(100), 0);
    stage.look(&mut device);
    device.seat(Tenant(2), terms(100), 0);
    stage.says(1, Claim { submitted: 5, completed: 4, ..Claim::default() });
    stage.look(&mut device);
    stage.now_ns = 20 * MS;
    stage.look(&mut device);
    stage.pass(&mut device, REST_AFTER_NS + 50 * MS);
    assert_eq!((stage.gate(1), stage.gate(2)), (Gate::Free, Gate::Ask));
    stage.says(2, waits());
    stage.look(&mut device);
    assert_eq!((stage.gate(1), stage.gate(2)), (Gate::Closed, Gate::Closed), "it has had its turn, and drains");
    stage.says(1, Claim { submitted: 5, completed: 5, ..Claim::default() });
    let until_ns = stage.now_ns + 10 * MS;
    stage.pass(&mut device, until_ns);
    stage.look(&mut device);
    assert_eq!(stage.gate(2), Gate::Open);
}

#[test]
fn who_is_paused_for_long_leaves_the_device_to_the_other() {
    let (mut stage, mut device) = (Stage::default(), Device::new(Rules::default()));
    for tenant in [1, 2] {
        stage.says(tenant, waits());
        device.seat(Tenant(tenant), terms(100), 0);
        stage.look(&mut device);
    }
    device.change(Tenant(1), Terms { paused: true, ..terms(100) }, 0);
    stage.look(&mut device);
    stage.says(2, Claim { submitted: 1, ..Claim::default() });
    // What the first one had from the time when it was alone may still be under way.
    stage.pass(&mut device, 5 * MS);
    assert_eq!((stage.gate(1), stage.gate(2), device.contenders()), (Gate::Closed, Gate::Open, 1));
    stage.pass(&mut device, REST_AFTER_NS + 50 * MS);
    assert_eq!((stage.gate(1), stage.gate(2)), (Gate::Closed, Gate::Free));
    assert!(device.beats(), "it waits, and sees that somebody looks after it");
    device.change(Tenant(1), terms(100), stage.now_ns);
    stage.look(&mut device);
    assert_ne!(stage.gate(2), Gate::Free, "it is back");
}

/// What one of a pool doesn't use of its part of the cap is lent to the one that uses its own; for no longer than that.
#[test]
fn parts_that_are_not_used_are_lent() {
    let (mut stage, mut device) = (Stage::default(), Device::new(Rules::default()));
    let part = |own, most| Part { weight: 100, own, most, all: 6_000 };
    let in_pool = |part| Terms { part: Some(part), ..capped().in_pool(Pool { id: 7, weight: 100 }, 100) };
    for (tenant, terms) in [(1, in_pool(part(2_500, 5_000))), (2, in_pool(part(2_500, 6_000))), (3, capped())] {
        device.seat(Tenant(tenant), terms, 0);
    }
    let mut used = [0u64; 3];
    // What the first says besides: threads that wait at the gate, and for credit.
    let says = core::cell::Cell::new((0, 0));
    let mut run = |device: &mut Device, uses: [u64; 3], looks: usize| {
        let mut loans = Vec::new();
        for _ in 0..looks {
            for (at, used) in used.iter_mut().enumerate() {
                *used += uses[at] * MS;
                let claim = Claim { busy_ns: *used, submitted: *used, completed: *used, ..Claim::default() };
                let (waits, throttled) = if at == 0 { says.get() } else { (0, 0) };
                let waiting = u32::from(uses[at] > 0).max(waits);
                stage.says(at as u64 + 1, Claim { waiting, throttled, ..claim });
            }
            stage.now_ns += 100 * MS;
            stage.look(device);
            loans.clear();
            device.lend(stage.now_ns, &mut loans);
        }
        let now_ms = stage.now_ns / MS;
        let shown = |loan: &Loan| (loan.tenant.0, loan.cap.map(Percent::hundredths), loan.until_ns / MS - now_ms);
        loans.iter().map(shown).collect::<Vec<_>>()
    };
    // One part of the cap is nobody's.
    assert_eq!(run(&mut device, [25, 25, 50], 3), [(1, Some(3_000), 300), (2, Some(3_000), 300)]);
    assert_eq!(run(&mut device, [0, 25, 50], 20), [(2, Some(5_750), 300)], "a tenth of the part is kept for it");
    assert_eq!(run(&mut device, [25, 0, 50], 20), [(1, Some(5_000), 300)], "no more than is its own cap");
    assert_eq!(run(&mut device, [25, 25, 50], 1).len(), 2, "whoever comes back has his own, and what is over");
    assert_eq!(run(&mut device, [0, 25, 50], 20).len(), 1);
    says.set((0, 1));
    assert_eq!(run(&mut device, [0, 25, 50], 1).len(), 2, "so does whoever waits for credit");
    says.set((0, 0));
    device.change(Tenant(1), Terms { paused: true, ..in_pool(part(2_500, 5_000)) }, 0);
    says.set((1, 0));
    assert_eq!(
        run(&mut device, [0, 25, 50], 20),
        [(2, Some(5_750), 300)],
        "who is paused uses nothing, however he waits"
    );
    device.change(Tenant(1), in_pool(part(2_500, 5_000)), 0);
    says.set((0, 0));
    run(&mut device, [25, 25, 50], 1);
    device.change(Tenant(1), in_pool(part(3_500, 5_000)), 0);
    let mut loans = Vec::new();
    device.lend(0, &mut loans);
    assert!(loans.iter().all(|loan| loan.cap.is_none()), "at once, when parts change: {loans:?}");
    assert_eq!(run(&mut device, [0, 0, 50], 20), [], "nobody wants it");
    assert!(device.loans_due().is_none(), "and nobody looks");
}
