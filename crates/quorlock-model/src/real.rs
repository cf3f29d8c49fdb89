//! The engine that ships: `quorlock_protocol::machine` asks nodes that keep the record that ships, in every order of
//! requests, answers, losses, timeouts, crashes and calls that are given up.
//!
//! Nothing here decides what a vote means, which number is written back, what a claim leaves behind, or what a waiter
//! does next: [`Attempt`], [`Round`], [`Undo`], [`Retention`] and [`Contest`] do. What the engine still does around them is in `client`. A rule of the shipped code is broken
//! by changing what goes in or out.
//!
//! A request is on its way for a few ticks at most. When its connection is lost, it may still arrive until then, in any
//! order, or never, and the client learns of all of them simultaneously. A tombstone outlives them (rule I-5).
//!
//! The machine has many more states than the reduced models, which say the same of more attempts, of drift and of
//! clocks that jump: here are small worlds, and random walks through larger ones.
//!
//! | file | contents |
//! |---|---|
//! | `client` | what the engine does around the machines |
//! | `node` | a store: the record, and requests that it carries out |
//! | `client/retain` | a lock that its holder leaves taken |
//! | `client/wait` | a client that waits in the queue of a node |
//! | `steps` | what may happen, and its effects |
//! | `digest` | when two states are the same |
//! | `story` | steps as sentences |
//!
//! [`Attempt`]: quorlock_protocol::machine::Attempt
//! [`Contest`]: quorlock_protocol::machine::wait::Contest
//! [`Retention`]: quorlock_protocol::machine::Retention
//! [`Round`]: quorlock_protocol::machine::Round
//! [`Undo`]: quorlock_protocol::machine::Undo

mod client;
mod digest;
mod node;
mod steps;
mod story;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Drift, Moment};
use stateright::{Model, Property, Representative};

use crate::walk::Wander;
use client::Client;
use client::retain::{self, Slot};
use client::wait;
use node::{Node, what};
pub(crate) use steps::Step;
use steps::{Link, Note, Stray};

const EXCLUSIVE: &str = "no two hold the lock at the same time";
const UNBROKEN: &str = "no other client has the lock during a lease";
const IN_ORDER: &str = "fencing tokens grow in the order of the leases";
const FREE: &str = "what was given back stays free";
const BEHIND: &str = "no request that may store a claim follows the one that takes it back";
const GOES_ON: &str = "nothing that is due is left undone";
const GIVEN_BACK: &str = "a lease may be given back";
const RENEWED: &str = "a lease may be renewed";
const PASSED: &str = "a lease may be passed on";
const ONCE: &str = "no other runs in a confirmed slot";
const CONFIRMED: &str = "a slot may be confirmed";
const FOLLOWED: &str = "another may run when the slot is over";
const STRANDED: &str = "waiters are never stranded";
const PASSED_OVER: &str = "no waiter is passed over more than once by each of the others";
const OPEN: &str = "no turn outlives the release of its waiter";
const SERVED: &str = "every client may get the lock";
const LATE: &str = "a request may arrive after everything was given back";

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// The validity counts from the votes (I-7).
    FromVotes,
    /// The validity of a renewal counts from its answers (I-7).
    FromAnswers,
    /// One vote less is enough (I-2).
    SmallQuorum,
    /// The votes of a restarted node count immediately (I-12).
    NoQuarantine,
    /// A number is handed out which no quorum carries (F-4).
    NoWriteBack,
    /// A call that is given up takes nothing back (I-20).
    NoUndo,
    /// A claim in an unknown state is released without a tombstone (I-5, I-40).
    OnlyReleased,
    /// An unknown state is forgotten once the node has answered a later request (I-40).
    Forgotten,
    /// A granted transfer leaves nothing to take back (I-40).
    TransferSettles,
    /// A transfer replaces whatever token a node has.
    AnyKey,
    /// One confirmation of a transfer is enough, because the previous holder had a quorum.
    FewConfirm,
    /// A lease that was passed on counts from its votes (I-7).
    PassedFromVotes,
    /// The previous holder goes on until the next lease has begun (I-21).
    Overlapping,
    /// A vote does not look for the tombstone in the same step (I-41).
    NoLook,
    /// The client learns of a lost connection request by request, and decides in between (I-5).
    OneByOne,
    /// A lock that is left taken is released first, and then asked for again.
    ReleaseFirst,
    /// One confirmation is enough to leave a lock taken, because its holder had a quorum.
    FewRetain,
    /// A lock may be left taken after the end of its lease.
    RetainsLate,
    /// The nodes keep the token of no process for one TTL.
    OneTtl,
    /// Renewals in an unknown state are not stopped when a lock was left taken (I-40).
    NotStopped,
    /// A renewal that was in flight when a lock was left taken or passed on is taken for carried out by the answer to
    /// another request, which may have taken another connection (I-40, R-13).
    NotSettled,
    /// They are stopped before, which deletes the lease's token.
    StopsFirst,
    /// A waiter asks for a place once, and then only listens (W-5).
    NoHeartbeat,
    /// A turn lasts until it is taken (W-5).
    EndlessTurn,
    /// A waiter that gives up its turn does not notify the next, and none asks again (W-5).
    TurnNotLeft,
    /// The first client has no place.
    NoPlace,
    /// A release leaves the turn of the waiter that has released (W-5).
    TurnOutlivesRelease,
}

