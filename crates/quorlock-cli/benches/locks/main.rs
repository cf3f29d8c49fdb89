//! Locks of each kind of node, and the requests of a lock by hand, in the same scenarios.
//!
//! `cargo bench -p quorlock-cli --bench locks -- [SCENARIO]... [SUBJECT]...`
//!
//! A word is the name of a scenario, the name of a subject, or a part of it; without words all are measured, which
//! takes half an hour. The subjects of one family take turns, so that a machine whose speed drifts favours none; a
//! figure is the median of the turns, and of a column *longest* the largest. Families whose servers are not installed
//! are left out, and named; `QUORLOCK_ETCD` and `QUORLOCK_ZOOKEEPER` name theirs. `TURNS` sets the number of turns.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a bench fails by panicking, and its counts are small numbers"
)]

mod by_hand;
mod children;
mod scenarios;
mod subjects;

use std::sync::Arc;

use scenarios::{SCENARIOS, Scenario};
use subjects::{SUBJECTS, Subject};

/// What the words choose, in the order of the tables.
struct Chosen {
    scenarios: Vec<&'static Scenario>,
    subjects: Vec<&'static Subject>,
}

impl Chosen {
    fn read(words: impl Iterator<Item = String>) -> Chosen {
        let words: Vec<String> = words.filter(|word| !word.starts_with('-')).collect();
        let (scenarios, words): (Vec<_>, Vec<_>) =
            words.into_iter().partition(|word| SCENARIOS.iter().any(|scenario| scenario.name == word));
        let is_chosen = |subject: &&Subject| {
            let means = |word: &String| {
                let is_name = SUBJECTS.iter().any(|subject| subject.name == word);
                if is_name { subject.name == word } else { subject.name.contains(word.as_str()) }
            };
            words.is_empty() || words.iter().any(means)
        };
        let named =
            |scenario: &&Scenario| scenarios.is_empty() || scenarios.iter().any(|name| name == scenario.name);
        Chosen {
            scenarios: SCENARIOS.iter().filter(named).collect(),
            subjects: SUBJECTS.iter().filter(is_chosen).collect(),
        }
    }
}

/// How many turns are counted.
fn turns() -> usize {
    std::env::var("TURNS").ok().and_then(|turns| turns.parse().ok()).unwrap_or(5)
}

async fn measure(chosen: Chosen) {
    for scenario in chosen.scenarios {
        println!("\n| {} | {} |", scenario.name, scenario.columns.join(" | "));
        println!("|---|{}", "--:|".repeat(scenario.columns.len()));
        let fits = |subject: &&&Subject| (scenario.fits)(subject);
        let subjects: Vec<&Subject> = chosen.subjects.iter().filter(fits).copied().collect();
        for family in subjects.chunk_by(|one, next| one.family == next.family) {
            let (mut running, mut servers) = (Vec::new(), Vec::new());
            for subject in family {
                match subject.start().await {
                    Ok((started, its)) => {
                        running.push((subject.name, Arc::new(started), Vec::new()));
                        servers.push(its);
                    }
                    Err(reason) => eprintln!("{} is left out: {reason}", subject.name),
                }
            }
            // The first turn makes connections and rows.
            for turn in 0..=if scenario.once { 0 } else { turns() } {
                for (_, subject, figures) in &mut running {
                    let found = (scenario.measure)(Arc::clone(subject)).await;
                    if turn > 0 || scenario.once {
                        figures.push(found);
                    }
                }
            }
            for (name, _, figures) in &running {
                let shown = scenario.columns.iter().enumerate().map(|(number, header)| {
                    let mut column: Vec<f64> = figures.iter().map(|turn: &Vec<f64>| turn[number]).collect();
                    column.sort_by(f64::total_cmp);
                    let place =
                        if header.starts_with("longest") { column.len() - 1 } else { column.len() / 2 };
                    format!("{:.2}", column[place])
                });
                println!("| {name} | {} |", shown.collect::<Vec<_>>().join(" | "));
            }
        }
    }
}

fn main() {
    quorlock_testkit::serve_if_asked();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        if children::work_if_asked().await {
            return;
        }
        measure(Chosen::read(std::env::args().skip(1))).await;
    });
}
