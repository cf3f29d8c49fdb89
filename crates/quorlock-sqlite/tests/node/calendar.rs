//! Fencing tokens of a host whose calendar is set.

use std::path::Path;
use std::time::Duration;

use quorlock::Coordinator;
use quorlock::protocol::{FencingToken, Moment};
use quorlock::runtime::{Clock, Sleep, SystemClock};
use quorlock_sqlite::SqliteKind;

use crate::node::{booted, new_file};

/// A calendar that is ahead, over the clock of the system.
#[derive(Debug)]
struct Calendar {
    clock: SystemClock,
    ahead: Duration,
}

impl Clock for Calendar {
    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        self.clock.sleep_until(moment)
    }

    fn wall(&self) -> Duration {
        self.clock.wall() + self.ahead
    }
}

/// Holds a lock under a calendar that is ahead by this. Returns its fencing token, or why there is none.
async fn token_ahead(path: &Path, ahead: Duration) -> Result<FencingToken, String> {
    let builder = Coordinator::builder()
        .kind(SqliteKind::new())
        .clock(Calendar { clock: SystemClock::default(), ahead });
    let coordinator = builder.nodes([format!("sqlite://{}", path.display())]).build().unwrap();
    let lease = coordinator.lock("a").acquire().await.map_err(|error| format!("{error:#}"))?;
    let token = lease.fencing_token();
    lease.release().await.map_err(|error| format!("{error:#}"))?;
    Ok(token)
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The machine's clock was 20 years ahead for one run: its tokens are larger than any clock explains, and the next ones are
/// larger still.
#[tokio::test]
async fn f11_a_file_used_while_the_calendar_was_ahead_goes_on_when_it_is_right_again() {
    let (_directory, path) = new_file();
    let mut last = token_ahead(&path, 20 * YEAR).await.unwrap();
    for ahead in [Duration::ZERO, Duration::ZERO, YEAR, Duration::ZERO] {
        let next = token_ahead(&path, ahead).await.unwrap();
        assert!(next > last, "{next} after {last}");
        last = next;
    }
    // The next boot draws from above all numbers of the one before.
    let node = booted(&path, "next");
    let coordinator = Coordinator::builder().custom_nodes([node]).build().unwrap();
    for name in ["a", "b"] {
        let lease = coordinator.lock(name).acquire().await.unwrap();
        assert!(lease.fencing_token() > last, "{name}");
        lease.release().await.unwrap();
    }
}
