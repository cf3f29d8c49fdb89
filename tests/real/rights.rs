//! The rights that SECURITY.md documents for a node's user: they suffice for everything, and each one
//! is needed.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use quorlock::protocol::{InboxId, InboxMessage, NextWaiter, prove, unproven};
use quorlock::runtime::{Clock as _, Mutex, SystemClock, within};
use quorlock::{
    Coordinator, Fencing, FencingToken, Lease, Lock, RestartGuard, Wait,
    doctor::{Check, Report, Severity, Standing},
};
use quorlock_testkit::{Proxy, Resp, Server, Servers, patience, until};

use crate::world::{TTL, knows, run_command};

/// Waits for the lock, whatever the queue, while its holder releases it.
async fn next(lock: Lock, held: Lease) -> Lease {
    let (next, released) = tokio::join!(lock.acquire(), held.release());
    released.unwrap();
    next.unwrap()
}

/// The words of the documented line, after the user name.
fn documented(servers: &Servers) -> Vec<String> {
    let text = include_str!("../../SECURITY.md");
    let line = text.lines().find_map(|line| line.strip_prefix("ACL SETUSER quorlock ")).unwrap();
    let words = line.split(' ').filter(|word| knows(servers.kind(), word));
    words.map(|word| word.replace("PASSWORD", "pw")).collect()
}

/// The same, plus the rights for shared locks and offers.
fn documented_for_all(servers: &Servers) -> Vec<String> {
    let text = include_str!("../../SECURITY.md");
    let channels = knows(servers.kind(), "resetchannels");
    let parts = [("Shared locks need `", true), ("With `&", channels)];
    let more = parts.into_iter().filter(|(_, known)| *known).map(|(before, _)| {
        let at = text.find(before).unwrap() + before.find('`').unwrap() + 1;
        text[at..].split_once('`').unwrap().0
    });
    // Redis 6.0 has the commands, but no channel rights.
    let without = (!channels).then_some("+subscribe +publish");
    let more = more.chain(without).flat_map(|words| words.split(' ')).map(str::to_owned);
    documented(servers).into_iter().chain(more).collect()
}

async fn set_user(server: &Server, words: &[String]) {
    set_named(server, "quorlock", words).await;
}

async fn set_named(server: &Server, name: &str, words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run_command(server, &[&["ACL", "SETUSER", name, "reset"], &words[..]].concat()).await;
}

fn client(server: &Server) -> Coordinator {
    with(&server.address(), RestartGuard::Off, TTL)
}

/// Two clients of a server that is far enough for offers.
async fn far_clients(servers: &Servers, ttl: Duration) -> ([Coordinator; 2], Vec<Proxy>) {
    let ways = servers.ways(Duration::from_millis(3)).await.unwrap();
    ([(); 2].map(|()| with(&ways[0].address(), RestartGuard::On, ttl)), ways)
}

