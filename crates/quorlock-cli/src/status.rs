//! `quorlock status`: shows who holds a lock, node by node, and who waits for it; with `--watch`, repeatedly.

use std::io;
use std::time::Duration;

use futures::future::{try_join, try_join_all};
use quorlock::{
    Coordinator, duration,
    health::{NodeHealth, NodeStatus},
    lock::QueueListing,
    protocol::printable,
    votes::VoteReport,
};

use crate::config::Settings;
use crate::deployment::DeploymentArgs;
use crate::exit;
use crate::failure::Failure;
use crate::report::json_line;
use crate::runtime::block_on;
use crate::stdout::print;
use crate::width;

mod finding;
mod show;
mod watch;

pub(crate) use finding::Finding;
pub(crate) use show::add_depth;

/// `quorlock status`.
#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    /// Name of the lock; several may be given
    #[arg(required = true)]
    resource: Vec<String>,
    /// Repeat at this interval until q or Ctrl-C: redraws on a terminal, elsewhere prints a line for each
    /// change [without a value: 1s]
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true,
          value_parser = duration::parse)]
    #[expect(clippy::option_option, reason = "clap's type for an option with an optional value")]
    watch: Option<Option<Duration>>,
    /// Print JSON instead of a table, one line per lock
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const STATUS_EXAMPLES: &str = "\
Exit codes:
  0    every lock is held or free
  69   too few nodes answered, or too many restarted too recently to vote, to tell whether one of them \
   is held
  64   invalid arguments
  78   invalid configuration
  125  internal error of quorlock

Examples:
  quorlock status db/migrate
  quorlock status --watch=500ms db/migrate cron/cleanup
  quorlock status --json db/migrate | jq -r .holder.context";

/// Asks all nodes and prints their answers.
pub(crate) fn status(args: &StatusArgs, deployment: DeploymentArgs) -> Result<u8, Failure> {
    if let (Some(None), Some(word)) = (args.watch, args.resource.iter().find(|word| is_interval(word))) {
        return Err(Failure::Usage(format!(
            "`{word}` would be the name of a lock; write an interval as --watch={word}"
        )));
    }
    let settings = Settings::load(deployment)?;
    block_on(async {
        let coordinator = settings.observer()?;
        match args.watch {
            None => once(args, &coordinator).await,
            Some(interval) => watch::watch(args, &coordinator, interval.unwrap_or(AGAIN_AFTER)).await,
        }
    })
}

/// The default interval of `--watch`.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Whether `word` looks like `500ms`, and so was meant for `--watch`.
fn is_interval(word: &str) -> bool {
    word.contains(char::is_alphabetic) && duration::parse(word).is_ok()
}

async fn once(args: &StatusArgs, coordinator: &Coordinator) -> Result<u8, Failure> {
    let looks = look(args, coordinator).await?;
    let text: Vec<String> = looks.iter().map(|look| look.text(args.json)).collect();
    print(&text.join(if args.json { "" } else { "\n" }))?;
    Ok(code(&looks))
}

/// One lock as seen at one time.
pub(crate) struct Look {
    pub(crate) resource: String,
    report: VoteReport,
    /// How much longer each node does not vote, in the order of the votes.
    quarantines: Vec<Duration>,
    pub(crate) finding: Finding,
    /// Who waits for it.
    pub(crate) queue: QueueListing,
    /// The number of permits, if the name is also that of a semaphore.
    permits: Option<usize>,
}

/// Asks for all locks concurrently.
async fn look(args: &StatusArgs, coordinator: &Coordinator) -> Result<Vec<Look>, Failure> {
    let each = async |resource: &String| {
        let mut seen = look_at(coordinator, resource.clone()).await?;
        // The name may also be that of a semaphore, each permit of which is a lock. The plain lock has another
        // key, so both may be held.
        let permits = match seen.finding {
            // Where that is unknown a moment later, what is known of the plain lock is shown.
            Finding::Free | Finding::Held(_) => coordinator.permits(resource).await.unwrap_or_default(),
            Finding::Unclear(_) => None,
        };
        let Some(permits) = permits else { return Ok::<_, Failure>(vec![seen]) };
        seen.permits = Some(permits);
        let names = (0..permits.min(MOST_PERMITS)).map(|number| format!("{resource}#{number}"));
        let each = try_join_all(names.map(|name| look_at(coordinator, name))).await?;
        let of_lock = matches!(seen.finding, Finding::Held(_)).then_some(seen);
        Ok(of_lock.into_iter().chain(each).collect())
    };
    Ok(try_join_all(args.resource.iter().map(each)).await?.into_iter().flatten().collect())
}

/// The most permits of a semaphore; a larger number was not stored by this program.
const MOST_PERMITS: usize = 64;

/// Asks for one lock, and for who waits for it.
pub(crate) async fn look_at(coordinator: &Coordinator, resource: String) -> Result<Look, Failure> {
    let lock = coordinator.lock(&resource);
    let seen = try_join(lock.inspect(), lock.waiters()).await;
    let (report, queue) = seen?;
    let quarantines: Vec<Duration> = coordinator.health().now().iter().map(left).collect();
    let finding = Finding::of(&report);
    Ok(Look { resource, report, quarantines, finding, queue, permits: None })
}

/// Returns how much longer the node's vote does not count.
fn left(node: &NodeHealth) -> Duration {
    if let NodeStatus::Quarantined { left } = node.status { left } else { Duration::ZERO }
}

fn code(looks: &[Look]) -> u8 {
    let unclear = |look: &Look| matches!(look.finding, Finding::Unclear(_));
    if looks.iter().any(unclear) { exit::NO_QUORUM } else { exit::SUCCESS }
}

impl Look {
    fn text(&self, json: bool) -> String {
        let Look { resource, report, quarantines, finding, queue, .. } = self;
        if json {
            return json_line(&show::in_json(resource, report, quarantines, finding, queue));
        }
        let mut lines = vec![self.table(width::of(io::stdout())), String::new()];
        lines.push(finding.painted(&self.sentence()));
        lines.extend(show::waiters(queue));
        lines.push(String::new());
        lines.join("\n")
    }

    /// Returns the table, in lines of at most `width` characters if given.
    fn table(&self, width: Option<usize>) -> String {
        show::table(&self.report, width)
    }

    fn sentence(&self) -> String {
        let as_well = self.permits.map_or_else(String::new, |permits| {
            format!("; there is also a semaphore of {permits} permits with this name, and neither excludes the other")
        });
        format!("`{}` {}{as_well}", printable(&self.resource), self.finding.in_words(&self.report))
    }
}
