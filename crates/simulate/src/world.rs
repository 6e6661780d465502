//! The clock: takes one event after the other and lets processes, device and policy act on it.

mod job;

pub use job::{Job, Phase};

use crate::device::{Device, Kernel};
use crate::outcome::Outcome;
use crate::policy::{Plan, Policy};
use crate::program::{Launch, Step};
use crate::queue::{Event, Queue, Timer};
use crate::record::Record;
use crate::rng::Rng;
use crate::scenario::{Change, Overheads, Scenario};
use quota_core::compute::Share;

/// Numbers of the streams of chance that are no process's.
const PREDICTIONS: u64 = 1 << 32;

/// All but the policy.
#[derive(Debug)]
pub struct System {
    now_ns: u64,
    queue: Queue,
    device: Device,
    record: Record,
    jobs: Vec<Job>,
    shares: Vec<Share>,
    overheads: Overheads,
    misprediction: f64,
    predictions: Rng,
}

/// A scenario under a policy.
pub struct World {
    system: System,
    policy: Box<dyn Policy>,
    changes: Vec<(u64, Change)>,
}

/// Runs `scenario` under `plan` to its end.
pub fn simulate(scenario: &Scenario, plan: Plan) -> Outcome {
    let mut world = World::new(scenario, plan);
    world.run(scenario.until_ns);
    let System { record, jobs, device, shares, .. } = world.system;
    Outcome::new(scenario, record, &jobs, &device, &shares)
}

impl System {
    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The processes; the number of a process is its place.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// What each tenant is to get.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// What things cost.
    pub fn overheads(&self) -> &Overheads {
        &self.overheads
    }

    /// The books, up to now.
    pub fn record(&mut self) -> &Record {
        self.device.settle(self.now_ns, &mut self.record);
        &self.record
    }

    /// Sets a timer of the policy.
    pub fn set_timer(&mut self, at_ns: u64, timer: Timer) {
        self.queue.set(at_ns.max(self.now_ns), Event::Policy(timer));
    }

    /// If the process waits for the policy's leave to launch, it asks again in `delay_ns`.
    pub fn retry(&mut self, process: usize, delay_ns: u64) {
        if matches!(self.jobs[process].phase, Phase::Waiting(_)) {
            self.wake(process, delay_ns);
        }
    }

    /// The thread goes on in `delay_ns`, or earlier where that is set already.
    fn wake(&mut self, process: usize, delay_ns: u64) {
        let at_ns = self.now_ns + delay_ns;
        let job = &mut self.jobs[process];
        if job.wakes_at_ns.is_some_and(|before| before <= at_ns) {
            return;
        }
        job.wakes_at_ns = Some(at_ns);
        job.stamp += 1;
        self.queue.set(at_ns, Event::Thread(u32::try_from(process).unwrap_or(u32::MAX), job.stamp));
    }

    fn kernel(&mut self, launch: Launch) -> Kernel {
        let wrong = self.predictions.between(1.0 - self.misprediction, 1.0 + self.misprediction);
        Kernel {
            stream: launch.stream,
            duration_ns: launch.duration_ns,
            predicted_ns: (launch.duration_ns as f64 * wrong) as u64,
            after: launch.after,
        }
    }
}

impl World {
    fn new(scenario: &Scenario, plan: Plan) -> Self {
        let mut jobs = Vec::new();
        for (tenant, plan) in scenario.tenants.iter().enumerate() {
            for workload in &plan.processes {
                let rng = Rng::new(scenario.seed, jobs.len() as u64);
                jobs.push(Job::new(tenant, *workload, rng));
            }
        }
        let shares: Vec<_> = scenario.tenants.iter().map(|tenant| tenant.share).collect();
        let system = System {
            now_ns: 0,
            queue: Queue::default(),
            device: Device::new(scenario.device, jobs.len()),
            record: Record::new(jobs.len(), shares.iter().map(|share| share.weight).collect()),
            jobs,
            shares,
            overheads: scenario.overheads,
            misprediction: f64::from(scenario.misprediction) / 1000.0,
            predictions: Rng::new(scenario.seed, PREDICTIONS),
        };
        Self { system, policy: plan.build(), changes: scenario.changes.clone() }
    }

    fn run(&mut self, until_ns: u64) {
        for (number, (at_ns, _)) in self.changes.iter().enumerate() {
            self.system.queue.set(*at_ns, Event::Change(u32::try_from(number).unwrap_or(u32::MAX)));
        }
        self.policy.begin(&mut self.system);
        for process in 0..self.system.jobs.len() {
            // Nobody starts at the very same time.
            self.system.wake(process, process as u64 * 1_000);
        }
        while let Some((at_ns, event)) = self.system.queue.next(until_ns) {
            self.system.now_ns = at_ns;
            self.happen(event);
        }
        self.system.now_ns = until_ns;
        self.system.device.settle(until_ns, &mut self.system.record);
        self.system.record.count(until_ns);
    }

