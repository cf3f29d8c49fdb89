//! Servers with a clock that can be changed, by a preloaded library.
//!
//! Under libfaketime Redis hangs at its start, because its allocator reads the time
//! (wolfcw/libfaketime#130). The library here is a page of C, `clock_shim.c`, built by the C compiler that
//! Rust needs for linking. It changes only the wall clock, by which servers expire keys, and no monotonic
//! clock.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use quorlock::runtime::{Clock as _, Mutex, SystemClock};
use quorlock_servers::{Kind, Resp, Server};
use tokio::process::Command;

const SOURCE: &str = include_str!("clock_shim.c");

/// The built library, and the folder of its clock files.
pub(crate) struct Shim {
    library: PathBuf,
    folder: PathBuf,
}

impl Shim {
    /// Builds it into `folder`.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be built.
    pub(super) async fn build(kind: &Kind, folder: &Path) -> Result<Shim, String> {
        if !cfg!(target_os = "linux") {
            return Err("clocks can be changed on Linux only".to_owned());
        }
        if !kind.is_real() {
            return Err(format!(
                "the clock of a {kind} cannot be changed; install valkey-server or redis-server"
            ));
        }
        let (source, library) = (folder.join("clock_shim.c"), folder.join("clock_shim.so"));
        fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let building = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-o"])
            .args([&library, &source])
            .stdin(Stdio::null())
            .output();
        let shown = compiler.display();
        match building.await {
            Ok(built) if built.status.success() => Ok(Shim { library, folder: folder.to_owned() }),
            Ok(built) => Err(format!(
                "{shown} cannot build the clock shim: {}",
                String::from_utf8_lossy(&built.stderr)
            )),
            Err(error) => Err(format!("no C compiler to build the clock shim: {shown}: {error}")),
        }
    }

    /// Makes the clock of one server, which shows the real time at first.
    pub(super) fn clock(&self, number: usize) -> io::Result<BentClock> {
        let path = self.folder.join(format!("clock-{number}"));
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path)?;
        let clock = BentClock { library: self.library.clone(), path, file, bend: Mutex::default() };
        clock.write(Bend::default(), 0)?;
        Ok(clock)
    }
}

/// The clock of one server.
pub(crate) struct BentClock {
    library: PathBuf,
    path: PathBuf,
    file: File,
    /// The current setting, and the number of changes.
    bend: Mutex<(Bend, u64)>,
}

/// A clock that shows `bent + (real - since) * rate`, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Bend {
    since: i64,
    bent: i64,
    rate: f64,
}

impl Default for Bend {
    fn default() -> Bend {
        Bend { since: 0, bent: 0, rate: 1.0 }
    }
}

impl Bend {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a nanosecond does not matter"
    )]
    fn shows(self, real: i64) -> i64 {
        self.bent + ((real - self.since) as f64 * self.rate) as i64
    }
}

