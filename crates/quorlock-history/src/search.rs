//! Can operations that overlapped in time have happened one after the other? The search of Wing
//! and Gong with the memory of Lowe ("Testing for linearizability", 2017).

use std::collections::{BTreeSet, HashSet};

use crate::stamp::Stamp;

/// Something that took effect at one moment between its call and its return.
pub(crate) struct Operation {
    pub(crate) call: Stamp,
    pub(crate) returned: Stamp,
    pub(crate) step: Step,
    /// Which hold it begins or ends.
    pub(crate) hold: usize,
}

/// What it did to the mutex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Took the free mutex; a fencing token has to be larger than the last one.
    Acquire { fencing_token: Option<u64> },
    /// Took a share of it while nobody had it alone; a fencing token has to be larger than the last one
    /// of those who did.
    Share { fencing_token: Option<u64> },
    /// Kept a share of what it had alone.
    Downgrade,
    /// Gave it back, or its share.
    Release,
}

/// No order explains everything. The best one places so many operations, and cannot place this one
/// next, although it has to.
pub(crate) struct Stuck<'operations> {
    pub(crate) placed: usize,
    pub(crate) operation: &'operations Operation,
}

/// It would have taken more steps than allowed: nobody knows.
pub(crate) struct GaveUp;

#[derive(Clone, Default)]
struct Mutex {
    holder: Option<usize>,
    sharing: BTreeSet<usize>,
    /// Of those who had it alone.
    last_alone: u64,
    /// Of all.
    last_token: u64,
}

impl Step {
    /// The same, whatever its fencing token.
    pub(crate) fn without_token(self) -> Step {
        match self {
            Step::Acquire { .. } => Step::Acquire { fencing_token: None },
            Step::Share { .. } => Step::Share { fencing_token: None },
            Step::Downgrade | Step::Release => self,
        }
    }
}

impl Mutex {
    /// The mutex after the operation, if it can happen now.
    fn after(&self, operation: &Operation) -> Option<Mutex> {
        let mut after = self.clone();
        let larger = |token: Option<u64>, than: u64| token.is_none_or(|token| token > than);
        let possible = match operation.step {
            Step::Acquire { fencing_token } => {
                let token = fencing_token.unwrap_or(self.last_token);
                (after.last_alone, after.last_token) =
                    (token.max(self.last_alone), token.max(self.last_token));
                let is_free = self.holder.is_none() && self.sharing.is_empty();
                after.holder = Some(operation.hold);
                is_free && larger(fencing_token, self.last_token)
            }
            Step::Share { fencing_token } => {
                after.last_token = self.last_token.max(fencing_token.unwrap_or_default());
                after.sharing.insert(operation.hold);
                self.holder.is_none() && larger(fencing_token, self.last_alone)
            }
            Step::Downgrade => {
                after.holder = None;
                after.sharing.insert(operation.hold);
                self.holder == Some(operation.hold)
            }
            Step::Release if self.holder == Some(operation.hold) => {
                after.holder = None;
                true
            }
            Step::Release => after.sharing.remove(&operation.hold),
        };
        possible.then_some(after)
    }
}

/// Looks for an order, in at most `steps` steps; `None` if there is one. The operations have to be
/// sorted by their call.
///
/// No set of operations is placed twice, in whatever order. The state needs no remembering, because
/// the set determines it. What is remembered of a set is a hash of 128 bits: a search of 10⁷ steps
/// takes one set for another with a probability of 10⁻²⁴.
pub(crate) fn search(operations: &[Operation], steps: u64) -> Result<Option<Stuck<'_>>, GaveUp> {
    let mut open = Open::all(operations.len());
    let mut placed: Vec<(usize, Mutex)> = Vec::new();
    let mut mutex = Mutex::default();
    let mut set = 0;
    let mut known: HashSet<u128> = HashSet::new();
    let mut best: Option<Stuck<'_>> = None;
    let mut left = steps;

    loop {
        // Whatever returned first has to be placed before anything that was called afterwards.
        let mut urgent: Option<&Operation> = None;
        let mut next = None;
        for (index, operation) in open.iter().filter_map(|index| Some((index, operations.get(index)?))) {
            if urgent.is_some_and(|urgent| urgent.returned < operation.call) {
                break;
            }
            if urgent.is_none_or(|urgent| operation.returned < urgent.returned) {
                urgent = Some(operation);
            }
            left = left.checked_sub(1).ok_or(GaveUp)?;
            if let Some(after) = mutex.after(operation)
                && known.insert(set ^ code(index))
            {
                next = Some((index, after));
                break;
            }
        }
        let Some(urgent) = urgent else { return Ok(None) };
        if let Some((index, after)) = next {
            placed.push((index, std::mem::replace(&mut mutex, after)));
            set ^= code(index);
            open.lift(index);
            continue;
        }
        if best.as_ref().is_none_or(|best| best.placed < placed.len()) {
            best = Some(Stuck { placed: placed.len(), operation: urgent });
        }
        let Some((index, before)) = placed.pop() else { return Ok(best) };
        (mutex, set) = (before, set ^ code(index));
        open.put_back(index);
    }
}

/// 128 bits that stand for one operation (the finaliser of `SplitMix64`, twice).
fn code(index: usize) -> u128 {
    let mix = |seed: u64| {
        let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    };
    let index = index as u64;
    u128::from(mix(2 * index + 1)) << 64 | u128::from(mix(2 * index + 2))
}

/// The operations not placed yet, in order: a list in which each element knows its neighbours, so
/// that taking one out and putting it back, last out first in, costs the same for any length.
/// Elements count from 1; 0 is both ends.
struct Open {
    next: Vec<usize>,
    previous: Vec<usize>,
}

#[expect(clippy::indexing_slicing, reason = "every link is a position in both vectors")]
impl Open {
    fn all(count: usize) -> Open {
        Open {
            next: (1..=count).chain([0]).collect(),
            previous: std::iter::once(count).chain(0..count).collect(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let following = |&element: &usize| Some(self.next[element]).filter(|&next| next != 0);
        std::iter::successors(following(&0), following).map(|element| element - 1)
    }

    fn lift(&mut self, index: usize) {
        let (previous, next) = (self.previous[index + 1], self.next[index + 1]);
        self.next[previous] = next;
        self.previous[next] = previous;
    }

    fn put_back(&mut self, index: usize) {
        let (previous, next) = (self.previous[index + 1], self.next[index + 1]);
        self.next[previous] = index + 1;
        self.previous[next] = index + 1;
    }
}
