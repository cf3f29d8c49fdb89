//! The places of a waiter in the queues that nodes keep for a lock: where it asks, when again, and when it doubts what a
//! node says.
//!
//! A waiter asks one node, its *home*: the preferred one, or the next that answers. A turn grants nothing, and a
//! node may be wrong about the lock (W-4): it may have restarted and not know the lock that others hold, or have the rest
//! of an attempt that the other nodes have released; or it lies. So before it asks all nodes, and every two seconds while the
//! same holder is reported, or every four whatever its home says, the waiter asks another node, which changes nothing there.
//!
//! If that reports another holder than the home has reported for two seconds, or none, the waiter asks all nodes. If the home
//! reports no holder, or a new one, a free lock may be in the turn of another waiter: the waiter asks another node more often,
//! and all nodes once the others have reported the lock as free for as long as a turn may be kept.

use std::mem;
use std::time::Duration;

use crate::machine::NodeSet;
use crate::node::{Expiry, Holding, Queued, Vote};
use crate::queue::LONGEST_KEPT;
use crate::votes::VoteReport;
use crate::{EXPIRY_JITTER, Moment, QueueHeartbeat, Token, fraction, offer_heartbeat};

/// How long a waiter relies on its home until another node is asked.
pub const OTHER_NODE_EVERY: Duration = Duration::from_secs(2);

/// One wait for a lock, in the queue of one node.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The nodes that may have it in their queue.
    queued_at: NodeSet,
    /// The nodes that have notified us of our turn.
    turns: NodeSet,
    /// How many nodes to skip, starting at the preferred one, because they did not answer.
    skipped: usize,
    heartbeat: QueueHeartbeat,
    /// Whether the lock was held when others were asked or this process joined the queue.
    waits: bool,
    /// The token that the home reported, if this process was first in the queue, when holders were last compared …
    holder: Option<Token>,
    /// … which was then …
    compared: Option<Moment>,
    /// … and whether it had reported the same one the time before.
    is_same_holder: bool,
    /// When another node was last asked, or the home first answered.
    other_asked: Option<Moment>,
    /// Since when all others that were asked have reported the lock as free.
    free_since: Option<Moment>,
    /// How many processes were before this one.
    ahead: Option<u32>,
    /// The distance, in nodes, from the home node to the other one that was asked last.
    other_offset: usize,
}

/// What a node has answered about a place in its queue.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the engine fills it in")]
pub struct Place {
    /// The node.
    pub home: usize,
    /// `None` if it is our turn.
    pub queued: Option<Queued>,
    /// What it knows of the lock.
    pub report: VoteReport,
    /// The length of a turn.
    pub turn: Duration,
}

/// The most urgent of what a waiter has heard since it asked for its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Notice {
    /// A node has offered the lock.
    Offer,
    /// A node has announced our turn.
    Turn,
    /// An offer is about to come, to other terms than were asked last.
    SoonFirst,
    /// Nothing.
    None,
}

/// What a waiter in a queue does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Next {
    /// It collects the votes that were offered.
    TakeOffer,
    /// It asks all nodes for the lock.
    Try,
    /// It asks for its place again.
    AskAgain,
    /// It waits for a turn at most: the waiter before it has its turn now.
    WaitForTurn,
    /// It waits.
    Wait,
}

impl Place {
    /// Returns the number of processes that wait before this one.
    #[must_use]
    pub fn ahead(&self) -> u32 {
        self.queued.as_ref().map_or(0, |queued| queued.ahead)
    }

    /// Whether this is one of the first two waiters, which are notified of every change of the
    /// lock.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.queued.as_ref().is_some_and(|queued| queued.ahead < 2)
    }

    /// Whether the node said that the lock is held; it tells only the first two.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.queued.as_ref().is_some_and(|queued| queued.holding.is_some())
    }

    /// Whether this is the first waiter and the lock is held.
    #[must_use]
    pub fn is_first_behind_holder(&self) -> bool {
        self.ahead() == 0 && self.is_held()
    }

    /// Returns what to do next in the queue, where these nodes have hinted at a change, of which `needed` are a quorum, and the
    /// home `is_cut_off` if it has ceased to send hints.
    #[must_use]
    pub fn next(&self, notice: Notice, changed: NodeSet, is_cut_off: bool, needed: usize) -> Next {
        let at_home = changed.contains(self.home);
        let elsewhere = changed.intersection(NodeSet::of(self.home).complement()).len();
        let matters = (at_home || elsewhere >= needed) && self.is_first_behind_holder();
        match notice {
            Notice::Offer => Next::TakeOffer,
            Notice::Turn => Next::Try,
            Notice::SoonFirst => Next::AskAgain,
            Notice::None if matters => Next::AskAgain,
            // It is our turn; the node that said otherwise may have lagged.
            Notice::None if self.queued.is_none() && elsewhere > 0 => Next::Try,
            Notice::None if is_cut_off || (at_home && self.is_near()) => Next::WaitForTurn,
            Notice::None => Next::Wait,
        }
    }
}

