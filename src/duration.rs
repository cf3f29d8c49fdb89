//! Durations as this library shows them, and as people write them.
//!
//! One notation for messages, command lines and configuration files.

use std::time::Duration;

#[doc(no_inline)]
pub use quorlock_protocol::duration::format;

/// Parses `30s`, `5min`, `1h 30min` or `1.5s`; or a plain number of seconds, as `timeout` and `flock` take
/// it.
///
/// # Errors
///
/// [`ParseDurationError`] says what cannot be read and how to write it.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(quorlock::duration::parse("1.5"), Ok(Duration::from_millis(1500)));
/// assert_eq!(quorlock::duration::parse("2min"), Ok(Duration::from_secs(120)));
/// ```
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    let text = text.trim();
    let seconds = text.strip_suffix('s').unwrap_or(text);
    if seconds.starts_with(|first: char| first.is_ascii_digit())
        && let Ok(seconds) = seconds.parse::<f64>()
    {
        return Duration::try_from_secs_f64(seconds)
            .map_err(|_| ParseDurationError("that is too long".to_owned()));
    }
    if text.contains('M') {
        let cure = "`M` may be months or minutes; write `min` or `months`";
        return Err(ParseDurationError(cure.to_owned()));
    }
    if is_too_long(text) {
        return Err(ParseDurationError("that is too long".to_owned()));
    }
    if text.starts_with(|first: char| first.is_ascii_alphabetic()) {
        let one = format!("1{text}");
        let hint = if humantime::parse_duration(&one).is_ok() {
            format!(": for one, write `{one}`")
        } else {
            String::new()
        };
        let cure = "write a duration such as `10s`, `5min` or `1day`, or a number of seconds";
        return Err(ParseDurationError(format!("it begins without a number{hint}; {cure}")));
    }
    humantime::parse_duration(text).map_err(|error| {
        let cure = "write a duration such as `10s` or `5min`, or a number of seconds";
        ParseDurationError(format!("{error}; {cure}"))
    })
}

/// Whether the parts of a text, such as `1h 30min`, have a sum that no [`Duration`] can be. At the very limit `humantime`
/// panics.
fn is_too_long(text: &str) -> bool {
    let mut sum = Duration::ZERO;
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    // Where a number begins.
    let begins = text
        .char_indices()
        .zip(text.chars().skip(1))
        .filter(|((_, before), c)| !is_part(*before) && is_part(*c));
    let ends = begins.map(|((at, before), _)| at + before.len_utf8()).chain([text.len()]);
    let mut begin = 0;
    for end in ends {
        let part = text.get(begin..end).unwrap_or_default().trim();
        // The first that cannot be read is the error.
        let Ok(part) = humantime::parse_duration(part) else { return false };
        let Some(longer) = sum.checked_add(part) else { return true };
        (sum, begin) = (longer, end);
    }
    false
}

/// A text that is not a duration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ParseDurationError(String);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_no_duration_can_hold_is_refused() {
        let most = u64::MAX;
        for text in
            [format!("{most}s0ms1000ms"), format!("{most}s 1s"), format!("{most}0s 1ms"), "1e40".to_owned()]
        {
            assert!(parse(&text).unwrap_err().to_string().contains("too l"), "{text}");
        }
        assert_eq!(parse(&format!("{most}s 999ms")), Ok(Duration::new(most, 999_000_000)));
    }

    #[test]
    fn plain_seconds_are_a_duration() {
        for (text, millis) in [
            ("10", 10_000),
            ("0", 0),
            ("1.5", 1500),
            ("1.5s", 1500),
            ("500ms", 500),
            ("2min", 120_000),
            ("1h 30s", 3_630_000),
            (" 3 ", 3000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "soon", "-1", "inf", "1e400", "s", ".", "nan"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("too long") || error.contains("number of seconds"), "{text}: {error}");
        }
    }

    #[test]
    fn a_unit_without_a_number_is_answered_by_one_of_it() {
        for (text, one) in [("day", "`1day`"), ("hour", "`1hour`"), ("min", "`1min`"), (" h ", "`1h`")] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(one), "{text}: {error}");
        }
        for text in ["5M", "1h 5M", "M"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("write `min` or `months`"), "{text}: {error}");
        }
        assert!(!parse("daily").unwrap_err().to_string().contains("1daily"), "that is no unit");
    }

    #[test]
    fn a_length_is_shown_in_one_unit_and_never_too_long() {
        for (nanos, shown) in [
            (0, "0s"),
            (999, "0s"),
            (323_999, "323µs"),
            (1_099_999, "1ms"),
            (1_109_000, "1.1ms"),
            (160_900_000, "160ms"),
            (1_500_000_000, "1.5s"),
            (29_999_999_999, "29.9s"),
            (30_000_000_000, "30s"),
            (90_900_000_000, "1m 30s"),
            (3_600_000_000_000, "1h"),
        ] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(format(duration), shown);
            assert!(parse(shown.replace('µ', "u").as_str()).unwrap() <= duration, "{shown} is too long");
        }
        assert!(format(Duration::MAX).contains("years"));
    }
}