/// What a server does when a client reconnects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Server {
    /// Nothing: requests in flight on earlier connections are carried out when they arrive.
    Patient,
    /// It ends the earlier connections before the first request.
    EndsEarlier,
}

/// What may still happen, each this often.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Left {
    losses: u8,
    crashes: u8,
    restarts: u8,
    give_ups: u8,
    renewals: u8,
    passes: u8,
    retains: u8,
    /// A waiter does not hear that it is its turn.
    unheard: u8,
    /// A tick passes in which a client does not do what is due.
    pauses: u8,
}

/// The bounds, in ticks.
#[derive(Clone, Debug)]
pub(crate) struct Real {
    scheme: Scheme,
    server: Server,
    clients: usize,
    nodes: usize,
    /// How often the first client wants the lock, and how often the others.
    goals: u8,
    others: u8,
    ttl: u8,
    /// For how long a lock is left taken.
    slot: u8,
    /// For how long a request may be on its way.
    delay: u16,
    left: Left,
    /// Whether answers take time; otherwise they come immediately, or are lost.
    slow: bool,
    /// Whether clients that are refused wait in the queue of a node; otherwise they give up.
    waits: bool,
}

const TICK: Duration = Duration::from_secs(1);
/// In ticks: what was before makes no difference.
const LONG_AGO: u16 = 12;

#[derive(Clone, Debug)]
pub(crate) struct State {
    now: u16,
    clients: Vec<Arc<Client>>,
    nodes: Vec<Arc<Node>>,
    /// The connection of each client to each node.
    links: Vec<Link>,
    /// Requests whose connection is lost.
    strays: Vec<Stray>,
    /// Messages to waiters.
    notes: Vec<Note>,
    /// For how many ticks no node has had a holder, although a client waits.
    idle: u16,
    left: Left,
    /// The largest number of a lease.
    number: u64,
    /// A property that a step has violated.
    violated: Option<&'static str>,
    digest: u64,
}

fn moment(tick: u16) -> Moment {
    // Some moments count the origin as never.
    Moment::since_origin(TICK * (u32::from(tick) + 100))
}

impl Real {
    fn ttl(&self) -> Duration {
        TICK * self.ttl.into()
    }

    /// The longest TTL of any client, for which a tombstone stays and a restarted node does not vote. Nothing is on its way for as long.
    fn max_ttl(&self) -> Duration {
        2 * self.ttl().max(TICK * self.delay.into())
    }

    fn drift() -> Drift {
        Drift::of(0.0).unwrap_or_default()
    }

