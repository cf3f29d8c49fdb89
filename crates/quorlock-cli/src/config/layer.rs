//! The settings of one source: the file `quorlock.toml`, the environment, or the command line.
//!
//! No message repeats a value: an address, or a line that does not parse, may contain a password.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum as _;
use quorlock::node::Kinds;
use toml::{Table, Value};

use super::trust::{self, Found, Opened};
use crate::failure::Failure;
use crate::report;
use crate::values::{Switch, WaitArg};

/// The settings of one source; those that it does not set are empty.
#[derive(Default)]
pub(super) struct Layer {
    pub(super) nodes: Vec<String>,
    pub(super) quorum: Option<usize>,
    pub(super) key_prefix: Option<String>,
    pub(super) node_timeout: Option<Duration>,
    pub(super) drift: Option<f64>,
    pub(super) max_ttl: Option<Duration>,
    pub(super) username: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) password_command: Option<String>,
    pub(super) tls_ca: Option<PathBuf>,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) tls_server_name: Option<String>,
    pub(super) restart_guard: Option<Switch>,
    pub(super) ttl: Option<Duration>,
    pub(super) wait: Option<WaitArg>,
    pub(super) metrics: Option<String>,
    pub(super) metrics_file: Option<PathBuf>,
}

/// The keys of the file. `key-prefix` is `--key-prefix` on the command line and
/// `QUORLOCK_KEY_PREFIX` in the environment.
pub(crate) const KEYS: [&str; 18] = [
    "nodes",
    "quorum",
    "key-prefix",
    "node-timeout",
    "drift",
    "max-ttl",
    "username",
    "password-file",
    "password-command",
    "tls-ca",
    "tls-cert",
    "tls-key",
    "tls-server-name",
    "restart-guard",
    "ttl",
    "wait",
    "metrics",
    "metrics-file",
];

/// Returns where the file is searched for if none is named, in order.
pub(super) fn usual_places() -> Vec<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let users = home.map(|home| home.join("quorlock/quorlock.toml"));
    let (here, of_system) = (PathBuf::from("./quorlock.toml"), PathBuf::from("/etc/quorlock.toml"));
    [Some(here), users, Some(of_system)].into_iter().flatten().collect()
}

impl Layer {
    /// Reads the environment. An empty variable counts as unset.
    pub(super) fn of_environment(kinds: &Kinds) -> Result<Layer, Failure> {
        let mut layer = Layer::default();
        unknown_variables();
        for key in KEYS {
            let name = variable_of(key);
            if let Some(text) = variable(&name)? {
                let set = layer.set(key, &Value::String(text), kinds);
                set.map_err(|problem| Failure::Config(format!("the variable {name}: {problem}")))?;
                if key == "nodes" && layer.nodes.is_empty() {
                    // As of `$ONE,$OTHER`, neither of which is set: the file would name other nodes.
                    return Err(Failure::Config(format!(
                        "the variable {name} names no node; leave it empty to use the configured ones"
                    )));
                }
            }
        }
        Ok(layer)
    }

    /// Whether it says where the password is.
    pub(super) fn names_password(&self) -> bool {
        self.password_file.is_some() || self.password_command.is_some()
    }

    /// Fills what is not set here from `other`.
    pub(super) fn or(self, other: Layer) -> Layer {
        let login = if self.names_password() { &self } else { &other };
        let (password_file, password_command) = (login.password_file.clone(), login.password_command.clone());
        Layer {
            nodes: if self.nodes.is_empty() { other.nodes } else { self.nodes },
            quorum: self.quorum.or(other.quorum),
            key_prefix: self.key_prefix.or(other.key_prefix),
            node_timeout: self.node_timeout.or(other.node_timeout),
            drift: self.drift.or(other.drift),
            max_ttl: self.max_ttl.or(other.max_ttl),
            username: self.username.or(other.username),
            password_file,
            password_command,
            tls_ca: self.tls_ca.or(other.tls_ca),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_server_name: self.tls_server_name.or(other.tls_server_name),
            restart_guard: self.restart_guard.or(other.restart_guard),
            ttl: self.ttl.or(other.ttl),
            wait: self.wait.or(other.wait),
            metrics: self.metrics.or(other.metrics),
            metrics_file: self.metrics_file.or(other.metrics_file),
        }
    }

