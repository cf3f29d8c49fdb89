//! What the Debian package contains besides the program: its list of files, its units and its settings.

use std::fs;
use std::path::Path;
use std::process::Command;

use toml::{Table, Value};

use crate::support::{Quorlock, servers, skips};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging");
/// What `scripts/release` puts there before it calls `cargo deb`.
const GENERATED: &str = "../../target/deb/";

fn text(name: &str) -> String {
    fs::read_to_string(Path::new(FOLDER).join(name)).unwrap()
}

fn metadata() -> Table {
    let manifest: Table = include_str!("../../Cargo.toml").parse().unwrap();
    manifest["package"]["metadata"]["deb"].as_table().unwrap().clone()
}

/// Returns source, folder and mode of each file of the package.
fn assets() -> Vec<[String; 3]> {
    let metadata = metadata();
    let assets = metadata["assets"].as_array().unwrap().iter();
    let words = |asset: &Value| {
        let words = asset.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned());
        <[String; 3]>::try_from(words.collect::<Vec<_>>()).unwrap()
    };
    assets.map(words).collect()
}

#[test]
fn every_file_of_the_debian_package_exists_or_is_written_by_the_release() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let release = fs::read_to_string(crate_folder.join("../../scripts/release")).unwrap();
    let mut of_ours = Vec::new();
    for [source, _, mode] in assets() {
        if source == "target/release/quorlock" {
            assert_eq!(mode, "755", "{source}");
            continue;
        }
        assert_eq!(mode, "644", "{source}");
        if let Some(generated) = source.strip_prefix(GENERATED) {
            // By its folder, such as `man`, or by its name.
            let name = generated.split('/').next().unwrap().trim_end_matches(".gz");
            assert!(release.contains(name), "scripts/release does not write {source}");
            continue;
        }
        assert!(crate_folder.join(&source).is_file(), "{source} is missing");
        of_ours.push(source);
    }
    for file in fs::read_dir(FOLDER).unwrap() {
        let source = format!("packaging/{}", file.unwrap().file_name().display());
        let is_named = of_ours.contains(&source) || source == metadata()["license-file"][0].as_str().unwrap();
        assert!(is_named, "{source} is not in the package");
    }
}

#[test]
fn every_configuration_file_is_kept_on_an_upgrade() {
    let kept = metadata()["conf-files"].as_array().unwrap().clone();
    for [source, folder, _] in assets().into_iter().filter(|[_, folder, _]| folder.starts_with("etc/")) {
        let name = Path::new(&source).file_name().unwrap().display().to_string();
        assert!(kept.contains(&Value::from(format!("/{folder}{name}"))), "{source}");
    }
}

#[test]
fn systemd_accepts_the_units() {
    let folder = tempfile::tempdir().unwrap();
    for (template, unit) in [
        ("quorlock@.service", "quorlock@import.service"),
        ("quorlock@.timer", "quorlock@import.timer"),
        ("quorlock-elect@.service", "quorlock-elect@import.service"),
    ] {
        let text = text(template).replace("/usr/bin/quorlock", env!("CARGO_BIN_EXE_quorlock"));
        fs::write(folder.path().join(unit), text).unwrap();
    }
    for unit in fs::read_dir(folder.path()).unwrap() {
        let unit = unit.unwrap().path();
        let Ok(ended) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output()
        else {
            return skips("systemd-analyze is not installed");
        };
        // It also reports other units of this machine.
        let stderr = String::from_utf8_lossy(&ended.stderr);
        let about_it: Vec<&str> = stderr.lines().filter(|line| line.contains("quorlock")).collect();
        assert!(about_it.is_empty(), "{}: {about_it:#?}", unit.display());
    }
}

/// Returns the value of a setting of a unit, or of a file of variables, without the quotes around it.
fn setting(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = line.unwrap_or_else(|| panic!("there is no {name}"));
    let within = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(value).to_owned()
}

/// Returns the words with which a unit starts `quorlock`, as systemd expands them: `$OPTIONS` is split into words,
/// `${COMMAND}` is a part of one. The shell is that of the unit.
fn words(service: &str, options: &str, command: &str) -> Vec<String> {
    assert!(service.contains("\nEnvironment=SHELL=/bin/sh\n"), "COMMAND is a line for `sh`");
    let start = setting(service, "ExecStart").replace("$OPTIONS", options).replace("%i", "import");
    start.split_whitespace().skip(1).map(|word| word.replace("${COMMAND}", command)).collect()
}

#[test]
fn the_template_of_a_service_ends_as_the_unit_in_the_manual() {
    let packaged = text("quorlock-elect@.service");
    let manual = include_str!("../../../../docs/jobs/systemd.md");
    let unit = manual.split("## A service that is active on one host").nth(1).unwrap();
    for name in ["Restart", "RestartSec", "RestartPreventExitStatus", "SuccessExitStatus", "KillMode"] {
        assert_eq!(setting(&packaged, name), setting(unit, name), "{name}");
    }
}

#[tokio::test]
async fn the_template_of_a_job_runs_it_once_for_each_slot() {
    let Some(servers) = servers(3).await else { return };
    let service = text("quorlock@.service");
    let options = setting(&service, "Environment").strip_prefix("OPTIONS=").unwrap().to_owned();
    let job = setting(&text("job.env"), "COMMAND");
    let job = job.replace("/usr/local/bin/import", "echo");
    let start = |job: &str| Quorlock::new(words(&service, &options, job)).on(&servers);
    // A file without COMMAND leaves the slot to the other hosts.
    start("").end().await.expect(127);
    let ran = start(&job).end().await.expect(0);
    assert!(ran.stdout.starts_with("--day 20"), "{ran:?}");
    let code = setting(&service, "SuccessExitStatus").parse().unwrap();
    assert_eq!(start(&job).end().await.expect(code).stdout, "");
}

#[tokio::test]
async fn the_template_of_a_service_without_a_command_campaigns_not_even_once() {
    let service = text("quorlock-elect@.service");
    let nodes = |words: Vec<String>| Quorlock::new(words).env("QUORLOCK_NODES", "redis://127.0.0.1:1");
    nodes(words(&service, "", "")).end().await.expect(127);
    let prevented = setting(&service, "RestartPreventExitStatus");
    assert!(prevented.split(' ').any(|code| code == "127"), "{prevented}");
}
