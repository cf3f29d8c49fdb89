//! The leases of this process: one for each TTL, shared by all its keys, and those of tombstones. None is ever revoked, since
//! other keys share it; one that is not kept alive expires.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Reason;
use quorlock::node::places::Connection;
use quorlock::protocol::Moment;
use quorlock::runtime::{Clock, Mutex};

use crate::client::{Client, LARGEST};
use crate::error::Failure;
use crate::wire::{Grant, LeaseId, LeaseLife, TimeToLive, TimeToLiveResponse};

/// The shortest lease that etcd grants with its default election timeout.
pub(crate) const LEAST: Duration = Duration::from_secs(2);
/// A grant or a renewal counts from a keep-alive that was sent at most this part of the TTL ago. Renewals are due after a third,
/// so each proves more than the one before it, and those of many locks share their keep-alives.
const FRESH: u32 = 10;

/// Returns by how much a grant or a renewal may count from before it was asked for.
pub(crate) fn grant_age(ttl: Duration) -> Duration {
    ttl / FRESH
}

/// The leases of a node. They survive its connections.
#[derive(Default)]
pub(crate) struct Leases {
    /// By the TTL in seconds.
    classes: Mutex<HashMap<u64, Arc<Class>>>,
    /// By the time in seconds for which late requests are refused.
    tombs: tokio::sync::Mutex<HashMap<u64, (i64, Moment)>>,
}

/// The lease of all keys with one TTL.
#[derive(Default)]
pub(crate) struct Class {
    alive: tokio::sync::Mutex<Option<Alive>>,
}

struct Alive {
    id: i64,
    /// When the last confirmed keep-alive, or the grant, was sent.
    sent: Moment,
    /// When the last confirmed keep-alive was sent that was followed by a list of the keys.
    listed_from: Moment,
    /// When that list was asked for.
    listed_at: Moment,
    listed: Listed,
    /// How many keys may have been attached since.
    attached: usize,
}

/// The longest key of ours. What is on a lease is put there by this process.
const LONGEST_KEY: usize = 2 << 10;

impl Alive {
    /// Returns how large the list of its keys may be.
    fn largest_list(&self) -> usize {
        (self.listed.len().saturating_add(self.attached)).saturating_mul(LONGEST_KEY).saturating_add(LARGEST)
    }
}

/// A lease to attach a key to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attached {
    pub(crate) lease: i64,
    /// From when its TTL counts.
    pub(crate) from: Moment,
    /// Its TTL in seconds.
    pub(crate) class: u64,
}

/// A connection over which leases are asked for.
#[derive(Clone, Copy)]
pub(crate) struct Link<'a> {
    pub(crate) client: &'a Client,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) connection: &'a Connection,
}

impl Link<'_> {
    /// Fails if the connection has ended. One that is silent is found out by one request, and not again by each that has waited
    /// for that one: those of the next connection wait behind them.
    fn check(&self) -> Result<(), Failure> {
        self.connection
            .ended()
            .map_or(Ok(()), |ended| Err(Failure::Unsent(Reason::new(format!("{ended:#}")))))
    }
}

/// The keys on a lease.
pub(crate) type Listed = Arc<HashSet<Vec<u8>>>;

/// What a heartbeat says of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beat {
    /// It is stored, and its lease was kept alive from then on.
    Confirmed(Moment),
    /// It is gone, or its lease is.
    Gone,
}

/// Returns the TTL of a lease in seconds, for a key that must live for `ttl`.
fn seconds(ttl: Duration) -> u64 {
    let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    whole.max(LEAST.as_secs())
}

