//! Opens a connection and logs in.
//!
//! A password goes only to whom it belongs. The scrambles of `mysql_native_password`, `client_ed25519` and of
//! the short path of `caching_sha2_password` do not disclose it. The long path does, and anyone may ask for
//! it: it takes place inside TLS. Without TLS the key that the server hands out to encrypt it may be an
//! attacker's: on the way over a network, and on this machine that of another user, who listens while the
//! database is down. So there it takes place only if the URL says `cleartext-password=loopback`. `mysql_clear_password` and
//! `mysql_old_password` are refused everywhere, and so is the upload of local files, by not announcing it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use quorlock::{
    node::{NodeError, NodeErrorKind, Reason, Seams},
    redis::Endpoint,
    transport::Stream,
};

use crate::address::{Database, is_local};
use crate::error::{ServerError, refused_login};
use crate::key::{Seed, sealed};
use crate::scramble;
use crate::wire::{Fields, Wire, broken};

/// What a client announces, or a server offers, as bits.
mod able {
    pub(super) const LONG_PASSWORD: u32 = 1;
    pub(super) const LONG_FLAG: u32 = 1 << 2;
    pub(super) const WITH_DATABASE: u32 = 1 << 3;
    pub(super) const PROTOCOL_41: u32 = 1 << 9;
    pub(super) const TLS: u32 = 1 << 11;
    pub(super) const TRANSACTIONS: u32 = 1 << 13;
    pub(super) const SECURE: u32 = 1 << 15;
    pub(super) const SEVERAL_STATEMENTS: u32 = 1 << 16;
    pub(super) const SEVERAL_RESULTS: u32 = 1 << 17;
    pub(super) const PLUGINS: u32 = 1 << 19;

    /// All that every supported server offers. MariaDB uses the first bit for something else.
    pub(super) const NEEDED: u32 =
        PROTOCOL_41 | TRANSACTIONS | SECURE | SEVERAL_STATEMENTS | SEVERAL_RESULTS | PLUGINS;
}

/// `utf8mb4_general_ci`.
const COLLATION: u8 = 45;
/// What we accept in one packet, for the server to know.
const LONGEST: u32 = 1 << 24;
/// The number of packets that a login may take.
const STEPS: usize = 8;
/// Asks for the server's key.
const KEY_REQUEST: u8 = 2;
const CACHING: &[u8] = b"caching_sha2_password";
const NATIVE: &[u8] = b"mysql_native_password";
const ED25519: &[u8] = b"client_ed25519";

/// Connects and logs in. It takes as long as the server makes it take: the caller drops the future.
pub(crate) async fn log_in(
    database: &Database,
    seams: &Seams,
    accepted: &AtomicBool,
) -> Result<Wire, NodeError> {
    let address = Endpoint::Tcp { host: database.host().to_owned(), port: database.port() }.into();
    let stream = seams.dial().dial(&address).await.map_err(NodeError::undialled)?;
    accepted.store(true, Ordering::Relaxed);
    let mut wire = Wire::new(stream);
    let greeting = Greeting::read(&wire.read().await.map_err(no_greeting)?)?;
    let mut able = able::NEEDED | able::LONG_PASSWORD | able::LONG_FLAG | able::WITH_DATABASE;
    if database.is_encrypted() {
        if greeting.able & able::TLS == 0 {
            return Err(failed(
                NodeErrorKind::Tls,
                "no TLS: the server does not offer it; configure `ssl_cert` and `ssl_key` there, or remove `tls` from the URL",
            ));
        }
        able |= able::TLS;
        wire.send(&announcement(able)).await.map_err(unreachable)?;
        let number = wire.next_number();
        let stream = encrypted(database, seams, wire.into_plain().map_err(unreachable)?).await?;
        wire = Wire::new(stream).numbered_from(number);
    }
    let (user, password) = database.credentials(seams).await?;
    let mut login = Login {
        database,
        password: &password,
        plugin: Vec::new(),
        nonce: greeting.nonce,
        seed: seed(seams),
        has_disclosed: false,
    };
    // Any other plugin is named once more by the server.
    login.plugin = if greeting.plugin == CACHING { CACHING.into() } else { NATIVE.into() };
    let proof = login.proof()?;
    let mut answer = announcement(able);
    answer.extend([user.as_bytes(), &[0]].concat());
    answer.push(u8::try_from(proof.len()).unwrap_or_default());
    answer.extend([&proof, database.name().as_bytes(), &[0], &login.plugin, &[0]].concat());
    wire.send(&answer).await.map_err(unreachable)?;
    for _ in 0..STEPS {
        let packet = wire.read().await.map_err(unreachable)?;
        match login.next(&packet)? {
            Step::Done => return Ok(wire),
            Step::Wait => {}
            Step::Send(answer) => wire.send(&answer).await.map_err(unreachable)?,
        }
    }
    Err(unreachable(broken("it does not end the login")))
}

