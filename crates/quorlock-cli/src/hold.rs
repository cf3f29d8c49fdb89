//! `quorlock hold`: takes a lock, says so, and keeps it until it is told to stop.

use std::time::{Duration, SystemTime};

use humantime::format_rfc3339_millis;
use quorlock::protocol::renewal_every;
use quorlock::{
    Coordinator, FencingToken, LeaseWatch, LossReason, duration,
    runtime::{Clock as _, SystemClock},
};
use serde_json::{Value, json};

use crate::args::{DeploymentArgs, LockArgs};
use crate::config::Settings;
use crate::exit;
use crate::failure::Failure;
use crate::metrics::{self, MetricsArgs};
use crate::report::{Reason, Report, millis, not_confirmed, plain, unconfirmed};
use crate::runtime::{block_on, now, sleep};
use crate::signals::Signals;
use crate::stdout::print_aside;
use crate::waiting::{self, Place};

mod stdin;

use stdin::UntilEof;

/// `quorlock hold`.
#[derive(clap::Args)]
pub(crate) struct HoldArgs {
    /// What is protected; its name is the key at the nodes
    resource: String,
    /// Whether the end of stdin ends the hold. `auto`: if stdin is a pipe or a socket, whose end
    /// says that whoever wanted the lock has gone. A terminal, a file and /dev/null say nothing
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    until_eof: UntilEof,
    /// Print JSON, a line for each event: acquired, lost, released, unconfirmed
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    metrics: MetricsArgs,
    // Last, because its heading holds for all that follows.
    #[command(flatten)]
    pub(crate) lock: LockArgs,
}

pub(crate) const HOLD_CODES: &str = "\
Exit codes:
  0      held until a signal or the end of stdin, and given back
  75     somebody else held the lock for the whole wait (another code with -E)
  69     no quorum: too few nodes answered
  76     the lock was lost or released from elsewhere, or --max-hold was over
  128+N  signal N came while it waited for the lock; 129 also: stdin ended meanwhile
  64     the arguments make no sense
  78     a setting cannot work
  125    quorlock itself failed";

pub(crate) const HOLD_EXAMPLES: &str = "\
Examples:
  quorlock hold db/migrate                          # until Ctrl-C
  quorlock hold -n --max-hold 10min deploy/web &    # until kill %1, at most 10 minutes
  coproc quorlock hold --json orders/42             # until the script ends, or closes its stdin

The lock is not tied to what you do meanwhile: if it is lost, this ends with 76, and nothing stops
your work. Prefer `quorlock run`, which stops its command.

To end it with 0, send it a signal or end its stdin. `quorlock release` from elsewhere ends it with 76,
within a third of the TTL: until then it reported a lock that others may have had.";

/// Holds the lock that `args` name, and says with which code to exit.
pub(crate) fn hold(args: &HoldArgs, deployment: DeploymentArgs, quiet: bool) -> Result<u8, Failure> {
    let settings = args.lock.settings(deployment)?;
    metrics::counted(&settings.metrics(&args.metrics), &args.resource, || {
        block_on(async {
            let coordinator = settings.coordinator()?;
            let outcome = until_told(args, &settings, &coordinator, Report::to(args.json, quiet)).await;
            coordinator.close(Settings::patience(&coordinator)).await;
            outcome
        })
    })
}

async fn until_told(
    args: &HoldArgs,
    settings: &Settings,
    coordinator: &Coordinator,
    report: Report,
) -> Result<u8, Failure> {
    let place = Place::shown_by(report);
    let noted = place.clone();
    let lock = args.lock.lock(coordinator, settings, &args.resource)?;
    let lock = if place.is_shown() { lock.on_wait(move |waiting| noted.note(waiting)) } else { lock };
    let mut signals = Signals::listen().map_err(Failure::to("receive signals"))?;
    // From the beginning: whoever goes away while this waits wants the lock no more.
    let closed = stdin::closed(args.until_eof);
    tokio::pin!(closed);
    let asked = now();
    let acquired = tokio::select! {
        biased;
        () = &mut closed => return Err(Failure::StdinEnded),
        acquired = waiting::acquire((&lock, settings.ttl()), &place, &mut signals, report, "while waiting for the lock") => acquired?,
    };
    let lease = acquired.map_err(|error| Failure::of_acquiring(error, args.lock.conflict_exit_code))?;
    let since = now();
    metrics::waited(since.since(asked));

    let told = print_aside(got(&lease, settings.ttl(), since.since(asked), args.json));
    tokio::pin!(told);
    let mut telling = true;
    let lost = loop {
        tokio::select! {
            biased;
            lost = lease.lost() => break Some(lost),
            _ = signals.next_end() => break None,
            () = &mut closed => break None,
            printed = &mut told, if telling => {
                printed?;
                telling = false;
            }
        }
    };
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
            tell_end(args, &end).await?;
            Ok(exit::SUCCESS)
        }
        Some(lost) => {
            // The nodes tell that they lack the key, and not why.
            let perhaps = if lost.reason == LossReason::QuorumLost {
                "; so ends also what `quorlock release` released from elsewhere"
            } else {
                ""
            };
            report.words(&format!("{lost}; it was held for {}{perhaps}", duration::format(held)));
            tell_end(
                args,
                &json!({ "event": "lost", "token": token, "reason": Reason::Lost(lost.reason).word() }),
            )
            .await?;
            Ok(exit::LOST)
        }
    }
}

/// What was got, for whoever asked for it.
fn got(lease: &LeaseWatch, ttl: Duration, waited: Duration, json: bool) -> String {
    let token = String::from_utf8_lossy(lease.token().as_bytes());
    let fencing_token = lease.fencing_token();
    // A time of the calendar is what people and other programs have. It may jump, and nothing here
    // goes by it.
    let until = SystemTime::UNIX_EPOCH + SystemClock::default().wall() + lease.remaining();
    let until = format_rfc3339_millis(until);
    if json {
        let event = json!({
            "event": "acquired",
            "resource": lease.resource().as_str(),
            "fencing_token": fencing_token.map(FencingToken::get),
            "token": token,
            "waited_ms": millis(waited),
            "remaining_ms": millis(lease.remaining()),
            "until": until.to_string(),
            "renewed_every_ms": millis(renewal_every(ttl)),
        });
        return format!("{event}\n");
    }
    let fencing_token = fencing_token.map_or_else(|| "none".to_owned(), |number| number.to_string());
    format!(
        "resource: {}\nfencing token: {fencing_token}\ntoken: {token}\nuntil: {until}, renewed every {} until this ends\n",
        plain(lease.resource().as_str()),
        duration::format(renewal_every(ttl)),
    )
}

/// The last line, for programs. Nobody waits for a reader who stands still.
async fn tell_end(args: &HoldArgs, event: &Value) -> Result<(), Failure> {
    if !args.json {
        return Ok(());
    }
    tokio::select! {
        biased;
        printed = print_aside(format!("{event}\n")) => printed,
        () = sleep(PATIENCE) => Ok(()),
    }
}

/// How long the end of the program waits for a reader.
const PATIENCE: Duration = Duration::from_millis(500);
