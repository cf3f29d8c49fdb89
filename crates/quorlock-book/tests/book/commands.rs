//! Runs every command line of the README, the book and some other pages on real servers, and reads every
//! configuration file with its program.
//!
//! Each page is one shell session in a folder of its own, so that later blocks see the variables and files of
//! earlier ones. The nodes of the pages, `10.0.0.1`, `10.1.0.1` and so on, are replaced by servers of the test,
//! without the restart guard. `sh` blocks must succeed. In `console` blocks, lines that begin with `$ ` are
//! commands, and the following lines must be their output, except for numbers, times and names that differ
//! in each run. A command may fail only if `echo $?` is next.

mod exceptions;
mod named;
mod output;
mod programs;
mod script;
mod session;
mod settings;
mod spans;

use std::time::Duration;

use futures::future::{join, join_all};
use quorlock_book::block::blocks;
use quorlock_book::page::{self, Page, beside};
use quorlock_testkit::{Kind, Server, Servers, eventually, patience};
use regex::Regex;

use self::exceptions::EXCEPTIONS;
use self::script::{Step, steps};

/// The longest TTL of the pages: `doctor` does not report older servers as restarted.
const OLD: Duration = Duration::from_secs(31);

#[tokio::test]
async fn every_command_of_the_pages_runs() {
    let Some(servers) = servers().await else { return };
    let sessions: Vec<(Page, Vec<Step>)> =
        pages().unwrap().into_iter().map(|page| (page.clone(), steps(&page))).collect();
    let (of_doctor, others): (Vec<_>, Vec<_>) =
        sessions.iter().partition(|(_, steps)| steps.iter().any(examines));
    // Side by side, because they mostly wait. They lock different resources or have servers of their own.
    let others = join_all(others.iter().map(|(page, steps)| session::run(page, steps, &servers)));
    // `quorlock doctor` reports young servers, and the load of `quorlock bench`.
    let of_doctor = async {
        eventually("old servers", OLD + patience(), async || age(&servers[0]).await >= OLD).await.unwrap();
        let mut count = 0;
        for (page, steps) in of_doctor {
            count += session::run(page, steps, &servers).await;
        }
        count
    };
    let (others, of_doctor) = join(others, of_doctor).await;
    let count = others.iter().sum::<usize>() + of_doctor;
    assert!(count > 60, "{count} commands were run");
}

/// Returns all pages with commands.
fn pages() -> std::io::Result<Vec<Page>> {
    Ok([page::pages()?, beside()?].concat())
}

/// Starts five masters configured as the pages recommend.
async fn servers() -> Option<Servers> {
    if !matches!(Kind::choose().unwrap(), Kind::Program { .. }) {
        crate::skip("no valkey-server or redis-server installed, and the outputs are those of real servers");
        return None;
    }
    // The addresses of the pages have no passwords.
    let setup = Servers::setup().without_password().durable();
    Some(setup.options(&["--maxmemory-policy", "noeviction"]).start(5).await.unwrap())
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
        let reached = script::all_steps(page).iter().any(|step| exception.is_of(step));
        assert!(reached, "{} has no command `{}` any more", exception.page, exception.begins);
    }
}

/// What a program prints belongs into a `console` block, where it is compared with the program.
#[test]
fn no_text_block_shows_output() {
    let output = Regex::new(r"(?m)^\$ |^quorlock: |^ (node|lock) +(state|holder) |\(exit \d+\)").unwrap();
    for page in pages().unwrap() {
        for block in blocks(&page.text).into_iter().filter(|block| ["text", ""].contains(&&*block.language)) {
            let place = format!("{}:{}", page.path.display(), block.line);
            assert!(!output.is_match(&block.text), "{place} shows output that no test compares");
        }
    }
}
