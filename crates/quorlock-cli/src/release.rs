//! `quorlock release`: gives a lock back by its token, or takes it away from whoever holds it.

use std::io::{self, Read as _};
use std::iter;
use std::path::PathBuf;

use clap::ArgGroup;
use quorlock::{Coordinator, Lock, Token};

use crate::args::DeploymentArgs;
use crate::config::Settings;
use crate::exit;
use crate::failure::Failure;
use crate::report::plain;
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
    /// What is protected
    resource: String,
    /// Release it if it is held with this token: what `quorlock hold` prints, and what the command
    /// of `quorlock run` has in the variable QUORLOCK_TOKEN
    #[arg(long)]
    token: Option<String>,
    /// The same, with the token in the first line of a file, or of stdin if this is -
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// What is held with the same token, as it was given to `run` or `hold`
    #[arg(long, value_name = "RESOURCE", conflicts_with = "force")]
    also: Vec<String>,
    /// Take it away from whoever holds it, as far as they were seen before
    #[arg(long)]
    force: bool,
    /// With --force: do not ask
    #[arg(short, long, requires = "force")]
    yes: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const RELEASE_CODES: &str = "\
Exit codes:
  0    nobody holds it any more with these tokens, as far as a quorum says; or it was free
  75   it is not held with this token, or you said no; nothing was changed
  69   too few nodes answered: it may still be held where they did not
  64   the arguments make no sense, or nobody can be asked
  78   a setting cannot work
  125  quorlock itself failed";

pub(crate) const RELEASE_EXAMPLES: &str = "\
Examples:
  quorlock release db/migrate --token \"$token\"      # compare and delete
  quorlock release a --also b --token \"$token\"     # all that is held with it
  quorlock release --force db/migrate               # shows who holds it, and asks
  quorlock release --force --yes db/migrate         # does not ask

With --force a promise is broken: the holder is not told, and works on until it renews next, within
a third of its TTL; meanwhile somebody else may get the lock. What protects the data then is a
resource that checks fencing tokens. Their counters are never deleted.";

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
            && let Some(permits) = coordinator.permits(&args.resource).await
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
        let coordinator = settings.coordinator()?;
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
    print(&if args.json { outcome.in_json(&named) } else { outcome.in_words(&plain(&named)) })?;
    Ok(outcome.code())
}

/// `None` where it is to be taken from whoever holds it.
fn read_token(args: &ReleaseArgs) -> Result<Option<Token>, Failure> {
    let text = match (&args.token, &args.token_file) {
        (Some(token), _) => token.clone(),
        (None, Some(path)) => {
            let read = if path.as_os_str() == "-" {
                let mut text = String::new();
                io::stdin().lock().read_to_string(&mut text).map(|_| text)
            } else {
                std::fs::read_to_string(path)
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
            "that is no token but what `quorlock hold` prints before it; its token stands after `token: `"
                .to_owned(),
        ));
    }
    if text.is_empty() {
        return Err(Failure::Usage(
            "the token is empty; `quorlock hold` prints it, after `token: `".to_owned(),
        ));
    }
    Ok(Some(Token::found(text.as_bytes())))
}
