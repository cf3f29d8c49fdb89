//! The contract that every node must keep, in memory or real.
//!
//! One suite for all nodes: results with in-memory nodes apply to real ones only because both pass it. See
//! [`check_contract`].

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quorlock::protocol::fence_counter;
use quorlock::runtime::BoxFuture;
use quorlock::{
    node::{
        Capabilities, Capability, Durability, Expiry, Grants, HintListener, Hints, Node, Order, Request,
        Vote, ask,
    },
    protocol::{Claim, Token, is_auxiliary_key},
    runtime::Clock,
};

use crate::memory::MemoryNode;
use crate::value::Value;

mod acquire;
mod bench;
mod cancel;
mod ear;
mod fence;
mod hints;
mod listing;
mod log;
mod names;
mod offer;
mod order;
mod queue;
mod records;
mod release;
mod renew;
mod restart;
mod several;
mod shared;
mod transfer;
mod unsupported;

use bench::{Bench, Finding};
use ear::HintRecorder;
pub use records::{OfRecords, RecordStore};

/// Checks every clause of the contract, one after the other: that `node` does what it [reports](Capabilities)
/// to support, and that it refuses everything else by name.
///
/// `plant` changes data in the same server without going through the node. `clock` is the one by which the
/// node's keys expire. The clauses about hints are checked only if the node reports that hints are active:
/// use a node without an earlier listener, because some can enable hints only when they connect. Each clause
/// uses its own keys, so the server may be in use otherwise; the keys remain until their TTL expires.
///
/// # Errors
///
/// Every clause that fails, with what was found instead.
///
/// # Cancel safety
///
/// Dropping the future leaves only keys behind.
///
/// # Examples
///
/// ```
/// use quorlock::runtime::SystemClock;
/// use quorlock_testkit::{MemoryNode, contract::check_contract};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), quorlock_testkit::contract::Breach> {
/// let node = MemoryNode::new("eu-1");
/// check_contract(&node, &node, &SystemClock::default()).await
/// # }
/// ```
pub async fn check_contract(node: &dyn Node, plant: &dyn Plant, clock: &dyn Clock) -> Result<(), Breach> {
    let ear = Arc::new(HintRecorder::default());
    node.listen(Arc::clone(&ear) as Arc<dyn HintListener>);
    let mut broken = Vec::new();
    let capabilities = node.capabilities();
    for (index, clause) in clauses().iter().enumerate() {
        if !clause.needs.iter().all(|need| need.is_satisfied_by(capabilities)) {
            continue;
        }
        let bench = Bench::new(node, plant, clock, &ear, index);
        let found = clause.check(&bench).await;
        if bench.impossible.load(Ordering::Relaxed) {
            plant.skipped(&clause.to_string());
        } else if let Err(finding) = found {
            broken.push((*clause, finding));
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(Breach { node: node.name().to_owned(), broken }) }
}

/// Another client of a server: changes data without going through the node under test.
pub trait Plant: Send + Sync {
    /// Stores `value` under `key`, which is free. If the store has nothing of that kind, such as a list in a store without
    /// types, this fails with [`Unsupported`](io::ErrorKind::Unsupported), and the clause is [skipped](Plant::skipped).
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>>;

    /// Returns the name under which the store keeps the fencing counter of the lock at `key`, which begins with `prefix`.
    fn counter(&self, prefix: &str, key: &str) -> String {
        fence_counter(prefix, key)
    }

    /// Called for each clause that is skipped because the store cannot have what the clause plants there, or this cannot
    /// restart or restore it. Prints its name unless overridden.
    fn skipped(&self, clause: &str) {
        eprintln!("skipped, because there is no such data or no such way to change the store: {clause}");
    }

    /// Deletes `key`.
    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>>;

    /// Returns when `key` expires, if it exists.
    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>>;

    /// Stops the server and starts it again, as a crash of its host would. If this fails with
    /// [`Unsupported`](io::ErrorKind::Unsupported), which is the default, the clauses about restarts are
    /// skipped.
    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }

    /// Makes a backup of the data and puts it in their place, as an operator would, while the node is in use. If
    /// this fails with [`Unsupported`](io::ErrorKind::Unsupported), which is the default, the clause about it is
    /// skipped.
    fn restore(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }
}

