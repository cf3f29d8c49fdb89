//! Linearizability: whether operations that overlapped in time can have happened one after the other. The
//! search of Wing and Gong with Lowe's memoization ("Testing for linearizability", 2017).

use std::collections::{BTreeSet, HashSet};

use crate::stamp::Stamp;

/// An operation that took effect at one moment between its call and its return.
pub(crate) struct Operation {
    pub(crate) call: Stamp,
    pub(crate) returned: Stamp,
    pub(crate) step: Step,
    /// The hold that it begins or ends.
    pub(crate) hold: usize,
}

/// Its effect on the mutex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Took the free mutex; a fencing token must be larger than the last one.
    Acquire { fencing_token: Option<u64> },
    /// Took a share while there was no exclusive holder; a fencing token must be larger than the
    /// last exclusive holder's.
    Share { fencing_token: Option<u64> },
    /// Turned an exclusive hold into a share.
    Downgrade,
    /// Released the mutex, or a share of it.
    Release,
}

/// No order explains all operations. The longest places `placed` of them, and cannot place this one
/// next although it must come next.
pub(crate) struct Stuck<'operations> {
    pub(crate) placed: usize,
    pub(crate) operation: &'operations Operation,
}

/// The search exceeded the allowed number of steps; the result is unknown.
pub(crate) struct GaveUp;

#[derive(Clone, Default)]
struct Mutex {
    holder: Option<usize>,
    sharing: BTreeSet<usize>,
    /// The last token of an exclusive holder.
    last_alone: u64,
    /// The last token of any holder.
    last_token: u64,
}

impl Step {
    /// The same step without its fencing token.
    pub(crate) fn without_token(self) -> Step {
        match self {
            Step::Acquire { .. } => Step::Acquire { fencing_token: None },
            Step::Share { .. } => Step::Share { fencing_token: None },
            Step::Downgrade | Step::Release => self,
        }
    }
}

impl Mutex {
    /// Returns the mutex after the operation, if it is possible now.
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

/// Searches for an order in at most `steps` steps; `None` if there is one. The operations must be
/// sorted by their call.
///
/// No set of operations is placed twice, in whatever order; the set determines the state. Sets are remembered
/// as 128-bit hashes: a search of 10⁷ steps confuses two of them with a probability of 10⁻²⁴.
pub(crate) fn search(operations: &[Operation], steps: u64) -> Result<Option<Stuck<'_>>, GaveUp> {
    // The operations not placed yet, in order.
    let mut open: BTreeSet<usize> = (0..operations.len()).collect();
    let mut placed: Vec<(usize, Mutex)> = Vec::new();
    let mut mutex = Mutex::default();
    let mut set = 0;
    let mut known: HashSet<u128> = HashSet::new();
    let mut best: Option<Stuck<'_>> = None;
    let mut left = steps;

    loop {
        // The earliest return must be placed before anything that was called after it.
        let mut urgent: Option<&Operation> = None;
        let mut next = None;
        for (index, operation) in open.iter().filter_map(|index| Some((*index, operations.get(*index)?))) {
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
            open.remove(&index);
            continue;
        }
        if best.as_ref().is_none_or(|best| best.placed < placed.len()) {
            best = Some(Stuck { placed: placed.len(), operation: urgent });
        }
        let Some((index, before)) = placed.pop() else { return Ok(best) };
        (mutex, set) = (before, set ^ code(index));
        open.insert(index);
    }
}

/// Hashes one operation to 128 bits (the finalizer of `SplitMix64`, twice).
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