    /// Clients and nodes agree about it.
    fn wall(&self, now: u16) -> Duration {
        // Only nodes that forget their counters need a clock.
        if self.left.restarts > 0 { Duration::from_millis(1) * u32::from(now) } else { Duration::ZERO }
    }

    /// Whether a lease is interrupted: another client was granted the lock since, or will be.
    fn is_interrupted(&self, state: &State, index: usize) -> bool {
        let Some(held) = state.clients[index].lease(state.now) else { return false };
        let own = held.name();
        let others =
            state.nodes.iter().filter(|node| node.is_first()).filter_map(|node| node.holder(state.now));
        let mut count = [0; 256];
        others.filter(|other| *other != own).for_each(|other| count[usize::from(other)] += 1);
        held.interrupted || count.iter().any(|votes| *votes > self.nodes / 2)
    }

    /// Whether a node has a key that it must not have any more.
    fn is_left_behind(&self, state: &State) -> bool {
        let mut ended = state.clients.iter().flat_map(|client| &client.ended);
        ended.any(|ended| {
            let is_late = state.now >= ended.since + u16::from(self.ttl) + self.delay;
            let must_be_gone = |(node, _): &(usize, &Arc<Node>)| is_late || ended.gone.contains(*node);
            let mut nodes = state.nodes.iter().enumerate().filter(must_be_gone);
            nodes.any(|(_, node)| node.holder(state.now) == Some(ended.name))
        })
    }
}

