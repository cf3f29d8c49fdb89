//! The story that the examples tell: Anna holds a lock, is stopped for longer than her lease lasts,
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

/// What the lock protects.
pub(crate) trait Account: Sized {
    /// Connects to the database at `place`.
    async fn open(place: &str) -> Outcome<Self>;
    /// Makes the account anew, with this balance.
    async fn create(&mut self, balance: i64) -> Outcome<()>;
    /// The balance. With the check, shows the token, so that nobody with an earlier one writes
    /// between reading and writing.
    async fn read(&mut self, check: Check, token: FencingToken) -> Outcome<i64>;
    /// Stores a new balance. With the check, fails with [`Stale`] if a later token was here.
    async fn write(&mut self, check: Check, token: FencingToken, balance: i64) -> Outcome<()>;
}

/// Whether the database looks at fencing tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    On,
    Off,
}

/// What Anna takes out and what Ben pays in.
const START: i64 = 100;
const OUT: i64 = 30;
const IN: i64 = 50;
/// Short, so that the story is.
const TTL: Duration = Duration::from_secs(2);

/// Plays Anna if the environment asks for it, else tells the story.
pub(crate) fn run<A: Account>(story: impl AsyncFnOnce() -> Outcome<()>) -> Outcome<()> {
    let play = async {
        match Part::from_env() {
            Some(part) => be_anna::<A>(&part).await,
            None => story().await,
        }
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        // However it ends, the servers and Anna end with it.
        tokio::select! {
            told = play => told,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        }
    })
}

/// Tells the story, of an account in the database at `place`.
pub(crate) async fn tell<A: Account>(place: &str) -> Outcome<()> {
    let servers = Servers::start(5).await?;
    println!("Lock servers: {servers}");
    for (check, title, right) in [
        (Check::On, "With the check of fencing tokens", START + IN - OUT),
        (Check::Off, "Without the check", START - OUT),
    ] {
        println!("\n{title}");
        let found = act::<A>(place, &servers, check).await?;
        println!("  The account has {found}; it should have {}.", START + IN - OUT);
        if found != right {
            return Err(format!("the story has another end than expected, which is {right}").into());
        }
    }
    println!("\nWithout the check Ben's {IN} are gone, and nobody was told.");
    Ok(())
}

async fn act<A: Account>(place: &str, servers: &Servers, check: Check) -> Outcome<i64> {
    let mut account = A::open(place).await?;
    account.create(START).await?;

    let part = Part { servers: servers.urls(), place: place.to_owned(), check };
    let mut anna = Paused::start(&part)?;
    println!("  {}", anna.next_line()?);
    anna.stop()?;
    println!("  Anna's process is stopped (SIGSTOP) before she does.");

    let lease = lock(&part.servers, "ben")?.acquire().await?;
    let token = lease.fencing_token().expect("fencing is on");
    println!("  Ben waits until her lease has ended. He has the lock, fencing token {token}.");
    let balance = account.read(check, token).await?;
    account.write(check, token, balance + IN).await?;
    lease.release().await?;
    println!("  Ben reads {balance}, writes {}, and gives the lock back.", balance + IN);

    println!("  Anna's process goes on (SIGCONT), and she writes.");
    anna.go_on()?;
    for line in anna.rest()? {
        println!("  {line}");
    }
    account.read(Check::Off, token).await
}

async fn be_anna<A: Account>(part: &Part) -> Outcome<()> {
    let check = part.check;
    let mut account = A::open(&part.place).await?;
    let lock = lock(&part.servers, "anna")?;
    let lease = lock.acquire().await?;
    let token = lease.fencing_token().expect("fencing is on");
    let balance = account.read(check, token).await?;
    lease.check()?; // right before the side effect, and yet not right enough
    say(&format!(
        "Anna has the lock, fencing token {token}. She reads {balance}, and is about to write {}.",
        balance - OUT
    ))?;
    // Blocks the whole process, as any long pause does: nothing renews the lease.
    io::stdin().lock().read_line(&mut String::new())?;
    match account.write(check, token, balance - OUT).await {
        Ok(()) => return say(&format!("She has written {}.", balance - OUT)),
        Err(error) if error.is::<Stale>() => say(&format!("Refused: {error}."))?,
        Err(error) => return Err(error),
    }
    drop(lease);
    let lease = lock.acquire().await?;
    let token = lease.fencing_token().expect("fencing is on");
    let balance = account.read(check, token).await?;
    account.write(check, token, balance - OUT).await?;
    say(&format!("She starts over, fencing token {token}: reads {balance}, writes {}.", balance - OUT))?;
    Ok(lease.release().await?)
}

fn lock(servers: &[String], name: &str) -> Outcome<Lock> {
    let coordinator = Coordinator::builder().nodes(servers).ttl(TTL).max_ttl(TTL);
    // These servers were started just now, and for the first time: they have forgotten nothing.
    Ok(coordinator.restart_guard(RestartGuard::Off).build()?.lock("account/7").label(name))
}

fn say(line: &str) -> Outcome<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}
