//! Servers end with this process, also when it is killed, unless that is in the moment of their start.
//!
//! A shell reads their PIDs from a pipe that only this process keeps open, and kills them when the pipe closes. Linux'
//! parent-death signal would not do, because it is sent when the parent's *thread* ends.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};

use quorlock::runtime::Mutex;

/// A process that is forgotten has ended, and its PID may be that of another one. In the background, so that the shell is
/// no child of this process: who lists those finds servers.
const WATCH: &str = r#"
exec 3<&0
{
while read -r what pid; do
    others=
    for one in $pids; do
        [ "$one" = "$pid" ] || others="$others $one"
    done
    pids=$others
    [ "$what" = forget ] || pids="$pids $pid"
done
[ -z "$pids" ] || kill -9 $pids
} <&3 3<&- &
"#;

/// The pipe of the process with this PID. A fork inherits the pipe of its parent.
static PIPE: Mutex<Option<(u32, ChildStdin)>> = Mutex::new(None);

/// Starts a server in a process group of its own: Ctrl-C and Ctrl-Z are for this process, also before another one has the
/// terminal, and a command that cleans up needs its servers.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    // The shell takes its time to start; the server is watched right after its own start.
    drop(with_pipe(|_| Ok(())));
    command.process_group(0).spawn()
}

/// A child process that is killed if this process ends before. To be dropped when it was waited for.
#[derive(Debug)]
pub struct Watched(u32);

impl Watched {
    /// Watches the child with this PID.
    #[must_use]
    pub fn new(pid: u32) -> Watched {
        send("watch", pid);
        Watched(pid)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        send("forget", self.0);
    }
}

/// Without a shell, or if it was killed, the servers end only as they always did.
fn send(what: &str, pid: u32) {
    drop(with_pipe(|stdin| writeln!(stdin, "{what} {pid}")));
}

/// Starts the shell, unless it runs.
fn with_pipe(action: impl FnOnce(&mut ChildStdin) -> io::Result<()>) -> io::Result<()> {
    let mut pipe = PIPE.lock();
    let here = std::process::id();
    if pipe.as_ref().is_none_or(|(of, _)| *of != here) {
        *pipe = start().map(|stdin| (here, stdin));
    }
    pipe.as_mut().map_or(Ok(()), |(_, stdin)| action(stdin))
}

fn start() -> Option<ChildStdin> {
    let mut command = Command::new("sh");
    command.args(["-c", WATCH]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut shell = command.process_group(0).spawn().ok()?;
    let pipe = shell.stdin.take();
    shell.wait().ok()?;
    pipe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_watches_a_server_is_there_before_it() {
        let mut child = spawn(&mut Command::new("true")).unwrap();
        assert!(PIPE.lock().is_some());
        child.wait().unwrap();
    }
}
