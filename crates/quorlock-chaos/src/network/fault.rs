//! What can be done to a network, and how that is written.

use std::fmt;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use humantime::format_duration;
use quorlock::duration;
use quorlock_testkit::{Proxy, Way};

/// What to do to the network.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub(super) enum Fault {
    /// Everything takes this much longer from now on; 0s ends it
    Delay {
        #[arg(value_parser = duration::parse)]
        delay: Duration,
        /// Up to this much longer still, by a new random time for each piece
        #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "0s")]
        jitter: Duration,
        #[arg(long, value_enum, default_value_t)]
        way: Direction,
    },
    /// Nothing passes any more, and no connection ends: a partition. What comes is kept
    Hold {
        #[arg(long, value_enum, default_value_t)]
        way: Direction,
    },
    /// Ends `hold`: what was kept arrives now
    LetGo {
        #[arg(long, value_enum, default_value_t)]
        way: Direction,
    },
    /// Resets all open connections. What was kept is lost; new connections are let in
    Cut,
    /// New connections are reset at once; open ones stay
    Refuse,
    /// Ends all of this: as if there were no proxy
    Heal,
    /// Changes nothing, and says how things stand
    Show,
}

/// Which way a fault works.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(super) enum Direction {
    /// Requests only
    ToServer,
    /// Answers only: the server acts, and nobody hears of it
    ToClient,
    #[default]
    Both,
}

impl Fault {
    /// Reads the form that `Display` writes.
    ///
    /// # Errors
    ///
    /// What is wrong, in one line.
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

    /// Does it.
    pub(super) fn apply(&self, proxy: &Proxy) {
        match *self {
            Fault::Delay { delay, jitter, way } => {
                proxy.delay(way.into(), delay);
                proxy.jitter(way.into(), jitter);
            }
            Fault::Hold { way } => proxy.hold(way.into()),
            Fault::LetGo { way } => proxy.release(way.into()),
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
            // In one word each, as a line is split at its spaces.
            Fault::Delay { delay, jitter, way } => write!(
                f,
                "delay {} --jitter {} --way {way}",
                format_duration(delay).to_string().replace(' ', ""),
                format_duration(jitter).to_string().replace(' ', "")
            ),
            Fault::Hold { way } => write!(f, "hold --way {way}"),
            Fault::LetGo { way } => write!(f, "let-go --way {way}"),
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
            faults.extend([Fault::Delay { delay, jitter, way }, Fault::Hold { way }, Fault::LetGo { way }]);
        }
        for fault in faults {
            assert_eq!(Fault::parse(&fault.to_string()), Ok(fault));
        }
    }

    #[test]
    fn what_is_left_out_means_both_ways_and_no_jitter() {
        let delay =
            Fault::Delay { delay: Duration::from_millis(50), jitter: Duration::ZERO, way: Direction::Both };
        assert_eq!(Fault::parse("delay 50ms"), Ok(delay));
        assert_eq!(Fault::parse(" hold "), Ok(Fault::Hold { way: Direction::Both }));
    }

    #[test]
    fn a_line_that_makes_no_sense_is_refused_in_one_line() {
        for line in ["", "sing", "delay", "delay soon", "hold --way up", "cut now", "--help"] {
            let refused = Fault::parse(line).unwrap_err();
            assert!(!refused.is_empty() && !refused.contains('\n'), "{line:?} gave {refused:?}");
        }
    }
}
