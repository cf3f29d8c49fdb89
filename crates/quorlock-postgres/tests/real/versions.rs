//! Programs of two versions, with other functions and the same layout, on one server.

use std::array::from_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Access, HintListener, NodeErrorKind, Request, Vote, ask};
use quorlock::protocol::{FenceHint, WaiterId};
use quorlock_postgres::SCHEMA;
use quorlock_testkit::until;
use tokio::io::{self, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::Client;

use crate::node::{HintRecorder, exclude};
use crate::requests::{TTL, acquire, acquisition, claim, is_held_by, release};
use crate::support::{Server, coordinator, node, rules, server, sql};
use crate::together::agree;

/// A change of the text of a function.
const CHANGE: (&str, &str) = ("The fast path", "The slow path");

/// Returns the address by which a program of this version is one of another.
async fn other_version(server: &Server) -> String {
    let change = (CHANGE.0.to_owned(), CHANGE.1.to_owned());
    server.client().await.batch_execute("CREATE DATABASE elsewhere").await.unwrap();
    let unnamed = url(server, translator(server.address(), vec![change.clone()]).await);
    let error = node(&unnamed.replace("/postgres?", "/elsewhere?")).ready().await.unwrap_err().to_string();
    let (_, digest) = error.split_once("the digest ").unwrap_or_else(|| panic!("{error}"));
    let other = digest[..rules().len()].to_owned();
    url(server, translator(server.address(), vec![change, (rules().to_owned(), other)]).await)
}

fn url(server: &Server, proxy: SocketAddr) -> String {
    format!("{}?connections=1", server.engine().url(proxy))
}

/// Starts a proxy that replaces words of clients by others of the same length.
async fn translator(server: SocketAddr, words: Vec<(String, String)>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, words) = (listener.local_addr().unwrap(), Arc::new(words));
    drop(tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(server).await else { return };
            for stream in [&client, &server] {
                stream.set_nodelay(true).unwrap();
            }
            let ((from, mut answers), (mut answered, asked)) = (client.into_split(), server.into_split());
            let words = Arc::clone(&words);
            drop(tokio::spawn(async move { translate(from, asked, &words).await }));
            drop(tokio::spawn(async move { io::copy(&mut answered, &mut answers).await }));
        }
    }));
    address
}

async fn translate(
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    words: &[(String, String)],
) -> io::Result<()> {
    let mut from = io::BufReader::new(from);
    // The startup message has no kind.
    let mut kind: Option<u8> = None;
    loop {
        let length: u32 = from.read_u32().await?;
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        from.read_exact(&mut body).await?;
        for (word, other) in words {
            assert_eq!(word.len(), other.len(), "{word}");
            for at in 0..(body.len() + 1).saturating_sub(word.len()) {
                if body[at..].starts_with(word.as_bytes()) {
                    body[at..at + word.len()].copy_from_slice(other.as_bytes());
                }
            }
        }
        let head = kind.into_iter().chain(length.to_be_bytes());
        to.write_all(&head.chain(body).collect::<Vec<_>>()).await?;
        kind = Some(from.read_u8().await?);
    }
}