    /// Reads the file that a flag `named`, or a variable, or else the first of the usual ones. All but that of the flag
    /// must be such that no other user but root can write them. If the nodes are `known`, a folder that this user may not
    /// search, such as the home of another one after `sudo` or in a container, is not where the others are meant to be.
    /// Returns its path as well.
    pub(super) fn of_file(
        named: Option<&Path>,
        known: bool,
        kinds: &Kinds,
    ) -> Result<Option<(Layer, PathBuf)>, Failure> {
        if let Some(path) = named {
            let what = format!("the configuration file {}", path.display());
            return Layer::of_opened(Opened::at(path), path.to_owned(), &what, kinds);
        }
        if let Some(path) = variable("QUORLOCK_CONFIG")?.map(PathBuf::from) {
            let opened = Opened::at(&path);
            let what = format!("{} by the variable QUORLOCK_CONFIG", shown("the configuration file", &path));
            return match opened.as_ref().ok().and_then(Opened::of_others) {
                Some(why) => Err(Failure::Config(not_read(&path, &why))),
                None => Layer::of_opened(opened, path, &what, kinds),
            };
        }
        for path in usual_places() {
            let what = format!("the configuration file {}", path.display());
            match trust::look(&path) {
                Ok(Found::Trusted(opened)) => return Layer::of_opened(Ok(opened), path, &what, kinds),
                Ok(Found::OfOthers(why)) => report::warn(&not_read(&path, &why)),
                Ok(Found::Hidden(_)) if known => {}
                Ok(Found::Nothing) => {}
                Ok(Found::Hidden(error)) | Err(error) => return Err(unreadable(&what, &error)),
            }
        }
        Ok(None)
    }

    /// Reads an opened file, which is `what` in an error.
    fn of_opened(
        opened: io::Result<Opened>,
        path: PathBuf,
        what: &str,
        kinds: &Kinds,
    ) -> Result<Option<(Layer, PathBuf)>, Failure> {
        let text = opened.and_then(Opened::text).map_err(|error| unreadable(what, &error))?;
        Ok(Some((Layer::parse(&text, &path, kinds)?, path)))
    }

    /// Whether it sets this.
    pub(super) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    pub(super) fn parse(text: &str, path: &Path, kinds: &Kinds) -> Result<Layer, Failure> {
        let refuse = |problem: String| Failure::Config(format!("{}: {problem}", path.display()));
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error
                .span()
                .map_or(1, |span| text.get(..span.start).unwrap_or(text).matches('\n').count() + 1);
            refuse(format!("line {line} is not valid TOML: {}", error.message().replace('\n', ", ")))
        })?;
        let mut layer = Layer::default();
        for (key, value) in table {
            layer.set(&key, &value, kinds).map_err(refuse)?;
        }
        // A path in a file is relative to that file.
        let Layer { password_file, tls_ca, tls_cert, tls_key, .. } = &mut layer;
        for file in [password_file, tls_ca, tls_cert, tls_key].into_iter().flatten() {
            *file = path.parent().unwrap_or(Path::new("")).join(&file);
        }
        if let (Some(metrics_file), Some(folder)) = (&mut layer.metrics_file, path.parent()) {
            *metrics_file = folder.join(&metrics_file);
        }
        Ok(layer)
    }

    fn set(&mut self, key: &str, value: &Value, kinds: &Kinds) -> Result<(), String> {
        match key {
            "nodes" => self.nodes = nodes(value, kinds)?,
            "quorum" => self.quorum = Some(count(key, value)?),
            "key-prefix" => self.key_prefix = Some(string(key, value)?),
            "node-timeout" => self.node_timeout = Some(duration(key, value)?),
            "drift" => self.drift = Some(share(key, value)?),
            "max-ttl" => self.max_ttl = Some(duration(key, value)?),
            "username" => self.username = Some(string(key, value)?),
            "password-file" => self.password_file = Some(string(key, value)?.into()),
            "password-command" => self.password_command = Some(string(key, value)?),
            "tls-ca" => self.tls_ca = Some(string(key, value)?.into()),
            "tls-cert" => self.tls_cert = Some(string(key, value)?.into()),
            "tls-key" => self.tls_key = Some(string(key, value)?.into()),
            "tls-server-name" => self.tls_server_name = Some(string(key, value)?),
            "restart-guard" => self.restart_guard = Some(switch(key, value)?),
            "ttl" => self.ttl = Some(duration(key, value)?),
            "wait" => {
                self.wait = Some(time(key, value)?.parse().map_err(|error| format!("`wait`: {error}"))?);
            }
            "metrics" => self.metrics = Some(string(key, value)?),
            "metrics-file" => self.metrics_file = Some(string(key, value)?.into()),
            "password" => {
                return Err("a password does not belong here; put it into a file of its own and name that \
                            with `password-file`, or into the variable QUORLOCK_PASSWORD"
                    .to_owned());
            }
            _ => {
                let meant = key.replace('_', "-").to_lowercase();
                let hint = if KEYS.contains(&&*meant) {
                    format!("did you mean `{meant}`?")
                } else {
                    format!("the settings are {}", KEYS.join(", "))
                };
                return Err(format!("there is no setting `{key}`; {hint}"));
            }
        }
        Ok(())
    }
}

