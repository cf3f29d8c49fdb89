//! Checks the nodes again and again while something is in the way.

use std::time::Duration;

use quorlock::{Coordinator, Wait, doctor::Report as Examination};

use crate::report::{Report, notice, progress};
use crate::runtime::{now, sleep};

/// Checks the nodes, again every second while something is `in_the_way`, for as long as `wait` says, and returns the
/// last examination. What it waits for is shown on a terminal, and told once elsewhere.
pub(crate) async fn examine(
    coordinator: &Coordinator,
    wait: Wait,
    report: Report,
    in_the_way: impl Fn(&Examination) -> Option<String>,
) -> Examination {
    let began = now();
    let mut reported = false;
    loop {
        let examination = coordinator.doctor().await;
        let goes_on = match wait {
            Wait::Never => false,
            Wait::UpTo(longest) => now().since(began) < longest,
            Wait::Forever | _ => true,
        };
        let Some(why) = in_the_way(&examination).filter(|_| goes_on) else {
            if reported && report.may_show_progress() {
                progress("");
            }
            return examination;
        };
        if report.may_show_progress() {
            progress(&format!("waiting: {why}"));
        } else if !reported && report != Report::Errors {
            notice(&format!("waiting: {why}"));
        }
        reported = true;
        sleep(AGAIN_AFTER).await;
    }
}

const AGAIN_AFTER: Duration = Duration::from_secs(1);
