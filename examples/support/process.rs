//! The process that is paused in the middle of its work.

use std::env;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::{Check, Outcome};

/// Tells the child where its database is.
const PART: [&str; 3] = ["FENCED_SERVERS", "FENCED_PLACE", "FENCED_CHECK"];

/// The child's settings.
pub(crate) struct Part {
    pub(crate) servers: Vec<String>,
    pub(crate) place: String,
    pub(crate) check: Check,
}

impl Part {
    /// `None` in the parent process.
    pub(crate) fn from_env() -> Option<Part> {
        let [servers, place, check] = PART.map(|name| env::var(name).ok());
        let servers = servers?.split(',').map(str::to_owned).collect();
        Some(Part { servers, place: place?, check: if check? == "On" { Check::On } else { Check::Off } })
    }
}

/// A child process that can be paused. Killed when dropped.
pub(crate) struct Paused {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Paused {
    /// Starts this program again, as the child.
    pub(crate) fn start(part: &Part) -> Outcome<Paused> {
        let values = [part.servers.join(","), part.place.clone(), format!("{:?}", part.check)];
        let mut child = Command::new(env::current_exe()?)
            .envs(PART.into_iter().zip(values))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
        Ok(Paused { child, output })
    }

    pub(crate) fn next_line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("Anna's process ended too early".into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Pauses the child, and returns when it is stopped.
    #[cfg(unix)]
    pub(crate) fn stop(&self) -> io::Result<()> {
        use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP)?;
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        Ok(())
    }

    /// Resumes the child.
    #[cfg(unix)]
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        use rustix::process::{Pid, Signal, kill_process};

        kill_process(Pid::from_child(&self.child), Signal::CONT)?;
        let mut stdin = self.child.stdin.take();
        stdin.as_mut().map_or(Ok(()), |stdin| writeln!(stdin))
    }

    #[cfg(not(unix))]
    pub(crate) fn stop(&self) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this example pauses a process, which needs Unix"))
    }

    #[cfg(not(unix))]
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        self.stop()
    }

    /// Returns everything that the child still prints until it exits.
    pub(crate) fn rest(mut self) -> Outcome<Vec<String>> {
        let lines = self.output.by_ref().lines().collect::<io::Result<_>>()?;
        let status = self.child.wait()?;
        if status.success() { Ok(lines) } else { Err(format!("Anna's process failed: {status}").into()) }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process. An error means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