/// Plants through the node itself, for a store that has no other client here: only what a lock can be.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: a node")]
pub struct ByRequests<N>(pub N);

impl<N: Node> Plant for ByRequests<N> {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let (Value::Text(token), Expiry::In(ttl)) = (value, expiry) else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let claim = Arc::new(Claim::new(key.into(), Token::found(&token)));
            let request = Request::Acquire { claim, ttl, fence_hint: None };
            let vote = ask(&self.0, request).await.map_err(io::Error::other)?.vote;
            if vote == Vote::Granted { Ok(()) } else { Err(io::Error::other(format!("{vote:?}"))) }
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            if is_auxiliary_key(key) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let found = ask(&self.0, Request::inspect(key)).await.map_err(io::Error::other)?;
            if let Vote::Held(holding) = found.vote {
                let claim = Arc::new(Claim::new(key.into(), holding.token));
                ask(&self.0, Request::Release { claim }).await.map_err(io::Error::other)?;
            }
            Ok(())
        })
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(async move {
            if is_auxiliary_key(key) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let found = ask(&self.0, Request::inspect(key)).await.map_err(io::Error::other)?;
            Ok(if let Vote::Held(holding) = found.vote { Some(holding.expiry) } else { None })
        })
    }
}

impl Plant for MemoryNode {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        self.set_data(key, value, expiry);
        Box::pin(std::future::ready(Ok(())))
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        MemoryNode::remove(self, key);
        Box::pin(std::future::ready(Ok(())))
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(std::future::ready(Ok(MemoryNode::expiry(self, key))))
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        match self.capabilities().durability {
            Durability::Durable => self.restart_with_data(),
            Durability::Volatile | _ => self.restart_empty(),
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The clauses that a node breaks.
#[derive(Clone, Debug)]
pub struct Breach {
    node: String,
    broken: Vec<(Clause, String)>,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (broken, all) = (self.broken.len(), clauses().len());
        write!(f, "node {} breaks {broken} of {all} clauses of the contract", self.node)?;
        for (clause, finding) in &self.broken {
            write!(f, "\n- {clause}: {finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Breach {}

/// A clause of the contract: a sentence, and its check.
#[derive(Clone, Copy)]
pub(crate) struct Clause {
    name: &'static str,
    /// What the node must support for the clause to be checked.
    needs: &'static [Need],
    check: for<'a> fn(&'a Bench<'a>) -> BoxFuture<'a, Finding>,
}

impl Clause {
    fn check<'a>(&self, bench: &'a Bench<'a>) -> BoxFuture<'a, Finding> {
        (self.check)(bench)
    }
}

/// A requirement of a clause.
#[derive(Clone, Copy)]
enum Need {
    Shared,
    Several,
    Queue,
    Transfer,
    Offer,
    Log,
    /// Requests are executed in the order in which they were asked.
    Order,
    /// The client that asks first for a free lock gets it.
    AnyGrants,
    /// Waiters are served in the order in which they entered the queue.
    FirstCome,
    /// Hints about removals.
    Hints,
    /// Hints about expiries.
    ExpiryHints,
    /// Hints to holders that have renewed.
    HolderHints,
}

impl Need {
    fn is_satisfied_by(self, node: Capabilities) -> bool {
        match self {
            Need::Shared => node.has(Capability::Shared),
            Need::Several => node.has(Capability::Several),
            Need::Queue => node.has(Capability::Queue),
            Need::Transfer => node.has(Capability::Transfer),
            Need::Offer => node.has(Capability::Offer),
            Need::Log => node.has(Capability::Log),
            Need::AnyGrants => node.grants == Grants::Any,
            Need::FirstCome => node.grants == Grants::FirstCome,
            Need::Order => node.order == Order::PerKey,
            Need::Hints => node.hints != Hints::None,
            Need::ExpiryHints => node.hints == Hints::RemovalAndExpiry,
            Need::HolderHints => node.hints_to_holders,
        }
    }
}

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name.replace('_', " "))
    }
}

impl fmt::Debug for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! list {
    ($($module:ident::$name:ident $([$($need:ident),+])?,)*) => {
        &[$(Clause {
            name: stringify!($name),
            needs: &[$($(Need::$need),+)?],
            check: |bench| Box::pin($module::$name(bench)),
        },)*]
    };
}

/// All clauses. A new clause is one function and one line here, with its requirements.
#[expect(clippy::too_many_lines, reason = "a list")]
fn clauses() -> &'static [Clause] {
    list![
        acquire::a_free_key_is_granted,
        acquire::a_held_key_is_refused_with_its_holder_and_its_remaining_time,
        acquire::the_own_token_is_granted_again_and_not_prolonged,
        acquire::of_two_concurrent_requests_one_is_granted,
        acquire::a_key_expires_and_not_before_its_time,
        acquire::data_without_expiry_is_held_forever,
        acquire::a_key_of_the_wrong_type_fails_until_it_is_deleted,
        renew::a_renewal_prolongs_the_own_key,
        renew::a_renewal_never_shortens,
        renew::a_renewal_restores_a_missing_key_and_says_so,
        renew::a_renewal_of_a_foreign_key_is_refused_and_changes_nothing,
        renew::a_renewal_gives_an_expiry_to_a_key_without_one,
        release::a_release_frees_the_own_key,
        release::a_release_leaves_a_foreign_key,
        release::a_release_of_a_missing_key_says_that_it_is_free,
        release::a_release_reports_waiting_clients_once [Queue],
        release::an_inspection_changes_nothing,
        cancel::a_cancellation_frees_the_own_key,
        cancel::a_late_acquisition_of_a_cancelled_attempt_does_nothing,
        cancel::a_late_renewal_of_a_cancelled_attempt_does_nothing,
        cancel::a_cancellation_leaves_a_foreign_key_and_still_stops_its_own_attempt,
        cancel::a_cancellation_stops_no_other_attempt,
        cancel::a_tombstone_expires,
        cancel::a_late_transfer_to_a_cancelled_attempt_does_nothing [Transfer],
        transfer::a_transfer_passes_the_key_on_from_its_holder [Transfer],
        transfer::a_transfer_from_a_stranger_is_refused_and_changes_nothing [Transfer],
        transfer::a_transfer_takes_a_free_key [Transfer],
        transfer::a_transfer_asked_twice_is_granted_twice [Transfer],
        transfer::a_transfer_restarts_the_ttl [Transfer],
        queue::waiters_are_served_in_order_of_arrival [Queue, AnyGrants],
        queue::waiters_are_served_in_order_of_entry [Queue, FirstCome],
        queue::a_silent_waiter_loses_its_place [Queue, FirstCome],
        queue::undoing_an_attempt_is_no_waiters_turn [Queue],
        queue::the_first_two_waiters_learn_the_holder [Queue],
        queue::a_place_grants_nothing [Queue],
        queue::a_silent_waiter_is_skipped_after_its_patience [Queue],
        queue::a_turn_that_is_not_taken_goes_to_the_next [Queue],
        queue::a_release_without_waiters_ends_the_turn [Queue, AnyGrants],
        queue::the_first_may_keep_its_turn [Queue],
        queue::a_release_of_several_notifies_the_first_waiter_of_each [Queue, Several],
        queue::the_last_reader_notifies_the_first_waiter [Queue, Shared],
        queue::leaving_a_turn_notifies_the_next_waiter [Queue],
        queue::a_waiter_that_left_is_not_notified [Queue],
        queue::a_plain_acquisition_ignores_the_queue [Queue, AnyGrants],
        queue::a_plain_acquisition_does_not_pass_the_queue [Queue, FirstCome],
        queue::a_place_is_taken_by_its_own_attempt [Queue, FirstCome],
        queue::no_key_is_restored_before_a_waiter [Queue, FirstCome],
        queue::several_places_are_taken_together [Queue, FirstCome, Several],
        queue::positions_far_from_the_front_are_not_distinguished [Queue],
        offer::an_offer_replaces_the_own_token_and_is_sent_with_its_number [Offer],
        offer::an_offer_without_fencing_draws_nothing [Offer],
        offer::an_offer_to_an_inbox_without_a_listener_is_a_release [Offer],
        offer::an_offer_of_what_is_not_held_changes_nothing [Offer],
        queue::waiters_are_listed [Queue],
        offer::waiters_that_accept_offers_are_listed_with_their_contexts [Offer, Queue],
        offer::a_dead_waiter_is_skipped_if_its_inbox_has_no_listener [Offer, Queue],
        offer::a_holder_learns_the_first_waiter_in_the_queue [Offer, Queue],
        offer::a_holder_learns_that_a_waiter_has_seen_another_program [Offer, Queue],
        offer::a_waiter_with_an_offer_learns_the_next_waiter [Offer, Queue],
        offer::the_second_is_asked_to_ask_again_when_its_last_request_is_old [Offer, Queue],
        offer::a_waiter_with_the_turn_learns_the_next_waiter [Offer, Queue],
        log::a_log_has_the_latest_holds_in_the_order_in_which_they_came [Log],
        log::a_log_expires_and_is_no_lock [Log],
        listing::stored_keys_are_listed_by_their_prefix,
        listing::a_shared_key_is_listed_once [Shared],
        listing::more_keys_than_fit_on_a_page_are_listed,
        listing::keys_with_waiters_are_listed [Queue],
        hints::a_removal_by_another_client_notifies_refused_clients [Hints],
        hints::a_removal_by_another_client_notifies_a_holder_that_has_renewed [HolderHints],
        hints::a_removal_notifies_the_first_in_the_queue [Queue, Hints],
        hints::a_turn_is_notified_by_the_change_of_a_key [Queue, Hints],
        hints::an_expiry_notifies_refused_clients [ExpiryHints],
        fence::each_holder_draws_a_larger_number,
        fence::a_number_is_one_more_than_the_larger_of_counter_and_hint,
        fence::the_time_of_the_node_takes_the_place_of_a_hint_beyond_the_lead,
        fence::a_refused_acquisition_reports_the_counter_and_draws_nothing,
        fence::a_refused_acquisition_never_lowers_the_counter,
        fence::an_inspection_reports_what_was_drawn_for_the_holder,
        fence::an_inspection_reports_the_number_of_a_restored_holder,
        fence::asking_again_with_the_own_token_draws_a_larger_number,
        fence::locks_of_a_slot_share_a_counter_below_their_prefix,
        fence::a_transfer_draws_a_larger_number [Transfer],
        fence::a_write_back_raises_the_counter_for_the_holder,
        fence::a_write_back_where_the_counter_is_not_below_is_refused,
        fence::a_write_back_by_a_stranger_or_after_the_release_changes_nothing,
        fence::a_restored_key_raises_the_counter_to_the_number_of_its_lease,
        fence::a_renewal_that_finds_its_key_leaves_the_counter,
        fence::a_counter_never_expires,
        fence::an_inspection_leaves_the_counter,
        fence::numbers_are_exact_until_the_last,
        fence::a_counter_that_is_no_number_fails_and_leaves_no_key,
        fence::without_fencing_only_the_key_is_stored,
        fence::a_refused_plain_acquisition_reports_the_holder_and_leaves_no_mark,
        shared::readers_share_a_lock_and_keep_every_writer_out [Shared],
        shared::readers_without_fencing_share_a_lock_too [Shared],
        shared::a_writer_keeps_readers_out_and_is_named [Shared],
        shared::every_reader_has_its_own_expiry [Shared],
        shared::the_expiry_follows_the_remaining_readers [Shared],
        shared::expired_readers_exclude_no_client [Shared],
        shared::the_own_share_is_granted_again_and_not_prolonged [Shared],
        shared::a_renewal_of_a_share_prolongs_it_and_never_shortens [Shared],
        shared::a_renewal_restores_a_missing_share_and_says_so [Shared],
        shared::a_share_is_lost_with_the_marker [Shared],
        shared::the_renewal_of_a_share_makes_a_reader_of_a_writer [Shared],
        shared::the_release_of_a_share_frees_what_is_still_held_alone [Shared],
        shared::late_requests_of_a_cancelled_share_do_nothing [Shared],
        shared::an_intent_keeps_new_readers_out_and_lets_the_others_renew [Shared],
        shared::an_intent_expires_and_another_one_stays [Shared],
        shared::a_removal_notifies_a_refused_reader [Shared, Hints],
        shared::a_removal_notifies_a_writer_that_was_refused_by_readers [Shared, Hints],
        shared::every_reader_draws_a_larger_number [Shared],
        shared::a_writer_that_becomes_a_reader_leaves_a_larger_number [Shared],
        shared::a_write_back_counts_for_every_reader [Shared],
        shared::a_restored_share_raises_the_counter_to_its_number [Shared],
        several::several_free_locks_are_granted_together [Several],
        several::several_locks_without_fencing_store_only_their_keys [Several],
        several::of_several_locks_one_that_is_held_keeps_all_and_is_named [Several],
        several::several_locks_exclude_clients_that_want_one_of_them [Several, Shared],
        several::readers_of_one_keep_several_locks [Shared, Several],
        several::several_own_locks_are_granted_again_and_not_prolonged [Several],
        several::several_locks_expire [Several],
        several::a_renewal_of_several_prolongs_each_and_never_shortens [Several],
        several::a_renewal_restores_the_one_of_several_that_is_gone_and_says_so [Several],
        several::a_renewal_changes_none_of_several_if_another_client_holds_one [Several],
        several::a_release_frees_those_of_several_that_are_ours [Several],
        several::a_release_of_several_reports_refused_clients_once [Several],
        several::late_requests_of_several_that_were_cancelled_do_nothing [Several],
        several::what_was_cancelled_at_one_of_several_is_not_restored [Several],
        several::a_removal_notifies_clients_that_were_refused_several [Several, Hints],
        several::several_locks_draw_one_number_above_that_of_each [Several],
        several::a_write_back_of_several_raises_every_counter [Several],
        several::a_write_back_counts_for_none_of_several_where_one_is_lost [Several],
        several::several_restored_locks_raise_every_counter [Several],
        several::a_key_of_the_wrong_type_fails_several_and_leaves_none [Several],
        several::a_counter_that_is_no_number_fails_several_and_leaves_no_key [Several],
        several::sixty_four_locks_are_held_and_released [Several],
        names::tokens_are_reported_byte_for_byte,
        names::any_key_can_be_locked_and_cancelled,
        names::keys_that_look_alike_are_different_keys,
        order::five_hundred_concurrent_requests_are_executed_in_order [Order],
        order::a_request_is_executed_after_its_caller_is_gone [Order],
        order::every_answer_names_the_same_history,
        unsupported::what_it_cannot_do_is_refused_by_name_and_changes_nothing,
        restart::after_a_restart_all_is_remembered_or_the_history_is_a_new_one,
        restart::what_is_durable_survives_a_restart,
        restart::a_restored_backup_is_a_new_history_to_connected_clients_too,
    ]
}