/// Whether to ask all nodes for the lock after a node's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Doubt {
    /// Ask all nodes.
    Try,
    /// Wait.
    Wait,
    /// Ask another node: see [`Places::resolve`].
    AskAnother,
}

impl Places {
    /// Returns the node to ask for a place, where `preferred` is that of the key.
    #[must_use]
    pub fn home(&self, preferred: usize, nodes: usize) -> usize {
        (preferred + self.skipped) % nodes
    }

    /// Goes on to the next node, because its home does not answer or has no queue.
    pub fn skip(&mut self) {
        self.skipped += 1;
    }

    /// Whether its home is not the preferred node.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.skipped > 0
    }

    /// Returns to the preferred node.
    pub fn return_home(&mut self) {
        self.skipped = 0;
    }

    /// Whether this node may have it in its queue.
    #[must_use]
    pub fn is_queued_at(&self, node: usize) -> bool {
        self.queued_at.contains(node)
    }

    /// Whether no node has it in its queue.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.queued_at.is_empty()
    }

    /// Records that this node is asked for a place.
    pub fn enter(&mut self, node: usize) {
        self.queued_at.insert(node);
    }

    /// Records that these nodes have taken it out of their queues.
    pub fn leave(&mut self, nodes: NodeSet) {
        self.queued_at = self.queued_at.intersection(nodes.complement());
    }

    /// Records that these nodes have notified us of our turn and removed us from their queues. If
    /// we do not acquire the lock, they notify the next waiter.
    pub fn note_turns(&mut self, nodes: NodeSet) {
        self.leave(nodes);
        self.turns.add(nodes);
    }

    /// Records whether others were seen to hold the lock.
    pub fn note_held(&mut self, is_held: bool) {
        self.waits |= is_held;
    }

    /// Whether to try to acquire the lock after the home has answered `queued`, or, without that, that it is our turn: in our
    /// turn, or if the node may be wrong (rule W-4).
    pub fn doubt(&mut self, queued: Option<&Queued>, now: Moment) -> Doubt {
        let Some(queued) = queued else { return if self.waits { Doubt::AskAnother } else { Doubt::Try } };
        self.waits = true;
        let (compared, asked) = (self.compared, *self.other_asked.get_or_insert(now));
        if compared.is_none_or(|compared| now.since(compared) >= OTHER_NODE_EVERY) {
            let holding = queued.holding.as_ref().filter(|_| queued.ahead == 0);
            let holder = holding.map(|holding| holding.token.clone());
            self.is_same_holder = holder.is_some() && holder == self.holder;
            (self.holder, self.compared) = (holder, Some(now));
        } else if self.free_since.is_none_or(|since| now.since(since) < LONGEST_KEPT) {
            return Doubt::Wait;
        }
        let is_suspect = self.is_same_holder || self.free_since.is_some();
        if now.since(asked) < if is_suspect { OTHER_NODE_EVERY } else { OTHER_NODE_EVERY * 2 } {
            return Doubt::Wait;
        }
        self.other_asked = Some(now);
        Doubt::AskAnother
    }

    /// Whether to try, where the home has answered `queued` and then another node has answered this, or nothing.
    pub fn resolve(&mut self, queued: Option<&Queued>, other: Option<&Vote>, now: Moment) -> bool {
        let Some(queued) = queued else { return !matches!(other, Some(Vote::Held(_))) };
        let Some(other) = other else { return false };
        if let Vote::Held(other) = other {
            self.free_since = None;
            let is_another = |holding: &Holding| holding.token != other.token;
            return self.is_same_holder && queued.holding.as_ref().is_some_and(is_another);
        }
        // A caller of several locks may keep its turn, in which the lock is free.
        let free_for = now.since(*self.free_since.get_or_insert(now));
        self.is_same_holder || free_for >= LONGEST_KEPT
    }

    /// Returns another node to ask about the lock, a different one each time.
    pub fn other_node(&mut self, home: usize, nodes: usize) -> usize {
        self.other_offset = self.other_offset % nodes.saturating_sub(1).max(1) + 1;
        let other = (home + self.other_offset) % nodes;
        debug_assert!(nodes == 1 || other != home, "a node is compared with itself");
        other
    }

    /// Whether the number of processes before this one has changed.
    pub fn has_moved(&mut self, ahead: u32) -> bool {
        self.ahead.replace(ahead) != Some(ahead)
    }

    /// Returns for how long to wait until it asks for its place again, after the home has answered `queued`, or that it is
    /// our turn, of this length. `offer_life` says how long an offer lives that it may get, and `is_subscribed` whether the
    /// home notifies of changes.
    pub fn asks_again_after(
        &mut self,
        queued: Option<&Queued>,
        turn: Duration,
        offer_life: Option<Duration>,
        is_subscribed: bool,
        random: u64,
    ) -> Duration {
        let expiry = match queued {
            Some(Queued { ahead: 0, holding: Some(Holding { expiry: Expiry::In(left), .. }) }) => {
                left.saturating_add(Duration::from_millis(1) + fraction(EXPIRY_JITTER, random))
            }
            _ => Duration::MAX,
        };
        // An offer's lifetime counts from the latest request.
        let offers = match (queued, offer_life) {
            (Some(Queued { ahead: 0 | 1, holding: Some(holding) }), Some(life))
                if holding.token.is_ours() =>
            {
                let longest = offer_heartbeat(life);
                longest * 3 / 4 + fraction(longest / 4, random)
            }
            _ => Duration::MAX,
        };
        expiry.min(offers).min(match queued {
            Some(queued) if is_subscribed => {
                // Changes are not reported to the waiters further back.
                let free = queued.holding.is_none() && queued.ahead < 2;
                self.heartbeat.next(queued.ahead, free, turn, random)
            }
            Some(queued) => self.heartbeat.without_notice(queued.ahead, random),
            // The node knew less than the others, until our request.
            None => self.heartbeat.forgotten(random),
        })
    }

    /// Gives up its place and its turn. Returns the nodes to notify.
    pub fn pass_on(&mut self) -> NodeSet {
        mem::take(&mut self.queued_at).union(mem::take(&mut self.turns))
    }

    /// Ends the wait, and begins the next one. Returns the nodes to notify: those that may have it in their
    /// queue and, unless it `has` the lock, those that notified it of its turn (rule W-5).
    pub fn end(&mut self, has: bool) -> NodeSet {
        let Places { queued_at, turns, .. } = mem::take(self);
        if has { queued_at } else { queued_at.union(turns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::{at, held, report};
    use crate::votes::VoteOutcome;

    fn places() -> Places {
        Places::default()
    }

    fn queued(ahead: u32, holder: Option<u128>) -> Queued {
        Queued::new(ahead, holder.map(held))
    }

    fn set(nodes: &[usize]) -> NodeSet {
        nodes.iter().copied().collect()
    }

    #[test]
    fn it_asks_the_preferred_node_or_the_next_that_answers() {
        let mut places = places();
        assert_eq!(places.home(3, 5), 3);
        places.skip();
        places.skip();
        assert_eq!((places.home(3, 5), places.is_elsewhere()), (0, true));
        places.return_home();
        assert_eq!((places.home(3, 5), places.is_elsewhere()), (3, false));
    }

    #[test]
    fn w5_a_wait_leaves_the_queues_and_passes_a_turn_on_that_it_did_not_use() {
        let wait = || {
            let mut places = places();
            places.enter(1);
            places.enter(2);
            places.note_turns(set(&[2]));
            places
        };
        assert!(wait().is_queued_at(1) && !wait().is_queued_at(2));
        assert_eq!(wait().end(true), set(&[1]));
        assert_eq!(wait().end(false), set(&[1, 2]));
        let mut over = wait();
        assert_eq!(over.pass_on(), set(&[1, 2]));
        assert_eq!((over.is_out(), over.end(false)), (true, set(&[])));
    }

    #[test]
    fn w4_a_turn_is_doubted_if_others_held_the_lock() {
        let mut places = places();
        assert_eq!(places.doubt(None, at(0)), Doubt::Try, "no holder was seen");
        assert_eq!(places.doubt(Some(&queued(3, None)), at(0)), Doubt::Wait);
        assert_eq!(places.doubt(None, at(0)), Doubt::AskAnother);
        let mut resolve = |other: Option<Vote>| places.resolve(None, other.as_ref(), at(0));
        assert!(!resolve(Some(held(7).into())), "the home does not know of a lock");
        assert!(resolve(Some(Vote::Free)) && resolve(None));
    }

    #[test]
    fn w4_a_holder_is_doubted_every_two_seconds_by_the_first_in_the_queue() {
        let first = queued(0, Some(7));
        let doubting = || {
            let mut places = places();
            assert_eq!(places.doubt(Some(&first), at(0)), Doubt::Wait, "it may have just begun");
            assert_eq!(places.doubt(Some(&first), at(1_999)), Doubt::Wait);
            assert_eq!(places.doubt(Some(&first), at(2_000)), Doubt::AskAnother);
            assert_eq!(places.doubt(Some(&first), at(2_001)), Doubt::Wait);
            places
        };
        let resolve = |other: Option<Vote>| doubting().resolve(Some(&first), other.as_ref(), at(2_001));
        assert!(!resolve(Some(held(7).into())) && resolve(Some(held(8).into())));
        assert!(resolve(Some(Vote::Free)) && !resolve(None));
        let (mut places, new) = (doubting(), queued(0, Some(8)));
        assert_eq!(places.doubt(Some(&new), at(4_000)), Doubt::Wait, "another holder");
        assert_eq!(places.doubt(Some(&queued(0, Some(9))), at(6_000)), Doubt::AskAnother);
        assert!(!places.resolve(Some(&new), Some(&held(7).into()), at(6_000)), "the lock passes on");
    }

    /// As a node that lies may.
    #[test]
    fn w4_a_place_that_leads_nowhere_is_doubted_whatever_the_node_says() {
        let answers: [fn(u32) -> Queued; 4] = [
            |_| queued(7, None),
            |_| queued(0, None),
            |_| queued(1, Some(7)),
            |number| queued(0, Some(number.into())),
        ];
        let (free, is_held) = (Some(Vote::Free), Some(Vote::from(held(99))));
        for answer in answers {
            let (mut places, mut number) = (places(), 0);
            let mut goes = |millis: u64, other: &Option<Vote>| {
                number += 1;
                let (answer, now) = (answer(number), at(millis));
                let asks = places.doubt(Some(&answer), now) == Doubt::AskAnother;
                asks.then(|| places.resolve(Some(&answer), other.as_ref(), now))
            };
            assert_eq!([0, 2_000, 3_999].map(|millis| goes(millis, &free)), [None; 3]);
            assert_eq!(goes(4_000, &is_held), Some(false));
            assert_eq!([6_000, 8_000].map(|millis| goes(millis, &free)), [None, Some(false)]);
            assert_eq!(goes(10_000, &is_held), Some(false), "the lock passes on");
            assert_eq!(
                [14_000, 16_000].map(|millis| goes(millis, &free)),
                [Some(false); 2],
                "a turn is kept"
            );
            assert_eq!(goes(18_000, &None), Some(false));
            assert_eq!([18_999, 20_000].map(|millis| goes(millis, &free)), [None, Some(true)]);
            assert_eq!([22_000, 24_000].map(|millis| goes(millis, &is_held)), [Some(false), None]);
        }
    }

    #[test]
    fn each_other_node_is_asked_in_its_turn() {
        let mut places = places();
        assert_eq!([0; 5].map(|_| places.other_node(3, 5)), [4, 0, 1, 2, 4]);
        assert_eq!(places.other_node(0, 1), 0, "there is no other");
    }

    #[test]
    fn it_asks_again_when_the_key_expires_or_an_offer_would() {
        let after = |queued: &Queued, life| {
            places().asks_again_after(Some(queued), Duration::from_millis(25), life, true, 0).as_millis()
        };
        let expires = |millis| {
            let expiry = Expiry::In(Duration::from_millis(millis));
            Queued::new(0, Some(Holding::new(Token::new(7, ""), expiry)))
        };
        assert_eq!(after(&expires(300), None), 301);
        assert_eq!(after(&expires(9_000), None), 825, "its heartbeat");
        let life = Duration::from_millis(600);
        assert_eq!(after(&expires(9_000), Some(life)), (offer_heartbeat(life) * 3 / 4).as_millis());
        assert_eq!(after(&queued(0, None), None), 25, "another waiter has its turn");
    }

    #[test]
    fn it_spreads_what_it_asks_and_expects_no_offer_from_another_program() {
        let turn = Duration::from_millis(25);
        let after = |queued: &Queued, life, is_subscribed| {
            places().asks_again_after(Some(queued), turn, life, is_subscribed, u64::MAX)
        };
        let expires = |token, millis| {
            Queued::new(0, Some(Holding::new(token, Expiry::In(Duration::from_millis(millis)))))
        };
        let (ours, foreign) = (|| Token::new(7, ""), || Token::found(b"other"));
        assert_eq!(after(&expires(ours(), 300), None, true), Duration::from_millis(301) + EXPIRY_JITTER);
        let life = Duration::from_millis(600);
        assert_eq!(after(&expires(ours(), 9_000), Some(life), true), offer_heartbeat(life));
        let heartbeat = QueueHeartbeat::default().next(0, false, turn, u64::MAX);
        assert_eq!(after(&expires(foreign(), 9_000), Some(life), true), heartbeat);
        let alone = QueueHeartbeat::default().without_notice(0, u64::MAX);
        assert_eq!(after(&expires(ours(), 9_000), None, false), alone);
        let third = QueueHeartbeat::default().next(2, false, turn, u64::MAX);
        assert_eq!(after(&queued(2, None), None, true), third, "it is not told whether the lock is free");
    }

    #[test]
    fn a_wait_knows_where_it_stands_and_whether_it_has_moved() {
        let mut places = places();
        assert!(places.is_out());
        places.enter(2);
        assert!(!places.is_out() && places.is_queued_at(2));
        places.leave(set(&[2]));
        assert!(places.is_out());
        assert!(places.has_moved(3) && !places.has_moved(3) && places.has_moved(2));
        assert_eq!(places.doubt(None, at(0)), Doubt::Try);
        places.note_held(true);
        places.note_held(false);
        assert_eq!(places.doubt(None, at(0)), Doubt::AskAnother, "w4: others held it");
    }

    #[test]
    fn a_waiter_in_the_queue_asks_again_when_what_it_was_told_has_changed() {
        let report = report([VoteOutcome::Free]);
        let place =
            |queued| Place { home: 3, queued, report: report.clone(), turn: Duration::from_millis(25) };
        let (first, second, far) = (queued(0, Some(7)), queued(1, Some(7)), queued(5, None));
        let heard = |queued: &Queued, notice, is_cut_off| {
            place(Some(queued.clone())).next(notice, NodeSet::default(), is_cut_off, 3)
        };
        let next = |queued: Option<&Queued>, changed: &[usize]| {
            place(queued.cloned()).next(Notice::None, set(changed), false, 3)
        };
        assert_eq!(next(Some(&first), &[]), Next::Wait);
        assert_eq!(next(Some(&first), &[3]), Next::AskAgain, "its holder has changed the lock");
        assert_eq!(next(Some(&first), &[0, 1]), Next::Wait, "two others are no quorum");
        assert_eq!(next(Some(&first), &[0, 1, 2]), Next::AskAgain);
        assert_eq!(next(Some(&second), &[3]), Next::WaitForTurn, "the first has its turn now");
        assert_eq!(next(Some(&queued(2, None)), &[3]), Next::Wait, "the third");
        assert_eq!(next(Some(&far), &[0, 1, 2, 3]), Next::Wait);
        assert_eq!(next(None, &[3]), Next::Wait, "our own turn");
        assert_eq!(next(None, &[1]), Next::Try, "its node may have lagged");
        assert_eq!(heard(&far, Notice::None, true), Next::WaitForTurn);
        let notices = [Notice::Offer, Notice::Turn, Notice::SoonFirst];
        let urgent = notices.map(|notice| heard(&far, notice, true));
        assert_eq!(urgent, [Next::TakeOffer, Next::Try, Next::AskAgain]);
    }
}
