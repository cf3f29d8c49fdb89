//! The faults of nodes, network and workers. A new kind of fault is an entry of [`KINDS`].

use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::environment::{Environment, Memory};
use crate::masters::Need;
use crate::span::{Span, duration};

mod kinds;

use self::kinds::KINDS;

/// Makes a fault from its settings.
type Make = fn(&FaultRuleText) -> Made;
/// A fault, or what is wrong with its settings.
type Made = Result<Fault, String>;
/// What is done to a node or worker.
type Act = Box<dyn for<'a> Fn(&'a Environment, Hit) -> Done<'a> + Send + Sync>;
type Done<'a> = BoxFuture<'a, io::Result<()>>;

/// A fault that can be injected and healed.
pub(crate) struct Fault {
    pub(crate) target: Target,
    /// A worker runs on, but reaches no node: it is notified of losses in time, but its keys may remain on any node.
    pub(crate) cuts_off: bool,
    /// After it has healed, a node does not vote yet, or has lost keys that only a renewal restores.
    pub(crate) quarantines: bool,
    /// What the fault requires of the masters.
    pub(crate) needs: Need,
    describe: Box<dyn Fn(u64, Memory) -> String + Send + Sync>,
    begin: Act,
    heal: Act,
}

impl Fault {
    /// A fault of a node that nothing has to undo.
    fn node(
        description: &str,
        begin: impl for<'a> Fn(&'a Environment, Hit) -> Done<'a> + Send + Sync + 'static,
    ) -> Fault {
        let description = description.to_owned();
        Fault {
            target: Target::Node,
            cuts_off: false,
            quarantines: false,
            needs: Need::Nothing,
            describe: Box::new(move |_, _| description.clone()),
            begin: Box::new(begin),
            heal: Box::new(|_, _| immediately(|| ())),
        }
    }

    /// The same of a worker.
    fn worker(
        description: &str,
        begin: impl for<'a> Fn(&'a Environment, Hit) -> Done<'a> + Send + Sync + 'static,
    ) -> Fault {
        Fault { target: Target::Worker, ..Fault::node(description, begin) }
    }

    fn described_by(self, describe: impl Fn(u64, Memory) -> String + Send + Sync + 'static) -> Fault {
        Fault { describe: Box::new(describe), ..self }
    }

    fn healed_by(
        self,
        heal: impl for<'a> Fn(&'a Environment, Hit) -> Done<'a> + Send + Sync + 'static,
    ) -> Fault {
        Fault { heal: Box::new(heal), ..self }
    }

    fn needs(self, needs: Need) -> Fault {
        Fault { needs, ..self }
    }

    fn quarantined(self) -> Fault {
        Fault { quarantines: true, ..self }
    }

    /// Describes what is done to the target: `killed, restarted empty`.
    pub(crate) fn describe(&self, random: u64, servers: Memory) -> String {
        (self.describe)(random, servers)
    }

    /// Injects the fault.
    pub(crate) fn begin<'a>(&self, environment: &'a Environment, hit: Hit) -> Done<'a> {
        (self.begin)(environment, hit)
    }

    /// Heals the fault, if that requires an action.
    pub(crate) fn heal<'a>(&self, environment: &'a Environment, hit: Hit) -> Done<'a> {
        (self.heal)(environment, hit)
    }
}

/// An act that needs no waiting and cannot fail.
fn immediately<'a>(act: impl FnOnce()) -> Done<'a> {
    act();
    Box::pin(async { Ok(()) })
}

/// One occurrence of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hit {
    /// The node or worker, counted from 0.
    pub(crate) target: usize,
    /// A random number that decides where a fault has a choice.
    pub(crate) random: u64,
}

/// What a fault affects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Node,
    Worker,
}

/// A kind of fault with its settings and times, as a scenario asks for it.
pub(crate) struct FaultRule {
    pub(crate) kind: &'static str,
    pub(crate) fault: Fault,
    /// The time from one occurrence to the next.
    pub(crate) every: Span,
    /// The duration of each occurrence.
    pub(crate) lasts: Span,
    /// How many nodes or workers each occurrence affects.
    pub(crate) hits: usize,
    /// Which nodes or workers it may affect.
    pub(crate) aim: Aim,
}

/// Which nodes or workers a fault may affect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Aim {
    #[default]
    Any,
    /// The node that keeps the queue of the only lock.
    Home,
}

/// A fault rule as it is written in a scenario.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FaultRuleText {
    kind: String,
    every: Span,
    #[serde(default)]
    lasts: Span,
    #[serde(default = "one")]
    hits: usize,
    #[serde(default)]
    target: Aim,
    // The settings of some kinds.
    restart: Option<Restart>,
    delay: Option<Span>,
    #[serde(default, deserialize_with = "duration")]
    jitter: Duration,
    way: Option<Direction>,
    #[serde(default)]
    seconds: Option<f64>,
    rate: Option<f64>,
}

/// How a killed master restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Restart {
    Empty,
    WithData,
    Either,
}

/// Which traffic is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Direction {
    Requests,
    Answers,
    Both,
    Any,
}

impl<'de> Deserialize<'de> for FaultRule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<FaultRule, D::Error> {
        FaultRule::try_from(FaultRuleText::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl TryFrom<FaultRuleText> for FaultRule {
    type Error = String;

    fn try_from(text: FaultRuleText) -> Result<FaultRule, String> {
        let known = KINDS.iter().find(|(name, _)| *name == text.kind);
        let &(kind, make) = known.ok_or_else(|| {
            let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            format!("unknown fault `{}`; known are {}", text.kind, names.join(", "))
        })?;
        if text.every.most.is_zero() {
            return Err(format!("`every` of `{kind}` is zero"));
        }
        let fault = make(&text).map_err(|why| format!("`{kind}`: {why}"))?;
        let FaultRuleText { every, lasts, hits, target: aim, .. } = text;
        Ok(FaultRule { kind, fault, every, lasts, hits, aim })
    }
}

fn one() -> usize {
    1
}

impl Direction {
    /// Returns the direction, and chooses one for `any`.
    fn way(self, random: u64) -> quorlock_servers::Way {
        use quorlock_servers::Way;

        match self {
            Direction::Requests => Way::ToServer,
            Direction::Answers => Way::ToClient,
            Direction::Both => Way::Both,
            Direction::Any => match random % 3 {
                0 => Way::ToServer,
                1 => Way::ToClient,
                _ => Way::Both,
            },
        }
    }
}

/// Describes which traffic is lost.
fn lost(way: quorlock_servers::Way) -> &'static str {
    use quorlock_servers::Way;

    match way {
        Way::ToServer => "requests lost",
        Way::ToClient => "answers lost",
        Way::Both => "cut off",
    }
}
