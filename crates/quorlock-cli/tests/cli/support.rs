//! Starts `quorlock`, and waits for what it should do.

#![expect(clippy::expect_used, clippy::panic, reason = "what does not go as expected fails the test")]

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, PipeReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};
use quorlock::protocol::is_auxiliary_key;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_testkit::{Kind, Resp, Server, Servers, eventually, patience, until};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::RwLock;

use crate::signals;

/// Held by a test that starts two hundred processes, beside which little is done in time, and shared by tests whose
/// locks must be renewed in time.
pub(crate) static CROWD: RwLock<()> = RwLock::const_new(());

/// Starts `count` real servers; returns `None`, with a message, if none is installed.
pub(crate) async fn servers(count: usize) -> Option<Servers> {
    real(Servers::start(count).await.expect("the servers start"))
}

/// As [`servers`], with a password.
pub(crate) async fn servers_with_password(count: usize, password: &str) -> Option<Servers> {
    real(Servers::setup().password(password).start(count).await.expect("the servers start"))
}

/// As [`servers`], without a password.
pub(crate) async fn servers_without_password(count: usize) -> Option<Servers> {
    real(Servers::setup().without_password().start(count).await.expect("the servers start"))
}

fn real(servers: Servers) -> Option<Servers> {
    if matches!(servers.kind(), Kind::Program { .. }) {
        return Some(servers);
    }
    skips("no valkey-server or redis-server is here; install one, or name it in QUORLOCK_SERVER");
    None
}

/// Says why a test is skipped: not by `eprintln`, which the harness captures while a test passes.
pub(crate) fn skips(reason: impl Display) {
    drop(writeln!(std::io::stderr(), "skipped: {reason}"));
}

/// Returns what was found, or `None`, with a message.
pub(crate) fn found<Found>(found: io::Result<Found>) -> Option<Found> {
    found.inspect_err(|reason| skips(reason)).ok()
}

/// Returns a folder of the tools that `scripts/` installs.
pub(crate) fn tool(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools").join(name)
}

/// A `quorlock` to start, in a folder of its own and without inherited settings.
pub(crate) struct Quorlock {
    command: Command,
    folder: TempDir,
}