fn no_greeting(error: io::Error) -> NodeError {
    let words = "no MariaDB or MySQL greets at its port, which is mostly 3306";
    NodeError::Unreachable { reason: Reason::new(words).because(error) }
}

fn seed(seams: &Seams) -> Seed {
    let mut seed = Seed::default();
    for part in seed.chunks_mut(16) {
        part.iter_mut()
            .zip(seams.entropy().next_u128().to_le_bytes())
            .for_each(|(byte, random)| *byte = random);
    }
    seed
}

/// What both sides know after the server's first packet.
struct Greeting {
    able: u32,
    plugin: Vec<u8>,
    nonce: Vec<u8>,
}

impl Greeting {
    fn read(packet: &[u8]) -> Result<Greeting, NodeError> {
        if packet.first() == Some(&0xff) {
            return Err(refused_login(ServerError::read(packet).map_err(unreachable)?));
        }
        Greeting::parse(packet).map_err(unreachable)
    }

    fn parse(packet: &[u8]) -> io::Result<Greeting> {
        let mut fields = Fields(packet);
        if fields.number(1)? != 10 {
            return Err(broken("it does not speak the protocol of MariaDB and MySQL"));
        }
        fields.text();
        fields.bytes(4)?;
        let mut nonce = fields.bytes(8)?.to_vec();
        fields.bytes(1)?;
        let low = fields.number(2)?;
        fields.bytes(3)?;
        let able = u32::try_from(low | fields.number(2)? << 16).unwrap_or_default();
        if able & able::NEEDED != able::NEEDED {
            return Err(broken("it lacks features that MariaDB and MySQL have had for ten years"));
        }
        fields.bytes(11)?;
        // The second part of the nonce, which ends with a zero.
        nonce.extend(fields.bytes(12)?);
        fields.text();
        Ok(Greeting { able, plugin: fields.text().to_vec(), nonce })
    }
}

/// What both the request for TLS and the login begin with.
fn announcement(able: u32) -> Vec<u8> {
    let mut packet = Vec::new();
    packet.extend(able.to_le_bytes());
    packet.extend(LONGEST.to_le_bytes());
    packet.push(COLLATION);
    packet.extend([0; 23]);
    packet
}

#[cfg(feature = "tls")]
async fn encrypted(
    database: &Database,
    seams: &Seams,
    stream: Box<dyn Stream>,
) -> Result<Box<dyn Stream>, NodeError> {
    let tls = match database.authority() {
        Some(file) => seams.tls().clone().authority(file),
        None => seams.tls().clone(),
    };
    tls.wrap(database.host(), stream).await.map_err(NodeError::undialled)
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "with TLS it waits")]
async fn encrypted(_: &Database, _: &Seams, stream: Box<dyn Stream>) -> Result<Box<dyn Stream>, NodeError> {
    Ok(stream)
}

/// A login in progress. Decides what to send; pure.
struct Login<'a> {
    database: &'a Database,
    password: &'a str,
    plugin: Vec<u8>,
    nonce: Vec<u8>,
    seed: Seed,
    /// Whether the server was sent the password, or was asked for its key.
    has_disclosed: bool,
}

enum Step {
    Done,
    /// Another packet follows.
    Wait,
    Send(Vec<u8>),
}

