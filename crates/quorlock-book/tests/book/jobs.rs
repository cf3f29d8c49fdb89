//! Runs the files of `docs/jobs/` as cron, systemd, a container engine, a CI runner and so on would, on real
//! servers, and checks them against the schemas of their programs.
//!
//! The packages with the schemas are those that `scripts/check` installs into `.tools/jobs`. Without them the tests
//! that need them are skipped.

mod ci;
mod crontab;
mod docker;
mod hosts;
mod kubernetes;
mod systemd;
mod tools;

use quorlock_book::block::blocks;
use quorlock_book::page::page;

/// Returns the blocks of this language on a page of `docs/jobs/`.
fn shown(name: &str, language: &str) -> Vec<String> {
    let page = page(format!("docs/jobs/{name}.md")).unwrap();
    let shown = blocks(&page.text).into_iter().filter(|block| block.language == language);
    shown.map(|block| block.text).collect()
}
