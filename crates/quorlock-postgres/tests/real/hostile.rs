//! Servers that attack: whatever they send, only their own vote is lost.

use std::net::SocketAddr;
use std::time::Duration;

use quorlock_postgres::PostgresKind as Kind;
use quorlock_testkit::hostile::{self, Attack, HostileServer, KEY};

use crate::support::server;

#[path = "../../../../tests/stores/hostile.rs"]
mod common;

use common::{SHORT, refusal};

/// A message of this kind.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[kind], &length[..], body].concat()
}

/// The beginning of a message of this length.
fn header(kind: u8, length: u32) -> Vec<u8> {
    [&[kind], &length.to_be_bytes()[..]].concat()
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

fn accepted() -> Vec<u8> {
    message(b'R', &[0; 4])
}

fn greeting() -> Vec<u8> {
    let version = message(b'S', b"server_version\x0015.3\0");
    [accepted(), version, message(b'K', &[0, 0, 0, 7, 0, 0, 0, 9]), ready()].concat()
}

/// A row with one column of this length.
fn row(length: usize) -> Vec<u8> {
    let length = (u32::try_from(length).unwrap().to_be_bytes(), vec![b'x'; length]);
    message(b'D', &[&[0, 1], &length.0[..], &length.1].concat())
}

/// The columns of a result: one, of this type.
fn columns(oid: u32) -> Vec<u8> {
    message(
        b'T',
        &[&b"\0\x01a\0\0\0\0\0\0\0"[..], &oid.to_be_bytes(), &[255, 255, 255, 255, 255, 255, 0, 0]].concat(),
    )
}

const TEXT: u32 = 25;

/// Attacks on the login.
fn on_the_login() -> Vec<Attack> {
    let attack = |name, words, answer: Vec<u8>| Attack::new(name, words).after("user\0", answer);
    let notice = message(b'N', &[&b"SNOTICE\0C00000\0M"[..], &[b'n'; 4000], b"\0\0"].concat());
    let parameter = message(b'S', &[&b"name\0"[..], &[b'v'; 4000], b"\0"].concat());
    let error = message(b'E', &[&b"SERROR\0C42601\0M"[..], &vec![b'e'; 60_000], b"\0\0"].concat());
    vec![
        attack("silence", "is a server of another kind", Vec::new()).within(SHORT),
        attack("a message of 2 GB", "announced a message of 2147483647 bytes", header(b'R', 0x7fff_ffff))
            .then(vec![0; 65_536]),
        attack("a message of 4 GB", "announced a message of 4294967295 bytes", header(b'R', u32::MAX))
            .then(vec![0; 65_536]),
        attack("a message of 1 MB", "announced a message of 1048576 bytes", header(b'R', 1 << 20))
            .then(vec![0; 65_536]),
        attack("the banner of SSH", "is it another server?", b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        attack("zeros", "does not speak PostgreSQL's protocol", Vec::new()).then(vec![0; 4096]),
        attack("parameters without end", "bytes of notices and parameters", accepted())
            .then(parameter.repeat(16)),
        attack("notices without end", "bytes of notices and parameters", accepted()).then(notice.repeat(16)),
        attack("keys without end", "bytes for one question", accepted())
            .then(message(b'K', &[0; 8]).repeat(1000)),
        attack("an error of 60 KB", "", error),
        attack("a byte each 100 ms", "no connection within", header(b'R', 1000))
            .then([0])
            .slowly(Duration::from_millis(100))
            .within(SHORT),
        attack("half a message", "no connection within", accepted().into_iter().take(5).collect())
            .within(SHORT),
        attack("ready immediately", "", ready()),
        attack("a row first", "", row(10)),
    ]
}

/// Attacks instead of the answer to the first statements.
fn on_the_first_question() -> Vec<Attack> {
    let asked = |name, words, answer: Vec<Vec<u8>>| {
        Attack::new(name, words).after("user\0", greeting()).after("SET statement_timeout", answer.concat())
    };
    let prepared = |name, words, answer: Vec<Vec<u8>>| {
        let answered = asked(name, words, vec![message(b'C', b"SET\0"), ready()]);
        answered.after("pg_control_system", answer.concat())
    };
    let (parsed, no_parameters) = (message(b'1', &[]), message(b't', &[0, 0]));
    let notification = message(b'A', &[&[0, 0, 0, 5], &b"quorlock\0"[..], &[b'6'; 7000], &[0]].concat());
    vec![
        asked("silence", "no connection within", Vec::new()).within(SHORT),
        asked(
            "a row of 2 GB",
            "announced a message of 2147483647 bytes",
            vec![columns(TEXT), header(b'D', 0x7fff_ffff)],
        )
        .then(vec![b'x'; 65_536]),
        asked("rows without end", "bytes for one question", vec![columns(TEXT)]).then(row(65_536)),
        asked("tiny rows without end", "bytes for one question", vec![columns(TEXT)])
            .then(row(0).repeat(1000)),
        asked("notifications without end", "during its setup", Vec::new()).then(notification.repeat(8)),
        asked("errors without end", "", Vec::new()).then(message(b'E', &vec![b'x'; 60_000])),
        asked("results without end", "bytes for one question", Vec::new())
            .then(message(b'C', b"SET\0").repeat(1000)),
        asked("two answers", "", vec![[message(b'C', b"SET\0"), ready()].concat().repeat(2)]),
        asked("ready before the answer", "", vec![ready().repeat(3)]),
        asked("ready without end", "", Vec::new()).then(ready().repeat(1000)),
        asked("half a message", "no connection within", vec![row(100).into_iter().take(50).collect()])
            .within(SHORT),
        asked("a byte each 100 ms", "no connection within", vec![header(b'D', 1000)])
            .then([b'x'])
            .slowly(Duration::from_millis(100))
            .within(SHORT),
        prepared(
            "a type of its own",
            "a type of its own (16385)",
            vec![parsed.clone(), no_parameters.clone(), columns(16_385), ready()],
        ),
        prepared(
            "a parameter with a type of its own",
            "a type of its own (16385)",
            vec![parsed.clone(), message(b't', &[0, 1, 0, 0, 0x40, 1]), columns(TEXT), ready()],
        ),
        prepared("rows without a statement", "", vec![row(10), ready()]),
        prepared(
            "30,000 columns in no row",
            "",
            vec![parsed, no_parameters, message(b'T', &[0x75, 0x30]), ready()],
        ),
    ]
}

/// Attacks of a server that was honest until it was asked for a vote.
fn on_a_vote(server: SocketAddr) -> Vec<Attack> {
    let vote = |name, words, answer: Vec<u8>| {
        Attack::new(name, words).behind(server).after(KEY, answer).within(Duration::from_secs(3))
    };
    let bound = message(b'2', &[]);
    let notification = message(b'A', &[&[0, 0, 0, 5], &b"quorlock\0"[..], &[b'6'; 7000], &[0]].concat());
    vec![
        vote("silence at a vote", "", Vec::new()),
        vote("a vote of 2 GB", "", [bound.clone(), header(b'D', 0x7fff_ffff)].concat())
            .then(vec![b'x'; 65_536]),
        vote("rows without end at a vote", "", bound.clone()).then(row(65_536)),
        vote("a vote of one column", "", [bound, row(4), message(b'C', b"SELECT 1\0"), ready()].concat()),
        vote("notifications without end at a vote", "", Vec::new()).then(notification.repeat(8)),
        vote("parameters without end at a vote", "", Vec::new())
            .then(message(b'S', &[&b"name\0"[..], &[b'v'; 4000], &[0]].concat())),
    ]
}

/// Bytes without a meaning, at each stage of a connection.
fn babble() -> Vec<Attack> {
    let packed =
        |count: usize, body: &[u8]| [message(b"RSKZTDCE12tnANsI"[count % 16], body), ready()].concat();
    common::babble(packed, |stage, attack, babble| match stage {
        0 => attack.after("user\0", babble),
        1 => attack.after("user\0", greeting()).after("SET statement_timeout", babble),
        _ => {
            let attack = attack.after("user\0", greeting());
            let done = [message(b'C', b"SET\0"), ready()].concat();
            attack.after("SET statement_timeout", done).after("pg_control_system", babble)
        }
    })
}

async fn survive_all() {
    let server = server();
    let mut attacks = [on_the_login(), on_the_first_question(), babble()].concat();
    if let Some(server) = &server {
        attacks.extend(on_a_vote(server.address()));
    }
    let user = server.as_ref().map_or("postgres:secret".to_owned(), |server| {
        let url = quorlock_testkit::Database::url(server);
        url.trim_start_matches("postgres://").split('@').next().unwrap_or_default().to_owned()
    });
    let url = |address: SocketAddr| format!("postgres://{user}@{address}/postgres?connections=1");
    let secret = user.split(':').nth(1).unwrap();
    hostile::survive_all(attacks, Kind::new(), (url, secret)).await;
}

#[test]
fn a_hostile_server_harms_only_its_own_vote() {
    common::survive_in_processes_of_their_own();
}

/// Over a network, and on this machine, where another user may listen while the database is down.
#[tokio::test]
async fn no_password_goes_to_a_server_that_may_be_another_without_tls() {
    let asks = || {
        let asked = Attack::new("clear text", "").after("user\0", message(b'R', &[0, 0, 0, 3]));
        asked.after("secret", [greeting(), Vec::new()].concat())
    };
    let server = HostileServer::start(asks()).await.unwrap();
    for host in ["db.example", "localhost", "127.0.0.1"] {
        let error = refusal(&server, format!("postgres://app:secret@{host}/app")).await;
        assert!(
            error.contains("the server asks for the password itself")
                && error.contains("sslmode=verify-full"),
            "{host}: {error}"
        );
    }
    assert_eq!(server.attacks(), 0, "it got the password");
    refusal(&server, "postgres://app:secret@localhost/app?cleartext-password=loopback".to_owned()).await;
    // Once for each connection: on a slow machine there is more than one.
    assert!(server.attacks() > 0, "it did not get the password");
}
