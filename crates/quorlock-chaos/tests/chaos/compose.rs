//! Tests of the five masters in containers of `compose/`: skipped without a Docker engine.

use std::error::Error;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use futures::FutureExt as _;
use quorlock_servers::within;
use quorlock_testkit::{Kind, Servers, patience};

use self::engine::Engine;
use self::project::Project;

mod engine;
mod holder;
mod masters;
mod network;
mod page;
mod project;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[tokio::test]
async fn every_installed_compose_reads_the_file() -> Outcome {
    let composes = project::composes().await;
    if composes.is_empty() {
        skip("no docker compose and no docker-compose is installed");
    }
    for compose in composes {
        let services = command(&compose, patience(), |command| {
            command.current_dir(folder()).args(["config", "--services"]);
        });
        let services = text(services.await?)?;
        let mut services: Vec<&str> = services.lines().collect();
        services.sort_unstable();
        let each = |name: &str| (1..=5).map(|number| format!("{name}-{number}")).collect::<Vec<_>>();
        let expected = [vec!["client".to_owned()], each("proxy"), each("redis")].concat();
        assert_eq!(services, expected, "{compose:?}");
    }
    Ok(())
}

#[tokio::test]
async fn each_fault_of_the_page_has_the_effect_that_it_names() -> Outcome {
    let engine = match Engine::find().await {
        Ok(engine) => engine,
        Err(reason) => {
            skip(&reason);
            return Ok(());
        }
    };
    let outcome = in_a_project(&engine).await;
    engine.end().await?;
    outcome
}

/// A program named `docker` answers for the project in the folder `compose`: where each file of `ports` says.
#[tokio::test]
async fn data_are_deleted_only_on_masters_of_the_project_that_a_scenario_uses() -> Outcome {
    const DOCKER: &str = "#!/bin/sh
case $2 in
version | logs) ;;
port) exec cat ports/$3 ;;
*) exit 1 ;;
esac
";
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("compose/ports"))?;
    fs::write(at("docker"), DOCKER)?;
    fs::set_permissions(at("docker"), fs::Permissions::from_mode(0o755))?;
    fs::write(at("three.toml"), "summary = 'three masters'\nnodes = 3")?;
    fs::write(at("five.toml"), "summary = 'five masters'\n[load]\nworkers = 2")?;
    let masters = Servers::setup().without_password().start(5).await?;
    let stranger = Servers::setup().password("of another").start(1).await?;
    for master in masters.iter() {
        master.command(&["SET", "precious", "data"]).await?;
    }
    let publish = |number: usize, port: u16| {
        fs::write(at("compose/ports").join(format!("redis-{number}")), format!("127.0.0.1:{port}\n"))
    };
    let chaos = async |scenario: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(
            std::iter::once(folder.path().to_owned()).chain(std::env::split_paths(&path)),
        )?;
        let run = command(&[env!("CARGO_BIN_EXE_quorlock-chaos")], patience() * 2, |command| {
            command.env("PATH", path).current_dir(folder.path());
            command.args(["--compose", "compose", "--duration", "1s", "--scenario", scenario]);
        });
        let run = run.await?;
        let mut kept = 0;
        for master in masters.iter() {
            kept += usize::from(master.command(&["GET", "precious"]).await?.to_string() == "data");
        }
        Outcome::Ok((run.status.code(), crate::chaos::text(&run), kept))
    };

    for (number, master) in (1..).zip(&masters[..4]) {
        publish(number, master.address().port())?;
    }
    let (code, words, kept) = chaos("five.toml").await?;
    assert!(
        (code, kept) == (Some(125), 5)
            && words.contains("no master `redis-5` of a project in compose: docker compose port redis-5"),
        "{kept} {words}"
    );
    publish(5, stranger[0].address().port())?;
    let (code, words, kept) = chaos("five.toml").await?;
    assert!((code, kept) == (Some(125), 5) && words.contains("NOAUTH"), "{kept} {words}");
    publish(5, masters[4].address().port())?;
    let (code, words, kept) = chaos("three.toml").await?;
    assert!((code, kept) == (Some(69), 5) && words.contains("it needs 3 masters"), "{kept} {words}");
    let (code, words, kept) = chaos("five.toml").await?;
    assert!((code, kept) == (Some(0), 0) && words.contains("in containers"), "{kept} {words}");

    // A node that cannot be searched for keys that were left proves nothing.
    if matches!(masters.kind(), Kind::Program { .. }) {
        masters[4].command(&["ACL", "SETUSER", "default", "-keys"]).await?;
        let (code, words, _) = chaos("five.toml").await?;
        let complaint = "node-5 could not be searched for keys: KEYS: NOPERM";
        assert!(code == Some(1) && words.contains(complaint), "{words}");
    }
    Ok(())
}

