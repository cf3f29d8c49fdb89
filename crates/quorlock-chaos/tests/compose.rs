//! Tests of the five masters in containers of `compose/`. Skipped without a Docker engine.

use std::error::Error;
use std::io::{self, Write as _};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use self::engine::Engine;
use self::project::Project;
use futures::FutureExt as _;

#[path = "compose/engine.rs"]
mod engine;
#[path = "compose/project.rs"]
mod project;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The timeout for everything, generous for a busy machine.
const SOON: Duration = Duration::from_secs(60);

#[tokio::test]
async fn every_installed_compose_reads_the_file() -> Outcome {
    let composes = project::composes().await;
    if composes.is_empty() {
        skip("no docker compose and no docker-compose is installed");
    }
    for compose in composes {
        let services = command(&compose, SOON, |command| {
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
async fn two_of_five_masters_may_die_and_not_a_third() -> Outcome {
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

async fn in_a_project(engine: &Engine) -> Outcome {
    let project = match Project::new(engine).await? {
        Ok(project) => project,
        Err(reason) => {
            skip(&reason);
            return Ok(());
        }
    };
    // The containers are removed also after a panic, which prints its message itself.
    let outcome = AssertUnwindSafe(story(&project)).catch_unwind().await;
    let ended = project.end().await;
    outcome.unwrap_or_else(|_| Err("a panic".into())).and(ended)
}

async fn story(project: &Project) -> Outcome {
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
    let said = String::from_utf8_lossy(&chaos.stdout).into_owned();
    assert_eq!(chaos.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&chaos.stderr));
    assert!(said.contains("in containers"), "{said}");
    // Afterwards no master is in quarantine.
    project.eventually_locks().await?;

    let network = ["quorlock-chaos", "network", "--at", "proxy-1:7000"];
    text(project.inside(&[&network[..], &["delay", "10s"]].concat()).await?)?;
    let status = text(project.inside(&["quorlock", "status", "job"]).await?)?;
    let is_silent = |line: &&str| line.contains("redis://") && !line.contains(" free ");
    let silent: Vec<&str> = status.lines().filter(is_silent).collect();
    assert!(matches!(silent[..], [line] if line.contains("proxy-1")), "{status}");
    text(project.inside(&[&network[..], &["heal"]].concat()).await?)?;

    project.redis_1(&["set", "witness", "there"]).await?;
    project.compose(&["kill", "-s", "KILL", "redis-1", "redis-2"]).await?;
    assert_eq!(project.run().await?, Some(0), "two of five are dead");
    project.compose(&["kill", "-s", "KILL", "redis-3"]).await?;
    assert_eq!(project.run().await?, Some(69), "three of five are dead");

    project.compose(&["start", "redis-1"]).await?;
    project.eventually_locks().await?;
    assert_eq!(project.redis_1(&["get", "witness"]).await?, "there", "it was started with its data");
    project.compose(&["rm", "--stop", "--force", "-v", "redis-1"]).await?;
    project.compose(&["up", "--detach", "redis-1"]).await?;
    project.eventually_locks().await?;
    assert_eq!(project.redis_1(&["get", "witness"]).await?, "", "it was started empty");
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
    use quorlock::runtime::{Clock as _, SystemClock};

    let (program, words) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = tokio::process::Command::new(program);
    command.args(words).stdin(std::process::Stdio::null()).kill_on_drop(true);
    set(&mut command);
    let clock = SystemClock::default();
    let end = clock.now() + timeout;
    tokio::select! {
        output = command.output() => output,
        () = clock.sleep_until(end) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("still running after {}: {command:?}", humantime::format_duration(timeout)),
        )),
    }
}

/// Returns what the program printed, if it succeeded.
fn text(output: Output) -> Outcome<String> {
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    Err(format!("{}\n{stdout}{stderr}", output.status).into())
}