/// How the names of functions begin that are in the schema.
async fn versions(client: &Client) -> Vec<String> {
    let asked = "SELECT DISTINCT split_part(proname, '_', 1) || '_' FROM pg_proc
        WHERE pronamespace = to_regnamespace('quorlock') AND proname <> 'notify'";
    client.query(asked, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn two_versions_exclude_notify_and_fence_each_other() {
    let Some(server) = server() else { return };
    let (old, client) = (other_version(&server).await, server.client().await);
    let (old_node, new_node) = (node(&old), node(&server.url("")));
    let first = claim("a");
    let drawn = acquire(&*old_node, &first).await.unwrap().fencing_token.unwrap();
    assert!(!versions(&client).await.contains(&rules().to_owned()), "the old version has begun");
    // The new version comes while the old one holds a lock, and again when its own functions are there.
    new_node.ready().await.unwrap();
    assert_eq!(versions(&client).await.len(), 2);
    let recorder = Arc::new(HintRecorder::default());
    new_node.listen(Arc::clone(&recorder) as Arc<dyn HintListener>);
    let second = claim("a");
    assert!(is_held_by(&acquire(&*new_node, &second).await.unwrap(), &first));
    let place = Request::enqueue("a".into(), WaiterId::new(1), TTL, TTL, TTL);
    assert!(matches!(ask(&*new_node, place).await.unwrap().vote, Vote::Queued(_)));
    assert_eq!(release(&*old_node, &first).await, Vote::Notified);
    until("the waiter is notified", async || recorder.changes() > 0).await;
    // The number of another node's clock does not count here.
    let mut request = acquisition(&second);
    if let Request::Acquire { fence_hint: Some(hint), .. } = &mut request {
        *hint = FenceHint::at(Duration::ZERO, None, TTL);
    }
    let granted = ask(&*new_node, request).await.unwrap();
    assert!(granted.vote == Vote::Granted && granted.fencing_token.unwrap() > drawn, "{granted:?}");
    assert!(is_held_by(&acquire(&*old_node, &first).await.unwrap(), &second));

    let clients = [&old, &server.url("")].map(|url| coordinator([url.clone()]));
    for [one, other] in [[0, 1], [1, 0]] {
        exclude(&clients[one], &clients[other]).await;
    }
}

#[tokio::test]
async fn the_first_clients_of_two_versions_create_what_they_need_at_one_moment() {
    let Some(server) = server() else { return };
    let (old, client) = (other_version(&server).await, server.client().await);
    agree(from_fn(|number| if number % 2 == 0 { node(&old) } else { server.node() })).await;
    assert_eq!(versions(&client).await.len(), 2);
}

/// As docs/upgrade.md says.
#[tokio::test]
async fn an_administrator_adds_and_removes_the_functions_of_a_version() {
    let Some(server) = server() else { return };
    let client = server.client().await;
    let made =
        "CREATE ROLE locks_owner NOLOGIN; ALTER DATABASE postgres OWNER TO locks_owner; CREATE USER app";
    client.batch_execute(made).await.unwrap();
    client
        .batch_execute(&format!(
            "SET ROLE locks_owner; {}; RESET ROLE",
            SCHEMA.replace(rules(), "v00000000_")
        ))
        .await
        .unwrap();
    let granted = "GRANT USAGE ON SCHEMA quorlock TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA quorlock TO app";
    client.batch_execute(granted).await.unwrap();
    let app = || node(&server.url("").replace("postgres@", "app@"));
    let error = app().ready().await.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::PermissionDenied(Access::Operation), "{error:#}");
    for words in [
        "lacks the functions of this version",
        "the script of docs/postgres.md",
        "as the owner of the schema",
    ] {
        assert!(error.to_string().contains(words), "{error:#}");
    }
    // A superuser may run it as well: the functions belong to the owner of the schema.
    for _ in 0..2 {
        client.batch_execute(SCHEMA).await.unwrap();
    }
    let foreign = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'quorlock'::regnamespace AND proowner <> 'locks_owner'::regrole";
    assert_eq!(client.query_one(foreign, &[]).await.unwrap().get::<_, i64>(0), 0);
    app().ready().await.unwrap();

    let removal = include_str!("../../../../docs/upgrade.md")
        .split("```sql\n")
        .find(|text| text.contains("DROP FUNCTION"));
    let (removal, _) = removal.unwrap().split_once("```").unwrap();
    assert!(removal.contains("v01234567_"), "{removal}");
    client.batch_execute(&removal.replace("v01234567_", "v00000000_")).await.unwrap();
    assert_eq!(versions(&client).await, [rules()]);
    let held = app();
    assert_eq!(acquire(&*held, &claim("a")).await.unwrap().vote, Vote::Granted);
    // A program that is still in use reports it, and one that may creates its functions again.
    client.batch_execute(&removal.replace("v01234567_", rules())).await.unwrap();
    assert_eq!(versions(&client).await, [""; 0]);
    assert!(acquire(&*held, &claim("b")).await.is_err());
    server.node().ready().await.unwrap();
    until("it goes on", async || acquire(&*held, &claim("b")).await.is_ok()).await;
    client.query_one(&sql("SELECT rules.clock()"), &[]).await.unwrap();
}
