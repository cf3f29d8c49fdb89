//! The settings of one source: the file `quorlock.toml`, the environment, or the command line.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quorlock::Wait;
use quorlock::node::Kinds;
use toml::{Table, Value};

use crate::Warn;
use crate::source::{Sources, variable_of};
use crate::trust::{self, Found, Opened};

/// What is wrong with two places for the password.
pub(crate) const ONE_HAS_IT: &str = "only one of them has the password: keep the one that does";

/// The settings of one source; those that it does not set are empty.
// No Debug: addresses and password are secret.
#[derive(Clone, Default)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a caller sets some of them, and takes the default of the others"
)]
pub struct Layer {
    /// The addresses of the nodes.
    pub nodes: Vec<String>,
    /// How many nodes must grant a lock.
    pub quorum: Option<usize>,
    /// What every key begins with.
    pub key_prefix: Option<String>,
    /// How long to wait for one node's answer.
    pub node_timeout: Option<Duration>,
    /// The share of the TTL set aside because clocks run at different rates.
    pub drift: Option<f64>,
    /// The longest TTL that any client uses.
    pub max_ttl: Option<Duration>,
    /// The user for addresses that name none.
    pub username: Option<String>,
    /// The password: a caller's, or that of `QUORLOCK_PASSWORD`. No file has it.
    pub password: Option<String>,
    /// The file with the password in its first line.
    pub password_file: Option<PathBuf>,
    /// The command of the shell that prints the password.
    pub password_command: Option<String>,
    /// The certificate authorities to trust.
    pub tls_ca: Option<PathBuf>,
    /// The client's certificate.
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key.
    pub tls_key: Option<PathBuf>,
    /// The name that the certificate of every node must have.
    pub tls_server_name: Option<String>,
    /// Whether restarted nodes wait before they vote.
    pub restart_guard: Option<bool>,
    /// The TTL of a lock.
    pub ttl: Option<Duration>,
    /// How long to wait for a lock.
    pub wait: Option<Wait>,
    /// How many holds of each lock the nodes keep in its log.
    pub log: Option<usize>,
    /// The address that serves metrics.
    pub metrics: Option<String>,
    /// The file that metrics are written to.
    pub metrics_file: Option<PathBuf>,
    /// Where they were found.
    pub sources: Sources,
}

/// The keys of the file. `key-prefix` is `--key-prefix` on the command line and
/// `QUORLOCK_KEY_PREFIX` in the environment.
pub const KEYS: [&str; 19] = [
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
    "log",
    "metrics",
    "metrics-file",
];

/// Returns where the file is searched for if none is named, in order.
#[must_use]
pub fn usual_places() -> Vec<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let users = home.map(|home| home.join("quorlock/quorlock.toml"));
    let (here, of_system) = (PathBuf::from("./quorlock.toml"), PathBuf::from("/etc/quorlock.toml"));
    [Some(here), users, Some(of_system)].into_iter().flatten().collect()
}

/// Whether the file at `path` is the one that is read by a caller that names none.
#[must_use]
pub fn is_found(path: &Path, warn: Warn<'_>) -> bool {
    let found = Chosen::found(true, warn).ok().flatten();
    found.and_then(|file| file.opened.ok()).is_some_and(|opened| opened.is_at(path))
}

/// The file to read.
struct Chosen {
    path: PathBuf,
    /// Its name in an error.
    what: String,
    opened: io::Result<Opened>,
}

impl Chosen {
    /// Returns the file that a variable names, or else the first of the usual ones. It must be such that no other user
    /// but root can write it. If the nodes are `known`, a folder that this user may not search, such as the home of
    /// another one after `sudo` or in a container, is not where the others are meant to be.
    fn found(known: bool, warn: Warn<'_>) -> Result<Option<Chosen>, String> {
        if let Some(path) = variable("QUORLOCK_CONFIG")?.map(PathBuf::from) {
            let opened = Opened::at(&path);
            let what = format!("{} by the variable QUORLOCK_CONFIG", shown("the configuration file", &path));
            return match opened.as_ref().ok().and_then(Opened::of_others) {
                Some(why) => Err(not_read(&path, &why)),
                None => Ok(Some(Chosen { path, what, opened })),
            };
        }
        for path in usual_places() {
            let what = format!("the configuration file {}", path.display());
            match trust::look(&path) {
                Ok(Found::Trusted(opened)) => return Ok(Some(Chosen { path, what, opened: Ok(opened) })),
                Ok(Found::OfOthers(why)) => warn(&not_read(&path, &why)),
                Ok(Found::Hidden(_)) if known => {}
                Ok(Found::Nothing) => {}
                Ok(Found::Hidden(error)) | Err(error) => return Err(unreadable(&what, &error)),
            }
        }
        Ok(None)
    }
}

