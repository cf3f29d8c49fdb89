//! A test lock, which is acquired, renewed, transferred and released.

use std::sync::Arc;
use std::time::Duration;

use crate::address::Layout;
use crate::node::facts::{Facts, Feature};
use crate::node::{Capability, Node as _, NodeError, NodeErrorKind, Request, Response, Vote, ask};
use crate::redis::RedisNode;
use crate::redis::redisson::Companion;
use crate::runtime::clock::{Clock, within};
use crate::runtime::entropy::Entropy;
use quorlock_protocol::{
    Claim, FenceHint, FencingToken, InboxId, Moment, Token, WaiterId, readers_key, turn_key,
};

/// Long compared with the pauses of the health check, and short in case it is interrupted.
const TTL: Duration = Duration::from_secs(10);
/// The context of the holder, for other clients.
const CONTEXT: &str = "quorlock doctor";

/// What follows the key prefix in the key.
const NAME: &str = "quorlock-doctor-";

/// The placeholder of the fencing counter.
const FENCE: &str = "{fence}";
/// The placeholders of Redisson's counter, and of the queue of its fair lock with its times.
const COUNTER: &str = "{counter}";
const QUEUE: &str = "{queue}";
const TIMES: &str = "{times}";
/// The placeholder of a channel in a command.
const INBOX: &str = "{inbox}";

/// A free key, and two claims to it.
pub(super) struct Probe {
    one: Arc<Claim>,
    two: Arc<Claim>,
    layout: Layout,
    waiter: WaiterId,
    /// An inbox without a subscriber.
    inbox: InboxId,
}

impl Probe {
    pub(super) fn new(key: &Arc<str>, layout: Layout, entropy: &dyn Entropy) -> Probe {
        let prefix_len = key.find(NAME).unwrap_or_default();
        let token = || Token::new(entropy.next_u128(), CONTEXT);
        let claim = || Arc::new(Claim::new(Arc::clone(key), token()).below(prefix_len));
        let [waiter, inbox] = [(); 2].map(|()| entropy.next_u64());
        let (waiter, inbox) = (WaiterId::new(waiter), InboxId::new(inbox));
        Probe { one: claim(), two: claim(), layout, waiter, inbox }
    }

