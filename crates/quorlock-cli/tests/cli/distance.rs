//! Cold starts that succeed at the first try: from far away, many together, and with hung nodes.

use std::cell::Cell;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use quorlock_testkit::{Proxy, Servers, Way, eventually, patience};
#[cfg(feature = "tls")]
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Quorlock, each, freeze, run, servers, thaw};
#[cfg(feature = "tls")]
use crate::tls::World;

/// Proxies in front of nodes, and the addresses of the proxies.
struct Far {
    proxies: Vec<Proxy>,
    urls: Vec<String>,
    options: Vec<String>,
}

impl Far {
    async fn plain(servers: &Servers) -> Far {
        let proxies = servers.ways(Duration::ZERO).await.unwrap();
        let urls = proxies.iter().map(Proxy::url).collect();
        Far { proxies, urls, options: Vec::new() }
    }

    #[cfg(feature = "tls")]
    async fn encrypted(worlds: &[World], authorities: &str) -> Far {
        let (mut proxies, mut urls) = (Vec::new(), Vec::new());
        for world in worlds {
            let proxy = Proxy::start(([127, 0, 0, 1], world.tls_port).into()).await.unwrap();
            urls.push(world.url_at(proxy.address().port()));
            proxies.push(proxy);
        }
        Far { proxies, urls, options: vec!["--tls-ca".into(), authorities.into()] }
    }

    /// Returns the exchanges that a cold `run -n` has begun with each node when its command runs, the fewest
    /// first. Independent of wall clocks and load.
    async fn exchanges(&self, name: &str) -> Vec<usize> {
        let mut nodes = self.urls.join(",");
        let mut counted = Vec::new();
        for proxy in &self.proxies {
            // So that what is sent together arrives together.
            proxy.delay(Way::Both, Duration::from_millis(20));
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            nodes = nodes.replace(&format!(":{}", proxy.address().port()), &format!(":{port}"));
            let exchanges = Arc::new(AtomicUsize::new(0));
            tokio::spawn(count_exchanges(listener, proxy.address(), exchanges.clone()));
            counted.push(exchanges);
        }
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let words = [&["run", "-n", name], &options[..], &["--", "sh", "-c", "echo started; cat"]].concat();
        let mut running = Quorlock::new(words).at(&nodes).stdin_open().prints(1).await;
        let mut exchanges: Vec<_> = counted.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        running.close_stdin();
        running.end().await.expect(0);
        exchanges.sort_unstable();
        exchanges
    }

    /// Runs a command at these distances.
    async fn runs_at_the_first_try(&self) {
        for round_trip in [60, 300] {
            for proxy in &self.proxies {
                proxy.delay(Way::Both, Duration::from_millis(round_trip / 2));
            }
            let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
            let name = format!("{round_trip} ms away");
            let run = Quorlock::new([&["run", "-n", &name], &options[..], &["--", "true"]].concat());
            run.at(&self.urls.join(",")).end().await.expect(0);
        }
    }
}

/// Counts the exchanges: how often clients send something, at first or after an answer.
async fn count_exchanges(listener: TcpListener, upstream: SocketAddr, exchanges: Arc<AtomicUsize>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(relay(client, upstream, exchanges.clone()));
    }
}