/// Warns of variables with our prefix that are no settings, such as misspelt ones.
fn unknown_variables() {
    // Read elsewhere, set for the command by `run`, or used by the tests and scripts of this program.
    const OTHERS: [&str; 8] =
        ["CONFIG", "PASSWORD", "HELD", "RESOURCE", "FENCE", "TOKEN", "TTL_MS", "PERMIT"];
    const OF_TESTS: [&str; 8] =
        ["SERVER", "BUILTIN_", "FAULTS_", "SEED", "MAINTAINER", "POSTGRES", "ETCD", "PORT_BASE"];
    for (name, value) in env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let Some(setting) = name.strip_prefix("QUORLOCK_") else { continue };
        let known = KEYS.iter().any(|key| variable_of(key) == *name);
        let is_other = OTHERS.contains(&setting) || OF_TESTS.iter().any(|begin| setting.starts_with(begin));
        if !known && !is_other && !value.is_empty() {
            report::warn(&format!("there is no setting for the variable {name}, which has no effect"));
        }
    }
}

/// Returns the name of the variable of a setting.
pub(super) fn variable_of(key: &str) -> String {
    format!("QUORLOCK_{}", key.replace('-', "_").to_uppercase())
}

/// Returns the value of a variable, unless it is empty.
pub(super) fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(text) => Ok(Some(text).filter(|text| !text.trim().is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => {
            Err(Failure::Config(format!("the variable {name} is not valid UTF-8")))
        }
    }
}

/// Returns why a file of others is not read.
fn not_read(path: &Path, why: &str) -> String {
    format!(
        "{} is not read, because {why}: another user could send your password to a server of theirs; if you trust the \
         file, pass --config {0}",
        path.display()
    )
}

fn unreadable(what: &str, error: &io::Error) -> Failure {
    Failure::Config(format!("cannot read {what}: {error}"))
}

/// Returns `what` with its path, if that is certainly a path: otherwise it may be a password, given where a
/// file is expected.
pub(super) fn shown(what: &str, path: &Path) -> String {
    let folder = path.parent().filter(|folder| folder.parent().is_some());
    let is_path = path.exists()
        || path.extension().is_some_and(|extension| extension == "toml")
        || folder.is_some_and(Path::is_dir);
    if is_path { format!("{what} {}", path.display()) } else { format!("{what} that was named") }
}