impl Quorlock {
    pub(crate) fn new<Word: AsRef<OsStr>>(words: impl IntoIterator<Item = Word>) -> Quorlock {
        signals::ignore_none();
        let folder = tempfile::tempdir().expect("a folder for the test");
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorlock"));
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("QUORLOCK_") && name_text != "QUORLOCK_SERVER" {
                command.env_remove(&name);
            }
        }
        // The environment of the tests may have these.
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env_remove("COLUMNS");
        command.args(words).env("HOME", folder.path()).env_remove("XDG_CONFIG_HOME").env("SHELL", "/bin/sh");
        command.env("TZ", "UTC").current_dir(folder.path()).stdin(Stdio::null());
        Quorlock { command, folder }
    }

    /// Starts `program` with these words in the place of `quorlock`.
    pub(crate) fn other(program: &str, words: &[&str]) -> Quorlock {
        Quorlock::new([""; 0]).replaced_by(Command::new(program), words)
    }

    /// Starts a copy in `folder` as another user than root, whom no limit and no right binds, if the tests run as root;
    /// `before` that, words of other programs. The current folder is `/`.
    pub(crate) fn unprivileged(before: &[&str], home: &Path, words: &[&str], folder: &TempDir) -> Quorlock {
        let program = folder.path().join("quorlock");
        if !program.exists() {
            fs::copy(env!("CARGO_BIN_EXE_quorlock"), &program).expect("a copy");
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("the folder is ours");
        }
        let as_other = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"];
        let as_other = if getuid().is_root() { &as_other[..] } else { &[] };
        let program = program.to_str().expect("UTF-8");
        let home = format!("HOME={}", home.display());
        let all = [before, as_other, &["env", "-C", "/", &home, program], words].concat();
        Quorlock::other(all[0], &all[1..])
    }

    /// Returns the command of a terminal's first process: `quorlock`, or these words beside it; and its folder.
    pub(crate) fn on_terminal(self, words: &[&str]) -> (Command, TempDir) {
        let own = self.command.get_program().to_owned();
        // Becomes the leader of a session whose terminal is its stdin.
        let mut leader = if words.is_empty() {
            self.through_all("setsid", &["--ctty"])
        } else {
            self.replaced_by(Command::new("setsid"), &[&["--ctty"], words].concat())
        };
        leader.command.env("QUORLOCK", own).env("PS1", "$ ").env("TERM", "xterm");
        (leader.command, leader.folder)
    }

    fn replaced_by(mut self, mut command: Command, words: &[&str]) -> Quorlock {
        command.args(words).stdin(Stdio::null()).current_dir(self.folder.path());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        self.command = command;
        self
    }

    /// Uses these servers, which are new and so need no restart guard.
    pub(crate) fn on(self, servers: &Servers) -> Quorlock {
        self.at(&servers.urls().join(","))
    }

    /// Uses these nodes, which are new and so need no restart guard.
    pub(crate) fn at(self, nodes: &str) -> Quorlock {
        self.env("QUORLOCK_NODES", nodes).env("QUORLOCK_RESTART_GUARD", "off")
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Quorlock {
        self.command.env(name, value);
        self
    }

    /// Starts `program` instead, with these words and the path of `quorlock` after them.
    pub(crate) fn through(self, program: &str, words: &[&str]) -> Quorlock {
        let own = self.command.get_program().to_owned();
        let mut through = self.replaced_by(Command::new(program), words);
        through.command.arg(own);
        through
    }

    /// As [`through`](Quorlock::through), with the words of `quorlock` after its path.
    pub(crate) fn through_all(self, program: &str, words: &[&str]) -> Quorlock {
        let own: Vec<_> = self.command.get_args().map(OsStr::to_owned).collect();
        let mut quorlock = self.through(program, words);
        quorlock.command.args(own);
        quorlock
    }

    /// Returns the path of a file in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a file into the folder that it runs in.
    pub(crate) fn file(self, name: &str, text: &str) -> Quorlock {
        fs::write(self.folder.path().join(name), text).expect("the file is written");
        self
    }

    pub(crate) fn stdin(mut self, text: &str) -> Quorlock {
        let path = self.folder.path().join("stdin");
        fs::write(&path, text).expect("the input is written");
        self.command.stdin(File::open(path).expect("the input is there"));
        self
    }

    /// With a pipe as stdin that stays open until [`Running::close_stdin`].
    pub(crate) fn stdin_open(mut self) -> Quorlock {
        self.command.stdin(Stdio::piped());
        self
    }

    pub(crate) fn start(self) -> Running {
        let errors = self.create("stderr");
        self.start_with_stderr(errors.into())
    }

    /// Starts it with a stderr that is not read.
    pub(crate) fn start_unread(self) -> Running {
        self.create("stderr");
        self.start_with_stderr(Stdio::piped())
    }

    /// Starts it with a stdout that is full and not read.
    pub(crate) fn start_with_full_stdout(mut self) -> Running {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let flags = fcntl(&writer, FcntlArg::F_GETFL).expect("flags");
        let flags = OFlag::from_bits_truncate(flags);
        fcntl(&writer, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).expect("it does not block");
        while writer.write(&[0; 512]).is_ok() {}
        fcntl(&writer, FcntlArg::F_SETFL(flags)).expect("it blocks again");
        let (stdout, errors) = (self.create("stdout"), self.create("stderr"));
        drop(stdout);
        self.command.stdout(writer).stderr(errors);
        let process = self.command.spawn().expect("quorlock starts");
        Running { process, folder: self.folder, unread: Some(reader) }
    }

    fn create(&self, name: &str) -> File {
        File::create(self.folder.path().join(name)).expect("a file for the output")
    }

    fn start_with_stderr(mut self, stderr: Stdio) -> Running {
        self.command.stdout(self.create("stdout")).stderr(stderr);
        // In a group of its own, which has a parent in the same session: in an orphaned one, as of a check without a
        // terminal, the system ignores what stops a process.
        let process = self.command.process_group(0).spawn().expect("quorlock starts");
        Running { process, folder: self.folder, unread: None }
    }

    /// Runs it to its end.
    pub(crate) async fn end(self) -> Ended {
        self.start().end().await
    }

    /// Starts it, and returns it once it has printed this many lines.
    pub(crate) async fn prints(self, lines: usize) -> Running {
        let running = self.start();
        running.lines(lines).await;
        running
    }

    /// Starts it, with `-vv`, and returns it once it waits for the lock.
    pub(crate) async fn waits(self) -> Running {
        let running = self.start();
        until("the wait", async || running.stderr().contains("not acquired")).await;
        running
    }
}

