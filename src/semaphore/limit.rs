//! The number of permits, which all clients of a semaphore must agree on.

use std::fmt;
use std::sync::Arc;

use crate::node::Reason;
use crate::node::{Collect, Node, NodeError, Request, Responder, Response, SharedRequest, Vote};
use crate::runtime::Mutex;
use quorlock_protocol::{Claim, Token, semaphore_limit};

/// The number of permits as it is stored on the nodes, under a key next to those of the slots. Clients that ask for the
/// same number make the same claim, so any number of them can hold it at the same time.
pub(super) fn claim(key: &str, permits: usize) -> Arc<Claim> {
    Arc::new(Claim::new(semaphore_limit(key).into(), Token::found(permits.to_string().as_bytes())))
}

/// A node whose votes for a slot count only where the semaphore has the right number of permits
/// (rule P-1).
///
/// Before each request that creates or renews a slot's key, it asks the node to keep the limit for as long: both are
/// sent together and carried out in that order. So wherever a vote counts, the limit is stored for as long as the permit
/// is valid. Two clients with different numbers would both need a quorum of limits, and so a node with two of them.
pub(super) struct Limited {
    pub(super) node: Arc<dyn Node>,
    pub(super) limit: Arc<Claim>,
}

impl Node for Limited {
    crate::node::forward_node!(self => &self.node; name ready round_trip capabilities limits grant_age listen);

    fn ask(&self, request: SharedRequest, reply: Responder) {
        let (Request::Acquire { ttl, .. } | Request::Transfer { ttl, .. } | Request::Renew { ttl, .. }) =
            *request
        else {
            return self.node.ask(request, reply);
        };
        // As for a lock: if the limit is gone at a renewal, what was stored meanwhile is unknown.
        let keeps = matches!(*request, Request::Renew { .. });
        let pair =
            Arc::new(Pair { asked: self.limit.token().clone(), keeps, state: Mutex::new(State::new(reply)) });
        self.node.ask(
            Request::Renew { claim: self.limit.clone(), ttl, fencing_token: None }.into(),
            Responder::new(pair.clone(), LIMIT),
        );
        self.node.ask(request, Responder::new(pair, SLOT));
    }
}

impl fmt::Debug for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited").field("node", &self.node).finish_non_exhaustive()
    }
}

const LIMIT: usize = 0;
const SLOT: usize = 1;

/// Waits for the answers to both requests, and makes one of them.
#[derive(Debug)]
struct Pair {
    /// The limit that was asked for.
    asked: Token,
    /// Whether the slot was held before.
    keeps: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: Option<Result<Response, NodeError>>,
    slot: Option<Result<Response, NodeError>>,
    reply: Option<Responder>,
}

impl State {
    fn new(reply: Responder) -> State {
        State { limit: None, slot: None, reply: Some(reply) }
    }
}

impl Collect for Pair {
    fn answer(&self, index: usize, answer: Result<Response, NodeError>) {
        let mut state = self.state.lock();
        let place = if index == LIMIT { &mut state.limit } else { &mut state.slot };
        *place = Some(answer);
        if state.limit.is_none() || state.slot.is_none() {
            return;
        }
        let State { limit: Some(limit), slot: Some(slot), reply: Some(reply) } =
            std::mem::replace(&mut *state, State { limit: None, slot: None, reply: None })
        else {
            return;
        };
        drop(state);
        reply.send(combined(limit, slot, &self.asked, self.keeps));
    }

    fn wanted(&self) -> bool {
        let state = self.state.lock();
        state.reply.as_ref().is_some_and(Responder::wanted)
    }
}

/// What the node says of a slot, given what it says of the limit.
///
/// Where the limit is not as it should be, the slot's key may stand all the same: that is an error
/// after which the node is cleaned up.
fn combined(
    limit: Result<Response, NodeError>,
    slot: Result<Response, NodeError>,
    asked: &Token,
    keeps: bool,
) -> Result<Response, NodeError> {
    let slot = slot?;
    let unconfirmed = |reason: &str| Err(NodeError::Disconnected { reason: reason.into() });
    let limit = match limit {
        Ok(limit) => limit,
        Err(error) => {
            let reason = Reason::new("the semaphore's limit is unknown").because(error);
            return Err(NodeError::Disconnected { reason });
        }
    };
    match limit.vote {
        _ if limit.identity.id != slot.identity.id => {
            unconfirmed("the server was restarted between two requests")
        }
        Vote::Held(holding) => {
            Err(NodeError::OtherLimit { found: number(&holding.token), asked: number(asked) })
        }
        Vote::Restored if keeps && slot.vote == Vote::Granted => {
            let mut response = of_both(limit, slot);
            response.vote = Vote::Restored;
            Ok(response)
        }
        Vote::Granted | Vote::Restored => Ok(of_both(limit, slot)),
        Vote::ReleasedContended
        | Vote::Notified
        | Vote::NotYourTurn
        | Vote::Queued(_)
        | Vote::Waiters(_)
        | Vote::Log(_)
        | Vote::FenceAhead
        | Vote::Free
        | _ => unconfirmed("the semaphore's limit was not stored"),
    }
}

