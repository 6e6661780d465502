//! Settings from the environment: what each means, and what a mistake does.

use harness::{GIB, MIB, Machine};

fn refused_with(pairs: &[(&str, &str)], parts: &[&str]) {
    let machine = Machine::new("a100-80gb");
    let job = pairs.iter().fold(machine.probe("linked"), |job, (name, value)| job.env(name, value));
    let done = job.words("init ctx info linear:a=1M").run();
    assert_eq!(done.code("linear:a=1M"), 2, "{pairs:?}: {done:?}");
    assert_eq!(done.numbers("info")[0], 0, "{pairs:?}: nothing may be taken, so nothing is free");
    assert_eq!(done.err.lines().count(), 1, "{pairs:?}: {}", done.err);
    for part in parts {
        assert!(done.err.contains(part), "{pairs:?}: {}", done.err);
    }
}

#[test]
fn what_cannot_be_understood_is_refused_in_one_line() {
    for value in ["12Q", "-1", "", "1e30GiB", "0", "unlimited", "4 GiB", "99999999999T"] {
        refused_with(&[("GPUQUOTA_MEMORY", value)], &["GPUQUOTA_MEMORY", value, "expected"]);
    }
    refused_with(&[("GPUQUOTA_MEMORY", "1GiB"), ("GPUQUOTA_COMPUTE", "130")], &["GPUQUOTA_COMPUTE", "130"]);
    refused_with(&[("GPUQUOTA_MEMORY_5", "junk")], &["GPUQUOTA_MEMORY_5"]);
    refused_with(&[("CUDA_DEVICE_MEMORY_LIMIT", "junk")], &["CUDA_DEVICE_MEMORY_LIMIT"]);
    refused_with(&[("GPUQUOTA_TENANT", "a b"), ("GPUQUOTA_MEMORY", "1GiB")], &["GPUQUOTA_TENANT"]);
}

#[test]
fn sizes_mean_what_they_say() {
    for (value, bytes) in
        [("4GiB", 4 * GIB), ("4G", 4 * GIB), ("4GB", 4_000_000_000), ("4096m", 4 * GIB), ("1073741824", GIB)]
    {
        let machine = Machine::new("a100-80gb");
        let done = machine.probe("linked").memory(value).words("init total").run();
        assert_eq!(done.numbers("total"), [bytes], "{value}");
    }
    let machine = Machine::new("a100-80gb");
    let half = machine.probe("linked").memory("50%").words("init total").run();
    assert_eq!(half.numbers("total"), [machine.total_bytes() / 2]);
}

#[test]
fn hami_names_are_understood_and_ours_win() {
    let machine = Machine::new("2xa100-80gb");
    let hami = machine.probe("linked").env("CUDA_DEVICE_MEMORY_LIMIT", "3000m").env("CUDA_DEVICE_MEMORY_LIMIT_1", "0");
    let done = hami.words("init total=0 total=1").run();
    assert_eq!(
        (done.numbers("total=0"), done.numbers("total=1")),
        (vec![3000 * MIB], vec![machine.total_bytes()]),
        "0 is HAMi's no limit"
    );
    let both =
        machine.probe("linked").env("CUDA_DEVICE_MEMORY_LIMIT", "3000m").memory("1GiB").words("init total").run();
    assert_eq!(both.numbers("total"), [GIB]);
    let off = machine.probe("linked").env("CUDA_DISABLE_CONTROL", "true").memory("1GiB").words("init total").run();
    assert_eq!(off.numbers("total"), [machine.total_bytes()]);
    for value in ["false", "0", "no", ""] {
        let on = machine.probe("linked").env("CUDA_DISABLE_CONTROL", value).memory("1GiB").words("init total").run();
        assert_eq!(on.numbers("total"), [GIB], "{value:?} does not disable");
    }
}

/// A daemon that was named and isn't there: the first allocation waits, then all are refused, with one line.
#[test]
fn a_named_daemon_that_does_not_answer_is_waited_for_and_then_refused() {
    let machine = Machine::new("a100-80gb");
    let socket = machine.folder().join("none.sock");
    let start = std::time::Instant::now();
    let job = machine.probe("linked").env("GPUQUOTA_SOCKET", &socket).memory("1GiB");
    let done = job.words("init ctx linear:a=1M linear:b=1M linear:c=1M").run();
    let waited = start.elapsed();
    assert_eq!((done.code("linear:a=1M"), done.code("linear:c=1M")), (2, 2), "{done:?}");
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    assert!(done.err.contains("GPUQUOTA_SOCKET") && done.err.contains("none.sock"), "{}", done.err);
    assert!(waited.as_secs_f64() > 4.5, "it was waited for: {waited:?}");
    assert!(waited.as_secs_f64() < 20.0, "once, not for every allocation: {waited:?}");
}

#[test]
fn a_socket_without_permission_is_refused_at_once() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::new("a100-80gb");
    let socket = machine.folder().join("closed.sock");
    std::fs::write(&socket, "").expect("writable");
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o000)).expect("owner");
    // Root may open anything, so what root meets is a file that is no socket: also an error, also at once named.
    let done =
        machine.probe("linked").env("GPUQUOTA_SOCKET", &socket).memory("1GiB").words("init ctx linear:a=1M").run();
    assert_eq!(done.code("linear:a=1M"), 2);
    assert!(done.err.contains("closed.sock"), "{}", done.err);
}

#[test]
fn the_log_is_off_or_in_a_file_when_told_so() {
    let machine = Machine::new("a100-80gb");
    let log = machine.folder().join("log");
    let words = "init ctx linear:a=2G";
    machine.probe("linked").memory("1GiB").env("GPUQUOTA_LOG", "off").words(words).run().quiet();
    machine.probe("linked").memory("1GiB").env("GPUQUOTA_LOG_FILE", &log).words(words).run().quiet();
    let text = std::fs::read_to_string(&log).expect("written");
    assert!(text.starts_with("gpuquota: out of memory: 2 GiB asked"), "{text}");
    let unwritable =
        machine.probe("linked").memory("1GiB").env("GPUQUOTA_LOG_FILE", "/nonexistent/log").words(words).run();
    assert!(unwritable.err.contains("GPUQUOTA_LOG_FILE"), "{}", unwritable.err);
}
