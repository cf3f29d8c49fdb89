//! Judges of a history.

use std::collections::BTreeMap;

use quorlock::protocol::Mode;

use crate::world::Time;

/// What a judge needs to know.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// Somebody has got a lock, and is inside until it has ended or cannot rely on it any more.
    Granted { hold: usize, client: usize, resources: Vec<usize>, token: Vec<u8>, mode: Mode },
    /// What it has got is one of a semaphore's permits, of which it believes that there are so many.
    Permit { hold: usize, semaphore: usize, of: usize },
    /// From here on others may share it.
    Shared { hold: usize },
    /// It may rely on it at this moment, and until then.
    Confirmed { hold: usize, until: Time },
    /// It does so no longer.
    Ended { hold: usize },
}

/// Sees what happens in order, with the real time, and says what is wrong with it.
pub(crate) trait Oracle {
    fn see(&mut self, now: Time, happening: &Happening) -> Option<String>;
}

/// No two are certain to hold a lock at the same moment of real time, unless both share it. Epsilon is zero: there is
/// one time here.
#[derive(Debug, Default)]
pub(crate) struct Exclusion {
    inside: BTreeMap<usize, Inside>,
}

#[derive(Debug)]
struct Inside {
    client: usize,
    resources: Vec<usize>,
    token: Vec<u8>,
    mode: Mode,
    until: Time,
}

impl Oracle for Exclusion {
    fn see(&mut self, now: Time, happening: &Happening) -> Option<String> {
        match happening {
            Happening::Granted { hold, client, resources, token, mode } => {
                let (client, resources, token, mode) = (*client, resources.clone(), token.clone(), *mode);
                self.inside.insert(*hold, Inside { client, resources, token, mode, until: now });
                None
            }
            Happening::Permit { .. } => None,
            Happening::Shared { hold } => {
                self.inside.get_mut(hold)?.mode = Mode::Shared;
                None
            }
            Happening::Confirmed { hold, until } => {
                let me = self.inside.get_mut(hold)?;
                me.until = me.until.max(*until);
                let me = self.inside.get(hold)?;
                // Whoever entered again has the same token.
                let other = self.inside.iter().find(|(_, other)| {
                    let both_share = me.mode == Mode::Shared && other.mode == Mode::Shared;
                    other.resources.iter().any(|resource| me.resources.contains(resource))
                        && other.token != me.token
                        && other.until > now
                        && !both_share
                });
                let (number, other) = other?;
                Some(format!(
                    "clients {} (hold {hold}) of {:?} and {} (hold {number}) of {:?} both hold",
                    me.client, me.resources, other.client, other.resources
                ))
            }
            Happening::Ended { hold } => {
                self.inside.remove(hold);
                None
            }
        }
    }
}

/// No more are certain to hold permits of a semaphore at the same moment than it has, and no two who
/// differ about how many that is.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    holders: BTreeMap<usize, Holder>,
}

#[derive(Debug)]
struct Holder {
    semaphore: usize,
    of: usize,
    until: Time,
}

impl Oracle for Permits {
    fn see(&mut self, now: Time, happening: &Happening) -> Option<String> {
        match happening {
            Happening::Permit { hold, semaphore, of } => {
                self.holders.insert(*hold, Holder { semaphore: *semaphore, of: *of, until: now });
            }
            Happening::Confirmed { hold, until } => {
                let me = self.holders.get_mut(hold)?;
                me.until = me.until.max(*until);
                let me = self.holders.get(hold)?;
                let inside: Vec<_> = self
                    .holders
                    .iter()
                    .filter(|(_, other)| other.semaphore == me.semaphore && other.until > now)
                    .collect();
                if let Some((number, other)) = inside.iter().find(|(_, other)| other.of != me.of) {
                    return Some(format!(
                        "hold {hold} is one of {} permits of s{}, and hold {number} one of {}",
                        me.of, me.semaphore, other.of
                    ));
                }
                if inside.len() > me.of {
                    return Some(format!("{} hold the {} permits of s{}", inside.len(), me.of, me.semaphore));
                }
            }
            Happening::Ended { hold } => {
                self.holders.remove(hold);
            }
            Happening::Granted { .. } | Happening::Shared { .. } => {}
        }
        None
    }
}
