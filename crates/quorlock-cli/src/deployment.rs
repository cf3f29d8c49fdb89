//! The options that say which nodes to use, and how to reach them.

use std::path::PathBuf;
use std::time::Duration;

use quorlock::{duration, node::Kinds};
use quorlock_kinds::KINDS;

/// Refuses an empty list, as of a variable that is not set: other sources would name other nodes.
fn some_nodes(list: &str) -> Result<String, &'static str> {
    let is_empty = list.trim_matches([',', ' ', '\t', '\n']).is_empty();
    if is_empty {
        Err("it names no node; leave the option out to use the configured ones")
    } else {
        Ok(list.to_owned())
    }
}

/// The forms that addresses have, of the kinds that this program was built with.
fn addresses() -> String {
    let built_in = KINDS.iter().filter(|kind| kind.is_built_in());
    let forms: Vec<_> = built_in.map(|kind| format!("{}: {}.", kind.name, kind.addresses)).collect();
    format!(
        "The nodes, comma-separated or repeated, such as redis://HOST:PORT.\n\n{}\n\nFor another scheme the error lists those \
         that this build supports.",
        forms.join("\n")
    )
}

/// The nodes and how to reach them: the same for every client of a deployment.
///
/// `config` also reads these from the environment and the configuration file.
#[derive(clap::Args)]
#[command(next_help_heading = "Nodes")]
#[expect(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]
pub(crate) struct DeploymentArgs {
    /// The nodes, comma-separated or repeated, such as redis://HOST:PORT.
    #[arg(long, global = true, value_name = "URL", value_parser = some_nodes, long_help = addresses())]
    pub(crate) nodes: Vec<String>,
    /// The configuration file [default: the first of ./quorlock.toml, quorlock/quorlock.toml in
    /// $XDG_CONFIG_HOME or ~/.config, and /etc/quorlock.toml].
    ///
    /// A default file that other users can write is not read unless it is named here.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How many of the nodes must grant a lock: more than half. With more, clients with two lists of nodes
    /// exclude each other while the list changes [default: the smallest majority]
    #[arg(long, global = true, hide_short_help = true, value_name = "N")]
    pub(crate) quorum: Option<usize>,
    /// Prefix for every key [default: none]
    #[arg(long, global = true, hide_short_help = true, value_name = "PREFIX")]
    pub(crate) key_prefix: Option<String>,
    /// How long to wait for one node's answer [default: 1s, more for a distant node]
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) node_timeout: Option<Duration>,
    /// Share of the TTL set aside because clocks run at different rates [default: 0.01]
    #[arg(long, global = true, hide_short_help = true, value_name = "SHARE")]
    pub(crate) drift: Option<f64>,
    /// Longest TTL that any client uses; a restarted node does not vote for that long [default: 30s]
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_ttl: Option<Duration>,
    /// How many holds of each lock the nodes keep in its log, for `quorlock log` [default: 0, none]
    #[arg(long, global = true, hide_short_help = true, value_name = "HOLDS")]
    pub(crate) log: Option<usize>,
    /// User name (ACL user) for nodes whose URL has none
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(crate) username: Option<String>,
    /// File with the password in its first line; or set the environment variable QUORLOCK_PASSWORD
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Command of the shell that prints the password, within 5 s; it runs again for each connection, as the file is read
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_name = "COMMAND",
        conflicts_with = "password_file"
    )]
    pub(crate) password_command: Option<String>,
    /// CA certificates (PEM) to trust for TLS, instead of those of the system [default: those of the
    /// system]
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Client certificate (PEM), followed by any intermediate certificates
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key (PEM) of the client certificate
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Name that the certificate of every node must have [default: the host of its address]
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
    /// The kinds of node that addresses may name, in every source.
    #[arg(skip)]
    pub(crate) kinds: Kinds,
}
