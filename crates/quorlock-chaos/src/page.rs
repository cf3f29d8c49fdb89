//! The HTML page: what the terminal shows of each outcome, and a picture of its timeline. It is static: no script, and
//! nothing that is loaded.

use std::fmt::Write as _;

use quorlock::protocol::printable;

use crate::outcome::Outcome;
use crate::summary;

mod timeline;

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>quorlock-chaos</title>
<style>
body { margin: 2rem auto; max-width: 76rem; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; background: #fcfcfa; color: #1c1e21 }
pre { overflow-x: auto; font-size: .8125rem; line-height: 1.45 }
.failed { color: #b5122b }
section { margin-top: 3rem; border-top: 2px solid; break-before: page }
svg { width: 100%; height: auto }
</style>
";

/// Returns the page for these outcomes, in their order.
pub(crate) fn page(outcomes: &[Outcome]) -> String {
    let mut page = HEAD.to_owned();
    let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
    let (class, headline) = match failed {
        _ if outcomes.iter().all(|outcome| outcome.verdicts.is_empty()) => {
            ("failed", "Nothing was expected".into())
        }
        0 => ("held", "All expectations held".to_owned()),
        _ => ("failed", format!("{failed} of {} scenarios failed", outcomes.len())),
    };
    let overview = escaped(&summary::overview(outcomes, &[]));
    let _ = writeln!(page, "<h1 class=\"{class}\">{headline}</h1>\n<pre>{overview}</pre>");
    for outcome in outcomes {
        let class = if outcome.passed { "held" } else { "failed" };
        let (name, text) = (escaped(&outcome.scenario), escaped(&summary::outcome(outcome)));
        let _ = writeln!(page, "<section>\n<h2 class=\"{class}\">{name}</h2>");
        let _ = writeln!(page, "{}\n<pre>{text}</pre>\n</section>", timeline::picture(outcome));
    }
    page
}

/// The text as it may stand between tags and in attributes, line by line.
fn escaped(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| printable(line).to_string()).collect();
    lines.join("\n").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