/// Parses a list of addresses, or one string with commas, as on the command line.
fn nodes(value: &Value, kinds: &Kinds) -> Result<Vec<String>, String> {
    let wrong = || "`nodes` must be a list of addresses, such as [\"redis://10.0.0.1\", …]".to_owned();
    match value {
        Value::String(text) => kinds.split(text).map_err(|problem| format!("`nodes`: {problem}")),
        Value::Array(urls) => {
            urls.iter().map(|url| url.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Table(_) => {
            Err(wrong())
        }
    }
}

fn string(key: &str, value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("`{key}` must be a string, in quotes"))
}

fn duration(key: &str, value: &Value) -> Result<Duration, String> {
    let text = time(key, value)?;
    quorlock::duration::parse(&text).map_err(|error| format!("`{key}`: {error}"))
}

/// Returns a duration as text: a string, or a number of seconds.
fn time(key: &str, value: &Value) -> Result<String, String> {
    let seconds = || value.as_integer().map(|whole| whole.to_string());
    let seconds = seconds().or_else(|| value.as_float().map(|number| number.to_string()));
    value.as_str().map(str::to_owned).or(seconds).ok_or_else(|| {
        format!("`{key}` must be a duration in quotes, such as \"30s\", or a number of seconds")
    })
}

#[expect(clippy::cast_precision_loss, reason = "only 0 is a whole number in range, and that is exact")]
fn share(key: &str, value: &Value) -> Result<f64, String> {
    let text = value.as_str().and_then(|text| text.parse().ok());
    let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64)).or(text);
    number.ok_or_else(|| format!("`{key}` must be a number, such as 0.01"))
}

fn count(key: &str, value: &Value) -> Result<usize, String> {
    let text = value.as_str().and_then(|text| text.trim().parse().ok());
    let number = value.as_integer().and_then(|whole| usize::try_from(whole).ok()).or(text);
    number.ok_or_else(|| format!("`{key}` must be a number of nodes, such as 4"))
}

