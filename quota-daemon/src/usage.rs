//! A command line that can't be understood, told in one line.

use clap::error::ErrorKind;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The mistake alone: without usage, hints and line breaks.
pub fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::InvalidUtf8
        && let Some(mistake) = no_text(std::env::args_os().skip(1))
    {
        return mistake;
    }
    let text = error.render().to_string();
    let head: Vec<&str> = text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim).collect();
    let head = head.join(" ");
    let head = head.split("For more information").next().unwrap_or_default();
    let words: Vec<&str> = head.trim_start_matches("error: ").split_whitespace().collect();
    words.join(" ")
}

/// Which of the words is no text, and what it is the value of; the parser says neither.
fn no_text(words: impl Iterator<Item = OsString>) -> Option<String> {
    let mut before = OsString::new();
    for word in words {
        if word.to_str().is_none() {
            let bytes = word.as_bytes();
            let named = bytes.iter().position(|&byte| byte == b'=').filter(|_| bytes.starts_with(b"-"));
            let (option, value) = match named {
                Some(at) => (OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])),
                None if before.as_bytes().starts_with(b"-") => (before.as_os_str(), word.as_os_str()),
                None => (OsStr::new("argument"), word.as_os_str()),
            };
            return Some(format!("{} {value:?}: no UTF-8; expected text", option.to_string_lossy()));
        }
        before = word;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_text_is_named_with_its_option() {
        let said = |words: &[&[u8]]| no_text(words.iter().map(|word| OsStr::from_bytes(word).to_owned()));
        assert_eq!(said(&[b"run", b"--tenant", b"a"]), None);
        for (words, wanted) in [
            (&[&b"run"[..], b"--tenant", b"a\xff", b"--"][..], r#"--tenant "a\xFF": no UTF-8; expected text"#),
            (&[b"run", b"--tenant=a\xff"], r#"--tenant "a\xFF": no UTF-8; expected text"#),
            (&[b"set", b"\xff=b"], r#"argument "\xFF=b": no UTF-8; expected text"#),
            (&[b"\xff"], r#"argument "\xFF": no UTF-8; expected text"#),
        ] {
            assert_eq!(said(words).as_deref(), Some(wanted));
        }
    }
}
