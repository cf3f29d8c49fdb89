//! Durations as messages show them.

use std::time::Duration;

/// Formats a duration for people, in one unit: `323µs`, `1.2ms`, `29.9s`; from a minute on in whole
/// seconds, `1m 30s`.
///
/// Truncates and does not round: a lock of which `29.9s` are left has at least these.
/// `quorlock::duration::parse` reads it again, except for `µs`, which it calls `us`.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(quorlock_protocol::duration::format(Duration::from_millis(29_990)), "29.9s");
/// ```
#[must_use]
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let unit = match nanos {
        0..1_000 => return "0s".to_owned(),
        1_000..1_000_000 => 1_000,
        1_000_000..10_000_000 => 100_000,
        10_000_000..1_000_000_000 => 1_000_000,
        1_000_000_000..60_000_000_000 => 100_000_000,
        _ => return humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string(),
    };
    // Less than a minute.
    format!("{:?}", Duration::from_nanos(u64::try_from(nanos / unit * unit).unwrap_or(u64::MAX)))
}
