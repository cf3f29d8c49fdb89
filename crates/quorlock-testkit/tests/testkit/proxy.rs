//! Network faults, between the client crate and the built-in server.

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use quorlock::runtime::{Clock, SystemClock};
use quorlock_testkit::{Kind, Proxy, Servers, Way, eventually, patience};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

struct Bench {
    servers: Servers,
    proxy: Proxy,
    client: MultiplexedConnection,
}

impl Bench {
    async fn start() -> Result<Bench, Box<dyn Error>> {
        let servers = Servers::setup().kind(Kind::BuiltinTask).start(1).await?;
        let server = servers.first().ok_or("one server was asked for")?;
        let proxy = Proxy::before(server).await?;
        let client = connect(&proxy).await?;
        Ok(Bench { servers, proxy, client })
    }

    /// Sends a SET through the proxy, in a task that waits for the answer.
    fn set(&self, value: &'static str) -> tokio::task::JoinHandle<RedisResult<String>> {
        let mut client = self.client.clone();
        tokio::spawn(async move { cmd("SET").arg("key").arg(value).query_async(&mut client).await })
    }

    async fn stored(&self) -> io::Result<String> {
        let server = self.servers.first().ok_or(io::ErrorKind::NotFound)?;
        Ok(server.command(&["GET", "key"]).await?.to_string())
    }

    async fn eventually_stored(&self, wanted: &str) -> io::Result<()> {
        eventually("the value to arrive", patience(), async || {
            self.stored().await.is_ok_and(|found| found == wanted)
        })
        .await
    }
}

async fn connect(proxy: &Proxy) -> RedisResult<MultiplexedConnection> {
    let patient = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    redis::Client::open(proxy.url())?.get_multiplexed_async_connection_with_config(&patient).await
}

#[tokio::test]
async fn an_answer_can_be_held_though_the_server_has_acted() -> Result<(), Box<dyn Error>> {
    let bench = Bench::start().await?;
    bench.proxy.hold(Way::ToClient);
    let asked = bench.set("acted");
    bench.eventually_stored("acted").await?;
    assert!(!asked.is_finished(), "the answer is held");
    bench.proxy.release(Way::ToClient);
    assert_eq!(asked.await??, "OK");
    Ok(())
}

#[tokio::test]
async fn a_request_can_be_held_and_arrives_late() -> Result<(), Box<dyn Error>> {
    let bench = Bench::start().await?;
    bench.proxy.hold(Way::ToServer);
    let asked = bench.set("late");
    assert_eq!(bench.stored().await?, "(nil)");
    bench.proxy.release(Way::Both);
    assert_eq!(asked.await??, "OK");
    Ok(())
}

#[tokio::test]
async fn a_delay_is_added_each_way() -> Result<(), Box<dyn Error>> {
    let bench = Bench::start().await?;
    bench.proxy.delay(Way::Both, Duration::from_millis(40));
    let begun = SystemClock::default().now();
    assert_eq!(bench.set("slow").await??, "OK");
    let took = SystemClock::default().now().since(begun);
    assert!(took >= Duration::from_millis(80), "there and back took {took:?}");
    Ok(())
}

#[tokio::test]
async fn jitter_adds_a_random_time_to_each_answer() -> Result<(), Box<dyn Error>> {
    const MOST: Duration = Duration::from_millis(10);
    let bench = Bench::start().await?;
    bench.proxy.jitter(Way::ToClient, MOST);
    let begun = SystemClock::default().now();
    // The probability that twelve such delays add up to less than one of them can: 1 in 12 factorial, 479
    // million.
    for _ in 0..12 {
        assert_eq!(bench.set("jittered").await??, "OK");
    }
    let took = SystemClock::default().now().since(begun);
    assert!(took >= MOST, "twelve answers took {took:?}");
    Ok(())
}

#[tokio::test]
async fn jitter_reorders_nothing() -> Result<(), Box<dyn Error>> {
    let upstream = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let proxy = Proxy::start(upstream.local_addr()?).await?;
    proxy.jitter(Way::ToServer, Duration::from_millis(5));
    let mut client = TcpStream::connect(proxy.address()).await?;
    let (mut server, _) = upstream.accept().await?;
    // Some 64 pieces, no two of which are similar.
    let sent: Vec<u8> = (0..256 * 1024_u32).flat_map(u32::to_be_bytes).collect();
    let write = async {
        client.write_all(&sent).await?;
        client.shutdown().await
    };
    let mut arrived = Vec::new();
    tokio::try_join!(write, server.read_to_end(&mut arrived))?;
    assert!(arrived == sent, "what arrived differs, or is in another order");
    Ok(())
}

