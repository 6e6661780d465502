//! Threads that hang, and devices that are let go of, over a driver that counts who holds what.

use super::*;
use crate::devices::watchdog::{LEFT_BEHIND_MAX, PAUSE_MAX};
use std::sync::Condvar;

/// A driver of two devices, for all its threads.
#[derive(Debug, Default)]
struct World {
    opened: u32,
    closed: u32,
    /// Calls hang that begin while this is set, until it is not.
    hangs: bool,
    hanging: u32,
    refuses: bool,
    /// By device, how many that were opened and not closed have been asked for it.
    held: [u32; 2],
}

#[derive(Clone, Debug, Default)]
struct Shared(Arc<(Mutex<World>, Condvar)>);

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.0.0)
    }

    fn open(&self) -> Result<Box<dyn Driver>, String> {
        let mut world = self.world();
        if world.refuses {
            return Err("no driver".to_owned());
        }
        world.opened += 1;
        Ok(Box::new(Fake { shared: self.clone(), held: Mutex::default() }))
    }

    fn set_hangs(&self, hangs: bool) {
        self.world().hangs = hangs;
        self.0.1.notify_all();
    }

    /// Waits for what the threads do by themselves.
    fn eventually(&self, what: &str, holds: impl Fn(&World) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds(&self.world()) {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.world());
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

struct Fake {
    shared: Shared,
    held: Mutex<[bool; 2]>,
}

impl Driver for Fake {
    fn sample(&self, device: usize) -> DeviceSample {
        let mut world = self.shared.world();
        if !std::mem::replace(&mut lock(&self.held)[device], true) {
            world.held[device] += 1;
        }
        if world.hangs {
            world.hanging += 1;
            let mut world = self.shared.0.1.wait_while(world, |world| world.hangs).expect("nobody panics");
            world.hanging -= 1;
        }
        DeviceSample { used: Some(quota_core::Bytes(7)), ..DeviceSample::default() }
    }

    fn utilisation(&self, _device: usize) -> Utilisation {
        None
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let mut world = self.shared.world();
        world.closed += 1;
        for (count, held) in world.held.iter_mut().zip(*lock(&self.held)) {
            *count -= u32::from(held);
        }
    }
}

fn sampler(shared: &Shared) -> Sampler {
    let opener = shared.clone();
    let first = shared.open().expect("it opens");
    Sampler::over(first, Arc::new(move || opener.open()), 2, PATIENCE).expect("a thread")
}

/// Waits for the answer to the newest question.
fn answer(sampler: &mut Sampler, now: Instant) -> Sample {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let sample = sampler.take(now);
        if sample.answers >= sampler.asked {
            return sample;
        }
        assert!(Instant::now() < deadline, "no answer to {}: {sample:?}", sampler.asked);
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Report 19.07: thirty days by the sampler's clock, in each hour of which a call hangs for a while and comes back. NVML has
/// been begun once more than it was ended, always, and no thread is left.
#[test]
fn in_thirty_days_every_beginning_but_one_has_its_end() {
    let shared = Shared::default();
    let mut sampler = sampler(&shared);
    let begin = Instant::now();
    for hour in 0..30 * 24 {
        let mut now = begin + Duration::from_secs(hour * 3600);
        shared.set_hangs(true);
        sampler.ask(now);
        shared.eventually("it hangs", |world| world.hanging == 1);
        // In some hours longer than in others: up to two threads more.
        for round in 0..hour % 3 {
            now = sampler.due().expect("it is silent");
            assert_eq!(sampler.watch(now), Some(Remedy::Replaced(round as usize + 1)), "hour {hour}");
            shared.eventually("the next hangs too", |world| u64::from(world.hanging) == round + 2);
        }
        shared.set_hangs(false);
        assert_eq!(answer(&mut sampler, now).devices[1].used, Some(quota_core::Bytes(7)));
        shared.eventually("the others have ended", |world| world.opened == world.closed + 1 && world.held == [1, 1]);
        assert_eq!(sampler.silence(), None);
    }
    let opened = shared.world().opened;
    assert_eq!(opened, 1 + 720, "one an hour on the average");
    drop(sampler);
    shared.eventually("the last one ends, too", |world| world.opened == world.closed);
}

/// Report 19.07: a driver that never comes back gets no more than a few threads, whatever is asked; and one that then does is
/// heard again.
#[test]
fn a_driver_that_hangs_for_ever_gets_a_few_threads() {
    let shared = Shared::default();
    let mut sampler = sampler(&shared);
    shared.set_hangs(true);
    sampler.ask(Instant::now());
    let mut seen = Vec::new();
    let mut now = Instant::now();
    while seen.len() < 12 {
        shared.eventually("it hangs", |world| world.hanging as usize == seen.len().min(LEFT_BEHIND_MAX) + 1);
        let due = sampler.due().expect("it is silent");
        assert!(seen.len() < 8 || due - now == PAUSE_MAX, "the pauses grow");
        now = due;
        seen.extend(sampler.watch(now));
        sampler.ask(now);
    }
    let wanted: Vec<Remedy> = (1..=4).map(Remedy::Replaced).chain([Remedy::Full(4); 8]).collect();
    assert_eq!(seen, wanted);
    assert_eq!(sampler.silence().map(|(_, replaced)| replaced), Some(4));
    shared.set_hangs(false);
    answer(&mut sampler, now);
    shared.eventually("one is left", |world| world.opened == 5 && world.closed == 4);
    sampler.ask(now);
    assert_eq!(answer(&mut sampler, now).devices[0].used, Some(quota_core::Bytes(7)));
}

/// A thread that comes back late says nothing any more: what is newer is not overwritten.
#[test]
fn what_comes_late_is_not_heard() {
    let shared = Shared::default();
    let mut sampler = sampler(&shared);
    shared.set_hangs(true);
    sampler.ask(Instant::now());
    shared.eventually("it hangs", |world| world.hanging == 1);
    let now = sampler.due().expect("it is silent");
    // The next one's driver can't be had.
    shared.world().refuses = true;
    assert_eq!(sampler.watch(now), Some(Remedy::Replaced(1)));
    let sample = answer(&mut sampler, now);
    assert_eq!(sample.devices[0].error.as_deref(), Some("no driver"));
    shared.set_hangs(false);
    shared.eventually("the first has ended", |world| world.opened == 1 && world.closed == 1);
    assert_eq!(sampler.take(now).devices[0].error.as_deref(), Some("no driver"));
    shared.world().refuses = false;
    sampler.ask(now);
    assert_eq!(answer(&mut sampler, now).devices[0].error, None, "it is tried again at each question");
}

/// Report 19.14: of a drained device nothing is held; of the others as before; of none, where all are drained.
#[test]
fn a_drained_device_is_let_go_of() {
    let shared = Shared::default();
    let mut sampler = sampler(&shared);
    let now = Instant::now();
    for (drained, held, opened) in [
        ([false, false], [1, 1], 1),
        ([true, false], [0, 1], 2),
        ([true, false], [0, 1], 2),
        ([true, true], [0, 0], 2),
        ([false, true], [1, 0], 3),
        ([false, false], [1, 1], 3),
        ([false, true], [1, 0], 4),
    ] {
        sampler.set_drained(drained.to_vec());
        sampler.ask(now);
        let sample = answer(&mut sampler, now);
        let said: Vec<(bool, bool)> = sample.devices.iter().map(|it| (it.let_go, it.used.is_some())).collect();
        assert_eq!(said, drained.map(|drained| (drained, !drained)), "{drained:?}");
        let world = shared.world();
        assert_eq!((world.held, world.opened), (held, opened), "{drained:?}");
        assert_eq!(world.opened - world.closed, u32::from(drained != [true, true]), "{drained:?}");
    }
}

/// While a thread hangs in the driver, the driver holds what that thread had: nobody is told otherwise.
#[test]
fn a_device_is_not_let_go_of_while_a_thread_hangs_with_it() {
    let shared = Shared::default();
    let mut sampler = sampler(&shared);
    shared.set_hangs(true);
    sampler.ask(Instant::now());
    shared.eventually("it hangs", |world| world.hanging == 1);
    sampler.set_drained(vec![true, true]);
    let now = sampler.due().expect("it is silent");
    assert_eq!(sampler.watch(now), Some(Remedy::Replaced(1)));
    assert!(answer(&mut sampler, now).devices.iter().all(|device| !device.let_go));
    shared.set_hangs(false);
    shared.eventually("it has ended", |world| world.opened == world.closed);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        sampler.ask(now);
        if answer(&mut sampler, now).devices.iter().all(|device| device.let_go) {
            break;
        }
        assert!(Instant::now() < deadline, "it counts itself out when it has let go");
    }
}
