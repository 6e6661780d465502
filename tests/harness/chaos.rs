//! The program `chaos` in several processes, in lock step: random calls between points at which nothing is under way.

use crate::{Job, Machine, Running, program};

/// How the processes run.
#[derive(Clone, Debug)]
pub struct Chaos {
    /// What everything is drawn from.
    pub seed: u64,
    /// Operations of all processes together.
    pub operations: u64,
    /// Operations of a process between two quiet points.
    pub quiet: u64,
    /// Threads of each process.
    pub threads: Vec<u64>,
    /// Rules of `FAKE_CUDA_FAIL` for each process.
    pub failures: String,
    /// Operations that never come, by their names in `steps.c`, with commas.
    pub without: String,
    /// Whether the images of modules have variables.
    pub has_variables: bool,
    /// Whether each call is printed.
    pub traced: bool,
}

/// The processes, running.
pub struct Crowd {
    processes: Vec<Running>,
    rounds: u64,
}

impl Chaos {
    /// Whether memory is shared between handles and processes, so that it may go when others let go of it.
    pub fn shares(&self) -> bool {
        let never = |name: &str| self.without.split(',').any(|without| without == name);
        !(never("offer") && never("share_with_self"))
    }

    /// Rounds from one quiet point to the next.
    pub fn rounds(&self) -> u64 {
        self.operations / self.threads.len() as u64 / self.quiet
    }

    /// Starts the processes as `job` has them, and lets them begin.
    pub fn start(&self, machine: &Machine, job: impl Fn(Job) -> Job) -> Crowd {
        let each = self.rounds() * self.quiet;
        let start = |(number, threads): (usize, &u64)| {
            let mut job = job(machine.job(program("chaos")))
                .arg(self.seed.to_string())
                .arg(each.to_string())
                .env("CHAOS_QUIET", self.quiet.to_string())
                .env("CHAOS_THREADS", threads.to_string())
                .env("CHAOS_FOLDER", machine.folder())
                .env("CHAOS_PROCESS", number.to_string())
                .env("CHAOS_PROCESSES", self.threads.len().to_string())
                .env("CHAOS_WITHOUT", &self.without)
                .env("CHAOS_VARIABLES", u64::from(self.has_variables).to_string())
                .env("FAKE_CUDA_FAIL", &self.failures);
            if self.traced {
                job = job.env("TRACE", "1");
            }
            job.start()
        };
        let processes = self.threads.iter().enumerate().map(start).collect();
        let mut crowd = Crowd { processes, rounds: self.rounds() };
        crowd.reach("ready");
        crowd.go_on();
        crowd
    }
}

impl Crowd {
    /// Their pids.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Running::pid).collect()
    }

    /// The points that all of them come to, in their order: what they print when they have stopped, and when they have looked
    /// for what the others let go until then.
    pub fn points(&self) -> Vec<[String; 2]> {
        (0..self.rounds)
            .map(|round| [format!("still {round}"), format!("quiet {round}")])
            .chain([["letting go", "drained"], ["ending", "empty"]].map(|point| point.map(str::to_owned)))
            .collect()
    }

    /// Waits until all of them have come to `point`; what each printed on the way.
    pub fn reach(&mut self, point: &str) -> Vec<Vec<String>> {
        self.processes.iter_mut().map(|process| process.until(point)).collect()
    }

    /// Lets all of them go on from where they wait.
    pub fn go_on(&mut self) {
        self.processes.iter_mut().for_each(Running::go_on);
    }

    /// Waits for their end; their statuses.
    pub fn finish(self) -> Vec<i32> {
        self.processes.into_iter().map(|process| process.finish().1).collect()
    }
}
