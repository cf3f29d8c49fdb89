//! The settings: flags override environment variables, which override the file, which overrides the defaults.

use std::path::Path;
use std::time::Duration;

use quorlock::doctor::Check;
use quorlock::protocol::{Drift, Quarantine};
use quorlock::votes::{NodeVote, VoteOutcome};
use quorlock::{Builder, ConfigError, Coordinator, Wait, node::Kinds};
use quorlock_config::{Layer, Opened, Refusal, Sources, keys_of, variable};

use crate::deployment::DeploymentArgs;
use crate::failure::{Failure, RESTART_HINT};
use crate::marks::Marks;
use crate::metrics::MetricsArgs;
use crate::report;
use crate::values::{Switch, WaitArg};
use crate::wanted::Refusal as NotAcquired;

mod written;

/// All settings, not yet validated against each other.
// No Debug: addresses and password are secret.
pub(crate) struct Settings(quorlock_config::Settings);

/// The bounds of [`Settings::patience`].
const LEAST_PATIENCE: Duration = Duration::from_millis(25);
const LONGEST_PATIENCE: Duration = Duration::from_secs(2);

impl Settings {
    /// Loads the settings of a verb without lock options.
    pub(crate) fn load(args: DeploymentArgs) -> Result<Settings, Failure> {
        Settings::load_for_lock(args, None, None, None)
    }

    /// Loads the settings of a file to write, which is for every program on this host, and for years: a restart guard
    /// that a variable turns off for one run stays on.
    pub(crate) fn load_to_write(args: DeploymentArgs) -> Result<Settings, Failure> {
        let (mut given, kinds) = Settings::read(args, None, None, None)?;
        let by_variable = variable("QUORLOCK_RESTART_GUARD").map_err(Failure::Config)?.is_some();
        if by_variable && given.restart_guard == Some(false) {
            report::warn(
                "QUORLOCK_RESTART_GUARD=off is neither used nor written: it is for one run, and in a file it would \
                 stay off, so that nodes that restart later vote although they may have lost locks",
            );
            given.restart_guard = None;
        }
        Settings::of(given, kinds)
    }

    /// Merges command line, environment and file.
    pub(crate) fn load_for_lock(
        args: DeploymentArgs,
        restart_guard: Option<Switch>,
        ttl: Option<Duration>,
        wait: Option<WaitArg>,
    ) -> Result<Settings, Failure> {
        let (given, kinds) = Settings::read(args, restart_guard, ttl, wait)?;
        Settings::of(given, kinds)
    }

    fn read(
        args: DeploymentArgs,
        restart_guard: Option<Switch>,
        ttl: Option<Duration>,
        wait: Option<WaitArg>,
    ) -> Result<(Layer, Kinds), Failure> {
        let kinds = args.kinds;
        let flags = Layer {
            nodes: (kinds.split(&args.nodes.join(",")))
                .map_err(|problem| Failure::Usage(format!("--nodes: {problem}")))?,
            quorum: args.quorum,
            key_prefix: args.key_prefix,
            node_timeout: args.node_timeout,
            drift: args.drift,
            max_ttl: args.max_ttl,
            log: args.log,
            username: args.username,
            password_file: args.password_file,
            password_command: args.password_command,
            tls_ca: args.tls_ca,
            tls_cert: args.tls_cert,
            tls_key: args.tls_key,
            tls_server_name: args.tls_server_name,
            restart_guard: restart_guard.map(|guard| guard == Switch::On),
            ttl,
            wait: wait.map(|WaitArg(wait)| wait),
            ..Layer::default()
        };
        let given = Layer::read(flags, args.config.as_deref(), &kinds, &report::warn);
        Ok((given.map_err(Failure::Config)?, kinds))
    }

    fn of(given: Layer, kinds: Kinds) -> Result<Settings, Failure> {
        let sources = given.sources.clone();
        quorlock_config::Settings::new(given, kinds, &report::warn)
            .map(Settings)
            .map_err(|refusal| failure(&sources, &refusal))
    }

