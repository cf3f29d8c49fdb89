//! A node's clock jumps, or runs at another rate. Servers expire keys by this clock.

use std::io;

use futures::future::BoxFuture;

use super::{Aftermath, Fault, FaultRuleText, Hit, Made, Need};
use crate::environment::{Environment, Memory};

/// The clock jumps, and jumps back when the fault heals.
#[derive(Debug)]
pub(super) struct Step {
    seconds: f64,
}

impl Step {
    pub(super) fn make(text: &FaultRuleText) -> Made {
        let seconds = text.seconds.ok_or("set `seconds`: how far the clock jumps, backwards if negative")?;
        Ok(Box::new(Step { seconds }))
    }
}

impl Fault for Step {
    fn describe(&self, _random: u64, _servers: Memory) -> String {
        format!("clock {:+} s", self.seconds)
    }

    fn aftermath(&self, _random: u64) -> Aftermath {
        Aftermath::Quarantine
    }

    fn needs(&self) -> Need {
        Need::BentClock
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.step_clock(hit.target, self.seconds) })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.step_clock(hit.target, -self.seconds) })
    }
}

/// The clock runs faster or slower, and at the normal rate again when the fault heals, without a jump.
#[derive(Debug)]
pub(super) struct Rate {
    rate: f64,
}

impl Rate {
    pub(super) fn make(text: &FaultRuleText) -> Made {
        let rate = text.rate.ok_or("set `rate`: how many seconds the clock counts per second")?;
        if rate > 0.0 {
            Ok(Box::new(Rate { rate }))
        } else {
            Err(format!("`rate` must be positive, not {rate}"))
        }
    }
}

impl Fault for Rate {
    fn describe(&self, _random: u64, _servers: Memory) -> String {
        format!("clock at {} times the rate", self.rate)
    }

    fn aftermath(&self, _random: u64) -> Aftermath {
        Aftermath::Quarantine
    }

    fn needs(&self) -> Need {
        Need::BentClock
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.clock_rate(hit.target, self.rate) })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.clock_rate(hit.target, 1.0) })
    }
}