impl Model for Real {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let goals = |index| if index == 0 { self.goals } else { self.others };
        let client = |index| Arc::new(Client::new(index, goals(index)));
        vec![State {
            now: LONG_AGO,
            clients: (0..self.clients).map(client).collect(),
            nodes: (0..self.nodes).map(|node| Arc::new(Node::new(node))).collect(),
            links: vec![Link::default(); self.clients * self.nodes],
            strays: Vec::new(),
            notes: Vec::new(),
            idle: 0,
            left: self.left,
            number: 0,
            violated: None,
            digest: 0,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.possible(state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, step)?;
        next.digest = self.digest(&next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Real>> {
        let mut properties = vec![
            Property::<Real>::always(EXCLUSIVE, |_, state| {
                state.clients.iter().map(|client| client.count_leases(state.now)).sum::<usize>() <= 1
            }),
            Property::<Real>::always(UNBROKEN, |model, state| {
                !(0..model.clients).any(|client| model.is_interrupted(state, client))
            }),
            Property::<Real>::always(IN_ORDER, |_, state| state.violated != Some(IN_ORDER)),
            Property::<Real>::always(FREE, |model, state| !model.is_left_behind(state)),
            Property::<Real>::always(BEHIND, |_, state| state.violated != Some(BEHIND)),
            Property::<Real>::always(ONCE, |_, state| {
                let is_broken = |slot: Slot| slot.is_confirmed && slot.is_shared;
                !state.clients.iter().any(|client| client.slot.is_some_and(is_broken))
            }),
            Property::<Real>::always(GOES_ON, |_, state| state.violated != Some(GOES_ON)),
        ];
        if self.waits {
            properties.extend(wait::properties());
        } else {
            properties.push(Property::<Real>::sometimes(GIVEN_BACK, |_, state| {
                state.number > 0 && state.clients.iter().any(|client| !client.ended.is_empty())
            }));
        }
        if self.left.renewals > 0 {
            properties.push(Property::<Real>::sometimes(RENEWED, |_, state| {
                state.clients.iter().filter_map(|client| client.lease(state.now)).any(|held| held.renewed)
            }));
        }
        if self.left.passes > 0 {
            properties.push(Property::<Real>::sometimes(PASSED, |_, state| {
                state.clients.iter().filter_map(|client| client.lease(state.now)).any(|held| held.passed)
            }));
        }
        if self.left.retains > 0 {
            properties.extend(retain::examples());
        }
        if self.left.losses > 0 && self.server == Server::Patient {
            properties.push(Property::<Real>::sometimes(LATE, |_, state| {
                let may_store = |stray: &Stray| what(&stray.sent.request).stores;
                state.clients.iter().all(|client| client.is_idle()) && state.strays.iter().any(may_store)
            }));
        }
        properties
    }

    fn format_step(&self, state: &State, step: Step) -> Option<String> {
        Some(self.describe(state, step))
    }
}

impl Wander for Real {
    fn weight(&self, step: &Step) -> u32 {
        match step {
            Step::Arrive(_) | Step::Answer(_) | Step::Hear(_) => 12,
            Step::Tick | Step::Due(_) | Step::Acquire(_) | Step::ArriveLate(_) => 4,
            Step::Release(_) | Step::Renew(_) | Step::PassOn(_) | Step::Retain(_) => 3,
            Step::GiveUp(_) | Step::Lose(..) | Step::Miss(_) | Step::Crash(_) | Step::Restart(_) => 1,
        }
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.digest);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.digest == other.digest
    }
}

/// The digest does not depend on the names of the nodes.
impl Representative for State {
    fn representative(&self) -> State {
        self.clone()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes, {} clients, and no request", self.nodes.len(), self.clients.len())
    }
}

impl Real {
    fn calm(clients: usize) -> Real {
        Real {
            scheme: Scheme::Quorlock,
            server: Server::Patient,
            clients,
            nodes: 3,
            goals: 1,
            others: 1,
            ttl: 2,
            slot: 3,
            delay: 1,
            left: Left::default(),
            slow: false,
            waits: false,
        }
    }

    fn with(self, left: Left) -> Real {
        Real { left, ..self }
    }

    /// All that may happen.
    fn wide() -> Real {
        let left = Left {
            losses: 3,
            crashes: 1,
            restarts: 1,
            give_ups: 2,
            renewals: 4,
            passes: 3,
            retains: 1,
            pauses: 2,
            ..Left::default()
        };
        Real { nodes: 5, goals: 3, others: 3, ttl: 3, delay: 2, left, slow: true, ..Real::calm(3) }
    }
}

cases! {
    holds prove the_shipped_machine_excludes_another_client: Real::calm(2);
    holds prove a_client_of_the_shipped_machine_may_crash:
        Real::calm(2).with(Left { crashes: 1, ..Left::default() });
    holds prove a_released_lock_stays_free_whatever_arrives_late: Real { goals: 2, ..given_up(1) };
    holds prove a_lease_is_renewed_and_given_back_while_connections_are_lost:
        Real::calm(1).with(Left { losses: 2, renewals: 1, ..Left::default() });
    holds prove a_lease_is_passed_on_while_a_connection_is_lost: passed_on();
    holds walk(5_000) a_lease_that_is_passed_on_excludes_other_clients: passed_beside_another();
    holds prove a_server_that_ends_earlier_connections_needs_no_tombstones:
        Real { scheme: Scheme::NoLook, server: Server::EndsEarlier, ..given_up(2) };
    holds walk(2_000) three_clients_of_the_shipped_machine_on_five_nodes_at_random: Real::wide();
    violated hunt an_unknown_claim_that_is_only_released_comes_back:
        Real { scheme: Scheme::OnlyReleased, ..given_up(1) };
    violated hunt an_unknown_claim_forgotten_after_a_later_answer_comes_back:
        Real { scheme: Scheme::Forgotten, ..Real::calm(1).with(Left { losses: 1, renewals: 1, ..Left::default() }) };
    violated hunt an_unknown_claim_left_by_a_transfer_comes_back:
        Real { scheme: Scheme::TransferSettles, ..passed_on() };
    violated hunt a_transfer_that_overwrites_any_key_makes_two_holders:
        Real { scheme: Scheme::AnyKey, ..passed_beside_another() };
    violated hunt a_transfer_that_a_minority_confirms_makes_two_holders:
        Real { scheme: Scheme::FewConfirm, ..passed_beside_another() };
    violated hunt a_passed_lease_that_counts_from_its_votes_makes_two_holders:
        Real { scheme: Scheme::PassedFromVotes, ..passed_beside_another() };
    violated hunt a_lease_that_goes_on_while_the_next_one_begins_makes_two_holders:
        Real { scheme: Scheme::Overlapping, ..passed_beside_another() };
    violated hunt a_vote_that_ignores_the_tombstone_comes_back: Real { scheme: Scheme::NoLook, ..given_up(1) };
    violated hunt a_call_that_is_given_up_and_takes_nothing_back_leaves_a_key:
        Real { scheme: Scheme::NoUndo, ..given_up(1) };
    violated hunt a_lease_that_counts_from_its_votes_overlaps_the_next:
        Real { scheme: Scheme::FromVotes, ..Real::calm(2) };
    violated hunt a_vote_less_than_a_quorum_lets_a_second_client_in:
        Real { scheme: Scheme::SmallQuorum, ..Real::calm(2) };
    violated hunt a_restarted_node_that_votes_at_once_lets_a_second_client_in:
        Real { scheme: Scheme::NoQuarantine, ..Real::calm(2).with(Left { restarts: 1, ..Left::default() }) };
    violated walk(50_000) a_number_that_no_quorum_carries_is_handed_out_again:
        Real { scheme: Scheme::NoWriteBack, goals: 2, others: 2, ..Real::calm(2) };
    violated walk(100_000) a_renewal_that_counts_from_its_answers_overlaps_the_next_lease:
        Real { scheme: Scheme::FromAnswers, ..renewed() };
    violated walk(50_000) a_lost_connection_that_is_reported_request_by_request_leaves_a_key:
        Real { scheme: Scheme::OneByOne, ..Real::wide() };
    holds prove a_slot_that_was_confirmed_has_one_run: retained();
    holds prove a_lost_renewal_does_not_take_the_lock_again_after_the_slot: renewed_and_retained();
    violated hunt a_host_that_releases_first_and_retains_then_lets_another_run_in_between:
        Real { scheme: Scheme::ReleaseFirst, nodes: 1, ..retained() };
    violated hunt a_slot_that_a_minority_confirms_has_two_runs:
        Real { scheme: Scheme::FewRetain, delay: 2, ..retained() };
    violated hunt a_slot_that_is_confirmed_after_the_end_of_the_lease_has_two_runs:
        Real { scheme: Scheme::RetainsLate, nodes: 1, ..retained() };
    violated hunt a_slot_that_is_kept_for_one_ttl_has_two_runs:
        Real { scheme: Scheme::OneTtl, nodes: 1, ..retained() };
    violated walk(50_000) a_slot_that_only_a_quorum_has_is_run_again_when_one_node_forgets_it:
        Real { others: 3, ttl: 1, slot: 12, ..retained().with(Left { retains: 1, losses: 1, restarts: 1, ..Left::default() }) };
    violated hunt a_lost_renewal_that_is_not_cancelled_takes_the_lock_after_the_slot:
        Real { scheme: Scheme::NotStopped, ..renewed_and_retained() };
    violated hunt a_renewal_taken_for_carried_out_by_the_answer_on_another_connection_comes_back:
        Real { scheme: Scheme::NotSettled, ..renewed_and_retained() };
    violated hunt a_renewal_that_is_cancelled_before_the_slot_is_certain_lets_another_run:
        Real { scheme: Scheme::StopsFirst, ..renewed_and_retained() };
    holds prove live_waiters_are_never_stranded_by_crashes_and_lost_messages:
        waiting(3, Left { crashes: 1, unheard: 1, ..Left::default() });
    holds prove a_waiter_in_the_queue_is_passed_over_once_by_each_other_at_most:
        Real { others: 2, ..waiting(3, Left::default()) };
    holds walk(2_000) three_clients_wait_in_the_queues_of_three_nodes_at_random: waiting_widely();
    violated hunt without_heartbeats_waiters_behind_a_crashed_one_are_stranded:
        Real { scheme: Scheme::NoHeartbeat, ..waiting(2, Left { crashes: 1, ..Left::default() }) };
    violated hunt a_turn_that_never_expires_strands_waiters_behind_a_crashed_one:
        Real { scheme: Scheme::EndlessTurn, ..waiting(2, Left { crashes: 1, ..Left::default() }) };
    violated hunt a_turn_given_up_without_a_hint_strands_waiters_that_only_listen:
        Real { scheme: Scheme::TurnNotLeft, ..waiting(2, Left { give_ups: 1, ..Left::default() }) };
    violated hunt a_waiter_without_a_place_is_passed_over_again_and_again:
        Real { scheme: Scheme::NoPlace, others: 3, ..waiting(2, Left::default()) };
    violated hunt a_turn_that_outlives_the_release_of_its_waiter_keeps_others_from_a_free_lock:
        Real { scheme: Scheme::TurnOutlivesRelease, ..waiting(2, Left::default()) };
    nightly prove nightly_live_waiters_are_never_stranded_by_two_crashes_and_a_lost_message:
        waiting(3, Left { crashes: 2, give_ups: 1, unheard: 1, ..Left::default() });
    nightly prove nightly_two_others_come_back_twice: Real { others: 3, ..waiting(3, Left::default()) };
    nightly walk(50_000) nightly_three_clients_wait_in_the_queues_of_three_nodes: waiting_widely();
    nightly prove nightly_two_clients_and_a_lost_connection:
        Real::calm(2).with(Left { losses: 1, ..Left::default() });
    nightly prove nightly_two_clients_one_of_which_gives_up:
        Real::calm(2).with(Left { give_ups: 1, ..Left::default() });
    nightly prove nightly_two_clients_and_a_renewal: Real::calm(2).with(Left { renewals: 1, ..Left::default() });
    nightly prove nightly_two_clients_and_a_node_that_restarts:
        Real::calm(2).with(Left { restarts: 1, ..Left::default() });
    nightly prove nightly_a_lease_is_passed_on_while_another_client_wants_the_lock: passed_beside_another();
    nightly prove nightly_a_lost_renewal_and_a_longer_slot: Real { slot: 3, delay: 4, ..renewed_and_retained() };
    nightly walk(100_000) nightly_a_renewal_lost_on_one_of_three_nodes_and_a_slot:
        Real { nodes: 3, delay: 2, ..renewed_and_retained() };
    nightly prove nightly_two_renewals_and_three_lost_connections:
        Real::calm(1).with(Left { losses: 3, renewals: 2, ..Left::default() });
    nightly walk(150_000) nightly_three_clients_of_the_shipped_machine_on_five_nodes: Real::wide();
}

/// Callers give up, and connections are lost.
fn given_up(losses: u8) -> Real {
    Real::calm(1).with(Left { losses, give_ups: 1, ..Left::default() })
}

fn passed_on() -> Real {
    Real { goals: 2, ..Real::calm(1).with(Left { losses: 1, passes: 1, ..Left::default() }) }
}

fn renewed() -> Real {
    Real { slow: true, ..Real::calm(2).with(Left { renewals: 1, ..Left::default() }) }
}

fn passed_beside_another() -> Real {
    Real { goals: 2, ..Real::calm(2).with(Left { passes: 1, ..Left::default() }) }
}

fn retained() -> Real {
    Real::calm(2).with(Left { retains: 1, ..Left::default() })
}

/// A renewal may arrive after the slot.
fn renewed_and_retained() -> Real {
    let left = Left { retains: 1, renewals: 1, losses: 1, ..Left::default() };
    Real { nodes: 1, slot: 2, delay: 3, ..Real::calm(2).with(left) }
}

/// Clients wait in the queue of one node.
fn waiting(clients: usize, left: Left) -> Real {
    Real { nodes: 1, delay: 0, waits: true, ..Real::calm(clients).with(left) }
}

/// Some come back, and requests take time.
fn waiting_widely() -> Real {
    let left = Left { crashes: 1, give_ups: 1, unheard: 1, ..Left::default() };
    Real { nodes: 3, goals: 2, others: 2, delay: 1, ..waiting(3, left) }
}
