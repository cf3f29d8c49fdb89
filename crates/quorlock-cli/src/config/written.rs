//! Writes the settings as a file, with a comment for each.

use std::fmt::Write as _;
use std::path::{Path, absolute};
use std::time::Duration;

use humantime::format_duration;
use quorlock::Wait;
use serde_json::Value;

use super::layer::Layer;
use crate::args::{Switch, WaitArg};

impl Layer {
    /// Returns a file with these settings, and the others as comments.
    pub(super) fn in_toml(&self) -> String {
        let mut file = "\
# Settings of quorlock, which flags and QUORLOCK_… variables override. Written by `quorlock init`.
# All clients of the same locks need the same nodes, key-prefix, max-ttl and drift.

# Independent servers, an odd number. More than half of them must answer.
"
        .to_owned();
        let nodes: Vec<String> = self.nodes.iter().map(|node| format!("    {},\n", text(node))).collect();
        let _ = writeln!(file, "nodes = [\n{}]", nodes.concat());
        let time = |time: Option<Duration>| time.map(|time| text(&exact(time)));
        let path = |path: &Option<_>| path.as_deref().map(|path: &Path| text(&whole(path)));
        let word = |word: &Option<String>| word.as_deref().map(text);
        let settings = [
            (
                "key-prefix",
                word(&self.key_prefix),
                text("locks:"),
                "Prefix of every key, also for the rights of the user.",
            ),
            (
                "max-ttl",
                time(self.max_ttl),
                text("30s"),
                "Longest TTL of any client; a restarted node does not vote for that long.",
            ),
            (
                "ttl",
                time(self.ttl),
                text("30s"),
                "How long the nodes keep a lock that is not renewed: at most max-ttl.",
            ),
            ("wait", self.wait.map(wait), text("35s"), "How long to wait for a lock, or \"forever\"."),
            (
                "node-timeout",
                time(self.node_timeout),
                text("1s"),
                "How long to wait for one node, more for a distant one.",
            ),
            (
                "drift",
                self.drift.map(|share| share.to_string()),
                "0.01".to_owned(),
                "Share of the TTL set aside because clocks run at different rates.",
            ),
            (
                "restart-guard",
                self.restart_guard.map(switch),
                text("on"),
                "Whether restarted nodes do not vote at first.",
            ),
            ("username", word(&self.username), text("quorlock"), "ACL user of addresses that name none."),
            (
                "password-file",
                path(&self.password_file),
                text("/etc/quorlock.password"),
                "File with the password in its first line; or set QUORLOCK_PASSWORD.",
            ),
            (
                "tls-ca",
                path(&self.tls_ca),
                text("/etc/ssl/locks-ca.pem"),
                "For rediss:// addresses: CA certificates other than the system's.",
            ),
            ("tls-cert", path(&self.tls_cert), text("/etc/ssl/client.pem"), "Client certificate."),
            ("tls-key", path(&self.tls_key), text("/etc/ssl/client.key"), "Its private key."),
            (
                "tls-server-name",
                word(&self.tls_server_name),
                text("locks.internal"),
                "Name in the certificate of every node, if not the host of its address.",
            ),
            (
                "metrics",
                word(&self.metrics),
                text("127.0.0.1:9464"),
                "Address that serves Prometheus metrics and /ready while a lock is held.",
            ),
            (
                "metrics-file",
                path(&self.metrics_file),
                text("/var/lib/node_exporter/job.prom"),
                "File for the textfile collector of the node exporter.",
            ),
        ];
        for (key, set, example, meaning) in settings {
            let line = set.map_or_else(|| format!("# {key} = {example}"), |value| format!("{key} = {value}"));
            let _ = write!(file, "\n# {meaning}\n{line}\n");
        }
        file
    }
}

/// Returns a string of TOML, which has the same escapes as JSON.
fn text(text: &str) -> String {
    Value::from(text).to_string()
}

/// The path as seen from every folder.
fn whole(path: &Path) -> String {
    absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// The whole duration; [`quorlock::duration::format`] rounds.
fn exact(time: Duration) -> String {
    format_duration(time).to_string()
}

fn wait(WaitArg(wait): WaitArg) -> String {
    text(&match wait {
        Wait::Never => "0s".to_owned(),
        Wait::UpTo(longest) => exact(longest),
        Wait::Forever | _ => "forever".to_owned(),
    })
}

fn switch(switch: Switch) -> String {
    text(match switch {
        Switch::On => "on",
        Switch::Off => "off",
    })
}

#[cfg(test)]
mod tests {
    use quorlock::node::Kinds;

    use super::*;

    fn read(file: &str) -> Layer {
        Layer::parse(file, Path::new("/etc/quorlock.toml"), &Kinds::default())
            .map_err(|error| error.full())
            .unwrap()
    }

    #[test]
    fn a_file_that_was_written_is_read_back_the_same() {
        let layer = Layer {
            nodes: vec!["redis://a".to_owned(), "redis://b".to_owned()],
            key_prefix: Some("a\"b\\c:".to_owned()),
            max_ttl: Some(Duration::from_millis(61_500)),
            drift: Some(0.02),
            tls_ca: Some("/ca.pem".into()),
            restart_guard: Some(Switch::Off),
            wait: Some(WaitArg(Wait::Forever)),
            ..Layer::default()
        };
        let back = read(&layer.in_toml());
        assert_eq!(back.nodes, layer.nodes);
        assert_eq!(back.key_prefix, layer.key_prefix);
        assert_eq!((back.max_ttl, back.drift), (layer.max_ttl, layer.drift));
        assert_eq!((back.tls_ca, back.restart_guard), (layer.tls_ca.clone(), layer.restart_guard));
        assert_eq!((back.wait, back.ttl), (layer.wait, None));
    }

    #[test]
    fn every_setting_is_in_the_file_and_its_example_works() {
        let file = Layer { nodes: vec!["redis://a".to_owned()], ..Layer::default() }.in_toml();
        for key in super::super::KEYS {
            assert!(file.contains(&format!("{key} = ")), "{key}");
        }
        let lines = file
            .lines()
            .skip_while(|line| *line != "]")
            .map(|line| line.strip_prefix("# ").filter(|setting| setting.contains(" = ")).unwrap_or(line));
        read(&lines.skip(1).collect::<Vec<_>>().join("\n"));
    }
}
