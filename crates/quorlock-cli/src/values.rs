//! Values as they are written in options, variables and files.

use std::str::FromStr;

use clap::ValueEnum;
use quorlock::Wait;

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
        quorlock_config::wait(text).map(WaitArg)
    }
}