    fn happen(&mut self, event: Event) {
        let system = &mut self.system;
        match event {
            Event::Device(stamp) => {
                let done = system.device.event(stamp, system.now_ns, &mut system.queue, &mut system.record);
                if let Some((process, done)) = done {
                    self.ended(process, &done);
                }
            }
            Event::Thread(process, stamp) => {
                let job = &mut system.jobs[process as usize];
                if job.stamp == stamp && job.wakes_at_ns.take().is_some() {
                    job.is_late = job.is_stopped;
                    if !job.is_stopped {
                        self.go_on(process as usize);
                    }
                }
            }
            Event::Policy(timer) => self.policy.timer(system, timer),
            Event::Change(number) => self.change(self.changes[number as usize].1),
        }
    }

    /// The thread of a process acts until it has to wait for something.
    fn go_on(&mut self, process: usize) {
        loop {
            let system = &mut self.system;
            match system.jobs[process].phase {
                Phase::Waiting(kernel) => return self.launch(process, kernel),
                Phase::Launching(kernel) => {
                    system.device.submit(process, kernel, system.now_ns, &mut system.queue);
                    system.jobs[process].in_flight += 1;
                    system.jobs[process].phase = Phase::Running;
                    self.policy.launched(&mut self.system, process, &kernel);
                }
                Phase::Synchronising | Phase::Exited => return,
                Phase::Running | Phase::Computing => {
                    if !self.begin_step(process) {
                        return;
                    }
                }
            }
        }
    }

    /// Begins the next step; false if it takes time.
    fn begin_step(&mut self, process: usize) -> bool {
        let system = &mut self.system;
        let job = &mut system.jobs[process];
        job.phase = Phase::Running;
        match job.program.step() {
            Step::Compute(length_ns) => {
                job.phase = Phase::Computing;
                system.wake(process, length_ns);
                false
            }
            Step::Request(at_ns) => {
                job.request_ns = Some(at_ns);
                let wait_ns = at_ns.saturating_sub(system.now_ns);
                job.phase = Phase::Computing;
                system.wake(process, wait_ns);
                false
            }
            Step::Launch(launch) => {
                let kernel = system.kernel(launch);
                self.launch(process, kernel);
                false
            }
            Step::Synchronise if job.in_flight > 0 => {
                job.phase = Phase::Synchronising;
                false
            }
            Step::Synchronise => {
                job.answer(system.now_ns);
                true
            }
            Step::Exit => {
                job.phase = Phase::Exited;
                job.exited_ns = Some(system.now_ns);
                self.policy.exits(system, process);
                false
            }
        }
    }

    fn launch(&mut self, process: usize, kernel: Kernel) {
        let system = &mut self.system;
        system.jobs[process].phase = Phase::Waiting(kernel);
        if !std::mem::replace(&mut system.jobs[process].has_work, true) {
            system.record.begins(system.jobs[process].tenant, system.now_ns);
            self.policy.wants(system, process);
        }
        if system.jobs[process].in_flight < system.overheads.depth && self.policy.admit(system, process) {
            system.jobs[process].phase = Phase::Launching(kernel);
            system.jobs[process].wakes_at_ns = None;
            system.wake(process, system.overheads.launch_ns);
        }
    }

    fn ended(&mut self, process: usize, done: &crate::device::Done) {
        let system = &mut self.system;
        let job = &mut system.jobs[process];
        job.in_flight -= 1;
        job.kernels += 1;
        let (is_full, nothing) = (job.in_flight + 1 == system.overheads.depth, job.in_flight == 0);
        let is_busy = matches!(job.phase, Phase::Waiting(_) | Phase::Launching(_));
        if nothing && matches!(job.phase, Phase::Synchronising) {
            job.phase = Phase::Running;
            job.answer(system.now_ns);
            system.wake(process, system.overheads.synchronise_ns);
        }
        self.policy.ended(system, process, done);
        if is_full {
            system.retry(process, 0);
        }
        if nothing && !is_busy {
            self.idle(process);
        }
    }

    fn idle(&mut self, process: usize) {
        let job = &mut self.system.jobs[process];
        if std::mem::replace(&mut job.has_work, false) {
            self.system.record.ends(job.tenant, self.system.now_ns);
            self.policy.idles(&mut self.system, process);
        }
    }

    fn change(&mut self, change: Change) {
        let system = &mut self.system;
        match change {
            Change::Share(tenant, share) => {
                system.shares[tenant] = share;
                system.record.weigh(tenant, share.weight, system.now_ns);
            }
            Change::Pause(_) | Change::Resume(_) => {}
            Change::Stop(process) => system.jobs[process].is_stopped = true,
            Change::Continue(process) => {
                let job = &mut system.jobs[process];
                job.is_stopped = false;
                if std::mem::take(&mut job.is_late) {
                    system.wake(process, 0);
                }
            }
            Change::Kill(process) => {
                system.device.clear(process, system.now_ns, &mut system.queue, &mut system.record);
                let job = &mut system.jobs[process];
                job.phase = Phase::Exited;
                job.exited_ns = Some(system.now_ns);
                job.in_flight = 0;
                job.stamp += 1;
                if std::mem::take(&mut job.has_work) {
                    system.record.ends(job.tenant, system.now_ns);
                }
                self.policy.exits(system, process);
            }
        }
        self.policy.change(&mut self.system, change);
    }
}
