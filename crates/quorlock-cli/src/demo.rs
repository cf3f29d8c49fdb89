//! `quorlock demo`: five servers, and a lock that survives the loss of two.

use std::ffi::OsString;
use std::io;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use futures::future::try_join_all;
use quorlock::protocol::Moment;
use quorlock::{
    AcquireError, Coordinator, Lease, Lock, RestartGuard, duration, node::Kinds, votes::VoteOutcome,
};
use quorlock_kinds::{KINDS, KindOfNode, Launcher};
use quorlock_servers::Fleet;
use serde_json::{Value, json};

use crate::exit;
use crate::failure::Failure;
use crate::paint::Paint;
use crate::report::{json_line, millis};
use crate::runtime::{block_on, now, sleep};
use crate::signals::Signals;
use crate::stdout::print;

mod lent;

const NODES: usize = 5;
const RESOURCE: &str = "demo/story";

/// `quorlock demo`.
#[derive(clap::Args)]
#[expect(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]
pub(crate) struct DemoArgs {
    /// Which servers to start
    #[arg(long, value_name = "KIND", value_parser = launchers(), default_value = "redis")]
    servers: &'static Launcher,
    /// Print events as JSON, one per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Skip the story: start the servers, print the exports to reach them, and keep them until Ctrl-C
    #[arg(long, conflicts_with_all = ["json", "command"])]
    keep: bool,
    /// Skip the story: run this command, with the servers in QUORLOCK_NODES and `quorlock` on its PATH,
    /// and exit with its code
    #[arg(trailing_var_arg = true, value_name = "COMMAND", conflicts_with = "json")]
    command: Vec<OsString>,
}

pub(crate) const DEMO_EXAMPLES: &str = "\
Examples:
  quorlock demo                                        # a story of eight seconds
  quorlock demo --servers postgres                     # the same with five databases; also mariadb, etcd, zookeeper
  quorlock demo -- quorlock run my-job -- ./job.sh     # your job under a lock
  quorlock demo -- sh                                  # a shell to experiment in
  quorlock demo --keep                                 # for programs in other terminals
  quorlock demo --keep >servers &                      # there: . ./servers

The servers are for trying things out: they run on this machine and keep no data.";

/// Tells the story, or runs a command with its servers.
pub(crate) fn demo(args: DemoArgs, kinds: &Kinds) -> Result<u8, Failure> {
    block_on(async {
        let mut signals = Signals::listen().map_err(Failure::to("receive signals"))?;
        if args.keep || !args.command.is_empty() {
            let servers = start(args.servers).await?;
            return match args.command {
                words if words.is_empty() => lent::until_signal(&*servers, &mut signals).await,
                words => lent::to_command(&*servers, words, &mut signals).await,
            };
        }
        // Dropping the servers stops them.
        tokio::select! {
            biased;
            signal = signals.next_end() => {
                Err(Failure::Interrupted { what: "during the demonstration", signal })
            }
            notified = play(args.servers, kinds, args.json) => notified.map(|()| exit::SUCCESS),
        }
    })
}

/// Takes the name of a launcher of the kinds that this program was built with.
fn launchers() -> impl TypedValueParser<Value = &'static Launcher> {
    let all = || KINDS.iter().filter(|kind| kind.is_built_in()).filter_map(KindOfNode::launcher);
    let named = move |name: String| all().find(|launcher| launcher.name == name).ok_or("no such servers");
    PossibleValuesParser::new(all().map(|launcher| PossibleValue::new(launcher.name).help(launcher.about)))
        .try_map(named)
}

async fn start(launcher: &Launcher) -> Result<Box<dyn Fleet>, Failure> {
    (launcher.start)(NODES).await.map_err(Failure::to("start the servers"))
}

async fn play(launcher: &Launcher, kinds: &Kinds, json: bool) -> Result<(), Failure> {
    let story = Story { began: now(), paint: Paint::for_stdout(), json };
    let servers = start(launcher).await?;
    let ttl = servers.ttl();
    let masters = if servers.remembers() { "servers" } else { "masters" };
    let master = masters.trim_end_matches('s');
    story.chapter(&format!("{NODES} servers are up: {}", servers.program()))?;
    let (anna, ben) = (client(&*servers, kinds, "anna")?, client(&*servers, kinds, "ben")?);

    let asked = now();
    let lease = anna.acquire().await.map_err(unexpected)?;
    let took = now().since(asked);
    story
        .chapter(&format!("Anna asks for the lock `{RESOURCE}`, with a TTL of {}", duration::format(ttl)))?;
    story.good(&format!("she has it after {}", duration::format(took)))?;
    story.nodes(&anna).await?;

    story.chapter("Ben wants it too")?;
    refuse(&story, &ben).await?;

    (0..2).for_each(|server| servers.kill(server));
    story.chapter(&format!("Two of the five {masters} are killed with SIGKILL"))?;
    let killed = now();
    outlive(&lease, killed + ttl + ttl / 2).await?;
    story.good(&format!(
        "{} later Anna still has her lock, renewed by the other three",
        duration::format(now().since(killed))
    ))?;
    story.nodes(&anna).await?;
    story.chapter("Ben tries again")?;
    refuse(&story, &ben).await?;

    servers.kill(2);
    let end = now() + lease.remaining();
    story.chapter(&format!("A third {master} is killed: two of five are no quorum"))?;
    story.line(&format!(
        "the lock cannot be renewed now; Anna may rely on it for {} more",
        duration::format(lease.remaining())
    ))?;
    let lost = lease.lost().await;
    story.good(&loss_sentence(end, now()))?;
    story.line(&lost.to_string())?;
    drop(lease);

    try_join_all((0..3).map(|server| servers.restart(server)))
        .await
        .map_err(Failure::to("restart the servers"))?;
    story.chapter(if servers.remembers() {
        "The three servers are back, and remember a lock that has expired"
    } else {
        "The three masters are back, and have forgotten everything"
    })?;
    // New connections: the old ones may be waiting to reconnect.
    let ben = client(&*servers, kinds, "ben")?;
    let lease = ben.acquire().await.map_err(unexpected)?;
    story.good("Ben has the lock: Anna was notified before he could acquire it")?;
    story.nodes(&ben).await?;
    lease.release().await.map_err(|lost| Failure::to("release the lock")(io::Error::other(lost)))?;
    story.end(servers.remembers())
}

