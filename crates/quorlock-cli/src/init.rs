//! `quorlock init`: checks the nodes, and writes a configuration file for them.

use std::fs::{Permissions, symlink_metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quorlock::doctor::{Report as Examination, Summary};
use quorlock::{Wait, duration};
use quorlock_config::is_found;
use serde_json::json;

use crate::config::{Settings, file_to_fill};
use crate::deployment::DeploymentArgs;
use crate::doctor;
use crate::exit;
use crate::failure::Failure;
use crate::program::quoted;
use crate::report::{Report, json_line, notice, warn};
use crate::runtime::block_on;
use crate::stdout::print;

/// `quorlock init`.
#[derive(clap::Args)]
pub(crate) struct InitArgs {
    /// The file to write; `-` is stdout
    #[arg(long, value_name = "FILE", default_value = "quorlock.toml")]
    file: PathBuf,
    /// Write over a file that exists
    #[arg(long)]
    force: bool,
    /// Write the file without checking the nodes, such as before they are set up
    #[arg(long)]
    no_check: bool,
    /// Report on stdout as JSON, in one line
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const INIT_EXAMPLES: &str = "\
Exit codes:
  0    the file is written
  69   no quorum: too few nodes vote; nothing is written
  79   something makes locks unsafe; nothing is written
  64   invalid arguments, or the file exists
  78   invalid configuration
  125  internal error of quorlock

Examples:
  quorlock init --nodes redis://10.0.0.1,redis://10.1.0.1,redis://10.2.0.1
  sudo quorlock init --file /etc/quorlock.toml --key-prefix locks: --nodes redis://10.0.0.1,…

A file that sets nothing, such as the one that the package brings, is filled in; its comments stay.

The check is that of `quorlock doctor`. Nodes that were just started do not vote for max-ttl, 30 s:
if a quorum lacks only those, it waits for them. The settings that are given as options, in the
environment or in an earlier file are written, and the others as comments with their defaults. Not
written are a password in QUORLOCK_PASSWORD, and QUORLOCK_RESTART_GUARD=off, which is for one run. A
file with a password in an address is readable by its owner only.";

/// Checks the nodes, and writes the file.
pub(crate) fn init(args: &InitArgs, deployment: DeploymentArgs, quiet: bool) -> Result<u8, Failure> {
    let to_stdout = args.file == Path::new("-");
    if to_stdout && args.json {
        return Err(Failure::Usage(
            "stdout is either the file or the report: omit --json or --file -".to_owned(),
        ));
    }
    if let Some(path) = deployment.config.as_deref().filter(|path| !path.exists()) {
        return Err(Failure::Usage(format!(
            "--config names a file to read, and {0} does not exist; the file to write is --file {0}",
            path.display()
        )));
    }
    let template = if to_stdout { None } else { template(args)? };
    let settings = Settings::load_to_write(deployment)?;
    if !args.no_check {
        let code = refusal(args, &settings, Report::to(args.json, quiet))?;
        if code != exit::SUCCESS {
            return Ok(code);
        }
    }
    let text = settings.in_toml(template.as_deref());
    if to_stdout {
        print(&text)?;
        return Ok(exit::SUCCESS);
    }
    let replaces = args.force || template.is_some();
    write(&args.file, &text, (settings.has_secret(), replaces)).map_err(|error| {
        Failure::Config(format!("cannot write {}: {error}; give another --file", args.file.display()))
    })?;
    let will_be_read = is_found(&args.file, &warn);
    if args.json {
        let file = args.file.display().to_string();
        let event = if args.no_check { "unchecked" } else { "checked" };
        print(&json_line(&json!({ "event": event, "written": true, "exit_code": 0, "file": file })))?;
    } else if !quiet {
        let file = args.file.display();
        let (config, why) = if will_be_read {
            (String::new(), "")
        } else {
            (
                format!("--config {} ", quoted(&args.file.to_string_lossy())),
                ": here it is read only if it is named",
            )
        };
        let next = format!("wrote {file}; try `quorlock run {config}my-job -- echo hello`{why}");
        Report::Words.words(&next);
    }
    Ok(exit::SUCCESS)
}

/// Checks the nodes, says why nothing is written if they are not sound, and returns the exit code.
fn refusal(args: &InitArgs, settings: &Settings, report: Report) -> Result<u8, Failure> {
    let examination = block_on(check(settings, report))?;
    let code = doctor::exit_code(&examination, false);
    if report == Report::Words {
        notice(&format!("checked the nodes:\n{}", doctor::summarized(&examination)));
    }
    if code != exit::SUCCESS {
        let why = match examination.summary() {
            Summary::NoQuorum => "no lock could be acquired on these nodes now",
            Summary::Sound | Summary::Unsafe | Summary::Unclear | _ => {
                "locks on these nodes would not be safe"
            }
        };
        if args.json {
            print(&json_line(&json!({ "event": "checked", "written": false, "exit_code": code })))?;
        } else {
            notice(&format!(
                "nothing is written, because {why}; `quorlock doctor` says how to fix it, --no-check writes it anyway"
            ));
        }
    }
    Ok(code)
}

/// Checks the nodes, and waits for those that have just been started, if they are all that is missing.
async fn check(settings: &Settings, report: Report) -> Result<Examination, Failure> {
    let coordinator = settings.coordinator()?;
    let first = coordinator.doctor().await;
    // A longer one is of another client's `max_ttl`, perhaps a mistake, which a finding names.
    let own = doctor::votes_in(&first).filter(|left| *left <= settings.quarantine());
    let Some(left) = own else { return Ok(first) };
    let in_the_way = |examination: &Examination| {
        let left = duration::format(doctor::votes_in(examination)?);
        Some(format!(
            "the nodes were started recently, and enough of them vote in {left}; --no-check writes the file now"
        ))
    };
    // Ages are read in whole seconds.
    let longest = left.saturating_add(Duration::from_secs(5));
    Ok(doctor::examine(&coordinator, Wait::UpTo(longest), report, in_the_way).await)
}

/// Checks what is at the place of the file, and returns its text if it is to be filled in. A link is not followed: in a
/// folder of others it could lead anywhere.
fn template(args: &InitArgs) -> Result<Option<String>, Failure> {
    let Ok(present) = symlink_metadata(&args.file) else { return Ok(None) };
    let why = if present.is_symlink() {
        "is a symbolic link, which is not followed: give --file the file itself"
    } else if !present.is_file() {
        "is not a regular file; give another --file"
    } else if let Some(text) = file_to_fill(&args.file) {
        return Ok(Some(text));
    } else if args.force {
        return Ok(None);
    } else {
        "exists; give another --file, or --force to write over it"
    };
    Err(Failure::Usage(format!("{} {why}", args.file.display())))
}

/// Writes the file, for its owner only if it has a `secret`. Not over a file that has appeared meanwhile, unless it
/// `replaces` one: then a new file takes its place, whatever it has become.
fn write(path: &Path, text: &str, (secret, replaces): (bool, bool)) -> io::Result<()> {
    let mode = if secret { 0o600 } else { 0o644 };
    // A part of a file, as on a full disk, would be read in the place of a good one elsewhere.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".quorlock-init.")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    if replaces { file.persist(path) } else { file.persist_noclobber(path) }?;
    Ok(())
}
