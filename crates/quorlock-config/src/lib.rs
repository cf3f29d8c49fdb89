//! Which nodes to use, and how to reach them: what `quorlock.toml` and the variables `QUORLOCK_*` say, for the command
//! `quorlock` and for the Python package, so that both are configured once.
//!
//! What the caller sets overrides the environment, which overrides the file, which overrides the defaults.
//!
//! No message repeats a value: an address, or a line that does not parse, may contain a password.

use std::mem;
use std::path::{Path, absolute};
use std::time::Duration;

use quorlock::node::Kinds;
use quorlock::{Builder, Coordinator, RestartGuard, Wait};

mod layer;
mod parent_death;
mod password;
mod source;
mod trust;

pub use layer::{KEYS, Layer, is_found, usual_places, variable, wait};
pub use parent_death::die_with_parent;
pub use source::{Refusal, Sources, keys_of, variable_of};
pub use trust::Opened;

use password::Password;

/// Where a sentence goes that the user should read, although the settings can be used.
pub type Warn<'a> = &'a dyn Fn(&str);

/// The library's default, for messages and calculations here.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// All settings, not yet validated against each other.
// No Debug: addresses and password are secret.
#[derive(Clone)]
pub struct Settings {
    given: Layer,
    password: Option<Password>,
    kinds: Kinds,
}

impl Settings {
    /// Completes what was [read](Layer::read): looks for the password where they say it is.
    ///
    /// # Errors
    ///
    /// Says how to give nodes if there are none, and what is wrong with the password's file or command.
    pub fn new(mut given: Layer, kinds: Kinds, warn: Warn<'_>) -> Result<Settings, Refusal> {
        if given.nodes.is_empty() {
            return Err(Refusal::of(&[], no_nodes()));
        }
        let mut password = Password::of(&given, warn)?;
        // They are read again for later connections, when the program may be in another folder.
        let Layer { tls_ca, tls_cert, tls_key, .. } = &mut given;
        let of_password = if let Some(Password::File(file)) = &mut password { Some(file) } else { None };
        for file in [tls_ca.as_mut(), tls_cert.as_mut(), tls_key.as_mut(), of_password].into_iter().flatten()
        {
            *file = absolute(&*file).unwrap_or_else(|_| mem::take(file));
        }
        Ok(Settings { given, password, kinds })
    }

    /// What is set.
    #[must_use]
    pub fn given(&self) -> &Layer {
        &self.given
    }

    /// Returns the builder, for callers that have more to set.
    ///
    /// # Errors
    ///
    /// Says which settings for TLS are missing or cannot be used.
    pub fn builder(&self, warn: Warn<'_>) -> Result<Builder, Refusal> {
        let mut builder = Coordinator::builder().kinds(self.kinds.clone()).nodes(&self.given.nodes);
        // A longer TTL must be refused, and not raise `max_ttl` for this client alone.
        builder = builder.max_ttl(self.max_ttl()).ttl(self.ttl());
        if let Some(needed) = self.given.quorum {
            builder = builder.quorum(needed);
        }
        if let Some(factor) = self.given.drift {
            builder = builder.drift(factor);
        }
        if let Some(timeout) = self.given.node_timeout {
            builder = builder.node_timeout(timeout);
        }
        if let Some(holds) = self.given.log {
            builder = builder.log(holds);
        }
        if self.given.restart_guard == Some(false) {
            builder = builder.restart_guard(RestartGuard::Off);
        }
        self.with_tls(self.with_names(builder), warn)
    }

    /// Sets the files and names for TLS, if any are given.
    #[cfg(feature = "tls")]
    fn with_tls(&self, builder: Builder, warn: Warn<'_>) -> Result<Builder, Refusal> {
        let mut tls = quorlock::transport::Tls::new();
        if let Some(file) = &self.given.tls_ca {
            tls = tls.authority(file);
        }
        match (&self.given.tls_cert, &self.given.tls_key) {
            (Some(certificate), Some(key)) => {
                // What is wrong with it is said where it is used.
                if let Ok(opened) = Opened::at(key) {
                    warn_of_readers("the key", key, &opened, warn);
                }
                tls = tls.identity(certificate, key);
            }
            (None, None) => {}
            (Some(_), None) | (None, Some(_)) => {
                let problem = "a certificate and its key go together: give both --tls-cert and --tls-key";
                return Err(Refusal::of(&["tls-cert", "tls-key"], problem));
            }
        }
        if let Some(name) = &self.given.tls_server_name {
            tls = tls.server_name(name);
        }
        Ok(builder.tls(tls))
    }

    #[cfg(not(feature = "tls"))]
    fn with_tls(&self, builder: Builder, _: Warn<'_>) -> Result<Builder, Refusal> {
        let Layer { tls_ca, tls_cert, tls_key, tls_server_name, .. } = &self.given;
        if tls_ca.is_some() || tls_cert.is_some() || tls_key.is_some() || tls_server_name.is_some() {
            let problem = "settings for TLS are given, but this program was built without TLS; build it with \
                           `--features tls`";
            return Err(Refusal::of(&["tls-ca", "tls-cert", "tls-key", "tls-server-name"], problem));
        }
        Ok(builder)
    }

    fn with_names(&self, mut builder: Builder) -> Builder {
        if let Some(prefix) = &self.given.key_prefix {
            builder = builder.key_prefix(prefix);
        }
        if let Some(username) = &self.given.username {
            builder = builder.username(username);
        }
        if let Some(password) = &self.password {
            builder = password.apply(builder);
        }
        builder
    }

    /// The TTL of a lock: as set, or 30 s, or `max-ttl` if that is shorter.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.given.ttl.unwrap_or_else(|| self.max_ttl().min(DEFAULT_TTL))
    }

    /// The longest TTL of any client: as set, or 30 s.
    #[must_use]
    pub fn max_ttl(&self) -> Duration {
        self.given.max_ttl.unwrap_or(DEFAULT_TTL)
    }

    /// How long to wait for a lock.
    #[must_use]
    pub fn wait(&self) -> Wait {
        self.given.wait.unwrap_or_default()
    }
}

fn no_nodes() -> String {
    let places: Vec<String> = usual_places().iter().map(|place| place.display().to_string()).collect();
    format!(
        "no nodes are given; name an odd number of independent masters with --nodes URL,URL,URL, in the \
         variable QUORLOCK_NODES, or as `nodes` in a file given with --config, or in {}",
        places.join(" or ")
    )
}

/// Warns of a secret of this user that others can read.
fn warn_of_readers(what: &str, path: &Path, opened: &Opened, warn: Warn<'_>) {
    if let Some(readers) = opened.readers() {
        let path = path.display();
        warn(&format!("{what} {path} can be read by {readers} of this host: `chmod 600 {path}`"));
    }
}
