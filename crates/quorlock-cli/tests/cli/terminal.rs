//! `quorlock` on a terminal: foreground, confirmation, job control, colours.

use nix::sys::signal::Signal;
use nix::sys::termios::LocalFlags;
use quorlock_testkit::{Servers, until};

use crate::pty::OnTerminal;
use crate::support::{Quorlock, STAYS, is_gone, keys, run, servers, state};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

fn words(servers: &Servers, words: &[&str]) -> Quorlock {
    Quorlock::new(words).on(servers)
}

#[tokio::test]
async fn the_command_can_read_from_the_terminal_and_gets_ctrl_c_itself() {
    let Some(servers) = servers(3).await else { return };
    let script =
        "trap 'echo interrupted; exit 5' INT; read line; echo \"read <$line>\"; while :; do sleep 0.05; done";
    let mut terminal = OnTerminal::start(run(&servers, &[], script));
    until("the command", async || !keys(&servers[..1]).await.is_empty()).await;
    terminal.types("hello\n");
    terminal.shows("read <hello>").await;
    terminal.types(CTRL_C);
    assert_eq!(terminal.end().await, Some(5), "the command's own code; {}", terminal.screen());
    terminal.shows("interrupted").await;
    assert_eq!(terminal.screen().matches("interrupted").count(), 1, "it got it once");
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn ctrl_z_stops_both_and_fg_continues_both_and_the_shell_has_its_terminal_between() {
    let Some(servers) = servers(3).await else { return };
    let mut shell = OnTerminal::shell(words(&servers, &["demo"])).await;
    // Not a loop: a shell that is stopped while it starts something (vfork) is not seen as stopped.
    shell.types("\"$QUORLOCK\" run job -- sh -c 'echo pid:$$:; exec sleep 1000'\n");
    shell.shows_times("pid:", 2).await;
    let screen = shell.screen();
    let pid =
        screen.rsplit("pid:").next().and_then(|rest| rest.split(':').next()).unwrap_or_default().to_owned();
    shell.types(CTRL_Z);
    shell.shows("Stopped").await;
    until("the command stands still", async || state(&pid) == 'T').await;
    shell.types("echo the shell is $((40 + 2))\n");
    shell.shows("the shell is 42").await;
    shell.types("fg\n");
    until("the command goes on", async || matches!(state(&pid), 'S' | 'R')).await;
    shell.types(CTRL_C);
    until("the end of the command", async || is_gone(&pid)).await;
    shell.types("echo code $?\n");
    shell.shows("code 130").await;
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn ctrl_c_ends_what_lingers_although_shells_have_it_ignore_that() {
    let Some(servers) = servers(3).await else { return };
    let script = "sleep 1000 & echo pid:$!:$$:; exit 5";
    let mut terminal = OnTerminal::start(run(&servers, &[], script));
    terminal.shows(":\r\n").await;
    let screen = terminal.screen();
    let [_, pid, command, ..] = screen.split(':').collect::<Vec<_>>()[..] else { panic!("{screen}") };
    until("the end of the command itself", async || is_gone(command)).await;
    until("its end", async || {
        let ended = terminal.has_ended();
        if !ended {
            terminal.types(CTRL_C);
        }
        ended
    })
    .await;
    assert_eq!(terminal.end().await, Some(5), "{}", terminal.screen());
    assert!(is_gone(pid), "{}", terminal.screen());
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn a_killed_command_leaves_the_terminal_as_it_was() {
    let Some(servers) = servers(3).await else { return };
    let mut shell = OnTerminal::shell(words(&servers, &["demo"])).await;
    shell.types(
        "\"$QUORLOCK\" run job -- sh -c 'stty -echo; kill -KILL $$'; stty -a | grep -o -e '-*echo '\n",
    );
    shell.shows("\necho ").await;
    assert!(!shell.screen().contains("\n-echo "), "{}", shell.screen());
}

#[tokio::test]
async fn within_a_pipeline_the_reader_keeps_the_terminal_and_the_size_is_passed_on() {
    let Some(servers) = servers(3).await else { return };
    let mut shell = OnTerminal::shell(words(&servers, &["demo"])).await;
    let script = "trap 'echo resized' WINCH; echo started; while :; do sleep 0.05; done";
    shell.types(&format!("\"$QUORLOCK\" run job -- sh -c \"{script}\" | sed s/^/out:/\n"));
    shell.shows("out:started").await;
    shell.resize(70);
    shell.shows("out:resized").await;
    shell.types(CTRL_C);
    shell.types("echo the shell is $((40 + 2))\n");
    shell.shows("the shell is 42").await;
    until("clean servers", async || keys(&servers).await.is_empty()).await;
}

#[tokio::test]
async fn release_by_force_asks_and_heeds_the_answer() {
    let Some(servers) = servers(3).await else { return };
    let _holder = run(&servers, &["--label", "the first"], STAYS).prints(1).await;
    let mut no = OnTerminal::start(words(&servers, &["release", "--force", "job"]));
    no.shows("Take it away? [y/N]").await;
    assert!(no.screen().contains("the first"), "{}", no.screen());
    no.types("\n");
    assert_eq!(no.end().await, Some(75));
    assert_eq!(keys(&servers[..1]).await, ["job"], "nothing was changed");
    let mut yes = OnTerminal::start(words(&servers, &["release", "--force", "job"]));
    yes.shows("Take it away? [y/N]").await;
    yes.types("y\n");
    assert_eq!(yes.end().await, Some(0), "{}", yes.screen());
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn status_wraps_words_and_breaks_neither_addresses_nor_fencing_tokens() {
    let Some(servers) = servers(3).await else { return };
    let label = "a label that has to be wrapped";
    let holder = run(&servers, &["--label", label], "echo $QUORLOCK_FENCE; exec sleep 1000").start();
    let fencing_token = holder.lines(1).await.remove(0);
    let mut status = OnTerminal::start(words(&servers, &["status", "--watch=50ms", "job"]));
    status.resize(80);
    // The last line of a picture of this width.
    status.shows_times("`job` is held by", 3).await;
    status.types(CTRL_C);
    assert_eq!(status.end().await, Some(0));
    let last = kept(&status.screen());
    for server in servers.iter() {
        assert!(last.contains(&format!("127.0.0.1:{} ", server.port())), "an address is broken: {last}");
    }
    assert_eq!(last.matches(&fencing_token).count(), 4, "in the table and in the sentence: {last}");
}

#[tokio::test]
async fn status_redraws_in_place_and_its_last_picture_stays() {
    let Some(servers) = servers(3).await else { return };
    let mut status = OnTerminal::start(words(&servers, &["status", "--watch=50ms", "job"]));
    status.shows_times("`job` is free", 2).await;
    let _holder = run(&servers, &["--label", "the first"], STAYS).prints(1).await;
    status.shows("`job` is held by").await;
    status.types("q");
    assert_eq!(status.end().await, Some(0));
    let screen = status.screen();
    assert!(pictures(&screen).iter().all(|picture| picture.len() <= 24), "{screen:?}");
    let last = kept(&screen);
    assert!(last.contains("the first") && last.contains("`job` is held by"), "{last:?}");
}

/// The pictures on the alternate screen, in lines.
fn pictures(screen: &str) -> Vec<Vec<&str>> {
    let (live, _) = screen.split_once(CLOSE).unwrap_or((screen, ""));
    live.split("\x1b[H\x1b[K").skip(1).map(|picture| picture.split("\r\n\x1b[K").collect()).collect()
}

/// What stays after the alternate screen.
fn kept(screen: &str) -> String {
    let (_, kept) = screen.rsplit_once(CLOSE).unwrap_or_else(|| panic!("it is left: {screen:?}"));
    kept.to_owned()
}

const OPEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const CLOSE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

async fn no_echo(terminal: &OnTerminal) {
    let echoes = async || !terminal.modes().local_flags.contains(LocalFlags::ECHO);
    until("keys without an echo", echoes).await;
}

/// Waits for the modes of the shell: what is typed before them is discarded.
async fn echo(terminal: &OnTerminal) {
    let echoes = async || terminal.modes().local_flags.contains(LocalFlags::ECHO);
    until("keys with an echo", echoes).await;
}

#[tokio::test]
async fn top_leaves_the_terminal_as_it_was_however_it_ends() {
    let Some(servers) = servers(3).await else { return };
    for end in ["q", CTRL_C, "SIGTERM"] {
        let mut top = OnTerminal::start(words(&servers, &["top"]));
        top.shows("stored: 0").await;
        no_echo(&top).await;
        top.types("hello");
        match end {
            "SIGTERM" => top.signal(Signal::SIGTERM),
            key => top.types(key),
        }
        assert_eq!(top.end().await, Some(0), "{end:?}");
        top.shows(CLOSE).await;
        let screen = top.screen();
        assert_eq!(top.modes(), top.first_modes, "{end:?}");
        assert_eq!((screen.matches(OPEN).count(), screen.matches(CLOSE).count()), (1, 1), "{screen:?}");
        assert!(!screen.contains("hello") && kept(&screen).contains("stored: 0"), "{end:?}: {screen:?}");
    }
}

#[tokio::test]
async fn top_gives_the_terminal_to_the_shell_on_ctrl_z_and_draws_nothing_in_the_background() {
    let Some(servers) = servers(3).await else { return };
    let mut shell = OnTerminal::shell(words(&servers, &["demo"])).await;
    shell.types("\"$QUORLOCK\" top --interval 20ms\n");
    shell.shows("stored: 0").await;
    no_echo(&shell).await;
    shell.types(CTRL_Z);
    shell.shows("Stopped").await;
    shell.types("stty -a | grep -o -e '-*echo '; bg; echo the shell is $((40 + 2))\n");
    shell.shows("the shell is 42").await;
    let (_, after) =
        shell.screen().rsplit_once("Stopped").map(|(one, other)| (one.to_owned(), other.to_owned())).unwrap();
    assert!(after.contains("\necho ") && !after.contains(OPEN), "{after:?}");
    let drawn = shell.screen().matches(OPEN).count();
    shell.types("fg\n");
    shell.shows_times(OPEN, drawn + 1).await;
    no_echo(&shell).await;
    shell.types("q");
    shell.shows_times(CLOSE, drawn + 1).await;
    echo(&shell).await;
    shell.types("echo again $((40 + 2))\n");
    shell.shows("again 42").await;
}

#[tokio::test]
async fn top_fits_the_terminal_of_any_width_and_follows_its_size() {
    let Some(servers) = servers(3).await else { return };
    let name = "a/name/that/does/not/fit/on/a/narrow/terminal";
    let label = "a label that does not fit on a narrow terminal";
    let _holder =
        Quorlock::new(["hold", "--until-eof", "never", "--label", label, name]).on(&servers).prints(1).await;
    // Only a change of the size has it draw again.
    let mut top = OnTerminal::start(words(&servers, &["top", "--interval", "1h"]));
    top.shows(" since (UTC) ").await;
    for (columns, shown) in [(60, "remaining  waiting  longest wait"), (200, label), (20, "l…")] {
        let before = top.screen().matches("\x1b[H").count();
        top.resize(columns);
        top.shows_times("\x1b[H", before + 1).await;
        top.shows_times("\x1b[J", before + 1).await;
        let screen = top.screen();
        let pictures = pictures(&screen);
        let picture = pictures.last().unwrap();
        let width = |line: &&str| line.trim_end_matches("\r\n\x1b[J").chars().count();
        let widest = picture.iter().map(width).max().unwrap();
        assert!(widest <= columns.into(), "{columns}: {picture:?}");
        assert_eq!(picture.len(), 4, "a line for each lock: {picture:?}");
        assert!(picture.concat().contains(shown), "{columns}: {picture:?}");
        assert_eq!(picture.concat().contains("since"), columns >= 80, "{columns}: {picture:?}");
    }
    top.types("q");
    assert_eq!(top.end().await, Some(0));
}

#[tokio::test]
async fn a_hold_on_a_terminal_ends_by_ctrl_c_and_not_by_its_stdin() {
    let Some(servers) = servers(3).await else { return };
    let mut hold = OnTerminal::start(words(&servers, &["hold", "job"]));
    hold.shows("renewed every").await;
    hold.types("\x04");
    run(&servers, &["-w", "300ms"], "echo ran").end().await.expect(75);
    hold.types(CTRL_C);
    assert_eq!(hold.end().await, Some(0));
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn a_waiter_shows_the_holder_on_a_progress_line() {
    let Some(servers) = servers(3).await else { return };
    let _holder = run(&servers, &["--label", "the first"], STAYS).prints(1).await;
    let mut waiter = OnTerminal::start(run(&servers, &["-w", "forever"], "echo ran"));
    waiter.shows("waiting (first in the queue): held by").await;
    let mut second = OnTerminal::start(run(&servers, &["-w", "forever"], "echo ran"));
    second.shows("waiting (behind 1 other process): held by").await;
    second.types(CTRL_C);
    assert_eq!(second.end().await, Some(130));
    assert!(waiter.screen().contains("the first"), "{}", waiter.screen());
    waiter.types(CTRL_C);
    assert_eq!(waiter.end().await, Some(130));
    waiter.shows("the command was not started").await;
}

#[tokio::test]
async fn colours_are_for_terminals_by_default() {
    let Some(servers) = servers(3).await else { return };
    let coloured = |text: &str| text.contains("\x1b[32m`job` is free\x1b[0m");
    let mut on = OnTerminal::start(words(&servers, &["status", "job"]));
    assert_eq!(on.end().await, Some(0));
    on.shows("`job` is free").await;
    assert!(coloured(&on.screen()), "{:?}", on.screen());
    for quiet in [
        words(&servers, &["status", "job"]).env("NO_COLOR", "1"),
        words(&servers, &["status", "job", "--color", "never"]).env("CLICOLOR_FORCE", "1"),
    ] {
        let mut off = OnTerminal::start(quiet);
        assert_eq!(off.end().await, Some(0));
        off.shows("`job` is free").await;
        assert!(!coloured(&off.screen()), "{:?}", off.screen());
    }
    let file = words(&servers, &["status", "job"]).end().await.expect(0);
    assert!(!coloured(&file.stdout), "{file:?}");
    let forced = words(&servers, &["status", "job"]).env("CLICOLOR_FORCE", "1").end().await.expect(0);
    assert!(coloured(&forced.stdout), "{forced:?}");
    let always =
        words(&servers, &["--color", "always", "status", "job"]).env("NO_COLOR", "1").end().await.expect(0);
    assert!(coloured(&always.stdout), "{always:?}");
}
