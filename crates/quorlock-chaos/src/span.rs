//! Durations in scenarios: `250ms`, or a range such as `100ms..2s`.

use std::time::Duration;

use quorlock_servers::SeededRng;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A range of durations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

impl Span {
    pub(crate) fn throw(self, rng: &SeededRng) -> Duration {
        rng.between(self.least, self.most)
    }

    /// Returns the duration that a random number decides on, in whole milliseconds from the least.
    pub(crate) fn chosen(self, random: u64) -> Duration {
        let width = u64::try_from(self.most.saturating_sub(self.least).as_millis()).unwrap_or_default();
        self.least + Duration::from_millis(random % (width + 1))
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let parse =
            |text: &str| quorlock::duration::parse(text).map_err(|error| format!("`{text}`: {error}"));
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let span = Span { least: parse(least)?, most: parse(most)? };
        if span.least > span.most {
            Err(format!("`{text}`: the end of the range is before its start"))
        } else {
            Ok(span)
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Deserializes a single duration.
pub(crate) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    quorlock::duration::parse(&String::deserialize(from)?).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_one_time_or_two() {
        let (short, long) = (Duration::from_millis(250), Duration::from_secs(2));
        assert_eq!("250ms".parse(), Ok(Span { least: short, most: short }));
        assert_eq!("0.25..2".parse(), Ok(Span { least: short, most: long }), "plain seconds");
        assert_eq!("250ms..2s".parse(), Ok(Span { least: short, most: long }));
        assert!("2s..250ms".parse::<Span>().unwrap_err().contains("before its start"));
        assert!("soon".parse::<Span>().is_err());
    }
}
