use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::history::{Event, History, What};
use crate::hold::{Ending, Hold, Permit};
use crate::names::{Client, Resource, Token};
use crate::stamp::Stamp;
use crate::violation::{Flaw, Violation};

/// Returns every hold, grouped by resource, in the order in which the attempts began. Inconsistent
/// events are skipped; [`check`](crate::check) reports them.
#[must_use]
pub fn holds(history: &History) -> Vec<Hold> {
    let (attempts, _) = Attempts::of(&history.in_order());
    attempts.holds().into_values().flatten().collect()
}

/// Everything recorded about one attempt and the lease it returned.
pub(crate) struct Attempt {
    pub(crate) client: Client,
    pub(crate) resource: Resource,
    /// Further resources it locks together with `resource`.
    pub(crate) also: Vec<Resource>,
    pub(crate) token: Token,
    pub(crate) invoked: Stamp,
    /// When it became a shared (reader) hold, if it did.
    pub(crate) shared: Option<Stamp>,
    /// The number of permits the client believes the semaphore has.
    pub(crate) one_of: Option<usize>,
    /// The permit number it got.
    pub(crate) number: Option<usize>,
    pub(crate) not_acquired: Option<Stamp>,
    pub(crate) lease: Option<Lease>,
    /// When the client crashed, if it did after the attempt began.
    pub(crate) crashed: Option<Stamp>,
}

/// What was recorded about a lease.
pub(crate) struct Lease {
    pub(crate) acquired: Stamp,
    pub(crate) fencing_token: Option<u64>,
    /// Each deadline with the time it took effect: first at acquisition, then at each renewal.
    pub(crate) deadlines: Vec<(Stamp, Stamp)>,
    pub(crate) seen_valid: Vec<Stamp>,
    pub(crate) releasing: Option<Stamp>,
    pub(crate) released: Option<Stamp>,
    pub(crate) reported: Option<Stamp>,
}

impl Lease {
    fn new(acquired: Stamp, deadline: Stamp, fencing_token: Option<u64>) -> Lease {
        Lease {
            acquired,
            fencing_token,
            deadlines: vec![(acquired, deadline)],
            seen_valid: Vec::new(),
            releasing: None,
            released: None,
            reported: None,
        }
    }

    /// Returns the deadline after the last renewal.
    pub(crate) fn deadline(&self) -> Stamp {
        self.deadlines.last().map_or(self.acquired, |&(_, deadline)| deadline)
    }

    /// Returns the deadline in effect at `at`.
    pub(crate) fn deadline_at(&self, at: Stamp) -> Stamp {
        let in_force = self.deadlines.iter().take_while(|&&(since, _)| since <= at).last();
        in_force.map_or(self.acquired, |&(_, deadline)| deadline)
    }
}

impl Attempt {
    /// Whether it locks this resource.
    pub(crate) fn is_of(&self, resource: &Resource) -> bool {
        self.resource == *resource || self.also.contains(resource)
    }

    /// Returns the hold, if the attempt returned a lease.
    pub(crate) fn hold(&self) -> Option<Hold> {
        let lease = self.lease.as_ref()?;
        let deadline = lease.deadline();
        let endings = [
            (lease.releasing, Ending::Released),
            (lease.reported, Ending::Lost),
            (self.crashed, Ending::Crashed),
            (Some(deadline), Ending::Lapsed),
        ];
        let (end, ending) = endings.into_iter().filter_map(|(at, ending)| Some((at?, ending))).min()?;
        Some(Hold {
            client: self.client.clone(),
            resource: self.resource.clone(),
            attempt: self.token.clone(),
            invoked: self.invoked,
            shared: self.shared,
            permit: self.one_of.map(|of| Permit { of, number: self.number }),
            acquired: lease.acquired,
            deadline,
            end,
            ending,
            fencing_token: lease.fencing_token,
        })
    }
}

impl Attempt {
    /// Whether it returned a lease, or that there is none.
    pub(crate) fn has_returned(&self) -> bool {
        self.lease.is_some() || self.not_acquired.is_some()
    }

    /// When the attempt and its lease had ended and the client knew it.
    pub(crate) fn over(&self) -> Option<Stamp> {
        let lease = self.lease.as_ref();
        let endings = [
            self.not_acquired,
            lease.and_then(|lease| lease.released),
            lease.and_then(|lease| lease.reported),
        ];
        endings.into_iter().flatten().min()
    }
}

/// All attempts of a history, in the order in which they began.
#[derive(Default)]
pub(crate) struct Attempts {
    list: Vec<Attempt>,
    index: HashMap<Token, usize>,
}