impl Layer {
    /// Reads the environment and the file beneath `first`, which has what the caller sets. `file` is one that the caller
    /// trusts; without it, the one that `QUORLOCK_CONFIG` names, or the first of the usual ones. `/dev/null` is none.
    ///
    /// # Errors
    ///
    /// Names the variable, or the file and its line or setting.
    pub fn read(first: Layer, file: Option<&Path>, kinds: &Kinds, warn: Warn<'_>) -> Result<Layer, String> {
        let sources = Sources::of_caller(KEYS.into_iter().filter(|key| first.has(key)));
        let first = Layer { sources, ..first };
        let given = first.or(Layer::of_environment(kinds, warn)?);
        let known = !given.nodes.is_empty();
        Ok(given.or(Layer::of_file(file, known, kinds, warn)?))
    }

    /// Reads the environment. An empty variable counts as unset.
    fn of_environment(kinds: &Kinds, warn: Warn<'_>) -> Result<Layer, String> {
        let mut layer = Layer { password: variable("QUORLOCK_PASSWORD")?, ..Layer::default() };
        unknown_variables(warn);
        for key in KEYS {
            let name = variable_of(key);
            if let Some(text) = variable(&name)? {
                let set = layer.set(key, &Value::String(text), kinds);
                set.map_err(|problem| format!("the variable {name}: {problem}"))?;
                layer.sources.add_variable(key);
                if key == "nodes" && layer.nodes.is_empty() {
                    // As of `$ONE,$OTHER`, neither of which is set: the file would name other nodes.
                    return Err(format!(
                        "the variable {name} names no node; leave it empty to use the configured ones"
                    ));
                }
            }
        }
        if layer.password.is_some()
            && let Some(key) = ["password-file", "password-command"].into_iter().find(|key| layer.has(key))
        {
            let name = variable_of(key);
            return Err(format!("the variables QUORLOCK_PASSWORD and {name}: {ONE_HAS_IT}"));
        }
        Ok(layer)
    }

    /// Whether it sets this.
    fn has(&self, key: &str) -> bool {
        match key {
            "nodes" => !self.nodes.is_empty(),
            "quorum" => self.quorum.is_some(),
            "key-prefix" => self.key_prefix.is_some(),
            "node-timeout" => self.node_timeout.is_some(),
            "drift" => self.drift.is_some(),
            "max-ttl" => self.max_ttl.is_some(),
            "username" => self.username.is_some(),
            "password-file" => self.password_file.is_some(),
            "password-command" => self.password_command.is_some(),
            "tls-ca" => self.tls_ca.is_some(),
            "tls-cert" => self.tls_cert.is_some(),
            "tls-key" => self.tls_key.is_some(),
            "tls-server-name" => self.tls_server_name.is_some(),
            "restart-guard" => self.restart_guard.is_some(),
            "ttl" => self.ttl.is_some(),
            "wait" => self.wait.is_some(),
            "log" => self.log.is_some(),
            "metrics" => self.metrics.is_some(),
            _ => self.metrics_file.is_some(),
        }
    }

    /// Whether it says where the password is.
    fn names_password(&self) -> bool {
        self.password_file.is_some() || self.password_command.is_some()
    }

