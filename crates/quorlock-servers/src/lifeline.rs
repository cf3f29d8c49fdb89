//! Servers end with this process, also when it is killed, from the moment of their start.
//!
//! They are in the process group of a shell that reads from a pipe which only this process keeps open, and kills the
//! group when the pipe closes. Linux' parent-death signal would not do, because it is sent when the parent's *thread* ends.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};

use quorlock::runtime::Mutex;

/// In the background, so that the shell is no child of this process: who lists those finds servers. When this process
/// ends, the system hangs up the group if a process there is stopped.
const WATCH: &str = "trap '' HUP; exec 3<&0; { read -r line; kill -9 0; } <&3 3<&- &";

/// The process group that ends with the process with this PID, and its pipe. A fork inherits the pipe of its parent.
static GROUP: Mutex<Option<(u32, i32, ChildStdin)>> = Mutex::new(None);

/// Starts a server in that process group; without a shell, or if it was killed, in one of its own, where it outlives a
/// kill of this process. Ctrl-C and Ctrl-Z are for this process, also before another one has the terminal, and a command
/// that cleans up needs its servers.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    command.process_group(watched_group()).spawn().or_else(|_| command.process_group(0).spawn())
}

/// Returns the process group that is killed when this process ends; 0, a new one, if there is none.
#[must_use]
pub fn watched_group() -> i32 {
    let (mut known, here) = (GROUP.lock(), std::process::id());
    if known.as_ref().is_none_or(|(of, ..)| *of != here) {
        *known = start().map(|(group, stdin)| (here, group, stdin));
    }
    known.as_ref().map_or(0, |(_, group, _)| *group)
}

fn start() -> Option<(i32, ChildStdin)> {
    let mut command = Command::new("sh");
    command.args(["-c", WATCH]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut shell = command.process_group(0).spawn().ok()?;
    let pipe = shell.stdin.take()?;
    shell.wait().ok()?;
    Some((shell.id().try_into().ok()?, pipe))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use rustix::process::{Pid, getpgid};

    use super::*;

    #[test]
    fn a_server_is_killed_from_its_first_moment_on_if_this_process_ends() {
        let mut server = spawn(Command::new("sleep").arg("1000")).unwrap();
        let group = getpgid(Some(Pid::from_child(&server))).unwrap();
        assert_eq!(group.as_raw_nonzero().get(), watched_group());
        server.kill().unwrap();
        server.wait().unwrap();
        // Another group, since other tests have servers.
        let (group, pipe) = start().unwrap();
        let mut server = Command::new("sleep").arg("1000").process_group(group).spawn().unwrap();
        drop(pipe);
        assert_eq!(server.wait().unwrap().signal(), Some(9));
    }
}
