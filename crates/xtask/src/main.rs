//! Chores of the repository, run by `cargo xtask`.

use simulate::report;
use simulate::tables::{Entry, Run, TABLES, entry};
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
Usage: cargo xtask simulate [TABLE...] [--seed N] [--seconds N] [-o table|json]

Runs the scheduler that the daemon uses on a virtual clock against a model of the device, and prints how well it
shares, beside what others do. Rows of others are their published ideas with their published constants, written anew:
no measurements of their products. Without a name, all tables are printed.

  --seed N        where chance begins (default 1); the same seed gives the same tables
  --seconds N     seconds to measure in each scenario, 1 to 100000, instead of the table's own number
  -o table|json   for people (default), or one JSON array
  -h, --help      this text

Tables:
";

/// The longest scenario, so that a slip of the hand ends.
const SECONDS_MAX: u64 = 100_000;
/// How long a table may take before its progress is shown.
const QUIET_S: f64 = 1.0;

struct Request {
    tables: Vec<&'static Entry>,
    seed: u64,
    seconds: Option<u64>,
    json: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first().map(|(chore, rest)| (chore.as_str(), rest)) {
        Some(("simulate", rest)) if asks_for_help(rest) => print(&usage()),
        Some(("-h" | "--help" | "help", _)) => print(&usage()),
        Some(("simulate", rest)) => match parse(rest) {
            Ok(request) => simulate(&request),
            Err(mistake) => fail(&mistake),
        },
        Some((other, _)) => fail(&format!("there is no chore {other:?}; there is: simulate")),
        None => fail("which chore? There is: simulate (see --help)"),
    }
}

fn asks_for_help(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument == "-h" || argument == "--help")
}

fn parse(arguments: &[String]) -> Result<Request, String> {
    let mut request = Request { tables: Vec::new(), seed: 1, seconds: None, json: false };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        // Both `--seed 7` and `--seed=7`.
        let (option, inline) = match argument.split_once('=') {
            Some((option, value)) if option.starts_with('-') => (option, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        let mut value =
            || inline.clone().or_else(|| arguments.next().cloned()).ok_or(format!("{option} needs a value"));
        match option {
            "--seed" => request.seed = number(option, &value()?, 0, u64::MAX)?,
            "--seconds" => request.seconds = Some(number(option, &value()?, 1, SECONDS_MAX)?),
            "-o" | "--output" => {
                request.json = match value()?.as_str() {
                    "table" => false,
                    "json" => true,
                    other => return Err(format!("-o {other:?}: say table or json")),
                }
            }
            _ if option.starts_with('-') => return Err(format!("there is no option {option} (see --help)")),
            name => request.tables.push(entry(name).ok_or_else(|| unknown(name))?),
        }
    }
    if request.tables.is_empty() {
        request.tables = TABLES.iter().collect();
    }
    Ok(request)
}

fn number(option: &str, text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{option} {text:?}: say a whole number from {least} to {most}"))
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = TABLES.iter().map(|entry| entry.name).collect();
    format!("there is no table {name:?}; there are: {}", names.join(", "))
}

fn usage() -> String {
    let tables = TABLES.iter().map(|entry| format!("  {:14}  {}\n", entry.name, entry.about));
    USAGE.to_owned() + &tables.collect::<String>()
}

fn simulate(request: &Request) -> ExitCode {
    let began = Instant::now();
    let shows = std::io::stderr().is_terminal();
    let progress = |label: &str| {
        if began.elapsed().as_secs_f64() > QUIET_S {
            // On a terminal the line is written over; in a log each row is one.
            let (before, after) = if shows { ("\r\x1b[K", "") } else { ("", "\n") };
            eprint!("{before}{label}{after}");
        }
    };
    let run = Run::new(request.seed, request.seconds, &progress);
    let mut tables = Vec::new();
    for entry in &request.tables {
        let table = run.table(entry);
        if shows {
            eprint!("\r\x1b[K");
        }
        if request.json {
            tables.push(report::json(&table));
        } else if print(&(report::text(&table) + "\n")) == ExitCode::FAILURE {
            return ExitCode::FAILURE;
        }
    }
    let took_s = began.elapsed().as_secs_f64();
    let a_minute = run.simulated_s() / took_s * 60.0;
    eprintln!("{:.0} seconds simulated in {took_s:.1} s ({a_minute:.0} a minute)", run.simulated_s());
    if request.json { print(&format!("{:#}\n", serde_json::Value::Array(tables))) } else { ExitCode::SUCCESS }
}

/// To standard output; a reader that has gone away (`| head`) is no reason to panic.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(mistake: &str) -> ExitCode {
    eprintln!("xtask: {mistake}");
    ExitCode::from(2)
}
