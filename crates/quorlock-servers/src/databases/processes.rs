//! The processes of a server: the one that was started, and its children that serve clients.

use std::fs;
use std::io;
use std::process::{Child, Command};

use quorlock::runtime::{Clock as _, SystemClock};
use rustix::process::{Pid, Signal, kill_process};

use crate::lifeline;
use crate::wait::patience;

/// A server that was started here. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    /// Whether it has one process per connection.
    forks: bool,
}

/// A selection of the child processes of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    All,
    /// The processes that serve clients.
    Backends,
    /// The one with this PID.
    One(i32),
}

impl Running {
    pub(super) fn start(command: &mut Command, forks: bool) -> io::Result<Running> {
        Ok(Running { child: lifeline::spawn(command)?, forks })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGKILL to the server and all its processes, as when its machine stops.
    pub(super) fn kill(&mut self) {
        // Those that serve clients would notice its end a moment later, and answer until then. Stopped, it starts no
        // others. Errors mean that it has already ended.
        drop(self.signal(Signal::STOP).and_then(|()| await_stop(self.pid())));
        drop(self.send_to(Which::All, Signal::KILL));
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Sends SIGINT, after which PostgreSQL disconnects its clients and ends, and waits for the end.
    pub(super) fn shut_down(&mut self) {
        drop(self.signal(Signal::INT));
        drop(self.child.wait());
    }

    /// Stops the server and all its processes.
    pub(super) fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        await_stop(self.pid())?;
        self.send_to(Which::All, Signal::STOP)
    }

    /// Sends SIGCONT to all of them.
    pub(super) fn thaw(&self) -> io::Result<()> {
        self.send_to(Which::All, Signal::CONT)?;
        self.signal(Signal::CONT)
    }

    /// Stops the processes that serve clients; the server keeps running and serves new ones.
    pub(super) fn stop_backends(&self) -> io::Result<()> {
        self.while_stopped(|| self.send_to(Which::Backends, Signal::STOP))
    }

    /// Sends SIGCONT to them.
    pub(super) fn continue_backends(&self) -> io::Result<()> {
        self.while_stopped(|| self.send_to(Which::All, Signal::CONT))
    }

    /// Stops one of them.
    pub(super) fn stop_backend(&self, pid: i32) -> io::Result<()> {
        self.while_stopped(|| self.send_to(Which::One(pid), Signal::STOP))
    }

    /// Sends SIGCONT to one of them.
    pub(super) fn continue_backend(&self, pid: i32) -> io::Result<()> {
        self.while_stopped(|| self.send_to(Which::One(pid), Signal::CONT))
    }

    /// Works while the server is stopped: it reaps no children then, so that no PID is reused.
    fn while_stopped(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let done = await_stop(self.pid()).and_then(|()| work());
        self.signal(Signal::CONT)?;
        done
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Sends a signal, and waits until those that it stops have stopped.
    fn send_to(&self, which: Which, signal: Signal) -> io::Result<()> {
        let is_meant = |&process: &u32| match which {
            Which::All => true,
            Which::Backends => is_backend(process),
            Which::One(pid) => u32::try_from(pid) == Ok(process),
        };
        let meant: Vec<u32> = children_of(self.pid())?.into_iter().filter(is_meant).collect();
        if meant.is_empty() && matches!(which, Which::One(_)) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "this server has no such process"));
        }
        for &child in &meant {
            // A process that has ended needs no signal.
            let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, signal));
        }
        if signal == Signal::STOP { meant.into_iter().try_for_each(await_stop) } else { Ok(()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Once it was waited for, its PID may belong to another process.
        if self.has_ended() {
            return;
        }
        // An immediate shutdown, which ends its child processes and frees its shared memory.
        if !self.forks || self.thaw().is_err() || self.signal(Signal::QUIT).is_err() {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

/// Returns the child processes, from `/proc`; none on other systems than Linux.
fn children_of(parent: u32) -> io::Result<Vec<u32>> {
    if !cfg!(target_os = "linux") {
        return Ok(Vec::new());
    }
    let numbers = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|&number| parent_of(number) == Some(parent)).collect())
}

/// Waits until a process has stopped or ended. The signal takes effect a moment later, and until then the
/// process may still answer.
fn await_stop(process: u32) -> io::Result<()> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let clock = SystemClock::default();
    let end = clock.now() + patience();
    while stat(process, 0).is_some_and(|state| !["T", "t", "Z", "X"].contains(&&*state)) {
        if clock.now() >= end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("process {process} does not stop")));
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn parent_of(process: u32) -> Option<u32> {
    stat(process, 1)?.parse().ok()
}

/// Returns a word of what Linux says of a process, after its name, which may contain anything: first its
/// state, then its parent.
fn stat(process: u32, word: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(word).map(str::to_owned)
}

