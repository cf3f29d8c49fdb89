//! End-to-end tests of the program, with real servers and real faults.
//!
//! They assert no durations and no success rate: a busy machine may be slow, but must not violate a
//! guarantee.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use quorlock_testkit::until;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) fn chaos(arguments: &[&str], at: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quorlock-chaos")).args(arguments).current_dir(at).output().unwrap()
}

/// A folder of scenarios, in which the program runs.
struct Bench(TempDir);

impl Bench {
    fn new() -> Bench {
        Bench(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a scenario of this name.
    fn scenario(&self, name: &str, text: &str) -> String {
        let path = self.path(&format!("{name}.toml"));
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Writes a scenario without faults.
    fn calm(&self) -> String {
        self.scenario("calm", "summary = 'nothing goes wrong'\nduration = '1s'\n[load]\nworkers = 2")
    }

    /// Runs the program, checks its exit code, and returns its output.
    #[track_caller]
    fn run(&self, arguments: &[&str], code: i32) -> String {
        let run = chaos(arguments, self.0.path());
        assert_eq!(run.status.code(), Some(code), "{arguments:?}: {}", text(&run));
        text(&run)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

const KILLS: &str = "
summary = 'masters are killed and restart with or without their data'
durable = true
[load]
workers = 2
[[fault]]
kind = 'kill'
every = '100ms..300ms'
lasts = '10ms..100ms'
[[fault]]
kind = 'stop-worker'
every = '500ms..900ms'
lasts = '1200ms'
";

const FLUSHES: &str = "
summary = 'all keys of all nodes are deleted at the same time'
at-most = 5
[locks]
count = 10
[load]
long = 20
short = 5
only-if-free = 300
[[fault]]
kind = 'delete-keys'
hits = 5
every = '100ms..300ms'
";

const DROPS: &str = "
summary = 'holders that drop their leases are stopped past the end of their leases'
[load]
workers = 4
short = 0
long = 0
only-if-free = 0
cancelled = 0
nested = 0
trusting = 0
dropped = 100
[[fault]]
kind = 'stop-worker'
every = '200ms..400ms'
lasts = '1200ms'
";

const OFFERS: &str = "
summary = 'one lock is offered from worker to worker, while waiters are killed and stopped'
layout = 'three-regions'
[locks]
count = 1
[load]
workers = 4
tasks = 1
nested = 0
[[fault]]
kind = 'kill-worker'
every = '500ms..900ms'
lasts = '10ms..100ms'
[[fault]]
kind = 'stop-worker'
every = '500ms..900ms'
lasts = '500ms'
[[fault]]
kind = 'freeze'
target = 'home'
every = '1s..2s'
lasts = '300ms'
[expect]
offers = 1
";

#[test]
fn killed_masters_keep_every_guarantee() {
    let bench = Bench::new();
    let kills = bench.scenario("kills", KILLS);
    let words = ["--scenario", &kills, "--duration", "3s", "--seed", "7"];
    let output = bench.run(&[&words[..], &["--keep", "kept", "--json", "out.json"]].concat(), 0);
    assert!(output.contains("every expectation held"), "{output}");
    assert!(output.contains("faults were injected: kill"), "{output}");

    let kept = bench.path("kept/kills");
    for file in [
        "scenario.toml",
        "schedule.txt",
        "run.json",
        "history/director.jsonl",
        "history/worker-1.jsonl",
        "logs/node-1.log",
    ] {
        assert!(kept.join(file).metadata().unwrap().len() > 0, "{file} is empty");
    }
    let outcome = &bench.json("out.json")[0];
    assert_eq!(outcome["passed"], true);
    assert_eq!(outcome["broken_locks"], json!({}));
    assert!(outcome["seen"]["holds"].as_u64().unwrap() > 0);

    bench.run(&["check", "kept/kills", "--html", "out.html"], 0);
    assert!(bench.read("out.html").contains("kills"));

    // As on a machine that is too slow for the schedule of one kind, in a run of the scenario's own duration.
    fs::write(kept.join("scenario.toml"), format!("duration = '1s'\n{KILLS}")).unwrap();
    let mut metadata = bench.json("kept/kills/run.json");
    metadata["faults"].as_array_mut().unwrap().retain(|fault| fault["kind"] != "kill");
    metadata["left_out"] = json!({ "kill": 3 });
    fs::write(kept.join("run.json"), metadata.to_string()).unwrap();
    let again = bench.run(&["check", "kept/kills"], 1);
    assert!(again.contains("FAILED  faults were injected: kill 0 (3 left out), stop-worker "), "{again}");
}

#[test]
fn a_lock_is_offered_while_waiters_die_and_the_node_with_their_queue_hangs() {
    let bench = Bench::new();
    let offers = bench.scenario("offers", OFFERS);
    let run = chaos(&["--scenario", &offers, "--duration", "6s", "--seed", "5"], bench.0.path());
    let output = text(&run);
    // The built-in server makes no offers that could be counted.
    let (code, words) = if output.contains("skipped: offers") {
        (69, "it counts offers")
    } else {
        (0, "at least 1 offers by a quorum")
    };
    assert!(run.status.code() == Some(code) && output.contains(words), "{output}");
}

#[test]
fn a_stopped_holder_that_drops_a_lapsed_lease_is_no_violation() {
    let bench = Bench::new();
    let drops = bench.scenario("drops", DROPS);
    let output = bench.run(&["--scenario", &drops, "--duration", "4s", "--seed", "1"], 0);
    assert!(output.contains("faults were injected: stop-worker"), "{output}");
}

#[test]
fn key_loss_on_a_quorum_is_detected() {
    let bench = Bench::new();
    let unexpected = bench.scenario("flushes", FLUSHES);
    // Holders that have renewed hear of it (rule I-52), and do not always overlap with the next.
    let output = bench.run(&["--scenario", &unexpected, "--duration", "12s", "--seed", "3"], 1);
    assert!(output.contains("NOT EXPECTED") && output.contains("was held twice"), "{output}");
    assert!(output.contains("--seed 3"), "no replay command: {output}");
    let kept = bench.path("quorlock-chaos-failed/flushes-3");
    assert!(kept.join("schedule.txt").exists(), "the record of a failed run is not kept");

    let expected =
        format!("{FLUSHES}\n[expect]\nviolations = ['exclusion']\ntolerated = ['mutex', 'register', 'loss']");
    fs::write(kept.join("scenario.toml"), expected).unwrap();
    // The same record, with the violation expected.
    bench.run(&["check", &kept.display().to_string()], 0);
}

#[test]
fn a_forged_record_is_detected() {
    let bench = Bench::new();
    let calm = bench.calm();
    bench.run(&["--scenario", &calm, "--keep", "kept"], 0);

    // An intruder holds a lock from the beginning to the end of the run.
    let metadata = bench.json("kept/calm/run.json");
    let (began, ended) = (metadata["began"].as_u64().unwrap(), metadata["ended"].as_u64().unwrap());
    let intruder = format!(
        "{{\"at\":{began},\"event\":\"invoked\",\"client\":\"worker-9\",\"resource\":\"lock-1\",\"attempt\":\"x\"}}\n\
         {{\"at\":{began},\"event\":\"acquired\",\"attempt\":\"x\",\"deadline\":{ended}}}\n"
    );
    fs::write(bench.path("kept/calm/history/intruder.jsonl"), intruder).unwrap();
    let again = bench.run(&["check", "kept/calm", "--json", "out.json"], 1);
    assert!(again.contains("was held twice"), "{again}");
    let broken = &bench.json("out.json")[0]["broken_locks"];
    let both = broken["exclusion"] == json!(["lock-1"]) && broken["mutex"] == broken["exclusion"];
    assert!(both, "{broken}");
}

#[test]
fn a_run_that_cannot_begin_says_why_and_keeps_its_logs_and_the_outcomes_before() {
    let bench = Bench::new();
    let calm = bench.calm();
    let brief = bench.scenario("brief", "summary = 'x'\n[locks]\nttl = '3ms'\n[load]\nworkers = 1");
    let arguments = ["--scenario", &calm, "--scenario", &brief, "--duration", "1s", "--seed", "9"];
    let output = bench.run(&[&arguments[..], &["--json", "out.json"]].concat(), 125);
    let why = "a TTL of 3ms is too short";
    assert!(output.contains("worker-1 ended with exit status: 125") && output.contains(why), "{output}");
    let log = bench.read("quorlock-chaos-failed/brief-9/logs/worker-1.log");
    assert!(log.contains(why) && output.contains("quorlock-chaos-failed/brief-9"), "{output}");
    assert_eq!(bench.json("out.json")[0]["scenario"], "calm");
    assert!(output.contains("1 scenarios, "), "the table of what ran: {output}");
}

#[test]
fn a_record_with_too_little_to_judge_is_not_passed() {
    let bench = Bench::new();
    let calm = bench.calm();
    let output = bench.run(&["--scenario", &calm, "--keep", "kept"], 0);
    assert!(output.contains("every worker held locks: each at least "), "{output}");
    let history = bench.path("kept/calm/history");
    let judged = || bench.run(&["check", "kept/calm"], 1);
    let files = ["director.jsonl", "worker-1.jsonl", "worker-2.jsonl"].map(|name| history.join(name));
    let whole = files.each_ref().map(|path| fs::read_to_string(path).unwrap());
    // Rewrites the lines of all files.
    let forge = |rewrite: fn(&str) -> Option<String>| {
        for (path, text) in files.iter().zip(&whole) {
            let lines = text.lines().filter_map(rewrite).map(|line| line + "\n");
            fs::write(path, lines.collect::<String>()).unwrap();
        }
    };

    forge(|line| (!line.contains("\"wrote\"")).then(|| line.replace("\"fencing_token\"", "\"ignored\"")));
    let verdicts = judged();
    assert!(verdicts.contains("FAILED  every hold has a fencing token, and writes with it: "), "{verdicts}");
    assert!(verdicts.contains(" without, 0 writes accepted\n"), "{verdicts}");
    forge(|line| (!line.contains("\"key\"")).then(|| line.to_owned()));
    let verdicts = judged();
    assert!(verdicts.contains("FAILED  keys were found on the nodes: 0 keys\n"), "{verdicts}");
    forge(|line| Some(line.to_owned()));

    fs::remove_file(&files[0]).unwrap();
    let (verdicts, events) = (judged(), whole[0].lines().count());
    let missing = format!("FAILED  the record is complete: director.jsonl has 0 of {events} events\n");
    assert!(verdicts.contains(&missing), "{verdicts}");
    fs::remove_file(&files[2]).unwrap();
    let verdicts = judged();
    assert!(verdicts.contains("FAILED  every worker held locks: none by worker-2\n"), "{verdicts}");
    fs::remove_file(&files[1]).unwrap();
    let verdicts = judged();
    assert!(verdicts.contains("FAILED  every worker held locks: none by worker-1, worker-2\n"), "{verdicts}");
    assert!(
        verdicts.contains("ok      no violation: 0 holds"),
        "an empty record breaks no promise: {verdicts}"
    );
}

/// The scenario that fails if restarted masters vote immediately.
const RESTARTS: &str = include_str!("../../scenarios/majority-restart.toml");

#[test]
fn masters_that_vote_immediately_after_a_restart_are_detected() {
    let bench = Bench::new();
    let unguarded = RESTARTS.replace("[locks]", "[locks]\nrestart-guard = false");
    let unguarded = bench.scenario("unguarded", &unguarded);
    let output = bench.run(&["--scenario", &unguarded, "--seed", "1"], 1);
    let found = output.lines().find(|line| line.contains("FAILED  no violation: ")).unwrap_or_default();
    assert!(found.contains("exclusion: ") || found.contains("register: "), "{output}");
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_printed_is_an_error_and_the_files_are_written() {
    let bench = Bench::new();
    let calm = bench.calm();
    let to = |arguments: &[&str], stdout: fs::File| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_quorlock-chaos"));
        run.args(arguments).current_dir(&bench.0).stdout(stdout).output().unwrap()
    };
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let run = ["--scenario", &calm, "--duration", "1s", "--keep", "kept", "--json", "out.json"];
    for arguments in [&["--list"][..], &run, &["check", "kept/calm", "--html", "out.html"]] {
        let output = to(arguments, full());
        assert_eq!(output.status.code(), Some(125), "{}", text(&output));
        assert!(text(&output).contains("quorlock-chaos: cannot print the "), "{}", text(&output));
    }
    assert!(bench.path("out.json").exists() && bench.path("out.html").exists());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = to(&["--list"], fs::File::from(std::os::fd::OwnedFd::from(writer)));
    assert!(output.status.success() && text(&output).is_empty(), "{}", text(&output));
}

#[test]
fn invalid_input_is_an_error_with_a_hint() {
    let bench = Bench::new();
    let odd = bench.scenario("odd", "summary = 'x'\n[[fault]]\nkind = 'kil'\nevery = '1s'");
    for (arguments, code, hint) in [
        (&["--scenario", "kill-master"][..], 64, "kill-masters"),
        (&["--duration", "3s"], 64, "--list"),
        (&["--scenario", &odd], 78, "unknown fault `kil`"),
        (&["check", "nowhere"], 78, "run.json"),
        (&["--list"], 0, "kill-masters"),
        (&["--list"], 0, "violation-guard-off"),
    ] {
        let words = bench.run(arguments, code);
        assert!(words.contains(hint), "{words}");
    }
}

#[test]
fn a_run_that_comes_to_nothing_leaves_the_files_of_an_earlier_one() {
    let bench = Bench::new();
    let files = ["out.json", "out.html"].map(|name| bench.path(name));
    for path in &files {
        fs::write(path, "earlier").unwrap();
    }
    let arguments =
        ["--scenario", "partition", "--compose", "nowhere", "--json", "out.json", "--html", "out.html"];
    let ran = chaos(&arguments, bench.0.path());
    assert_ne!(ran.status.code(), Some(0), "{}", text(&ran));
    assert!(text(&ran).contains("use the compose project"), "{}", text(&ran));
    for path in files {
        assert_eq!(fs::read_to_string(&path).unwrap(), "earlier", "{path:?}");
    }
}

#[test]
fn without_a_real_server_the_built_in_one_is_used() {
    let bench = Bench::new();
    let run = |scenario: &str| {
        let arguments = ["--scenario", scenario, "--duration", "1s", "--seed", "1"];
        let program = env!("CARGO_BIN_EXE_quorlock-chaos");
        Command::new(program)
            .args(arguments)
            .env("QUORLOCK_SERVER", "builtin")
            .current_dir(&bench.0)
            .output()
            .unwrap()
    };
    let kills = bench.scenario("kills", &KILLS.replace("stop-worker", "kill-worker"));
    let killed = run(&kills);
    assert!(text(&killed).contains("built-in server (child processes"), "{}", text(&killed));
    assert!(!text(&killed).contains("with its data"), "the built-in server keeps no data: {}", text(&killed));
    let skipped = run("out-of-memory");
    assert_eq!(skipped.status.code(), Some(69), "nothing was run: {}", text(&skipped));
    assert!(text(&skipped).contains("skipped: out-of-memory"), "{}", text(&skipped));
}

#[cfg(target_os = "linux")]
#[test]
fn no_process_is_left_after_an_interrupt_or_a_hangup() {
    use nix::sys::signal::{Signal, kill};

    for signal in [Signal::SIGINT, Signal::SIGHUP] {
        let (bench, temporary) = (Bench::new(), tempfile::tempdir().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorlock-chaos"));
        command.args(["--scenario", "kill-masters", "--duration", "60s"]).env("TMPDIR", temporary.path());
        let (mut run, pid) = started(&mut command, &bench);
        let children = || children_of(pid);
        // Five servers and four workers.
        wait_for("all child processes", || children().len() >= 9);
        let at_first = children();
        kill(pid, signal).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(130), "{signal}");
        wait_for("all child processes to exit", || at_first.iter().all(|child| !child.exists()));
        let left = fs::read_dir(&temporary).unwrap().map(|left| left.unwrap().path()).collect::<Vec<_>>();
        assert!(left.is_empty(), "{signal}: {left:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_that_ignores_hangups_outlives_its_terminal() {
    use nix::sys::signal::{Signal, kill};

    let bench = Bench::new();
    let calm = bench.calm();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_quorlock-chaos")]);
    command.args(["--scenario", &calm, "--duration", "1s", "--quiet"]);
    let (mut run, pid) = started(&mut command, &bench);
    // Five servers and two workers.
    wait_for("all child processes", || children_of(pid).len() >= 7);
    kill(pid, Signal::SIGHUP).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn no_worker_that_a_fault_has_stopped_is_left_after_a_kill() {
    let bench = Bench::new();
    let stops =
        "summary = 'x'\n[load]\nworkers = 2\n[[fault]]\nkind = 'stop-worker'\nevery = '1s'\nlasts = '60s'";
    let stops = bench.scenario("stops", stops);
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorlock-chaos"));
    command.args(["--scenario", &stops, "--duration", "120s"]);
    let (mut run, pid) = started(&mut command, &bench);
    wait_for("a stopped worker", || children_of(pid).iter().any(|child| state(child) == "T"));
    let at_first = children_of(pid);
    run.kill().unwrap();
    run.wait().unwrap();
    // Their new parent may be slow to wait for them.
    let is_over = |child: &PathBuf| matches!(&*state(child), "" | "Z");
    wait_for("all child processes to exit", || at_first.iter().all(is_over));
}

/// Starts a run, without its output.
#[cfg(target_os = "linux")]
fn started(command: &mut Command, bench: &Bench) -> (std::process::Child, nix::unistd::Pid) {
    use std::process::Stdio;

    let run = command.current_dir(&bench.0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(run.id().try_into().unwrap());
    (run, pid)
}

/// Returns the state of a process by its folder under `/proc`: empty if it is no longer there.
fn state(process: &Path) -> String {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    after.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Returns the folders under `/proc` of the children of a process.
fn children_of(parent: nix::unistd::Pid) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let is_child = |path: &PathBuf| {
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        // State and parent come after the name, which may contain any characters.
        let after = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().nth(1).unwrap_or_default().to_owned());
        after.is_some_and(|found| found == parent.to_string())
    };
    processes.filter(is_child).collect()
}

fn wait_for(what: &str, mut reached: impl FnMut() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(until(what, async || reached()));
}
