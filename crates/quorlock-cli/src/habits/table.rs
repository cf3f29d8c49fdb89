//! Options and verbs of other tools, and what they are here.

/// An option of another tool.
#[derive(Clone, Copy)]
pub(super) struct Habit {
    /// Its names, without dashes.
    pub(super) names: &'static [&'static str],
    /// Only with a value after `=`, or only before this kind of word.
    pub(super) only: Only,
    pub(super) cure: Cure,
    /// What to know of it, unless the line says it all.
    pub(super) why: &'static str,
}

/// When a word is an option of another tool.
#[derive(Clone, Copy)]
pub(super) enum Only {
    Always,
    /// As `-n=3`.
    WithValue,
    /// As `-s KILL`.
    BeforeSignal,
    /// As `-w json`.
    BeforeJson,
}

/// What becomes of an option.
#[derive(Clone, Copy)]
pub(super) enum Cure {
    /// This option, without a value.
    Flag(&'static str),
    /// This option, with its value.
    Option(&'static str),
    /// Nothing.
    Nothing,
    /// Nothing, with its value.
    NothingWithValue,
    /// The nodes that `--endpoints` names.
    Endpoints,
    /// The user of `--user=USER:PASSWORD`.
    User,
}

use Cure::{Endpoints, Flag, Nothing, NothingWithValue, Option as Becomes, User};

const fn always(names: &'static [&'static str], cure: Cure, why: &'static str) -> Habit {
    Habit { names, only: Only::Always, cure, why }
}

const fn only(only: Only, names: &'static [&'static str], cure: Cure, why: &'static str) -> Habit {
    Habit { names, only, cure, why }
}

const SIGNALS_SENT: &str = "SIGTERM is sent first and SIGKILL --kill-after later, when the lock is about to expire or \
    --max-hold has passed";

const OF_PASSWORD: &str = "the password is read from QUORLOCK_PASSWORD or --password-file";

/// The first that fits counts.
pub(super) const HABITS: &[Habit] = &[
    // timeout
    only(Only::BeforeSignal, &["s"], NothingWithValue, SIGNALS_SENT),
    always(&["signal"], NothingWithValue, SIGNALS_SENT),
    always(&["preserve-status"], Nothing, "the exit code is that of the command"),
    always(&["foreground"], Nothing, "the command has the terminal, and its keys"),
    // flock
    always(&["s"], Flag("--shared"), ""),
    always(&["x", "e", "exclusive"], Nothing, "a lock is exclusive unless --shared is given"),
    always(&["nonblock", "nb"], Flag("--no-wait"), ""),
    always(&["o", "close"], Nothing, "the lock is kept until the process group of the command has ended"),
    always(&["F", "no-fork"], Nothing, "quorlock stays beside the command, and renews the lock"),
    always(
        &["u", "unlock"],
        Nothing,
        "`run` and `hold` release the lock when they end; `quorlock release` does it by hand",
    ),
    always(
        &["timeout"],
        Becomes("--wait"),
        "--wait limits the time to wait for the lock, --max-hold the time that the command holds it",
    ),
    // consul lock
    only(
        Only::WithValue,
        &["n"],
        Becomes("--permits"),
        "-n is --no-wait and takes no number; a lock whose name is a number follows --no-wait",
    ),
    always(&["try"], Becomes("--wait"), ""),
    always(&["name"], Becomes("--label"), ""),
    always(&["verbose"], Flag("--verbose"), ""),
    always(&["child-exit-code"], Nothing, "the exit code is that of the command"),
    always(&["pass-stdin"], Nothing, "the command has stdin"),
    always(&["shell"], Nothing, "a command runs without a shell; -c STRING runs one"),
    always(&["monitor-retry"], NothingWithValue, "the lock is renewed as long as a quorum answers in time"),
    always(
        &["http-addr"],
        NothingWithValue,
        "no agent is asked: --nodes or QUORLOCK_NODES names the servers that keep the locks",
    ),
    always(&["token"], NothingWithValue, OF_PASSWORD),
    always(&["token-file"], Becomes("--password-file"), ""),
    always(&["ca-file"], Becomes("--tls-ca"), ""),
    always(&["client-cert"], Becomes("--tls-cert"), ""),
    always(&["client-key"], Becomes("--tls-key"), ""),
    always(&["tls-server-name"], Becomes("--tls-server-name"), ""),
    // etcdctl lock
    only(Only::BeforeJson, &["w"], Flag("--json"), ""),
    always(&["write-out"], Flag("--json"), ""),
    always(&["endpoints"], Endpoints, ""),
    always(&["cacert"], Becomes("--tls-ca"), ""),
    always(&["cert"], Becomes("--tls-cert"), ""),
    always(&["key"], Becomes("--tls-key"), ""),
    always(&["command-timeout", "dial-timeout"], Becomes("--node-timeout"), ""),
    always(&["user"], User, OF_PASSWORD),
    always(&["password"], NothingWithValue, OF_PASSWORD),
];

