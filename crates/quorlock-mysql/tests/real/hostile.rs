//! Servers that attack: whatever they send, only their own vote is lost.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quorlock_mysql::MysqlKind as Kind;
use quorlock_testkit::hostile::{self, Attack, HostileServer, KEY};

use crate::server::Server;

#[path = "../../../../tests/stores/hostile.rs"]
mod common;

use common::{SHORT, refusal};

/// A packet with this number.
fn packet(number: usize, body: &[u8]) -> Vec<u8> {
    [&body.len().to_le_bytes()[..3], &[number.to_le_bytes()[0]], body].concat()
}

/// The packets with all numbers from this one on, so that they can be repeated without end.
fn packets(first: usize, body: &[u8]) -> Vec<u8> {
    (first..first + 256).flat_map(|number| packet(number, body)).collect()
}

/// The first packet of a server whose users have this plugin, with a nonce of letters and without TLS.
fn greeting(plugin: &str) -> Vec<u8> {
    let able: u32 = 0x00ff_f7df;
    let body = [
        b"\x0a10.11.6-MariaDB\0\x07\0\0\0abcdefgh\0",
        &able.to_le_bytes()[..2],
        &[33, 2, 0],
        &able.to_le_bytes()[2..],
        &[21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        b"ijklmnopqrst\0",
        plugin.as_bytes(),
        &[0],
    ];
    packet(0, &body.concat())
}

/// OK, and whether another result follows.
fn ok(more: bool) -> Vec<u8> {
    vec![0, 0, 0, if more { 10 } else { 2 }, 0, 0, 0]
}

const END: &[u8] = b"\xfe\0\0\x02\0";
/// A column called `a`.
const COLUMN: &[u8] = b"\x03def\0\0\0\x01a\0\x0c\x21\0\0\0\0\0\xfd\0\0\0\0\0";

/// Attacks on the login.
fn on_the_login() -> Vec<Attack> {
    let greeted = || greeting("mysql_native_password");
    let attack = |name, words| Attack::new(name, words).after("", Vec::new());
    let login = |name, words| Attack::new(name, words).after("", greeted());
    let long = [&[0xfe, 0xff, 0x3f, 0, 0xff, 21, 4][..], &[b'x'; 1000]].concat();
    vec![
        attack("silence", "is a server of another kind").within(SHORT),
        attack("a packet of 16 MB first", "announced a packet of 16777215 bytes")
            .then([&[0xff, 0xff, 0xff, 0][..], &vec![10; 65_536]].concat()),
        attack("zeros", "ends too soon").then(vec![0; 4096]),
        attack("the banner of SSH", "no MariaDB or MySQL greets").then(b"SSH-2.0-OpenSSH_9.2\r\n"),
        attack("a greeting without an end", "ends too soon")
            .then(packet(0, &[&b"\x0a"[..], &vec![b'x'; 100_000]].concat())),
        Attack::new("an error of 4 MB", "ERROR 1045").after("", long).then(vec![b'x'; 65_536]),
        Attack::new("a byte each 100 ms", "the login did not end within")
            .after("", vec![100, 0, 0, 0])
            .then([b'x'])
            .slowly(Duration::from_millis(100))
            .within(SHORT),
        Attack::new("a greeting twice", "sent packet 0").after("", greeted().repeat(2)),
        login("silence after the greeting", "the login did not end within").within(SHORT),
        login("a login without an end", "in the middle of the login")
            .after("locks", Vec::new())
            .then(packets(2, &[1, 3])),
        Attack::new("a login of endless waits", "does not end the login")
            .after("", greeting("caching_sha2_password"))
            .after("locks", Vec::new())
            .then(packets(2, &[1, 3])),
        login("clear text", "`mysql_clear_password`, which would disclose the password")
            .after("locks", packet(2, b"\xfemysql_clear_password\0abcdefghijklmnopqrst\0")),
        login("an old password", "`mysql_old_password`, which would disclose the password")
            .after("locks", packet(2, &[0xfe])),
        login("a plugin of its own", "`dialog`, which this program does not support")
            .after("locks", packet(2, b"\xfedialog\0abc\0")),
        key("a key that is none", "a key that cannot be used", "AAAA"),
        // As large as its lengths of two bytes allow, and the exponent as large: minutes of arithmetic.
        key("a key of 16,384 bits", "a key that cannot be used", &huge_key()),
    ]
}

/// A server that asks for the password, and hands out this key to encrypt it.
fn key(name: &'static str, words: &'static str, text: &str) -> Attack {
    let text = format!("\x01-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n");
    let asks = Attack::new(name, words).after("", greeting("caching_sha2_password"));
    asks.after("locks", packet(2, &[1, 4])).after([2], packet(4, text.as_bytes()))
}

/// An RSA key with a modulus and an exponent of 16,384 bits.
fn huge_key() -> String {
    let element = |tag: u8, content: &[u8]| {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    };
    let number = element(2, &[&[0][..], &[0xff; 2048]].concat());
    let bits = element(3, &[&[0], &*element(0x30, &number.repeat(2))].concat());
    let rsa = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
    STANDARD.encode(element(0x30, &[element(0x30, &rsa), bits].concat()))
}

/// Attacks instead of the answer to the first question.
fn on_the_first_question() -> Vec<Attack> {
    let asked = |name, words, answer: Vec<Vec<u8>>| {
        let greeted = Attack::new(name, words).after("", greeting("mysql_native_password"));
        greeted.after("locks", packet(2, &ok(false))).after("SET SESSION", answer.concat())
    };
    let rows = |name, words, row: &[u8]| {
        asked(name, words, vec![packet(1, &[1]), packet(2, COLUMN), packet(3, END)]).then(packets(4, row))
    };
    let columns = |count: u64| [&[0xfe][..], &count.to_le_bytes()].concat();
    vec![
        asked("silence", "did not answer within", Vec::new()).within(SHORT),
        asked("2^40 columns", "announced 1099511627776 columns", vec![packet(1, &columns(1 << 40))])
            .then(packets(2, COLUMN)),
        asked("2^64 columns", "columns, and the maximum is 256", vec![packet(1, &columns(u64::MAX))])
            .then(packets(2, COLUMN)),
        asked("a result without columns", "announced 0 columns", vec![packet(1, &[0xfc, 0, 0])]),
        asked("columns without end", "more columns than it announced", vec![packet(1, &[1])])
            .then(packets(2, COLUMN)),
        asked(
            "a column of 16 MB",
            "announced a packet of 16777215 bytes",
            vec![packet(1, &[1]), vec![0xff, 0xff, 0xff, 2]],
        )
        .then(vec![b'x'; 65_536]),
        rows("rows without end", "bytes for one question", &[&[0xfc, 0, 16][..], &[b'x'; 4096]].concat()),
        rows("tiny rows without end", "bytes for one question", &[0xfb]),
        asked(
            "a row of 16 MB",
            "announced a packet of",
            vec![packet(1, &[1]), packet(2, COLUMN), packet(3, END), vec![0xff, 0xff, 0xff, 4]],
        )
        .then(vec![b'x'; 65_536]),
        rows("a value longer than its row", "ends too soon", &[&[0xfe][..], &[0xff; 7], &[0x3f]].concat()),
        asked("results without end", "results", Vec::new()).then(packets(1, &ok(true))),
        asked(
            "a request for a file",
            "asks for a file of this machine",
            vec![packet(1, b"\xfb/etc/hostname")],
        ),
        asked("two answers", "an answer without a question", vec![packet(1, &ok(false)).repeat(2)]),
        asked("an answer out of order", "sent packet 9", vec![packet(9, &ok(false))]),
        asked(
            "half an answer",
            "did not answer within",
            vec![packet(1, &[0; 100]).into_iter().take(50).collect()],
        )
        .within(SHORT),
        asked("a byte each 100 ms", "did not answer within", vec![vec![100, 0, 0, 1]])
            .then([b'x'])
            .slowly(Duration::from_millis(100))
            .within(SHORT),
        asked("empty packets", "ends too soon", Vec::new()).then(packets(1, &[])),
    ]
}

/// Attacks of a server that was honest until it was asked for a vote.
fn on_a_vote(server: SocketAddr) -> Vec<Attack> {
    // `orders/42` in a statement.
    const HEX: &str = "6f72646572732f3432";
    assert_eq!(KEY, "orders/42");
    let vote = |name, words, answer: Vec<u8>| {
        Attack::new(name, words).behind(server).after(HEX, answer).within(Duration::from_secs(3))
    };
    let rows = [packet(1, &[1]), packet(2, COLUMN), packet(3, END)].concat();
    vec![
        vote("silence at a vote", "", Vec::new()),
        vote("a huge vote", "announced a packet of", vec![0xff, 0xff, 0xff, 1]).then(vec![b'x'; 65_536]),
        vote("rows without end at a vote", "bytes for one question", rows)
            .then(packets(4, &[&[0xfc, 0, 16][..], &[b'x'; 4096]].concat())),
        vote("2^40 columns at a vote", "columns", packet(1, b"\xfe\0\0\0\0\0\x01\0\0")),
    ]
}

/// Bytes without a meaning, at each stage of a connection.
fn babble() -> Vec<Attack> {
    let packed = |count: usize, body: &[u8]| packet(usize::from(count % 4 == 1) + 1, body);
    common::babble(packed, |stage, attack, babble| match stage {
        0 => attack.after("", babble),
        1 => attack.after("", greeting("caching_sha2_password")).after("locks", babble),
        _ => {
            let attack = attack.after("", greeting("mysql_native_password"));
            attack.after("locks", packet(2, &ok(false))).after("SET SESSION", babble)
        }
    })
}

async fn survive_all() {
    let server = Server::start(&[]).await;
    let mut attacks = [on_the_login(), on_the_first_question(), babble()].concat();
    if let Some(server) = &server {
        attacks.extend(on_a_vote(server.address()));
    }
    let url =
        |address: SocketAddr| format!("mysql://locks:secret@{address}/locks?cleartext-password=loopback");
    hostile::survive_all(attacks, Kind::new(), (url, "secret")).await;
}

#[test]
fn a_hostile_server_harms_only_its_own_vote() {
    common::survive_in_processes_of_their_own();
}

/// A server asks for the password, and offers the key of an attacker: over a network, and on this machine, where another
/// user may listen while the database is down.
#[tokio::test]
async fn no_password_goes_to_a_server_that_may_be_another_without_tls() {
    let asks = || {
        let attack = Attack::new("a key of its own", "").after("", greeting("caching_sha2_password"));
        attack.after("locks", packet(2, &[1, 4]))
    };
    let server = HostileServer::start(asks()).await.unwrap();
    for host in ["db.example", "localhost", "127.0.0.1"] {
        let error = refusal(&server, format!("mysql://locks:secret@{host}/locks")).await;
        assert!(
            error.contains("the server asks for the password itself") && error.contains("`?tls=on`"),
            "{host}: {error}"
        );
    }
    // With this it would have got the key next.
    let error =
        refusal(&server, "mysql://locks:secret@localhost/locks?cleartext-password=loopback".to_owned()).await;
    assert!(error.contains("the login did not end within"), "{error}");
}