/// A running `quorlock`, killed on drop.
pub(crate) struct Running {
    process: Child,
    folder: TempDir,
    /// Keeps a pipe from being broken.
    unread: Option<PipeReader>,
}

impl Running {
    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(self.path("stdout")).expect("the output can be read")
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.path("stderr")).expect("the errors can be read")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until its output has this many lines, and returns them.
    pub(crate) async fn lines(&self, count: usize) -> Vec<String> {
        let enough = || self.stdout().matches('\n').count() >= count;
        let ended = || is_gone(&self.pid());
        let waited = eventually("the lines", patience(), async || enough() || ended()).await;
        assert!(enough(), "{waited:?}, ended: {}, no {count} lines; stderr: {}", ended(), self.stderr());
        self.stdout().lines().map(str::to_owned).collect()
    }

    pub(crate) fn pid(&self) -> String {
        self.process.id().to_string()
    }

    pub(crate) fn write_stdin(&mut self, text: &str) {
        let stdin = self.process.stdin.as_mut().expect("its stdin is open");
        stdin.write_all(text.as_bytes()).expect("it reads its stdin");
    }

    pub(crate) fn close_stdin(&mut self) {
        drop(self.process.stdin.take());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(&self.pid(), signal);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().expect("quorlock is our child").is_some()
    }

    /// Waits for its end.
    pub(crate) async fn end(self) -> Ended {
        self.end_with(|| ()).await
    }

    /// Sends it a signal, and waits for its end.
    pub(crate) async fn ends_by(self, signal: Signal) -> Ended {
        self.signal(signal);
        self.end().await
    }

    /// Sends it a signal again and again to its end: the same within a second counts as one that came by two ways.
    pub(crate) async fn ends_by_many(mut self, signal: Signal) -> Ended {
        until("its end", async || {
            let ended = self.has_ended();
            if !ended {
                self.signal(signal);
            }
            ended
        })
        .await;
        self.end().await
    }

    /// Makes the file `enough`, for which its command waits, and waits for its end.
    pub(crate) async fn enough(self) -> Ended {
        fs::write(self.path("enough"), "").expect("the file is written");
        self.end().await
    }

    /// As [`end`](Running::end), and looks at its folder before that is removed.
    pub(crate) async fn end_with(self, look: impl FnOnce()) -> Ended {
        self.end_within(patience(), look).await
    }

    /// Waits for its end, and returns the text and the mode of a file that it has left, too.
    pub(crate) async fn end_and_file(self, name: &str) -> (Ended, Option<(String, u32)>) {
        let (path, mut file) = (self.path(name), None);
        let look = || {
            let mode = fs::metadata(&path).map(|file| file.permissions().mode() & 0o777);
            file = fs::read_to_string(&path).ok().zip(mode.ok());
        };
        (self.end_with(look).await, file)
    }

    /// As [`end_with`](Running::end_with), for what takes long.
    pub(crate) async fn end_within(mut self, limit: Duration, look: impl FnOnce()) -> Ended {
        let mut status = None;
        let ended = eventually("the end of quorlock", limit, async || {
            status = self.process.try_wait().expect("quorlock is our child");
            status.is_some()
        });
        let ended = ended.await;
        drop(self.unread.take());
        look();
        let (stdout, stderr) = (self.stdout(), self.stderr());
        ended.unwrap_or_else(|error| panic!("{error}\nstdout: {stdout}\nstderr: {stderr}"));
        let code = status.and_then(|status| status.code());
        Ended { code, signal: status.and_then(|status| status.signal()), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Exit code and output.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Checks the exit code; shows everything if it differs.
    #[track_caller]
    pub(crate) fn expect(self, code: u8) -> Ended {
        assert_eq!(self.code, Some(i32::from(code)), "the exit code; {self:#?}");
        self
    }

    /// Checks that its stdout has these words.
    #[track_caller]
    pub(crate) fn shows(self, words: &str) -> Ended {
        assert!(self.stdout.contains(words), "stdout lacks `{words}`: {self:#?}");
        self
    }

    /// Checks that its stderr has these words.
    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Ended {
        assert!(self.stderr.contains(words), "stderr lacks `{words}`: {self:#?}");
        self
    }

    /// Returns the one value that it has printed.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        json(&self.stdout)
    }

    /// Returns what it has printed, a value on each line.
    pub(crate) fn events(&self) -> Vec<Value> {
        events(&self.stdout)
    }
}

