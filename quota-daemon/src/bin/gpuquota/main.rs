//! `gpuquota`: runs jobs under quotas, and shows and changes what they have.
#![deny(unsafe_code)]

mod approve;
mod audit;
mod completions;
mod cuda;
mod daemons;
mod demo;
mod demo_job;
mod doctor;
mod drain;
mod environment;
mod job;
mod mover;
mod options;
mod run;
mod set;
mod show;
mod simulated;
mod table;

use clap::Parser;
use clap::error::ErrorKind;
use options::{Command, Options};
use quota_daemon::usage;
use std::process::ExitCode;

/// `run`'s own failures, as of other programs that run programs.
const STATUS_RUN: u8 = 125;
/// A command line that can't be understood.
const STATUS_USAGE: u8 = 2;
/// Anything else that went wrong.
const STATUS_FAILED: u8 = 1;

/// What went wrong: one line, and the exit status.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Failure {
    status: u8,
    text: String,
}

impl Failure {
    fn new(text: impl core::fmt::Display) -> Self {
        Self { status: STATUS_FAILED, text: text.to_string() }
    }

    fn usage(text: impl core::fmt::Display) -> Self {
        Self { status: STATUS_USAGE, text: text.to_string() }
    }

    /// Nothing more is to be said.
    fn silent(status: u8) -> Self {
        Self { status, text: String::new() }
    }
}

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => return unparsed(&error),
    };
    let done = match options.command {
        Command::Run(options) => run::run(&options),
        Command::Ps(options) => show::processes(options.output),
        Command::Devices(options) => show::devices(options.output),
        Command::Set(options) => set::set(&options),
        Command::Pause(options) => set::pause(&options.tenant),
        Command::Resume(options) => drain::resume(&options.name),
        Command::Drain(options) => drain::drain(&options),
        Command::Apply(options) => set::apply(&options.file, options.dry_run),
        Command::Approve(options) => approve::approve(&options),
        Command::Audit(options) => audit::audit(&options),
        Command::Interrupt(options) => set::interrupt(&options),
        Command::Move(options) => mover::run(&options),
        Command::Env(options) => environment::print(&options),
        Command::Doctor(options) => doctor::doctor(options.output),
        Command::Demo(options) => demo::demo(&options),
        Command::DemoJob(options) => match options.busy {
            Some(milliseconds) => demo_job::keep_busy(std::time::Duration::from_millis(milliseconds)),
            None => demo_job::run(),
        },
        Command::Completions(options) => completions::print(options.shell),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { status, text }) => {
            if !text.is_empty() {
                eprintln!("gpuquota: {text}");
            }
            ExitCode::from(status)
        }
    }
}

/// Help goes out as it is; a mistake is one line.
fn unparsed(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A reader that has gone away has seen what it wanted.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let is_run = std::env::args_os().nth(1).is_some_and(|word| word == "run");
    let status = if is_run { STATUS_RUN } else { STATUS_USAGE };
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(status);
    }
    let head = usage::one_line(error);
    eprintln!("gpuquota: {head}; see gpuquota {}--help", if is_run { "run " } else { "" });
    ExitCode::from(status)
}