    /// Fills what is not set here from `other`.
    fn or(self, other: Layer) -> Layer {
        let login = if self.names_password() { &self } else { &other };
        // In the environment, it overrides every file but one that the caller names.
        let password = self.password.clone().or(other.password.clone().filter(|_| !self.names_password()));
        let (password_file, password_command) = (login.password_file.clone(), login.password_command.clone());
        Layer {
            nodes: if self.nodes.is_empty() { other.nodes } else { self.nodes },
            quorum: self.quorum.or(other.quorum),
            key_prefix: self.key_prefix.or(other.key_prefix),
            node_timeout: self.node_timeout.or(other.node_timeout),
            drift: self.drift.or(other.drift),
            max_ttl: self.max_ttl.or(other.max_ttl),
            username: self.username.or(other.username),
            password,
            password_file,
            password_command,
            tls_ca: self.tls_ca.or(other.tls_ca),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_server_name: self.tls_server_name.or(other.tls_server_name),
            restart_guard: self.restart_guard.or(other.restart_guard),
            ttl: self.ttl.or(other.ttl),
            wait: self.wait.or(other.wait),
            log: self.log.or(other.log),
            metrics: self.metrics.or(other.metrics),
            metrics_file: self.metrics_file.or(other.metrics_file),
            sources: self.sources.or(other.sources),
        }
    }

    /// Reads the file that a flag `named`, or else the one that is found.
    fn of_file(named: Option<&Path>, known: bool, kinds: &Kinds, warn: Warn<'_>) -> Result<Layer, String> {
        let chosen = match named {
            Some(path) => Some(Chosen {
                path: path.to_owned(),
                what: format!("the configuration file {}", path.display()),
                opened: Opened::at(path),
            }),
            None => Chosen::found(known, warn)?,
        };
        let Some(Chosen { path, what, opened }) = chosen.filter(|file| file.path != Path::new("/dev/null"))
        else {
            return Ok(Layer::default());
        };
        let text = opened.and_then(Opened::text).map_err(|error| unreadable(&what, &error))?;
        Layer::parse(&text, &path, kinds)
    }

    /// Reads the text of the file at `path`, to which paths in it are relative.
    ///
    /// # Errors
    ///
    /// Names the file, and its line or setting.
    pub fn parse(text: &str, path: &Path, kinds: &Kinds) -> Result<Layer, String> {
        let refuse = |problem: String| format!("{}: {problem}", path.display());
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error
                .span()
                .map_or(1, |span| text.get(..span.start).unwrap_or(text).matches('\n').count() + 1);
            refuse(format!("line {line} is not valid TOML: {}", error.message().replace('\n', ", ")))
        })?;
        let mut layer = Layer::default();
        for (key, value) in table {
            layer.set(&key, &value, kinds).map_err(refuse)?;
            if let Some(key) = KEYS.into_iter().find(|known| *known == key) {
                layer.sources.add_of_file(key, path);
            }
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
            "quorum" => self.quorum = Some(count(key, value, "nodes, such as 4")?),
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
                self.wait = Some(wait(&time(key, value)?).map_err(|error| format!("`wait`: {error}"))?);
            }
            "log" => self.log = Some(count(key, value, "holds, such as 50")?),
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
fn unknown_variables(warn: Warn<'_>) {
    // Read elsewhere, set for the command by `run`, or used by the tests and scripts of this program.
    const OTHERS: [&str; 8] =
        ["CONFIG", "PASSWORD", "HELD", "RESOURCE", "FENCE", "TOKEN", "TTL_MS", "PERMIT"];
    const OF_TESTS: [&str; 9] =
        ["SERVER", "BUILTIN_", "FAULTS_", "SEED", "MAINTAINER", "POSTGRES", "ETCD", "ZOOKEEPER", "PORT_BASE"];
    for (name, value) in env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let Some(setting) = name.strip_prefix("QUORLOCK_") else { continue };
        let known = KEYS.iter().any(|key| variable_of(key) == *name);
        let is_other = OTHERS.contains(&setting) || OF_TESTS.iter().any(|begin| setting.starts_with(begin));
        if !known && !is_other && !value.is_empty() {
            warn(&format!("there is no setting for the variable {name}, which has no effect"));
        }
    }
}