/// Returns the lock as one of the two clients sees it.
fn client(servers: &dyn Fleet, kinds: &Kinds, name: &str) -> Result<Lock, Failure> {
    let builder = Coordinator::builder()
        .kinds(kinds.clone())
        .nodes(servers.urls())
        .ttl(servers.ttl())
        .max_ttl(servers.ttl());
    // These servers are new, so they cannot have forgotten a lock.
    let coordinator = builder.restart_guard(RestartGuard::Off).build()?;
    Ok(coordinator.lock(RESOURCE).label(name))
}

async fn refuse(story: &Story, contender: &Lock) -> Result<(), Failure> {
    match contender.clone().wait(quorlock::Wait::Never).acquire().await {
        Err(error @ AcquireError::Contended { .. }) => story.good(&format!("refused: {error}")),
        Err(error) => Err(unexpected(error)),
        Ok(_) => Err(Failure::to("tell the story")(io::Error::other(
            "two clients hold the lock at the same time; please report this",
        ))),
    }
}

/// Waits until `moment`; fails if the lease is lost before.
async fn outlive(lease: &Lease, moment: Moment) -> Result<(), Failure> {
    lease.run_until_lost(sleep(moment.since(now()))).await.map_err(|lost| {
        Failure::to("tell the story")(io::Error::other(format!("{lost}; is this machine very busy?")))
    })
}

fn loss_sentence(end: Moment, notified: Moment) -> String {
    if notified < end {
        return format!(
            "she is notified that she has lost it {} before its validity ends",
            duration::format(end.since(notified))
        );
    }
    let late = duration::format(notified.since(end));
    format!(
        "she is notified that she has lost it when its validity ends ({late} after it, by her timer; `check` needs none)"
    )
}

fn unexpected(error: AcquireError) -> Failure {
    Failure::of_acquiring(error, exit::HELD)
}

/// Prints, with the time since the beginning.
struct Story {
    began: Moment,
    paint: Paint,
    json: bool,
}

impl Story {
    fn chapter(&self, text: &str) -> Result<(), Failure> {
        let passed = now().since(self.began);
        if self.json {
            return event(&json!({ "event": "chapter", "at_ms": millis(passed), "text": text }));
        }
        let time = format!("{:5.2} s", passed.as_secs_f64());
        print(&format!("{}  {}\n", self.paint.faint(time), self.paint.strong(text)))
    }

    fn good(&self, text: &str) -> Result<(), Failure> {
        if self.json {
            return self.line(text);
        }
        self.line(&self.paint.good(text))
    }

    fn line(&self, text: &str) -> Result<(), Failure> {
        if self.json {
            return event(&json!({ "event": "note", "text": text }));
        }
        print(&format!("         {text}\n"))
    }

    /// Prints one line per node.
    async fn nodes(&self, lock: &Lock) -> Result<(), Failure> {
        let report = lock.inspect().await?;
        for vote in report.votes() {
            let (holds, described) = if let VoteOutcome::Held(holding) = &vote.outcome {
                (true, format!("held by {}", holding.token))
            } else {
                (false, vote.outcome.to_string())
            };
            if self.json {
                event(&json!({ "event": "node", "node": &*vote.node, "holds": holds, "text": described }))?;
                continue;
            }
            let mark = if holds { self.paint.good("✔") } else { self.paint.bad("✘") };
            self.line(&format!("{mark} {}  {}", vote.node, self.paint.faint(described)))?;
        }
        Ok(())
    }

    fn end(&self, remember: bool) -> Result<(), Failure> {
        self.chapter("What was switched off here")?;
        self.line(
            "The restart guard: this program started the servers itself, so it knows how old they are.",
        )?;
        if remember {
            self.line("With it, which is the default, a database votes one max_ttl after its first use, 30 s unless")?;
            return self
                .line("set. After that it votes as soon as it has restarted: it has forgotten nothing.");
        }
        self.line("With it, which is the default, servers that have just restarted do not vote until every")?;
        self.line("lock that they may have forgotten has expired. Ben would have waited that long.")
    }
}

fn event(event: &Value) -> Result<(), Failure> {
    print(&json_line(event))
}