fn with(address: &SocketAddr, guard: RestartGuard, ttl: Duration) -> Coordinator {
    Coordinator::builder()
        .nodes([format!("redis://quorlock:pw@{address}")])
        .key_prefix("locks:")
        .restart_guard(guard)
        .ttl(ttl)
        .max_ttl(ttl)
        .build()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_suffice_for_the_whole_life_of_a_lock() {
    let servers = Servers::start(1).await.unwrap();
    set_user(&servers[0], &documented(&servers)).await;
    let (one, two) = (client(&servers[0]), client(&servers[0]));
    let lock = |of: &Coordinator| of.lock("r").wait(Wait::UpTo(patience()));

    // Acquired, renewed, refused to others, inspected, and waited for by another process.
    let lease = lock(&one).acquire().await.unwrap();
    lease.renew().await.unwrap();
    assert!(lock(&two).try_acquire().await.unwrap().is_none());
    assert!(lock(&one).inspect().await.unwrap().holder().is_some());
    let lease = next(lock(&two), lease).await;
    // Handed off within a process, in one round; to another process; and acquired again.
    let lease = next(lock(&two), lease).await;
    let lease = next(lock(&one), lease).await;
    let given_up = lock(&two).wait(Wait::UpTo(Duration::from_millis(1))).acquire().await;
    assert!(given_up.is_err(), "it is held");
    lease.release().await.unwrap();

    // Without fencing; and an attempt that is dropped in flight.
    lock(&one).fencing(Fencing::Off).acquire().await.unwrap().release().await.unwrap();
    drop(pin!(lock(&one).acquire()).now_or_never());
    one.close(patience()).await;
    let keys = servers[0].command(&["EXISTS", "locks:r"]).await.unwrap();
    assert_eq!(keys.to_string(), "0", "a cancelled attempt left its key");

    let examination = one.doctor().await;
    // The rights for other kinds of lock are only noted as missing.
    let worse = examination.findings.iter().filter(|finding| finding.severity > Severity::Note);
    assert_eq!(worse.filter(|finding| finding.check == Check::MissingRight).count(), 0, "{examination:#?}");
    set_user(&servers[0], &documented_for_all(&servers)).await;
    let examination = one.doctor().await;
    assert_eq!(missed(&examination), [""; 0], "{examination:#?}");
    assert!(matches!(examination.nodes[0].standing, Standing::Votes), "{examination:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_needs_no_more_rights() {
    let servers = Servers::start(1).await.unwrap();
    set_user(&servers[0], &documented(&servers)).await;
    let permit = client(&servers[0]).semaphore("s", 2).wait(Wait::Never).acquire().await.unwrap();
    permit.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_competing_writers_need_more_rights() {
    let servers = Servers::start(1).await.unwrap();
    let documented = documented(&servers);
    let text = include_str!("../../SECURITY.md");
    let more = text.split_once("Shared locks need `").and_then(|(_, rest)| rest.split_once('`')).unwrap().0;
    let more: Vec<String> = more.split(' ').map(str::to_owned).collect();
    let suffices = async |words: &[String]| {
        set_user(&servers[0], words).await;
        let (reader, writer) = (client(&servers[0]), client(&servers[0]));
        let lock = reader.lock("r").shared().wait(Wait::Never);
        let (Ok(one), Ok(two)) = (lock.acquire().await, lock.acquire().await) else { return false };
        one.renew().await.unwrap();
        one.release().await.unwrap();
        assert_eq!(writer.lock("r").inspect().await.unwrap().holder().unwrap().readers.len(), 1);
        let lease = next(writer.lock("r").wait(Wait::UpTo(patience())), two).await;
        lease.downgrade().await.unwrap().release().await.unwrap();
        reader.close(patience()).await;
        writer.close(patience()).await;
        assert_eq!(servers[0].command(&["EXISTS", "locks:r"]).await.unwrap().to_string(), "0");
        true
    };
    assert!(!suffices(&documented).await, "the additional rights are not needed");
    assert!(suffices(&[&documented[..], &more].concat()).await, "{more:?} are too few");
}

/// Two users of one server, each with the documented line for its own prefix: whatever one of them tries with all keys and
/// channels of the other is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_can_do_nothing_to_the_locks_of_another() {
    let servers = Servers::start(1).await.unwrap();
    if !knows(servers.kind(), "resetchannels") {
        return println!("skipped: {} has no channel rights", servers.kind());
    }
    let server = &servers[0];
    set_user(server, &documented_for_all(&servers)).await;
    let theirs = documented_for_all(&servers).into_iter().map(|word| word.replace("locks:", "others:"));
    set_named(server, "mallory", &theirs.collect::<Vec<_>>()).await;

    // All kinds of locks, held and waited for; with the restart guard, without which no node makes offers.
    let ([holder, waiter], _ways) = far_clients(&servers, Duration::from_secs(2)).await;
    let lock = |name: &str| holder.lock(name).wait(Wait::UpTo(patience()));
    let mut held = vec![lock("c").shared().acquire().await.unwrap()];
    for name in ["a", "{b}", "d}{"] {
        held.push(lock(name).acquire().await.unwrap());
    }
    let permit = holder.semaphore("s", 1).acquire().await.unwrap();
    let waiting = ["a", "{b}", "c", "d}{"].map(|name| waiter.lock(name).wait(Wait::Forever));
    let waiting = waiting.map(|lock| tokio::spawn(async move { lock.acquire().await.map(drop) }));
    let count = async |command: &[&str]| {
        let Ok(Resp::List(all)) = server.command(command).await else { panic!("{command:?}") };
        all.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let queued = async || count(&["KEYS", "*:order"]).await.len() == 4;
    until("four queues", queued).await;

    let keys = count(&["KEYS", "*"]).await;
    let channels = count(&["PUBSUB", "CHANNELS", "*"]).await;
    assert!(keys.len() > 4 * 3 && !channels.is_empty(), "{keys:?} {channels:?}");
    for name in keys.iter().chain(&channels) {
        assert!(name.starts_with("locks:"), "{name} is not below the prefix");
    }
    let mallory = server.url_as("mallory:pw");
    // It can use its own.
    assert_eq!(command_as(&mallory, &["SET", "others:a", "x"]).await, "Ok(ok)");
    assert_eq!(command_as(&mallory, &["PUBLISH", "others:quorlock:inbox:1", "x"]).await, "Ok(int(0))");
    let tries =
        ["SET {} x", "GET {}", "DEL {}", "ZADD {} 9007199254740991 n", "PEXPIRE {} 1", "PEXPIREAT {} 1"];
    let more =
        ["ZPOPMIN {}", "SETRANGE {} 0 x", "INCRBY {} 1", "EVAL return(redis.call('DEL',KEYS[1])) 1 {}"];
    for (name, template) in
        keys.iter().flat_map(|key| tries.iter().chain(&more).map(move |attempt| (key, attempt)))
    {
        let words: Vec<_> = template.split(' ').map(|word| if word == "{}" { name } else { word }).collect();
        let answer = command_as(&mallory, &words).await;
        assert!(answer.contains("NoPerm"), "{template} of {name}: {answer}");
        let script = format!("return redis.call('DEL', '{name}')");
        let answer = command_as(&mallory, &["EVAL", &script, "0"]).await;
        assert!(answer.contains("permission") || answer.contains("can't access"), "{script}: {answer}");
    }
    for channel in &channels {
        for words in [["PUBLISH", channel, "o 0 1 1000"].as_slice(), &["SUBSCRIBE", channel]] {
            let answer = command_as(&mallory, words).await;
            assert!(answer.contains("NoPerm"), "{words:?}: {answer}");
        }
    }
    for lease in held {
        lease.release().await.unwrap();
    }
    permit.release().await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
}

/// Makes a message of one that was overheard, and of what is to be forged.
type Forge = fn(&[u8], &[u8]) -> Vec<u8>;

/// A neighbour that may use every channel, as servers give them by default before Redis 7, and no key of ours. It reads
/// the tokens of waiters in the messages to holders.
#[tokio::test(flavor = "multi_thread")]
async fn o11_a_neighbour_with_every_channel_makes_no_waiter_a_holder() {
    let servers = Servers::start(1).await.unwrap();
    if !knows(servers.kind(), "resetchannels") {
        return println!("skipped: {} has no channel rights", servers.kind());
    }
    let server = &servers[0];
    set_user(server, &documented_for_all(&servers)).await;
    let all_channels = ["ACL", "SETUSER", "mallory", "reset", "on", ">pw", "~others:*", "&*", "+@all"];
    server.command(&all_channels).await.unwrap();
    let mallory = server.url_as("mallory:pw");
    let mut ear = redis::Client::open(mallory.clone()).unwrap().get_async_pubsub().await.unwrap();
    ear.psubscribe("*").await.unwrap();
    let mut messages = ear.into_on_message();
    // The waiter asks twice a second, each time with a new token. Returns the signed message, and what is to be forged.
    let mut overhear = async || loop {
        let next = within(&SystemClock::default(), patience(), messages.next()).await;
        let signed = next.expect("a message in time").unwrap().get_payload_bytes().to_vec();
        let unproven_messages = unproven(&signed).into_iter().flat_map(InboxMessage::parse);
        for message in unproven_messages {
            if let InboxMessage::Next { next: NextWaiter { terms, .. }, .. } = message {
                let token = String::from_utf8_lossy(terms.token.random_part()).into_owned();
                return (signed.clone(), terms.channel("locks:a"), format!("o {token} 9 60000"));
            }
        }
    };
    let ([holder, waiter], _ways) = far_clients(&servers, Duration::from_secs(5)).await;
    let held = holder.lock("a").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    let mut waiting =
        tokio::spawn(async move { waiter.lock("a").wait(Wait::Forever).acquire().await.unwrap() });
    let publish = async |channel: &str, message: &[u8]| {
        let client = redis::Client::open(mallory.clone()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let heard =
            redis::cmd("PUBLISH").arg(channel).arg(message).query_async::<usize>(&mut connection).await;
        heard.unwrap()
    };
    let forge: [Forge; 3] = [
        |_, forged| forged.to_vec(),
        |_, forged| prove(b"a guess", forged),
        |signed, forged| [&signed[..41], forged].concat(),
    ];
    for forge in forge {
        let (signed, channel, forged) = overhear().await;
        let heard = publish(&channel, &forge(&signed, forged.as_bytes())).await;
        assert_eq!(heard, 2, "the waiter and this test");
    }
    overhear().await;
    assert!(!waiting.is_finished() && held.check().is_ok());
    // With the secret it is believed.
    let secret = server.command(&["GET", &InboxId::secret_key("locks:")]).await.unwrap().to_string();
    // The waiter may have asked again since the message that was overheard.
    let lease = loop {
        tokio::select! {
            lease = &mut waiting => break lease.unwrap(),
            (_, channel, forged) = overhear() => {
                publish(&channel, &prove(secret.as_bytes(), forged.as_bytes())).await;
            }
        }
    };
    assert_eq!(lease.fencing_token().get(), 9);
}

/// Tries everything, for ever.
async fn attack(server: &Server, refused: &AtomicUsize) {
    const TRIES: [&str; 6] = [
        "SET {} x PX 1",
        "DEL {}",
        "ZADD {} 9007199254740991 n",
        "PEXPIRE {} 1",
        "PUBLISH {} x",
        "SUBSCRIBE {}",
    ];
    let client = redis::Client::open(server.url_as("mallory:pw")).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    loop {
        let mut names = Vec::new();
        for listing in [["KEYS", "locks:*"].as_slice(), &["PUBSUB", "CHANNELS", "locks:*"]] {
            if let Ok(Resp::List(some)) = server.command(listing).await {
                names.extend(some.iter().map(ToString::to_string));
            }
        }
        let attempts = names.iter().flat_map(|name| TRIES.map(|template| template.replace("{}", name)));
        let attempts: Vec<String> = attempts.collect();
        for attempt in attempts {
            let mut command = redis::Cmd::new();
            for word in attempt.split(' ') {
                command.arg(word);
            }
            let answer = format!("{:?}", command.query_async::<redis::Value>(&mut connection).await);
            assert!(answer.contains("NoPerm"), "{attempt}: {answer}");
            refused.fetch_add(1, Ordering::Relaxed);
        }
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("USER").arg("quorlock");
        kill.query_async::<usize>(&mut connection).await.unwrap();
        pause(Duration::from_millis(300)).await;
    }
}

async fn pause(time: Duration) {
    let clock = SystemClock::default();
    clock.sleep_until(clock.now() + time).await;
}

/// Whatever a neighbour tries with its own right, closing connections included: no hold is lost, none overlaps, and
/// tokens grow. For as long as `QUORLOCK_TENANT_SECONDS` says.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_tries_everything_harms_none_of_a_thousand_holds() {
    let servers = Arc::new(Servers::start(3).await.unwrap());
    if !knows(servers.kind(), "resetchannels") {
        return println!("skipped: {} has no channel rights", servers.kind());
    }
    let words: Vec<_> =
        documented_for_all(&servers).iter().map(|word| word.replace("locks:", "others:")).collect();
    for server in servers.iter() {
        set_user(server, &documented_for_all(&servers)).await;
        set_named(server, "mallory", &words).await;
    }
    let refused = Arc::new(AtomicUsize::new(0));
    let attacks: Vec<_> = (0..3)
        .map(|node| {
            let (servers, refused) = (servers.clone(), refused.clone());
            tokio::spawn(async move { attack(&servers[node], &refused).await })
        })
        .collect();

    let (began, holds) = (SystemClock::default().now(), Arc::new(AtomicUsize::new(0)));
    let lasts = std::env::var("QUORLOCK_TENANT_SECONDS")
        .map_or(Duration::ZERO, |text| Duration::from_secs(text.parse().unwrap()));
    let locks: Arc<Vec<_>> = Arc::new(
        (0..3)
            .map(|number| (format!("lock-{number}"), Mutex::new(None::<FencingToken>), AtomicUsize::new(0)))
            .collect(),
    );
    let holders: Vec<_> = (0..6)
        .map(|number| {
            let ttl = Duration::from_secs(5);
            let coordinator = Coordinator::builder()
                .nodes(servers.iter().map(|server| server.url_as("quorlock:pw")))
                .key_prefix("locks:");
            let coordinator = coordinator.ttl(ttl).max_ttl(ttl).build().unwrap();
            let (locks, holds) = (locks.clone(), holds.clone());
            tokio::spawn(async move {
                for turn in number.. {
                    if holds.load(Ordering::Relaxed) >= 1000
                        && SystemClock::default().now().since(began) >= lasts
                    {
                        break;
                    }
                    let (name, last, inside) = &locks[turn % 3];
                    // A connection that was closed may have had the answer.
                    let Ok(lease) = coordinator.lock(name).wait(Wait::UpTo(patience())).acquire().await
                    else {
                        continue;
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders of {name}");
                    let token = Some(lease.fencing_token());
                    let before = std::mem::replace(&mut *last.lock(), token);
                    assert!(before < token, "{before:?} before {token:?}");
                    pause(Duration::from_millis(1)).await;
                    assert_eq!(lease.check(), Ok(()));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(lease.release().await);
                    holds.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for holder in holders {
        holder.await.unwrap();
    }
    println!(
        "{} holds beside {} attempts of the tenant, all refused",
        holds.load(Ordering::Relaxed),
        refused.load(Ordering::Relaxed)
    );
    assert!(
        refused.load(Ordering::Relaxed) > 0 && attacks.iter().all(|attack| !attack.is_finished()),
        "the attacks go on"
    );
    attacks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// What is free is never reported as taken for want of a right, whatever kind of lock it is.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_right_nothing_free_is_called_taken() {
    let servers = Servers::start(1).await.unwrap();
    let documented = documented_for_all(&servers);
    let shortly = Wait::UpTo(Duration::from_millis(50));
    for taken in documented.iter().filter(|word| word.starts_with(['+', '~', '&'])) {
        let left: Vec<_> = documented.iter().filter(|word| *word != taken).cloned().collect();
        set_user(&servers[0], &left).await;
        let client = client(&servers[0]);
        let (readers, both) = (client.lock("b").shared(), client.lock_all(["c", "d"]));
        let (permits, election) =
            (client.semaphore("s", 2).wait(shortly), client.election("e").wait(shortly));
        let messages = [
            ("a lock", tried(client.lock("a").try_acquire().await)),
            // Another one: without the right to delete, the first one stays.
            ("a wait", unproven_messages(client.lock("a2").wait(shortly).acquire().await)),
            ("readers", tried(readers.try_acquire().await)),
            ("a reader's wait", unproven_messages(client.lock("b2").shared().wait(shortly).acquire().await)),
            ("several", tried(both.try_acquire().await)),
            (
                "a wait for several",
                unproven_messages(client.lock_all(["c2", "d2"]).wait(shortly).acquire().await),
            ),
            ("a permit", tried(client.semaphore("s2", 2).try_acquire().await)),
            ("a wait for a permit", unproven_messages(permits.acquire().await)),
            ("a leader", unproven_messages(election.campaign("x").await)),
        ];
        for (kind, outcome) in messages {
            match outcome {
                Ok(has_it) => assert!(has_it, "without {taken}, {kind} is taken"),
                Err(why) => assert!(
                    !why.contains("held by") && !why.contains("taken") && !why.contains("is held"),
                    "without {taken}, {kind}: {why}"
                ),
            }
        }
        servers[0].command(&["FLUSHALL"]).await.unwrap();
    }
}

fn tried<T, E: std::fmt::Display>(outcome: Result<Option<T>, E>) -> Result<bool, String> {
    outcome.map(|lease| lease.is_some()).map_err(|error| error.to_string())
}

fn unproven_messages<T, E: std::fmt::Display>(outcome: Result<T, E>) -> Result<bool, String> {
    outcome.map(|_| true).map_err(|error| error.to_string())
}

/// Runs a command as the user in the address, on a connection of its own.
async fn command_as(url: &str, words: &[&str]) -> String {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    format!("{:?}", command.query_async::<redis::Value>(&mut connection).await)
}

/// The doctor's findings about rights.
fn missed(examination: &Report) -> Vec<&str> {
    let findings = examination.findings.iter();
    let matters = [Check::MissingRight, Check::LockFails, Check::Failed, Check::Login, Check::NoHints];
    let missed = findings.filter(|finding| matters.contains(&finding.check));
    missed.map(|finding| finding.cure.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_misses_each_right_that_is_revoked() {
    let servers = Servers::start(1).await.unwrap();
    let documented = documented_for_all(&servers);
    // The doctor does not subscribe.
    let rights = documented.iter().filter(|word| word.starts_with(['+', '~', '&']) && *word != "+subscribe");
    for taken in rights {
        let left: Vec<_> = documented.iter().filter(|word| *word != taken).cloned().collect();
        set_user(&servers[0], &left).await;
        let examination = client(&servers[0]).doctor().await;
        let missed = missed(&examination);
        assert!(missed.iter().any(|cure| cure.contains(taken.as_str())), "{taken}: {examination:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fewer_rights_suffice_for_simpler_locks() {
    let servers = Servers::start(1).await.unwrap();
    let all = documented(&servers);
    let without = |parts: &[&str]| -> Vec<String> {
        all.iter().filter(|word| !parts.contains(&word.as_str())).cloned().collect()
    };
    let queue = ["+zpopmin"];
    let waiting = ["+client|tracking"];
    let speed = ["+client|kill"];
    let fencing = ["+zadd", "+zrem", "+zremrangebyrank", "+time"];

    set_user(&servers[0], &without(&[&queue[..], &waiting[..], &speed[..]].concat())).await;
    let lock = client(&servers[0]).lock("r").wait(Wait::UpTo(patience()));
    let lease = lock.acquire().await.unwrap();
    lease.renew().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    lease.release().await.unwrap();

    set_user(&servers[0], &without(&[&queue[..], &waiting[..], &speed[..], &fencing[..]].concat())).await;
    let coordinator = client(&servers[0]);
    let lock = coordinator.lock("r").fencing(Fencing::Off);
    let lease = lock.acquire().await.unwrap();
    lease.renew().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    lease.release().await.unwrap();
    let fenced = coordinator.lock("r").wait(Wait::Never).acquire().await;
    assert!(fenced.is_err(), "fencing needs the revoked rights");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_documented_rights_a_free_lock_is_acquired_without_a_script() {
    let servers = Servers::start(1).await.unwrap();
    if servers.kind().to_string().contains("redis-server 6.0") {
        return println!("skipped: before Redis 6.2 a score cannot be raised conditionally (ZADD GT)");
    }
    let documented = documented(&servers);
    let acquired = async |words: &[String]| {
        set_user(&servers[0], words).await;
        servers[0].command(&["CONFIG", "RESETSTAT"]).await.unwrap();
        client(&servers[0]).lock("r").acquire().await.unwrap().release().await.unwrap();
        servers[0].command(&["INFO", "commandstats"]).await.unwrap().to_string()
    };
    let messages = acquired(&documented).await;
    assert!(messages.contains("cmdstat_zadd:calls=1,"), "not in a script: {messages}");
    assert!(
        messages.contains("cmdstat_evalsha:calls=1,") || !messages.contains("cmdstat_evalsha"),
        "{messages}"
    );

    // A release without a script needs another right, if the server has the command.
    for right in ["delifeq", "delex"] {
        let granted = format!("+{right}");
        let known = servers[0].command(&["ACL", "SETUSER", "another", &granted]).await;
        if known.is_ok_and(|answer| answer.to_string() == "OK") {
            let messages = acquired(&[&documented[..], &[granted]].concat()).await;
            let twice = format!("cmdstat_{right}:calls=2,");
            assert!(messages.contains(&twice), "used on connecting and to release: {messages}");
        }
    }
}