#[track_caller]
pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns the values of lines of JSON.
pub(crate) fn events(lines: &str) -> Vec<Value> {
    lines.lines().map(json).collect()
}

/// Returns the values of those lines that are JSON.
pub(crate) fn events_among(lines: &str) -> Vec<Value> {
    lines.lines().filter(|line| line.starts_with('{')).map(json).collect()
}

/// Returns `quorlock run` with `options`, of a shell script.
pub(crate) fn run(servers: &Servers, options: &[&str], script: &str) -> Quorlock {
    let words = [&["run"], options, &["job", "--", "sh", "-c", script]].concat();
    Quorlock::new(words).on(servers)
}

/// Prints its pid, then waits without starting anything.
pub(crate) const STAYS: &str = "echo $$; exec sleep 1000";

/// Prints a line, then runs until [`Running::enough`].
pub(crate) const UNTIL_ENOUGH: &str = "echo started; while [ ! -e enough ]; do sleep 0.05; done";

/// Starts such a command under the lock `job`, and returns its pid.
pub(crate) async fn started(servers: &Servers, options: &[&str]) -> (Running, String) {
    let running = run(servers, options, STAYS).start();
    let pid = running.lines(1).await.remove(0);
    (running, pid)
}

/// Ends these servers.
pub(crate) fn kill_all(servers: &[Server]) {
    servers.iter().for_each(Server::kill);
}

/// Stops these servers, which then accept connections and do not answer.
pub(crate) fn freeze(servers: &[Server]) {
    for server in servers {
        server.freeze().expect("it is there");
    }
}

/// Continues these servers.
pub(crate) fn thaw(servers: &[Server]) {
    for server in servers {
        server.thaw().expect("it is there");
    }
}

/// Sends a command to each of these servers.
pub(crate) async fn each(servers: &[Server], words: &[&str]) {
    for server in servers {
        server.command(words).await.expect("the server answers");
    }
}

/// Returns the keys of all servers, except tombstones of cancelled attempts, which expire soon.
pub(crate) async fn keys(servers: &[Server]) -> Vec<String> {
    let mut found = Vec::new();
    for server in servers {
        let Resp::List(keys) = server.command(&["KEYS", "*"]).await.expect("the server answers") else {
            panic!("KEYS gives a list");
        };
        let keys = keys.iter().map(ToString::to_string);
        found.extend(keys.filter(|key| !is_auxiliary_key(key)));
    }
    found
}