async fn in_a_project(engine: &Engine) -> Outcome {
    let mut project = match Project::new(engine).await? {
        Ok(project) => project,
        Err(reason) => {
            skip(&reason);
            return Ok(());
        }
    };
    // The containers are removed also after a panic, which prints its message itself.
    let outcome = AssertUnwindSafe(story(&mut project)).catch_unwind().await;
    let ended = project.end().await;
    outcome.unwrap_or_else(|_| Err("a panic".into())).and(ended)
}

async fn story(project: &mut Project) -> Outcome {
    project.build().await?;
    project.compose(&["up", "--detach"]).await?;
    project.eventually_locks().await?;
    let status = text(project.inside(&["quorlock", "status", "job"]).await?)?;
    assert!(status.ends_with("`job` is free\n"), "{status}");

    // From outside the containers, by the ports of the proxies and by those of the masters.
    for tens in [0, 1] {
        let run = project.outside(&["run", "--no-wait", "job", "--", "true"], tens).await?;
        assert_eq!(run.status.code(), Some(0), "{run:?}");
    }

    let chaos = project.chaos(CONTAINERS).await?;
    let output = String::from_utf8_lossy(&chaos.stdout).into_owned();
    assert_eq!(chaos.status.code(), Some(0), "{output}{}", String::from_utf8_lossy(&chaos.stderr));
    assert!(output.contains("in containers"), "{output}");

    // From here on as the page starts them.
    project.guard_restarts();
    project.compose(&["up", "--detach"]).await?;
    let rows = page::faults()?;
    assert_eq!(rows.len(), 16, "the rows of both tables: {rows:#?}");
    // All of them take four minutes: every second row unless the environment says `all`, or words of the rows.
    let only = std::env::var("QUORLOCK_COMPOSE_ROWS").ok();
    let is_chosen = |(index, row): &(usize, String)| match only.as_deref() {
        None | Some("") => index % 2 == 1,
        Some("all") => true,
        Some(words) => words.split(',').any(|word| row.contains(word)),
    };
    for (_, row) in rows.into_iter().enumerate().filter(is_chosen) {
        // Every row begins with all nodes free and voting.
        project.eventually_all_vote().await?;
        println!("{row}");
        let tested = match masters::test(project, &row).await {
            Some(outcome) => Some(outcome),
            None => network::test(project, &row).await,
        };
        let outcome =
            tested.unwrap_or_else(|| Err("the page has this row, and there is no test of it".into()));
        outcome.map_err(|error| format!("{row}: {error}"))?;
    }
    Ok(())
}

/// Faults with longer pauses: containers stop and start slowly.
const CONTAINERS: &str = "
summary = 'containers are killed and paused, and restart with or without their data'
durable = true
[load]
workers = 2
[[fault]]
kind = 'kill'
every = '500ms..1s'
lasts = '100ms'
[[fault]]
kind = 'freeze'
every = '500ms..1s'
lasts = '300ms'
";

/// The folder with the compose file.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compose")
}

/// Prints why the test is skipped, also for `scripts/check`; `eprintln` would be captured by the test
/// harness.
fn skip(reason: &str) {
    drop(writeln!(io::stderr(), "skipped: compose: {reason}"));
}

/// Runs a program to its exit, and kills it after `timeout`.
async fn command(
    words: &[impl AsRef<std::ffi::OsStr>],
    timeout: Duration,
    set: impl FnOnce(&mut tokio::process::Command),
) -> io::Result<Output> {
    let (program, words) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = tokio::process::Command::new(program);
    command.args(words).stdin(std::process::Stdio::null()).kill_on_drop(true);
    set(&mut command);
    let running = format!("{command:?}");
    within(&running, timeout, command.output()).await
}

/// Returns what the program printed, if it succeeded.
fn text(output: Output) -> Outcome<String> {
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    Err(format!("{}\n{stdout}{stderr}", output.status).into())
}
