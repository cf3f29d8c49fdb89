//! `quorlock hold`: acquires a lock, prints its token, and keeps it until a signal or the end of stdin.

use std::time::{Duration, SystemTime};

use humantime::format_rfc3339_millis;
use quorlock::protocol::{LeaseTiming, printable};
use quorlock::{
    Coordinator, FencingToken, LossReason, duration,
    runtime::{Clock as _, SystemClock},
};
use serde_json::{Value, json};

use crate::config::Settings;
use crate::deployment::DeploymentArgs;
use crate::exit;
use crate::failure::Failure;
use crate::lock_args::LockArgs;
use crate::metrics::{self, MetricsArgs};
use crate::report::{Reason, Report, json_line, millis, not_confirmed, unconfirmed};
use crate::runtime::{block_on, now, sleep};
use crate::signals::Signals;
use crate::stdout::print_aside;
use crate::waiting::{self, Place};
use crate::wanted::{Acquired, LeaseWatch};

mod stdin;

use stdin::{Input, Stdin, UntilEof};

/// `quorlock hold`.
#[derive(clap::Args)]
pub(crate) struct HoldArgs {
    /// Name of the lock, and with the prefix its key on the nodes
    resource: String,
    /// Whether the end of stdin ends the hold. `auto`: if stdin is a pipe or a socket, whose end means
    /// that the process that wanted the lock has gone; not for a terminal, a file or /dev/null
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    until_eof: UntilEof,
    /// Print events as JSON, one per line: acquired, lost, released, unconfirmed. Then the lines of stdin, if that is a pipe,
    /// are commands: `check` is answered by checked, `renew` by renewed or unrenewed, and `release` ends the hold
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    metrics: MetricsArgs,
    // Last, because its heading covers everything after it.
    #[command(flatten)]
    pub(crate) lock: LockArgs,
}

pub(crate) const HOLD_CODES: &str = "\
Exit codes:
  0      held until a signal or the end of stdin, and released
  75     another client held the lock for the whole wait (-E sets another code)
  69     no quorum: too few nodes answered
  76     the lock was lost or released from elsewhere, or --max-hold was over
  128+N  signal N came during the wait for the lock; 129 also: stdin ended during the wait
  64     invalid arguments
  78     invalid configuration
  125    internal error of quorlock";

pub(crate) const HOLD_EXAMPLES: &str = "\
Examples:
  quorlock hold db/migrate                          # until Ctrl-C
  coproc quorlock hold --json orders/42             # until the script ends, or closes its stdin
  read -r acquired <&${COPROC[0]} || exit           # in bash: the lock is held from here on

The lock is held once the first line is printed. A script that starts this in the background must wait
for that line, and end if there is none: another client has the lock.

Nothing ties your work to the lock: if the lock is lost, this exits with 76 and your work goes on.
Prefer `quorlock run`, which stops its command.

To end it with 0, send it a signal or close its stdin. After `quorlock release` from elsewhere it
exits with 76, within a third of the TTL: until then another client may have held the lock as well.";

/// Holds the lock that `args` name, and returns the exit code.
pub(crate) fn hold(args: &HoldArgs, deployment: DeploymentArgs, quiet: bool) -> Result<u8, Failure> {
    let settings = args.lock.settings(deployment)?;
    metrics::counted(&settings.metrics(&args.metrics), (&args.resource, &[]), || {
        block_on(async {
            let coordinator = settings.coordinator()?;
            let outcome = hold_until_ended(args, &settings, &coordinator, Report::to(args.json, quiet)).await;
            coordinator.close(Settings::patience(&coordinator)).await;
            outcome
        })
    })
}

