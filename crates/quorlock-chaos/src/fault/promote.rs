//! A failover: the asynchronous standby of a node takes over role and address of its primary, without
//! the grants that it has not received.

use std::io;
use std::time::Duration;

use futures::future::BoxFuture;

use super::{Aftermath, Fault, FaultRuleText, Hit, Need};
use crate::environment::{Environment, Memory, Primary};
use crate::span::Span;

#[derive(Debug)]
pub(super) struct Promote {
    /// How long replication is stopped before the promotion.
    lag: Span,
}

impl Promote {
    pub(super) fn new(text: &FaultRuleText) -> Promote {
        Promote { lag: text.delay.unwrap_or_default() }
    }

    fn lag(&self, random: u64) -> Duration {
        let width =
            u64::try_from(self.lag.most.saturating_sub(self.lag.least).as_millis()).unwrap_or_default();
        self.lag.least + Duration::from_millis(random % (width + 1))
    }

    fn primary(random: u64) -> Primary {
        if random.is_multiple_of(2) { Primary::Killed } else { Primary::CutOff }
    }
}

impl Fault for Promote {
    fn describe(&self, random: u64, _servers: Memory) -> String {
        let primary = match Promote::primary(random) {
            Primary::Killed => "killed",
            Primary::CutOff => "cut off",
        };
        format!("{primary}, standby promoted with a lag of {:?}", self.lag(random))
    }

    fn aftermath(&self, _random: u64) -> Aftermath {
        Aftermath::Quarantine
    }

    fn needs(&self) -> Need {
        Need::Standby
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        let (lag, primary) = (self.lag(hit.random), Promote::primary(hit.random));
        Box::pin(async move { environment.promote(hit.target, lag, primary).await })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        environment.masters.follow(hit.target)
    }
}
