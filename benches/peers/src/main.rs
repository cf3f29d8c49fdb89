//! Compares quorlock with other locks on the same servers. `scripts/peers` runs it.
//!
//! A subject and a scenario are data. `measure` starts servers and a driver for each subject, and prints the table of each
//! scenario. The driver of a Rust client is this program, as `drive SUBJECT`: in every language, each subject is a process of
//! its own, so that its processor time can be measured.
#![expect(clippy::indexing_slicing, reason = "a benchmark fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use scenarios::{SCENARIOS, SUBJECTS, Scenario, Subject};

mod driver;
mod figures;
mod order;
mod page;
mod run;
mod scenarios;
mod servers;
mod subjects;
mod work;

const USAGE: &str = "quorlock-peers measure --built FOLDER [--docs FOLDER] [--millis N] [--repeat N] [SCENARIO]... [SUBJECT]...
quorlock-peers drive SUBJECT ADDRESS...
quorlock-peers delay ADDRESS MILLIS";

/// The TTL of all subjects that have one.
const TTL: Duration = Duration::from_secs(10);

/// What to measure, and how.
#[derive(Default)]
struct Choice {
    /// The folder of the built drivers.
    built: PathBuf,
    /// The folder of the page to write.
    docs: Option<PathBuf>,
    /// The duration of a window; that of the scenario if it is not set.
    millis: Option<u64>,
    /// The number of windows.
    repeat: usize,
    scenarios: BTreeSet<String>,
    /// Names of subjects, or parts of them.
    subjects: Vec<String>,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match obey(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn obey(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["drive", subject, addresses @ ..] => {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            subjects::run(subject, &addresses).await
        }
        ["delay", upstream, millis] => servers::delay(upstream, millis.parse()?).await,
        ["measure", words @ ..] => measure(&Choice::read(words)?).await,
        _ => bail!("{USAGE}"),
    }
}

impl Choice {
    fn read(words: &[&str]) -> Result<Choice> {
        let (mut choice, mut words) = (Choice { repeat: 3, ..Choice::default() }, words.iter());
        while let Some(word) = words.next() {
            let mut value = || words.next().context(USAGE);
            match *word {
                "--built" => choice.built = value()?.into(),
                "--docs" => choice.docs = Some(value()?.into()),
                "--millis" => choice.millis = Some(value()?.parse()?),
                "--repeat" => choice.repeat = value()?.parse()?,
                name if SCENARIOS.iter().any(|scenario| scenario.name == name) => {
                    choice.scenarios.insert(name.to_owned());
                }
                name => choice.subjects.push(name.to_owned()),
            }
        }
        Ok(choice)
    }

    fn wants(&self, subject: &Subject) -> bool {
        let means = |word: &String| {
            let is_name = SUBJECTS.iter().any(|subject| subject.name == word);
            if is_name { subject.name == word } else { subject.name.contains(word.as_str()) }
        };
        self.subjects.is_empty() || self.subjects.iter().any(means)
    }
}

async fn measure(choice: &Choice) -> Result<()> {
    let (mut stage, mut ahead) = (servers::Stage::default(), String::new());
    let (mut versions, mut missing) = (Vec::new(), BTreeSet::new());
    let chosen =
        |scenario: &&Scenario| choice.scenarios.is_empty() || choice.scenarios.contains(scenario.name);
    for scenario in SCENARIOS.iter().filter(chosen) {
        // Ratios are to the first subject, which therefore always takes part.
        let all = SUBJECTS.iter().filter(|subject| subject.is_in(scenario)).enumerate();
        let wanted = all.filter(|(place, subject)| *place == 0 || choice.wants(subject));
        let subjects = wanted.map(|(_, subject)| subject);
        let (rows, skipped) = run::measure(scenario, subjects, &mut stage, choice).await?;
        ensure!(!rows.is_empty(), "{}: nothing was measured", scenario.name);
        missing.extend(skipped);
        for version in rows.iter().flat_map(|row| row.version.split(", ")) {
            if !versions.iter().any(|known| known == version) {
                versions.push(version.to_owned());
            }
        }
        if scenario.rivals {
            ahead += &page::ahead(scenario, &rows);
        }
        publish(choice, scenario.name, &page::table(scenario, &rows))?;
        for (file, svg) in page::plots(scenario, &rows) {
            if let Some(docs) = &choice.docs {
                std::fs::write(docs.join("benchmarks").join(file).with_extension("svg"), svg)?;
            }
        }
    }
    let list = if ahead.is_empty() { "- nowhere in this run\n" } else { &ahead };
    publish(choice, "ahead", &format!("Compared with quorlock's defaults, fencing included:\n\n{list}"))?;
    publish(choice, "run", &page::conditions(&stage.describe(), &versions, &missing))
}

/// Prints a part of the page, and writes it there.
fn publish(choice: &Choice, name: &str, part: &str) -> Result<()> {
    println!("## {name}\n\n{part}");
    let write = |docs: &Path| page::replace(&docs.join("benchmarks.md"), name, part);
    choice.docs.as_deref().map_or(Ok(()), write)
}
