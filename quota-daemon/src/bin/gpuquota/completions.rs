//! `completions`.

use crate::Failure;
use crate::options::{Options, Shell};
use clap::CommandFactory;

/// Prints completions for a shell.
pub(crate) fn print(shell: Shell) -> Result<(), Failure> {
    let mut command = Options::command();
    let mut text = Vec::new();
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, "gpuquota", &mut text);
    crate::table::print(&String::from_utf8_lossy(&text));
    Ok(())
}
