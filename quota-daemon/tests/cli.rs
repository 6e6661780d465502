//! The command line by itself: what is refused, in which words and with which status; what needs no device.
//!
//! Having this file also makes cargo build both commands for `cargo test`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};

fn gpuquota(arguments: &[&str]) -> Command {
    let mut command = Command::new(harness::command("gpuquota"));
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").env("XDG_RUNTIME_DIR", std::env::temp_dir());
    command
}

fn run(arguments: &[&str]) -> Output {
    gpuquota(arguments).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One line on stderr with all these parts, nothing on stdout, this status.
fn refused(arguments: &[&str], status: i32, parts: &[&str]) {
    let output = run(arguments);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {err}");
    assert_eq!(err.lines().count(), 1, "{arguments:?}: {err}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for part in parts {
        assert!(err.contains(part), "{arguments:?}: {part:?} in {err}");
    }
}

#[test]
fn bad_values_are_refused_in_one_line_that_says_what_would_be_right() {
    for size in ["12Q", "-1", "", "1e30GiB", "0", "101%"] {
        refused(&["run", "--memory", size, "--", "true"], 125, &["gpuquota: --memory", size, "expected"]);
        refused(&["set", "t", "--memory", size], 2, &["--memory", "expected"]);
        refused(&["env", "--memory", size], 2, &["--memory", "expected"]);
    }
    for percent in ["0", "101", "-5", "lots"] {
        refused(&["run", "--compute", percent, "--", "true"], 125, &["--compute", percent, "1 to 100"]);
    }
    refused(&["run", "--weight", "0", "--", "true"], 125, &["--weight", "1 to 10000"]);
    refused(&["run", "--priority", "urgent", "--", "true"], 125, &["--priority", "batch, normal or high"]);
    refused(&["run", "--tenant", "a b", "--", "true"], 125, &["--tenant", "a b"]);
    refused(&["run", "--queue", "soon", "--", "true"], 125, &["--queue", "soon"]);
    refused(&["run", "--simulate", "a100", "--", "true"], 125, &["--simulate a100", "a100-80gb", "rtx4090-24gb"]);
    refused(&["run", "--memory"], 125, &["--memory"]);
    refused(&["run"], 125, &["COMMAND"]);
    refused(&["bogus"], 2, &["bogus"]);
    refused(&["apply", "/nonexistent/document.yaml"], 1, &["/nonexistent/document.yaml"]);
}

/// Words may be any bytes: those that have to be text are refused as any other mistake is, and name their option.
#[test]
fn words_that_are_no_text_are_refused_in_one_line() {
    for (words, status, part) in [
        (&[&b"run"[..], b"--tenant", b"a\xff", b"--", b"true"][..], 125, r#"gpuquota: --tenant "a\xFF": no UTF-8"#),
        (&[b"run", b"--tenant=\xff", b"true"], 125, r#"gpuquota: --tenant "\xFF": no UTF-8"#),
        (&[b"set", b"\xff", b"--memory", b"1GiB"], 2, r#"gpuquota: argument "\xFF": no UTF-8"#),
        (&[b"\xff"], 2, "gpuquota: unrecognized subcommand"),
    ] {
        let words = words.iter().map(|word| OsStr::from_bytes(word));
        let output = gpuquota(&[]).args(words).output().expect("it runs");
        let err = text(&output.stderr);
        assert_eq!((output.status.code(), err.lines().count()), (Some(status), 1), "{err}");
        assert!(err.contains(part) && output.stdout.is_empty(), "{err}");
    }
}

#[test]
fn a_command_that_cannot_run_has_a_shells_status() {
    refused(&["run", "--", "no-such-command-anywhere"], 127, &["no-such-command-anywhere", "not found"]);
    refused(&["run", "--", "/etc/passwd"], 126, &["/etc/passwd"]);
}

#[test]
fn a_named_daemon_that_is_not_there_is_said_so() {
    for arguments in [&["ps"][..], &["devices"], &["set", "t", "--memory", "1GiB"], &["pause", "t"], &["resume", "t"]] {
        let output = gpuquota(arguments).env("GPUQUOTA_SOCKET", "/nonexistent/q.sock").output().expect("it runs");
        let err = text(&output.stderr);
        assert!(
            !output.status.success() && err.contains("/nonexistent/q.sock") && err.lines().count() == 1,
            "{arguments:?}: {err}"
        );
    }
}

#[test]
fn completions_are_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success() && text(&output.stdout).contains("gpuquota"), "{shell}");
    }
    refused(&["completions", "csh"], 2, &["csh"]);
}

#[test]
fn help_names_every_command_of_the_contract_that_works() {
    let help = text(&run(&["--help"]).stdout);
    for command in
        ["run", "ps", "devices", "set", "pause", "resume", "apply", "audit", "env", "doctor", "demo", "completions"]
    {
        assert!(help.lines().any(|line| line.trim().starts_with(command)), "{command} in {help}");
    }
    assert!(!help.lines().any(|line| line.trim().starts_with("top")), "top is not built yet");
}

#[test]
fn the_daemon_refuses_what_it_cannot_use() {
    let daemon =
        |arguments: &[&str]| Command::new(harness::command("gpuquotad")).args(arguments).output().expect("it runs");
    let folder = std::env::temp_dir().join(format!("gpuquota-cli-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("writable");
    let document = folder.join("bad.yaml");
    std::fs::write(&document, "devices:\n  - select: all\n    memory_reserv: 1GiB\n").expect("writable");
    let unknown = daemon(&["--check", "--config", document.to_str().expect("ASCII")]);
    let err = text(&unknown.stderr);
    assert!(
        !unknown.status.success() && err.contains("line 3") && err.contains("did you mean `memory_reserve`"),
        "{err}"
    );
    let unreadable = daemon(&["--config", "/nonexistent.yaml"]);
    assert!(!unreadable.status.success() && text(&unreadable.stderr).contains("/nonexistent.yaml"));
    let _ = std::fs::remove_dir_all(folder);
}
