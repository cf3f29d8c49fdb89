//! `quorlock man`: the manual pages, generated from the command line definition.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use quorlock::protocol::printable;

use crate::exit;
use crate::failure::Failure;
use crate::stdout::print;

/// `quorlock man`.
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// Write one page per verb to this folder, instead of the main page to stdout
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) const MAN_EXAMPLES: &str = "\
Examples:
  quorlock man | man -l -
  quorlock man --out /usr/local/share/man/man1";

/// Prints or writes the manual of the whole `command`.
pub(crate) fn man(args: &ManArgs, command: Command) -> Result<u8, Failure> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    match &args.out {
        None => {
            let page = page(&command).map_err(Failure::to("write the manual"))?;
            print(&String::from_utf8_lossy(&page))?;
        }
        Some(folder) => {
            for (name, page) in pages(&command).map_err(Failure::to("write the manual"))? {
                let path = folder.join(name);
                write(&path, &page)?;
                print(&format!("{}\n", printable(&path.to_string_lossy())))?;
            }
        }
    }
    Ok(exit::SUCCESS)
}

/// Renders the page of the program and of each verb, by file name.
fn pages(command: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let mut pages = vec![("quorlock.1".to_owned(), page(command)?)];
    for verb in verbs {
        // As `git commit` has its page in git-commit(1).
        let name = format!("quorlock-{}", verb.get_name());
        pages.push((format!("{name}.1"), page(&verb.clone().display_name(name))?));
    }
    Ok(pages)
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

fn write(path: &Path, page: &[u8]) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Failure::to("make the folder for the manual"))?;
    }
    fs::write(path, page).map_err(Failure::to("write the manual"))
}
