//! The lines: how requests and answers are written. Pure.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Expiry, Holding, Identity, NodeError, NodeErrorKind, Reason, Request, Response, Vote};
use quorlock::protocol::{Claim, FenceHint, FencingToken, Moment, Token, fence_counter};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

/// The version of the lines.
pub(crate) const VERSION: u32 = 1;
/// The longest line, in bytes.
pub(crate) const LONGEST: usize = 1 << 20;
/// How much of a line that is none is shown.
const MOST_SHOWN: usize = 200;

/// The first line of a child.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The version of the lines.
    pub(crate) quorlock: u32,
    /// The name of the history of its data: another one whenever it may have forgotten a grant.
    pub(crate) identity: String,
    /// The least age of that history.
    pub(crate) age_ms: u64,
    #[serde(default)]
    pub(crate) least_ttl_ms: u64,
    /// For how long a grant or a renewal proves a key at least, from when it was asked for; `None` for its whole TTL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proven_ms: Option<u64>,
}

/// A request, as a line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) id: u64,
    #[serde(rename = "do")]
    pub(crate) verb: Verb,
    pub(crate) key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<u64>,
    /// The key of the fencing counter, where there are numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) counter: Option<String>,
    /// What the number is at least, or is to become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verb {
    Acquire,
    Renew,
    WriteBack,
    Release,
    Cancel,
    Inspect,
}

/// A line of a child after the first.
#[derive(Debug)]
pub(crate) enum Message {
    Answer(Answer),
    Failed(Failed),
    Gone(Gone),
}

/// It could not carry out a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) id: u64,
    pub(crate) error: String,
    /// Whether it may have been carried out all the same.
    #[serde(default)]
    pub(crate) maybe: bool,
}

/// A key was deleted, or has expired.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Gone {
    pub(crate) gone: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    pub(crate) is: Is,
    /// Of the holder, if the key is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    /// How long it still holds it; without, it never ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) left_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u64>,
    /// By how much the time of a grant began before the request came; without, it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before_ms: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Is {
    Granted,
    Restored,
    Held,
    Free,
    Ahead,
}

/// Reads a line.
pub(crate) fn parse<T: DeserializeOwned>(line: &str) -> Result<T, Reason> {
    serde_json::from_str(line).map_err(|error| {
        let visible = |sign: char| if sign.is_control() { '\u{fffd}' } else { sign };
        let shown: String = line.chars().take(MOST_SHOWN).map(visible).collect();
        let more = if line.chars().nth(MOST_SHOWN).is_some() { "…" } else { "" };
        Reason::new(format!("it has said a line that is none of this protocol, `{shown}{more}`"))
            .because(error)
    })
}

impl Message {
    /// Reads a line. Its fields say which it is, so that an error is about what is wrong with it.
    pub(crate) fn parse(line: &str) -> Result<Message, Reason> {
        #[derive(Deserialize)]
        struct Fields {
            gone: Option<IgnoredAny>,
            error: Option<IgnoredAny>,
        }
        let Fields { gone, error } = parse(line)?;
        Ok(match (gone, error) {
            (Some(_), _) => Message::Gone(parse(line)?),
            (None, Some(_)) => Message::Failed(parse(line)?),
            (None, None) => Message::Answer(parse(line)?),
        })
    }
}

