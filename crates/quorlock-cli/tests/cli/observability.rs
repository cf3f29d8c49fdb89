//! The dashboard, the alerts and the documentation name existing metrics only.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what does not go as expected fails the test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use crate::metrics::{address, scrape};
use crate::support::{Quorlock, UNTIL_ENOUGH, run, servers, skips};

/// The values of each label.
type Labels = BTreeMap<String, BTreeSet<String>>;

/// The emitted metrics, with their labels and the values of these.
#[derive(Default)]
struct Emitted {
    metrics: BTreeMap<String, Labels>,
}

/// Labels that Prometheus adds, and `class`, which some programs set.
const ADDED: [&str; 4] = ["job", "instance", "le", "class"];

impl Emitted {
    fn add(&mut self, samples: &str) {
        let histogram =
            |line: &str| line.strip_prefix("# TYPE ")?.strip_suffix(" histogram").map(str::to_owned);
        let histograms: BTreeSet<String> = samples.lines().filter_map(histogram).collect();
        for line in samples.lines().filter(|line| line.starts_with("quorlock_")) {
            let series = line.rsplit_once(' ').expect("a value").0;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let base = base.filter(|base| histograms.contains(*base)).unwrap_or(name);
            for name in [name, base] {
                let known = self.metrics.entry(name.to_owned()).or_default();
                for (label, value) in matchers(labels.trim_end_matches('}')) {
                    known.entry(label.to_owned()).or_default().insert(value.to_owned());
                }
            }
        }
    }

    /// Returns the metrics, without the parts of histograms.
    fn names(&self) -> BTreeSet<&str> {
        let part = |name: &str| {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            base.is_some_and(|base| self.metrics.contains_key(base))
        };
        self.metrics.keys().map(String::as_str).filter(|name| !part(name)).collect()
    }

    /// Returns what is wrong with an expression.
    fn faults(&self, expression: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let mut known: BTreeSet<&str> = ADDED.into();
        let mut used = 0;
        for (start, _) in expression.match_indices("quorlock_") {
            used += 1;
            let rest = &expression[start..];
            let name =
                &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())];
            let Some(labels) = self.metrics.get(name) else {
                faults.push(format!("there is no metric {name}"));
                continue;
            };
            known.extend(labels.keys().map(String::as_str));
            let selector = rest[name.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
            for (label, value) in matchers(selector.map_or("", |(selector, _)| selector)) {
                let values = labels.get(label);
                let missing = |value: &&str| values.is_none_or(|values| !values.contains(*value));
                if ADDED.contains(&label) {
                } else if values.is_none() {
                    faults.push(format!("{name} has no label {label}"));
                } else if let Some(value) = value.split('|').find(missing) {
                    faults.push(format!("{name} has no {label} {value}"));
                }
            }
        }
        if used == 0 {
            faults.push("it has nothing to do with quorlock".to_owned());
        }
        for grouping in ["by (", "on ("] {
            for (start, _) in expression.match_indices(grouping) {
                let list = expression[start + grouping.len()..].split(')').next().unwrap_or_default();
                let unknown = list.split(',').map(str::trim).find(|label| !known.contains(label));
                faults.extend(unknown.map(|label| format!("nothing in it has a label {label}")));
            }
        }
        faults
    }
}

