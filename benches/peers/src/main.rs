//! Compares quorlock with other locks on the same servers. `scripts/peers` runs it.
//!
//! `measure PART` starts servers and drivers and writes the results to a file, `report` writes the
//! measured parts of `docs/benchmarks.md` and its plots, and `measure` starts `drive SUBJECT` for each
//! subject with a Rust client: in every language, each subject runs in its own process, so that its
//! processor time can be measured.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark fails by panicking")]

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use measure::{Part, Plan};

mod distance;
mod driver;
mod lineup;
mod measure;
mod order;
mod plot;
mod processes;
mod record;
mod report;
mod subjects;
mod systems;
mod versions;
mod work;

const USAGE: &str =
    "quorlock-peers measure cycles|contention|processes|distance|systems|promises --out FILE --built FOLDER
                       [--millis N] [--repeat N] [--only NAME,NAME]
quorlock-peers report --records FOLDER --docs FOLDER
quorlock-peers drive SUBJECT ADDRESS...
quorlock-peers delay ADDRESS MILLIS";

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match obey(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn obey(arguments: &[String]) -> Result<()> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["drive", subject, ..] => subjects::run(subject, arguments.get(2..).unwrap_or_default()).await,
        ["delay", upstream, millis] => distance::delay(upstream, millis.parse()?).await,
        ["measure", part, options @ ..] => {
            let part = Part::ALL.into_iter().find(|known| known.name() == *part).context(USAGE)?;
            let options = Options(options);
            let plan = Plan {
                part,
                built: options.needed("--built")?.into(),
                millis: options.number("--millis", part.usual_millis())?,
                repeat: usize::try_from(options.number("--repeat", 3)?)?,
                only: options.get("--only").unwrap_or_default().split(',').map(str::to_owned).collect(),
            };
            measure::run(&plan).await?.write(Path::new(options.needed("--out")?))
        }
        ["report", options @ ..] => {
            let options = Options(options);
            report::write(Path::new(options.needed("--records")?), Path::new(options.needed("--docs")?))
        }
        _ => bail!("{USAGE}"),
    }
}

/// Pairs of a name and a value.
struct Options<'a>(&'a [&'a str]);

impl<'a> Options<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.chunks(2).find(|pair| pair.first() == Some(&name))?.get(1).copied()
    }

    fn needed(&self, name: &str) -> Result<&'a str> {
        self.get(name).with_context(|| format!("{name} is missing; {USAGE}"))
    }

    fn number(&self, name: &str, usual: u64) -> Result<u64> {
        self.get(name).map_or(Ok(usual), |value| value.parse().with_context(|| format!("{name} {value}")))
    }
}
