//! The demo's second part: two busy jobs by weight, and one under a cap.

use super::{Job, check, say, simulate_words};
use crate::Failure;
use crate::demo_job::Worked;
use std::time::Duration;

/// For how long the jobs are busy.
const BUSY: Duration = Duration::from_secs(2);
/// By how many percent points a share may be off.
const OFF_MAX: f64 = 5.0;
/// The cap of the job that has one.
const CAP: f64 = 30.0;

/// Runs it on a simulated machine; fails when a job gets something else than it should.
pub(super) fn share(machine: &str) -> Result<(), Failure> {
    say("\nTwo jobs keep the same device busy for 2 s. One has three times the weight of the other.\n");
    let mut jobs = [start("job c", &["--weight", "300"], machine)?, start("job d", &["--weight", "100"], machine)?];
    for job in &mut jobs {
        job.order()?;
    }
    let mut worked = Vec::new();
    for job in &mut jobs {
        worked.push(job.next::<Worked>()?);
    }
    let all: u64 = worked.iter().map(|worked| worked.kernels).sum();
    for ((job, worked), wanted) in jobs.iter().zip(&worked).zip([75.0, 25.0]) {
        let share = worked.kernels as f64 / all.max(1) as f64 * 100.0;
        say(&format!("  {}: {} kernels, {share:.1} % of what both ran", job.name, worked.kernels));
        check((share - wanted).abs() <= OFF_MAX, "device time follows the weights, 3 to 1")?;
    }
    wait(&mut jobs);
    say("\nAnother one is alone on the device, and may use 30 % of it.\n");
    let mut jobs = [start("job e", &["--compute", "30"], machine)?];
    jobs[0].order()?;
    let worked: Worked = jobs[0].next()?;
    let used = worked.kernels as f64 * f64::from(crate::cuda::SPIN_US) / 1000.0;
    let share = used / worked.milliseconds.max(1) as f64 * 100.0;
    say(&format!(
        "  job e: {} kernels in {} ms, {share:.1} % of the device's time",
        worked.kernels, worked.milliseconds
    ));
    check((share - CAP).abs() <= OFF_MAX, "a cap of 30 % is 30 % of the device's time")?;
    wait(&mut jobs);
    Ok(())
}

fn start(name: &'static str, options: &[&str], machine: &str) -> Result<Job, Failure> {
    say(&format!("$ gpuquota run {}{} -- {name}", options.join(" "), simulate_words(Some(machine))));
    let busy = BUSY.as_millis().to_string();
    let mut job = Job::launch(name, options, Some(machine), &["--busy", &busy])?;
    // It has opened the driver, and waits for the word to begin.
    let ready: Worked = job.next()?;
    check(ready.kernels == 0, "a job begins when it is told to")?;
    Ok(job)
}

fn wait(jobs: &mut [Job]) {
    for job in jobs {
        let _ = job.child.wait();
    }
}
