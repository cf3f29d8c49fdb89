//! `scripts/nightly`, with checks that take no time.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quorlock_book::page::root;
use tempfile::TempDir;

/// Each writes its name to `ran`. The second waits for ever unless the file `go` exists, the fourth fails if `bad` does.
const CHECKS: &str = r"
check one 1 10m 'the first' 'found' bash -c 'echo one >>ran; echo found 1, beside what is not kept; echo noise'
check two 2 10m 'the second' 'found' bash -c 'echo two >>ran; [ -e go ] || { echo $$ >pid; echo >began; exec cat never; }'
needs bash no-such-program
check three 8 10m 'the third' 'found' bash -c 'echo three >>ran'
wants no-such-program 'second half'
check four 4 10m 'the fourth' 'found' bash -c 'echo four >>ran; [ ! -e bad ] || ! echo FAILED: a test'
on_request
check five 100 10m 'the fifth' 'found' bash -c 'echo five >>ran'
on_request
check six 100 0.1s 'the sixth' 'found' cat never
on_request
check seven 100 10m 'the seventh' 'found' bash -c 'echo skipped: no such server here; exit 69'
on_request
check eight 0 10m 'the eighth' 'found' printf 'skipped: no server\ntest result: ok. 1 passed; 0 failed\n'
on_request
check nine 0 10m 'the ninth' 'found' echo 'test result: ok. 0 passed; 0 failed'
";

struct Project {
    folder: TempDir,
}

impl Project {
    fn new() -> Project {
        let project = Project { folder: tempfile::tempdir().unwrap() };
        let scripts = project.path().join("scripts");
        fs::create_dir(&scripts).unwrap();
        for script in ["nightly", "lib.sh"] {
            fs::copy(root().join("scripts").join(script), scripts.join(script)).unwrap();
        }
        fs::write(scripts.join("nightly.checks"), CHECKS).unwrap();
        project.does("git init --quiet && mkdir docs && mkfifo began never");
        project.commits();
        project
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn does(&self, command: &str) {
        assert!(
            Command::new("bash").args(["-c", command]).current_dir(self.path()).status().unwrap().success()
        );
    }

    fn commits(&self) {
        self.does("git add scripts docs && git -c user.name=x -c user.email=x commit --quiet --message x");
    }

    fn nightly(&self, arguments: &str) -> Command {
        let mut command = Command::new("scripts/nightly");
        command.args(arguments.split_whitespace()).current_dir(self.path());
        command.env_remove("CI").env_remove("QUORLOCK_INSTALL");
        command
    }

    /// Runs it, and returns its exit code, its output, and the checks that ran.
    fn runs(&self, arguments: &str) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.nightly(arguments).output().unwrap();
        let output = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
        let ran = fs::read_to_string(self.path().join("ran")).unwrap_or_default();
        self.does("rm -f ran");
        (status.code(), output, ran.replace('\n', " "))
    }

    /// Runs it, checks its exit code and which checks ran, and returns its output.
    #[track_caller]
    fn expect(&self, arguments: &str, code: i32, ran: &str) -> String {
        let (found, output, checks) = self.runs(arguments);
        assert_eq!((found, checks.as_str()), (Some(code), ran), "{arguments}: {output}");
        output
    }

    #[track_caller]
    fn records(&self, line: &str) {
        assert!(self.record().contains(line), "{line}: {}", self.record());
    }

    fn has(&self, file: &str) {
        fs::write(self.path().join(file), "").unwrap();
    }

    fn record(&self) -> String {
        fs::read_to_string(self.path().join("docs/nightly.md")).unwrap()
    }
}

#[test]
fn the_nightly_says_before_what_will_be_skipped_and_how_long_it_takes() {
    let project = Project::new();
    let plan = project.expect("--plan", 0, "");
    let line = |text: &str| assert!(plan.lines().any(|line| line.contains(text)), "{text}: {plan}");
    line("skipped: no no-such-program");
    line("4 min  the fourth (no no-such-program, so no second half)");
    line("in all 0 h 7 min");
    assert!(!plan.contains("the fifth"), "{plan}");
    let (_, plan, _) = project.runs("--plan --long");
    assert!(plan.contains("in all 5 h 7 min"), "{plan}");
    let (code, plan, ran) = project.runs("one six hundred");
    assert_eq!((code, ran.as_str()), (Some(64), ""), "{plan}");
    assert!(plan.contains("unknown: hundred; the checks are one two three"), "{plan}");
}

