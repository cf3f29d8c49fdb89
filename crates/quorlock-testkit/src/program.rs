//! The program `quorlock` with a kind of node of the crate under test.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An example of the crate under test that is the command line with one more kind of node.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// Finds the example with this name. Cargo builds the examples with the tests, but does not say where.
    #[must_use]
    pub fn example(name: &str) -> Program {
        let test = env::current_exe().unwrap();
        let path = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
        assert!(path.exists(), "{} is not built; run `cargo build --examples`", path.display());
        Program { path }
    }

    /// The program with these nodes and arguments. The nodes were created just now, and have forgotten nothing.
    #[must_use]
    pub fn command(&self, nodes: &[String], words: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(words).env("PROGRAM", &self.path);
        command.env("QUORLOCK_NODES", nodes.join(",")).env("QUORLOCK_RESTART_GUARD", "off");
        command
    }

    /// Runs the program. Returns its exit code and all its output.
    #[must_use]
    pub fn run(&self, nodes: &[String], words: &[&str]) -> (Option<i32>, String) {
        ended(&mut self.command(nodes, words))
    }

    /// Asserts that a lock is held while a command runs, excludes another process, and is free afterwards.
    pub fn runs_a_job(&self, nodes: &[String]) {
        let script = "\"$PROGRAM\" status job; \"$PROGRAM\" run --wait 0 job -- echo both; echo \"ended $?\"";
        let (code, output) = self.run(nodes, &["run", "job", "--", "sh", "-c", script]);
        assert_eq!(code, Some(0), "{output}");
        let everywhere = format!("on {0} of {0} node", nodes.len());
        assert!(output.contains("`job` is held by") && output.contains(&everywhere), "{output}");
        assert!(output.contains("ended 75") && !output.contains("both"), "{output}");
        let (code, output) = self.run(nodes, &["status", "job"]);
        assert!(code == Some(0) && output.contains("`job` is free"), "{output}");
    }
}

/// Waits for the end of a command. Returns its exit code and all its output.
pub fn ended(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat())
}
