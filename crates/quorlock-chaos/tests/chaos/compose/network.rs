//! The second table of the page: faults that the proxies inject.

use quorlock_testkit::{eventually, patience};
use serde_json::Value;

use super::holder::Holder;
use super::masters::reason;
use super::project::{Project, node};
use super::{Outcome, text};

/// Tests the row whose first cell this is, or returns nothing.
pub(crate) async fn test(project: &Project, row: &str) -> Option<Outcome> {
    let fault = row.strip_prefix('`')?.strip_suffix('`')?;
    Some(match fault {
        "delay 10ms --jitter 5ms" => delayed(project, fault).await,
        "delay 1s" => delayed_long(project, fault).await,
        "hold --way to-client" => held(project, fault).await,
        "release" => released(project, fault).await,
        "cut" => cut(project, fault).await,
        "refuse" => refused(project, fault).await,
        "show" => shown(project, fault).await,
        "heal" => healed(project, fault).await,
        _ => return None,
    })
}

async fn delayed(project: &Project, fault: &str) -> Outcome {
    let before = project.waited().await?;
    inject(project, 2, fault).await?;
    let round_trip = |status: &Value| node(status, 2)["round_trip_us"].as_u64();
    let status = project.eventually("an answer of proxy-2", |status| round_trip(status).is_some()).await?;
    assert!(round_trip(&status) >= Some(20_000), "10 ms in each direction: {status}");
    project.eventually_locks_within(before + 20).await?;
    heal(project, &[2]).await
}

async fn delayed_long(project: &Project, fault: &str) -> Outcome {
    inject(project, 2, fault).await?;
    project.eventually("proxy-2 to be silent", times_out).await?;
    project.eventually_locks_within(1000).await?;
    heal(project, &[2]).await
}

async fn held(project: &Project, fault: &str) -> Outcome {
    for (fault, arrives) in [(fault, true), ("hold --way to-server", false), ("hold", false)] {
        inject(project, 2, fault).await?;
        let before = handshakes(project).await?;
        project.eventually("proxy-2 to be silent", times_out).await?;
        let arrived = handshakes(project).await? > before;
        assert_eq!(arrived, arrives, "{fault}: whether the first request of a client arrived");
        heal(project, &[2]).await?;
        // What was held back arrives now.
        project.eventually_all_vote().await?;
    }

    let mut holder = Holder::start(project).await?;
    for number in 1..=3 {
        inject(project, number, fault).await?;
    }
    holder.loses().await?;
    heal(project, &[1, 2, 3]).await
}

/// Returns how many clients have sent their first request to the second master. The health check sends none of these.
async fn handshakes(project: &Project) -> Outcome<u64> {
    let statistics = project.redis_2(&["info", "commandstats"]).await?;
    let (_, rest) = statistics.split_once("cmdstat_hello:calls=").ok_or("a count of HELLO")?;
    Ok(rest.split(',').next().unwrap_or_default().parse()?)
}

async fn released(project: &Project, fault: &str) -> Outcome {
    inject(project, 2, "hold").await?;
    let holder = Holder::start(project).await?;
    assert_eq!(project.state_on_master(2).await?, "free", "the request is held back");
    inject(project, 2, fault).await?;
    eventually("the request to arrive", patience(), async || {
        project.state_on_master(2).await.is_ok_and(|state| state == "held")
    })
    .await?;
    holder.end().await
}

async fn cut(project: &Project, fault: &str) -> Outcome {
    let holder = Holder::start(project).await?;
    project.eventually("the lock on redis-2", |status| node(status, 2)["state"] == "held").await?;
    let before = handshakes(project).await?;
    inject(project, 2, fault).await?;
    eventually("the holder to reconnect", patience(), async || {
        handshakes(project).await.is_ok_and(|handshakes| handshakes > before)
    })
    .await?;
    holder.end().await
}

async fn refused(project: &Project, fault: &str) -> Outcome {
    inject(project, 2, fault).await?;
    let is_refused = |status: &Value| reason(node(status, 2)).starts_with("unreachable: ");
    project.eventually("proxy-2 to refuse", is_refused).await?;
    heal(project, &[2]).await
}

async fn shown(project: &Project, fault: &str) -> Outcome {
    inject(project, 2, "hold --way to-client").await?;
    let holder = Holder::start(project).await?;
    let state = inject(project, 2, fault).await?;
    assert!(state.starts_with("to server: ok; to client: held; "), "{state}");
    assert!(
        state.ends_with(" open") && !state.contains(" 0 connections"),
        "the holder is connected: {state}"
    );
    holder.end().await?;
    heal(project, &[2]).await
}

async fn healed(project: &Project, fault: &str) -> Outcome {
    for fault in ["delay 1s", "hold", "refuse"] {
        inject(project, 2, fault).await?;
    }
    let state = inject(project, 2, fault).await?;
    assert!(state.starts_with("to server: ok; to client: ok; ") && !state.contains("refused"), "{state}");
    project.eventually_all_vote().await
}

/// Injects a fault at the proxy with this number, as the page says. Returns the state of the proxy.
async fn inject(project: &Project, number: u8, fault: &str) -> Outcome<String> {
    let control = format!("proxy-{number}:7000");
    let words = ["quorlock-chaos", "network", "--at", &control];
    let words: Vec<&str> = words.into_iter().chain(fault.split(' ')).collect();
    let state = text(project.inside(&words).await?)?;
    Ok(state.trim_end().to_owned())
}

async fn heal(project: &Project, numbers: &[u8]) -> Outcome {
    for &number in numbers {
        inject(project, number, "heal").await?;
    }
    Ok(())
}

fn times_out(status: &Value) -> bool {
    reason(node(status, 2)).starts_with("no answer within ")
}
