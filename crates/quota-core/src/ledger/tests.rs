//! The ledger's properties, by threads that play processes.

use super::*;
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;
const UUID: [u8; 16] = [7; 16];

/// A zeroed ledger on the heap; it is too large for a test's stack.
fn fresh() -> Arc<Ledger> {
    let none = || core::array::from_fn(|_| AtomicU32::new(0));
    let ledger = Arc::new(Ledger {
        magic: AtomicU64::new(0),
        version: AtomicU32::new(0),
        high: AtomicU32::new(0),
        _reserved: [0; 6],
        devices: core::array::from_fn(|_| DeviceName {
            halves: [AtomicU64::new(0), AtomicU64::new(0)],
            context: AtomicU32::new(0),
            _reserved: AtomicU32::new(0),
        }),
        slots: core::array::from_fn(|_| Slot {
            pid: AtomicU32::new(0),
            _reserved: AtomicU32::new(0),
            words: core::array::from_fn(|_| AtomicU64::new(0)),
            overhead: none(),
            soft: none(),
            parked: none(),
        }),
    });
    ledger.initialise(&Locked::assume()).expect("zero bytes are a ledger");
    ledger
}

fn units(bytes: u64) -> Units {
    Units::holding(Bytes(bytes)).expect("a small size")
}

fn try_charge(ledger: &Ledger, slot: SlotId, device: DeviceId, bytes: u64, cap: u64) -> Result<(), Denied> {
    if ledger.charge(slot, device, units(bytes)) {
        return Ok(());
    }
    ledger.grow(slot, device, units(bytes), Bytes(cap), &Locked::assume())
}

fn on_a_big_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(16 << 20).spawn(test).expect("a thread").join().expect("the test");
}

#[test]
fn a_charge_beyond_the_cap_is_denied_and_changes_nothing() {
    on_a_big_stack(|| {
        let ledger = fresh();
        let device = ledger.device(UUID, &Locked::assume()).expect("room");
        let slot = SlotId(0);
        ledger.occupy(slot, 1);
        assert!(try_charge(&ledger, slot, device, 600 * MIB, 1024 * MIB).is_ok());
        let denied = try_charge(&ledger, slot, device, 600 * MIB, 1024 * MIB).expect_err("over the cap");
        assert_eq!(denied, Denied { asked: Bytes(600 * MIB), used: Bytes(600 * MIB), cap: Bytes(1024 * MIB) });
        assert_eq!(ledger.used(device), Bytes(600 * MIB));
        assert!(try_charge(&ledger, slot, device, 424 * MIB, 1024 * MIB).is_ok(), "exactly full");
        assert!(try_charge(&ledger, slot, device, 1, 1024 * MIB).is_err());
        ledger.give_back(slot, device, units(1024 * MIB));
        assert_eq!(ledger.used(device), Bytes(0));
    });
}

#[test]
fn slack_of_others_is_no_reason_to_refuse() {
    on_a_big_stack(|| {
        let ledger = fresh();
        let device = ledger.device(UUID, &Locked::assume()).expect("room");
        let (a, b) = (SlotId(0), SlotId(1));
        ledger.occupy(a, 1);
        ledger.occupy(b, 2);
        assert!(try_charge(&ledger, a, device, 900 * MIB, 1024 * MIB).is_ok());
        ledger.give_back(a, device, units(900 * MIB));
        assert!(try_charge(&ledger, b, device, 1024 * MIB, 1024 * MIB).is_ok());
        assert!(!ledger.charge(a, device, units(512)), "a's stock went to b");
    });
}

#[test]
fn a_lowered_cap_refuses_until_use_falls() {
    on_a_big_stack(|| {
        let ledger = fresh();
        let device = ledger.device(UUID, &Locked::assume()).expect("room");
        let slot = SlotId(3);
        ledger.occupy(slot, 1);
        assert!(try_charge(&ledger, slot, device, 800 * MIB, 1024 * MIB).is_ok());
        ledger.drop_slack(slot, device);
        assert!(try_charge(&ledger, slot, device, MIB, 512 * MIB).is_err());
        ledger.give_back(slot, device, units(400 * MIB));
        ledger.drop_slack(slot, device);
        assert!(try_charge(&ledger, slot, device, 100 * MIB, 512 * MIB).is_ok());
    });
}

