//! `quorlock wait`: waits until a lock is free, without acquiring it.

use quorlock::{Coordinator, Fencing};
use serde_json::json;

use crate::config::Settings;
use crate::deployment::DeploymentArgs;
use crate::exit;
use crate::failure::Failure;
use crate::report::{Report, json_line, millis};
use crate::runtime::{block_on, now};
use crate::signals::Signals;
use crate::stdout::print;
use crate::values::WaitArg;
use crate::waiting::{self, Place};
use crate::wanted::Wanted;

/// `quorlock wait`.
#[derive(clap::Args)]
pub(crate) struct WaitArgs {
    /// Name of the lock
    resource: String,
    /// How long to wait, or `forever`; 0s asks once
    #[arg(short, long, value_name = "DURATION", default_value = "forever")]
    wait: WaitArg,
    /// Exit code if the lock is still held after the wait
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::HELD)]
    conflict_exit_code: u8,
    /// Print JSON at the end, and report errors as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const WAIT_CODES: &str = "\
Exit codes:
  0      the lock is free; by now another client may have acquired it
  75     it was held for the whole wait (-E sets another code)
  69     no quorum: too few nodes answered in the wait, or must be reconfigured, which ends it
  128+N  signal N came during the wait
  64     invalid arguments
  78     invalid configuration
  125    internal error of quorlock";

pub(crate) const WAIT_EXAMPLES: &str = "\
To do something while no other client does it, use `quorlock run`. This is for what comes after:

  quorlock wait db/migrate && ./serve               # starts once the migration is done
  quorlock wait -w 10min nightly-import || exit 1
  quorlock wait -w 0s deploy/web && echo no deploy is running

It does not poll: the nodes notify it. A lock kept by --at-least or --once-per is not free.";

/// Waits, and returns the exit code.
pub(crate) fn wait(args: &WaitArgs, deployment: DeploymentArgs, quiet: bool) -> Result<u8, Failure> {
    let settings = Settings::load_for_lock(deployment, None, None, Some(args.wait))?;
    let report = Report::to(args.json, quiet);
    block_on(async {
        let coordinator = settings.observer()?;
        until_free(args, &settings, &coordinator, report).await
    })
}

async fn until_free(
    args: &WaitArgs,
    settings: &Settings,
    coordinator: &Coordinator,
    report: Report,
) -> Result<u8, Failure> {
    let lock = coordinator.lock(&args.resource).wait(settings.wait());
    lock.validate().map_err(|error| settings.refused(error))?;
    let mut signals = Signals::listen().map_err(Failure::to("receive signals"))?;
    let since = now();
    let (shown, place) = (Wanted::Lock(lock.clone().fencing(Fencing::On)), Place::default());
    let free =
        waiting::interruptibly(lock.until_free(), (&shown, &place), &mut signals, report, "while waiting");
    free.await?.map_err(|error| Failure::of_acquiring(error, args.conflict_exit_code))?;
    if args.json {
        let event =
            json!({ "event": "free", "resource": args.resource, "waited_ms": millis(now().since(since)) });
        print(&json_line(&event))?;
    }
    Ok(exit::SUCCESS)
}
