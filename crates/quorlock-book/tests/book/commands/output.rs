//! Compares the output of a command with the page.

use std::fs;
use std::sync::LazyLock;

use quorlock_testkit::Server;
use regex::{Captures, Regex};

/// Patterns of text that differs in each run, and their replacements.
static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"\x1b\[[0-9;]*m", ""),
        (r"(redis|valkey)-server \d\S*( \(\S+\))?", "SERVER"),
        (r"\b[0-9a-f]{32}\b|\b[0-9a-f]{8}\b", "TOKEN"),
        (r"(\b\d+(\.\d+)? ?(h|m|min|s|ms|us|µs|ns)\b ?)+", "TIME "),
        (r"\d+(\.\d+)?", "N"),
        (r"[ \t]+", " "),
        (r"(?m)^ | $", ""),
    ]
    .map(|(pattern, mask)| (Regex::new(pattern).expect("a pattern"), mask))
    .into()
});

/// The name of the machine in the pages.
const HOST: &str = "db-7";

static ADDRESS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"10\.(\d)\.0\.1(:\d+)?").expect("a pattern"));

static LOOPBACK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"127\.0\.0\.1:(\d+)").expect("a pattern"));

/// The host names of the nodes in the containers.
static PROXY: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"proxy-(\d):6379").expect("a pattern"));

/// Replaces the nodes of the page by servers of the test.
pub(crate) fn with_servers(text: &str, servers: &[Server]) -> String {
    let real = |address: &Captures<'_>| {
        let number: usize = address[1].parse().unwrap();
        format!("127.0.0.1:{}", servers[number].port())
    };
    ADDRESS.replace_all(text, real).into_owned()
}

/// Replaces the servers of the test by the nodes of the page, and masks text that differs in each run.
fn masked(text: &str, servers: &[Server]) -> String {
    let mut text = text.to_owned();
    // Match the whole port: the port of another server may begin with the same digits.
    let real = |address: &Captures<'_>| {
        let known = servers.iter().position(|server| server.port().to_string() == address[1]);
        known.map_or_else(|| address[0].to_owned(), |number| format!("10.{number}.0.1:6379"))
    };
    text = LOOPBACK.replace_all(&text, real).into_owned();
    if let Ok(host) = fs::read_to_string("/proc/sys/kernel/hostname") {
        text = text.replace(host.trim(), HOST);
    }
    let first_is_one = |proxy: &Captures<'_>| {
        proxy[1]
            .parse()
            .map_or_else(|_| proxy[0].to_owned(), |number: usize| format!("10.{}.0.1", number - 1))
    };
    let text = PROXY.replace_all(&text, first_is_one);
    let text = ADDRESS.replace_all(&text, |node: &Captures<'_>| format!("NODE-{}", &node[1])).into_owned();
    MASKS.iter().fold(text, |text, (pattern, mask)| pattern.replace_all(&text, *mask).into_owned())
}

/// Compares `printed` with what the page `shows`, where `…` matches anything within a line, or any lines.
///
/// A line with nothing but an exit code is compared exactly.
pub(crate) fn agrees(shows: &str, printed: &str, servers: &[Server]) -> Result<(), String> {
    if let Ok(code) = shows.trim().parse::<u8>() {
        let differs = || format!("the page shows {code}, and the command printed {}", printed.trim());
        return if printed.trim().parse() == Ok(code) { Ok(()) } else { Err(differs()) };
    }
    let (shows, printed) = (masked(shows, servers), masked(printed, servers));
    let lines =
        |text: &str| text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let pattern: Vec<String> = lines(&shows)
        .iter()
        .map(|line| {
            if line == "…" {
                "(.*\n)*".to_owned()
            } else {
                format!("{}\n", regex::escape(line).replace('…', ".*"))
            }
        })
        .collect();
    let pattern = Regex::new(&format!("^{}$", pattern.concat())).unwrap();
    let text = lines(&printed).join("\n") + "\n";
    if pattern.is_match(&text) {
        Ok(())
    } else {
        Err(format!("the page shows\n{shows}\nand the command printed\n{text}"))
    }
}
