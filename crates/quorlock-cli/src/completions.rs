//! `quorlock completions`: prints the completion script of a shell.

use clap::Command;
use clap_complete::Shell;

use crate::exit;
use crate::failure::Failure;
use crate::stdout::print;

/// `quorlock completions`.
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  quorlock completions bash > /etc/bash_completion.d/quorlock
  quorlock completions zsh > \"${fpath[1]}/_quorlock\"
  quorlock completions fish > ~/.config/fish/completions/quorlock.fish";

/// Prints the script for the whole `command`.
pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "quorlock", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(exit::SUCCESS)
}
