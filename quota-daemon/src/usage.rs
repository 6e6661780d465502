//! A command line that can't be understood, told in one line.

/// The mistake alone: without usage, hints and line breaks.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let head: Vec<&str> = text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim).collect();
    let head = head.join(" ");
    let head = head.split("For more information").next().unwrap_or_default();
    let words: Vec<&str> = head.trim_start_matches("error: ").split_whitespace().collect();
    words.join(" ")
}
