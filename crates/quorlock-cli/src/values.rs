//! Values as they are written in options, variables and files.

use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use quorlock::{Wait, duration};

/// A setting that is on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// How long to wait, as written in options and files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitArg(pub(crate) Wait);

impl FromStr for WaitArg {
    type Err = String;

    fn from_str(text: &str) -> Result<WaitArg, String> {
        if text == "forever" {
            return Ok(WaitArg(Wait::Forever));
        }
        match duration::parse(text) {
            Ok(Duration::ZERO) => Ok(WaitArg(Wait::Never)),
            Ok(longest) => Ok(WaitArg(Wait::UpTo(longest))),
            Err(error) => Err(format!("{error}, or `forever`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_of_zero_tries_once() {
        assert_eq!("0s".parse(), Ok(WaitArg(Wait::Never)));
        assert_eq!("forever".parse(), Ok(WaitArg(Wait::Forever)));
        assert_eq!("90".parse(), Ok(WaitArg(Wait::UpTo(Duration::from_secs(90)))));
        assert_eq!("90s".parse(), Ok(WaitArg(Wait::UpTo(Duration::from_secs(90)))));
        assert!("soon".parse::<WaitArg>().unwrap_err().contains("forever"), "the cure is named");
    }
}