impl BentClock {
    /// Returns the variables that the environment of the server needs.
    pub(super) fn environment(&self) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", self.library.clone().into()), ("QUORLOCK_BENT_CLOCK", self.path.clone().into())]
    }

    /// Makes the clock jump.
    pub(super) fn step(&self, seconds: f64) -> io::Result<()> {
        let far = Duration::try_from_secs_f64(seconds.abs()).map_err(io::Error::other)?;
        let far = i64::try_from(far.as_nanos()).map_err(io::Error::other)?;
        self.change(|bend| bend.bent += if seconds < 0.0 { -far } else { far })
    }

    /// Changes the rate from now on.
    pub(super) fn rate(&self, rate: f64) -> io::Result<()> {
        self.change(|bend| bend.rate = rate)
    }

    /// Checks that the server uses the clock.
    pub(super) async fn prove(&self, server: &Server) -> Result<(), String> {
        const FAR: f64 = 1000.0;
        let clock = async || {
            let Ok(Resp::List(parts)) = server.command(&["TIME"]).await else { return None };
            parts.first().and_then(|part| part.to_string().parse::<f64>().ok())
        };
        let before = clock().await;
        self.step(FAR).map_err(|error| error.to_string())?;
        let after = clock().await;
        self.step(-FAR).map_err(|error| error.to_string())?;
        match (before, after) {
            (Some(before), Some(after)) if after - before > FAR / 2.0 => Ok(()),
            _ => {
                Err(format!("{} reads the time in a way that the clock shim does not replace", server.kind()))
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Bend)) -> io::Result<()> {
        let mut state = self.bend.lock();
        let now = i64::try_from(SystemClock::default().wall().as_nanos()).map_err(io::Error::other)?;
        let (bend, changes) = &mut *state;
        bend.bent = bend.shows(now);
        bend.since = now;
        change(bend);
        *changes += 1;
        self.write(*bend, *changes)
    }

    /// Writes the file. A concurrent reader sees an odd number and retries.
    fn write(&self, bend: Bend, changes: u64) -> io::Result<()> {
        let bytes = [bend.since.to_ne_bytes(), bend.bent.to_ne_bytes(), bend.rate.to_ne_bytes()].concat();
        self.file.write_all_at(&(changes * 2 + 1).to_ne_bytes(), 0)?;
        self.file.write_all_at(&bytes, 8)?;
        self.file.write_all_at(&(changes * 2 + 2).to_ne_bytes(), 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quorlock::{Coordinator, RestartGuard, Wait};
    use quorlock_testkit::{SkewedClock, eventually, patience};

    use super::super::processes::Processes;
    use super::super::{Masters as _, Memory, Need};
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_real_server_uses_the_clock_shim() {
        let folder = tempfile::tempdir().unwrap();
        for kind in Kind::all_found() {
            let shim = Shim::build(&kind, folder.path()).await.unwrap();
            let clock = shim.clock(0).unwrap();
            let mut setup = quorlock_testkit::Servers::setup().kind(kind.clone());
            for (name, value) in clock.environment() {
                setup = setup.environment(name, value);
            }
            let servers = setup.start(1).await.unwrap();
            if let Err(reason) = clock.prove(&servers[0]).await {
                eprintln!("skipped: bent clocks on {kind}: {reason}");
                continue;
            }
            servers[0].command(&["SET", "a", "b", "PX", "60000"]).await.unwrap();
            let gone = async || servers[0].command(&["EXISTS", "a"]).await.unwrap().to_string() == "0";
            assert!(!gone().await);
            clock.step(61.0).unwrap();
            // Valkey reads the clock periodically.
            eventually("the key to expire", Duration::from_secs(30), gone).await.unwrap();
        }
    }

    /// As on a machine that boots with a wrong clock, which is put right later: its age is unknown.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_error_of_a_lock_names_a_clock_that_was_set_back_after_the_start() {
        const HOURS: f64 = 3.0 * 3600.0;
        let (folder, kind) = (tempfile::tempdir().unwrap(), Kind::choose().unwrap());
        let shim = match Shim::build(&kind, folder.path()).await {
            Ok(shim) => shim,
            Err(reason) => return println!("skipped: bent clocks on {kind}: {reason}"),
        };
        let clock = shim.clock(0).unwrap();
        clock.step(HOURS).unwrap();
        let environment = clock.environment().into_iter();
        let setup = environment
            .fold(quorlock_testkit::Servers::setup().kind(kind.clone()), |setup, (name, value)| {
                setup.environment(name, value)
            });
        let servers = setup.start(1).await.unwrap();
        if let Err(reason) = clock.prove(&servers[0]).await {
            return println!("skipped: bent clocks on {kind}: {reason}");
        }
        let refused = async || {
            let client = Coordinator::builder().nodes(servers.urls()).build().unwrap();
            client.lock("a").wait(Wait::Never).acquire().await.unwrap_err().to_string()
        };
        let cause = "its clock was ahead when it started and was set back since";
        let before = refused().await;
        assert!(before.contains("too recently to vote") && !before.contains(cause), "{before}");
        clock.step(-HOURS).unwrap();
        // The second client reads what the first has noted.
        for _ in 0..2 {
            let error = refused().await;
            assert!(error.contains(cause), "{error}");
        }
    }

    /// Counters by name expired when the clock said so, and then nothing knew the numbers that a clock set back
    /// draws again. Three of five servers, and a client that is behind.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_clock_that_is_set_forward_and_back_lowers_no_fencing_token() {
        const STEP: f64 = 660.0;
        let folder = tempfile::tempdir().unwrap();
        let kind = Kind::choose().unwrap();
        let servers = Processes::start(5, Memory::Gone, true, folder.path()).await.unwrap();
        if let Err(reason) = servers.offers(Need::BentClock) {
            return println!("skipped: bent clocks on {kind}: {reason}");
        }
        let password = servers.password().unwrap();
        let client = |behind: Duration| {
            let clock = SkewedClock::new(Arc::new(SystemClock::default()), 1.0);
            clock.calendar_back(behind);
            let urls = (0..5).map(|number| format!("redis://:{password}@{}", servers.address(number)));
            let builder = Coordinator::builder().nodes(urls).clock(clock);
            builder.restart_guard(RestartGuard::Off).build().unwrap()
        };
        let clients = [client(Duration::ZERO), client(Duration::from_secs(5))];
        let mut last = None;
        let clock = SystemClock::default();
        for (step, rounds) in [(0.0, 2), (STEP, 15), (-STEP, 5)] {
            for number in 0..3 {
                servers.step_clock(number, step).unwrap();
            }
            for _ in 0..rounds {
                for client in &clients {
                    let lock = client.lock("a").ttl(Duration::from_secs(5)).wait(Wait::UpTo(patience()));
                    let lease = lock.acquire().await.unwrap();
                    let token = Some(lease.fencing_token());
                    assert!(token > last, "{token:?} after {last:?}");
                    last = token;
                    // Its keys may have expired.
                    drop(lease.release().await);
                }
                clock.sleep_until(clock.now() + Duration::from_millis(100)).await;
            }
        }
    }
}