impl Login<'_> {
    /// Decides about a packet of the server.
    fn next(&mut self, packet: &[u8]) -> Result<Step, NodeError> {
        match packet {
            [0, ..] => Ok(Step::Done),
            [0xff, ..] => Err(refused_login(ServerError::read(packet).map_err(unreachable)?)),
            [0xfe] => Err(unsupported(b"mysql_old_password")),
            [0xfe, switch @ ..] => {
                let mut fields = Fields(switch);
                self.plugin = fields.text().to_vec();
                let nonce = fields.0;
                // Text that ends with a zero; of this plugin any bytes, the last of which may be zero, too.
                let text = if self.plugin == ED25519 { None } else { nonce.strip_suffix(&[0]) };
                self.nonce = text.unwrap_or(nonce).to_vec();
                self.proof().map(Step::Send)
            }
            [1, 3] if self.plugin == CACHING => Ok(Step::Wait),
            [1, 4] if self.plugin == CACHING && !self.has_disclosed => {
                self.has_disclosed = true;
                if self.database.is_encrypted() {
                    return Ok(Step::Send([self.password.as_bytes(), &[0]].concat()));
                }
                if self.database.trusts_loopback() {
                    return Ok(Step::Send(vec![KEY_REQUEST]));
                }
                let words = if is_local(self.database.host()) {
                    "the server asks for the password itself (`caching_sha2_password`), which another user of this machine would \
                     read without TLS, by listening there while the database is down: write `?tls=on` in the URL (and \
                     `&tls-ca=FILE` for an authority of your own), or `?cleartext-password=loopback` if you trust all its users"
                } else {
                    "the server asks for the password itself (`caching_sha2_password`), which an attacker on the way would read \
                     without TLS: write `?tls=on` in the URL, and `&tls-ca=FILE` for an authority of your own"
                };
                Err(failed(NodeErrorKind::Login, words))
            }
            [1, key @ ..]
                if self.plugin == CACHING && self.has_disclosed && !self.database.is_encrypted() =>
            {
                self.sealed(key).map(Step::Send)
            }
            _ => Err(unreachable(broken("it sent something else in the middle of the login"))),
        }
    }

    /// The proof that we know the password.
    fn proof(&self) -> Result<Vec<u8>, NodeError> {
        let password = self.password.as_bytes();
        match &*self.plugin {
            NATIVE => Ok(scramble::native(&self.nonce, password)),
            CACHING => Ok(scramble::caching_sha2(&self.nonce, password)),
            // Without a password there is nothing to prove.
            ED25519 if password.is_empty() => Ok(Vec::new()),
            ED25519 => Ok(scramble::ed25519(&self.nonce, password)),
            other => Err(unsupported(other)),
        }
    }

    /// The password for a server on this machine, which only the owner of the key can read.
    fn sealed(&self, key: &[u8]) -> Result<Vec<u8>, NodeError> {
        let mut masked = [self.password.as_bytes(), &[0]].concat();
        for (byte, mask) in masked.iter_mut().zip(self.nonce.iter().cycle()) {
            *byte ^= mask;
        }
        sealed(&masked, key, self.seed).map_err(|words| unreachable(broken(words)))
    }
}

fn unsupported(plugin: &[u8]) -> NodeError {
    let name: String = String::from_utf8_lossy(plugin).chars().filter(|c| !c.is_control()).take(64).collect();
    let why = if name == "mysql_clear_password" || name == "mysql_old_password" {
        "which would disclose the password"
    } else {
        "which this program does not support"
    };
    failed(
        NodeErrorKind::Login,
        format!(
            "the server asks for the authentication plugin `{name}`, {why}; change the user's to `caching_sha2_password`, \
             `ed25519` or `mysql_native_password`"
        ),
    )
}

fn failed(kind: NodeErrorKind, words: impl Into<Box<str>>) -> NodeError {
    NodeError::Failed { kind, reason: Reason::new(words) }
}