/// Options of [`HABITS`] that mean the lock itself where nothing else names it.
pub(super) const NAMES: [&str; 2] = ["name", "key"];

/// Verbs of other tools.
pub(super) const VERBS: &[(&str, &[&str])] = &[
    ("acquire", &["run"]),
    ("with", &["run"]),
    ("try", &["run", "--no-wait"]),
    ("trylock", &["run", "--no-wait"]),
    ("show", &["status"]),
    ("info", &["status"]),
    ("inspect", &["status"]),
    ("get", &["status"]),
    ("check", &["doctor"]),
    ("ping", &["doctor"]),
    ("history", &["log"]),
    ("leader", &["elect"]),
    ("campaign", &["elect"]),
    ("version", &["--version"]),
];

impl Habit {
    /// Whether this `word` is it, in front of the `next`.
    pub(super) fn is(&self, word: &str, next: Option<&str>) -> bool {
        let (option, value) =
            word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        let name = option.strip_prefix("--").or_else(|| option.strip_prefix('-'));
        let fits = match self.only {
            Only::Always => true,
            Only::WithValue => value.is_some(),
            Only::BeforeSignal => value.is_none() && next.is_some_and(is_signal),
            Only::BeforeJson => next == Some("json"),
        };
        fits && name.is_some_and(|name| self.names.contains(&name))
    }
}

impl Cure {
    pub(super) fn takes_value(self) -> bool {
        match self {
            Becomes(_) | NothingWithValue | Endpoints | User => true,
            // It replaces `-w json`.
            Flag(option) => option == "--json",
            Nothing => false,
        }
    }

    /// Returns the words in the place of the option and its value.
    pub(super) fn words(self, value: &str) -> Vec<String> {
        match self {
            Flag(option) => vec![option.to_owned()],
            Becomes(option) => vec![option.to_owned(), value.to_owned()],
            Nothing | NothingWithValue => Vec::new(),
            Endpoints => vec!["--nodes".to_owned(), endpoints(value)],
            User => vec!["--username".to_owned(), value.split(':').next().unwrap_or_default().to_owned()],
        }
    }
}

/// Returns the address of a cluster of etcd with these members.
fn endpoints(members: &str) -> String {
    let scheme = if members.contains("https://") { "etcds" } else { "etcd" };
    format!("{scheme}://{}", members.replace("https://", "").replace("http://", ""))
}

/// Whether it is a signal as `timeout -s` takes it.
fn is_signal(word: &str) -> bool {
    let name = word.strip_prefix("SIG").unwrap_or(word);
    ["HUP", "INT", "QUIT", "KILL", "TERM", "USR1", "USR2", "ALRM", "CONT", "STOP"].contains(&name)
        || (1..=64).contains(&word.parse().unwrap_or(0))
}
