//! Where each setting was found, which an error names.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use quorlock::ConfigError;

/// Where the settings were found.
#[derive(Clone, Default)]
pub struct Sources(BTreeMap<&'static str, Source>);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    /// The caller's own.
    Caller,
    Environment,
    /// A file, as it is shown.
    File(String),
}

/// Why settings cannot be used.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: which settings, and what is wrong")]
pub struct Refusal {
    /// The keys of the settings that it is about, in the order in which they are named.
    pub keys: Vec<&'static str>,
    /// What is wrong with them.
    pub problem: String,
    /// Whether they are as they should be, and what they name, such as a file, cannot be used here.
    pub of_what_is_named: bool,
}

impl Refusal {
    pub(crate) fn of(keys: &[&'static str], problem: impl Into<String>) -> Refusal {
        Refusal { keys: keys.to_vec(), problem: problem.into(), of_what_is_named: false }
    }

    pub(crate) fn of_named(key: &'static str, problem: impl Into<String>) -> Refusal {
        Refusal { of_what_is_named: true, ..Refusal::of(&[key], problem) }
    }
}

/// The problem alone.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl Sources {
    pub(crate) fn of_caller(keys: impl Iterator<Item = &'static str>) -> Sources {
        Sources(keys.map(|key| (key, Source::Caller)).collect())
    }

    pub(crate) fn add_variable(&mut self, key: &'static str) {
        self.0.insert(key, Source::Environment);
    }

    pub(crate) fn add_of_file(&mut self, key: &'static str, path: &Path) {
        self.0.insert(key, Source::File(path.display().to_string()));
    }

    /// Those of `self` go before those of `other`.
    pub(crate) fn or(self, mut other: Sources) -> Sources {
        other.0.extend(self.0);
        other
    }

    /// Whether any of these settings is the caller's own.
    #[must_use]
    pub fn any_of_caller(&self, keys: &[&'static str]) -> bool {
        keys.iter().any(|key| self.0.get(key) == Some(&Source::Caller))
    }

    /// Returns the problem behind the places where these settings were found, of which the caller's own are `written`
    /// like that, or left out.
    pub fn named(
        &self,
        keys: &[&'static str],
        problem: &str,
        written: impl Fn(&'static str) -> Option<String>,
    ) -> String {
        let place = |key: &&'static str| match self.0.get(key)? {
            Source::Caller => written(key),
            Source::Environment => Some(format!("the variable {}", variable_of(key))),
            Source::File(path) => Some(format!("`{key}` in {path}")),
        };
        let places: Vec<String> = keys.iter().filter_map(place).collect();
        if places.is_empty() { problem.to_owned() } else { format!("{}: {problem}", places.join(" and ")) }
    }
}

/// Returns the settings that this error of the library is about, where `ttl` is set to that; `None` if it is about none.
#[must_use]
pub fn keys_of(error: &ConfigError, ttl: Option<Duration>) -> Option<Vec<&'static str>> {
    // The default is no longer than `max-ttl`.
    let of_ttl = |asked| if ttl == Some(asked) { "ttl" } else { "max-ttl" };
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others are about no setting")]
    Some(match error {
        ConfigError::NoNodes
        | ConfigError::TooManyNodes { .. }
        | ConfigError::Address(_)
        | ConfigError::SameServerTwice { .. }
        | ConfigError::OneHostOfSeveral { .. }
        | ConfigError::SharedStoreOfSeveral { .. }
        | ConfigError::Node { .. } => vec!["nodes"],
        ConfigError::Quorum { .. } => vec!["quorum", "nodes"],
        ConfigError::Drift { .. } => vec!["drift"],
        ConfigError::TtlTooShort { ttl, .. } => vec![of_ttl(*ttl), "node-timeout"],
        ConfigError::TtlTooLong { .. } => vec!["ttl", "max-ttl"],
        ConfigError::MaxTtlTooLong { .. } => vec!["max-ttl"],
        ConfigError::KeyPrefixTooLong { .. } => vec!["key-prefix"],
        ConfigError::LogTooLong { .. } => vec!["log"],
        ConfigError::TtlTooShortForNode { ttl, .. } => vec![of_ttl(*ttl), "nodes"],
        ConfigError::NoRoomToRenew { ttl, .. } => vec![of_ttl(*ttl), "drift", "nodes"],
        ConfigError::Zero { setting: "the node timeout" } => vec!["node-timeout"],
        ConfigError::Tls { .. } => vec!["tls-ca", "tls-cert", "tls-key", "tls-server-name"],
        ConfigError::Password { .. } => vec!["password-file", "password-command"],
        _ => return None,
    })
}

/// Returns the name of the variable of a setting.
#[must_use]
pub fn variable_of(key: &str) -> String {
    format!("QUORLOCK_{}", key.replace('-', "_").to_uppercase())
}
