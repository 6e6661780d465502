//! `doctor`: looks at everything a job will need, says what is wrong and how to mend it.

mod checks;

use crate::options::Output;
use crate::table::{Align, Table, print};
use crate::{Failure, STATUS_FAILED};
use serde::Serialize;

/// How a check came out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// Works, but not as one may think.
    Warn,
    /// Has to be mended.
    Fail,
}

/// One line of the report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do about it; empty when nothing is to be done.
    remedy: String,
}

impl Finding {
    fn ok(check: &'static str, found: impl core::fmt::Display) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.to_string(), remedy: String::new() }
    }

    fn warn(check: &'static str, found: impl core::fmt::Display, remedy: impl core::fmt::Display) -> Self {
        Self { check, verdict: Verdict::Warn, found: found.to_string(), remedy: remedy.to_string() }
    }

    fn fail(check: &'static str, found: impl core::fmt::Display, remedy: impl core::fmt::Display) -> Self {
        Self { check, verdict: Verdict::Fail, found: found.to_string(), remedy: remedy.to_string() }
    }
}

/// Prints the report; fails when something has to be mended.
pub(crate) fn doctor(output: Output) -> Result<(), Failure> {
    let findings = checks::all();
    if output == Output::Json {
        print(&crate::show::json(&findings)?);
    } else {
        print(&report(&findings));
    }
    match findings.iter().any(|finding| finding.verdict == Verdict::Fail) {
        true => Err(Failure::silent(STATUS_FAILED)),
        false => Ok(()),
    }
}

fn report(findings: &[Finding]) -> String {
    let mut table = Table::new(&[("CHECK", Align::Left), ("RESULT", Align::Left), ("FOUND", Align::Left)]);
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        table.push(vec![finding.check.to_owned(), verdict.to_owned(), finding.found.clone()]);
        if !finding.remedy.is_empty() {
            table.push(vec![String::new(), String::new(), format!("-> {}", finding.remedy)]);
        }
    }
    table.render()
}
