//! The first table of the page: faults of masters, and of the network of the engine.

use serde_json::Value;

use super::Outcome;
use super::holder::Holder;
use super::project::{Project, node};

/// Tests the row whose first cell this is, or returns nothing.
pub(crate) async fn test(project: &Project, row: &str) -> Option<Outcome> {
    Some(match row {
        "`docker-compose kill -s KILL redis-2`" => two_killed(project).await,
        "`docker-compose kill -s KILL` of a third" => three_killed(project).await,
        "`docker-compose start redis-2`" => started(project).await,
        "`docker-compose rm --stop --force -v redis-2`, then `docker-compose up -d redis-2`" => {
            recreated(project).await
        }
        "the same for three masters at the same time" => three_recreated(project).await,
        "`docker-compose pause redis-3`, `unpause`" => paused(project).await,
        "`docker network disconnect quorlock_default $(docker-compose ps -q redis-4)`" => {
            master_disconnected(project).await
        }
        "`docker network disconnect quorlock_default $(docker-compose ps -q client)`" => {
            client_disconnected(project).await
        }
        _ => return None,
    })
}

async fn two_killed(project: &Project) -> Outcome {
    let holder = Holder::start(project).await?;
    let mut dead = Vec::new();
    for (number, name) in [(2, "redis-2"), (5, "redis-5")] {
        project.compose(&["kill", "-s", "KILL", name]).await?;
        dead.push(number);
        let is_dead = |status: &Value| dead.iter().all(|&number| is_silent(node(status, number)));
        let before = project.eventually("the masters to be dead", is_dead).await?;
        // Only a renewal makes it longer.
        let left = |status: &Value| status["holder"]["remaining_ms"].as_u64();
        let is_renewed = |status: &Value| is_dead(status) && left(status) > left(&before);
        project.eventually("a renewal without them", is_renewed).await?;
    }
    holder.end().await?;
    project.compose(&["start", "redis-2", "redis-5"]).await.map(drop)
}

async fn three_killed(project: &Project) -> Outcome {
    let mut holder = Holder::start(project).await?;
    let three = ["redis-2", "redis-3", "redis-5"];
    project.compose(&[&["kill", "-s", "KILL"][..], &three].concat()).await?;
    assert_eq!(project.run().await?.status.code(), Some(69), "three of five are dead");
    holder.loses().await?;
    project.compose(&[&["start"][..], &three].concat()).await.map(drop)
}

async fn started(project: &Project) -> Outcome {
    let holder = Holder::start(project).await?;
    project.redis_2(&["set", "witness", "there"]).await?;
    project.compose(&["kill", "-s", "KILL", "redis-2"]).await?;
    project.compose(&["start", "redis-2"]).await?;
    let answers = |status: &Value| !is_silent(node(status, 2));
    let status = project.eventually("redis-2 to answer", answers).await?;
    let restarted = node(&status, 2);
    assert_eq!(restarted["state"], "held", "{restarted}");
    assert!(restarted["remaining_ms"].as_u64().is_some_and(|left| left <= 10_000), "{restarted}");
    assert!(quarantine(restarted) > 0, "it votes already: {restarted}");
    assert_eq!(project.redis_2(&["get", "witness"]).await?, "there", "it was started with its data");
    project.eventually("redis-2 to vote", |status| quarantine(node(status, 2)) == 0).await?;
    holder.end().await
}

async fn recreated(project: &Project) -> Outcome {
    let holder = Holder::start(project).await?;
    project.redis_2(&["set", "witness", "there"]).await?;
    recreate(project, &["redis-2"]).await?;
    // The holder may have stored its lock there again before the status is read.
    let status = project.eventually("redis-2 to answer", |status| !is_silent(node(status, 2))).await?;
    assert!(quarantine(node(&status, 2)) > 0, "it votes already: {status}");
    assert_eq!(project.redis_2(&["get", "witness"]).await?, "", "it was started empty");
    project.eventually("a renewal", |status| node(status, 2)["state"] == "held").await?;
    holder.end().await
}

async fn three_recreated(project: &Project) -> Outcome {
    let mut holder = Holder::start(project).await?;
    recreate(project, &["redis-1", "redis-2", "redis-3"]).await?;
    let mut guarded = false;
    loop {
        let run = project.run().await?;
        if run.status.success() {
            break;
        }
        guarded |=
            String::from_utf8_lossy(&run.stderr).contains("restarted or first used too recently to vote: ");
    }
    assert!(!holder.is_running(), "two clients had the lock");
    assert!(guarded, "no client was told that the masters restarted too recently");
    holder.loses_or_is_forgotten().await
}

async fn paused(project: &Project) -> Outcome {
    project.compose(&["pause", "redis-3"]).await?;
    let is_silent = |status: &Value| reason(node(status, 3)).starts_with("no answer within ");
    project.eventually("redis-3 to be silent", is_silent).await?;
    project.eventually_locks_within(1000).await?;
    project.compose(&["unpause", "redis-3"]).await.map(drop)
}

async fn master_disconnected(project: &Project) -> Outcome {
    project.docker_network(&["disconnect"], "redis-4").await?;
    project.eventually("redis-4 to be cut off", |status| is_silent(node(status, 4))).await?;
    project.docker_network(&["connect", "--alias", "redis-4"], "redis-4").await
}

async fn client_disconnected(project: &Project) -> Outcome {
    let mut holder = Holder::start(project).await?;
    project.docker_network(&["disconnect"], "client").await?;
    holder.loses().await?;
    project.docker_network(&["connect", "--alias", "client"], "client").await
}

/// Replaces the containers of these masters, so that they start without data.
async fn recreate(project: &Project, masters: &[&str]) -> Outcome {
    project.compose(&[&["rm", "--stop", "--force", "-v"], masters].concat()).await?;
    project.compose(&[&["up", "--detach"], masters].concat()).await.map(drop)
}

fn is_silent(node: &Value) -> bool {
    node["state"] == "unknown"
}

/// Returns why a node did not answer.
pub(crate) fn reason(node: &Value) -> &str {
    node["error"].as_str().unwrap_or_default()
}

/// Returns for how many more milliseconds a node does not vote.
fn quarantine(node: &Value) -> u64 {
    node["no_vote_for_ms"].as_u64().unwrap_or_default()
}
