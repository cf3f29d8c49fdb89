//! The faults of a network, and their textual form.

use std::fmt;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use humantime::format_duration;
use quorlock::duration;
use quorlock_servers::{Proxy, Way};

/// A fault of the network.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub(super) enum Fault {
    /// Delay all traffic by this long; 0s ends it
    Delay {
        #[arg(value_parser = duration::parse)]
        delay: Duration,
        /// Maximum additional delay, random for each chunk
        #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "0s")]
        jitter: Duration,
        #[arg(long, value_enum, default_value_t)]
        way: Direction,
    },
    /// Hold all traffic back and keep connections open, like a partition
    Hold {
        #[arg(long, value_enum, default_value_t)]
        way: Direction,
    },
    /// End `hold` and deliver the traffic that was held back
    Release {
        #[arg(long, value_enum, default_value_t)]
        way: Direction,
    },
    /// Reset all open connections and discard held traffic; new connections are accepted
    Cut,
    /// Reset new connections immediately; open ones stay
    Refuse,
    /// End all faults
    Heal,
    /// Show the current state
    Show,
}

/// The direction of traffic that a fault affects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(super) enum Direction {
    /// Requests only
    ToServer,
    /// Answers only: the server executes requests, and clients get no answer
    ToClient,
    #[default]
    Both,
}

impl Fault {
    /// Parses the form that `Display` writes.
    ///
    /// # Errors
    ///
    /// A message in one line.
    pub(super) fn parse(line: &str) -> Result<Fault, String> {
        #[derive(Parser)]
        #[command(no_binary_name = true, disable_help_flag = true, disable_help_subcommand = true)]
        struct Line {
            #[command(subcommand)]
            fault: Fault,
        }

        match Line::try_parse_from(line.split_whitespace()) {
            Ok(Line { fault }) => Ok(fault),
            Err(error) => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default();
                Err(first.trim_start_matches("error: ").to_owned())
            }
        }
    }

    /// Applies the fault to `proxy`.
    pub(super) fn apply(&self, proxy: &Proxy) {
        match *self {
            Fault::Delay { delay, jitter, way } => {
                proxy.delay(way.into(), delay);
                proxy.jitter(way.into(), jitter);
            }
            Fault::Hold { way } => proxy.hold(way.into()),
            Fault::Release { way } => proxy.release(way.into()),
            Fault::Cut => proxy.cut(),
            Fault::Refuse => proxy.refuse(true),
            Fault::Heal => proxy.heal(),
            Fault::Show => {}
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            // Durations without spaces: a line is split at its spaces.
            Fault::Delay { delay, jitter, way } => write!(
                f,
                "delay {} --jitter {} --way {way}",
                format_duration(delay).to_string().replace(' ', ""),
                format_duration(jitter).to_string().replace(' ', "")
            ),
            Fault::Hold { way } => write!(f, "hold --way {way}"),
            Fault::Release { way } => write!(f, "release --way {way}"),
            Fault::Cut => f.write_str("cut"),
            Fault::Refuse => f.write_str("refuse"),
            Fault::Heal => f.write_str("heal"),
            Fault::Show => f.write_str("show"),
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::ToServer => "to-server",
            Direction::ToClient => "to-client",
            Direction::Both => "both",
        })
    }
}

impl From<Direction> for Way {
    fn from(direction: Direction) -> Way {
        match direction {
            Direction::ToServer => Way::ToServer,
            Direction::ToClient => Way::ToClient,
            Direction::Both => Way::Both,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_read_back_from_its_line() {
        let mut faults = vec![Fault::Cut, Fault::Refuse, Fault::Heal, Fault::Show];
        for &way in Direction::value_variants() {
            let (delay, jitter) = (Duration::new(61, 50_000_001), Duration::ZERO);
            faults.extend([Fault::Delay { delay, jitter, way }, Fault::Hold { way }, Fault::Release { way }]);
        }
        for fault in faults {
            assert_eq!(Fault::parse(&fault.to_string()), Ok(fault));
        }
    }

    #[test]
    fn defaults_are_both_directions_and_no_jitter() {
        let delay =
            Fault::Delay { delay: Duration::from_millis(50), jitter: Duration::ZERO, way: Direction::Both };
        assert_eq!(Fault::parse("delay 50ms"), Ok(delay));
        assert_eq!(Fault::parse(" hold "), Ok(Fault::Hold { way: Direction::Both }));
    }

    #[test]
    fn an_invalid_line_is_refused_in_one_line() {
        for line in ["", "sing", "delay", "delay soon", "hold --way up", "cut now", "--help"] {
            let refused = Fault::parse(line).unwrap_err();
            assert!(!refused.is_empty() && !refused.contains('\n'), "{line:?} gave {refused:?}");
        }
    }
}
