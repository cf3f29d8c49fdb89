//! A program that runs another lock library on request: see `drivers/README.md`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use quorlock::runtime::{Clock as _, SystemClock};
use tokio::sync::mpsc;

use crate::library::{Language, Library, Quirk};
use quorlock_testkit::patience;

/// Killed with its handle, and exits when this program does: it reads stdin to the end.
pub(crate) struct Driver {
    process: Child,
    stdin: ChildStdin,
    answers: mpsc::UnboundedReceiver<String>,
}

/// The answer of a driver to an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Acquired { token: Vec<u8> },
    Extended,
    Released,
    Refused { reason: String },
}

impl Driver {
    /// `Err` contains the reason.
    pub(crate) async fn start(library: &Library, urls: &[String]) -> Result<Driver, String> {
        let mut process = command(library)?
            .args(urls)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("its driver does not start: {error}"))?;
        let (stdin, stdout) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let words = lines(process.stderr.take().unwrap());
        let mut driver = Driver { process, stdin, answers: lines(stdout) };
        match driver.answer().await {
            Some(ready) if ready.starts_with("ready ") => {
                println!("{ready}");
                assert!(ready.contains(library.version), "pinned to {}: {ready}", library.version);
                Ok(driver)
            }
            reply => {
                let why = last_of(words).await;
                assert!(
                    library.has(Quirk::Abandoned),
                    "{} answered {reply:?} instead of `ready`: {why}",
                    library.name
                );
                Err(format!("it does not run here: {why}"))
            }
        }
    }

    pub(crate) async fn acquire(&mut self, resource: &str, ttl: Duration) -> Answer {
        self.request(&format!("acquire {resource} {}", ttl.as_millis())).await
    }

    pub(crate) async fn extend(&mut self, resource: &str, ttl: Duration) -> Answer {
        self.request(&format!("extend {resource} {}", ttl.as_millis())).await
    }

    pub(crate) async fn release(&mut self, resource: &str) -> Answer {
        self.request(&format!("release {resource}")).await
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    async fn request(&mut self, order: &str) -> Answer {
        writeln!(self.stdin, "{order}").unwrap();
        let reply = self.answer().await.unwrap_or_else(|| panic!("the driver gave no answer to `{order}`"));
        let (verb, rest) = reply.split_once(' ').unwrap_or((&reply, ""));
        match verb {
            "acquired" => Answer::Acquired { token: bytes(rest) },
            "extended" => Answer::Extended,
            "released" => Answer::Released,
            "refused" => Answer::Refused { reason: rest.to_owned() },
            _ => panic!("`{order}` was answered by `{reply}`"),
        }
    }

    /// `None` when it ended, or timed out.
    async fn answer(&mut self) -> Option<String> {
        let clock = SystemClock::default();
        tokio::select! {
            biased;
            answer = self.answers.recv() => answer,
            () = clock.sleep_until(clock.now() + patience()) => None,
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Answer {
    pub(crate) fn token(self) -> Vec<u8> {
        if let Answer::Acquired { token } = self { token } else { panic!("not acquired: {self:?}") }
    }

    pub(crate) fn refused(self) -> String {
        if let Answer::Refused { reason } = self { reason } else { panic!("not refused: {self:?}") }
    }
}

/// The command that starts the driver of this library.
fn command(library: &Library) -> Result<Command, String> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/interop").join(folder(library.language));
    if let Ok(reason) = std::fs::read_to_string(built.join("skipped")) {
        return Err(reason.trim().to_owned());
    }
    let there = |path: PathBuf, missing: &str| if path.exists() { Ok(path) } else { Err(missing.to_owned()) };
    there(built.join("built"), "its driver was not built; run scripts/interop --build")?;
    let name = library.driver;
    let mut command = match library.language {
        Language::Go => Command::new(built.join(name)),
        Language::Rust => Command::new(built.join("target/debug").join(name)),
        Language::Java => Command::new("java"),
        Language::Node => Command::new("node"),
        Language::Python => Command::new("python3"),
    };
    match library.language {
        Language::Go | Language::Rust => {}
        Language::Java => {
            command.arg("-cp").arg(built.join("jars/*")).arg(name);
        }
        Language::Node => {
            command.arg(built.join(format!("{name}.mjs")));
        }
        Language::Python => {
            let packages = there(built.join("packages").join(name), "pip cannot install it here")?;
            let drivers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/drivers/python");
            // -B: write no bytecode next to the sources.
            command.env("PYTHONPATH", packages).arg("-B").arg(drivers.join(format!("{name}.py")));
        }
    }
    Ok(command)
}

fn folder(language: Language) -> &'static str {
    match language {
        Language::Go => "go",
        Language::Java => "java",
        Language::Node => "node",
        Language::Python => "python",
        Language::Rust => "rust",
    }
}

/// Reads on a separate thread, so that a driver never blocks on its output.
fn lines(from: impl std::io::Read + Send + 'static) -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // The receiver is gone when a driver is being stopped.
            drop(sender.send(line));
        }
    });
    receiver
}

async fn last_of(mut lines: mpsc::UnboundedReceiver<String>) -> String {
    let mut last = "nothing on stderr".to_owned();
    while let Some(line) = lines.recv().await {
        last = line;
    }
    last
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| u8::try_from(digit).unwrap()).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
