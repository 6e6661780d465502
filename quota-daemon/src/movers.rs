//! `gpuquota move`, as whoever starts it says what it is to do, and hears what became of it.

use quota_wire::notice::{Event, JobNotice};
use rustix::fs::{OFlags, fcntl_setfl};
use std::io::Read;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

/// How long moving memory may take: less than the registry waits.
pub const MOVE_WAIT: Duration = Duration::from_secs(55);
/// Of what it says on stderr.
const SAID_BYTES_MAX: u64 = 4096;

/// Has `command`, which is `gpuquota`, do what a notice asks for.
pub fn instruct(command: &mut Command, notice: &JobNotice) {
    command.arg("move").arg(if notice.event == Event::Checkpoint { "checkpoint" } else { "restore" });
    command.arg("--parent").arg(std::process::id().to_string());
    command.args(notice.pids.iter().map(u32::to_string));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
}

/// Why it has failed, if it has; of one that has ended, or was killed and hangs in the driver.
pub fn outcome(child: &mut Child) -> Option<String> {
    match child.try_wait() {
        Ok(Some(status)) if status.success() => None,
        _ => Some(said(child)),
    }
}

/// The last line that it said.
fn said(child: &mut Child) -> String {
    let mut text = String::new();
    // One that hangs in the driver has it open for as long as that lasts.
    let is_unblocked = |err: &ChildStderr| fcntl_setfl(err, OFlags::NONBLOCK).is_ok();
    if let Some(err) = child.stderr.take().filter(is_unblocked) {
        let _ = err.take(SAID_BYTES_MAX).read_to_string(&mut text);
    }
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("the driver doesn't answer in time");
    line.trim_start_matches("gpuquota: ").to_owned()
}