#[test]
fn a_dead_process_gives_everything_back() {
    on_a_big_stack(|| {
        let ledger = fresh();
        let device = ledger.device(UUID, &Locked::assume()).expect("room");
        ledger.occupy(SlotId(5), 77);
        assert!(try_charge(&ledger, SlotId(5), device, 1024 * MIB, 1024 * MIB).is_ok());
        ledger.vacate(SlotId(5));
        ledger.occupy(SlotId(6), 78);
        assert!(try_charge(&ledger, SlotId(6), device, 1024 * MIB, 1024 * MIB).is_ok());
    });
}

#[test]
fn a_foreign_or_old_file_is_refused() {
    on_a_big_stack(|| {
        let ledger = fresh();
        ledger.version.store(99, Ordering::Relaxed);
        assert_eq!(ledger.initialise(&Locked::assume()), Err(LedgerError::OtherVersion(99)));
        ledger.magic.store(1, Ordering::Relaxed);
        assert_eq!(ledger.initialise(&Locked::assume()), Err(LedgerError::NotALedger));
    });
}

#[test]
fn giving_back_too_much_leaves_zero() {
    on_a_big_stack(|| {
        let ledger = fresh();
        let device = ledger.device(UUID, &Locked::assume()).expect("room");
        ledger.occupy(SlotId(0), 1);
        assert!(try_charge(&ledger, SlotId(0), device, MIB, 1024 * MIB).is_ok());
        ledger.give_back(SlotId(0), device, units(2 * MIB));
        assert_eq!(ledger.used(device), Bytes(0));
    });
}