    /// Returns why the library refuses these settings, or a lock with them.
    pub(crate) fn refused(&self, error: ConfigError) -> Failure {
        let given = self.0.given();
        let Some(keys) = keys_of(&error, given.ttl) else { return Failure::from(error) };
        // What these settings name is in files.
        let of_what_is_named = matches!(error, ConfigError::Tls { .. } | ConfigError::Password { .. });
        if of_what_is_named {
            let problem = format!("{error:#}");
            return failure(&given.sources, &Refusal { keys, problem, of_what_is_named });
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "a limit of the system is about no setting")]
        match Failure::from(error) {
            Failure::Config(problem) | Failure::Usage(problem) => {
                failure(&given.sources, &Refusal { keys, problem, of_what_is_named })
            }
            other => other,
        }
    }

    /// Validates the settings and builds a coordinator, without contacting a node.
    pub(crate) fn coordinator(&self) -> Result<Coordinator, Failure> {
        self.build(self.builder()?)
    }

    /// As [`coordinator`](Settings::coordinator), for a command that takes no lock.
    pub(crate) fn observer(&self) -> Result<Coordinator, Failure> {
        self.build(self.builder()?.looks_only(true))
    }

    /// Returns the marks on this host of locks of these nodes.
    pub(crate) fn marks<'a>(
        &self,
        coordinator: &Coordinator,
        resources: impl IntoIterator<Item = &'a str>,
    ) -> Marks {
        let given = self.0.given();
        Marks::of(coordinator, &given.nodes, given.key_prefix.as_deref().unwrap_or_default(), resources)
    }

    /// Builds the coordinator of these settings.
    pub(crate) fn build(&self, builder: Builder) -> Result<Coordinator, Failure> {
        builder.build().map_err(|error| self.refused(error))
    }

    /// Returns why `coordinator` did not acquire the lock; `held` is the exit code for a held one.
    pub(crate) fn not_acquired(
        &self,
        error: impl Into<NotAcquired>,
        held: u8,
        coordinator: &Coordinator,
    ) -> Failure {
        let (error, ours) = (error.into(), self.quarantine());
        let is_of_others =
            |vote: &NodeVote| matches!(vote.outcome, VoteOutcome::Quarantined { left, .. } if left > ours);
        let is_of_others = error.report().is_some_and(|report| report.votes().iter().any(is_of_others));
        let heard = if is_of_others { coordinator.warnings() } else { Vec::new() };
        let hint = heard.iter().find(|finding| finding.check == Check::MaxTtl).map_or_else(
            || RESTART_HINT.to_owned(),
            |finding| format!("; {}; {}", finding.evidence, finding.cure),
        );
        Failure::of_acquiring_with(error, held, &hint)
    }

    /// Returns the builder, for callers that have more to set.
    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        self.0.builder(&report::warn).map_err(|refusal| failure(&self.0.given().sources, &refusal))
    }

    /// Returns a configuration file with these settings: the `template`, filled in, if one is given.
    pub(crate) fn in_toml(&self, template: Option<&str>) -> String {
        written::in_toml(self.0.given(), template)
    }

    /// Whether a node is a program, and so a child of this process.
    pub(crate) fn has_programs(&self) -> bool {
        let scheme = |node: &String| node.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        self.0.given().nodes.iter().any(|node| scheme(node).as_deref() == Some("exec"))
    }

    /// Whether an address contains a password.
    pub(crate) fn has_secret(&self) -> bool {
        let login = |node: &String| {
            let (_, rest) = node.split_once("://")?;
            Some(rest.rsplit_once('@')?.0.contains(':'))
        };
        self.0.given().nodes.iter().any(|node| login(node) == Some(true))
    }

    /// Returns where metrics go: `flags`, or else the other sources.
    pub(crate) fn metrics(&self, flags: &MetricsArgs) -> MetricsArgs {
        let given = self.0.given();
        let from = |typed, key| if typed { String::new() } else { named(&given.sources, &[key], "") };
        MetricsArgs {
            metrics: flags.metrics.clone().or_else(|| given.metrics.clone()),
            metrics_file: flags.metrics_file.clone().or_else(|| given.metrics_file.clone()),
            metrics_from: from(flags.metrics.is_some(), "metrics"),
            metrics_file_from: from(flags.metrics_file.is_some(), "metrics-file"),
        }
    }

    /// Returns the TTL of a lock: as set, or 30 s, or `max-ttl` if that is shorter.
    pub(crate) fn ttl(&self) -> Duration {
        self.0.ttl()
    }

    pub(crate) fn wait(&self) -> Wait {
        self.0.wait()
    }

    /// For how long a node that has restarted does not vote, unless another client has a larger `max_ttl`.
    pub(crate) fn quarantine(&self) -> Duration {
        let drift = self.0.given().drift.and_then(Drift::of).unwrap_or_default();
        Quarantine::new(self.0.max_ttl(), drift).length()
    }

    /// Returns how long to wait at the end for nodes that have not yet confirmed the release: four round
    /// trips of the slowest that answers. What is not confirmed by then expires with its TTL.
    pub(crate) fn patience(coordinator: &Coordinator) -> Duration {
        let nodes = coordinator.health().now();
        let farthest = nodes.iter().filter_map(|node| node.round_trip).max().unwrap_or_default();
        farthest.saturating_mul(4).clamp(LEAST_PATIENCE, LONGEST_PATIENCE)
    }
}

/// Returns the failure: of the arguments if one of these settings was typed, unless what it names cannot be used here.
fn failure(sources: &Sources, refusal: &Refusal) -> Failure {
    let text = named(sources, &refusal.keys, &refusal.problem);
    let is_typed = !refusal.of_what_is_named && sources.any_of_caller(&refusal.keys);
    if is_typed { Failure::Usage(text) } else { Failure::Config(text) }
}