/// Returns the value of a variable, unless it is empty.
///
/// # Errors
///
/// Names the variable if it is not valid UTF-8.
pub fn variable(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(text) => Ok(Some(text).filter(|text| !text.trim().is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(format!("the variable {name} is not valid UTF-8")),
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

fn unreadable(what: &str, error: &io::Error) -> String {
    format!("cannot read {what}: {error}")
}

/// Returns `what` with its path, if that is certainly a path: otherwise it may be a password, given where a
/// file is expected.
pub(crate) fn shown(what: &str, path: &Path) -> String {
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

fn count(key: &str, value: &Value, what: &str) -> Result<usize, String> {
    let text = value.as_str().and_then(|text| text.trim().parse().ok());
    let number = value.as_integer().and_then(|whole| usize::try_from(whole).ok()).or(text);
    number.ok_or_else(|| format!("`{key}` must be a number of {what}"))
}

fn switch(key: &str, value: &Value) -> Result<bool, String> {
    match value.as_str() {
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        _ => Err(format!("`{key}` must be \"on\" or \"off\"")),
    }
}

/// Reads how long to wait: a duration, or `forever`.
///
/// # Errors
///
/// Says how a duration is written.
pub fn wait(text: &str) -> Result<Wait, String> {
    if text == "forever" {
        return Ok(Wait::Forever);
    }
    match quorlock::duration::parse(text) {
        Ok(Duration::ZERO) => Ok(Wait::Never),
        Ok(longest) => Ok(Wait::UpTo(longest)),
        Err(error) => Err(format!("{error}; `forever` waits without a limit")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Layer, String> {
        Layer::parse(text, Path::new("/etc/quorlock.toml"), &Kinds::default())
    }

    #[test]
    fn the_file_may_have_every_setting() {
        let file = parse(
            "nodes = ['redis://a', 'b']\nquorum = 2\nkey-prefix = 'redlock:'\nnode-timeout = '20ms'\ndrift = 0.02\n\
             max-ttl = '1m'\nusername = 'anna'\npassword-file = 'secret'\npassword-command = 'pass locks'\nrestart-guard = 'off'\n\
             ttl = '10s'\nwait = 'forever'\ntls-ca = 'ca.pem'\ntls-cert = 'me.pem'\ntls-key = '/run/me.key'\n\
             tls-server-name = 'locks.internal'\n\
             log = 50\nmetrics = '9464'\nmetrics-file = 'job.prom'",
        )
        .unwrap();
        assert!(KEYS.iter().all(|key| file.has(key) && !Layer::default().has(key)));
        assert_eq!(file.nodes, ["redis://a", "b"]);
        assert_eq!((file.quorum, file.log), (Some(2), Some(50)));
        assert_eq!(file.max_ttl, Some(Duration::from_secs(60)));
        assert_eq!(file.wait, Some(Wait::Forever));
        assert_eq!(file.restart_guard, Some(false));
        assert_eq!(file.password_file, Some(PathBuf::from("/etc/secret")), "relative to the file");
        assert_eq!(file.tls_cert, Some(PathBuf::from("/etc/me.pem")), "relative to the file");
        assert_eq!(file.tls_key, Some(PathBuf::from("/run/me.key")), "unless it is absolute");
        assert_eq!(file.tls_server_name.as_deref(), Some("locks.internal"));
        assert_eq!(file.metrics.as_deref(), Some("9464"));
        assert_eq!(file.metrics_file, Some(PathBuf::from("/etc/job.prom")), "relative to the file");
    }

    #[test]
    fn a_wait_that_cannot_be_is_refused_with_the_word_for_one_without_a_limit() {
        for (text, wrong) in
            [("99999999999999999999s", "that is too long; "), ("soon", "or a number of seconds; ")]
        {
            let error = wait(text).unwrap_err();
            assert!(error.ends_with(&format!("{wrong}`forever` waits without a limit")), "{error}");
        }
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
            drop(wait(&text));
            drop(duration("ttl", &Value::String(text)));
        }
    }

    #[test]
    fn a_wait_of_zero_tries_once() {
        assert_eq!(wait("0s"), Ok(Wait::Never));
        assert_eq!(wait("forever"), Ok(Wait::Forever));
        assert_eq!(wait("90"), Ok(Wait::UpTo(Duration::from_secs(90))));
        assert_eq!(wait("90s"), Ok(Wait::UpTo(Duration::from_secs(90))));
        assert!(wait("soon").unwrap_err().contains("forever"), "the cure is named");
    }

    #[test]
    fn a_line_that_is_no_toml_is_named() {
        let error = parse("ttl = '3s'\nwait =").err().unwrap();
        assert!(error.contains("line 2"), "{error}");
    }
}