/// Returns what the lock is, as `status` shows it to programs.
pub(crate) async fn status(servers: &Servers, name: &str) -> Value {
    Quorlock::new(["status", "--json", name]).on(servers).end().await.expect(0).json()
}

/// Waits until a process waits for the lock.
pub(crate) async fn has_waiter(servers: &Servers, name: &str) {
    until("a waiter", async || {
        let status = Quorlock::new(["status", "--json", name]).on(servers).end().await;
        status.stdout.contains("\"waiters\":[{")
    })
    .await;
}

/// Returns the addresses without their password.
pub(crate) fn bare(servers: &Servers) -> String {
    servers.iter().map(Server::bare_url).collect::<Vec<_>>().join(",")
}

pub(crate) async fn pause(time: Duration) {
    let clock = SystemClock::default();
    clock.sleep_until(clock.now() + time).await;
}

/// Sends a signal to a process.
pub(crate) fn send(pid: &str, signal: Signal) {
    kill(Pid::from_raw(pid.parse().expect("a process id")), signal).expect("it is there to be signalled");
}

/// Whether a process has ended. A zombie counts as ended.
pub(crate) fn is_gone(pid: &str) -> bool {
    matches!(state(pid), '-' | 'Z' | 'X')
}

/// Returns the state of a process, as `ps` shows it, or `-` if there is none.
pub(crate) fn state(pid: &str) -> char {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('-')
}

/// Returns the children of a process.
pub(crate) fn children(pid: &str) -> Vec<String> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().map(str::to_owned).collect()
}

/// By which `unshare` starts a program as process 1 of a namespace, which dies with the test.
pub(crate) const NAMESPACES: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];

/// Whether such a namespace can be made; says so if not.
pub(crate) fn has_namespaces() -> bool {
    let tried = Command::new("unshare").args(NAMESPACES).arg("true").output();
    let can = tried.as_ref().is_ok_and(|output| output.status.success());
    if !can {
        skips(format_args!("no process namespace can be made here: {tried:?}"));
    }
    can
}

/// Starts it with mounts of its own, after `script` has made them; returns `None`, with a message, if that is not
/// permitted.
pub(crate) async fn with_mounts(quorlock: Quorlock, script: &str) -> Option<Quorlock> {
    let script = format!("{script} && exec \"$0\" \"$@\"");
    let words = ["--mount", "--map-root-user", "sh", "-c", &script];
    let tried = Quorlock::new(["--version"]).through_all("unshare", &words).end().await.code == Some(0);
    if !(getuid().is_root() && tried) {
        skips("this user may not make mounts of its own");
        return None;
    }
    Some(quorlock.through_all("unshare", &words))
}

/// Checks that each verb finds the lock `jobs/a` on these nodes, and returns its holder.
pub(crate) async fn each_verb_finds_it(words: impl Fn(&[&str]) -> Quorlock) -> Running {
    let ended = words(&["run", "jobs/a", "--", "sh", "-c", "echo $QUORLOCK_FENCE"]).end().await.expect(0);
    assert!(ended.stdout.trim().parse::<u64>().is_ok(), "{ended:#?}");
    let held = words(&["hold", "jobs/a", "--label", "import"]).start();
    let is_held = async || words(&["status", "jobs/a"]).end().await.stdout.contains("import");
    until("a holder", is_held).await;
    let ended = words(&["run", "--wait", "0", "jobs/a", "--", "true"]).end().await.expect(75);
    assert!(ended.stderr.contains("import"), "{ended:#?}");
    let ended = words(&["list", "jobs/"]).end().await.expect(0);
    assert!(ended.stdout.contains("jobs/a") && ended.stdout.contains("import"), "{ended:#?}");
    held
}