    /// Returns how the server stores locks.
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    fn keys(&self) -> [(&'static str, String); 11] {
        let want = self.one.want_mark();
        [
            ("{key}", self.one.key().to_owned()),
            ("{tomb}", self.one.tombstone()),
            (FENCE, self.one.fence_counter()),
            ("{order}", format!("{want}:order")),
            ("{told}", format!("{want}:told")),
            ("{turn}", turn_key(self.one.key(), self.waiter)),
            ("{want}", want),
            ("{readers}", readers_key(self.one.key())),
            (COUNTER, Companion::Token.of(self.one.key()).to_string()),
            (QUEUE, Companion::Queue.of(self.one.key()).to_string()),
            (TIMES, Companion::Times.of(self.one.key()).to_string()),
        ]
    }

    /// Returns the words of a command, with the keys inserted.
    pub(super) fn words(&self, template: &str) -> Vec<String> {
        let (keys, prefix) = (self.keys(), self.prefix());
        let filled = |word: &str| match keys.iter().find(|(place, _)| *place == word) {
            Some((_, key)) => key.clone(),
            None if word == "{nothing}" => String::new(),
            None if word == INBOX => self.inbox.channel(prefix),
            None => word.to_owned(),
        };
        template.split(' ').map(filled).collect()
    }

    /// Returns the ACL pattern for the keys in a command, `~…`, or for its channel, `&…`.
    pub(super) fn pattern(&self, template: &str) -> String {
        let of_redisson =
            [Companion::Token, Companion::Queue, Companion::Times].into_iter().zip([COUNTER, QUEUE, TIMES]);
        match of_redisson.into_iter().find(|(_, place)| template.contains(place)) {
            Some((companion, _)) => format!("~{}*", companion.prefix()),
            None if template.contains(INBOX) => format!("&{}*", self.prefix()),
            None => format!("~{}*", self.prefix()),
        }
    }

    /// Returns the prefix of all keys and channels.
    fn prefix(&self) -> &str {
        self.one.key_prefix()
    }

    /// Returns the commands that remove all keys of the probe, but not the counter, which it shares with other locks. One
    /// for each key: a user may lack the permission for some.
    pub(super) fn removal(&self) -> Vec<Vec<String>> {
        let more = [self.two.tombstone(), self.two.want_mark()];
        let ours = |place: &str| match self.layout {
            Layout::Own => ![FENCE, COUNTER, QUEUE, TIMES].contains(&place),
            Layout::Redisson => ["{key}", "{tomb}", COUNTER].contains(&place),
        };
        let own = self.keys().into_iter().filter(|(place, _)| ours(place));
        let keys = own.map(|(_, key)| key).chain(more);
        keys.map(|key| vec!["DEL".to_owned(), key]).collect()
    }

    /// Runs a lock through its whole life on `node`.
    pub(super) async fn lock(
        &self,
        node: &RedisNode,
        clock: &dyn Clock,
        end: Moment,
        facts: &Facts,
    ) -> Result<(), NodeError> {
        let queues = node.capabilities().has(Capability::Queue)
            && !facts.refusals.iter().any(|refusal| refusal.need == Feature::Queue);
        let limit = end.since(clock.now());
        let lived = within(clock, limit, self.live(node, clock, queues)).await;
        lived.unwrap_or(Err(NodeError::Unanswered { waited: limit }))
    }

    async fn live(&self, node: &RedisNode, clock: &dyn Clock, queues: bool) -> Result<(), NodeError> {
        let (one, two) = (|| Arc::clone(&self.one), || Arc::clone(&self.two));
        let fence_hint = || Some(FenceHint::at(clock.wall(), None, TTL));
        let take = |claim, fence_hint| Request::Acquire { claim, ttl: TTL, fence_hint };
        let granted = expect(node, take(one(), fence_hint()), &[Vote::Granted]).await?;
        refused(node, take(two(), None)).await?;
        let fence = granted.fencing_token;
        expect(node, Request::Renew { claim: one(), ttl: TTL, fencing_token: fence }, &[Vote::Granted])
            .await?;
        let fence = fence.and_then(|fence| FencingToken::new(fence.get() + 1)).unwrap_or(FencingToken::MAX);
        expect(node, Request::WriteBack { claim: one(), fencing_token: fence }, &[Vote::Granted]).await?;
        if queues {
            let (key, waiter) = (Arc::from(self.one.key()), self.waiter);
            queued(node, Request::enqueue(key, waiter, Duration::ZERO, TTL, TTL)).await?;
            let key = Arc::from(self.one.key());
            expect(node, Request::LeaveQueue { key, waiter }, &[Vote::Granted]).await?;
        }
        let passed = Request::Transfer { from: one(), to: two(), ttl: TTL, fence_hint: fence_hint() };
        expect(node, passed, &[Vote::Granted]).await?;
        expect(node, Request::Release { claim: two() }, &[Vote::Granted, Vote::ReleasedContended]).await?;
        expect(node, Request::Cancel { claim: one(), linger: TTL }, &[Vote::Granted, Vote::Free]).await?;
        expect(node, Request::inspect(self.one.key()), &[Vote::Free]).await.map(drop)
    }
}

async fn expect(node: &RedisNode, request: Request, wanted: &[Vote]) -> Result<Response, NodeError> {
    let answer = ask(node, request).await?;
    if wanted.contains(&answer.vote) { Ok(answer) } else { Err(surprise()) }
}

async fn refused(node: &RedisNode, request: Request) -> Result<(), NodeError> {
    if let Vote::Held(_) = ask(node, request).await?.vote { Ok(()) } else { Err(surprise()) }
}

async fn queued(node: &RedisNode, request: Request) -> Result<(), NodeError> {
    if let Vote::Queued(_) = ask(node, request).await?.vote { Ok(()) } else { Err(surprise()) }
}

fn surprise() -> NodeError {
    let message = "a test lock did not behave as expected: something else changes its keys";
    NodeError::Failed { kind: NodeErrorKind::WrongData, reason: message.into() }
}