/// Eight slots, random sizes, one cap: never over, and a lone request that fits is never refused at the end.
#[test]
fn many_processes_never_exceed_the_cap_together() {
    const CAP: u64 = 64 * MIB;
    on_a_big_stack(|| {
        let ledger = fresh();
        let device = ledger.device(UUID, &Locked::assume()).expect("room");
        let lock = Arc::new(Mutex::new(()));
        let threads: Vec<_> = (0..8u32)
            .map(|index| {
                let (ledger, lock) = (ledger.clone(), lock.clone());
                std::thread::spawn(move || {
                    let slot = SlotId(index);
                    ledger.occupy(slot, index + 1);
                    let mut seed = u64::from(index) + 1;
                    let mut held = Vec::new();
                    for _ in 0..20_000 {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let amount = units((seed >> 33) % (12 * MIB) + 1);
                        let charged = ledger.charge(slot, device, amount) || {
                            let _guard = lock.lock().expect("no panics");
                            ledger.grow(slot, device, amount, Bytes(CAP), &Locked::assume()).is_ok()
                        };
                        if charged {
                            held.push(amount);
                        }
                        if (held.len() > 3 || !charged)
                            && let Some(amount) = held.pop()
                        {
                            ledger.give_back(slot, device, amount);
                        }
                    }
                    for amount in held {
                        ledger.give_back(slot, device, amount);
                    }
                })
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            // Each word is read at its own moment, so the sum of `used` may be off; each stock is not over, as a sum, under the lock.
            let _guard = lock.lock().expect("no panics");
            let stock: u64 =
                ledger.slots().map(|slot| u64::from(unpack(ledger.word(slot, device).load(Ordering::Relaxed)).0)).sum();
            assert!(stock * UNIT <= CAP);
        }
        for thread in threads {
            thread.join().expect("no panics");
        }
        assert_eq!(ledger.used(device), Bytes(0));
        assert!(try_charge(&ledger, SlotId(0), device, CAP, CAP).is_ok());
    });
}

#[test]
fn what_the_driver_holds_beyond_the_charges_is_overhead() {
    let (used, overhead, soft) = (units(700 * MIB), units(300 * MIB), units(100 * MIB));
    let held = |bytes: u64| correction(used, overhead, soft, Bytes(bytes));
    assert_eq!(held(700 * MIB), Correction::None);
    assert_eq!(held(701 * MIB), Correction::Raise(units(MIB)));
    assert_eq!(held(600 * MIB), Correction::None, "managed memory may be anywhere");
    assert_eq!(held(599 * MIB), Correction::Lower(units(MIB)));
    assert_eq!(held(0), Correction::Lower(overhead), "what was asked for stays charged");
    assert_eq!(correction(used, Units::ZERO, soft, Bytes(0)), Correction::None);
}

#[test]
fn parts_go_with_their_process_and_a_parked_one_holds_nothing() {
    on_a_big_stack(|| {
        let ledger = fresh();
        let device = ledger.device(UUID, &Locked::assume()).expect("room");
        let slot = SlotId(3);
        ledger.occupy(slot, 1);
        try_charge(&ledger, slot, device, 100 * MIB, u64::MAX).expect("no cap");
        ledger.add_overhead(slot, device, units(40 * MIB));
        ledger.add_soft(slot, device, units(8 * MIB));
        assert_eq!(ledger.take_overhead(slot, device, units(50 * MIB)), units(40 * MIB), "no more than there is");
        ledger.park(slot, device);
        ledger.park(slot, device);
        assert_eq!((ledger.used(device), ledger.parked(slot, device)), (Bytes(0), units(100 * MIB)));
        ledger.unpark(slot, device);
        ledger.add_overhead(slot, device, units(MIB));
        ledger.vacate(slot);
        let parts = (ledger.overhead(slot, device), ledger.soft(slot, device), ledger.parked(slot, device));
        assert_eq!(parts, (Units::ZERO, Units::ZERO, Units::ZERO));
    });
}

#[test]
fn what_is_freed_after_a_refusal_is_not_charged_again_without_asking() {
    on_a_big_stack(|| {
        let ledger = fresh();
        let device = ledger.device(UUID, &Locked::assume()).expect("room");
        let slot = SlotId(0);
        ledger.occupy(slot, 1);
        assert!(try_charge(&ledger, slot, device, 800 * MIB, 800 * MIB).is_ok());
        assert!(try_charge(&ledger, slot, device, MIB, 400 * MIB).is_err(), "the cap was lowered");
        ledger.give_back(slot, device, units(800 * MIB));
        assert!(try_charge(&ledger, slot, device, 800 * MIB, 400 * MIB).is_err(), "it still is");
        assert!(try_charge(&ledger, slot, device, 400 * MIB, 400 * MIB).is_ok());
    });
}

#[test]
fn beside_a_forced_charge_nobody_keeps_slack() {
    on_a_big_stack(|| {
        let ledger = fresh();
        let device = ledger.device(UUID, &Locked::assume()).expect("room");
        let (a, b) = (SlotId(0), SlotId(1));
        ledger.occupy(a, 1);
        ledger.occupy(b, 2);
        assert!(try_charge(&ledger, a, device, 600 * MIB, 1024 * MIB).is_ok());
        ledger.give_back(a, device, units(600 * MIB));
        ledger.force(b, device, units(600 * MIB), &Locked::assume());
        assert!(try_charge(&ledger, a, device, 600 * MIB, 1024 * MIB).is_err());
        ledger.give_back(b, device, units(600 * MIB));
        assert!(try_charge(&ledger, a, device, 1024 * MIB, 1024 * MIB).is_ok());
        assert!(try_charge(&ledger, b, device, 600 * MIB, 1024 * MIB).is_err(), "forced stock is no room for more");
    });
}

#[test]
fn parking_that_was_interrupted_is_ended_by_the_next_call() {
    on_a_big_stack(|| {
        let ledger = fresh();
        let device = ledger.device(UUID, &Locked::assume()).expect("room");
        let slot = SlotId(0);
        ledger.occupy(slot, 1);
        try_charge(&ledger, slot, device, 100 * MIB, u64::MAX).expect("no cap");
        // Killed between the two changes.
        ledger.slot(slot).parked[device.0 as usize].store(units(100 * MIB).0, Ordering::Relaxed);
        ledger.park(slot, device);
        assert_eq!((ledger.used(device), ledger.parked(slot, device)), (Bytes(0), units(100 * MIB)));
    });
}
