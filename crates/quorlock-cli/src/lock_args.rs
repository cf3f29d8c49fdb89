//! The options of every verb that acquires a lock.

use std::env;
use std::iter;
use std::time::Duration;

use quorlock::{Coordinator, Fencing, Wait, duration};

use crate::config::Settings;
use crate::deployment::DeploymentArgs;
use crate::exit;
use crate::failure::Failure;
use crate::marks::Marks;
use crate::report;
use crate::values::{Switch, WaitArg};
use crate::wanted::{Lock, Semaphore, Wanted};

/// How to acquire a lock, and for how long to keep it.
#[derive(clap::Args)]
#[command(next_help_heading = "Lock")]
pub(crate) struct LockArgs {
    /// Do not wait if the lock is held: the same as --wait 0s
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,
    /// How long to wait for the lock, or `forever` [default: 35s].
    ///
    /// Exit code 75 if another client holds the lock until then, 69 if too few nodes answer. 69 comes
    /// earlier where waiting cannot help: if nodes must be reconfigured, as with a wrong password, or
    /// have restarted and do not vote before the end of the wait.
    #[arg(short, long, value_name = "DURATION")]
    wait: Option<WaitArg>,
    /// How long the nodes keep the lock without a renewal; it is renewed every third of this
    /// [default: 30s]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// Exit code if another client holds the lock
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::HELD)]
    pub(crate) conflict_exit_code: u8,
    /// Release the lock after this long; `run` stops the command first [default: never]
    #[arg(long, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// Take a read lock, shared with other readers; without this it is a write lock
    #[arg(long)]
    shared: bool,
    /// Also lock RESOURCE, atomically; repeatable, up to 64 in total
    #[arg(long, value_name = "RESOURCE", conflicts_with = "shared")]
    also: Vec<String>,
    /// Whether recently restarted nodes are excluded from voting [default: on]
    #[arg(long, hide_short_help = true, value_name = "WHETHER")]
    restart_guard: Option<Switch>,
    /// Whether to issue a fencing token, for the protected resource to check; `off` stores nothing
    /// but the lock on the nodes
    #[arg(long, hide_short_help = true, value_name = "WHETHER", default_value = "on")]
    fencing: Switch,
    /// Text shown to other clients after this holder's host and process id
    #[arg(long, default_value = "", hide_default_value = true)]
    label: String,
}

impl LockArgs {
    /// Returns the options of the lock that the leader of an election holds.
    pub(super) fn of_leader(
        wait: WaitArg,
        ttl: Option<Duration>,
        max_hold: Option<Duration>,
        restart_guard: Option<Switch>,
        value: String,
    ) -> LockArgs {
        LockArgs {
            no_wait: false,
            wait: Some(wait),
            ttl,
            conflict_exit_code: exit::HELD,
            max_hold,
            shared: false,
            also: Vec::new(),
            restart_guard,
            fencing: Switch::On,
            label: value,
        }
    }

    /// Loads the settings: these flags, then the environment, then the file.
    pub(crate) fn settings(&self, deployment: DeploymentArgs) -> Result<Settings, Failure> {
        let wait = if self.no_wait { Some(WaitArg(Wait::Never)) } else { self.wait };
        Settings::load_for_lock(deployment, self.restart_guard, self.ttl, wait)
    }

    /// Builds and validates the lock.
    pub(crate) fn lock(
        &self,
        coordinator: &Coordinator,
        settings: &Settings,
        resource: &str,
    ) -> Result<Wanted, Failure> {
        if let Some(ours) = self.is_of_outer(resource) {
            report::warn(&format!(
                "`{ours}` is the lock that the `quorlock run` around this one holds (QUORLOCK_RESOURCE), so it cannot be \
                 acquired before that ends, unless the nodes are others: leave this one out, or use another name"
            ));
        }
        if self.also.iter().all(|also| also == resource) {
            let lock = self.with_options(coordinator.lock(resource), settings);
            let lock = if self.shared { lock.shared() } else { lock };
            lock.validate().map_err(|error| settings.refused(error))?;
            return Ok(Wanted::Lock(lock));
        }
        let resources = iter::once(resource).chain(self.also.iter().map(String::as_str));
        let lock = self.with_options(coordinator.lock_all(resources), settings);
        lock.validate().map_err(|error| settings.refused(error))?;
        Ok(Wanted::Several(lock))
    }

    /// Returns which of the locks is that under which this program was started.
    fn is_of_outer<'a>(&'a self, resource: &'a str) -> Option<&'a str> {
        // A permit is of a semaphore, and readers do not exclude each other.
        if self.shared || env::var_os("QUORLOCK_PERMIT").is_some() {
            return None;
        }
        let outer = env::var("QUORLOCK_RESOURCE").ok()?;
        let mut wanted = iter::once(resource).chain(self.also.iter().map(String::as_str));
        wanted.find(|wanted| outer.split(" + ").any(|outer| outer == *wanted))
    }

    /// Returns the marks on this host of the lock.
    pub(crate) fn marks(&self, coordinator: &Coordinator, settings: &Settings, resource: &str) -> Marks {
        settings.marks(coordinator, iter::once(resource).chain(self.also.iter().map(String::as_str)))
    }

    fn fencing(&self) -> Fencing {
        if self.fencing == Switch::Off { Fencing::Off } else { Fencing::On }
    }

    fn with_options<K>(&self, lock: quorlock::Lock<K>, settings: &Settings) -> Lock<K> {
        let mut lock =
            lock.ttl(settings.ttl()).wait(settings.wait()).label(&self.label).fencing(self.fencing());
        if let Some(longest) = self.max_hold {
            lock = lock.max_hold(longest);
        }
        lock
    }

    /// Builds and validates a semaphore of `permits` permits.
    pub(crate) fn semaphore(
        &self,
        coordinator: &Coordinator,
        settings: &Settings,
        resource: &str,
        permits: usize,
    ) -> Result<Semaphore, Failure> {
        let semaphore = coordinator.semaphore(resource, permits).fencing(self.fencing());
        let mut semaphore = semaphore.ttl(settings.ttl()).wait(settings.wait()).label(&self.label);
        if let Some(longest) = self.max_hold {
            semaphore = semaphore.max_hold(longest);
        }
        semaphore.validate().map_err(|error| settings.refused(error))?;
        Ok(semaphore)
    }
}