async fn relay(client: TcpStream, upstream: SocketAddr, exchanges: Arc<AtomicUsize>) -> io::Result<()> {
    let (mut requests, mut to_client) = client.into_split();
    let (mut answers, mut to_server) = TcpStream::connect(upstream).await?.into_split();
    let (mut request, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut is_answered = true;
    loop {
        tokio::select! {
            read = requests.read(&mut request) => {
                let read = read?;
                if read == 0 {
                    return Ok(());
                }
                if is_answered {
                    exchanges.fetch_add(1, Ordering::Relaxed);
                }
                is_answered = false;
                to_server.write_all(&request[..read]).await?;
            }
            read = answers.read(&mut answer) => {
                let read = read?;
                if read == 0 {
                    return Ok(());
                }
                is_answered = true;
                to_client.write_all(&answer[..read]).await?;
            }
        }
    }
}

#[tokio::test]
async fn a_cold_run_has_its_lock_after_four_round_trips() {
    let Some(servers) = servers(5).await else { return };
    let exchanges = Far::plain(&servers).await.exchanges("plain").await;
    // One opens the connection, followed by login, handshake and vote, each of which must remain one exchange. A
    // quorum of the nodes decides.
    assert_eq!(exchanges[2], 3, "exchanges with each node: {exchanges:?}");
}

#[tokio::test]
async fn a_cold_run_without_a_password_has_its_lock_after_three_round_trips() {
    let Some(servers) = servers(5).await else { return };
    each(&servers, &["CONFIG", "SET", "requirepass", ""]).await;
    let mut far = Far::plain(&servers).await;
    for url in &mut far.urls {
        *url = format!("redis://{}", url.rsplit_once('@').unwrap().1);
    }
    let exchanges = far.exchanges("without a password").await;
    assert_eq!(
        exchanges[2], 2,
        "exchanges with each node, of which login and handshake are one: {exchanges:?}"
    );
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_cold_run_over_tls_has_its_lock_after_five_round_trips() {
    let Some((worlds, _folder, authorities)) = worlds_and_their_authorities().await else { return };
    let exchanges = Far::encrypted(&worlds, &authorities).await.exchanges("TLS").await;
    // TLS 1.3 takes one more: its handshake.
    assert_eq!(exchanges[2], 4, "exchanges with each node: {exchanges:?}");
}

#[tokio::test]
async fn a_cold_run_has_a_free_lock_at_the_first_try_from_far_away() {
    let Some(servers) = servers(5).await else { return };
    Far::plain(&servers).await.runs_at_the_first_try().await;
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_cold_run_has_a_free_lock_at_the_first_try_from_far_away_over_tls() {
    let Some((worlds, _folder, authorities)) = worlds_and_their_authorities().await else { return };
    Far::encrypted(&worlds, &authorities).await.runs_at_the_first_try().await;
}

/// Starts five servers that speak TLS, and writes a file with the authorities of all of them.
#[cfg(feature = "tls")]
async fn worlds_and_their_authorities() -> Option<(Vec<World>, TempDir, String)> {
    let mut worlds = Vec::new();
    for _ in 0..5 {
        worlds.push(World::start("no", |_| {}).await?);
    }
    let folder = tempfile::tempdir().unwrap();
    let authorities = folder.path().join("all.pem");
    let all: Vec<String> =
        worlds.iter().map(|world| fs::read_to_string(world.file("ca.pem")).unwrap()).collect();
    fs::write(&authorities, all.concat()).unwrap();
    Some((worlds, folder, authorities.display().to_string()))
}

/// Returns their exit codes. The holder keeps the lock until all others have ended.
async fn herd(servers: &Servers, name: &str, count: usize) -> Vec<i32> {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let script = format!("until [ -e {} ]; do sleep 0.05; done", gate.display());
    let start = |_| Quorlock::new(["run", "-n", name, "--", "sh", "-c", &script]).on(servers).start();
    let running: Vec<_> = (0..count).map(start).collect();
    let ended = Cell::new(0);
    let codes = running.into_iter().map(async |running| {
        let code = running.end().await.code.unwrap();
        ended.set(ended.get() + 1);
        code
    });
    let opening = async {
        drop(eventually("all but one to end", patience(), async || ended.get() + 1 >= count).await);
        fs::write(&gate, "").unwrap();
    };
    futures::future::join(join_all(codes), opening).await.0
}

#[tokio::test]
async fn of_a_herd_that_does_not_wait_one_has_the_lock_and_all_others_hear_that_it_is_held() {
    let Some(servers) = servers(5).await else { return };
    let count = 12;
    assert_eq!(tally(&herd(&servers, "free", count).await), [(0, 1), (75, count - 1)]);

    let mut holder = Quorlock::new(["hold", "--json", "held"]).on(&servers).stdin_open().prints(1).await;
    assert_eq!(tally(&herd(&servers, "held", count).await), [(75, count)]);
    holder.close_stdin();
    holder.end().await.expect(0);
}

/// Counts the exit codes.
fn tally(codes: &[i32]) -> Vec<(i32, usize)> {
    let mut seen = std::collections::BTreeMap::new();
    for code in codes {
        *seen.entry(*code).or_default() += 1;
    }
    seen.into_iter().collect()
}

#[tokio::test]
async fn hung_nodes_do_not_delay_the_start() {
    let Some(servers) = servers(5).await else { return };
    freeze(&servers[..2]);
    run(&servers, &["-n"], "true").end().await.expect(0);
    thaw(&servers[..2]);
}
