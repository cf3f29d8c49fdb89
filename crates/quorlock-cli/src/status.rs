//! `quorlock status`: who holds a lock, node by node, once or again and again.

use std::time::Duration;

use futures::future::try_join_all;
use humantime::parse_duration;
use quorlock::{Ballot, Coordinator};

use crate::args::DeploymentArgs;
use crate::config::Settings;
use crate::exit;
use crate::failure::Failure;
use crate::report::plain;
use crate::runtime::block_on;
use crate::stdout::print;

mod finding;
mod show;
mod watch;

use finding::Finding;

/// `quorlock status`.
#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    /// What is protected; several may be named
    #[arg(required = true)]
    resource: Vec<String>,
    /// Look again after this long, until Ctrl-C: redraws on a terminal, and else prints a line for
    /// each change [without a duration: 1s]
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true,
          default_missing_value = "1s", value_parser = parse_duration)]
    watch: Option<Duration>,
    /// Print JSON instead of a table, a line for each resource
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const STATUS_EXAMPLES: &str = "\
Exit codes:
  0   all of them are held or free
  69  for one of them, nobody knows: too few nodes answered
  64  the arguments make no sense
  78  a setting cannot work

Examples:
  quorlock status db/migrate
  quorlock status --watch=500ms db/migrate cron/cleanup
  quorlock status --json db/migrate | jq -r .holder.context";

/// Asks all nodes and prints what they say.
pub(crate) fn status(args: &StatusArgs, deployment: DeploymentArgs) -> Result<u8, Failure> {
    let settings = Settings::load(deployment)?;
    block_on(async {
        let coordinator = settings.coordinator()?;
        match args.watch {
            None => once(args, &coordinator).await,
            Some(interval) => watch::watch(args, &coordinator, interval).await,
        }
    })
}

async fn once(args: &StatusArgs, coordinator: &Coordinator) -> Result<u8, Failure> {
    let looks = look(args, coordinator).await?;
    let text: Vec<String> = looks.iter().map(|look| look.text(args.json)).collect();
    print(&text.join(if args.json { "" } else { "\n" }))?;
    Ok(code(&looks))
}

/// What was seen of one lock.
struct Look {
    resource: String,
    ballot: Ballot,
    finding: Finding,
}

/// Asks for all at the same time.
async fn look(args: &StatusArgs, coordinator: &Coordinator) -> Result<Vec<Look>, Failure> {
    let each = async |resource: &String| {
        let seen = look_at(coordinator, resource.clone()).await?;
        // The name may be that of a semaphore: then each of its permits is a lock.
        let permits = match seen.finding {
            Finding::Free => coordinator.permits(resource).await,
            Finding::Held(_) | Finding::Unclear(_) => None,
        };
        let Some(permits) = permits else { return Ok(vec![seen]) };
        let names = (0..permits.min(MOST_PERMITS)).map(|number| format!("{resource}#{number}"));
        try_join_all(names.map(|name| look_at(coordinator, name))).await
    };
    Ok(try_join_all(args.resource.iter().map(each)).await?.into_iter().flatten().collect())
}

/// No semaphore has more: what stands there otherwise was not stored by this program.
const MOST_PERMITS: usize = 64;

async fn look_at(coordinator: &Coordinator, resource: String) -> Result<Look, Failure> {
    let ballot = coordinator.lock(&resource).inspect().await;
    let ballot = ballot.map_err(|error| Failure::of_acquiring(error, exit::HELD))?;
    let finding = Finding::of(&ballot);
    Ok(Look { resource, ballot, finding })
}

fn code(looks: &[Look]) -> u8 {
    let unclear = looks.iter().any(|look| matches!(look.finding, Finding::Unclear(_)));
    if unclear { exit::NO_QUORUM } else { exit::SUCCESS }
}

impl Look {
    fn text(&self, json: bool) -> String {
        let Look { resource, ballot, finding } = self;
        if json {
            format!("{}\n", show::in_json(resource, ballot, finding))
        } else {
            format!("{}\n\n{}\n", show::table(ballot, None), finding.painted(&self.sentence()))
        }
    }

    fn sentence(&self) -> String {
        format!("`{}` {}", plain(&self.resource), self.finding.in_words(&self.ballot))
    }
}
