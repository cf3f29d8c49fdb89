//! The options of a lock that is to be acquired, the same wherever one is.

use std::iter;
use std::time::Duration;

use quorlock::{Coordinator, Fencing, Lock, Semaphore, Wait, duration};

use super::{DeploymentArgs, Switch, WaitArg};
use crate::config::Settings;
use crate::exit;
use crate::failure::Failure;
use crate::wanted::Wanted;

/// How to acquire a lock, and for how long to keep it.
#[derive(clap::Args)]
#[command(next_help_heading = "Lock")]
pub(crate) struct LockArgs {
    /// Do not wait for whoever holds the lock: the same as --wait 0s
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,
    /// How long to wait for the lock, or `forever` [default: 35s].
    ///
    /// It bounds the wait for other holders, after which the exit code is 75, and that for a quorum of
    /// the nodes to answer, after which it is 69. That comes early where waiting cannot help: if nodes
    /// have to be reconfigured first, as with a wrong password, or have restarted and do not vote
    /// before the end of the wait.
    #[arg(short, long, value_name = "DURATION")]
    wait: Option<WaitArg>,
    /// For how long the nodes keep the lock if it is not renewed, which happens every third of it
    /// [default: 30s]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// The exit code when somebody else holds the lock
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::HELD)]
    pub(crate) conflict_exit_code: u8,
    /// End the lock, and what runs under it, after this long [default: never]
    #[arg(long, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// Share the lock with other readers. Writers, without this, have it alone
    #[arg(long)]
    shared: bool,
    /// Lock this as well, all or none of them; repeatable, up to 64 in all
    #[arg(long, value_name = "RESOURCE", conflicts_with = "shared")]
    also: Vec<String>,
    /// Whether nodes that restarted recently may not vote [default: on]
    #[arg(long, hide_short_help = true, value_name = "WHETHER")]
    restart_guard: Option<Switch>,
    /// Whether the holder gets a fencing token, for the guarded resource to check; off stores
    /// nothing but the lock at the nodes
    #[arg(long, hide_short_help = true, value_name = "WHETHER", default_value = "on")]
    fencing: Switch,
    /// What others read of this holder, after host and process
    #[arg(long, default_value = "", hide_default_value = true)]
    label: String,
}

impl LockArgs {
    /// These before the environment, and that before the file.
    pub(crate) fn settings(&self, deployment: DeploymentArgs) -> Result<Settings, Failure> {
        let wait = if self.no_wait { Some(WaitArg(Wait::Never)) } else { self.wait };
        Settings::load_for_lock(deployment, self.restart_guard, self.ttl, wait)
    }

    /// The lock, or the locks, checked.
    pub(crate) fn lock(
        &self,
        coordinator: &Coordinator,
        settings: &Settings,
        resource: &str,
    ) -> Result<Wanted, Failure> {
        if self.also.iter().all(|also| also == resource) {
            let lock = self.with_options(coordinator.lock(resource), settings);
            let lock = if self.shared { lock.shared() } else { lock };
            lock.validate()?;
            return Ok(Wanted::Lock(lock));
        }
        let resources = iter::once(resource).chain(self.also.iter().map(String::as_str));
        let lock = self.with_options(coordinator.lock_all(resources), settings);
        lock.validate()?;
        Ok(Wanted::Several(lock))
    }

    fn with_options<K>(&self, lock: Lock<K>, settings: &Settings) -> Lock<K> {
        let mut lock = lock.ttl(settings.ttl()).wait(settings.wait()).label(&self.label);
        if self.fencing == Switch::Off {
            lock = lock.fencing(Fencing::Off);
        }
        if let Some(longest) = self.max_hold {
            lock = lock.max_hold(longest);
        }
        lock
    }

    /// A semaphore of so many permits, checked.
    pub(crate) fn semaphore(
        &self,
        coordinator: &Coordinator,
        settings: &Settings,
        resource: &str,
        permits: usize,
    ) -> Result<Semaphore, Failure> {
        let mut semaphore = coordinator.semaphore(resource, permits);
        semaphore = semaphore.ttl(settings.ttl()).wait(settings.wait()).label(&self.label);
        if self.fencing == Switch::Off {
            semaphore = semaphore.fencing(Fencing::Off);
        }
        if let Some(longest) = self.max_hold {
            semaphore = semaphore.max_hold(longest);
        }
        semaphore.validate()?;
        Ok(semaphore)
    }
}
