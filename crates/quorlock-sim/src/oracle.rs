//! Oracles: checks that run during the simulation.

use std::collections::BTreeMap;

use quorlock::protocol::Mode;

use crate::world::Time;

/// The events that an oracle sees.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// A client acquired a lock, and may hold it until it ends or the confirmed validity is over.
    Granted { hold: usize, client: usize, resources: Vec<usize>, token: Vec<u8>, mode: Mode },
    /// The lock is one of a semaphore's `of` permits, as its holder believes.
    Permit { hold: usize, semaphore: usize, of: usize },
    /// The hold is shared from now on.
    Shared { hold: usize },
    /// The hold was confirmed as valid now, and until then.
    Confirmed { hold: usize, until: Time },
    /// The hold ended.
    Ended { hold: usize },
}

/// Sees the events in order, with the true time, and returns a violation.
pub(crate) trait Oracle {
    fn see(&mut self, now: Time, happening: &Happening) -> Option<String>;
}

/// No two clients certainly hold a lock at the same moment of true time, unless both share it.
/// There is a single time here, so epsilon is zero.
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
                // A reentrant acquisition has the same token.
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

/// A semaphore never certainly has more holders than permits, nor holders that disagree about the
/// number of permits.
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
                        "hold {hold} is one of {} permits of s{}, but hold {number} is one of {}",
                        me.of, me.semaphore, other.of
                    ));
                }
                if inside.len() > me.of {
                    return Some(format!(
                        "{} holders of the {} permits of s{}",
                        inside.len(),
                        me.of,
                        me.semaphore
                    ));
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