fn unreachable(error: io::Error) -> NodeError {
    NodeError::undialled(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "secret";

    fn login<'a>(database: &'a Database, plugin: &[u8]) -> Login<'a> {
        let (plugin, nonce) = (plugin.to_vec(), b"abcdefghijklmnopqrst".to_vec());
        Login { database, password: SECRET, plugin, nonce, seed: Seed::default(), has_disclosed: false }
    }

    fn sent(step: Result<Step, NodeError>) -> Vec<u8> {
        match step.unwrap() {
            Step::Send(answer) => answer,
            Step::Done | Step::Wait => panic!("nothing was sent"),
        }
    }

    #[test]
    fn a_password_goes_only_to_whom_it_belongs() {
        const ASKED: &[u8] = &[1, 4];
        let sealed = |host: &str, options: &str| {
            let database = Database::parse(&format!("mysql://locks@{host}/locks{options}")).unwrap();
            login(&database, CACHING).next(ASKED).map(|step| sent(Ok(step)))
        };
        let (far, near) = (
            ["db-1", "10.0.0.1", "[2001:db8::1]", "localhost.example"],
            ["localhost", "127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]"],
        );
        for host in far.iter().chain(&near) {
            let refused = sealed(host, "").unwrap_err();
            assert_eq!(refused.kind(), NodeErrorKind::Login, "{host}");
            assert!(refused.to_string().contains("`?tls=on`"), "{host}: {refused}");
            let is_near = near.contains(host);
            assert_eq!(
                refused.to_string().contains("?cleartext-password=loopback"),
                is_near,
                "{host}: {refused}"
            );
            #[cfg(feature = "tls")]
            assert_eq!(sealed(host, "?tls=on").unwrap(), b"secret\0", "{host}");
        }
        for host in near {
            assert_eq!(sealed(host, "?cleartext-password=loopback").unwrap(), [2], "{host}: the key first");
        }
        for host in far {
            let url = format!("mysql://locks@{host}/locks?cleartext-password=loopback");
            assert!(Database::parse(&url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_server_asks_for_the_password_once_and_only_by_its_plugin() {
        let url = "mysql://locks@localhost/locks?cleartext-password=loopback";
        let database = Database::parse(url).unwrap();
        let mut caching = login(&database, CACHING);
        assert!(caching.next(&[1, 0]).is_err(), "a key that was not asked for");
        assert_eq!(sent(caching.next(&[1, 4])), [2]);
        assert!(caching.next(&[1, b'-', b'-']).is_err(), "no key");
        assert!(matches!(caching.next(&[0, 0, 0, 2, 0, 0, 0]), Ok(Step::Done)));
        for plugin in [NATIVE, ED25519] {
            assert!(login(&database, plugin).next(&[1, 4]).is_err(), "{plugin:?}");
        }
        let error = login(&database, NATIVE).next(b"\xfemysql_clear_password\0abc\0").err().unwrap();
        assert!(error.to_string().contains("would disclose the password"), "{error}");
    }

    #[test]
    fn the_password_is_proved_by_what_each_plugin_expects() {
        let database = Database::parse("mysql://locks@db-1/locks").unwrap();
        for (plugin, length) in [(NATIVE, 20), (CACHING, 32), (ED25519, 64)] {
            let mut login = login(&database, NATIVE);
            let switch = [&[0xfe], plugin, b"\0tsrqponmlkjihgfedcba\0"].concat();
            assert_eq!(sent(login.next(&switch)).len(), length);
            let zero: &[u8] = if plugin == ED25519 { &[0] } else { &[] };
            let nonce = [b"tsrqponmlkjihgfedcba", zero].concat();
            assert_eq!((&*login.plugin, &login.nonce), (plugin, &nonce));
            login.password = "";
            assert!(login.proof().unwrap().is_empty(), "nothing to prove");
        }
    }

    #[test]
    fn a_greeting_is_read_or_refused() {
        let greeting = b"\x0a8.0.36\0\x07\0\0\0abcdefgh\0\xff\xf7\x21\x02\0\xff\0\x15\0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0caching_sha2_password\0";
        let read = Greeting::read(greeting).unwrap();
        assert_eq!((&*read.plugin, &*read.nonce), (CACHING, &b"abcdefghijklmnopqrst"[..]));
        for length in 0..greeting.len() - CACHING.len() - 2 {
            assert!(Greeting::read(&greeting[..length]).is_err(), "{length} bytes");
        }
        let error = Greeting::read(b"\xff\x10\x04Too many connections").err().unwrap();
        assert_eq!(error.kind(), NodeErrorKind::Busy, "{error}");
    }
}
