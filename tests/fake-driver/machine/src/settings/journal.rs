//! A file with one line of JSON for each call: `FAKE_CUDA_JOURNAL`.

use super::{SettingError, text};
use crate::clock::now_ns;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

/// Where calls are written down; processes may share the file.
#[derive(Debug, Default)]
pub struct Journal {
    file: Option<File>,
}

impl Journal {
    /// The journal of the environment; without one, nothing is written.
    ///
    /// # Errors
    /// A file that can't be opened for appending.
    pub fn from_environment() -> Result<Self, SettingError> {
        const NAME: &str = "FAKE_CUDA_JOURNAL";
        let Some(path) = text(NAME)? else {
            return Ok(Self::default());
        };
        match OpenOptions::new().append(true).create(true).mode(0o600).open(&path) {
            Ok(file) => Ok(Self { file: Some(file) }),
            Err(error) => Err(SettingError {
                variable: NAME,
                value: path,
                why: error.to_string(),
                right: "a file in a folder that exists and is writable is right",
            }),
        }
    }

    /// True when calls are written down.
    pub fn is_on(&self) -> bool {
        self.file.is_some()
    }

    /// Writes a call down, in one piece, so that lines of several processes don't mix.
    ///
    /// `time_ns` is `CLOCK_MONOTONIC`, the machine's clock. A full disk loses lines: the program under test
    /// is not to notice.
    pub fn write(&self, function: &str, arguments: &[(&str, u64)], result: i32) {
        if let Some(mut file) = self.file.as_ref() {
            let line = line(function, arguments, result, std::process::id(), now_ns());
            let _ = file.write_all(line.as_bytes());
        }
    }
}

fn line(function: &str, arguments: &[(&str, u64)], result: i32, pid: u32, time_ns: u64) -> String {
    let mut line = format!("{{\"function\":{},\"args\":{{", Value::from(function));
    for (at, (name, value)) in arguments.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        write!(line, "{comma}{}:{value}", Value::from(*name)).expect("writing to a string");
    }
    writeln!(line, "}},\"result\":{result},\"pid\":{pid},\"time_ns\":{time_ns}}}").expect("writing to a string");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_line_of_json() {
        let line = line("cuMemAlloc_v2", &[("dptr", u64::MAX), ("bytesize", 512)], 2, 7, 99);
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["function"], "cuMemAlloc_v2");
        assert_eq!(value["args"]["dptr"], u64::MAX);
        assert_eq!((value["args"]["bytesize"].as_u64(), value["result"].as_i64()), (Some(512), Some(2)));
        assert_eq!((value["pid"].as_u64(), value["time_ns"].as_u64()), (Some(7), Some(99)));
    }

    #[test]
    fn without_a_file_nothing_is_written() {
        let journal = Journal::default();
        assert!(!journal.is_on());
        journal.write("cuInit", &[], 0);
    }
}
