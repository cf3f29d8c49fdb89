//! Addresses that are not valid nodes: not a master, several servers in rotation, or a server that
//! looks older than it is; and servers without a feature that they should have.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use quorlock::{
    AcquireError, Coordinator, RestartGuard, Wait,
    doctor::{Check, Report, Severity, Standing},
    redis::Address,
    transport::{Dial, Stream},
};
use quorlock_testkit::{Proxy, Server, Servers, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{TTL, client};

/// A proxy that rewrites what a server reports about itself.
#[derive(Clone, Debug)]
struct Between {
    /// The servers, used in rotation by new connections.
    ports: Vec<u16>,
    url: String,
    dialled: Arc<AtomicUsize>,
    /// A field of INFO, and the value that replaces it.
    instead: Option<(&'static str, Arc<str>)>,
}

impl Between {
    fn of(servers: &Servers, instead: Option<(&'static str, &str)>) -> Between {
        let ports = servers.iter().map(Server::port).collect();
        let url = servers[0].url().replace(&servers[0].address().to_string(), "between");
        let instead = instead.map(|(field, value)| (field, value.into()));
        Between { ports, url, dialled: Arc::default(), instead }
    }
}

impl Dial for Between {
    fn dial(&self, _: &Address) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let number = self.dialled.fetch_add(1, Ordering::Relaxed);
        let (port, instead) = (self.ports[number % self.ports.len()], self.instead.clone());
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let server = TcpStream::connect(("127.0.0.1", port)).await?;
            tokio::spawn(async move {
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (tokio::io::split(far), server.into_split());
                let there = async { tokio::io::copy(&mut from_client, &mut to_server).await.map(drop) };
                let back = async {
                    let mut bytes = vec![0; 64 * 1024];
                    loop {
                        let length = from_server.read(&mut bytes).await?;
                        if length == 0 {
                            return Ok(());
                        }
                        let reply = match &instead {
                            Some((field, value)) => with(&bytes[..length], field, value),
                            None => bytes[..length].to_vec(),
                        };
                        to_client.write_all(&reply).await?;
                    }
                };
                let _: io::Result<()> = tokio::select! { end = there => end, end = back => end };
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

/// Replaces the value of that field in the text that contains `run_id`, if it arrived in one piece.
fn with(reply: &[u8], field: &str, value: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(reply).into_owned();
    let Some(at) = text.find(&format!("\r\n{field}:")) else { return reply.to_vec() };
    let begin = at + 2 + field.len() + 1;
    let end = begin + text[begin..].find("\r\n").unwrap();
    // Its length precedes it: INFO is the only text here that begins with `# Server`.
    let info = text.find("# Server").unwrap();
    let head = text[..info].rfind(['$', '=']).unwrap();
    let length: usize = text[head + 1..].split("\r\n").next().unwrap().parse().unwrap();
    let length = length + value.len() - (end - begin);
    let kind = &text[head..=head];
    let rest = text[head..].find("\r\n").unwrap() + head;
    format!("{}{kind}{length}{}{value}{}", &text[..head], &text[rest..begin], &text[end..]).into_bytes()
}

fn through(between: &Between, guard: RestartGuard) -> Coordinator {
    Coordinator::builder()
        .nodes([&between.url])
        .dial(between.clone())
        .restart_guard(guard)
        .ttl(TTL)
        .max_ttl(TTL)
        .build()
        .unwrap()
}

fn finding(examination: &Report, matter: Check) -> Option<(Severity, String)> {
    let found = examination.findings.iter().find(|finding| finding.check == matter)?;
    Some((found.severity, found.to_string()))
}

#[tokio::test(flavor = "multi_thread")]
async fn only_masters_vote_and_doctor_agrees() {
    let servers = Servers::start(1).await.unwrap();
    for (role, words, matter, severity) in [
        ("active-replica", "active replica", Check::ActiveReplica, Severity::Unsafe),
        ("king", "reports the role king", Check::Unfit, Severity::Warning),
        ("", "does not report its role", Check::Unfit, Severity::Warning),
        ("slave", "replica", Check::Replica, Severity::Warning),
    ] {
        let between = Between::of(&servers, Some(("role", role)));
        let coordinator = through(&between, RestartGuard::Off);
        let error = coordinator.lock("r").wait(Wait::Forever).acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::Misconfigured { .. }), "{role}: {error}");
        assert!(error.to_string().contains(words), "{role}: {error}");
        let examination = coordinator.doctor().await;
        assert!(
            matches!(examination.nodes[0].standing, Standing::Excluded { .. }),
            "{role}: {examination:#?}"
        );
        let (found, sentence) =
            finding(&examination, matter).unwrap_or_else(|| panic!("{role}: {examination:#?}"));
        assert!(found == severity && sentence.contains("vote"), "{role}: {sentence}");
    }
    let between = Between::of(&servers, Some(("second_repl_offset", "N/A")));
    let garnet = through(&between, RestartGuard::Off).lock("r").acquire().await;
    assert!(garnet.is_ok(), "Garnet reports this for a master: {garnet:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i23_several_servers_at_one_address_are_detected() {
    let servers = Servers::start(2).await.unwrap();
    let between = Between::of(&servers, None);
    let coordinator = through(&between, RestartGuard::Off);
    drop(coordinator.lock("r").acquire().await.unwrap());
    // The second connection leads to the other server, which might be a restart; the third proves that
    // it is not.
    until("the third connection is refused", async || {
        for server in servers.iter() {
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
        }
        let error = coordinator.lock("other").wait(Wait::Never).acquire().await.err();
        error.is_some_and(|error| {
            error.to_string().contains("several servers answer at its address alternately")
        })
    })
    .await;

    let examination = coordinator.doctor().await;
    let (severity, sentence) = finding(&examination, Check::SeveralServers).unwrap();
    assert!(severity == Severity::Unsafe && sentence.contains("is several servers"), "{sentence}");
    assert!(matches!(examination.nodes[0].standing, Standing::Excluded { .. }), "{examination:#?}");
    assert_eq!(finding(&examination, Check::Proxy), None, "it is reported once");

    let alone = client(&servers.urls()[..1], |builder| builder).doctor().await;
    for matter in [Check::SeveralServers, Check::Proxy, Check::Unfit, Check::ClockStepped] {
        assert_eq!(finding(&alone, matter), None, "{alone:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tcp_proxy_before_one_server_is_fine() {
    let servers = Servers::start(1).await.unwrap();
    let proxy = Proxy::before(&servers[0]).await.unwrap();
    let coordinator = client(&[proxy.url()], |builder| builder);
    let examination = coordinator.doctor().await;
    for matter in [Check::SeveralServers, Check::Proxy] {
        assert_eq!(finding(&examination, matter), None, "{examination:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i24_a_clock_set_forward_does_not_age_a_server() {
    let servers = Servers::start(1).await.unwrap();
    // A client that connects before the clock is corrected.
    let young = Between::of(&servers, None);
    let error = through(&young, RestartGuard::On).lock("r").wait(Wait::Never).acquire().await.unwrap_err();
    assert!(error.to_string().contains("first used too recently"), "{error}");

    // Another one, which connects afterwards.
    let old = Between::of(&servers, Some(("uptime_in_seconds", "86400")));
    let coordinator = through(&old, RestartGuard::On);
    let error = coordinator.lock("r").wait(Wait::Never).acquire().await.unwrap_err();
    assert!(error.to_string().contains("first used too recently"), "{error}");
    let examination = coordinator.doctor().await;
    let (severity, sentence) = finding(&examination, Check::ClockStepped).unwrap();
    assert_eq!(severity, Severity::Warning, "{sentence}");
    assert!(sentence.contains("reports that it started 1day ago"), "{sentence}");
    assert!(matches!(examination.nodes[0].standing, Standing::Quarantined { .. }), "{examination:#?}");

    // Without the guard no note is written, nor read.
    let unguarded = through(&old, RestartGuard::Off).lock("r").acquire().await;
    assert!(unguarded.is_ok(), "{unguarded:?}");

    // A note is valid for one process only.
    servers[0].restart_empty().await.unwrap();
    let elsewhere = format!("{} {}", "f".repeat(40), 1);
    servers[0].command(&["SET", "{3560}:quorlock:gate:start", &elsewhere]).await.unwrap();
    let day = Between::of(&servers, Some(("uptime_in_seconds", "86400")));
    let unmet = through(&day, RestartGuard::On).lock("r").acquire().await;
    // A server that counts the turns of its event loop cannot have been there for a day all the same.
    let counts =
        servers[0].command(&["INFO", "stats"]).await.unwrap().to_string().contains("eventloop_cycles:");
    assert_eq!(unmet.is_ok(), !counts, "no client noted it while it was young: {unmet:?}");
}
