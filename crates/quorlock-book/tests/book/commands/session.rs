//! The shell session of one page.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use quorlock_book::page::Page;
use quorlock_testkit::{Server, eventually, patience};

use super::output::{agrees, with_servers};
use super::programs::put_into;
use super::script::Step;
use crate::target;

/// Programs that run shorter here than in a page: part of the command, option and value.
const SHORTER: &[(&str, &str, &str)] =
    &[("quorlock-chaos -- --scenario", "--duration", "2s"), ("quorlock-sim", "--seeds", "0..2")];
/// Precedes the exit code of a finished command. No program prints it.
const MARK: char = '\u{1e}';

/// Runs `steps` and returns the number of commands.
pub(crate) async fn run(page: &Page, steps: &[Step], servers: &[Server]) -> usize {
    let (programs, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    put_into(programs.path(), folder.path(), servers);
    let commands: Vec<(usize, &str, Option<&str>)> = steps.iter().filter_map(command).collect();
    fs::write(programs.path().join("script"), script(steps, servers)).unwrap();
    let printed = programs.path().join("printed");
    let mut shell = start(programs.path(), folder.path(), &printed);
    let what = format!("the end of {}", page.path.display());
    let ended = eventually(&what, patience() * 5, async || shell.0.try_wait().unwrap().is_some()).await;
    drop(shell);
    let printed = fs::read_to_string(printed).unwrap();
    ended.unwrap_or_else(|error| panic!("{error}; it printed\n{printed}"));

    let outcomes = outcomes(&printed);
    for (place, (line, text, shows)) in commands.iter().enumerate() {
        let here = format!("{}:{line}: `{text}`", page.path.display());
        let Some((printed, code)) = outcomes.get(place) else {
            panic!("{here} did not end; before it:\n{printed}")
        };
        let asked = commands.get(place + 1).is_some_and(|(_, next, _)| next.contains("$?"));
        assert!(*code == 0 || asked, "{here} ends with {code}:\n{printed}");
        if let Some(shows) = shows {
            agrees(shows, printed, servers).unwrap_or_else(|error| panic!("{here}: {error}"));
        }
    }
    commands.len()
}

fn command(step: &Step) -> Option<(usize, &str, Option<&str>)> {
    match step {
        Step::Command { line, text, prints } => Some((*line, text, prints.as_deref())),
        Step::File { .. } => None,
    }
}

/// Defines `mark`, which prints the exit code of the previous command and keeps it for `echo $?`.
const PREAMBLE: &str = "exec 2>&1\nmark() { code=$?; printf '\\n\\036%s\\n' \"$code\"; return \"$code\"; }\n";

/// Returns the shell script: each step, with a mark after each command.
fn script(steps: &[Step], servers: &[Server]) -> String {
    let mut script = PREAMBLE.to_owned();
    for step in steps {
        match step {
            Step::File { name, text } => {
                let text = with_servers(text, servers);
                let folder = format!("mkdir -p \"$(dirname {name})\"");
                let _ = write!(script, "{folder}\ncat > {name} <<'END OF FILE'\n{text}END OF FILE\n");
            }
            // Commands up to `exit` are input of the shell that this command starts.
            Step::Command { text, .. } if text.ends_with("demo -- sh") => {
                let _ = write!(script, "mark\ncat > .typed <<'END OF SHELL'\n{PREAMBLE}");
            }
            Step::Command { text, .. } if text == "exit" => {
                script.push_str("END OF SHELL\nquorlock demo -- sh .typed\nmark\n");
            }
            Step::Command { text, .. } => {
                script.push_str(&shortened(&with_servers(text, servers)));
                script.push_str("\nmark\n");
            }
        }
    }
    script
}

/// Shortens the duration of a long-running command, which is tried a second time: beside other tests, so short a run may
/// fall into a moment without processors.
fn shortened(command: &str) -> String {
    let Some((_, option, value)) = SHORTER.iter().find(|(run, ..)| command.contains(run)) else {
        return command.to_owned();
    };
    let command = command.split(" #").next().unwrap_or_default().trim_end();
    let mut is_value = false;
    let kept = command.split(' ').filter(|word| {
        let drop = is_value || word == option;
        is_value = word == option;
        !drop
    });
    let command = format!("{} {option} {value}", kept.collect::<Vec<_>>().join(" "));
    format!("{command} || {command}")
}

fn start(programs: &Path, folder: &Path, printed: &Path) -> Shell {
    let path = format!("{}:{}:{}", programs.display(), target().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("QUORLOCK_") && name_text != "QUORLOCK_SERVER" {
            shell.env_remove(&name);
        }
    }
    shell.arg(programs.join("script")).current_dir(folder).env("PATH", path).env("HOME", folder);
    shell.env("QUORLOCK_RESTART_GUARD", "off").env_remove("XDG_CONFIG_HOME");
    shell.stdin(Stdio::null()).stdout(File::create(printed).unwrap()).process_group(0);
    Shell(shell.spawn().expect("a shell"))
}

/// A shell. Kills its process group on drop.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), Signal::SIGKILL);
        drop(self.0.wait());
    }
}

/// Returns the output and exit code of each command.
fn outcomes(printed: &str) -> Vec<(String, i32)> {
    let mut outcomes = Vec::new();
    let mut parts = printed.split(MARK);
    let mut reply = parts.next().unwrap_or_default();
    for part in parts {
        let (code, rest) = part.split_once('\n').unwrap_or((part, ""));
        outcomes.push((reply.to_owned(), code.parse().unwrap()));
        reply = rest;
    }
    outcomes
}