fn switch(key: &str, value: &Value) -> Result<Switch, String> {
    let wrong = || format!("`{key}` must be \"on\" or \"off\"");
    Switch::from_str(value.as_str().ok_or_else(wrong)?, false).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quorlock::Wait;

    use super::*;

    fn parse(text: &str) -> Result<Layer, String> {
        Layer::parse(text, Path::new("/etc/quorlock.toml"), &Kinds::default())
            .map_err(|failure| failure.full())
    }

    #[test]
    fn the_file_may_have_every_setting() {
        let file = parse(
            "nodes = ['redis://a', 'b']\nquorum = 2\nkey-prefix = 'redlock:'\nnode-timeout = '20ms'\ndrift = 0.02\n\
             max-ttl = '1m'\nusername = 'anna'\npassword-file = 'secret'\npassword-command = 'pass locks'\nrestart-guard = 'off'\n\
             ttl = '10s'\nwait = 'forever'\ntls-ca = 'ca.pem'\ntls-cert = 'me.pem'\ntls-key = '/run/me.key'\n\
             tls-server-name = 'locks.internal'\n\
             metrics = '9464'\nmetrics-file = 'job.prom'",
        )
        .unwrap();
        assert_eq!(file.nodes, ["redis://a", "b"]);
        assert_eq!(file.quorum, Some(2));
        assert_eq!(file.max_ttl, Some(Duration::from_secs(60)));
        assert_eq!(file.wait, Some(WaitArg(Wait::Forever)));
        assert_eq!(file.restart_guard, Some(Switch::Off));
        assert_eq!(file.password_file, Some(PathBuf::from("/etc/secret")), "relative to the file");
        assert_eq!(file.tls_cert, Some(PathBuf::from("/etc/me.pem")), "relative to the file");
        assert_eq!(file.tls_key, Some(PathBuf::from("/run/me.key")), "unless it is absolute");
        assert_eq!(file.tls_server_name.as_deref(), Some("locks.internal"));
        assert_eq!(file.metrics.as_deref(), Some("9464"));
        assert_eq!(file.metrics_file, Some(PathBuf::from("/etc/job.prom")), "relative to the file");
    }

    #[test]
    fn an_unknown_setting_is_refused_with_those_that_exist() {
        let error = parse("tll = '3s'").err().unwrap();
        assert!(error.contains("`tll`") && error.contains("node-timeout"), "{error}");
        let error = parse("max_ttl = '3s'").err().unwrap();
        assert!(error.ends_with("there is no setting `max_ttl`; did you mean `max-ttl`?"), "{error}");
        assert!(error.starts_with("/etc/quorlock.toml: "), "{error}");
    }

    #[test]
    fn addresses_with_blanks_between_them_are_refused_with_the_cure() {
        let error = parse("nodes = 'redis://a redis://b'").err().unwrap();
        assert!(error.ends_with("separate addresses with commas, not spaces"), "{error}");
        assert_eq!(parse("nodes = ' redis://a ,\tredis://b '").unwrap().nodes, ["redis://a", "redis://b"]);
    }

    #[test]
    fn no_mistake_shows_a_password() {
        const PASSWORD: &str = "Qq7Zz9";
        for text in [
            "nodes = [['redis://:Qq7Zz9@a']]",
            "nodes = 'redis://:Qq7Zz9@a redis://b'",
            "nodes = 'redis://:Qq7Zz9@a",
            "nodes = [redis://:Qq7Zz9@a]",
            "password = 'Qq7Zz9'",
            "ttl = 3\npassword-file = Qq7Zz9",
            "nodes = 'redis://anna:Qq7Zz9,more@a'",
            "nodes = 'redis://anna:more,Qq7Zz9,@a,redis://b'",
            "nodes = 'redis+unix:///run/a?pass=more,Qq7Zz9'",
        ] {
            let error = parse(text).err().unwrap();
            assert!(!error.contains(PASSWORD), "{text}: {error}");
        }
    }

    /// Text that resembles a settings file.
    fn files() -> impl Strategy<Value = String> {
        let key = prop_oneof![proptest::sample::select(KEYS.to_vec()).prop_map(str::to_owned), "[a-z-]{1,8}"];
        let value = prop_oneof![
            "'[^'\\n]{0,12}'",
            "-?[0-9]{1,25}(\\.[0-9]{1,3})?(e[0-9]{1,4})?",
            "'[0-9]{1,21}(ns|ms|s|min|h|days|years| )?'",
            "\\[('[a-z:/@]{0,9}',? ?|[0-9],){0,3}\\]",
            "true|nan|-inf|1979-05-27|\\{a = 1\\}|",
        ];
        proptest::collection::vec((key, value), 0..4)
            .prop_map(|lines| lines.iter().map(|(key, value)| [key, " = ", value, "\n"].concat()).collect())
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_by_the_name_of_its_file(text in prop_oneof![files(), "\\PC{0,40}", "[\\[\\]{}='\".a\\n]{0,40}"]) {
            if let Err(error) = parse(&text) {
                prop_assert!(error.starts_with("/etc/quorlock.toml: "), "{error}");
                prop_assert!(error.contains("is not valid TOML") || error.contains('`') || error.contains("password"), "{error}");
            }
        }

        #[test]
        fn a_setting_of_the_wrong_kind_is_named(key in proptest::sample::select(KEYS.to_vec())) {
            let error = parse(&format!("{key} = {{ a = 1 }}")).err().unwrap();
            prop_assert!(error.contains(&format!("`{key}`")), "{error}");
        }

        #[test]
        fn any_text_is_a_duration_or_none(text in prop_oneof!["[0-9]{0,22} ?(ns|us|ms|s|m|h|days|years)?( [0-9]{1,3}s)?", "\\PC{0,20}"]) {
            drop(text.parse::<WaitArg>());
            drop(duration("ttl", &Value::String(text)));
        }
    }

    #[test]
    fn a_line_that_is_no_toml_is_named() {
        let error = parse("ttl = '3s'\nwait =").err().unwrap();
        assert!(error.contains("line 2"), "{error}");
    }
}
