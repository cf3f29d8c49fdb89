//! The settings: flags override environment variables, which override the file, which overrides the defaults.

use std::path::Path;
use std::time::Duration;

use quorlock::{Builder, ConfigError, Coordinator, RestartGuard, Wait, node::Kinds};

use crate::deployment::DeploymentArgs;
use crate::failure::Failure;
use crate::marks::Marks;
use crate::metrics::MetricsArgs;
use crate::report;
use crate::values::{Switch, WaitArg};

mod layer;
mod password;
mod source;
mod trust;
mod written;

#[cfg(test)]
pub(crate) use layer::KEYS;
use layer::Layer;
use password::Password;
use source::Sources;
use trust::Opened;

/// All settings, not yet validated against each other.
// No Debug: addresses and password are secret.
pub(crate) struct Settings {
    given: Layer,
    sources: Sources,
    password: Option<Password>,
    kinds: Kinds,
}

/// The library's default, for messages and calculations here.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

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
        let mut settings = Settings::load(args)?;
        let by_variable = layer::variable("QUORLOCK_RESTART_GUARD")?.is_some();
        if by_variable && settings.given.restart_guard == Some(Switch::Off) {
            report::warn(
                "QUORLOCK_RESTART_GUARD=off is neither used nor written: it is for one run, and in a file it would \
                 stay off, so that nodes that restart later vote although they may have lost locks",
            );
            settings.given.restart_guard = None;
        }
        Ok(settings)
    }

    /// Merges command line, environment and file.
    pub(crate) fn load_for_lock(
        args: DeploymentArgs,
        restart_guard: Option<Switch>,
        ttl: Option<Duration>,
        wait: Option<WaitArg>,
    ) -> Result<Settings, Failure> {
        let kinds = args.kinds;
        let flags = Layer {
            nodes: (kinds.split(&args.nodes.join(",")))
                .map_err(|problem| Failure::Usage(format!("--nodes: {problem}")))?,
            quorum: args.quorum,
            key_prefix: args.key_prefix,
            node_timeout: args.node_timeout,
            drift: args.drift,
            max_ttl: args.max_ttl,
            username: args.username,
            password_file: args.password_file,
            password_command: args.password_command,
            tls_ca: args.tls_ca,
            tls_cert: args.tls_cert,
            tls_key: args.tls_key,
            tls_server_name: args.tls_server_name,
            restart_guard,
            ttl,
            wait,
            ..Layer::default()
        };
        // A password in the environment overrides every file but one named by a flag.
        let password = if flags.names_password() { None } else { layer::variable("QUORLOCK_PASSWORD")? };
        let environment = Layer::of_environment(&kinds)?;
        let known = !flags.nodes.is_empty() || !environment.nodes.is_empty();
        let file = Layer::of_file(args.config.as_deref(), known, &kinds)?;
        let sources =
            Sources::of(&flags, &environment, file.as_ref().map(|(layer, path)| (layer, path.as_path())));
        let given = flags.or(environment).or(file.map(|(layer, _)| layer).unwrap_or_default());
        if given.nodes.is_empty() {
            return Err(no_nodes());
        }
        let password = match password {
            Some(password) => Some(Password::Fixed(password)),
            None => Password::of(&given, &sources)?,
        };
        Ok(Settings { given, sources, password, kinds })
    }

    /// Returns why the library refuses these settings, or a lock with them.
    pub(crate) fn refused(&self, error: ConfigError) -> Failure {
        self.sources.refusal(error, self.given.ttl)
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
        Marks::of(
            coordinator,
            &self.given.nodes,
            self.given.key_prefix.as_deref().unwrap_or_default(),
            resources,
        )
    }

    /// As [`coordinator`](Settings::coordinator), with the TTL of a lock, by which `doctor` judges and `bench` measures.
    pub(crate) fn examiner(&self) -> Result<Coordinator, Failure> {
        self.build(self.builder()?.ttl(self.ttl()))
    }

    /// Builds the coordinator of these settings.
    pub(crate) fn build(&self, builder: Builder) -> Result<Coordinator, Failure> {
        builder.build().map_err(|error| self.refused(error))
    }

    /// Returns the builder, for callers that have more to set.
    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        let max_ttl = self.given.max_ttl.unwrap_or(DEFAULT_TTL);
        // Even if this lock asks for more: a longer TTL must be refused, and not raise `max_ttl` for this
        // client alone.
        let mut builder = Coordinator::builder().kinds(self.kinds.clone()).nodes(&self.given.nodes);
        builder = builder.max_ttl(max_ttl).ttl(DEFAULT_TTL.min(max_ttl));
        if let Some(needed) = self.given.quorum {
            builder = builder.quorum(needed);
        }
        if let Some(factor) = self.given.drift {
            builder = builder.drift(factor);
        }
        if let Some(timeout) = self.given.node_timeout {
            builder = builder.node_timeout(timeout);
        }
        if self.given.restart_guard == Some(Switch::Off) {
            builder = builder.restart_guard(RestartGuard::Off);
        }
        self.with_tls(self.with_names(builder))
    }

    /// Sets the files and names for TLS, if any are given.
    #[cfg(feature = "tls")]
    fn with_tls(&self, builder: Builder) -> Result<Builder, Failure> {
        let mut tls = quorlock::transport::Tls::new();
        if let Some(file) = &self.given.tls_ca {
            tls = tls.authority(file);
        }
        match (&self.given.tls_cert, &self.given.tls_key) {
            (Some(certificate), Some(key)) => {
                // What is wrong with it is said where it is used.
                if let Ok(opened) = Opened::at(key) {
                    warn_of_readers("the key", key, &opened);
                }
                tls = tls.identity(certificate, key);
            }
            (None, None) => {}
            (Some(_), None) | (None, Some(_)) => {
                let problem = "a certificate and its key go together: give both --tls-cert and --tls-key";
                return Err(self.sources.failure(&["tls-cert", "tls-key"], problem));
            }
        }
        if let Some(name) = &self.given.tls_server_name {
            tls = tls.server_name(name);
        }
        Ok(builder.tls(tls))
    }

    #[cfg(not(feature = "tls"))]
    fn with_tls(&self, builder: Builder) -> Result<Builder, Failure> {
        let Layer { tls_ca, tls_cert, tls_key, tls_server_name, .. } = &self.given;
        if tls_ca.is_some() || tls_cert.is_some() || tls_key.is_some() || tls_server_name.is_some() {
            let problem = "settings for TLS are given, but this program was built without TLS; build it with \
                           `--features tls`";
            let keys = ["tls-ca", "tls-cert", "tls-key", "tls-server-name"];
            return Err(self.sources.failure(&keys, problem));
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

    /// Returns a configuration file with these settings: the `template`, filled in, if one is given.
    pub(crate) fn in_toml(&self, template: Option<&str>) -> String {
        self.given.in_toml(template)
    }

    /// Whether a node is a program, and so a child of this process.
    pub(crate) fn has_programs(&self) -> bool {
        let scheme = |node: &String| node.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        self.given.nodes.iter().any(|node| scheme(node).as_deref() == Some("exec"))
    }

    /// Whether an address contains a password.
    pub(crate) fn has_secret(&self) -> bool {
        let login = |node: &String| {
            let (_, rest) = node.split_once("://")?;
            Some(rest.rsplit_once('@')?.0.contains(':'))
        };
        self.given.nodes.iter().any(|node| login(node) == Some(true))
    }

    /// Returns where metrics go: `flags`, or else the other sources.
    pub(crate) fn metrics(&self, flags: &MetricsArgs) -> MetricsArgs {
        let from = |typed, key| if typed { String::new() } else { self.sources.named(&[key], "") };
        MetricsArgs {
            metrics: flags.metrics.clone().or_else(|| self.given.metrics.clone()),
            metrics_file: flags.metrics_file.clone().or_else(|| self.given.metrics_file.clone()),
            metrics_from: from(flags.metrics.is_some(), "metrics"),
            metrics_file_from: from(flags.metrics_file.is_some(), "metrics-file"),
        }
    }

    /// Returns the TTL of a lock: as set, or 30 s, or `max-ttl` if that is shorter.
    pub(crate) fn ttl(&self) -> Duration {
        self.given
            .ttl
            .unwrap_or_else(|| self.given.max_ttl.map_or(DEFAULT_TTL, |longest| longest.min(DEFAULT_TTL)))
    }

    pub(crate) fn wait(&self) -> Wait {
        self.given.wait.map_or_else(Wait::default, |WaitArg(wait)| wait)
    }

    /// Returns how long to wait at the end for nodes that have not yet confirmed the release: four round
    /// trips of the slowest that answers. What is not confirmed by then expires with its TTL.
    pub(crate) fn patience(coordinator: &Coordinator) -> Duration {
        let nodes = coordinator.health().now();
        let farthest = nodes.iter().filter_map(|node| node.round_trip).max().unwrap_or_default();
        farthest.saturating_mul(4).clamp(LEAST_PATIENCE, LONGEST_PATIENCE)
    }
}

/// Returns the text of a file that sets nothing, and has the nodes as a comment: the packages bring such a file.
pub(crate) fn file_to_fill(path: &Path) -> Option<String> {
    let text = Opened::at(path).and_then(Opened::text).ok()?;
    let sets_nothing = text.parse::<toml::Table>().is_ok_and(|table| table.is_empty());
    (sets_nothing && text.lines().any(|line| line.starts_with("#nodes = "))).then_some(text)
}

fn no_nodes() -> Failure {
    let places: Vec<String> = layer::usual_places().iter().map(|place| place.display().to_string()).collect();
    Failure::Config(format!(
        "no nodes are given; name an odd number of independent masters with --nodes URL,URL,URL, in the \
         variable QUORLOCK_NODES, or as `nodes` in a file given with --config, or in {}",
        places.join(" or ")
    ))
}

/// Warns of a secret of this user that others can read.
fn warn_of_readers(what: &str, path: &Path, opened: &Opened) {
    if let Some(readers) = opened.readers() {
        let path = path.display();
        report::warn(&format!("{what} {path} can be read by {readers} of this host: `chmod 600 {path}`"));
    }
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
            let settings = Settings {
                password: Some(Password::Fixed("s3cret".to_owned())),
                ..Settings::load(deployment).unwrap()
            };
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
            let sources = Sources::default();
            let settings = Settings { given, sources, password: None, kinds: Kinds::default() };
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