#[test]
fn a_nightly_that_is_stopped_goes_on_with_the_check_that_was_running() {
    let project = Project::new();
    let running = project.nightly("").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Until the second has begun.
    fs::read(project.path().join("began")).unwrap();
    let process = |id: i32| Pid::from_raw(id);
    kill(process(running.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let ended = running.wait_with_output().unwrap().status;
    assert_eq!((ended.code(), ended.signal()), (Some(130), None));
    // What the check itself has started ends a moment after it.
    project.does("timeout 60 sh -c 'while kill -0 $(cat pid); do sleep 0.01; done' 2>/dev/null");

    project.has("go");
    project.expect("", 0, "one two two four ");
    for line in [
        "| one | the first | ok, 0 min",
        "| three | the third | skipped: no no-such-program | |",
        "| five | the fifth | not run | |",
    ] {
        project.records(line);
    }
    let record = project.record();
    assert!(record.contains("found 1") && !record.contains("noise"), "{record}");
    assert!(record.contains("no no-such-program, so no second half"), "{record}");

    // Nothing is left to do.
    project.expect("", 0, "");
    project.expect("--again one", 0, "one ");
    project.expect("--long five", 0, "five ");
    project.commits();
    // Only the record was committed.
    project.expect("one", 0, "");
    project.does("echo '# changed' >>scripts/lib.sh");
    // A change that is not committed starts again.
    project.expect("one", 0, "one ");
    project.commits();
    // So does another commit.
    project.expect("one", 0, "one ");
}

#[test]
fn the_record_keeps_the_last_run_of_each_check_with_its_commit() {
    let project = Project::new();
    let commit = |project: &Project| {
        let output = project.nightly("--plan").output().unwrap();
        let plan = String::from_utf8(output.stdout).unwrap();
        plan.lines().next().unwrap().trim_start_matches("on commit ").trim_end_matches(':').to_owned()
    };
    project.runs("one four");
    let first = commit(&project);
    // As in another clone, which has only the files of the project.
    project.does("rm -r target && sed -i s/fourth/quarter/ scripts/nightly.checks");
    project.commits();
    let second = commit(&project);
    assert_ne!(first, second);
    project.runs("one");
    let record = project.record();
    let row = |check: &str| record.lines().find(|line| line.starts_with(&format!("| {check} |"))).unwrap();
    assert!(row("one").contains(&second) && row("four").contains(&first), "{record}");
    assert!(row("four").contains("| the fourth | ok, "), "what ran, not what would: {record}");
    assert_eq!(record.matches("found 1").count(), 1, "{record}");
    assert_eq!(record.matches("no no-such-program, so no second half").count(), 1, "{record}");

    // What is missing later does not hide what was found.
    project.does("sed -i 's/^check one/needs no-such-program\\n&/' scripts/nightly.checks");
    project.expect("one", 0, "");
    assert_eq!(project.record(), record);
}

#[test]
fn a_check_that_fails_or_is_not_over_in_time_makes_the_nightly_fail_until_it_succeeds() {
    let project = Project::new();
    project.has("go");
    project.has("bad");
    project.expect("four one", 1, "one four ");
    project.records("| four | the fourth | FAILED, ");
    project.records("FAILED: a test");
    // What failed is repeated.
    project.expect("four one", 1, "four ");
    project.does("rm bad");
    project.expect("four one", 0, "four ");
    project.has("bad");
    project.expect("--again four", 1, "four ");
    // An older success does not count.
    project.expect("four", 1, "four ");

    assert_eq!(project.runs("six").0, Some(1));
    project.records("| six | the sixth | FAILED: not over after 0.1s");
    assert_eq!(project.runs("seven").0, Some(0));
    project.records("| seven | the seventh | skipped: no such server here");
    assert_eq!(project.runs("eight").0, Some(0));
    project.records("| eight | the eighth | ok, 1 skipped, ");
    assert_eq!(project.runs("nine").0, Some(1));
    project.records("| nine | the ninth | FAILED: no test ran, ");
    project
        .does("source scripts/lib.sh && [ \"$(outcome echo test result: 0 passed)\" = '**no test ran**' ]");
}

#[test]
fn the_workflow_runs_every_check_that_is_not_on_request() {
    let [workflow, checks] = [".github/workflows/nightly.yaml", "scripts/nightly.checks"]
        .map(|file| fs::read_to_string(root().join(file)).unwrap());
    let parts = workflow.split("part:").nth(1).unwrap().split("steps:").next().unwrap();
    let mut on_request = false;
    for line in checks.lines() {
        if let Some(check) = line.strip_prefix("check ") {
            let name = check.split(' ').next().unwrap();
            let runs = parts.split_whitespace().any(|part| part == name);
            assert_eq!(runs, !on_request, "{name} in the workflow: {parts}");
            on_request = false;
        }
        on_request |= line == "on_request";
    }
}
