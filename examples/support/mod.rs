//! The scenario of the fencing examples: Anna holds a lock, is paused for longer than her lease lasts,
//! and then writes.

mod process;

use std::error::Error;
use std::io::{self, BufRead as _, Write as _};
use std::time::Duration;

use quorlock::fence::Stale;
use quorlock::{Coordinator, FencingToken, Lock, RestartGuard};
use quorlock_testkit::Servers;

use process::{Part, Paused};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// The guarded resource.
pub(crate) trait Account: Sized {
    /// Connects to the database at `place`.
    async fn open(place: &str) -> Outcome<Self>;
    /// Creates the account again, with this balance.
    async fn create(&mut self, balance: i64) -> Outcome<()>;
    /// Returns the balance. With the check, presents the token, so that no write with a smaller token
    /// can come between reading and writing.
    async fn read(&mut self, check: Check, token: FencingToken) -> Outcome<i64>;
    /// Stores a new balance. With the check, fails with [`Stale`] if a larger token was used before.
    async fn write(&mut self, check: Check, token: FencingToken, balance: i64) -> Outcome<()>;
}

/// Whether the database checks fencing tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    On,
    Off,
}

/// The amounts that Anna withdraws and Ben deposits.
const START: i64 = 100;
const OUT: i64 = 30;
const IN: i64 = 50;
/// Short, to keep the example short.
const TTL: Duration = Duration::from_secs(2);

/// Plays Anna if the environment asks for it, otherwise runs the scenario.
pub(crate) fn run<A: Account>(story: impl AsyncFnOnce() -> Outcome<()>) -> Outcome<()> {
    let play = async {
        match Part::from_env() {
            Some(part) => play_anna::<A>(&part).await,
            None => story().await,
        }
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        // However the scenario ends, the servers and Anna's process end with it.
        tokio::select! {
            result = play => result,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        }
    })
}

/// Runs the scenario, for an account in the database at `place`.
pub(crate) async fn run_scenario<A: Account>(place: &str) -> Outcome<()> {
    let servers = Servers::start(5).await?;
    println!("Lock servers: {servers}");
    for (check, title, right) in [
        (Check::On, "With the fencing check", START + IN - OUT),
        (Check::Off, "Without the check", START - OUT),
    ] {
        println!("\n{title}");
        let found = act::<A>(place, &servers, check).await?;
        println!("  The balance is {found}; it should be {}.", START + IN - OUT);
        if found != right {
            return Err(format!("unexpected balance: it should be {right}").into());
        }
    }
    println!("\nWithout the check Ben's {IN} are lost, without an error.");
    Ok(())
}

async fn act<A: Account>(place: &str, servers: &Servers, check: Check) -> Outcome<i64> {
    let mut account = A::open(place).await?;
    account.create(START).await?;

    let part = Part { servers: servers.urls(), place: place.to_owned(), check };
    let mut anna = Paused::start(&part)?;
    println!("  {}", anna.next_line()?);
    anna.stop()?;
    println!("  Anna's process is paused (SIGSTOP) before she writes.");

    let lease = lock(&part.servers, "ben")?.acquire().await?;
    let token = lease.fencing_token();
    println!("  Ben waits until her lease has ended. He holds the lock, fencing token {token}.");
    let balance = account.read(check, token).await?;
    account.write(check, token, balance + IN).await?;
    lease.release().await?;
    println!("  Ben reads {balance}, writes {}, and releases the lock.", balance + IN);

    println!("  Anna's process continues (SIGCONT), and she writes.");
    anna.resume()?;
    for line in anna.rest()? {
        println!("  {line}");
    }
    account.read(Check::Off, token).await
}

async fn play_anna<A: Account>(part: &Part) -> Outcome<()> {
    let check = part.check;
    let mut account = A::open(&part.place).await?;
    let lock = lock(&part.servers, "anna")?;
    let lease = lock.acquire().await?;
    let token = lease.fencing_token();
    let balance = account.read(check, token).await?;
    lease.check()?; // right before the side effect, and still too early
    say(&format!(
        "Anna holds the lock, fencing token {token}. She reads {balance}, and is about to write {}.",
        balance - OUT
    ))?;
    // Blocks the whole process, like any long pause: nothing renews the lease.
    io::stdin().lock().read_line(&mut String::new())?;
    match account.write(check, token, balance - OUT).await {
        Ok(()) => return say(&format!("She has written {}.", balance - OUT)),
        Err(error) if error.is::<Stale>() => say(&format!("Refused: {error}."))?,
        Err(error) => return Err(error),
    }
    drop(lease);
    let lease = lock.acquire().await?;
    let token = lease.fencing_token();
    let balance = account.read(check, token).await?;
    account.write(check, token, balance - OUT).await?;
    say(&format!("She starts over, fencing token {token}: reads {balance}, writes {}.", balance - OUT))?;
    Ok(lease.release().await?)
}

fn lock(servers: &[String], name: &str) -> Outcome<Lock> {
    let coordinator = Coordinator::builder().nodes(servers).ttl(TTL).max_ttl(TTL);
    // Safe only for servers that have just started for the first time.
    Ok(coordinator.restart_guard(RestartGuard::Off).build()?.lock("account/7").label(name))
}

fn say(line: &str) -> Outcome<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}