#[tokio::test]
async fn a_healed_network_is_as_good_as_new() -> Result<(), Box<dyn Error>> {
    let bench = Bench::start().await?;
    let sound = bench.proxy.to_server();
    bench.proxy.hold(Way::ToServer);
    bench.proxy.delay(Way::ToClient, Duration::from_secs(3600));
    bench.proxy.jitter(Way::Both, Duration::from_secs(3600));
    bench.proxy.refuse(true);
    let asked = bench.set("held");
    assert!(bench.proxy.to_server().held && !bench.proxy.to_client().held && bench.proxy.is_refusing());
    assert_eq!(bench.proxy.to_client().delay, Duration::from_secs(3600));
    // What waits in the proxy at that point would arrive an hour late.
    bench.proxy.cut();
    assert!(asked.await?.is_err(), "its connection was reset");
    bench.proxy.heal();
    assert_eq!((bench.proxy.to_server(), bench.proxy.to_client()), (sound, sound));
    connect(&bench.proxy).await?;
    Ok(())
}

#[tokio::test]
async fn it_listens_at_an_address_and_resolves_its_server_by_name() -> Result<(), Box<dyn Error>> {
    let bench = Bench::start().await?;
    let server = bench.servers.first().ok_or("one server was asked for")?;
    let anywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let upstream = format!("localhost:{}", server.address().port());
    let proxy = Proxy::listen(anywhere, upstream).await?;
    assert!(proxy.address().ip().is_unspecified());
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, proxy.address().port()));
    redis::Client::open(format!("redis://{here}"))?.get_multiplexed_async_connection().await?;
    assert!(Proxy::listen(here, "localhost:1").await.is_err(), "that port is taken");
    Ok(())
}

#[tokio::test]
async fn an_unresolvable_name_resets_the_connection() -> Result<(), Box<dyn Error>> {
    let proxy = Proxy::listen((Ipv4Addr::LOCALHOST, 0).into(), "there-is-no-such-host.invalid:6379").await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    let read = client.read_u8().await;
    assert_eq!(read.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
    Ok(())
}

#[tokio::test]
async fn a_cut_ends_the_connection_and_a_new_one_works() -> Result<(), Box<dyn Error>> {
    let bench = Bench::start().await?;
    assert_eq!(bench.proxy.connections(), 1);
    bench.proxy.hold(Way::ToClient);
    let asked = bench.set("cut");
    bench.eventually_stored("cut").await?;
    bench.proxy.cut();
    assert!(asked.await?.is_err(), "its connection was reset");
    bench.proxy.release(Way::ToClient);
    let value: String = cmd("GET").arg("key").query_async(&mut connect(&bench.proxy).await?).await?;
    assert_eq!(value, "cut");
    Ok(())
}

#[tokio::test]
async fn a_refusing_proxy_accepts_no_client() -> Result<(), Box<dyn Error>> {
    let bench = Bench::start().await?;
    bench.proxy.refuse(true);
    assert!(connect(&bench.proxy).await.is_err());
    assert_eq!(bench.set("kept").await??, "OK", "open connections stay");
    bench.proxy.refuse(false);
    connect(&bench.proxy).await?;
    Ok(())
}

#[tokio::test]
async fn connections_end_with_their_server_and_are_not_counted() -> Result<(), Box<dyn Error>> {
    let bench = Bench::start().await?;
    bench.servers.iter().for_each(quorlock_testkit::Server::kill);
    eventually("the proxy to notice", patience(), async || bench.proxy.connections() == 0).await?;
    assert!(connect(&bench.proxy).await.is_err(), "no server is behind it");
    Ok(())
}

#[tokio::test]
async fn a_forwarder_switches_servers_and_closes_connections() -> io::Result<()> {
    let [first, second] = [TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?];
    let proxy = Proxy::start(first.local_addr()?).await?;
    let mut early = TcpStream::connect(proxy.address()).await?;
    let _served = first.accept().await?;
    proxy.refuse(true);
    proxy.cut();
    assert_eq!(early.read(&mut [0]).await.unwrap_or(0), 0, "it is cut off");
    let mut between = TcpStream::connect(proxy.address()).await?;
    assert_eq!(between.read(&mut [0]).await.unwrap_or(0), 0, "there is no server");
    proxy.lead_to(second.local_addr()?);
    proxy.refuse(false);
    let _late = TcpStream::connect(proxy.address()).await?;
    second.accept().await?;
    Ok(())
}
