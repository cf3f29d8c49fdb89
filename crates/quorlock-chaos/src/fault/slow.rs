//! A network with a higher latency and jitter in front of a node.

use std::io;
use std::time::Duration;

use futures::future::BoxFuture;

use super::{Fault, FaultRuleText, Hit, Made};
use crate::environment::{Environment, Memory};
use crate::span::Span;

#[derive(Debug)]
pub(super) struct Slow {
    delay: Span,
    jitter: Duration,
}

impl Slow {
    pub(super) fn make(text: &FaultRuleText) -> Made {
        let delay = text.delay.ok_or("set `delay`: the additional latency in each direction")?;
        Ok(Box::new(Slow { delay, jitter: text.jitter }))
    }

    fn delay(&self, random: u64) -> Duration {
        let millis = self.delay.least.as_millis()..=self.delay.most.as_millis();
        let width = millis.end() - millis.start() + 1;
        let millis = millis.start() + u128::from(random) % width;
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }
}

impl Fault for Slow {
    fn describe(&self, random: u64, _servers: Memory) -> String {
        let (delay, jitter) = (self.delay(random), self.jitter);
        if jitter.is_zero() {
            format!("{delay:?} slower in each direction")
        } else {
            format!("{delay:?} slower in each direction, with a jitter of up to {jitter:?}")
        }
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        environment.proxies.slow(hit.target, self.delay(hit.random), self.jitter);
        Box::pin(async { Ok(()) })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        environment.proxies.slow(hit.target, Duration::ZERO, Duration::ZERO);
        Box::pin(async { Ok(()) })
    }
}