fn whole(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

impl Leases {
    fn class(&self, seconds: u64) -> Arc<Class> {
        Arc::clone(self.classes.lock().entry(seconds).or_default())
    }

    /// Returns a lease for a key that is to live for `ttl`.
    pub(crate) async fn attach(&self, link: Link<'_>, ttl: Duration) -> Result<Attached, Failure> {
        self.attach_since(link, ttl, grant_age(ttl)).await
    }

    /// The same, kept alive at most `age` ago.
    pub(crate) async fn attach_since(
        &self,
        link: Link<'_>,
        ttl: Duration,
        age: Duration,
    ) -> Result<Attached, Failure> {
        let Link { client, clock, .. } = link;
        let class = seconds(ttl);
        let shared = self.class(class);
        let mut alive = shared.alive.lock().await;
        link.check()?;
        let now = clock.now();
        if let Some(known) = &mut *alive
            && now.since(known.sent) > age
        {
            if keep_alive(client, known.id, class).await? {
                known.sent = now;
            } else {
                *alive = None;
            }
        }
        let known = if let Some(known) = &mut *alive {
            known
        } else {
            let sent = clock.now();
            let id = grant(client, class).await?;
            let listed = Listed::default();
            alive.insert(Alive { id, sent, listed_from: sent, listed_at: sent, listed, attached: 0 })
        };
        known.attached = known.attached.saturating_add(1);
        Ok(Attached { lease: known.id, from: known.sent, class })
    }

    /// Returns whether the key, which was stored at `put`, is still there, by a heartbeat that is recent enough for this
    /// TTL. One heartbeat, and one list of the keys on the lease, serves all of them; the list is returned, too, if it is new.
    pub(crate) async fn beat(
        &self,
        link: Link<'_>,
        class: u64,
        ttl: Duration,
        (key, put): (&[u8], Moment),
    ) -> Result<(Beat, Option<Listed>), Failure> {
        let Link { client, clock, .. } = link;
        let shared = self.class(class);
        let mut alive = shared.alive.lock().await;
        let Some(known) = &mut *alive else { return Ok((Beat::Gone, None)) };
        let is_recent = clock.now().since(known.listed_from) <= grant_age(ttl);
        if is_recent && known.listed.contains(key) {
            return Ok((Beat::Confirmed(known.listed_from), None));
        }
        if is_recent && put < known.listed_at {
            return Ok((Beat::Gone, None));
        }
        link.check()?;
        let sent = clock.now();
        if !keep_alive(client, known.id, class).await? {
            // Answered by a TTL of zero, not by an error.
            *alive = None;
            return Ok((Beat::Gone, None));
        }
        let listed_at = clock.now();
        let asked = TimeToLive { id: known.id, keys: true };
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        let found: TimeToLiveResponse = client.call_for(path, asked, known.largest_list()).await?;
        if found.ttl <= 0 {
            *alive = None;
            return Ok((Beat::Gone, None));
        }
        (known.sent, known.listed_from, known.listed_at) = (sent, sent, listed_at);
        let listed: Listed = Arc::new(found.keys.into_iter().collect());
        (known.listed, known.attached) = (Arc::clone(&listed), 0);
        let beat = if listed.contains(key) { Beat::Confirmed(sent) } else { Beat::Gone };
        Ok((beat, Some(listed)))
    }

    /// Returns what the last heartbeat says of the key, if that is recent enough for this TTL and has listed it.
    pub(crate) fn last_beat(
        &self,
        clock: &dyn Clock,
        class: u64,
        ttl: Duration,
        key: &[u8],
    ) -> Option<Moment> {
        let shared = Arc::clone(self.classes.lock().get(&class)?);
        let alive = shared.alive.try_lock().ok()?;
        let known = alive.as_ref()?;
        let is_recent = clock.now().since(known.listed_from) <= grant_age(ttl);
        (is_recent && known.listed.contains(key)).then_some(known.listed_from)
    }

    /// Forgets a lease that etcd does not know.
    pub(crate) async fn forget(&self, gone: Attached) {
        let shared = self.class(gone.class);
        let mut alive = shared.alive.lock().await;
        alive.take_if(|known| known.id == gone.lease);
    }

    /// Returns a lease that ends no earlier than `linger` from now, and is not kept alive.
    pub(crate) async fn tomb(&self, link: Link<'_>, linger: Duration) -> Result<i64, Failure> {
        let class = seconds(linger);
        let mut tombs = self.tombs.lock().await;
        let now = link.clock.now();
        if let Some((lease, until)) = tombs.get(&class)
            && now < *until
        {
            return Ok(*lease);
        }
        link.check()?;
        let lease = grant(link.client, class.saturating_mul(2)).await?;
        // As long again as it has to last; and the clocks of two machines differ.
        let until = now + Duration::from_secs(class) * 9 / 10;
        tombs.insert(class, (lease, until));
        Ok(lease)
    }

    /// Forgets the leases of tombstones, one of which etcd does not know.
    pub(crate) async fn forget_tombs(&self) {
        self.tombs.lock().await.clear();
    }
}

/// Asks for a lease of this many seconds, or more.
pub(crate) async fn grant(client: &Client, seconds: u64) -> Result<i64, Failure> {
    let asked = Grant { ttl: whole(seconds) };
    let life: LeaseLife = client.call("/etcdserverpb.Lease/LeaseGrant", asked).await?;
    lasts(&life, seconds)?;
    Ok(life.id)
}

/// Keeps a lease of this many seconds alive. Returns whether it had not ended.
async fn keep_alive(client: &Client, id: i64, seconds: u64) -> Result<bool, Failure> {
    let life: LeaseLife = client.first("/etcdserverpb.Lease/LeaseKeepAlive", LeaseId { id }).await?;
    if life.ttl > 0 {
        lasts(&life, seconds)?;
    }
    Ok(life.ttl > 0)
}

/// Refuses a lease that ends earlier than was asked for: what depends on it would be trusted for too long.
fn lasts(life: &LeaseLife, seconds: u64) -> Result<(), Failure> {
    if life.ttl >= whole(seconds) {
        return Ok(());
    }
    let words = format!("etcd grants a lease of {} s where one of {seconds} s was asked for", life.ttl);
    Err(Failure::Lost(Reason::new(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_shorter_than_was_asked_for_is_refused_with_both_times() {
        let of = |ttl| lasts(&LeaseLife { id: 1, ttl }, 30);
        assert!(of(30).is_ok() && of(31).is_ok());
        let error = quorlock::node::NodeError::from(of(29).unwrap_err()).to_string();
        assert!(error.contains("a lease of 29 s where one of 30 s"), "{error}");
    }
}
