//! Ctrl-C and Ctrl-Z while a script runs `quorlock`: the shell must see what it sees of a command without a lock.

use nix::sys::signal::Signal;
use quorlock_testkit::{Servers, until};

use crate::pty::OnTerminal;
use crate::support::{Quorlock, STAYS, is_gone, keys, run, servers};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// A script on a terminal that runs `quorlock` in a loop.
fn in_a_loop(servers: &Servers, shell: &str, command: &str) -> OnTerminal {
    let text =
        format!("for i in 1 2; do echo round:$i; \"$QUORLOCK\" run {command}; echo code:$?; done; echo over");
    OnTerminal::script(Quorlock::new(["demo"]).on(servers), shell, &text)
}

async fn pid_on(terminal: &OnTerminal) -> i32 {
    let pid = || {
        let screen = terminal.screen();
        screen.split("pid:").nth(1)?.split(':').next()?.parse().ok()
    };
    until("a process id", async || pid().is_some()).await;
    pid().unwrap()
}

async fn ends_the_loop(mut terminal: OnTerminal) {
    terminal.types(CTRL_C);
    assert_eq!(terminal.end().await, Some(130), "{}", terminal.screen());
    let screen = terminal.screen();
    assert!(!screen.contains("round:2") && !screen.contains("over"), "the script went on: {screen}");
}

#[tokio::test]
async fn ctrl_c_ends_the_script_whose_command_it_ends() {
    let Some(servers) = servers(3).await else { return };
    for shell in ["sh", "bash"] {
        let lent = in_a_loop(&servers, shell, "job -- sh -c 'echo pid:$$:; exec sleep 1000'");
        lent.is_lent_to(pid_on(&lent).await).await;
        ends_the_loop(lent).await;
        // Without a terminal on stdin, the key comes to `quorlock`, which forwards it.
        let forwarded =
            in_a_loop(&servers, shell, "job -- sh -c 'echo pid:$$:; exec sleep 1000' < /dev/null");
        pid_on(&forwarded).await;
        ends_the_loop(forwarded).await;
    }
    until("free locks", async || keys(&servers).await.is_empty()).await;
}

#[tokio::test]
async fn ctrl_c_ends_the_script_that_waits_for_the_lock() {
    let Some(servers) = servers(3).await else { return };
    let _holder = run(&servers, &[], STAYS).prints(1).await;
    for shell in ["sh", "bash"] {
        let waits = in_a_loop(&servers, shell, "-w forever job -- true");
        waits.shows("waiting").await;
        ends_the_loop(waits).await;
    }
}

#[tokio::test]
async fn a_command_that_survives_ctrl_c_has_its_own_code_and_the_script_goes_on() {
    let Some(servers) = servers(3).await else { return };
    let script = "trap \"exit 5\" INT; echo pid:$$:; while :; do sleep 0.05; done";
    let mut terminal = in_a_loop(&servers, "sh", &format!("job -- sh -c '{script}'"));
    terminal.is_lent_to(pid_on(&terminal).await).await;
    terminal.types(CTRL_C);
    terminal.shows("code:5").await;
    terminal.shows("round:2").await;
}

#[tokio::test]
async fn sigint_from_a_program_is_an_exit_code() {
    let Some(servers) = servers(3).await else { return };
    let running = run(&servers, &[], STAYS).prints(1).await;
    running.ends_by(Signal::SIGINT).await.expect(130);
    // Sent to the command alone, which has the terminal: the group of the script is not told.
    let mut terminal = in_a_loop(&servers, "sh", "job -- sh -c 'echo pid:$$:; kill -INT $$'");
    assert_eq!(terminal.end().await, Some(0), "{}", terminal.screen());
    assert!(
        terminal.screen().contains("code:130") && terminal.screen().contains("over"),
        "{}",
        terminal.screen()
    );
}

#[tokio::test]
async fn ctrl_z_stops_the_script_and_fg_continues_it() {
    let Some(servers) = servers(3).await else { return };
    let mut shell = OnTerminal::shell(Quorlock::new(["demo"]).on(&servers)).await;
    shell.types("sh -c '\"$QUORLOCK\" run job -- sh -c \"echo pid:\\$\\$:; exec sleep 1000\"; echo over'\n");
    until("the command", async || shell.screen().contains("\npid:")).await;
    let screen = shell.screen();
    let pid: i32 = screen.rsplit("pid:").next().unwrap().split(':').next().unwrap().parse().unwrap();
    shell.is_lent_to(pid).await;
    shell.types(CTRL_Z);
    shell.shows("the lock is not renewed meanwhile").await;
    shell.types("echo the shell is $((40 + 2))\n");
    shell.shows("the shell is 42").await;
    shell.types("fg\n");
    shell.is_lent_to(pid).await;
    shell.types(CTRL_C);
    until("the end of the command", async || is_gone(&pid.to_string())).await;
    shell.types("echo again $((40 + 2))\n");
    shell.shows("again 42").await;
    assert!(!shell.screen().contains("\nover"), "the script went on: {}", shell.screen());
}

#[tokio::test]
async fn ctrl_z_does_nothing_where_no_shell_could_continue_the_command() {
    let Some(servers) = servers(3).await else { return };
    let mut terminal =
        OnTerminal::start(run(&servers, &[], "echo pid:$$:; read line; echo \"read <$line>\""));
    terminal.is_lent_to(pid_on(&terminal).await).await;
    terminal.types(CTRL_Z);
    terminal.shows("^Z").await;
    terminal.types("hello\n");
    terminal.shows("read <hello>").await;
    assert_eq!(terminal.end().await, Some(0), "{}", terminal.screen());
}
