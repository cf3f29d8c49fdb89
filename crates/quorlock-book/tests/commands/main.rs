//! Every command line of README, book and the pages beside it is carried out, on real servers, and every file of
//! settings is read by the program that it is for.
//!
//! A page is one session, in a folder of its own: what its first block exports or writes, its last
//! one finds. The nodes of the pages, `10.0.0.1`, `10.1.0.1` and so on, are servers that the test
//! has started; they need no restart guard. `sh` blocks have to succeed. In `console` blocks lines
//! behind `$ ` are commands, and what follows has to be what they print, but for numbers, times and
//! names that are different each time; a command may fail only if `echo $?` comes next.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod exceptions;
mod named;
mod output;
mod programs;
mod script;
mod session;
mod settings;
mod spans;

use std::io::Write as _;

use std::time::Duration;

use quorlock_book::page::{self, Page, beside};
use quorlock_testkit::{Kind, Server, Servers, eventually};

use crate::exceptions::EXCEPTIONS;
use crate::script::{Step, steps};

/// The longest TTL of the pages: older servers are no longer found to have restarted.
const OLD: Duration = Duration::from_secs(31);

#[tokio::test]
async fn every_command_of_the_pages_runs() {
    let Some(servers) = servers().await else { return };
    let sessions: Vec<(Page, Vec<Step>)> =
        pages().unwrap().into_iter().map(|page| (page.clone(), steps(&page))).collect();
    // Those that have servers examined come last, when these are not new any more.
    let (last, first): (Vec<_>, Vec<_>) = sessions.iter().partition(|(_, steps)| steps.iter().any(examines));
    let mut count = 0;
    for (page, steps) in first {
        count += session::run(page, steps, &servers).await;
    }
    eventually("old servers", OLD * 2, async || age(&servers[0]).await >= OLD).await.unwrap();
    for (page, steps) in last {
        count += session::run(page, steps, &servers).await;
    }
    assert!(count > 60, "{count} commands were run");
}

/// All that tell their readers what to type.
fn pages() -> std::io::Result<Vec<Page>> {
    Ok([page::pages()?, beside()?].concat())
}

/// Five masters as the pages say that they should be.
async fn servers() -> Option<Servers> {
    if !matches!(Kind::choose().unwrap(), Kind::Program { .. }) {
        // Not by `eprintln`, which the harness keeps to itself while a test passes.
        let word = "skipped: no valkey-server or redis-server is here, and outputs are those of real ones";
        drop(writeln!(std::io::stderr(), "{word}"));
        return None;
    }
    Some(Servers::setup().durable().options(&["--maxmemory-policy", "noeviction"]).start(5).await.unwrap())
}

async fn age(server: &Server) -> Duration {
    let info = server.command(&["INFO", "server"]).await.unwrap().to_string();
    let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")).unwrap();
    Duration::from_secs(uptime.trim().parse().unwrap())
}

fn examines(step: &Step) -> bool {
    matches!(step, Step::Command { text, .. } if text.contains("quorlock doctor"))
}

#[test]
fn no_exception_is_out_of_date() {
    let pages = pages().unwrap();
    for exception in EXCEPTIONS {
        let page = pages.iter().find(|page| page.path.to_str() == Some(exception.page));
        let page = page.unwrap_or_else(|| panic!("there is no page {}", exception.page));
        let met = script::all_steps(page).iter().any(|step| exception.is_of(step));
        assert!(met, "{} does not say `{}` any more", exception.page, exception.begins);
    }
}
