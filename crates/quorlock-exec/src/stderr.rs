//! What a child writes to its standard error is logged, within limits.

use std::io;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::{Moment, printable};
use quorlock::runtime::Clock;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, BufReader};
use tracing::warn;

/// How much of a line is logged, in bytes.
const LONGEST: usize = 500;
/// How many lines are logged in such a time.
const LINES: u32 = 50;
const IN: Duration = Duration::from_secs(10);
/// What is left out is still read, because the program would stop otherwise, but slowly: 6 MB a second.
const AT_ONCE: usize = 1 << 16;
const PAUSE: Duration = Duration::from_millis(10);

/// Logs what the program of `node` writes to its standard error.
pub(crate) async fn log(stderr: impl AsyncRead + Unpin, node: String, clock: Arc<dyn Clock>) {
    let mut stderr = BufReader::with_capacity(AT_ONCE, stderr);
    let mut limit = Limit { until: clock.now() + IN, logged: 0, left_out: 0 };
    while let Ok(Some(line)) = beginning(&mut stderr, &*clock, limit.is_reached()).await {
        if let Some(left_out) = limit.take(clock.now()) {
            let output = String::from_utf8_lossy(&line);
            warn!(%node, output = %printable(&output), left_out, "the node's program says");
        }
    }
    if limit.left_out > 0 {
        warn!(%node, output = "", left_out = limit.left_out, "the node's program says");
    }
}

/// How many lines were logged, and left out since the last of them.
struct Limit {
    until: Moment,
    logged: u32,
    left_out: u64,
}

impl Limit {
    fn is_reached(&self) -> bool {
        self.logged >= LINES
    }

    /// Takes a line. Returns how many were left out before it, if it is to be logged.
    fn take(&mut self, now: Moment) -> Option<u64> {
        if now >= self.until {
            (self.until, self.logged) = (now + IN, 0);
        }
        if self.is_reached() {
            self.left_out += 1;
            return None;
        }
        self.logged += 1;
        Some(take(&mut self.left_out))
    }
}

/// Reads a line, and returns its beginning; `None` at the end.
async fn beginning(
    from: &mut (impl AsyncBufRead + Unpin),
    clock: &dyn Clock,
    slowly: bool,
) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let found = from.fill_buf().await?;
        if found.is_empty() {
            return Ok((!line.is_empty()).then_some(line));
        }
        let end = found.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(found.len(), |end| end + 1);
        let room = LONGEST - line.len();
        line.extend(found.iter().take(end.unwrap_or(found.len()).min(room)));
        let is_empty = taken == found.len();
        from.consume(taken);
        if is_empty && (slowly || line.len() == LONGEST) {
            clock.sleep_until(clock.now() + PAUSE).await;
        }
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use quorlock::runtime::SystemClock;

    use super::*;

    #[tokio::test]
    async fn of_each_line_the_beginning_is_read_and_all_of_it_consumed() {
        let text = [&*"x".repeat(3 * AT_ONCE), "short", "", "last"].join("\n");
        let mut from = BufReader::with_capacity(AT_ONCE, text.as_bytes());
        let mut read = Vec::new();
        while let Some(line) = beginning(&mut from, &SystemClock::default(), false).await.unwrap() {
            read.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(read, [&*"x".repeat(LONGEST), "short", "", "last"]);
    }

    #[test]
    fn so_many_lines_are_logged_in_a_time_and_the_others_are_counted() {
        let mut limit = Limit { until: Moment::from_nanos(0) + IN, logged: 0, left_out: 0 };
        let now = Moment::from_nanos(1);
        let logged = (0..1_000).filter(|_| limit.take(now).is_some()).count();
        assert_eq!(logged, usize::try_from(LINES).unwrap());
        assert_eq!(limit.take(now + IN), Some(1_000 - u64::from(LINES)));
        assert_eq!(limit.take(now + IN), Some(0));
    }
}
