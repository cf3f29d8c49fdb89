//! The examples that use the program.

use std::path::Path;

use crate::support::Quorlock;

#[tokio::test]
async fn of_three_machines_one_runs_the_job() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cron_singleton.sh");
    // Among servers that it lends itself: the script asks no others, and needs no PATH.
    let ended = Quorlock::new(["demo", "--", script.to_str().unwrap()]).end().await.expect(0);
    assert_eq!(ended.stdout.matches("runs the report, fencing token").count(), 1, "{ended:?}");
    assert_eq!(ended.stdout.matches("`cron/report` is held by").count(), 2, "{ended:?}");
    assert!(ended.stdout.ends_with("it ran once\n") && ended.stderr.is_empty(), "{ended:?}");
}
