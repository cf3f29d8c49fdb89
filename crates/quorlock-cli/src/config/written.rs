//! Writes the settings as a file, with a comment for each.

use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

use humantime::format_duration;
use quorlock::Wait;
#[cfg(test)]
use quorlock_config::Sources;
use quorlock_config::{KEYS, Layer};
use serde_json::Value;

/// All settings with their meanings, as comments. The packages install it as `/etc/quorlock.toml`.
const TEMPLATE: &str = include_str!("quorlock.toml");

/// Returns a file with these settings, and the others as comments: `template` if it is given, such as the file of a
/// package, in which the comments stay as they are.
pub(super) fn in_toml(layer: &Layer, template: Option<&str>) -> String {
    let mut left: Vec<&str> = KEYS.to_vec();
    let mut line = |line: &str| {
        let key = line.strip_prefix('#').and_then(|rest| rest.split_once(" = ")).map(|(key, _)| key);
        let place = key.and_then(|key| left.iter().position(|other| *other == key));
        match place.and_then(|place| Some((place, line_of(layer, left.get(place)?)?))) {
            Some((place, set)) => {
                left.remove(place);
                set
            }
            None if key == Some("quorum") && !layer.nodes.is_empty() => {
                format!("#quorum = {}\n", layer.nodes.len() / 2 + 1)
            }
            None => format!("{line}\n"),
        }
    };
    let text: String = template.unwrap_or(TEMPLATE).lines().map(&mut line).collect();
    left.into_iter().filter_map(|key| line_of(layer, key)).fold(text, |text, line| text + &line)
}

fn line_of(layer: &Layer, key: &str) -> Option<String> {
    Some(format!("{key} = {}\n", value(layer, key)?))
}

/// Returns the value of a setting as it is written in TOML, if it is set.
fn value(layer: &Layer, key: &str) -> Option<String> {
    let time = |time: Option<Duration>| time.map(|time| text(&exact(time)));
    let path = |path: &Option<PathBuf>| path.as_deref().map(|path| text(&whole(path)));
    let word = |word: &Option<String>| word.as_deref().map(text);
    match key {
        "nodes" => (!layer.nodes.is_empty()).then(|| Value::from(layer.nodes.clone()).to_string()),
        "quorum" => layer.quorum.map(|nodes| nodes.to_string()),
        "key-prefix" => word(&layer.key_prefix),
        "node-timeout" => time(layer.node_timeout),
        "drift" => layer.drift.map(|share| share.to_string()),
        "max-ttl" => time(layer.max_ttl),
        "username" => word(&layer.username),
        "password-file" => path(&layer.password_file),
        "password-command" => word(&layer.password_command),
        "tls-ca" => path(&layer.tls_ca),
        "tls-cert" => path(&layer.tls_cert),
        "tls-key" => path(&layer.tls_key),
        "tls-server-name" => word(&layer.tls_server_name),
        "restart-guard" => layer.restart_guard.map(switch),
        "ttl" => time(layer.ttl),
        "wait" => layer.wait.map(wait),
        "log" => layer.log.map(|holds| holds.to_string()),
        "metrics" => word(&layer.metrics),
        "metrics-file" => path(&layer.metrics_file),
        _ => None,
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

fn wait(wait: Wait) -> String {
    text(&match wait {
        Wait::Never => "0s".to_owned(),
        Wait::UpTo(longest) => exact(longest),
        Wait::Forever | _ => "forever".to_owned(),
    })
}

fn switch(on: bool) -> String {
    text(if on { "on" } else { "off" })
}

#[cfg(test)]
mod tests {
    use quorlock::node::Kinds;

    use super::*;

    fn read(file: &str) -> Layer {
        Layer::parse(file, Path::new("/etc/quorlock.toml"), &Kinds::default()).unwrap()
    }

    #[test]
    fn every_setting_is_written_and_read_back_the_same() {
        let layer = Layer {
            nodes: vec!["redis://a".to_owned(), "redis://b".to_owned()],
            quorum: Some(2),
            key_prefix: Some("a\"b\\c:".to_owned()),
            node_timeout: Some(Duration::from_millis(250)),
            drift: Some(0.02),
            max_ttl: Some(Duration::from_millis(61_500)),
            username: Some("ann".to_owned()),
            password: None,
            password_file: Some("/password".into()),
            password_command: Some("pass 'locks'".to_owned()),
            tls_ca: Some("/ca.pem".into()),
            tls_cert: Some("/me.pem".into()),
            tls_key: Some("/me.key".into()),
            tls_server_name: Some("locks".to_owned()),
            restart_guard: Some(false),
            ttl: Some(Duration::from_secs(9)),
            wait: Some(Wait::Forever),
            log: Some(50),
            metrics: Some("9464".to_owned()),
            metrics_file: Some("/job.prom".into()),
            sources: Sources::default(),
        };
        let file = in_toml(&layer, None);
        let back = read(&file);
        for key in KEYS {
            assert!(value(&layer, key).is_some(), "{key} is not written");
            assert_eq!(value(&back, key), value(&layer, key), "{file}");
        }
    }

    #[test]
    fn settings_that_are_not_set_stay_comments_whose_examples_work() {
        let file = in_toml(&Layer { nodes: vec!["redis://a".to_owned()], ..Layer::default() }, None);
        assert_eq!(read(&file).nodes, ["redis://a"]);
        assert!(file.contains("\n#quorum = 1\n"), "the default of these nodes: {file}");
        let settings =
            file.lines().filter_map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')));
        let settings: Vec<&str> = settings.collect();
        assert_eq!(settings.len(), KEYS.len() - 1, "{settings:?}");
        let examples = read(&settings.join("\n"));
        for key in KEYS.into_iter().filter(|key| *key != "nodes") {
            assert!(value(&examples, key).is_some(), "{key} is not in the file");
        }
    }
}