fn named(sources: &Sources, keys: &[&'static str], problem: &str) -> String {
    sources.named(keys, problem, |key| Some(format!("--{key}")))
}

/// Returns the text of a file that sets nothing, and has the nodes as a comment: the packages bring such a file.
pub(crate) fn file_to_fill(path: &Path) -> Option<String> {
    let text = Opened::at(path).and_then(Opened::text).ok()?;
    let sets_nothing = text.parse::<toml::Table>().is_ok_and(|table| table.is_empty());
    (sets_nothing && text.lines().any(|line| line.starts_with("#nodes = "))).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::fs;
    use std::sync::Arc;

    use clap::Parser as _;
    use futures::FutureExt as _;
    use proptest::prelude::*;
    use quorlock::node::{AddressError, Node, NodeAddress, NodeKind, Reason, Seams};
    use quorlock_testkit::MemoryNode;

    use super::*;
    use crate::args::Args;

    fn times() -> impl Strategy<Value = Option<Duration>> {
        let extreme =
            prop_oneof![Just(Duration::ZERO), Just(Duration::MAX), Just(Duration::from_secs(u64::MAX / 4))];
        prop::option::of(prop_oneof![extreme, any::<Duration>()])
    }

    #[tokio::test]
    async fn nodes_that_never_answered_keep_the_end_of_the_program_waiting_for_a_moment() {
        let coordinator = Coordinator::builder().nodes(["a", "b", "c"]).build().unwrap();
        assert_eq!(Settings::patience(&coordinator), LEAST_PATIENCE);
    }

    /// `pair://a,b`: two hosts, and a comma between them.
    #[derive(Debug)]
    struct Pairs;

    impl NodeKind for Pairs {
        fn schemes(&self) -> &[&str] {
            &["pair"]
        }

        fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
            Ok(Box::new(Pair(url.to_owned())))
        }

        fn goes_on_after(&self, url_so_far: &str) -> bool {
            !url_so_far.contains(',')
        }
    }

    #[derive(Debug)]
    struct Pair(String);

    impl NodeAddress for Pair {
        fn servers(&self) -> Vec<String> {
            vec![self.0.clone()]
        }

        fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
            let password = seams.password(None).now_or_never().unwrap().unwrap();
            let logged_in = (seams.username(), password.as_deref()) == (Some("anna"), Some("s3cret"));
            logged_in.then(|| Arc::new(MemoryNode::new(&self.0)) as _).ok_or("it wants a login".into())
        }
    }

    impl fmt::Display for Pair {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.0)
        }
    }

    #[test]
    fn another_node_kind_works_in_every_source() {
        let list = "pair://a,b,redis://c,pair://d,e";
        let expected = ["pair://a,b", "redis://c:6379", "pair://d,e"];
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), format!("nodes = '{list}'\nusername = 'anna'")).unwrap();
        let words = ["quorlock", "status", "job", "--username", "anna", "--nodes", list];
        let (by_flags, mut by_file) = (Args::parse_from(words), Args::parse_from(&words[..3]));
        by_file.deployment.config = Some(file.path().to_owned());
        for args in [by_flags, by_file] {
            let deployment = DeploymentArgs { kinds: Kinds::default().with(Pairs), ..args.deployment };
            let (given, kinds) = Settings::read(deployment, None, None, None).unwrap();
            let settings =
                Settings::of(Layer { password: Some("s3cret".to_owned()), ..given }, kinds).unwrap();
            let coordinator = settings.coordinator().unwrap();
            let health = coordinator.health().now();
            assert!(health.iter().map(|node| &*node.node).eq(expected), "{health:?}");
        }
        let refused =
            Settings::load(Args::parse_from(words).deployment).unwrap().coordinator().err().unwrap();
        assert!(refused.full().contains("unknown scheme"), "{}", refused.full());
    }

    proptest! {
        #[test]
        fn no_settings_make_it_panic(
            max_ttl in times(),
            ttl in times(),
            node_timeout in times(),
            drift in prop::option::of(any::<f64>()),
        ) {
            let nodes = ["redis://a", "redis://b", "redis://c"].map(str::to_owned).to_vec();
            let given = Layer { nodes, node_timeout, drift, max_ttl, ttl, ..Layer::default() };
            let settings = Settings::of(given, Kinds::default()).unwrap();
            if let Ok(coordinator) = settings.coordinator() {
                let lock = coordinator.lock("orders/42").ttl(settings.ttl()).wait(settings.wait());
                if lock.validate().is_ok() {
                    let hold = max_ttl.unwrap_or(Duration::MAX);
                    let timing = coordinator.lease_timing(settings.ttl());
                    let _ = crate::run::notice::Notice::new(Duration::MAX, &timing, Some(hold));
                }
            }
        }
    }
}