fn millis(time: Duration) -> u64 {
    // A TTL is never shortened.
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Asked {
    /// Writes a request as a line without its end. `None` if the lines have no such request.
    pub(crate) fn of(id: u64, request: &Request, wall: Duration) -> Option<Asked> {
        let of = |claim: &Claim, verb| Asked {
            id,
            verb,
            key: claim.key().to_owned(),
            token: Some(String::from_utf8_lossy(claim.token().as_bytes()).into_owned()),
            ttl_ms: None,
            counter: None,
            number: None,
        };
        let numbered = |asked: Asked, claim: &Claim, number: u64| Asked {
            counter: Some(claim.fence_counter()),
            number: Some(number),
            ..asked
        };
        Some(match request {
            Request::Acquire { claim, ttl, fence_hint } => {
                let asked = Asked { ttl_ms: Some(millis(*ttl)), ..of(claim, Verb::Acquire) };
                // The child shows no clock, so this one limits how far a hint may be ahead.
                match fence_hint.map(|hint| hint.from(FencingToken::ZERO, wall)) {
                    Some(Ok(least)) => numbered(asked, claim, least.get()),
                    Some(Err(_)) | None => asked,
                }
            }
            Request::Renew { claim, ttl, fencing_token } => {
                let asked = Asked { ttl_ms: Some(millis(*ttl)), ..of(claim, Verb::Renew) };
                match fencing_token {
                    Some(number) => numbered(asked, claim, number.get()),
                    None => asked,
                }
            }
            Request::WriteBack { claim, fencing_token } => {
                numbered(of(claim, Verb::WriteBack), claim, fencing_token.get())
            }
            Request::Release { claim } => of(claim, Verb::Release),
            Request::Cancel { claim, linger } => {
                Asked { ttl_ms: Some(millis(*linger)), ..of(claim, Verb::Cancel) }
            }
            Request::Inspect { key, prefix_len } => Asked {
                id,
                verb: Verb::Inspect,
                key: key.to_string(),
                token: None,
                ttl_ms: None,
                counter: Some(fence_counter(key.get(..*prefix_len).unwrap_or_default(), key)),
                number: None,
            },
            Request::Enqueue { .. }
            | Request::LeaveQueue { .. }
            | Request::ListWaiters { .. }
            | Request::AnnounceWriter { .. }
            | Request::WithdrawWriter { .. }
            | Request::Transfer { .. }
            | Request::Offer { .. }
            | Request::LogHold { .. }
            | Request::ReadLog { .. }
            | _ => return None,
        })
    }

    /// Reads a request, for a node that serves it. `None` if something is missing.
    pub(crate) fn request(&self) -> Option<Request> {
        let prefix_len = self.counter.as_deref().map_or(0, |counter| prefix_len(counter, &self.key));
        let claim = || {
            let token = Token::found(self.token.as_ref()?.as_bytes());
            Some(Arc::new(Claim::new(self.key.as_str().into(), token).below(prefix_len)))
        };
        let time = || Some(Duration::from_millis(self.ttl_ms?));
        let number = || FencingToken::new(self.number?);
        Some(match self.verb {
            Verb::Acquire => {
                // The limit was applied by who sent it.
                let at = |least: FencingToken| {
                    let below = Duration::from_micros(least.get().saturating_sub(1));
                    FenceHint::at(below, None, Duration::MAX)
                };
                Request::Acquire { claim: claim()?, ttl: time()?, fence_hint: number().map(at) }
            }
            Verb::Renew => Request::Renew { claim: claim()?, ttl: time()?, fencing_token: number() },
            Verb::WriteBack => Request::WriteBack { claim: claim()?, fencing_token: number()? },
            Verb::Release => Request::Release { claim: claim()? },
            Verb::Cancel => Request::Cancel { claim: claim()?, linger: time()? },
            Verb::Inspect => Request::Inspect { key: self.key.as_str().into(), prefix_len },
        })
    }
}

/// How much of a key is the prefix below which this counter is.
fn prefix_len(counter: &str, key: &str) -> usize {
    let is_below = |at: &usize| fence_counter(key.get(..*at).unwrap_or_default(), key) == counter;
    (0..=key.len()).filter(|at| key.is_char_boundary(*at)).find(is_below).unwrap_or(0)
}

impl Answer {
    /// Writes a response to a request that came at `received`. `None` if the lines have no such answer.
    pub(crate) fn of(id: u64, response: &Response, received: Moment) -> Option<Answer> {
        let before_ms =
            response.counts_from.map(|from| millis(received.since(from))).filter(|before| *before > 0);
        let number = response.fencing_token.map(FencingToken::get);
        let simple = |is| Some(Answer { id, is, token: None, left_ms: None, number, before_ms });
        match &response.vote {
            Vote::Granted | Vote::ReleasedContended | Vote::Notified => simple(Is::Granted),
            Vote::Restored => simple(Is::Restored),
            Vote::Free => simple(Is::Free),
            Vote::FenceAhead => simple(Is::Ahead),
            Vote::Held(holding) => Some(Answer {
                id,
                is: Is::Held,
                token: Some(String::from_utf8_lossy(holding.token.as_bytes()).into_owned()),
                left_ms: match holding.expiry {
                    Expiry::In(left) => Some(millis(left)),
                    Expiry::Never => None,
                },
                number,
                before_ms: None,
            }),
            Vote::NotYourTurn | Vote::Queued(_) | Vote::Waiters(_) | Vote::Log(_) | _ => None,
        }
    }

    /// Returns the response, or what is wrong with the answer to this request, which was sent at `sent`.
    pub(crate) fn response(
        &self,
        asked: &Asked,
        sent: Moment,
        identity: &Arc<Identity>,
    ) -> Result<Response, NodeError> {
        let (verb, wrong) = (asked.verb, |what: &str| unexpected(format!("it {what}")));
        let number = self
            .number
            .map(|number| FencingToken::new(number).ok_or_else(|| wrong("names a number beyond 2^53")));
        let number = number.transpose()?;
        let vote = match (self.is, verb) {
            (Is::Held, Verb::Release | Verb::Cancel) => return Err(wrong("answers a release by `held`")),
            (Is::Held, _) => {
                let token = self.token.as_ref().ok_or_else(|| wrong("names no holder"))?;
                let expiry =
                    self.left_ms.map_or(Expiry::Never, |left| Expiry::In(Duration::from_millis(left)));
                Vote::from(Holding::new(Token::found(token.as_bytes()), expiry))
            }
            (Is::Free, _) => Vote::Free,
            (Is::Granted, Verb::Inspect) => return Err(wrong("answers an inspection by `granted`")),
            (Is::Granted, _) => Vote::Granted,
            (Is::Restored, Verb::Renew) => Vote::Restored,
            (Is::Ahead, Verb::WriteBack) => Vote::FenceAhead,
            (Is::Restored | Is::Ahead, _) => return Err(wrong("gives an answer of another request")),
        };
        if let (Is::Granted, Verb::Acquire, Some(least)) = (self.is, verb, asked.number) {
            // A lower one may have been drawn before.
            let drawn = self.number.ok_or_else(|| wrong("draws no number"))?;
            if drawn < least {
                return Err(wrong(&format!(
                    "draws number {drawn}, below {least}, which is the least it was asked for"
                )));
            }
        }
        if let (Is::Granted | Is::Restored, Some(ttl), Some(before)) = (self.is, asked.ttl_ms, self.before_ms)
            && before >= ttl
        {
            return Err(wrong(&format!(
                "grants a TTL of {ttl} ms that has begun {before} ms before the request, and so is over"
            )));
        }
        let response = Response::new(vote, Arc::clone(identity)).with_fencing_token(number);
        // It came no earlier than it was sent.
        Ok(match self.before_ms {
            Some(before) => response.counting_from(sent.back(Duration::from_millis(before))),
            None => response,
        })
    }
}

impl Hello {
    /// Returns the history of its data, or what is wrong with this first line.
    pub(crate) fn identity(&self, seen: Moment) -> Result<Identity, Reason> {
        if self.quorlock != VERSION {
            let words = format!(
                "it speaks version {} of the lines, and this program version {VERSION}",
                self.quorlock
            );
            return Err(words.into());
        }
        if self.identity.is_empty() {
            return Err("its first line has no identity".into());
        }
        Ok(Identity::new(self.identity.as_str(), seen, Duration::from_millis(self.age_ms)))
    }
}

/// The error of a child that could not carry out a request.
pub(crate) fn failed(error: &str, maybe: bool) -> NodeError {
    if maybe {
        return unexpected(format!("it says that the request may have been carried out: {error}"));
    }
    NodeError::Failed { kind: NodeErrorKind::Other, reason: error.to_owned().into() }
}

fn unexpected(reason: String) -> NodeError {
    NodeError::UnexpectedReply { reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_counts_from_no_later_than_on_the_node_that_is_served() {
        let identity = Arc::new(Identity::new("a", Moment::ORIGIN, Duration::ZERO));
        let at = |micros| Moment::since_origin(Duration::from_micros(micros));
        // Two clocks, as those of two processes.
        let (sent, received) = (at(500_000), at(90_000_000));
        let grant = Response::new(Vote::Granted, Arc::clone(&identity));
        let claim = Arc::new(Claim::new("a".into(), Token::new(7, "anna:1")));
        let renewal = Request::Renew { claim, ttl: Duration::from_secs(30), fencing_token: None };
        let asked = Asked::of(7, &renewal, Duration::ZERO).unwrap();
        for (from, expected) in
            [(at(89_876_500), Some(at(376_000))), (received, None), (received + Duration::from_secs(1), None)]
        {
            let answer = Answer::of(7, &grant.clone().counting_from(from), received).unwrap();
            let read = answer.response(&asked, sent, &identity).unwrap();
            assert_eq!(read.counts_from, expected, "from {from:?}");
        }
        let answer = Answer::of(7, &grant, received).unwrap();
        assert_eq!(serde_json::to_string(&answer).unwrap(), r#"{"id":7,"is":"granted"}"#);
    }
}