async fn hold_until_ended(
    args: &HoldArgs,
    settings: &Settings,
    coordinator: &Coordinator,
    report: Report,
) -> Result<u8, Failure> {
    let (place, marks) = (Place::shown_by(report), args.lock.marks(coordinator, settings, &args.resource));
    let noted = place.clone();
    let lock = args.lock.lock(coordinator, settings, &args.resource)?;
    let lock = if place.is_shown() { lock.on_wait(move |waiting| noted.note(waiting)) } else { lock };
    let mut signals = Signals::listen().map_err(Failure::to("receive signals"))?;
    // From the beginning: a process that goes away during the wait no longer wants the lock.
    let mut stdin = Stdin::read(args.until_eof, args.json)?;
    let asked = now();
    let acquired = tokio::select! {
        biased;
        () = stdin.ended() => return Err(Failure::StdinEnded),
        acquired = waiting::acquire((&lock, settings.ttl(), settings.wait()), (&place, &marks), &mut signals, report, "while waiting for the lock") => acquired?,
    };
    let lease =
        acquired.map_err(|error| settings.not_acquired(error, args.lock.conflict_exit_code, coordinator))?;
    let _mark = marks.hold(&lease);
    let since = now();
    metrics::waited(since.since(asked));

    metrics::holds(Some(lease.clone()));
    let printing =
        print_aside(got(&lease, &coordinator.lease_timing(settings.ttl()), since.since(asked), args.json));
    tokio::pin!(printing);
    let mut telling = true;
    let mut answering = None;
    let lost = loop {
        tokio::select! {
            biased;
            lost = lease.lost() => break Some(lost),
            _ = signals.next_end() => break None,
            input = stdin.next(), if answering.is_none() => match input {
                Input::Ended => break None,
                Input::Line(line) if line == "release" => break None,
                Input::Line(line) => answering = Some(Box::pin(answer(&lease, line))),
            },
            answered = async { Some(answering.as_mut()?.await) }, if answering.is_some() => {
                answered.transpose()?;
                answering = None;
            }
            printed = &mut printing, if telling => {
                printed?;
                telling = false;
            }
        }
    };
    drop(answering);
    metrics::holds(None);
    let (watch, token, held) = (lease.clone(), lease.token().short(), now().since(since));
    let lost = match lost {
        Some(lost) => Some(lost),
        None => lease.release().await.err(),
    };
    match lost {
        None => {
            let end = match watch.unconfirmed_release() {
                None => json!({ "event": "released", "token": token, "held_ms": millis(held) }),
                Some(votes) => {
                    report.words(&not_confirmed(&args.resource, &votes));
                    unconfirmed(&args.resource, &token, held, &votes)
                }
            };
            print_end(args, &end).await?;
            Ok(exit::SUCCESS)
        }
        Some(lost) => {
            // The nodes report that the key is gone, but not why.
            let perhaps = if lost.reason == LossReason::QuorumLost {
                "; perhaps `quorlock release` released it from elsewhere"
            } else {
                ""
            };
            report.words(&format!("{lost}; it was held for {}{perhaps}", duration::format(held)));
            print_end(
                args,
                &json!({ "event": "lost", "token": token, "reason": Reason::Lost(lost.reason).word() }),
            )
            .await?;
            Ok(exit::LOST)
        }
    }
}

/// Answers a line of stdin.
async fn answer(lease: &Acquired, line: String) -> Result<(), Failure> {
    let remaining = || millis(lease.remaining());
    let event = match line.as_str() {
        // If it is lost, that is the next event.
        "check" => json!({ "event": "checked", "held": lease.check().is_ok(), "remaining_ms": remaining() }),
        "renew" => match lease.renew().await {
            Ok(()) => json!({ "event": "renewed", "remaining_ms": remaining() }),
            Err(error) => {
                json!({ "event": "unrenewed", "remaining_ms": remaining(), "error": error.to_string() })
            }
        },
        _ => json!({ "event": "unknown", "line": line, "known": ["check", "renew", "release"] }),
    };
    print_aside(json_line(&event)).await
}

/// Formats the acquired lock for the caller.
fn got(lease: &LeaseWatch, timing: &LeaseTiming, waited: Duration, json: bool) -> String {
    let token = String::from_utf8_lossy(lease.token().as_bytes());
    let fencing_token = lease.fencing_token();
    // A time of the calendar is what people and other programs have. It may jump, and nothing here
    // goes by it.
    let until = SystemTime::UNIX_EPOCH + SystemClock::default().wall() + lease.remaining();
    let until = format_rfc3339_millis(until);
    if json {
        return json_line(&json!({
            "event": "acquired",
            "resource": lease.resource().as_str(),
            "fencing_token": fencing_token.map(FencingToken::get),
            "token": token,
            "waited_ms": millis(waited),
            "remaining_ms": millis(lease.remaining()),
            "until": until.to_string(),
            "renewed_every_ms": millis(timing.renewal_every()),
        }));
    }
    let fencing_token = fencing_token.map_or_else(|| "none".to_owned(), |number| number.to_string());
    format!(
        "resource: {}\nfencing token: {fencing_token}\ntoken: {}\nuntil: {until}, renewed every {} until this ends\n",
        lease.resource(),
        printable(&token),
        duration::format(timing.renewal_every()),
    )
}

/// Prints the last event as JSON; a reader that does not read delays it by [`PATIENCE`] at most.
async fn print_end(args: &HoldArgs, event: &Value) -> Result<(), Failure> {
    if !args.json {
        return Ok(());
    }
    tokio::select! {
        biased;
        printed = print_aside(json_line(event)) => printed,
        () = sleep(PATIENCE) => Ok(()),
    }
}

/// How long to wait at the end for a reader of stdout, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);
