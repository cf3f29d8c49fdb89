//! Where each setting was found, which an error names, and by which it has its exit code.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use quorlock::ConfigError;

use super::layer::{KEYS, Layer, variable_of};
use crate::failure::Failure;

/// Where the settings were found.
#[derive(Default)]
pub(super) struct Sources(BTreeMap<&'static str, Source>);

enum Source {
    CommandLine,
    Environment,
    /// A file, as it is shown.
    File(String),
}

impl Sources {
    /// Looks which of these layers, the first of which goes before the others, has each setting.
    pub(super) fn of(command_line: &Layer, environment: &Layer, file: Option<(&Layer, &Path)>) -> Sources {
        let source = |key| {
            if command_line.has(key) {
                Some(Source::CommandLine)
            } else if environment.has(key) {
                Some(Source::Environment)
            } else {
                file.filter(|(layer, _)| layer.has(key))
                    .map(|(_, path)| Source::File(path.display().to_string()))
            }
        };
        Sources(KEYS.into_iter().filter_map(|key| Some((key, source(key)?))).collect())
    }

    /// Returns a failure of these settings: of the arguments if one of them was typed.
    pub(super) fn failure(&self, keys: &[&'static str], problem: &str) -> Failure {
        let is_typed = |key| matches!(self.0.get(key), Some(Source::CommandLine));
        let text = self.named(keys, problem);
        if keys.iter().any(is_typed) { Failure::Usage(text) } else { Failure::Config(text) }
    }

    /// Returns the problem behind the places where these settings were found.
    pub(super) fn named(&self, keys: &[&'static str], problem: &str) -> String {
        let place = |key: &&'static str| {
            Some(match self.0.get(key)? {
                Source::CommandLine => format!("--{key}"),
                Source::Environment => format!("the variable {}", variable_of(key)),
                Source::File(path) => format!("`{key}` in {path}"),
            })
        };
        let places: Vec<String> = keys.iter().filter_map(place).collect();
        if places.is_empty() { problem.to_owned() } else { format!("{}: {problem}", places.join(" and ")) }
    }

    /// Returns why the library refuses these settings, of which `ttl` is the TTL if one is set.
    pub(super) fn refusal(&self, error: ConfigError, ttl: Option<Duration>) -> Failure {
        // The default is no longer than `max-ttl`.
        let of_ttl = |asked| if ttl == Some(asked) { "ttl" } else { "max-ttl" };
        #[expect(clippy::wildcard_enum_match_arm, reason = "the others are about no setting")]
        let keys: Vec<&'static str> = match error {
            ConfigError::NoNodes
            | ConfigError::TooManyNodes { .. }
            | ConfigError::Address(_)
            | ConfigError::SameServerTwice { .. }
            | ConfigError::OneHostOfSeveral { .. }
            | ConfigError::SharedStoreOfSeveral { .. }
            | ConfigError::Node { .. } => vec!["nodes"],
            ConfigError::Quorum { .. } => vec!["quorum", "nodes"],
            ConfigError::Drift { .. } => vec!["drift"],
            ConfigError::TtlTooShort { ttl, .. } => vec![of_ttl(ttl), "node-timeout"],
            ConfigError::TtlTooLong { .. } => vec!["ttl", "max-ttl"],
            ConfigError::MaxTtlTooLong { .. } => vec!["max-ttl"],
            ConfigError::TtlTooShortForNode { ttl, .. } => vec![of_ttl(ttl), "nodes"],
            ConfigError::NoRoomToRenew { ttl, .. } => vec![of_ttl(ttl), "drift", "nodes"],
            ConfigError::Zero { setting: "the node timeout" } => vec!["node-timeout"],
            // What these settings name is in files.
            ConfigError::Tls { .. } => {
                let keys = ["tls-ca", "tls-cert", "tls-key", "tls-server-name"];
                return Failure::Config(self.named(&keys, &format!("{error:#}")));
            }
            ConfigError::Password { .. } => {
                let keys = ["password-file", "password-command"];
                return Failure::Config(self.named(&keys, &format!("{error:#}")));
            }
            _ => return Failure::from(error),
        };
        #[expect(clippy::wildcard_enum_match_arm, reason = "a limit of the system is about no setting")]
        match Failure::from(error) {
            Failure::Config(problem) | Failure::Usage(problem) => self.failure(&keys, &problem),
            other => other,
        }
    }
}
