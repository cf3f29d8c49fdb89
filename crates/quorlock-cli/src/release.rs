//! `quorlock release`: releases a lock by its token, or takes it from its holders.

use std::fs::File;
use std::io::{self, Read as _};
use std::iter;
use std::path::PathBuf;

use clap::ArgGroup;
use quorlock::{Coordinator, Lock, Token};

use crate::config::Settings;
use crate::deployment::DeploymentArgs;
use crate::exit;
use crate::failure::Failure;
use crate::runtime::block_on;
use crate::stdout::print;

mod force;
mod outcome;

use outcome::Outcome;

/// `quorlock release`.
#[derive(clap::Args)]
#[expect(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]
#[command(group = ArgGroup::new("whose").required(true).args(["token", "token_file", "force"]))]
pub(crate) struct ReleaseArgs {
    /// Name of the lock
    resource: String,
    /// Release the lock if it is held with this token: `quorlock hold` prints it, and the command of
    /// `quorlock run` has it in the variable QUORLOCK_TOKEN
    #[arg(long)]
    token: Option<String>,
    /// The same, with the token in the first line of FILE, or of stdin if FILE is -
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Also release RESOURCE, which is held with the same token: as given to `run` or `hold`
    #[arg(long, value_name = "RESOURCE", conflicts_with = "force")]
    also: Vec<String>,
    /// Take the lock from the holders that are seen now, without a token
    #[arg(long)]
    force: bool,
    /// With --force: do not ask for confirmation
    #[arg(short, long, requires = "force")]
    yes: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const RELEASE_CODES: &str = "\
Exit codes:
  0    released: a quorum no longer has these tokens; or the lock was free
  75   the lock is not held with this token, or you answered no; nothing was changed
  69   too few nodes answered: the lock may still be held on the others
  64   invalid arguments, or no terminal to ask for confirmation
  78   invalid configuration
  125  internal error of quorlock";

pub(crate) const RELEASE_EXAMPLES: &str = "\
Examples:
  quorlock release db/migrate --token \"$token\"      # compare and delete
  quorlock release a --also b --token \"$token\"     # all locks with this token
  quorlock release --force db/migrate               # shows who holds it, and asks
  quorlock release --force --yes db/migrate         # does not ask

--force breaks a promise: the holder works on until its next renewal, within a third of its TTL, or
until nodes notify it, while another client may already hold the lock. Only a resource that checks
fencing tokens is protected then. Fencing counters are kept.";

/// Revokes the `lock` from the holder of `token`, or from all that are seen to hold it.
async fn end<K>(
    coordinator: &Coordinator,
    (lock, as_reader): (&Lock<K>, &Lock<K>),
    token: Option<Token>,
    args: &ReleaseArgs,
) -> Result<Option<Outcome>, Failure> {
    let Some(token) = token else {
        let outcome = force::take_away(lock, as_reader, &args.resource, args.yes).await?;
        if outcome.as_ref().is_some_and(Outcome::found_nothing)
            && let Ok(Some(permits)) = coordinator.permits(&args.resource).await
        {
            return Err(Failure::Usage(format!(
                "`{name}` is a semaphore of {permits} permits, each of which is a lock: name the one to release, such \
                 as `{name}#0`; `quorlock status {name}` shows all of them",
                name = args.resource,
            )));
        }
        return Ok(outcome);
    };
    let report = lock.revoke(&token).await?;
    // Where nothing was deleted, another client holds the lock, or none.
    let mistaken = report.granted() == 0 && lock.inspect().await.is_ok_and(|seen| seen.holder().is_some());
    Ok(Some(Outcome::of_one(&token, &report, mistaken)))
}

/// Releases what `args` name, and says with which code to exit.
pub(crate) fn release(args: &ReleaseArgs, deployment: DeploymentArgs) -> Result<u8, Failure> {
    let token = read_token(args)?;
    let settings = Settings::load(deployment)?;
    let resources: Vec<String> = iter::once(&args.resource).chain(&args.also).cloned().collect();
    let outcome = block_on(async {
        let coordinator = settings.observer()?;
        if args.also.is_empty() {
            let lock = coordinator.lock(&args.resource);
            let as_reader = lock.clone().shared();
            end(&coordinator, (&lock, &as_reader), token, args).await
        } else {
            let lock = coordinator.lock_all(iter::once(&args.resource).chain(&args.also));
            end(&coordinator, (&lock, &lock), token, args).await
        }
    })?;
    let Some(outcome) = outcome else { return Ok(exit::HELD) };
    let named = resources.join(" + ");
    print(&if args.json { outcome.in_json(&named) } else { outcome.in_words(&named) })?;
    Ok(outcome.code())
}

/// As much of a file as is read for its first line: `/dev/zero` has no end.
const LONGEST: u64 = 64 << 10;

/// Returns the token, or `None` with `--force`.
fn read_token(args: &ReleaseArgs) -> Result<Option<Token>, Failure> {
    let text = match (&args.token, &args.token_file) {
        (Some(token), _) => token.clone(),
        (None, Some(path)) => {
            let read = if path.as_os_str() == "-" {
                let mut text = String::new();
                io::stdin().lock().take(LONGEST).read_to_string(&mut text).map(|_| text)
            } else {
                File::open(path).and_then(|file| io::read_to_string(file.take(LONGEST)))
            };
            let text = read.map_err(|error| {
                Failure::Usage(format!("cannot read the token from {}: {error}", path.display()))
            })?;
            text.lines().next().unwrap_or_default().to_owned()
        }
        (None, None) => return Ok(None),
    };
    // As `quorlock hold` prints it.
    let text = text.strip_prefix("token: ").unwrap_or(&text).to_owned();
    if text.starts_with("resource: ") {
        return Err(Failure::Usage(
            "this is another line of what `quorlock hold` prints; the token follows `token: `".to_owned(),
        ));
    }
    if text.is_empty() {
        return Err(Failure::Usage(
            "the token is empty; `quorlock hold` prints it, after `token: `".to_owned(),
        ));
    }
    Ok(Some(Token::found(text.as_bytes())))
}
