use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Runs what is on the device until nothing is; answers who ended when.
fn run(device: &mut Device, queue: &mut Queue, record: &mut Record) -> Vec<(usize, u64)> {
    let mut ended = Vec::new();
    while let Some((now_ns, Event::Device(stamp))) = queue.next(u64::MAX) {
        ended.extend(device.event(stamp, now_ns, queue, record).map(|(context, done)| (context, done.ended_ns)));
    }
    ended
}

fn kernel(stream: usize, duration_ns: u64) -> Kernel {
    Kernel { stream, duration_ns, predicted_ns: duration_ns, after: None }
}

#[test]
fn one_context_runs_back_to_back_and_costs_one_switch() {
    let (mut device, mut queue) = (Device::new(Costs::default(), 1), Queue::default());
    let mut record = Record::new(1, vec![1]);
    for _ in 0..3 {
        device.submit(0, kernel(0, 5 * MS), 0, &mut queue);
    }
    let first = 5 * MS + 30 * US;
    assert_eq!(run(&mut device, &mut queue, &mut record), [(0, first), (0, first + 5 * MS), (0, first + 10 * MS)]);
    assert_eq!(record.total_ns(0), 15 * MS);
}

#[test]
fn two_contexts_take_turns_of_a_slice_and_pay_for_each() {
    let (mut device, mut queue) = (Device::new(Costs::default(), 2), Queue::default());
    let mut record = Record::new(2, vec![1, 1]);
    device.submit(0, kernel(0, 3 * MS), 0, &mut queue);
    device.submit(1, kernel(0, 3 * MS), 0, &mut queue);
    // Cold, 2 ms of the first, hot, 2 ms of the second, hot, 1 ms, drained, 1 ms.
    let first = 30 * US + 2 * MS + 170 * US + 2 * MS + 170 * US + MS;
    assert_eq!(run(&mut device, &mut queue, &mut record), [(0, first), (1, first + 30 * US + MS)]);
    assert_eq!(device.switching_ns(), 2 * 30 * US + 2 * 170 * US);
}

#[test]
fn who_comes_late_waits_for_the_end_of_the_slice_under_way() {
    let (mut device, mut queue) = (Device::new(Costs::default(), 2), Queue::default());
    let mut record = Record::new(2, vec![1, 1]);
    device.submit(0, kernel(0, 20 * MS), 0, &mut queue);
    let (began, Event::Device(stamp)) = queue.next(u64::MAX).expect("the switch") else { panic!("not the device's") };
    device.event(stamp, began, &mut queue, &mut record);
    // The third slice is under way; it ends 6 ms after the beginning.
    device.submit(1, kernel(0, MS), began + 5 * MS, &mut queue);
    let ended = run(&mut device, &mut queue, &mut record);
    assert_eq!(ended[0], (1, began + 6 * MS + 170 * US + MS));
    assert_eq!(record.total_ns(0), 20 * MS);
}

#[test]
fn streams_of_a_context_share_it_and_events_hold_them_back() {
    let (mut device, mut queue) = (Device::new(Costs::default(), 1), Queue::default());
    let mut record = Record::new(1, vec![1]);
    let after = Some(After { stream: 1, ended: 1 });
    device.submit(0, Kernel { after, ..kernel(0, MS) }, 0, &mut queue);
    device.submit(0, kernel(1, 2 * MS), 0, &mut queue);
    let first = 30 * US + 2 * MS;
    assert_eq!(run(&mut device, &mut queue, &mut record), [(0, first), (0, first + MS)]);
}

#[test]
fn what_a_dead_process_had_under_way_is_gone() {
    let (mut device, mut queue) = (Device::new(Costs::default(), 2), Queue::default());
    let mut record = Record::new(2, vec![1, 1]);
    device.submit(0, kernel(0, 100 * MS), 0, &mut queue);
    device.submit(1, kernel(0, MS), 0, &mut queue);
    device.clear(0, 10 * US, &mut queue, &mut record);
    assert_eq!(run(&mut device, &mut queue, &mut record).len(), 1);
    assert!(record.total_ns(0) == 0 && record.total_ns(1) == MS);
}