/// Whether its title is `postgres: USER DATABASE HOST(PORT) …`; other processes are named after their task.
fn is_backend(process: u32) -> bool {
    fs::read(format!("/proc/{process}/cmdline"))
        .is_ok_and(|line| String::from_utf8_lossy(&line).starts_with("postgres: postgres postgres "))
}

/// Runs a program to its end, without blocking the runtime.
pub(super) async fn run(mut command: Command) -> io::Result<()> {
    let ran = tokio::task::spawn_blocking(move || succeed(&mut command));
    ran.await.map_err(io::Error::other)?
}

/// Its input is empty unless another was set.
pub(super) fn succeed(command: &mut Command) -> io::Result<()> {
    let ended = command.output()?;
    if ended.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    Err(io::Error::other(format!("{} failed: {message}", command.get_program().display())))
}

/// What is the same of clusters whose members are processes, for a type with `members`, each of which has the port `client` and
/// what is `running`, a `folder`, and a method `start` that ends with `run`. A member is up when `$is_up` says so of its address.
macro_rules! cluster_of_processes {
    ($cluster:ty, $scheme:literal, $what:literal, $limit:expr, $is_up:expr) => {
        impl $cluster {
            /// Returns the URL, which names all members.
            #[must_use]
            pub fn url(&self) -> String {
                format!(concat!($scheme, "://{}"), self.endpoints())
            }

            /// Returns the addresses of all members for clients, separated by commas.
            #[must_use]
            pub fn endpoints(&self) -> String {
                let addresses: Vec<_> =
                    (0..self.members.len()).map(|member| self.address(member).to_string()).collect();
                addresses.join(",")
            }

            /// Returns the address of a member for clients.
            ///
            /// # Panics
            ///
            /// If there is no such member.
            #[must_use]
            #[expect(clippy::indexing_slicing, reason = "documented")]
            pub fn address(&self, member: usize) -> std::net::SocketAddr {
                self.members[member].client.address()
            }

            /// Returns the PID of a member, if it runs.
            #[must_use]
            pub fn pid(&self, member: usize) -> Option<u32> {
                Some(self.members.get(member)?.running.lock().as_ref()?.pid())
            }

            /// Returns the file to which a member writes its log.
            #[must_use]
            pub fn log(&self, member: usize) -> PathBuf {
                self.folder.path().join(format!("m{member}.log"))
            }

            /// Starts a member that was killed, with its data, and waits until it answers.
            ///
            /// # Errors
            ///
            /// If it does not answer.
            pub async fn restart(&self, member: usize) -> io::Result<()> {
                self.start(member)?;
                self.answers(member).await
            }

            /// Stops a member, as SIGSTOP does.
            ///
            /// # Errors
            ///
            /// If it does not run.
            pub fn freeze(&self, member: usize) -> io::Result<()> {
                self.while_running(member, Running::freeze)
            }

            /// Continues a member that was stopped.
            ///
            /// # Errors
            ///
            /// If it does not run.
            pub fn thaw(&self, member: usize) -> io::Result<()> {
                self.while_running(member, Running::thaw)
            }

            fn end(&self, member: usize) {
                let running = self.members.get(member).and_then(|member| member.running.lock().take());
                if let Some(mut running) = running {
                    running.kill();
                }
            }

            fn while_running(&self, member: usize, work: fn(&Running) -> io::Result<()>) -> io::Result<()> {
                let running = self.members.get(member).map(|member| member.running.lock());
                running.as_deref().and_then(Option::as_ref).map_or_else(|| Err(not_running()), work)
            }

            async fn start_all(&self) -> io::Result<()> {
                for member in 0..self.members.len() {
                    self.start(member)?;
                }
                for member in 0..self.members.len() {
                    self.answers(member).await?;
                }
                Ok(())
            }

            fn run(&self, member: usize, mut command: Command) -> io::Result<()> {
                let log = File::options().create(true).append(true).open(self.log(member))?;
                command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
                let running = Running::start(&mut command, false)?;
                if let Some(member) = self.members.get(member) {
                    *member.running.lock() = Some(running);
                }
                Ok(())
            }

            /// Waits until a member answers, and has a leader.
            async fn answers(&self, member: usize) -> io::Result<()> {
                let address = self.address(member);
                let answers = async {
                    while !$is_up(address).await {
                        pause().await;
                    }
                    Ok(())
                };
                let answered = wait::within(concat!("an answer of ", $what), $limit, answers).await;
                answered.map_err(|error| {
                    let log = std::fs::read_to_string(self.log(member)).unwrap_or_default();
                    let from = log.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
                    io::Error::other(format!("{error}: {}", log.get(from..).unwrap_or_default()))
                })
            }
        }
    };
}

pub(super) use cluster_of_processes;

pub(super) fn not_running() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "this member does not run")
}