/// Returns the number of permits that is stored. Anything else may be the token of a lock, which no one else is shown.
fn number(token: &Token) -> Arc<str> {
    let text = str::from_utf8(token.as_bytes()).ok().filter(|text| text.parse::<usize>().is_ok());
    text.unwrap_or("an unreadable number of").into()
}

/// What is said of the slot, as old as the younger of the two that answered: in a cluster each key has
/// a master of its own, and both must remember.
fn of_both(limit: Response, mut slot: Response) -> Response {
    let now = limit.identity.seen.max(slot.identity.seen);
    let limit_is_younger = limit.identity.age_at(now) < slot.identity.age_at(now);
    if limit_is_younger {
        slot.identity = limit.identity;
    }
    slot
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::{Expiry, Holding, Identity};
    use quorlock_protocol::Moment;

    fn response(vote: Vote, id: &str) -> Response {
        Response::new(vote, Arc::new(Identity::new(id, Moment::ORIGIN, Duration::ZERO)))
    }

    fn other() -> Vote {
        Vote::from(Holding::new(Token::found(b"2"), Expiry::In(Duration::from_secs(1))))
    }

    fn vote(limit: Result<Response, NodeError>, slot: Vote, keeps: bool) -> Result<Vote, NodeError> {
        combined(limit, Ok(response(slot, "a")), &Token::found(b"4"), keeps).map(|answer| answer.vote)
    }

    #[test]
    fn a_slot_is_granted_where_the_limit_stands() {
        for limit in [Vote::Granted, Vote::Restored] {
            assert_eq!(vote(Ok(response(limit, "a")), Vote::Granted, false), Ok(Vote::Granted));
        }
        assert_eq!(vote(Ok(response(Vote::Granted, "a")), Vote::Granted, true), Ok(Vote::Granted));
        assert_eq!(vote(Ok(response(Vote::Granted, "a")), other(), false), Ok(other()));
    }

    #[test]
    fn a_limit_that_was_gone_confirms_no_renewal() {
        assert_eq!(vote(Ok(response(Vote::Restored, "a")), Vote::Granted, true), Ok(Vote::Restored));
    }

    #[test]
    fn a_slot_is_as_old_as_the_younger_of_the_two_that_answered() {
        let aged = |age| Response::new(Vote::Granted, Arc::new(Identity::new("a", Moment::ORIGIN, age)));
        let (old, young) = (Duration::from_secs(90), Duration::from_secs(1));
        for (limit, slot) in [(old, young), (young, old), (young, young)] {
            let response = combined(Ok(aged(limit)), Ok(aged(slot)), &Token::found(b"4"), false).unwrap();
            assert_eq!(response.identity.age, young);
        }
    }

    #[test]
    fn p1_another_limit_is_an_error_that_lasts_and_leaves_something_to_clean_up() {
        for slot in [Vote::Granted, other()] {
            let error = vote(Ok(response(other(), "a")), slot, false).unwrap_err();
            assert!(error.is_permanent() && error.may_have_acted(), "{error}");
            assert!(
                error.to_string().contains("2 permits") && error.to_string().contains("asks for 4"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_error_shows_no_token_that_is_stored_in_place_of_the_limit() {
        let token = Token::new(7, "vm:26317");
        let lock = Vote::from(Holding::new(token, Expiry::In(Duration::from_secs(1))));
        let error = vote(Ok(response(lock, "a")), Vote::Granted, false).unwrap_err();
        let shown = "the semaphore has an unreadable number of permits there, but this program asks for 4: ";
        assert!(error.to_string().starts_with(shown), "{error}");
    }

    #[test]
    fn what_is_not_known_of_the_limit_is_not_known_of_the_slot() {
        let lost = Err(NodeError::Unanswered { waited: Duration::from_millis(50) });
        for limit in [lost, Ok(response(Vote::Free, "a")), Ok(response(Vote::Granted, "b"))] {
            let error = vote(limit, Vote::Granted, false).unwrap_err();
            assert!(error.may_have_acted() && !error.is_permanent(), "{error}");
        }
    }
}