/// Returns the labels of a sample or of a selector, with their values.
fn matchers(list: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = list;
    while let Some((label, behind)) = rest.split_once('"') {
        let (value, behind) = behind.split_once('"').expect("values are quoted");
        found.push((label.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_'), value));
        rest = behind;
    }
    found
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn read(path: &str) -> String {
    fs::read_to_string(docs().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns everything that a run emits: while its command runs, and at its end.
async fn emitted() -> Option<Emitted> {
    let servers = servers(3).await?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.prom");
    let options = ["-v", "--metrics", "0", "--metrics-file", path.to_str().unwrap()];
    let running = run(&servers, &options, UNTIL_ENOUGH).prints(1).await;
    let mut emitted = Emitted::default();
    emitted.add(&scrape(&address(&running).await, "/metrics"));
    running.enough().await.expect(0);
    emitted.add(&fs::read_to_string(&path).unwrap());
    // A failure is in the file from the first one on; and what is unsafe, if there is anything.
    run(&servers, &["--metrics-file", path.to_str().unwrap()], "exit 1").end().await.expect(1);
    emitted.add(&fs::read_to_string(&path).unwrap());
    let check = ["doctor", "--restart-guard", "off", "--metrics-file", path.to_str().unwrap()];
    Quorlock::new(check).on(&servers).end().await.expect(79);
    emitted.add(&fs::read_to_string(&path).unwrap());
    // A histogram exists from its first sample on, and this run renewed nothing.
    for metric in quorlock::metrics::ALL {
        let known =
            emitted.metrics.get(metric.name).unwrap_or_else(|| panic!("{} is not emitted", metric.name));
        let labels = known.keys().map(String::as_str).filter(|label| !["resource", "le"].contains(label));
        let listed: BTreeSet<&str> =
            metric.labels.iter().copied().filter(|label| *label != "class").collect();
        assert_eq!(labels.collect::<BTreeSet<_>>(), listed, "the labels of {}", metric.name);
    }
    Some(emitted)
}

#[tokio::test]
async fn dashboard_alerts_and_documentation_name_what_a_real_run_emits() {
    let Some(emitted) = emitted().await else { return };
    let mut faults = Vec::new();

    let dashboard: Value = serde_json::from_str(&read("observability/quorlock-dashboard.json")).unwrap();
    let mut asked = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let about = |fault| format!("dashboard, {}: {fault}: {expression}", panel["title"]);
            faults.extend(emitted.faults(expression).into_iter().map(about));
            asked.push(expression.to_owned());
        }
        let is_row = panel["type"] == "row";
        assert!(
            is_row || !panel["description"].as_str().unwrap_or_default().is_empty(),
            "{}",
            panel["title"]
        );
    }

    let alerts = YamlLoader::load_from_str(&read("observability/quorlock-alerts.yaml")).unwrap();
    let rules: &Vec<Yaml> = alerts[0]["groups"][0]["rules"].as_vec().unwrap();
    let page = read("alerts.md");
    for rule in rules {
        let (name, expression) = (rule["alert"].as_str().unwrap(), rule["expr"].as_str().unwrap());
        let about = |fault| format!("alert {name}: {fault}: {expression}");
        faults.extend(emitted.faults(expression).into_iter().map(about));
        for text in ["summary", "description", "runbook"] {
            let words = rule["annotations"][text].as_str().unwrap_or_default();
            assert!(words.len() > 20, "alert {name} lacks its {text}");
            // Runbooks name metrics as well.
            for (start, _) in words.match_indices("quorlock_") {
                let metric: String =
                    words[start..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                assert!(emitted.metrics.contains_key(&metric), "alert {name} speaks of {metric}");
            }
        }
        let section = format!("docs/alerts.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["page"].as_str(), Some(section.as_str()), "alert {name}");
        assert!(page.contains(&format!("\n## {name}\n")), "docs/alerts.md has no section {name}");
        asked.push(expression.to_owned());
    }
    assert_eq!(faults, Vec::<String>::new());
    assert!(asked.len() > 40 && rules.len() >= 10, "both were read: {asked:#?}");

    let documentation = read("observability.md");
    let documented: BTreeSet<&str> = documentation
        .lines()
        .filter_map(|line| line.strip_prefix("| `quorlock_"))
        .map(|line| line.split('`').next().unwrap())
        .collect();
    let names: BTreeSet<&str> =
        emitted.names().iter().map(|name| name.strip_prefix("quorlock_").unwrap()).collect();
    assert_eq!(documented, names, "the tables of docs/observability.md and what is emitted");
    for metric in quorlock::metrics::ALL {
        let row =
            documentation.lines().find(|line| line.starts_with(&format!("| `{}` ", metric.name))).unwrap();
        let kind = format!("{:?}", metric.kind).to_lowercase();
        assert!(row.contains(metric.help) && row.contains(&format!("| {kind} |")), "{row}");
        assert!(metric.labels.iter().all(|label| row.contains(&format!("`{label}`"))), "{row}");
    }
}

#[test]
fn what_does_not_exist_is_found_in_an_expression() {
    let mut emitted = Emitted::default();
    emitted.add("# TYPE quorlock_a_total counter\nquorlock_a_total{why=\"x\",node=\"n\"} 1\n");
    emitted.add(
        "# TYPE quorlock_s histogram\nquorlock_s_bucket{le=\"1\"} 1\nquorlock_s_sum 1\nquorlock_s_count 1\n",
    );
    assert_eq!(emitted.names(), BTreeSet::from(["quorlock_a_total", "quorlock_s"]));
    let right =
        "sum by (why) (rate(quorlock_a_total{why=~\"x\",job=\"$job\"}[5m])) / on (le) quorlock_s_bucket";
    assert_eq!(emitted.faults(right), Vec::<String>::new());
    for (wrong, word) in [
        ("quorlock_b_total", "no metric quorlock_b_total"),
        ("quorlock_a_total{who=\"x\"}", "no label who"),
        ("quorlock_a_total{why=~\"x|y\"}", "no why y"),
        ("sum by (who) (quorlock_a_total)", "label who"),
        ("up", "nothing to do"),
    ] {
        let faults = emitted.faults(wrong);
        assert!(faults.len() == 1 && faults[0].contains(word), "{wrong}: {faults:?}");
    }
}

#[test]
fn each_alert_is_tested_for_firing_and_for_not_firing() {
    let parse = |path: &str| YamlLoader::load_from_str(&read(path)).unwrap().remove(0);
    let (alerts, tests) =
        (parse("observability/quorlock-alerts.yaml"), parse("observability/quorlock-alerts-test.yaml"));
    // The names, and whether the test expects something.
    let mut tested = BTreeSet::new();
    for test in tests["tests"].as_vec().unwrap() {
        for one in test["alert_rule_test"].as_vec().into_iter().flatten() {
            tested.insert((one["alertname"].as_str().unwrap().to_owned(), !one["exp_alerts"].is_badvalue()));
        }
        for one in test["promql_expr_test"].as_vec().into_iter().flatten() {
            let expression = one["expr"].as_str().unwrap();
            let (_, rest) = expression.split_once("alertname=\"").expect("the name of an alert");
            let fires = !one["exp_samples"].is_badvalue();
            assert!(
                !fires || expression.contains("alertstate=\"firing\""),
                "pending is not firing: {expression}"
            );
            tested.insert((rest.split('"').next().unwrap().to_owned(), fires));
        }
    }
    for rule in alerts["groups"][0]["rules"].as_vec().unwrap() {
        let name = rule["alert"].as_str().unwrap().to_owned();
        for fires in [true, false] {
            assert!(tested.contains(&(name.clone(), fires)), "no test that {name} fires: {fires}");
        }
    }
}

#[test]
fn prometheus_itself_finds_the_alerts_right() {
    let promtool = std::env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    for (verb, file) in [("check", "quorlock-alerts.yaml"), ("test", "quorlock-alerts-test.yaml")] {
        let file = docs().join("observability").join(file);
        match Command::new(&promtool).args([verb, "rules"]).arg(&file).output() {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => {
                let word = "no promtool is here; install Debian's package prometheus, or name it in PROMTOOL";
                return skips(format_args!("{word} ({error})"));
            }
        }
    }
}