impl Attempts {
    /// Groups time-ordered events by attempt and reports the inconsistent ones: a broken recorder
    /// must not look like a correct lock.
    pub(crate) fn of(events: &[&Event]) -> (Attempts, Vec<Violation>) {
        let mut attempts = Attempts::default();
        let mut flaws = Vec::new();
        for event in events {
            if let Err((attempt, flaw)) = attempts.take(event) {
                flaws.push(Violation::Flawed { at: event.at, attempt, flaw });
            }
        }
        (attempts, flaws)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Attempt> {
        self.list.iter()
    }

    pub(crate) fn get(&self, token: &Token) -> Option<&Attempt> {
        self.index.get(token).and_then(|&index| self.list.get(index))
    }

    /// Returns the holds of each resource, in the order in which their attempts began.
    pub(crate) fn holds(&self) -> BTreeMap<Resource, Vec<Hold>> {
        let mut holds: BTreeMap<Resource, Vec<Hold>> = BTreeMap::new();
        for (attempt, hold) in self.iter().filter_map(|attempt| Some((attempt, attempt.hold()?))) {
            for resource in &attempt.also {
                let hold = Hold { resource: resource.clone(), ..hold.clone() };
                holds.entry(resource.clone()).or_default().push(hold);
            }
            holds.entry(hold.resource.clone()).or_default().push(hold);
        }
        holds
    }

    fn take(&mut self, event: &Event) -> Result<(), (Token, Flaw)> {
        let at = event.at;
        match &event.what {
            What::Invoked { client, resource, attempt } => self.invoke(at, client, resource, attempt),
            What::Acquired { attempt, deadline, fencing_token } => {
                let open = self.open(attempt)?;
                open.lease = Some(Lease::new(at, *deadline, *fencing_token));
                Ok(())
            }
            What::Wants { attempt, resource } => {
                self.open(attempt)?.also.push(resource.clone());
                Ok(())
            }
            What::Shares { attempt } => once(&mut self.known(attempt)?.shared, at, attempt),
            What::OneOf { attempt, permits } => once(&mut self.known(attempt)?.one_of, *permits, attempt),
            What::Permit { attempt, number } => once(&mut self.known(attempt)?.number, *number, attempt),
            What::NotAcquired { attempt } => {
                self.open(attempt)?.not_acquired = Some(at);
                Ok(())
            }
            What::Renewed { attempt, deadline } => {
                self.lease(attempt)?.deadlines.push((at, *deadline));
                Ok(())
            }
            What::SeenValid { attempt } => {
                self.lease(attempt)?.seen_valid.push(at);
                Ok(())
            }
            What::Releasing { attempt } => once(&mut self.lease(attempt)?.releasing, at, attempt),
            What::Released { attempt } => once(&mut self.lease(attempt)?.released, at, attempt),
            What::Lost { attempt, .. } => once(&mut self.lease(attempt)?.reported, at, attempt),
            What::Wrote { attempt, .. } => self.known(attempt).map(drop),
            What::Crashed { client } => {
                let of_client = self.list.iter_mut().filter(|attempt| attempt.client == *client);
                of_client.for_each(|attempt| attempt.crashed = attempt.crashed.or(Some(at)));
                Ok(())
            }
            What::Clocks { .. }
            | What::Observed { .. }
            | What::Key { .. }
            | What::Counter { .. }
            | What::Forgot { .. }
            | What::Repeated
            | What::FaultBegan { .. }
            | What::FaultHealed { .. } => Ok(()),
        }
    }

    fn invoke(
        &mut self,
        at: Stamp,
        client: &Client,
        resource: &Resource,
        token: &Token,
    ) -> Result<(), (Token, Flaw)> {
        if self.index.contains_key(token) {
            return Err((token.clone(), Flaw::Twice));
        }
        self.index.insert(token.clone(), self.list.len());
        self.list.push(Attempt {
            client: client.clone(),
            resource: resource.clone(),
            also: Vec::new(),
            token: token.clone(),
            invoked: at,
            shared: None,
            one_of: None,
            number: None,
            not_acquired: None,
            lease: None,
            crashed: None,
        });
        Ok(())
    }

    fn known(&mut self, token: &Token) -> Result<&mut Attempt, (Token, Flaw)> {
        let index = self.index.get(token).copied();
        index.and_then(|index| self.list.get_mut(index)).ok_or_else(|| (token.clone(), Flaw::NeverInvoked))
    }

    /// Returns an attempt that has not returned yet.
    fn open(&mut self, token: &Token) -> Result<&mut Attempt, (Token, Flaw)> {
        let attempt = self.known(token)?;
        if attempt.has_returned() { Err((token.clone(), Flaw::Twice)) } else { Ok(attempt) }
    }

    fn lease(&mut self, token: &Token) -> Result<&mut Lease, (Token, Flaw)> {
        self.known(token)?.lease.as_mut().ok_or_else(|| (token.clone(), Flaw::NotHeld))
    }
}

fn once<T>(field: &mut Option<T>, what: T, token: &Token) -> Result<(), (Token, Flaw)> {
    match field.replace(what) {
        None => Ok(()),
        Some(earlier) => {
            *field = Some(earlier);
            Err((token.clone(), Flaw::Twice))
        }
    }
}

/// Returns the largest clock error recorded in the history.
pub(crate) fn epsilon(events: &[&Event]) -> Duration {
    let bound = |event: &&Event| if let What::Clocks { epsilon } = event.what { Some(epsilon) } else { None };
    events.iter().filter_map(bound).max().unwrap_or_default()
}
